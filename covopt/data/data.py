"""Sources of data: files, the data sets that scikit-learn ships, and MNIST; none is trusted.

Classes become one-hot rows, with a column for each class of the whole set, whatever rows `rows` takes (`labels_of` in
coding.py decides which targets are classes). Other targets are numbers and stay as they are.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float64
from numpy.typing import NDArray

from covopt.data.arrays import LARGEST, read_npz, share_of
from covopt.data.coding import Coding, check_scale, labels_of, scaling, targets_in_words
from covopt.data.mnist import fetch_mnist, read_mnist
from covopt.data.row_groups import GroupedRows
from covopt.data.tables import SUFFIXES, Raw, read_table, suggestion
from covopt.data.tensors import as_array, read_torch
from covopt.runtime.errors import CovoptWarning, DataError, counted, listed, shown
from covopt.runtime.lazy import lazy
from covopt.runtime.options import checked

if TYPE_CHECKING:
    from sklearn import datasets
else:
    datasets = lazy("sklearn.datasets")

SHIPPED = ("breast_cancer", "diabetes", "digits", "iris", "linnerud", "wine")
"""Data sets that scikit-learn ships; its `load_NAME` reads them."""
TEXTS = (".txt", ".tsv", ".dat", ".data")  # suffixes of text files that may be tables
NAMES = ("X", "Y", "y", "weights")  # the arrays that an archive may hold


@dataclass(frozen=True)
class Dataset:
    """Inputs and targets of a problem.

    Attributes:
        X: inputs (N, n_0), scaled.
        Y: targets (N, n_L), one-hot for classes.
        name: of the source; scale: none, max or standard; rows: N.
        classes: the class of each column of Y; None if the targets are numbers.
        columns: the names of the inputs; None if the source has none.
        shuffle: the seed that drew the rows; None if they are the first ones, or all.
        weights: the positive weights of the rows (N,); None if the source has none.
        coding: how the source became X and Y.
    """

    X: Float64[np.ndarray, "N n0"]
    Y: Float64[np.ndarray, "N nL"]
    name: str
    classes: tuple[str, ...] | None
    scale: str
    rows: int
    columns: tuple[str, ...] | None = None
    shuffle: int | None = None
    weights: Float64[np.ndarray, " N"] | None = None
    coding: Coding | None = None

    @property
    def targets(self) -> str | None:
        """Describe how the targets are read; None for numbers that cannot be mistaken for classes."""
        return targets_in_words(self.Y, self.classes)


@checked
def read_data(
    source: str | os.PathLike[str],
    *,
    target: str | Sequence[str] | None = None,
    rows: int | None = None,
    scale: str = "none",
    data_dir: str | os.PathLike[str] | None = None,
    task: str | None = None,
    loss: str | None = None,
    shuffle: int | None = None,
    drop: Sequence[str] = (),
    one_hot: Sequence[str] = (),
    weights: str | None = None,
    share: tuple[int, int] | None = None,
    rest: bool = False,
) -> Dataset:
    """Read a data set.

    >>> data = covopt.read_data("iris", scale="standard")
    >>> data.X.shape, data.Y.shape, data.classes
    ((150, 4), (150, 3), ('setosa', 'versicolor', 'virginica'))

    Args:
        source: a file (.npz with X and Y or y, and weights where it has some; .csv or .parquet with `target`; .pt with
            tensors of these names), the name of a set that scikit-learn ships (digits, iris, ...), or mnist.
        target: the column of a table that holds the targets, or several columns of numbers; all others are inputs.
        rows: the number of rows to take: the first ones, or random ones with `shuffle`; None takes all.
        scale: none; max divides X by max|X|; standard gives every column mean 0 and standard deviation 1 (a constant
            column becomes 0). Both measure the whole set, each row as often as its weight says.
        data_dir: the directory with the files of mnist; None fetches them from OpenML.
        task: regression, the targets are numbers; classification, they are classes; None: classes if they are texts,
            booleans, or integers of at most 20 values on five times as many rows.
        loss: the loss that the data are for; without a task, cross_entropy and logistic read whole numbers as classes.
        shuffle: the seed that draws `rows` from the whole set, without repetition.
        drop: columns of a table that are not inputs.
        one_hot: columns of a table whose texts become columns of 0 and 1, named COLUMN=TEXT.
        weights: the column of a table that holds the weights of the rows, at least 0; it is not an input.
        share: (k, K): split the rows into K about equal parts and return part k = 0 ... K - 1. Other rows of X are read
            only to measure a scale, if the file is an uncompressed .npz or mnist file; a .parquet file is read by the
            row groups that hold rows of this part.
        rest: read the rows that `rows` and `shuffle` do not take, instead of those that they take.

    Returns:
        Inputs X (N, n_0) and targets Y (N, n_L), one-hot for classes, with their name, classes and scale; rows of
        weight 0 are left out.

    Raises:
        DataError: one sentence that says what is wrong and what to do.

    Warns:
        CovoptWarning: a class is missing among the rows that are taken, or integers were read without a task.
    """
    check_scale(scale)
    name = os.fspath(source)
    drop, one_hot = _names(drop, "drop"), _names(one_hot, "one_hot")
    targeted = () if target is None else _names(target, "target")
    raw = _read(name, targeted, data_dir, task, drop, one_hot, weights, mapped=share is not None)
    if raw.Y is None:
        raise ValueError("a source that was to have targets has none")
    X, Y = raw.X, np.atleast_1d(raw.Y)
    if share is None and not isinstance(X, GroupedRows):
        X = numeric_matrix(X, f"X in {name}")
    if len(X) != len(Y):
        raise DataError(
            f"In {name} X has {counted(len(X), 'row')} and Y has {len(Y)}; give one row of targets for each input."
        )
    taken = _taken(rows, shuffle, len(X), name, rest)
    if share is not None:
        taken = _part(taken, len(X), share, name)
    weighed = None if raw.weights is None else _weights(raw.weights, len(X), name)
    mine = numeric_matrix(X[taken], f"X in {name}") if share else X[taken]
    shift, factor = scaling(X, scale, weighed)
    targets, labels = _targets(Y, name, raw.task if task is None else task, loss, taken)
    inputs = (mine.astype(np.float64) - shift) * factor
    if weighed is not None:
        inputs, targets, weighed = _without_zeros(inputs, targets, weighed[taken], name)
    named = labels is not None and raw.names is not None and len(raw.names) == len(labels)
    classes = raw.names if named else labels
    shift, factor = (np.broadcast_to(numbers, inputs.shape[1:]).copy() for numbers in (shift, factor))
    coding = Coding(shift, factor, raw.columns, classes, labels, targeted or None)
    dataset = Dataset(
        inputs, targets, name, classes, scale, len(inputs), raw.columns, shuffle, weights=weighed, coding=coding
    )
    if share is None and not rest:
        _warn_of_missing_classes(dataset)
    return dataset


def _names(values: Sequence[str], what: str) -> tuple[str, ...]:
    names: list[object] = [values] if isinstance(values, str) or not isinstance(values, Iterable) else list(values)
    if not all(isinstance(name, str) for name in names):
        raise DataError(f"{what} is {shown(values)}; give the names of columns.")
    return tuple(str(name) for name in names)


def _read(
    name: str,
    target: Sequence[str],
    data_dir: str | os.PathLike[str] | None,
    task: str | None,
    drop: Sequence[str],
    one_hot: Sequence[str],
    weights: str | None,
    mapped: bool,
) -> Raw:
    """Read a table, or any other source, after checking that the options suit it."""
    path = Path(name)
    suffix = path.suffix.lower()
    _check_directory(name, data_dir)
    if suffix in SUFFIXES:
        return read_table(path, target, drop=drop, one_hot=one_hot, task=task, weights=weights, mapped=mapped)
    if suffix in TEXTS:
        raise DataError(f"{name} is of no known format; if it is a table with commas, rename it to .csv.")
    if target:
        raise DataError(f"A target column is for .csv and .parquet files; leave --target out for {name}.")
    if weights is not None:
        raise DataError(
            f"A column of weights is for .csv and .parquet files; leave --weights out for {name}, and put an array"
            " weights into a .npz or .pt file."
        )
    if drop or one_hot:
        raise DataError(f"Columns have names in .csv and .parquet files; leave --drop and --one-hot out for {name}.")
    return read_source(name, data_dir=data_dir, mapped=mapped)


def read_source(
    name: str, *, data_dir: str | os.PathLike[str] | None = None, targets: bool = True, mapped: bool = False
) -> Raw:
    """Return the arrays of any source but a table, with targets if `targets`; `mapped` as for `read_npz`."""
    path = Path(name)
    suffix = path.suffix.lower()
    _check_directory(name, data_dir)
    if suffix == ".npz":
        return _pick_arrays(read_npz(path, mapped), path, targets)
    if suffix in (".pt", ".pth"):
        return _read_torch(path, targets)
    if os.path.isdir(name):
        raise DataError(f"{name} is a directory; give a file.")
    if os.path.exists(name) and name not in (*SHIPPED, "mnist"):  # unlike Path.exists, never raises
        raise DataError(f"{name} is of no known format; give a .npz, .csv, .parquet or .pt file.")
    if name == "mnist":
        return Raw(*(fetch_mnist() if data_dir is None else read_mnist(Path(data_dir), mapped)), task="classification")
    if name in SHIPPED:
        return _load_shipped(name)
    advice = suggestion(name.lower(), (*SHIPPED, "mnist")).replace("give one of", "give a file, or one of")
    raise DataError(f"There is no file or data set named {shown(name)}{advice}.")


def _check_directory(name: str, data_dir: str | os.PathLike[str] | None) -> None:
    if data_dir is not None and name != "mnist":
        raise DataError(f"A directory of data is for mnist; leave --data-dir out for {name}.")


def _load_shipped(name: str) -> Raw:
    """Return a data set of scikit-learn's with its names; the pixels of digits have none."""
    bunch = getattr(datasets, f"load_{name}")()
    columns = None if name == "digits" else tuple(str(n) for n in bunch.feature_names)
    names = tuple(str(n) for n in bunch.target_names) if hasattr(bunch, "target_names") else None
    task = "classification" if bunch.target.dtype.kind == "i" else "regression"
    return Raw(np.asarray(bunch.data), np.asarray(bunch.target), columns, names, task=task)


