"""The layer blocks of a deep network: each is a shallow problem (MATH.md section 3).

With the layers l - 1 and l + 1 fixed, minimising over the pair (K_l, Ks_l) in S is the two-layer representation cost
from the inputs Zs_{l-1} to the outputs Z_{l+1}. For l = L - 1 the outputs are freed too: the block is the regularised
problem itself. So the shallow solver, its oracle and its certificates serve every layer.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from covopt.loop import Budget, run
from covopt.model.loss import parse_loss
from covopt.model.problem import FITS, Problem
from covopt.model.weights import Weights, evaluate, preactivations
from covopt.shallow.solver import ShallowSolver


def block_problem(problem: Problem, weights: Weights, layer: int) -> Problem:
    """The shallow problem of hidden layer `layer` = 1 ... L - 1, in whose cost the rest of the network is left out.

    Its inputs are sigma(Z_{l-1}) (N, n_{l-1}), to which the shallow problem appends the bias column that makes
    Zs_{l-1}; its targets are Y for l = L - 1, else Z_{l+1}, to be met exactly.
    """
    Z = preactivations(problem, weights)
    inputs = problem.X if layer == 1 else problem.activation(Z[layer - 2])
    beta = problem.bias(layer - 1)
    if layer == problem.depth - 1:
        return replace(problem, X=inputs, depth=2, beta=beta)
    exactly = parse_loss("interpolate")
    return replace(problem, X=inputs, Y=Z[layer], loss=exactly, lam=1.0, depth=2, beta=beta, fits=FITS)


def has_outputs(weights: Weights, layer: int) -> bool:
    """Whether the layer above has neurons; otherwise the block is no problem at all."""
    return len(weights[layer]) > 0


def with_block(weights: Weights, layer: int, block: Weights) -> list[Tensor]:
    """The network with W_l and W_{l+1} of layer `layer` replaced by those of its block's network."""
    return [*weights[: layer - 1], *block, *weights[layer + 1 :]]


def improve_block(
    problem: Problem, weights: Weights, layer: int, budget: Budget, *, seed: int = 0, rounds: int = 10
) -> list[Tensor]:
    """The network after the shallow solver's `rounds` on one block; itself unless the loss fell.

    A block of `interpolate` that did not come to fit exactly changes Z_{l+1} a little, so the whole loss is evaluated.
    Below a layer without neurons there is nothing to improve.
    """
    if not has_outputs(weights, layer):
        return list(weights)
    block = block_problem(problem, weights, layer)
    limits = Budget(budget.time_limit, max_iterations=rounds, started=budget.started)
    solver = ShallowSolver(block, _no_bound, seed=seed, init=weights[layer - 1])
    network = solver.reduced(run(solver, limits).state.best, limits)
    changed = with_block(weights, layer, network.weights())
    before, after = evaluate(problem, weights), evaluate(problem, changed)
    exact = problem.fits_as_well(after.residual, before.residual)
    return changed if exact and after.total < before.total else list(weights)


def _no_bound(Lambda: Tensor, maximum: float) -> float | None:
    return None
