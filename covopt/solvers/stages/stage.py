"""A stage of a solve, and the units and bounds that stages share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from covopt.certify import proofs
from covopt.certify.proof import Proof
from covopt.model.problem import Problem
from covopt.model.units import Units, spans_less, unit_of_inputs
from covopt.runtime.errors import ProblemError
from covopt.runtime.interrupts import interrupted
from covopt.runtime.loop import Status
from covopt.solvers.incumbent import Attempt, Incumbent
from covopt.solvers.options import SolveOptions

DOUBLE, SINGLE = 8.0, 4.0  # bytes of a number in float64 and in float32
Thriftier = tuple[SolveOptions, str] | None
"""Options with which a phase takes less memory, and what the solve does then; None where that is not possible."""


@dataclass(frozen=True)
class Stage(ABC):
    """One stage of a plan."""

    name: ClassVar[str]  # in the table of the plan and in checkpoints
    why: ClassVar[str]  # its purpose for this problem, in one sentence
    until: float = 1.0  # the part of the time limit after which it ends

    def __post_init__(self) -> None:
        if not 0.0 < self.until <= 1.0:
            raise ProblemError(f"until is {self.until:g}; give a part of the time limit, above 0 and at most 1.")

    def memory(self, problem: Problem, options: SolveOptions) -> Mapping[str, float]:
        """Return the bytes that each phase takes at its peak, the phases one after the other; none by default."""
        return {}

    @abstractmethod
    def run(self, incumbent: Incumbent, options: SolveOptions) -> None:
        """Improve the incumbent, and say in its status why the stage ended."""

    def due(self, incumbent: Incumbent, options: SolveOptions) -> bool:
        """Return whether the stage has anything to do after those before it."""
        return True

    def thriftier(self, phase: str, problem: Problem, options: SolveOptions) -> Thriftier:
        """Return options with which a phase takes less memory."""
        return None

    def remedies(self, phase: str) -> list[str]:
        """Return what a user can do where a phase takes too much memory."""
        return []


def carry_out(problem: Problem, stages: Sequence[Stage], options: SolveOptions) -> Incumbent:
    """Run the stages one after the other, each until its part of the time limit; return what they reached."""
    incumbent, callback = Incumbent(problem), options.callback
    if callback is not None:
        options = replace(options, callback=lambda line: callback(incumbent.bounded(line)))
    for stage in stages:
        within = replace(options, budget=options.budget.part(stage.until))
        if stage.due(incumbent, within):
            stage.run(incumbent, within)
        if interrupted():
            incumbent.status = Status.INTERRUPTED
    return incumbent


def in_units(problem: Problem, options: SolveOptions) -> tuple[Units, SolveOptions]:
    """Return the problem in units in which its data have size 1, and the options in them.

    The callback gets lines in the units of the data.
    """
    units, init, callback = Units.of(problem).in_span(), options.init, options.callback
    scaled = replace(
        options,
        init=None if init is None else units.inward(init),
        callback=None if callback is None else lambda line: callback(units.in_user_units(line)),
    )
    return units, scaled


def take(incumbent: Incumbent, units: Units, attempt: Attempt) -> None:
    """Hand a search's result in these units to the incumbent."""
    history = [units.in_user_units(line) for line in attempt.history]
    starts = [units.cost * cost for cost in attempt.starts]
    incumbent.take(replace(attempt, weights=units.outward(attempt.weights), history=history, starts=starts))


def size_in_units(problem: Problem) -> float:
    """Return the bytes of the copy of the inputs in such units, if it needs one, and of a basis of their span."""
    if spans_less(problem):
        return DOUBLE * (4.0 * problem.X.numel() + len(problem.X) ** 2)
    return DOUBLE * problem.X.numel() if unit_of_inputs(problem) != 1.0 else 0.0


def bound_from_data(problem: Problem, options: SolveOptions, most: float = math.inf) -> Proof | None:
    """Prove the bound that needs only the data, in at most `most` seconds, unless no proof is asked for."""
    if options.certify == "none":
        return None
    share = 0.05 if problem.depth == 2 else 0.1  # of the time limit
    with options.budget.phase("proof"):
        return proofs.data_proof(problem, min(most, share * options.budget.time_limit))


@dataclass(frozen=True)
class DataBound(Stage):
    """The bound from the data alone; the plan counts its memory for all methods."""

    name = "bound"
    why = "A bound from the data alone holds for every network of this depth."
    most: float = math.inf  # seconds that it takes, at most

    def run(self, incumbent: Incumbent, options: SolveOptions) -> None:
        """Prove it, and at two layers that of the network's own dual point."""
        incumbent.prove(bound_from_data(incumbent.problem, options, self.most))
        if incumbent.weights:
            incumbent.prove(proofs.network_proof(incumbent.problem, incumbent.weights))
