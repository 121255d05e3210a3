"""A lower bound on the cp-rank from moments, by semidefinite programming; the solver is not trusted.

Let A = sum_k b_k b_k^T, b_k >= 0, be scaled to a diagonal of ones. Each atom b
lies on a clique c of A's support graph, and

    b_i <= s_i,   b_i b_j <= U_ij,   b^T Q b <= kappa      (the region of c),

because b b^T <= A, entry by entry and as a quadratic form. So if Lambda has b^T Lambda b <= 1 for every b in one of the
regions, then <A, Lambda> = sum_k b_k^T Lambda b_k is at most the number of atoms.

**The proof** is an identity of polynomials of degree 4 in b for each clique,

    1 - b^T Lambda b = sum_j g_j(b) m_j(b)^T F_j^T F_j m_j(b) + sum_i w_i h_i(b) + residual(b),   w >= 0,

with vectors m_j of monomials and g_j, h_i products of the inequalities above: whatever F and w a solver has found, all
but the residual is non-negative on the region. Monomials are at most about 1 there, so that b^T Lambda b <= 1 + e, e
the sum of the residual's absolute coefficients and of what rounding may have hidden: cp-rank >= <A, Lambda> / (1 + e).

**The regions.** For any matrix R, S = (I, -R^T) A (I, -R^T)^T bounds the atoms on c as A does all (b has nothing
outside c, so that b b^T <= S); the best R makes it the Schur complement. U_ij = min(A_ij, (S_ij + sqrt(S_ii S_jj)) /
2), and Q is near the inverse of S with its small eigenvalues raised; kappa is the largest eigenvalue of S^(1/2) Q
S^(1/2). The regions are made larger by the tolerance, and the bound holds for every matrix within it that has the same
zeros.

This is the bound of Fawzi and Parrilo (Self-scaled bounds for atomic cone ranks, Math. Program. 158, 2016) with the
moments of odd degree and the products of Gribling, de Laat, Laurent (Found. Comput. Math. 19, 2019), one measure for
each clique as in Korda, Laurent, Magron, Steenkamp (Ideal-sparsity, Math. Program. 2023). The regions of the cliques
and b^T Q b <= kappa, which takes the place of their A (x) A - X >= 0 and is stronger, are ours.
"""

from __future__ import annotations

import itertools
import math
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array

from covopt.completely_positive.graphs import support_graph
from covopt.completely_positive.prepared import Matrix, to_unit_diagonal
from covopt.linalg.rounding import EPS
from covopt.runtime.lazy import lazy
from covopt.runtime.loop import leavable, past

if TYPE_CHECKING:
    import cvxpy as cp
else:
    cp = lazy("cvxpy")

Monomial = tuple[int, ...]
Polynomial = dict[Monomial, float]

CLIQUES = 300  # the maximum number of cliques


@dataclass(frozen=True)
class Region:
    """The region of atoms on a clique: b >= 0, b_i <= s_i, b_i b_j <= U_ij, b^T Q b <= kappa."""

    clique: tuple[int, ...]
    s: Float[np.ndarray, " k"]
    U: Float[np.ndarray, "k k"]
    Q: Float[np.ndarray, "k k"]
    kappa: float


@dataclass(frozen=True)
class Inequalities:
    """The products g m m^T >= 0 (as forms) and h >= 0 of a region, linear in its moments."""

    place: dict[Monomial, int]  # the column of each monomial of degree 0 to 4
    # for each g, the matrix (B * B, monomials) that takes moments y to L(g m m^T), and B
    forms: list[tuple[csr_array, int]]
    products: csr_array  # the matrix (rows, monomials) of the h


