"""The pace of a proof: the gain to expect in as much time again, by the second half."""

from __future__ import annotations

import bisect
import math

# Seconds before which a proof is not judged: bounds of trees stand still for a while and then fall.
FAIR = 5.0


class Pace:
    """A proved number over time."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._values: list[float] = []

    def add(self, seconds: float, value: float) -> None:
        """Add the number after this many seconds of work, which never decrease."""
        self._seconds.append(seconds)
        self._values.append(value)

    @property
    def again(self) -> float:
        """Return the expected gain in as much time again, at the pace of the second half so far.

        Infinite where there is nothing to judge by: no number that is as old as half of the time.
        """
        if not self._seconds:
            return math.inf
        place = bisect.bisect_right(self._seconds, 0.5 * self._seconds[-1]) - 1
        if place < 0:
            return math.inf
        halves = self._seconds[-1] / max(self._seconds[-1] - self._seconds[place], 1e-300)
        return halves * (self._values[-1] - self._values[place])
