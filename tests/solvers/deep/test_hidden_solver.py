"""The descent on hidden representations: its loss, its network, and known minima at which it ends."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from instances import Instance, cases, distance_to_kinks, gaussian, instances, slope
from references import hidden_loss
from torch import Tensor

import covopt
from covopt.linalg.psd import RankRule, thin
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import evaluate, flattened
from covopt.runtime.loop import Budget, Status, run
from covopt.solvers.deep.representations import HiddenSolver, HiddenState, TikhonovLoss
from tests.benchmarks.reformulations import problems

CASES = cases("shallow_exact")


def digits_like(depth: int, loss: str = "mse", bias: float = 1.0) -> Problem:
    """Ten random samples of three classes."""
    Y = torch.nn.functional.one_hot(torch.arange(10) % 3).double()
    lam = None if loss == "interpolate" else 0.02
    return make_problem(gaussian(10, 4, seed=3), Y, lam=lam, loss=loss, depth=depth, bias=bias)


def ended(problem: Problem, descents: int, **options: object) -> HiddenState:
    state = run(HiddenSolver(problem, **options), Budget(600.0, max_iterations=descents)).state  # type: ignore[arg-type]
    assert state.cost == pytest.approx(evaluate(problem, state.weights).total, rel=1e-12)
    return state


def moving(problem: Problem, Z: list[Tensor]) -> list[Tensor]:
    """The representations that descend."""
    return Z if problem.ridge is None else Z[:-1]


def row_space_factor(problem: Problem) -> Tensor:
    factor = thin(problem.Xt)
    return (factor.U * factor.s)[:, factor.significant > 0]


# ---- the loss
@pytest.mark.parametrize("kink", [0.0, 0.1])
@given(instance=instances(deficient=False, losses=("mse", "cross_entropy")))
def test_the_gradient_agrees_with_differences(kink: float, instance: Instance) -> None:
    problem, Z = instance.problem, moving(instance.problem, instance.Z)
    assume(kink > 0.0 or distance_to_kinks([*Z, Z[0]]) > 1e-3)
    loss = TikhonovLoss(problem, row_space_factor(problem), Z, 0.1, kink)
    x = flattened(loss.coordinates(Z))
    for z, again in zip(Z, loss.representations(x), strict=True):
        torch.testing.assert_close(again, z, rtol=1e-8, atol=1e-8)
    value, gradient = loss(x)
    direction = gaussian(len(x), seed=instance.seed)
    direction /= direction.norm() * 1e3
    along = slope(lambda t: torch.tensor(loss(x + t * direction)[0], dtype=torch.float64), step=1e-3)
    assert float(gradient @ direction) == pytest.approx(along, rel=1e-4, abs=1e-8 * abs(value))


@given(instance=instances(deficient=False, losses=("mse", "cross_entropy")))
def test_the_value_is_the_loss_of_representations_with_tikhonov(instance: Instance) -> None:
    """With the best outputs for mse, whose gradient in them vanishes."""
    problem, Z = instance.problem, moving(instance.problem, instance.Z)
    loss = TikhonovLoss(problem, row_space_factor(problem), Z, 1e-3, 0.0)
    value = problem.lam * loss(flattened(loss.coordinates(Z)))[0]
    eps, Zs = [float(own.min()) for own in loss.own], problem.Xt
    eye, rules = torch.eye(problem.samples).double(), [RankRule(), *(RankRule(tikhonov=t) for t in eps)]
    outputs, expected = Z[-1], 0.0
    for layer, (z, rule) in enumerate(zip(Z, rules, strict=False), start=1):
        expected += problem.lam * float(hidden_loss.trace_quotient(z, Zs, rule))
        if layer < problem.depth:
            Zs = problem.appended(z, layer)
    if problem.ridge is None:
        expected += float(problem.loss_at(outputs))
    else:
        K = Zs @ Zs.mT
        extra = max(0.0, eps[-1] - problem.ridge)  # Tikhonov's eps where N lam is below it
        F = (K + extra * eye) @ torch.linalg.solve(K + (extra + problem.ridge) * eye, problem.Y)
        inverse = torch.linalg.inv(K + extra * eye) if extra else torch.linalg.pinv(K, hermitian=True)
        expected += float(problem.loss_at(F)) + problem.lam * float((F * (inverse @ F)).sum())
    assert value == pytest.approx(expected, rel=1e-6)


def test_at_two_layers_the_network_has_the_loss_of_its_representations() -> None:
    """Also with weights of the samples."""
    weight = np.geomspace(0.1, 10.0, 9)
    problem = make_problem(gaussian(9, 3, seed=1), gaussian(9, 2, seed=2), lam=0.1, sample_weight=weight)
    solver = HiddenSolver(problem, width=6, seed=3)
    Z = solver.init(Budget(60.0)).Z
    loss = TikhonovLoss(problem, row_space_factor(problem), Z, 0.0, 0.0)
    W = solver._networks(Z, loss, Budget(60.0))[0]
    value = problem.lam * loss(flattened(loss.coordinates(Z)))[0]
    assert evaluate(problem, W).total == pytest.approx(value, rel=1e-9)


# ---- known minima
@pytest.mark.parametrize("depth", [2, 3, 4])
def test_linear_networks_reach_the_schatten_norm(depth: int) -> None:
    """min |W|^2 of a linear map A is L sum s_i(A)^(2/L)."""
    X, A = gaussian(6, 4, seed=0), gaussian(4, 2, seed=1)
    problem = make_problem(X, X @ A, depth=depth, bias=0.0, activation="linear")
    state = ended(problem, 7, width=5)
    assert state.cost == pytest.approx(depth * float((torch.linalg.svdvals(A) ** (2 / depth)).sum()), rel=1e-3)
    assert evaluate(problem, state.weights).residual < 1e-8


@pytest.mark.parametrize("depth", [2, 3])
def test_scalar_targets_on_orthonormal_inputs(depth: int) -> None:
    Y = torch.tensor([1.0, 2.0, 0.5, 0.0, 3.0], dtype=torch.float64)
    problem = make_problem(torch.eye(5, dtype=torch.float64), Y, depth=depth, bias=0.0)
    cost = min(ended(problem, 11, seed=seed).cost for seed in range(2))
    assert cost == pytest.approx(depth * float(Y.norm()) ** (2 / depth), rel=1e-3)


@pytest.mark.parametrize("name", ["interp-plane", "interp-1d-smooth", "reg-1d-onehot"])
def test_two_layers_reach_proved_minima(name: str) -> None:
    case = CASES[name]
    problem = make_problem(case["X"], case["Y"], lam=case["lam"], bias=case["beta"])
    assert case["lower"] * (1 - 1e-9) <= ended(problem, 25).cost <= case["upper"] * 1.01


def test_one_start_ends_at_the_cost_of_the_method_cone() -> None:
    """It reaches 0.210303 in 30 s (tests/benchmarks/results/reformulations.json)."""
    work = next(work for work in problems(3) if work.name == "digits, lam 0.01, L = 3")
    problem = make_problem(work.X, work.Y, lam=work.lam, bias=work.beta, depth=work.depth)
    assert 0.99 * 0.210303 < ended(problem, 5).cost < 1.005 * 0.210303


# ---- what a user sees
@pytest.mark.parametrize("depth", [2, 4])
@pytest.mark.parametrize("loss", ["mse", "cross_entropy", "interpolate"])
def test_the_cost_never_rises(depth: int, loss: str) -> None:
    problem = digits_like(depth, loss)
    outcome = run(HiddenSolver(problem, seed=1), Budget(600.0, max_iterations=5))
    costs = [line.cost for line in outcome.history]
    assert all(after <= before for before, after in pairwise(costs))
    assert math.isfinite(costs[-1])
    assert problem.allows(evaluate(problem, outcome.state.weights).residual)
    if loss != "interpolate":
        assert costs[-1] < 0.9 * evaluate(problem, [torch.zeros_like(W) for W in outcome.state.weights]).total


def test_starts_from_a_network_and_keeps_the_width() -> None:
    problem = digits_like(3)
    first, again, other = (ended(problem, 8, width=8, seed=seed) for seed in (5, 5, 6))
    assert first.cost == again.cost != other.cost
    assert [len(W) for W in first.weights] == [8, 8, 3]
    assert ended(problem, 4, width=8, init=first.weights).cost <= first.cost


def test_a_start_is_drawn_when_its_turn_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    class Counted(HiddenSolver):
        def __init__(self, *arguments: object) -> None:
            drawn.append(arguments)
            super().__init__(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("covopt.solvers.stages.more_layers.HiddenSolver", Counted)
    problem = digits_like(3)
    many = covopt.solve(
        problem.X, problem.Y, lam=0.02, depth=3, method="hidden", starts=1_000_000, time_limit=0.5, certify="none"
    )
    assert many.status is Status.TIME_LIMIT
    assert 0 < len(drawn) <= 10_000  # each gets a twentieth of the time, unless it ends sooner
    assert len(drawn) - 1 <= len(many.starts) <= len(drawn)