@dataclass(frozen=True)
class MomentBound:
    """Lambda and multipliers that prove <A, Lambda> <= cp-rank, up to a residual (`value`)."""

    Lambda: Matrix  # (n, n), for A scaled to a diagonal of ones
    odd: bool  # True if moments of odd degree are used
    factors: tuple[tuple[Float[np.ndarray, "_ _"], ...], ...]  # for each clique, the F_j
    weights: tuple[Float[np.ndarray, " _"], ...]  # for each clique, the w

    def value(self, A: Matrix, tolerance: float) -> float:
        """Return <A, Lambda> / (1 + e), a lower bound on the number of atoms.

        It holds for all matrices within the tolerance, relative to |A| after scaling to a unit diagonal, that have the
        zeros of A.
        """
        if self.Lambda.shape != A.shape or not np.isfinite(self.Lambda).all():
            return 0.0
        unit, slack, cliques = _scaled_with_cliques(A, tolerance)
        if len(cliques) > CLIQUES or not len(cliques) == len(self.factors) == len(self.weights):
            return 0.0
        regions = [_region(unit, clique, slack) for clique in cliques]
        errors = [self._error(*terms) for terms in zip(regions, self.factors, self.weights, strict=True)]
        product = float((unit * self.Lambda).sum()) - (slack + unit.size * EPS) * float(np.abs(self.Lambda).sum())
        return max(0.0, product / (1.0 + (1.0 + 2.0 * slack) ** 4 * max(errors)))

    def bound(self, A: Matrix, tolerance: float) -> int:
        """Return the value, rounded up; the margin covers the rounding of the last sums."""
        margin = 1e-9
        return math.ceil(self.value(A, tolerance) * (1.0 - margin))

    def _error(self, region: Region, factors: tuple[np.ndarray, ...], weights: np.ndarray) -> float:
        """Return the sum of the residual's absolute coefficients; infinity for invalid multipliers."""
        system = _inequalities(region, self.odd)
        shapes = [F.ndim == 2 and F.shape[1] == B for F, (_, B) in zip(factors, system.forms, strict=False)]
        if len(factors) != len(system.forms) or not all(shapes):
            return math.inf
        if weights.ndim != 1 or system.products.shape != (len(weights), len(system.place)):
            return math.inf
        if not (all(np.isfinite(F).all() for F in factors) and (weights >= 0.0).all()):
            return math.inf
        residual = np.zeros(len(system.place))
        residual[0] = 1.0
        for i, j in itertools.product(range(len(region.clique)), repeat=2):
            residual[system.place[tuple(sorted((i, j)))]] -= self.Lambda[region.clique[i], region.clique[j]]
        size = np.abs(residual)
        for F, (T, _) in zip(factors, system.forms, strict=True):
            residual -= T.T @ (F.T @ F).ravel()
            size += abs(T).T @ (np.abs(F).T @ np.abs(F)).ravel()
        residual -= system.products.T @ weights
        size += abs(system.products).T @ weights
        terms = sum(B * (B + 1) for _, B in system.forms) + len(weights)
        return float(np.abs(residual).sum() + terms * EPS * size.sum())


def moment_bound(A: Matrix, tolerance: float, deadline: float) -> MomentBound | None:
    """Solve the relaxation for a non-negative A with a positive diagonal; `tolerance` as for `MomentBound.value`.

    None if it is too large, there is no time, or Clarabel fails.
    """
    if past(deadline):
        return None
    unit, slack, cliques = _scaled_with_cliques(A, tolerance)
    odd = _is_affordable(cliques, True)
    if not (odd or _is_affordable(cliques, False)):
        return None
    regions = [_region(unit, clique, slack) for clique in cliques]
    systems = [_inequalities(region, odd) for region in regions]
    moments = [cp.Variable(len(system.place)) for system in systems]
    blocks = list(zip(systems, moments, strict=True))
    forms = [[cp.PSD(cp.reshape(T @ y, (B, B), order="C")) for T, B in system.forms] for system, y in blocks]
    products = [cp.NonNeg(system.products @ y) for system, y in blocks]
    entries = np.argwhere(np.triu(unit > 0.0))
    second = sum(_second(entries, region, system) @ y for region, (system, y) in zip(regions, blocks, strict=True))
    values = unit[tuple(entries.T)]
    # The moments of degree 2 may differ from A by this, which bounds Lambda. If A is nearly singular, the relaxation
    # needs more of it to have an interior.
    loose = 1e-7 if np.linalg.eigvalsh(unit)[0] > 1e-5 else 1e-5
    over, under = cp.NonNeg(values + loose - second), cp.NonNeg(second - values + loose)
    constraints = [*itertools.chain(*forms), *products, over, under]
    problem = cp.Problem(cp.Minimize(sum(y[0] for y in moments)), constraints)
    if not is_solved(problem, deadline) or over.dual_value is None:
        return None
    Lambda = np.zeros_like(unit)
    Lambda[tuple(entries.T)] = _dual(under) - _dual(over)
    return MomentBound(
        (Lambda + Lambda.T) / 2.0,
        odd,
        tuple(tuple(_root(_dual(form)) for form in block) for block in forms),
        tuple(np.maximum(_dual(product), 0.0) for product in products),
    )


