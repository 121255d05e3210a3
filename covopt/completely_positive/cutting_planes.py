"""Copositive C with <A, C> < 0 by cutting planes, for A that is not completely positive.

The master problem is min <A, C> over |C_ij| <= 1 and x^T C x >= 0 for the x found so far, a linear programme. New x are
points of the simplex where x^T C x is negative: its critical points on all faces up to order 10, local minima beyond.
With delta at least -min x^T C x over the simplex, C + delta J is copositive, J all ones. The caller has to prove that
delta is large enough, because local minima can all miss the global minimum.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog

from covopt.completely_positive.prepared import Matrix
from covopt.runtime.loop import leavable, past

Points = Float[np.ndarray, "m n"]


def by_cutting_planes(A: Matrix, seed: int, deadline: float) -> Iterator[Matrix]:
    """Yield candidates C + delta J that separate A.

    Beyond order 10, C lies half way from the master problem's solution to a core, the best matrix so far that seems to
    be copositive: cuts are deeper there than at the solution, a vertex far outside the cone.

    Args:
        A: with a unit diagonal.
        seed: the seed of the starts for local minima.
        deadline: of time.perf_counter().
    """
    n, rng = len(A), np.random.default_rng(seed)
    first = points = np.unique((np.eye(n)[:, None] + np.eye(n)[None]).reshape(-1, n), axis=0)
    core, everywhere = np.ones((n, n)), np.triu_indices(n)
    few = n <= 10  # small enough to visit all faces of the simplex in each round
    digits = 2.0**-30  # candidates are whole multiples of it: few digits keep exact arithmetic short
    for _ in range(300):
        solved = None if past(deadline) else least_product(A, points, everywhere, 1.0, deadline)
        if solved is None or (A * solved[0]).sum() > -1e-9:
            return
        C, slack = solved
        if not few:  # points far from their cut are dropped again, or the programme would grow with every round
            points, C = np.concatenate([first, points[slack < 0.05]]), (C + core) / 2.0
        values, minima = _critical_points(C) if few else _local_minima(C, rng)
        delta = max(0.0, -float(values.min(initial=0.0)))
        if (A * (C + delta)).sum() < 0.0:
            yield np.ceil((C + 1.01 * delta) / digits + 4.0) * digits
        raised = (C + delta) / max(float(np.abs(C + delta).max()), digits)
        if (A * raised).sum() < (A * core).sum():
            core = raised
        elif not len(values) or values.min() > -1e-12:
            return
        points = np.concatenate([points, minima[np.argsort(values)[:40]]])


def least_product(
    A: Matrix,
    points: Points,
    places: tuple[np.ndarray, ...],
    most: float,
    deadline: float,
    total: Matrix | None = None,
) -> tuple[Matrix, Float[np.ndarray, " m"]] | None:
    """Minimise <A, C> over symmetric C with x^T C x >= 0 for some points x, by a linear programme.

    Args:
        A: symmetric.
        points: the x, one in each row.
        places: the rows i and columns j >= i of the entries that may differ from zero.
        most: |C_ij| is at most this.
        deadline: of time.perf_counter().
        total: a symmetric matrix with <total, C> = 1; None: no such condition.

    Returns:
        C, and x^T C x / |x x^T| for the points; None if there is no time for it, or no solution.
    """
    rows, columns = places
    twice = np.where(rows == columns, 1.0, 2.0)
    cuts = points[:, rows] * points[:, columns] * twice
    cuts /= np.linalg.norm(cuts, axis=1, keepdims=True)
    question = {"A_ub": -cuts, "b_ub": np.zeros(len(cuts)), "bounds": (-most, most)}
    question["options"] = {"time_limit": max(1e-3, deadline - time.perf_counter())}
    if total is not None:
        question |= {"A_eq": (total[places] * twice)[None], "b_eq": [1.0]}
    solved = leavable(functools.partial(linprog, A[places] * twice, **question), deadline)
    if solved is None or solved.x is None:
        return None
    C = np.zeros_like(A)
    C[rows, columns] = C[columns, rows] = solved.x
    return C, cuts @ solved.x


def _critical_points(C: Matrix) -> tuple[Float[np.ndarray, " m"], Points]:
    """Return the negative values of x^T C x at critical points inside faces, and these points."""
    n = len(C)
    values, points = [], []
    for size in range(1, n + 1):
        S = np.array(list(itertools.combinations(range(n), size)))
        blocks = C[S[:, :, None], S[:, None, :]] + 1e-13 * np.eye(size)
        y = np.linalg.solve(blocks, np.ones((len(S), size, 1)))[..., 0]
        total = y.sum(axis=1)
        chosen = (y < 0.0).all(axis=1)
        x = np.zeros((int(chosen.sum()), n))
        np.put_along_axis(x, S[chosen], y[chosen] / total[chosen, None], axis=1)
        values.append(1.0 / total[chosen])
        points.append(x)
    return np.concatenate(values), np.concatenate(points)


def _local_minima(C: Matrix, rng: np.random.Generator) -> tuple[Float[np.ndarray, " m"], Points]:
    """Return negative values of x^T C x at local minima over the simplex, and the points."""
    x = np.unique(np.round(np.maximum(descended(C, rng), 0.0), 6), axis=0)
    values = ((x @ C) * x).sum(axis=1)
    return values[values < 0.0], x[values < 0.0]


def descended(C: Matrix, rng: np.random.Generator) -> Points:
    """Return points near local minima of x^T C x over the simplex.

    A pairwise Frank-Wolfe step moves weight from the vertex of the support with the highest gradient to the vertex with
    the lowest, as much as lowers the value most.
    """
    starts, steps = 300, 150
    x = rng.dirichlet(np.full(len(C), 0.3), size=starts)
    every = np.arange(starts)
    for _ in range(steps):
        gradient = x @ C
        low = gradient.argmin(axis=1)
        high = np.where(x > 0.0, gradient, -np.inf).argmax(axis=1)
        slope = gradient[every, high] - gradient[every, low]
        curvature = C[low, low] + C[high, high] - 2.0 * C[low, high]
        most = x[every, high]
        step = np.where(slope < curvature * most, slope / np.where(curvature > 0.0, curvature, 1.0), most)
        x[every, high] -= step
        x[every, low] += step
    return x
