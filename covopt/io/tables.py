"""Tables (.csv and .parquet): their columns as inputs, numbers or 0/1 for each text, and one of them as the target."""

from __future__ import annotations

import csv
import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from covopt.errors import DataError, counted, listed, shown
from covopt.io.arrays import check_readable, check_unfolding

try:
    from pyarrow import ArrowException, parquet
except ImportError:  # the extra `parquet` is not installed; `_read_parquet` says so
    ArrowException, parquet = ValueError, None

CELL = 40
"""Bytes that a cell of a table takes while it is read."""
CATEGORIES = 1000
"""The most texts that a column may hold which becomes a column of 0 and 1 for each."""
SUFFIXES = (".csv", ".parquet")
# What Python's float reads besides (1_000, digits of other scripts) is more likely a mistake than a number.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_MISSING = ("", "nan")
_KINDS = (bool, int, float, Decimal)

Column = list[object]


@dataclass(frozen=True)
class Table:
    """Inputs X (N, n_0), the target y (N,) as numbers or texts, the names of the inputs, and weights of the rows."""

    X: NDArray[np.float64]
    y: NDArray
    columns: tuple[str, ...]
    weights: NDArray[np.float64] | None = None


def read_table(
    path: Path,
    target: str | None,
    *,
    drop: Sequence[str] = (),
    one_hot: Sequence[str] = (),
    task: str | None = None,
    weights: str | None = None,
) -> Table:
    """The columns of a table as inputs and target.

    Args:
        path: a .csv or .parquet file.
        target: the column that holds the targets.
        drop: columns that are no inputs.
        one_hot: input columns of which each text (or number) becomes a column of 0 and 1, named COLUMN=TEXT.
        task: regression, classification, or None for what the target's cells look like.
        weights: the column that holds the weights of the rows, which is no input; None: there is none.

    Raises:
        DataError: one sentence that names the columns and what to do.
    """
    check_readable(path)
    columns = _read_csv(path) if path.suffix.lower() == ".csv" else _read_parquet(path)
    if target is None:
        names = listed(columns)
        raise DataError(f"{path} is a table, so say which column holds the targets: --target with one of {names}.")
    weighing = () if weights is None else (weights,)
    for name in (target, *drop, *one_hot, *weighing):
        if name not in columns:
            raise DataError(f"{path} has no column {shown(name)}; {suggestion(name, columns)}.")
    twice = [name for name in (*drop, *one_hot, *weighing) if name == target]
    twice += [name for name in drop if name in one_hot] + [name for name in weighing if name in (*drop, *one_hot)]
    if twice:
        raise DataError(
            f"Column {shown(twice[0])} of {path} is asked for in two ways; make it target, weights, dropped or one-hot."
        )
    inputs = {name: values for name, values in columns.items() if name not in (target, *drop, *weighing)}
    if not inputs:
        raise DataError(f"{path} has no column beside the target '{target}'; give at least one input.")
    _check_inputs({**inputs, **{name: columns[name] for name in weighing}}, one_hot, path)
    blocks, names = [], []
    for name, values in inputs.items():
        block, called = _indicators(values, name, path) if name in one_hot else _floats(values, name)
        blocks.append(block)
        names += called
    found = None if weights is None else _floats(columns[weights], weights)[0][:, 0]
    return Table(np.column_stack(blocks), _target(columns[target], target, path, task), tuple(names), found)


