"""What each method of `solve` does with a problem: an attempt, which is a network and what is known about it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from torch import Tensor

from covopt.certify import proofs
from covopt.certify.proof import Proof, Unproved
from covopt.model.problem import Problem
from covopt.model.spread import ALONE
from covopt.model.units import Units
from covopt.model.weights import Weights, evaluate
from covopt.runtime.loop import Outcome, Progress, Status, run
from covopt.solvers.attempt import DRAWS_TOGETHER, Attempt, SolveOptions
from covopt.solvers.checkpoint import Saved
from covopt.solvers.deep.pruning import reduced, reduced_on_few
from covopt.solvers.deep.representations import descend_best
from covopt.solvers.deep.solver import DeepOptions, DeepSolver
from covopt.solvers.deep.stream import DeepStream, descended, suits_few_samples
from covopt.solvers.shallow.alternation import ENDED, Alternation
from covopt.solvers.shallow.saved import cycles_from, going_on, keeping_cycles
from covopt.solvers.shallow.stream import Streamed, StreamSolver, descent_is_long, products_are_long, suits_streaming
from covopt.solvers.training.simple import simple_networks
from covopt.solvers.training.trainer import train_best

# Trainings, descents on Z and draws of a deep solve, where nobody says how many.
TRAININGS, DESCENTS, DRAWS = 10, 3, 96
# What checkpoints call the cycles, and the rounds that begin once more.
CYCLES, AGAIN = "cycles", "rounds from a simple network"
# A cost that is lower by less than this, relative, is the same.
SAME = 1e-9
# The part of what is left of the time that the bound of many samples may take after the first cycles, and the part of
# the time limit that it, and the linear network, may take when the time is up.
AFFORDED, LATE = 0.25, 0.01
# Losses over all samples that take as long as to find which neurons are not needed, and to see.
REDUCING = 4.0
# The part of the time limit that the bound from the data may take besides, for two layers and for more.
DATA_SHARE, DEEP_SHARE = 0.05, 0.1


def solve_by_cone(problem: Problem, options: SolveOptions) -> Attempt:
    """Frank-Wolfe over S, fully corrective, for two layers; descents from many starts and layer by layer beyond."""
    if problem.depth == 2:
        return _shallow(problem, options)
    return _deep(problem, options) if problem.spread is ALONE else _deep_together(problem, options)


def solve_by_training(problem: Problem, options: SolveOptions) -> Attempt:
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


def solve_by_representations(problem: Problem, options: SolveOptions) -> Attempt:
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


METHODS: dict[str, Callable[[Problem, SolveOptions], Attempt]] = {
    "cone": solve_by_cone,
    "hidden": solve_by_representations,
    "train": solve_by_training,
}


def _shallow(problem: Problem, options: SolveOptions) -> Attempt:
    saved = None if options.checkpoint is None else options.checkpoint.saved
    alone = options.thrift.batches_alone
    streams = alone or (options.init is None and suits_streaming(problem, options.budget.time_limit))
    if streams if saved is None else saved.stage == CYCLES:
        return _streamed(problem, options, saved)
    return _rounds(problem, options, None if options.init is None else options.init[0], saved)


def _streamed(problem: Problem, options: SolveOptions, saved: Saved | None) -> Attempt:
    """Cycles of training on random batches; rounds from the network that they end at, if time is left."""
    first, budget = _cycles(problem, options, saved), options.budget
    if first.status is not Status.CONVERGED or budget.spent():
        return first
    if options.thrift.batches_alone:
        return replace(first, status=Status.MEMORY_LIMIT)
    if descent_is_long(problem, len(first.weights[0]), budget.remaining()):
        return replace(first, status=Status.TIME_LIMIT)
    left = replace(budget, max_iterations=budget.max_iterations - first.history[-1].iteration)
    rounds = _rounds(problem, replace(options, budget=left), first.weights[0])
    history = _after(first.history, rounds.history)
    kept = rounds if rounds.starts[0] < first.starts[0] else first
    return replace(rounds, weights=kept.weights, history=history, starts=kept.starts)


def _cycles(problem: Problem, options: SolveOptions, saved: Saved | None) -> Attempt:
    """What the cycles end at, or a simple network that costs less; the status is theirs."""
    budget, units = options.budget, Units.of(problem)
    outcome, proof, judging = _trained(problem, units, options, saved)
    weights = reduced_on_few(units.problem, outcome.state.weights(), lambda: budget.remaining() < REDUCING * judging)
    late = products_are_long(problem, max(budget.remaining(), LATE * budget.time_limit))
    if proof is None and late:
        proof = Unproved(0.0)
    inner = Attempt(weights, outcome.status, outcome.history, proof, [outcome.state.cost])
    first = _outward(units, inner, problem, options)
    simple = _cheapest_simple(problem, units, linear=not late)
    if simple is not None and (cost := evaluate(problem, simple).total) < first.starts[0]:
        return replace(first, weights=simple, starts=[cost])
    return first


def _trained(
    problem: Problem, units: Units, options: SolveOptions, saved: Saved | None
) -> tuple[Outcome[Streamed], Proof | None, float]:
    """The cycles, in these units, a bound from the data, and how many seconds a loss over all samples takes.

    The views of the samples that the cycles hold go with this function, before the answer is tidied.
    """
    budget, bounds = options.budget, list[Proof | None]()
    solver = StreamSolver(units.problem, seed=options.seed)
    before = None if saved is None else cycles_from(saved, solver)
    keep = None if options.checkpoint is None else keeping_cycles(options.checkpoint, CYCLES, solver, budget)

    def after(state: Streamed, history: list[Progress], ends: bool) -> None:
        # The bound takes as long as several of the first cycles, so these come before it.
        due = len(history) > 1 and budget.seconds() > DATA_SHARE * budget.time_limit
        if due and not bounds and not products_are_long(problem, AFFORDED * budget.remaining()):
            bounds.append(_from_data(problem, options))
        if keep is not None:
            keep(state, history, ends)

    outcome = going_on(solver, budget, _within(units, options).callback, before, after)
    return outcome, bounds[0] if bounds else None, solver.judging


def _rounds(problem: Problem, options: SolveOptions, init: Tensor | None, saved: Saved | None = None) -> Attempt:
    """Rounds of Frank-Wolfe in turns with the certifiers; once more from a simple network, should one cost less."""
    if saved is not None and saved.stage == AGAIN:
        return Alternation(problem, options, stage=AGAIN, saved=saved).solve()
    first = Alternation(problem, options, init, saved=saved).solve()
    simple = _cheapest_simple(problem, Units.of(problem))
    cost = math.inf if simple is None else evaluate(problem, simple).total
    if simple is None or not cost < first.starts[0] * (1.0 - SAME):
        return first
    if first.status not in ENDED or options.budget.spent():
        status = Status.TIME_LIMIT if first.status in ENDED else first.status
        return replace(first, weights=simple, status=status, starts=[cost])
    again = Alternation(problem, options, simple[0], stage=AGAIN).solve()
    known = [proof for proof in (first.proof, again.proof) if proof is not None]
    kept = again.weights if again.starts[0] <= cost else simple
    best = max(known, key=lambda proof: proof.lower, default=None)
    history = _after(first.history, again.history)
    return replace(again, weights=kept, history=history, proof=best, starts=[min(again.starts[0], cost)])


def _cheapest_simple(problem: Problem, units: Units, linear: bool = True) -> list[Tensor] | None:
    """The cheapest constant, linear or zero network; None for exact fits, which those are by accident only."""
    if problem.interpolates:
        return None
    known = [units.outward(weights) for weights in simple_networks(units.problem, linear)]
    sizes = [problem.X.shape[1], *[0] * (problem.depth - 1), problem.Y.shape[1]]
    known.append([problem.X.new_zeros(rows, columns + 1) for columns, rows in pairwise(sizes)])
    return min(known, key=lambda weights: evaluate(problem, weights).total, default=None)


def _deep(problem: Problem, options: SolveOptions) -> Attempt:
    draws = options.thrift.draws
    effort, units = DeepOptions(starts=options.starts or DRAWS, batch=draws, tol=options.tol), Units.of(problem)
    inner, proof = _within(units, options), _from_data(problem, options)
    enough = 0.0 if proof is None else proof.lower / units.cost / (1.0 - options.gap)
    before: list[Progress] = []
    if inner.init is None and suits_few_samples(units.problem, options.budget.time_limit, DRAWS_TOGETHER):
        streamed = run(DeepStream(units.problem, effort, inner.seed, inner.max_width), inner.budget, inner.callback)
        before, effort = streamed.history, replace(effort, starts=0)
        left = max(0, inner.budget.max_iterations - before[-1].iteration)
        inner = replace(inner, init=streamed.state.best, budget=replace(inner.budget, max_iterations=left))
    solver = DeepSolver(units.problem, effort, inner.seed, inner.init, inner.max_width, enough)
    outcome = run(solver, inner.budget, inner.callback)
    best = reduced(units.problem, outcome.state.best, inner.budget.overdue)
    history = _after(before, outcome.history)
    return _outward(units, Attempt(best, outcome.status, history, proof, outcome.state.costs), problem, options)


def _deep_together(problem: Problem, options: SolveOptions) -> Attempt:
    """Searches on few samples, one of each process; then cycles and a descent on the rows of all."""
    units, effort = Units.of(problem), DeepOptions(starts=options.starts or DRAWS, tol=options.tol)
    inner = _within(units, options)
    solver = DeepStream(units.problem, effort, inner.seed, inner.max_width, inner.init)
    outcome = run(solver, inner.budget, inner.callback)
    best = outcome.state.best
    if outcome.status is Status.CONVERGED and not inner.budget.spent():
        best = descended(units.problem, best, inner.budget)
    # Where nothing passes a layer, only a search that had its time says that nothing is to pass.
    cut = inner.budget.spent() or (solver.cut and not min(len(W) for W in best[:-1]))
    status = Status.TIME_LIMIT if cut else outcome.status
    attempt = Attempt(best, status, outcome.history, None, [evaluate(units.problem, best).total])
    return _outward(units, attempt, problem, options)


def _after(first: list[Progress], later: list[Progress]) -> list[Progress]:
    """One history of two solves, one after the other."""
    done = first[-1].iteration + 1 if first else 0
    return [*first, *(replace(line, iteration=done + line.iteration) for line in later)]


def _within(units: Units, options: SolveOptions) -> SolveOptions:
    """The same options in the units that a method computes in; its callback gets the user's."""
    callback = options.callback
    return replace(
        options,
        init=None if options.init is None else units.inward(options.init),
        callback=None if callback is None else lambda line: callback(units.in_user_units(line)),
    )


def _outward(units: Units, attempt: Attempt, problem: Problem, options: SolveOptions) -> Attempt:
    """A method's attempt in the user's units, with a proof where it brings none."""
    weights = units.outward(attempt.weights)
    history = [units.in_user_units(line) for line in attempt.history]
    costs = [units.cost * cost for cost in attempt.starts]
    proof = _proof_at(problem, weights, options) if attempt.proof is None else attempt.proof
    return replace(attempt, weights=weights, history=history, proof=proof, starts=costs)


def _proof_at(problem: Problem, weights: Weights, options: SolveOptions) -> Proof | None:
    """The bound from the data, or the one that follows from the network's own dual point where an oracle is exact."""
    found = [
        _from_data(problem, options),
        proofs.network_proof(problem, weights) if options.certify != "none" else None,
    ]
    return max((proof for proof in found if proof is not None), key=lambda proof: proof.lower, default=None)


def _from_data(problem: Problem, options: SolveOptions) -> Proof | None:
    """The bound that needs the data alone, where any is asked for."""
    if options.certify == "none":
        return None
    share = DATA_SHARE if problem.depth == 2 else DEEP_SHARE
    with options.budget.phase("proof"):
        return proofs.data_proof(problem, share * options.budget.time_limit)
