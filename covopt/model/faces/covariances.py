"""The third face of the loss: covariances [JGHG22, Prop. 3 and 5].

    L_k(K, Z_L) = C(Z_L) + lam sum_l Tr[K_l (Ks_{l-1})^+],    K_L = Z_L Z_L^T,  Ks_0 = Zs_0 Zs_0^T

over pairs (K_l, Ks_l), l = 1, ..., L-1, in the cone S with Im K_l inside Im Ks_{l-1}. It is convex in each pair, and in
Z_L, with the others fixed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from covopt.linalg.cholesky import factorize
from covopt.linalg.pseudo_inverse import eigenvectors_of_range, pseudo_inverse
from covopt.model.activation import Activation
from covopt.model.faces.setting import OUT_OF_RANGE, LossValue, Question, Setting, read_tikhonov
from covopt.model.loss import Loss
from covopt.model.problem import with_bias
from covopt.runtime.errors import ProblemError
from covopt.runtime.threads import fitted

Covariance = Float[Tensor, "*b N N"]


@fitted
def loss_of_covariances(
    X: object,
    Y: object,
    K: object,
    Z_L: object,
    *,
    lam: float | None = None,
    loss: str | Loss | None = None,
    bias: float | str = 1.0,
    activation: str | Activation = "relu",
    sample_weight: object = None,
    tikhonov: float = 0.0,
) -> LossValue:
    """Return the regularised loss L_k(K, Z_L) = C(Z_L) + lam sum_l Tr[K_l (Ks_{l-1})^+].

    >>> X, Y = [[1.0], [2.0]], [[1.0], [2.0]]
    >>> pair = covopt.covariances_of(X, bias=0.0)
    >>> round(covopt.loss_of_covariances(X, Y, [pair], Y, lam=0.1, bias=0.0).total, 12)
    0.2

    It is a function of covariances. Dense covariances hold the squares of the singular values of Zs, so half of the
    digits are lost: eigenvalues below 16 N eps of the largest count as zero. `in_cone` decides whether a pair belongs
    to some network; this function checks only what the formula needs. Source: [JGHG22, Prop. 3 and 5].

    Args:
        X, Y: inputs (N, n_0) and targets (N, n_L).
        K: a pair of matrices (N, N), or of batches (B, N, N), for each hidden layer: (K_1, Ks_1), ..., (K_{L-1},
            Ks_{L-1}), as `covariances_of` returns them; Ks_l contains beta^2 11^T.
        Z_L: outputs (N, n_L), or a batch (B, N, n_L).
        lam, loss, bias, activation, sample_weight: as for `loss_of_weights`.
        tikhonov: t >= 0; with t > 0, (Ks + t I)^{-1} takes the place of Ks^+.

    Returns:
        The loss and its parts; tensors that gradients pass through where K or Z_L are tensors.

    Raises:
        ProblemError: data, covariances or options do not fit together; a matrix is not symmetric or not positive
            semi-definite; a Ks_{l-1} is too close to singular for the digits of K_l; or, without Tikhonov, a K_l is not
            in the range of Ks_{l-1}.
    """
    rule = read_tikhonov(tikhonov)
    covariances = _pairs(K)
    variables = [Z_L, *(A for pair in covariances for A in pair)]
    question = Question.read(
        X, Y, variables, lam=lam, loss=loss, bias=bias, activation=activation, sample_weight=sample_weight
    )
    (ZL,) = question.rows_of([question.whole.matrix(Z_L, "Z_L")])
    if ZL.shape[-2] != len(question.setting.X):
        samples = len(question.whole.X)
        raise ProblemError(f"Z_L has {ZL.shape[-2]} rows, but X has {samples}; give a row for each sample.")
    pairs = [_read(question, pair, layer) for layer, pair in enumerate(covariances, start=1)]
    biases, rows = question.setting.biases, question.setting.X
    reduced = [tuple(biases.reduced_covariance(A) for A in pair) for pair in pairs]
    sizes = [Ks.detach().abs().amax(dim=(-2, -1)) for _, Ks in pairs]
    reduced_ZL, detached_ZL = biases.reduced(ZL), ZL.detach()
    outputs = [*(first for first, _ in reduced), reduced_ZL @ reduced_ZL.mT]
    inputs = [Ks for _, Ks in reduced]
    if rule.tikhonov == 0.0:
        given_outputs = [*(first.detach() for first, _ in pairs), detached_ZL @ detached_ZL.mT]
        norms = [A.norm(dim=(-2, -1)) for A in given_outputs]
        _check_range(question.setting, list(zip(outputs, norms, strict=True)), inputs, sizes)
    # (Ks_0)^+ by the thin factor, which preserves all digits.
    below = biases.reduced_inputs(rows, question.setting.beta)
    inverses = [factorize(below, rule).solve_gram(torch.eye(len(rows)).to(rows))]
    inverses += [pseudo_inverse(B, size, rule.tikhonov) for B, size in zip(inputs, sizes, strict=True)]
    traces = [(A * inverse).sum(dim=(-2, -1)) for A, inverse in zip(outputs, inverses, strict=True)]
    _check_digits(outputs, inverses, torch.stack(traces).sum(dim=0))
    return question.value(ZL, torch.stack(traces).sum(dim=0))


@fitted
def covariances_of(
    Z: object, *, bias: float | str = 1.0, activation: str | Activation = "relu"
) -> tuple[Tensor, Tensor] | tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a layer's covariances K = Z Z^T and Ks = sigma(Z) sigma(Z)^T + beta^2 11^T [JGHG22, Prop. 3].

    >>> K, Ks = covopt.covariances_of([[1.0], [-1.0]], bias=0.0)
    >>> K.tolist(), Ks.tolist()
    ([[1.0, -1.0], [-1.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]])

    Args:
        Z: representations (N, n), one neuron in each column, or a batch (B, N, n).
        bias: beta >= 0, or "free" (beta = 1); activation: relu, leaky:A or linear.

    Returns:
        (K, Ks), both (N, N), or (B, N, N); tensors that gradients pass through where Z is one.

    Raises:
        ProblemError: Z is not a matrix of finite numbers, or an option is unknown.
    """
    setting = Setting.read([[1.0]], bias, activation, [Z])
    z = setting.matrix(Z, "Z")
    Zs = with_bias(setting.activation(z), setting.beta)
    return setting.result(z @ z.mT), setting.result(Zs @ Zs.mT)  # type: ignore[return-value]


