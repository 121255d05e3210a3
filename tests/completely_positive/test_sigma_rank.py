"""covopt.sigma_rank: known pairs, neurons found again, separating pairs, bad input."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from references.grams import bipartite_gram

import covopt
from covopt import sigma_rank
from covopt.completely_positive import pairs
from covopt.completely_positive.pairs import SeparatingPair, _left


def covariances(Z: np.ndarray, slope: float = 0.0, bias: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    V = np.where(Z >= 0, Z, slope * Z)
    return Z @ Z.T, V @ V.T + bias**2


@pytest.mark.parametrize(("K", "S", "rank"), [(1.0, 1.0, 1), (1.0, 0.0, 1), (1.0, 0.5, 2), (0.0, 0.0, 0)])
def test_one_sample(K: float, S: float, rank: int) -> None:
    """K = sum z^2, S = sum over positive z: one sign takes one neuron, both take two."""
    answer = sigma_rank([[K]], [[S]])
    assert (answer.verdict, answer.upper) == ("realisable", rank)
    assert answer.lower <= rank


def test_equal_covariances_are_a_cp_rank() -> None:
    A = bipartite_gram(3, 3)
    answer = sigma_rank(A, A + 1.0, bias=1.0)
    assert answer.lower == answer.upper == 9
    assert answer.residual <= 1e-12


@pytest.mark.parametrize("scale", [1e-145, 1e-100, 1e-40, 1e30])
def test_the_units_of_the_neurons_decide_nothing(scale: float) -> None:
    """Squares of the entries of K are below the smallest numbers at 1e-145: differing pairs looked equal."""
    Z = scale * np.random.default_rng(0).standard_normal((4, 3))
    K, S = covariances(Z)
    answer = sigma_rank(K, S, Z=Z, time_limit=10.0)
    assert (answer.verdict, answer.lower, answer.upper) == ("realisable", 3, 3)
    assert 1e-19 < answer.residual < 1e-12
    assert np.abs(answer.Z @ answer.Z.T - K).max() <= 1e-12 * np.abs(K).max()
    assert sigma_rank(K, 0.5 * S, time_limit=10.0).verdict == "not realisable"


def test_two_neurons_of_opposite_sign() -> None:
    # X = (1, -1), Y = (1, 1): the optimal neurons e_1 and e_2 before the ReLU are (1, -1) and (-1, 1) [Prop. 19].
    answer = sigma_rank(*covariances(np.array([[1.0, -1.0], [-1.0, 1.0]])))
    assert answer.lower == answer.upper == 2
    assert answer.lower_reason


@settings(max_examples=8)
@given(
    st.integers(1, 4), st.integers(1, 5), st.sampled_from(["relu", "leaky:0.1", "leaky:-0.5"]), st.integers(0, 10**6)
)
def test_intervals_of_random_neurons(samples: int, neurons: int, activation: str, seed: int) -> None:
    Z = np.random.default_rng(seed).standard_normal((samples, neurons))
    slope = 0.0 if activation == "relu" else float(activation[6:])
    K, Ks = covariances(Z, slope, 0.5)
    answer = sigma_rank(K, Ks, bias=0.5, activation=activation, Z=Z, time_limit=1.0)
    assert answer.verdict == "realisable"
    assert answer.lower <= answer.upper <= neurons
    V = np.where(answer.Z >= 0, answer.Z, slope * answer.Z)
    assert np.linalg.norm(answer.Z @ answer.Z.T - K) <= 1e-9 * np.linalg.norm(K)
    assert np.linalg.norm(V @ V.T + 0.25 - Ks) <= 1e-9 * np.linalg.norm(K)
    assert answer.Z.shape == (samples, answer.upper)


@pytest.mark.parametrize("activation", ["relu", "leaky:0.1"])
def test_neurons_are_found_without_being_given(activation: str) -> None:
    K, Ks = covariances(np.random.default_rng(0).standard_normal((5, 3)), 0.0 if activation == "relu" else 0.1)
    answer = sigma_rank(K, Ks, activation=activation)
    assert answer.lower == answer.upper == 3
    assert answer.residual <= 1e-9


def test_permutation_scale_and_effort() -> None:
    Z = np.random.default_rng(1).standard_normal((4, 4))
    K, Ks = covariances(Z)
    order, scale = np.array([2, 0, 3, 1]), np.array([0.5, 2.0, 1.0, 8.0])
    moved = [(np.outer(scale, scale) * M)[np.ix_(order, order)] for M in (K, Ks)]
    answers = [sigma_rank(*moved, time_limit=3.0), sigma_rank(K, Ks, time_limit=3.0)]
    answers.append(sigma_rank(K, Ks, time_limit=0.1, Z=Z))
    assert [answer.verdict for answer in answers] == ["realisable"] * 3
    assert answers[0].lower == answers[1].lower
    assert all(one.lower <= other.upper for one in answers for other in answers)


def test_fewer_neurons_than_made_the_pair() -> None:
    Z = np.random.default_rng(0).standard_normal((4, 30))
    K, Ks = covariances(Z)
    assert pairs.fewer(Z, 0.0).shape[1] <= 20  # N (N + 1), Caratheodory
    answer = sigma_rank(K, Ks, Z=Z)
    assert answer.upper <= 10
    assert answer.residual <= 1e-9


def test_merging_and_choosing_keep_the_pair() -> None:
    Z = np.random.default_rng(1).standard_normal((3, 4))
    doubled = np.concatenate([0.6 * Z, 0.8 * Z, np.zeros((3, 2))], axis=1)
    less = pairs.fewer(doubled, 0.0)
    assert less.shape[1] == 4
    assert pairs.residual(*covariances(Z), less, 0.0) <= 1e-12
    # Among six directions on a line through two samples, two positive ones are enough.
    angles = np.linspace(0.1, 1.4, 6)
    assert pairs.fewer(np.stack([np.cos(angles), np.sin(angles)]), 0.0).shape[1] <= 3
    assert pairs.fewer(np.zeros((2, 3)), 0.0).shape == (2, 0)


@pytest.mark.parametrize(
    ("K", "S"),
    [
        (np.eye(1), 2 * np.eye(1)),  # activations larger than pre-activations
        (np.eye(2), np.array([[1.0, 0.5], [0.5, 1.0]])),  # equal diagonals: z >= 0, so K = S
        (np.array([[1.0, 0.9], [0.9, 1.0]]), np.zeros((2, 2)) + np.diag([0.5, 0.5])),
        (np.diag([1.0, -0.1]), np.zeros((2, 2))),
    ],
)
def test_pairs_outside_the_cone(K: np.ndarray, S: np.ndarray) -> None:
    answer = sigma_rank(K, S)
    assert answer.verdict == "not realisable"
    assert answer.upper is answer.lower is None
    assert answer.witness.check(K, S, 0.0)
    Z = np.random.default_rng(0).standard_normal((len(K), 2000))
    first, second = covariances(Z[:, :1])
    worst = max(
        float((answer.witness.C1 * np.outer(z, z)).sum() + (answer.witness.C2 * np.outer(s, s)).sum())
        for z, s in zip(Z.T, np.maximum(Z, 0).T, strict=True)
    )
    assert worst <= 0.0
    assert not answer.witness.check(first, second, 0.0)
    # <I, z z^T> > 0: so is the product of this pair with what a neuron makes, and of no use to separate it.
    assert not replace(answer.witness, C1=np.eye(len(K)), C2=np.zeros_like(K)).check(first, second, 0.0)


def test_activations_that_are_not_completely_positive() -> None:
    answer = sigma_rank(np.eye(2), np.array([[0.5, -0.1], [-0.1, 0.5]]))
    assert (answer.verdict, answer.witness.proof) == ("not realisable", "non-negative")


def test_zeros_that_a_rounded_bias_leaves_prove_nothing() -> None:
    """0.1^2 is no float64, so that Ks - beta^2 11^T has no entry that is known to be zero; 0.5^2 is one."""
    A = bipartite_gram(2, 2)
    known, rounded = (sigma_rank(A, A + bias**2, bias=bias, time_limit=4.0) for bias in (0.5, 0.1))
    assert known.lower == known.upper == 4
    assert known.lower_reason.endswith("edges of a triangle-free support graph")
    assert rounded.lower <= rounded.upper == 4
    assert "edges" not in rounded.lower_reason


def test_the_linear_network() -> None:
    Z = np.random.default_rng(0).standard_normal((4, 2))
    answer = sigma_rank(Z @ Z.T, Z @ Z.T, activation="linear")
    assert answer.lower == answer.upper == 2


def test_a_solved_network() -> None:
    """X = I and one-hot classes: as many neurons as classes [JGHG22, Prop. 14]."""
    Y = np.eye(3)[[0, 1, 1, 2, 2, 2]]
    result = covopt.solve(np.eye(6), Y, bias=0.0, gap=1e-9, certify="fast", time_limit=20.0)
    K, Ks = result.covariances(1)
    answer = sigma_rank(K, Ks, Z=result.representations(1), tolerance=1e-4, time_limit=10.0)
    assert answer.lower == answer.upper == 3


def test_what_is_taken_off_must_not_be_negative() -> None:
    """<I, K> > 0 for every K: no pair is separated by (I, 0), but H + 100 I is positive definite."""
    forged = SeparatingPair(np.eye(2), np.zeros((2, 2)), np.zeros(2), -100.0 * np.eye(4), 1.0)
    assert not forged.check(np.eye(2), np.eye(2), 0.0)
    assert not replace(forged, P=np.zeros((4, 4))).check(np.eye(2), np.eye(2), 0.0)  # H itself is not


@pytest.mark.parametrize("slope", [0.0, 0.3, -0.6])
def test_the_form_of_a_separating_pair_is_what_neurons_make_of_it(slope: float) -> None:
    rng = np.random.default_rng(1)
    C1, C2 = (M + M.T for M in rng.standard_normal((2, 3, 3)))
    H = _left(C1, C2, rng.standard_normal(3), slope)
    for z in rng.standard_normal((5, 3)):
        u, sigma = np.concatenate([np.maximum(z, 0.0), np.maximum(-z, 0.0)]), np.where(z > 0.0, z, slope * z)
        assert u @ H @ u == pytest.approx(-(z @ C1 @ z + sigma @ C2 @ sigma))
