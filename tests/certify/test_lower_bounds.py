"""No bound of any kind exceeds the loss of any network, on thousands of small random instances."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from references.relaxed import relaxed_maximum
from torch import Tensor

import covopt
from covopt.certify.cones.branch import branch_and_bound
from covopt.certify.dual import dual_bound
from covopt.certify.proof import Target
from covopt.certify.relaxation.bound import Relaxation
from covopt.certify.relaxation.nodes import BranchOptions
from covopt.certify.spectral import spectral_bound
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import evaluate
from covopt.oracles.exact import exact_oracle
from covopt.runtime.loop import Budget
from covopt.solvers.training.trainer import train

INSTANCES = 2000
NETWORKS = 100
ROUNDING = 1e-9
LOSSES = ("mse", "cross_entropy", "interpolate")
HASTY = BranchOptions(check=5, root_checks=2, node_checks=1)


@dataclasses.dataclass
class Instance:
    """A problem, the lowest cost of the networks that were tried, and the outputs of the best of them."""

    problem: Problem
    cost: float
    outputs: Tensor


def make_instance(seed: int) -> Instance:
    """Data of rank at most 3, random or from a teacher; for `interpolate` the teacher is the network that fits."""
    rng = np.random.default_rng(seed)
    loss = LOSSES[seed % 3]
    N, m, n = (int(rng.integers(1, high + 1)) for high in (6, 3, 6))
    n_0 = 2 if rng.random() < 0.15 else 1
    slope, bias = rng.choice([0.0, 0.0, 0.2, -0.4]), rng.choice([0.0, 0.5, 1.0])
    X, lam = rng.standard_normal((N, n_0)), float(rng.choice([1e-3, 0.03, 0.5]))
    first, second = balanced(rng, NETWORKS, n_0, n, m)
    F = outputs(X, first, second, bias, slope)
    Y = F[0] if loss == "interpolate" or rng.random() < 0.5 else rng.standard_normal((N, m))
    if loss == "cross_entropy":
        Y = np.exp(Y) / np.exp(Y).sum(axis=1, keepdims=True) if rng.random() < 0.3 else np.eye(m)[Y.argmax(axis=1)]
    norm = (first**2).sum(axis=(1, 2)) + (second**2).sum(axis=(1, 2))
    if loss == "interpolate":
        F, cost = F[:1], norm[:1]
    elif loss == "mse":
        cost = ((F - Y) ** 2).sum(axis=(1, 2)) / N + lam * norm
    else:
        top = F.max(axis=2, keepdims=True)
        logs = F - top - np.log(np.exp(F - top).sum(axis=2, keepdims=True))
        cost = -(Y * logs).sum(axis=(1, 2)) / N + lam * norm
    activation = "relu" if slope == 0.0 else f"leaky:{slope}"
    lam_or_none = None if loss == "interpolate" else lam
    problem = make_problem(X, Y, lam=lam_or_none, loss=loss, bias=float(bias), activation=activation)
    best = int(cost.argmin())
    return Instance(problem, float(cost[best]), torch.from_numpy(F[best]))


def balanced(rng: np.random.Generator, count: int, n_0: int, n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Random networks of many sizes, balanced neuron by neuron: the cheapest weights of their functions' neurons."""
    size = 10.0 ** rng.uniform(-1.5, 0.5, (count, 1, 1))
    first, second = rng.standard_normal((count, n, n_0 + 1)), rng.standard_normal((count, m, n + 1))
    lengths = np.linalg.norm(first, axis=2), np.linalg.norm(second[:, :, :-1], axis=1)
    ratio = np.sqrt(lengths[1] / lengths[0])
    first, second[:, :, :-1] = first * ratio[:, :, None], second[:, :, :-1] / ratio[:, None, :]
    return size * first, size * second


def outputs(X: np.ndarray, first: np.ndarray, second: np.ndarray, bias: float, slope: float) -> np.ndarray:
    """F of each network, from the definition."""
    Z = np.einsum("id,knd->kin", np.hstack([X, np.full((len(X), 1), bias)]), first)
    S = np.where(Z > 0, Z, slope * Z)
    return np.einsum("kin,kmn->kim", S, second[:, :, :-1]) + bias * second[:, None, :, -1]


