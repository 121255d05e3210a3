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
upper end then holds for a matrix within the residual. A witness is always a proof. The lower end always holds for A
itself, to its last digit. Entries below the tolerance, which a factor may leave out, therefore count for it twice: they
need not be covered, but they join vertices (`connected.lower_of_given`).
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import networkx as nx
import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike

from covopt import __version__
from covopt.errors import DataError, ProblemError, RecordError
from covopt.interrupts import gently
from covopt.io import record, storing
from covopt.io.arrays import LARGEST, read_matrix, read_npz
from covopt.io.directories import Writer
from covopt.io.packed import pack, unpack
from covopt.io.provenance import ORIGIN, write_origin
from covopt.matrices import copositive, factorization
from covopt.matrices.connected import Part, Search, Verdict, by_moments, decide, lower_of_given
from covopt.matrices.copositive import Witness
from covopt.matrices.ends import (
    ByCover,
    ByEdges,
    ByEdgeWeights,
    ByFactor,
    ByMoments,
    ByOrder,
    ByRank,
    ByTheorem,
    End,
    certain_rank,
)
from covopt.matrices.factorization import EPS
from covopt.matrices.graphs import EdgeWeights, support_graph
from covopt.matrices.moments import MomentBound

Matrix = Float[np.ndarray, "n n"]

SUMMARY, MATRIX, PROOF = "cprank.json", "matrix.npz", "proof"
TOLERANCE = 1e-9
LEAST, MOST = 4 * EPS, 0.1
"""Between which tolerances a question is answered."""
ASYMMETRY = 1e-12
"""A_ij and A_ji may differ by so much, relative to themselves or to sqrt(A_ii A_jj): rounding, which is averaged."""
FIRST = 0.6
"""Part of the time for a matrix without its small entries; what is left of it is for the matrix with them."""


