"""The methods of `solve` for problems with penalised biases."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
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
# The part of the time limit that the bound from the data may take besides, for two layers and for more.
DATA_SHARE, DEEP_SHARE = 0.05, 0.1


class _Task:
    """A problem and its options, in the user's units and in the method's.

    Attributes:
        scaled: the options in the method's units; the callback gets lines in the user's.
    """

    def __init__(self, problem: Problem, options: SolveOptions) -> None:
        self.problem, self.options, self.units = problem, options, Units.of(problem)
        units, init, callback = self.units, options.init, options.callback
        self.scaled = replace(
            options,
            init=None if init is None else units.inward(init),
            callback=None if callback is None else lambda line: callback(units.in_user_units(line)),
        )

    def attempt(
        self, weights: Weights, status: Status, history: list[Progress], costs: list[float], proof: Proof | None = None
    ) -> Attempt:
        """Return what a method found, in the user's units; add a proof if it has none."""
        weights = self.units.outward(weights)
        history = [self.units.in_user_units(line) for line in history]
        if proof is None and self.options.certify != "none":
            proof = _tightest(self.proof_from_data(), proofs.network_proof(self.problem, weights))
        return Attempt(weights, status, history, proof, [self.units.cost * cost for cost in costs])

    def proof_from_data(self) -> Proof | None:
        """Prove the bound that needs only the data, unless no proof is asked for."""
        if self.options.certify == "none":
            return None
        share = DATA_SHARE if self.problem.depth == 2 else DEEP_SHARE
        with self.options.budget.phase("proof"):
            return proofs.data_proof(self.problem, share * self.options.budget.time_limit)

    def cheapest_simple(self, linear: bool = True) -> list[Tensor] | None:
        """Return the constant, linear or zero network of lowest cost; None for exact fits."""
        problem = self.problem
        if problem.interpolates:
            return None
        networks = [self.units.outward(weights) for weights in simple_networks(self.units.problem, linear)]
        sizes = [problem.X.shape[1], *[0] * (problem.depth - 1), problem.Y.shape[1]]
        networks.append([problem.X.new_zeros(rows, columns + 1) for columns, rows in pairwise(sizes)])
        return min(networks, key=lambda weights: evaluate(problem, weights).total)


def _tightest(*bounds: Proof | None) -> Proof | None:
    return max((proof for proof in bounds if proof is not None), key=lambda proof: proof.lower, default=None)


def solve_by_cone(problem: Problem, options: SolveOptions) -> Attempt:
    """Run Frank-Wolfe over S for two layers, or descents from many starts for more."""
    if problem.depth == 2:
        return _shallow(problem, options)
    return _deep(problem, options) if problem.spread is ALONE else _deep_together(problem, options)


def _best_descent(descend: Callable[..., Attempt], starts: int, problem: Problem, options: SolveOptions) -> Attempt:
    """Return the best of several descents from starts of one width."""
    task = _Task(problem, options)
    o = task.scaled
    best = descend(task.units.problem, o.budget, o.width, o.starts or starts, o.seed, o.init, o.callback)
    return task.attempt(best.weights, best.status, best.history, best.starts)


METHODS: dict[str, Callable[[Problem, SolveOptions], Attempt]] = {
    "cone": solve_by_cone,
    "hidden": partial(_best_descent, descend_best, DESCENTS),  # projected gradient on Z, one start after the other
    "train": partial(_best_descent, train_best, TRAININGS),  # all trainings as one batch
}


def _shallow(problem: Problem, options: SolveOptions) -> Attempt:
    saved = None if options.checkpoint is None else options.checkpoint.saved
    alone = options.thrift.batches_alone
    streams = alone or (options.init is None and suits_streaming(problem, options.budget.time_limit))
    if streams if saved is None else saved.stage == CYCLES:
        return _streamed(problem, options, saved)
    return _rounds(problem, options, None if options.init is None else options.init[0], saved)


def _streamed(problem: Problem, options: SolveOptions, saved: Saved | None) -> Attempt:
    """Train on random batches, then run rounds from the result if time remains."""
    first, budget = _cycles(problem, options, saved), options.budget
    if first.status is not Status.CONVERGED or budget.spent():
        return first
    if options.thrift.batches_alone:
        return replace(first, status=Status.MEMORY_LIMIT)
    if descent_is_long(problem, len(first.weights[0]), budget.remaining()):
        return replace(first, status=Status.TIME_LIMIT)
    remaining = replace(budget, max_iterations=budget.max_iterations - first.history[-1].iteration)
    rounds = _rounds(problem, replace(options, budget=remaining), first.weights[0])
    history = _after(first.history, rounds.history)
    better = rounds if rounds.starts[0] < first.starts[0] else first
    return replace(rounds, weights=better.weights, history=history, starts=better.starts)


def _cycles(problem: Problem, options: SolveOptions, saved: Saved | None) -> Attempt:
    """Run the cycles; return their network, or a simple one of lower cost, with their status."""
    budget, task = options.budget, _Task(problem, options)
    outcome, proof, judging = _trained(task, saved)
    # To find which neurons are not needed takes as long as about four losses over all samples.
    weights = reduced_on_few(task.units.problem, outcome.state.weights(), lambda: budget.remaining() < 4.0 * judging)
    late = products_are_long(problem, max(budget.remaining(), 0.01 * budget.time_limit))
    if proof is None and late:
        proof = Unproved(0.0)
    first = task.attempt(weights, outcome.status, outcome.history, [outcome.state.cost], proof)
    simple = task.cheapest_simple(linear=not late)
    if simple is not None and (cost := evaluate(problem, simple).total) < first.starts[0]:
        return replace(first, weights=simple, starts=[cost])
    return first


