"""Witnesses that a matrix A is not completely positive: copositive C with <A, C> < 0.

C is copositive if x^T C x >= 0 for all x >= 0. The proofs of this (`why_copositive`) are:
* no entry is negative, or C is positive definite;
* **signs**: C >= D (J - 2 T) D entry by entry, D = diag(d) >= 0, J all ones and T the adjacency matrix of a graph
  without triangles. On the simplex y^T T y <= 1/2 for such a graph (Motzkin, Straus 1965), so that y^T (J - 2 T) y
  is not negative for y >= 0. The Horn matrix is J - 2 T of the five-cycle (Haynsworth, Hoffman 1969);
* **enumeration**: exact arithmetic on all supports that a violation could have (`supports`), order at most 25.

The search tries a negative entry, a negative eigenvalue, signs by alternating over d and T, and cutting planes.

**Cutting planes.** The master problem is min <A, C> over |C_ij| <= 1 and x^T C x >= 0 for the x found so far, a linear
programme. New x are points of the simplex where x^T C x is negative: its critical points on all faces up to order 10,
local minima beyond. With delta at least -min x^T C x over the simplex, C + delta J is copositive, J all ones. The
caller has to prove that delta is large enough, because local minima can all miss the global minimum.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import LinearConstraint, linprog

from covopt.completely_positive import rational, supports
from covopt.completely_positive.graphs import binary_minimum, is_triangle_free, support_graph
from covopt.completely_positive.prepared import Matrix, to_unit_diagonal
from covopt.completely_positive.supports import Copositive
from covopt.linalg.rounding import EPS
from covopt.runtime.loop import leavable, past

Points = Float[np.ndarray, "m n"]


def by_cutting_planes(A: Matrix, seed: int, deadline: float) -> Iterator[Matrix]:
    """Yield candidates C + delta J that separate A, which has a unit diagonal.

    Beyond order 10, C lies half way from the master problem's solution to a core, the best matrix so far that seems to
    be copositive: cuts are deeper there than at the solution, a vertex far outside the cone.
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
    A: Matrix, points: Points, places: tuple[np.ndarray, ...], most: float, deadline: float, total: Matrix | None = None
) -> tuple[Matrix, Float[np.ndarray, " m"]] | None:
    """Minimise <A, C> over symmetric C, |C_ij| <= most, with x^T C x >= 0 for the points x, by a linear programme.

    `places` are the rows i and columns j >= i of the entries that may differ from zero; <total, C> = 1 is demanded,
    too, if `total` is given. Return C, and x^T C x / |x x^T| for the points; None if there is no time for it, or no
    solution.
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


Vector = Float[np.ndarray, " n"]

SLACK = 1e-9  # the relative margin of the negative entries of a witness by signs
ENUMERATED, NODES = 25, 100_000
"""Largest order, and largest number of nodes, of a proof by enumeration: 10 to 30 seconds."""


@dataclass(frozen=True)
class Witness:
    """A copositive matrix that separates A from the completely positive ones."""

    C: Matrix  # the matrix (n, n)
    proof: str  # why it is copositive: `non-negative`, `positive definite`, `signs` or `enumeration`
    value: float  # <A, C> / sum_ij |A_ij C_ij|, between -1 and 0; it does not depend on the scaling of rows and columns

    def check(self, A: Matrix) -> bool:
        """Return True if C is proved copositive again and <A, C> < 0 beyond rounding."""
        return witness(A, self.C) is not None


def why_copositive(C: Matrix, deadline: float = math.inf) -> str | None:
    """Return the name of a proof that C is copositive, or None if none is found in time."""
    if not (C == C.T).all():
        return None
    if (C >= 0.0).all():
        return "non-negative"
    nonzero = np.flatnonzero(np.abs(C).max(axis=0))
    C = C[np.ix_(nonzero, nonzero)]
    if not (np.diag(C) >= 0.0).all():
        return None
    if rational.is_definite(C):
        return "positive definite"
    if _holds_by_signs(C):
        return "signs"
    if len(C) <= ENUMERATED and supports.decide(C, deadline, NODES).verdict is Copositive.YES:
        return "enumeration"
    return None


def _holds_by_signs(C: Matrix) -> bool:
    powers = np.exp2(rational.halves(C))
    whole, C = C, C / np.outer(powers, powers)
    if not (C * np.outer(powers, powers) == whole).all():
        return False  # the entries differ too much in size: scaling loses digits
    d = np.sqrt(np.diag(C)) * (1.0 - SLACK)
    ceiling = np.outer(d, d)
    return bool((C + ceiling >= 0.0).all()) and is_triangle_free(support_graph(np.minimum(C - ceiling, 0.0)))


def witness(A: Matrix, C: Matrix, tolerance: float = 0.0, deadline: float = math.inf) -> Witness | None:
    """Return C as a witness against A, if it proves that A is not completely positive.

    This holds if <A, C> < -tolerance |A| |C| beyond rounding and C is proved to be copositive. Then no completely
    positive matrix lies within tolerance |A| of A.
    """
    product, total = float((A * C).sum()), float(np.abs(A * C).sum())
    if not total * EPS >= np.finfo(np.float64).tiny:  # products may have underflowed
        return None
    if not product < -max(tolerance * float(np.linalg.norm(A) * np.linalg.norm(C)), A.size * EPS * total):
        return None
    proof = why_copositive(C, deadline)
    return None if proof is None else Witness(C, proof, product / total)


def find_cheap(A: Matrix, tolerance: float) -> Witness | None:
    """Return a witness from a negative entry or eigenvalue, the one that separates more; or None."""
    n = len(A)
    i, j = divmod(int(A.argmin()), n)
    entry = np.zeros((n, n))
    entry[i, j] = entry[j, i] = 1.0
    vector = np.linalg.eigh(A)[1][:, 0]
    spectral = np.outer(vector, vector) + 32 * n * EPS * np.eye(n)
    witnesses = [w for w in (witness(A, entry, tolerance), witness(A, spectral, tolerance)) if w is not None]
    return min(witnesses, key=lambda w: w.value, default=None)


def signed(d: Vector, T: np.ndarray) -> Matrix:
    """Return D (J - 2 T) D of the module's docstring, with the margin SLACK.

    If T is the graph of A, without triangles, <A, C> is d^T M d with the comparison matrix M.
    """
    return np.outer(d, d) * np.where(T & ~np.eye(len(d), dtype=bool), -1.0 + 4.0 * SLACK, 1.0)


def find(A: Matrix, tolerance: float, seed: int, deadline: float) -> Witness | None:
    """Search by signs, then by cutting planes, for C with <A, C> < -tolerance |A| |C|; None proves nothing.

    A is non-negative and positive semi-definite (others: `find_cheap`), with a positive diagonal.
    """
    unit, scale = to_unit_diagonal(A)
    back = 1.0 / np.outer(scale, scale)
    candidates: list[Iterator[Matrix]] = []
    if len(A) <= 14:  # the integer programme that chooses the graphs takes too long beyond
        candidates.append(_by_signs(unit, np.random.default_rng(seed), deadline))
    if len(A) <= ENUMERATED:
        candidates.append(by_cutting_planes(unit, seed, deadline))
    for C in itertools.chain(*candidates):
        proved = witness(A, C * back, tolerance, deadline)
        if proved is not None:
            return proved
    return None


def _by_signs(A: Matrix, rng: np.random.Generator, deadline: float) -> Iterator[Matrix]:
    """Yield matrices from negative local minima of sum_ij A_ij d_i d_j (1 - 2 T_ij), d >= 0."""
    n = len(A)
    for start in range(12):
        d = np.ones(n) if start == 0 else rng.exponential(size=n)
        T, value = np.zeros((n, n), dtype=bool), np.inf
        while not past(deadline):
            T = _heaviest_triangle_free(A * np.outer(d, d), deadline)
            d = _least_non_negative(A * np.where(T, -1.0, 1.0))
            now = float(d @ (A * np.where(T, -1.0, 1.0)) @ d)
            if now >= value - 1e-12:
                break
            value = now
        if value < 0.0:
            yield signed(d, T)


def _heaviest_triangle_free(weights: Matrix, deadline: float = math.inf) -> np.ndarray:
    """Return a triangle-free graph of large weight as a boolean matrix, by HiGHS."""
    n = len(weights)
    rows, columns = np.triu_indices(n, 1)
    place = {pair: k for k, pair in enumerate(zip(rows.tolist(), columns.tolist(), strict=True))}
    T = np.zeros((n, n), dtype=bool)
    triangles = list(itertools.combinations(range(n), 3))
    M = np.zeros((len(triangles), len(place)))
    for k, (a, b, c) in enumerate(triangles):
        M[k, [place[a, b], place[a, c], place[b, c]]] = 1.0
    constraints = LinearConstraint(M, ub=2.0) if triangles else ()
    seconds = min(2.0, max(1e-3, deadline - time.perf_counter()))
    solved = binary_minimum(-weights[rows, columns], constraints, {"time_limit": seconds, "mip_rel_gap": 1e-3})
    if solved is not None:
        T[rows, columns] = solved[0] > 0.5
    return T | T.T


def _least_non_negative(M: Matrix) -> Vector:
    """Return a unit vector d >= 0 with a small d^T M d: an eigenvector on a shrinking support."""
    support = np.arange(len(M))
    while True:
        vector = np.linalg.eigh(M[np.ix_(support, support)])[1][:, 0]
        vector = vector if vector.sum() > 0 else -vector
        if (vector >= 0.0).all():
            break
        support = support[vector > 0.0]
    d = np.zeros(len(M))
    d[support] = vector
    return d
