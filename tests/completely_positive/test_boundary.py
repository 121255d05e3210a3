"""Factors on the boundary of the cone: the few atoms that matrices of high cp-rank from the literature can have."""

import time

import numpy as np
import pytest
from instances import cases

from covopt import cp_rank
from covopt.completely_positive.faces import factor_on_boundary
from covopt.completely_positive.factorization import residual

CASES = cases("high_cp_rank")
# The literature's cp-ranks: 14, 14, 18, 26, 32, 37. `book` is on no face with finitely many rays that is found.
MATRICES = {name: (np.array(case["A"], float), case["upper"]) for name, case in CASES.items() if name != "book"}


def soon() -> float:
    return time.perf_counter() + 60.0


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("seed", range(2))
def test_the_fewest_atoms_of_the_literature(name: str, seed: int) -> None:
    A, known = MATRICES[name]
    rng = np.random.default_rng(seed)
    order, scale = rng.permutation(len(A)), np.exp(rng.uniform(-9.0, 9.0, len(A)))
    moved = (A * np.outer(scale, scale))[np.ix_(order, order)] * 10.0 ** (280 * seed - 140)
    found = factor_on_boundary(moved, seed, soon())
    B = found.B
    assert (B >= 0.0).all()
    assert len(B) == known
    assert residual(moved, B) <= 1e-13


@pytest.mark.parametrize("name", ["seven-a", "eight"])
def test_planted_atoms_are_found_again(name: str) -> None:
    """Other weights on the same rays: the face is the same, and its only factor is the planted one."""
    A, known = MATRICES[name]
    rays = factor_on_boundary(A, 0, soon())
    rng = np.random.default_rng(3)
    planted = rays.B * np.exp(rng.uniform(-2.0, 2.0, known))[:, None]
    again = factor_on_boundary(planted.T @ planted, 1, soon())
    B = again.B
    assert len(B) == known
    found, wanted = B / B.sum(axis=1, keepdims=True), planted / planted.sum(axis=1, keepdims=True)
    distances = np.abs(found[:, None] - wanted[None]).max(axis=2)
    assert distances.min(axis=0).max() <= 1e-7
    assert len(set(distances.argmin(axis=0).tolist())) == known


def test_fewer_atoms_of_the_same_face() -> None:
    """Half of the atoms: a smaller face, where the search ends with nothing, or finds the planted factor."""
    A, known = MATRICES["nine"]
    rays = factor_on_boundary(A, 0, soon())
    ordered = rays.B[np.lexsort(rays.B.round(6).T)]  # the order of the search is the machine's
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(8):
        some = ordered[np.sort(rng.choice(known, known // 2, replace=False))]
        factor = factor_on_boundary(some.T @ some, 0, soon())
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
    found = factor_on_boundary(near, 0, soon(), 1e-10)
    assert len(found.B) == known
    assert residual(near, found.B) <= 1e-11


def test_nothing_where_there_is_no_such_face() -> None:
    rng = np.random.default_rng(0)
    inside = rng.random((12, 6))
    outside = MATRICES["seven-a"][0] - 40.0 * np.eye(7)  # <C, A> = 0, so that less of the diagonal is outside
    late = time.perf_counter() - 1.0
    assert factor_on_boundary(inside.T @ inside, 0, soon()) is None
    assert factor_on_boundary(outside, 0, soon()) is None
    assert factor_on_boundary(np.eye(26) + 1.0, 0, soon()) is None
    assert factor_on_boundary(MATRICES["seven-a"][0], 0, late) is None


def test_cp_rank_has_them() -> None:
    A, known = MATRICES["seven-a"]
    answer = cp_rank(A, time_limit=30.0)
    assert answer.verdict == "completely positive"
    assert answer.lower <= answer.upper == known == len(answer.B)
    assert answer.residual <= 1e-12
    assert answer.check(A)