def _trained(task: _Task, saved: Saved | None) -> tuple[Outcome[Streamed], Proof | None, float]:
    """Run the cycles and prove a bound from the data.

    Also returns the seconds that a loss over all samples takes. The views of the samples that the cycles hold are freed
    when this function returns.
    """
    options, budget, bounds = task.options, task.options.budget, list[Proof | None]()
    solver = StreamSolver(task.units.problem, seed=options.seed)
    before = None if saved is None else cycles_from(saved, solver)
    keep = None if options.checkpoint is None else keeping_cycles(options.checkpoint, CYCLES, solver, budget)

    def after(state: Streamed, history: list[Progress], ends: bool) -> None:
        # The bound takes as long as several of the first cycles, so these come before it.
        due = len(history) > 1 and budget.seconds() > DATA_SHARE * budget.time_limit
        if due and not bounds and not products_are_long(task.problem, 0.25 * budget.remaining()):
            bounds.append(task.proof_from_data())
        if keep is not None:
            keep(state, history, ends)

    outcome = going_on(solver, budget, task.scaled.callback, before, after)
    return outcome, bounds[0] if bounds else None, solver.judging


def _rounds(problem: Problem, options: SolveOptions, init: Tensor | None, saved: Saved | None = None) -> Attempt:
    """Alternate Frank-Wolfe rounds and certifiers; retry from a simple network of lower cost."""
    if saved is not None and saved.stage == AGAIN:
        return Alternation(problem, options, stage=AGAIN, saved=saved).solve()
    first = Alternation(problem, options, init, saved=saved).solve()
    simple = _Task(problem, options).cheapest_simple()
    cost = math.inf if simple is None else evaluate(problem, simple).total
    if simple is None or not cost < first.starts[0] * (1.0 - 1e-9):  # else it is the same
        return first
    if first.status not in ENDED or options.budget.spent():
        status = Status.TIME_LIMIT if first.status in ENDED else first.status
        return replace(first, weights=simple, status=status, starts=[cost])
    again = Alternation(problem, options, simple[0], stage=AGAIN).solve()
    weights = again.weights if again.starts[0] <= cost else simple
    history, proof = _after(first.history, again.history), _tightest(first.proof, again.proof)
    return replace(again, weights=weights, history=history, proof=proof, starts=[min(again.starts[0], cost)])


def _deep(problem: Problem, options: SolveOptions) -> Attempt:
    task = _Task(problem, options)
    units, scaled, proof = task.units, task.scaled, task.proof_from_data()
    effort = DeepOptions(starts=options.starts or DRAWS, batch=options.thrift.draws, tol=options.tol)
    enough = 0.0 if proof is None else proof.lower / units.cost / (1.0 - options.gap)
    before: list[Progress] = []
    if scaled.init is None and suits_few_samples(units.problem, options.budget.time_limit, DRAWS_TOGETHER):
        stream = DeepStream(units.problem, effort, scaled.seed, scaled.max_width)
        streamed = run(stream, scaled.budget, scaled.callback)
        before, effort = streamed.history, replace(effort, starts=0)
        remaining = max(0, scaled.budget.max_iterations - before[-1].iteration)
        scaled = replace(scaled, init=streamed.state.best, budget=replace(scaled.budget, max_iterations=remaining))
    solver = DeepSolver(units.problem, effort, scaled.seed, scaled.init, scaled.max_width, enough)
    outcome = run(solver, scaled.budget, scaled.callback)
    best = reduced(units.problem, outcome.state.best, scaled.budget.overdue)
    return task.attempt(best, outcome.status, _after(before, outcome.history), outcome.state.costs, proof)


def _deep_together(problem: Problem, options: SolveOptions) -> Attempt:
    """Search on few samples in each process; then run cycles and a descent on all samples."""
    effort, task = DeepOptions(starts=options.starts or DRAWS, tol=options.tol), _Task(problem, options)
    scaled, scaled_problem = task.scaled, task.units.problem
    solver = DeepStream(scaled_problem, effort, scaled.seed, scaled.max_width, scaled.init)
    outcome = run(solver, scaled.budget, scaled.callback)
    best = outcome.state.best
    if outcome.status is Status.CONVERGED and not scaled.budget.spent():
        best = descended(scaled_problem, best, scaled.budget)
    # Where nothing passes a layer, only a search that had its time says that nothing is to pass.
    cut = scaled.budget.spent() or (solver.cut and not min(len(W) for W in best[:-1]))
    status = Status.TIME_LIMIT if cut else outcome.status
    return task.attempt(best, status, outcome.history, [evaluate(scaled_problem, best).total])


def _after(first: list[Progress], later: list[Progress]) -> list[Progress]:
    """One history of two solves, one after the other."""
    done = first[-1].iteration + 1 if first else 0
    return [*first, *(replace(line, iteration=done + line.iteration) for line in later)]
