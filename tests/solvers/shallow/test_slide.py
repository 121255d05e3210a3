"""The descent of all neurons together: the objective that weights have, and the same with its outputs eliminated."""

import itertools

import pytest
import torch
from instances import gaussian, never

from covopt.model.activation import Activation, Smoothed
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import objective
from covopt.solvers.shallow.datafits import make_datafit
from covopt.solvers.shallow.sliding import Eliminated, Joint, Parts, SlideOptions, slide


def small(loss: str = "mse", slope: float = 0.0, bias: float = 1.0) -> Problem:
    X = gaussian(20, 4, seed=4)
    Y = torch.eye(3, dtype=torch.float64)[torch.arange(20) % 3]
    return make_problem(X, Y, lam=1e-3, loss=loss, activation=Activation(slope), bias=bias)


def objectives(problem: Problem) -> list[Joint | Eliminated]:
    fit = make_datafit(problem)
    joint = Joint(problem.Xt, problem.activation, problem.beta, fit.smooth, fit.curvature, 3, torch.float64)
    objective = fit.objective(problem.Xt)
    return [joint] if isinstance(objective, Joint) else [joint, objective]


def cost(problem: Problem, parts: Parts) -> float:
    U, V, b = parts
    return float(objective(problem, [U, torch.cat([V.T, b[:, None]], dim=1)]))


@pytest.mark.parametrize(
    "options",
    [SlideOptions(), SlideOptions(kinks=()), SlideOptions(entries=1), SlideOptions(entries=1, slow=1e-4)],
    ids=["double", "without rounded kinks", "single before double", "single"],
)
@pytest.mark.parametrize(("loss", "slope"), [("mse", 0.0), ("cross_entropy", 0.0), ("mse", 0.2)])
def test_lowers_the_objective_that_weights_have(loss: str, slope: float, options: SlideOptions) -> None:
    problem = small(loss, slope)
    directions = torch.nn.functional.normalize(gaussian(8, 5, seed=1), dim=1)
    outputs, bias = gaussian(8, 3, seed=2), torch.zeros(3, dtype=torch.float64)
    size = outputs.norm(dim=1, keepdim=True).sqrt()
    before = cost(problem, (directions * size, outputs / size, bias))
    for goal in objectives(problem):
        found = list(slide(goal, directions, outputs, bias, never, options))
        costs = [cost(problem, parts) for parts in found]
        assert costs == sorted(costs, reverse=True)
        assert costs[-1] < 0.5 * before
        U, V, b = found[-1]
        assert {U.dtype, V.dtype, b.dtype} == {torch.float64}
        assert torch.allclose(U.norm(dim=1), V.norm(dim=1), rtol=1e-9)


@pytest.mark.parametrize("neurons", [6, 20, 30], ids=["fewer than samples", "as many", "more"])
@pytest.mark.parametrize("bias", [0.0, 1.5])
def test_the_eliminated_outputs_are_the_best_ones(neurons: int, bias: float) -> None:
    """J(U) is the joint objective at its V and b, where the joint gradient in V and b vanishes."""
    joint, eliminated = objectives(small(bias=bias))
    x = gaussian(neurons * 5, seed=7)
    value, gradient = eliminated.value(x)
    at, slope = joint.value(joint.at(*eliminated.parts(x)))
    assert value == pytest.approx(at, rel=1e-10)
    torch.testing.assert_close(slope[: len(x)], gradient, rtol=1e-7, atol=1e-7)
    assert float(slope[len(x) :].abs().max()) <= 1e-8 * float(gradient.abs().max())


@pytest.mark.parametrize("activation", [Activation(), Smoothed(mu=0.3), Smoothed(slope=0.2, mu=0.3)])
def test_gradients_are_those_of_finite_differences(activation: Activation) -> None:
    for goal in objectives(small()):
        goal = type(goal)(**(vars(goal) | {"activation": activation}))
        x = goal.at(gaussian(6, 5, seed=1), gaussian(6, 3, seed=2), gaussian(3, seed=3))
        direction = gaussian(len(x), seed=9)
        step = 1e-6
        difference = (goal.value(x + step * direction)[0] - goal.value(x - step * direction)[0]) / (2.0 * step)
        assert float(goal.value(x)[1] @ direction) == pytest.approx(difference, rel=1e-5)


