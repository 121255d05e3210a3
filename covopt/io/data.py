"""Where arrays come from: files, the data sets that scikit-learn ships, and MNIST; all checked, none trusted.

Integer, boolean and string targets are classes and become one-hot, unless `task` says that they are numbers; the
columns are taken from the whole set, before `rows` takes N rows. Other targets are numbers and stay as they are.
"""

from __future__ import annotations

import gzip
import math
import os
import warnings
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float64
from numpy.typing import NDArray

from covopt.errors import CovoptWarning, DataError, counted, listed, shown
from covopt.io.arrays import DEFLATE_LIMIT, LARGEST, check_unfolding, read_npz
from covopt.io.tables import SUFFIXES, read_table, suggestion
from covopt.io.tensors import as_array, read_torch
from covopt.lazy import lazy

if TYPE_CHECKING:
    from sklearn import datasets
else:
    datasets = lazy("sklearn.datasets")

SHIPPED = ("breast_cancer", "diabetes", "digits", "iris", "linnerud", "wine")
"""Data sets that scikit-learn ships; its `load_NAME` reads them."""
SCALES = ("none", "max", "standard")
TASKS = ("regression", "classification")
CLASSES = 1000
"""So many classes, or more, need two rows of each on average; else they are numbers, whose one-hot rows are huge."""
MNIST_ROWS = 60_000
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
        shuffle: the seed with which the rows were drawn; None where they are the first ones, or all.
        shift, factor: how the inputs were scaled, (x - shift) * factor for each column.
        labels: the classes as the source has them, as texts.
    """

    X: Float64[np.ndarray, "N n0"]
    Y: Float64[np.ndarray, "N nL"]
    name: str
    classes: tuple[str, ...] | None
    scale: str
    rows: int
    columns: tuple[str, ...] | None = None
    shuffle: int | None = None
    shift: Float64[np.ndarray, " _"] | None = None
    factor: Float64[np.ndarray, " _"] | None = None
    labels: tuple[str, ...] | None = None

    @property
    def targets(self) -> str | None:
        """What the targets are taken for, in a few words; None for numbers that nobody would take for classes."""
        if self.classes is None:
            return "targets read as numbers" if not (self.Y % 1.0).any() else None
        missing = int((self.Y.sum(axis=0) == 0.0).sum())
        told = f"{len(self.classes)} class{'' if len(self.classes) == 1 else 'es'}, one-hot"
        return f"{told} ({missing} not among the rows)" if missing else told


@dataclass(frozen=True)
class _Raw:
    """Inputs and targets as a source gives them, and the names of the inputs and of the classes where it has some."""

    X: NDArray
    Y: NDArray
    columns: tuple[str, ...] | None = None
    names: tuple[str, ...] | None = None


def read_data(
    source: str | os.PathLike[str],
    *,
    target: str | None = None,
    rows: int | None = None,
    scale: str = "none",
    data_dir: str | os.PathLike[str] | None = None,
    task: str | None = None,
    shuffle: int | None = None,
    drop: Sequence[str] = (),
    one_hot: Sequence[str] = (),
) -> Dataset:
    """Read a data set.

    Args:
        source: a file (.npz with X and Y or y; .csv or .parquet with `target`; .pt with tensors X and Y), the name of
            a set that scikit-learn ships (digits, iris, ...), or mnist.
        target: the column of a table that holds the targets; all others are inputs.
        rows: take so many rows, the first ones or those that `shuffle` draws; None takes all.
        scale: none; max divides X by max|X|; standard gives every column mean 0 and standard deviation 1 (a constant
            column becomes 0). Both measure the whole set.
        data_dir: where the files of mnist lie; None asks OpenML.
        task: regression, the targets are numbers; classification, they are classes; None: classes where they are
            integers, booleans or strings in one column.
        shuffle: seed with which `rows` are drawn from the whole set, without repetition.
        drop: columns of a table that are no inputs.
        one_hot: columns of a table of which each text becomes a column of 0 and 1, named COLUMN=TEXT.

    Returns:
        Inputs X (N, n_0) and targets Y (N, n_L), one-hot for classes, with their name, classes and scale.

    Raises:
        DataError: one sentence that says what is wrong and what to do.

    Warns:
        CovoptWarning: a class is missing among the rows that are taken.
    """
    if scale not in SCALES:
        raise DataError(f"The scale '{scale}' is unknown; use one of {', '.join(SCALES)}.")
    if task is not None and task not in TASKS:
        raise DataError(f"The task {shown(task)} is unknown; use {' or '.join(TASKS)}.")
    name = os.fspath(source)
    drop, one_hot = (((each,) if isinstance(each, str) else tuple(each)) for each in (drop, one_hot))
    raw = _read(name, target, data_dir, task, drop, one_hot)
    X, Y = _numeric_matrix(raw.X, "X", name), np.atleast_1d(raw.Y)
    if len(X) != len(Y):
        raise DataError(
            f"In {name} X has {counted(len(X), 'row')} and Y has {len(Y)}; give one row of targets for each input."
        )
    taken = _taken(rows, shuffle, len(X), name)
    shift, factor = _scaling(X, scale)
    targets, classes = _targets(Y, name, task)
    labels = classes
    inputs = (X[taken].astype(np.float64) - shift) * factor
    count = len(inputs)
    if classes is not None and raw.names is not None and len(raw.names) == len(classes):
        classes = raw.names
    found = Dataset(
        inputs, targets[taken], name, classes, scale, count, raw.columns, shuffle, shift, factor, labels
    )  # fmt: skip
    _warn_of_missing_classes(found)
    return found


def read_held_out(
    source: str | os.PathLike[str],
    data: Dataset,
    *,
    target: str | None = None,
    task: str | None = None,
    drop: Sequence[str] = (),
    one_hot: Sequence[str] = (),
) -> tuple[Float64[np.ndarray, "M n0"], Float64[np.ndarray, "M nL"]]:
    """Other rows of a kind with `data`, its inputs scaled as those were, its classes in the same columns.

    Args:
        source: a file, as for `read_data`; target, task, drop, one_hot: as they were given for `data`.

    Returns:
        Inputs (M, n_0) and targets (M, n_L).

    Raises:
        DataError: it cannot be read, has other columns, or has a class that `data` does not have.
    """
    name = os.fspath(source)
    raw = _read(name, target, None, task, tuple(drop), tuple(one_hot))
    X, Y = _numeric_matrix(raw.X, "X", name).astype(np.float64), np.atleast_1d(raw.Y)
    if len(X) != len(Y):
        raise DataError(
            f"In {name} X has {counted(len(X), 'row')} and Y has {len(Y)}; give one row of targets for each input."
        )
    if X.shape[1] != data.X.shape[1] or (raw.columns is not None and raw.columns != data.columns):
        raise DataError(f"{name} has other input columns than {data.name}; give rows of the same kind.")
    if data.shift is not None and data.factor is not None:
        X = (X - data.shift) * data.factor
    if data.labels is None:
        return X, _numeric_matrix(Y, "Y", name).astype(np.float64)
    texts = [str(each) for each in Y.reshape(len(Y), -1)[:, 0]]
    missing = sorted(set(texts) - set(data.labels))
    if missing or Y.size != len(Y):
        raise DataError(f"{name} has classes that {data.name} does not have ({listed(missing)}); leave their rows out.")
    return X, np.eye(len(data.labels))[[data.labels.index(text) for text in texts]]


def _read(
    name: str,
    target: str | None,
    data_dir: str | os.PathLike[str] | None,
    task: str | None,
    drop: Sequence[str],
    one_hot: Sequence[str],
) -> _Raw:
    """Find out what `name` is, and read it."""
    path = Path(name)
    suffix = path.suffix.lower()
    if data_dir is not None and name != "mnist":
        raise DataError(f"A directory of data is for mnist; leave --data-dir out for {name}.")
    if suffix in SUFFIXES:
        table = read_table(path, target, drop=drop, one_hot=one_hot, task=task)
        return _Raw(table.X, table.y, table.columns)
    if target is not None:
        raise DataError(f"A target column is for .csv and .parquet files; leave --target out for {name}.")
    if drop or one_hot:
        raise DataError(f"Columns have names in .csv and .parquet files; leave --drop and --one-hot out for {name}.")
    if suffix == ".npz":
        return _pick_arrays(read_npz(path), path)
    if suffix in (".pt", ".pth"):
        return _read_torch(path)
    if os.path.exists(name) and name not in (*SHIPPED, "mnist"):  # unlike Path.exists, never raises
        raise DataError(f"{name} is of no known format; give a .npz, .csv, .parquet or .pt file.")
    if name == "mnist":
        return _fetch_mnist() if data_dir is None else _read_mnist(Path(data_dir))
    if name in SHIPPED:
        return _load_shipped(name)
    known = suggestion(name.lower(), (*SHIPPED, "mnist")).replace("give one of", "give a file, or one of")
    raise DataError(f"There is no file or data set named {shown(name)}; {known}.")


def _load_shipped(name: str) -> _Raw:
    """A set of scikit-learn's, with its names; the pixels of digits need none."""
    found = getattr(datasets, f"load_{name}")()
    columns = None if name == "digits" else tuple(str(n) for n in found.feature_names)
    names = tuple(str(n) for n in found.target_names) if hasattr(found, "target_names") else None
    return _Raw(np.asarray(found.data), np.asarray(found.target), columns, names)


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
    if matrix.dtype.kind == "f" and matrix.dtype.itemsize != 8:  # half and single precision, and longer than double
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