# ---- from a source to X and Y


def numeric_matrix(values: NDArray, name: str) -> NDArray:
    """Return a finite, non-empty numeric (N, n) matrix of the same type; a vector is a column."""
    if values.dtype.kind not in "buif":
        raise DataError(f"{name} does not hold real numbers (its type is {values.dtype}); give numbers.")
    matrix = values[:, None] if values.ndim == 1 else values
    if matrix.ndim != 2:
        raise DataError(f"{name} has {values.ndim} dimensions; give a matrix with one row for each sample.")
    if matrix.size == 0:
        raise DataError(f"{name} is empty (shape {values.shape}); give at least one row and one column.")
    if matrix.dtype.kind == "f" and matrix.dtype.itemsize != 8:  # of other precision than float64
        with np.errstate(over="ignore"):
            matrix = matrix.astype(np.float64)
    if matrix.dtype.kind == "f" and not np.isfinite(matrix).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(matrix))[0])
        raise DataError(
            f"{name} has NaN or infinite entries (first at row {row}, column {column}, counted from 0); remove"
            " or impute them."
        )
    if matrix.dtype.kind == "f" and max(matrix.max(), -matrix.min()) > LARGEST:
        raise DataError(f"{name} has entries beyond {LARGEST:g}; divide it by its largest entry.")
    return matrix


