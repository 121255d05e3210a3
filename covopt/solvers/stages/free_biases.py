"""The stages of a solve with free biases.

The minimum with an amount of bias beta falls to that with free biases as beta grows, since the squares of biases cost
nothing then. Two layers have rounds of their own (solvers/shallow/free_biases.py). Where no exact oracle chooses the
neurons, these begin with those of the problem with an amount of bias of the samples' size. Deeper networks, and
trainings, are those of that problem, and then descend with no penalty on biases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.certify import free
from covopt.certify.proof import Proof
from covopt.linalg import lbfgs
from covopt.model.affine import Affine
from covopt.model.biases import PENALISED
from covopt.model.problem import Problem
from covopt.model.weights import Weights, evaluate, flattened, gradient, preactivations, shaped_like
from covopt.oracles.exact import problem_has_exact_oracle
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Budget, Outcome, Status, run
from covopt.solvers.incumbent import Attempt, Incumbent
from covopt.solvers.options import SolveOptions
from covopt.solvers.shallow.free_biases import FreeSolver
from covopt.solvers.shallow.rounds import State
from covopt.solvers.stages.more_layers import DeepSearch
from covopt.solvers.stages.penalised import penalised_stages
from covopt.solvers.stages.stage import Stage, Thriftier, carry_out
from covopt.solvers.stages.training import Train
from covopt.solvers.stages.two_layers import rounds_memory
from covopt.solvers.training.homotopy import EXPLORING, REFINING, descend
from covopt.solvers.training.trainer import initial


@dataclass(frozen=True)
class FreeRounds(Stage):
    """Rounds of two layers, and the best bound at their last dual point."""

    name = "rounds"
    why = "Frank-Wolfe finds neurons whose biases cost nothing; where no oracle is exact, penalised biases come first."
    first: float = 0.4  # the part of the time limit for the problem with penalised biases, where that comes first

    def memory(self, problem: Problem, options: SolveOptions) -> dict[str, float]:
        """Return the needs of rounds with penalised biases."""
        return rounds_memory(problem, options)

    def run(self, incumbent: Incumbent, options: SolveOptions) -> None:
        """Run the rounds, then prove; the network of penalised biases is taken where it costs less."""
        problem, budget, exact = incumbent.problem, options.budget, problem_has_exact_oracle(incumbent.problem)
        init, penalised = None if options.init is None else options.init[0], None
        if init is None and not exact:
            penalised = _penalised(problem, options, self.first)[1]
            init = penalised[0]
        gap = options.gap if options.certify != "none" else 0.0
        solver = FreeSolver(problem, exact, gap, options.seed, options.tol, init)
        proves = options.certify != "none" and not exact
        within = budget.part(0.8) if proves else budget
        outcome = run(solver, within, options.callback)
        proof = None if options.certify == "none" else solver.proof
        if options.certify != "none" and proof is None:
            outcome, proof = _in_turns(problem, solver, outcome, options)
        weights, cost = outcome.state.best.weights(), outcome.state.best.cost
        if penalised is None and not math.isfinite(cost):  # no round fitted exactly
            penalised = _penalised(problem, options, 1.0)[1]
        if penalised is not None and problem.allows((other := evaluate(problem, penalised)).residual):
            weights, cost = (penalised, other.total) if other.total < cost else (weights, cost)
        incumbent.take(Attempt(weights, outcome.status, outcome.history, proof, [cost]))


@dataclass(frozen=True)
class FreeDescents(Stage):
    """A solve with penalised biases, whose networks then descend without a penalty on biases.

    A free linear skip is fitted first; the descents move it with the other weights.
    """

    name = "descents"
    why = "Networks of penalised biases come first, and then descend without a penalty on biases."

    def memory(self, problem: Problem, options: SolveOptions) -> dict[str, float]:
        """Return the needs of the problem with penalised biases."""
        penalised = replace(problem, biases=PENALISED)
        stages = penalised_stages(penalised, replace(options, certify="none"))
        return {name: size for stage in stages for name, size in stage.memory(penalised, options).items()}

    def run(self, incumbent: Incumbent, options: SolveOptions) -> None:
        """Solve with penalised biases on centred inputs, and descend."""
        problem = incumbent.problem
        mean = problem.X.mean(dim=0)
        seen = replace(problem, X=problem.X - mean)
        init = None if options.init is None else _moved(problem, options.init, mean)
        first, networks = _descents(seen, replace(options, init=init))
        networks = [_moved(problem, weights, -mean) for weights in networks]
        costs = [evaluate(problem, weights).total for weights in networks]
        weights = networks[costs.index(min(costs))]
        history = [line for line in first.history if line.cost >= min(costs)]
        # The optimum was proved for the problem with penalised biases.
        status = Status.CONVERGED if first.status is Status.OPTIMAL else first.status
        incumbent.take(Attempt(weights, status, history, _network_proof(problem, weights, options), costs))

    def thriftier(self, phase: str, problem: Problem, options: SolveOptions) -> Thriftier:
        """Return what the problem with penalised biases can do without."""
        ways = (stage.thriftier(phase, problem, options) for stage in penalised_stages(problem, options))
        return next(filter(None, ways), None)

    def remedies(self, phase: str) -> list[str]:
        """Return what makes the networks smaller."""
        return [*DeepSearch().remedies(phase), *Train().remedies(phase)]


def free_stages(problem: Problem, options: SolveOptions) -> Sequence[Stage]:
    """Return what `solve` does with free biases; a ProblemError names the methods that need penalised ones."""
    if options.method in ("hidden", "frank-wolfe"):
        raise ProblemError(
            f"The method {options.method} penalises biases; with free biases use the method cone or train."
        )
    return [FreeRounds() if problem.depth == 2 and options.method == "cone" else FreeDescents()]


def _descents(problem: Problem, options: SolveOptions) -> tuple[Incumbent, list[list[Tensor]]]:
    """Return the solution with penalised biases, and the networks descended from all starts; exact fits stay."""
    exact, searched = problem.interpolates, 0.25  # of the time limit
    searching = options.method == "cone" and not exact
    first, weights = _penalised(problem, options, searched if searching else 0.6)
    if exact:
        return first, [weights]
    starts = [weights]
    if searching and not problem.skip:  # its descents are of batches, which know no skip
        starts = _with_draws(problem, starts, options)
    elif searching:  # in a short time better than the search as often as not
        training = replace(options, method="train", starts=None, max_width=None, tol=None)
        starts.append(_penalised(problem, training, searched)[1])
    networks = []
    for remaining_starts, weights in zip(range(len(starts), 0, -1), starts, strict=True):
        networks.append(_descended(problem, weights, options.budget.rest(1.0 / remaining_starts)))
    return first, networks


def _with_draws(problem: Problem, starts: list[list[Tensor]], options: SolveOptions) -> list[list[Tensor]]:
    """Return the best of these networks and random starts after rounded descents."""
    end = options.budget.part(0.85)
    widths = [min(40, options.max_width or 40)] * (problem.depth - 1)
    # 16 draws, as long as all have 20 million activations at most; draws of a larger scale end higher by 5 to 40 %.
    count = max(1, min(16, 20_000_000 // (problem.samples * sum(widths))))
    draws = [initial(problem, widths, (options.seed + k) % 2**63, scale=0.3) for k in range(count)]
    stop = replace(end, time_limit=0.5 * (end.seconds() + end.time_limit)).pace()
    with options.budget.phase("descent"):
        draws = sorted(descend(problem, draws, EXPLORING, stop), key=lambda weights: evaluate(problem, weights).total)
        refined = descend(problem, [*starts, *draws[:5]], REFINING, end.pace())
    return sorted(refined, key=lambda weights: evaluate(problem, weights).total)[:2]


def _moved(problem: Problem, weights: Weights, by: Float[Tensor, " n0"]) -> list[Tensor]:
    """Return the network for the inputs minus `by`."""
    moved = [torch.cat([weights[0][:, :-1], weights[0][:, -1:] + (weights[0][:, :-1] @ by)[:, None]], dim=1)]
    moved += weights[1:]
    last, by = moved[-1], problem.biases.skipped(by[None])[0]
    S = last[:, -1 - len(by) : -1]
    moved[-1] = torch.cat([last[:, :-1], last[:, -1:] + (S @ by)[:, None]], dim=1)
    return moved


def _in_turns(
    problem: Problem, solver: FreeSolver, outcome: Outcome[State], options: SolveOptions
) -> tuple[Outcome[State], Proof | None]:
    """Alternate proof and rounds; branch and bound finds neurons that the search missed."""
    budget, best = options.budget, None
    repeatable = options.tol is not None or budget.max_iterations < Budget(1.0).max_iterations
    while True:
        state, cost = outcome.state, solver.cost(outcome.state)
        # As much time as goes into the tree of a proof goes into checking it.
        seconds = 0.4 * max(0.0, budget.remaining()) * float(options.certify != "fast")
        with budget.phase("proof"):
            proved = free.prove(problem, solver.dual(state), seconds, options.gap)
        proof, violators = proved.proof, proved.violators
        best = proof if best is None or proof.lower > best.lower else best
        closed = cost - best.lower <= options.gap * cost
        if closed or violators is None or repeatable or not bool((violators.values > 1.0 + 0.25 * options.gap).any()):
            break
        over = outcome.status in (Status.INTERRUPTED, Status.ITERATION_LIMIT)
        if over or budget.remaining() < 0.1 * budget.time_limit:
            break
        extended = replace(outcome, state=solver.with_violators(state, violators))
        outcome = run(solver, budget.rest(0.5), options.callback, extended)
    return outcome, best if best.lower > 0.0 else None


def _penalised(problem: Problem, options: SolveOptions, share: float) -> tuple[Incumbent, list[Tensor]]:
    """Solve with a bias of the samples' size; return what was reached, and its network with free biases."""
    mean = problem.X.mean(dim=0)
    beta = float((problem.X - mean).norm(dim=1).max()) or 1.0
    size = float((problem.X - mean).abs().max()) or 1.0
    skipped = problem.biases.skipped(problem.X - mean) / size
    affine = Affine(skipped, problem.weight) if skipped.shape[1] else None
    Y = problem.Y if affine is None else affine.rest(problem.Y)
    penalised = replace(problem, X=problem.X - mean, Y=Y, beta=beta, biases=PENALISED)
    init = options.init
    if init is not None:
        init = _moved(penalised, [_shifted(W, 1.0 / beta) for W in problem.without_skip(init)], mean / beta)
    options = replace(options, budget=options.budget.part(share), certify="none", init=init)
    incumbent = carry_out(penalised, penalised_stages(penalised, options), options)
    weights = [_shifted(W, beta) for W in incumbent.weights]
    weights = _moved(penalised, weights, -mean)
    if affine is not None:
        both, last = affine.coefficients(problem.Y), weights[-1]
        S = both[:-1].T / size
        weights[-1] = torch.cat([last[:, :-1], S, last[:, -1:] + (both[-1] - S @ mean)[:, None]], dim=1)
    return incumbent, weights


