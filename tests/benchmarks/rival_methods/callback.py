"""The rivals under benchopt: a log that hands each network to benchopt's callback, which keeps the time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.benchmarks.rival_methods.log import Log


class CallbackLog(Log):
    """A `Log` whose end is when the callback returns False; `weights` are the latest."""

    def __init__(self, weights: dict[str, np.ndarray], callback: Callable[[], bool]) -> None:
        super().__init__(float("inf"))
        self._weights, self._callback, self._going = weights, callback, True

    def running(self) -> bool:
        """Whether the callback still wants more."""
        return self._going

    def see(self, *weights: np.ndarray, always: bool = False) -> None:
        """Hand this network over."""
        self._weights.update(W1=np.array(weights[0]), W2=np.array(weights[1]))
        self._going = self._callback()
