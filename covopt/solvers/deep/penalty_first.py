"""Exact fits of deep networks: a search at a small penalty, and from its best network one of exact fits.

A search of exact fits has hardly time for starts: each descends at a falling penalty several times. At one penalty the
search is that of any penalised loss, with batches of starts and layers in turn, and it ends lower: after 12 s on 20
normal points with 3 inputs and 2 outputs by up to 5.8 % (docs/notes/2026-11-exact-fits.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from covopt.model.problem import Problem
from covopt.model.weights import Weights
from covopt.runtime.loop import Budget, Status
from covopt.solvers.deep.solver import DeepOptions, DeepSolver, State
from covopt.solvers.deep.starts import BRIEFLY
from covopt.solvers.training.exact_fit import explored_problem
from covopt.solvers.training.homotopy import POLISHING


class PenaltyFirst(DeepSolver):
    """A deep solver whose first steps are those of the same search at a small penalty.

    Args: those of `DeepSolver`; the loss is `interpolate`.
    """

    two_layers = BRIEFLY
    share = 0.4
    """The part of the time limit that the search at a penalty takes at most."""

    def __init__(
        self,
        problem: Problem,
        options: DeepOptions | None = None,
        seed: int = 0,
        init: Weights | None = None,
        max_width: int | None = None,
        enough: float = 0.0,
    ) -> None:
        super().__init__(problem, options, seed, init, max_width, enough)
        self._eased = DeepSolver(explored_problem(problem), options, seed, init, max_width)
        self._found: State | None = None  # of the search at a penalty
        self._first = self.options.starts > 0

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
        within = replace(budget, time_limit=self.share * budget.time_limit)
        if self._found is None:
            self._found = self._eased.init(within)
        elif not within.spent() and self._eased.finished(self._found) is None:
            self._eased.step(self._found, within)
        else:
            fitted = self._descents.descend([self._found.best], POLISHING, budget)[0]
            state.costs.append(self._descents.cost(fitted))
            self._keep(state, fitted)
            self._first, state.due = False, True