@dataclass(frozen=True)
class CPRank:
    """What is known of the cp-rank of a matrix.

    Attributes:
        verdict: whether the matrix is completely positive.
        exact: the verdict and the upper end are proved for the matrix itself; false: within the residual.
        lower: no factor of the matrix, as it is given, has fewer atoms; None where it is not completely positive.
        upper: some factor has so many, or a theorem says so; None without a verdict, or with the opposite one.
        lower_reason, upper_reason: why.
        B: the factor found (r, n), one atom in each row, or None.
        residual: |A - B^T B| / |A| of that factor, or None.
        witness: what separates a matrix that is not completely positive from those that are, or None.
        tolerance: what the question was asked with; at least a few units of rounding.
        parts: the answers for the components of the support graph, with the proofs of their ends.
        least: where entries were too small to count and the parts are those of the matrix without them, the lower end
            of the matrix with them.
        A, rank, seed: the question: the matrix (n, n), its rounding asymmetry averaged, and the options of `cp_rank`.
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
    least: End | None = None
    A: Matrix | None = None
    rank: int | None = None
    seed: int = 0

    def check(self, A: ArrayLike | torch.Tensor | None = None) -> bool:
        """Whether all that is claimed can be proved again, from what is kept here and the matrix A (n, n) alone.

        The witness, or the factor's residual; and both ends of the interval, component by component. None is the
        matrix that was asked about.

        Raises:
            DataError: as `cp_rank`.
        """
        if A is None and self.A is None:
            raise ProblemError("This answer does not hold its matrix; give the one that was asked about.")
        matrix = check_matrix(self.A if A is None else A)  # type: ignore[arg-type]
        if not self._is_coherent(len(matrix)):
            return False
        if self.verdict is Verdict.NOT:
            again = None if self.witness is None else copositive.witness(matrix, self.witness.C)
            return again is not None and self.witness is not None and again.proof == self.witness.proof
        prepared = given = _prepare(matrix)
        if self.least is not None:
            prepared = given.without_small(self.tolerance)
        if [part.vertices for part in self.parts] != prepared.components or (self.exact and not prepared.faithful):
            return False
        blocks = [prepared.A[np.ix_(part.vertices, part.vertices)] for part in self.parts]
        if not all(part.check(block, self.tolerance) for part, block in zip(self.parts, blocks, strict=True)):
            return False
        if not self._lower_holds(given, prepared):
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

    def _is_coherent(self, order: int) -> bool:
        """Whether numbers and arrays go with the verdict and the order, which is what the proofs take for granted."""
        numbers = (self.lower, self.upper, self.B, self.residual, self.least, *self.parts)
        if self.verdict is Verdict.NOT:
            C = None if self.witness is None else self.witness.C
            alone = self.exact and all(number is None for number in numbers)
            return alone and C is not None and C.shape == (order, order) and bool((C == C.T).all())
        if self.witness is not None or (self.B is None) != (self.residual is None):
            return False
        if self.verdict is Verdict.UNDECIDED and (self.exact or self.upper is not None):
            return False
        ends = [(end, len(part.vertices)) for part in self.parts for end in (part.lower, part.upper) if end is not None]
        ends += [] if self.least is None else [(self.least, order)]
        factors = [(self.B, order), *((part.B, len(part.vertices)) for part in self.parts)]
        factors += [(getattr(end.proof, "B", None), size) for end, size in ends]
        weights = [end.proof.weights for end, _ in ends if isinstance(end.proof, ByEdgeWeights)]
        if not all(B is None or (B.ndim == 2 and B.shape[1] == size and (B >= 0.0).all()) for B, size in factors):
            return False
        bare = [part.upper for part in self.parts if part.upper is not None and not part.exact]
        if any(isinstance(end.proof, ByTheorem) and end.proof.B is None for end in bare):
            return False  # a theorem on A, which is not known to be completely positive
        return all(
            y.weights.shape == (len(y.edges),) and all(len(set(edge)) == len(edge) in (1, 2) for edge in y.edges)
            for y in weights
        )

    def _lower_holds(self, given: _Prepared, prepared: _Prepared) -> bool:
        if self.least is None:
            return self.lower == sum(part.lower.value for part in self.parts)
        A, rest, distance = _whole(given, prepared, self.tolerance)
        if isinstance(self.least.proof, ByRank):
            holds = self.least.value <= certain_rank(rest, distance)
        else:
            holds = self.least.check(A, self.tolerance)
        return self.lower == self.least.value and holds

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
            "separation": None if self.witness is None else self.witness.value,
        }

    def save(
        self,
        directory: str | os.PathLike[str],
        *,
        force: bool = False,
        others: Mapping[str, Writer] | None = None,
    ) -> None:
        """Write cprank.json, matrix.npz (A), proof.json and proof.npz (all that `check` needs, the factor B and the
        witness C among it) and origin.json; force and others as for `Result.save`.

        Raises:
            RecordError: the directory exists, or cannot be written.
        """
        if self.A is None:
            raise RecordError("This answer does not hold its matrix; ask for it again before saving.")
        told, matrix, arrays = self.stated(), self.A, {}
        tree = pack(replace(self, A=None), arrays)
        writers: dict[str, Writer] = {
            SUMMARY: lambda path: record.write_summary(path, told),
            MATRIX: lambda path: np.savez(path, allow_pickle=False, A=matrix),
            f"{PROOF}.json": lambda path: path.write_text(json.dumps(tree) + "\n", encoding="utf-8"),
            f"{PROOF}.npz": lambda path: np.savez(path, allow_pickle=False, **arrays),
            ORIGIN: write_origin(),
            **(others or {}),
        }
        storing.put(directory, SUMMARY, writers, force=force)

    def stated(self) -> dict[str, object]:
        """What cprank.json says: the summary, and the question."""
        asked = {"order": None if self.A is None else len(self.A), "tolerance": self.tolerance, "rank": self.rank}
        return {**self.summary(), **asked, "seed": self.seed, "version": __version__}


def measured(answer: CPRank) -> dict[str, float]:
    """The residual of the factor and what the witness separates, computed from the arrays of an answer."""
    found, A = {}, answer.A
    if A is not None and answer.B is not None:
        found["residual"] = factorization.residual(A, answer.B)
    again = None if A is None or answer.witness is None else copositive.witness(A, answer.witness.C)
    return found if again is None else found | {"separation": again.value}


def facts(A: Matrix) -> list[tuple[str, object]]:
    """What a person wants to know of a matrix and of its support graph."""
    graph, values = support_graph(A), np.linalg.eigvalsh(A)
    return [
        ("least eigenvalue, up to rounding", float(values[0])),
        ("largest eigenvalue, up to rounding", float(values[-1])),
        ("negative entries", int((A < 0.0).sum())),
        ("vertices", len(A)),
        ("edges (entries off the diagonal that are not zero, in pairs)", graph.number_of_edges()),
        ("connected components", nx.number_connected_components(graph)),
        ("triangles", sum(nx.triangles(graph).values()) // 3),  # type: ignore[union-attr]
    ]


PROOFS = (
    *(CPRank, Part, End, Witness, EdgeWeights, MomentBound),
    *(ByRank, ByEdges, ByEdgeWeights, ByCover, ByMoments, ByFactor, ByOrder, ByTheorem),
)
"""What a stored answer consists of."""


def load_cp_rank(directory: str | os.PathLike[str]) -> CPRank:
    """An answer that `CPRank.save` stored, from its matrix and its proofs; no file is trusted.

    Raises:
        DataError, RecordError: a file is missing or damaged.
        KeyError, TypeError, ValueError: the proofs are not what `save` writes.
    """
    path = Path(directory)
    classes = {kind.__name__: kind for kind in PROOFS}
    answer = unpack(record.read_object(path / f"{PROOF}.json"), read_npz(path / f"{PROOF}.npz"), classes)
    if not isinstance(answer, CPRank):
        raise ValueError(f"no answer in {PROOF}.json")
    return replace(answer, A=check_matrix(read_matrix(path / MATRIX)))


@gently()
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
        tolerance: a factor's residual |A - B^T B| may be so large, relative to |A|, and entries below it, relative to
            sqrt(A_ii A_jj), are first left out (then nothing is exact but the lower end, which holds for A itself).
        time_limit: seconds after which nothing new is tried; Ctrl-C ends it as well, with what is proved by then.
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
    if not 0.0 <= tolerance < MOST:
        raise ProblemError("The tolerance is relative; give a number from 0 to below 0.1.")
    if not time_limit > 0.0 or math.isnan(time_limit):
        raise ProblemError("The time limit must be a positive number of seconds.")
    if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int | np.integer) or rank < 1):
        raise ProblemError("The number of atoms to look for must be a whole number of at least 1.")
    search = Search(max(tolerance, LEAST), seed, time.perf_counter() + time_limit, rank)
    return replace(_answer(matrix, search), A=matrix, rank=None if rank is None else int(rank), seed=int(seed))


def _answer(matrix: Matrix, search: Search) -> CPRank:
    """The steps of this module's text."""
    powers = _powers_of_two(matrix)
    scaled = matrix / np.outer(powers, powers)
    found = copositive.find_cheap(scaled, search.tolerance)
    witness = None if found is None else copositive.witness(matrix, _unscaled(found.C, powers))
    if witness is not None:
        return _not_positive(witness, search)
    given = _prepare(matrix)
    clean = given.without_small(search.tolerance)
    if clean is given:
        return _decide(matrix, given, search)
    first = replace(search, deadline=search.share(FIRST if given.faithful else 1.0))
    answer = _decide(matrix, clean, first)
    if answer.verdict is Verdict.UNDECIDED and given.faithful:
        second = _decide(matrix, given, search)
        if second.verdict is not Verdict.UNDECIDED:
            return second
    return answer if answer.verdict is Verdict.NOT else _with_lower_of_given(answer, given, clean, search)


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
    size = np.sqrt(np.abs(np.diag(matrix)))
    off = np.abs(matrix - matrix.T) - ASYMMETRY * np.maximum(
        np.maximum(np.abs(matrix), np.abs(matrix.T)), np.outer(size, size)
    )
    if off.max() > 0.0:
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


