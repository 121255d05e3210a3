"""Decide whether a matrix is completely positive, and how few atoms it takes.

`cp_rank` proves both ends of its answer. A (n, n) is completely positive if A = B^T B = sum_k b_k b_k^T with B (r, n)
>= 0; the smallest r is its cp-rank. The steps are:

1. A matrix with a negative entry or eigenvalue is not completely positive.
2. A is scaled by powers of two (no digit is lost) to a diagonal between 1/2 and 2 and split into the connected
   components of its support graph, whose cp-ranks add up.
3. A component without triangles is decided by its comparison matrix (`triangle_free`).
4. For others the lower end comes from the rank, edge-clique covers (`graphs`) and moments (`moments`), the upper end
   from a factor (`factorization`) and from theorems. If no factor is found, a copositive witness is sought
   (`copositive`).

**Exact.** A factor is a floating-point matrix, so A = B^T B up to a residual. `exact` means that a matrix B' >= 0 with
B'^T B' = A and no more atoms is proved to exist: by a theorem whose condition holds by a margin or in exact arithmetic,
or by `factorization.proves`. On the boundary of the cone there is often no such proof, and the upper end then holds for
a matrix within the residual. A witness is always a proof. The lower end always holds for A itself, to its last digit.
It treats entries below the tolerance, which a factor may leave out, with care: they need not be covered, but they join
vertices (`connected.lower_of_given`).
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import ArrayLike

from covopt.completely_positive import copositive, factorization
from covopt.completely_positive.answer import LEAST, MOST, CPRank
from covopt.completely_positive.connected import Part, Search, Verdict, by_moments, decide, lower_of_given
from covopt.completely_positive.copositive import Witness
from covopt.completely_positive.ends import End
from covopt.completely_positive.prepared import Matrix, Prepared, check_matrix, powers_of_two, prepare, unscaled, whole
from covopt.model.scalars import as_number
from covopt.runtime.errors import ProblemError
from covopt.runtime.interrupts import gently
from covopt.runtime.loop import Seed
from covopt.runtime.options import checked

TOLERANCE = 1e-9


@checked
@gently()
def cp_rank(
    A: ArrayLike | torch.Tensor,
    *,
    rank: int | None = None,
    tolerance: float = TOLERANCE,
    time_limit: float = 60.0,
    seed: Seed = 0,
) -> CPRank:
    """Decide whether A is completely positive, and bound its cp-rank from both sides, with reasons.

    >>> answer = covopt.cp_rank([[2.0, 1.0], [1.0, 2.0]])
    >>> answer.lower, answer.upper, answer.check()
    (2, 2, True)

    Args:
        A: a symmetric matrix (n, n), n up to about 100. It may be indefinite or have negative entries; then it is not
            completely positive.
        rank: the number of atoms to look for in a factor; None: as few as can be found. If that search fails, the
            factor has as many as it needs.
        tolerance: the largest residual |A - B^T B| of a factor, relative to |A|. Entries below it, relative to
            sqrt(A_ii A_jj), are first left out; then only the lower end is exact, which holds for A itself.
        time_limit: seconds after which nothing new is tried; Ctrl-C ends the search as well, with what is proved.
        seed: the seed of the random starts.

    Returns:
        The verdict, both ends of the interval with their reasons, and a factor (r, n) or a witness (n, n).

    Raises:
        DataError: A is not a finite, symmetric, square matrix of real numbers, or is empty.
        ProblemError: an option is out of range.

    Source: Berman, Shaked-Monderer, Completely Positive Matrices (2003) and Copositive and Completely Positive Matrices
    (2021); [JGHG22], section 4.
    """
    matrix = check_matrix(A)
    if not 0.0 <= as_number(tolerance, "tolerance") < MOST:
        raise ProblemError("The tolerance is relative; give a number from 0 to below 0.1.")
    if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int | np.integer) or rank < 1):
        raise ProblemError("The number of atoms to look for must be a whole number of at least 1.")
    seed = int(seed)
    search = Search(max(tolerance, LEAST), seed, time.perf_counter() + time_limit, rank)
    return replace(_answer(matrix, search), A=matrix, rank=None if rank is None else int(rank), seed=seed)


def _answer(matrix: Matrix, search: Search) -> CPRank:
    """Return the answer for a matrix, by the steps of this module's docstring."""
    powers = powers_of_two(matrix)
    cheap = copositive.find_cheap(matrix / np.outer(powers, powers), search.tolerance)
    witness = None if cheap is None else copositive.witness(matrix, unscaled(cheap.C, powers))
    if witness is not None:
        return _not_positive(witness, search)
    original = prepare(matrix)
    clean = original.without_small(search.tolerance)
    if clean is original:
        return _decide(matrix, original, search)
    # The matrix without its small entries is decided first, and leaves time for the matrix with them.
    first = replace(search, deadline=search.share(0.6 if original.faithful else 1.0))
    answer = _decide(matrix, clean, first)
    if answer.verdict is Verdict.UNDECIDED and original.faithful:
        second = _decide(matrix, original, search)
        if second.verdict is not Verdict.UNDECIDED:
            return second
    return answer if answer.verdict is Verdict.NOT else _with_lower_of_given(answer, original, clean, search)


