"""The search along a family of problems that differ in one number: the width, the depth, or lam.

That number is the key of a problem. The best network of one key is a start for its neighbours, so that the keys are
searched in rounds, upward and downward, until nothing gains, everything is proved, or the time is over. A study says
how a network of one key becomes a start of another, and how it descends from there. Ctrl-C leaves no time, so that a
search ends soon after it, and `best` holds what was reached; a later search continues from there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from covopt.answer.result import Result
from covopt.answer.solve import solve
from covopt.model.problem import Problem
from covopt.runtime.interrupts import interrupted
from covopt.runtime.loop import Budget, Callback, Progress, Status

Key = TypeVar("Key", int, float)
Member = TypeVar("Member", bound=Any)


class Continuation(ABC, Generic[Key, Member]):
    """The best network of each key, and the rounds that improve them.

    `best` has by key a network with its cost, its bound or whatever else the study keeps with it, at first those of an
    earlier search. `options` are keywords of `covopt.solve` that all keys share, for a study that solves.
    """

    def __init__(
        self,
        budget: Budget,
        callback: Callback | None = None,
        options: Mapping[str, object] | None = None,
        earlier: Mapping[Key, Member] | None = None,
    ) -> None:
        self.budget, self.callback = budget, callback
        self.options = dict(options or {})
        self.best: dict[Key, Member] = dict(earlier or {})
        self._handed: dict[Hashable, object] = {}

    @abstractmethod
    def round(self, budget: Budget) -> bool:
        """Improve networks by those of other keys; return True if another round may gain."""

    def is_optimal(self) -> bool:
        """Return True if every network is proved to be the best of its key, up to the gap."""
        return all(member.status is Status.OPTIMAL for member in self.best.values())

    def improve(self, budget: Budget, patience: int = 1) -> Status:
        """Run rounds until this many in a row gain nothing; return why they ended."""
        idle = 0
        while idle < patience:
            if self.is_optimal():
                return Status.OPTIMAL
            if budget.spent():
                return Status.TIME_LIMIT
            idle = 0 if self.round(budget) else idle + 1
        return Status.TIME_LIMIT if budget.spent() else Status.CONVERGED

    def status(self, ended: Status) -> Status:
        """Return the status of a search whose last rounds ended so; later solves may have lost a proof."""
        if interrupted():
            return Status.INTERRUPTED
        if self.is_optimal():
            return Status.OPTIMAL
        return Status.CONVERGED if ended is Status.OPTIMAL else ended

    def neighbours(self, key: Key) -> tuple[Key | None, Key | None]:
        """Return the next smaller and the next larger key that have a network."""
        below = max((other for other in self.best if other < key), default=None)
        return below, min((other for other in self.best if other > key), default=None)

    def is_new(self, network: object, giver: Key, taker: Key, use: str) -> bool:
        """Return True if `taker` gets this network of `giver` for the first time, for this use."""
        before, self._handed[giver, taker, use] = self._handed.get((giver, taker, use)), network
        return before is not network

    def solve(self, problem: Problem, label: str = "", **options: object) -> Result:
        """Solve the problem of one key, with further options; `label` begins the name of each phase."""

        def follow(line: Progress) -> None:
            phase = f"{label}: {line.phase}" if label and line.phase else label or line.phase
            self.report(replace(line, phase=phase))

        chosen = {"sample_weight": problem.weight, **self.options, **options, "callback": follow}
        return solve(problem.X, problem.Y, **chosen)  # type: ignore[arg-type]

    def report(self, line: Progress) -> None:
        """Report progress to the callback, if there is one."""
        if self.callback is not None:
            self.callback(replace(line, seconds=self.budget.seconds()))
