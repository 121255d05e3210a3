"""The master, its starts, and Newton's method, against a conic solver, finite differences and optimality conditions."""

import cvxpy as cp
import numpy as np
import pytest
import torch
from instances import never

import covopt
from covopt.model.problem import Problem, make_problem
from covopt.solvers.shallow.datafits import ConvexDatafit, ExactDatafit, LeastSquaresDatafit, mixture_outputs
from covopt.solvers.shallow.master import Master
from covopt.solvers.shallow.newton import derivatives, refine
from covopt.solvers.shallow.starts import Starts


def instance(seed: int, N: int = 12, n: int = 30, m: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    Phi = torch.relu(torch.randn(N, n, generator=g, dtype=torch.float64))
    return Phi, torch.randn(N, m, generator=g, dtype=torch.float64)


def group_lasso(Phi: torch.Tensor, Y: torch.Tensor, beta: float, lam: float, loss: str) -> float:
    """The minimum over V and b by a conic solver; for `interpolate` that of the penalty."""
    V, b = cp.Variable((Phi.shape[1], Y.shape[1])), cp.Variable((1, Y.shape[1]))
    F = Phi.numpy() @ V + beta * np.ones((len(Phi), 1)) @ b
    fit = {
        "mse": cp.sum_squares(F - Y.numpy()),
        "cross_entropy": cp.sum(cp.log_sum_exp(F, axis=1) - cp.sum(cp.multiply(Y.numpy(), F), axis=1)),
        "interpolate": 0.0,
    }[loss]
    norm = 2 * cp.sum(cp.norm(V, 2, axis=1)) + cp.sum_squares(b)
    task = cp.Problem(cp.Minimize(fit / len(Phi) + lam * norm), [F - Y.numpy() == 0.0] if loss == "interpolate" else [])
    task.solve(solver="CLARABEL", tol_gap_rel=1e-10, tol_gap_abs=1e-10, tol_feas=1e-10)
    return float(task.value)


@pytest.mark.parametrize(("seed", "beta", "lam"), [(0, 1.0, 1e-2), (1, 0.0, 1e-3), (2, 0.5, 1e-1)])
def test_mse_agrees_with_a_conic_solver(seed: int, beta: float, lam: float) -> None:
    Phi, Y = instance(seed)
    problem = make_problem(Phi, Y, lam=lam, bias=beta)
    mixture = LeastSquaresDatafit(problem).solve(Phi, torch.zeros(30, dtype=torch.float64), 1e-12, never)
    expected = group_lasso(Phi, Y, beta, lam, "mse")
    assert lam * mixture.value == pytest.approx(expected, rel=1e-7)
    # The same cost from the network itself: the value is no by-product of the coordinates.
    out = mixture_outputs(Phi, mixture.outputs, mixture.bias, beta)
    norm = 2 * mixture.outputs.norm(dim=1).sum() + mixture.bias.square().sum()
    assert float((out - Y).square().sum() / 12 + lam * norm) == pytest.approx(expected, rel=1e-7)


def test_cross_entropy_agrees_with_a_conic_solver() -> None:
    Phi, _ = instance(5)
    Y = torch.eye(3, dtype=torch.float64)[torch.arange(12) % 3]
    problem = make_problem(Phi, Y, lam=1e-2, loss="cross_entropy")
    fit = ConvexDatafit(problem)
    eta = torch.zeros(30, dtype=torch.float64)
    for _ in range(12):
        mixture = fit.solve(Phi, eta, 1e-12, never)
        eta = mixture.eta
    expected = group_lasso(Phi, Y, 1.0, 1e-2, "cross_entropy")
    out = mixture_outputs(Phi, mixture.outputs, mixture.bias, 1.0)
    norm = 2 * mixture.outputs.norm(dim=1).sum() + mixture.bias.square().sum()
    assert float(problem.loss_at(out) + 1e-2 * norm) == pytest.approx(expected, rel=1e-6)


def test_interpolation_agrees_with_a_conic_solver() -> None:
    Phi, Y = instance(7)
    fit = ExactDatafit(make_problem(Phi, Y, bias=1.0))
    eta = torch.zeros(30, dtype=torch.float64)
    for _ in range(40):
        mixture = fit.solve(Phi, eta, 1e-12, never)
        fit.update_multiplier(mixture.Lambda, 1.0)
        eta = mixture.eta
    parts = fit.network(Phi, mixture)
    cost = float(2 * parts[0].norm(dim=1).sum() + parts[1].square().sum())
    assert cost == pytest.approx(group_lasso(Phi, Y, 1.0, 1.0, "interpolate"), rel=1e-6)
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
    q = Phi.T @ torch.linalg.solve(A, T)
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


# ---- directions that searches and descents begin with
def test_kinks_lie_between_the_samples_also_where_their_mean_is_far_from_zero() -> None:
    X = 6.0 + torch.randn(200, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    cut = {}
    for name in ("anywhere", "between"):
        Z = X @ getattr(Starts(X, 0), name)(500).T
        cut[name] = float(((Z.min(dim=0).values < 0.0) & (Z.max(dim=0).values > 0.0)).double().mean())
    assert cut["anywhere"] < 0.5
    assert cut["between"] > 0.9


def test_a_direction_goes_most_of_the_way_to_the_kink_of_one_sample() -> None:
    X = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
    plain, turned = Starts(X, 7).anywhere(50), Starts(X, 7).between(50)
    torch.testing.assert_close(turned @ X.T, (1.0 - 0.85) * (plain @ X.T))
    across = torch.tensor([[4.0, -3.0]], dtype=torch.float64)
    torch.testing.assert_close(turned @ across.T, plain @ across.T)


@pytest.mark.parametrize("size", [0.0, 1e-200, 1e-150, 1.0, 1e150])
@pytest.mark.parametrize("rows", [[[1.0]], [[1.0, 2.0], [1.0, 2.0]], [[1.0, 0.0], [-1.0, 0.0]]])
def test_degenerate_samples_leave_directions(rows: list[list[float]], size: float) -> None:
    turned = Starts(size * torch.tensor(rows, dtype=torch.float64), 0).between(100)
    assert torch.isfinite(turned).all()
    assert (turned.norm(dim=1) > 0.0).all()


def test_the_same_seed_gives_the_same_directions() -> None:
    X = torch.randn(9, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.equal(Starts(X, 3).between(5), Starts(X, 3).between(5))
    assert not torch.equal(Starts(X, 3).between(5), Starts(X, 4).between(5))


def test_a_first_descent_from_there_ends_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs far from zero, whose kinks are all at one end with directions from anywhere."""
    X = 4.0 + torch.randn(80, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    Y = (X - 4.0).abs().sum(dim=1, keepdim=True)
    options = {"lam": 1e-4, "certify": "none", "max_iterations": 1, "time_limit": 60}
    between = [covopt.solve(X, Y, seed=seed, **options).cost for seed in range(2)]
    monkeypatch.setattr(Starts, "between", Starts.anywhere)
    assert max(between) < min([covopt.solve(X, Y, seed=seed, **options).cost for seed in range(2)])


# ---- Newton's method on the outputs of fixed neurons under cross_entropy
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
        least = group_lasso(Phi, Y, beta, lam, "cross_entropy")
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
    X, Y = 1e4 * np.random.default_rng(723).standard_normal((6, 2)), np.eye(3)[[2, 1, 0, 1, 2, 2]]
    budget = {"max_iterations": 40, "time_limit": 60.0}
    assert covopt.solve(X, Y, lam=1e-4, loss="cross_entropy", bias=1e-3, **budget).status is covopt.Status.OPTIMAL
