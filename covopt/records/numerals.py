"""Numbers as text.

Bounds are rounded away from what they bound, in exact decimal arithmetic. A proved lower bound goes through `down`, an
upper bound (the minimum is at most ..., within ... of it) through `up`. The cost of a network that is at hand is a
plain number, and rounded to the nearest one. Where few digits read back as the very number they are taken as it: 0.1 is
0.1, though no float64 is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

# An interval is shown with the digits at which rounding its ends outwards widens it by at most this part; up to DIGITS.
WIDENED, DIGITS = 0.05, 10
PLAIN = (-4, 6)
"""Powers of ten between which a number is written without an exponent, even where zeros have to fill its places."""


class Lower(float):
    """A proved lower bound in a table: its text is rounded down."""


def row_of(point: Mapping[str, Any], keys: Iterable[str]) -> tuple[object, ...]:
    """Return some entries of a point as a row of a table; its `lower` is a bound."""
    return tuple(Lower(point[key]) if key == "lower" and point[key] is not None else point[key] for key in keys)


def down(value: float, digits: int = 5) -> str:
    """Return the number with so many significant digits, never above it."""
    return _rounded(value, digits, ROUND_FLOOR)


def up(value: float, digits: int = 5) -> str:
    """Return the number with so many significant digits, never below it."""
    return _rounded(value, digits, ROUND_CEILING)


def shown(value: float, digits: int) -> str:
    """Return the number to so many significant digits, nearest; a `Lower` is rounded down."""
    return down(value, digits) if isinstance(value, Lower) else f"{value:.{digits}g}"


def interval(lower: float, upper: float) -> tuple[str, str]:
    """Return the ends of a proved interval, rounded outwards, as short as its size allows."""
    size = upper - lower
    for digits in range(4, DIGITS):
        low, high = down(lower, digits), up(upper, digits)
        if float(high) - float(low) <= (1.0 + WIDENED) * size:
            return low, high
    return down(lower, DIGITS), up(upper, DIGITS)


def percent(part: float) -> str:
    """Return a part as a percentage of three digits."""
    size = 100.0 * part
    return f"{size:.0f} %" if abs(size) >= 100.0 else f"{size:.3g} %"


def percent_at_most(part: float, digits: int = 3) -> str:
    """Return a percentage that the part does not exceed."""
    whole = len(f"{100.0 * abs(part):.0f}") if math.isfinite(part) else 0  # all of them are written
    return f"{_rounded(part, max(digits, whole), ROUND_CEILING, places=2)} %"


def _rounded(value: float, digits: int, rounding: str, places: int = 0) -> str:
    """Return the text of value times 10 to the places."""
    if value == 0.0 or not math.isfinite(value):
        return f"{value:g}"
    nearest = f"{value:.{digits}g}"
    number = Decimal(nearest) if float(nearest) == value else Decimal(value)
    context = Context(prec=digits, rounding=rounding, Emin=MIN_EMIN, Emax=MAX_EMAX)
    short = context.scaleb(context.create_decimal(number), places).normalize(context)
    exponent = short.adjusted()
    if PLAIN[0] <= exponent < max(digits, PLAIN[1]):
        return f"{short:f}"
    return f"{short.scaleb(-exponent, context).normalize(context):f}e{exponent:+03d}"