def _targets(
    Y: NDArray, source: str, task: str | None, loss: str | None, taken: slice | NDArray[np.int64]
) -> tuple[NDArray[np.float64], tuple[str, ...] | None]:
    """Return the targets (N, n_L) of the rows taken, one-hot for classes, and the classes."""
    labels = labels_of(Y, f"Y in {source}", task, loss)
    if labels is None:
        return numeric_matrix(Y, f"Y in {source}")[taken].astype(np.float64), None
    return np.eye(len(labels.classes))[labels.codes[taken]], labels.classes


def _warn_of_missing_classes(dataset: Dataset) -> None:
    if dataset.classes is None:
        return
    missing = [name for name, present in zip(dataset.classes, dataset.Y.sum(axis=0), strict=True) if not present]
    if missing:
        sentence = (
            f"Among the {counted(dataset.rows, 'row')} of {dataset.name} there is none of class {listed(missing)}"
        )
        remedy = "draw them with shuffle=SEED or --shuffle SEED" if dataset.shuffle is None else "take more of them"
        warnings.warn(f"{sentence}; {remedy}.", CovoptWarning, stacklevel=3)


def _taken(
    rows: int | None, shuffle: int | None, available: int, source: str, complement: bool
) -> slice | NDArray[np.int64]:
    """Return the rows to take: all, the first ones, or those a seed draws; or the complement."""
    if complement and (rows is None or rows == available):
        raise DataError(f"All rows of {source} are taken, and no rest is left to test on; take fewer with --rows.")
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
        return slice(int(rows), None) if complement else slice(int(rows))
    if isinstance(shuffle, bool) or not isinstance(shuffle, (int, np.integer)) or shuffle < 0:
        raise DataError(f"The seed of the shuffle is {shown(shuffle)}; give a whole number, at least 0.")
    order = np.random.default_rng(int(shuffle)).permutation(available)
    return order[int(rows) :] if complement else order[: int(rows)]


