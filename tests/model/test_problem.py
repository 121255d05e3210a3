"""Problems and weights: what is read, what is refused, the dual value; the loss by hand, and its gradient."""

from dataclasses import replace
from fractions import Fraction
from operator import mul
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import assume, given, strategies as st
from instances import Instance, distance_to_kinks, gaussian, instances

import covopt
from covopt.model import weights as face
from covopt.model.problem import Problem, make_problem, with_bias
from covopt.model.weights import Weights, evaluate
from covopt.runtime.errors import ProblemError

X, Y = gaussian(4, 2, seed=0), gaussian(4, 3, seed=1)


def test_reads_numpy_lists_vectors_and_integers() -> None:
    problem = make_problem([[1, 2], [3, 4]], np.array([1, 0]), bias=0)
    assert problem.X.dtype == problem.Y.dtype == torch.float64
    assert problem.X.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert problem.Y.tolist() == [[1.0], [0.0]]
    assert (problem.interpolates, problem.lam, problem.depth, problem.beta, problem.samples) == (True, 1.0, 2, 0.0, 2)


def test_keeps_float32_and_copies() -> None:
    inputs = X.float()
    problem = make_problem(inputs, Y)
    assert problem.X.dtype == problem.Y.dtype == torch.float32
    inputs[0, 0] = 99.0
    assert float(problem.X[0, 0]) != 99.0


def test_large_arrays_share_memory() -> None:
    large = np.zeros((2**21, 2))
    assert make_problem(large, large[:, :1]).X.data_ptr() == large.ctypes.data
    tensor = torch.from_numpy(large)
    assert make_problem(tensor, tensor[:, :1]).X.data_ptr() == tensor.data_ptr()
    large.flags.writeable = False
    assert make_problem(large, large[:, :1]).X.data_ptr() != large.ctypes.data


def test_lam_decides_the_default_loss_and_the_bias_fills_a_column() -> None:
    problem = make_problem(X, Y, bias=0.25)
    assert (problem.loss.name, make_problem(X, Y, lam=0.5).loss.name) == ("interpolate", "mse")
    assert torch.equal(problem.Xt, torch.cat([X, torch.full((4, 1), 0.25, dtype=torch.float64)], dim=1))
    assert torch.equal(with_bias(X, 0.25), problem.Xt)


@given(instances(activations=("relu", "leaky:0.1"), depths=(2,)))
def test_feasible_dual_values_bound_every_network(instance: Instance) -> None:
    # |Lambda^T sigma(Xt w)| <= sum_i |Lambda_i| |Xt_i|, so this scaling is dual feasible without any oracle.
    problem = instance.problem
    Lambda = gaussian(*problem.Y.shape, seed=instance.seed + 50)
    if problem.loss.name == "cross_entropy":
        Lambda = (problem.Y - torch.softmax(Lambda, dim=1)) / (2.0 * problem.lam * problem.samples)
    Lambda = Lambda / max(1.0, float((Lambda.norm(dim=1) * problem.Xt.norm(dim=1)).sum()))
    assert float(problem.dual_value(Lambda)) <= evaluate(problem, instance.weights).total


def test_dual_value_is_attained_where_the_optimum_is_known() -> None:
    # X = I, y scalar >= 0, beta = 0: R = 2 |y|, attained by Lambda = y / |y|; then sigma(w) <= 1 in Lambda for unit w.
    y = torch.tensor([[3.0], [4.0]], dtype=torch.float64)
    problem = make_problem(torch.eye(2, dtype=torch.float64), y, bias=0.0)
    # Networks may miss each target by 4e-10 and cost so much less: 2 * 4e-9 * |Lambda|_1.
    assert float(problem.dual_value(y / 5.0)) == pytest.approx(10.0 - 2.0 * 4e-10 * 1.4, rel=1e-15)


