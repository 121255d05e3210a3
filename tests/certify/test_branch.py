"""Branch and bound over cones of directions: true bounds, tight ones, and proofs that can be replayed."""

import itertools
import math

import numpy as np
import pytest
import torch
from copositive_matrices import copositive
from hypothesis import given, settings, strategies as st
from instances import gaussian
from scipy.optimize import lsq_linear
from torch import Tensor

from covopt.certify.cones.bounds import ConeBounds, saddle
from covopt.certify.cones.branch import BranchOptions, branch_and_bound, replay
from covopt.certify.cones.quadratic import edge_gaps, is_copositive, least_multiple
from covopt.model.activation import Activation
from covopt.oracles.arrangement import ArrangementOracle
from covopt.oracles.oracle import oracle_values
from covopt.runtime.errors import ProblemError

SLOPES = (0.0, 0.1, -0.3, 1.0)
AMPLE = 60.0  # seconds; no test waits for it


def data(samples: int, rank: int, outputs: int, seed: int, flaws: int = 0) -> tuple[Tensor, Tensor]:
    """Gaussian inputs and a Gaussian Lambda; bits of `flaws`: bias column, duplicate, opposite and zero rows, scale."""
    X, Lambda = gaussian(samples, rank, seed=seed), gaussian(samples, outputs, seed=seed + 1)
    if flaws & 1:
        X[:, -1] = 1.0
    if flaws & 2:
        X[-1] = X[0]
    if flaws & 4:
        X[-2] = -3.0 * X[0]
    if flaws & 8:
        X[1] = 0.0
    if flaws & 16:
        X, Lambda = 1e-30 * X, 1e20 * Lambda
    return X, Lambda


def sampled(X: Tensor, activation: Activation, Lambda: Tensor, count: int = 4000) -> float:
    """The largest h over random unit directions."""
    w = torch.nn.functional.normalize(gaussian(count, X.shape[1], seed=5), dim=1)
    return float(oracle_values(X, activation, Lambda, w).max())


def brute_force(X: Tensor, slope: float, Lambda: Tensor) -> float:
    """One output: max |f(w)|, f = sum_i lambda_i sigma(x_i^T w), as the largest concave piece.

    +-f is the maximum over subsets T of the samples with positive coefficient of linear_T - sum |lambda_i| (x_i^T w)_+,
    and the maximum of such a piece over the ball is a box-constrained least-squares distance.
    """
    P, best = X.numpy(), 0.0
    for sign in (1.0, -1.0):
        coefficient = sign * Lambda[:, 0].numpy()
        linear = slope * coefficient @ P
        coefficient = (1.0 - slope) * coefficient
        raising, falling = np.flatnonzero(coefficient > 0), np.flatnonzero(coefficient < 0)
        A = (P[falling] * -coefficient[falling, None]).T
        for chosen in itertools.product((0.0, 1.0), repeat=len(raising)):
            g = linear + (np.array(chosen) * coefficient[raising]) @ P[raising]
            residual = g if A.shape[1] == 0 else g - A @ lsq_linear(A, g, (0.0, 1.0), method="bvls").x
            best = max(best, float(np.linalg.norm(residual)))
    return best


@settings(max_examples=30)
@given(st.integers(2, 12), st.integers(1, 3), st.sampled_from(SLOPES), st.integers(0, 31), st.integers(0, 10**6))
def test_rank_two_agrees_with_the_arrangement(samples, outputs, slope, flaws, seed):
    X, Lambda = data(samples, 2, outputs, seed, flaws)
    value = float(ArrangementOracle(X, Activation(slope))(Lambda).values[0])
    answer = branch_and_bound(X, Activation(slope), Lambda, target=value * (1 + 1e-5), time_limit=AMPLE)
    assert value * (1 - 1e-12) <= answer.upper_bound <= value * (1 + 1e-5)
    assert float(answer.values[0]) <= answer.upper_bound


@settings(max_examples=15)
@given(st.integers(4, 8), st.integers(3, 4), st.sampled_from(SLOPES[:3]), st.integers(0, 15), st.integers(0, 10**6))
def test_one_output_agrees_with_brute_force(samples, rank, slope, flaws, seed):
    X, Lambda = data(samples, rank, 1, seed, flaws)
    value = brute_force(X, slope, Lambda)
    answer = branch_and_bound(X, Activation(slope), Lambda, target=value * (1 + 1e-5), time_limit=AMPLE)
    assert value * (1 - 1e-9) <= answer.upper_bound <= value * (1 + 1e-5)
    assert float(answer.values[0]) == pytest.approx(value, rel=2e-5)


