"""Where arrays come from: files, the data sets that scikit-learn ships, and MNIST; all checked, none trusted.

Integer, boolean and string targets are classes and become one-hot; the columns are taken from the whole set, before
`rows` takes the first N rows. Other targets are numbers and stay as they are.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import math
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float64
from numpy.typing import NDArray

from covopt.arrays import DEFLATE_LIMIT, LARGEST, check_readable, check_unfolding, read_npz
from covopt.errors import DataError, counted, listed, shown
from covopt.lazy import lazy
from covopt.tensors import as_array, read_torch

if TYPE_CHECKING:
    from sklearn import datasets
else:
    datasets = lazy("sklearn.datasets")

try:
    from pyarrow import ArrowException, parquet
except ImportError:  # the extra `parquet` is not installed; `_read_parquet` says so
    ArrowException, parquet = ValueError, None

SHIPPED = ("breast_cancer", "diabetes", "digits", "iris", "linnerud", "wine")
"""Data sets that scikit-learn ships; its `load_NAME` reads them."""
SCALES = ("none", "max", "standard")
CLASSES = 1000
"""So many classes, or more, need two rows of each on average; else they are numbers, whose one-hot rows are huge."""
MNIST_ROWS = 60_000
CELL = 40
"""Bytes that a cell of a table takes while it is read."""
MNIST_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")


@dataclass(frozen=True)
class Dataset:
    """Data that a problem can be made of.

    Attributes:
        X: inputs (N, n_0), scaled.
        Y: targets (N, n_L), one-hot for classes.
        name: what was asked for.
        classes: the class of each column of Y; None where the targets are numbers.
        scale: none, max or standard.
        rows: N.
        columns: the names of the inputs; None where the source has none.
    """

    X: Float64[np.ndarray, "N n0"]
    Y: Float64[np.ndarray, "N nL"]
    name: str
    classes: tuple[str, ...] | None
    scale: str
    rows: int
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True)
class _Raw:
    """Inputs and targets as a source gives them."""

    X: NDArray
    Y: NDArray
    columns: tuple[str, ...] | None = None


def read_data(
    source: str | os.PathLike[str],
    *,
    target: str | None = None,
    rows: int | None = None,
    scale: str = "none",
    data_dir: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Read a data set.

    Args:
        source: a file (.npz with X and Y or y; .csv or .parquet with `target`; .pt with tensors X and Y), the name of
            a set that scikit-learn ships (digits, iris, ...), or mnist.
        target: the column of a table that holds the targets; all others are inputs.
        rows: take the first so many rows; None takes all.
        scale: none; max divides X by max|X|; standard gives every column mean 0 and standard deviation 1 (a constant
            column becomes 0). Both measure the whole set.
        data_dir: where the files of mnist lie; None asks OpenML.

    Returns:
        Inputs X (N, n_0) and targets Y (N, n_L), one-hot for classes, with their name, classes and scale.

    Raises:
        DataError: one sentence that says what is wrong and what to do.
    """
    if scale not in SCALES:
        raise DataError(f"The scale '{scale}' is unknown; use one of {', '.join(SCALES)}.")
    name = os.fspath(source)
    raw = _read(name, target, data_dir)
    X, Y = _numeric_matrix(raw.X, "X", name), np.atleast_1d(raw.Y)
    if len(X) != len(Y):
        raise DataError(
            f"In {name} X has {counted(len(X), 'row')} and Y has {len(Y)}; give one row of targets for each input."
        )
    count = _row_count(rows, len(X), name)
    shift, factor = _scaling(X, scale)
    targets, classes = _targets(Y, name)
    inputs = (X[:count].astype(np.float64) - shift) * factor
    return Dataset(inputs, targets[:count], name, classes, scale, count, raw.columns)


def _read(name: str, target: str | None, data_dir: str | os.PathLike[str] | None) -> _Raw:
    """Find out what `name` is, and read it."""
    path = Path(name)
    suffix = path.suffix.lower()
    if suffix in (".csv", ".parquet"):
        return _read_table(path, target)
    if target is not None:
        raise DataError(f"A target column is for .csv and .parquet files; leave --target out for {name}.")
    if suffix == ".npz":
        return _pick_arrays(read_npz(path), path)
    if suffix in (".pt", ".pth"):
        return _read_torch(path)
    if os.path.exists(name) and name not in (*SHIPPED, "mnist"):  # unlike Path.exists, never raises
        raise DataError(f"{name} is of no known format; give a .npz, .csv, .parquet or .pt file.")
    if name == "mnist":
        return _fetch_mnist() if data_dir is None else _read_mnist(Path(data_dir))
    if name in SHIPPED:
        X, Y = getattr(datasets, f"load_{name}")(return_X_y=True)
        return _Raw(np.asarray(X), np.asarray(Y))
    raise DataError(f"There is no file or data set named {shown(name)}; {_suggestion(name)}.")


