"""Moment bounds on the cp-rank: never above a factor's size, above rank and covers where the literature says so."""

import time
from dataclasses import replace

import numpy as np
import pytest
from instances import cases
from references.grams import bipartite_gram

from covopt import cp_rank
from covopt.completely_positive.ends import ByMoments
from covopt.completely_positive.moments import MomentBound, moment_bound

CASES = cases("high_cp_rank")
# "seven-a" has cp-rank 14, rank 7 and no zeros; "book" has rank 10, and eight triangles cover its graph.
SEVEN, BOOK = (np.array(CASES[name]["A"], dtype=float) for name in ("seven-a", "book"))


def solved(A: np.ndarray, tolerance: float = 1e-9) -> MomentBound:
    bound = moment_bound(A, tolerance, time.perf_counter() + 300.0)
    assert bound is not None
    return bound


def test_more_than_rank_and_cliques_say() -> None:
    bound = solved(BOOK)
    assert np.linalg.matrix_rank(BOOK) == 10
    assert bound.bound(BOOK, 1e-9) == 11
    answer = cp_rank(BOOK)
    assert (answer.lower, answer.lower_reason) == (11, "moments (semidefinite programming)")
    assert answer.check(BOOK)


@pytest.mark.slow
def test_a_dense_matrix_of_high_rank() -> None:
    bound = solved(SEVEN)
    assert bound.odd
    assert bound.bound(SEVEN, 1e-9) == 11
    assert bound.value(SEVEN, 1e-9) < 14.0


@pytest.mark.parametrize("seed", range(6))
def test_never_above_a_factor_and_at_least_nearly_the_rank(seed: int) -> None:
    rng = np.random.default_rng(seed)
    order, atoms = 3 + seed % 3, 2 + seed
    B = rng.uniform(0.2, 1.0, (atoms, order)) * (rng.random((atoms, order)) < 0.8)
    B = B[:, B.any(axis=0)]
    A = B.T @ B
    value = solved(A).value(A, 1e-9)
    assert value <= atoms
    # Fawzi and Parrilo: the bound is at least the rank; of eigenvalues below 1e-4 it gets a part.
    assert value >= (np.linalg.eigvalsh(A) > 1e-3 * np.linalg.norm(A)).sum() - 1e-2


@pytest.mark.parametrize(("p", "q"), [(2, 2), (2, 3), (3, 3)])
def test_every_edge_of_a_bipartite_graph_is_its_own_clique(p: int, q: int) -> None:
    A = bipartite_gram(p, q)
    assert solved(A).value(A, 1e-9) == pytest.approx(p * q, abs=1e-3)


def test_permutation_and_scaling() -> None:
    rng = np.random.default_rng(2)
    B = rng.uniform(0.0, 1.0, (6, 5)) * (rng.random((6, 5)) < 0.7)
    A = B.T @ B
    order, scale = rng.permutation(5), np.exp(rng.uniform(-5, 5, 5))
    moved = (A * np.outer(scale, scale))[np.ix_(order, order)]
    assert solved(moved).value(moved, 1e-9) == pytest.approx(solved(A).value(A, 1e-9), abs=1e-3)


def test_multipliers_are_not_trusted() -> None:
    rng = np.random.default_rng(0)
    B = rng.uniform(0.2, 1.0, (4, 4))
    A = B.T @ B
    bound, value = solved(A), solved(A).value(A, 1e-9)
    # A Lambda that promises more has to be paid for, whatever the multipliers.
    assert replace(bound, Lambda=2.0 * bound.Lambda).value(A, 1e-9) <= 4.0
    assert replace(bound, Lambda=bound.Lambda + rng.standard_normal((4, 4))).value(A, 1e-9) <= 4.0
    for block in ((bound.factors[0][0] * 3.0, *bound.factors[0][1:]), bound.factors[0][:-1]):
        assert replace(bound, factors=(block,)).value(A, 1e-9) <= value
    assert replace(bound, weights=(-bound.weights[0] - 1.0,)).value(A, 1e-9) == 0.0
    assert replace(bound, weights=(bound.weights[0] * np.nan,)).value(A, 1e-9) == 0.0
    # Nor is it a bound for another matrix with a smaller cp-rank.
    assert bound.value(np.ones((4, 4)), 1e-9) <= 1.0
    assert bound.value(np.eye(4), 1e-9) == 0.0
    assert not ByMoments(bound).check(A, 5, 1e-9)


def test_a_larger_tolerance_proves_less() -> None:
    rng = np.random.default_rng(1)
    B = rng.uniform(0.2, 1.0, (4, 4))
    A = B.T @ B
    bound = solved(A)
    values = [bound.value(A, tolerance) for tolerance in (1e-9, 1e-6, 1e-4)]
    assert values == sorted(values, reverse=True)
    noise = rng.uniform(-1.0, 1.0, (4, 4))
    near = A + 1e-7 * np.linalg.norm(A) * (noise + noise.T) / np.linalg.norm(noise + noise.T)
    assert bound.value(A, 1e-6) <= cp_rank(near).upper


def test_a_bound_holds_for_a_matrix_of_lower_cp_rank_within_the_tolerance() -> None:
    """A has cp-rank 2, but the matrix of ones, of cp-rank 1, lies within the tolerance."""
    A, tolerance = np.array([[1.0, 1.0 - 1.4e-3], [1.0 - 1.4e-3, 1.0]]), 1e-3
    assert np.linalg.norm(A - 1.0) < tolerance * np.linalg.norm(A)
    assert solved(A, tolerance).bound(A, tolerance) <= 1


def test_what_is_too_large_is_left() -> None:
    assert moment_bound(np.ones((12, 12)) + np.eye(12), 1e-9, time.perf_counter() + 60.0) is None
    assert moment_bound(np.ones((3, 3)) + np.eye(3), 1e-9, time.perf_counter() - 1.0) is None