@settings(max_examples=12)
@given(st.integers(3, 20), st.integers(3, 4), st.integers(2, 5), st.sampled_from(SLOPES), st.integers(0, 10**6))
def test_several_outputs_meet_the_best_direction_found(samples, rank, outputs, slope, seed):
    X, Lambda = data(samples, rank, outputs, seed, seed % 32)
    activation = Activation(slope)
    # Any target below the maximum: the search then proves (1 + slack) times the best direction it knows.
    answer = branch_and_bound(X, activation, Lambda, target=0.0, time_limit=AMPLE, options=BranchOptions(slack=1e-2))
    found = oracle_values(X, activation, Lambda, answer.directions)
    torch.testing.assert_close(found, answer.values, rtol=1e-9, atol=0.0)
    assert answer.upper_bound <= 1.0101 * float(found[0])
    assert max(float(found[0]), sampled(X, activation, Lambda)) <= answer.upper_bound


@settings(max_examples=25)
@given(st.integers(1, 40), st.integers(2, 6), st.integers(1, 4), st.sampled_from(SLOPES), st.integers(0, 10**6))
def test_a_search_without_time_gives_a_true_bound(samples, rank, outputs, slope, seed):
    X, Lambda = data(samples + 1, rank, outputs, seed, seed % 32)
    activation = Activation(slope)
    small = BranchOptions(batch=8, most_cones=300)
    at_once = branch_and_bound(X, activation, Lambda, target=0.0, time_limit=0.0)
    soon = branch_and_bound(X, activation, Lambda, target=0.0, time_limit=AMPLE, options=small)
    best = max(sampled(X, activation, Lambda), float(soon.values[0]))
    assert best <= soon.upper_bound <= at_once.upper_bound * (1 + 1e-9)
    for answer in (at_once, soon):
        again = replay(X, activation, Lambda, answer.tree, claimed=answer.upper_bound)
        assert best <= again <= answer.upper_bound * (1 + 1e-9)


@settings(max_examples=25)
@given(st.integers(2, 6), st.floats(1e-3, 1e3), st.integers(0, 10**6))
def test_a_bound_scales_with_the_dual_point(rank, size, seed):
    V = torch.nn.functional.normalize(gaussian(5, rank, rank, seed=seed).abs(), dim=2)
    g, Z = gaussian(5, rank, seed=seed + 1), gaussian(5, 4, rank, seed=seed + 2)
    at_one, at_size = (saddle(V @ V.mT, s * g, s * Z, ConeBounds.steps, ConeBounds.boundary) for s in (1.0, size))
    torch.testing.assert_close(at_one, at_size, rtol=1e-6, atol=1e-6)


@settings(max_examples=25)
@given(st.integers(1, 30), st.integers(2, 5), st.integers(1, 4), st.sampled_from(SLOPES), st.integers(0, 10**6))
def test_vertex_values_bound_h_on_the_cone_for_every_t(samples, rank, outputs, slope, seed):
    X, Lambda = data(samples + 1, rank, outputs, seed)
    bounds = ConeBounds(X, Activation(slope), Lambda)
    V = torch.nn.functional.normalize(gaussian(6, rank, rank, seed=seed + 2).abs(), dim=2)
    side = torch.tensor([1.0, -1.0] * 3, dtype=torch.float64)
    t = gaussian(6, samples + 1, seed=seed + 3).sigmoid().round(decimals=1)
    D = bounds.vertex_values(bounds._terms(V, side), t)
    theta = gaussian(50, 6, rank, seed=seed + 4).abs()
    G = Activation(slope)(torch.einsum("sbr,brd,nd->sbn", theta, V, X)) @ Lambda
    h = side * G[:, :, 0] if outputs == 1 else G.norm(dim=2)
    assert bool((h <= (theta * D).sum(dim=2) + 1e-9).all())
    # ... and the step from there to a number holds whatever the programme's solver did.
    upper, _ = bounds.largest(V, D)
    assert bool((h <= upper * torch.einsum("sbr,brd->sbd", theta, V).norm(dim=2) + 1e-9).all())


