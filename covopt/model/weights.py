"""The first face of the loss: weights.

L(W) = C(Z_L) + lam sum_l |W_l|_F^2 (MATH.md section 1). W_l has shape (n_l, n_{l-1} + 1), its last column multiplies
the bias column beta 1, and Z_l = Zs_{l-1} W_l^T. With a free linear skip W_L has n_0 more columns before the last,
which multiply the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from covopt.linalg.rounding import UNIT_ROUNDOFF, long_product, two_product
from covopt.model.problem import FITS, Problem, with_bias
from covopt.runtime.errors import ProblemError, counted

Weights = Sequence[Float[Tensor, "_ _"]]


@dataclass(frozen=True)
class Cost:
    """The parts of the objective at one network."""

    fit: float  # C(F)
    norm: float  # |W|^2 = sum_l |W_l|_F^2; without the columns that are free of the penalty
    total: float  # C + lam |W|^2 (|W|^2 alone for `interpolate`)
    residual: float  # max |F - Y|; for `interpolate` in more digits where rounding could decide whether it fits


def flattened(weights: Weights) -> Float[Tensor, " P"]:
    """Return the entries of all matrices, one after another."""
    return torch.cat([W.flatten() for W in weights])


def shaped_like(flat: Float[Tensor, " P"], weights: Weights) -> list[Tensor]:
    """Return views of the entries in the shapes of these matrices, the inverse of `flattened`."""
    pieces = flat.split([W.numel() for W in weights])
    return [piece.view_as(W) for piece, W in zip(pieces, weights, strict=True)]


def check_weights(problem: Problem, weights: Weights) -> None:
    """Raise a ProblemError unless the shapes of W_1 ... W_L fit the problem."""
    if len(weights) != problem.depth:
        raise ProblemError(
            f"The network has {counted(len(weights), 'layer')} of weights and the problem's depth is {problem.depth};"
            " give one matrix for each layer."
        )
    width = problem.X.shape[1]
    for layer, W in enumerate(weights, start=1):
        skipped = problem.biases.skipped(problem.X).shape[1] if layer == problem.depth else 0
        if layer == 1 and W.ndim == 2 and W.shape[1] != width + 1:
            taken, columns = counted(W.shape[1] - 1, "input"), counted(width, "column")
            raise ProblemError(f"The network takes {taken}, but X has {columns}; give what it was trained on.")
        if W.ndim != 2 or W.shape[1] != width + skipped + 1:
            raise ProblemError(
                f"W{layer} has shape {tuple(W.shape)}, but it must have {width + skipped + 1} columns:"
                f" {counted(width, 'input')}{f', the skip of {skipped}' if skipped else ''} and the bias."
            )
        width = W.shape[0]
    if width != problem.Y.shape[1]:
        raise ProblemError(
            f"W{len(weights)} has {counted(width, 'row')}, but Y has {counted(problem.Y.shape[1], 'column')}; they"
            " must agree."
        )


def check_network(problem: Problem, weights: Weights) -> None:
    """Raise a ProblemError unless weights from outside are finite and fit the problem."""
    check_weights(problem, weights)
    for layer, W in enumerate(weights, start=1):
        if not torch.isfinite(W).all():
            raise ProblemError(f"W{layer} has NaN or infinite entries; train the network again.")


def preactivations(problem: Problem, weights: Weights) -> list[Float[Tensor, "N _"]]:
    """Return [Z_1, ..., Z_L], Z_l = Zs_{l-1} W_l^T, shapes (N, n_l)."""
    check_weights(problem, weights)
    layers, Zs = [], problem.Xt
    for layer, W in enumerate(weights, start=1):
        layers.append(Zs @ W.T)
        if layer < problem.depth:
            Zs = problem.appended(layers[-1], layer)
    return layers


def inputs_from(problem: Problem, Z: Sequence[Float[Tensor, "N _"]]) -> list[Float[Tensor, "N _"]]:
    """Return [Zs_0, ..., Zs_{L-1}], shapes (N, n_l + 1), the inputs of each layer of weights."""
    return [problem.Xt] + [problem.appended(z, layer) for layer, z in enumerate(Z[:-1], start=1)]


def pulled_back(
    problem: Problem, weights: Weights, Z: Sequence[Float[Tensor, "N _"]], M: Float[Tensor, "N nL"]
) -> list[Float[Tensor, "N _"]]:
    """Return [M_1, ..., M_L], M_l = sigma'(Z_l) * [M_{l+1} W_{l+1} without its bias column]."""
    layers = [M]
    for layer in range(problem.depth - 1, 0, -1):
        into = weights[layer][:, : Z[layer - 1].shape[1]]
        layers.append((layers[-1] @ into) * problem.activation.derivative(Z[layer - 1]))
    return layers[::-1]


