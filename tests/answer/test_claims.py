"""The attack itself: its evaluations against differences and known answers, that it can find something, and a taste."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from adversary import Question, attack
from copositive_matrices import HORN, copositive

from covopt.model.weights import evaluate
from tests.benchmarks.truth import SHARES, Tally
from tests.claims import Claim, problem_of, steepest, without_neurons
from tests.claims_of_sets import ANOTHER, elsewhere


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
    widths = [3, *[5] * (depth - 1), question.Y.shape[1]]
    weights = [rng.standard_normal((n, m + 1)) for m, n in pairwise(widths)]
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
        weights = [problem.X.new_tensor(W) for W in found.best]
        told = evaluate(problem, weights)
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
