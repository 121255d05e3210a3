"""New data for a network, scaled and coded like those that it was solved with."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from covopt.data.coding import Coding
from covopt.data.data import numeric_matrix, read_source
from covopt.data.tables import SUFFIXES, read_like
from covopt.runtime.errors import DataError, counted, listed


@dataclass(frozen=True)
class Further:
    """New inputs X (M, n_0), coded like those of the problem, their source, and targets Y (M, n_L).

    `classes` names the class of each column of Y, if the targets are classes.
    """

    X: Float64[np.ndarray, "M n0"]
    name: str
    Y: Float64[np.ndarray, "M nL"] | None = None
    classes: tuple[str, ...] | None = None


def read_further(
    source: str | os.PathLike[str],
    coding: Coding,
    outputs: int,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    targets: bool = True,
) -> Further:
    """Read new data for a network, coded as those that it was solved with; `targets=False` leaves the targets out.

    The columns of a table are found by their names and may stand in any order; further columns are ignored. If the
    network's data had no names, all columns but the target are inputs. Other files hold X, and Y or y for targets.
    """
    name = os.fspath(source)
    X, y = _raw(name, coding, data_dir, targets)
    inputs = coding.inputs(numeric_matrix(X, f"X in {name}"), name)
    if not targets:
        return Further(inputs, name)
    if y is None:  # a table, but the network knows no column of targets
        raise DataError(f"{name} does not say which column holds the targets; give X and Y in a .npz file.")
    if len(y) != len(inputs):
        raise DataError(
            f"In {name} X has {counted(len(inputs), 'row')} and Y has {len(y)}; give one row of targets for each input."
        )
    return Further(inputs, name, _targets(y, coding, outputs, name), coding.classes)


def _raw(
    name: str, coding: Coding, data_dir: str | os.PathLike[str] | None, targets: bool
) -> tuple[NDArray, NDArray | None]:
    path = Path(name)
    if path.suffix.lower() in SUFFIXES:
        task = None if coding.classes is None else "classification"
        others = coding.target or ()
        return read_like(path, coding.columns, others if targets else (), others, task)
    raw = read_source(name, data_dir=data_dir, targets=targets)
    if raw.columns is not None and coding.columns is not None and raw.columns != coding.columns:
        raise DataError(
            f"The inputs of {name} are {listed(raw.columns[:3])}, and those of the network's data"
            f" {listed(coding.columns[:3])}; give data with the same columns."
        )
    return raw.X[:], raw.Y


def _targets(y: NDArray, coding: Coding, outputs: int, name: str) -> Float64[np.ndarray, "M nL"]:
    column = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else np.atleast_1d(y)
    if coding.classes is not None and column.ndim == 1:
        return coding.one_hot(column, name)
    Y = numeric_matrix(y, f"Y in {name}").astype(np.float64)
    if Y.shape[1] != outputs:
        raise DataError(
            f"{name} has {counted(Y.shape[1], 'target')} in each row and the network {counted(outputs, 'output')};"
            " give targets like those that it was solved with."
        )
    return coding.numbers(Y)
