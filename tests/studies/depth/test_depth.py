"""Large depths: identity layers, balance, ends first, constants, exact fits that hold kinks, and `solve` itself."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from instances import Instance, cases, gaussian, instances
from scipy.optimize import minimize

import covopt
from covopt.model.problem import Problem, make_problem
from covopt.model.units import Units, at_depth
from covopt.model.weights import evaluate, flattened, outputs, preactivations
from covopt.records.record import ignores_inputs
from covopt.runtime.loop import Budget
from covopt.solvers.deep.insertion import deepened, in_balance
from covopt.solvers.deep.pruning import widened
from covopt.solvers.deep.starts import ends_first, from_two_layers
from covopt.solvers.training.simple import simple_networks
from covopt.solvers.training.tangent import _least, exact_fit, lightened, linearised, most_entries, near_kinks, restored
from covopt.solvers.training.trainer import initial

CASES = cases("deep")


def question(name: str, depth: int) -> Problem:
    case = CASES[name]
    X, Y = np.array(case["X"]), np.array(case["Y"])
    return make_problem(X, Y, depth=depth, bias=case["beta"], activation=case["activation"])


def solved(name: str, depth: int, **effort: float | None) -> covopt.Result:
    """The answer after one batch of starts, or as much effort as is asked for; by default no clock ends it."""
    case = CASES[name]
    asked = {"bias": case["beta"], "activation": case["activation"], "certify": "none", "max_iterations": 1}
    return covopt.solve(np.array(case["X"]), np.array(case["Y"]), depth=depth, **asked | {"time_limit": 1e6} | effort)


# -- identity layers and balance ------------------------------------------------------------------------------------
@settings(max_examples=40)
@given(instances(losses=("mse",)), st.integers(1, 4))
def test_deepened_networks_compute_the_same(instance: Instance, more: int) -> None:
    problem, weights = instance.problem, instance.weights
    deep = at_depth(problem, problem.depth + more)
    before = outputs(problem, weights, problem.X)
    for network in deepened(problem, weights, deep):
        assert len(network) == deep.depth
        torch.testing.assert_close(
            outputs(deep, network, deep.X), before, rtol=1e-8, atol=1e-8 * float(before.abs().max() + 1)
        )


@given(st.integers(0, 10**6), st.integers(2, 9), st.booleans())
def test_balance_is_the_minimum_over_the_factors_of_the_layers(seed: int, depth: int, biased: bool) -> None:
    rng = np.random.default_rng(seed)
    sizes = [2, *rng.integers(1, 4, depth - 1), 2]
    weights = [
        torch.from_numpy(rng.standard_normal((n, below + 1)) * 10 ** rng.normal()) for below, n in pairwise(sizes)
    ]
    if not biased:
        weights = [torch.cat([W[:, :-1], torch.zeros(len(W), 1, dtype=W.dtype)], dim=1) for W in weights]
    A, b = ([float(W[:, part].square().sum()) for W in weights] for part in (slice(-1), slice(-1, None)))

    def norm(u: np.ndarray) -> float:
        u = np.concatenate([[0.0], u, [0.0]])
        return float(np.sum(A * np.exp(2 * np.diff(u))) + np.sum(b * np.exp(2 * u[1:])))

    least = minimize(norm, np.zeros(depth - 1), method="BFGS").fun
    balanced = in_balance(weights)
    assert sum(float(W.square().sum()) for W in balanced) <= least * (1 + 1e-6)
    problem = make_problem(gaussian(5, 2, seed=seed), gaussian(5, 2, seed=1), depth=depth)
    before = outputs(problem, weights, problem.X)
    torch.testing.assert_close(
        outputs(problem, balanced, problem.X), before, rtol=1e-9, atol=1e-9 * float(before.abs().max())
    )


@given(st.integers(1, 6), st.integers(2, 7), st.sampled_from([1e-6, 1.0, 1e5]), st.sampled_from([1e-4, 1.0, 1e6]))
def test_a_question_in_units_at_another_depth(other: int, depth: int, s: float, t: float) -> None:
    X, Y = s * gaussian(5, 2, seed=0), t * gaussian(5, 1, seed=1)
    asked = [make_problem(X, Y, lam=0.1, depth=each) for each in (depth, other + 1)]
    one, two = (Units.of(each).problem for each in asked)
    found = at_depth(one, other + 1)
    assert (found.depth, found.beta) == (two.depth, two.beta)
    assert found.taper == pytest.approx(two.taper, rel=1e-12)
    assert found.lam == pytest.approx(two.lam, rel=1e-12)


@pytest.mark.parametrize(("name", "depth"), [("identity-2", 16), ("absolute-value", 9), ("constant-5", 12)])
def test_known_costs_are_there_at_once(name: str, depth: int) -> None:
    assert solved(name, depth).cost == pytest.approx(CASES[name]["exact"][str(depth)], rel=1e-6)


@pytest.mark.parametrize("name", ["five-points", "circle-24"])
def test_the_answer_of_two_layers_bounds_the_cost_at_any_depth(name: str) -> None:
    for depth, most in CASES[name]["at_most"].items():
        if name != "circle-24" and int(depth) > 2 and (name, depth) != ("five-points", "5"):
            problem = question(name, int(depth))
            units = Units.of(problem)
            first = from_two_layers(units.problem, Budget(60.0), 0, (0.5, 60))[0]
            cost = evaluate(problem, units.outward(first))
            assert cost.norm <= most
            assert problem.allows(cost.residual)


# -- constants ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("depth", "least"), [(2, 9.0), (3, 7.415338), (4, 7.213102), (12, 7.213102)])
def test_constants_come_from_the_cheapest_levels(depth: int, least: float) -> None:
    problem = question("constant-5", depth)
    costs = [evaluate(problem, weights) for weights in simple_networks(problem)]
    assert min(cost.norm for cost in costs if cost.residual <= 1e-13) == pytest.approx(least, abs=5e-7)


@pytest.mark.parametrize("beta", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("size", [0.1, 1.0, 30.0])
def test_a_constant_of_two_layers_is_the_cheapest_of_a_grid(size: float, beta: float) -> None:
    problem = make_problem(gaussian(4, 3, seed=0), torch.full((4, 1), size, dtype=torch.float64), bias=beta)
    found = min(evaluate(problem, weights).norm for weights in simple_networks(problem, linear=False))
    z = torch.linspace(0.0, 2.0 * math.sqrt(size * beta), 20_001, dtype=torch.float64).square()
    assert found == pytest.approx(float((z / beta**2 + size**2 / (z + beta**2)).min()), rel=1e-6)


# -- exact fits -----------------------------------------------------------------------------------------------------
def near_a_kink(seed: int) -> tuple[Problem, list[torch.Tensor]]:
    """A network that nearly fits, two of its pre-activations next to a kink."""
    X = gaussian(6, 3, seed=seed)
    exact = [gaussian(7, 4, seed=seed), gaussian(5, 8, seed=seed + 1), gaussian(2, 6, seed=seed + 2)]
    for neuron in (0, 1):
        exact[0][neuron, -1] -= float(X[neuron] @ exact[0][neuron, :-1]) + float(exact[0][neuron, -1])
    problem = make_problem(X, preactivations(make_problem(X, X[:, :2], depth=3), exact)[-1], depth=3)
    return problem, [W + 1e-4 * gaussian(*W.shape, seed=100 + k) for k, W in enumerate(exact)]


def test_the_equations_have_the_derivative_of_autograd() -> None:
    problem, weights = near_a_kink(0)
    kinks = near_kinks(problem, weights, 1e-2)
    assert int(kinks[0].sum()) >= 2

    def values(*layers: torch.Tensor) -> torch.Tensor:
        Z = preactivations(problem, layers)
        held = [z[mask] for z, mask in zip(Z, kinks, strict=False)]
        return torch.cat([Z[-1].flatten(), *held[::-1]])

    J = torch.cat([part.flatten(1) for part in torch.func.jacrev(values, (0, 1, 2))(*weights)], dim=1)
    now, y = linearised(problem, weights, kinks), gaussian(len(J), seed=1)
    torch.testing.assert_close(now.gram(), J @ J.T, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(now.times(weights), J @ flattened(weights), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(flattened(now.transposed_times(y)), J.T @ y, rtol=1e-12, atol=1e-12)
    # Rows of kinks of small neurons are as short as these, and no less exact.
    small = linearised(problem, [1e-9 * weights[0], weights[1], 1e9 * weights[2]], kinks)
    lengths = small.gram().diagonal().sqrt()
    assert float(lengths.min()) < 1e-6 * float(lengths.max())
    r = lengths * y
    assert float(((small.times(_least(small, r)) - r) / lengths).abs().max()) < 1e-9


def test_the_size_of_the_products_is_known_before_they_are_formed() -> None:
    problem, weights = near_a_kink(0)
    half = [torch.arange(z.numel()).view_as(z) % 2 == 0 for z in preactivations(problem, weights)[:-1]]
    now = linearised(problem, weights, half)
    assert most_entries(problem, [7, 5]) == now.gram().numel() + len(now.errors) * 12
    assert most_entries(problem, [10**6, 10**6]) == 0.0  # none of this size are formed


@pytest.mark.parametrize("seed", range(4))
def test_a_fit_is_restored_with_its_kinks_and_gets_lighter(seed: int) -> None:
    problem, weights = near_a_kink(seed)
    fitted, kinks = restored(problem, weights, near_kinks(problem, weights, 1e-2))
    size = float(problem.Y.abs().max())
    assert evaluate(problem, fitted).residual <= 1e-12 * size
    Z = preactivations(problem, fitted)
    assert (
        max(float(z[mask].abs().max()) for z, mask in zip(Z, kinks, strict=False) if bool(mask.any())) <= 1e-12 * size
    )
    lighter = lightened(problem, fitted, kinks)
    assert evaluate(problem, lighter).residual <= 1e-10 * size
    assert evaluate(problem, lighter).norm < evaluate(problem, fitted).norm
    found = exact_fit(problem, weights)
    assert found is not None
    assert evaluate(problem, found).norm <= evaluate(problem, lighter).norm * (1 + 1e-9)


def test_no_exact_fit_is_claimed_where_there_is_none() -> None:
    """The same input twice, with different targets."""
    X, Y = torch.tensor([[1.0], [1.0]]).double(), torch.tensor([[0.0], [1.0]]).double()
    problem = make_problem(X, Y, depth=3)
    assert exact_fit(problem, initial(problem, [3, 3], 0, 1.0)) is None


def test_wider_copies_are_as_wide_as_asked_and_repeat_themselves() -> None:
    weights = initial(question("circle-12", 4), [3, 4, 5], 0, 1.0)
    copies = [widened(weights, [2, 9, 0], 0.1, torch.Generator().manual_seed(7), widest=6) for _ in range(2)]
    assert [len(W) for W in copies[0]] == [5, 6, 5, 2]
    assert all(torch.equal(one, two) for one, two in zip(*copies, strict=True))
    assert torch.equal(copies[0][0][:3], weights[0])


# -- regularised losses at a large depth ------------------------------------------------------------------------------
def teacher(samples: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Six inputs and outputs that depend on each other by two numbers alone."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((samples, 2))
    ways = [np.maximum(z @ rng.standard_normal((2, 12)) + 0.5 * rng.standard_normal(12), 0.0) for _ in range(2)]
    X, Y = (way @ rng.standard_normal((12, 6)) / np.sqrt(12) for way in ways)
    return X, Y - Y.mean(axis=0)


def test_networks_are_built_ends_first() -> None:
    X, Y = teacher()
    problem = make_problem(X, Y, lam=1e-3, depth=9)
    built = ends_first(problem, [1, 2], 16, 0, lambda: False, of_each=True)
    assert {each.rank for each in built} == {1, 2}
    for each in built:
        Z = preactivations(problem, each.weights)
        assert all(np.linalg.matrix_rank(problem.activation(z).numpy(), tol=1e-8) <= each.rank for z in Z[3:-2])
    costs = [evaluate(problem, each.weights).total for each in built]
    assert costs == sorted(costs)


def test_a_large_depth_does_not_end_at_the_zero_network() -> None:
    X, Y = teacher()
    result = covopt.solve(X, Y, lam=1e-3, depth=13, time_limit=3, certify="none")
    assert result.cost < 0.5 * float((Y**2).sum(axis=1).mean())
    assert result.norm > 0.0


def test_depth_50_runs() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((8, 3)), rng.standard_normal((8, 2))
    for lam in (None, 1e-2):
        assert np.isfinite(covopt.solve(X, Y, lam=lam, depth=50, time_limit=0.8, certify="none").cost)


def test_an_answer_that_ignores_its_inputs_says_so() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((8, 3)), rng.standard_normal((8, 2))
    result = covopt.solve(X, Y, lam=0.5, depth=6, time_limit=1e6, max_iterations=1)
    assert 0 in result.widths
    assert result.status != "optimal"
    assert "ignores its inputs" in ignores_inputs(result.summary())
    assert ignores_inputs(result.summary() | {"widths": [3]}) == ""
    assert ignores_inputs(result.summary() | {"status": "optimal"}) == ""
