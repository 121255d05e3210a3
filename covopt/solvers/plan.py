"""The stages of a solve, and the memory that they will need.

need = what the process holds when the problem is put + the libraries that it loads later + the most that a phase
takes. The phases follow one another, and each is an expression in N (the rows of this process), d, m, the widths, and
how many networks or directions are worked on together. How many arrays there are in each was counted in the code and
fitted to peaks that processes of their own reached (docs/notes/2026-11-memory.md). Where the time sufficed for all
phases, the need was between 0.9 and 1.7 times the peak; where it did not, it is more.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from covopt.certify.spectral import PAIRS as PAIRED
from covopt.model.problem import Problem
from covopt.model.reading import is_shared
from covopt.model.spread import ALONE, rank_here
from covopt.runtime import memory
from covopt.runtime.errors import CovoptWarning, ProblemError
from covopt.solvers.incumbent import Incumbent
from covopt.solvers.options import SolveOptions, check_memory_limit
from covopt.solvers.stages.free_biases import free_stages
from covopt.solvers.stages.penalised import penalised_stages
from covopt.solvers.stages.stage import DOUBLE, Stage, Thriftier, carry_out

LOG = logging.getLogger("covopt")  # hears, at the level INFO, what a solve will need

LOADED = 40e6  # bytes of the libraries that a solve loads, and of small things
GIGABYTE = 1e9


@dataclass(frozen=True)
class Need:
    """Bytes of memory."""

    data: float  # bytes of inputs and targets
    held: float  # bytes that the process has before the solve, the data included
    phases: Mapping[str, float]  # the most further bytes of each phase; phases follow one another

    @property
    def total(self) -> float:
        """The peak."""
        return self.held + LOADED + max(self.phases.values(), default=0.0)

    @property
    def largest(self) -> str:
        """The phase that takes the most."""
        return max(self.phases, key=lambda name: self.phases[name])


@dataclass
class Plan:
    """The stages of a solve, in their order; each has its settings as fields."""

    problem: Problem  # in float64
    options: SolveOptions  # how it is solved
    stages: Sequence[Stage]  # in their order

    @classmethod
    def of(cls, problem: Problem, options: SolveOptions) -> Plan:
        """Return what solves the problem, whatever memory that takes."""
        return Plan(problem, options, (free_stages if problem.free else penalised_stages)(problem, options))

    def run(self) -> Incumbent:
        """Run the stages; return the best network and the best bound."""
        return carry_out(self.problem, self.stages, self.options)

    @property
    def need(self) -> Need:
        """The memory that the stages will need."""
        problem, phases = self.problem, dict[str, float]()
        for stage in self.stages:
            for name, size in stage.memory(problem, self.options).items():
                phases[name] = max(size, phases.get(name, 0.0))
        if self.options.certify != "none":
            (N, d), pairs = problem.X.shape, min(len(problem.X), PAIRED) ** 2
            spectral = 1.7 * DOUBLE * N * (d + 1) + 7 * DOUBLE * pairs  # singular values of X, distances of rows
            phases["proof"] = max(phases.get("proof", 0.0), spectral)
        data, largest = DOUBLE * (problem.X.numel() + problem.Y.numel()), problem.spread.largest
        together = {name: largest(size) for name, size in phases.items()}  # all processes have to decide alike
        return Need(data, largest(memory.held(problem.X.device)), together)

    def thriftier(self, phase: str) -> Thriftier:
        """Return options with which a phase takes less memory, the smallest loss first."""
        ways = (stage.thriftier(phase, self.problem, self.options) for stage in self.stages)
        return self._less_proof() if phase == "proof" else next(filter(None, ways), None)

    def _less_proof(self) -> Thriftier:
        options = self.options
        if options.certify == "none":
            return None
        fast = Plan.of(self.problem, replace(options, certify="fast"))
        if fast.need.phases["proof"] < self.need.phases["proof"]:
            return fast.options, "proves no more than the data tell (certify fast)"
        return replace(options, certify="none"), "proves nothing (certify none)"

    def remedies(self, need: Need) -> list[str]:
        """Return what a user can do if a phase needs too much."""
        problem, phase = self.problem, need.largest
        splits = self.options.method == "cone" and problem.can_be_split and problem.weight is None
        besides = [remedy for stage in self.stages for remedy in stage.remedies(phase)]
        return list(dict.fromkeys([*_fewer_rows(splits), *besides]))


def planned(problem: Problem, options: SolveOptions) -> Plan:
    """Return a plan that stays within the memory limit; report its need.

    A ProblemError says that it needs more than the limit, whatever it goes without; a CovoptWarning, that it goes
    without something, or that the machine has less memory than it needs.
    """
    plan, limit, changes = Plan.of(problem, options), options.memory_limit, list[str]()
    need = plan.need
    while limit is not None and need.total > GIGABYTE * limit:
        thriftier = plan.thriftier(need.largest)
        if thriftier is None:
            raise _refused(need, limit, plan.remedies(need))
        plan, words = Plan.of(problem, thriftier[0]), thriftier[1]
        changes += [words] if words not in changes else []
        need = plan.need
    if rank_here() == 0:
        _tell(plan, need, changes)
    return plan


def check_data(X: object, Y: object, limit: float | None) -> None:
    """Raise a ProblemError if not even the data, before their copy, fit into the memory limit."""
    check_memory_limit(limit)
    if limit is None:
        return
    copied = (values for values in (X, Y) if isinstance(values, (np.ndarray, torch.Tensor)) and not is_shared(values))
    data = DOUBLE * sum(math.prod(values.shape) for values in copied)
    need = Need(data, memory.held(torch.device("cpu")) + data, {"data": 0.0})
    if need.total > GIGABYTE * limit:
        raise _refused(need, limit, _fewer_rows(splits=True))


def _fewer_rows(splits: bool) -> list[str]:
    """Return what makes the data of a process fewer; `splits`: processes can share the samples."""
    return ["take fewer rows", *(["spread them over more processes"] if splits else [])]


def _refused(need: Need, limit: float, remedies: list[str]) -> ProblemError:
    """Return the error for a solve that does not fit into memory."""
    message = f"The solve needs at least about {shown(need.total)} of memory, and the limit is {limit:g} GB"
    without = need.held - need.data + LOADED
    if without > GIGABYTE * limit:
        return ProblemError(f"{message}, less than the {shown(without)} of the process without data; raise the limit.")
    return ProblemError(f"{message}; {', '.join(remedies)}, or raise the limit.")


def _tell(plan: Plan, need: Need, changes: list[str]) -> None:
    """Log what a solve will need; warn of changed options and of too little memory."""
    problem = plan.problem
    who = "The solve" if problem.spread is ALONE else "Each process"
    needs = f"{who} will need about {shown(need.total)} of memory"
    LOG.info("%s (%s of it the data).", needs, shown(need.data))
    if changes:
        within = f"To stay within {plan.options.memory_limit:g} GB of memory"
        warnings.warn(f"{within}, the solve {' and '.join(changes)}.", CovoptWarning, stacklevel=2)
    room = memory.available(problem.X.device)
    if room is not None and need.total - need.held > room:
        place = "GPU" if problem.X.is_cuda else "machine"
        message = f"{needs}, {shown(need.held)} of it are taken, and the {place} has {shown(room)} left"
        remedies = f"{', '.join(plan.remedies(need))}, or set a memory limit"
        warnings.warn(f"{message}; {remedies}.", CovoptWarning, stacklevel=2)


def shown(size: float) -> str:
    """Return bytes as GB."""
    gigabytes = size / GIGABYTE
    return "less than 0.1 GB" if gigabytes < 0.05 else f"{gigabytes:.{1 if gigabytes < 9.95 else 0}f} GB"