def read_like(
    path: Path, names: Sequence[str] | None, target: str | None, other: str | None, task: str | None
) -> tuple[NDArray[np.float64], NDArray | None]:
    """The inputs of these names, in this order, and the target, of a table like one that was read before.

    Args:
        path: a .csv or .parquet file; it may have further columns.
        names: of the inputs, COLUMN=TEXT of columns that were one-hot; None takes all columns but `other`.
        target: the column that holds the targets; None leaves them out.
        other: a column that is no input.
        task: as for `read_table`.

    Raises:
        DataError: one sentence that names the columns and what to do.
    """
    check_readable(path)
    columns = _read_csv(path) if path.suffix.lower() == ".csv" else _read_parquet(path)
    if names is None:
        names = [name for name in columns if name != other]
    sources = [name if name in columns else name.partition("=")[0] for name in names]
    lacking = [
        name for name in dict.fromkeys((*sources, *(() if target is None else (target,)))) if name not in columns
    ]
    if lacking or not names:
        wanted = listed(lacking or ["an input"])
        raise DataError(f"{path} has no column {wanted}, which the network's data had; give a table with all of them.")
    coded = {source for name, source in zip(names, sources, strict=True) if name != source}
    _check_inputs({name: columns[name] for name in sources}, tuple(coded), path)
    known = set(names)
    for source in coded:
        unknown = next((text for text in map(str, columns[source]) if f"{source}={text}" not in known), None)
        if unknown is not None:
            raise DataError(
                f"Column {shown(source)} of {path} holds {shown(unknown)}, which the network's data did not; remove"
                " those rows."
            )
    blocks = [
        _floats(columns[source], name)[0][:, 0]
        if name == source
        else np.array([f"{source}={text}" == name for text in map(str, columns[source])], dtype=np.float64)
        for name, source in zip(names, sources, strict=True)
    ]
    return np.column_stack(blocks), None if target is None else _target(columns[target], target, path, task)


def suggestion(name: str, known: Iterable[str]) -> str:
    """did you mean ..., or the names there are."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1) or [k for k in names if k.lower() == name.lower()][:1]
    return f"did you mean {close[0]}" if close else f"give one of {listed(names)}"


def column_names(X: object) -> tuple[str, ...] | None:
    """The names of the columns of a data frame, pandas's or polars's; None of anything else."""
    names = getattr(X, "columns", None)
    return None if names is None or callable(names) else tuple(str(name) for name in names)


# ---- files


def _read_csv(path: Path) -> dict[str, Column]:
    """The columns of a .csv file as text, by the names in its first line."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            lines = [line for line in csv.reader(stream) if line]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a .csv file in UTF-8; save it as one.") from error
    if not lines:
        raise DataError(f"{path} is empty; give a first line with the names of the columns, and rows.")
    names, body = [name.strip() for name in lines[0]], lines[1:]
    if len(set(names)) < len(names) or "" in names or all(_is_number(name) for name in names):
        raise DataError(f"The first line of {path} must give each column a name of its own; add or repair it.")
    if not body:
        raise DataError(f"{path} has no rows below the names of its columns; give at least one.")
    for number, line in enumerate(body):
        if len(line) != len(names):
            cells, columns = counted(len(line), "cell"), counted(len(names), "column")
            raise DataError(f"Row {number} of {path} has {cells} for {columns}; repair the row.")
    return {name: [line[i].strip() for line in body] for i, name in enumerate(names)}


def _read_parquet(path: Path) -> dict[str, Column]:
    if parquet is None:
        raise DataError("Reading .parquet needs pyarrow; install it with: pip install 'covopt[parquet]'.")
    try:
        declared, names = parquet.read_metadata(path), parquet.read_schema(path).names
        if len(set(names)) < len(names):
            raise DataError(f"{path} has two columns of one name; give each column a name of its own.")
        check_unfolding(path, CELL * declared.num_rows * declared.num_columns)
        table = parquet.read_table(path)
        columns = [column.to_pylist() for column in table.columns]
    except (ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path} is not a .parquet file or is damaged; write it again.") from error
    if table.num_rows == 0 or not names:
        raise DataError(f"{path} has no rows or no columns; give at least one of each.")
    return dict(zip(names, columns, strict=True))


# ---- inputs


