"""Is a matrix completely positive, and how few atoms does it take? `cp_rank` answers with proofs of both ends.

A (n, n) is completely positive if A = B^T B = sum_k b_k b_k^T with B (r, n) >= 0; the least r is its cp-rank. The
questions are taken in this order:

1. A negative entry or eigenvalue: not completely positive.
2. A is scaled by powers of two (no digit is lost) to a diagonal between 1/2 and 2 and taken apart into the connected
   components of its support graph, whose cp-ranks add up.
3. A component without triangles is decided by its comparison matrix (`triangle_free`).
4. For others the lower end comes from the rank, edge-clique covers (`graphs`) and moments (`moments`), the upper end
   from a factor (`factorization`) and from theorems. Where no factor is found, a copositive witness is searched for
   (`copositive`).

**What is meant by exact.** A factor is a floating-point matrix, so that A = B^T B up to a residual. `exact` says that a
matrix B' >= 0 with B'^T B' = A and no more atoms is proved to exist: by a theorem whose condition holds by a margin or
in exact arithmetic, or by `factorization.proves`. On the boundary of the cone there is often no such proof, and the
upper end then holds for a matrix within the residual. A witness is always a proof. The lower end holds for A itself;
where it comes from the rank of rounded data, it holds for every matrix within the tolerance.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import networkx as nx
import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike

from covopt.arrays import LARGEST
from covopt.certify import copositive, factorization
from covopt.certify.connected import Part, Search, Verdict, decide
from covopt.certify.copositive import Witness
from covopt.certify.ends import End
from covopt.certify.factorization import EPS
from covopt.certify.graphs import support_graph
from covopt.errors import DataError, ProblemError

Matrix = Float[np.ndarray, "n n"]

TOLERANCE = 1e-9


@dataclass(frozen=True)
class CPRank:
    """What is known of the cp-rank of a matrix.

    Attributes:
        verdict: whether the matrix is completely positive.
        exact: the verdict and the upper end are proved for the matrix itself; false: within the residual.
        lower: no factor has fewer atoms; None for a matrix that is not completely positive.
        upper: some factor has so many, or a theorem says so; None without a verdict, or with the opposite one.
        lower_reason, upper_reason: why.
        B: the factor found (r, n), one atom in each row, or None.
        residual: |A - B^T B| / |A| of that factor, or None.
        witness: what separates a matrix that is not completely positive from those that are, or None.
        tolerance: what the question was asked with; at least a few units of rounding.
        parts: the answers for the components of the support graph, with the proofs of their ends.
    """

    verdict: Verdict
    exact: bool
    lower: int | None
    upper: int | None
    lower_reason: str | None
    upper_reason: str | None
    B: Float[np.ndarray, "r n"] | None
    residual: float | None
    witness: Witness | None
    tolerance: float
    parts: tuple[Part, ...] = ()

    def check(self, A: ArrayLike | torch.Tensor) -> bool:
        """Whether all that is claimed can be proved again, from what is kept here and the matrix A (n, n) alone.

        The witness, or the factor's residual; and both ends of the interval, component by component.

        Raises:
            DataError: as `cp_rank`.
        """
        matrix = check_matrix(A)
        if self.verdict is Verdict.NOT:
            return self.witness is not None and self.witness.check(matrix)
        clean, _, components, untouched = _prepare(matrix, self.tolerance)
        if [part.vertices for part in self.parts] != components or (self.exact and not untouched):
            return False
        blocks = [clean[np.ix_(part.vertices, part.vertices)] for part in self.parts]
        if not all(part.check(block, self.tolerance) for part, block in zip(self.parts, blocks, strict=True)):
            return False
        if self.lower != sum(part.lower.value for part in self.parts):
            return False
        if self.verdict is Verdict.UNDECIDED:
            return True
        if self.upper != sum(math.inf if part.upper is None else part.upper.value for part in self.parts):
            return False
        if self.exact and not all(part.exact for part in self.parts):
            return False
        if self.B is None:
            return self.exact
        good = bool((self.B >= 0.0).all()) and factorization.residual(matrix, self.B) <= self.tolerance
        return good or self.exact

    def summary(self) -> dict[str, object]:
        """What `covopt cprank --json` prints."""
        return {
            "verdict": self.verdict.value,
            "exact": self.exact,
            "lower": self.lower,
            "upper": self.upper,
            "lower_reason": self.lower_reason,
            "upper_reason": self.upper_reason,
            "atoms": None if self.B is None else len(self.B),
            "residual": self.residual,
            "witness": None if self.witness is None else self.witness.proof,
        }


def describe(answer: CPRank) -> list[tuple[str, str]]:
    """The answer as a person reads it: pairs of a label and its text."""
    pairs = [("verdict", answer.verdict.value)]
    if answer.verdict is Verdict.POSITIVE:
        pairs[0] = ("verdict", f"{answer.verdict.value}, {'proved' if answer.exact else 'within the residual'}")
    if answer.lower is not None:
        pairs.append(("at least", f"{answer.lower} atoms: {answer.lower_reason}"))
    if answer.upper is not None:
        pairs.append(("at most", f"{answer.upper} atoms: {answer.upper_reason}"))
    if answer.B is not None:
        pairs.append(("factor", f"{len(answer.B)} atoms, residual {answer.residual:.1e}"))
    if answer.witness is not None:
        told = f"<A, C> = {answer.witness.value:.3g} |A| |C|, C copositive ({answer.witness.proof})"
        pairs.append(("witness", told))
    return pairs


def cp_rank(
    A: ArrayLike | torch.Tensor,
    *,
    rank: int | None = None,
    tolerance: float = TOLERANCE,
    time_limit: float = 60.0,
    seed: int = 0,
) -> CPRank:
    """Decide whether A is completely positive, and bound its cp-rank from both sides, each end with its reason.

    Args:
        A: a symmetric matrix (n, n), n up to about 100. One that is not positive semi-definite, or has negative
            entries, is a question like any other: it is not completely positive.
        rank: look for a factor with so many atoms; None: as few as can be found. Where that search fails, the factor
            has as many as it needs.
        tolerance: A is taken as known up to this: entries below it, relative to sqrt(A_ii A_jj), count as zeros (then
            nothing is exact), and a factor's residual |A - B^T B| may be so large, relative to |A|.
        time_limit: seconds after which nothing new is tried.
        seed: of the random starts.

    Returns:
        The verdict, both ends of the interval with their reasons, and a factor (r, n) or a witness (n, n).

    Raises:
        DataError: A is not a finite, symmetric, square matrix of real numbers, or is empty.
        ProblemError: an option is out of range.

    Source: Berman, Shaked-Monderer, Completely Positive Matrices (2003) and Copositive and Completely Positive Matrices
    (2021); [JGHG22], section 4.
    """
    matrix = check_matrix(A)
    if not 0.0 <= tolerance < 0.1:
        raise ProblemError("The tolerance is relative; give a number from 0 to below 0.1.")
    if not time_limit > 0.0 or math.isnan(time_limit):
        raise ProblemError("The time limit must be a positive number of seconds.")
    if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int | np.integer) or rank < 1):
        raise ProblemError("The number of atoms to look for must be a whole number of at least 1.")
    search = Search(max(tolerance, 4 * EPS), seed, time.perf_counter() + time_limit, rank)
    powers = _powers_of_two(matrix)
    scaled = matrix / np.outer(powers, powers)
    found = copositive.find_cheap(scaled, search.tolerance)
    if found is not None:
        return _not_positive(matrix, found.C / np.outer(powers, powers), search)
    clean, powers, components, untouched = _prepare(matrix, search.tolerance)
    parts = []
    for place, component in enumerate(components):
        atoms = search.rank if len(components) == 1 else None
        turn = Search(search.tolerance, seed, search.share(1.0 / (len(components) - place)), atoms)
        part = replace(decide(clean[np.ix_(component, component)], turn), vertices=component)
        if part.witness is not None:
            C = np.zeros_like(matrix)
            C[np.ix_(component, component)] = part.witness.C
            return _not_positive(matrix, C / np.outer(powers, powers), search)
        parts.append(part)
    return _together(matrix, tuple(parts), powers, search, untouched)


def check_matrix(A: ArrayLike | torch.Tensor) -> Matrix:
    """A as a float64 matrix, its rounding asymmetry averaged.

    Raises:
        DataError: see `cp_rank`.
    """
    values = np.asarray(A.detach().cpu() if isinstance(A, torch.Tensor) else A)
    if values.dtype.kind not in "buif":
        raise DataError(f"The matrix does not hold real numbers (its type is {values.dtype}); give numbers.")
    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        raise DataError(f"The matrix has shape {values.shape}; give a square one.")
    if values.size == 0:
        raise DataError("The matrix is empty; give at least one row and one column.")
    matrix = values.astype(np.float64)
    if not np.isfinite(matrix).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(matrix))[0])
        raise DataError(f"The matrix has NaN or infinite entries (first at row {row}, column {column}); remove them.")
    if np.abs(matrix).max() > LARGEST:
        raise DataError(f"The matrix has entries beyond {LARGEST:g}; divide it by its largest entry.")
    off = np.abs(matrix - matrix.T)
    if off.max() > 1e-12 * np.abs(matrix).max():
        row, column = (int(i) for i in np.unravel_index(int(off.argmax()), off.shape))
        raise DataError(
            f"The matrix is not symmetric (rows and columns {row} and {column} differ); give (A + A^T) / 2 if that is"
            " what you mean."
        )
    return (matrix + matrix.T) / 2.0


def _powers_of_two(A: Matrix) -> Float[np.ndarray, " n"]:
    """Powers of two near the square roots of the diagonal; 1 where that is not positive."""
    diagonal = np.diag(A)
    roots = np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    return np.exp2(np.round(np.log2(roots)))


def _prepare(A: Matrix, tolerance: float) -> tuple[Matrix, Float[np.ndarray, " n"], list[tuple[int, ...]], bool]:
    """(A scaled and without entries too small to count, the scale, its components, whether no entry was left out)."""
    powers = _powers_of_two(A)
    scaled = A / np.outer(powers, powers)
    size = np.sqrt(np.maximum(np.diag(scaled), 0.0))
    counts = scaled / np.outer(*[np.where(size > 0.0, size, np.inf)] * 2) > tolerance
    clean = np.where(counts, scaled, 0.0)
    components = [tuple(sorted(c)) for c in nx.connected_components(support_graph(clean)) if clean[min(c), min(c)] > 0]
    return clean, powers, components, bool((clean == scaled).all())


def _not_positive(A: Matrix, C: Matrix, search: Search) -> CPRank:
    witness = copositive.witness(A, C / np.abs(C).max())
    verdict = Verdict.UNDECIDED if witness is None else Verdict.NOT
    return CPRank(verdict, witness is not None, None, None, None, None, None, None, witness, search.tolerance)


def _together(
    A: Matrix, parts: tuple[Part, ...], powers: Float[np.ndarray, " n"], search: Search, untouched: bool
) -> CPRank:
    """One answer from those of the components: ends add up, and factors stand side by side."""
    lower, told = _sum([part.lower for part in parts])
    tolerance = search.tolerance
    undecided = CPRank(Verdict.UNDECIDED, False, lower, None, told, None, None, None, None, tolerance, parts)
    if any(part.verdict is Verdict.UNDECIDED for part in parts):
        return undecided
    upper, why = _sum([part.upper for part in parts if part.upper is not None])
    B = None
    if all(part.B is not None for part in parts):
        rows = []
        for part in parts:
            block = np.zeros((len(part.B), len(A)))  # type: ignore[arg-type]
            block[:, part.vertices] = part.B
            rows.append(block)
        B = np.concatenate(rows) * powers if rows else np.zeros((0, len(A)))
        B = B if search.rank is None else factorization.split(B, search.rank)
    residual = None if B is None else factorization.residual(A, B)
    exact = untouched and all(part.exact for part in parts)
    if not exact and (residual is None or residual > tolerance):
        return replace(undecided, B=B, residual=residual)
    return CPRank(Verdict.POSITIVE, exact, lower, upper, told, why, B, residual, None, tolerance, parts)


def _sum(ends: list[End]) -> tuple[int, str]:
    if len(ends) == 1:
        return ends[0].value, ends[0].reason
    reasons = sorted({end.reason for end in ends})
    total = sum(end.value for end in ends)
    return total, f"sum over {len(ends)} components: {'; '.join(reasons) or 'no atoms'}"
