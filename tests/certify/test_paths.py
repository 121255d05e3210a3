"""The bound from the path norm of three layers: known values, other solvers, attacks by random networks, forgeries."""

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import LinearConstraint, linprog, milp

import covopt
from covopt.certify.paths.body import Body, Directions
from covopt.certify.paths.boxes import Boxes, settle
from covopt.certify.paths.branching import LEAF, Branching, Tree
from covopt.certify.paths.paths import PathNorm
from covopt.certify.proof import Target
from covopt.certify.shares.dictionary import Dictionary, cover
from covopt.certify.shares.prices import Instance, Multipliers
from covopt.model.problem import Problem, make_problem
from covopt.runtime.errors import ProblemError
from tests.certify.test_shares import CASES, instance_and_network, network, relu


def proof(problem: Problem, weights: list[np.ndarray], steps: int = 60) -> PathNorm:
    """A proof after so many steps of the search at most."""
    calls = itertools.count()
    target = Target(network=[torch.from_numpy(W) for W in weights], stop=lambda: next(calls) > steps)
    proved = PathNorm.prove(problem, target)
    assert proved is not None
    assert isinstance(proved.proof, PathNorm)
    return proved.proof


# -- known values -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "value"), [("four-points", 5.226252), ("absolute-value", 4.762203), ("five-points", 12.59)]
)
def test_the_bound_is_that_of_another_program(name: str, value: float) -> None:
    """The first two are minima; the third is the study's value, by cutting planes and mixed-integer programmes."""
    case = CASES[name]
    problem = make_problem(case["X"], case["Y"], depth=3, bias=case["beta"])
    any_network = network(np.random.default_rng(0), problem.X.shape[1], 0.0)
    assert proof(problem, any_network, 400).lower == pytest.approx(value, rel=2e-3)