@dataclass(frozen=True)
class _Prepared:
    """A matrix as its components are decided.

    Attributes:
        A: non-negative, its diagonal between 1/2 and 2; rows and columns whose diagonal is not positive are zero.
        powers: A_ij times those of i and j is the entry of the matrix that was given.
        faithful: whether it is so for every entry, to the last digit.
        lost: |the matrix that was given, scaled - A| where an entry was not positive, in Frobenius norm.
    """

    A: Matrix
    powers: Float[np.ndarray, " n"]
    faithful: bool
    lost: float

    @property
    def components(self) -> list[tuple[int, ...]]:
        """Of the support graph, without vertices that are zero."""
        found = (tuple(sorted(c)) for c in nx.connected_components(support_graph(self.A)))
        return [c for c in found if self.A[c[0], c[0]] > 0.0]

    def without_small(self, tolerance: float) -> _Prepared:
        """With zeros for the entries that are too small to count; itself where none is."""
        size = np.sqrt(np.diag(self.A))
        clean = np.where(tolerance * np.outer(size, size) < self.A, self.A, 0.0)
        return self if (clean == self.A).all() else replace(self, A=clean, faithful=False)


def _prepare(matrix: Matrix) -> _Prepared:
    """Scaled, with an entry wherever the matrix has one: below zero or the smallest numbers, a tiny one stands for it.

    The support graph is then that of the matrix. Negative entries come here within the tolerance only.
    """
    powers = _powers_of_two(matrix)
    scaled = matrix / np.outer(powers, powers)
    present = (matrix != 0.0) & (np.diag(matrix) > 0.0) & (np.diag(matrix) > 0.0)[:, None]
    A = np.where(present, np.maximum(scaled, np.finfo(np.float64).tiny), 0.0)
    faithful = bool((A * np.outer(powers, powers) == matrix).all())
    return _Prepared(A, powers, faithful, float(np.linalg.norm(np.where(present, A - scaled, 0.0))))


