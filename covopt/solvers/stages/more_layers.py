"""The stages of a solve of three layers and more."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from covopt.certify.deep.one_input import OneInput
from covopt.certify.paths.paths import PathNorm
from covopt.certify.proof import Target
from covopt.certify.shares.shares import Shares
from covopt.model.loss import LOSSES
from covopt.model.problem import Problem
from covopt.model.spread import ALONE
from covopt.model.units import Units
from covopt.model.weights import evaluate
from covopt.runtime.errors import ProblemError
from covopt.runtime.interrupts import interrupted, remember
from covopt.runtime.loop import After, Progress, Status, run
from covopt.solvers.deep.descent import descent_for
from covopt.solvers.deep.exploration import Exploration, usual_width
from covopt.solvers.deep.frank_wolfe import LayerOptions, LayerRounds
from covopt.solvers.deep.layers import examine
from covopt.solvers.deep.penalty_first import PenaltyFirst
from covopt.solvers.deep.pruning import reduced
from covopt.solvers.deep.representations import HiddenSolver
from covopt.solvers.deep.solver import BATCHES, ELITE, DeepSolver
from covopt.solvers.deep.starts import lowest_of_random
from covopt.solvers.deep.state import DeepOptions, State
from covopt.solvers.deep.stream import DeepStream, Streamed, descended
from covopt.solvers.incumbent import Attempt, Incumbent, best_of, cost_of
from covopt.solvers.options import DRAWS_TOGETHER, SolveOptions
from covopt.solvers.stages.stage import DOUBLE, SINGLE, Stage, Thriftier, bound_from_data, in_units, size_in_units, take
from covopt.solvers.stages.two_layers import rounds_memory
from covopt.solvers.training.exact_fit import explored_problem
from covopt.solvers.training.homotopy import POLISHING
from covopt.solvers.training.simple import cheapest_simple
from covopt.solvers.training.tangent import most_entries

DRAWS = 96  # the default number of random starts of a deep solve


@dataclass(frozen=True)
class DeepSearch(Stage):
    """Many starts on all samples, the best improved layer by layer."""

    name = "search"
    why = "Many starts descend, and the best network is improved layer by layer by Frank-Wolfe."
    # how many starts, and how the best network is improved
    effort: DeepOptions = field(default_factory=lambda: DeepOptions(starts=DRAWS))

    def due(self, incumbent: Incumbent, options: SolveOptions) -> bool:
        """Return True while the gap is open, unless an earlier stage was interrupted or used the time."""
        over = incumbent.status is Status.INTERRUPTED or (incumbent.weights and incumbent.status is Status.TIME_LIMIT)
        return not over and not incumbent.closed(options.gap)

    def memory(self, problem: Problem, options: SolveOptions) -> dict[str, float]:
        """Return the needs of many starts in float32, some of them in float64, and of a layer's block."""
        return search_memory(problem, options, self.effort) if self.effort.starts else {}

    def run(self, incumbent: Incumbent, options: SolveOptions) -> None:
        """Search, from the network of an earlier stage if there is one."""
        units, scaled = in_units(incumbent.problem, options)
        init, budget = scaled.init, scaled.budget
        if incumbent.weights:
            init = units.inward(incumbent.weights) if init is None else init
            budget = budget.after(incumbent.rounds)
        enough = _enough(incumbent, options, units)
        search = DeepSolver if explored_problem(units.problem) is units.problem else PenaltyFirst
        solver = search(units.problem, self.effort, scaled.seed, init, scaled.max_width, enough)
        after = bound_later(incumbent, options, units, solver) if self.effort.starts else None
        outcome = run(solver, budget, scaled.callback, after=after)
        best = reduced(units.problem, outcome.state.best, budget.overdue)
        incumbent.offer(units.outward(best))
        incumbent.record(units.in_user_units(line) for line in outcome.history)
        incumbent.starts = [units.cost * cost for cost in outcome.state.costs]
        incumbent.status = Status.OPTIMAL if incumbent.closed(options.gap) else outcome.status

    def thriftier(self, phase: str, problem: Problem, options: SolveOptions) -> Thriftier:
        """Explore fewer networks at a time."""
        draws = min(options.thrift.draws, options.starts or DRAWS) // 2
        if phase != "draws" or not draws:
            return None
        return replace(options, thrift=replace(options.thrift, draws=draws)), "explores fewer networks at a time"

    def remedies(self, phase: str) -> list[str]:
        """Return what makes the networks smaller."""
        return ["set a smaller max_width"] if phase in ("draws", "networks", "blocks", "exact fits") else []


