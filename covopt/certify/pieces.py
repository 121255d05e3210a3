"""Bound from below the distance of functions of one variable with few linear pieces from given values, exactly.

A continuous piecewise linear f with at most k pieces is affine on each of k runs of consecutive samples (a sample at a
kink belongs to either side). So

    min over f of sum_i |f(x_i) - t_i|^2  >=  min over k runs that cover the samples of the sum of their least squares,

where the pieces of different runs need not meet. The least squares of a run with n samples is

    sum over the columns of T of (C_tt C_xx - C_xt^2) / (n C_xx),   C_ab = n sum a b - sum a sum b,

in integers, since floating-point numbers are integers times a power of two (with weights w, the sums are those of
w a b, w a and w b, and n is the sum of w); one division rounds, and is turned down.
The best runs come from dynamic programming. For many samples only runs that begin and end with blocks are compared: a
block within which two runs meet counts as free, which makes the bound smaller, not wrong.

Source: Bai, Perron, Computation and analysis of multiple structural change models (2003), for the runs.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray


def least_squares(
    x: Float[np.ndarray, " N"], T: Float[np.ndarray, "N m"], most: int, weight: Float[np.ndarray, " N"] | None = None
) -> list[float]:
    """Return lower bounds on sum_i w_i |f(x_i) - t_i|^2 over continuous f: R -> R^m of k = 1 ... `most` linear pieces.

    The x, in any order, and T are finite, and w = `weight` is positive, 1 by default.
    """
    order = np.argsort(x, kind="stable")
    # All runs of blocks cost the square of the number of blocks times the columns of T.
    block = -(-len(x) // max(16, math.isqrt(150_000 // T.shape[1])))
    w = np.ones(len(x)) if weight is None else weight
    runs = _runs(_integers(x[order, None])[0][:, 0], _integers(T[order]), _integers(w[order, None]), block)
    best = np.full(len(runs), np.inf)
    largest = np.finfo(np.float64).max  # a sum beyond it is at least it
    best[0] = 0.0
    bounds = []
    for pieces in range(1, most + 1):
        # A run may begin where the last one ended, or one block later.
        begins = best if pieces == 1 or block == 1 else np.minimum(best, np.append(np.inf, best[:-1]))
        best = np.minimum(best, (begins[:, None] + runs).min(axis=0))
        bounds.append(min(float(best[-1]), largest) * max(0.0, 1.0 - pieces * 2.0**-51))
        if bounds[-1] == 0.0:
            bounds += [0.0] * (most - pieces)
            break
    return bounds


def _integers(values: Float[np.ndarray, "N m"]) -> tuple[NDArray[np.object_], int]:
    """Return (A, q) with A / q = values, exactly; A holds Python's integers."""
    ratios = [[float(v).as_integer_ratio() for v in row] for row in values]
    q = max(bottom for row in ratios for _, bottom in row)
    return np.array([[top * (q // bottom) for top, bottom in row] for row in ratios], dtype=object), q


def _runs(
    x: NDArray[np.object_],
    values: tuple[NDArray[np.object_], int],
    weights: tuple[NDArray[np.object_], int],
    block: int,
) -> Float[np.ndarray, "ends ends"]:
    """Entry (i, j): the least squares of an affine function on blocks i ... j - 1, turned down; infinite for j < i."""
    (T, unit), (w, unit_w) = values, weights
    scale = unit * unit * unit_w
    ends = np.array([*range(0, len(x), block), len(x)])
    count = len(ends)
    products = (w[:, 0], w[:, 0] * x, w[:, 0] * x * x, w * T, w * T * T, w * x[:, None] * T)
    sums = [np.insert(np.cumsum(terms, axis=0), 0, 0, axis=0)[ends] for terms in products]  # of the rows up to each end
    costs = np.full((count, count), np.inf)
    np.fill_diagonal(costs, 0.0)
    for i in range(count - 1):
        Sw, Sx, Sxx, St, Stt, Sxt = (total[i + 1 :] - total[i] for total in sums)
        for j, n in enumerate(Sw):
            Cxx = n * Sxx[j] - Sx[j] * Sx[j]
            Ctt = sum(n * tt - t * t for tt, t in zip(Stt[j], St[j], strict=True))
            if Cxx > 0:
                Cxt = sum((n * xt - Sx[j] * t) ** 2 for xt, t in zip(Sxt[j], St[j], strict=True))
                costs[i, i + 1 + j] = _down(Ctt * Cxx - Cxt, n * Cxx * scale)
            else:
                costs[i, i + 1 + j] = _down(Ctt, n * scale)
    return costs


def _down(top: int, bottom: int) -> float:
    """top / bottom >= 0, rounded down."""
    try:
        return max(0.0, math.nextafter(top / bottom, 0.0))
    except OverflowError:
        return math.nextafter(math.inf, 0.0)