def _decide(matrix: Matrix, prepared: _Prepared, search: Search) -> CPRank:
    """The answer from the components."""
    parts, components = [], prepared.components
    for place, component in enumerate(components):
        atoms = search.rank if len(components) == 1 else None
        turn = Search(search.tolerance, search.seed, search.share(1.0 / (len(components) - place)), atoms)
        part = replace(decide(prepared.A[np.ix_(component, component)], turn), vertices=component)
        if part.witness is not None:
            C = np.zeros_like(matrix)
            C[np.ix_(component, component)] = part.witness.C
            witness = copositive.witness(matrix, _unscaled(C, prepared.powers))
            if witness is not None:
                return _not_positive(witness, search)
            part = replace(part, verdict=Verdict.UNDECIDED, exact=False, witness=None)
        parts.append(part)
    return _together(matrix, tuple(parts), prepared, search)


def _with_lower_of_given(answer: CPRank, given: _Prepared, clean: _Prepared, search: Search) -> CPRank:
    """The answer for the clean matrix with a lower end that holds for the one that was given."""
    A, rest, distance = _whole(given, clean, search.tolerance)
    if not len(A):
        return replace(answer, lower=0, lower_reason="no atoms")
    least = lower_of_given(A, rest, distance, search)
    if answer.upper is None or least.value < answer.upper:
        least = max([least, *by_moments(A, search)], key=lambda end: end.value)
    return replace(answer, lower=least.value, lower_reason=least.reason, least=least)


def _whole(given: _Prepared, clean: _Prepared, tolerance: float) -> tuple[Matrix, Matrix, float]:
    """(both matrices without the rows that are zero, how far those in question are from the clean one)."""
    there = np.flatnonzero(np.diag(given.A) > 0.0)
    A, rest = (matrix[np.ix_(there, there)] for matrix in (given.A, clean.A))
    return A, rest, tolerance * float(np.linalg.norm(A)) + float(np.linalg.norm(A - rest)) + given.lost


def _unscaled(C: Matrix, powers: Float[np.ndarray, " n"]) -> Matrix:
    """A witness against the scaled matrix as one against the matrix itself, its largest entry 1."""
    with np.errstate(all="ignore"):  # what does not fit into float64 is no witness, and is not taken for one
        C = C / np.outer(powers, powers)
        return C / np.abs(C).max()


def _not_positive(witness: Witness, search: Search) -> CPRank:
    return CPRank(Verdict.NOT, True, None, None, None, None, None, None, witness, search.tolerance)


def _together(A: Matrix, parts: tuple[Part, ...], prepared: _Prepared, search: Search) -> CPRank:
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
        B = np.concatenate(rows) * prepared.powers if rows else np.zeros((0, len(A)))
        B = B if search.rank is None else factorization.split(B, search.rank)
    residual = None if B is None else factorization.residual(A, B)
    exact = prepared.faithful and all(part.exact for part in parts)
    if not exact and (residual is None or residual > tolerance):
        return replace(undecided, B=B, residual=residual)
    return CPRank(Verdict.POSITIVE, exact, lower, upper, told, why, B, residual, None, tolerance, parts)


def _sum(ends: list[End]) -> tuple[int, str]:
    if len(ends) == 1:
        return ends[0].value, ends[0].reason
    reasons = sorted({end.reason for end in ends})
    total = sum(end.value for end in ends)
    return total, f"sum over {len(ends)} components: {'; '.join(reasons) or 'no atoms'}"
