"""Problems: what is read, what is refused, and the dual value."""

import numpy as np
import pytest
import torch
from hypothesis import given
from instances import Instance, gaussian, instances

import covopt
from covopt.model.problem import make_problem, with_bias
from covopt.model.weights import evaluate
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


def test_lam_decides_the_default_loss() -> None:
    assert make_problem(X, Y).loss.name == "interpolate"
    assert make_problem(X, Y, lam=0.5).loss.name == "mse"


def test_bias_column() -> None:
    problem = make_problem(X, Y, bias=0.25)
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