@dataclass(frozen=True)
class Batches(DeepSearch):
    """Training of a network on batches of the samples."""

    name = "batches"
    why = "Training on all samples at once would take too long, so a network is trained on random batches of them."

    def memory(self, problem: Problem, options: SolveOptions) -> dict[str, float]:
        """Return the needs of the samples in float32, and of a batch of them all."""
        N, d = len(problem.X), problem.X.shape[1]
        width, m = usual_width(problem.samples, problem.Y.shape[1]), problem.Y.shape[1]
        neurons = 2 * min(width, options.max_width or width) * (problem.depth - 1)
        copies = size_in_units(problem) + DOUBLE * N * m + 3.0 * SINGLE * N * (d + 1)
        return {"batches": copies + 4.0 * SINGLE * N * neurons}

    def run(self, incumbent: Incumbent, options: SolveOptions) -> None:
        """Train; processes that share the rows end with a descent on all of them."""
        units, scaled = in_units(incumbent.problem, options)
        problem, budget, together = units.problem, scaled.budget, incumbent.problem.spread is not ALONE
        init = scaled.init if together else None
        enough = _enough(incumbent, options, units)
        stream = DeepStream(problem, self.effort.starts, scaled.seed, scaled.max_width, init, enough)
        outcome = run(stream, budget, scaled.callback, after=bound_later(incumbent, options, units, stream))
        best, status = outcome.state.best, outcome.status
        if together and status is Status.CONVERGED and not budget.spent():
            best = descended(problem, best, budget)
            status = Status.TIME_LIMIT if budget.spent() else status
        incumbent.offer(units.outward(best))
        incumbent.record(units.in_user_units(line) for line in outcome.history)
        incumbent.starts, incumbent.status = [units.cost * evaluate(problem, best).total], status
        constant = problem.mean(problem.Y).expand_as(problem.Y)
        if status is Status.TIME_LIMIT and problem.loss_at(constant) < outcome.state.cost:  # no search follows
            simple = cheapest_simple(incumbent.problem, linear=False)
            if simple is not None:
                incumbent.offer(simple)


@dataclass(frozen=True)
class Improvement(DeepSearch):
    """The search without starts: descents of the network of an earlier stage and of wider copies, on all samples."""

    name = "improvement"
    why = "The network descends on all samples and is improved layer by layer by Frank-Wolfe."
    effort: DeepOptions = field(default_factory=lambda: DeepOptions(starts=0))


