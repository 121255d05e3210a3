"""Losses and activations: gradients against finite differences, conjugates, homogeneity, and the names they have."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from instances import ACTIVATIONS, gaussian, slope
from scipy.optimize import minimize
from torch import Tensor

from covopt.model.activation import Activation
from covopt.model.loss import LOSSES, CrossEntropy, Interpolation, Loss, MeanSquaredError, parse_loss
from covopt.model.problem import Problem, make_problem

SMOOTH: list[Loss] = [MeanSquaredError(), CrossEntropy()]
seeds = st.integers(0, 10**6)


def targets(loss: Loss, seed: int, soft: bool = True) -> Tensor:
    Y = gaussian(4, 3, seed=seed)
    if loss.name != "cross_entropy":
        return Y
    return torch.softmax(Y, dim=1) if soft else torch.nn.functional.one_hot(Y.argmax(dim=1), 3).double()


def asked(loss: Loss, seed: int, soft: bool = True) -> Problem:
    """A question about four samples of unequal weights, which every C is of."""
    weight = 0.1 + np.random.default_rng(seed).random(4)
    return make_problem(np.ones((4, 1)), targets(loss, seed, soft), lam=1.0, loss=loss, sample_weight=weight)


def dual_point(problem: Problem, seed: int) -> Tensor:
    """A point inside the domain of C*: slopes at other outputs."""
    return problem.gradient_at(gaussian(4, 3, seed=seed))


@pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
@given(seed=seeds)
def test_gradient_against_differences(loss: Loss, seed: int) -> None:
    problem, F, D = asked(loss, seed), gaussian(4, 3, seed=seed + 1), gaussian(4, 3, seed=seed + 2)
    measured = slope(lambda t: problem.loss_at(F + t * D), step=1e-3)
    assert measured == pytest.approx(float((problem.gradient_at(F) * D).sum()), rel=1e-8, abs=1e-9)


@pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
def test_conjugate_is_the_supremum(loss: Loss) -> None:
    problem = asked(loss, 0)
    G = dual_point(problem, 7)

    def negative(f: np.ndarray) -> tuple[float, np.ndarray]:
        F = torch.from_numpy(f.reshape(4, 3))
        return float(problem.loss_at(F) - (G * F).sum()), (problem.gradient_at(F) - G).numpy().ravel()

    found = minimize(negative, np.zeros(12), jac=True, method="BFGS", options={"gtol": 1e-10, "maxiter": 2000})
    assert -found.fun == pytest.approx(float(problem.conjugate_at(G)), rel=1e-9)


@pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
@given(seed=seeds)
def test_fenchel_young(loss: Loss, seed: int) -> None:
    problem, F = asked(loss, seed), gaussian(4, 3, seed=seed + 1)
    G = dual_point(problem, seed + 2)
    assert float(problem.loss_at(F) + problem.conjugate_at(G) - (G * F).sum()) >= -1e-12
    tight = problem.gradient_at(F)
    assert float(problem.loss_at(F) + problem.conjugate_at(tight)) == pytest.approx(float((tight * F).sum()), abs=1e-12)


@given(seed=seeds)
def test_conjugate_of_cross_entropy_at_one_hot_targets(seed: int) -> None:
    problem, F = asked(CrossEntropy(), seed, soft=False), gaussian(4, 3, seed=seed + 1)
    G = problem.gradient_at(F)
    assert float(problem.loss_at(F) + problem.conjugate_at(G) - (G * F).sum()) == pytest.approx(0.0, abs=1e-12)
    assert float(problem.conjugate_at(torch.zeros_like(F))) == 0.0


def test_conjugate_of_cross_entropy_is_infinite_off_the_simplex() -> None:
    loss, Y = CrossEntropy(), torch.eye(3, dtype=torch.float64)
    for entries in ([1e-6, 0.0, 0.0], [1e-6, -1e-6, 0.0]):  # off the sum, negative
        G = torch.tensor([entries, [0.0] * 3, [0.0] * 3], dtype=torch.float64)
        assert loss.conjugates(G, Y).tolist() == [math.inf, 0.0, 0.0]


def test_values_by_hand() -> None:
    F, Y = gaussian(4, 3, seed=0), gaussian(4, 3, seed=1)
    assert float(Interpolation().values(F, Y).sum()) == 0.0
    assert float(Interpolation().conjugates(F, Y).sum()) == pytest.approx(float((F * Y).sum()), rel=1e-15)
    F = torch.tensor([[1.0, 2.0], [0.0, 0.0]], dtype=torch.float64)
    Y = torch.eye(2, dtype=torch.float64)
    assert float(make_problem(F, Y, lam=1.0).loss_at(F)) == pytest.approx((4.0 + 1.0) / 2, rel=1e-15)
    by_hand = (math.log(math.e + math.e**2) - 1.0 + math.log(2.0)) / 2
    assert float(CrossEntropy().values(F, Y).mean()) == pytest.approx(by_hand, rel=1e-14)


def test_names() -> None:
    assert [parse_loss(name).name for name in LOSSES] == list(LOSSES)
    assert list(LOSSES) == ["mse", "cross_entropy", "interpolate", "huber", "logistic"]
    read = [parse_loss(name).name for name in ("huber:1.0", "huber:0.1", "huber:1e3")]
    assert read == ["huber", "huber:0.1", "huber:1000.0"]
    assert parse_loss(LOSSES["mse"]) is LOSSES["mse"]


def exact_conjugate(name: str, G: list[float], Y: list[float]) -> Fraction:
    """Return c*(G) by hand: in fractions, or to 50 digits for p log p + (1 - p) log(1 - p), p = -y G."""
    if name == "logistic":
        with localcontext(prec=50):
            p = -Decimal(Y[0]) * Decimal(G[0])
            return Fraction(p * p.ln() + (1 - p) * (1 - p).ln())
    curvature = {"mse": Fraction(1, 4), "huber": Fraction(1, 2), "interpolate": Fraction(0)}[name]
    pairs = [(Fraction(g), Fraction(y)) for g, y in zip(G, Y, strict=True)]
    return sum((g * y + curvature * g * g for g, y in pairs), Fraction(0))


@pytest.mark.parametrize("name", ["mse", "huber", "interpolate", "logistic"])
def test_conjugates_are_charged_for_their_rounding(name: str) -> None:
    """About half of the float64 values are below the exact ones, which no bound may rest on."""
    loss, generator = LOSSES[name], torch.Generator().manual_seed(0)
    G = torch.rand(50, 1 if name == "logistic" else 3, generator=generator).double() / 3.0
    Y = -torch.ones_like(G) if name == "logistic" else torch.randn(G.shape, generator=generator).double() / 3.0
    computed = zip(G.tolist(), Y.tolist(), loss.conjugates(G, Y).tolist(), strict=True)
    missing = [float(exact_conjugate(name, g, y) - Fraction(value)) for g, y, value in computed]
    assert max(missing) > 0.0
    assert all(short <= paid for short, paid in zip(missing, loss.conjugate_rounding(G, Y).tolist(), strict=True))


# ---- activations: values, derivatives, and the names they are read from
slopes = st.floats(-0.99, 1.0, allow_nan=False)


@given(slopes, st.integers(0, 10**6))
def test_values_are_the_two_linear_pieces(a: float, seed: int) -> None:
    z = gaussian(20, seed=seed)
    expected = torch.tensor([x if x >= 0 else a * x for x in z.tolist()], dtype=torch.float64)
    assert torch.equal(Activation(a)(z), expected)


@given(slopes)
def test_derivative_keeps_double_precision_and_takes_the_slope_at_the_kink(a: float) -> None:
    z = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
    assert Activation(a).derivative(z).tolist() == [a, a, 1.0]
    assert Activation(a).derivative(z.float()).dtype == torch.float32


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_names_are_read_back(name: str) -> None:
    assert Activation.parse(name).name == name
    assert Activation.parse(Activation.parse(name)) == Activation.parse(name)
    assert Activation.parse("leaky") == Activation(0.01)


@pytest.mark.parametrize("slope", [0.0, 0.3, -0.5, 1.0])
def test_pull_back_is_the_product_with_the_derivative(slope: float) -> None:
    z = torch.tensor([-2.0, -0.0, 0.0, 1.5], dtype=torch.float64)
    upstream = torch.tensor([3.0, -1.0, 2.0, 5.0], dtype=torch.float64)
    activation = Activation(slope)
    assert torch.equal(activation.pull_back(upstream.clone(), z), upstream * activation.derivative(z))
