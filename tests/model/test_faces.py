"""Weights and representations: equal costs, the way between them, feasibility, gradients."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import assume, given, strategies as st
from instances import Instance, condition, distance_to_kinks, gaussian, instances, slope
from references import hidden_loss
from torch import Tensor

import covopt
from covopt.linalg.psd import RankRule, thin
from covopt.model import weights
from covopt.model.problem import make_problem
from covopt.model.weights import inputs_from, preactivations

TIKHONOV = RankRule(tikhonov=0.2)


def directions(Z: Sequence[Tensor], seed: int) -> list[Tensor]:
    """A random direction for every matrix, of length 1."""
    D = [gaussian(*z.shape, seed=seed + 31 * k) for k, z in enumerate(Z)]
    return [d / d.norm() for d in D]


# ---------------------------------------------------------------------------------------------------- costs
@given(instances())
def test_the_costs_agree_at_weights_of_least_norm(instance: Instance) -> None:
    problem, Z = instance.problem, instance.Z
    assume(condition(problem, Z) < 300.0)
    first = weights.evaluate(problem, hidden_loss.to_weights(problem, Z)).total
    assert float(hidden_loss.objective(problem, Z)) == pytest.approx(first, rel=1e-10)
    assert first <= weights.evaluate(problem, instance.weights).total * (1 + 1e-12)


@given(instances())
def test_round_trips(instance: Instance) -> None:
    problem, Z = instance.problem, instance.Z
    assume(condition(problem, Z) < 300.0)
    W = hidden_loss.to_weights(problem, Z)
    for there, back in zip(Z, preactivations(problem, W), strict=True):
        torch.testing.assert_close(back, there, rtol=1e-10, atol=1e-10 * float(there.abs().max()) + 1e-14)
    for mine, again in zip(W, hidden_loss.to_weights(problem, preactivations(problem, W)), strict=True):
        torch.testing.assert_close(again, mine, rtol=1e-8, atol=1e-8 * float(mine.abs().max()) + 1e-14)


def test_linear_networks_interpolate_geometrically() -> None:
    # MATH.md section 7: R = L sum s^(2/L), attained with Z_l = U S^(l/L).
    U, V = torch.linalg.qr(gaussian(5, 3, seed=0)).Q, torch.linalg.qr(gaussian(3, 3, seed=1)).Q
    s = torch.tensor([3.0, 1.0, 0.2], dtype=torch.float64)
    for depth in (2, 3, 5):
        X = torch.eye(5, dtype=torch.float64)
        problem = make_problem(X, (U * s) @ V.T, depth=depth, bias=0.0, activation="linear")
        Z = [U * s ** (layer / depth) for layer in range(1, depth)] + [problem.Y]
        closed_form = depth * float((s ** (2 / depth)).sum())
        assert float(hidden_loss.objective(problem, Z)) == pytest.approx(closed_form, rel=1e-13)
        pairs = [covopt.covariances_of(z, bias=0.0, activation="linear") for z in Z[:-1]]
        by_K = covopt.loss_of_covariances(problem.X, problem.Y, pairs, Z[-1], bias=0.0, activation="linear")
        assert float(by_K.norm) == pytest.approx(closed_form, rel=1e-11)
        assert weights.evaluate(problem, hidden_loss.to_weights(problem, Z)).norm == pytest.approx(
            closed_form, rel=1e-13
        )


def test_one_hot_targets_on_orthonormal_inputs() -> None:
    # MATH.md section 7: R = 2 sum_c sqrt(m_c), K_1 = Ks_1 = (Y Y^T)^(1/2): neurons 1_class m_c^(-1/4).
    Y = torch.nn.functional.one_hot(torch.tensor([0, 0, 0, 1, 1, 2])).double()
    problem = make_problem(torch.eye(6, dtype=torch.float64), Y, bias=0.0)
    sizes = Y.sum(dim=0)
    Z = Y * sizes**-0.25
    K, Ks = covopt.covariances_of(Z, bias=0.0)
    torch.testing.assert_close(K @ K, Y @ Y.T)
    value = 2 * float(sizes.sqrt().sum())
    by_K = covopt.loss_of_covariances(problem.X, Y, [(K, Ks)], Y, bias=0.0)
    assert float(by_K.norm) == pytest.approx(value, rel=1e-11)
    W = hidden_loss.to_weights(problem, [Z, Y])
    assert weights.evaluate(problem, W).norm == pytest.approx(value, rel=1e-13)
    assert weights.evaluate(problem, W).residual < 1e-14


# ---------------------------------------------------------------------------------------------- feasible set
@given(instances(), st.integers(0, 10**6))
def test_projection(instance: Instance, seed: int) -> None:
    problem = instance.problem
    Z = [gaussian(*z.shape, seed=seed + k) for k, z in enumerate(instance.Z)]
    projected = covopt.project_to_range(Z, problem.X, bias=problem.beta, activation=problem.activation)
    assume(condition(problem, projected) < 300.0)
    # The nearest point of the first layer's range, and of the second's given the first.
    for k, Zs in enumerate(inputs_from(problem, projected)):
        nearest = Zs @ torch.linalg.lstsq(Zs, Z[k], driver="gelsd", rcond=1e-10).solution
        torch.testing.assert_close(projected[k], nearest, rtol=1e-10, atol=1e-10)


def test_what_no_layer_below_reaches_is_projected_away() -> None:
    problem = make_problem(torch.tensor([[1.0], [1.0]], dtype=torch.float64), [[1.0], [1.0]], bias=0.0)
    split = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    same = torch.ones(2, 1, dtype=torch.float64)
    assert float(covopt.project_to_range([split, same], problem.X, bias=0.0)[0].abs().max()) < 1e-15


# -------------------------------------------------------------------------------- gradients, representations
@pytest.mark.parametrize("rule", [RankRule(), TIKHONOV], ids=["pseudo-inverse", "tikhonov"])
@given(instance=instances(deficient=False))
def test_hidden_gradient_against_differences(rule: RankRule, instance: Instance) -> None:
    problem = instance.problem
    # Off the feasible set too: the formula is exact wherever the ranks are locally constant.
    Z = [gaussian(*z.shape, seed=instance.seed + 7 * k) for k, z in enumerate(instance.Z)]
    assume(distance_to_kinks(Z) > 1e-2 and condition(problem, Z) < 30.0)
    assume(rule.tikhonov > 0 or all(int(thin(Zs).rank) == min(Zs.shape) for Zs in inputs_from(problem, Z)))
    gradients = hidden_loss.gradient(problem, Z, rule)
    scale = 1.0 + float(hidden_loss.objective(problem, Z, rule))
    for layer, D in enumerate(directions(Z, instance.seed)):
        measured = slope(
            lambda t, k=layer, d=D: hidden_loss.objective(
                problem, [z + t * d if i == k else z for i, z in enumerate(Z)], rule
            ),
            step=1e-4,
        )
        assert measured == pytest.approx(float((gradients[layer] * D).sum()), rel=1e-6, abs=1e-7 * scale)


def test_forces_sum_to_zero_at_a_minimum() -> None:
    # The optimum of MATH.md section 7 for orthonormal inputs and one-hot targets, with Z_2 = Y fixed.
    Y = torch.nn.functional.one_hot(torch.tensor([0, 0, 1])).double()
    problem = make_problem(torch.eye(3, dtype=torch.float64), Y, bias=0.0)
    Z = [Y * Y.sum(dim=0) ** -0.25, Y]
    assert float((hidden_loss.gradient(problem, Z)[0] * (Z[0] > 0)).abs().max()) < 1e-14
