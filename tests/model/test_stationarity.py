"""Stationarity layer by layer: what one more neuron changes, and what holds at minima (MATH.md section 5)."""

import pytest
import torch
from hypothesis import assume, given, settings, strategies as st
from instances import Instance, distance_to_kinks, gaussian, instances

import covopt
from covopt.model.problem import Problem
from covopt.model.subgradient import multiplier, residuals
from covopt.model.weights import Weights, evaluate, gradient, inputs_of, preactivations, pulled_back
from covopt.solvers.deep.missing_neuron import add_neuron, find_missing_neuron


def duals(problem: Problem, weights: Weights) -> list[torch.Tensor]:
    """M_1 ... M_L; sigma' at a kink is the slope a."""
    Z = preactivations(problem, weights)
    return pulled_back(problem, weights, Z, problem.multiplier_at(Z[-1]))


def residual_of_stationarity(problem: Problem, weights: Weights) -> list[float]:
    """|W_l - M_l^T Zs_{l-1}|_F / |W_l|_F for l = 1 ... L: zero at weights with a vanishing gradient."""
    found = []
    for layer, (W, M) in enumerate(zip(weights, duals(problem, weights), strict=True), start=1):
        size = float(W.norm())
        off = float((W - M.T @ inputs_of(problem, weights, layer)).norm())
        found.append(off / size if size > 0.0 else off)
    return found


@settings(max_examples=60, deadline=None)
@given(instances(), st.integers(0, 10**6), st.data())
def test_what_one_more_neuron_changes(instance: Instance, seed: int, data: st.DataObject) -> None:
    """2 lam eps (1 - |M_{l+1}^T s|), against differences in eps; below the last hidden layer away from kinks."""
    problem, weights = instance.problem, instance.weights
    layer = data.draw(st.integers(1, problem.depth - 1))
    if layer < problem.depth - 1:
        assume(distance_to_kinks(instance.Z) > 1e-2)
    inputs, M = inputs_of(problem, weights, layer), duals(problem, weights)[layer]
    w = torch.nn.functional.normalize(gaussian(inputs.shape[1], seed=seed), dim=0)
    force = M.T @ problem.activation(inputs @ w)
    assume(float(force.norm()) > 1e-6)
    cost = evaluate(problem, weights).total

    def change(size: float) -> float:
        return evaluate(problem, add_neuron(problem, weights, layer, w, force / force.norm(), size)).total - cost

    step = 1e-6 / (1.0 + float(force.norm()))
    slope = (4.0 * change(step / 2) - change(step)) / step
    expected = 2.0 * problem.lam * (1.0 - float(force.norm()))
    assert slope == pytest.approx(expected, rel=1e-4, abs=1e-5 * (1.0 + abs(cost)))


@settings(max_examples=30, deadline=None)
@given(instances(deficient=False))
def test_the_residual_is_the_gradient(instance: Instance) -> None:
    problem, weights = instance.problem, instance.weights
    pairs = zip(gradient(problem, weights), weights, strict=True)
    exact = [float(g.norm()) / (2.0 * problem.lam * float(W.norm())) for g, W in pairs]
    assert residual_of_stationarity(problem, weights) == pytest.approx(exact)
    assume(distance_to_kinks(instance.Z) > 1e-2)
    assert residuals(problem, weights, duals(problem, weights)[-1]) == pytest.approx(exact)


@pytest.mark.parametrize("seed", [1, 2])
def test_minima_on_kinks_are_stationary(seed: int) -> None:
    """On a line optimal neurons have their cusps at samples: one slope is wrong there, a choice of slopes is right."""
    X, Y = gaussian(9, 1, seed=seed), gaussian(9, 1, seed=seed + 50)
    result = covopt.solve(X, Y, lam=3e-3, gap=1e-8, time_limit=20)
    assert result.certificate == "exact"
    assert max(residuals(result.problem, result.weights, multiplier(result.problem, result.weights))) < 1e-4
    assert max(residual_of_stationarity(result.problem, result.weights)) > 1e-2


@pytest.mark.parametrize("depth", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_minima_are_balanced_and_stationary(depth: int) -> None:
    """[J23a, Prop. 12] layer by layer; and no neuron is missing in the last hidden layer."""
    X, Y = gaussian(5, 2, seed=1), gaussian(5, 1, seed=2)
    result = covopt.solve(
        X, Y, lam=0.05, depth=depth, gap=1e-9, certify="none", time_limit=60, starts=2 if depth > 2 else None
    )
    assert result.status == "converged"
    for W, above in zip(result.weights, result.weights[1:], strict=False):
        assert float(W.square().sum()) == pytest.approx(float(above[:, :-1].square().sum()), rel=1e-6)
        assert W.square().sum(dim=1).numpy() == pytest.approx(above[:, :-1].square().sum(dim=0).numpy(), rel=1e-6)
    Lambda = multiplier(result.problem, result.weights)
    assert max(residuals(result.problem, result.weights, Lambda)) < 1e-2
    last = find_missing_neuron(result.problem, result.weights, depth - 1, Lambda=Lambda)
    assert last.value == pytest.approx(1.0, abs=1e-3)  # the layer's own neurons attain it
