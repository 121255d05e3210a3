"""The pace of a proof: how much its bound will gain if it runs for twice the time."""

from __future__ import annotations

import bisect
import math

# Seconds before the pace of a proof is judged: bounds of branch and bound stand still at first, then fall.
FAIR = 5.0


class Pace:
    """The values of a proved bound over time."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._values: list[float] = []

    def add(self, seconds: float, value: float) -> None:
        """Add the value after `seconds` of work; the seconds never decrease."""
        self._seconds.append(seconds)
        self._values.append(value)

    @property
    def again(self) -> float:
        """Return the gain to expect if the time doubles, at the pace of its second half; infinite without one."""
        if not self._seconds:
            return math.inf
        place = bisect.bisect_right(self._seconds, 0.5 * self._seconds[-1]) - 1
        if place < 0:
            return math.inf
        periods = self._seconds[-1] / max(self._seconds[-1] - self._seconds[place], 1e-300)
        return periods * (self._values[-1] - self._values[place])
