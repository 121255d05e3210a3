"""Read .csv and .parquet tables: inputs as numbers or one-hot, and targets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from covopt.data.arrays import check_readable, csv_rows
from covopt.data.cells import Column, Place, check_inputs, codes_of, floats, is_number, target_of
from covopt.data.row_groups import GroupedRows, ParquetColumns
from covopt.runtime.errors import DataError, ProblemError, close_match, counted, listed, meant_or, shown

SUFFIXES = (".csv", ".parquet")


@dataclass(frozen=True)
class Raw:
    """Inputs and targets as a source holds them, with names, weights and the task."""

    X: NDArray | GroupedRows
    Y: NDArray | None
    columns: tuple[str, ...] | None = None
    names: tuple[str, ...] | None = None
    weights: NDArray | None = None
    task: str | None = None


def read_table(
    path: Path,
    target: Sequence[str],
    *,
    drop: Sequence[str] = (),
    one_hot: Sequence[str] = (),
    task: str | None = None,
    weights: str | None = None,
    mapped: bool = False,
) -> Raw:
    """Read the columns of a .csv or .parquet table as inputs and targets, whose columns are `target`.

    Args:
        drop: columns to leave out.
        one_hot: input columns to encode: each of their texts (or numbers) becomes an input of 0 and 1, named
            COLUMN=TEXT.
        task: regression or classification; None: decided by the cells of the target.
        weights: the column of the row weights, which is not an input; None: there is none.
        mapped: read the inputs of a .parquet file on demand, by row groups; only one-hot columns are loaded now.
    """
    columns, place = _columns(path)
    if not target:
        names = listed(columns)
        raise DataError(f"{path} is a table, so say which column holds the targets: --target with one of {names}.")
    weight_columns = () if weights is None else (weights,)
    for name in (*target, *drop, *one_hot, *weight_columns):
        if name not in columns:
            raise DataError(f"{path} has no column {shown(name)}{suggestion(name, columns)}.")
    uses = [*target, *dict.fromkeys(drop), *dict.fromkeys(one_hot), *weight_columns]
    ambiguous = [name for name in uses if uses.count(name) > 1]
    if ambiguous:
        column = shown(ambiguous[0])
        raise DataError(
            f"Column {column} of {path} is asked for in two ways; make it target, weights, dropped or one-hot."
        )
    inputs = [name for name in columns if name not in (*target, *drop, *weight_columns)]
    if not inputs:
        raise DataError(f"{path} has no column beside the target {', '.join(map(shown, target))}; give an input, too.")
    by_groups = isinstance(columns, ParquetColumns)
    encoded = [name for name in inputs if name in one_hot]
    # Numbers in a .parquet file are read by row groups.
    loaded = {name: columns[name] for name in (*(encoded if by_groups else inputs), *weight_columns)}
    check_inputs(loaded, one_hot, path, place)
    coded = {name: codes_of(loaded[name], name, path) for name in encoded}
    if isinstance(columns, ParquetColumns):
        rows = GroupedRows(columns, inputs, coded)
        X = rows if mapped else rows[:]
    else:
        blocks = [np.eye(len(coded[n][1]))[coded[n][0]] if n in coded else floats(loaded[n]) for n in inputs]
        X = np.column_stack(blocks)
    texts = {name: [f"{name}={text}" for text in kinds] for name, (_, kinds) in coded.items()}
    names = [input_name for name in inputs for input_name in texts.get(name, [name])]
    row_weights = None if weights is None else floats(loaded[weights])
    targets = _targets_of({name: columns[name] for name in target}, path, task, place)
    return Raw(X, targets, tuple(names), weights=row_weights)


def read_like(
    path: Path, names: Sequence[str] | None, target: Sequence[str], other: Sequence[str], task: str | None
) -> tuple[NDArray[np.float64], NDArray | None]:
    """Read the inputs of a network, and the target, from a table with the same columns as its data; others are ignored.

    `names` are those of the inputs in their order, COLUMN=TEXT for one-hot columns; None: all columns but `other`. No
    targets are read without the names of their columns. `task` is as for `read_table`.
    """
    columns, place = _columns(path)
    if names is None:
        names = [name for name in columns if name not in other]
    sources = [name if name in columns else name.partition("=")[0] for name in names]
    needed = dict.fromkeys((*sources, *target))
    missing = [name for name in needed if name not in columns]
    if missing or not names:
        wanted = listed(missing or ["an input"])
        raise DataError(f"{path} has no column {wanted}, which the network's data had; give a table with all of them.")
    coded = {source for name, source in zip(names, sources, strict=True) if name != source}
    columns = {name: columns[name] for name in needed}
    check_inputs({name: columns[name] for name in sources}, tuple(coded), path, place)
    expected = set(names)
    for source in coded:
        unknown = next((text for text in map(str, columns[source]) if f"{source}={text}" not in expected), None)
        if unknown is not None:
            raise DataError(
                f"Column {shown(source)} of {path} holds {shown(unknown)}, which the network's data did not; remove"
                " those rows."
            )
    blocks = [
        floats(columns[source])
        if name == source
        else np.array([f"{source}={text}" == name for text in map(str, columns[source])], dtype=np.float64)
        for name, source in zip(names, sources, strict=True)
    ]
    targets = _targets_of({name: columns[name] for name in target}, path, task, place) if target else None
    return np.column_stack(blocks), targets


def _targets_of(targets: dict[str, Column], path: Path, task: str | None, place: Place) -> NDArray:
    """Return the column of the target as `target_of` reads it (N,), or several columns of numbers (N, n_L)."""
    arrays = {name: target_of(column, name, path, task, place) for name, column in targets.items()}
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    texts = next((name for name, values in arrays.items() if values.dtype.kind == "U"), None)
    if texts is not None:
        raise DataError(f"The target '{texts}' of {path} holds texts; give it alone, or only targets of numbers.")
    return np.column_stack([values.astype(np.float64) for values in arrays.values()])


def suggestion(name: str, candidates: Iterable[str]) -> str:
    """Return "(did you mean ...?)" with the closest name, or "; give one of ..." with all names."""
    names = list(candidates)
    return meant_or(close_match(name, names), f"give one of {listed(names)}")


def column_names(X: object) -> tuple[str, ...] | None:
    """Return the column names of a pandas or polars data frame; None for anything else."""
    names = getattr(X, "columns", None)
    return None if names is None or callable(names) else tuple(str(name) for name in names)


def order_of(X: object, columns: tuple[str, ...] | None) -> list[int] | None:
    """Return the positions of named columns in a data frame; None if either has no names.

    A ProblemError says if X lacks a column, has an unknown one, or repeats a name so that the order is ambiguous.
    """
    names = column_names(X)
    if names is None or columns is None:
        return None
    if names == columns:
        return list(range(len(columns)))
    missing = [name for name in columns if name not in names]
    unknown = [name for name in names if name not in columns]
    if missing or unknown:
        lacks = f"has no column {listed(missing)}" if missing else f"has an unknown column, {listed(unknown)}"
        raise ProblemError(f"X {lacks}; give the columns that the network was solved with: {listed(columns)}.")
    if len({*names}) < len(names):
        raise ProblemError("X has two columns of one name; give the columns in the order of the data.")
    return [names.index(name) for name in columns]


# ---- files


def _columns(path: Path) -> tuple[dict[str, Column] | ParquetColumns, Place]:
    """Return the columns by name, those of a .parquet file to be read on demand, and how messages name a row."""
    check_readable(path)
    return _read_csv(path) if path.suffix.lower() == ".csv" else (ParquetColumns(path), "index {}".format)


def _read_csv(path: Path) -> tuple[dict[str, Column], Place]:
    """Return the columns of a .csv file as texts or booleans, by their names in the first line; rows by their lines."""
    rows = csv_rows(path)
    if not rows:
        raise DataError(f"{path} is empty; give a first line with the names of the columns, and rows.")
    (_, *lines), (head, *body) = rows, rows.values()
    names = [name.strip() for name in head]
    for sign, separator in ((";", "semicolons"), ("\t", "tabs")):
        if head[0].count(sign) >= len(names):
            raise DataError(f"The columns of {path} seem to be separated by {separator}; save it with commas.")
    if names[0] == "" and all(names[1:]):
        raise DataError(f"The first column of {path} has no name; leave it out (index=False in pandas), or name it.")
    if len(set(names)) < len(names) or "" in names or all(is_number(name) for name in names):
        raise DataError(f"The first line of {path} must give each column a name of its own; add or repair it.")
    if not body:
        raise DataError(f"{path} has no rows below the names of its columns; give at least one.")
    for line, row in zip(lines, body, strict=True):
        if len(row) != len(names):
            cells = f"{counted(len(row), 'cell')} for {counted(len(names), 'column')}"
            raise DataError(f"Line {line} of {path} has {cells}; repair the line.")
    columns: dict[str, Column] = {name: [row[i].strip() for row in body] for i, name in enumerate(names)}
    for name, column in columns.items():
        if {*column} <= {"True", "False"}:  # as pandas writes booleans, which are numbers in a data frame, too
            columns[name] = [text == "True" for text in column]
    return columns, lambda row: f"line {lines[row]}"