def _suggestion(name: str) -> str:
    known = [*SHIPPED, "mnist"]
    close = difflib.get_close_matches(name.lower(), known, n=1)
    return f"did you mean {close[0]}" if close else f"give a file, or one of {', '.join(known)}"


# ---- from a source to X and Y


def _numeric_matrix(values: NDArray, name: str, source: str) -> NDArray:
    """A finite, non-empty numeric (N, n) matrix; a vector becomes a column. Keeps the source's type: MNIST is large."""
    if values.dtype.kind not in "buif":
        raise DataError(f"{name} in {source} does not hold real numbers (its type is {values.dtype}); give numbers.")
    matrix = values[:, None] if values.ndim == 1 else values
    if matrix.ndim != 2:
        raise DataError(f"{name} in {source} has {values.ndim} dimensions; give a matrix with one row for each sample.")
    if matrix.size == 0:
        raise DataError(f"{name} in {source} is empty (shape {values.shape}); give at least one row and one column.")
    if matrix.dtype.kind == "f" and matrix.dtype.itemsize > 8:
        with np.errstate(over="ignore"):
            matrix = matrix.astype(np.float64)
    if matrix.dtype.kind == "f" and not np.isfinite(matrix).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(matrix))[0])
        raise DataError(
            f"{name} in {source} has NaN or infinite entries (first at row {row}, column {column}); remove or impute"
            " them."
        )
    if matrix.dtype.kind == "f" and max(matrix.max(), -matrix.min()) > LARGEST:
        raise DataError(f"{name} in {source} has entries beyond {LARGEST:g}; divide it by its largest entry.")
    return matrix


def _targets(Y: NDArray, source: str) -> tuple[NDArray[np.float64], tuple[str, ...] | None]:
    """Targets (N, n_L): one-hot for one column of integers, booleans or strings, else the numbers as they are."""
    column = Y[:, 0] if Y.ndim == 2 and Y.shape[1] == 1 else Y
    if column.ndim != 1 or column.dtype.kind not in "biuU":
        return _numeric_matrix(Y, "Y", source).astype(np.float64), None
    classes, codes = np.unique(column, return_inverse=True)
    if len(classes) > CLASSES and 2 * len(classes) > len(column):
        raise DataError(
            f"Y in {source} has {len(classes)} classes on {len(column)} rows; if these are numbers, store them as"
            " floating ones."
        )
    return np.eye(len(classes))[codes], tuple(str(c) for c in classes)


def _row_count(rows: int | None, available: int, source: str) -> int:
    if rows is None:
        return available
    if isinstance(rows, bool) or not isinstance(rows, (int, np.integer)):
        raise DataError(f"rows is {shown(rows)}; give a whole number.")
    if not 1 <= rows <= available:
        raise DataError(
            f"rows is {rows}, but {source} has {counted(available, 'row')}; give a number from 1 to {available}."
        )
    return int(rows)


