"""The convex-concave search: monotone, exact where the arrangement is, and stationary at what it returns."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given, strategies as st

from covopt.model.activation import Activation
from covopt.oracles.arrangement import ArrangementOracle
from covopt.oracles.exact import LinearOracle
from covopt.oracles.oracle import oracle_values
from covopt.oracles.search import AscentOptions, ConvexConcaveOracle, distinct


def data(seed: int, N: int, d: int, m: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(*shape, generator=g, dtype=torch.float64) for shape in ((N, d), (N, m), (200, d)))


@given(st.integers(0, 10**6), st.integers(1, 15), st.integers(1, 5), st.sampled_from([0.0, 0.3, -0.4, 1.0]))
def test_values_never_fall_and_are_what_they_say(seed: int, N: int, d: int, slope: float) -> None:
    X, Lambda, starts = data(seed, N, d, 2)
    activation = Activation(slope)
    before = oracle_values(X, activation, Lambda, torch.nn.functional.normalize(starts, dim=1))
    W, h = ConvexConcaveOracle(X, activation, AscentOptions(steps=4, box_steps=7)).ascend(Lambda, starts)
    assert (h >= before).all()
    assert torch.allclose(W.norm(dim=1), torch.ones(200, dtype=torch.float64))
    assert torch.allclose(h, oracle_values(X, activation, Lambda, W), rtol=1e-12)


@pytest.mark.parametrize("slope", [0.0, 0.2, -0.5])
@pytest.mark.parametrize("seed", range(6))
def test_finds_the_exact_maximum_on_the_circle(seed: int, slope: float) -> None:
    X, Lambda, starts = data(seed, 25, 2, 3)
    exact = ArrangementOracle(X, Activation(slope))(Lambda)
    found = ConvexConcaveOracle(X, Activation(slope), AscentOptions(steps=60, box_steps=400))(Lambda, starts)
    assert not found.proved
    assert float(found.values[0]) == pytest.approx(float(exact.values[0]), rel=1e-6)
    assert float(found.values[0]) <= exact.upper_bound


def test_what_it_returns_is_locally_maximal() -> None:
    """No direction right beside is better, kinks included: the exactness that gradient ascent lacks.

    A slope of 1e-3 h along any of the directions would show; a convex kink may be as near as 1e-4.
    """
    X, Lambda, starts = data(3, 30, 6, 3)
    found = ConvexConcaveOracle(X, Activation(), AscentOptions(steps=200, box_steps=600, gain=1e-12))(Lambda, starts)
    g = torch.Generator().manual_seed(0)
    for w, h in zip(found.directions[:10], found.values[:10], strict=True):
        for radius in (1e-5, 1e-6):
            near = w + radius * torch.nn.functional.normalize(torch.randn(400, 6, generator=g, dtype=X.dtype), dim=1)
            near = torch.nn.functional.normalize(near, dim=1)
            assert float(oracle_values(X, Activation(), Lambda, near).max()) <= float(h) * (1.0 + 1e-9)


def test_many_optima_lie_exactly_on_kinks() -> None:
    X, Lambda, starts = data(8, 40, 8, 4)
    found = ConvexConcaveOracle(X, Activation(), AscentOptions(steps=100, box_steps=800, gain=1e-13))(Lambda, starts)
    on_kinks = (X @ found.directions.T).abs() < 1e-7
    assert int(on_kinks.any(dim=0).sum()) > len(found.directions) // 2


def test_linear_activation_is_a_singular_value_problem() -> None:
    X, Lambda, starts = data(5, 12, 4, 3)
    exact = LinearOracle(X)(Lambda)
    found = ConvexConcaveOracle(X, Activation(1.0), AscentOptions(steps=300, gain=0.0))(Lambda, starts)
    assert float(exact.values[0]) == pytest.approx(float(torch.linalg.matrix_norm(Lambda.T @ X, 2)), rel=1e-12)
    assert float(found.values[0]) == pytest.approx(float(exact.values[0]), rel=1e-6)
    assert exact.upper_bound >= float(exact.values[0])


def test_distinct_keeps_the_best_of_each_group_and_nothing_without_value() -> None:
    rows = torch.nn.functional.normalize(
        torch.tensor([[1.0, 0.0], [1.0, 1e-5], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64), dim=1
    )
    assert distinct(rows, torch.tensor([1.0, 2.0, 3.0, 0.0], dtype=torch.float64), 1e-6).tolist() == [2, 1]
    assert len(distinct(torch.eye(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64), 1e-6)) == 0


def test_zero_data_and_zero_dual_points_have_no_answer() -> None:
    X, Lambda, starts = data(1, 5, 3, 2)
    assert len(ConvexConcaveOracle(torch.zeros_like(X), Activation())(Lambda, starts).values) == 0
    assert len(ConvexConcaveOracle(X, Activation())(torch.zeros_like(Lambda), starts).values) == 0


def test_the_bound_of_a_linear_network_holds_for_the_exact_product() -> None:
    """(1 + 2^-30)^2 is rounded down."""
    one = torch.tensor([[1.0 + 2.0**-30]], dtype=torch.float64)
    assert Fraction(LinearOracle(one)(one).upper_bound) >= Fraction(1.0 + 2.0**-30) ** 2
