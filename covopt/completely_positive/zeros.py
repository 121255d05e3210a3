"""The exact cp-rank of a matrix that is a sum over the zeros of a copositive matrix.

Let C be copositive and <A, C> = 0. In A = sum_k b_k b_k^T, b_k >= 0, every b_k^T C b_k is 0. Where the zeros of C are
finitely many rays z_1, ..., z_m, the cp-rank of A is the smallest number of positive w_i in A = sum_i w_i z_i z_i^T
with w >= 0. If the z_i z_i^T are linearly independent, w is the only solution; with one dependency among them, the
solutions are a segment, and one of its ends has the fewest. All of this is decided in whole numbers and fractions.

**Zeros.** C is semi-definite on the support S of a zero, so that the zeros with support in S are the x >= 0 in the
kernel of C_S, a cone, and each is a sum of zeros whose supports hold no support of another: the minimal ones. C_S is
singular for these, with a positive vector in its kernel, and C_T is positive definite for every part T of S. The rays
are all the zeros if z_i^T C z_j > 0 for every two minimal ones: in a sum of them, no product may be positive.

**The tree** is that of `supports`, and its rules hold for the support S of a minimal zero x (I, R, P, B as there; with
y = x_R, x_I = -P y and (B y)_r = 0 for r in S):

1. B_rr < 0: no S holds r, for C_S is semi-definite. B_rr = 0: S = I + r, and x = (-P_r, 1) if that is positive.
2. If B_rr > 0 and B_rs >= 0 for all s in R, then (B y)_r > 0, and no S holds r.
3. If P_ir >= 0 for all r in R, then x_i <= 0, and the node is empty.
4. If B is positive definite, with or without its positive entries off the diagonal, then y^T B y > 0, and the node is
   empty.

Source: Bomze, Schachinger, Ullrich, From seven to eleven, Linear Algebra Appl. 459 (2014), for the unique
factorisation; Hildebrand, Minimal zeros of copositive matrices, Linear Algebra Appl. 459 (2014), for the zeros.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from jaxtyping import Float, Shaped

from covopt.completely_positive import rational
from covopt.completely_positive.prepared import Matrix
from covopt.completely_positive.supports import Copositive, decide, root_of_tree, scaled_back
from covopt.runtime.loop import past

Zeros = Shaped[np.ndarray, "m n"]

NODES, MOST = 100_000, 400  # the largest number of nodes and of zeros of a proof


@dataclass(frozen=True)
class ByZeros:
    """The cp-rank is the number of zeros of C that A needs; C (n, n) is copositive, with <A, C> = 0."""

    C: Matrix

    def check(self, A: Matrix, value: int, tolerance: float) -> bool:
        atoms = fewest(A, self.C)
        return atoms is not None and value == len(atoms)


def prove(A: Matrix, C: Matrix, deadline: float = math.inf) -> tuple[Float[np.ndarray, "r n"], ByZeros] | None:
    """Return the fewest atoms of A >= 0 and the proof, from a C that exposes A up to rounding; None: no proof.

    The entries of C where A is zero are ignored.
    """
    if not rational.is_exact_data(A):
        return None
    whole = _whole(np.where(A > 0.0, C, 0.0))
    if whole is None:
        return None
    # No atom has two entries i, j with A_ij = 0, and <A, C> does not involve C_ij: it may be as large as needed.
    whole = np.where(A > 0.0, whole, 4.0 * np.abs(whole).max())
    atoms = fewest(A, whole, deadline)
    return None if atoms is None else (atoms, ByZeros(whole))


def _whole(C: Matrix) -> Matrix | None:
    """Return the smallest whole multiple of C, if its entries are simple fractions of one entry."""
    largest = float(np.abs(C).max())
    if not 0.0 < largest < math.inf:
        return None
    relative = C / largest
    near = [Fraction(entry).limit_denominator(10**6) for entry in relative.flat]
    if max(abs(float(a) - b) for a, b in zip(near, relative.flat, strict=True)) > 1e-11:
        return None
    multiple = math.lcm(*(entry.denominator for entry in near))
    entries = [int(entry * multiple) for entry in near]
    if max(map(abs, entries)) >= 2**48:  # float64 holds these exactly, and four times the largest
        return None
    return np.array(entries, dtype=np.float64).reshape(C.shape)


def fewest(A: Matrix, C: np.ndarray, deadline: float = math.inf) -> Float[np.ndarray, "r n"] | None:
    """Return the fewest atoms of A, rounded, if C proves that they are the fewest; else None."""
    if C.shape != A.shape or C.dtype != np.float64 or len(A) > 25:  # C may come from a file
        return None
    if not np.isfinite(C).all() or not (C == C.T).all():
        return None
    if sum(Fraction(float(a)) * Fraction(float(c)) for a, c in zip(A.flat, C.flat, strict=True)) != 0:
        return None
    if decide(C, deadline, NODES).verdict is not Copositive.YES:
        return None
    Z = minimal_zeros(C, deadline)
    if Z is None or not len(Z):
        return None
    products = Z @ rational.integers(C) @ Z.T
    if not ((products > 0) | np.eye(len(Z), dtype=bool)).all():
        return None
    weights = _weights(A, Z)
    if weights is None:
        return None
    atoms = [math.sqrt(weight) * z.astype(np.float64) for weight, z in zip(weights, Z, strict=True) if weight > 0]
    return np.array(atoms).reshape(-1, len(A))


def minimal_zeros(C: Matrix, deadline: float = math.inf) -> Zeros | None:
    """Return a copositive matrix's minimal zeros in whole numbers, or None."""
    root, exponents = root_of_tree(C)
    stack = [root]
    zeros: dict[tuple[int, ...], dict[int, int]] = {}
    for _ in range(NODES):
        if not stack or past(deadline) or len(zeros) > MOST:
            break
        node = stack.pop()
        zeros |= {tuple(sorted(zero)): zero for zero in node.zeros()}
        reduced = node.reduced()
        if reduced is not None:
            stack.extend(reduced.children(definite=True))
    if stack or len(zeros) > MOST:
        return None
    Z = np.array([scaled_back(zero, exponents) for zero in zeros.values()], dtype=object).reshape(-1, len(C))
    return Z // np.gcd.reduce(Z, axis=1, keepdims=True)


