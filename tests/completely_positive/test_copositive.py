"""Exact arithmetic, and witnesses against complete positivity: values known from elsewhere and closed forms."""

import math
from dataclasses import replace
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from copositive_matrices import HORN, copositive as by_minors, planted_matrices
from hypothesis import given, strategies as st
from instances import forever

import covopt
from covopt.completely_positive import copositive, rational, supports
from covopt.completely_positive.copositive import by_cutting_planes
from covopt.completely_positive.supports import Copositive

BOUNDARY = np.array([[8, 5, 1, 1, 5], [5, 8, 5, 1, 1], [1, 5, 8, 5, 1], [1, 1, 5, 8, 5], [5, 1, 1, 5, 8.0]])
"""Completely positive, and orthogonal to the Horn matrix (Berman, Shaked-Monderer 2017)."""


@given(st.integers(1, 7), st.integers(0, 7), st.integers(0, 10**6))
def test_elimination_finds_the_rank(order: int, rank: int, seed: int) -> None:
    F = np.random.default_rng(seed).integers(-3, 4, (order, rank)).astype(float)
    pivots = rational.elimination(F @ F.T / 8.0)
    assert len(pivots) == np.linalg.matrix_rank(F) if rank else pivots == []


@given(st.integers(2, 6), st.integers(0, 10**6))
def test_elimination_refuses_what_is_indefinite(order: int, seed: int) -> None:
    F = np.random.default_rng(seed).integers(-3, 4, (order, order - 1)).astype(float)
    A = F @ F.T
    _, vectors = np.linalg.eigh(A)
    # The null vector of smallest weight, rounded to whole numbers over 64, is a direction of negative curvature.
    v = np.round(64 * vectors[:, 0]) / 64
    assert rational.elimination(A - 0.125 * np.outer(v, v)) is None


def test_elimination_is_exact() -> None:
    assert rational.elimination(np.array([[1.0, 1.0], [1.0, 1.0 + 2**-52]])) is not None
    assert rational.elimination(np.array([[1.0, 1.0], [1.0, 1.0 - 2**-53]])) is None
    assert rational.elimination(np.array([[0.0, 1e-300], [1e-300, 1.0]])) is None
    assert rational.elimination(np.array([[0.0, 1.0], [1.0, 0.0]])) is None


def test_what_counts_as_exact_data() -> None:
    assert rational.is_exact_data(np.array([[3.0, 0.25], [0.25, 1024.0]]))
    assert rational.is_exact_data(np.zeros((2, 2)))
    assert not rational.is_exact_data(np.array([[0.1]]))
    assert not rational.is_exact_data(np.array([[1.0, 1e-12], [1e-12, 1.0]]))


def copositive_of_order_3(a: np.ndarray) -> float:
    """Positive exactly for strictly copositive matrices (Hadeler 1983, Chang and Sederberg 1994)."""
    r = np.sqrt(np.diag(a))
    pairs = [a[0, 1] + r[0] * r[1], a[0, 2] + r[0] * r[2], a[1, 2] + r[1] * r[2]]
    if min(pairs) <= 0:
        return min(pairs)
    return float(r.prod() + a[0, 1] * r[2] + a[0, 2] * r[1] + a[1, 2] * r[0] + math.sqrt(2.0 * np.prod(pairs)))


def verdict(C: np.ndarray) -> Copositive:
    """The verdict, checked again: a violation in fractions, from the matrix alone."""
    found = supports.decide(C)
    assert (found.x is not None) == (found.verdict is Copositive.NO)
    if found.x is not None:
        assert min(found.x) >= 0
        x = [Fraction(entry) for entry in found.x]
        assert sum(a * b * Fraction(C[i, j]) for i, a in enumerate(x) for j, b in enumerate(x)) < 0
    return found.verdict


