"""Minima of three layers with one input and without biases: closed forms, attacks by random networks, whole solves."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import covopt
from covopt.certify.deep.one_input import OneInput
from covopt.certify.proof import Target
from covopt.model.problem import make_problem
from covopt.model.weights import evaluate
from tests.certify.test_shares import instance_and_network, relu


def closed_form(A: np.ndarray, B: np.ndarray) -> float:
    """R_3 of F(1) = A and F(-1) = B: 3 G^(2/3), G the least nuclear norm of A / a^(1/2) and B / (1 - a)^(1/2)."""
    if A @ B <= 0.0:
        return 3.0 * float(np.linalg.norm(A) ** (2.0 / 3.0) + np.linalg.norm(B) ** (2.0 / 3.0))
    nuclear = lambda a: np.linalg.svd(np.stack([A / a**0.5, B / (1.0 - a) ** 0.5]), compute_uv=False).sum()  # noqa: E731
    least = minimize_scalar(nuclear, bounds=(1e-6, 1.0 - 1e-6), method="bounded", options={"xatol": 1e-10}).fun
    return 3.0 * float(least) ** (2.0 / 3.0)


@pytest.mark.parametrize("seed", range(8))
def test_the_bound_is_the_minimum_of_an_exact_fit(seed: int) -> None:
    rng, X = np.random.default_rng(seed), np.linspace(-1.0, 1.0, 10)[:, None]
    A, B = rng.standard_normal((2, 1 + seed // 2)) * 10.0 ** rng.uniform(-1.0, 1.0, (2, 1))
    problem = make_problem(X, relu(X) * A + relu(-X) * B, depth=3, bias=0.0)
    value, lower = closed_form(A, B), OneInput.prove(problem, Target()).proof.lower
    assert value * (1.0 - 1e-5) <= lower <= value * (1.0 + 1e-9)


@pytest.mark.parametrize("seed", range(0, 60, 2))
def test_no_bound_is_above_a_random_network(seed: int) -> None:
    """At scales of 1e-15 to 1e15; and the network that is handed over has the minimum."""
    problem, _, cost = instance_and_network(seed, 30, 1, 3)
    s, t = 10.0 ** np.random.default_rng(seed).uniform(-15.0, 15.0, 2)
    factor, exact = float(t / s) ** (2.0 / 3.0), problem.interpolates
    problem = replace(problem, X=s * problem.X, Y=t * problem.Y, lam=1.0 if exact else problem.lam * t * t / factor)
    handed = []
    lower = OneInput.prove(problem, Target(meet=lambda W: handed.append(evaluate(problem, W)) or 0.0)).proof.lower
    assert 0.0 <= lower <= min(cost * (factor if exact else t * t), handed[0].total) * (1.0 + 1e-12)
    assert problem.allows(handed[0].residual)
    assert lower >= handed[0].total * (1.0 - (1e-2 if exact else 2e-7))


@pytest.mark.parametrize(("lam", "noise"), [(None, 0.0), (1e-3, 1.0)])
def test_fifty_samples_of_three_outputs_are_solved(lam: float | None, noise: float) -> None:
    rng = np.random.default_rng(0)
    X, (A, B) = rng.standard_normal((50, 1)), rng.standard_normal((2, 3))
    Y = relu(X) * A + relu(-X) * B + noise * rng.standard_normal((50, 3))
    result = covopt.solve(X, Y, lam=lam, depth=3, bias=0.0, gap=1e-6, time_limit=8.0)
    assert (result.status, result.certificate) == ("optimal", "one-input")


def test_it_proves_nothing_of_other_networks() -> None:
    X = np.linspace(-1.0, 1.0, 5)[:, None]
    for options in (
        {"depth": 4},
        {"bias": 1.0},
        {"activation": "leaky:0.1"},
        {"loss": "huber"},
        {"lam": None, "Y": 0 * X},
    ):
        asked = {"Y": np.abs(X), "depth": 3, "bias": 0.0, "lam": 0.1} | options
        assert OneInput(1.0).bound(make_problem(X, **asked)) == 0.0  # type: ignore[arg-type]