def outputs(problem: Problem, weights: Weights, X: Float[Tensor, "M n0"]) -> Float[Tensor, "M nL"]:
    """Return the network's outputs at other inputs X."""
    return carried(problem, weights[:-1], with_bias(X, problem.beta)) @ weights[-1].T


def carried(problem: Problem, weights: Weights, Zs: Float[Tensor, "M d"]) -> Float[Tensor, "M _"]:
    """Return Zs_l from Zs_0, behind the first l layers of weights."""
    X = Zs[:, :-1]
    for layer, W in enumerate(weights, start=1):
        Zs = problem.appended(Zs @ W.T, layer, X)
    return Zs


def inputs_of(problem: Problem, weights: Weights, layer: int) -> Float[Tensor, "N _"]:
    """Return Zs_{layer-1} (N, n_{layer-1} + 1), the inputs of W_layer, for layer = 1 ... L."""
    return carried(problem, weights[: layer - 1], problem.Xt)


def outputs_above(problem: Problem, weights: Weights, layer: int, Z: Float[Tensor, "N n"]) -> Float[Tensor, "N nL"]:
    """Return the outputs F of Z_l, l = `layer`."""
    for above in range(layer, len(weights)):
        Z = problem.appended(Z, above) @ weights[above].T
    return Z


def objective(problem: Problem, weights: Weights) -> Float[Tensor, ""]:
    """Return L(W) = C(Z_L) + lam sum_l |W_l|_F^2, differentiable in the weights."""
    F = preactivations(problem, weights)[-1]
    return problem.loss_at(F) + problem.lam * torch.stack([A.square().sum() for A in problem.decayed(weights)]).sum()


@torch.no_grad()
def evaluate(problem: Problem, weights: Weights, chunk: int = 2048) -> Cost:
    """Return the cost and its parts, recomputed from the weights, `chunk` samples at a time."""
    check_weights(problem, weights)
    F = torch.empty_like(problem.Y)
    for rows, out in zip(problem.X.split(chunk), F.split(chunk), strict=True):
        out.copy_(outputs(problem, weights, rows))
    fit = float(problem.loss_at(F))
    norm = float(sum(A.square().sum() for A in problem.decayed(weights)))
    residual = problem.spread.largest(float((F - problem.Y).abs().max()))
    if problem.interpolates:
        residual = _residual_of_fit(problem, weights, residual)
    return Cost(fit=fit, norm=norm, total=fit + problem.lam * norm, residual=residual)


def _residual_of_fit(problem: Problem, weights: Weights, residual: float) -> float:
    """Return max |F - Y| of an exact fit, which is allowed only if that of the exact outputs is.

    It is `residual`, that in float64, unless rounding may have moved it across the limit or by more than `FITS` of the
    largest target. Then F is evaluated in twice the digits, and a bound on the rounding that remains is added.
    """
    off, allowed = float(outputs_and_rounding(problem, weights)[-1].max()), problem.allowed_misfit
    if not math.isfinite(residual + off):
        return math.inf
    resolved = off <= allowed * FITS / problem.fits and residual + off <= allowed
    if resolved or residual - off > allowed:
        return residual
    F, low, rounding = outputs_and_rounding(problem, weights, long=True)
    return float((((F - problem.Y) + low).abs() + rounding).max())