def _part(
    taken: slice | NDArray[np.int64], available: int, share: tuple[int, int], source: str
) -> slice | NDArray[np.int64]:
    """Return the selected rows that one process holds."""
    count = len(range(available)[taken]) if isinstance(taken, slice) else len(taken)
    k, K = share
    start, stop = share_of(count, K)[k : k + 2]
    if start == stop:
        raise DataError(f"{counted(count, 'row')} of {source} are fewer than the {K} processes; start fewer.")
    return slice(start, stop) if isinstance(taken, slice) else taken[start:stop]


def _weights(values: NDArray, rows: int, source: str) -> NDArray[np.float64]:
    """Return the weights of the rows, checked: at least 0 and not all 0."""
    weights = numeric_matrix(values, f"weights in {source}").astype(np.float64)
    if weights.shape != (rows, 1):
        raise DataError(f"weights in {source} hold {weights.size} numbers; give one for each of the {rows} rows of X.")
    if weights.min() < 0.0:
        row = int(weights[:, 0].argmin())
        raise DataError(f"weights in {source} have {weights[row, 0]:g} at index {row}; give weights of at least 0.")
    if not weights.any():
        raise DataError(f"weights in {source} are all 0; give at least one row a positive weight.")
    return weights[:, 0]


def _without_zeros(
    X: NDArray[np.float64], Y: NDArray[np.float64], weights: NDArray[np.float64], source: str
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the rows of positive weight."""
    positive = weights > 0.0
    if not positive.any():
        raise DataError(f"All rows of {source} that are taken have weight 0; take more of them.")
    return (X, Y, weights) if positive.all() else (X[positive], Y[positive], weights[positive])


# ---- archives of arrays and tensors


def _pick_arrays(arrays: Mapping[str, NDArray], path: Path, targets: bool = True) -> Raw:
    contents = f"it holds {listed(sorted(arrays))}"
    if "X" not in arrays:
        raise DataError(f"{path} has no X ({contents}); name the inputs X and the targets Y.")
    if not targets:
        return Raw(arrays["X"], None)
    if "Y" not in arrays and "y" not in arrays:
        raise DataError(f"{path} has no Y or y ({contents}); name the inputs X and the targets Y.")
    if "Y" in arrays and "y" in arrays:
        raise DataError(f"{path} has targets Y and targets y; keep one of them.")
    return Raw(arrays["X"], arrays["Y"] if "Y" in arrays else arrays["y"], weights=arrays.get("weights"))


def _read_torch(path: Path, targets: bool = True) -> Raw:
    """Read a file of torch.save with a dictionary of tensors; nothing else is unpickled."""
    remedy = "save the tensors with torch.save({'X': X, 'Y': Y}, file)"
    content = read_torch(path, remedy)
    if not isinstance(content, Mapping):
        raise DataError(f"{path} holds a {type(content).__name__}, not a dictionary with X and Y; {remedy}.")
    tensors = {key: value for key, value in content.items() if isinstance(value, torch.Tensor)}
    return _pick_arrays({str(k): as_array(v, str(k), path) for k, v in tensors.items() if k in NAMES}, path, targets)