def _pairs(K: object) -> list[tuple[object, object]]:
    """Read a list of pairs."""
    pairs = list(K) if isinstance(K, Sequence) else []
    good = isinstance(K, Sequence) and all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs)
    if not good:
        raise ProblemError("K is not a list of pairs; give a list with one pair (K_l, Ks_l) for each hidden layer.")
    return pairs


def _read(question: Question, pair: tuple[object, object], layer: int) -> tuple[Covariance, Covariance]:
    """Return the rows and columns of a pair that count, checked."""
    whole, matrices = question.whole, []
    for value, name in zip(pair, (f"K{layer}", f"Ks{layer}"), strict=True):
        A = whole.matrix(value, name)
        if A.shape[-2:] != (len(whole.X), len(whole.X)):
            raise ProblemError(
                f"{name} has shape {tuple(A.shape)}, but it must have a row and a column for each of the"
                f" {len(whole.X)} samples."
            )
        if question.rows is not None:
            A = A[..., question.rows, :][..., question.rows]
        _check_covariance(A.detach(), name)
        matrices.append(A)
    return matrices[0], matrices[1]


def _check_covariance(A: Covariance, name: str) -> None:
    rounding = 1e-4 if A.dtype == torch.float32 else 1e-10  # relative, of entries and of eigenvalues
    largest = A.abs().amax(dim=(-2, -1))
    if bool(((A - A.mT).abs().amax(dim=(-2, -1)) > rounding * largest).any()):
        raise ProblemError(f"{name} is not symmetric; give (A + A^T) / 2 if that is what you mean.")
    values = torch.linalg.eigvalsh(A)
    if bool((values[..., 0] < -rounding * values[..., -1].clamp_min(0.0)).any()):
        raise ProblemError(
            f"{name} is not positive semi-definite (smallest eigenvalue {float(values[..., 0].min()):.2g}); a"
            " covariance has no negative eigenvalue."
        )


def _check_digits(outputs: Sequence[Covariance], inverses: Sequence[Covariance], total: Tensor) -> None:
    """Raise a ProblemError where the rounding of a K_l alone can change the sum of traces by 1e-3 (in float32, 0.1).

    An entry of K_l holds eps |K_l|; the inverse of Ks_{l-1} multiplies that by up to its largest eigenvalue.
    """
    lost = (0.1 if total.dtype == torch.float32 else 1e-3) * total.detach().abs()
    for layer, (A, inverse) in enumerate(zip(outputs, inverses, strict=True), start=1):
        rounding = torch.finfo(A.dtype).eps * A.detach().norm(dim=(-2, -1)) * inverse.detach().norm(dim=(-2, -1))
        if bool((rounding > lost).any()):
            name = "The covariance of Z_L" if layer == len(outputs) else f"K{layer}"
            below = "the covariance of the inputs" if layer == 1 else f"Ks{layer - 1}"
            raise ProblemError(
                f"{name} holds too few digits for the inverse of {below}, which is nearly singular; take"
                " loss_of_representations, which squares nothing, or give a larger tikhonov."
            )


def _check_range(
    setting: Setting,
    outputs: Sequence[tuple[Covariance, Tensor]],
    inputs: Sequence[Covariance],
    sizes: Sequence[Tensor],
) -> None:
    """Raise a ProblemError unless Im K_l lies inside Im Ks_{l-1} for every layer.

    `outputs` holds what is left of each K_l by the bias, with the norm of the K_l that was given: where free biases
    carry a layer that is constant, what is left is rounding, which must not be held against itself. `inputs` holds what
    is left of each Ks_l by the bias, and `sizes` the largest entry of the Ks_l that was given.
    """
    first = setting.biases.reduced_inputs(setting.X, setting.beta)
    rejected = [factorize(first).reject(outputs[0][0].detach())]
    for (A, _), B, size in zip(outputs[1:], inputs, sizes, strict=True):
        U = eigenvectors_of_range(B.detach(), size)[1]
        rejected.append(A.detach() - U @ (U.mT @ A.detach()))
    for layer, ((_, norm), outside) in enumerate(zip(outputs, rejected, strict=True), start=1):
        worst = float((outside.norm(dim=(-2, -1)) / torch.where(norm > 0.0, norm, 1.0)).max())
        if worst > OUT_OF_RANGE[outside.dtype]:
            name = "Z_L" if layer == len(outputs) else f"K{layer}"
            below = "the inputs" if layer == 1 else f"Ks{layer - 1}"
            raise ProblemError(
                f"{name} cannot be computed from the layer below: {worst:.2g} of its covariance lies outside the range"
                f" of {below}; give covariances of one network, or a tikhonov above 0."
            )