def test_dual_value_of_mse_by_hand() -> None:
    Lambda, lam, beta = gaussian(4, 3, seed=2), 0.3, 0.7
    problem = make_problem(X, Y, lam=lam, bias=beta)
    by_hand = 2 * lam * (Lambda * Y).sum() - 4 * lam**2 * Lambda.square().sum()
    by_hand = by_hand - lam * beta**2 * Lambda.sum(dim=0).square().sum()
    assert float(problem.dual_value(Lambda)) == pytest.approx(float(by_hand), rel=1e-13)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([np.ma.array([1.0, 2.0], mask=[0, 1]), [1.0, 2.0]], "masked"),
        ([[1 + 2j], [2.0]], "complex"),
        (np.array([["2020-01-01"], ["2021-01-01"]], dtype="M8[D]"), "times"),
    ],
)
def test_what_float64_would_leave_out_is_refused(X: object, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        make_problem(X, [1.0, 2.0], lam=1.0)


def test_a_mask_without_masked_entries_and_half_precision_are_read() -> None:
    plain = np.ma.array([[1.0], [2.0]], mask=[[0], [0]])
    for X in (plain, np.array([[1.0], [2.0]], dtype=np.float16), torch.tensor([[1.0], [2.0]], dtype=torch.bfloat16)):
        assert make_problem(X, [1.0, 2.0], lam=1.0).X.tolist() == [[1.0], [2.0]]


def test_predict_takes_a_tensor_with_a_gradient() -> None:
    X, Y = np.arange(6.0)[:, None], np.ones((6, 1))
    result = covopt.solve(X, Y, lam=0.1, max_iterations=1)
    assert np.array_equal(result.predict(torch.tensor(X, requires_grad=True)), result.predict(X))
    assert result.predict(X[:0]).shape == (0, 1)


# ---- weights: the loss by hand, its gradient, and what leaves it unchanged
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


def exact_outputs(problem: Problem, weights: Weights) -> list[list[Fraction]]:
    """F row by row, in fractions."""
    rows, slope = [list(map(Fraction, row)) for row in problem.X.tolist()], Fraction(problem.activation.slope)
    for layer, W in enumerate(weights):
        inputs = [[max(z, slope * z) if layer else z for z in row] + [Fraction(problem.beta)] for row in rows]
        rows = [[sum(map(mul, map(Fraction, w), row), Fraction(0)) for w in W.tolist()] for row in inputs]
    return rows


@given(instances(), st.lists(st.sampled_from([1e-6, 1.0, 1e6]), min_size=4, max_size=4))
def test_outputs_differ_from_exact_ones_by_their_rounding_at_most(instance: Instance, sizes: list[float]) -> None:
    problem, W = instance.problem, instance.weights
    problem = replace(problem, X=problem.X * torch.tensor(sizes[: problem.X.shape[1]], dtype=torch.float64))
    (F, _, rounding), (high, low, less) = (face.outputs_and_rounding(problem, W, long=long) for long in (False, True))
    torch.testing.assert_close(face.outputs(problem, W, problem.X), F, rtol=0.0, atol=2.0 * float(rounding.max()))
    assert bool((less <= 1e-14 * rounding).all())
    for (i, j), exact in np.ndenumerate(np.array(exact_outputs(problem, W))):
        assert abs(Fraction(float(F[i, j])) - exact) <= float(rounding[i, j])
        assert abs(Fraction(float(high[i, j])) + Fraction(float(low[i, j])) - exact) <= float(less[i, j])


@pytest.mark.parametrize(("depth", "allowed"), [(2, 1e-10), (3, 1e-7)])
def test_a_network_fits_where_its_exact_outputs_do(depth: int, allowed: float) -> None:
    """Copies of neurons cancel in the output, and rounding there is about what an exact fit may miss."""
    verdicts = set()
    for seed in range(80):
        X, large = gaussian(1, 2, seed=seed), 2e15 * allowed * gaussian(1, 4, seed=seed + 1)
        W = [gaussian(4, 3 if layer == 1 else 5, seed=seed + 1 + layer) for layer in range(1, depth)]
        W[-1] = W[-1].repeat(2, 1)
        W.append(torch.cat([large + 1.0, -large, torch.ones(1, 1)], dim=1))
        exact = exact_outputs(make_problem(X, X, depth=depth), W)[0][0]
        y = float(exact) * (1.0 + (0.6 + 0.01 * seed) * allowed)
        problem = make_problem(X, [y], depth=depth)
        rounded = float(face.outputs(problem, W, X)) - y
        residuals = float(abs(exact - Fraction(y))), evaluate(problem, W).residual, abs(rounded)
        verdicts.add(tuple(map(problem.allows, residuals)))
    assert verdicts == {(True, True, True), (True, True, False), (False, False, True), (False, False, False)}


@given(instances(), st.randoms(use_true_random=False))
def test_invariant_under_orders_and_under_rotation_of_the_inputs(instance: Instance, random: Random) -> None:
    problem, W, n = instance.problem, list(instance.weights), instance.problem.X.shape[1]
    order = torch.tensor(random.sample(range(problem.samples), problem.samples))
    permuted = replace(problem, X=problem.X[order], Y=problem.Y[order])
    before = float(face.objective(problem, W))
    assert float(face.objective(permuted, W)) == pytest.approx(before, rel=1e-13)
    neurons = torch.tensor(random.sample(range(len(W[0])), len(W[0])))
    W[0] = W[0][neurons]
    W[1] = torch.cat([W[1][:, :-1][:, neurons], W[1][:, -1:]], dim=1)
    assert float(face.objective(problem, W)) == pytest.approx(before, rel=1e-13)
    Q = torch.linalg.qr(gaussian(n, n, seed=random.randrange(10**6))).Q
    rotated = replace(problem, X=problem.X @ Q.T)
    W[0] = torch.cat([W[0][:, :-1] @ Q.T, W[0][:, -1:]], dim=1)
    assert float(face.objective(rotated, W)) == pytest.approx(before, rel=1e-12)


@given(instances(), st.floats(0.1, 10.0))
def test_homogeneous_of_degree_depth_without_bias(instance: Instance, c: float) -> None:
    problem = make_problem(instance.problem.X, instance.problem.Y, depth=instance.problem.depth, bias=0.0)
    W = instance.weights
    networks = W, [c * w for w in W], [c * W[0], *W[1:-1], W[-1] / c]
    F, scaled, moved = (face.outputs(problem, weights, problem.X) for weights in networks)
    torch.testing.assert_close(scaled, c**problem.depth * F, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(moved, F, rtol=1e-11, atol=1e-12)


def test_proposition_19() -> None:
    # MATH.md section 7: X = (1, -1), Y = (1, 1); C is the sum of squares there, N times ours.
    lam = 0.4
    X, Y = torch.tensor([[1.0], [-1.0]], dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64)
    problem = make_problem(X, Y, lam=lam / 2, bias=0.0)
    a = torch.tensor([0.6, (1 - lam - 0.36) ** 0.5], dtype=torch.float64)
    stuck = [torch.stack([a, 0.0 * a], dim=1), torch.cat([a, 0.0 * a[:1]])[None]]
    assert 2 * float(face.objective(problem, stuck)) == pytest.approx(1 + 2 * lam - lam**2, rel=1e-14)
    assert max(float(g.abs().max()) for g in face.gradient(problem, stuck)) < 1e-15
    s = (1 - lam) ** 0.5
    best = [torch.tensor([[s, 0.0], [-s, 0.0]], dtype=torch.float64), torch.tensor([[s, s, 0.0]], dtype=torch.float64)]
    assert 2 * float(face.objective(problem, best)) == pytest.approx(4 * lam - 2 * lam**2, rel=1e-14)
