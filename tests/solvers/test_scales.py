"""Inputs, targets, lam and bias of every scale: closed forms, what ends, and what is tried before anything else."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from instances import gaussian

import covopt
from covopt.linalg.psd import row_space
from covopt.model.loss import parse_loss
from covopt.model.problem import make_problem
from covopt.model.units import Units
from covopt.model.weights import evaluate, preactivations
from covopt.runtime.loop import Status
from covopt.solvers.shallow.quadratic import nonnegative_quadratic
from covopt.solvers.training.simple import simple_networks

CASES = Path(__file__).parents[1] / "cases"
LINE, ENDS = np.array([[1.0], [2.0]]), np.array([[1.0], [0.3]])


@pytest.mark.parametrize("x", [1e-60, 1e-9, 1.0, 1e60])
@pytest.mark.parametrize("y", [1e-60, 1.0, 1e9, 1e60])
@pytest.mark.parametrize("part", [0.5, 1e-3, 1e-12, 1e-20])
def test_one_sample_at_every_scale(x: float, y: float, part: float) -> None:
    """min (x t - y)^2 + 2 lam |t| with t = u v: at lam < x y it is 2 lam y / x - (lam / x)^2."""
    lam = part * x * y
    if not 1e-75 <= lam <= 1e75:
        pytest.skip("beyond the range")
    result = covopt.solve([[x]], [[y]], lam=lam, bias=0.0, time_limit=5)
    expected = y * y * (2.0 * part - part**2)
    assert (result.cost, result.status) == (pytest.approx(expected, rel=1e-6), Status.OPTIMAL)


@pytest.mark.parametrize("loss", ["mse", "cross_entropy", "interpolate"])
@pytest.mark.parametrize("depth", [2, 3, 5])
def test_networks_cost_the_same_in_other_units(loss: str, depth: int) -> None:
    X = 3e7 * gaussian(5, 2, seed=1)
    Y = (
        torch.eye(3, dtype=torch.float64)[torch.arange(5) % 3]
        if loss == "cross_entropy"
        else 2e-9 * gaussian(5, 3, seed=2)
    )
    problem = make_problem(X, Y, lam=None if loss == "interpolate" else 1e-4, loss=loss, depth=depth, bias=40.0)
    units = Units.of(problem)
    widths = [2, *[4] * (depth - 1), 3]
    weights = [gaussian(n, k + 1, seed=k) for k, n in pairwise(widths)]
    outside = units.outward(weights)
    assert units.cost * evaluate(units.problem, weights).total == pytest.approx(evaluate(problem, outside).total)
    assert 1.0 <= float(units.problem.X.abs().max()) < 2.0
    for mine, theirs in zip(units.inward(outside), weights, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("size", [1e-60, 1.0, 1e60])
@pytest.mark.parametrize("depth", [2, 4])
def test_more_inputs_than_samples_are_turned_into_their_span(depth: int, size: float) -> None:
    """Outputs and costs stay the same, and weights outside the span of the samples only cost."""
    X, Y = size * gaussian(5, 40, seed=1), gaussian(5, 2, seed=2)
    X[3] = X[4]
    problem = make_problem(X, Y, lam=1e-3, depth=depth)
    units = Units.of(problem).in_span()
    assert units.problem.X.shape == (5, 5)
    weights = [gaussian(n, k + 1, seed=k) for k, n in pairwise([5, *[4] * (depth - 1), 2])]
    outside = units.outward(weights)
    assert units.cost * evaluate(units.problem, weights).total == pytest.approx(evaluate(problem, outside).total)
    for mine, theirs in zip(units.inward(outside), weights, strict=True):
        torch.testing.assert_close(mine, theirs)
    other = [outside[0] + float(outside[0].abs().max()) * gaussian(4, 41, seed=3), *outside[1:]]
    least = units.outward(units.inward(other))
    torch.testing.assert_close(preactivations(problem, least)[-1], preactivations(problem, other)[-1])
    assert evaluate(problem, least).norm < evaluate(problem, other).norm
    for kept in (make_problem(X, Y, depth=depth), make_problem(X[:, :5], Y, lam=1e-3, depth=depth)):
        assert Units.of(kept).in_span().problem.X.shape == kept.X.shape  # exact fits, and no more inputs than samples


@pytest.mark.parametrize(
    ("scale", "options"), [(1e20, {"lam": 1e-3}), (1e20, {"lam": 1e-5}), (1e70, {"lam": 1e60}), (1e-60, {"lam": 1e60})]
)
def test_what_never_ended_ends(scale: float, options: dict) -> None:
    result = covopt.solve(LINE, scale * ENDS, time_limit=2, **options)
    assert math.isfinite(result.cost)
    assert result.seconds < 60.0


@pytest.mark.parametrize(("samples", "beta"), [(300, 1.0), (4000, 1e20)])
@pytest.mark.parametrize("depth", [2, 4])
def test_biases_beyond_float32(samples: int, beta: float, depth: int) -> None:
    """Beside targets so small the unit of the biases is large: rounds and batches then compute in float64."""
    X = gaussian(samples, 20, seed=0)
    Y = 1e-60 * (X[:, :1] - X[:, 1:2]).relu()
    result = covopt.solve(X, Y, lam=1e-63, bias=beta, depth=depth, time_limit=1, certify="none")
    assert 0.0 < result.cost <= float(Y.square().mean()) * (1.0 + 1e-9)


@pytest.mark.parametrize("lam", [1e-12, 1e-13, 1e-20])
def test_small_penalties_end_at_the_representation_cost(lam: float) -> None:
    """As lam falls, the minimum over lam tends to R, which the interpolation solver proves."""
    exact = covopt.solve(LINE, ENDS, time_limit=5)
    result = covopt.solve(LINE, ENDS, lam=lam, time_limit=10)
    assert exact.lower * (1 - 1e-3) <= result.cost / lam <= exact.cost * (1 + 1e-3)
    assert result.status == Status.OPTIMAL


@pytest.mark.parametrize("activation", ["linear", "relu"])
@pytest.mark.parametrize("depth", [2, 3])
def test_a_bias_that_reaches_the_targets_is_used(activation: str, depth: int) -> None:
    """|Xt| t + beta b = y costs 2 t + b^2 from two layers: t = 1, b = 1 up to the inputs, which are small beside it."""
    result = covopt.solve(
        [[0.1, 0.2, 0.3]], [[2000.0]], lam=1e-12, bias=1000.0, activation=activation, depth=depth, time_limit=5
    )
    assert result.cost == pytest.approx(3e-12, rel=1e-4)


def test_deep_solves_are_no_worse_than_constants_and_linear_maps() -> None:
    """The constant mean costs the variance and lam |b|^2."""
    result = covopt.solve(LINE, ENDS, lam=1e-3, bias=1000.0, depth=3, time_limit=1)
    assert result.cost <= 0.35**2 + 1e-3 * (0.65 / 1000.0) ** 2 + 1e-12


def test_a_huge_column_hides_no_other() -> None:
    rng = np.random.default_rng(0)
    z, column = rng.standard_normal(12), 1.7e12 + rng.integers(0, 1000, 12)
    alone = covopt.solve(z[:, None], np.abs(z), lam=1e-3, time_limit=10)
    both = covopt.solve(np.stack([column, z], axis=1), np.abs(z), lam=1e-3, time_limit=10)
    assert both.cost <= alone.cost * (1 + 1e-3)
    assert both.lower is None or both.lower <= alone.cost


def test_units_of_columns_decide_no_rank() -> None:
    Z = gaussian(8, 4, seed=0) * torch.tensor([1e13, 1.0, 1e-3, 0.0], dtype=torch.float64)
    Q = row_space(torch.cat([Z, Z[:, 1:2]], dim=1))
    assert len(Q) == 3
    torch.testing.assert_close(Q @ Q.T, torch.eye(3, dtype=torch.float64))


@pytest.mark.parametrize("kind", ["constant", "linear"])
@pytest.mark.parametrize("activation", ["relu", "leaky:0.3", "leaky:-0.5", "linear"])
@pytest.mark.parametrize("depth", [2, 3, 5])
def test_simple_networks_are_what_they_are_called(kind: str, activation: str, depth: int) -> None:
    problem = make_problem(gaussian(9, 3, seed=1), gaussian(9, 2, seed=2), lam=1e-3, depth=depth, activation=activation)
    *constants, linear = (preactivations(problem, weights)[-1] for weights in simple_networks(problem))
    if kind == "constant":
        for F in constants:
            torch.testing.assert_close(F, problem.Y.mean(dim=0).expand_as(F))
    else:
        ridge = problem.Xt.T @ problem.Xt + 9e-3 * torch.eye(4, dtype=torch.float64)
        torch.testing.assert_close(linear, problem.Xt @ torch.linalg.solve(ridge, problem.Xt.T @ problem.Y))


def test_a_certain_class_keeps_its_digits() -> None:
    """log(1 + exp(-40)) and -1 / (1 + exp(40)), which float64's sums of exponentials lose."""
    loss, Y = parse_loss("cross_entropy"), torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    F = torch.tensor([[-15.0, 25.0]], dtype=torch.float64)
    assert float(loss.values(F, Y)) == pytest.approx(math.log1p(math.exp(-40.0)), rel=1e-12)
    expected = math.exp(-40.0) / (1.0 + math.exp(-40.0))
    assert loss.gradients(F, Y).tolist()[0] == pytest.approx([expected, -expected], rel=1e-12, abs=0.0)


