"""Minima of three layers on a few samples: known values, attacks by random networks, tampered trees."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
import torch
from instances import cases
from scipy.optimize import linprog, minimize

import covopt
from covopt.certify.proof import Target
from covopt.certify.shares.cells import INTERVAL, LEAF, SCALE, Cell, Cut, Kinds, Split
from covopt.certify.shares.dictionary import Dictionary
from covopt.certify.shares.prices import Instance, Prices
from covopt.certify.shares.shares import Shares
from covopt.certify.shares.tree import Search
from covopt.model.problem import Problem, make_problem
from covopt.model.spread import Alone
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Budget
from covopt.solvers.options import SolveOptions
from covopt.solvers.stages.penalised import penalised_stages

CASES = cases("deep")


def proof(problem: Problem, cost: float, gap: float = 0.01, nodes: int = 100) -> Shares:
    return Shares.prove(problem, Target(cost=cost, gap=gap, steps=nodes)).proof


def relu(z: np.ndarray) -> np.ndarray:
    return np.maximum(z, 0.0)


# -- known minima ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["four-points", "absolute-value"])
def test_the_bound_is_a_known_minimum(name: str) -> None:
    case = CASES[name]
    value = case["exact"]["3"]
    lower = proof(make_problem(case["X"], case["Y"], depth=3, bias=case["beta"]), value, 1e-3).lower
    assert value * (1.0 - 1e-3) <= lower <= value * (1.0 + 1e-9)


def two_samples(X: np.ndarray, y: np.ndarray) -> float:
    """R_3 of two samples, a convex problem in K = sum_j a_j s_j s_j^T (the study's closed form)."""
    angles = np.linspace(0.0, 2.0 * np.pi, 721)
    S = relu(X @ np.stack([np.cos(angles), np.sin(angles)]))
    a = cp.Variable(S.shape[1], nonneg=True)
    (p, q), r = [cp.sum(cp.multiply(S[i] ** 2, a)) for i in range(2)], cp.sum(cp.multiply(S[0] * S[1], a))
    if y[0] * y[1] >= 0.0:
        value = cp.matrix_frac(y, cp.bmat([[p, r], [r, q]]))
        cp.Problem(cp.Minimize(value), [cp.sum(a) == 1.0]).solve(solver="CLARABEL")
        return 3.0 * float(value.value) ** (1.0 / 3.0)
    value = sum(abs(t) * cp.power(s - cp.quad_over_lin(r, o), -0.5) for t, s, o in ((y[0], p, q), (y[1], q, p)))
    cp.Problem(cp.Minimize(value), [cp.sum(a) == 1.0]).solve(solver="CLARABEL")
    return 3.0 * float(value.value) ** (2.0 / 3.0)


@pytest.mark.parametrize("seed", range(6))
def test_two_samples_have_a_closed_form(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((2, 2)), rng.standard_normal(2)
    value = two_samples(X, y)
    lower = proof(make_problem(X, y[:, None], depth=3, bias=0.0), value).lower
    assert value * 0.99 <= lower <= value * (1.0 + 1e-4)  # the closed form is on a grid of directions


def test_more_inputs_of_the_same_plane_change_nothing() -> None:
    rng = np.random.default_rng(3)
    X, Y = rng.standard_normal((3, 2)), rng.standard_normal((3, 1))
    Q = np.linalg.qr(rng.standard_normal((5, 5)))[0][:2]
    plain, turned = (make_problem(A, Y, depth=3, bias=0.0) for A in (X, X @ Q))
    one, other = (Shares.prove(problem, Target()).proof.lower for problem in (plain, turned))
    assert other == pytest.approx(one, rel=1e-3)


# -- attacks --------------------------------------------------------------------------------------------------------
def network(rng: np.random.Generator, inputs: int, bias: float, outputs: int = 1) -> list[np.ndarray]:
    n1, n2 = rng.integers(1, 4, 2)
    weights = [rng.standard_normal(shape) for shape in ((n1, inputs + 1), (n2, n1 + 1), (outputs, n2 + 1))]
    if not bias:
        for W in weights:
            W[:, -1] = 0.0
    style = rng.integers(3)
    return [np.abs(W) if style == 0 else W * (rng.random(W.shape) < 0.6) if style == 1 else W for W in weights]


def outputs(weights: list[np.ndarray], X: np.ndarray, bias: float) -> np.ndarray:
    S = np.column_stack([X, np.full(len(X), bias)])
    for W in weights[:-1]:
        S = np.column_stack([relu(S @ W.T), np.full(len(X), bias)])
    return S @ weights[-1].T


def rescaled(weights: list[np.ndarray]) -> list[np.ndarray]:
    """The cheapest network of the same function among those with rescaled neurons."""
    n1, n2 = len(weights[0]), len(weights[1])

    def at(x: np.ndarray) -> list[np.ndarray]:
        a, b = np.exp(x[:n1]), np.exp(x[n1:])
        W1, W2, W3 = weights[0] * a[:, None], weights[1] * b[:, None], weights[2].copy()
        W2[:, :n1] /= a
        W3[:, :n2] /= b
        return [W1, W2, W3]

    return at(minimize(lambda x: sum(np.square(W).sum() for W in at(x)), np.zeros(n1 + n2)).x)


def squares(weights: list[np.ndarray]) -> float:
    return float(sum(np.square(W).sum() for W in weights))


def instance_and_network(
    seed: int, rows: int = 4, rank: int = 2, targets: int = 1
) -> tuple[Problem, list[np.ndarray], float]:
    """A problem of so many rows, outputs and so large a rank at most, and a network with its cost."""
    rng = np.random.default_rng(seed)
    bias, lam = float(seed % 2) * rng.choice([0.3, 1.0]), None if seed % 4 < 2 else 10.0 ** rng.uniform(-3, 0)
    m = int(rng.integers(1, targets + 1))
    X = rng.standard_normal((rng.integers(2, rows + 1), rng.integers(1, rank + (bias == 0.0))))
    weights = rescaled(network(rng, X.shape[1], bias, m))
    F = outputs(weights, X, bias)
    Y = F if lam is None else F + 0.3 * rng.standard_normal(F.shape)
    cost = squares(weights) if lam is None else float(np.square(F - Y).sum(axis=1).mean()) + lam * squares(weights)
    return make_problem(X, Y, depth=3, bias=bias, lam=lam), weights, cost


@pytest.mark.parametrize("seed", range(12))
def test_no_bound_is_above_a_random_network(seed: int) -> None:
    problem, _, cost = instance_and_network(seed)
    if float(problem.Y.abs().max()) > 1e-3:
        assert 0.0 <= proof(problem, cost, 1e-3, nodes=12).lower <= cost * (1.0 + 1e-9)


def shares_of(cell: Cell, instance: Instance, weights: list[np.ndarray], X: np.ndarray, bias: float) -> Cell | None:
    """The cell with the same classes around the network's shares; None for a network without active neurons."""
    hidden = relu(np.column_stack([X, np.full(len(X), bias)]) @ weights[0].T)
    Z = np.column_stack([hidden, np.full(len(X), bias)]) @ weights[1].T
    v, kinds = weights[2][0, :-1], instance.kinds
    used = (v != 0.0) & (Z > 0.0).any(axis=0)
    if not used.any():
        return None
    labels = cell.labels(np.vstack([v > 0.0, Z > 0.0]))
    splits = []
    for k, split in enumerate(cell.splits):
        new, both = cell.below(k)
        total = np.square(v[used & np.isin(labels, both)]).sum()
        part = np.square(v[used & np.isin(labels, new)]).sum() / total if total > 0.0 else 0.5
        splits.append(split._replace(low=max(0.0, part - 0.01), high=min(1.0, part + 0.01)))
    assert len(kinds.signs) == 2 * (2 ** len(X) - 1)
    return Cell(tuple(splits))


def test_the_bound_of_a_cell_holds_for_networks_with_its_shares() -> None:
    """Narrow cells around the shares of hundreds of networks, with prices of many kinds; some come within 2 %."""
    rng, nearest, count = np.random.default_rng(0), 0.0, 0
    for seed in range(0, 800, 4):
        problem, weights, cost = instance_and_network(seed)
        if float(problem.Y.abs().max()) < 1e-3:
            continue
        instance = Instance.of(problem, 0.1)
        features = len(instance.kinds.features)
        cell = Cell()
        for _ in range(rng.integers(0, 4)):
            cell = cell.halves(Cut(int(rng.integers(cell.classes)), int(rng.integers(features)), 0.5))[0]
        cell = shares_of(cell, instance, weights, problem.X.numpy(), 0.0)
        if cell is None:
            continue
        search = Search(instance, 1e-3, 0.0, 1)
        N, P = len(instance.targets), len(instance.kinds.signs)
        node = search._node(cell, Prices(np.zeros(N), np.zeros((P, N))), math.inf)
        noisy = [Prices(*(A * (1.0 + 0.2 * rng.standard_normal(A.shape)) for A in node.prices)) for _ in range(3)]
        for prices in (node.prices, *noisy):
            value = instance.unit * instance.value(cell, prices)
            assert value <= cost * (1.0 + 1e-9)
            nearest = max(nearest, value / cost)
        count += 1
    assert count > 100
    assert nearest > 0.98


def descended(start: list[np.ndarray], cost: Callable[[list[np.ndarray]], float]) -> float:
    """The cost at the end of a short descent."""
    shapes = [W.shape for W in start]
    ends = np.cumsum([W.size for W in start])[:-1]

    def at(x: np.ndarray) -> list[np.ndarray]:
        return [part.reshape(shape) for part, shape in zip(np.split(x, ends), shapes, strict=True)]

    x = np.concatenate([W.ravel() for W in start])
    return float(minimize(lambda x: cost(at(x)), x, options={"maxiter": 40}).fun)


@pytest.mark.parametrize(("bias", "lam"), [(0.0, 0.05), (1.0, 0.05), (1.0, 1.0)])
def test_no_bound_of_a_loss_is_above_networks_that_descend(bias: float, lam: float) -> None:
    rng = np.random.default_rng(5)
    X, Y = rng.standard_normal((3, 1 if bias else 2)), rng.standard_normal((3, 1))
    weight = np.array([0.5, 2.0, 1.0])
    problem = make_problem(X, Y, depth=3, bias=bias, lam=lam, sample_weight=weight)

    def cost(weights: list[np.ndarray]) -> float:
        errors = weight @ np.square(outputs(weights, X, bias) - Y) / weight.sum()
        return float(errors[0]) + lam * squares(weights)

    best = cost([np.zeros((1, X.shape[1] + 1)), np.zeros((1, 2)), np.zeros((1, 2))])
    for _ in range(30):
        best = min(best, descended(network(rng, X.shape[1], bias), cost))
    assert 0.9 * best <= proof(problem, best, 0.02, nodes=250).lower <= best * (1.0 + 1e-9)


def test_every_direction_is_near_the_dictionary() -> None:
    """sigma(X w) is a mixture of the dictionary's neurons, whose weights add up to the secant at most."""
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.standard_normal((5, 2)))
    for step in (0.05, 0.4):
        atoms = Dictionary.of(X, step)
        for w in rng.standard_normal((40, 2)):
            target = relu(X.numpy() @ w / np.linalg.norm(w))
            least = linprog(np.ones(atoms.values.shape[1]), A_eq=atoms.values, b_eq=target).fun
            assert least <= atoms.secant * (1.0 + 1e-7)


# -- scales and degenerate data -------------------------------------------------------------------------------------
@pytest.mark.parametrize(("s", "t"), [(1e-60, 1.0), (1e60, 1.0), (1.0, 1e-60), (1e60, 1e-60), (1e-60, 1e60)])
def test_units(s: float, t: float) -> None:
    """R(s X, t Y) = (t / s)^(2/3) R(X, Y) without biases; a loss is in its units too."""
    rng = np.random.default_rng(2)
    X, Y = rng.standard_normal((3, 2)), rng.standard_normal((3, 1))
    factor = (t / s) ** (2.0 / 3.0)
    plain = make_problem(X, Y, depth=3, bias=0.0)
    lower, moved = proof(plain, 5.518).lower, replace(plain, X=s * plain.X, Y=t * plain.Y)
    assert proof(moved, 5.518 * factor).lower == pytest.approx(lower * factor, rel=0.01)
    loss = make_problem(X, Y, depth=3, bias=0.0, lam=0.05)
    scaled = replace(loss, X=s * loss.X, Y=t * loss.Y, lam=0.05 * t * t / factor)
    one, other = proof(loss, 0.3, nodes=20).lower, proof(scaled, 0.3 * t * t, nodes=20).lower
    assert other == pytest.approx(one * t * t, rel=0.01)


@pytest.mark.parametrize("row", [[0.0, 0.0], [1e-40, 1e-40], [1.0, 2.0], [2.0, 4.0], [-1.0, -2.0], [1.0, 2.0 + 1e-13]])
@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_degenerate_data(row: list[float], bias: float) -> None:
    """Targets of a network on rows that are zero, equal or parallel: nothing above its cost."""
    X = np.array([[1.0, 2.0], row, [0.3, -0.5]]) if not bias else np.array([[1.0], row[:1], [-0.5]])
    rng = np.random.default_rng(0)
    for _ in range(3):
        weights = rescaled(network(rng, X.shape[1], bias))
        Y = outputs(weights, X, bias)
        problem = make_problem(X, Y, depth=3, bias=bias)
        lower = proof(problem, squares(weights) if squares(weights) > 0.0 else 1.0, 1e-3, nodes=6).lower
        assert 0.0 <= lower <= squares(weights) * (1.0 + 1e-9)
    assert proof(make_problem(X, 0.0 * Y, depth=3, bias=bias), 1.0, nodes=4).lower == 0.0


# -- files ----------------------------------------------------------------------------------------------------------
def test_a_solve_proves_its_minimum_and_stores_the_proof(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((2, 2)), rng.standard_normal((2, 1))
    result = covopt.solve(X, Y, depth=3, bias=0.0, gap=0.01, time_limit=100)
    assert (result.status, result.certificate) == ("optimal", "shares")
    result.save(tmp_path / "run")
    assert covopt.verify(tmp_path / "run").passed


@pytest.mark.parametrize(("samples", "seed", "lowest"), [(3, 2, 5.51804), (4, 0, 9.82565), (5, 0, 14.20375)])
def test_networks_of_cases_descend_to_the_lowest_cost_known(samples: int, seed: int, lowest: float) -> None:
    """The costs are those of searches over random starts of 30 s; their first networks cost up to 68 % more."""
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((samples, 2)), rng.standard_normal((samples, 1))
    plan = covopt.plan(X, Y, depth=3, bias=0.0, gap=0.01, max_iterations=30, time_limit=600)
    plan.stages = [stage for stage in plan.stages if stage.name == "cases"]
    result = plan.solve()
    assert result.cost <= lowest * (1.0 + 1e-5)
    assert result.lower >= 0.9 * lowest
    assert [line.cost for line in result.history] == sorted((line.cost for line in result.history), reverse=True)


def test_cases_bound_narrow_networks_and_end_with_their_callback() -> None:
    """The networks of cases are wider than one neuron; their costs still tell how far the bound can rise."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((4, 2)), rng.standard_normal((4, 1))
    asked = {"depth": 3, "bias": 0.0, "lam": 0.01, "gap": 0.01}
    narrow = covopt.solve(X, Y, **asked, max_width=1, max_iterations=200, time_limit=600)
    assert (narrow.widths, narrow.certificate) == ([1, 1], "shares")
    assert 0.088 < narrow.lower <= covopt.solve(X, Y, **asked).cost < 0.1 < narrow.cost

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    stopped = covopt.solve(X, Y, **asked, callback=interrupt)
    assert stopped.status == "interrupted"
    assert stopped.cost < 0.1


def test_cases_need_all_rows_in_one_process() -> None:
    problem = make_problem(np.eye(2), np.ones((2, 1)), depth=3, bias=0.0)
    apart = replace(problem, spread=Alone())  # other than ALONE, as each of several processes has it
    names = [[stage.name for stage in penalised_stages(asked, SolveOptions(Budget(1.0)))] for asked in (problem, apart)]
    assert [("cases" in stages) for stages in names] == [True, False]


@pytest.mark.parametrize("bias", [0.0, 1.0])
@pytest.mark.parametrize("seed", [3, 4])
def test_a_programme_describes_a_network_that_fits(seed: int, bias: float) -> None:
    """With a bias it fits up to a factor, of the scale at which the programme is solved, and the output's bias."""
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((4, 1 if bias else 2)), rng.standard_normal(4)
    met: list[list[torch.Tensor]] = []

    def meet(weights: list[torch.Tensor]) -> float:
        met.append(weights)
        return math.inf

    Shares.prove(make_problem(X, Y[:, None], depth=3, bias=bias), Target(meet=meet))
    F = outputs([W.numpy() for W in met[0]], X, bias)
    if bias:
        F = np.column_stack([F, np.ones(4)])
        F = F @ np.linalg.lstsq(F, Y, rcond=None)[0][:, None]
    assert np.abs(F[:, 0] - Y).max() < 1e-3 * np.abs(Y).max()


@pytest.mark.parametrize("pause", [0.0, 1e3])
def test_no_clock_decides_when_networks_of_cases_descend(monkeypatch: pytest.MonkeyPatch, pause: float) -> None:
    rng, clock = np.random.default_rng(0), [0.0]
    problem = make_problem(rng.standard_normal((4, 2)), rng.standard_normal((4, 1)), depth=3, bias=0.0)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[-1])

    def meet(_: list[torch.Tensor]) -> float:
        clock.append(clock[-1] + pause)
        return 9.826

    Shares.prove(problem, Target(gap=1e-3, steps=20, meet=meet))
    assert len(clock) == 2  # it was called once


def test_tampered_trees_prove_a_true_bound_or_are_refused() -> None:
    rng = np.random.default_rng(0)
    problem = make_problem(rng.standard_normal((3, 2)), rng.standard_normal((3, 1)), depth=3, bias=0.0)
    made = proof(problem, 14.971)
    arrays = made.arrays()
    assert made.lower > 0.98 * 14.971
    refused = 0
    for name, array in arrays.items():
        cut = (array[..., :-1], array[::-1].copy(), np.roll(array, 1)) if array.ndim else ()
        for changed in (0 * array, -array, 3 * array, *cut):
            try:
                lower = Shares.read(0.0, arrays | {name: np.asarray(changed)}).bound(problem)
            except (ProblemError, ValueError):
                refused += 1
                continue
            assert 0.0 <= lower <= 14.971
    assert refused > 5
    pruned = arrays | {"cuts": arrays["cuts"][-1:], "places": arrays["places"][-1:]}  # a leaf as if it were all
    pruned |= {name: arrays[name][-1:] for name in ("multipliers", "prices")}
    assert Shares.read(0.0, pruned).bound(problem) < 14.0


def test_cuts_cover_their_cell() -> None:
    kinds = Kinds(3)
    cell = Cell()
    assert cell.halves(Cut(0, 2, 0.0)) is None
    assert cell.halves(Cut(1, 2, 0.5)) is None
    assert cell.halves(Cut(0, LEAF, 0.5)) is None
    below, above = cell.halves(Cut(0, 2, 0.4))
    assert (below.splits[0], above.splits[0]) == (Split(0, 2, 0.0, 0.4), Split(0, 2, 0.4, 1.0))
    assert above.halves(Cut(0, INTERVAL, 0.3)) is None
    assert above.halves(Cut(0, INTERVAL, math.nan)) is None
    assert [half.scale for half in above.halves(Cut(0, SCALE, 2.0))] == [(0.0, 2.0), (2.0, math.inf)]
    third = above.halves(Cut(1, 0, 0.5))[0]
    corners = [[1 - a, a * (1 - b), a * b] for b in (0.0, 0.5) for a in (0.4, 1.0)]
    assert third.corners == pytest.approx(np.array(corners))
    assert set(third.labels(kinds.features).tolist()) == {0, 1, 2}
