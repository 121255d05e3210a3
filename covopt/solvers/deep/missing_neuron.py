"""The neuron to add: the oracle at the back-propagated dual (MATH.md section 5)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.psd import thin
from covopt.model.problem import Problem
from covopt.model.stationarity import add_neuron, duals, inputs_of
from covopt.model.weights import Weights, evaluate
from covopt.oracles.breakpoints import strongest
from covopt.oracles.oracle import oracle_values
from covopt.oracles.search import AscentOptions, ConvexConcaveOracle


@dataclass(frozen=True)
class MissingNeuron:
    """The best neuron that a search found for one hidden layer.

    Attributes:
        layer: 1 ... L - 1.
        value: h_l(w) = |M_{l+1}^T sigma(Zs_{l-1} w)| at it; above 1 the loss falls at first order (always true for the
            last hidden layer only). A search found it: it is no bound.
        direction: w, of unit length, bias coordinate last; a free bias is not counted in its length.
        output: M_{l+1}^T s / |M_{l+1}^T s|.
        cost: of the network with the neuron, at the best of the sizes tried; that of the network itself where every
            size raises it.
        size: that best size, 0 where none lowers the cost.
        cut: whether the time ended the search.
    """

    layer: int
    value: float
    direction: Float[Tensor, " d"]
    output: Float[Tensor, " m"]
    cost: float
    size: float
    cut: bool = False

    def network(self, problem: Problem, weights: Weights) -> list[Tensor]:
        """Add the neuron in its best size; for `interpolate` W_L is the least that fits again."""
        return _grown(problem, weights, self.layer, self, self.size)


class Found(NamedTuple):
    """h_l(w), w and its output, as in `MissingNeuron`."""

    value: float
    direction: Float[Tensor, " d"]
    output: Float[Tensor, " m"]


def strongest_neuron(
    problem: Problem,
    weights: Weights,
    layer: int,
    *,
    Lambda: Float[Tensor, "N nL"] | None = None,
    starts: int = 200,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> Found | None:
    """Search hidden layer `layer` for the neuron of largest h_l; None if none has an effect.

    Args:
        problem: of any depth.
        weights: W_1 ... W_L.
        layer: 1 ... L - 1.
        Lambda: M_L, where the loss does not give it (`interpolate`).
        starts: number of convex-concave ascents from random directions, besides those from the layer's own neurons.
        seed: of the random directions.
        stop: asked before each step of the ascents; once it is true, the largest value so far counts.

    Returns:
        The largest value that the search found, which is no bound, with w (n_{l-1} + 1,) and its output (n_{l+1},).

    Raises:
        ProblemError: for `interpolate` without Lambda.

    Source: MATH.md section 5.
    """
    M = duals(problem, weights, Lambda)[layer]
    Zs = inputs_of(problem, weights, layer)
    if problem.free:
        S, M = Zs[:, :-1], M - M.mean(dim=0)
        best_free = strongest(S, problem.activation, M, weights[layer - 1], starts, seed, stop)
        if best_free is None:
            return None
        w, b, value = best_free
        output = torch.nn.functional.normalize(M.T @ problem.activation(S @ w + b), dim=0)
        return Found(value, torch.cat([w, w.new_tensor([b])]), output)
    factor = thin(Zs)
    Q = factor.V.T[factor.significant > 0]
    if not M.shape[1] or not len(Q):  # no neurons above, or no inputs at all
        return None
    search = ConvexConcaveOracle(Zs @ Q.T, problem.activation, AscentOptions())
    answer = search(M, starting_directions(weights[layer - 1] @ Q.T, starts, seed), stop=stop)
    if not len(answer.directions):
        return None
    direction = torch.nn.functional.normalize(answer.directions[0] @ Q, dim=0)
    value = float(oracle_values(Zs, problem.activation, M, direction[None])[0])
    output = torch.nn.functional.normalize(M.T @ problem.activation(Zs @ direction), dim=0)
    return Found(value, direction, output)


def find_missing_neuron(
    problem: Problem,
    weights: Weights,
    layer: int,
    *,
    Lambda: Float[Tensor, "N nL"] | None = None,
    starts: int = 200,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> MissingNeuron:
    """Search for the strongest neuron with `strongest_neuron`, and try it in several sizes."""
    neuron = strongest_neuron(problem, weights, layer, Lambda=Lambda, starts=starts, seed=seed, stop=stop)
    cut = neuron is not None and stop()

    def costs(neuron: Found, sizes: list[float]) -> list[float]:
        tried = (evaluate(problem, _grown(problem, weights, layer, neuron, size)) for size in sizes)
        return [cost.total if problem.allows(cost.residual) else math.inf for cost in tried]

    return in_best_size(problem, weights, layer, neuron, costs, cut)


def starting_directions(own: Float[Tensor, "n r"], count: int, seed: int) -> Float[Tensor, "k r"]:
    """Return the directions of a layer's neurons that are not zero, and `count` random ones."""
    generator = torch.Generator(device=own.device).manual_seed(seed)
    drawn = torch.randn(count, own.shape[1], generator=generator, dtype=own.dtype, device=own.device)
    return torch.cat([own[own.norm(dim=1) > 0], drawn])


def in_best_size(
    problem: Problem,
    weights: Weights,
    layer: int,
    neuron: Found | None,
    costs: Callable[[Found, list[float]], list[float]],
    cut: bool = False,
) -> MissingNeuron:
    """Return the neuron in its best size, by its `costs` in several; 0 where none lowers the cost."""
    before, own = evaluate(problem, weights).total, weights[layer - 1]
    if neuron is None:
        return MissingNeuron(layer, 0.0, own.new_zeros(own.shape[1]), own.new_zeros(len(weights[layer])), before, 0.0)
    # The best size is unknown: those tried are relative to the mean size of the layer's neurons.
    typical = max(1.0, float(own.square().sum())) / max(1, len(own))
    sizes = [4.0**k * typical for k in range(3, -10, -1)]
    cost, size = min(zip(costs(neuron, sizes), sizes, strict=True), key=lambda pair: pair[0])
    return MissingNeuron(layer, *neuron, *((cost, size) if cost < before else (before, 0.0)), cut)


def _grown(problem: Problem, weights: Weights, layer: int, neuron: Found | MissingNeuron, size: float) -> list[Tensor]:
    """Add a neuron; for `interpolate` W_L becomes the least one with Z_L = Y."""
    grown = add_neuron(problem, weights, layer, neuron.direction, neuron.output, size)
    if problem.interpolates:
        grown[-1] = thin(inputs_of(problem, grown, problem.depth)).solve(problem.Y).T
    return grown