def _weights(A: Matrix, Z: Zeros) -> list[Fraction] | None:
    """Return w >= 0 with A = sum_i w_i z_i z_i^T and the fewest positive w_i, or None.

    The equations times the z_i z_i^T are sum_j (z_i^T z_j)^2 w_j = z_i^T A z_i, and lose no information. With one
    dependency the solutions w >= 0 are a segment, and the positive w_i are fewest at one of its ends.
    """
    exact = np.array([Fraction(float(entry)) for entry in A.flat], dtype=object).reshape(A.shape)
    some, free, along = _solved((Z @ Z.T) ** 2, ((Z @ exact) * Z).sum(axis=1))
    candidates = [some]
    if free == 1:
        low = max((-a / b for a, b in zip(some, along, strict=True) if b > 0), default=None)
        high = min((-a / b for a, b in zip(some, along, strict=True) if b < 0), default=None)
        ends = [end for end in (low, high) if end is not None]
        candidates = [[a + end * b for a, b in zip(some, along, strict=True)] for end in ends]
    elif free:
        return None
    good = [w for w in candidates if min(w) >= 0]
    fewest = min(good, key=lambda w: sum(weight > 0 for weight in w), default=None)
    if fewest is None or not ((Z.T * np.array(fewest, dtype=object)) @ Z == exact).all():
        return None
    return fewest


def _solved(
    M: Shaped[np.ndarray, "m m"], right: Shaped[np.ndarray, " m"]
) -> tuple[list[Fraction], int, list[Fraction]]:
    """Return w with M w = right, if any, the dimension of the kernel, and a vector in it."""
    m = len(M)
    T = np.column_stack([M, right]) * Fraction(1)
    pivots: list[int] = []
    for k in range(m):
        done = len(pivots)
        place = next((i for i in range(done, m) if T[i, k] != 0), None)
        if place is None:
            continue
        T[[done, place]] = T[[place, done]]
        T[done] /= T[done, k]
        others = [i for i in range(m) if i != done and T[i, k] != 0]
        T[others, k:] -= np.outer(T[others, k], T[done, k:])
        pivots.append(k)
    some, along = np.full((2, m), Fraction(0))
    some[pivots] = T[: len(pivots), -1]
    free = next((k for k in range(m) if k not in pivots), None)
    if free is not None:
        along[pivots], along[free] = -T[: len(pivots), free], Fraction(1)
    return some.tolist(), m - len(pivots), along.tolist()
