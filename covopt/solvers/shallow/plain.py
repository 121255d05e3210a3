"""Fully corrective Frank-Wolfe over the cone S as in the paper, without descents of the weights."""

from __future__ import annotations

import math
from dataclasses import replace

from torch import Tensor

from covopt.certify.dual import dual_bound
from covopt.runtime.loop import Budget, Progress
from covopt.solvers.shallow.master import Mixture
from covopt.solvers.shallow.rounds import State, largest_value
from covopt.solvers.shallow.solver import ShallowSolver


class PlainRounds(ShallowSolver):
    """The rounds of Frank-Wolfe alone, without descents and Newton steps."""

    def progress(self, state: State, iteration: int, seconds: float) -> Progress:
        """Return the line with the gap; it is no proved one, because the search may have missed a neuron."""
        line = super().progress(state, iteration, seconds)
        return replace(line, gaps=(max(0.0, self.gap(state) / line.cost),) if 0.0 < line.cost < math.inf else ())

    def gap(self, state: State) -> float:
        """Return the cost less the bound that the dual point would prove if the search had found the maximum of h."""
        return self.cost(state) - dual_bound(self._original, self.dual(state), largest_value(state.answer)).lower

    def _unsettled(self, last: State | None) -> bool:
        return False

    def _settle(self, directions: Tensor, mixture: Mixture, budget: Budget) -> None:
        return None
