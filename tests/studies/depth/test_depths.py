"""What depth changes: closed forms, the path through the targets against brute force, storing, and the command."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from editing import forged, rewritten
from instances import cases
from runs import Run
from scipy.optimize import minimize_scalar
from tampering import Tampering, judge, tamperings

import covopt
from covopt.app.depth import depths_of
from covopt.certify.rank_one import EXACT, _untangled, measured, rank_one
from covopt.model.bottleneck import bottleneck, layer_shapes
from covopt.model.problem import make_problem
from covopt.model.weights import evaluate, outputs, preactivations
from covopt.records.directories import digests
from covopt.runtime import interrupts
from covopt.solvers.deep.insertion import deepened, shortened
from covopt.studies.depth import words as depth_words
from covopt.studies.depth.depth_answer import Depths
from covopt.studies.depth.depth_limit import expansions, limit_of

CASES = cases("deep")
SAMPLED = 29
"""Of the ways to tamper, one in so many; `python -m tests.benchmarks tampering` tries all of a run."""
LINE = np.linspace(-1.0, 1.0, 6)[:, None]


def asked(name: str) -> tuple[np.ndarray, np.ndarray, dict]:
    case = CASES[name]
    return np.array(case["X"]), np.array(case["Y"]), {"bias": case["beta"], "activation": case["activation"]}


def closed(s: np.ndarray, L: int) -> float:
    return float(L * (s ** (2.0 / L)).sum())


# ---- the curve
@pytest.mark.parametrize("name", ["identity-2", "identity-scalar-5", "absolute-value", "constant-5"])
def test_closed_forms_at_every_depth(name: str) -> None:
    X, Y, options = asked(name)
    for point in covopt.depth(X, Y, depths=[2, 3, 4, 6], ranks=[], time_limit=4, **options).curve:
        exact = CASES[name]["exact"][str(point.depth)]
        assert point.cost == pytest.approx(exact, rel=1e-4)
        assert point.result.lower <= exact * (1 + 1e-9)


def test_no_depth_costs_more_than_its_neighbours_give() -> None:
    X, Y, options = asked("circle-12")
    found = covopt.depth(X, Y, depths=[2, 3, 4], ranks=[], time_limit=2, **options)
    problems = {p.depth: make_problem(X, Y, depth=p.depth, **options) for p in found.curve}
    for low, high in itertools.pairwise(found.curve):
        up = deepened(problems[low.depth], low.result.weights, problems[high.depth])[0]
        assert high.cost <= evaluate(problems[high.depth], up).total * (1.0 + 1e-5)
        for net in shortened(problems[high.depth], high.result.weights, problems[low.depth]):
            cost = evaluate(problems[low.depth], net)
            if problems[low.depth].allows(cost.residual):
                assert low.cost <= cost.total * (1.0 + 1e-5)


def test_identity_layers_bound_the_next_depth() -> None:
    answer = covopt.depth(LINE, np.abs(LINE), depths=[2, 4], ranks=[], time_limit=3)
    before, point = answer.curve
    one = torch.tensor([[1.0, 0.0]], dtype=torch.float64)  # the outputs are not negative: two layers that keep them
    longer = evaluate(point.result.problem.double(), [*(W.double() for W in before.result.weights), one, one])
    assert longer.residual <= 1e-6
    assert point.identity == pytest.approx(longer.norm, rel=1e-9)
    assert point.cost <= longer.norm * (1 + 1e-9)
    assert "at depth 4 the cost is at most that of the depth before" in dict(answer.describe())["composition"]
    told = answer.summary()
    told["curve"][1]["cost"] = 1e3  # type: ignore[index]
    assert "not a minimum" in dict(depth_words.pairs(told))["composition"]
    circle = covopt.depth(np.eye(2), np.eye(2), bias=0.0, depths=[2, 3], ranks=[], time_limit=1)
    assert circle.curve[1].identity == pytest.approx(6.0)


@pytest.mark.parametrize("activation", ["relu", "leaky:0.3", "linear"])
def test_a_layer_that_is_put_in_is_taken_out_again(activation: str) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.random((7, 3)), rng.random((7, 2))
    problems = {L: make_problem(X, Y, lam=0.1, depth=L, activation=activation) for L in (3, 4)}
    weights = [torch.as_tensor(rng.standard_normal(shape)) for shape in ((5, 4), (4, 6), (2, 5))]
    for deep in deepened(problems[3], weights, problems[4]):
        F = outputs(problems[3], weights, problems[3].X)
        back = shortened(problems[4], deep, problems[3])
        assert len(back) == 3
        errors = [float((outputs(problems[3], net, problems[3].X) - F).abs().max()) for net in back]
        assert min(errors) < 1e-9


def test_a_penalty_has_a_curve_but_no_limit() -> None:
    found = covopt.depth(LINE, np.abs(LINE), depths=[2, 3, 4], ranks=[1], lam=1e-2, time_limit=1)
    assert [p.depth for p in found.curve] == [2, 3, 4]
    assert (found.limit, found.fit, found.path) == (None, [], None)
    assert found.summary()["rank_one"] is None
    for point in found.curve:
        assert point.cost == pytest.approx(evaluate(point.result.problem, found.network(point.depth)).total)
        assert point.result.lower <= point.cost
    cheapest = min(p.cost for p in found.curve)
    assert f"lowest cost found at these depths, {cheapest:.7g}"[:40] in found._repr_html_()


def test_families_are_narrow_and_no_cheaper_than_the_curve() -> None:
    X, Y, options = asked("circle-12")
    found = covopt.depth(X, Y, depths=[2, 3, 4, 5], ranks=[1, 2], time_limit=2.5, **options)
    assert [family.rank for family in found.families] == [1, 2]
    costs = {p.depth: p.cost for p in found.curve}
    for family in found.families:
        assert family.curve
        for depth, member in family.members.items():
            problem = make_problem(X, Y, depth=depth, **options)
            cost = evaluate(problem, member.weights)
            assert problem.allows(cost.residual)
            assert cost.total == pytest.approx(member.cost)
            assert min(len(W) for W in member.weights[:-1]) <= family.rank
            assert member.cost >= costs[depth] * (1 - 1e-5)
    one = found.families[0]
    assert set(one.members) >= {3, 4, 5}
    assert all(cost >= found.path.bound(depth) for depth, cost in one.curve)
    limit = found.limit
    assert limit.high == pytest.approx(min(cost - depth for depth, cost in one.curve), rel=1e-6)
    assert limit.low <= limit.high


# ---- degenerate data
@pytest.mark.parametrize(
    ("X", "Y", "R0"),
    [
        ([[1.0]], [[2.0]], 0),
        ([[1.0], [2.0], [3.0]], [[0.5], [0.5], [0.5]], 0),
        ([[0.0], [0.0]], [[3.0], [3.0]], 0),
        ([[1.0], [1.0], [2.0]], [[1.0], [1.0], [2.0]], 1),
        ([[1.0], [2.0]], [[0.0], [0.0]], 0),
    ],
    ids=["one sample", "constant", "X = 0", "duplicates", "Y = 0"],
)
def test_degenerate_data_are_answered(X: list, Y: list, R0: int, tmp_path: Path) -> None:
    found = covopt.depth(X, Y, depths=[2, 3, 5], ranks=[1], time_limit=1)
    assert found.limit.R0 == R0
    for point in found.curve:
        assert point.result.lower is None or point.result.lower <= point.cost
    json.loads(json.dumps(found.summary(), allow_nan=False))
    found.save(tmp_path / "run")
    checked = covopt.verify(tmp_path / "run")
    assert checked.passed, checked.message


@pytest.mark.parametrize("scale", [1e-70, 1e-8, 1e8, 1e70])
def test_the_scale_of_the_data_does_not_matter(scale: float) -> None:
    X = np.array([[0.0], [1.0], [2.0]])
    found = covopt.depth(scale * X, scale * 2.0 * X, depths=[2, 3], ranks=[1], bias=scale, time_limit=1)
    assert [p.cost for p in found.curve] == pytest.approx([4.0, 3.0 * 2.0 ** (2 / 3)], rel=1e-4)
    assert found.path.bound(3) <= found.curve[1].cost * (1 + 1e-9)


def test_a_depth_that_cannot_fit_is_left_out_with_its_reason(tmp_path: Path) -> None:
    X = [[1.0, 0.0], [-1.0, 0.0], [2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0], [1.0, 1.0], [-1.0, -1.0]]
    Y = np.array(X)[:, :1] * [1.0, 0.0] + np.array([[0, 1], [0, 0], [0, 2], [0, 0], [0, 1], [0, 0], [0, 0], [0, 0.5]])
    found = covopt.depth(X, Y, depths=[2, 3], ranks=[], bias=0.0, time_limit=1)
    assert found.depths == [3]
    assert "no network of depth 2 without bias fits" in found.refused[2]
    assert ("depth 2", found.refused[2]) in found.describe()
    found.save(tmp_path / "run")
    assert covopt.load(tmp_path / "run").refused == found.refused


# ---- large depth
@pytest.mark.parametrize(
    ("name", "R0"), [("identity-2", 2), ("identity-scalar-5", 1), ("signed-identity", 2), ("circle-12", 1)]
)
def test_the_limit_is_a_theorem(name: str, R0: int) -> None:
    X, Y, options = asked(name)
    limit = limit_of(make_problem(X, Y, depth=3, **options))
    assert limit.R0 == R0
    assert limit.reason


@pytest.mark.parametrize(
    ("Y", "options", "R0"),
    [
        ([[1.0], [1.0]], {}, 0),
        ([[0.0], [0.0]], {"bias": 0.0}, 0),
        ([[1.0, 2.0], [2.0, 4.0]], {"bias": 0.0}, 1),
        ([[1.0, 2.0], [-2.0, -4.0]], {"bias": 0.0}, 2),
        ([[1.0, 2.0], [2.0, 4.1]], {"bias": 0.0}, 2),
        ([[1.0, 2.0], [2.0, 4.0 + 1e-9]], {"bias": 0.0}, None),
        ([[1.0], [-1.0]], {"bias": 0.0, "activation": "leaky:0.2"}, None),
        ([[1.0], [1.0 + 1e-9]], {}, None),
        ([[1.0, 0.0], [0.0, 1.0]], {"bias": 0.0, "activation": "linear"}, 2),
        ([[1.0, 0.0], [0.0, 1.0]], {"activation": "linear"}, 1),
        ([[1.0, 1.0], [1.0, 1.0]], {"activation": "linear"}, 0),
    ],
)
def test_each_row_of_the_table_of_limits(Y: list, options: dict, R0: int | None) -> None:
    assert limit_of(make_problem(np.eye(2), Y, depth=4, **options)).R0 == R0


def test_the_lower_end_of_R1_is_below_every_cost() -> None:
    X, Y = LINE, 3.0 * LINE
    limit = limit_of(make_problem(X, Y, depth=3))
    assert limit.low == pytest.approx(2.0 * math.log(3.0), rel=1e-6)  # less what a fit may miss
    for L in range(2, 200):  # y = 3 x costs L 3^(2/L)
        assert limit.low <= L * 3.0 ** (2.0 / L) - L


def test_the_identity_costs_more_than_one_dimension_unless_the_samples_are_on_a_line() -> None:
    """[J23b, Prop. 5], "only if" for finite data with a bias: R_1 >= 2 log(sum_i s_i / s_1), s those of H X."""
    rng = np.random.default_rng(4)
    for n in (4, 7, 12):
        X = rng.standard_normal((n, 3))
        s = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)
        low = limit_of(make_problem(X, X, depth=3)).low
        assert low == pytest.approx(2.0 * math.log(s.sum() / s[0]), abs=1e-5)  # less what a fit may miss
        assert low > 0.5
    line = rng.standard_normal((7, 1)) * rng.standard_normal(3) + 5.0
    assert limit_of(make_problem(line, line, depth=3)).low == pytest.approx(0.0, abs=1e-5)
    square = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])  # two equal singular values: 2 log 2
    found = covopt.depth(square, square, depths=[2, 3, 4], ranks=[], time_limit=1)
    assert all(point.cost - point.depth >= 2.0 * math.log(2.0) for point in found.curve)
    assert "tends to a value at least 1.386" in dict(found.describe())["large depth"]


def test_the_upper_end_of_R1_holds_at_every_larger_depth() -> None:
    X, Y = LINE, np.abs(LINE)
    assert make_problem(X, Y, depth=3).interpolates
    found = covopt.depth(X, Y, depths=[3, 4], ranks=[1], time_limit=1)
    assert found.limit.high is not None
    for depth, member in found.families[0].members.items():
        for deeper in (8, 20):
            made = deepened(make_problem(X, Y, depth=depth), member.weights, make_problem(X, Y, depth=deeper))
            cost = min(evaluate(make_problem(X, Y, depth=deeper), net).total for net in made)
            assert cost - deeper <= member.cost - depth + 1e-6


LINEAR = np.array([3.0, 0.5])
DEPTHS = list(range(6, 25))


def test_the_fit_of_a_linear_network_holds_the_truth() -> None:
    fits = expansions(DEPTHS, [closed(LINEAR, L) for L in DEPTHS], [2] * len(DEPTHS))
    assert len(fits) == 1
    fit = fits[0]
    assert (fit.first, fit.last, fit.R0, fit.good) == (6, 24, 2, True)
    assert (fit.R1[0], fit.R2[0]) == (pytest.approx(0.810930, abs=0.005), pytest.approx(3.374804, rel=0.02))
    assert fit.R1[1] <= 0.810930 <= fit.R1[2]
    assert fit.R2[1] <= 3.374804 <= fit.R2[2]


def test_bands_hold_the_truth_where_searches_end_above_the_minimum() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        costs = np.array([closed(LINEAR, L) for L in DEPTHS])
        above = 1e-4 * costs * rng.random(len(costs))
        fit = expansions(DEPTHS, list(costs + above), [2] * len(costs), list(2.0 * above))[0]
        assert fit.R1[1] <= 0.810930 <= fit.R1[2]
        assert fit.R2[1] <= 3.374804 <= fit.R2[2]


def counterexample(L: int) -> float:
    """The least cost of the network of [J23b, D.1], study 2.12."""

    def excess(e: float) -> float:
        middle = (L - 2) * (2.0 * (math.cosh(2 * e) - 1.0) + math.cosh(4 * e) - 1.0)
        return middle + 2.0 * math.exp(-(L - 2) * e) + math.exp(-2 * (L - 2) * e)

    return 3.0 * L + minimize_scalar(excess, bounds=(0.0, 2.0), method="bounded", options={"xatol": 1e-12}).fun


def test_costs_without_an_expansion_are_flagged() -> None:
    assert counterexample(100) - 300.0 == pytest.approx(0.7526, abs=1e-4)
    for depths in (range(6, 25), range(20, 101), range(4, 9)):
        assert not expansions(list(depths), [counterexample(L) for L in depths], [3] * len(depths))[0].good


def test_fits_are_split_where_the_dimension_changes() -> None:
    depths = list(range(2, 12))
    fits = expansions(depths, [closed(LINEAR, L) for L in depths], [3, 3, 2, 2, 2, 2, 2, 1, 1, 1])
    assert [(fit.first, fit.last, fit.R0) for fit in fits] == [(4, 8, 2)]
    narrow = expansions(depths, [closed(LINEAR, L) for L in depths], [1] * 10, None, (1.0, 1.5))[0]
    assert all(1.0 <= value <= 1.5 for value in narrow.R1)


def test_the_solver_s_own_curve_of_a_linear_network() -> None:
    X = np.eye(2)
    found = covopt.depth(
        X, np.diag(LINEAR), depths=[6, 8, 10, 12], ranks=[], bias=0.0, activation="linear", time_limit=4
    )
    assert found.limit.R0 == 2
    for point in found.curve:
        assert point.cost == pytest.approx(closed(LINEAR, point.depth), rel=1e-6)
        assert (point.narrowest.dimension, point.narrowest.nonlinearity) == (2, 0.0)
    fit = found.fit[0]
    assert fit.good
    assert fit.R1[1] <= 0.810930 <= fit.R1[2]


# ---- one neuron
def shortest(Y: np.ndarray) -> float:
    """By trying all orders."""
    orders = itertools.permutations(range(len(Y)))
    return min(sum(float(np.linalg.norm(Y[a] - Y[b])) for a, b in itertools.pairwise(o)) for o in orders)


def test_the_path_is_charged_for_outputs_that_miss_their_targets() -> None:
    """Both ends of 0, 1, 2 may move inwards by what is allowed."""
    problem = make_problem([[0.0], [1.0], [2.0]], [[0.0], [1.0], [2.0]], depth=3)
    assert problem.allowed_misfit > 0.0
    assert rank_one(problem).charged <= 2.0 - 2.0 * problem.allowed_misfit


@pytest.mark.parametrize("seed", range(8))
def test_the_path_is_bounded_from_both_sides(seed: int) -> None:
    rng = np.random.default_rng(seed)
    Y = rng.standard_normal((int(rng.integers(2, 8)), int(rng.integers(1, 4))))
    best = shortest(Y)
    X = rng.standard_normal((len(Y), 2))
    plain, twice = (rank_one(make_problem(np.r_[X, X[:k]], np.r_[Y, Y[:k]], depth=4)) for k in (0, 2))
    assert plain.upper == pytest.approx(best, rel=1e-12)
    assert plain.lower <= best
    assert plain.lower >= rank_one(make_problem(X, Y, depth=4), ascend=False).lower
    assert twice.lower == pytest.approx(plain.lower, rel=1e-9)  # equal targets are one
    for _ in range(20):  # whatever the multipliers, they prove a bound
        p = rng.standard_normal(len(Y)) * rng.choice([0.01, 0.3, 10.0])
        proved = measured(make_problem(X, Y, depth=4), p, plain.order)
        assert max(proved.lower, proved.charged) <= best * (1 + 1e-12)


def test_more_points_than_are_solved_exactly() -> None:
    t = np.random.default_rng(1).permutation(3 * EXACT)
    line = np.stack([t, 2.0 * t], axis=1)
    found = rank_one(make_problem(line, line, depth=4))
    length = (3 * EXACT - 1) * math.sqrt(5.0)
    assert (found.lower, found.upper) == (pytest.approx(length, rel=1e-6), pytest.approx(length, rel=1e-9))
    d = np.abs(t[:, None] - t).astype(float)
    order = _untangled(d, np.arange(len(t)))
    assert sorted(order) == list(range(len(t)))
    assert d[order[:-1], order[1:]].sum() <= d[np.arange(len(t) - 1), np.arange(1, len(t))].sum()


def test_of_many_rows_the_first_ones_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covopt.certify.rank_one.ROWS", 4)
    X = np.arange(8.0)[:, None]
    found = covopt.depth(X, X, depths=[2], ranks=[], time_limit=1)
    assert (found.path.rows, found.path.upper) == (4, None)
    assert found.path.lower == pytest.approx(3.0)
    assert found.path.diameter == pytest.approx(3.0)
    assert "of the first 4 rows" in str(found)
    assert found.path.bound(2) <= 2.0


def test_a_grid_has_no_gap() -> None:
    grid = np.stack(np.meshgrid(np.arange(8.0), np.arange(8.0)), axis=-1).reshape(-1, 2)
    found = rank_one(make_problem(grid, grid, depth=8))
    assert found.lower == pytest.approx(63.0, rel=1e-9)
    assert found.upper == pytest.approx(63.0, rel=1e-9)
    assert found.diameter >= 7.0 * math.sqrt(2.0)
    assert found.bound(8) == pytest.approx(12.706, abs=1e-3)


@pytest.mark.parametrize("bias", [0.0, 0.8])
def test_no_network_with_a_layer_of_rank_one_is_below_the_bound(bias: float) -> None:
    rng = np.random.default_rng(2)
    closest = 0.0
    for trial in range(60):
        L, n = int(rng.integers(2, 6)), int(rng.integers(2, 12))
        X = rng.standard_normal((n, 2))
        sizes = [2, *rng.integers(2, 5, size=L - 1), 2]
        narrow = int(rng.integers(1, L))
        if trial % 2:
            sizes[narrow] = 1
        weights = [torch.as_tensor(rng.standard_normal((b, a + 1))) for a, b in itertools.pairwise(sizes)]
        if not trial % 2:  # A_l of rank 1
            A = weights[narrow - 1]
            A[:, :-1] = torch.outer(A[:, 0].clone(), torch.as_tensor(rng.standard_normal(A.shape[1] - 1)))
        loose = make_problem(X, np.zeros((n, 2)), lam=1.0, depth=L, bias=bias)
        F = outputs(loose, weights, loose.X).numpy()
        if np.abs(F).max() < 1e-6:
            continue
        norm = float(sum(W.square().sum() for W in weights))
        closest = max(closest, rank_one(make_problem(X, F, depth=L, bias=bias)).bound(L) / norm)
    assert 0.1 < closest <= 1.0


def test_the_kernel_of_one_dimension_is_steep_somewhere() -> None:
    """Between the two samples that one neuron sees farthest apart, the outputs move at P / diam or faster somewhere.

    Where they do the mixed second derivative is at least L s^(2 - 2/L): tests/studies/audit/test_statements.py.
    """
    rng, line = np.random.default_rng(5), torch.linspace(0.0, 1.0, 20_001, dtype=torch.float64)[:, None]
    for L in (2, 3, 4, 5) * 5:
        X, sizes = rng.standard_normal((6, 2)), [2, *rng.integers(2, 6, size=L - 1), 2]
        sizes[narrow := int(rng.integers(1, L))] = 1
        weights = [torch.as_tensor(rng.standard_normal((b, a + 1))) for a, b in itertools.pairwise(sizes)]
        loose = make_problem(X, np.zeros((6, 2)), lam=1.0, depth=L, bias=0.8)
        t = preactivations(loose, weights)[narrow - 1][:, 0]
        ends = loose.X[[int(t.argmin()), int(t.argmax())]]
        along = outputs(loose, weights, ends[:1] + line * (ends[1:] - ends[:1]))
        speeds = (along[1:] - along[:-1]).norm(dim=1) / ((ends[1] - ends[0]).norm() / 20_000)
        path = rank_one(make_problem(X, outputs(loose, weights, loose.X).numpy(), depth=L, bias=0.8))
        assert float(speeds.max()) >= 0.999 * path.charged / path.diameter
    answer = covopt.depth(LINE, np.abs(LINE), depths=[2, 3], ranks=[], time_limit=1)
    slope = answer.path.charged / answer.path.diameter
    expected = {"2": pytest.approx(2.0 * slope), "3": pytest.approx(3.0 * slope ** (4.0 / 3.0))}
    assert answer.summary()["rank_one"]["kernel"] == expected
    assert "at depth 3" in dict(answer.describe())["its kernel"]


def test_far_off_data_do_not_raise_the_bound() -> None:
    Y = np.random.default_rng(3).random((9, 2))
    near, far = (rank_one(make_problem(Y + off, Y + off, depth=3)) for off in (0.0, 2.0**30))
    best = shortest((Y[:7] + 2.0**30) - 2.0**30)
    assert far.charged <= far.lower <= near.upper * (1 + 1e-6)  # type: ignore[operator]
    assert best <= near.upper * (1 + 1e-6)  # type: ignore[operator]


def test_it_excludes_rank_one_up_to_a_depth() -> None:
    grid = np.stack(np.meshgrid(np.arange(3.0), np.arange(3.0)), axis=-1).reshape(-1, 2)
    found = covopt.depth(grid, grid, depths=[2, 3, 4], ranks=[], time_limit=1)
    excluded = [p.depth for p in found.curve if found.path.bound(p.depth) > p.cost]
    told = found.summary()["rank_one"]
    first = min((p.depth for p in found.curve if not excluded or p.depth > max(excluded)), default=None)
    assert told["from_depth"] == first  # type: ignore[index]
    assert 2 in excluded


# ---- layers
def test_the_shape_of_a_layer() -> None:
    X = np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])
    problem = make_problem(X, X, lam=1.0, depth=3)
    lossless = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], dtype=torch.float64)
    half = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]], dtype=torch.float64)
    shapes = layer_shapes(problem, [lossless, half, lossless])
    assert [(s.dimension, s.affine_dimension) for s in shapes] == [(2, 1), (1, 1)]
    assert (shapes[0].nonlinearity, shapes[1].nonlinearity) == (0.0, pytest.approx(math.sqrt(0.5)))
    assert bottleneck(shapes) == 1


# ---- files and commands
@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("depths") / "run"
    covopt.depth(LINE, np.abs(LINE), depths=[2, 3, 4, 5], ranks=[1], time_limit=1).save(here)
    return here


def test_a_stored_answer_comes_back_and_is_checked(stored: Path, tmp_path: Path) -> None:
    names = {"depth.json", "curve.csv", "networks.npz", "spectra.npz", "figure.png", "solution", "depths"}
    assert names <= {path.name for path in stored.iterdir()}
    again = covopt.load(stored)
    assert isinstance(again, Depths)
    told = json.loads((stored / "depth.json").read_text())
    assert json.loads(json.dumps(again.summary()))["curve"] == told["curve"]
    arrays = np.load(stored / "networks.npz")
    assert [W.shape for W in again.network(3)] == [arrays[f"d3_W{i}"].shape for i in (1, 2, 3)]
    assert covopt.verify(stored).passed
    page = covopt.write_report(stored, tmp_path / "a.html").read_text(encoding="utf-8")
    assert page.count("<img") >= 3
    assert "prefers-color-scheme" in page
    assert "R(L) / L tends to 1" in page


def test_tampering_is_noticed_or_named(stored: Path, tmp_path: Path) -> None:
    found = [
        each for each in tamperings(stored) if each.name.startswith(("depth.json", "networks", "rank_one", "curve"))
    ]
    assert len(found) > 100
    verdicts = {each.name: judge(stored, tmp_path / "run", each) for each in found[::SAMPLED]}
    assert {n: v for n, v in verdicts.items() if v not in ("noticed", "named", "the same")} == {}


@pytest.mark.parametrize("entry", ["limit", "fit", "rank_one", "families", "curve"])
def test_what_is_not_proved_by_the_files_is_refused(stored: Path, tmp_path: Path, entry: str) -> None:
    def change(told: dict[str, Any]) -> None:
        if entry == "limit":
            told["limit"]["R1"][0] += 0.1
        elif entry == "fit":
            told["fit"] = [*told["fit"], {"from": 2, "to": 9}]
        elif entry == "rank_one":
            told["rank_one"]["lower"]["3"] *= 1.01
        elif entry == "families":
            told["families"][0]["curve"][0]["cost"] *= 0.9
        else:
            told["curve"][1]["lower"] *= 1.05

    forge = forged(rewritten("depth.json", change))
    assert judge(stored, tmp_path / "run", Tampering("", forge, ())) == "noticed"


def test_going_on_from_an_answer_is_never_worse(stored: Path) -> None:
    first = covopt.load(stored)
    more = covopt.depth(LINE, np.abs(LINE), depths=[2, 3, 4, 5, 6], ranks=[1], time_limit=2, init=first)
    assert more.depths == [2, 3, 4, 5, 6]
    for depth, result in first.results.items():
        assert more.results[depth].cost <= result.cost * (1 + 1e-12)
        assert (more.results[depth].lower or 0.0) >= (result.lower or 0.0)


def test_the_command_prints_stores_resumes_and_shows(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", X=LINE, Y=np.abs(LINE))
    words = ("depth", "data.npz", "--rank", "0", "--time-limit", "0.4")
    code, out, err = run(*words, "--depths", "2:3", "--out", "stored")
    assert code == 0, err
    assert "large depth" in out
    assert "depth  cost" in out
    assert run(*words, "--depths", "2:3", "--out", "stored")[0] == 2
    code, out, err = run(*words, "--depths", "2,3", "--depths", "5", "--out", "stored", "--resume", "--json")
    assert code == 0, err
    told = json.loads(out)
    assert [p["depth"] for p in told["curve"]] == [2, 3, 5]
    assert told["families"] == []
    code, out, err = run(*words, "--depths", "2", "--out", "stored", "--resume", "--json")
    assert [p["depth"] for p in json.loads(out)["curve"]] == [2, 3, 5]  # none is lost
    code, out, _ = run("show", "stored")
    assert (code, "depth 5" in out) == (0, True)
    assert [run("verify", "stored")[0], run("show", "stored", "--report", "a.html")[0]] == [0, 0]
    assert "covopt depth" in Path("a.html").read_text(encoding="utf-8")


def test_nothing_but_a_run_of_depth_is_replaced(tmp_path: Path, run: Run) -> None:
    np.savez(tmp_path / "data.npz", X=LINE, Y=np.abs(LINE))
    covopt.solve(LINE, np.abs(LINE), time_limit=1).save(tmp_path / "solve")
    before = digests(tmp_path / "solve")
    code, _, err = run("depth", tmp_path / "data.npz", "--out", tmp_path / "solve", "--resume")
    assert (code, "holds no run of depth" in err) == (2, True)
    assert digests(tmp_path / "solve") == before
    covopt.depth(LINE, LINE, depths=[2], ranks=[], time_limit=1).save(tmp_path / "mine")
    code, _, err = run("depth", tmp_path / "data.npz", "--depths", "2", "--out", tmp_path / "mine", "--resume")
    assert (code, "another problem" in err) == (2, True)
    (tmp_path / "mine" / "thesis.tex").write_text("dear")
    code, _, err = run("depth", tmp_path / "data.npz", "--out", tmp_path / "mine", "--resume")
    assert (code, "holds thesis.tex" in err) == (2, True)
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "dear"


def test_an_interrupted_search_keeps_what_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    phases: list[str] = []

    def interrupt(line: covopt.Progress) -> None:
        phases.append(line.phase)
        if "depth 3" in line.phase:
            raise KeyboardInterrupt

    X, Y, options = asked("circle-12")
    found = covopt.depth(X, Y, depths=[2, 3, 4, 5, 6], time_limit=60, callback=interrupt, **options)
    assert found.status is covopt.Status.INTERRUPTED
    assert "depth 3 of 2 to 6" in phases[-1]
    assert not interrupts.interrupted()
    assert {2, 3} <= set(found.depths)
    assert all(math.isfinite(p.cost) for p in found.curve)
    found.save(tmp_path / "run")
    assert covopt.verify(tmp_path / "run").passed
    on = covopt.depth(X, Y, depths=[2, 3, 4], ranks=[], time_limit=2, init=covopt.load(tmp_path / "run"), **options)
    assert on.depths == [2, 3, 4]
    assert on.results[2].cost <= found.results[2].cost


def test_depths_are_read_from_texts() -> None:
    assert depths_of(["2:4"]) == [2, 3, 4]
    assert depths_of(["2,3,9", "5:6"]) == [2, 3, 5, 6, 9]
    for wrong in ("1:3", "4:2", "two", "", "2:", "3.5", "-2", "2:1001"):
        with pytest.raises(covopt.ProblemError, match="--depths is"):
            depths_of([wrong])
