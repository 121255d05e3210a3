"""The plan of a solve: checked options, stages in order, and the result of running them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from covopt.answer.result import Result, measure
from covopt.certify import proofs
from covopt.certify.proof import Proof
from covopt.data.coding import Coding, targets_in_words
from covopt.data.networks import as_network
from covopt.model.feasible import check_interpolation
from covopt.model.problem import Problem
from covopt.model.spread import ALONE, Together, check_alike
from covopt.model.units import check_strength
from covopt.model.weights import check_network, evaluate
from covopt.runtime.cores import crew
from covopt.runtime.errors import ProblemError, shown
from covopt.runtime.interrupts import gently, interrupted
from covopt.runtime.loop import Budget, Progress, Status
from covopt.runtime.threads import fitted, fitting
from covopt.solvers import plan
from covopt.solvers.incumbent import Incumbent
from covopt.solvers.options import SolveOptions
from covopt.solvers.stages.stage import Stage


@dataclass
class SolvePlan(plan.Plan):
    """The stages of a solve in their order; `solve()` runs them.

    The stages are frozen dataclasses whose fields are their settings: put changed ones (`dataclasses.replace`) into the
    list to solve otherwise.

    Attributes:
        problem: in float64.
        options: the options of `solve`.
        stages: in their order.
        columns: the names of the inputs.
    """

    columns: tuple[str, ...] | None = None

    def solve(self) -> Result:
        """Run the stages, and return the answer as `covopt.solve` does; the time begins now.

        Raises:
            ProblemError: no stage finds a network.
            ProcessError, RecordError: as `covopt.solve`.
        """
        budget = self.options.budget
        now = Budget(budget.time_limit, budget.max_iterations, agreed=budget.agreed)
        return replace(self, options=replace(self.options, budget=now)).carried_out()

    @gently()
    @fitted
    def carried_out(self) -> Result:
        """Run the stages within the time that remains; return the result.

        Raises:
            ProblemError: no stage finds a network.
        """
        problem, options = self.problem, self.options
        with fitting(problem.X.numel()), crew():
            incumbent = self.run()
            if not incumbent.weights:
                if interrupted():  # in a stage that only bounds
                    raise KeyboardInterrupt
                raise ProblemError("No stage of the plan finds a network; put one that does into its stages.")
            result = Result(
                problem=problem,
                method=options.method,
                certify=options.certify,
                seed=options.seed,
                target=float(options.gap),
                starts=incumbent.starts,
                layers=incumbent.layers,
            )
            if self.columns is not None or problem.classes is not None:
                result.coding = Coding.unscaled(problem.X.shape[1], self.columns, problem.classes)
            if problem.classes is not None:
                result.targets = targets_in_words(problem.Y.double().cpu().numpy(), problem.classes)
            if problem.spread is ALONE:
                result.attainable = proofs.attainable(problem)
            fill(result, incumbent.weights, incumbent.proof)
            self._end(result, incumbent)
        return result

    def _end(self, result: Result, incumbent: Incumbent) -> None:
        """Set the last line of the history, the status and the time."""
        budget, status = self.options.budget, incumbent.status
        count = incumbent.rounds + 1 if incumbent.history else 0
        last = Progress(count, budget.seconds(), result.cost, result.lower, max(result.widths))
        result.history = [*(_lowered(line, result.lower) for line in incumbent.history), last]
        proved = result.gap is not None and result.gap <= self.options.gap and status is not Status.INTERRUPTED
        result.status = Status.OPTIMAL if proved else status
        result.seconds = budget.seconds()
        result.timing = budget.timing.seconds

    def summary(self) -> dict[str, object]:
        """Return the plan as `covopt solve --plan --json` prints it: stages, seconds, bytes."""
        limit, need = self.options.budget.time_limit, self.need
        stages = [
            {"stage": stage.name, "until": round(stage.until * limit, 6), "memory": self._size(stage), "why": stage.why}
            for stage in self.stages
        ]
        return {"stages": stages, "time_limit": limit, "memory": need.total, "data": need.data}

    def __str__(self) -> str:
        """Return a table: each stage, when it ends at the latest, its memory, and why it is there."""
        rows = [("stage", "ends by", "memory", "why")]
        for stage in self.stages:
            seconds = f"{stage.until * self.options.budget.time_limit:g} s"
            rows.append((stage.name, seconds, f"{self._size(stage) / 1e6:,.0f} MB", stage.why))
        widths = [max(len(row[place]) for row in rows) for place in range(3)]
        lines = ["  ".join([*map(str.ljust, row, widths), row[3]]) for row in rows]
        return "\n".join([*lines, f"The process will need about {plan.shown(self.need.total)} of memory in all."])

    def _size(self, stage: Stage) -> float:
        """Return the bytes that a stage takes at its peak."""
        return max(stage.memory(self.problem, self.options).values(), default=0.0)


def prepared(
    problem: Problem,
    options: SolveOptions,
    init: Result | torch.nn.Module | Sequence[object] | None = None,
    columns: tuple[str, ...] | None = None,
    *,
    spread: bool = False,
    resume: bool = False,
) -> SolvePlan:
    """Check the problem and the options as `solve` does, and return the plan of the solve."""
    options.check(problem.depth)
    problem = problem.double()
    if spread:
        if problem.weight is not None:
            raise ProblemError("Rows that are spread over processes have no weights so far; leave the weights out.")
        problem = spread_problem(problem, options.method, options.certify)
        options = replace(options, budget=replace(options.budget, agreed=problem.spread.largest))
    check_strength(problem)
    check_interpolation(problem)
    if init is not None:
        weights = weights_to_start(init, "a Result, an nn.Module, or arrays of numbers W_1 ... W_L", problem)
        check_network(problem, weights)
        options = replace(options, init=weights)
    within = plan.planned(problem, _resumed(problem, options, resume))
    return SolvePlan(problem, within.options, within.stages, columns)


def _resumed(problem: Problem, options: SolveOptions, resume: bool) -> SolveOptions:
    """Return the options with the state to resume from; raise an error where none exists, or none can be saved."""
    checkpoint = options.checkpoint
    if checkpoint is None:
        if resume:
            raise ProblemError("There is nothing to resume without a checkpoint; give its file, or leave resume out.")
        return options
    if options.method != "cone" or problem.depth > 2 or problem.free:
        raise ProblemError(
            "The state of a solve can be stored for two layers, the method cone and penalised biases only; leave the"
            " checkpoint out."
        )
    checkpoint.about(_question(problem, options), resume)
    if checkpoint.saved is None:
        return options
    started = options.budget.started - checkpoint.saved.seconds
    return replace(options, budget=replace(options.budget, started=started))


def _question(problem: Problem, options: SolveOptions) -> dict[str, object]:
    """Return what must be the same for a solve to resume; sums over samples identify the data."""
    generator = torch.Generator().manual_seed(0)
    data = problem.X, problem.Y
    mixed = [A @ torch.randn(A.shape[1], generator=generator, dtype=torch.float64).to(A) for A in data]
    weight = torch.ones_like(mixed[0]) if problem.weight is None else problem.weight
    sums = problem.spread.sums(
        lambda x, y, s: (x @ x, y @ y, x.abs() @ y.abs(), s @ (x.abs() + y.abs())), *mixed, weight
    )
    return {
        "shape of data": [problem.samples, problem.X.shape[1], problem.Y.shape[1]],
        **dict(zip(("inputs", "targets", "rows", "weights"), map(float, sums), strict=True)),
        "loss": problem.loss.name,
        "lam": problem.lam,
        "bias": problem.beta,
        "activation": problem.activation.name,
        "seed": options.seed,
    }


def spread_problem(problem: Problem, method: str, certify: str) -> Problem:
    """Return the problem on all processes' rows, of which this one has those of one process.

    It raises a ProblemError where processes cannot solve it together, or hold rows of different data.
    """
    if not problem.can_be_split or method != "cone":
        raise ProblemError(
            "Processes with rows of their own solve together by the method cone, with lam, a number as the bias, and"
            " ReLU or leaky ReLU; ask for these, or let one process solve."
        )
    if problem.classes is not None:
        raise ProblemError("Each process would know the labels of its own rows alone; give one-hot rows as Y.")
    if certify != "none":
        raise ProblemError(
            "A bound is proved by a process that holds all rows; set certify to none where they are spread."
        )
    spread = Together.of(problem.samples)
    check_alike((problem.X.shape[1], problem.Y.shape[1]), spread)
    return replace(problem, spread=spread)


def _lowered(line: Progress, lower: float | None) -> Progress:
    """Return the line with a bound of at most `lower`, which a second look at the proof may have lowered."""
    high = line.lower is not None and lower is not None and line.lower > lower
    return replace(line, lower=lower) if high else line


def fill(result: Result, weights: list[Tensor], proof: Proof | None) -> None:
    """Set the numbers of the result, once, from the weights that it returns."""
    result.weights = weights
    measure(result, evaluate(result.problem, weights))
    proof = None if proof is None else proof.settled(result.problem.double())
    if proof is not None and not proof.lower <= 0.0:
        lower = proofs.agreed(result.problem, weights, result.cost, proof.lower)
        result.lower, result.certificate = lower, proof.kind
        result.proof = type(proof).read(proof.lower, proof.arrays())  # in the memory of the CPU, as from a file


def weights_to_start(init: Any, accepted: str, problem: Problem) -> list[Tensor]:
    """Return the weights of a Result or a module, or weights as they are, in float64; raise an error for others."""
    source = init.weights if isinstance(init, Result) else init
    if isinstance(init, torch.nn.Module):
        source = as_network(init, problem.beta, problem.X).weights
    try:
        return [torch.as_tensor(W, dtype=torch.float64, device=problem.X.device) for W in source]
    except (TypeError, ValueError, RuntimeError) as error:
        raise ProblemError(f"init is {shown(init)}; give {accepted}.") from error
