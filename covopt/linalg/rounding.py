"""Rounding in floating point, safe scales, and products in twice the digits of float64."""

from __future__ import annotations

import math
from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

UNIT_ROUNDOFF = 2.0**-53  # u: one operation in float64 is exact up to a factor of 1 + u
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


def two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return a + b, entrywise, as the rounded sum and its error (Knuth)."""
    total = a + b
    moved = total - a
    return total, (a - (total - moved)) + (b - moved)


def two_product(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return a b, entrywise, as the rounded product and its error, unless numbers over- or underflow (Dekker)."""
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    product = a * b
    return product, a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


def _halves(a: Tensor) -> tuple[Tensor, Tensor]:
    """Return numbers of 26 bits whose sum is a (Veltkamp)."""
    shifted = (2.0**27 + 1.0) * a
    high = shifted - (shifted - a)
    return high, a - high


def long_product(
    high: Float[Tensor, "N n"], low: Float[Tensor, "N n"], B: Float[Tensor, "m n"]
) -> tuple[Float[Tensor, "N m"], Float[Tensor, "N m"]]:
    """Return (high + low) B^T, |low| <= 2 u |high|, as such a sum again, in about twice the digits of float64.

    It is off by at most (2 (n + 4) u)^2 |high| |B|^T: the errors of products and partial sums, at most (n + 4) u |high|
    |B|^T, are summed in float64 (Ogita, Rump, Oishi, Accurate sum and dot product, 2005, algorithm 5.3).
    """
    total, errors = high.new_zeros(len(high), len(B)), low @ B.T
    for k in range(B.shape[1]):
        product, lost = two_product(high[:, k, None], B[:, k])
        total, dropped = two_sum(total, product)
        errors += lost + dropped
    return two_sum(total, errors)
