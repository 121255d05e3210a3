"""The coding of a data set as inputs and targets, so that new data can be coded alike.

**Scaling** of inputs: by the largest entry, or each column to mean 0 and standard deviation 1.

All rows are measured, a chunk at a time: the rows may be in a file, and a process need not hold them all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import NDArray

from covopt.runtime.errors import CovoptWarning, DataError, counted, listed, shown

SCALES = ("none", "max", "standard")
CHUNK = 2**16  # rows that are measured at once


@runtime_checkable
class Rows(Protocol):
    """A matrix, or a vector as its single column, from which rows can be read."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> NDArray: ...


def check_scale(scale: object) -> None:
    """Raise a DataError unless `scale` is one of SCALES."""
    if not isinstance(scale, str) or scale not in SCALES:
        raise DataError(f"The scale '{scale}' is unknown; use one of {', '.join(SCALES)}.")


def scaling(
    X: Rows, scale: str, weights: NDArray[np.float64] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (shift, factor), to be used as (X - shift) * factor; the scale is none, max or standard.

    `weights` say how often each row counts, at least 0, by default once.
    """
    if scale == "max":
        largest = max(max(abs(float(rows.max())), abs(float(rows.min()))) for rows, _ in _chunks(X, weights))
        if largest > 0.0:
            return np.zeros(1), np.array([1.0 / largest])
    return _standard(X, weights) if scale == "standard" else (np.zeros(1), np.ones(1))


def _standard(X: Rows, weights: NDArray[np.float64] | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean and 1 / deviation of each column; a constant column becomes 0."""
    mean = _mean(X, weights, lambda rows: rows)
    deviation = np.sqrt(_mean(X, weights, lambda rows: (rows - mean) ** 2))
    first = np.asarray(next(_chunks(X, weights))[0][0], dtype=np.float64)
    varies = np.zeros(len(first), dtype=bool)
    for rows, _ in _chunks(X, weights):
        varies |= (rows != first).any(axis=0)
    return np.where(varies, mean, first), np.where(varies, 1.0 / np.where(varies, deviation, 1.0), 0.0)


def _mean(X: Rows, weights: NDArray[np.float64] | None, of: Callable[[NDArray], NDArray]) -> NDArray[np.float64]:
    """Return sum_i s_i f(x_i) / sum_i s_i, entrywise."""
    total, count = 0.0, 0.0
    for rows, weight in _chunks(X, weights):
        values = of(rows) if weight is None else np.multiply(of(rows), weight[:, None])
        total = total + values.sum(axis=0, dtype=np.float64)
        count += len(rows) if weight is None else weight.sum()
    return np.asarray(total / count)


def _chunks(X: Rows, weights: NDArray[np.float64] | None) -> Iterator[tuple[NDArray, NDArray[np.float64] | None]]:
    """Yield chunks of rows and their weights; rows of weight 0 are left out."""
    for start in range(0, len(X), CHUNK):
        rows = np.asarray(X[start : start + CHUNK])
        rows = rows.reshape(len(rows), -1)
        if weights is None:
            yield rows, None
        elif (positive := weights[start : start + CHUNK] > 0.0).any():
            yield rows[positive], weights[start : start + CHUNK][positive]


SHIFT, FACTOR, MEAN, DEVIATION = "shift", "factor", "mean", "deviation"
_TEXTS: tuple[str, ...] = ("columns", "classes", "labels", "target")
TASKS = ("regression", "classification")
CLASSIFYING = ("cross_entropy", "logistic")  # the losses for classes


@dataclass(frozen=True)
class Labels:
    """Classes in their order, and the index of each row's class."""

    classes: tuple[str, ...]
    codes: Int64[np.ndarray, " N"]

    @property
    def one_hot(self) -> Float64[np.ndarray, "N classes"]:
        """Return a column of 0 and 1 for each class."""
        return np.eye(len(self.classes))[self.codes]


def labels_of(Y: NDArray, name: str, task: str | None = None, loss: str | None = None) -> Labels | None:
    """Return the labels if the targets of all rows, (N,) or (N, n_L), are classes, or None if they are numbers.

    Texts and booleans are classes, and so are integers of at most 20 values on five times as many rows, with a
    CovoptWarning that says so. All other targets are numbers, and so is each matrix except a column of texts. A task
    overrides this rule; without a task, a loss for classes reads whole numbers as classes. A DataError, in which the
    targets are called `name`, refuses targets that do not suit the task, and too many classes for one-hot rows.
    """
    if task is not None and task not in TASKS:
        raise DataError(f"The task {shown(task)} is unknown; use {' or '.join(TASKS)}.")
    Y = _plain(Y, name)
    column = Y[:, 0] if Y.ndim == 2 and Y.shape[1] == 1 else Y
    if Y.ndim == 2 and column.ndim == 2 and task == "classification":
        raise DataError(f"{name} has {Y.shape[1]} columns; give one column of classes, or leave the task out.")
    if column.dtype.kind == "U" and task == "regression":
        raise DataError(f"{name} holds texts, not numbers; give numbers, or the task classification.")
    if column.ndim != 1 or column.size == 0 or not _are_classes(column, Y.ndim == 1, name, task, loss):
        return None
    classes, codes = np.unique(column, return_inverse=True)
    if len(classes) > 1000 and 2 * len(classes) > len(column):  # their one-hot rows are huge
        raise DataError(
            f"{name} has {len(classes)} classes on {len(column)} rows; give fewer classes, or numbers and the task"
            " regression."
        )
    return Labels(tuple(str(label) for label in classes), codes)


def _are_classes(column: NDArray, flat: bool, name: str, task: str | None, loss: str | None) -> bool:
    """Return True if a column holds classes; `flat` is True if Y was a vector."""
    kind = column.dtype.kind
    if kind == "U":
        return True
    if task is not None:
        return task == "classification" and kind in "biuf" and bool(np.isfinite(column).all())
    if loss in CLASSIFYING:
        whole = kind == "f" and flat and loss == "cross_entropy" and not (column % 1.0).any()
        return kind in "biu" or whole
    if not flat or kind not in "biu":
        return False
    if kind == "b":
        return True
    values = len(np.unique(column))
    few = values <= 20 and 5 * values <= len(column)
    wording = (counted(values, "class"), "regression", "numbers") if few else ("numbers", "classification", "classes")
    warnings.warn(
        f"{name} holds integers, which are read as {wording[0]}; the task {wording[1]} reads them as {wording[2]}.",
        CovoptWarning,
        stacklevel=4,
    )
    return few


def _plain(Y: NDArray, name: str) -> NDArray:
    """Return an array of objects that are all texts, booleans or integers with that type; else Y."""
    if Y.dtype.kind == "T":
        return Y.astype(np.str_)
    if Y.dtype.kind != "O":
        return Y
    values = Y.ravel().tolist()
    kinds = ((str, np.str_), (bool, np.bool_), (Integral, np.int64))
    plain = next((dtype for kind, dtype in kinds if all(isinstance(value, kind) for value in values)), None)
    if plain is None and any(isinstance(value, str) for value in values):
        odd = next(value for value in values if not isinstance(value, str))
        raise DataError(f"{name} holds texts and {shown(odd)}; give texts alone, without missing ones.")
    try:
        return Y if plain is None else Y.astype(plain)
    except OverflowError:
        return Y


def targets_in_words(Y: NDArray[np.float64], classes: tuple[str, ...] | None) -> str | None:
    """Describe how targets are read; None for one output of numbers that cannot be mistaken for classes."""
    if classes is None:
        several = [counted(Y.shape[1], "output")] if Y.shape[1] > 1 else []
        return ", ".join([*several, *([] if (Y % 1.0).any() else ["targets read as numbers"])]) or None
    rows = Y.sum(axis=0) if Y.shape[1] == len(classes) else np.array([(Y < 0.0).sum(), (Y > 0.0).sum()])
    missing = int((rows == 0.0).sum())
    one_hot = f"{counted(len(classes), 'class')}, one-hot"
    return f"{one_hot} ({missing} not among the rows)" if missing else one_hot


@dataclass(frozen=True)
class Coding:
    """Inputs become (X - shift) * factor, labels one-hot rows, and numbers (Y - mean) / deviation."""

    shift: Float64[np.ndarray, " n0"]
    factor: Float64[np.ndarray, " n0"]
    columns: tuple[str, ...] | None = None  # the names of the inputs; None if the source had none
    classes: tuple[str, ...] | None = None  # the name of each column of Y; None if the targets are numbers
    # the classes as the source writes them; they differ from `classes` if the source names its numbers
    labels: tuple[str, ...] | None = None
    target: tuple[str, ...] | None = None  # the columns of a table that held the targets; None for other sources
    mean: Float64[np.ndarray, " nL"] | None = None  # None if the targets are used as they are
    deviation: Float64[np.ndarray, " nL"] | None = None  # None if the targets are used as they are

    @classmethod
    def unscaled(cls, inputs: int, columns: tuple[str, ...] | None, classes: tuple[str, ...] | None = None) -> Coding:
        """Return the coding of inputs that are used as they are."""
        return cls(np.zeros(inputs), np.ones(inputs), columns, classes, classes)

    @classmethod
    def measured(
        cls,
        X: NDArray[np.float64],
        Y: NDArray[np.float64],
        scale: str,
        weights: NDArray[np.float64] | None = None,
        columns: tuple[str, ...] | None = None,
        classes: tuple[str, ...] | None = None,
    ) -> Coding:
        """Return the coding that scales inputs, and by `standard` also targets that are numbers.

        All outputs are divided by one number, the root of the sum of their variances, so that their errors keep their
        shares of the loss; the constant function mean Y then has the mean squared error 1. Scale and weights are those
        of `scaling`; `columns` and `classes` name the inputs and the columns of Y (None: targets that are numbers).
        """
        check_scale(scale)
        shift, factor = (np.broadcast_to(numbers, X.shape[1:]).copy() for numbers in scaling(X, scale, weights))
        coding = cls(shift, factor, columns, classes, classes)
        if classes is not None or scale != "standard":
            return coding
        mean, inverse = scaling(Y, scale, weights)
        deviation = np.sqrt((inverse[inverse > 0.0] ** -2.0).sum()) or 1.0
        return replace(coding, mean=mean, deviation=np.full(len(mean), deviation))

    def arrays(self) -> dict[str, NDArray]:
        """Return the coding as arrays for `problem.npz`; unknown parts are omitted."""
        texts = {name: getattr(self, name) for name in _TEXTS}
        named = {name: np.array(value, dtype=np.str_) for name, value in texts.items() if value is not None}
        moved = {} if self.mean is None or self.deviation is None else {MEAN: self.mean, DEVIATION: self.deviation}
        return {SHIFT: self.shift, FACTOR: self.factor} | named | moved

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray], inputs: int, outputs: int) -> Coding | None:
        """Return the coding that `arrays` stored, or None; raise a DataError for wrong types or sizes."""
        if SHIFT not in arrays and FACTOR not in arrays:
            return None
        numbers = [arrays.get(name, np.empty(0)) for name in (SHIFT, FACTOR)]
        moved = [arrays.get(name, np.empty(0)) for name in (MEAN, DEVIATION) if MEAN in arrays or DEVIATION in arrays]
        classes = 2 if outputs == 1 and len(arrays.get("classes", ())) == 2 else outputs  # logistic has one output
        targets = 1 if "classes" in arrays else outputs
        sizes: dict[str, int] = dict(zip(_TEXTS, (inputs, classes, classes, targets), strict=True))
        texts = {name: arrays[name] for name in _TEXTS if name in arrays}
        expected = [*zip(numbers, (inputs, inputs), strict=True), *((A, outputs) for A in moved)]
        fine = all(A.dtype == np.float64 and A.shape == (n,) and np.isfinite(A).all() for A, n in expected)
        fine &= not moved or bool((moved[1] > 0.0).all())
        fine &= all(words.dtype.kind == "U" and words.shape == (sizes[name],) for name, words in texts.items())
        if not fine or ("classes" in texts) != ("labels" in texts):
            raise DataError("problem.npz does not say how its data were coded; solve again.")
        words = {name: tuple(map(str, entries)) for name, entries in texts.items()}
        mean, deviation = moved or (None, None)
        return cls(numbers[0], numbers[1], **words, mean=mean, deviation=deviation)

    def inputs(self, X: NDArray, source: str) -> Float64[np.ndarray, "M n0"]:
        """Return the inputs, shifted and scaled; raise a DataError for another number of columns."""
        if X.shape[1] != len(self.shift):
            raise DataError(
                f"{source} has {counted(X.shape[1], 'input')} and the network takes {len(self.shift)}; give the columns"
                " that it was solved with."
            )
        return (X.astype(np.float64) - self.shift) * self.factor

    def numbers(self, Y: NDArray[np.float64]) -> Float64[np.ndarray, "M nL"]:
        """Return targets in the units of the problem."""
        return Y if self.mean is None or self.deviation is None else (Y - self.mean) / self.deviation

    def outputs(self, F: NDArray[np.float64]) -> Float64[np.ndarray, "M nL"]:
        """Return the outputs of a network in the units of the data."""
        return F if self.mean is None or self.deviation is None else F * self.deviation + self.mean

    def one_hot(self, y: NDArray, source: str) -> Float64[np.ndarray, "M nL"]:
        """Return labels as one-hot rows; raise a DataError for a label that is not one of the classes."""
        if self.classes is None or self.labels is None:
            raise ValueError("the targets are numbers")
        places = {_key(label): place for place, label in enumerate(self.classes)}
        places |= {_key(label): place for place, label in enumerate(self.labels)}
        unknown = next((label for label in y.tolist() if _key(label) not in places), None)
        if unknown is not None:
            shown_classes = listed(self.classes[:6]) + (" ..." if len(self.classes) > 6 else "")
            raise DataError(
                f"{source} has the class {shown(unknown)}, which the network does not know; its classes are"
                f" {shown_classes}: remove those rows."
            )
        return np.eye(len(self.classes))[[places[_key(label)] for label in y.tolist()]]


def _key(label: object) -> object:
    """Return a key that is the same for 1, 1.0 and their texts, as file formats differ in these."""
    try:
        return float(str(label))
    except ValueError:
        return str(label).strip()