@dataclass(frozen=True)
class Cases(Stage):
    """Networks and a bound from a tree of cases, for three layers on a few samples.

    The programme of a case describes a network near the minimum. A descent from that of the first case alone ends at
    the lowest cost known on 21 of 24 random sets of 2 to 5 samples (docs/notes/2026-11-shares.md); the best of random
    starts descend before it.
    """

    name = "cases"
    why = "For so few samples a tree of cases leads to networks near the minimum, and may prove one of them."
    # the part of its time, at most, in which random starts are explored; 0.25 was too little for 5 samples in 5 s
    drawing: float = 0.4
    worth: float = 0.1  # it ends where twice its cases would take less than this part off the gap
    cases: int = 3_000  # at most, and no more than `max_iterations`

    def due(self, incumbent: Incumbent, options: SolveOptions) -> bool:
        """Return True while there is time and the gap is open."""
        return not incumbent.closed(options.gap) and not options.budget.spent()

    def run(self, incumbent: Incumbent, options: SolveOptions) -> None:
        """Descend from the networks of cases, by the method cone, and prove the cost of the best one up to the gap."""
        budget = options.budget
        cases = min(self.cases, budget.max_iterations) if options.certify in ("auto", "full") else 1
        with budget.phase("cases"):
            meet = self._descent(incumbent, options) if options.method == "cone" else lambda _: incumbent.cost
            worth = 0.0 if options.certify == "full" else self.worth
            target = Target(
                cost=incumbent.cost, gap=options.gap, worth=worth, steps=cases, stop=budget.spent, meet=meet
            )
            proved = Shares.prove(incumbent.problem.to(torch.device("cpu")), target)
        incumbent.prove(None if proved is None or options.certify == "none" else proved.proof)
        incumbent.status = Status.OPTIMAL if incumbent.closed(options.gap) else incumbent.status

    def _descent(self, incumbent: Incumbent, options: SolveOptions) -> Callable[[list[Tensor]], float]:
        """Descend from random starts, then return the function that descends from the network of a case.

        Both offer the best network that they end at, and the function returns the cost of one that is known.
        """
        units, scaled = in_units(incumbent.problem, options)
        problem, budget = units.problem, options.budget
        descents = descent_for(problem, scaled.seed, scaled.max_width)

        def descended(starts: list[list[Tensor]]) -> float:
            ends = descents.descend(starts, POLISHING, budget)
            networks = descents.corrected(ends, incumbent.cost / units.cost, budget)
            best = reduced(problem, min(networks, key=descents.cost), budget.overdue)
            return offered(incumbent, options, units.outward(best), "bounding the minimum by a tree of cases")

        draws = min(options.starts or DRAWS_TOGETHER, DRAWS_TOGETHER)
        stop = budget.rest(self.drawing).pace()
        descended(lowest_of_random(problem, draws, scaled.seed, scaled.max_width, stop))
        return lambda weights: descended([[W.to(problem.X) for W in units.inward(weights)]])


def offered(incumbent: Incumbent, options: SolveOptions, network: list[Tensor], phase: str) -> float:
    """Offer a network if it is narrow enough, add a line to the history, and return a cost that some network has."""
    cost, budget = cost_of(incumbent.problem, network), options.budget
    if max(len(W) for W in network[:-1]) <= (options.max_width or math.inf):
        incumbent.offer(network, cost)
    if not incumbent.weights:
        return cost
    lower = None if incumbent.proof is None else incumbent.proof.lower
    width = max(len(W) for W in incumbent.weights[:-1])
    incumbent.record([Progress(0, budget.seconds(), incumbent.cost, lower, width, phase)])
    try:
        if options.callback is not None:
            options.callback(incumbent.history[-1])
    except KeyboardInterrupt:  # Ctrl-C itself only uses up the budget
        if not remember():
            raise
    return min(cost, incumbent.cost)


@dataclass(frozen=True)
class OneInputNetwork(Stage):
    """The minimum of three layers with one input and without biases, which needs no search."""

    name = "one input"
    why = "With one input and without biases two numbers determine the network of lowest cost."

    def run(self, incumbent: Incumbent, options: SolveOptions) -> None:
        """Offer the network of lowest cost, and prove that it is."""
        problem = incumbent.problem
        units, _ = in_units(problem, options)

        def meet(weights: list[Tensor]) -> float:
            network = [W.to(problem.X) for W in units.inward(weights)]
            smaller = units.outward(reduced(units.problem, network, options.budget.overdue))
            return offered(incumbent, options, smaller, "bounding the minimum for one input")

        proved = OneInput.prove(problem.to(torch.device("cpu")), Target(meet=meet))
        incumbent.prove(None if options.certify == "none" else proved.proof)
        incumbent.status = Status.OPTIMAL if incumbent.closed(options.gap) else incumbent.status