def _targets(Y: NDArray, source: str, task: str | None) -> tuple[NDArray[np.float64], tuple[str, ...] | None]:
    """Targets (N, n_L): one-hot for one column of classes, else the numbers as they are.

    Where `task` does not say, integers, booleans and strings are classes.
    """
    column = Y[:, 0] if Y.ndim == 2 and Y.shape[1] == 1 else Y
    if task == "classification" and column.ndim == 2:
        raise DataError(f"Y in {source} has {Y.shape[1]} columns; give one column of classes, or leave --task out.")
    if task == "regression" and column.dtype.kind in "SU":
        raise DataError(f"Y in {source} holds texts, not numbers; give numbers, or --task classification.")
    automatic = column.ndim == 1 and column.dtype.kind in "biuU"
    if not (automatic if task is None else task == "classification"):
        return _numeric_matrix(Y, "Y", source).astype(np.float64), None
    if column.dtype.kind != "U":  # numbers that are no classes either: NaN, say
        _numeric_matrix(column, "Y", source)
    classes, codes = np.unique(column, return_inverse=True)
    if len(classes) > CLASSES and 2 * len(classes) > len(column):
        raise DataError(
            f"Y in {source} has {len(classes)} classes on {len(column)} rows; if these are numbers, say so with --task"
            " regression."
        )
    return np.eye(len(classes))[codes], tuple(str(c) for c in classes)