def dual_points(instance: Instance, seed: int) -> list[Tensor]:
    """That of the best network, and a random one."""
    problem = instance.problem
    random = torch.from_numpy(np.random.default_rng(seed).standard_normal(problem.Y.shape))
    if problem.interpolates:
        return [random, problem.Y]
    return [-problem.gradient_at(instance.outputs) / (2.0 * problem.lam), random]


def check(lower: float, cost: float) -> None:
    assert 0.0 <= lower <= cost * (1.0 + ROUNDING)


def test_the_evaluation_agrees_with_the_package() -> None:
    rng = np.random.default_rng(0)
    first, second = balanced(rng, 3, 2, 4, 3)
    X, Y = rng.standard_normal((5, 2)), rng.standard_normal((5, 3))
    F = outputs(X, first, second, 0.5, 0.2)
    problem = make_problem(X, Y, lam=0.1, loss="mse", bias=0.5, activation="leaky:0.2")
    for k in range(3):
        cost = evaluate(problem, [torch.from_numpy(first[k]), torch.from_numpy(second[k])])
        assert cost.fit == pytest.approx(((F[k] - Y) ** 2).sum() / 5, rel=1e-12)
        assert cost.norm == pytest.approx((first[k] ** 2).sum() + (second[k] ** 2).sum(), rel=1e-12)


def test_spectral_and_exact_bounds() -> None:
    """The exact oracle on every instance, the spectral bound on every eighth."""
    useful = 0
    for seed in range(0, INSTANCES, 9):
        instance = make_instance(seed)
        problem = instance.problem
        oracle = exact_oracle(problem.Xt, problem.activation)
        if seed % 8 == 0:
            check(spectral_bound(problem), instance.cost)
        Lambda = dual_points(instance, seed)[seed % 2]
        bound = dual_bound(problem, Lambda, oracle(Lambda, problem.Xt[:0]).upper_bound)
        check(bound.lower, instance.cost)
        useful += bound.lower > 0.05 * instance.cost
    assert useful > INSTANCES / 36


def test_branch_and_bound_and_the_relaxation() -> None:
    """Both cut short on purpose on every twentieth instance, and the relaxation with its own dual point."""
    for seed in range(0, INSTANCES, 20):
        instance = make_instance(seed)
        problem, Lambda = instance.problem, dual_points(instance, seed)[0]
        found = branch_and_bound(problem.Xt, problem.activation, Lambda, target=1.0, time_limit=0.005)
        check(dual_bound(problem, Lambda, found.upper_bound).lower, instance.cost)
        relaxed = relaxed_maximum(problem.Xt, problem.activation, Lambda, max_nodes=3, options=HASTY)
        check(dual_bound(problem, Lambda, relaxed.maximum).lower, instance.cost)
        if seed % 100 == 0:
            check(Relaxation.prove(problem, Target(Lambda, time_limit=0.05)).proof.lower, instance.cost)


@pytest.mark.parametrize("certify", ["fast", "full"])
def test_the_solver_against_training(certify: str) -> None:
    """What `solve` proves is below its own network, below trained ones, and below the random ones."""
    for seed in range(0, 48, 4 if certify == "fast" else 8):
        instance = make_instance(seed)
        problem = instance.problem
        options = {"lam": problem.lam, "loss": problem.loss.name, "bias": problem.beta, "seed": seed}
        options |= {"activation": problem.activation, "certify": certify, "gap": 1e-3, "time_limit": 2.0}
        if problem.interpolates:
            options |= {"lam": None}
        result = covopt.solve(problem.X, problem.Y, **options)
        lower = result.lower or 0.0
        check(lower, min(instance.cost, result.cost if math.isfinite(result.cost) else math.inf))
        if not problem.interpolates:
            for training in train(problem, 8, seeds=2, budget=Budget(0.2)).networks:
                check(lower, training.cost.total)
