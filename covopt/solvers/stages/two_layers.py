"""The stages of a solve of two layers by the method cone."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torch import Tensor

from covopt.certify import proofs
from covopt.certify.proof import Proof, Unproved
from covopt.model.problem import Problem
from covopt.model.weights import evaluate
from covopt.oracles.exact import MOST_CIRCLES, inputs_have_rank_at_most, problem_has_exact_oracle
from covopt.runtime.loop import Outcome, Progress, Status
from covopt.solvers.deep.pruning import reduced_on_few
from covopt.solvers.incumbent import Incumbent
from covopt.solvers.options import SolveOptions
from covopt.solvers.shallow.alternation import ENDED, Alternation, prover_for
from covopt.solvers.shallow.leading import FEW_ENTRIES
from covopt.solvers.shallow.saved import going_on, keeping_training, training_from
from covopt.solvers.shallow.solver import EFFORTS, ShallowSolver
from covopt.solvers.shallow.starts import first_neurons
from covopt.solvers.shallow.stream import Streamed, StreamSolver
from covopt.solvers.shallow.stream_options import FEWEST_BATCHES, StreamOptions, descent_is_long, products_are_long
from covopt.solvers.stages.stage import DOUBLE, SINGLE, Stage, Thriftier, bound_from_data, in_units, size_in_units
from covopt.solvers.training.simple import cheapest_simple


@dataclass(frozen=True)
class MiniBatches(Stage):
    """Training on random batches, and the bound from the data after its first evaluations."""

    name = "mini-batches"
    why = "Rounds on all samples would take too long to begin with, so random batches of them are trained on first."
    training: StreamOptions = field(default_factory=StreamOptions)  # how it trains

    def memory(self, problem: Problem, options: SolveOptions) -> dict[str, float]:
        """Return the need of what is held in float32, if it is, and of the features of some rows."""
        N, d = problem.X.shape
        rows = 2048  # of which the features of a network that was trained on batches are held
        training = StreamSolver.suited(self.training, problem)
        chunks = 8 * DOUBLE * min(N, rows) * training.neurons
        copied = N * (d + 1) if N * d <= FEW_ENTRIES else 0
        arrays = SINGLE * max(copied, N * StreamSolver.held(training, problem)) + 10 * DOUBLE * problem.Y.numel()
        return {"batches": size_in_units(problem) + arrays + chunks}

    def run(self, incumbent: Incumbent, options: SolveOptions) -> None:
        """Train; offer the network, and a simple one."""
        problem, budget = incumbent.problem, options.budget
        units, scaled = in_units(problem, options)
        outcome, proof, judging = self._trained(units.problem, scaled, problem)
        # To find which neurons are not needed takes as long as about four losses over all samples.
        weights = reduced_on_few(units.problem, outcome.state.weights(), lambda: budget.remaining() < 4.0 * judging)
        # After a linear network come two more losses: its own and that of the result.
        late = products_are_long(problem, max(budget.remaining() - 2.0 * judging, 0.01 * budget.time_limit))
        if proof is None and late:
            proof = Unproved(0.0)
        weights, cost = units.outward(weights), units.cost * outcome.state.cost
        incumbent.offer(weights, cost)
        incumbent.record(units.in_user_units(line) for line in outcome.history)
        if proof is None and options.certify != "none":
            incumbent.prove(bound_from_data(problem, options), proofs.network_proof(problem, weights))
        incumbent.prove(proof)
        simple = cheapest_simple(problem, linear=not late, units=units)
        if simple is not None:
            incumbent.offer(simple)
        incumbent.starts, incumbent.status = [incumbent.cost], outcome.status
        if outcome.status is Status.CONVERGED and options.thrift.batches_alone and not budget.spent():
            incumbent.status = Status.MEMORY_LIMIT

    def _trained(
        self, scaled_problem: Problem, options: SolveOptions, problem: Problem
    ) -> tuple[Outcome[Streamed], Proof | None, float]:
        """Train, and prove a bound from the data.

        Also returns the seconds that a loss over all samples takes. The views of the samples that the training holds
        are freed when this function returns.
        """
        budget, bounds, checkpoint = options.budget, list[Proof | None](), options.checkpoint
        solver = StreamSolver(scaled_problem, self.training, options.seed)
        before = None if options.saved is None else training_from(options.saved, solver)
        keep = None if checkpoint is None else keeping_training(checkpoint, self.name, solver, budget)

        def after(state: Streamed, history: list[Progress], ends: bool) -> None:
            # The bound takes as long as many of the first steps, so these come before it.
            due = len(history) > 1 and budget.seconds() > 0.05 * budget.time_limit
            if due and not bounds and not products_are_long(problem, 0.25 * budget.remaining()):
                bounds.append(bound_from_data(problem, options))
            if keep is not None:
                keep(state, history, ends)

        outcome = going_on(solver, budget, options.callback, before, after)
        return outcome, bounds[0] if bounds else None, solver.judging


@dataclass(frozen=True)
class Rounds(Stage):
    """Alternate rounds of Frank-Wolfe and certifiers; repeat from a simple network if that costs less."""

    name = "rounds"
    why = "Frank-Wolfe over covariances finds the neurons, alternating with a proof of the bound if one is requested."
    again = "rounds from a simple network"  # what checkpoints call the second ones
    neurons: int = 0  # the maximum width of a first network trained on batches; 0 without one
    search: type[ShallowSolver] = ShallowSolver  # the class that carries out the rounds

    def memory(self, problem: Problem, options: SolveOptions) -> dict[str, float]:
        """Return the needs of the search, of the descent or master before it, and of the proof."""
        if self.neurons and descent_is_long(problem, self.neurons, options.budget.time_limit):
            return {}  # no time for them
        return rounds_memory(problem, options)

    def due(self, incumbent: Incumbent, options: SolveOptions) -> bool:
        """Return True at the beginning, and after batches that gained nothing more before the time was over."""
        ended = incumbent.status
        return ended is Status.UNSOLVED or (ended is Status.CONVERGED and not options.budget.spent())

    def run(self, incumbent: Incumbent, options: SolveOptions) -> None:
        """Alternate from the given network, or from that of the batches; compare the simple networks."""
        init, budget = None if options.init is None else options.init[0], options.budget
        if incumbent.weights:
            init = incumbent.weights[0]
            if descent_is_long(incumbent.problem, len(init), budget.remaining()):
                incumbent.status = Status.TIME_LIMIT
                return
            options = replace(options, budget=budget.after(incumbent.rounds))
        if options.saved is not None and options.saved.stage == self.again:
            self._alternate(incumbent, options, None, self.again)
            return
        self._alternate(incumbent, options, init, self.name)
        simple, problem = cheapest_simple(incumbent.problem), incumbent.problem
        cost = incumbent.cost if simple is None else evaluate(problem, simple).total
        if simple is None or not cost < incumbent.cost * (1.0 - 1e-9):  # else it is the same
            return
        incumbent.offer(simple, cost)
        incumbent.starts = [cost]
        if incumbent.status in ENDED and not budget.spent():
            self._alternate(incumbent, options, simple[0], self.again)
        elif incumbent.status in ENDED:
            incumbent.status = Status.TIME_LIMIT

    def _alternate(self, incumbent: Incumbent, options: SolveOptions, init: Tensor | None, stage: str) -> None:
        saved = options.saved
        saved = saved if saved is not None and saved.stage == stage else None
        incumbent.take(
            Alternation(incumbent.problem, options, init, stage=stage, saved=saved, search=self.search).solve()
        )
        incumbent.starts = [incumbent.cost]

    def thriftier(self, phase: str, problem: Problem, options: SolveOptions) -> Thriftier:
        """Search from fewer starts at a time, or leave the rounds out."""
        fewer = _fewer_starts(problem, options) if phase == "search" else None
        return fewer or (_batches_alone(problem, options) if phase in ("search", "rounds") else None)


def rounds_memory(problem: Problem, options: SolveOptions) -> dict[str, float]:
    """Return the needs of the search, of the descent or master before it, and of the proof."""
    (N, d), m = problem.X.shape, problem.Y.shape[1]
    copies = size_in_units(problem) + 3.5 * DOUBLE * N * (d + 1)
    proving = options.certify != "none"
    if problem.activation.is_linear or (proving and problem_has_exact_oracle(problem)):
        return {"proof": copies + _exact_memory(problem)}
    n, least_squares = first_neurons(problem), problem.ridge is not None
    features, more = DOUBLE * N * n, n + ShallowSolver.new_atoms
    remembered = 2 * 20  # arrays of the parameters that L-BFGS remembers
    base = copies + remembered * DOUBLE * n * (min(problem.samples, d + 1) + m)
    # Losses other than least squares have their outputs finished by Newton's method, for which features are scaled.
    passed, held = (6, 2) if least_squares else (16, 10)
    entries = max(N, min(options.thrift.entries, _starts(problem) * N))
    phases = {
        "search": base + held * features + 16 * DOUBLE * entries,  # arrays (starts, N)
        "rounds": base + max(passed * features, DOUBLE * (4 * N * more + 6 * more * more)),
    }
    if options.certify in ("auto", "full"):
        prover = prover_for(problem, options.certify)
        phases["proof"] = copies + (0.0 if prover is None else prover.memory(problem))
    return phases


def _exact_memory(problem: Problem) -> float:
    """Return the bytes for arc sums on a circle, or for the crossings of any two circles."""
    N, m = problem.X.shape[0], problem.Y.shape[1]
    if N > MOST_CIRCLES or problem.activation.is_linear or inputs_have_rank_at_most(problem, 2):
        return 400.0 * N * m
    return min(2000.0 * N * N, 250e6) + 620.0 * N * N


def _starts(problem: Problem) -> int:
    """Return the most directions that a search starts from."""
    return max(effort.starts for effort in EFFORTS) + first_neurons(problem)


def _fewer_starts(problem: Problem, options: SolveOptions) -> Thriftier:
    thrift, rows = options.thrift, int(problem.spread.largest(len(problem.X)))
    entries = min(thrift.entries, _starts(problem) * rows) // 2
    if entries < max(2**18, rows):
        return None
    return replace(options, thrift=replace(thrift, entries=entries)), "searches from fewer starts at a time"


def _batches_alone(problem: Problem, options: SolveOptions) -> Thriftier:
    suits = problem.samples >= FEWEST_BATCHES * StreamOptions().batch and problem.can_be_split
    begun = options.init is not None or options.saved is not None
    if not suits or begun or options.thrift.batches_alone:
        return None
    thrift = replace(options.thrift, batches_alone=True)
    return replace(options, thrift=thrift), "trains on random batches alone, without rounds on all samples"
