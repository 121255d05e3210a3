"""A path in lam: bounds between the values that are solved, lam_max, held-out scores, and what a stored path proves."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from editing import forged, holds
from runs import Run
from scipy.optimize import brentq, minimize_scalar
from tampering import Tampering, judge, tamperings

import covopt
from covopt.answer.held_out import folds_of
from covopt.certify.dual import Exact, oracle_of
from covopt.model.problem import make_problem
from covopt.model.weights import evaluate
from covopt.runtime.errors import ProblemError
from covopt.runtime.interrupts import gently, remember
from covopt.runtime.loop import Certificate
from covopt.studies.path.check import _is_proved
from covopt.studies.path.envelope import Envelope, mixed_bounds
from covopt.studies.path.lam_max import _deep_end, _Family, _norms_of, lam_max
from covopt.studies.path.path_search import Point

CASE = Path(__file__).parents[2] / "cases" / "lam_max.npz"
X = np.linspace(-1.0, 1.0, 20)[:, None]
Y = np.sin(4.0 * X) + 0.1 * np.random.default_rng(0).normal(size=X.shape)


@pytest.fixture(scope="module")
def found() -> covopt.Path:
    return covopt.path(X, Y, points=8, ratio=1e-2, time_limit=30)


# ---- lam_max
@pytest.mark.parametrize(("loss", "skip"), [("mse", False), ("mse", True), ("cross_entropy", False)])
def test_lam_max_with_free_biases_against_the_definition(loss: str, skip: bool) -> None:
    rng = np.random.default_rng(2)
    x, weight = rng.normal(size=(9, 1)) + 3.0, rng.uniform(0.5, 2.0, 9)
    targets = np.eye(2)[rng.integers(0, 2, 9)] if loss == "cross_entropy" else rng.normal(size=(9, 1)) + 2.0 * x
    free_part = np.hstack([np.ones((9, 1)), x])[:, : 2 if skip else 1]
    q = weight[:, None] / weight.sum()
    near = free_part @ np.linalg.lstsq(np.sqrt(q) * free_part, np.sqrt(q) * targets)[0]
    A = q * (targets - near) / (2.0 if loss == "cross_entropy" else 1.0)
    largest = max(np.linalg.norm(np.maximum(sign * (x - kink), 0.0).T @ A) for kink in x[:, 0] for sign in (1, -1))
    asked = {"loss": loss, "bias": "free", "skip": skip, "sample_weight": weight}
    ends = lam_max(make_problem(x, targets, lam=1.0, free=True, **asked), 0.0)  # type: ignore[arg-type]
    assert ends.lower == ends.upper == pytest.approx(largest, rel=1e-9)
    assert covopt.solve(x, targets, lam=1.001 * largest, time_limit=5, **asked).widths == [0]
    assert covopt.solve(x, targets, lam=0.99 * largest, time_limit=5, **asked).widths != [0]


def test_no_upper_end_where_free_columns_depend_on_one_another() -> None:
    x = np.repeat(np.random.default_rng(4).normal(size=(9, 1)), 2, axis=1)
    ends = lam_max(make_problem(x, np.sin(3.0 * x[:, :1]), lam=1.0, bias="free", free=True, skip=True), 0.3)
    assert ends.upper is None
    assert 0.0 < ends.lower < np.inf
    along = covopt.path(x, np.sin(3.0 * x[:, :1]), points=3, ratio=0.1, bias="free", skip=True, time_limit=3)
    assert max(along.lams) == pytest.approx(ends.lower)
    assert along.largest_gap is None


def test_lam_max_with_free_biases_is_an_interval_beyond_three_inputs() -> None:
    rng = np.random.default_rng(3)
    for skip in (False, True):
        x, targets = rng.normal(size=(10, 4)), rng.normal(size=(10, 2))
        ends = lam_max(make_problem(x, targets, lam=1.0, bias="free", free=True, skip=skip), 0.3)
        assert ends.lower < ends.upper
        asked = {"bias": "free", "skip": skip, "certify": "none", "time_limit": 2}
        assert covopt.solve(x, targets, lam=1.001 * ends.upper, **asked).widths == [0]
        assert covopt.solve(x, targets, lam=0.99 * ends.lower, **asked).widths != [0]


def test_lam_max_of_a_known_case() -> None:
    # Known from an arrangement of arcs and a fine grid that agree to 1e-9.
    with np.load(CASE) as case:
        data, targets = case["X"], case["Y"]
    ends = lam_max(make_problem(data, targets, lam=1.0, bias=0.0), 0.0)
    assert ends.lower == ends.upper == pytest.approx(0.356132891, abs=1e-9)
    # Homogeneity: h is linear in the inputs and in the targets.
    for a, b in ((1e-40, 1e30), (1e30, 1e-20)):
        scaled = lam_max(make_problem(a * data, b * targets, lam=1.0, bias=0.0), 0.0)
        assert scaled.upper == pytest.approx(a * b * 0.356132891, rel=1e-8)


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_lam_max_with_a_bias_against_a_grid(loss: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(12, 1))
    targets = np.eye(2)[rng.integers(0, 2, 12)] if loss == "cross_entropy" else rng.normal(size=(12, 1)) + 0.5
    kinks = np.arctan2(-x[:, 0], 1.0)  # where a sample is at the kink, h has one too
    angles = np.concatenate([np.linspace(0.0, 2.0 * np.pi, 40_001), kinks, kinks + np.pi])
    features = np.maximum(np.hstack([x, np.ones_like(x)]) @ np.stack([np.cos(angles), np.sin(angles)]), 0.0)
    mean = targets.mean(axis=0)

    def excess(lam: float) -> float:
        if loss == "mse":
            residual = (targets - mean / (1.0 + lam)) / (12 * lam)
        else:  # b = (d, -d) / 2 by symmetry, where 2 lam b = mean - p
            d = brentq(lambda d: lam * d - (mean[0] - 1.0 / (1.0 + np.exp(-d))), -50.0, 50.0, xtol=1e-15)
            p = np.array([1.0 / (1.0 + np.exp(-d)), 1.0 / (1.0 + np.exp(d))])
            residual = (targets - p) / (2.0 * 12 * lam)
        return float(np.linalg.norm(residual.T @ features, axis=0).max()) - 1.0

    ends = lam_max(make_problem(x, targets, lam=1.0, loss=loss), 0.0)
    assert ends.lower == ends.upper
    grid = np.geomspace(1e-3, 1e2, 400)
    last = max(lam for lam in grid if excess(lam) > 0.0)
    expected = brentq(excess, last, grid[list(grid).index(last) + 1])
    assert ends.upper == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("part", [1.1, 2.0, 8.0])
def test_a_step_down_never_passes_a_lam_that_needs_neurons(part: float) -> None:
    """With a bias, lam H(lam) can grow as lam falls: a step as long as without a bias ends below lam_max here."""
    rng = np.random.default_rng(17)
    problem = make_problem(rng.normal(size=(6, 1)), rng.normal(size=(6, 1)) + 1.0, lam=1.0)
    oracle, family = oracle_of(problem.Xt, problem.activation), _Family(problem)

    def maximum(Lambda: torch.Tensor) -> float:
        return oracle(Lambda, problem.Xt[:0]).upper_bound

    end = lam_max(problem, 0.0).upper
    assert maximum(family.at(0.999 * end)) > 1.0
    spread = maximum(torch.ones_like(problem.Y))
    assert family.step(part * end, maximum(family.at(part * end)), spread) >= end * (1.0 - 1e-9)


def test_lam_max_is_an_interval_where_no_oracle_is_exact() -> None:
    data = covopt.read_data("digits", rows=30, scale="max")
    problem = make_problem(data.X, data.Y, lam=1.0, bias=0.0)
    ends = lam_max(problem, 20.0)
    assert ends.lower < ends.upper <= 1.05 * ends.lower
    for lam, needed in ((0.97 * ends.lower, True), (1.01 * ends.upper, False)):
        result = covopt.solve(data.X, data.Y, lam=lam, bias=0.0, certify="none", max_iterations=3)
        assert (result.cost < 1.0 - 1e-9) == needed  # C(0) = 1
    assert lam_max(problem, 0.0).upper >= ends.upper  # type: ignore[operator]


def test_lam_max_of_data_that_need_no_network() -> None:
    assert lam_max(make_problem(X, 0.0 * Y, lam=1.0), 0.0).upper == 0.0
    assert covopt.path(X, 0.0 * Y, points=3, time_limit=5).points[0].cost.total == 0.0


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
@pytest.mark.parametrize("activation", ["leaky:0.01", "linear"])
def test_lam_max_where_a_bias_alone_is_best_at_every_lam(loss: str, activation: str) -> None:
    """Equal targets, small beside the bias: H < 1 at every lam, and the steps down went on to lam = 0, and NaN."""
    data, bias = np.array([[1665.0, -1718.0, 1093.0]]), 1000.0
    targets = np.array([[0.4, 0.5, 0.1]]) if loss == "cross_entropy" else np.array([[0.1, 0.2]])
    ends = lam_max(make_problem(data, targets, lam=1.0, loss=loss, bias=bias, activation=activation), 0.0)
    assert ends.lower == 0.0
    assert 0.0 <= ends.upper < 1e-150
    along = covopt.path(data, targets, points=2, loss=loss, bias=bias, activation=activation, time_limit=2)
    assert all(point.width == 0 for point in along.points)


def test_the_gap_of_zero_targets_is_zero() -> None:
    assert covopt.path(np.eye(3), np.zeros(3), points=3, time_limit=2.0).largest_gap == 0.0


def test_lam_max_is_not_where_steps_run_out() -> None:
    """One sample, linear: H = y |Xt| / beta^2 is 0.914 at every lam, each step gains 4 %; the lower end was 8e-4."""
    ends = lam_max(make_problem([[-0.376]], [[914.0]], lam=1.0, bias=1000.0, activation="linear"), 0.0)
    assert ends.lower == 0.0
    assert ends.upper > 0.0
    at = covopt.solve([[-0.376]], [[914.0]], lam=1e-4, bias=1000.0, activation="linear", time_limit=2)
    assert (at.status, at.widths) == ("optimal", [0])


def test_lam_max_with_a_class_that_nobody_has() -> None:
    """Its bias falls as lam does, and where its share is lost in rounding, the Hessian was singular."""
    x, bias = np.linspace(-1.0, 2.0, 6)[:, None], 1000.0
    targets = np.eye(3)[[0, 1, 1, 0, 1, 1]]
    ends = lam_max(make_problem(x, targets, lam=1.0, loss="cross_entropy", bias=bias), 0.0)
    without = lam_max(make_problem(x, targets[:, :2], lam=1.0, loss="cross_entropy", bias=bias), 0.0)
    assert ends.lower == ends.upper == pytest.approx(without.upper, rel=1e-4)


# ---- bounds between the points
def test_the_largest_gap_is_that_of_a_fine_grid() -> None:
    rng = np.random.default_rng(3)
    for _ in range(30):
        lines = [(fit, norm) for fit, norm in rng.uniform(0.0, 1.0, (6, 2))]
        proved = [
            (lam, part * min(f + lam * n for f, n in lines), "exact") for lam, part in rng.uniform(0.1, 1.0, (5, 2))
        ]
        envelope = Envelope.of(lines, proved)
        grid = np.linspace(0.1, 1.0, 4001)
        gaps = [1.0 - envelope.lower(lam) / envelope.upper(lam) for lam in grid]
        gap, where = envelope.gap(0.1, 1.0)
        assert gap >= max(gaps)
        assert gap == pytest.approx(max(gaps), rel=1e-3)
        assert gap == pytest.approx(1.0 - envelope.lower(where) / envelope.upper(where), abs=1e-12)
        hull = np.interp(grid, envelope.lams, envelope.lowers)
        assert (np.diff(hull, 2) <= 1e-12).all()
        for lam, lower, _ in proved:
            assert envelope.lower(lam) >= lower * (1.0 - 1e-12)


def test_one_sample_follows_its_closed_form() -> None:
    # L* = 2 lam y - lam^2 for lam <= y: (f - y)^2 + 2 lam f at f = y - lam (MATH.md section 7).
    path = covopt.path([[1.0]], [[3.0]], bias=0.0, points=6, ratio=1e-2, time_limit=10)
    assert path.lam_max == (pytest.approx(3.0), pytest.approx(3.0))
    for lam in np.geomspace(0.03, 3.0, 200)[1:-1]:
        lower, upper = path.bounds(lam)
        exact = 2.0 * lam * 3.0 - lam**2
        assert lower <= exact * (1.0 + 1e-12)
        assert upper >= exact * (1.0 - 1e-12)
    assert path.largest_gap < 0.01


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_dual_points_between_two_bound_what_is_solved_there(loss: str) -> None:
    targets = np.hstack([Y > 0, Y <= 0]).astype(float) if loss == "cross_entropy" else Y
    options = {"loss": loss, "gap": 1e-7, "time_limit": 10}
    solved = [covopt.solve(X, targets, lam=lam, **options) for lam in (0.02, 0.008)]
    found = list(mixed_bounds(solved[0].problem, [(r.problem.lam, r.dual, "exact") for r in solved if r.dual]))
    assert len(found) == 7
    for lam, lower, _ in found[::3]:
        cost = covopt.solve(X, targets, lam=lam, **options).cost
        assert lower <= cost
        assert lower >= cost * (1.0 - 1e-2)  # mixing two neighbours loses this little


def test_a_path_bounds_what_is_solved_between_its_points(found: covopt.Path) -> None:
    assert len(found.points) == 8
    assert found.largest_gap <= 0.01
    assert (found.lams, found.lams[0]) == (sorted(found.lams, reverse=True), found.lam_max[1])
    assert found.lams[-1] == pytest.approx(1e-2 * found.lams[0])
    costs, norms = ([getattr(p.cost, name) for p in found.points] for name in ("total", "norm"))
    assert costs == sorted(costs, reverse=True)
    assert all(b >= a * (1.0 - 1e-2) for a, b in pairwise(norms))
    for lam in (0.03, 0.001):
        solved = covopt.solve(X, Y, lam=lam, gap=1e-6, time_limit=10)
        lower, upper = found.bounds(lam)
        assert lower <= solved.cost
        assert upper >= (solved.lower or 0.0)
        assert (upper - lower) / upper <= found.largest_gap


@pytest.mark.parametrize("skip", [False, True])
def test_free_biases_along_a_path(skip: bool, tmp_path: Path) -> None:
    asked = {"bias": "free", "skip": skip, "time_limit": 4}
    along = covopt.path(X, Y + 2.0 * X, points=5, ratio=5e-2, interpolate=True, **asked)
    assert along.largest_gap < 0.03
    for upper, lower in pairwise(along.lams):
        lam = float(np.sqrt(upper * lower))
        cold = covopt.solve(X, Y + 2.0 * X, lam=lam, **asked)
        low, high = along.bounds(lam)
        assert low <= cold.cost * (1.0 + 1e-12)
        assert high >= cold.lower * (1.0 - 1e-12)
    along.save(tmp_path / "path")
    assert covopt.verify(tmp_path / "path").passed
    assert json.loads((tmp_path / "path" / "path.json").read_text())["skip"] is skip


def test_three_layers_of_one_sample_follow_theirs() -> None:
    # min over f of (f - 2)^2 + 3 lam f^(2/3): R = L |y|^(2/L).
    path = covopt.path([[1.0]], [[2.0]], bias=0.0, depth=3, points=5, ratio=0.05, time_limit=15)
    low, high = path.lam_max

    def minimum(lam: float) -> float:
        inside = minimize_scalar(lambda f: (f - 2.0) ** 2 + 3.0 * lam * abs(f) ** (2.0 / 3.0), (1.0, 2.0)).fun
        return min(4.0, inside)

    threshold = brentq(lambda lam: minimum(lam) - 4.0 * (1.0 - 1e-9), 0.1, high * 2.0)
    assert low <= threshold * (1.0 + 1e-6)
    assert high >= threshold * (1.0 - 1e-6)
    for lam in np.geomspace(path.lams[-1], path.lams[0], 30)[1:-1]:
        lower, upper = path.bounds(lam)
        assert lower <= minimum(lam) * (1.0 + 1e-9)
        assert upper >= minimum(lam) * (1.0 - 1e-9)


# ---- held-out data
def test_held_out_data_pick_the_lam_of_least_loss(found: covopt.Path) -> None:
    x = np.random.default_rng(5).uniform(-1.0, 1.0, (30, 1))
    y = np.sin(4.0 * x)
    scored = covopt.path(X, Y, lams=found.lams, test=(x, y), init=found, time_limit=20)
    losses = [float(np.mean((scored.result(lam).predict(x) - y) ** 2)) for lam in scored.lams]
    np.testing.assert_allclose(scored.tests, losses, rtol=1e-10)
    assert scored.picked == scored.lams[int(np.argmin(losses))]
    assert scored.picked < scored.lams[0]
    columns, without = (answer.overview()[1] for answer in (scored, found))
    assert columns is not None
    assert without is not None
    assert [*columns[0]] == [*without[0], "held-out loss"]
    assert [row[-1] for row in columns[1]] == scored.tests


def test_folds_are_a_partition_and_score_networks_of_the_other_rows() -> None:
    parts = folds_of(11, 3, seed=2)
    assert sorted(torch.cat([out for _, out in parts]).tolist()) == list(range(11))
    assert all(not set(kept.tolist()) & set(out.tolist()) for kept, out in parts)
    path = covopt.path(X, Y, lams=[0.02], folds=4, seed=2, time_limit=20)
    total = 0.0
    for kept, out in folds_of(20, 4, seed=2):
        result = covopt.solve(X[kept], Y[kept], lam=0.02, time_limit=10, seed=2)
        total += float(((result.predict(X[out]) - Y[out]) ** 2).sum()) / 20
    assert path.tests == [pytest.approx(total, rel=1e-2)]


# ---- stored paths
def test_a_stored_path_comes_back_and_proves_itself(found: covopt.Path, tmp_path: Path) -> None:
    found.save(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "path.json").read_text())["kind"] == "path"
    back = covopt.load(tmp_path / "run")
    assert back.summary() == found.summary()
    assert covopt.verify(tmp_path / "run").passed
    assert "Along λ" in covopt.write_report(tmp_path / "run", tmp_path / "page.html").read_text()
    more = covopt.path(X, Y, points=9, ratio=1e-2, init=back, time_limit=20)
    assert len(more.points) == 9
    assert set(found.lams) <= set(more.lams)
    assert (more.largest_gap or 1.0) <= (found.largest_gap or 0.0)
    with pytest.raises(ProblemError, match="another problem"):
        covopt.path(X, 2.0 * Y, init=back)


def test_tampering_with_a_path_is_noticed_or_named(tmp_path: Path) -> None:
    covopt.path(X[::4], Y[::4], lams=[0.05, 0.01], test=(X, Y), time_limit=5).save(tmp_path / "run")
    found = list(tamperings(tmp_path / "run"))
    verdicts = {each.name: judge(tmp_path / "run", tmp_path / "other", each) for each in found[::11]}
    assert {name: v for name, v in verdicts.items() if v not in ("noticed", "named", "the same")} == {}
    # A maximum that is not proved, the files listed anew.
    raised = forged(holds("certificates.npz", p1_Lambda=lambda L: 1.5 * L, p1_lower=lambda lower: 1.01 * lower))
    assert judge(tmp_path / "run", tmp_path / "other", Tampering("", raised, ())) == "noticed"
    assert "does not prove the bound" in covopt.verify(tmp_path / "other").message


def test_ctrl_c_keeps_the_points_that_are_there() -> None:
    count = 0

    def press(line: object) -> None:
        nonlocal count
        count += 1
        if count == 12:
            remember()

    with gently():
        found = covopt.path(X, Y, points=30, time_limit=60, callback=press)
    assert found.status is covopt.Status.INTERRUPTED
    assert 1 <= len(found.points) < 30


def test_the_command_prints_and_goes_on(run: Run, tmp_path: Path) -> None:
    np.savez(data := tmp_path / "d.npz", X=X, Y=Y)
    words = ["path", data, *"--ratio 0.1 --time-limit 5 --json --out".split(), tmp_path / "run", "--points"]
    code, out, _ = run(*words, 3, "--test", data, "--interpolate")
    told = json.loads(out)
    assert (code, list(told)[:4]) == (0, ["lam_max", "points", "largest_gap", "picked"])
    assert list(told["points"][0]) == ["lam", "cost", "fit", "norm", "width", "lower", "certificate", "test"]
    assert told["lam_max"][0] == told["lam_max"][1] == told["points"][0]["lam"]
    assert told["end"]["lower"] <= told["end"]["cost"]
    assert told["points"][-1]["cost"] <= told["points"][-1]["lam"] * told["end"]["cost"] * (1.0 + 1e-4)
    code, _, said = run(*words, 3)
    assert (code, "exists already" in said) == (2, True)
    code, out, _ = run(*words, 4, "--resume")
    assert (code, len(json.loads(out)["points"])) == (0, 4)
    assert run("verify", tmp_path / "run")[0] == 0
    assert "lam_max" in run("show", tmp_path / "run")[1]


def test_an_honest_path_with_trees_over_cones_is_verified(tmp_path: Path) -> None:
    """A stated bound lies a little below the one that its tree proves again: it pays for rounding."""
    rng = np.random.default_rng(0)
    answer = covopt.path(rng.standard_normal((8, 3)), rng.standard_normal((8, 1)), points=2, ratio=0.3, time_limit=1e6)
    assert {point.certificate for point in answer.points} == {"branch-and-bound"}
    answer.save(tmp_path / "run")
    assert covopt.verify(tmp_path / "run").passed


def test_norms_bound_neurons_that_see_the_bias_alone() -> None:
    problem = make_problem([[0.1], [0.2]], [[1.0], [1.0]], lam=1.0, bias=1.0)
    assert _norms_of(problem)(torch.ones(2, 1, dtype=torch.float64)) >= 2.0  # w = (0, 1)


def test_a_bound_above_what_the_dual_point_proves_is_no_proof() -> None:
    """One sample x = y = 1: h = 1 at Lambda = 1, and D = 2 lam - lam^2."""
    problem, root = make_problem([[1.0]], [[1.0]], lam=0.1, bias=0.0).double(), 0.9**0.5
    weights = [torch.tensor([[root, 0.0]], dtype=torch.float64)] * 2
    proof = Exact(0.0, torch.ones(1, 1, dtype=torch.float64), 1.0)
    cost = evaluate(problem, weights)
    assert cost.total == pytest.approx(0.19)
    point = Point(0.1, weights, cost, 0.19 * (1 - 1e-9), Certificate.EXACT, proof)
    assert _is_proved(problem, point, 1e-9)
    assert not _is_proved(problem, replace(point, lower=0.191), 1e-9)


def test_the_upper_end_of_deep_networks_in_closed_form() -> None:
    """C(0) = 9, g = 6 * 2: C(0) / (L (C(0) / g)^(2 / L))."""
    end = _deep_end(make_problem([[2.0]], [[3.0]], lam=1.0, bias=0.0, depth=3))
    assert end == pytest.approx(3.0 / 0.75 ** (2.0 / 3.0))
