"""What a signal costs that grows from layer to layer, biases included (MATH.md section 5).

    t_1 <= p_1 M^2,   t_{l+1} <= p_{l+1} (t_l + q),   p_l = |W_l|_F^2.

T_l(B) is the largest t_l with p_1 + ... + p_l = B: T_1(B) = M^2 B and T_{l+1}(B) = max_s (B - s) (T_l(s) + q). For each
s the function (B - s)_+ (T_l(s) + q) is convex in B, so that T is convex: it lies below its chords, and on a chord the
maximum over s is that of a parabola. So the table below is above T between its points, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

# Points of the table, and rows of it at a time; between them T is overrated by about L^2 / (8 POINTS^2).
POINTS, ROWS = 1500, 250
# For the rounding of a few hundred operations.
SLACK = 2.0**-40


@dataclass(frozen=True)
class Growth:
    """The largest signal for a budget.

    Attributes:
        budgets: B, ascending from 0.
        signals: bounds from above on T_L(B) there; chords between them are bounds, too.
    """

    budgets: Float[np.ndarray, " P"]
    signals: Float[np.ndarray, " P"]

    def least(self, signal: float) -> float:
        """Return a lower bound on the budget of this signal."""
        if signal <= 0.0:
            return 0.0
        above = np.flatnonzero(self.signals >= signal)
        if not len(above):
            return float(self.budgets[-1])
        k = int(above[0])
        low, high = self.signals[k - 1], self.signals[k]
        part = (signal - low) / (high - low)
        return float(self.budgets[k - 1] + part * (self.budgets[k] - self.budgets[k - 1])) * (1.0 - SLACK)


def growth(depth: int, first: float, added: float, signal: float) -> Growth:
    """T_L on budgets up to one that reaches `signal`.

    Args:
        depth: L; first: M^2 > 0; added: q >= 0; signal: t > 0.
    """
    most = depth * (signal / first) ** (1.0 / depth)
    most = (min(most, signal / added) if added > 0.0 else most) * (1.0 + 1e-9)
    budgets = np.linspace(0.0, most, POINTS)
    if added == 0.0:
        signals = np.exp(np.log(first) + depth * np.log(np.maximum(budgets, 1e-300) / depth))
        return Growth(budgets, signals * (1.0 + SLACK))
    signals = first * budgets
    for _ in range(depth - 1):
        signals = _next(budgets, signals + added) * (1.0 + SLACK)
    return Growth(budgets, signals)


def _next(budgets: Float[np.ndarray, " P"], heights: Float[np.ndarray, " P"]) -> Float[np.ndarray, " P"]:
    """max_s (B - s) h(s) for each B, h the chords of `heights`."""
    slopes = np.diff(heights) / np.diff(budgets)
    bases = heights[:-1] - slopes * budgets[:-1]
    roots = np.where(slopes > 0.0, bases / np.where(slopes > 0.0, slopes, 1.0), math.inf)
    best = np.zeros(len(budgets))
    for start in range(0, len(budgets), ROWS):
        B = budgets[start : start + ROWS, None]
        s = np.clip(0.5 * (B - roots), budgets[:-1], budgets[1:])
        best[start : start + ROWS] = ((B - s) * (bases + slopes * s)).max(axis=1)
    return np.maximum(best, 0.0)
