"""Zeros of copositive matrices, and the cp-ranks that they prove: 14, 18, 26 and 32 of the literature, exactly."""

import itertools
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from instances import cases

from covopt import cp_rank, load
from covopt.completely_positive import zeros
from covopt.completely_positive.zeros import ByZeros, fewest, minimal_zeros

MATRICES = {name: np.array(case["A"], dtype=float) for name, case in cases("high_cp_rank").items()}
HORN = np.array([[[1.0, -1.0, 1.0, 1.0, -1.0][(j - i) % 5] for j in range(5)] for i in range(5)])
# The matrix whose zeros make up seven-a and seven-b; circulant, exact.
FIRST = [162.0, -153.0, 127.0, -27.0, -27.0, 127.0, -153.0]
SEVEN = np.array([[FIRST[(j - i) % 7] for j in range(7)] for i in range(7)])


def kernel(M: np.ndarray) -> list[list[Fraction]]:
    """A basis of the kernel, by elimination in fractions."""
    rows, pivots = [[Fraction(float(entry)) for entry in row] for row in M], []
    for k in range(len(M)):
        place = next((i for i in range(len(pivots), len(M)) if rows[i][k] != 0), None)
        if place is None:
            continue
        done = len(pivots)
        rows[done], rows[place] = rows[place], rows[done]
        rows[done] = [entry / rows[done][k] for entry in rows[done]]
        for i in range(len(M)):
            if i != done:
                rows[i] = [a - rows[i][k] * b for a, b in zip(rows[i], rows[done], strict=True)]
        pivots.append(k)
    basis = []
    for free in set(range(len(M))) - set(pivots):
        vector = [Fraction(int(k == free)) for k in range(len(M))]
        for row, k in zip(rows, pivots, strict=False):
            vector[k] = -row[free]
        basis.append(vector)
    return basis


def by_brute_force(C: np.ndarray) -> set[tuple[int, ...]]:
    """Supports of minimal zeros: the smallest sets whose block has a positive vector in its kernel."""
    found: set[tuple[int, ...]] = set()
    for size in range(1, len(C) + 1):
        for S in itertools.combinations(range(len(C)), size):
            if any(set(T) <= set(S) for T in found):
                continue
            basis = kernel(C[np.ix_(S, S)])  # with no smaller zero inside, a positive vector is alone in the kernel
            if (
                len(basis) == 1
                and len({entry > 0 for entry in basis[0]}) == 1
                and all(entry != 0 for entry in basis[0])
            ):
                found.add(S)
    return found


