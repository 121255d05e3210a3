"""The exact points where a network changes its slope along a line, linear in between."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.model.problem import Problem, with_bias
from covopt.model.weights import Weights, carried


def breakpoints(problem: Problem, weights: Weights, low: float, high: float) -> Float[Tensor, " k"]:
    """Return the kinks of a network of one input in [low, high], and both ends, in order.

    Between two points where no neuron below changes its sign, the pre-activations of a layer are linear in x, so that
    each of its neurons changes its sign there at most once, at x + (x' - x) z / (z - z') (derived). Layer by layer
    these points are added.

    Args:
        problem: of one input, any depth, in float64.
        weights: W_1 ... W_L, shape (n_l, n_{l-1} + 1), the bias column last.
        low, high: the ends, low < high.
    """
    x = problem.X.new_tensor([low, high])
    if problem.activation.is_linear:
        return x
    for layer in range(1, problem.depth):
        Z = preactivations_at(problem, weights, x[:, None], layer)
        crossed = (Z[:-1].sign() * Z[1:].sign() < 0).nonzero()
        z, z_next = Z[:-1][crossed[:, 0], crossed[:, 1]], Z[1:][crossed[:, 0], crossed[:, 1]]
        start, end = x[crossed[:, 0]], x[crossed[:, 0] + 1]
        crossings = torch.lerp(start, end, (z / (z - z_next)).clamp(0.0, 1.0))
        x = torch.cat([x, crossings]).unique()
    return x


def kinks(x: Float[Tensor, " k"], F: Float[Tensor, "k m"]) -> Float[Tensor, " kinks"]:
    """Return those of the ordered points x at which F changes its slope beyond rounding."""
    slopes = F.diff(dim=0) / x.diff()[:, None]
    change = slopes.diff(dim=0).abs().amax(dim=1)
    return x[1:-1][change > 1e-9 * slopes.abs().max()]


def preactivations_at(problem: Problem, weights: Weights, X: Float[Tensor, "M n0"], layer: int) -> Float[Tensor, "M n"]:
    """Return Z_l at new inputs, for layer = 1 ... L."""
    return carried(problem, weights[: layer - 1], with_bias(X, problem.beta)) @ weights[layer - 1].T
