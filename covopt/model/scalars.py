"""The options of a problem that are numbers or names, checked.

Nothing here needs torch, so that the command line refuses a wrong option before it spends a second on loading torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from covopt.data.arrays import LARGEST
from covopt.model.wording import FREE
from covopt.runtime.errors import ProblemError, close_match, meant_or, shown
from covopt.runtime.loop import check_seed, check_time_limit

SMALLEST = 1e-75
"""The smallest magnitude, and with `LARGEST` the range, of the largest entry of data, of lam and of the bias."""
LOSSES = ("mse", "cross_entropy", "interpolate", "huber", "logistic")
"""The names of covopt's losses; `huber` also as huber:D."""
ACTIVATIONS = {"relu": 0.0, "leaky": 0.01, "linear": 1.0}
"""The slopes of the activations by their names; `leaky` also as leaky:A."""
LIKE = 0.8  # the smallest similarity, from 0 to 1, of a misspelt name; at 0.75 gelu would be a misspelling of relu


def as_number(value: object, name: str) -> float:
    """Return a finite number; a ProblemError, in which it is called `name`, refuses anything else."""
    try:
        if isinstance(value, (bool, np.bool_, str, bytes)):
            raise TypeError("no number")
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError) as error:
        raise ProblemError(f"{name} is {shown(value)}; give a number.") from error
    if not math.isfinite(number):
        raise ProblemError(f"{name} is {number}; give a finite number.")
    return number


def in_range(value: float, name: str) -> float:
    """Return a number that float64 computes with; else raise a ProblemError."""
    if not SMALLEST <= value <= LARGEST:
        raise ProblemError(
            f"{name} is {value:g}, which float64 cannot compute with; give a number from {SMALLEST:g} to {LARGEST:g}."
        )
    return value


def read_strength(lam: object) -> float:
    """Check the strength of the penalty, a number > 0."""
    value = as_number(lam, "lam")
    if value <= 0:
        raise ProblemError(f"lam is {value:g}; give lam > 0, or ask for the representation cost, which takes no lam.")
    return in_range(value, "lam")


def read_strengths(lams: object) -> list[float]:
    """Return several strengths of the penalty, each once, from the largest down."""
    values = [as_number(lam, "lam") for lam in np.atleast_1d(np.asarray(lams, dtype=object)).tolist()]
    if not values or min(values) <= 0.0:
        raise ProblemError("The values of lam are not all above 0, or there are none; give at least one above 0.")
    return sorted(set(values), reverse=True)


def read_depth(depth: object) -> int:
    """Check the number of layers of weights, from 2 to 1000."""
    if isinstance(depth, bool) or not isinstance(depth, (int, np.integer)):
        raise ProblemError(f"The depth is {shown(depth)}; give a whole number, at least 2.")
    if not 2 <= depth <= 1000:
        raise ProblemError(f"The depth is {shown(depth)}; give at least 2 (one hidden layer) and at most 1000.")
    return int(depth)


def read_beta(bias: object) -> float:
    """Check an amount of bias, a number >= 0."""
    remedy = "give 0 (no bias), 1 (the usual one) or free (no penalty on biases)"
    if bias is None or isinstance(bias, (str, bool)):
        raise ProblemError(f"The bias is {shown(bias)}; {remedy}.")
    value = as_number(bias, "bias")
    if value < 0:
        raise ProblemError(f"The bias is {value:g}; {remedy}.")
    return in_range(value, "The bias") if value else value


def read_loss(name: object) -> tuple[str, float | None]:
    """Return the name of a loss, and D of huber:D; None for the default threshold."""
    kind, colon, number = name.partition(":") if isinstance(name, str) else ("", "", "")
    if not colon and kind in LOSSES:
        return kind, None
    if not (colon and kind == "huber"):
        meant = kind or type(name).__name__.removesuffix("Loss")  # such as torch's MSELoss
        close = close_match(meant, LOSSES, LIKE)
        remedy = f"use one of {', '.join(LOSSES)}, or huber:D with D > 0"
        if not isinstance(name, str):
            remedy += "; a loss of your own is an object with name, values, gradients, curvatures and conjugates"
        raise ProblemError(f"The loss {shown(name, article=False)} is unknown{meant_or(close, remedy)}.")
    try:
        threshold = float(number)
    except ValueError:
        threshold = math.nan
    if not SMALLEST <= threshold <= LARGEST:
        raise ProblemError(
            f"The loss {shown(name)} has no threshold that float64 computes with; give huber:D with D from"
            f" {SMALLEST:g} to {LARGEST:g}."
        )
    return "huber", threshold


def read_slope(name: object) -> float:
    """Return the slope a of relu, leaky:A (or leaky, A = 0.01) or linear; A lies in (-1, 1)."""
    kind, colon, slope = str(name).partition(":")
    if not colon and kind in ACTIVATIONS:
        return ACTIVATIONS[kind]
    try:
        value = float(slope) if kind == "leaky" else math.nan
    except ValueError:
        value = math.nan
    if -1.0 < value < 1.0:
        return value
    close = None if colon else close_match(kind, ACTIVATIONS, LIKE)
    remedy = meant_or(close, "use relu, linear, or leaky:A with -1 < A < 1")
    raise ProblemError(f"The activation {shown(name, article=False)} is unknown{remedy}.")


def read_gap(gap: object) -> float:
    """Check a relative gap, a number from 0 to below 1."""
    if not (isinstance(gap, (int, float)) and 0 <= gap < 1):
        raise ProblemError(f"The gap is {shown(gap)}; give a number from 0 to below 1.")
    return gap


def read_tol(tol: object) -> float:
    """Check the part of the cost that rounds must gain, a number between 0 and 1."""
    if not (isinstance(tol, (int, float)) and not isinstance(tol, bool) and 0 < tol < 1):
        raise ProblemError(f"The tolerance is {shown(tol)}; give a number between 0 and 1, or leave it out.")
    return tol


READERS: dict[str, Callable[[object], object]] = {
    "lam": read_strength,
    "lams": read_strengths,
    "depth": read_depth,
    "bias": lambda bias: bias == FREE or read_beta(bias),
    "loss": read_loss,
    "activation": read_slope,
    "gap": read_gap,
    "tol": read_tol,
    "time_limit": check_time_limit,
    "seed": check_seed,
}
"""The check of each option that is one number or one name."""
