"""The master in covariance coordinates, against a conic solver, finite differences and optimality conditions."""

import cvxpy as cp
import numpy as np
import pytest
import torch

from covopt.model.problem import make_problem
from covopt.solvers.shallow.datafits import ConvexDatafit, ExactDatafit, LeastSquaresDatafit, mixture_outputs
from covopt.solvers.shallow.master import Master


def instance(seed: int, N: int = 12, n: int = 30, m: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    Phi = torch.relu(torch.randn(N, n, generator=g, dtype=torch.float64))
    return Phi, torch.randn(N, m, generator=g, dtype=torch.float64)


def never() -> bool:
    return False


def group_lasso(Phi: np.ndarray, beta: float, fit: object, lam: float, V: cp.Variable, b: cp.Variable) -> float:
    norm = 2 * cp.sum(cp.norm(V, 2, axis=1)) + cp.sum_squares(b)
    task = cp.Problem(cp.Minimize(fit + lam * norm))
    task.solve(solver="CLARABEL", tol_gap_rel=1e-10, tol_gap_abs=1e-10, tol_feas=1e-10)
    return float(task.value)


@pytest.mark.parametrize(("seed", "beta", "lam"), [(0, 1.0, 1e-2), (1, 0.0, 1e-3), (2, 0.5, 1e-1)])
def test_mse_agrees_with_a_conic_solver(seed: int, beta: float, lam: float) -> None:
    Phi, Y = instance(seed)
    problem = make_problem(Phi, Y, lam=lam, bias=beta)
    mixture = LeastSquaresDatafit(problem).solve(Phi, torch.zeros(30, dtype=torch.float64), 1e-12, never)
    V, b = cp.Variable((30, 3)), cp.Variable((1, 3))
    F = Phi.numpy() @ V + beta * np.ones((12, 1)) @ b
    expected = group_lasso(Phi.numpy(), beta, cp.sum_squares(F - Y.numpy()) / 12, lam, V, b)
    assert lam * mixture.value == pytest.approx(expected, rel=1e-7)
    # The same cost from the network itself: the value is no by-product of the coordinates.
    out = mixture_outputs(Phi, mixture.outputs, mixture.bias, beta)
    norm = 2 * mixture.outputs.norm(dim=1).sum() + mixture.bias.square().sum()
    assert float((out - Y).square().sum() / 12 + lam * norm) == pytest.approx(expected, rel=1e-7)


def test_cross_entropy_agrees_with_a_conic_solver() -> None:
    Phi, _ = instance(5)
    labels = torch.arange(12) % 3
    Y = torch.eye(3, dtype=torch.float64)[labels]
    problem = make_problem(Phi, Y, lam=1e-2, loss="cross_entropy")
    fit = ConvexDatafit(problem)
    eta = torch.zeros(30, dtype=torch.float64)
    for _ in range(12):
        mixture = fit.solve(Phi, eta, 1e-12, never)
        eta = mixture.eta
    V, b = cp.Variable((30, 3)), cp.Variable((1, 3))
    F = Phi.numpy() @ V + np.ones((12, 1)) @ b
    loss = cp.sum(cp.log_sum_exp(F, axis=1) - cp.sum(cp.multiply(Y.numpy(), F), axis=1)) / 12
    expected = group_lasso(Phi.numpy(), 1.0, loss, 1e-2, V, b)
    out = mixture_outputs(Phi, mixture.outputs, mixture.bias, 1.0)
    norm = 2 * mixture.outputs.norm(dim=1).sum() + mixture.bias.square().sum()
    assert float(problem.loss_at(out) + 1e-2 * norm) == pytest.approx(expected, rel=1e-6)


def test_interpolation_agrees_with_a_conic_solver() -> None:
    Phi, Y = instance(7)
    problem = make_problem(Phi, Y, bias=1.0)
    fit = ExactDatafit(problem)
    eta = torch.zeros(30, dtype=torch.float64)
    for _ in range(40):
        mixture = fit.solve(Phi, eta, 1e-12, never)
        fit.update_multiplier(mixture.Lambda, 1.0)
        eta = mixture.eta
    parts = fit.network(Phi, mixture)
    V, b = cp.Variable((30, 3)), cp.Variable((1, 3))
    fits = [Phi.numpy() @ V + np.ones((12, 1)) @ b == Y.numpy()]
    task = cp.Problem(cp.Minimize(2 * cp.sum(cp.norm(V, 2, axis=1)) + cp.sum_squares(b)), fits)
    task.solve(solver="CLARABEL", tol_gap_rel=1e-10, tol_gap_abs=1e-10, tol_feas=1e-10)
    cost = float(2 * parts[0].norm(dim=1).sum() + parts[1].square().sum())
    assert cost == pytest.approx(float(task.value), rel=1e-6)
    residual = mixture_outputs(Phi, parts[0], parts[1], 1.0) - Y
    assert float(residual.abs().max()) <= 1e-10


def covariance_value(
    Phi: torch.Tensor, T: torch.Tensor, mu: torch.Tensor, beta: float, eta: torch.Tensor
) -> torch.Tensor:
    """J as it is written in the paper's second form, dense."""
    A = torch.diag(mu) + beta**2 + (Phi * eta) @ Phi.T
    return (T * torch.linalg.solve(A, T)).sum() + eta.sum()


def test_derivatives_of_the_covariance_form() -> None:
    """dJ/deta = 1 - |Lambda^T phi|^2 and the Hessian of the module's text, against autograd on the dense form."""
    Phi, T = instance(11, N=8, n=5)
    mu = torch.rand(8, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1
    eta = torch.rand(5, generator=torch.Generator().manual_seed(2), dtype=torch.float64).requires_grad_()
    first = torch.autograd.functional.jacobian(lambda e: covariance_value(Phi, T, mu, 0.7, e), eta)
    second = torch.autograd.functional.hessian(lambda e: covariance_value(Phi, T, mu, 0.7, e), eta)
    A = torch.diag(mu) + 0.49 + (Phi * eta.detach()) @ Phi.T
    Lambda = torch.linalg.solve(A, T)
    q = Phi.T @ Lambda
    assert torch.allclose(first, 1.0 - q.square().sum(dim=1), rtol=1e-9)
    assert torch.allclose(second, 2.0 * (Phi.T @ torch.linalg.solve(A, Phi)) * (q @ q.T), rtol=1e-9)


def test_optimality_sparsity_and_the_dual_point() -> None:
    Phi, T = instance(13, N=20, n=200, m=2)
    mu = torch.full((20,), 0.5, dtype=torch.float64)
    mixture = Master(Phi, T, mu, 1.0).solve(torch.zeros(200, dtype=torch.float64), 1e-12, never)
    h = (Phi.T @ mixture.Lambda).norm(dim=1)
    assert float(h.max()) <= 1.0 + 1e-9
    assert torch.allclose(h[mixture.eta > 1e-6], torch.ones(1, dtype=torch.float64), atol=1e-7)
    assert 0 < int((mixture.eta > 0).sum()) <= 40
    assert mixture.value == pytest.approx(float(covariance_value(Phi, T, mu, 1.0, mixture.eta)), rel=1e-10)


def test_a_dictionary_of_one_atom_repeated_and_of_none() -> None:
    Phi, T = instance(17, n=1)
    mu = torch.full((12,), 0.1, dtype=torch.float64)
    once = Master(Phi, T, mu, 0.0).solve(torch.zeros(1, dtype=torch.float64), 1e-12, never)
    many = Master(Phi.repeat(1, 6), T, mu, 0.0).solve(torch.zeros(6, dtype=torch.float64), 1e-12, never)
    none = Master(Phi[:, :0], T, mu, 0.0).solve(torch.zeros(0, dtype=torch.float64), 1e-12, never)
    assert many.value == pytest.approx(once.value, rel=1e-9)
    assert none.value == pytest.approx(float((T.square().sum(dim=1) / mu).sum()), rel=1e-12)
