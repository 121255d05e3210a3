"""What a rival has found at which time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

EARLIEST, RATIO = 0.05, 1.12
"""A network is kept at so many seconds, and then whenever so many times longer have passed."""


@dataclass
class Log:
    """Keeps copies of the networks at times in a geometric progression; judging comes later.

    Attributes:
        limit: seconds, by default of the processor.
        clock: tells the seconds.
        kept: (seconds, [W_1, ..., W_L]) of shapes (n, n_0 + 1) to (n_L, n + 1), bias columns last.
        costs: (seconds, cost) as a method tells them that shows its last network alone; only covopt's.
    """

    limit: float
    kept: list[tuple[float, list[np.ndarray]]] = field(default_factory=list)
    costs: list[tuple[float, float]] = field(default_factory=list)
    clock: Callable[[], float] = time.process_time
    _next: float = EARLIEST

    def __post_init__(self) -> None:
        self._started = self.clock()

    def seconds(self) -> float:
        """Seconds since the start."""
        return self.clock() - self._started

    def running(self) -> bool:
        """Whether there is time left."""
        return self.seconds() < self.limit

    def due(self) -> bool:
        """Whether a network shown now would be kept; for methods that have to work to show one."""
        return self.seconds() >= self._next

    def see(self, *weights: np.ndarray, always: bool = False) -> None:
        """Keep this network if it is time, or if it is one of few: `always`."""
        seconds = self.seconds()
        if always or seconds >= self._next or not self.kept:
            self.kept.append((seconds, [np.array(W) for W in weights]))
            self._next = max(EARLIEST, RATIO * seconds)