def is_solved(problem: cp.Problem, deadline: float) -> bool:
    """Return True if Clarabel ends by the deadline; an inexact solution is proved like an exact one."""
    remaining_time = deadline - time.perf_counter()
    if remaining_time <= 0.0:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            solved = leavable(lambda: [problem.solve(solver=cp.CLARABEL, time_limit=remaining_time)], deadline)
    except cp.SolverError:
        return False
    return solved is not None


def _dual(constraint: cp.Constraint) -> np.ndarray:
    return np.asarray(constraint.dual_value, dtype=np.float64)


def _scaled_with_cliques(A: Matrix, tolerance: float) -> tuple[Matrix, float, list[tuple[int, ...]]]:
    """Return A scaled to a unit diagonal, a bound on its entries' error, and its graph's cliques.

    These are the maximal cliques, or the first `CLIQUES` and one more.
    """
    unit, _ = to_unit_diagonal(A)
    cliques = itertools.islice(nx.find_cliques(support_graph(unit)), CLIQUES + 1)
    return unit, (tolerance + 8 * EPS) * float(np.linalg.norm(unit)), sorted(tuple(sorted(c)) for c in cliques)


def _is_affordable(cliques: list[tuple[int, ...]], odd: bool) -> bool:
    """Return True if the interior-point steps, whose time is cubic in the largest form, are affordable."""
    largest = 8 if odd else 9
    if len(cliques) > CLIQUES or max(map(len, cliques)) > largest:
        return False
    orders = [len(_basis(len(clique), 2, odd)) for clique in cliques]
    return sum(B * (B + 1) // 2 for B in orders) <= 6000  # rows of all forms, each as a vector


def _region(A: Matrix, clique: tuple[int, ...], slack: float) -> Region:
    inside, outside = list(clique), [i for i in range(len(A)) if i not in clique]
    whole = np.zeros((len(A), len(inside)))
    whole[inside] = np.eye(len(inside))
    if outside:
        root = np.linalg.pinv(A[np.ix_(outside, outside)], rcond=1e-8, hermitian=True)
        whole[outside] = -root @ A[np.ix_(outside, inside)]
    S = whole.T @ A @ whole
    lost = (len(A) * slack + 4 * len(A) ** 2 * EPS) * float(np.sum(whole**2))
    S = (S + S.T) / 2.0 + lost * np.eye(len(inside))
    widest = np.sqrt(np.diag(S)) * (1.0 + 4 * EPS)
    s = np.minimum(widest, np.sqrt(np.diag(A)[inside] + slack) * (1.0 + 4 * EPS))
    product = (S + 4 * EPS * np.abs(S) + np.outer(widest, widest) * (1.0 + 4 * EPS)) / 2.0
    U = np.maximum(0.0, np.minimum(A[np.ix_(inside, inside)] + slack, product))
    values, vectors = np.linalg.eigh(S)
    raised = 1e-4  # eigenvalues below this, relative to the largest, are raised to it in Q
    root = vectors / np.sqrt(np.maximum(values, raised * values[-1]))
    Q = root @ root.T
    reached = root.T @ S @ root
    spread = len(S) ** 2 * EPS * 16 * float(np.linalg.norm(root) ** 2 * np.linalg.norm(S))
    return Region(clique, s, U, (Q + Q.T) / 2.0, float(np.linalg.eigvalsh(reached)[-1]) + spread)


def _basis(k: int, degree: int, odd: bool) -> list[Monomial]:
    """Return the monomials up to this degree in order; without `odd`, those of its parity alone."""
    degrees = range(degree + 1) if odd else range(degree % 2, degree + 1, 2)
    return [m for d in degrees for m in itertools.combinations_with_replacement(range(k), d)]


def _inequalities(region: Region, odd: bool) -> Inequalities:
    k = len(region.clique)
    place = {monomial: i for i, monomial in enumerate(_basis(k, 4, odd))}
    pairs = list(itertools.combinations_with_replacement(range(k), 2))
    ellipsoid: Polynomial = {(): region.kappa}
    for i, j in pairs:
        ellipsoid[i, j] = -region.Q[i, j] * (1.0 if i == j else 2.0)
    below: list[Polynomial] = [{(): region.U[i, j], (i, j): -1.0} for i, j in pairs]
    positive: list[Polynomial] = [{(i, j): 1.0} for i, j in pairs if i != j]
    single: list[Polynomial] = [{(): region.s[i], (i,): -1.0} for i in range(k)] if odd else []
    halves: list[Polynomial] = [{(i,): region.s[i], (i, i): -1.0} for i in range(k)] if odd else []
    small = _basis(k, 1, odd)
    forms = [_form({(): 1.0}, _basis(k, 2, odd), place)]
    forms += [_form(g, small, place) for g in (ellipsoid, *below, *positive, *single, *halves)]
    products: list[Polynomial] = [{monomial: 1.0} for monomial in place]
    for g in (ellipsoid, *below, *single):
        room_left = 4 - max(map(len, g))
        products += [_times(g, m) for m in _basis(k, room_left, True) if odd or len(m) % 2 == 0]
    return Inequalities(place, forms, _linear(products, place))


def _times(g: Polynomial, m: Monomial) -> Polynomial:
    return {tuple(sorted(n + m)): value for n, value in g.items()}


def _linear(polynomials: list[Polynomial], place: dict[Monomial, int]) -> csr_array:
    """Return one row for each polynomial: its coefficients."""
    entries = [(row, place[m], value) for row, p in enumerate(polynomials) for m, value in p.items()]
    rows, columns, values = zip(*entries, strict=True)
    return csr_array((values, (rows, columns)), shape=(len(polynomials), len(place)))


def _form(g: Polynomial, basis: list[Monomial], place: dict[Monomial, int]) -> tuple[csr_array, int]:
    return _linear([_times(g, m + n) for m in basis for n in basis], place), len(basis)


def _second(entries: np.ndarray, region: Region, system: Inequalities) -> csr_array:
    """Return the map from a clique's moments to those of b_i b_j, one row for each entry of A."""
    inside = {vertex: i for i, vertex in enumerate(region.clique)}
    places = [
        (row, system.place[tuple(sorted((inside[i], inside[j])))])
        for row, (i, j) in enumerate(entries.tolist())
        if i in inside and j in inside
    ]
    rows, columns = zip(*places, strict=True)
    return csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(entries), len(system.place)))


def _root(multiplier: Float[np.ndarray, "B B"]) -> Float[np.ndarray, "r B"]:
    """Return F with F^T F near the multiplier, its negative eigenvalues left out."""
    values, vectors = np.linalg.eigh((multiplier + multiplier.T) / 2.0)
    positive = values > 0.0
    return np.sqrt(values[positive])[:, None] * vectors[:, positive].T
