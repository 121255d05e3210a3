"""`plateau`: data whose width is known, what every curve must satisfy, and the ends that are proved."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from instances import gaussian
from references.grams import bipartite_gram, gram_data
from runs import Run

import covopt
from covopt.certify.spectral import spectral_bound
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import evaluate
from covopt.solvers.incumbent import cost_of
from covopt.solvers.training import newton
from covopt.solvers.training.exact_fit import fit_exactly
from covopt.solvers.training.trainer import initial
from covopt.studies.width import words
from covopt.studies.width.neighbours import draw_kinks, fit_kinks, vary_kinks
from covopt.studies.width.width_bounds import NarrowBound, covariance_rank, needed, upper_bounds


def one_hot(sizes: tuple[int, ...]) -> np.ndarray:
    return np.eye(len(sizes))[np.repeat(np.arange(len(sizes)), sizes)]


def test_a_class_needs_a_neuron() -> None:
    sizes = (1, 2, 4)
    options = {"bias": 0.0, "gap": 1e-8, "time_limit": 8.0, "starts": 1, "widths": [3]}
    found = covopt.plateau(np.eye(7), one_hot(sizes), **options)
    assert found.level == pytest.approx(2.0 * sum(math.sqrt(m) for m in sizes), rel=1e-6)
    assert [[s.lower.width, s.upper.width, s.estimate] for s in found.starts] == [[3, 3, 3]] * 3
    assert (found.exact.lower.width, found.exact.upper.width) == (3, 3)


def test_a_complete_bipartite_graph_needs_its_edges() -> None:
    X, Y = gram_data(bipartite_gram(2, 2))
    found = covopt.plateau(X, Y, bias=0.0, time_limit=8.0, starts=1, widths=[3, 4])
    assert (found.lower, found.level) == (pytest.approx(16.0, rel=1e-9), pytest.approx(16.0, rel=1e-4))
    assert (found.exact.lower.width, found.exact.upper.width) == (4, 4)
    assert all(s.lower.width == 3 for s in found.starts)  # the rank of Y
    assert found.starts[-1].upper.width == 4


def test_one_output_on_orthogonal_inputs_needs_one_neuron_for_each_sign() -> None:
    # R = 2 (|y_+| + |y_-|): one neuron for the positive targets, one for the negative ones; with one, none fits.
    Y = np.array([1.0, -2.0, 0.5, -1.0])
    found = covopt.plateau(np.eye(4), Y, bias=0.0, time_limit=6.0, starts=2, widths=[1, 2])
    assert found.level == pytest.approx(2.0 * (np.hypot(1.0, 0.5) + np.hypot(2.0, 1.0)), rel=1e-6)
    assert [s.estimate for s in found.starts] == [2, 2, 2]
    assert all(s.lower.width <= 2 <= s.upper.width for s in found.starts)


def test_more_effort_never_makes_intervals_cross() -> None:
    X, Y = gaussian(8, 2, seed=1), gaussian(8, 2, seed=2)
    found = [covopt.plateau(X, Y, lam=0.02, time_limit=t, starts=n, seed=n) for t, n in ((0.5, 0), (2.0, 2))]
    for one in found:
        for other in found:
            assert one.lower <= other.level * (1.0 + 1e-9)
            assert one.exact.lower.width <= other.exact.upper.width
            for start, rival in zip(one.starts, other.starts, strict=True):
                assert start.lower.width <= rival.upper.width
    hasty, patient = found
    assert patient.level <= hasty.level * (1.0 + 1e-3)


@pytest.mark.parametrize("depth", [2, 3])
def test_the_curve_never_rises_and_holds_what_its_networks_cost(depth: int) -> None:
    X, Y = gaussian(12, 3, seed=1), gaussian(12, 2, seed=2)
    lines: list[covopt.Progress] = []
    found = covopt.plateau(X, Y, lam=0.05, depth=depth, time_limit=1.5, starts=2, callback=lines.append)
    problem = make_problem(X, Y, lam=0.05, depth=depth)
    costs = [cost for _, cost in found.curve]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == found.level <= found.result.cost
    for width, cost in found.curve:
        network = found.network(width)
        assert max(len(W) for W in network[:-1]) <= width
        assert evaluate(problem, network).total == pytest.approx(cost, rel=1e-12)
    for start in found.starts:
        assert start.lower.width <= start.estimate
        assert start.lower.width <= start.upper.width
    assert lines


def test_one_layer_alone() -> None:
    X, Y = gaussian(10, 3, seed=3), gaussian(10, 2, seed=4)
    found = covopt.plateau(X, Y, lam=0.05, depth=3, layer=1, widths=[1, 2], time_limit=1.5, starts=1)
    assert found.summary()["curve"][0]["width"] == [1, found.result.widths[1]]
    assert all(start.lower.width <= 1 for start in found.starts)  # a neuron of the first layer bounds no rank


def test_a_zero_minimum_needs_no_neuron() -> None:
    X, Y = gaussian(6, 2, seed=5), gaussian(6, 1, seed=6)
    found = covopt.plateau(X, Y, lam=100.0, time_limit=2.0)
    assert found.curve[0][0] == 0
    assert all(s.lower.width == s.upper.width == s.estimate == 0 for s in found.starts)


@pytest.mark.parametrize("lam", [0.1, None])
def test_zero_targets_need_no_neuron_and_others_are_not_taken_for_zero(lam: float | None) -> None:
    found = covopt.plateau(gaussian(6, 2, seed=5), np.zeros(6), lam=lam, time_limit=2.0)
    assert found.exact.upper.width == 0
    assert all(start.upper.width == 0 for start in found.starts)
    assert dict(words.pairs(found.summary()))["lower bound"] == "0 (no cost is below 0)"
    other = make_problem(gaussian(6, 2, seed=5), 1e-9 * np.ones(6), lam=lam)
    assert all(bound.width > 0 for bound in upper_bounds(other))


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6), st.sampled_from([2, 3]), st.integers(1, 4), st.sampled_from([0.0, 1.0]), st.floats(0.05, 3.0)
)  # fmt: skip
def test_no_narrow_network_is_below_the_bound_of_its_rank(
    seed: int, depth: int, width: int, bias: float, scale: float
) -> None:
    problem = make_problem(gaussian(8, 3, seed=seed), gaussian(8, 4, seed=seed + 1), lam=0.01, depth=depth, bias=bias)
    weights = [gaussian(*W.shape, seed=seed) * scale for W in initial(problem, [width] * (depth - 1), seed)]
    assert evaluate(problem, weights).total >= spectral_bound(problem, rank=width)
    fitted = fit_exactly(problem, weights)  # the best output layer comes nearer to the bound
    assert evaluate(problem, fitted).total >= spectral_bound(problem, rank=width)


def test_the_bound_of_the_rank_is_the_tail_of_the_targets() -> None:
    targets = torch.diag(torch.tensor([4.0, 3.0, 2.0, 1.0])).double()
    problem = make_problem(torch.eye(4).double(), targets, lam=1e-9, bias=0.0)
    tails = [spectral_bound(problem, rank=n) for n in range(5)]
    assert tails == pytest.approx([30 / 4, 14 / 4, 5 / 4, 1 / 4, 0.0], rel=1e-6, abs=1e-6)
    exact = make_problem(torch.eye(4), torch.diag(torch.tensor([4.0, 3.0, 0.0, 0.0])), bias=0.0)
    assert [math.isinf(spectral_bound(exact, rank=n)) for n in range(4)] == [True, True, False, False]
    constant = make_problem(torch.eye(4), torch.eye(4)[:, :2] * 0 + 0.5, lam=1.0, loss="cross_entropy")
    assert spectral_bound(constant, rank=0) == pytest.approx(math.log(2.0), rel=1e-9)


def test_upper_bounds() -> None:
    X, Y = gaussian(5, 1, seed=0), gaussian(5, 1, seed=1)
    assert [bound.width for bound in upper_bounds(make_problem(X, Y))] == [30, 5, 20]
    wide = make_problem(X, gaussian(5, 2, seed=2), depth=3)
    assert [bound.width for bound in upper_bounds(wide)] == [30, 15]
    assert upper_bounds(wide, layer=2)[-1].width == 10
    narrow = [NarrowBound(cost, f"below {cost}") for cost in (5.0, 2.0, 1.0)]
    assert (needed(narrow, 1.5).width, needed(narrow, 1.5).reason) == (2, "below 2.0")
    assert needed(narrow[:2], math.inf).width == 0


def asked(X: np.ndarray, Y: np.ndarray):
    return covariance_rank(make_problem(torch.tensor(X), torch.tensor(Y), bias=0.0), 10.0)


def test_the_width_of_orthogonal_rows_is_proved_of_the_data_as_they_are() -> None:
    A, noise = bipartite_gram(2, 2), np.random.default_rng(0)
    order, rotation = noise.permutation(4), np.linalg.qr(noise.standard_normal((4, 4)))[0]
    for X, Y in ((np.eye(4), A), (np.eye(4)[order], A[order]), (2.0 * np.eye(4), 3.0 * A)):
        found = asked(X, Y)
        assert found.exact
        assert found.lower == found.upper == 4
    # (Y Y^T)^(1/2) = A again, but rounded: a lower end, and no upper one.
    found = asked(np.eye(4), A @ rotation)
    assert found.lower in (3, 4)
    assert found.upper is None
    assert "edges" not in found.lower_reason
    # Classes of any size and length: one neuron for each.
    found = asked(np.eye(4), np.array([[0.3, 0.0], [0.7, 0.0], [0.0, 1.1], [0.0, 0.1]]))
    assert found.exact
    assert found.lower == found.upper == 2
    # Orthonormal rows up to rounding are no orthonormal rows.
    assert asked(rotation, A) is None


def test_the_command_line(tmp_path: Path, run: Run) -> None:
    data, out = tmp_path / "data.npz", tmp_path / "run"
    np.savez(data, X=np.eye(3), Y=one_hot((1, 2)))
    options = ["--bias", "0", "--time-limit", "3", "--starts", "1", "--width", "2"]
    code, text, _ = run("plateau", data, *options, "--out", out, "--json")
    told = json.loads(text)
    assert code == 0
    assert told["start"] == {"0.1": [2, 2], "0.01": [2, 2], "0.001": [2, 2]}
    assert told["exact_start"] == [2, 2]
    assert told["curve"][0] == {"width": 2, "cost": pytest.approx(2.0 + 2.0 * math.sqrt(2.0), rel=1e-6)}
    assert told["certificate"] == "exact"
    stored = json.loads((out / "plateau.json").read_text())
    assert "networks.npz" in stored.pop("files")
    assert stored == {"kind": "plateau", **told}
    assert {path.name for path in out.iterdir()} == {
        "plateau.json", "curve.csv", "networks.npz", "figure.png", "origin.json", "report.html", "solution"
    }  # fmt: skip
    with np.load(out / "networks.npz") as networks:
        assert networks["n2_W1"].shape == (2, 4)
    code, text, _ = run("plateau", data, *options)
    assert code == 0
    assert "  2 neurons;" in text


def test_a_search_that_nothing_can_improve_is_optimal_and_ends() -> None:
    # One sample: a single neuron, and its minimum, are exact.
    found = covopt.plateau([[1.0]], [[2.0]], lam=0.1, bias=0.0, time_limit=60.0)
    assert found.status is covopt.Status.OPTIMAL
    assert found.seconds < 60.0
    assert found.level == pytest.approx(2.0 * 0.1 * 2.0 - 0.1**2, rel=1e-6)


def test_the_plot_is_an_axes() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    found = covopt.plateau([[1.0], [2.0]], [[1.0], [-1.0]], lam=0.1, time_limit=1.0, starts=1)
    figure, axes = pyplot.subplots()
    assert found.plot(axes) is axes
    assert axes.get_xlabel() == "width (neurons)"
    own = found.plot()
    assert own.figure is not figure
    widths, costs = own.lines[0].get_data()
    assert list(zip(widths, costs, strict=True)) == found.curve
    pyplot.close("all")


def test_free_biases_against_what_kinks_and_one_neuron_allow(tmp_path: Path) -> None:
    """A saw of three kinks takes three neurons at least; of one neuron a fine grid knows the least cost."""
    x = np.arange(9)[:, None] / 4.0 + 3.0
    saw = np.abs(np.arange(9) % 4 - 2.0)[:, None]
    found = covopt.plateau(x, saw, bias="free", time_limit=1)
    assert found.exact.lower.width == 3
    assert found.level == pytest.approx(covopt.solve(x, saw, bias="free", time_limit=10).cost, rel=1e-6)
    assert found.exact.lower.width <= min(p.width for p in found.points if np.isfinite(p.cost)) <= 9
    found.save(tmp_path / "run")
    assert covopt.verify(tmp_path / "run").passed

    y, lam = np.sin(2.0 * x), 1e-2
    best = min(
        float(((y - y.mean() - v * (s - s.mean())) ** 2).mean()) + 2.0 * lam * abs(v)
        for kink in np.linspace(2.5, 5.5, 301)
        for sign in (1.0, -1.0)
        for s in [np.maximum(sign * (x - kink), 0.0)]
        for v in np.linspace(-4.0, 4.0, 321)
    )
    narrow = covopt.plateau(x, y, lam=lam, bias="free", widths=[1], time_limit=1.5)
    assert (narrow.points[0].width, narrow.points[0].cost) == (1, pytest.approx(best, rel=1e-3))
    assert narrow.points[0].cost <= best * (1.0 + 1e-6)


# ---- descents of sets of kinks by Newton's method: their derivatives, and networks that narrow widths must reach
CASES = Path(__file__).parents[2] / "cases"


def six_points() -> tuple[np.ndarray, np.ndarray]:
    with np.load(CASES / "six_points.npz") as data:
        return data["X"], data["Y"]


def searched(problem: Problem, width: int, count: int) -> list[list[torch.Tensor]]:
    """What random kinks descend to, stage by stage."""
    generator = torch.Generator().manual_seed(0)
    networks = fit_kinks(problem, torch.stack([draw_kinks(problem, width, generator) for _ in range(count)]))
    for options in (newton.KINKS_EXPLORING, newton.KINKS_POLISHING, newton.KINKS_REFINING):
        networks = [weights for _, weights in newton.descend_by_newton(problem, networks, width, options)]
    return networks


@pytest.mark.parametrize(("activation", "bias"), [("relu", 1.0), ("leaky:0.2", "free"), ("relu", 0.0)])
def test_the_derivatives_are_those_of_the_smoothed_cost(activation: str, bias: float | str) -> None:
    beta, free = (1.0, True) if bias == "free" else (bias, False)
    problem = make_problem(
        gaussian(6, 2, seed=1), gaussian(6, 2, seed=2), lam=0.1, bias=beta, free=free, activation=activation,
        sample_weight=np.array([1.0, 2.0, 0.5, 1.0, 1.5, 3.0]),
    )  # fmt: skip
    batch, theta = newton._Batch(problem, 3), gaussian(2, 17, seed=3)

    def cost(row: torch.Tensor) -> torch.Tensor:
        return batch.values(row[None], problem.Y[None], 0.1, 0.3)[0]

    values, gradients, hessians = batch._expansion(theta, problem.Y.expand(2, -1, -1), 0.1, 0.3)
    for row, value, gradient, hessian in zip(theta, values, gradients, hessians, strict=True):
        assert float(value) == pytest.approx(float(cost(row)), rel=1e-14)
        torch.testing.assert_close(2.0 * gradient, torch.func.grad(cost)(row), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(2.0 * hessian, torch.func.hessian(cost)(row), rtol=1e-10, atol=1e-10)
    sharp = batch.values(theta, problem.Y.expand(2, -1, -1), 0.1, 0.0)
    costs = [evaluate(problem, weights).total for weights in batch.unpack(theta)]
    assert sharp.tolist() == pytest.approx(costs, rel=1e-12)


def test_starts_keep_to_their_width() -> None:
    problem, generator = make_problem(*six_points()), torch.Generator().manual_seed(0)
    (weights,) = fit_kinks(problem, draw_kinks(problem, 4, generator)[None])
    torch.testing.assert_close(weights[0].norm(dim=1), weights[1][0, :-1].abs())  # balanced
    for width in (1, 3, 4, 7):
        assert vary_kinks(problem, weights, width, generator).shape == (width, 2)
    assert newton.has_newton(problem, 6)
    assert not newton.has_newton(make_problem(*six_points(), depth=3), 6)


@pytest.mark.parametrize(("width", "cost"), [(4, 19.4848), (5, 19.3821)])
def test_exact_fits_of_six_points_by_fewer_neurons(width: int, cost: float) -> None:
    # Known networks cost 19.4847 and 19.38207; the search of L-BFGS descents at one lam found none that fits.
    problem = make_problem(*six_points())
    best = min(searched(problem, width, 96), key=lambda weights: cost_of(problem, weights))
    assert len(best[0]) == width
    assert cost_of(problem, best) <= cost
    assert evaluate(problem, best).residual <= problem.allowed_misfit


def test_a_search_without_random_starts_has_neighbours_alone() -> None:
    X, Y = np.linspace(-1.0, 1.0, 4)[:, None], np.array([1.0, 0.0, 0.5, 0.0])
    found = covopt.plateau(X, Y, lam=0.02, time_limit=600.0, starts=0, widths=[1])
    assert found.status is covopt.Status.CONVERGED
    assert "draw" not in {point.source for point in found.points}


@pytest.mark.slow
def test_the_plateau_of_six_points_names_its_narrow_widths() -> None:
    found = covopt.plateau(*six_points(), time_limit=600.0, widths=[4, 5])
    costs = dict(found.curve)
    assert costs[4] <= 19.4848
    assert costs[5] <= 19.3821
    assert found.status is covopt.Status.CONVERGED
