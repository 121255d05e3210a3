"""Reports of each hidden layer: its stationarity, and its block's gap.

The block of layer l is a shallow problem (MATH.md section 3), so `solve`'s turns of solver and certifiers give it a
minimum and a proved bound. Nothing here proves that the whole network is at a minimum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from covopt.certify import proofs
from covopt.linalg.psd import thin, triangle
from covopt.model.passes import parts_of
from covopt.model.problem import Problem, with_bias
from covopt.model.weights import Weights, evaluate, preactivations
from covopt.runtime.loop import Budget, Certificate
from covopt.solvers.deep.blocks import Solved, block_problem, is_problem, solve_block
from covopt.solvers.deep.missing_neuron import strongest_neuron
from covopt.solvers.deep.pruning import mergeable
from covopt.solvers.layer import Layer
from covopt.solvers.options import SolveOptions

RATE = 1e10  # multiplications in a second on one core
LATE = 0.4  # seconds behind the time limit after which no missing neuron is searched for, where reports are short


def examine(
    problem: Problem, weights: list[Tensor], options: SolveOptions, *, improve: bool
) -> tuple[list[Layer], list[Tensor]]:
    """Return a report of each hidden layer, and the network.

    Blocks are solved from the last hidden layer down. Replacing a block changes the problems of its neighbours, so
    their bounds are proved again before anything is reported. `improve` replaces blocks that come out at a lower cost,
    with at most `max_width` neurons; else the network is returned as it is. The layers share the time of the solve; a
    layer without a proof in its share has no gap, and without time for all layers there are no reports.
    """
    layers = range(problem.depth - 1, 0, -1)
    seconds = 5.0 / RATE * problem.samples * sum(len(W) ** 2 for W in weights[:-1])  # for ranks of (N, n) matrices
    if options.budget.remaining() < seconds:
        return [], weights
    options, price = _within_reports(problem, weights, options)
    if options.budget.spent():
        return [], weights
    solved: dict[int, Solved] = {}
    # 0.7 of the time is for blocks that may be replaced, the remainder for those whose neighbours then changed.
    first = _share(options, 1.0 / 0.7) if improve else options
    # What a block's solve does whatever its time limit takes as long as two reports, until one has shown it.
    over = 2.0 * price
    for layer in layers:
        if first.budget.remaining() < over:
            solved[layer] = Solved(list(weights))
            continue
        share, began = _share(first, layer), options.budget.seconds()
        solved[layer] = solve_block(problem, weights, layer, share)
        over = max(0.0, options.budget.seconds() - max(began, share.budget.time_limit))
        better = solved[layer].weights
        if improve and (options.max_width is None or len(better[layer - 1]) <= options.max_width):
            weights = better
    for layer in layers:
        solved[layer] = _renewed(solved[layer], problem, weights, layer, _share(options, layer))
    late = LATE if price < 0.01 else -15.0 * price  # a search takes as long as 15 reports, at least
    searching = replace(options, budget=replace(options.budget, time_limit=options.budget.time_limit + late))
    return [_examined(problem, weights, layer, solved[layer], searching) for layer in reversed(layers)], weights


def _within_reports(problem: Problem, weights: Weights, options: SolveOptions) -> tuple[SolveOptions, float]:
    """Return options that leave time for the reports, and the seconds of one report."""
    budget, widest = options.budget, max(range(1, problem.depth), key=lambda layer: len(weights[layer - 1]))
    began = budget.seconds()
    report(problem, weights, widest, None, Certificate.NONE, None)
    price = budget.seconds() - began
    limit = budget.time_limit - (problem.depth - 1) * price
    return replace(options, budget=replace(budget, time_limit=limit)), price


def _share(options: SolveOptions, parts: float) -> SolveOptions:
    """Return the options with one of `parts` equal parts of the remaining time."""
    budget = options.budget
    limit = budget.seconds() + budget.remaining() / parts
    return replace(options, budget=Budget(limit, started=budget.started, timing=budget.timing))


def _renewed(solved: Solved, problem: Problem, weights: list[Tensor], layer: int, options: SolveOptions) -> Solved:
    """Prove a bound for the block as it is now, if it changed; prove nothing where the time is up."""
    if solved.block is None:
        return solved
    block, proof = block_problem(problem, weights, layer), solved.proof
    same_inputs = torch.equal(block.X, solved.block.X)
    if same_inputs and torch.equal(block.Y, solved.block.Y):
        return solved
    if options.budget.spent() or not is_problem(weights, layer):
        return Solved(list(weights))
    if proof is not None and proof.kind is Certificate.SPECTRAL and solved.Lambda is None:
        return replace(solved, proof=proofs.spectral_proof(block, 0.1 * options.budget.remaining()))
    if same_inputs:  # rounding moved the targets
        return replace(solved, proof=None if proof is None else replace(proof, lower=proof.bound(block)))
    return solve_block(problem, weights, layer, options)


def _examined(problem: Problem, weights: Weights, layer: int, solved: Solved, options: SolveOptions) -> Layer:
    value, budget = None, options.budget
    Lambda = problem.multiplier_at(preactivations(problem, weights)[-1])
    Lambda = solved.Lambda if Lambda is None else Lambda
    if not budget.spent() and Lambda is not None:
        neuron = strongest_neuron(problem, weights, layer, Lambda=Lambda, seed=options.seed, stop=budget.pace())
        value = 0.0 if neuron is None else neuron.value
    proof = solved.proof
    lower, certificate = (None, Certificate.NONE) if proof is None else (proof.lower, proof.kind)
    lower = None if certificate is Certificate.NONE else lower
    return report(problem, weights, layer, lower, certificate, value)


def report(
    problem: Problem,
    weights: Weights,
    layer: int,
    lower: float | None,
    certificate: Certificate,
    stationarity: float | None,
) -> Layer:
    """Return the report of one hidden layer; `lower` bounds the cost of its block."""
    relative = relative_gap(problem, weights, layer, lower)

    def outputs() -> Iterator[Tensor]:
        """Yield Z_l, chunk by chunk of the samples."""
        return (preactivations(part, weights)[layer - 1] for _, part in parts_of(problem))

    return Layer(
        layer=layer,
        width=len(weights[layer - 1]),
        stationarity=stationarity,
        gap=relative,
        gap_certificate=Certificate.NONE if relative is None else certificate,
        rank_K=_rank(outputs()) if len(weights[layer - 1]) else 0,
        rank_Ks=_rank(with_bias(problem.activation(Z), problem.beta) for Z in outputs()),
        mergeable=len(mergeable(weights, layer)),
    )


def relative_gap(problem: Problem, weights: Weights, layer: int, lower: float | None) -> float | None:
    """Return the most that solving the layer's block can gain, relative to the loss, or None."""
    if lower is None:
        return None
    total = evaluate(problem, weights).total
    if total > 0.0 and is_problem(weights, layer):
        block = problem if problem.depth == 2 else block_problem(problem, weights, layer)
        parts = weights[layer - 1 : layer + 1]
        cost = evaluate(block, parts).total
        scale = problem.lam if layer < problem.depth - 1 else 1.0
        return scale * (cost - proofs.agreed(block, parts, cost, lower)) / total
    return None


def _rank(chunks: Iterable[Tensor]) -> int:
    """Return the numerical rank of the matrix that has the rows of all chunks."""
    return int(thin(triangle(chunks)).rank)
