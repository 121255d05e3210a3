"""Symmetric matrices made to break statements on complete positivity, each with what is known of it beforehand.

Every matrix is the one that is meant to the last digit: its entries are whole multiples of a power of two, small enough
for float64, so that what is known of it holds for A itself and not only for a matrix nearby.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
HORN = np.array([[1, -1, 1, 1, -1], [-1, 1, -1, 1, 1], [1, -1, 1, -1, 1], [1, 1, -1, 1, -1], [-1, 1, 1, -1, 1]], float)
DIGITS = 2.0**-50


@dataclass(frozen=True)
class Hostile:
    """A matrix, the options of the question, and what is known of it.

    Attributes:
        kind: the idea, and the seed.
        A: the matrix (n, n).
        positive: whether it is completely positive.
        most: its cp-rank is at most this, by a construction; None: nothing is known.
        options: of `cp_rank`.
    """

    kind: str
    A: Matrix
    positive: bool
    most: int | None
    options: dict[str, float]

    @property
    def least(self) -> int:
        """The rank, in exact arithmetic."""
        rows = [[Fraction(entry) for entry in row] for row in self.A.tolist()]
        rank = 0
        for column in range(len(rows)):
            pivot = next((i for i in range(rank, len(rows)) if rows[i][column]), None)
            if pivot is None:
                continue
            rows[rank], rows[pivot] = rows[pivot], rows[rank]
            for i in range(rank + 1, len(rows)):
                part = rows[i][column] / rows[rank][column]
                rows[i] = [a - part * b for a, b in zip(rows[i], rows[rank], strict=True)]
            rank += 1
        return rank


def hostile_matrices(count: int, seed: int = 0) -> Iterator[Hostile]:
    """So many of them, all kinds in turn."""
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        make = MAKERS[number % len(MAKERS)]
        A, positive, most, options = make(rng)
        order = rng.permutation(len(A))
        yield Hostile(f"{make.__name__.strip('_')} {seed}/{number}", A[np.ix_(order, order)], positive, most, options)


Made = tuple[Matrix, bool, int | None, dict[str, float]]


def _small_root(rng: np.random.Generator) -> Made:
    """I + E with 0 < E_ij and n max(E)^2 < min(E) / 2: its root I + E / 2 - E^2 / 8 + ... is positive, so n atoms.

    Some entries lie below the tolerance, often all but those of a graph without triangles.
    """
    n = int(rng.integers(3, 9))
    tolerance = float(rng.choice([0.0, 1e-9, 1e-9, 1e-6, 1e-3, 0.01]))
    size = (tolerance or 1e-9) * float(rng.choice([0.3, 1.0, 1.0, 3.0]))
    above = rng.random((n, n)) < 0.5
    if rng.random() < 0.7:  # bipartite above, the rest below
        side = rng.permutation(n) < rng.integers(1, n)
        above = side[:, None] != side
    E = size * np.where(above, rng.uniform(1.05, 2.5, (n, n)), rng.uniform(0.3, 0.95, (n, n)))
    E = np.ceil(np.triu(E, 1) / DIGITS) * DIGITS
    return np.eye(n) + E + E.T, True, n, {"tolerance": tolerance}


def _two_scales(rng: np.random.Generator) -> Made:
    """B^T B + 2^-k E^T E: as many atoms as both have, however small the second part."""
    n, atoms, more = int(rng.integers(2, 8)), int(rng.integers(1, 7)), int(rng.integers(0, 4))
    B = rng.integers(0, 4, (atoms, n)) * (rng.random((atoms, n)) < rng.choice([0.35, 0.6, 1.0]))
    E = rng.integers(0, 3, (more, n)) * (rng.random((more, n)) < 0.6)
    A = (B.T @ B).astype(float) + 2.0 ** -float(rng.integers(1, 44)) * (E.T @ E).astype(float)
    return A, True, atoms + more, {"tolerance": float(rng.choice([0.0, 1e-9, 1e-6, 0.01]))}


def _edges(rng: np.random.Generator) -> Made:
    """Atoms on the edges of a random graph, whose weights reach over many powers of two."""
    n = int(rng.integers(3, 8))
    pairs = np.argwhere(np.triu(rng.random((n, n)) < rng.choice([0.3, 0.5]), 1))
    B = np.zeros((len(pairs), n))
    reach = int(rng.choice([0, 4, 16, 24]))
    for row, (i, j) in enumerate(pairs):
        B[row, i], B[row, j] = 2.0 ** rng.integers(-reach // 2, 1, 2) * rng.integers(1, 3, 2)
    return B.T @ B, True, len(B), {}


def _scaled(rng: np.random.Generator) -> Made:
    """Rows and columns times powers of two, up to 2^360 apart; the cp-rank stays."""
    n, atoms = int(rng.integers(1, 7)), int(rng.integers(1, 8))
    B = rng.integers(0, 4, (atoms, n)) * (rng.random((atoms, n)) < 0.6)
    d = 2.0 ** rng.integers(-250, 110, n)
    return (B.T @ B) * np.outer(d, d), True, atoms, {}


def _integers(rng: np.random.Generator) -> Made:
    """B^T B with few or many digits, rows of zeros and rows that repeat."""
    n, atoms = int(rng.integers(1, 9)), int(rng.integers(1, 9))
    B = rng.integers(0, int(rng.choice([2, 4, 2**12, 2**24])), (atoms, n)) * (rng.random((atoms, n)) < 0.7)
    if n > 1 and rng.random() < 0.3:
        B[:, rng.integers(n)] = 0
    if n > 1 and rng.random() < 0.3:
        B[:, 0] = B[:, -1]
    return (B.T @ B).astype(float), True, atoms, {}


def _horn_face(rng: np.random.Generator) -> tuple[Matrix, int]:
    """sum x x^T, x = (u, u + v, v, 0, 0) and its rotations: x^T H x = 0, on the boundary of the cone."""
    atoms = int(rng.integers(3, 12))
    A = np.zeros((5, 5))
    for _ in range(atoms):
        u, v = rng.integers(1, 64, 2)
        x = np.roll([u, u + v, v, 0, 0], rng.integers(5)).astype(float)
        A += np.outer(x, x)
    return A, atoms


def _beyond_the_boundary(rng: np.random.Generator) -> Made:
    """A - t H, t > 0: <A, H> = -25 t, so that it is not completely positive; t falls below every tolerance."""
    A, _ = _horn_face(rng)
    return A - 2.0 ** -float(rng.integers(1, 36)) * HORN, False, None, {}


def _inside_the_boundary(rng: np.random.Generator) -> Made:
    """A + t 11^T: completely positive, with at most six atoms at order 5."""
    A, atoms = _horn_face(rng)
    return A + 2.0 ** -float(rng.integers(1, 36)), True, min(6, atoms + 1), {}


def _below_zero(rng: np.random.Generator) -> Made:
    """One entry is negative, down to 2^-40 of the others: not completely positive, and never exactly said to be."""
    n = int(rng.integers(2, 7))
    A = rng.integers(0, 2, (n, n)).astype(float)
    A = A.T @ A + n * np.eye(n)
    i, j = rng.choice(n, 2, replace=False)
    A[i, j] = A[j, i] = -(2.0 ** -float(rng.integers(1, 41)))
    return A, False, None, {"tolerance": float(rng.choice([0.0, 1e-9, 1e-3]))}


def _below_definite(rng: np.random.Generator) -> Made:
    """A singular B^T B less 2^-k at one place of the diagonal that its null space sees: an eigenvalue is negative."""
    n = int(rng.integers(3, 7))
    B = rng.integers(1, 5, (n - 1, n))
    B[:, 0] = B[:, 1]
    A = (B.T @ B).astype(float)
    A[0, 0] -= 2.0 ** -float(rng.integers(1, 41))
    return A, False, None, {}


def _without_triangles(rng: np.random.Generator) -> Made:
    """E^T E of a bipartite graph with weights, joined by entries that count or do not: edges and blocks as atoms."""
    p, q = (int(k) for k in rng.integers(1, 4, 2))
    n = p + q
    rows = [
        np.eye(n)[i] * rng.integers(1, 4) + np.eye(n)[p + j] * rng.integers(1, 4) for i in range(p) for j in range(q)
    ]
    tiny = 2.0 ** -float(rng.integers(5, 22)) * rng.integers(0, 3, (int(rng.integers(1, 3)), n))
    B = np.concatenate([np.array(rows), tiny])
    return B.T @ B, True, len(B), {}


MAKERS: tuple[Callable[[np.random.Generator], Made], ...] = (
    _small_root,
    _two_scales,
    _edges,
    _scaled,
    _integers,
    _beyond_the_boundary,
    _inside_the_boundary,
    _below_zero,
    _below_definite,
    _without_triangles,
)


def falsehoods(hostile: Hostile, answer: object) -> list[str]:
    """What an answer of `cp_rank` states against what is known of the matrix, or against itself."""
    verdict, exact, lower, upper, B = (getattr(answer, name) for name in ("verdict", "exact", "lower", "upper", "B"))
    said = []
    if hostile.positive and verdict == "not completely positive":
        said.append("it is completely positive")
    if not hostile.positive and verdict == "completely positive" and exact:
        said.append("it is not completely positive")
    if hostile.most is not None and lower is not None and lower > hostile.most:
        said.append(f"lower end {lower}, but {hostile.most} atoms suffice")
    if hostile.positive and exact and upper is not None and upper < hostile.least:
        said.append(f"upper end {upper}, but the rank is {hostile.least}")
    if lower is not None and upper is not None and lower > upper:
        said.append(f"lower end {lower} above upper end {upper}")
    if B is not None and (B < 0.0).any():
        said.append("a negative atom")
    if verdict == "completely positive" and not exact:
        missed = np.linalg.norm(hostile.A - B.T @ B) / np.linalg.norm(hostile.A)
        if not missed <= hostile.options.get("tolerance", 1e-9) + 1e-15:
            said.append(f"a residual of {missed:.1e}")
    if not answer.check(hostile.A):  # type: ignore[attr-defined]
        said.append("its own check fails")
    return said
