"""Exact fits of deep networks: a search at a small penalty, and from its best network one of exact fits.

In a search of exact fits each start descends several times, at falling penalties, which leaves little time for others.
At a single penalty many starts descend in one batch, and the layers of the best network move in turn. Its best network
then leads to an exact fit. On 30 digits that costs 20 % less at depth 4 after 25 s (docs/notes/2026-11-exact-fits.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from covopt.runtime.loop import Budget, Status
from covopt.solvers.deep.solver import DeepSolver
from covopt.solvers.deep.state import State
from covopt.solvers.training.exact_fit import explored_problem
from covopt.solvers.training.homotopy import POLISHING


class PenaltyFirst(DeepSolver):
    """The steps of a `DeepSolver` for exact fits, after those of one for the same data at a small penalty."""

    hurries = False  # exact fits of 8 points that come from a trained start cost up to 5 % more
    share = 0.4
    """The part of the remaining time that the search at a penalty takes; with 0.25 to 0.5 costs differ by 1.7 %."""

    def init(self, budget: Budget) -> State:
        """Return the best of the networks at hand; the search at a penalty begins with the first step."""
        self._eased = DeepSolver(explored_problem(self.problem), self.options, self._seed, self._init, self._max_width)
        self._eased.hurries = False
        self._found: State | None = None  # of the search at a penalty
        self._first = self.options.starts > 0
        self._end = budget.seconds() + self.share * budget.remaining()
        return super().init(budget)

    def finished(self, state: State) -> Status | None:
        """Return OPTIMAL at a proved minimum; CONVERGED only after both searches."""
        ended = super().finished(state)
        return None if self._first and ended is not Status.OPTIMAL else ended

    def _next(self, state: State) -> tuple[str, str, Callable[[State, Budget], None]]:
        if not self._first:
            return super()._next(state)
        now = "first networks" if self._found is None else self._eased._next(self._found)[1]
        return "penalty first", f"with a small penalty in place of the exact fit: {now}", self._search

    def _search(self, state: State, budget: Budget) -> None:
        """Take a step at the penalty; at the end descend to an exact fit."""
        within = replace(budget, time_limit=min(self._end, budget.time_limit))
        if self._found is None:
            self._found = self._eased.init(within)
        elif not within.spent() and self._eased.finished(self._found) is None:
            self._eased.step(self._found, within)
        else:
            fitted = self._descents.descend([self._found.best], POLISHING, budget)[0]
            state.costs.append(self._descents.cost(fitted))
            self._keep(state, fitted)
            self._first, state.due = False, True
