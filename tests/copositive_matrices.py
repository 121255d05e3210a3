"""Matrices on both sides of the boundary of the copositive cone, each with what is known of it beforehand.

A matrix that is copositive is so by its making; one that is not has a planted x >= 0 with x^T C x < 0, which is tested
in exact arithmetic. Most lie on the boundary or so close to it that a rounded answer cannot tell.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import networkx as nx
import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Made = tuple[Matrix, NDArray[np.float64]]
LEAST, MOST = 11, 25
"""Orders."""
HORN = np.array([[1, -1, 1, 1, -1], [-1, 1, -1, 1, 1], [1, -1, 1, -1, 1], [1, 1, -1, 1, -1], [-1, 1, 1, -1, 1]], float)


@dataclass(frozen=True)
class Planted:
    """A matrix (n, n), the idea and the seed, and whether it is copositive."""

    kind: str
    C: Matrix
    copositive: bool


def planted_matrices(count: int, seed: int = 0) -> Iterator[Planted]:
    """So many of them: all kinds in turn, orders from 25 down to 11 and again, one side and the other."""
    for number in range(count):
        make, turn = MAKERS[number % len(MAKERS)], number // len(MAKERS)
        rng = np.random.default_rng((seed, number))
        order = MOST - turn % (MOST - LEAST + 1)
        C, x = make(order, rng)
        inside = turn % 2 == 0
        if not inside:
            C = _lowered(C, x, 2.0 ** -float(rng.integers(10, 30)))
            assert sum(a * b * Fraction(C[i, j]) for i, a in _exact(x) for j, b in _exact(x)) < 0
        moved, scale = rng.permutation(order), np.exp2(rng.integers(-3, 4, order))
        yield Planted(
            f"{make.__name__.strip('_').replace('_', ' ')} {seed}/{number}",
            C[np.ix_(moved, moved)] * np.outer(scale, scale),
            inside,
        )


def copositive(C: NDArray[np.generic]) -> bool:
    """Hadeler (1983): C is not copositive iff some principal submatrix has a determinant below 0 and adj >= 0."""
    exact = [[Fraction(float(entry)) for entry in row] for row in C]

    @functools.cache
    def determinant(rows: tuple[int, ...], columns: tuple[int, ...]) -> Fraction:
        if not rows:
            return Fraction(1)
        parts = enumerate(columns)
        rest = rows[1:]
        return sum(
            ((-1) ** k * exact[rows[0]][c] * determinant(rest, columns[:k] + columns[k + 1 :]) for k, c in parts),
            Fraction(0),
        )

    def without(S: tuple[int, ...], k: int) -> tuple[int, ...]:
        return S[:k] + S[k + 1 :]

    for size in range(1, len(C) + 1):
        for S in itertools.combinations(range(len(C)), size):
            if determinant(S, S) < 0 and all(
                (-1) ** (i + j) * determinant(without(S, i), without(S, j)) >= 0
                for i in range(size)
                for j in range(size)
            ):
                return False
    return True


def _exact(x: NDArray[np.float64]) -> list[tuple[int, Fraction]]:
    return [(i, Fraction(entry)) for i, entry in enumerate(x) if entry]


def _lowered(C: Matrix, x: NDArray[np.float64], part: float) -> Matrix:
    """C with one entry lowered, or all of them, so that x^T C x falls below zero by so small a part of the diagonal."""
    i, j = np.flatnonzero(x)[:2]
    dent = np.zeros_like(C)
    dent[i, j] = dent[j, i] = part * np.sqrt(C[i, i] * C[j, j])
    value = float(x @ C @ x)
    return C - dent - (0.0 if value <= 0.0 else value / x.sum() ** 2 * (1.0 + 1e-9))


def _symmetric(M: NDArray[np.generic]) -> Matrix:
    return (np.triu(M, 1) + np.triu(M, 1).T).astype(float)


def _zero(order: int, rng: np.random.Generator, least: int) -> NDArray[np.float64]:
    support = rng.permutation(order)[: int(rng.integers(least, order - 1))]
    x = np.zeros(order)
    x[support] = [1.0, *rng.integers(1, 6, len(support) - 1)]
    return x


def _semidefinite_and_nonnegative(order: int, rng: np.random.Generator) -> Made:
    """G^T G + N, G x = 0 and N zero on the support of x: whole numbers, on the boundary."""
    x = _zero(order, rng, 3)
    one = int(np.flatnonzero(x == 1.0)[0])
    G = rng.integers(-9, 10, (int(rng.integers(order // 3, order)), order)).astype(float)
    G[:, one] = 0.0
    G[:, one] = -G @ x
    N = rng.integers(0, 200, (order, order)) * (rng.random((order, order)) < rng.choice([0.05, 0.3, 1.0]))
    N[np.ix_(x > 0.0, x > 0.0)] = 0
    return G.T @ G + _symmetric(N), x


def _all_digits(order: int, rng: np.random.Generator) -> Made:
    """The same with Gaussian G and sparse N, and 1e-9 of the diagonal added, more than rounding has taken."""
    x = _zero(order, rng, order // 2)
    one = int(np.flatnonzero(x == 1.0)[0])
    G = rng.standard_normal((order // int(rng.integers(2, 4)), order))
    G[:, one] = 0.0
    G[:, one] = -G @ x
    N = _symmetric(0.3 * order * rng.random((order, order)) * (rng.random((order, order)) < 0.1))
    N[np.ix_(x > 0.0, x > 0.0)] = 0.0
    C = G.T @ G
    return (C + C.T) / 2.0 + 1e-9 * np.diag(np.diag(C)) + N, x


def _random_graph(order: int, rng: np.random.Generator) -> Made:
    """w (E - A) - E for the clique number w; x is a clique (Motzkin, Straus 1965)."""
    return _motzkin_straus(
        nx.gnp_random_graph(order, float(rng.choice([0.4, 0.6, 0.8])), seed=int(rng.integers(2**31)))
    )


def _structured_graph(order: int, rng: np.random.Generator) -> Made:
    """The same for circulant graphs: many cliques of the largest size."""
    jumps = rng.permutation(np.arange(1, order // 2 + 1))[: int(rng.integers(2, order // 2))]
    return _motzkin_straus(nx.circulant_graph(order, jumps.tolist()))


def _motzkin_straus(graph: nx.Graph) -> Made:
    clique = max(nx.find_cliques(graph), key=len)
    x = np.zeros(len(graph))
    x[clique] = 1.0
    return len(clique) * (1.0 - nx.to_numpy_array(graph)) - 1.0, x


def _without_triangles(order: int, rng: np.random.Generator) -> Made:
    """J - 2 T, T a graph to which no edge can be added without a triangle (Haynsworth, Hoffman 1969); x is an edge."""
    graph = nx.empty_graph(order)
    for i, j in rng.permutation(list(itertools.combinations(range(order), 2))).tolist():
        if not set(graph[i]) & set(graph[j]):
            graph.add_edge(i, j)
    x = np.zeros(order)
    x[list(next(iter(graph.edges)))] = 1.0
    return 1.0 - 2.0 * nx.to_numpy_array(graph), x


def _horn_matrices(order: int, rng: np.random.Generator) -> Made:
    """Sums of scaled Horn matrices; x is a zero of the first and meets no other. Not semi-definite and non-negative."""
    place = rng.permutation(order)
    C, x = np.zeros((order, order)), np.zeros(order)
    for number in range(int(rng.integers(order // 2, 2 * order))):
        S = place[:5] if number == 0 else rng.permutation(place[3:])[:5]
        d = rng.choice([1.0, 2.0, 4.0], 5)
        C[np.ix_(S, S)] += HORN * np.outer(d, d)
        if number == 0:
            x[S[:3]] = np.array([1.0, 2.0, 1.0]) / d[:3]
    C[np.diag_indices(order)] += np.diag(C) == 0.0
    return C, x


def _standard_quadratic(order: int, rng: np.random.Generator) -> Made:
    """G^T G + N, both dense, inside the cone; x is a local minimum over the simplex, to which entries are lowered."""
    G = rng.integers(-9, 10, (order + 2, order)).astype(float)
    C = G.T @ G + _symmetric(rng.integers(0, 400, (order, order)) * (rng.random((order, order)) < 0.5))
    shifted, x = C.max() + 1.0 - C, np.full(order, 1.0 / order)
    for _ in range(500):  # replicator dynamics
        x = x * (shifted @ x)
        x /= x.sum()
    return C, np.where(x > 1e-6, np.round(x * 2.0**20), 0.0)


def _direct_sum(order: int, rng: np.random.Generator) -> Made:
    """Two of the above side by side; x is a zero of the first."""
    makers = [_semidefinite_and_nonnegative, _random_graph, _without_triangles]
    half, turn = order // 2, int(rng.integers(3))
    (first, x), (second, _) = makers[turn](half, rng), makers[turn - 1](order - half, rng)
    C = np.zeros((order, order))
    C[:half, :half], C[half:, half:] = first, second
    return C, np.concatenate([x, np.zeros(order - half)])


MAKERS: tuple[Callable[[int, np.random.Generator], Made], ...] = (
    _semidefinite_and_nonnegative,
    _all_digits,
    _random_graph,
    _structured_graph,
    _without_triangles,
    _horn_matrices,
    _standard_quadratic,
    _direct_sum,
)
