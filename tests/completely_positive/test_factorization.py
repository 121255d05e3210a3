"""Non-negative factors: found on random instances and on the boundary, and proofs neither too weak nor too generous."""

import time

import numpy as np
import pytest
from hypothesis import given, strategies as st
from instances import cases, forever
from references.grams import bipartite_gram

from covopt import cp_rank
from covopt.completely_positive import factorization
from covopt.completely_positive.faces import factor_on_boundary
from covopt.completely_positive.factorization import proves, residual, search, split


def random_matrix(order: int, seed: int) -> np.ndarray:
    """A = C C^T, C = |Gaussian| (n, 2n): the protocol of the literature."""
    C = np.abs(np.random.default_rng(seed).standard_normal((order, 2 * order)))
    return C @ C.T


@pytest.mark.parametrize("order", [5, 20, 40])
@pytest.mark.parametrize("factor", [1.0, 1.5, 3.0])
def test_random_matrices(order: int, factor: float) -> None:
    A = random_matrix(order, order)
    B = search(A, int(factor * order), 0, forever())
    assert B.shape == (int(factor * order), order)
    assert (B >= 0).all()
    assert np.sum((A - B.T @ B) ** 2) <= 1e-15 * np.sum(A**2)
    assert proves(A, B)


def test_the_same_seed_gives_the_same_factor() -> None:
    A = random_matrix(8, 0)
    first, second = (search(A, 9, 3, forever()) for _ in range(2))
    assert (first == second).all()


def test_polishing_ends_where_the_sets_only_touch() -> None:
    A = bipartite_gram(3, 3)
    assert residual(A, search(A, 9, 0, forever())) <= 1e-13
    assert search(A, 8, 0, forever(), factorization.SearchOptions(starts=1)) is None


@given(st.integers(2, 8), st.integers(0, 10**6))
def test_a_proof_survives_what_is_small_and_nothing_else(order: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    B = rng.uniform(0.5, 1.5, (order + 2, order))
    A = B.T @ B
    assert proves(A, B)
    assert proves(A, B + 1e-8 * rng.standard_normal(B.shape))
    assert not proves(A + 0.5 * np.eye(order) * np.trace(A), B)


def test_a_proof_needs_room() -> None:
    # An entry off the support of every atom cannot be repaired.
    assert not proves(np.array([[1.0, 1e-12], [1e-12, 1.0]]), np.eye(2))
    assert proves(np.eye(2), np.eye(2))
    # Three entries cannot move in two ways at once: atoms e_1 and e_2 reach no entry between them.
    assert proves(np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]))


def test_rank_deficient_exact_data() -> None:
    A = np.array([[41, 43, 80, 56, 50], [43, 62, 89, 78, 51], [80, 89, 162, 120, 93], [56, 78, 120, 104, 62]])
    A = np.vstack([A, [50, 51, 93, 62, 65]]).astype(float)
    B = search(A, 3, 0, forever())
    assert proves(A, B)
    # Rounded data of rank 3 have rank 5, or are indefinite: no factor with three atoms exists.
    assert not proves(A / 3.0, B / np.sqrt(3.0))


def test_splitting_keeps_the_matrix() -> None:
    B = np.random.default_rng(0).random((3, 4))
    for r in (3, 4, 8):
        assert len(split(B, r)) == r
        assert split(B, r).T @ split(B, r) == pytest.approx(B.T @ B, rel=1e-14)
    assert len(split(B, 2)) == 3


def test_a_factor_with_a_negative_entry_proves_nothing() -> None:
    """Next to an exact root, but of no use: who asks for a proof may hold a factor from a file."""
    B = np.array([[1.0, -1e-9, 0.3], [0.1, 1.0, 0.2], [0.2, 0.3, 1.0]])
    assert not proves(B.T @ B, B)
    assert proves(np.abs(B).T @ np.abs(B), np.abs(B))


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1.0, 1e70])
def test_the_residual_has_no_units(scale: float) -> None:
    """1 / 2 for B^T B = A / 2, whatever the units; squares of the smallest entries are below the smallest numbers."""
    A = np.full((3, 3), scale)
    B = np.full((1, 3), np.sqrt(scale / 2.0))
    assert factorization.residual(A, B) == pytest.approx(0.5, rel=1e-14)
    assert factorization.residual(np.zeros((3, 3)), B) > 0.0


