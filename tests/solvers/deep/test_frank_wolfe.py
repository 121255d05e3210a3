"""Frank-Wolfe layer by layer: known minima, what its objective is; honest ends, those of `hidden` among them."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from instances import cases, gaussian

import covopt
from covopt.linalg.psd import RankRule
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import evaluate
from covopt.records.record import history_lines, read_history, table
from covopt.runtime.loop import Budget, Status, run
from covopt.solvers.deep.frank_wolfe import LayerOptions, LayerRounds, LayerState, Passes

CASES = cases("shallow_exact")
X, Y = gaussian(12, 3, seed=0), gaussian(12, 2, seed=1)
TRAINED = 0.258880
"""The best of 40 networks of three layers and width 20, trained on X and Y with lam 0.01 for 40 seconds."""
EXACT = 7.410418
"""The exact fit of three layers of six rows that the method cone reaches in 40 seconds."""


def ended(problem: Problem, passes: int = 10, **options: object) -> LayerState:
    return run(LayerRounds(problem, **options), Budget(60.0, max_iterations=passes // 5)).state  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["reg-1d-onehot", "interp-1d-smooth"])
def test_two_layers_reach_proved_minima(name: str) -> None:
    case = CASES[name]
    found = covopt.solve(
        case["X"], case["Y"], lam=case["lam"], bias=case["beta"], method="frank-wolfe", time_limit=30.0, gap=1e-4
    )
    assert case["lower"] * (1.0 - 1e-9) <= found.cost <= case["upper"] * (1.0 + 1e-3)
    lines = [line for line in found.history if line.gaps]
    gaps = [line.gaps[0] for line in lines]
    assert gaps[-1] < 1e-3
    assert all(gap >= (line.cost - case["upper"]) / line.cost - 1e-9 for gap, line in zip(gaps, lines, strict=True))


@pytest.mark.parametrize("depth", [3, 4])
def test_linear_networks_reach_the_schatten_norm(depth: int) -> None:
    """min |W|^2 of a linear map A is L sum s_i(A)^(2/L)."""
    A = gaussian(3, 2, seed=2)
    problem = make_problem(X, X @ A, depth=depth, bias=0.0, activation="linear")
    state = ended(problem, passes=40)
    assert state.cost == pytest.approx(depth * float((torch.linalg.svdvals(A) ** (2 / depth)).sum()), rel=5e-3)
    assert evaluate(problem, state.weights).residual < 1e-9


def test_three_layers_come_near_many_trained_networks() -> None:
    found = covopt.solve(X, Y, lam=0.01, depth=3, method="frank-wolfe", starts=1, max_iterations=16, certify="none")
    assert 0.25 < found.cost < 1.005 * TRAINED
    assert len(found.history[5].gaps) == 2
    assert all(0.0 <= gap < math.inf for line in found.history for gap in line.gaps)


@pytest.mark.parametrize("depth", [3, 4])
def test_the_objective_falls_and_is_the_loss_of_representations_with_tikhonov(depth: int) -> None:
    problem = make_problem(X, Y, lam=0.01, depth=depth)
    solver = LayerRounds(problem, options=LayerOptions(schedule=(Passes(1e-2, slow=-1.0),), passes=1))
    state, before = solver.init(Budget(60.0)), math.inf
    for number in range(12):
        eps = solver._eps(state)
        state = solver.step(state, Budget(60.0))
        rule = [RankRule(), *(RankRule(tikhonov=each) for each in eps)]
        Zs, norm = problem.Xt, 0.0
        for layer, (Z, each) in enumerate(zip(state.Z, rule, strict=True), start=1):
            norm += float((Z * (torch.linalg.pinv(Zs @ Zs.T + each.tikhonov * torch.eye(12).double()) @ Z)).sum())
            Zs = problem.appended(Z, layer)
        inner = torch.linalg.solve(Zs @ Zs.T + 12 * problem.lam * torch.eye(12).double(), problem.Y)
        best = problem.lam * (norm + float((problem.Y * inner).sum()))  # of mse, over all W_L
        assert best <= state.objective * (1.0 + 1e-9)
        assert state.objective <= before or number < 4  # eps moves with the trace of Ks, at first
        before = state.objective * 1.01
    assert best == pytest.approx(state.objective, rel=1e-2)


def test_the_same_seed_gives_the_same_answer_and_a_start_is_improved() -> None:
    problem = make_problem(X, Y, lam=0.01, depth=3)
    first, again, other = (ended(problem, seed=seed) for seed in (5, 5, 6))
    assert first.cost == again.cost != other.cost
    assert ended(problem, init=first.weights).cost <= first.cost


def test_later_starts_are_the_best_network_without_some_neurons() -> None:
    """Of the first hidden layer: the second block forgets where it began."""
    problem, quick = make_problem(X, Y, lam=0.01, depth=3), (Passes(1e-2, slow=1.0),)
    solver = LayerRounds(problem, options=LayerOptions(schedule=quick, starts=3, retained=(0.5,)))
    state, budget = solver.init(Budget(60.0)), Budget(60.0)
    while not state.ended:
        before, state = state, solver.step(state, budget)
        if len(state.costs) > len(before.costs):
            first = problem.Xt @ state.weights[0].T
            assert state.Z[0].shape[1] == math.ceil(0.5 * first.shape[1]) < first.shape[1]
            assert float(torch.cdist(state.Z[0].T, first.T).amin(dim=1).max()) < 1e-6
    assert len(state.costs) == 3
    assert state.cost == min(state.costs) == evaluate(problem, state.weights).total


def test_an_exact_fit_is_exact_and_as_cheap_as_that_of_the_method_cone() -> None:
    found = covopt.solve(X[:6], Y[:6], depth=3, method="frank-wolfe", starts=1, max_iterations=12, certify="fast")
    assert found.residual <= found.problem.allowed_misfit
    assert found.lower <= found.cost < 1.01 * EXACT


def test_a_penalty_above_lam_max_leaves_zero() -> None:
    found = covopt.solve(X, Y, lam=100.0, depth=3, method="frank-wolfe", certify="none")
    assert found.widths == [0, 0]
    bias = covopt.solve(X, Y, lam=100.0, depth=3, method="cone", certify="none")
    assert found.cost <= bias.cost * (1.0 + 1e-6)


def test_units_do_not_matter() -> None:
    """X in other units, and Y, lam so that the question is the same."""
    options = {"depth": 3, "method": "frank-wolfe", "starts": 1, "max_iterations": 16, "bias": 0.0, "certify": "none"}
    plain = covopt.solve(X[:6], Y[:6], lam=0.01, **options)
    for scale in (1e-70, 1e70):
        scaled = covopt.solve(scale * X[:6], Y[:6], lam=0.01 * scale ** (2.0 / 3.0), **options)
        assert scaled.cost == pytest.approx(plain.cost, rel=5e-2)


@pytest.mark.parametrize(
    "data",
    [
        (np.zeros((5, 2)), np.zeros((5, 1))),
        (np.ones((5, 2)), np.arange(5.0)[:, None]),
        (np.arange(3.0)[:, None], np.eye(3)),
        (np.ones((1, 1)), np.ones((1, 1))),
    ],
    ids=["zero", "equal rows", "line", "one sample"],
)
@pytest.mark.parametrize("bias", [0.0, 1.0])
@pytest.mark.parametrize("method", ["frank-wolfe", "hidden"])
def test_degenerate_data_end_in_an_honest_answer(method: str, bias: float, data: tuple[np.ndarray, np.ndarray]) -> None:
    inputs, targets = data
    found = covopt.solve(inputs, targets, lam=0.01, depth=3, bias=bias, method=method, starts=1, time_limit=1.0)
    cost = evaluate(found.problem, [torch.as_tensor(W) for W in found.weights]).total
    assert found.cost == pytest.approx(cost, rel=1e-12, abs=1e-300)
    assert (found.lower or 0.0) <= found.cost * (1.0 + 1e-12)


@pytest.mark.parametrize(("method", "seconds"), [("frank-wolfe", 2.0), ("hidden", 1.0)])
def test_the_time_limit_is_kept(method: str, seconds: float) -> None:
    X, Y = gaussian(60, 5, seed=3), gaussian(60, 3, seed=4)
    found = covopt.solve(X, Y, lam=0.01, depth=4, method=method, time_limit=seconds)
    assert found.status is Status.TIME_LIMIT
    assert found.seconds < 6.0
    assert found.cost < float(Y.square().sum()) / 60


def test_gaps_are_stored_with_the_history(tmp_path: Path) -> None:
    found = covopt.solve(X, Y, lam=0.01, depth=3, method="frank-wolfe", starts=1, max_iterations=2, certify="none")
    table(lambda: history_lines(found.history))(tmp_path / "history.csv")
    again = read_history(tmp_path / "history.csv")
    assert [line.gaps for line in again] == [line.gaps for line in found.history]
    assert any(line.gaps for line in again)
    plain = [dataclasses.replace(line, gaps=()) for line in found.history]
    assert history_lines(plain)[0] == ["iteration", "seconds", "cost", "lower", "width"]


@pytest.mark.parametrize("gap", ["-0.1", "nan", "inf", "none"])
def test_gaps_that_no_search_leaves_are_refused(gap: str, tmp_path: Path) -> None:
    file = tmp_path / "history.csv"
    file.write_text(f"iteration,seconds,cost,lower,width,gap_1\n0,0.1,1.0,,3,{gap}\n")
    with pytest.raises(covopt.DataError, match="damaged; solve again"):
        read_history(file)
