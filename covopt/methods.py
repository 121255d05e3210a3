"""What each method of `solve` does with a problem: an attempt, which is a network and what is known about it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from torch import Tensor

from covopt.certify import proofs
from covopt.certify.proofs import Proof
from covopt.deep.representations import descend_best
from covopt.deep.solver import DeepOptions, DeepSolver
from covopt.errors import ProblemError
from covopt.loop import Budget, Progress, Status, run
from covopt.loop import Callback as Watcher
from covopt.model.problem import Problem
from covopt.model.units import Units
from covopt.model.weights import Weights, evaluate
from covopt.shallow.alternation import Turns
from covopt.shallow.stream import StreamSolver, suits_streaming
from covopt.training.simple import simple_networks
from covopt.training.trainer import train_best

# Trainings, descents on Z and draws of a deep solve, where nobody says how many.
TRAININGS, DESCENTS, DRAWS = 10, 3, 48
# A cost that is lower by less than this, relative, is the same.
SAME = 1e-9
# The part of the time limit that the spectral bound may take besides.
SPECTRAL = 0.05


@dataclass(frozen=True)
class Options:
    """What the user asked of the solver, besides the problem.

    Attributes:
        budget: the clock.
        certify: none, fast, full or auto.
        gap: proved relative gap to stop at.
        seed: of every random choice.
        init: weights to start from.
        width: hidden width of `hidden` and `train`; None lets them choose.
        max_width: of the deep solver's hidden layers.
        starts: how many; None lets the method choose.
        callback: gets a `Progress` after each round.
    """

    budget: Budget
    certify: str = "auto"
    gap: float = 1e-4
    seed: int = 0
    init: Weights | None = None
    width: int | None = None
    max_width: int | None = None
    starts: int | None = None
    callback: Watcher | None = None


@dataclass
class Attempt:
    """What a method found.

    Attributes:
        weights: the best network.
        status: what ended the method.
        history: cost, bound and width over time.
        proof: the best bound; None without one.
        starts: the lowest cost that came of each start.
    """

    weights: list[Tensor]
    status: Status
    history: list[Progress]
    proof: Proof | None = None
    starts: list[float] = field(default_factory=list)


def solve_by_cone(problem: Problem, options: Options) -> Attempt:
    """Frank-Wolfe over S: fully corrective for two layers, layer by layer beyond."""
    return _shallow(problem, options) if problem.depth == 2 else _deep(problem, options)


def solve_by_training(problem: Problem, options: Options) -> Attempt:
    """Several trainings of one width as one batch, and the best of them."""
    units = Units.of(problem)
    inner = _within(units, options)
    weights, status, history, costs = train_best(
        units.problem,
        inner.budget,
        inner.width,
        inner.starts or TRAININGS,
        inner.seed,
        inner.init,
        inner.callback,
    )
    return _outward(units, Attempt(weights, status, history, None, costs), problem, options)


def solve_by_representations(problem: Problem, options: Options) -> Attempt:
    """Projected gradient on Z, from several starts one after the other."""
    units = Units.of(problem)
    inner = _within(units, options)
    found = descend_best(
        units.problem,
        inner.budget,
        inner.width,
        inner.starts or DESCENTS,
        inner.seed,
        inner.init,
        inner.callback,
    )
    return _outward(units, Attempt(found.weights, found.status, found.history, None, found.costs), problem, options)


METHODS: dict[str, Callable[[Problem, Options], Attempt]] = {
    "cone": solve_by_cone,
    "hidden": solve_by_representations,
    "train": solve_by_training,
}


_USES = {
    "width": "the methods hidden and train",
    "max_width": "the method cone at depth 3 and more",
    "starts": "the methods hidden and train, and for cone at depth 3 and more",
}


def check_use(method: str, depth: int, **options: int | None) -> None:
    """Raise a ProblemError where one of `width`, `max_width` and `starts` is given that the method has no use for."""
    descends, deep = method != "cone", depth > 2
    used = {"width": descends, "max_width": deep and not descends, "starts": deep or descends}
    for name, value in options.items():
        if value is not None and not used[name]:
            raise ProblemError(
                f"The method {method} at depth {depth} has no use for {name}, which is for {_USES[name]}; leave it out."
            )


def _shallow(problem: Problem, options: Options) -> Attempt:
    if options.init is None and suits_streaming(problem):
        return _streamed(problem, options)
    return _rounds(problem, options, None if options.init is None else options.init[0])


def _streamed(problem: Problem, options: Options) -> Attempt:
    """Cycles of training on random batches; rounds from the network that they end at, if time is left."""
    proof = proofs.spectral_proof(problem, SPECTRAL * options.budget.time_limit) if options.certify != "none" else None
    budget = options.budget
    units = Units.of(problem)
    outcome = run(StreamSolver(units.problem, budget, seed=options.seed), budget, _within(units, options).callback)
    found = outcome.state
    inner = Attempt(found.weights(), outcome.status, outcome.history, proof, [found.cost])
    first = _outward(units, inner, problem, options)
    if outcome.status is not Status.CONVERGED or budget.spent():
        return first
    cycles = outcome.history[-1].iteration
    left = replace(budget, max_iterations=budget.max_iterations - cycles)
    rounds = _rounds(problem, replace(options, budget=left), first.weights[0])
    later = [replace(line, iteration=cycles + 1 + line.iteration) for line in rounds.history]
    history = [*first.history, *later]
    kept = rounds if rounds.starts[0] < first.starts[0] else first
    return replace(rounds, weights=kept.weights, history=history, starts=kept.starts)


def _rounds(problem: Problem, options: Options, init: Tensor | None) -> Attempt:
    """Rounds of Frank-Wolfe in turns with the certifiers; once more from a simple network, should one cost less."""
    first = _turns(problem, options, init)
    simple = _cheapest_simple(problem)
    cost = math.inf if simple is None else evaluate(problem, simple).total
    if simple is None or not cost < first.starts[0] * (1.0 - SAME):
        return first
    if first.status is not Status.CONVERGED or options.budget.spent():
        status = Status.TIME_LIMIT if first.status is Status.CONVERGED else first.status
        return replace(first, weights=simple, status=status, starts=[cost])
    again = _turns(problem, options, simple[0])
    later = [replace(line, iteration=first.history[-1].iteration + 1 + line.iteration) for line in again.history]
    known = [proof for proof in (first.proof, again.proof) if proof is not None]
    kept = again.weights if again.starts[0] <= cost else simple
    best = max(known, key=lambda proof: proof.lower, default=None)
    history = [*first.history, *later]
    return replace(again, weights=kept, history=history, proof=best, starts=[min(again.starts[0], cost)])


def _cheapest_simple(problem: Problem) -> list[Tensor] | None:
    """The cheapest constant or linear network; None for exact fits, which those are by accident only."""
    if problem.interpolates:
        return None
    units = Units.of(problem)
    known = [units.outward(weights) for weights in simple_networks(units.problem)]
    return min(known, key=lambda weights: evaluate(problem, weights).total, default=None)


def _turns(problem: Problem, options: Options, init: Tensor | None) -> Attempt:
    """Rounds of Frank-Wolfe in turns with the certifiers, then fewer neurons."""
    turns = Turns(problem, options.budget, options.certify, options.gap, options.seed, init, options.callback)
    outcome = turns.take()
    network = turns.network(outcome)
    status = outcome.status
    if status is not Status.INTERRUPTED and options.certify == "full" and options.budget.spent():
        status = Status.TIME_LIMIT
    return Attempt(network.weights(), status, outcome.history, turns.best, [network.cost])


def _deep(problem: Problem, options: Options) -> Attempt:
    effort, units = DeepOptions(starts=options.starts or DRAWS), Units.of(problem)
    inner = _within(units, options)
    solver = DeepSolver(units.problem, inner.budget, effort, inner.seed, inner.init, inner.max_width)
    outcome = run(solver, inner.budget, inner.callback)
    proof = proofs.spectral_proof(problem, SPECTRAL * options.budget.time_limit) if options.certify != "none" else None
    attempt = Attempt(outcome.state.best, outcome.status, outcome.history, proof, outcome.state.costs)
    return _outward(units, attempt, problem, options)


def _within(units: Units, options: Options) -> Options:
    """The same options in the units that a method computes in; its callback gets the user's."""
    callback = options.callback
    return replace(
        options,
        init=None if options.init is None else units.inward(options.init),
        callback=None if callback is None else lambda line: callback(units.told(line)),
    )


def _outward(units: Units, attempt: Attempt, problem: Problem, options: Options) -> Attempt:
    """A method's attempt in the user's units, with a proof where it brings none."""
    weights = units.outward(attempt.weights)
    history = [units.told(line) for line in attempt.history]
    costs = [units.cost * cost for cost in attempt.starts]
    proof = _proof_at(problem, weights, options) if attempt.proof is None else attempt.proof
    return replace(attempt, weights=weights, history=history, proof=proof, starts=costs)


def _proof_at(problem: Problem, weights: Weights, options: Options) -> Proof | None:
    """The spectral bound, or the one that follows from the network's own dual point where an oracle is exact."""
    if options.certify == "none":
        return None
    found = [
        proofs.spectral_proof(problem, SPECTRAL * options.budget.time_limit),
        proofs.network_proof(problem, weights),
    ]
    return max((proof for proof in found if proof is not None), key=lambda proof: proof.lower)
