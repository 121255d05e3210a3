"""Numbers as text: bounds are rounded outwards, which exact arithmetic checks."""

from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from covopt.records.numerals import Lower, down, interval, percent_at_most, shown, up

EDGES = [
    *(1e-300, 1e300, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 1e22, 1e23, 9.9999999e22, 1e-5),
    *(10.0, 100.0, 99999.5, 0.99999999999, 1.99999999998, 123456.0, 9.99995e-5, 0.1, 1.0 / 3.0, 2.0**0.5, 4.35e-7),
]


def holds(value: float, digits: int) -> None:
    low, high = down(value, digits), up(value, digits)
    for text in (low, high):  # so many digits, or the number itself
        mantissa = text.lstrip("-").partition("e")[0].replace(".", "").strip("0")
        assert len(mantissa) <= digits
    assert Fraction(low) <= Fraction(value) or float(low) == value
    assert Fraction(high) >= Fraction(value) or float(high) == value
    # No further away than one unit of the last digit.
    assert Fraction(high) - Fraction(low) <= abs(Fraction(value)) * Fraction(10) ** (1 - digits)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("value", EDGES)
def test_the_edges_of_float64(value: float, sign: float) -> None:
    for digits in (1, 2, 5, 8, 12):
        holds(sign * value, digits)


@given(st.floats(allow_nan=False, allow_infinity=False).filter(bool), st.integers(1, 12))
def test_every_number(value: float, digits: int) -> None:
    holds(value, digits)


def test_how_they_are_written() -> None:
    assert (down(1.99999999998, 8), up(1.99999999998, 8)) == ("1.9999999", "2")
    assert (down(9.9999999e22), up(9.9999999e22)) == ("9.9999e+22", "1e+23")
    assert (down(0.00012345678), down(0.000012345678)) == ("0.00012345", "1.2345e-05")
    assert (down(123456.0), up(123456.0), up(123456.0, 6)) == ("123450", "123460", "123456")
    assert (down(0.1), up(0.1), down(10.0), up(1e22)) == ("0.1", "0.1", "10", "1e+22")
    assert (down(0.0), up(float("inf")), down(float("nan"))) == ("0", "inf", "nan")
    assert (up(1.7976931348623157e308), down(-1.5, 1)) == ("1.7977e+308", "-2")


def test_percentages() -> None:
    assert percent_at_most(0.5412345) == "54.2 %"
    assert percent_at_most(0.999999, 2) == "100 %"
    assert percent_at_most(123.456, 2) == "12346 %"
    assert percent_at_most(0.0) == "0 %"


def test_a_bound_in_a_table() -> None:
    assert shown(Lower(1.99999999998), 7) == "1.999999"
    assert shown(1.99999999998, 7) == "2"


@given(st.floats(1e-300, 1e300), st.floats(0.0, 1.0))
def test_an_interval_holds_both_ends(upper: float, part: float) -> None:
    low, high = interval(part * upper, upper)
    assert float(low) <= part * upper
    assert float(high) >= upper