def outputs_and_rounding(
    problem: Problem, weights: Weights, *, long: bool = False
) -> tuple[Float[Tensor, "N nL"], Tensor, Float[Tensor, "N nL"]]:
    """Return the outputs as a sum F + low, and a bound on the rounding of each of its entries.

    `long` computes with twice the digits of float64; else low is 0. A sum of n products is off by at most g = (n + 4) u
    times the sum of their magnitudes, u = 2^-53, the rounding of sigma and of the bounds included; with `long` g is (2
    (n + 4) u)^2. If E_l bounds the rounding of the computed Zs_l,

        E_{l+1} = (g |Zs_l| + E_l) |W_{l+1}|^T,

    since sigma enlarges nothing; and ReLU is exact where Z_l < -E_l. Numbers must neither overflow nor underflow.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, 3.1.
    """
    Z, Zs, slope = problem.X, problem.Xt, problem.X.new_tensor(problem.activation.slope)
    low, E = (torch.zeros_like(Zs) if long else Zs.new_zeros(())), torch.zeros_like(Zs)
    for layer, W in enumerate(weights):
        if layer:
            Zs = problem.appended(Z, layer)
            E = E.mul_(Z >= -E) if problem.activation.slope == 0.0 else E
            E = pad(E, (0, Zs.shape[1] - Z.shape[1]))
        if layer and long:
            low = torch.where(Z < 0.0, slope * low + two_product(Z, slope)[1], low)
            low = pad(low, (0, Zs.shape[1] - Z.shape[1]))
        g = (W.shape[1] + 4) * UNIT_ROUNDOFF
        E = E.add_(Zs.abs(), alpha=(2.0 * g) ** 2 if long else g) @ W.abs().T
        Z, low = long_product(Zs, low, W) if long else (Zs @ W.T, low)
    return Z, low, E


def rounding_of(problem: Problem, weights: Weights) -> float:
    """Return by how much rounding can have moved the total of `evaluate`: by much where terms cancel."""
    total = evaluate(problem, weights).total
    F, _, off = outputs_and_rounding(problem, weights)
    if problem.loss.name == "mse":
        missed = (F - problem.Y).abs()
        moved = float(problem.shares.to(off) @ (off * (2.0 * missed + off)).sum(dim=1))
    elif problem.loss.name == "cross_entropy":  # for a sample, at most twice the largest change of its outputs
        moved = 2.0 * float(off.max())
    elif problem.interpolates:
        moved = 0.0
    else:  # convex: nowhere nearby is the rise larger than along the slopes
        moved = float(problem.loss_at(F + off * torch.where(problem.gradient_at(F) < 0.0, -1.0, 1.0)))
        moved = max(0.0, moved - float(problem.loss_at(F)))
    return moved + (problem.Y.numel() + sum(W.numel() for W in weights) + 8) * UNIT_ROUNDOFF * total


def gradient(problem: Problem, weights: Weights) -> list[Float[Tensor, "_ _"]]:
    """Return dL/dW_l by back-propagation, with sigma' at kinks as in `Activation.derivative`; not for `interpolate`."""
    Z = preactivations(problem, weights)
    M = pulled_back(problem, weights, Z, problem.gradient_at(Z[-1]))
    slopes = [m.T @ Zs for _, m, Zs in zip(weights, M, inputs_from(problem, Z), strict=True)]
    for slope, A in zip(problem.decayed(slopes), problem.decayed(weights), strict=True):
        slope.add_(A, alpha=2.0 * problem.lam)
    return slopes


def breakpoints(problem: Problem, weights: Weights, low: float, high: float) -> Float[Tensor, " k"]:
    """Return the kinks of a network of one input in [low, high], and both ends, in order; in float64.

    Between two points where no neuron below changes its sign, the pre-activations of a layer are linear in x, so that
    each of its neurons changes its sign there at most once, at x + (x' - x) z / (z - z') (derived). Layer by layer
    these points are added.
    """
    x = problem.X.new_tensor([low, high])
    if problem.activation.is_linear:
        return x
    for layer in range(1, problem.depth):
        Z = preactivations_at(problem, weights, x[:, None], layer)
        crossed = (Z[:-1].sign() * Z[1:].sign() < 0).nonzero()
        z, z_next = Z[:-1][crossed[:, 0], crossed[:, 1]], Z[1:][crossed[:, 0], crossed[:, 1]]
        start, end = x[crossed[:, 0]], x[crossed[:, 0] + 1]
        x = torch.cat([x, torch.lerp(start, end, (z / (z - z_next)).clamp(0.0, 1.0))]).unique()
    return x


def kinks(x: Float[Tensor, " k"], F: Float[Tensor, "k m"]) -> Float[Tensor, " kinks"]:
    """Return those of the ordered points x at which F changes its slope beyond rounding."""
    slopes = F.diff(dim=0) / x.diff()[:, None]
    change = slopes.diff(dim=0).abs().amax(dim=1)
    return x[1:-1][change > 1e-9 * slopes.abs().max()]


def preactivations_at(problem: Problem, weights: Weights, X: Float[Tensor, "M n0"], layer: int) -> Float[Tensor, "M n"]:
    """Return Z_l at new inputs, for layer = 1 ... L."""
    return carried(problem, weights[: layer - 1], with_bias(X, problem.beta)) @ weights[layer - 1].T