@dataclass(frozen=True)
class PathBound(Stage):
    """The bound from the path norm of three layers on some samples, whose first neurons are those of the network."""

    # with `auto` it ends where the most that it might still prove is less than this part of the gap. With 0.1 it
    # ended at 20.06 for 20 points of a sine and a cosine, with 0.01 2 s later at 20.12
    worth: float = 0.01
    name = "paths"
    why = "For so few samples the path norm of the hidden neurons bounds the cost, by a tree over their signs."

    def due(self, incumbent: Incumbent, options: SolveOptions) -> bool:
        """Return True while there is time and the gap is open, once there is a network."""
        return bool(incumbent.weights) and not incumbent.closed(options.gap) and not options.budget.spent()

    def run(self, incumbent: Incumbent, options: SolveOptions) -> None:
        """Prove the bound."""
        network = [W.detach().cpu() for W in incumbent.weights]
        worth = 0.0 if options.certify == "full" else self.worth
        target = Target(cost=incumbent.cost, gap=options.gap, network=network, worth=worth, stop=options.budget.spent)
        with options.budget.phase("paths"):
            proved = PathNorm.prove(incumbent.problem.to(torch.device("cpu")), target)
        incumbent.prove(None if proved is None else proved.proof)
        incumbent.status = Status.OPTIMAL if incumbent.closed(options.gap) else incumbent.status


@dataclass(frozen=True)
class ExamineLayers(Stage):
    """A report of each hidden layer, whose block is a problem of two layers; the search counts its memory."""

    name = "layers"
    why = "Each hidden layer is examined: the gap of its block, its missing neuron, its ranks."

    def due(self, incumbent: Incumbent, options: SolveOptions) -> bool:
        """Return True while there is time and a signal passes all layers."""
        passes = bool(incumbent.weights) and min(len(W) for W in incumbent.weights[:-1]) > 0
        return passes and not options.budget.spent() and incumbent.status is not Status.INTERRUPTED

    def run(self, incumbent: Incumbent, options: SolveOptions) -> None:
        """Examine the layers; the method cone puts blocks of lower cost in, rivals are reported as they came."""
        with options.budget.phase("examining layers"):
            if options.callback is not None and incumbent.history:
                line = replace(incumbent.history[-1], seconds=options.budget.seconds())
                options.callback(replace(line, phase="examining each hidden layer"))
            improve = options.method == "cone"
            incumbent.layers, weights = examine(incumbent.problem, incumbent.weights, options, improve=improve)
            incumbent.offer(weights)


@dataclass(frozen=True)
class HiddenDescents(Stage):
    """Descents on the hidden representations, from one start after the other."""

    name = "descents"
    why = (
        "The representations Z of the hidden layers descend, with a Tikhonov parameter that falls, from several starts."
    )
    starts: int = 6  # the default number of descents
    least: float = 0.05  # the part of the time limit that each of them gets at least

    def memory(self, problem: Problem, options: SolveOptions) -> dict[str, float]:
        """Return the need of L-BFGS, and of the covariances with their factors."""
        N, width = len(problem.X), options.width or HiddenSolver.first_width(problem) + HiddenSolver.neurons
        pairs = 2 * HiddenSolver.descent.memory * width * ((problem.depth - 2) * N + min(problem.Xt.shape))
        return {"descents": size_in_units(problem) + DOUBLE * ((problem.depth + 5) * N * (N + width) + pairs)}

    def run(self, incumbent: Incumbent, options: SolveOptions) -> None:
        """Descend from each start; a ProblemError says that networks of the width asked for end without a fit."""
        units, o = in_units(incumbent.problem, options)
        turns = o.budget.turns(range(o.starts or self.starts), self.least)  # a start is drawn when its turn comes
        searches = (
            (HiddenSolver(units.problem, o.width, o.seed + k, None if k else o.init), budget) for k, budget in turns
        )
        attempt = best_of(searches, o.callback)
        if o.width is not None and attempt.status is Status.CONVERGED and math.isinf(min(attempt.starts)):
            raise ProblemError(
                f"No network of width {o.width} that fits was found; give a larger width, at least the number of"
                " samples, or a network that fits to start from."
            )
        if o.width is None:
            attempt = replace(attempt, weights=reduced(units.problem, attempt.weights, o.budget.overdue))
        take(incumbent, units, attempt)
        simple = cheapest_simple(incumbent.problem) if o.width is None else None
        if simple is not None:  # where no neuron pays, they fade and stay, and a constant or linear network costs less
            incumbent.offer(simple)

    def remedies(self, phase: str) -> list[str]:
        """Return the method that needs less."""
        return ["use the method cone"] if phase == "descents" else []


