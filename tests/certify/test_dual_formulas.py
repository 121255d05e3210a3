"""A dual bound of two layers is the dual value of the point that it returns, rounded down: here with 60 digits.

Numbers are chosen so that float64 alone is on the wrong side half of the time; a missing rounding, like a slip of a few
per cent, shows within a few dozen of them. The formulas are those of MATH.md section 4.
"""

import mpmath
import numpy as np
import pytest
import torch

from covopt.certify.dual import dual_bound
from covopt.model.problem import Problem, make_problem
from covopt.oracles.exact import LinearOracle

LOSSES = ("mse", "interpolate", "cross_entropy", "huber:0.7", "logistic")


def drawn(seed: int, loss: str, samples: int = 6) -> Problem:
    """Random data with random weights and bias."""
    rng = np.random.default_rng(seed)
    m = 1 if loss == "logistic" else 3
    Y = rng.standard_normal((samples, m))
    if loss == "cross_entropy":
        Y = rng.dirichlet(np.ones(m), samples) if seed % 2 else np.eye(m)[rng.integers(0, m, samples)]
    if loss == "logistic":
        Y = np.sign(Y)
    options = {} if loss == "interpolate" else {"lam": float(rng.choice([1e-3, 0.03, 0.4])), "loss": loss}
    if seed % 3 and loss != "interpolate":
        options["sample_weight"] = rng.uniform(0.2, 2.0, samples)
    return make_problem(rng.standard_normal((samples, 2)), Y, bias=float(seed % 3) / 2.0, **options)  # type: ignore[arg-type]


def exact_dual(problem: Problem, point: torch.Tensor) -> mpmath.mpf:
    """D(Lambda), with 60 digits."""
    q, lam, beta = (
        (mpmath.mpf(1) / mpmath.mpf(inverse) for inverse in problem.inverse_shares.tolist()),
        problem.lam,
        problem.beta,
    )
    rows, total = [[mpmath.mpf(x) for x in row] for row in point.tolist()], mpmath.mpf(0)
    for share, row, y in zip(q, rows, problem.Y.tolist(), strict=True):
        G = [-2 * mpmath.mpf(lam) * x / share for x in row]
        total -= share * conjugate(problem, G, [mpmath.mpf(t) for t in y])
    for column in zip(*rows, strict=True):
        total -= mpmath.mpf(lam) * (mpmath.mpf(beta) * sum(column)) ** 2
    if problem.interpolates:
        total -= 2 * mpmath.mpf(problem.allowed_misfit) * sum(abs(x) for row in rows for x in row)
    return total


def conjugate(problem: Problem, G: list, y: list) -> mpmath.mpf:
    """c*(G) of one sample, rounding of p taken for none."""
    linear, square = sum(g * t for g, t in zip(G, y, strict=True)), sum(g * g for g in G)
    name = problem.loss.name
    if name == "mse":
        return linear + square / 4
    if name == "interpolate":
        return linear
    if name.startswith("huber"):
        assert all(abs(g) <= mpmath.mpf(0.7) * (1 + mpmath.mpf(10) ** -15) for g in G)
        return linear + square / 2
    p = [t + g for g, t in zip(G, y, strict=True)] if name == "cross_entropy" else [-y[0] * G[0], 1 + y[0] * G[0]]
    assert all(x > -(mpmath.mpf(10) ** -15) for x in p)
    return sum((x * mpmath.log(x) for x in p if x > 0), mpmath.mpf(0))


@pytest.mark.parametrize("loss", LOSSES)
def test_a_dual_bound_is_the_dual_value_rounded_down(loss: str) -> None:
    """Of the point that it returns; at most 1 / M times the one given, and no multiple of it is worth much more."""
    proved = 0
    with mpmath.workdps(60):
        for seed in range(40):
            problem, rng = drawn(seed, loss), np.random.default_rng(seed)
            Lambda = torch.from_numpy(0.3 * rng.standard_normal(problem.Y.shape) * 10.0 ** rng.uniform(-1, 1))
            Lambda = Lambda + problem.Y.double() * (loss != "cross_entropy")
            if loss == "cross_entropy":
                Lambda = problem.shares[:, None] * (problem.Y - torch.softmax(Lambda, dim=1)) / (2 * problem.lam)
            M = float(rng.choice([0.3, 1.0, 4.0]))
            found = dual_bound(problem, Lambda, M)
            if found.lower == 0.0:
                continue
            value = exact_dual(problem, found.Lambda)
            assert found.lower <= value
            assert found.lower >= value * (1 - 1e-9) - 1e-11
            assert found.scale * M <= found.maximum * (1.0 + 1e-15)
            assert found.maximum <= 1.0
            for part in (0.5, 0.9, 0.99):
                assert exact_dual(problem, part * found.Lambda) <= value * (1 + mpmath.mpf(10) ** -8)
            proved += 1
    assert proved > 12


def test_the_maximum_pays_for_a_point_that_is_moved() -> None:
    """Cross-entropy asks for rows of sum 0: what is moved is bounded by |Delta|_F |Xt|_F, exactly so for one neuron."""
    problem = make_problem([[1.0]], [[1.0, 0.0]], lam=0.5, loss="cross_entropy", bias=0.0)
    Lambda = torch.tensor([[0.05, -0.1]]).double()
    found = dual_bound(problem, Lambda, 0.2)
    assert found.maximum >= found.scale * 0.25 * (1.0 - 1e-12)


def test_weights_and_biases_are_in_the_dual_value() -> None:
    """D at the multipliers of the best constant: the cost of that constant, whatever the weights."""
    X, Y = np.zeros((4, 1)), np.array([[1.0], [2.0], [4.0], [-1.0]])
    weight = np.array([1.0, 2.0, 0.5, 0.5])
    problem = make_problem(X, Y, lam=0.3, loss="mse", bias=0.5, sample_weight=weight)
    q = weight / weight.sum()
    mean = float(q @ Y[:, 0])
    b = 0.5 * mean / (0.25 + 0.3)
    value = float(q @ (Y[:, 0] - 0.5 * b) ** 2) + 0.3 * b * b
    Lambda = torch.from_numpy(q[:, None] * (Y - 0.5 * b) / 0.3)
    maximum = LinearOracle(problem.Xt)(Lambda).upper_bound
    free = dual_bound(problem, Lambda, min(1.0, maximum))
    assert free.lower == pytest.approx(value, rel=1e-12)
