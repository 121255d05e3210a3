"""The layer blocks of a deep network: each is a shallow problem (MATH.md section 3).

With the layers l - 1 and l + 1 fixed, minimising over the pair (K_l, Ks_l) in S is the two-layer representation cost
from the inputs Zs_{l-1} to the outputs Z_{l+1}. For l = L - 1 the outputs are freed too: the block is the regularised
problem itself. So the shallow solver, its oracle and its certificates serve every layer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from covopt.certify.proof import Proof
from covopt.model.loss import parse_loss
from covopt.model.problem import FITS, Problem
from covopt.model.weights import Weights, evaluate, preactivations
from covopt.solvers.options import SolveOptions
from covopt.solvers.shallow.alternation import Alternation


def block_problem(problem: Problem, weights: Weights, layer: int) -> Problem:
    """Return the two-layer problem of hidden layer `layer` = 1 ... L - 1.

    Its cost leaves out the other layers. Its inputs are sigma(Z_{l-1}) (N, n_{l-1}), to which the shallow problem
    appends the bias column that makes Zs_{l-1}; its targets are Y for l = L - 1, else Z_{l+1}, to be met exactly.
    """
    Z = preactivations(problem, weights)
    inputs = problem.X if layer == 1 else problem.activation(Z[layer - 2])
    beta = problem.bias(layer - 1)
    if layer == problem.depth - 1:
        return replace(problem, X=inputs, depth=2, beta=beta)
    exactly = parse_loss("interpolate")
    return replace(problem, X=inputs, Y=Z[layer], loss=exactly, lam=1.0, depth=2, beta=beta, fits=FITS, weight=None)


def is_problem(weights: Weights, layer: int) -> bool:
    """Return True if both layers around it have neurons, so the block has inputs and outputs."""
    return len(weights[layer]) > 0 and weights[layer - 1].shape[1] > 1


@dataclass(frozen=True)
class Solved:
    """A block after its solve."""

    weights: list[Tensor]  # the network with the block replaced where that costs less; else the given one
    block: Problem | None = None  # the shallow problem that was solved; None where it is no problem
    proof: Proof | None = None  # the best lower bound on the block's cost; None without one
    # the multiplier of the last layer, for `interpolate` and its block alone
    Lambda: Float[Tensor, "N nL"] | None = None


def solve_block(problem: Problem, weights: Weights, layer: int, options: SolveOptions) -> Solved:
    """Solve one block as `solve` does, alternating search and certifiers, within the budget of the options.

    A block that did not come to fit its targets exactly changes Z_{l+1} a little, so the whole loss decides.
    """
    if not is_problem(weights, layer):
        return Solved(list(weights))
    block = block_problem(problem, weights, layer)
    # A block's bound says nothing of the whole: only `full` asks for more of it than comes with the search.
    certify = "fast" if options.certify == "auto" else options.certify
    block_options = SolveOptions(options.budget, certify=certify, gap=options.gap, seed=options.seed)
    attempt = Alternation(block, block_options, weights[layer - 1]).solve()
    changed = [*weights[: layer - 1], *attempt.weights, *weights[layer + 1 :]]
    before, after = evaluate(problem, weights), evaluate(problem, changed)
    cheaper = after.total < before.total and problem.fits_as_well(after.residual, before.residual)
    Lambda = attempt.Lambda if layer == problem.depth - 1 and problem.interpolates else None
    return Solved(changed if cheaper else list(weights), block, attempt.proof, Lambda)