@pytest.mark.parametrize(("rows", "inputs", "seed"), [(4, 2, 0), (5, 1, 1), (4, 3, 2)])
def test_the_largest_value_of_a_neuron_is_that_of_mixed_integer_programmes(rows: int, inputs: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    body = Body(Dictionary.of(torch.from_numpy(rng.standard_normal((rows, inputs))), 0.3), 1.0, 0.7)
    multipliers = rng.standard_normal((rows, 1))
    directions = Directions.of(1, 0).vectors
    branching = Branching.roots(directions, rows)
    branching.search(body, rng.standard_normal((rows, 1)), 0.0, 0.3)  # trees of other multipliers do not mislead
    branching = branching.refined(directions[::-1])
    is_complete, neurons = branching.search(body, multipliers, 0.0, 1e-6)
    assert is_complete
    A = np.hstack([body.corners.numpy(), -body.corners.numpy()])
    values = []
    for sign in (1.0, -1.0):
        lam, n, big = sign * multipliers[:, 0], A.shape[1], 2.0 * float(np.abs(A).max())
        rows_, eye = np.zeros((3 * rows, n + 2 * rows)), np.eye(rows)
        # s = sigma(A x) with d = 1 where active: s >= A x, s <= A x + big (1 - d), s <= big d.
        rows_[:rows] = np.hstack([-A, eye, np.zeros((rows, rows))])
        rows_[rows : 2 * rows] = np.hstack([-A, eye, big * eye])
        rows_[2 * rows :] = np.hstack([np.zeros((rows, n)), eye, -big * eye])
        low = np.concatenate([np.zeros(rows), np.full(2 * rows, -np.inf)])
        high = np.concatenate([np.full(rows, np.inf), np.full(rows, big), np.zeros(rows)])
        total = LinearConstraint(np.concatenate([np.ones(n), np.zeros(2 * rows)]), -np.inf, 1.0)
        integrality = np.concatenate([np.zeros(n + rows), np.ones(rows)])
        cost = np.concatenate([np.zeros(n), -lam, np.zeros(rows)])
        values.append(-milp(cost, constraints=[LinearConstraint(rows_, low, high), total], integrality=integrality).fun)
    largest = np.abs(neurons.values @ multipliers[:, 0] / (neurons.weights + body.price * neurons.biases)).max()
    assert largest == pytest.approx(max(values), rel=1e-5)
    most, _ = branching.tree().most(body, multipliers, branching.directions)
    assert max(values) * (1.0 - 1e-9) <= most <= max(values) * body.atoms.secant * (1.0 + 1e-4)


def test_prices_of_many_boxes_are_those_of_linear_programmes() -> None:
    rng = np.random.default_rng(0)
    A, lam = rng.random((6, 15)), rng.standard_normal((40, 6))
    signs = rng.integers(-1, 2, lam.shape)
    rising, free = lam > 0.0, ~((lam > 0.0) & (signs == 0))
    low = np.where(rising & (signs > 0), lam, np.where(rising, -np.inf, lam))
    high = np.where(rising & (signs > 0), np.inf, 0.0)
    offsets = np.where(free, 0.0, lam) @ A
    boxes = Boxes(*(torch.from_numpy(a) for a in (low, high, free, offsets)))
    everywhere = torch.full((len(lam),), math.inf, dtype=torch.float64)
    settled = settle(torch.from_numpy(A), boxes, -1.0, everywhere, tolerance=1e-9, iterations=60)
    rows = np.vstack([np.hstack([A.T, -np.ones((15, 1))]), np.hstack([-A.T, -np.ones((15, 1))])])
    for k in range(len(lam)):
        ends = [(a, b) if f else (0.0, 0.0) for a, b, f in zip(low[k], high[k], free[k], strict=True)]
        right = np.concatenate([-offsets[k], np.zeros(15)])
        value = linprog(np.eye(7)[6], A_ub=rows, b_ub=right, bounds=[*ends, (None, None)]).fun
        assert float(settled.above[k]) == pytest.approx(value, rel=1e-6, abs=1e-9)
        assert float(settled.below[k]) <= value + 1e-9


# -- the dictionary at rank 3 -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("rows", [1, 3, 7])
def test_triangles_cover_the_sphere_and_do_not_cross_a_circle(rows: int) -> None:
    rng = np.random.default_rng(rows)
    normals = rng.standard_normal((rows, 3))
    directions, triangles = cover(normals, 0.4)
    heights = (directions @ normals.T)[triangles]
    assert not ((heights.max(axis=1) > 1e-9) & (heights.min(axis=1) < -1e-9)).any()
    points = rng.standard_normal((200, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    weights = np.linalg.solve(np.swapaxes(directions[triangles], 1, 2)[None], points[:, None, :, None])[..., 0]
    inside = weights.min(axis=2) >= -1e-9
    assert inside.any(axis=1).all()
    assert weights.sum(axis=2)[inside].max() <= 1.0 / math.sqrt(1.0 - 0.4**2 / 3.0)


@pytest.mark.parametrize("seed", range(4))
def test_the_dictionary_of_rank_three_holds_every_neuron(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((6, 3)) @ np.linalg.qr(rng.standard_normal((5, 5)))[0][:3]
    atoms = Dictionary.of(torch.from_numpy(X), 0.3)
    w = rng.standard_normal((5, 3000))
    S = relu(X @ (w / np.linalg.norm(w, axis=0)))
    for c in rng.standard_normal((20, 6)):
        steep = (c @ atoms.values + np.abs(c) @ atoms.missed).max()
        most = max(steep, 0.0) * atoms.secant + atoms.neglected * np.abs(c).sum()
        assert (c @ S).max() <= most * (1.0 + 1e-12)


# -- attacks ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(12))
def test_no_bound_is_above_a_random_network(seed: int) -> None:
    problem, weights, cost = instance_and_network(seed, 6, 3, 2)
    if float(problem.Y.abs().max()) > 1e-3:
        assert 0.0 <= proof(problem, weights).lower <= cost * (1.0 + 1e-9)


def test_units_do_not_matter() -> None:
    problem, weights, cost = instance_and_network(1, 6, 3, 2)
    plain = proof(problem, weights, 30).lower
    for size in (1e-60, 1e-3, 1e60):
        scaled = make_problem(problem.X * size, problem.Y * size, depth=3, bias=problem.beta * size)
        assert proof(scaled, weights, 30).lower == pytest.approx(plain, rel=2e-2)
    assert plain <= cost


def test_the_bound_at_any_scale_is_the_least_of_a_grid() -> None:
    rng = np.random.default_rng(0)
    for seed in (1, 2, 3):
        problem, _, _ = instance_and_network(seed, 6, 3, 2)
        instance = Instance.of(problem, 0.1)
        L = instance.targets + 0.3 * rng.standard_normal(instance.targets.shape)
        points = [Multipliers(L, 1.0, 0.5), Multipliers(2.0 * L, 3.0, 2.5)]
        lower, _ = instance.proved_at_any_scale(points)
        at = np.geomspace(1e-5, 1e5, 601)
        grid = min(max(instance.proved(*point, (s, s * (1.0 + 1e-9))) for point in points) for s in at)
        assert 0.99 * grid <= lower <= grid * (1.0 + 1e-9)


# -- files ------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def proved() -> tuple[Problem, PathNorm, float]:
    problem, weights, cost = instance_and_network(13, 6, 3, 2)
    return problem, proof(problem, weights), cost


def test_a_changed_proof_proves_no_more_than_a_network_costs(proved: tuple[Problem, PathNorm, float]) -> None:
    problem, given, cost = proved
    rng = np.random.default_rng(0)
    for _ in range(25):
        changed = replace(
            given,
            step=float(rng.choice([given.step, 0.3, 1.0])),
            multipliers=given.multipliers * rng.uniform(0.5, 2.0) + 0.1 * rng.standard_normal(given.multipliers.shape),
            bias_prices=given.bias_prices * 10.0 ** rng.uniform(-2, 2),
            prices=given.prices * np.float32(rng.uniform(-2.0, 2.0)),
        )
        assert changed.bound(problem) <= cost * (1.0 + 1e-9)


def test_arrays_that_are_no_trees_are_refused(proved: tuple[Problem, PathNorm, float]) -> None:
    problem, given, _ = proved
    forged = [
        replace(given, cuts=given.cuts[:-1]),
        replace(given, cuts=np.append(given.cuts, LEAF)),
        replace(given, cuts=np.where(given.cuts == LEAF, 0, given.cuts)),
        replace(given, cuts=given.cuts - 1),
        replace(given, prices=given.prices[:-1]),
        replace(given, multipliers=given.multipliers[:, :-1]),
        replace(given, bias_prices=-given.bias_prices),
        replace(given, bias_prices=given.bias_prices[:0], multipliers=given.multipliers[:0]),
        replace(given, step=0.0),
        replace(given, directions=1e9) if problem.Y.shape[1] == 2 else replace(given, step=2.0),
    ]
    for proof_ in forged:
        with pytest.raises(ProblemError, match="paths"):
            proof_.bound(problem)


def test_a_leaf_that_decides_nothing_counts_every_neuron() -> None:
    body = Body(Dictionary.of(torch.eye(2, dtype=torch.float64), 0.1), 0.0, 1.0)
    tree = Tree(np.array([LEAF, LEAF]), np.zeros((2, 2)))
    most, _ = tree.most(body, np.array([[1.0], [-1.0]]), Directions.of(1, 0).vectors)
    assert most == pytest.approx(1.0, rel=1e-2)


# -- as a user --------------------------------------------------------------------------------------------------------
def test_a_solve_proves_and_verifies_it(tmp_path: Path) -> None:
    x = np.linspace(-1.0, 1.0, 10)[:, None]
    result = covopt.solve(x, np.sin(3.0 * x), depth=3, lam=0.05, bias=1.0, time_limit=12.0, gap=0.145, seed=0)
    assert result.certificate == "paths"
    assert result.gap < 0.15
    result.save(tmp_path / "run")
    assert covopt.verify(tmp_path / "run").passed