def test_a_bad_inner_solver_costs_tightness_and_not_truth():
    X, Lambda = data(30, 4, 2, 3)
    V = torch.nn.functional.normalize(gaussian(40, 4, 4, seed=1).abs(), dim=2)
    side = torch.ones(40, dtype=torch.float64)
    theta = gaussian(200, 40, 4, seed=2).abs()
    q = torch.nn.functional.normalize(torch.einsum("sbr,brd->sbd", theta, V), dim=2)
    h = (torch.relu(q @ X.T) @ Lambda).norm(dim=2).amax(dim=0)
    good = ConeBounds(X, Activation(), Lambda)(V, side, 0.0).upper
    for fields in ({"steps": 1}, {"steps": 3, "boundary": 1.5}, {"regularisation": 1.0}):
        bad = type("Bad", (ConeBounds,), fields)(X, Activation(), Lambda)(V, side, 0.0).upper
        assert bool((bad >= h).all())
        assert bool((good <= bad * (1 + 1e-6)).all())


def test_a_kink_at_the_maximum_does_not_hold_the_search_up():
    # f = w_1 - (-w_1)_+ ... - |w_2| - |w_3| - |w_4|: the maximum lies on the kinks of three coordinates.
    eye = torch.eye(4, dtype=torch.float64)
    Lambda = -torch.ones(8, 1, dtype=torch.float64)
    Lambda[0], Lambda[4] = 4.0, -3.0
    for noise in (0.0, 0.05):
        X = torch.cat([eye, -eye]) + noise * gaussian(8, 4, seed=0)
        value = brute_force(X, 0.0, Lambda)
        answer = branch_and_bound(X, Activation(), Lambda, target=value * (1 + 1e-8), time_limit=AMPLE)
        assert answer.upper_bound <= value * (1 + 1e-8)
        assert len(answer.tree) < 2000


def test_zero_data_and_rank_one():
    X = torch.outer(gaussian(6, seed=0), torch.tensor([0.6, 0.0, 0.8], dtype=torch.float64))
    Lambda = gaussian(6, 2, seed=1)
    value = max(float(oracle_values(X, Activation(), Lambda, s * X[:1] / X[0].norm())[0]) for s in (1.0, -1.0))
    answer = branch_and_bound(X, Activation(), Lambda, target=value * (1 + 1e-9), time_limit=AMPLE)
    assert answer.upper_bound == pytest.approx(value, rel=1e-8)
    for nothing in (
        branch_and_bound(X, Activation(), 0.0 * Lambda, target=0.0, time_limit=AMPLE),
        branch_and_bound(0.0 * X, Activation(), Lambda, target=0.0, time_limit=AMPLE),
    ):
        assert 0.0 <= nothing.upper_bound < 1e-12


def test_a_tampered_tree_is_refused_or_proves_what_it_proves():
    X, Lambda = data(20, 3, 2, 4)
    answer = branch_and_bound(X, Activation(), Lambda, target=0.0, time_limit=AMPLE)
    value = float(answer.values[0])
    codes = answer.tree
    for wrong in (codes[:-1], np.append(codes, np.uint8(0)), np.full(8, 9, np.uint8)):
        with pytest.raises(ProblemError, match="does not fit"):
            replay(X, Activation(), Lambda, wrong, claimed=1.0)
    assert replay(X, Activation(), Lambda, np.zeros(8, np.uint8), claimed=0.5 * value) >= value
    assert replay(X, Activation(), Lambda, answer.tree, claimed=0.5 * value) >= value


def test_elimination_proves_copositive_forms_only_and_most_of_them():
    told = proved = 0
    for seed in range(150):
        k = 2 + seed % 4
        noise = gaussian(k, k, seed=seed)
        C = noise @ noise.T / k - 0.5 * torch.eye(k, dtype=torch.float64) + 0.3 * (noise + noise.T).abs()
        known, found = copositive(C.numpy()), bool(is_copositive(C[None])[0])
        assert known or not found
        told, proved = told + known, proved + found
    assert 30 < told < 120
    assert proved >= 0.8 * told
    # Horn's form is copositive at the boundary, and no sum of a positive semi-definite and a non-negative one.
    horn = torch.tensor([[1, -1, 1, 1, -1]], dtype=torch.float64)
    horn = torch.stack([horn[0].roll(k) for k in range(5)])
    assert not bool(is_copositive((horn - 1e-3)[None])[0])
    assert bool(is_copositive((horn + torch.eye(5, dtype=torch.float64))[None])[0])


