"""Bounds of an exact fit hold for every network of an allowed misfit; and the attack on claims finds wrong ones."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from adversary import Question, attack
from copositive_matrices import HORN, copositive
from hypothesis import given, settings, strategies as st

import covopt
from covopt.certify.proofs import agreed
from covopt.certify.spectral import spectral_bound
from covopt.model.problem import make_problem
from covopt.model.scalars import SMALLEST
from covopt.model.weights import evaluate
from tests.benchmarks.truth import SHARES, Tally
from tests.claims import Claim, problem_of, steepest, without_neurons
from tests.claims_of_sets import ANOTHER, elsewhere

ULP, FAINT = 2.0**-52, [[1.0, 0.0], [0.0, 1e-11]]
SIX = np.random.default_rng(0).standard_normal((6, 6))
SIX[1] = SIX[0] * (1.0 + ULP)
SIX_TARGETS = SIX[:, :1] * [[1.0], [1.0 + 3e-11], [1.0], [1.0], [1.0], [1.0]]

# (X, Y, options, the cost of a network that fits): with bias, constants cost |y|^2 in the last layer alone.
DEGENERATE = {
    "rows one ulp apart": ([[1.0], [1.0 + ULP]], [[1.0], [1.0 + 1e-10]], {"depth": 3}, 1.0 + 1e-9),
    "the same for two layers": ([[1.0], [1.0 + ULP]], [[1.0], [1.0 + 1e-10]], {}, 1.0 + 1e-9),
    "equal rows": ([[1.0], [1.0], [2.0]], [[1.0], [1.0 + 5e-10], [1.0]], {"depth": 3}, 1.0 + 1e-8),
    "a zero row": ([[0.0], [1.0]], [[1e-10], [1.0]], {"depth": 3, "bias": 0.0}, 3.0),
    "the same, two layers": ([[0.0], [1.0]], [[1e-10], [1.0]], {"bias": 0.0}, 2.0),
    "linear, small singular value": (FAINT, [[1.0], [5e-10]], {"bias": 0.0, "activation": "linear", "depth": 3}, 3.0),
    "linear, one within the misfit": (FAINT, [[1.0], [5e-11]], {"bias": 0.0, "activation": "linear"}, 2.0),
    # F = x_1: neurons of +x_1 and -x_1, two norms of 1 each for both layers.
    "two of six rows one ulp apart": (SIX, SIX_TARGETS, {"bias": 0.0}, 4.0),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_no_bound_is_above_a_network_that_fits(name: str) -> None:
    X, Y, options, known = DEGENERATE[name]
    result = covopt.solve(X, Y, time_limit=2, **options)  # type: ignore[arg-type]
    assert result.lower is None or 0.0 < result.lower <= known
    assert result.gap is None or result.gap >= 0.0
    assert not math.isfinite(result.cost) or result.residual <= result.problem.allowed_misfit


@pytest.mark.parametrize("depth", [2, 3])
def test_what_is_feasible_is_what_a_misfit_allows(depth: int) -> None:
    allowed = make_problem([[1.0], [1.0]], [[1.0], [1.0]], depth=depth).allowed_misfit
    for apart, fits in ((1.9, True), (2.1, False)):
        Y = [[1.0], [1.0 + apart * allowed]]
        if fits:  # half-way between them, both are missed by what is allowed
            result = covopt.solve([[1.0], [1.0]], Y, depth=depth, time_limit=2, max_iterations=20)
            assert result.lower is None or result.lower <= 1.0 + 1e-6
        else:
            with pytest.raises(covopt.InfeasibleError, match="Rows 0 and 1"):
                covopt.solve([[1.0], [1.0]], Y, depth=depth)
            assert spectral_bound(make_problem([[1.0], [1.0]], Y, depth=depth)) == math.inf


@pytest.mark.parametrize("scale", [1e-160, 1e-150, 1e-3, 1e70])
def test_distances_do_not_underflow(scale: float) -> None:
    # F = x_1 / scale: L (1 / scale)^(2/L) for one singular value, and the pair's bound is no more.
    for depth in (2, 3, 6):
        problem = make_problem(np.eye(2), [[1.0], [0.0]], bias=0.0, depth=depth)
        problem = replace(problem, X=scale * problem.X)  # data beyond 1e-75 and 1e75 are refused at the door
        assert 0.0 < spectral_bound(problem) <= depth * scale ** (-2.0 / depth)


def test_a_change_of_tiny_targets_is_no_rounding() -> None:
    problem = make_problem(np.eye(2), [[1.0], [1.0]], bias=0.0)
    problem = replace(problem, Y=1e-150 * problem.Y)
    assert not problem.fits_as_well(1e-150, 0.0)  # the zero network
    assert problem.fits_as_well(1e-163, 0.0)
    assert not problem.fits_as_well(1.5e-160, 1e-160)  # twice the misfit, but more than is allowed


def test_a_contradiction_is_an_error_and_rounding_is_not() -> None:
    problem = make_problem(np.eye(2), [[1.0], [0.0]], bias=0.0)
    weights = [torch.tensor([[1.0, 0.0, 0.0]]).double(), torch.tensor([[1.0, 0.0]]).double()]
    assert agreed(problem, weights, 2.0, 1.5) == 1.5
    assert agreed(problem, weights, 2.0, 2.0 * (1.0 + 2.0**-51)) == 2.0
    for lower in (2.001, math.inf, math.nan):
        with pytest.raises(covopt.InternalError, match="defect of covopt"):
            agreed(problem, weights, 2.0, lower)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_the_spectral_bound_under_attack(seed: int) -> None:
    found = attack(seed, plain=True)
    if found is not None and min(np.abs(found.X).max(), np.abs(found.Y).max()) >= SMALLEST:  # others are refused
        bound = spectral_bound(make_problem(found.X, found.Y, **found.options))  # type: ignore[arg-type]
        assert math.isfinite(bound)
        assert bound <= found.upper * (1.0 + 1e-9), found.says


# ---- the attack itself
def asked(loss: str, depth: int = 2, classes: int = 2, **options: object) -> Question:
    """A question without anything hard in it."""
    rng = np.random.default_rng(depth)
    Y = rng.standard_normal((7, classes))
    Y = np.sign(Y[:, :1]) if loss == "logistic" else np.eye(2)[rng.integers(0, 2, 7)] if loss == "cross_entropy" else Y
    return Question(rng.standard_normal((7, 3)), Y, loss, 0.1, depth, 1.0, 0.3, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("loss", ["mse", "cross_entropy", "huber:0.5", "logistic"])
@pytest.mark.parametrize("depth", [2, 4])
@pytest.mark.parametrize("free", [False, True])
def test_gradients_are_differences(loss: str, depth: int, free: bool) -> None:
    rng = np.random.default_rng(0)
    skip = free and loss == "mse"
    question = asked(loss, depth, free=free, skip=skip, weight=rng.uniform(0.1, 1.0, 7))
    weights = [rng.standard_normal((n, m + 1)) for m, n in pairwise([3, *[5] * (depth - 1), question.Y.shape[1]])]
    if skip:
        weights[-1] = rng.standard_normal((2, 9))
    for layer, slopes in enumerate(question.gradient(weights)):
        for place in ((0, 0), (0, -1)):
            ends = []
            for sign in (1.0, -1.0):
                moved = [W.copy() for W in weights]
                moved[layer][place] += sign * 1e-6
                ends.append(question.cost(moved))
            assert slopes[place] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("loss", ["interpolate", "mse", "cross_entropy", "huber", "logistic"])
def test_costs_are_those_of_covopt(loss: str) -> None:
    """Two evaluations that share no line agree, with weights of the samples, free biases and a free skip too."""
    compared = 0
    for seed in range(60):
        found = attack(seed, loss=loss)
        if found is None or not found.question.moderate:
            continue
        problem = problem_of(found)
        fit, norm = found.question.parts(found.best)
        told = evaluate(problem, [problem.X.new_tensor(W) for W in found.best])
        assert norm == pytest.approx(told.norm, rel=1e-12, abs=1e-300)
        if np.isfinite(fit):
            assert fit == pytest.approx(told.fit, rel=1e-9, abs=1e-12 * float(problem.Y.abs().max()) ** 2 + 1e-14)
            assert problem.allows(told.residual * (1.0 - 1e-6))
        compared += 1
    assert compared > 10


def test_what_is_false_is_counted() -> None:
    tally = Tally()
    for low, high in ((1.0, 1.0), (1.0 + 1e-6, 1.0), (np.nan, 1.0), (np.inf, np.inf), (0.5, 1.0)):
        tally.add(Claim("bound", low, high, "made up"))
    assert (tally.claims, len(tally.false), tally.loose) == (5, 3, [1.0, 0.5])


def test_hadelers_criterion() -> None:
    assert copositive(HORN)
    assert copositive(np.eye(3) - np.ones((3, 3)) / 3.0)
    assert not copositive(HORN - 1e-12 * np.eye(5))
    assert not copositive(np.array([[1.0, -1.0 - 1e-15], [-1.0 - 1e-15, 1.0]]))
    assert copositive(np.array([[0.0, 2.0], [2.0, 0.0]]))
    assert not copositive(np.array([[0.0, -(2.0**-1000)], [-(2.0**-1000), 1.0]]))


def test_another_optimum_is_found_where_there_is_one() -> None:
    """X = I: the neurons are a factor B >= 0 of F = Y - N lam I = B B^T, which is the only one where F is diagonal."""
    for Y, several in ((np.diag([3.0, 2.0]), False), (np.array([[2.0, 1.0], [1.0, 2.0]]), True)):
        question = replace(asked("mse"), X=np.eye(2), Y=Y, lam=0.1, beta=0.0, slope=0.0)
        values, vectors = np.linalg.eigh(Y - 0.2 * np.eye(2))
        B = np.hstack([(vectors * np.sqrt(values)) @ vectors.T, np.zeros((2, 1))])
        assert (elsewhere(question, [B, B]) > ANOTHER) == several


def test_the_steepest_direction_without_neurons() -> None:
    """One input without a bias: h is |sum of the residuals on either side|, at w = 1 or -1."""
    question = replace(asked("mse"), X=np.array([[2.0], [-1.0]]), Y=np.array([[1.0], [-5.0]]), beta=0.0, slope=0.0)
    cost, F = without_neurons(question)
    assert cost == pytest.approx(13.0)
    assert steepest(question, F) == pytest.approx(5.0 / (2.0 * 0.1))


@pytest.mark.parametrize("of", list(SHARES), ids=lambda of: of.__name__)
def test_a_taste_of_each_attack(of) -> None:
    tally = Tally()
    for seed in range(3):
        for claim in of(seed):
            tally.add(claim)
    assert tally.claims
    assert tally.false == []
