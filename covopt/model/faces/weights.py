"""The first face of the loss: weights.

L(W) = C(Z_L) + lam sum_l |W_l|_F^2,    Z_l = [sigma(Z_{l-1}), beta 1] W_l^T,   [sigma(Z_0), beta 1] = [X, beta 1]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from covopt.model.activation import Activation
from covopt.model.faces.setting import LossValue, Question, Setting
from covopt.model.loss import Loss
from covopt.runtime.errors import ProblemError, counted
from covopt.runtime.threads import fitted


@fitted
def loss_of_weights(
    X: object,
    Y: object,
    W: object,
    *,
    lam: float | None = None,
    loss: str | Loss | None = None,
    bias: float | str = 1.0,
    activation: str | Activation = "relu",
    sample_weight: object = None,
) -> LossValue:
    """Return the regularised loss of a network, C(Z_L) + lam sum_l |W_l|_F^2 [JGHG22, section 1].

    >>> X, Y = [[1.0], [2.0]], [[1.0], [2.0]]
    >>> covopt.loss_of_weights(X, Y, [[[1.0, 0.0]], [[1.0, 0.0]]], lam=0.1).total
    0.2

    Args:
        X, Y: inputs (N, n_0) and targets (N, n_L).
        W: weights W_1, ..., W_L, each (n_l, n_{l-1} + 1) with the bias column last, or a batch (B, n_l, n_{l-1} + 1).
        lam: strength of the penalty; None asks for the representation cost, whose loss is the norm alone.
        loss: as in `covopt.solve`.
        bias: beta >= 0, or "free": biases that the penalty does not count; activation: relu, leaky:A or linear.
        sample_weight: weights of the samples (N,); None where all are equal.

    Returns:
        The loss and its parts; tensors that gradients pass through where W holds tensors.

    Raises:
        ProblemError: data, weights or options do not fit together.
    """
    question = Question.read(X, Y, W, lam=lam, loss=loss, bias=bias, activation=activation, sample_weight=sample_weight)
    matrices = question.setting.matrices(W, "W")
    Z = _forward(question.setting, matrices)
    penalised = [question.setting.biases.penalised(A).square().sum(dim=(-2, -1)) for A in matrices]
    return question.value(Z[-1], torch.stack(penalised).sum(dim=0))


@fitted
def preactivations(
    X: object, W: object, *, bias: float | str = 1.0, activation: str | Activation = "relu"
) -> list[Tensor] | list[NDArray[np.float64]]:
    """Return the representations Z_l = [sigma(Z_{l-1}), beta 1] W_l^T of a network.

    >>> covopt.preactivations([[1.0], [-1.0]], [[[1.0, 0.0]], [[2.0, 0.5]]])[1].tolist()
    [[2.5], [0.5]]

    Args:
        X: inputs (N, n_0).
        W: weights W_1, ..., W_L, each (n_l, n_{l-1} + 1), or a batch (B, n_l, n_{l-1} + 1).
        bias: beta >= 0, or "free"; activation: relu, leaky:A or linear.

    Returns:
        Z_1, ..., Z_L, each (N, n_l), or (B, N, n_l) for a batch; tensors where tensors came in.

    Raises:
        ProblemError: the shapes do not fit, or an entry is not finite.
    """
    setting = Setting.read(X, bias, activation, W)
    return [setting.result(z) for z in _forward(setting, setting.matrices(W, "W"))]  # type: ignore[return-value]


def _forward(setting: Setting, W: Sequence[Float[Tensor, "*b _ _"]]) -> list[Float[Tensor, "*b N _"]]:
    if not W:
        raise ProblemError("W is empty; give one matrix of weights for each layer.")
    S, Z = setting.X, []
    for layer, A in enumerate(W, start=1):
        if A.shape[-1] != S.shape[-1] + 1:
            raise ProblemError(
                f"W{layer} has {counted(A.shape[-1], 'column')}, but it must have {S.shape[-1] + 1}:"
                f" {counted(S.shape[-1], 'input')} and the bias."
            )
        Z.append(setting.outputs(S, A))
        S = setting.activation(Z[-1])
    return Z