def _shifted(W: Float[Tensor, "n k"], factor: float) -> Float[Tensor, "n k"]:
    """Multiply the bias column by a factor."""
    return torch.cat([W[:, :-1], factor * W[:, -1:]], dim=1)


def _descended(problem: Problem, weights: Weights, budget: Budget) -> list[Tensor]:
    """Descend from these weights by L-BFGS, with unpenalised biases."""
    if min(len(W) for W in weights) == 0:
        return list(weights)

    def value(x: Tensor) -> tuple[float, Tensor]:
        W = shaped_like(x, weights)
        return evaluate(problem, W).total, flattened(gradient(problem, W))

    with budget.phase("descent"):
        x = lbfgs.descend(value, flattened(weights), budget.pace(), lbfgs.DescentOptions(slow=1e-7))
    return shaped_like(x, weights)


def _network_proof(problem: Problem, weights: Weights, options: SolveOptions) -> Proof | None:
    """Prove a bound at a two-layer network's dual point, if the loss has a gradient."""
    if problem.depth > 2 or options.certify == "none":
        return None
    Lambda = problem.multiplier_at(preactivations(problem, weights)[-1])
    if Lambda is None:
        return None
    with options.budget.phase("proof"):
        proof = free.prove(problem, Lambda, max(0.0, options.budget.remaining()), options.gap).proof
    return proof if proof.lower > 0.0 else None