def _scaling(X: NDArray, scale: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(shift, factor), to be used as (X - shift) * factor; measured on the whole set."""
    none = np.zeros(1), np.ones(1)
    if scale == "max":
        largest = max(abs(float(X.max())), abs(float(X.min())))
        return none if largest == 0 else (np.zeros(1), np.array([1.0 / largest]))
    if scale == "standard":
        mean, deviation = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
        varies = X.max(axis=0) > X.min(axis=0)
        return np.where(varies, mean, X[0]), np.where(varies, 1.0 / np.where(varies, deviation, 1.0), 0.0)
    return none


# ---- archives of arrays and tensors


def _pick_arrays(arrays: Mapping[str, NDArray], path: Path) -> _Raw:
    found = f"it holds {listed(sorted(arrays))}"
    if "X" not in arrays:
        raise DataError(f"{path} has no X ({found}); name the inputs X and the targets Y.")
    if "Y" not in arrays and "y" not in arrays:
        raise DataError(f"{path} has no Y or y ({found}); name the inputs X and the targets Y.")
    return _Raw(arrays["X"], arrays["Y"] if "Y" in arrays else arrays["y"])


def _read_torch(path: Path) -> _Raw:
    """A file of torch.save that holds a dictionary of tensors; only plain tensors are ever unpickled."""
    remedy = "save the tensors with torch.save({'X': X, 'Y': Y}, file)"
    content = read_torch(path, remedy)
    if not isinstance(content, Mapping):
        raise DataError(f"{path} holds a {type(content).__name__}, not a dictionary with X and Y; {remedy}.")
    tensors = {key: value for key, value in content.items() if isinstance(value, torch.Tensor)}
    return _pick_arrays({str(k): as_array(v, str(k), path) for k, v in tensors.items() if k in ("X", "Y", "y")}, path)


# ---- tables


def _read_table(path: Path, target: str | None) -> _Raw:
    """Split the columns of a table into inputs and the target."""
    check_readable(path)
    columns = _read_csv(path) if path.suffix.lower() == ".csv" else _read_parquet(path)
    names = listed(columns)
    if target is None:
        raise DataError(f"{path} is a table, so say which column holds the targets: --target with one of {names}.")
    if target not in columns:
        raise DataError(f"{path} has no column {shown(target)}; give one of {names}.")
    inputs = {name: _number_column(values, name, path) for name, values in columns.items() if name != target}
    if not inputs:
        raise DataError(f"{path} has no column beside the target '{target}'; give at least one input.")
    return _Raw(np.column_stack(list(inputs.values())), _target_column(columns[target], target, path), tuple(inputs))


def _read_csv(path: Path) -> dict[str, list[object]]:
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


def _read_parquet(path: Path) -> dict[str, list[object]]:
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


def _number_column(values: list[object], name: str, path: Path) -> NDArray[np.float64]:
    for row, value in enumerate(values):
        if value is None or value == "":
            raise DataError(f"Column {shown(name)} of {path} has a missing value in row {row}; remove or impute it.")
        if not _is_number(value):
            raise DataError(
                f"Column {shown(name)} of {path} is not numeric (row {row} holds {shown(value)}); encode it as"
                " numbers or drop it."
            )
        number = float(value)  # type: ignore[arg-type]
        if not math.isfinite(number):
            raise DataError(f"Column {shown(name)} of {path} has {number} in row {row}; remove or impute it.")
    return np.array([float(v) for v in values])  # type: ignore[arg-type]


def _target_column(values: list[object], name: str, path: Path) -> NDArray:
    """Classes where every entry is a whole number, a boolean or where some entry is no number; else numbers."""
    if any(value is None or value == "" for value in values):
        raise DataError(f"The target '{name}' of {path} has missing values; remove those rows.")
    if all(isinstance(v, (bool, int)) or (isinstance(v, str) and _is_integer(v)) for v in values):
        return np.array([int(v) for v in values])  # type: ignore[arg-type]
    if all(_is_number(v) for v in values):
        return _number_column(values, name, path)
    if all(isinstance(v, str) for v in values):
        return np.array(values)
    raise DataError(f"The target '{name}' of {path} holds neither numbers nor classes; give one of the two.")


def _is_number(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


def _is_integer(text: str) -> bool:
    return text.lstrip("+-").isdecimal() and len(text) < 19


# ---- MNIST


def _fetch_mnist() -> _Raw:
    """The training set of MNIST from OpenML."""
    try:
        X, Y = datasets.fetch_openml("mnist_784", version=1, return_X_y=True, as_frame=False, parser="liac-arff")
    except (OSError, ValueError) as error:
        raise DataError(
            f"MNIST could not be fetched from OpenML; put {' and '.join(MNIST_FILES)} (or .gz) into a directory and"
            " give it with --data-dir."
        ) from error
    return _Raw(np.asarray(X[:MNIST_ROWS], dtype=np.uint8), np.asarray(Y[:MNIST_ROWS]).astype(np.int64))


def _read_mnist(directory: Path) -> _Raw:
    images, labels = (_read_idx(_find_idx(directory, name)) for name in MNIST_FILES)
    if images.ndim != 3 or labels.ndim != 1:
        raise DataError(f"The files in {directory} are not images and labels of MNIST; fetch them again.")
    return _Raw(images.reshape(len(images), math.prod(images.shape[1:])), labels)


def _find_idx(directory: Path, name: str) -> Path:
    for candidate in (name, f"{name}.gz", name.replace("-idx", ".idx"), name.replace("-idx", ".idx") + ".gz"):
        if (directory / candidate).is_file():
            return directory / candidate
    raise DataError(f"There is no {name} (or {name}.gz) in {directory}; put the files of MNIST there.")


def _read_idx(path: Path) -> NDArray[np.uint8]:
    """An idx file of bytes: 0, 0, 8 (unsigned bytes), the number of dimensions, each of them in 4 bytes, the bytes."""
    compressed = path.suffix == ".gz"
    size = path.stat().st_size * (DEFLATE_LIMIT if compressed else 1)
    damaged = DataError(f"{path} is not an idx file of bytes or is damaged; fetch it again.")
    try:
        with gzip.open(path) if compressed else path.open("rb") as stream:
            head = stream.read(4)
            if len(head) < 4 or head[:3] != b"\x00\x00\x08" or not 1 <= head[3] <= 3:
                raise damaged
            shape = np.frombuffer(stream.read(4 * head[3]), dtype=">u4").astype(object)
            expected = int(np.prod(shape))
            if len(shape) != head[3] or expected > size:
                raise damaged
            check_unfolding(path, expected)
            body = stream.read(expected + 1)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise damaged from error
    if len(body) != expected:
        raise damaged
    return np.frombuffer(body, dtype=np.uint8).reshape([int(n) for n in shape])
