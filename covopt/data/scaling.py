"""Scaling of inputs: by the largest entry, or each column to mean 0 and standard deviation 1.

All rows are measured, a chunk at a time: the rows may be in a file, and a process need not hold them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from covopt.runtime.errors import DataError

SCALES = ("none", "max", "standard")
CHUNK = 2**16
"""Rows that are measured at once."""


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
    """Return (shift, factor), to be used as (X - shift) * factor.

    Args:
        X: inputs (N, n_0).
        scale: none, max or standard.
        weights: how often each row counts, at least 0 (N,); None: each row once.
    """
    if scale == "max":
        largest = max(max(abs(float(rows.max())), abs(float(rows.min()))) for rows, _ in _chunks(X, weights))
        if largest > 0.0:
            return np.zeros(1), np.array([1.0 / largest])
    if scale == "standard":
        return _standard(X, weights)
    return np.zeros(1), np.ones(1)


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
