"""Losses: gradients against finite differences, conjugates against a numerical supremum and Fenchel-Young."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from instances import gaussian, slope
from scipy.optimize import minimize
from torch import Tensor

from covopt.errors import ProblemError
from covopt.model.loss import LOSSES, CrossEntropy, Interpolation, Loss, MeanSquaredError, parse_loss

SMOOTH: list[Loss] = [MeanSquaredError(), CrossEntropy()]
seeds = st.integers(0, 10**6)


def targets(loss: Loss, seed: int, soft: bool = True) -> Tensor:
    Y = gaussian(4, 3, seed=seed)
    if loss.name != "cross_entropy":
        return Y
    return torch.softmax(Y, dim=1) if soft else torch.nn.functional.one_hot(Y.argmax(dim=1), 3).double()


def dual_point(loss: Loss, Y: Tensor, seed: int) -> Tensor:
    """A point inside the domain of C*."""
    G = gaussian(4, 3, seed=seed)
    return (torch.softmax(G, dim=1) - Y) / len(Y) if loss.name == "cross_entropy" else G


@pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
@given(seed=seeds)
def test_gradient_against_differences(loss: Loss, seed: int) -> None:
    Y, F, D = targets(loss, seed), gaussian(4, 3, seed=seed + 1), gaussian(4, 3, seed=seed + 2)
    measured = slope(lambda t: loss.value(F + t * D, Y), step=1e-3)
    assert measured == pytest.approx(float((loss.gradient(F, Y) * D).sum()), rel=1e-8, abs=1e-9)


@pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
def test_conjugate_is_the_supremum(loss: Loss) -> None:
    Y = targets(loss, 0)
    G = dual_point(loss, Y, 7)

    def negative(f: np.ndarray) -> tuple[float, np.ndarray]:
        F = torch.from_numpy(f.reshape(4, 3))
        value = loss.value(F, Y) - (G * F).sum()
        return float(value), (loss.gradient(F, Y) - G).numpy().ravel()

    found = minimize(negative, np.zeros(12), jac=True, method="BFGS", options={"gtol": 1e-10, "maxiter": 2000})
    assert -found.fun == pytest.approx(float(loss.conjugate(G, Y)), rel=1e-9)


@pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
@given(seed=seeds)
def test_fenchel_young(loss: Loss, seed: int) -> None:
    Y, F = targets(loss, seed), gaussian(4, 3, seed=seed + 1)
    G = dual_point(loss, Y, seed + 2)
    assert float(loss.value(F, Y) + loss.conjugate(G, Y) - (G * F).sum()) >= -1e-12
    tight = loss.gradient(F, Y)
    assert float(loss.value(F, Y) + loss.conjugate(tight, Y)) == pytest.approx(float((tight * F).sum()), abs=1e-12)


@given(seed=seeds)
def test_conjugate_of_cross_entropy_at_one_hot_targets(seed: int) -> None:
    loss = CrossEntropy()
    Y, F = targets(loss, seed, soft=False), gaussian(4, 3, seed=seed + 1)
    G = loss.gradient(F, Y)
    assert float(loss.value(F, Y) + loss.conjugate(G, Y) - (G * F).sum()) == pytest.approx(0.0, abs=1e-12)
    assert float(loss.conjugate(torch.zeros_like(Y), Y)) == 0.0


def test_conjugate_of_cross_entropy_is_infinite_off_the_simplex() -> None:
    loss, Y = CrossEntropy(), torch.eye(3, dtype=torch.float64)
    off_sum, negative = torch.zeros_like(Y), torch.zeros_like(Y)
    off_sum[0, 0] = 1e-6
    negative[0, 0], negative[0, 1] = 1e-6, -1e-6
    assert float(loss.conjugate(off_sum, Y)) == math.inf
    assert float(loss.conjugate(negative, Y)) == math.inf


def test_values_by_hand() -> None:
    F = torch.tensor([[1.0, 2.0], [0.0, 0.0]], dtype=torch.float64)
    Y = torch.eye(2, dtype=torch.float64)
    assert float(MeanSquaredError().value(F, Y)) == pytest.approx((4.0 + 1.0) / 2, rel=1e-15)
    by_hand = (math.log(math.e + math.e**2) - 1.0 + math.log(2.0)) / 2
    assert float(CrossEntropy().value(F, Y)) == pytest.approx(by_hand, rel=1e-14)


def test_interpolation() -> None:
    F, Y = gaussian(4, 3, seed=0), gaussian(4, 3, seed=1)
    assert float(Interpolation().value(F, Y)) == 0.0
    assert float(Interpolation().conjugate(F, Y)) == pytest.approx(float((F * Y).sum()), rel=1e-15)
    with pytest.raises(ProblemError, match="no gradient"):
        Interpolation().gradient(F, Y)


def test_names() -> None:
    assert [parse_loss(name).name for name in LOSSES] == list(LOSSES) == ["mse", "cross_entropy", "interpolate"]
    assert parse_loss(LOSSES["mse"]) is LOSSES["mse"]
    with pytest.raises(ProblemError, match="use one of mse, cross_entropy, interpolate"):
        parse_loss("hinge")
