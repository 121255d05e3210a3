"""Convert the cells of tables to numbers, to codes of texts, and to targets."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from covopt.runtime.errors import DataError, shown

# Other texts that Python's float reads (1_000, digits of other scripts) are more likely mistakes than numbers.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_MISSING = ("", "nan")
_KINDS = (bool, int, float, Decimal)

Column = list[object]
Place = Callable[[int], str]
"""Names the place of a row in its file, such as its line."""


def check_inputs(inputs: Mapping[str, Column], one_hot: Collection[str], path: Path, place: Place) -> None:
    """Raise one DataError that names every column with a cell that is not a finite number.

    Columns in `one_hot` may hold texts.
    """
    texts, holes = {}, {}
    for name, values in inputs.items():
        wrong = [row for row, v in enumerate(values) if is_missing(v) or not (name in one_hot or is_finite(v))]
        if wrong:
            (holes if is_missing(values[wrong[0]]) else texts)[name] = wrong[0]
    bad = ", ".join(map(shown, texts or holes))
    of, row = next(iter((texts or holes).items()), ("", 0))
    where = place(row) if len(texts or holes) == 1 else f"{place(row)} of {shown(of)}"
    one = f"Column {bad} of {path}" if len(texts or holes) == 1 else f"Columns {bad} of {path}"
    if texts and holes:
        raise DataError(
            f"In {path} {bad} {'is' if len(texts) == 1 else 'are'} not numeric and {', '.join(map(shown, holes))}"
            f" {'has' if len(holes) == 1 else 'have'} missing values; encode with --one-hot, impute, or leave out with"
            " --drop."
        )
    if texts:
        raise DataError(
            f"{one} {'is' if len(texts) == 1 else 'are'} not numeric ({where} holds {shown(inputs[of][row])}); correct"
            " the cells, encode with --one-hot, or leave out with --drop."
        )
    if holes:
        complaint = f"has a missing value at {where}" if len(holes) == 1 else f"have missing values (first at {where})"
        raise DataError(f"{one} {complaint}; impute what is missing, or leave out with --drop.")


def floats(values: Column) -> NDArray[np.float64]:
    """Return the numbers of a column that `check_inputs` has passed (N,)."""
    return np.array([float(value) for value in values])  # type: ignore[arg-type]


def codes_of(values: Column, name: str, path: Path) -> tuple[NDArray[np.int64], list[str]]:
    """Return the index of each row's text among the sorted texts of the column, and these texts."""
    texts = [str(value) for value in values]
    kinds = sorted(set(texts))
    if len(kinds) > 1000:
        raise DataError(f"Column {shown(name)} of {path} holds {len(kinds)} texts, too many for --one-hot; drop it.")
    codes = {text: code for code, text in enumerate(kinds)}
    return np.array([codes[text] for text in texts]), kinds


def target_of(values: Column, name: str, path: Path, task: str | None, place: Place) -> NDArray:
    """Return whole numbers as integers, booleans and texts unchanged, other numbers as floats.

    Numbers with texts among them are classes only if `task` says so: a mistyped cell must not turn a column of numbers
    into classes.
    """
    if any(is_missing(value) for value in values):
        raise DataError(f"The target '{name}' of {path} has missing values; remove those rows.")
    if not all(isinstance(value, (str, *_KINDS)) for value in values):
        raise DataError(f"The target '{name}' of {path} holds neither numbers nor classes; give one of the two.")
    if all(isinstance(value, bool) for value in values):
        return np.array(values)
    if all(isinstance(v, (bool, int)) or (isinstance(v, str) and _INTEGER.fullmatch(v)) for v in values):
        return np.array([int(v) for v in values])  # type: ignore[arg-type]
    numbers = [is_number(value) for value in values]
    if all(numbers):
        infinite = next((row for row, value in enumerate(values) if not is_finite(value)), None)
        if infinite is not None:
            held, where = shown(values[infinite]), place(infinite)
            raise DataError(f"The target '{name}' of {path} is not finite ({where} holds {held}); correct it.")
        return np.array([float(v) for v in values])  # type: ignore[arg-type]
    if task != "classification" and any(numbers):
        row = numbers.index(False)
        raise DataError(
            f"The target '{name}' of {path} holds numbers, but {place(row)} holds {shown(values[row])}; correct the"
            " cell, or choose --task classification."
        )
    return np.array([str(v) for v in values])


def is_number(value: object) -> bool:
    """Return True if a cell is a number or a text that reads as one."""
    return isinstance(value, _KINDS) or (isinstance(value, str) and _NUMBER.fullmatch(value) is not None)


def is_finite(value: object) -> bool:
    """Return True if a cell is a finite number."""
    return is_number(value) and math.isfinite(float(value))  # type: ignore[arg-type]


def is_missing(value: object) -> bool:
    """Return True if a cell marks a missing value."""
    missing = isinstance(value, str) and value.lower() in _MISSING
    return value is None or missing or (isinstance(value, float) and math.isnan(value))
