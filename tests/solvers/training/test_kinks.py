"""Newton's method on kinks: its derivatives, its quadratic programme, and the minima that it reaches."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from instances import Instance, gaussian, instances, never
from scipy.optimize import lsq_linear
from torch import Tensor
from torch.autograd.functional import hessian, jacobian

import covopt
from covopt.model.problem import Problem, make_problem
from covopt.model.subgradient import residuals
from covopt.model.weights import evaluate, flattened, inputs_from, objective, preactivations, shaped_like
from covopt.solvers.training.kinks import NewtonAtKinks, Settled, _Point, bounded_quadratic, suits


def small(loss: str, depth: int, activation: str = "relu") -> tuple[Problem, list[Tensor]]:
    """A problem of 12 samples in three classes, and a network."""
    Y = torch.eye(3, dtype=torch.float64)[torch.arange(12) % 3]
    problem = make_problem(gaussian(12, 3, seed=5), Y, lam=1e-2, loss=loss, depth=depth, activation=activation)
    shapes = problem.shapes([4, 3, 5][: depth - 1])
    return problem, [gaussian(*shape, seed=number) for number, shape in enumerate(shapes)]


@pytest.mark.parametrize(("loss", "activation"), [("mse", "relu"), ("cross_entropy", "leaky:0.2")])
@pytest.mark.parametrize("depth", [2, 3, 4])
def test_away_from_kinks_the_derivatives_are_those_of_the_loss(loss: str, activation: str, depth: int) -> None:
    problem, weights = small(loss, depth, activation)
    point, flat = _Point.of(problem, weights, None), flattened(weights)
    g, H, b = point.derivatives([torch.ones_like(z, dtype=torch.bool) for z in point.Z])

    def cost(x: Tensor) -> Tensor:
        return objective(problem, shaped_like(x, weights))

    def entries(x: Tensor) -> Tensor:
        return torch.cat([z.flatten() for z in preactivations(problem, shaped_like(x, weights))[-2::-1]])

    close = {"rtol": 1e-9, "atol": 1e-12}
    assert torch.allclose(g, jacobian(cost, flat), **close)
    assert torch.allclose(H, hessian(cost, flat), **close)
    assert torch.allclose(b, jacobian(entries, flat), **close)


@pytest.mark.parametrize(("size", "rank"), [(1, 1), (6, 6), (20, 20), (20, 5)])
def test_the_quadratic_programme_is_solved_as_by_scipy(size: int, rank: int) -> None:
    A, target = gaussian(rank, size, seed=size), gaussian(rank, seed=size + 1)
    e = torch.rand(size, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    e[::3] = 0.0
    low, high = -e, 1.0 - e
    x = bounded_quadratic(A.T @ A, A.T @ target, low, high)
    expected = lsq_linear(A.numpy(), target.numpy(), (low.numpy(), high.numpy()), tol=1e-14)
    assert bool(((x >= low) & (x <= high)).all())
    assert float((A @ x - target).square().sum()) / 2.0 == pytest.approx(expected.cost, rel=1e-9, abs=1e-12)
    assert not bounded_quadratic(A.T @ A, torch.zeros(size, dtype=torch.float64), low, high).any()


@pytest.mark.parametrize("loss", ["mse", "huber"])
def test_from_beside_a_proved_minimum_it_returns_to_it(loss: str) -> None:
    """Inputs of two dimensions have an exact oracle, so that the bound is within 1e-9 of the minimum."""
    rng = np.random.default_rng(4)
    X, y = rng.standard_normal((25, 2)), rng.standard_normal((25, 1))
    solved = covopt.solve(X, y, lam=1e-2, bias=0.0, loss=loss, gap=1e-10)
    assert solved.lower is not None
    assert solved.gap < 1e-8
    beside = [A + 1e-3 * gaussian(*A.shape, seed=1) for A in solved.weights]
    settled = NewtonAtKinks().settled(solved.problem, beside, never)
    assert evaluate(solved.problem, beside).total > solved.lower * (1.0 + 1e-6)
    assert settled.cost == pytest.approx(solved.lower, rel=1e-7)
    assert settled.cost == evaluate(solved.problem, settled.weights).total
    on_kinks = preactivations(solved.problem, settled.weights)[0].abs() < 1e-9
    assert int(on_kinks.sum()) >= 2  # where descents slow down
    assert settled.multipliers[1].shape == y.shape
    assert max(residuals(solved.problem, settled.weights, settled.multipliers[1])) < 1e-5


@pytest.mark.parametrize(("loss", "activation"), [("mse", "relu"), ("cross_entropy", "relu"), ("mse", "leaky:0.2")])
@pytest.mark.parametrize("depth", [2, 3, 4])
def test_it_ends_at_stationary_weights_with_neurons_on_kinks(loss: str, activation: str, depth: int) -> None:
    """Clarke's subdifferential contains 0 there: W_l^T = Zs_{l-1}^T M_l with slopes between a and 1 on kinks alone.

    One of five draws has to end so: with four layers every third ends beside neurons that fade, where no step gains."""
    problem = small(loss, depth, activation)[0]

    def stationary(settled: Settled) -> bool:
        inputs = inputs_from(problem, preactivations(problem, settled.weights))
        layers = zip(settled.weights, settled.multipliers, inputs, strict=True)
        return all(float((W - M.T @ Zs).norm()) < 1e-5 * float(W.norm()) for W, M, Zs in layers)

    shapes = problem.shapes([4, 3, 5][: depth - 1])
    draws = ([gaussian(*shape, seed=10 * draw + number) for number, shape in enumerate(shapes)] for draw in range(5))
    settled = next(end for W in draws if stationary(end := NewtonAtKinks(steps=1000).settled(problem, W, never)))
    Z, M, a = preactivations(problem, settled.weights), settled.multipliers, problem.activation.slope
    held = 0
    for layer, z in enumerate(Z[:-1]):
        above = M[layer + 1] @ settled.weights[layer + 1][:, :-1]
        low, high = torch.minimum(a * above, above), torch.maximum(a * above, above)
        on_kink = z.abs() < 1e-7
        assert bool(((M[layer] >= low - 1e-12) & (M[layer] <= high + 1e-12)).all())
        assert torch.allclose(M[layer][~on_kink], (problem.activation.derivative(z) * above)[~on_kink])
        held += int((on_kink & (M[layer] > low + 1e-9) & (M[layer] < high - 1e-9)).sum())
    assert held >= 3


@given(instances())
@settings(max_examples=30, deadline=None)
def test_the_cost_never_rises(instance: Instance) -> None:
    problem, weights = instance.problem, instance.weights
    if suits(problem, weights, 1e7):
        settled = NewtonAtKinks(steps=5).settled(problem, weights, never)
        assert settled.cost <= evaluate(problem, weights).total
        assert settled.cost == evaluate(problem, settled.weights).total


@pytest.mark.parametrize("scale", [1e-60, 1.0, 1e60])
def test_degenerate_networks_are_left_alone_or_lowered(scale: float) -> None:
    """Zero inputs, equal samples, dead neurons, zero weights and far too large ones."""
    problem, weights = small("mse", 3)
    X = torch.stack([torch.zeros(12, dtype=torch.float64), torch.ones(12, dtype=torch.float64)], dim=1)
    flat = make_problem(X, problem.Y, lam=1e-2, depth=3)
    networks = [[scale * gaussian(*shape, seed=1) for shape in flat.shapes([3, 2])]]
    networks += [[torch.zeros_like(W) for W in networks[0]], [networks[0][0], *(0.0 * W for W in networks[0][1:])]]
    for network in networks:
        settled = NewtonAtKinks(steps=5).settled(flat, network, never)
        assert settled.cost <= evaluate(flat, network).total
    assert NewtonAtKinks().settled(problem, weights, lambda: True).weights == weights
    empty = [weights[0][:0], weights[1][:, -1:], weights[2]]
    assert NewtonAtKinks().settled(problem, empty, never).weights == empty


def test_it_suits_penalised_losses_of_little_work() -> None:
    problem, weights = small("mse", 3)
    P = sum(W.numel() for W in weights)
    assert suits(problem, weights, 36 * P**2 + P**3)
    assert not suits(problem, weights, 36 * P**2 + P**3 - 1)
    assert not suits(problem, [weights[0][:0], weights[1][:, -1:], weights[2]], 1e9)
    others = [{"activation": "linear", "lam": 0.1}, {}]
    assert not any(suits(make_problem(problem.X, problem.Y, depth=3, **o), weights, 1e9) for o in others)
