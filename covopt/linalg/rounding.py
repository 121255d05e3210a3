"""Rounding in floating point, and the scale at which nothing overflows or underflows."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

UNIT_ROUNDOFF = 2.0**-53
"""u: one operation in float64 is exact up to a factor of 1 + u."""
EPS = 2.0 * UNIT_ROUNDOFF
"""The distance from 1 to the next float64; it covers one operation and the rounding of its bound."""


def largest(values: Tensor) -> float:
    """Return the largest absolute entry, or 0 if there are none."""
    if not values.numel():
        return 0.0
    least, most = values.aminmax()  # abs() would be a copy
    return max(float(most), -float(least))


def unit_scale(values: Tensor, agreed: Callable[[float], float] = lambda size: size) -> float:
    """Return s of `to_unit_scale`, without a copy of the values."""
    return 2.0 ** (math.frexp(agreed(largest(values)))[1] - 1)


def to_unit_scale(values: Tensor, agreed: Callable[[float], float] = lambda size: size) -> tuple[Tensor, float]:
    """Return (values / s, s), s the power of two next to max |values|.

    The division is exact, and squares neither overflow nor underflow. If `values` are part of a larger array, `agreed`
    returns the largest magnitude of the whole from that of this part.
    """
    scale = unit_scale(values, agreed)
    return values / scale, scale