def _decide(matrix: Matrix, prepared: Prepared, search: Search) -> CPRank:
    """Decide the components one by one, and combine their answers."""
    parts, components = [], prepared.components
    for place, component in enumerate(components):
        atoms = search.rank if len(components) == 1 else None
        turn = Search(search.tolerance, search.seed, search.share(1.0 / (len(components) - place)), atoms)
        part = replace(decide(prepared.A[np.ix_(component, component)], turn), vertices=component)
        if part.witness is not None:
            C = np.zeros_like(matrix)
            C[np.ix_(component, component)] = part.witness.C
            witness = copositive.witness(matrix, unscaled(C, prepared.powers))
            if witness is not None:
                return _not_positive(witness, search)
            part = replace(part, verdict=Verdict.UNDECIDED, exact=False, witness=None)
        parts.append(part)
    return _together(matrix, tuple(parts), prepared, search)


def _with_lower_of_given(answer: CPRank, original: Prepared, clean: Prepared, search: Search) -> CPRank:
    """Return the answer for the clean matrix with a lower end that holds for the original one."""
    A, cleaned, distance = whole(original, clean, search.tolerance)
    if not len(A):
        return replace(answer, lower=0, lower_reason="no atoms")
    least = lower_of_given(A, cleaned, distance, search)
    if answer.upper is None or least.value < answer.upper:
        least = max([least, *by_moments(A, search)], key=lambda end: end.value)
    return replace(answer, lower=least.value, lower_reason=least.reason, least=least)


def _not_positive(witness: Witness, search: Search) -> CPRank:
    return CPRank(Verdict.NOT, True, None, None, None, None, None, None, witness, search.tolerance)


def _together(A: Matrix, parts: tuple[Part, ...], prepared: Prepared, search: Search) -> CPRank:
    """Combine the answers of the components: ends add up, and factors stand side by side."""
    lower, reason = _sum([part.lower for part in parts])
    tolerance = search.tolerance
    undecided = CPRank(Verdict.UNDECIDED, False, lower, None, reason, None, None, None, None, tolerance, parts)
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
    return CPRank(Verdict.POSITIVE, exact, lower, upper, reason, why, B, residual, None, tolerance, parts)


def _sum(ends: list[End]) -> tuple[int, str]:
    if len(ends) == 1:
        return ends[0].value, ends[0].reason
    reasons = sorted({end.reason for end in ends})
    return sum(end.value for end in ends), f"sum over {len(ends)} components: {'; '.join(reasons) or 'no atoms'}"
