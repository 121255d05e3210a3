"""The descent on hidden representations: it never rises, stays feasible, and ends at known values."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import scipy
import torch
from hypothesis import assume, given, settings
from instances import Instance, condition, distance_to_kinks, gaussian, instances, slope
from references import hidden_loss
from torch import Tensor

import covopt
from covopt.certify.spectral import spectral_bound
from covopt.linalg.psd import RankRule, thin
from covopt.model import hidden
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import evaluate
from covopt.runtime.loop import Budget, Status
from covopt.solvers.deep.representations import HiddenOptions, HiddenSolver
from covopt.solvers.incumbent import Attempt, best_of

CASES = {
    c["name"]: c for c in json.loads((Path(__file__).parents[2] / "cases" / "shallow_exact.json").read_text())["cases"]
}


def digits_like(depth: int, loss: str = "mse", bias: float = 1.0) -> Problem:
    """Ten random samples of three classes."""
    Y = torch.nn.functional.one_hot(torch.arange(10) % 3).double()
    lam = None if loss == "interpolate" else 0.02
    return make_problem(gaussian(10, 4, seed=3), Y, lam=lam, loss=loss, depth=depth, bias=bias)


def descend_best(
    problem: Problem,
    budget: Budget,
    starts: int = 1,
    seed: int = 0,
    init: Sequence[Tensor] | None = None,
    **options: object,
) -> Attempt:
    """Descend from a few starts, the first of them `init`, as `solve` does."""
    inits = [init, *[None] * (starts - 1)]
    solvers = [HiddenSolver(problem, seed=seed + k, init=first, **options) for k, first in enumerate(inits)]  # type: ignore[arg-type]
    return best_of(budget.turns(solvers), None)


def descend(problem: Problem, bases: int, **options: object) -> tuple[list[Tensor], float]:
    found = descend_best(problem, Budget(max_iterations=bases), **options)  # type: ignore[arg-type]
    cost = evaluate(problem, found.weights)
    assert cost.total == pytest.approx(min(found.starts), rel=1e-12)
    assert cost.total >= spectral_bound(problem)
    return found.weights, cost.total


# ------------------------------------------------------------------------------------------ the model behind it


@pytest.mark.parametrize("rule", [RankRule(), RankRule(tikhonov=0.2)], ids=["pseudo-inverse", "tikhonov"])
@given(instance=instances(deficient=False))
def test_gradient_off_the_feasible_set(rule: RankRule, instance: Instance) -> None:
    problem = instance.problem
    Z = [z + 0.3 * gaussian(*z.shape, seed=instance.seed + 70 + k) for k, z in enumerate(instance.Z)]
    at = hidden.projected_loss(problem, Z, rule)
    assume(condition(problem, at.Z) < 100.0)
    assume(distance_to_kinks(at.Z) > 1e-3)
    assume(all(int(thin(Zs).rank) == min(Zs.shape) for Zs in hidden.layer_inputs(problem, at.Z)[1:]))
    D = [gaussian(*z.shape, seed=instance.seed + 7 + k) for k, z in enumerate(Z)]
    D = [d / d.norm() for d in D]

    def along(t: float) -> Tensor:
        moved = [z + t * d for z, d in zip(Z, D, strict=True)]
        return torch.tensor(hidden.projected_loss(problem, moved, rule).value, dtype=torch.float64)

    expected = float(sum((g * d).sum() for g, d in zip(at.gradient, D, strict=True)))
    assert slope(along) == pytest.approx(expected, rel=1e-6, abs=1e-7 * abs(at.value))
    projected = hidden.project(problem, Z)
    assert at.value == pytest.approx(float(hidden_loss.objective(problem, projected, rule)), rel=1e-10)
    assert at.missed == pytest.approx(float((Z[-1] - projected[-1]).abs().max()), rel=1e-9, abs=1e-12)


# ------------------------------------------------------------------------------------------------- the descent


@pytest.mark.parametrize("depth", [2, 3, 4])
@pytest.mark.parametrize("loss", ["mse", "cross_entropy", "interpolate"])
def test_the_loss_never_rises_and_is_that_of_the_weights(depth: int, loss: str) -> None:
    problem = digits_like(depth, loss)
    solver = HiddenSolver(problem, width=11, seed=1, options=HiddenOptions(tikhonov=(0.0,), steps=(10, 40)))
    state = solver.init(Budget(60.0))
    for _ in range(4):
        before, state = state, solver.step(state, Budget(60.0))
        assert state.loss <= before.loss
        assert state.cost <= before.cost
        for z, again in zip(state.Z, hidden.project(problem, state.Z), strict=True):
            torch.testing.assert_close(again, z, rtol=1e-8, atol=1e-8)
        cost = evaluate(problem, hidden.to_weights(problem, state.Z)).total
        assert float(hidden_loss.objective(problem, state.Z)) == pytest.approx(cost, rel=1e-8)
        assert state.loss == pytest.approx(cost, rel=1e-8)
    assert state.cost < 0.9 * solver.init(Budget(60.0)).cost


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_linear_networks(depth: int) -> None:
    X, A = gaussian(6, 4, seed=0), gaussian(4, 2, seed=1)
    problem = make_problem(X, X @ A, depth=depth, bias=0.0, activation="linear")
    weights, cost = descend(problem, 8, width=5, starts=1)
    assert cost == pytest.approx(depth * float((torch.linalg.svdvals(A) ** (2 / depth)).sum()), rel=1e-3)
    assert evaluate(problem, weights).residual < 1e-8


@pytest.mark.parametrize("depth", [2, 3])
def test_scalar_targets_on_orthonormal_inputs(depth: int) -> None:
    Y = torch.tensor([1.0, 2.0, 0.5, 0.0, 3.0], dtype=torch.float64)
    problem = make_problem(torch.eye(5, dtype=torch.float64), Y, depth=depth, bias=0.0)
    _, cost = descend(problem, 6, starts=2)
    assert cost == pytest.approx(depth * float(Y.norm()) ** (2 / depth), rel=2e-2)


@pytest.mark.parametrize(
    ("name", "near"), [("interp-plane", 0.01), ("interp-1d-smooth", 0.05), ("reg-1d-onehot", 0.03)]
)
def test_certified_shallow_values(name: str, near: float) -> None:
    case = CASES[name]
    problem = make_problem(case["X"], case["Y"], lam=case["lam"], bias=case["beta"])
    # Which start leads to the best basin depends on the machine's rounding.
    _, cost = descend(problem, 24, starts=6, options=HiddenOptions(steps=(10, 320)))
    assert case["lower"] * (1 - 1e-9) <= cost <= case["upper"] * (1 + near)


def test_starts_from_a_network_and_keeps_the_best() -> None:
    problem = digits_like(3)
    first = descend_best(problem, Budget(max_iterations=3), width=8, starts=2, seed=5)
    again = descend_best(problem, Budget(max_iterations=2), width=8, starts=1, init=first.weights)
    assert again.starts[0] <= min(first.starts) * (1 + 1e-9)
    repeated = descend_best(problem, Budget(max_iterations=3), width=8, starts=2, seed=5)
    assert repeated.starts == first.starts
    assert first.status is Status.ITERATION_LIMIT
    costs = [line.cost for line in first.history]
    assert costs == sorted(costs, reverse=True)
    assert [line.iteration for line in first.history] == list(range(len(costs)))


def test_the_time_limit_is_kept() -> None:
    found = descend_best(digits_like(4), Budget(time_limit=0.3), starts=3)
    assert found.status is Status.TIME_LIMIT
    assert found.history[-1].seconds < 5.0
    assert evaluate(digits_like(4), found.weights).total == pytest.approx(min(found.starts), rel=1e-12)


@settings(max_examples=10)
@given(instances(depths=(2, 3)))
def test_any_instance_improves_on_its_start(instance: Instance) -> None:
    problem = instance.problem
    found = descend_best(problem, Budget(max_iterations=2), starts=1, init=instance.weights)
    assert spectral_bound(problem) <= found.starts[0]
    assert found.starts[0] <= evaluate(problem, instance.weights).total * (1 + 1e-9)


@pytest.mark.parametrize(("seconds", "most"), [(1e7, 40 * 60), (1e-3, 31)])
def test_starts_choose_from_as_many_neurons_as_the_time_allows(
    seconds: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A solve of 200 samples at depth 5 with a limit of 0.5 s ended 3.7 s late."""
    problem = make_problem(gaussian(60, 3, seed=1), gaussian(60, 2, seed=2), lam=0.1, depth=3)
    columns, qr = [], scipy.linalg.qr
    monkeypatch.setattr("scipy.linalg.qr", lambda A, **options: columns.append(A.shape[1]) or qr(A, **options))
    HiddenSolver(problem, width=31).init(Budget(seconds))
    assert columns == [most, most]


def test_a_start_is_drawn_when_its_turn_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = 0

    def counted(*arguments: object) -> HiddenSolver:
        nonlocal drawn
        drawn += 1
        return HiddenSolver(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("covopt.solvers.stages.more_layers.HiddenSolver", counted)
    problem = digits_like(3)
    many = covopt.solve(
        problem.X, problem.Y, lam=0.02, depth=3, method="hidden", starts=1_000_000, time_limit=0.5, certify="none"
    )
    assert many.status is Status.TIME_LIMIT
    assert 0 < drawn <= 10_000  # each gets a twentieth of the time, unless it ends sooner
    assert drawn - 1 <= len(many.starts) <= drawn