@settings(max_examples=25)
@given(
    st.integers(1, 30), st.integers(2, 6), st.sampled_from(SLOPES), st.sampled_from((0.1, 1.0)), st.integers(0, 10**6)
)
def test_forms_bound_h_on_the_cone_and_better_than_chords(samples, rank, slope, width, seed):
    X, Lambda = data(samples + 1, rank, 1, seed, seed % 16)
    bounds = ConeBounds(X, Activation(slope), Lambda)
    corner = gaussian(6, 1, rank, seed=seed + 2)
    V = torch.nn.functional.normalize((corner + width * gaussian(6, rank, rank, seed=seed + 3)).abs(), dim=2)
    side = torch.tensor([1.0, -1.0] * 3, dtype=torch.float64)
    terms = bounds._terms(V, side)
    D = bounds.vertex_values(terms, (terms.X.sum(dim=1) > 0).double())
    theta = gaussian(400, 6, rank, seed=seed + 4).square()
    theta[:200:2, :, 0] *= 1e-3
    q = torch.einsum("sbr,brd->sbd", theta, V)
    h = side * (Activation(slope)(q @ X.T) @ Lambda)[:, :, 0] / q.norm(dim=2)
    upper, gaps = bounds.largest(V, D)[0], edge_gaps(terms.X, terms.a.clamp_min(0.0))
    stretch = bounds.largest(V, torch.ones_like(D))[0]
    assert bool((theta.sum(dim=2) <= stretch * q.norm(dim=2)).all())
    for enough in (0.0, float(upper.mean())):
        least = least_multiple(V @ V.mT, stretch, D, gaps, bounds.rounding, enough, upper)
        assert bool((h <= least + 1e-9).all())
        assert bool((least <= upper).all())


def test_a_convex_function_is_as_large_as_at_a_generator():
    # Samples of weight 1 that sum up to nothing in the middle of the cone, alike for its three generators.
    V = torch.nn.functional.normalize(torch.eye(3, dtype=torch.float64) + 0.5, dim=1)[None]
    X = gaussian(20, 3, seed=2)
    X = torch.cat([(X - X.mean(dim=1, keepdim=True)).roll(k, dims=1) for k in range(3)])
    Lambda = torch.ones(60, 1, dtype=torch.float64)
    bounds = ConeBounds(X, Activation(), Lambda)
    at_generators = (torch.relu(V @ X.T) @ Lambda)[:, :, 0]
    value = float(at_generators.max())
    upper = float(bounds(V, torch.ones(1, dtype=torch.float64), value * (1 + 1e-9)).upper)
    assert value <= upper <= value * (1 + 1e-8)
    assert float(bounds.largest(V, at_generators)[0]) > 1.1 * value


def test_outputs_that_turn_round_inside_a_cone_are_bounded_on_both_sides():
    """u^T G is 0.1 at both generators and -0.8 at their sum, as a sample turns off in the middle."""
    X = torch.tensor([[1.0, -1.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    Lambda = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.1, 0.0], [0.1, 0.0]], dtype=torch.float64)
    bounds, V = ConeBounds(X, Activation(), Lambda), torch.eye(2, dtype=torch.float64)[None]
    terms = bounds._terms(V, torch.ones(1, dtype=torch.float64))
    D = bounds.vertex_values(terms, (terms.X.sum(dim=1) > 0).double())
    at_sum = float((torch.relu(X.sum(dim=1)) @ Lambda).norm())
    assert at_sum == pytest.approx(0.8)
    assert at_sum <= float(D.sum())


@pytest.mark.parametrize("order", list(itertools.permutations((2.0**60, 1.0, -(2.0**60)))))
def test_a_cone_s_bound_is_charged_for_what_a_sum_rounds_away(order):
    """Three equal samples, of which h = q_1 + q_2 is left, at most sqrt(2); float64 adds some orders up to 0."""
    Lambda = torch.tensor(order, dtype=torch.float64)[:, None]
    bounds = ConeBounds(torch.ones(3, 2, dtype=torch.float64), Activation(), Lambda)
    V, side = torch.eye(2, dtype=torch.float64)[None], torch.ones(1, dtype=torch.float64)
    for enough in (0.0, 0.5, math.inf):
        assert float(bounds(V, side, enough).upper) >= math.sqrt(2.0)