def _warn_of_missing_classes(found: Dataset) -> None:
    if found.classes is None:
        return
    missing = [name for name, present in zip(found.classes, found.Y.sum(axis=0), strict=True) if not present]
    if missing:
        told = f"Among the {counted(found.rows, 'row')} of {found.name} there is none of class {listed(missing)}"
        remedy = "draw them with --shuffle SEED" if found.shuffle is None else "take more of them"
        warnings.warn(f"{told}; {remedy}.", CovoptWarning, stacklevel=3)


def _taken(rows: int | None, shuffle: int | None, available: int, source: str) -> slice | NDArray[np.int64]:
    """Which rows are taken: all, the first ones, or those that a seed draws."""
    if rows is None:
        if shuffle is not None:
            raise DataError("Shuffling draws the rows that --rows takes; give --rows too, or leave --shuffle out.")
        return slice(None)
    if isinstance(rows, bool) or not isinstance(rows, (int, np.integer)):
        raise DataError(f"rows is {shown(rows)}; give a whole number.")
    if not 1 <= rows <= available:
        raise DataError(
            f"rows is {rows}, but {source} has {counted(available, 'row')}; give a number from 1 to {available}."
        )
    if shuffle is None:
        return slice(int(rows))
    if isinstance(shuffle, bool) or not isinstance(shuffle, (int, np.integer)) or shuffle < 0:
        raise DataError(f"The seed of the shuffle is {shown(shuffle)}; give a whole number, at least 0.")
    return np.random.default_rng(int(shuffle)).permutation(available)[: int(rows)]


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
