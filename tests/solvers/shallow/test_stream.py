"""Sums over chunks of samples, on one process and on two, and the training that is built on them."""

from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
import torch
import torch.multiprocessing
from torch import Tensor

import covopt
from covopt.certify import spectral
from covopt.model.passes import Samples
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import evaluate, gradient
from covopt.runtime import loop
from covopt.runtime.loop import Budget, Status, run
from covopt.solvers.shallow import stream
from covopt.solvers.shallow.all_directions import Metric, points_of_descent
from covopt.solvers.shallow.leading import View, leading_directions
from covopt.solvers.shallow.networks import Network
from covopt.solvers.shallow.stream import StreamSolver
from covopt.solvers.shallow.stream_options import StreamOptions, suits_streaming
from covopt.solvers.shallow.two_layer_loss import TwoLayerLoss

LOSSES = ("mse", "cross_entropy")
FEW = StreamOptions(neurons=12, batch=16, first=1)


def made(samples: int, loss: str = "mse", activation: str = "relu", device: str = "cpu") -> Problem:
    X = torch.randn(samples, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    Y = torch.nn.functional.one_hot((X[:, 0] * X[:, 1] > 0).long() + (X[:, 2] > 0).long(), 3).double()
    return make_problem(X.to(device), Y.to(device), lam=1e-2, loss=loss, bias=0.7, activation=activation)


def parts_of(problem: Problem, neurons: int = 7) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = ((neurons, problem.Xt.shape[1]), (neurons, problem.Y.shape[1]), (problem.Y.shape[1],))
    U, V, b = (torch.randn(shape, generator=generator, dtype=torch.float64).to(problem.X) for shape in shapes)
    return U, V, b


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("activation", ["relu", "leaky:0.2"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_loss_and_gradient_do_not_depend_on_the_chunks(chunk: int, loss: str, activation: str, device: str) -> None:
    problem = made(23, loss, activation, device)
    U, V, b = parts_of(problem)
    weights = [U, torch.cat([V, b[None]]).T]
    streamed = TwoLayerLoss(problem, Samples(problem.Xt, problem.Y, chunk=chunk))
    value, slopes = streamed.gradient(U, V, b)
    assert float(value) == pytest.approx(evaluate(problem, weights).total, rel=1e-12)
    assert float(streamed.value(U, V, b)) == pytest.approx(float(value), rel=1e-12)
    by_hidden, by_outputs = gradient(problem, weights)
    torch.testing.assert_close(slopes[0], by_hidden, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(torch.cat([slopes[1], slopes[2][None]]).T, by_outputs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(("chunk", "neurons"), [(7, 7), (100, 40)])
def test_the_best_outputs_leave_no_slope(chunk: int, neurons: int, device: str) -> None:
    problem = made(23, device=device)
    U, V, b = parts_of(problem, neurons)
    streamed = TwoLayerLoss(problem, Samples(problem.Xt, problem.Y, chunk=chunk))
    value, slopes = streamed.gradient(U, *streamed.best_outputs(U))
    assert float(value) < float(streamed.value(U, V, b))
    assert all(float(slope.abs().max()) <= 1e-11 for slope in slopes[1:])


@pytest.mark.parametrize("loss", LOSSES)
def test_batches_come_near_the_minimum(loss: str) -> None:
    problem = made(400, loss)
    best = covopt.solve(problem.X, problem.Y, lam=problem.lam, loss=loss, bias=0.7, time_limit=2, certify="none")
    outcome = run(StreamSolver(problem, replace(FEW, neurons=40, batch=100, first=16)), Budget(1e6, 4))
    costs = [line.cost for line in outcome.history]
    assert costs == sorted(costs, reverse=True)
    assert best.cost * (1 - 1e-6) <= outcome.state.cost <= 1.03 * best.cost
    assert evaluate(problem, outcome.state.weights()).total == pytest.approx(outcome.state.cost, rel=1e-12)


def in_two_directions(weighted: bool = False) -> Problem:
    """One large input tells most of the targets, a small one the rest."""
    problem = made(300)
    weight = torch.linspace(0.5, 1.5, 300, dtype=torch.float64) if weighted else None
    X = problem.X * torch.tensor([3.0, 0.1, 0.1, 0.1, 0.1])
    return replace(problem, X=X, Y=X[:, :1].abs() + X[:, 1:2], weight=weight, lam=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_steps_in_few_directions_alternate_with_descents_in_all(
    weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StreamSolver, "most_passes", 4)
    monkeypatch.setattr(StreamSolver, "little_gain", -1.0)  # however little the first steps gain
    problem = in_two_directions(weighted)
    solver, budget = StreamSolver(problem, replace(FEW, directions=1)), Budget(1e6)
    state, seen, costs = solver.init(budget), [], []
    while state.descents < 2:
        seen.append("steps" if state.due else "descent")
        state = solver.step(solver.recalled(*solver.memory(state)), budget)
        costs.append(state.cost)
        assert evaluate(problem, state.weights()).total == pytest.approx(state.cost, rel=1e-12)
        if "descent" not in seen:
            assert torch.linalg.matrix_rank(state.best[0], rtol=1e-5) == 1
    assert [name for name, _ in groupby(seen)] == ["steps", "descent", "steps", "descent"]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < 0.5 * costs[seen.index("descent") - 1]


def test_steps_after_a_descent_see_all_directions_of_many_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HELD_ENTRIES", 300 * 13 - 1)
    monkeypatch.setattr(StreamSolver, "most_passes", 4)
    problem = in_two_directions()
    solver, budget = StreamSolver(problem, replace(FEW, directions=1)), Budget(1e6)
    state, seen, costs = solver.init(budget), [], []
    for _ in range(8):
        seen.append(state.parts[0].shape[1])
        state = solver.step(solver.recalled(*solver.memory(state)), budget)
        costs.append(state.cost)
        assert evaluate(problem, state.weights()).total == pytest.approx(state.cost, rel=1e-12)
    assert [columns for columns, _ in groupby(seen)] == [1, 6]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < 0.5 * costs[seen.index(6) - 1]


@pytest.mark.parametrize("long", [False, True])
def test_a_descent_follows_steps_in_vain_where_rounds_are_long(long: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "descent_is_long", lambda *arguments: long)
    monkeypatch.setattr(StreamSolver, "rate", 30.0)  # too large for the steps to gain anything
    solver, budget = StreamSolver(made(400), FEW), Budget(1e6)
    state = solver.init(budget)
    while state.due and state.ended is None:
        state = solver.step(state, budget)
    assert state.ended is (None if long else Status.CONVERGED)
    if long:
        assert solver.step(state, budget).cost < 0.9 * state.cost


def test_steps_leave_what_is_outside_of_their_directions() -> None:
    problem = in_two_directions()
    U, V, b = parts_of(problem)
    basis = torch.linalg.qr(torch.randn(6, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64))[0].T
    rest = U - (U @ basis.T) @ basis
    view = View.of(Samples(problem.X, problem.Y, chunk=77, beta=problem.beta), basis, rest)
    assert view.rough.Xt.shape == (300, 2 + len(U))
    torch.testing.assert_close(view.outward(view.completed(view.inward(U))), U)
    rough = TwoLayerLoss(problem, view.rough).value(view.inward(U).float(), V.float(), b.float())
    penalty = problem.lam * float(rest.square().sum())  # which the steps do not see
    exact = float(TwoLayerLoss(problem, view.exact).value(U, V, b))
    assert float(rough) + penalty == pytest.approx(exact, rel=1e-5)


def test_a_descent_in_all_directions_knows_their_curvature() -> None:
    """A^-1 A^2 A^-1 = I, where X has one size outside of the basis; B^-1 B^2 B^-1 = I; and L-BFGS lowers the loss."""
    problem = replace(made(400), lam=1e-4)
    X = torch.linalg.qr(problem.X)[0] * 20.0 * torch.tensor([9.0, 4.0, 0.7, 0.7, 0.7])
    problem = replace(problem, X=X - X.mean(dim=0))
    U, V, b = parts_of(problem)
    loss = TwoLayerLoss(problem, Samples(problem.Xt, problem.Y))
    second = problem.Xt.T @ problem.Xt / 400
    metric = Metric.of(loss, (U, V, b), torch.linalg.eigh(second)[1].T[-2:])
    inverse, of_outputs, of_bias = metric.times((torch.eye(6, dtype=torch.float64), torch.eye(7).double(), b))
    size = 2e-4 + V.square().sum() / len(V) * torch.linalg.eigvalsh(second)
    expected = torch.cat([size[:4].mean().expand(4), size[4:]])
    torch.testing.assert_close(torch.linalg.eigvalsh(inverse).flip(0), expected.rsqrt(), rtol=1e-9, atol=0)
    Phi = problem.activation(problem.Xt @ U.T)
    H = 2e-4 * torch.eye(7, dtype=torch.float64) + 2.0 * Phi.T @ Phi / 400
    torch.testing.assert_close(of_outputs @ H @ of_outputs, torch.eye(7, dtype=torch.float64), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(of_bias, b / (2e-4 + 2.0 * problem.beta**2) ** 0.5)
    values = [float(loss.value(*parts)) for parts, _ in points_of_descent(loss, metric, (U, V, b))]
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.5 * values[0]


def test_inputs_are_rounded_only_where_that_changes_little() -> None:
    X = torch.randn(2000, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    problem = make_problem(X, X[:, :2].abs(), lam=1e-3)
    U, V, b = parts_of(problem, neurons=100)
    U[:, :-1] -= U[:, :-1].mean(dim=1, keepdim=True)  # so that no output depends on the mean of a sample's inputs
    plain, moved = (TwoLayerLoss(problem, Samples(X + mean, problem.Y, beta=1.0)) for mean in (0.0, 100.0))
    assert plain.shortest_dtype(U, V, b) == torch.bfloat16
    assert moved.shortest_dtype(U, V, b) == torch.float32
    rounded = TwoLayerLoss(problem, replace(plain.samples, dtype=torch.bfloat16))
    for slope, close in zip(plain.gradient(U, V, b)[1], rounded.gradient(U, V, b)[1], strict=True):
        assert 0.0 < float((slope - close).norm()) < 1e-2 * float(slope.norm())


def test_few_directions_that_tell_nothing_are_left_out() -> None:
    """The largest input tells the one target and nothing of the other."""
    problem = replace(made(300), lam=1e-5)
    X = problem.X * torch.tensor([3.0, 1.0, 1.0, 1.0, 1.0])
    telling, noise = (replace(problem, X=X, Y=Y) for Y in (X[:, :1].abs(), X[:, 1:2] + X[:, 2:3]))
    basis = [StreamSolver(each, replace(FEW, directions=1)).init(Budget()).basis for each in (telling, noise)]
    assert [each is None for each in basis] == [False, True]


def test_the_leading_directions_are_those_of_the_singular_vectors() -> None:
    problem = made(300)
    X = problem.X * torch.tensor([5.0, 3.0, 0.02, 0.01, 0.0])
    start = torch.randn(6, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found = leading_directions(Samples(X, problem.Y, chunk=77, beta=0.7), start)
    torch.testing.assert_close(found @ found.T, torch.eye(3, dtype=torch.float64), rtol=0, atol=1e-13)
    expected = torch.linalg.svd(torch.cat([X, torch.full((300, 1), 0.7, dtype=torch.float64)], dim=1))[2][:3]
    # The fourth singular value is below 0.03 of the third, and two turns take its fourth power.
    assert float((expected @ found.T @ found - expected).norm()) < 1e-4
    nothing = leading_directions(Samples(0.0 * X, problem.Y, beta=0.0), start)
    torch.testing.assert_close(nothing @ nothing.T, torch.eye(3, dtype=torch.float64), rtol=0, atol=1e-13)


@pytest.mark.parametrize(("lam", "neurons"), [(1e-2, 13), (1e3, 0)])
def test_new_neurons_are_those_along_which_the_loss_falls(lam: float, neurons: int) -> None:
    problem = replace(made(200), lam=lam)
    loss, (U, V, b) = TwoLayerLoss(problem, Samples(problem.Xt, problem.Y)), parts_of(problem)
    directions = torch.randn(40, U.shape[1], generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    more_U, more_V = loss.new_neurons((U, V, b), directions, 13)
    assert len(more_U) == neurons
    for u, v in zip(more_U[:, None], more_V[:, None], strict=True):
        assert loss.value(torch.cat([U, 1e-3 * u]), torch.cat([V, 1e-3 * v]), b) < loss.value(U, V, b)


def test_a_network_that_is_too_narrow_is_widened(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, budget = made(400), Budget(1e6)
    monkeypatch.setattr(StreamSolver, "slow_fall", 10.0)  # whatever the loss falls by
    solver = StreamSolver(problem, replace(FEW, neurons=30, narrow=6))
    state = solver.init(budget)
    widths = [len(state.best[0])]
    for _ in range(3):
        state = solver.step(state, budget)
        widths.append(len(state.best[0]))
        assert state.cost == pytest.approx(evaluate(problem, Network(*state.best, 0.0).weights()).total, rel=1e-12)
    assert (widths[0], widths[-1]) == (6, 30)


def test_the_start_follows_the_scale_of_the_data() -> None:
    """R's homogeneity: where the inputs grow by a and the targets by b, the weights grow by sqrt(b / a)."""
    problem = made(50)
    scaled = replace(problem, X=4.0 * problem.X, Y=9.0 * problem.Y, beta=4.0 * problem.beta)
    first, second = (StreamSolver(p, FEW).init(Budget()).best[0] for p in (problem, scaled))
    torch.testing.assert_close(second, 1.5 * first, rtol=1e-5, atol=1e-6)


def test_which_data_are_streamed() -> None:
    problem = made(20)
    assert suits_streaming(problem, 300.0, StreamOptions(entries=100))
    assert not suits_streaming(problem, 300.0)
    exact_fits = replace(problem, loss=covopt.model.loss.parse_loss("interpolate"))
    assert not suits_streaming(exact_fits, 1e-9, StreamOptions(entries=1))
    # Too little time for rounds; but not where an oracle is exact, which needs no descent.
    fewer, many = made(2500), made(5000)
    assert suits_streaming(fewer, 0.5)
    assert not suits_streaming(fewer, 300.0, StreamOptions(soon=100.0))
    assert suits_streaming(many, 300.0)  # a first descent takes seconds
    assert StreamSolver.suited(StreamOptions(fewer_neurons=50), many).neurons == 50
    assert not suits_streaming(replace(many, X=many.X[:, :1]), 1e-9)


def test_rounds_follow_soon_where_they_are_short() -> None:
    solver, budget = StreamSolver(made(5000)), Budget(60.0)
    state = solver.init(budget)
    later = replace(state, due=solver._steps(StreamSolver.fewest_passes))
    assert not solver._rounds_are_short(state, budget)
    assert solver._rounds_are_short(later, budget)
    assert not solver._rounds_are_short(later, Budget(0.0))


def test_rounds_after_batches_leave_no_neurons_without_effect() -> None:
    X = np.random.default_rng(0).standard_normal((6000, 20))
    assert suits_streaming(make_problem(X, np.ones(6000), lam=1e3), 300.0)
    result = covopt.solve(X, np.ones(6000), lam=1e3, time_limit=6.0)
    assert result.cost == pytest.approx(1e3 / 1001.0, rel=1e-6)  # of the constant b = 1 / (1 + lam)
    assert result.widths == [0]


def test_a_loop_ends_before_a_turn_that_would_end_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(loop.time, "perf_counter", lambda: clock[0])
    budget = Budget(time_limit=10.0, started=0.0)
    ends, short = budget.pace(), budget.pace()
    for now in (0.0, 1.0, 4.5, 6.0):
        clock[0] = now
        assert not ends()
    clock[0] = 7.0  # the longest turn took 3.5 seconds, two shorter ones ago
    assert not ends()
    clock[0] = 8.0
    assert ends()
    assert not short()  # another loop, which has had no turn
    clock[0] = 9.9
    assert not budget.spent()
    assert short()


def test_the_spectral_bound_of_tall_data() -> None:
    """Through the Gram matrix, a chunk at a time, it is above the singular value and within rounding of it."""
    problem = replace(made(300), weight=torch.linspace(0.5, 1.5, 300, dtype=torch.float64))
    X, root = problem.X + 2.0, torch.linspace(0.5, 1.5, 300, dtype=torch.float64).sqrt()[:, None]
    for centred in (True, False):
        off = root @ (root.T @ (root * X)) / 300.0 * centred
        exact = float(torch.linalg.matrix_norm(root * X - off, 2))
        assert exact <= spectral.largest_singular_value(problem, X, centred, chunk=64) <= exact * (1 + 1e-9)


def test_solve_streams_many_samples() -> None:
    X = np.random.default_rng(0).standard_normal((90_000, 50)).astype(np.float64)
    Y = np.maximum(X[:, :3], 0.0).sum(axis=1)
    result = covopt.solve(X, Y, lam=1e-3, bias=0.0, time_limit=4.0)
    assert result.status in ("time_limit", "converged")
    assert 0.0 < result.lower <= result.cost < 0.1 * float(np.mean(Y**2))
    W1, W2 = (W.numpy() for W in result.weights)
    F = np.maximum(X @ W1[:, :-1].T, 0.0) @ W2[:, :-1].T
    cost = np.mean((F[:, 0] - Y) ** 2) + 1e-3 * (np.sum(W1**2) + np.sum(W2**2))
    assert result.cost == pytest.approx(cost, rel=1e-9)


@pytest.mark.parametrize("lam", [1e20, 1e45, 1e74])
def test_a_lam_beyond_float32_leaves_no_network(lam: float) -> None:
    X = torch.randn(6000, 800, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    Y = X[:, :1].sign()
    assert X.numel() > StreamOptions().entries
    result = covopt.solve(X, Y, lam=lam, bias=0.7, certify="none", time_limit=1)
    assert result.cost == pytest.approx(float(Y.square().mean()), rel=1e-9)


@pytest.mark.parametrize("rate", [1e30, float("nan")])
def test_training_that_leaves_numbers_keeps_the_network_before_it(rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = made(300)
    X = problem.X * torch.tensor([3.0, 0.1, 0.1, 0.1, 0.1])
    monkeypatch.setattr(StreamSolver, "rate", rate)
    solver, budget = StreamSolver(replace(problem, X=X), replace(FEW, directions=1)), Budget(1e6)
    state = solver.init(budget)
    first = state.cost
    for _ in range(2):
        state = solver.step(state, budget)
    assert torch.isfinite(state.parts[0]).all()
    assert state.cost <= first < torch.inf
    assert evaluate(problem, state.weights()).total < torch.inf
