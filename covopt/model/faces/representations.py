"""The second face of the loss: hidden representations [JGHG22, Prop. 1].

    L_r(Z) = C(Z_L) + lam sum_l |Z_l^T (Zs_{l-1}^T)^+|_F^2    over Im Z_l inside Im Zs_{l-1}

with Zs_l = [sigma(Z_l), beta 1] and Zs_0 = [X, beta 1]. The lightest weights with these representations are
W_l = Z_l^T (Zs_{l-1}^T)^+, and L_r(Z) is their loss.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covopt.linalg.psd import RANK_RULE
from covopt.model.activation import Activation
from covopt.model.faces.setting import LossValue, Question, Setting, read_tikhonov
from covopt.model.loss import Loss
from covopt.runtime.threads import fitted


@fitted
def loss_of_representations(
    X: object,
    Y: object,
    Z: object,
    *,
    lam: float | None = None,
    loss: str | Loss | None = None,
    bias: float | str = 1.0,
    activation: str | Activation = "relu",
    sample_weight: object = None,
    tikhonov: float = 0.0,
) -> LossValue:
    """Return the regularised loss L_r(Z) = C(Z_L) + lam sum_l |W_l(Z)|_F^2.

    >>> X, Y = [[1.0], [2.0]], [[1.0], [2.0]]
    >>> round(covopt.loss_of_representations(X, Y, [X, Y], lam=0.1, bias=0.0).total, 12)
    0.2

    W_l(Z) = Z_l^T (Zs_{l-1}^T)^+ are the lightest weights that lead from layer to layer [JGHG22, Prop. 1], so that
    L_r(Z) <= L(W) for every network W with these representations. With Tikhonov t > 0 the norm of layer l is
    Tr[K_l (Ks_{l-1} + t I)^{-1}] = min_W |W|^2 + |Z_l - Zs_{l-1} W^T|^2 / t, which is defined for all Z.

    Args:
        X, Y: inputs (N, n_0) and targets (N, n_L).
        Z: representations Z_1, ..., Z_L, each (N, n_l), or a batch (B, N, n_l).
        lam, loss, bias, activation, sample_weight: as for `loss_of_weights`.
        tikhonov: t >= 0; 0 takes the pseudo-inverse.

    Returns:
        The loss and its parts; tensors that gradients pass through where Z holds tensors. Without Tikhonov the loss
        is smooth where no rank changes. Its gradient moves each Z_l alone; take the loss of `project_to_range` of Z to
        descend inside the feasible set.

    Raises:
        ProblemError: data, representations or options do not fit together, or, without Tikhonov, a Z_l is not in the
            range of Zs_{l-1}.
    """
    rule = read_tikhonov(tikhonov)
    question = Question.read(X, Y, Z, lam=lam, loss=loss, bias=bias, activation=activation, sample_weight=sample_weight)
    setting = question.setting
    layers = question.rows_of(question.whole.representations(Z))
    W, R = setting.weights(layers, rule)
    norms = [setting.biases.penalised(A).square().sum(dim=(-2, -1)) for A in W]
    if rule.tikhonov == 0.0:
        setting.check_range(layers, R)
    else:
        norms += [r.square().sum(dim=(-2, -1)) / rule.tikhonov for r in R]
    return question.value(layers[-1], torch.stack(norms).sum(dim=0))


@fitted
def weights_of(
    X: object, Z: object, *, bias: float | str = 1.0, activation: str | Activation = "relu", tikhonov: float = 0.0
) -> list[Tensor] | list[NDArray[np.float64]]:
    """Return the lightest weights with given representations, W_l = Z_l^T (Zs_{l-1}^T)^+.

    >>> W = covopt.weights_of([[1.0], [2.0]], [[[2.0], [4.0]], [[1.0], [2.0]]], bias=0.0)
    >>> [layer.round(12).tolist() for layer in W]
    [[[2.0, 0.0]], [[0.5, 0.0]]]

    This is [JGHG22, Prop. 1]. With free biases the weights without the bias column are the lightest, and the bias is
    what they leave. With Tikhonov t > 0 each layer has the ridge weights, W_l^T = (Zs^T Zs + t I)^{-1} Zs^T Z_l.

    Args:
        X: inputs (N, n_0).
        Z: representations Z_1, ..., Z_L, each (N, n_l), or a batch (B, N, n_l).
        bias: beta >= 0, or "free"; activation: relu, leaky:A or linear.
        tikhonov: t >= 0; 0 takes the pseudo-inverse.

    Returns:
        W_1, ..., W_L, each (n_l, n_{l-1} + 1) with the bias column last, or a batch (B, n_l, n_{l-1} + 1); tensors
        that gradients pass through where Z holds tensors.

    Raises:
        ProblemError: the shapes do not fit, an entry is not finite, or, without Tikhonov, a Z_l is not in the range of
            Zs_{l-1}.
    """
    rule, setting = read_tikhonov(tikhonov), Setting.read(X, bias, activation, Z)
    layers = setting.representations(Z)
    W, R = setting.weights(layers, rule)
    if rule.tikhonov == 0.0:
        setting.check_range(layers, R)
    return [setting.result(A) for A in W]  # type: ignore[return-value]


@fitted
def project_to_range(
    Z: object, X: object, *, bias: float | str = 1.0, activation: str | Activation = "relu"
) -> list[Tensor] | list[NDArray[np.float64]]:
    """Project representations onto the feasible set, Z_l <- P Z_l with P on Im Zs_{l-1}.

    >>> Z = covopt.project_to_range([[[1.0], [0.0]], [[1.0], [1.0]]], [[1.0], [1.0]], bias=0.0)
    >>> [z.round(12).tolist() for z in Z]
    [[[0.5], [0.5]], [[1.0], [1.0]]]

    As in [JGHG22, section 3.3], from the first layer up, each onto the range of the projected layer below it. Gradients
    pass through, also through the turning of the ranges.

    Args:
        Z: representations Z_1, ..., Z_L, each (N, n_l), or a batch (B, N, n_l).
        X: inputs (N, n_0).
        bias: beta >= 0, or "free"; activation: relu, leaky:A or linear.

    Returns:
        The projected Z_1, ..., Z_L; tensors where tensors came in.

    Raises:
        ProblemError: the shapes do not fit, or an entry is not finite.
    """
    setting = Setting.read(X, bias, activation, Z)
    S, projected = setting.X, []
    for z in setting.representations(Z):
        projected.append(setting.outputs(S, setting.biases.lightest(S, z, setting.beta, RANK_RULE)))
        S = setting.activation(projected[-1])
    return [setting.result(z) for z in projected]  # type: ignore[return-value]
