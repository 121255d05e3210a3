"""Rounding in floating point, and the scale at which nothing overflows or underflows."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

UNIT_ROUNDOFF = 2.0**-53
"""u: one operation in float64 is exact up to a factor of 1 + u."""
EPS = 2.0 * UNIT_ROUNDOFF
"""The distance from 1 to the next float64, which covers an operation and the rounding of its bound."""


def largest(values: Tensor) -> float:
    """Return the largest absolute entry, 0 of none."""
    return float(values.abs().max()) if values.numel() else 0.0


def to_unit_scale(values: Tensor, agreed: Callable[[float], float] = lambda size: size) -> tuple[Tensor, float]:
    """Return (values / s, s), s the power of two next to max |values|.

    The division is exact, and squares neither overflow nor underflow. Where `values` are part of a larger array,
    `agreed` turns their largest magnitude into that of all.
    """
    scale = 2.0 ** (math.frexp(agreed(largest(values)))[1] - 1)
    return values / scale, scale
