"""Weights: the loss by hand, its gradient, and what leaves it unchanged."""

from dataclasses import replace
from random import Random

import pytest
import torch
from hypothesis import assume, given, strategies as st
from instances import Instance, distance_to_kinks, gaussian, instances

from covopt.model import weights as face
from covopt.model.problem import make_problem


@given(instances())
def test_gradient_is_autograd_s(instance: Instance) -> None:
    W = [w.clone().requires_grad_() for w in instance.weights]
    expected = torch.autograd.grad(face.objective(instance.problem, W), W)
    assume(distance_to_kinks(instance.Z) > 0)
    for mine, theirs in zip(face.gradient(instance.problem, instance.weights), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-11)


@given(instances())
def test_evaluate_agrees_with_the_objective(instance: Instance) -> None:
    problem, W = instance.problem, instance.weights
    cost = face.evaluate(problem, W)
    assert cost.total == pytest.approx(float(face.objective(problem, W)), rel=1e-14)
    assert cost.norm == pytest.approx(sum(float((w**2).sum()) for w in W), rel=1e-14)
    assert cost.residual == pytest.approx(float((instance.Z[-1] - problem.Y).abs().max()), rel=1e-14)
    assert cost.total == pytest.approx(cost.fit + problem.lam * cost.norm, rel=1e-14)


@given(instances(depths=(3,), activations=("leaky:0.1",)))
def test_representations_row_by_row(instance: Instance) -> None:
    problem, W = instance.problem, instance.weights
    for i, x in enumerate(problem.X):
        a = x
        for layer, w in enumerate(W):
            z = w[:, :-1] @ a + problem.beta * w[:, -1]
            torch.testing.assert_close(instance.Z[layer][i], z, rtol=1e-12, atol=1e-12)
            a = torch.nn.functional.leaky_relu(z, 0.1)
    torch.testing.assert_close(face.outputs(problem, W, problem.X), instance.Z[-1], rtol=1e-14, atol=1e-14)


@given(instances(), st.randoms(use_true_random=False))
def test_invariant_under_the_order_of_samples_and_neurons(instance: Instance, random: Random) -> None:
    problem, W = instance.problem, list(instance.weights)
    order = torch.tensor(random.sample(range(problem.samples), problem.samples))
    permuted = replace(problem, X=problem.X[order], Y=problem.Y[order])
    before = float(face.objective(problem, W))
    assert float(face.objective(permuted, W)) == pytest.approx(before, rel=1e-13)
    neurons = torch.tensor(random.sample(range(len(W[0])), len(W[0])))
    W[0] = W[0][neurons]
    W[1] = torch.cat([W[1][:, :-1][:, neurons], W[1][:, -1:]], dim=1)
    assert float(face.objective(problem, W)) == pytest.approx(before, rel=1e-13)


@given(instances(), st.integers(0, 10**6))
def test_invariant_under_rotation_of_the_inputs(instance: Instance, seed: int) -> None:
    problem, W = instance.problem, list(instance.weights)
    n = problem.X.shape[1]
    Q = torch.linalg.qr(gaussian(n, n, seed=seed)).Q
    rotated = replace(problem, X=problem.X @ Q.T)
    before = float(face.objective(problem, W))
    W[0] = torch.cat([W[0][:, :-1] @ Q.T, W[0][:, -1:]], dim=1)
    assert float(face.objective(rotated, W)) == pytest.approx(before, rel=1e-12)


@given(instances(), st.floats(0.1, 10.0))
def test_homogeneous_of_degree_depth_without_bias(instance: Instance, c: float) -> None:
    problem = make_problem(instance.problem.X, instance.problem.Y, depth=instance.problem.depth, bias=0.0)
    W = instance.weights
    scaled = face.outputs(problem, [c * w for w in W], problem.X)
    torch.testing.assert_close(scaled, c**problem.depth * face.outputs(problem, W, problem.X), rtol=1e-11, atol=1e-12)
    moved = [c * W[0], *W[1:-1], W[-1] / c]
    torch.testing.assert_close(
        face.outputs(problem, moved, problem.X), face.outputs(problem, W, problem.X), rtol=1e-11, atol=1e-12
    )


def test_proposition_19() -> None:
    # MATH.md section 7: X = (1, -1), Y = (1, 1); C is the sum of squares there, N times ours.
    lam = 0.4
    X, Y = torch.tensor([[1.0], [-1.0]], dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64)
    problem = make_problem(X, Y, lam=lam / 2, bias=0.0)
    a = torch.tensor([0.6, (1 - lam - 0.36) ** 0.5], dtype=torch.float64)
    stuck = [
        torch.stack([a, torch.zeros(2, dtype=torch.float64)], dim=1),
        torch.cat([a, torch.zeros(1, dtype=torch.float64)])[None],
    ]
    assert 2 * float(face.objective(problem, stuck)) == pytest.approx(1 + 2 * lam - lam**2, rel=1e-14)
    assert max(float(g.abs().max()) for g in face.gradient(problem, stuck)) < 1e-15
    s = (1 - lam) ** 0.5
    best = [torch.tensor([[s, 0.0], [-s, 0.0]], dtype=torch.float64), torch.tensor([[s, s, 0.0]], dtype=torch.float64)]
    assert 2 * float(face.objective(problem, best)) == pytest.approx(4 * lam - 2 * lam**2, rel=1e-14)