def _check_inputs(inputs: Mapping[str, Column], one_hot: Sequence[str], path: Path) -> None:
    """Raise one DataError that names every column which is no column of finite numbers."""
    texts, holes = {}, {}
    for name, values in inputs.items():
        wrong = [row for row, v in enumerate(values) if _is_missing(v) or not (name in one_hot or _is_finite(v))]
        if wrong:
            (holes if _is_missing(values[wrong[0]]) else texts)[name] = wrong[0]
    bad = ", ".join(map(shown, texts or holes))
    of, row = next(iter((texts or holes).items()), ("", 0))
    place = f"row {row}" if len(texts or holes) == 1 else f"row {row} of {shown(of)}"
    one = f"Column {bad} of {path}" if len(texts or holes) == 1 else f"Columns {bad} of {path}"
    if texts and holes:
        raise DataError(
            f"In {path} {bad} {'is' if len(texts) == 1 else 'are'} not numeric and {', '.join(map(shown, holes))}"
            f" {'has' if len(holes) == 1 else 'have'} missing values; encode with --one-hot, impute, or leave out with"
            " --drop."
        )
    if texts:
        raise DataError(
            f"{one} {'is' if len(texts) == 1 else 'are'} not numeric ({place} holds {shown(inputs[of][row])}); correct"
            " the cells, encode with --one-hot, or leave out with --drop."
        )
    if holes:
        told = f"has a missing value in {place}" if len(holes) == 1 else f"have missing values (first in {place})"
        raise DataError(f"{one} {told}; impute what is missing, or leave out with --drop.")


def _floats(values: Column, name: str) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    return np.array([float(value) for value in values])[:, None], (name,)  # type: ignore[arg-type]


def _indicators(values: Column, name: str, path: Path) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """A column of 0 and 1 for each text that the column holds, in their order."""
    texts = [str(value) for value in values]
    kinds = sorted(set(texts))
    if len(kinds) > CATEGORIES:
        raise DataError(f"Column {shown(name)} of {path} holds {len(kinds)} texts, too many for --one-hot; drop it.")
    codes = {text: code for code, text in enumerate(kinds)}
    return np.eye(len(kinds))[[codes[text] for text in texts]], tuple(f"{name}={text}" for text in kinds)


# ---- the target


def _target(values: Column, name: str, path: Path, task: str | None) -> NDArray:
    """Whole numbers as integers, booleans and texts as they are, other numbers as floats.

    Numbers with texts among them are classes only where `task` says so: one mistyped cell must not make classes of a
    column of numbers.
    """
    if any(_is_missing(value) for value in values):
        raise DataError(f"The target '{name}' of {path} has missing values; remove those rows.")
    if not all(isinstance(value, (str, *_KINDS)) for value in values):
        raise DataError(f"The target '{name}' of {path} holds neither numbers nor classes; give one of the two.")
    if all(isinstance(v, (bool, int)) or (isinstance(v, str) and _INTEGER.fullmatch(v)) for v in values):
        return np.array([int(v) for v in values])  # type: ignore[arg-type]
    numbers = [_is_number(value) for value in values]
    if all(numbers):
        infinite = next((row for row, value in enumerate(values) if not _is_finite(value)), None)
        if infinite is not None:
            held = shown(values[infinite])
            raise DataError(f"The target '{name}' of {path} is not finite (row {infinite} holds {held}); correct it.")
        return np.array([float(v) for v in values])  # type: ignore[arg-type]
    if task != "classification" and any(numbers):
        row = numbers.index(False)
        raise DataError(
            f"The target '{name}' of {path} holds numbers, but row {row} holds {shown(values[row])}; correct the cell,"
            " or choose --task classification."
        )
    return np.array([str(v) for v in values])


def _is_number(value: object) -> bool:
    return isinstance(value, _KINDS) or (isinstance(value, str) and _NUMBER.fullmatch(value) is not None)


def _is_finite(value: object) -> bool:
    return _is_number(value) and math.isfinite(float(value))  # type: ignore[arg-type]


def _is_missing(value: object) -> bool:
    missing = isinstance(value, str) and value.lower() in _MISSING
    return value is None or missing or (isinstance(value, float) and math.isnan(value))
