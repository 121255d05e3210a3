"""Cycles of Adam on random batches, each longer than the one before, and their times."""

from __future__ import annotations

from collections.abc import Callable

from covopt.runtime.loop import Budget
from covopt.solvers.training.descent import Adam


class CyclePace:
    """The durations of a step and of closing a cycle, and what they leave time for.

    Args:
        step, closing: seconds that they are expected to take, before the first cycle.
    """

    def __init__(self, step: float = 0.0, closing: float = 0.0) -> None:
        self._step, self._closing, self._ended = step, closing, 0.0

    def steps(self, wanted: int, budget: Budget) -> tuple[int, bool]:
        """Return the steps of a cycle, and whether it is the last that the time allows."""
        # A last, shortened cycle leaves a tenth of the remaining time to its evaluation.
        usable = 0.9 * max(0.0, budget.remaining() - self._closing)
        last = usable < 3.0 * wanted * self._step
        return (max(1, int(usable / self._step)), True) if last else (wanted, False)

    def descend(self, adam: Adam, steps: int, budget: Budget, after_step: Callable[[], None] = lambda: None) -> None:
        """Take `steps` steps, or fewer when the cycle has to close; call `after_step` after each."""
        began, before = budget.seconds(), adam.steps_taken
        look = 1 if budget.alone else 8  # processes that share a clock look at it less often
        while adam.steps_taken < steps:
            # Closing may take half as long again as the last time.
            if (adam.steps_taken - before) % look == 0 and budget.remaining() <= 1.5 * self._closing:
                break
            adam.iterate()
            after_step()
        self._ended = budget.seconds()
        self._step = (self._ended - began) / max(1, adam.steps_taken - before)

    def closed(self, budget: Budget) -> None:
        """Note the time at which the cycle's network has been evaluated."""
        self._closing = budget.seconds() - self._ended
