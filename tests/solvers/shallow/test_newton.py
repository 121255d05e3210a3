"""Newton's method on the outputs of fixed neurons under cross_entropy."""

import cvxpy as cp
import numpy as np
import pytest
import torch

import covopt
from covopt.model.problem import Problem, make_problem
from covopt.solvers.shallow.newton import derivatives, refine


def _instance(seed: int, N: int = 9, n: int = 4, m: int = 3) -> tuple[torch.Tensor, ...]:
    rng = np.random.default_rng(seed)
    Phi = torch.from_numpy(np.maximum(rng.standard_normal((N, n)), 0.0))
    Y = torch.from_numpy(np.eye(m)[rng.integers(0, m, N)])
    return Phi, Y, torch.from_numpy(rng.standard_normal((n, m))), torch.from_numpy(rng.standard_normal(m))


def asked(Phi: torch.Tensor, Y: torch.Tensor, lam: float, beta: float) -> Problem:
    """The question with a weight for each sample."""
    weight = torch.linspace(0.2, 2.0, len(Phi), dtype=torch.float64)
    return make_problem(Phi, Y, lam=lam, loss="cross_entropy", bias=beta, sample_weight=weight)


@pytest.mark.parametrize("beta", [0.0, 0.7])
def test_the_derivatives_are_those_of_the_cost(beta: float) -> None:
    Phi, Y, V, b = _instance(0)
    n, lam = len(V), 0.03
    problem = asked(Phi, Y, lam, beta)
    x = torch.cat([V, b[None]]) if beta else V
    P = torch.cat([Phi, torch.full((len(Phi), 1), beta, dtype=torch.float64)], dim=1) if beta else Phi

    def cost(flat: torch.Tensor) -> torch.Tensor:
        at = flat.reshape(x.shape)
        penalty = 2.0 * at[:n].norm(dim=1).sum() + at[n:].square().sum()
        return problem.loss_at(P @ at) + lam * penalty

    gradient, H = derivatives(problem, P, x, n)
    torch.testing.assert_close(gradient.flatten(), torch.func.grad(cost)(x.flatten()), rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(H, torch.func.hessian(cost)(x.flatten()), rtol=1e-9, atol=1e-12)


def test_it_reaches_the_minimum_of_a_conic_solver() -> None:
    met = 0
    for seed in range(6):
        Phi, Y, V, b = _instance(seed)
        lam, beta = 1e-3, 0.5
        problem = make_problem(Phi, Y, lam=lam, loss="cross_entropy", bias=beta)
        found = refine(problem, Phi, V, b, 0.0, lambda: False)
        F = Phi @ found[0] + beta * found[1]
        penalty = 2.0 * found[0].norm(dim=1).sum() + found[1].square().sum()
        cost = float(problem.loss_at(F) + lam * penalty)
        W, c = cp.Variable(V.shape), cp.Variable((1, V.shape[1]))
        outputs = Phi.numpy() @ W + beta * np.ones((len(Phi), 1)) @ c
        fit = cp.sum(cp.log_sum_exp(outputs, axis=1) - cp.sum(cp.multiply(outputs, Y.numpy()), axis=1)) / len(Phi)
        least = cp.Problem(cp.Minimize(fit + lam * (2 * cp.sum(cp.norm(W, axis=1)) + cp.sum_squares(c)))).solve()
        assert cost >= least * (1.0 - 1e-6)
        # Neurons that the minimum leaves out are the master's to drop: it stops short of v_k = 0.
        met += cost <= least * (1.0 + 1e-6)
    assert met >= 3


def test_it_never_costs_more_and_leaves_large_problems_alone() -> None:
    Phi, Y, V, b = _instance(3)
    problem = asked(Phi, Y, 1e-3, 1.0)
    assert refine(problem, Phi, V, b, 0.0, lambda: True) is None
    assert refine(problem, Phi[:, :0], V[:0], b, 0.0, lambda: False) is None
    wide = torch.rand(9, 200, dtype=torch.float64)
    assert refine(problem, wide, torch.ones(200, 3, dtype=torch.float64), b, 0.0, lambda: False) is None


def test_classes_of_far_curvatures_end_at_the_bound() -> None:
    """Quadratic models alone need hundreds of rounds here: 6 % above the minimum after 40."""
    rng = np.random.default_rng(723)
    X, Y = 1e4 * rng.standard_normal((6, 2)), np.eye(3)[[2, 1, 0, 1, 2, 2]]
    budget = {"max_iterations": 40, "time_limit": 60.0}
    result = covopt.solve(X, Y, lam=1e-4, loss="cross_entropy", bias=1e-3, **budget)
    assert result.status is covopt.Status.OPTIMAL
