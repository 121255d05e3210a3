"""The neuron to add: the oracle at the back-propagated dual (MATH.md section 5).

With M_L = -grad C / (2 lam) and M_l = sigma'(Z_l) * (M_{l+1} W_{l+1} without its bias column), stationary weights are
W_l^T = Zs_{l-1}^T M_l. A new neuron in hidden layer l, of unit direction w (bias coordinate included), s =
sigma(Zs_{l-1} w), with output along M_{l+1}^T s, both scaled by sqrt(size), changes the loss by

    2 lam size (1 - |M_{l+1}^T s|)

to first order. So no neuron helps where h_l(w) = |M_{l+1}^T sigma(Zs_{l-1} w)| <= 1 for all unit w. That is exact for
the last hidden layer. Below it, zeros of Z_{l+1} make M_{l+1} set-valued. The slopes that come nearest to W_{l+1}^T =
Zs_l^T M_{l+1} are taken there (subgradient.py), and h_l says only where to look.

The convex-concave ascents hold a multiplier for each sample and start. On many samples they run on evenly spaced rows,
whose duals are weighed up; the best of what they find continues along the gradient of h_l on the sphere, two passes
over all samples for each step. Every value, and the loss with the neuron in each size, is over all samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from covopt.linalg.psd import thin
from covopt.model.forces import check_layer
from covopt.model.passes import all_outputs, inputs_triangle, parts_of
from covopt.model.problem import Problem
from covopt.model.subgradient import multiplier_of_layer
from covopt.model.weights import Weights, evaluate, inputs_of, outputs_above, preactivations, pulled_back
from covopt.oracles.neurons import strongest
from covopt.oracles.oracle import oracle_values
from covopt.oracles.search import AscentOptions, ConvexConcaveOracle
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Stop
from covopt.solvers.deep.corrective import local_maxima, starting_directions
from covopt.solvers.deep.descent import descent_for

ROWS = 2048  # rows of the first search on many samples


@dataclass(frozen=True)
class MissingNeuron:
    """The best neuron that a search found for one hidden layer."""

    layer: int  # 1 ... L - 1
    # h_l(w) = |M_{l+1}^T sigma(Zs_{l-1} w)| at it; above 1 the loss falls at first order (always true for the last
    # hidden layer only). A search found it: it is no bound
    value: float
    direction: Float[Tensor, " d"]  # w, of unit length, bias coordinate last; a free bias is not counted in its length
    output: Float[Tensor, " m"]  # M_{l+1}^T s / |M_{l+1}^T s|
    cost: float  # the cost with the neuron at the best size tried; without it where every size raises the cost
    size: float  # the best size, 0 where none lowers the cost
    cut: bool = False  # True if the time ended the search

    def network(self, problem: Problem, weights: Weights) -> list[Tensor]:
        """Add the neuron in its best size; for `interpolate` W_L is the smallest that fits again."""
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
    stop: Stop = lambda: False,
) -> Found | None:
    """Search hidden layer `layer` for the neuron of largest h_l; None if none has an effect.

    Return the largest value that the search found, which is no bound, with w (n_{l-1} + 1,) and its output (n_{l+1},).
    Lambda is M_L where the loss does not give it: a ProblemError refuses `interpolate` without it. There are
    convex-concave ascents from the layer's own neurons, and from `starts` random directions; once `stop`, asked before
    each step, is true, the largest value so far counts.

    Source: MATH.md section 5.
    """
    if Lambda is None and (Lambda := problem.multiplier_at(all_outputs(problem, weights))) is None:
        raise ProblemError("The loss interpolate has no gradient; give its multiplier Lambda, or use mse.")
    M, Zs = multiplier_of_layer(problem, weights, Lambda, layer + 1), inputs_of(problem, weights, layer)
    if problem.free:
        S, M = Zs[:, :-1], M - M.mean(dim=0)
        best_free = strongest(S, problem.activation, M, weights[layer - 1], starts, seed, stop)
        if best_free is None:
            return None
        w, b, value = best_free
        output = normalize(M.T @ problem.activation(S @ w + b), dim=0)
        return Found(value, torch.cat([w, w.new_tensor([b])]), output)
    answer = local_maxima(problem, Zs, M, weights[layer - 1], starts, seed, stop)
    if not len(answer.directions):
        return None
    direction = answer.directions[0]
    value = float(oracle_values(Zs, problem.activation, M, direction[None])[0])
    output = normalize(M.T @ problem.activation(Zs @ direction), dim=0)
    return Found(value, direction, output)


def find_missing_neuron(
    problem: Problem,
    weights: Weights,
    layer: int,
    *,
    Lambda: Float[Tensor, "N nL"] | None = None,
    starts: int = 200,
    seed: int = 0,
    stop: Stop = lambda: False,
) -> MissingNeuron:
    """Search for the strongest neuron with `strongest_neuron`, and try it in several sizes."""
    neuron = strongest_neuron(problem, weights, layer, Lambda=Lambda, starts=starts, seed=seed, stop=stop)
    cut = neuron is not None and stop()

    def costs(neuron: Found, sizes: list[float]) -> list[float]:
        tried = (evaluate(problem, _grown(problem, weights, layer, neuron, size)) for size in sizes)
        return [cost.total if problem.allows(cost.residual) else math.inf for cost in tried]

    return _in_best_size(problem, weights, layer, neuron, costs, cut)


def _in_best_size(
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


def add_neuron(
    problem: Problem,
    weights: Weights,
    layer: int,
    direction: Float[Tensor, " d"],
    output: Float[Tensor, " m"],
    size: float,
) -> list[Tensor]:
    """Return the network with one more neuron in hidden layer `layer`; size 0 changes nothing.

    It adds the row sqrt(size) w, and the column sqrt(size) v above it, for a direction w (n_{layer-1} + 1,) and an
    output v (n_{layer+1},), both of unit length.
    """
    check_layer(problem, layer)
    grown = [W.clone() for W in weights]
    scale = size**0.5
    grown[layer - 1] = torch.cat([grown[layer - 1], scale * direction[None]])
    above = grown[layer]
    grown[layer] = torch.cat([above[:, :-1], scale * output[:, None], above[:, -1:]], dim=1)
    return grown


def _grown(problem: Problem, weights: Weights, layer: int, neuron: Found | MissingNeuron, size: float) -> list[Tensor]:
    """Add a neuron; for `interpolate` W_L becomes the smallest one with Z_L = Y."""
    grown = add_neuron(problem, weights, layer, neuron.direction, neuron.output, size)
    return descent_for(problem).refitted(grown)


def find_missing_on_many(
    problem: Problem, weights: Weights, layer: int, Lambda: Float[Tensor, "N nL"], seed: int = 0
) -> MissingNeuron:
    """Search for the strongest neuron as `find_missing_neuron` does, but mostly on few of the samples.

    Lambda is M_L; not for `interpolate`.
    """
    samples = _ManySamples(problem, weights, layer, Lambda)
    return _in_best_size(problem, weights, layer, samples.strongest(seed), samples.costs)


@dataclass(frozen=True)
class _ManySamples:
    """h_l over all samples, chunk by chunk."""

    problem: Problem
    weights: Weights
    layer: int
    Lambda: Float[Tensor, "N nL"]

    def strongest(self, seed: int) -> Found | None:
        """Search on few samples, and climb on all."""
        problem, weights, layer, most = self.problem, self.weights, self.layer, 48  # directions that ascend
        count = min(ROWS, problem.samples)
        rows = torch.arange(count, device=problem.X.device) * problem.samples // count
        few, share = problem.on(rows), self.Lambda[rows] * (problem.samples / count)
        if problem.free:
            first = strongest_neuron(few, weights, layer, Lambda=share, starts=most, seed=seed)
            return None if first is None else self._judged(first.direction)
        factor = thin(inputs_triangle(problem, weights, layer))
        Q = factor.V.T[factor.significant > 0]
        if not len(weights[layer]) or not len(Q):
            return None
        M = pulled_back(few, weights, preactivations(few, weights), share)[layer]
        Zs = inputs_of(few, weights, layer) @ Q.T
        starts = normalize(starting_directions(weights[layer - 1] @ Q.T, 200, seed), dim=1)
        starts = starts[oracle_values(Zs, problem.activation, M, starts).argsort(descending=True)[:most]]
        briefly = AscentOptions(steps=8, box_steps=40, finishing=2)
        answer = ConvexConcaveOracle(Zs, problem.activation, briefly)(M, starts)
        candidates = torch.cat([answer.directions, starts])[:16]  # this number continue over all samples
        return self._judged(self._climbed(candidates @ Q))

    def _climbed(self, W: Float[Tensor, "B d"]) -> Float[Tensor, " d"]:
        """Climb h by 8 gradient steps on the sphere; return the direction of largest h."""
        W, length = normalize(W, dim=1), W.new_full((len(W), 1), 0.5)
        h, slope = self._values_and_slopes(W)
        for _ in range(8):
            along = slope - (slope * W).sum(dim=1, keepdim=True) * W
            trial = normalize(W + length * normalize(along, dim=1), dim=1)
            value, new = self._values_and_slopes(trial)
            up = (value > h)[:, None]
            W, slope, h = torch.where(up, trial, W), torch.where(up, new, slope), torch.maximum(h, value)
            length = torch.where(up, length, 0.3 * length)
        return W[int(h.argmax())]

    def _values_and_slopes(self, W: Float[Tensor, "B d"]) -> tuple[Float[Tensor, " B"], Float[Tensor, "B d"]]:
        """Return h at W's rows and its gradient sum_i (u^T M_i) sigma'(z_i) Zs_i; two passes."""
        activation, pulls = self.problem.activation, W.new_zeros(len(W), len(self.weights[self.layer]))
        for Zs, M in self._chunks():
            pulls += activation(W @ Zs.T) @ M
        u, slope = normalize(pulls, dim=1), torch.zeros_like(W)
        for Zs, M in self._chunks():
            slope += ((u @ M.T) * activation.derivative(W @ Zs.T)) @ Zs
        return pulls.norm(dim=1), slope

    def _judged(self, direction: Float[Tensor, " d"]) -> Found:
        """Return h over all samples, and the output; free biases centre the duals."""
        pull, total, answers = direction.new_zeros(len(self.weights[self.layer])), 0.0, 0.0
        for Zs, M in self._chunks():
            s = self.problem.activation(Zs @ direction)
            pull, total, answers = pull + M.T @ s, total + M.sum(dim=0), answers + s.sum()
        if self.problem.free:
            pull = pull - total * (answers / self.problem.samples)
        return Found(float(pull.norm()), direction, normalize(pull, dim=0))

    def _chunks(self) -> Iterator[tuple[Float[Tensor, "n d"], Float[Tensor, "n m"]]]:
        """Yield Zs_{l-1} and M_{l+1}, chunk by chunk of the samples."""
        for rows, part in parts_of(self.problem):
            M = self.Lambda[rows]
            if self.layer < self.problem.depth - 1:
                M = pulled_back(part, self.weights, preactivations(part, self.weights), M)[self.layer]
            yield inputs_of(part, self.weights, self.layer), M

    def costs(self, neuron: Found, sizes: list[float]) -> list[float]:
        """Return the cost with the neuron in each size, where Z_{l+1} changes by size s v^T."""
        problem, weights, layer = self.problem, self.weights, self.layer
        fits = [0.0] * len(sizes)
        for _, part in parts_of(problem):
            Zs = inputs_of(part, weights, layer)
            s = part.activation(Zs @ neuron.direction)
            above = part.appended(Zs @ weights[layer - 1].T, layer) @ weights[layer].T
            for k, size in enumerate(sizes):
                Z = above + torch.outer(size * s, neuron.output)
                fits[k] += len(s) / problem.samples * float(part.loss_at(outputs_above(part, weights, layer + 1, Z)))
        norm = float(sum(A.square().sum() for A in problem.decayed(weights)))
        more = float(problem.penalised(neuron.direction[None]).square().sum() + neuron.output.square().sum())
        return [fit + problem.lam * (norm + size * more) for fit, size in zip(fits, sizes, strict=True)]
