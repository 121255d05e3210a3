"""Numbers as text.

Bounds are rounded in exact decimal arithmetic: `down` rounds a proved lower bound, `up` an upper bound (the minimum is
at most ..., within ... of it). The cost of a network at hand is rounded to the nearest number. A float64 that equals a
short decimal when read back counts as that decimal: 0.1 is 0.1, although no float64 is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

# An interval is shown with as many digits as keep its rounding outwards below this part of it; DIGITS at most.
WIDENED, DIGITS = 0.05, 10
PLAIN = (-4, 6)
"""Between these powers of ten, a number is written without an exponent, if need be with zeros at its end."""


class Lower(float):
    """A proved lower bound in a table: its text is rounded down."""


def row_of(point: Mapping[str, Any], keys: Iterable[str]) -> tuple[object, ...]:
    """Return some entries of a point as a row of a table; its `lower` is a bound."""
    return tuple(Lower(point[key]) if key == "lower" and point[key] is not None else point[key] for key in keys)


def down(value: float, digits: int = 5) -> str:
    """Return the number rounded down to `digits` significant digits."""
    return _rounded(value, digits, ROUND_FLOOR)


def up(value: float, digits: int = 5) -> str:
    """Return the number rounded up to `digits` significant digits."""
    return _rounded(value, digits, ROUND_CEILING)


def shown(value: float, digits: int) -> str:
    """Return the number rounded to `digits` significant digits; a `Lower` is rounded down."""
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
    """Return a fraction as a percentage of three significant digits."""
    size = 100.0 * part
    return f"{size:.0f} %" if abs(size) >= 100.0 else f"{size:.3g} %"


def percent_above(value: float | None, least: float | None) -> str | None:
    """Return how far a number is above the smallest one, as a percentage of that; None if this is unknown."""
    return None if value is None or least is None or not least > 0.0 else percent((value - least) / least)


def percent_at_most(part: float, digits: int = 3) -> str:
    """Return a fraction as a percentage, rounded up."""
    whole = len(f"{100.0 * abs(part):.0f}") if math.isfinite(part) else 0  # the digits before the point are all written
    return f"{_rounded(part, max(digits, whole), ROUND_CEILING, places=2)} %"


def _rounded(value: float, digits: int, rounding: str, places: int = 0) -> str:
    """Return the text of value * 10^places, rounded."""
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