@pytest.mark.parametrize("seed", range(60))
def test_minimal_zeros_of_random_matrices(seed: int) -> None:
    """Against every support, in fractions."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    # semi-definite, with non-negative entries added, and with the Horn matrix: copositive as a sum of such
    v = rng.integers(-2, 3, (int(rng.integers(1, 3)), n)).astype(float)
    C = v.T @ v + np.triu(rng.integers(0, 2, (n, n)), 1) * (seed % 2)
    C = np.triu(C) + np.triu(C, 1).T
    if n >= 5 and seed % 3 == 0:
        C[:5, :5] += HORN
    Z = minimal_zeros(C)
    assert (Z >= 0).all()
    assert all(z @ C.astype(int).astype(object) @ z == 0 for z in Z)
    assert sorted(tuple(np.flatnonzero(z).tolist()) for z in Z) == sorted(by_brute_force(C))


def test_zeros_that_are_known() -> None:
    assert sorted(minimal_zeros(HORN).tolist()) == sorted(
        np.roll([1, 1, 0, 0, 0], k).tolist() for k in range(5)
    )  # Hildebrand 2014
    Z = minimal_zeros(SEVEN)
    wanted = [np.roll(z, k).tolist() for z in ([9, 17, 9, 0, 0, 0, 0], [3, 3, 0, 0, 1, 0, 0]) for k in range(7)]
    assert sorted(Z.tolist()) == sorted(wanted)
    assert len(minimal_zeros(np.eye(4))) == 0
    assert sorted(minimal_zeros(np.zeros((3, 3))).tolist()) == [[0, 0, 1], [0, 1, 0], [1, 0, 0]]


@pytest.mark.parametrize("seed", range(4))
def test_any_sum_of_the_zeros_has_as_many_atoms(seed: int) -> None:
    rng = np.random.default_rng(seed)
    Z = minimal_zeros(SEVEN).astype(float)
    weights = rng.integers(0, 4, len(Z)) * 2.0 ** rng.integers(-3, 4, len(Z))
    A = (Z.T * weights) @ Z
    atoms = fewest(A, SEVEN)
    assert len(atoms) == (weights > 0).sum()
    assert atoms.T @ atoms == pytest.approx(A, rel=1e-14)
    assert ByZeros(SEVEN).check(A, len(atoms), 0.0)
    assert not ByZeros(SEVEN).check(A, len(atoms) + 1, 0.0)
    assert not ByZeros(SEVEN).check(A, len(atoms) - 1, 0.0)


def test_what_proves_nothing() -> None:
    A = MATRICES["seven-a"]
    assert fewest(A, SEVEN) is not None
    off = SEVEN.copy()
    off[0, 1] = off[1, 0] = -152.0
    lop = SEVEN.copy()
    lop[0, 1] = -152.0
    for C in (off, lop, SEVEN - np.eye(7), SEVEN * np.nan, SEVEN[:6, :6], np.zeros((7, 7)), -SEVEN):
        assert fewest(A, C) is None
    assert fewest(A + np.eye(7), SEVEN) is None  # <A, C> > 0
    assert fewest(np.nextafter(A, 1e9), SEVEN) is None
    # Zeros of the Horn matrix fill cones: e_1 + e_2 and e_2 + e_3 have sums that are zeros too.
    Z = minimal_zeros(HORN).astype(float)
    assert fewest(Z.T @ Z, HORN) is None
    # <A, C> = 0, but A is no sum over the zeros: it is not completely positive.
    z, y = (minimal_zeros(SEVEN)[k].astype(float) for k in (0, 7))
    turned = np.outer(z, z) * 2.0 - np.outer(y, y)
    assert (turned * SEVEN).sum() == 0.0
    assert fewest(turned, SEVEN) is None


def test_a_matrix_that_is_not_copositive_proves_nothing() -> None:
    """A is a sum over two zeros of C with a positive product, but x^T C x = -1 at x = (1, 0, 1)."""
    C = np.array([[1.0, -1.0, -1.0], [-1.0, 1.0, 2.0], [-1.0, 2.0, 0.0]])
    Z = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    copositive = np.array([[1.0, -1.0, 1.0], [-1.0, 1.0, 2.0], [1.0, 2.0, 0.0]])
    assert fewest(Z.T @ Z, copositive) is not None
    assert fewest(Z.T @ Z, C) is None


@pytest.mark.parametrize(("name", "known"), [("seven-a", 14), ("seven-b", 14), ("eight", 18), ("nine", 26)])
def test_cp_ranks_of_the_literature_are_proved(name: str, known: int) -> None:
    """Bomze, Schachinger and Ullrich; with a diagonal scaling and a permutation, which change no cp-rank."""
    rng = np.random.default_rng(known)
    n = len(MATRICES[name])
    order, scale = rng.permutation(n), 2.0 ** rng.integers(-2, 3, n)
    A = (MATRICES[name] * np.outer(scale, scale))[np.ix_(order, order)]
    answer = cp_rank(A, time_limit=60.0)
    assert answer.exact
    assert answer.lower == answer.upper == known == len(answer.B)
    assert answer.check()
    assert answer.residual <= 1e-14
    assert not answer.check(A + np.eye(n) * A.max())


def test_two_ends_where_the_zeros_are_dependent() -> None:
    """Of the 33 zeros 32 are needed, the 33 outer products having rank 32; also stored, loaded and checked again."""
    answer = cp_rank(MATRICES["eleven"], time_limit=60.0)
    assert answer.exact
    assert answer.lower == answer.upper == 32


def test_a_stored_proof_is_checked_again(tmp_path: Path) -> None:
    cp_rank(MATRICES["seven-b"], time_limit=60.0).save(tmp_path / "run")
    again = load(tmp_path / "run")
    assert isinstance(again.parts[0].lower.proof, ByZeros)
    assert again.lower == again.upper == 14
    assert again.check()


def test_digits_that_are_no_fractions() -> None:
    A = MATRICES["seven-a"]
    assert zeros.prove(A, SEVEN * np.pi) is not None  # the scale does not count
    assert zeros.prove(A, SEVEN + np.pi * 1e-3) is None
    assert zeros.prove(A, np.zeros((7, 7))) is None
    assert zeros.prove(A / 3.0, SEVEN) is None


def test_weights_of_a_matrix_that_is_no_sum_of_the_zeros() -> None:
    """The normal equations of z = (1, 0) and A = I have the solution 1; z z^T is not A."""
    Z = np.array([[1, 0]], dtype=object)
    assert zeros._weights(np.eye(2), Z) is None
    assert zeros._weights(np.diag([3.0, 0.0]), Z) == [3]


def test_weights_with_more_than_one_dependency_are_not_decided() -> None:
    """Five outer products of the plane have two: the last two zeros are enough, and elimination takes the first three.

    I + 4 (1, 1)(1, 1)^T = (1, 2)(1, 2)^T + (2, 1)(2, 1)^T.
    """
    Z = np.array([[1, 0], [0, 1], [1, 1], [1, 2], [2, 1]], dtype=object)
    A = np.array([[5.0, 4.0], [4.0, 5.0]])
    assert ((Z[3:].T @ Z[3:]) == A).all()
    assert zeros._weights(A, Z) is None
    assert sum(weight > 0 for weight in zeros._weights(A, Z[[0, 1, 3, 4]])) == 2  # one dependency: the fewest