@given(st.integers(0, 10**6))
def test_copositivity_of_order_3_in_closed_form(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = np.round(rng.uniform(-1.0, 0.6, (3, 3)) * 256) / 256
    a = (a + a.T) / 2
    np.fill_diagonal(a, np.round(rng.uniform(0.1, 1.0, 3) * 256) / 256)
    value = copositive_of_order_3(a)
    assert by_minors(a) == (value > 0) or abs(value) < 1e-12
    assert (verdict(a) == "copositive") == (value > 0) or abs(value) < 1e-12


@given(st.integers(1, 6), st.integers(1, 9), st.integers(0, 10**6))
def test_copositivity_is_that_of_every_submatrix(order: int, most: int, seed: int) -> None:
    """Entries are small, so that many matrices lie on the boundary, with zeros on the diagonal and singular blocks."""
    rng = np.random.default_rng(seed)
    C = rng.integers(-most, most + 1, (order, order)).astype(float)
    C = np.triu(C) + np.triu(C, 1).T
    np.fill_diagonal(C, rng.integers(0, most + 1, order))
    assert (verdict(C) == "copositive") == by_minors(C)


def test_planted_matrices_on_both_sides_of_the_boundary() -> None:
    """A sample of the benchmark `copositivity`, its rows and columns scaled by up to 2^200 as well."""
    for planted in [planted for planted in planted_matrices(120, seed=3) if len(planted.C) <= 14]:
        scale = np.exp2(np.random.default_rng(0).integers(-200, 200, len(planted.C)))
        expected = "copositive" if planted.copositive else "not copositive"
        assert verdict(planted.C * np.outer(scale, scale)) == expected, planted.kind


@pytest.mark.parametrize(("graph", "clique"), [(nx.icosahedral_graph(), 3), (nx.paley_graph(17).to_undirected(), 3)])
def test_motzkin_and_straus(graph: nx.Graph, clique: int) -> None:
    """w (E - A) - E is copositive for the clique number w, and for no smaller number."""
    rest = 1.0 - nx.to_numpy_array(graph)
    assert verdict(clique * rest - 1.0) == "copositive"
    assert verdict((clique - 2.0**-40) * rest - 1.0) == "not copositive"


def test_the_horn_matrix_lies_on_the_boundary() -> None:
    assert verdict(HORN) == "copositive"
    assert verdict(HORN + 2.0**-40) == "copositive"
    assert verdict(HORN - 2.0**-40) == "not copositive"


def test_the_question_in_public() -> None:
    found = covopt.copositivity(HORN)
    assert found.verdict == "copositive"
    assert found.check()
    assert not replace(found, verdict=Copositive.NO, x=(1, 1, 0, 0, 0)).check()  # on the boundary: 0 is not negative
    below = covopt.copositivity((HORN - 1e-9).tolist())
    assert below.verdict == "not copositive"
    assert below.check()
    assert not replace(below, C=HORN).check()
    assert not replace(below, verdict=Copositive.YES, x=None).check()
    assert not replace(below, x=tuple(-entry for entry in below.x)).check()
    assert covopt.copositivity(np.eye(3), time_limit=1e-9).verdict == "undecided"


@pytest.mark.parametrize("C", [[[0.0]], [[-1e-300]], [[0.0, -1e-300], [-1e-300, 1e300]], [[5e-324, 0], [0, -5e-324]]])
def test_numbers_at_the_ends_of_the_range(C: list[list[float]]) -> None:
    assert (verdict(np.array(C)) == "copositive") == (C == [[0.0]])


def test_semidefinite_matrices_are_told_apart_to_the_last_digit() -> None:
    for order in (2, 9, 30):
        G = np.random.default_rng(order).integers(-9, 10, (order, order - 1)).astype(float)
        A = G @ G.T
        assert not rational.is_definite(A)
        assert rational.is_definite(A + 2.0**-40 * np.eye(order))
        assert not rational.is_definite(A - 2.0**-40 * np.eye(order))
    assert not rational.is_definite(np.zeros((1, 1)))
    assert rational.is_definite(np.array([[1e-200, 0.0], [0.0, 1e200]]))


def test_what_proves_copositivity() -> None:
    assert copositive.why_copositive(np.ones((3, 3))) == "non-negative"
    assert copositive.why_copositive(np.array([[2.0, -1.0], [-1.0, 2.0]])) == "positive definite"
    assert copositive.why_copositive(np.array([[1.0, -2.0], [-2.0, 1.0]])) is None
    assert copositive.why_copositive(np.array([[0.0, -1.0], [-1.0, 2.0]])) is None
    # An edge that closes a triangle, though all is raised.
    chord = np.zeros((5, 5))
    chord[0, 2] = chord[2, 0] = 0.3
    assert copositive.why_copositive(HORN + 0.2 - chord) == "enumeration"
    assert copositive.why_copositive(HORN + 0.1 - 5.0 * chord) is None
    assert copositive.why_copositive(copositive.signed(np.array([1.0, 2.0, 0.5, 3.0, 1e-7]), HORN < 0)) == "signs"
    # One entry below what the signs allow.
    assert copositive.why_copositive(HORN - 1e-3 * np.outer(np.eye(5)[0], np.eye(5)[1]) * 2) is None
    # Half of [[1, -4], [0, 1]] is indefinite, though its lower triangle looks like the identity.
    assert copositive.why_copositive(np.array([[1.0, -4.0], [0.0, 1.0]])) is None
    assert copositive.why_copositive(np.array([[1.0, -0.5], [-0.5, 1.0]])) is not None


@pytest.mark.parametrize("step", [1.0, 0.1, 1e-3, 1e-5])
def test_matrices_beyond_the_horn_facet_are_separated(step: float) -> None:
    A = BOUNDARY - step * HORN
    found = copositive.find(A, 1e-9, 0, forever())
    assert found.check(A)
    # <BOUNDARY, HORN> = 0 and <HORN, HORN> = 25: no witness does better than the Horn matrix, up to its slack.
    assert float((A * HORN).sum()) == pytest.approx(-25.0 * step)
    assert not found.check(BOUNDARY)


def test_cutting_planes_separate_as_well() -> None:
    A = (BOUNDARY - 0.1 * HORN) / 8.0
    for C in by_cutting_planes(A, 0, forever()):
        found = copositive.witness(A, C)
        if found is not None:
            break
    assert found.proof == "enumeration"
    # A witness in which signs have no part: scaled, the Horn matrix is not found by comparison with A's zeros.
    assert (np.abs(A) > 0).all()


@given(st.integers(2, 7), st.integers(1, 8), st.integers(0, 10**6))
def test_no_witness_against_a_completely_positive_matrix(order: int, atoms: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    B = rng.exponential(size=(atoms, order)) * (rng.random((atoms, order)) < 0.6) + 0.01 * np.eye(atoms, order)
    A = B.T @ B + 1e-3 * np.eye(order)
    for C in (HORN, nx.to_numpy_array(nx.cycle_graph(5))):
        embedded = np.zeros((max(order, 5), max(order, 5)))
        embedded[:5, :5] = C
        assert copositive.witness(A, embedded[:order, :order]) is None
    assert copositive.find_cheap(A, 1e-9) is None


def test_cheap_witnesses() -> None:
    assert copositive.find_cheap(np.array([[1.0, -0.5], [-0.5, 1.0]]), 1e-9).proof == "non-negative"
    assert copositive.find_cheap(np.array([[1.0, 2.0], [2.0, 1.0]]), 1e-9).proof == "positive definite"
    assert copositive.find_cheap(np.array([[1.0, 1.0], [1.0, 1.0 - 1e-12]]), 1e-9) is None
