"""Cycles of Adam on random batches, each longer than the one before: how many steps there is time for."""

from __future__ import annotations

from collections.abc import Callable

from covopt.runtime.loop import Budget
from covopt.solvers.training.descent import Adam

MARGIN = 0.1  # part of the remaining time that a last, shortened cycle leaves to its evaluation
HELD = 1.5  # times what closing the last cycle took is held back for closing the next
LOOK = 8  # steps after which processes that share a clock look at it
FEW = 3.0  # a cycle is the last where there is time for fewer than so many times its steps


class CyclePace:
    """How long a step and the closing of a cycle took, and what that leaves time for.

    Args:
        step, closing: seconds that they are expected to take, before the first cycle.
    """

    def __init__(self, step: float = 0.0, closing: float = 0.0) -> None:
        self._step, self._closing, self._ended = step, closing, 0.0

    def steps(self, wanted: int, budget: Budget) -> tuple[int, bool]:
        """Steps of a cycle, and whether it is the last: one that time would cut, or leave no time for the next."""
        left = (1.0 - MARGIN) * max(0.0, budget.remaining() - self._closing)
        last = left < FEW * wanted * self._step
        return (max(1, int(left / self._step)), True) if last else (wanted, False)

    def descend(self, adam: Adam, steps: int, budget: Budget, each: Callable[[], None] = lambda: None) -> None:
        """So many steps in all, or fewer where the time for closing the cycle has come; `each` is called after each."""
        began, before = budget.seconds(), adam.steps_taken
        look = 1 if budget.alone else LOOK
        while adam.steps_taken < steps:
            if (adam.steps_taken - before) % look == 0 and budget.remaining() <= HELD * self._closing:
                break
            adam.iterate()
            each()
        self._ended = budget.seconds()
        self._step = (self._ended - began) / max(1, adam.steps_taken - before)

    def closed(self, budget: Budget) -> None:
        """The cycle's network is judged."""
        self._closing = budget.seconds() - self._ended
