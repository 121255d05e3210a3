"""How a data set became the numbers of a problem, so that further data become numbers in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from covopt.errors import DataError, counted, listed, shown

SHIFT, FACTOR = "shift", "factor"
_TEXTS: tuple[str, ...] = ("columns", "classes", "labels", "target")
_SHOWN = 6
"""Classes that a message lists, at most."""


@dataclass(frozen=True)
class Coding:
    """Inputs become (X - shift) * factor, and labels one-hot rows.

    Attributes:
        shift, factor: one for each input.
        columns: the names of the inputs; None where the source had none.
        classes: the name of each column of Y; None where the targets are numbers.
        labels: the classes as the source writes them; the same, but for sets that name their numbers.
        target: the table's column that held the targets; None for other sources.
    """

    shift: Float64[np.ndarray, " n0"]
    factor: Float64[np.ndarray, " n0"]
    columns: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    labels: tuple[str, ...] | None = None
    target: str | None = None

    @classmethod
    def unscaled(cls, inputs: int, columns: tuple[str, ...] | None) -> Coding:
        """Return the coding of inputs that are used as they are."""
        return cls(np.zeros(inputs), np.ones(inputs), columns)

    def arrays(self) -> dict[str, NDArray]:
        """For `problem.npz`; what is unknown is left out."""
        target = None if self.target is None else (self.target,)
        texts = zip(_TEXTS, (self.columns, self.classes, self.labels, target), strict=True)
        named = {name: np.array(value, dtype=np.str_) for name, value in texts if value is not None}
        return {SHIFT: self.shift, FACTOR: self.factor} | named

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray], inputs: int, outputs: int) -> Coding | None:
        """What `arrays` returned; None where the run says nothing of it.

        Raises:
            DataError: the arrays are of other kinds or sizes.
        """
        if SHIFT not in arrays and FACTOR not in arrays:
            return None
        numbers = [arrays.get(name, np.empty(0)) for name in (SHIFT, FACTOR)]
        sizes: dict[str, int] = dict(zip(_TEXTS, (inputs, outputs, outputs, 1), strict=True))
        texts = {name: arrays[name] for name in _TEXTS if name in arrays}
        fine = all(each.dtype == np.float64 and each.shape == (inputs,) and np.isfinite(each).all() for each in numbers)
        fine &= all(each.dtype.kind == "U" and each.shape == (sizes[name],) for name, each in texts.items())
        if not fine or ("classes" in texts) != ("labels" in texts):
            raise DataError("problem.npz does not say how its data were coded; solve again.")
        columns, classes, labels, target = (
            tuple(str(word) for word in texts[name]) if name in texts else None for name in _TEXTS
        )
        return cls(numbers[0], numbers[1], columns, classes, labels, None if target is None else target[0])

    def inputs(self, X: NDArray, source: str) -> Float64[np.ndarray, "M n0"]:
        """Inputs as the problem has them.

        Raises:
            DataError: another number of columns.
        """
        if X.shape[1] != len(self.shift):
            raise DataError(
                f"{source} has {counted(X.shape[1], 'input')} and the network takes {len(self.shift)}; give the columns"
                " that it was solved with."
            )
        return (X.astype(np.float64) - self.shift) * self.factor

    def one_hot(self, y: NDArray, source: str) -> Float64[np.ndarray, "M nL"]:
        """Labels as one-hot rows, each class in the column that it has in the problem.

        Raises:
            DataError: a label that is none of the classes.
        """
        if self.classes is None or self.labels is None:
            raise ValueError("the targets are numbers")
        places = {_key(label): place for place, label in enumerate(self.classes)}
        places |= {_key(label): place for place, label in enumerate(self.labels)}
        unknown = next((label for label in y.tolist() if _key(label) not in places), None)
        if unknown is not None:
            known = listed(self.classes[:_SHOWN]) + (" ..." if len(self.classes) > _SHOWN else "")
            raise DataError(
                f"{source} has the class {shown(unknown)}, which the network does not know; its classes are {known}:"
                " remove those rows."
            )
        return np.eye(len(self.classes))[[places[_key(label)] for label in y.tolist()]]


def _key(label: object) -> object:
    """A label by which files of several formats agree: a number is the same as its text, 1 as 1.0."""
    try:
        return float(str(label))
    except ValueError:
        return str(label).strip()