def test_entries_that_may_move_below_zero_are_no_proof() -> None:
    """(C0 u)_2 = 0 for A's factor C0 (I, u), u = (2, -1): a factor 1e-7 away is positive, but may move by more."""
    A = np.array([[5.0, 4.0, 6.0], [4.0, 5.0, 3.0], [6.0, 3.0, 9.0]])
    U = np.array([[1.0, 0.0, 2.0], [0.0, 1.0, -1.0]])
    C0 = np.array([[2.0, 1.0], [1.0, 2.0]])
    assert (A == U.T @ C0.T @ C0 @ U).all()
    B = np.array([[2.0, 1.0], [1.0 + 1e-7, 2.0]]) @ U
    assert B.min() > 1e-7
    assert not proves(A, B)


# ---- factors on the boundary of the cone: the few atoms that matrices of high cp-rank can have
CASES = cases("high_cp_rank")
# The literature's cp-ranks: 14, 14, 18, 26, 32, 37. `book` is on no face with finitely many rays that is found.
MATRICES = {name: (np.array(case["A"], float), case["upper"]) for name, case in CASES.items() if name != "book"}


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("seed", range(2))
def test_the_fewest_atoms_of_the_literature(name: str, seed: int) -> None:
    A, known = MATRICES[name]
    rng = np.random.default_rng(seed)
    order, scale = rng.permutation(len(A)), np.exp(rng.uniform(-9.0, 9.0, len(A)))
    moved = (A * np.outer(scale, scale))[np.ix_(order, order)] * 10.0 ** (280 * seed - 140)
    B = factor_on_boundary(moved, seed, forever()).B
    assert (B >= 0.0).all()
    assert len(B) == known
    assert residual(moved, B) <= 1e-13


@pytest.mark.parametrize("name", ["seven-a", "eight"])
def test_planted_atoms_are_found_again(name: str) -> None:
    """Other weights on the same rays: the face is the same, and its only factor is the planted one."""
    A, known = MATRICES[name]
    rays = factor_on_boundary(A, 0, forever())
    planted = rays.B * np.exp(np.random.default_rng(3).uniform(-2.0, 2.0, known))[:, None]
    B = factor_on_boundary(planted.T @ planted, 1, forever()).B
    assert len(B) == known
    found, wanted = B / B.sum(axis=1, keepdims=True), planted / planted.sum(axis=1, keepdims=True)
    distances = np.abs(found[:, None] - wanted[None]).max(axis=2)
    assert distances.min(axis=0).max() <= 1e-7
    assert len(set(distances.argmin(axis=0).tolist())) == known


def test_fewer_atoms_of_the_same_face() -> None:
    """Half of the atoms: a smaller face, where the search ends with nothing, or finds the planted factor."""
    A, known = MATRICES["nine"]
    rays = factor_on_boundary(A, 0, forever())
    ordered = rays.B[np.lexsort(rays.B.round(6).T)]  # the order of the search is the machine's
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(8):
        some = ordered[np.sort(rng.choice(known, known // 2, replace=False))]
        factor = factor_on_boundary(some.T @ some, 0, forever())
        if factor is None:
            continue
        found += 1
        assert len(factor.B) == len(some)
        assert residual(some.T @ some, factor.B) <= 1e-13
    assert found >= 2


def test_rounded_data_have_a_factor_within_the_rounding() -> None:
    A, known = MATRICES["nine"]
    noise = np.random.default_rng(0).standard_normal(A.shape)
    near = A * (1.0 + 1e-12 * (noise + noise.T))
    found = factor_on_boundary(near, 0, forever(), 1e-10)
    assert len(found.B) == known
    assert residual(near, found.B) <= 1e-11


def test_nothing_where_there_is_no_such_face() -> None:
    inside = np.random.default_rng(0).random((12, 6))
    outside = MATRICES["seven-a"][0] - 40.0 * np.eye(7)  # <C, A> = 0, so that less of the diagonal is outside
    late = time.perf_counter() - 1.0
    assert factor_on_boundary(inside.T @ inside, 0, forever()) is None
    assert factor_on_boundary(outside, 0, forever()) is None
    assert factor_on_boundary(np.eye(26) + 1.0, 0, forever()) is None
    assert factor_on_boundary(MATRICES["seven-a"][0], 0, late) is None


def test_cp_rank_has_them() -> None:
    A, known = MATRICES["seven-a"]
    answer = cp_rank(A, time_limit=30.0)
    assert answer.verdict == "completely positive"
    assert answer.lower <= answer.upper == known == len(answer.B)
    assert answer.residual <= 1e-12
    assert answer.check(A)
