"""The neuron to add on many samples: candidates from few of them, climbed on all.

The convex-concave ascents hold a multiplier for each sample and start. On many samples they run on evenly spaced rows,
whose duals are weighed up; the best of what they find goes on along the gradient of h_l on the sphere, two passes over
all samples for each step. Every value, and the loss with the neuron in each size, is over all samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from covopt.linalg.psd import thin
from covopt.model.passes import inputs_triangle, parts_of
from covopt.model.problem import Problem
from covopt.model.stationarity import duals, inputs_of
from covopt.model.weights import Weights, outputs_above, preactivations, pulled_back
from covopt.oracles.oracle import oracle_values
from covopt.oracles.search import AscentOptions, ConvexConcaveOracle
from covopt.solvers.deep.missing_neuron import (
    Found,
    MissingNeuron,
    in_best_size,
    starting_directions,
    strongest_neuron,
)

ROWS, STARTS = 2048, 48
"""Rows of the first search, and the directions that ascend in it."""


def find_missing_on_many(
    problem: Problem, weights: Weights, layer: int, Lambda: Float[Tensor, "N nL"], seed: int = 0
) -> MissingNeuron:
    """Search for the strongest neuron of hidden layer `layer`, and try it in several sizes.

    Args:
        problem: its loss is not `interpolate`.
        weights: W_1 ... W_L.
        layer: 1 ... L - 1.
        Lambda: M_L.
        seed: of the random directions.
    """
    neuron = _strongest(problem, weights, layer, Lambda, seed)
    return in_best_size(problem, weights, layer, neuron, partial(_costs, problem, weights, layer))


def _strongest(problem: Problem, weights: Weights, layer: int, Lambda: Tensor, seed: int) -> Found | None:
    count = min(ROWS, problem.samples)
    rows = torch.arange(count, device=problem.X.device) * problem.samples // count
    few, share = problem.on(rows), Lambda[rows] * (problem.samples / count)
    if problem.free:
        first = strongest_neuron(few, weights, layer, Lambda=share, starts=STARTS, seed=seed)
        return None if first is None else _judged(problem, weights, layer, Lambda, first.direction)
    factor = thin(inputs_triangle(problem, weights, layer))
    Q = factor.V.T[factor.significant > 0]
    if not len(weights[layer]) or not len(Q):
        return None
    M, Zs = duals(few, weights, share)[layer], inputs_of(few, weights, layer) @ Q.T
    starts = normalize(starting_directions(weights[layer - 1] @ Q.T, 200, seed), dim=1)
    values = oracle_values(Zs, problem.activation, M, starts)
    starts = starts[values.argsort(descending=True)[:STARTS]]
    briefly = AscentOptions(steps=8, box_steps=40, finishing=2)
    answer = ConvexConcaveOracle(Zs, problem.activation, briefly)(M, starts)
    candidates = torch.cat([answer.directions, starts])[:16]  # so many go on over all samples
    return _judged(problem, weights, layer, Lambda, _climbed(problem, weights, layer, Lambda, candidates @ Q))


def _climbed(
    problem: Problem, weights: Weights, layer: int, Lambda: Tensor, W: Float[Tensor, "B d"]
) -> Float[Tensor, " d"]:
    """Climb h by 8 gradient steps on the sphere; return the direction of largest h."""
    W, length = normalize(W, dim=1), W.new_full((len(W), 1), 0.5)
    h, slope = _values_and_slopes(problem, weights, layer, Lambda, W)
    for _ in range(8):
        along = slope - (slope * W).sum(dim=1, keepdim=True) * W
        trial = normalize(W + length * normalize(along, dim=1), dim=1)
        value, new = _values_and_slopes(problem, weights, layer, Lambda, trial)
        up = (value > h)[:, None]
        W, slope, h = torch.where(up, trial, W), torch.where(up, new, slope), torch.maximum(h, value)
        length = torch.where(up, length, 0.3 * length)
    return W[int(h.argmax())]


def _values_and_slopes(
    problem: Problem, weights: Weights, layer: int, Lambda: Tensor, W: Float[Tensor, "B d"]
) -> tuple[Float[Tensor, " B"], Float[Tensor, "B d"]]:
    """Return h at W's rows and its gradient sum_i (u^T M_i) sigma'(z_i) Zs_i; two passes."""
    pulls = W.new_zeros(len(W), len(weights[layer]))
    for Zs, M in _layer(problem, weights, layer, Lambda):
        pulls += problem.activation(W @ Zs.T) @ M
    u, slope = normalize(pulls, dim=1), torch.zeros_like(W)
    for Zs, M in _layer(problem, weights, layer, Lambda):
        slope += ((u @ M.T) * problem.activation.derivative(W @ Zs.T)) @ Zs
    return pulls.norm(dim=1), slope


def _judged(problem: Problem, weights: Weights, layer: int, Lambda: Tensor, direction: Float[Tensor, " d"]) -> Found:
    """Return h over all samples, and the output; free biases centre the duals."""
    pull, total, answers = torch.zeros(len(weights[layer]), dtype=direction.dtype, device=direction.device), 0.0, 0.0
    for Zs, M in _layer(problem, weights, layer, Lambda):
        s = problem.activation(Zs @ direction)
        pull, total, answers = pull + M.T @ s, total + M.sum(dim=0), answers + s.sum()
    if problem.free:
        pull = pull - total * (answers / problem.samples)
    return Found(float(pull.norm()), direction, normalize(pull, dim=0))


def _layer(
    problem: Problem, weights: Weights, layer: int, Lambda: Tensor
) -> Iterator[tuple[Float[Tensor, "n d"], Float[Tensor, "n m"]]]:
    """Yield Zs_{l-1} and M_{l+1}, chunk by chunk of the samples."""
    for rows, part in parts_of(problem):
        if layer == problem.depth - 1:
            yield inputs_of(part, weights, layer), Lambda[rows]
        else:
            Z = preactivations(part, weights)
            yield inputs_of(part, weights, layer), pulled_back(part, weights, Z, Lambda[rows])[layer]


def _costs(problem: Problem, weights: Weights, layer: int, neuron: Found, sizes: list[float]) -> list[float]:
    """Return the cost with the neuron in each size, where Z_{l+1} changes by size s v^T."""
    fits = [0.0] * len(sizes)
    for _, part in parts_of(problem):
        Zs = inputs_of(part, weights, layer)
        s = part.activation(Zs @ neuron.direction)
        above = part.appended(Zs @ weights[layer - 1].T, layer) @ weights[layer].T
        for k, size in enumerate(sizes):
            Z = above + torch.outer(size * s, neuron.output)
            fits[k] += len(s) / problem.samples * float(part.loss_at(outputs_above(part, weights, layer + 1, Z)))
    decayed = problem.decayed(weights)
    norm = float(sum(A.square().sum() for A in decayed))
    own = problem.penalised(neuron.direction[None]).square().sum()
    more = float(own + neuron.output.square().sum())
    return [fit + problem.lam * (norm + size * more) for fit, size in zip(fits, sizes, strict=True)]