@dataclass(frozen=True)
class LayersInTurn(Stage):
    """Frank-Wolfe over the pairs (K_l, Ks_l) of one hidden layer after the other, from several starts."""

    name = "layers in turn"
    why = (
        "Frank-Wolfe moves the covariances of one hidden layer after the other, and Tikhonov's eps between them falls."
    )
    rounds: LayerOptions = field(default_factory=LayerOptions)  # how eps falls, and the default number of starts

    def memory(self, problem: Problem, options: SolveOptions) -> dict[str, float]:
        """Return the need of a layer's problem, whose inputs are the neurons below beside sqrt(eps) I."""
        N, wide = len(problem.X), min(2 * len(problem.X), 400)
        block = replace(problem, X=problem.X.new_empty(N, 0), depth=2, loss=LOSSES["mse"])
        search = max(rounds_memory(block, replace(options, certify="none")).values())
        return {"layers": size_in_units(problem) + search + 8 * DOUBLE * N * (N + wide)}

    def run(self, incumbent: Incumbent, options: SolveOptions) -> None:
        """Take the layers in turn, from each start."""
        units, o = in_units(incumbent.problem, options)
        rounds = replace(self.rounds, starts=o.starts or self.rounds.starts)
        outcome = run(LayerRounds(units.problem, o.seed, o.init, rounds), o.budget, o.callback)
        smaller = reduced(units.problem, outcome.state.weights, o.budget.spent)
        take(incumbent, units, Attempt(smaller, outcome.status, outcome.history, starts=list(outcome.state.costs)))
        simple = cheapest_simple(incumbent.problem)
        if simple is not None:  # zero ends the rounds, and a constant or linear network may cost less
            incumbent.offer(simple)


def bound_later(incumbent: Incumbent, options: SolveOptions, units: Units, search: DeepSolver | DeepStream) -> After:
    """Return a hook that proves the bound once, after a tenth of the time or at the end, and tells the search."""
    due, budget = incumbent.problem.spread is ALONE, options.budget

    def after(state: State | Streamed, history: list[Progress], ends: bool) -> None:
        nonlocal due
        late = ends or budget.seconds() > 0.1 * budget.time_limit
        if due and late and state.cost > search.enough and not interrupted():
            due = False
            incumbent.prove(bound_from_data(incumbent.problem, options))
            search.enough = _enough(incumbent, options, units)

    return after


def _enough(incumbent: Incumbent, options: SolveOptions, units: Units) -> float:
    """Return the largest cost, in these units, that closes the gap asked for to the proved bound."""
    lower = 0.0 if incumbent.proof is None else incumbent.proof.lower
    return lower / units.cost / (1.0 - options.gap)


def search_memory(problem: Problem, options: SolveOptions, effort: DeepOptions) -> dict[str, float]:
    """Return the needs of many starts in float32, some of them in float64, and blocks."""
    (N, d), m = problem.X.shape, problem.Y.shape[1]
    width = usual_width(N, m)
    widths = [2 * min(width, options.max_width or width)] * (problem.depth - 1)
    neurons = sum(widths)
    copies = size_in_units(problem) + 3.5 * DOUBLE * N * (d + 1)
    exploration = Exploration()
    draws = min(effort.batch, effort.starts)
    trained = exploration.count(problem, options.budget.time_limit, BATCHES * effort.batch)
    elite = exploration.elite if trained else ELITE
    phases = {
        "draws": copies + max(9 * draws, 4 * trained) * SINGLE * neurons * N,
        "networks": copies + 6 * DOUBLE * neurons * max(elite, 3) * N,
    }
    block = replace(problem, depth=2, loss=LOSSES["mse"])
    own = N if effort.in_turn.samples >= N else 0  # inputs, one for each sample, where the layers move in turn
    blocks = max(rounds_memory(block, replace(options, certify="none")).values()) + 8 * DOUBLE * N * 2 * own
    exact = explored_problem(problem) is not problem
    fits = 3 * DOUBLE * most_entries(problem, widths) if exact else 0.0
    return phases | {"blocks": copies + blocks, "exact fits": copies + fits}