def test_cross_entropy_with_a_small_penalty_is_proved() -> None:
    X = np.array([[1.0, -2.0, 0.0], [0.0, 1.0, 2.0], [-1.0, 1.0, 1.0]])
    Y = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    result = covopt.solve(X, Y, lam=1e-9, loss="cross_entropy", activation="linear", time_limit=20)
    assert result.status == Status.OPTIMAL


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e300])
def test_quadratic_programmes_that_float64_cannot_hold_end(bad: float) -> None:
    H = torch.diag(torch.tensor([1.0, bad, 1e-300], dtype=torch.float64))
    H[0, 2] = H[2, 0] = -1e10  # far from positive semi-definite
    start = torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64)
    x = nonnegative_quadratic(H, torch.tensor([1.0, -1.0, -bad], dtype=torch.float64), start)
    assert x.shape == start.shape


@pytest.mark.parametrize("exponent", [-75, 75])
def test_the_range_is_included(exponent: int) -> None:
    assert make_problem(LINE, ENDS, lam=10.0**exponent).lam == 10.0**exponent


def test_a_bound_of_a_block_is_not_said_of_another() -> None:
    """Targets that a constant meets, and so little time that a block's solve may end without an exact fit."""
    X, Y = np.array([[1.0], [0.0]]), np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    for limit in (0.1, 0.2, 0.3, 0.4):
        assert covopt.solve(X, Y, lam=1e-4, depth=4, time_limit=limit, seed=383).cost <= 1.0001e-4


def test_inputs_of_zero_without_bias_cost_the_targets() -> None:
    """No network has an output: at lam so small that the multiplier is searched for, too."""
    result = covopt.solve([[0.0]], [[3e7, 1.0]], lam=1e-12, bias=0.0, activation="leaky:0.5", time_limit=2)
    assert result.cost == pytest.approx(9e14 + 1.0)


def test_a_descent_that_leaves_float64_is_as_if_not_made() -> None:
    """Rows of sizes from 1e-3 to 1e7: gradients of the descent overflowed, and what was proved of them was NaN."""
    with np.load(CASES / "row_scales.npz") as case:
        X, Y, lam = case["X"], case["Y"], float(case["lam"])
    result = covopt.solve(X, Y, lam=lam, activation="linear", certify="fast", max_iterations=6, time_limit=2.0)
    A = np.linalg.lstsq(np.hstack([X, np.ones((len(X), 1))]), Y, rcond=None)[0]
    least = float(((X @ A[:-1] + A[-1] - Y) ** 2).sum()) / len(X)
    assert least * (1.0 - 1e-9) <= result.cost <= 1.01 * least
