"""Each hidden layer of a network on its own: is it stationary, and how far is it from its block's minimum?

The block of layer l is a shallow problem (MATH.md section 3), so `solve`'s turns of solver and certifiers give it a
minimum and a proved bound. Nothing here proves that the whole network is at a minimum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from covopt.attempt import SolveOptions
from covopt.certify.proofs import agreed
from covopt.deep.blocks import block_problem, has_outputs, with_block
from covopt.deep.missing_neuron import find_escape
from covopt.deep.pruning import mergeable
from covopt.linalg.psd import thin
from covopt.loop import Budget, Certificate
from covopt.model.problem import Problem, with_bias
from covopt.model.weights import Weights, evaluate, preactivations
from covopt.result import Layer
from covopt.shallow.alternation import Alternation


def examine(
    problem: Problem,
    weights: Weights,
    budget: Budget,
    *,
    certify: str = "fast",
    gap: float = 1e-4,
    seed: int = 0,
    layers: Sequence[int] | None = None,
    widest: float = math.inf,
) -> tuple[list[Layer], list[Tensor]]:
    """A report of every hidden layer, and the network with those blocks replaced that came out cheaper.

    Args:
        problem: the question, of any depth.
        weights: W_1 ... W_L.
        budget: shared by the layers that are left.
        certify: none leaves the gaps out.
        gap: relative gap at which a block's solve stops.
        seed: of the searches.
        layers: which; None for all.
        widest: no block is replaced by one with more neurons than this.
    """
    chosen = list(range(1, problem.depth)) if layers is None else list(layers)
    found: list[Layer] = []
    for place, layer in enumerate(reversed(chosen)):
        share = Budget(budget.seconds() + budget.remaining() / (len(chosen) - place), started=budget.started)
        lower, certificate, Lambda = None, Certificate.NONE, None
        if certify != "none" or problem.interpolates:
            lower, certificate, Lambda, better = solve_block(problem, weights, layer, share, certify, gap, seed)
            weights = better if len(better[layer - 1]) <= widest else weights
        value = None
        if Lambda is not None or not problem.interpolates:
            value = find_escape(problem, weights, layer, Lambda=Lambda, seed=seed).value
        found.append(report(problem, weights, layer, lower, certificate, value))
    return found[::-1], list(weights)


def solve_block(
    problem: Problem, weights: Weights, layer: int, budget: Budget, certify: str, gap: float, seed: int
) -> tuple[float | None, Certificate, Tensor | None, Weights]:
    """Solve one block, in turns of solver and certifiers.

    Returns:
        A lower bound on the block's cost, its kind, the multiplier Lambda of the last layer (for `interpolate`), and
        the network with the block replaced where that is cheaper.
    """
    if not has_outputs(weights, layer):
        return None, Certificate.NONE, None, weights
    block = block_problem(problem, weights, layer)
    certify = "fast" if certify == "auto" else certify  # a block's bound says nothing of the whole: `full` asks for it
    options = SolveOptions(budget, certify=certify, gap=gap, seed=seed)
    attempt = Alternation(block, options, weights[layer - 1]).solve()
    network, proof = attempt.weights, attempt.proof
    changed = with_block(weights, layer, network)
    before, after = evaluate(problem, weights), evaluate(problem, changed)
    # A block that misses its targets is another block, of which the bound says nothing.
    answers = block.allows(evaluate(block, network).residual)
    if answers and after.total < before.total and problem.fits_as_well(after.residual, before.residual):
        weights = changed
    Lambda = attempt.Lambda if layer == problem.depth - 1 and problem.interpolates else None
    lower, certificate = (proof.lower, proof.certificate) if proof is not None else (None, Certificate.NONE)
    return lower, certificate, Lambda, weights


def report(
    problem: Problem,
    weights: Weights,
    layer: int,
    lower: float | None,
    certificate: Certificate,
    stationarity: float | None,
) -> Layer:
    """What is known of one hidden layer, with the bound of `solve_block` and the value of `find_escape`."""
    Z = preactivations(problem, weights)[layer - 1]
    Zs = with_bias(problem.activation(Z), problem.beta)
    total, relative = evaluate(problem, weights).total, None
    if lower is not None and total > 0.0 and has_outputs(weights, layer):
        block, parts = block_problem(problem, weights, layer), weights[layer - 1 : layer + 1]
        cost = evaluate(block, parts).total
        scale = problem.lam if layer < problem.depth - 1 else 1.0
        relative = scale * (cost - agreed(block, parts, cost, lower)) / total
    return Layer(
        layer=layer,
        width=len(weights[layer - 1]),
        stationarity=stationarity,
        gap=relative,
        gap_certificate=certificate,
        rank_K=int(thin(Z).rank) if Z.shape[1] else 0,
        rank_Ks=int(thin(Zs).rank),
        mergeable=len(mergeable(weights, layer)),
    )