def test_the_inverse_curvature_is_that_of_finite_differences() -> None:
    """Where they are exact: outputs of one norm, inputs x and -x, of which a neuron answers to one, X^T X diagonal."""
    half = torch.linalg.qr(gaussian(12, 4, seed=4)).Q * torch.tensor([3.0, 2.0, 1.0, 0.1], dtype=torch.float64)
    problem = make_problem(torch.cat([half, -half]), gaussian(24, 3, seed=5), lam=1e-2, bias=0.0)
    joint = objectives(problem)[0]
    V = torch.nn.functional.normalize(gaussian(5, 3, seed=2), dim=1)
    x = joint.at(gaussian(5, 5, seed=1), V, gaussian(3, seed=3))
    steps = 1e-5 * torch.eye(len(x), dtype=torch.float64)
    second = [(joint.value(x + step)[1] - joint.value(x - step)[1]) @ step / (2.0 * step @ step) for step in steps]
    torch.testing.assert_close(0.5 * joint.inverse_curvature(x), torch.stack(second).reciprocal(), rtol=1e-6, atol=0.0)
    eliminated = objectives(problem)[1]
    U, V, _ = eliminated.parts(x[:25])
    at = joint.at(U, (V.square().sum() / len(V)).sqrt() * torch.nn.functional.normalize(V, dim=1), x[40:])
    curvature = eliminated.inverse_curvature(x[:25]).reciprocal() - 1.0
    torch.testing.assert_close(
        curvature, eliminated.curvature_share * (joint.inverse_curvature(at)[:25].reciprocal() - 1.0)
    )


@pytest.mark.parametrize("loss", ["mse", "interpolate", "cross_entropy"])
def test_the_fit_knows_its_curvature(loss: str) -> None:
    """Half of the mean second derivative of S, by finite differences of its gradient."""
    lam = None if loss == "interpolate" else 1e-2
    X, Y = gaussian(8, 4, seed=0), torch.eye(2, dtype=torch.float64).repeat(4, 1)
    fit = make_datafit(make_problem(X, Y, loss=loss, lam=lam))
    F, step = gaussian(8, 2, seed=3), 1e-5
    second = []
    for place in range(F.numel()):
        move = torch.zeros_like(F)
        move.view(-1)[place] = step
        second.append(((fit.smooth(F + move)[1] - fit.smooth(F - move)[1]) * move).sum() / (2.0 * step**2))
    assert fit.curvature(F) == pytest.approx(float(torch.stack(second).mean()) / 2.0, rel=1e-6)


def test_rounding_that_leaves_no_factorisation_is_an_infinite_value() -> None:
    """In float32 a mu far below the rounding of Phi^T Phi: no exception in the middle of a descent."""
    X = torch.ones(9, 2)
    goal = Eliminated(X, Activation(), 0.0, torch.ones(9, 1), 1e-30)
    assert goal.value(torch.full((8,), 1e3))[0] == float("inf")


def test_float32_is_dropped_where_it_does_not_lower_the_value() -> None:
    """At a minimum, rounding can only raise the value: the weights stay."""
    X, Y = torch.eye(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
    problem = make_problem(X, Y, lam=1e-2, bias=0.0)
    size = 1.0 - 3 * 1e-2  # of each neuron's contribution: (1/3) (1 - a)^2 + 2 lam a is least at a = 1 - 3 lam
    none = torch.zeros(3, dtype=torch.float64)
    fit = make_datafit(problem)
    goal = Joint(problem.X, problem.activation, 0.0, fit.smooth, fit.curvature, 3, torch.float64)
    for parts in slide(goal, X, size * Y, none, never, SlideOptions(entries=1, slow=1e-4)):
        assert torch.allclose(parts[0], size**0.5 * X, atol=1e-12)
        assert torch.allclose(parts[1], size**0.5 * Y, atol=1e-12)


def test_kinks_sharpen_where_rounding_is_most_of_the_cost() -> None:
    """Far too round kinks are left after few iterations; without the rule their descent goes on to its minimum."""
    X = gaussian(60, 40, seed=4)
    Y = torch.tanh(X @ gaussian(40, 8, seed=3) / 40**0.5) @ gaussian(8, 1, seed=2)
    problem = make_problem(X, Y, lam=1e-4, bias=0.0)
    goal = make_datafit(problem).objective(problem.Xt)
    directions = torch.nn.functional.normalize(gaussian(60, problem.Xt.shape[1], seed=1), dim=1)
    outputs, none = 0.01 * gaussian(60, 1, seed=5), torch.zeros(1, dtype=torch.float64)

    def cost_after(iterations: int, sharpen: float) -> float:
        count = itertools.count()
        options = SlideOptions(kinks=(3.0, 0.1, 0.01, 1e-3), sharpen=sharpen)
        *_, parts = slide(goal, directions, outputs, none, lambda: next(count) >= iterations, options)
        return cost(problem, parts)

    assert cost_after(200, sharpen=0.1) < 0.7 * cost_after(400, sharpen=0.0)


def test_stops_when_told() -> None:
    goal = objectives(small())[1]
    directions, outputs = torch.nn.functional.normalize(gaussian(4, 5, seed=0), dim=1), gaussian(4, 3, seed=1)
    found = list(slide(goal, directions, outputs, torch.zeros(3, dtype=torch.float64), lambda: True))
    assert len(found) == 1
    assert torch.allclose(torch.nn.functional.normalize(found[0][0], dim=1), directions)
