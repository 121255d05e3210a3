"""Activations: homogeneity, derivatives, and the names they are read from."""

import pytest
import torch
from hypothesis import given, strategies as st
from instances import ACTIVATIONS, gaussian, slope

from covopt.model.activation import Activation

slopes = st.floats(-0.99, 1.0, allow_nan=False)


@given(slopes, st.integers(0, 10**6), st.floats(0.0, 1e3))
def test_positively_homogeneous(a: float, seed: int, c: float) -> None:
    sigma, z = Activation(a), gaussian(5, 3, seed=seed)
    # Underflow is the only exception.
    torch.testing.assert_close(sigma(c * z), c * sigma(z), rtol=1e-14, atol=1e-300)


@given(slopes, st.integers(0, 10**6))
def test_values_are_the_two_linear_pieces(a: float, seed: int) -> None:
    z = gaussian(20, seed=seed)
    expected = torch.tensor([x if x >= 0 else a * x for x in z.tolist()], dtype=torch.float64)
    assert torch.equal(Activation(a)(z), expected)


@given(slopes, st.integers(0, 10**6))
def test_derivative_against_differences(a: float, seed: int) -> None:
    z = gaussian(6, seed=seed)
    z = z + 0.1 * torch.sign(z)
    sigma = Activation(a)
    for k in range(6):
        direction = torch.eye(6, dtype=torch.float64)[k]
        measured = slope(lambda t, d=direction: sigma(z + t * d).sum())
        assert measured == pytest.approx(float(sigma.derivative(z)[k]), abs=1e-9)


def test_derivative_keeps_double_precision_and_takes_the_slope_at_the_kink() -> None:
    z = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
    assert Activation(0.1).derivative(z).tolist() == [0.1, 0.1, 1.0]
    assert Activation(0.1).derivative(z.float()).dtype == torch.float32


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_names_are_read_back(name: str) -> None:
    assert Activation.parse(name).name == name
    assert Activation.parse(Activation.parse(name)) == Activation.parse(name)


def test_leaky_alone_has_the_usual_slope() -> None:
    assert Activation.parse("leaky") == Activation(0.01)


@pytest.mark.parametrize("slope", [0.0, 0.3, -0.5, 1.0])
def test_pull_back_is_the_product_with_the_derivative(slope: float) -> None:
    z = torch.tensor([-2.0, -0.0, 0.0, 1.5], dtype=torch.float64)
    upstream = torch.tensor([3.0, -1.0, 2.0, 5.0], dtype=torch.float64)
    activation = Activation(slope)
    assert torch.equal(activation.pull_back(upstream.clone(), z), upstream * activation.derivative(z))
