"""Copositive C with <A, C> < 0 by cutting planes, for A that is not completely positive.

The master problem is min <A, C> over |C_ij| <= 1 and x^T C x >= 0 for the x found so far, a linear programme. New x are
points of the simplex where x^T C x is negative: up to order 10 its critical points on all faces, beyond it local
minima. With delta at least -min x^T C x over the simplex, C + delta J is copositive, J all ones. That delta is large
enough, is for the caller to prove: local minima may all miss the least.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog

from covopt.runtime.loop import leavable, past

Matrix = Float[np.ndarray, "n n"]
Points = Float[np.ndarray, "m n"]

FACES = 10
"""The largest order at which all faces of the simplex are visited."""
ROUNDS, CUTS, FAR = 300, 40, 0.05
"""Rounds, points that each adds, and the slack beyond which a point is dropped again."""
STARTS, STEPS = 300, 150
"""Starts of the search for local minima, and its steps."""
DIGITS = 2.0**-30
"""Candidates are whole multiples of it: few digits keep exact arithmetic short."""


def by_cutting_planes(A: Matrix, seed: int, deadline: float) -> Iterator[Matrix]:
    """Yield candidates C + delta J that separate A.

    Beyond order 10, C lies half way from the master problem's solution to a core, the best matrix so far that seems to
    be copositive: cuts are deeper there than at the solution, a vertex far outside the cone.

    Args:
        A: with unit diagonal.
        seed: of the starts of the searches for local minima.
        deadline: of time.perf_counter().
    """
    n, rng = len(A), np.random.default_rng(seed)
    first = points = np.unique((np.eye(n)[:, None] + np.eye(n)[None]).reshape(-1, n), axis=0)
    core = np.ones((n, n))
    for _ in range(ROUNDS):
        solved = None if past(deadline) else _master(A, points, deadline)
        if solved is None or (A * solved[0]).sum() > -1e-9:
            return
        C, slack = solved
        if n > FACES:
            points, C = np.concatenate([first, points[slack < FAR]]), (C + core) / 2.0
        values, minima = _critical_points(C) if n <= FACES else _local_minima(C, rng)
        delta = max(0.0, -float(values.min(initial=0.0)))
        if (A * (C + delta)).sum() < 0.0:
            yield np.ceil((C + 1.01 * delta) / DIGITS + 4.0) * DIGITS
        raised = (C + delta) / max(float(np.abs(C + delta).max()), DIGITS)
        if (A * raised).sum() < (A * core).sum():
            core = raised
        elif not len(values) or values.min() > -1e-12:
            return
        points = np.concatenate([points, minima[np.argsort(values)[:CUTS]]])


def _master(A: Matrix, points: Points, deadline: float) -> tuple[Matrix, Float[np.ndarray, " m"]] | None:
    """Return C, and x^T C x / |x x^T| for the points x; None if there is no time for it."""
    n = len(A)
    rows, columns = np.triu_indices(n)
    twice = np.where(rows == columns, 1.0, 2.0)
    quadratic = points[:, rows] * points[:, columns] * twice
    quadratic /= np.linalg.norm(quadratic, axis=1, keepdims=True)
    limit = {"time_limit": max(1e-3, deadline - time.perf_counter())}
    question = {"A_ub": -quadratic, "b_ub": np.zeros(len(points)), "bounds": (-1.0, 1.0), "options": limit}
    master = leavable(functools.partial(linprog, A[rows, columns] * twice, **question), deadline)
    if master is None or master.x is None:
        return None
    C = np.zeros((n, n))
    C[rows, columns] = C[columns, rows] = master.x
    return C, quadratic @ master.x


def _critical_points(C: Matrix) -> tuple[Float[np.ndarray, " m"], Points]:
    """Return negative values of x^T C x at critical points inside faces, and the points."""
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

    Each step goes from the worst vertex to the best. A step takes weight from the vertex of the support where the
    gradient is highest to that where it is lowest, as much as lowers the value most (pairwise Frank-Wolfe steps).
    """
    n = len(C)
    x = rng.dirichlet(np.full(n, 0.3), size=STARTS)
    every = np.arange(STARTS)
    for _ in range(STEPS):
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
