"""`covopt.solve` as a user calls it: certified values, closed forms, invariances, limits and bad input."""

import math
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
import torch
from instances import cases
from sklearn.datasets import load_iris

import covopt
from covopt.model.problem import make_problem
from covopt.model.weights import evaluate
from covopt.runtime.loop import Certificate, Status

CASES = list(cases("shallow_exact").values())


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["name"])
def test_certified_cases(case: dict) -> None:
    result = covopt.solve(
        np.array(case["X"]), np.array(case["Y"]), lam=case["lam"], bias=case["beta"], gap=1e-7, time_limit=60
    )
    assert (result.status, result.certificate) == (Status.OPTIMAL, Certificate.EXACT)
    assert result.cost == pytest.approx(case["upper"], rel=1e-6)
    assert result.cost >= case["lower"] * (1 - 1e-12)
    assert result.lower <= case["upper"] * (1 + 1e-12)
    assert 0 <= result.gap <= 1e-5
    if case["lam"] is None:
        assert result.residual <= 1e-9


def block(N: int) -> np.ndarray:
    """E^T E of the complete bipartite graph."""
    B = np.zeros((N, N))
    B[: N // 2, N // 2 :] = B[N // 2 :, : N // 2] = 1.0
    np.fill_diagonal(B, N / 2)
    return B


def closed_forms() -> list:
    rng = np.random.default_rng(0)
    classes = np.eye(3)[np.repeat(np.arange(3), [2, 3, 4])]
    r, y = np.array([1.0, 2.0, 0.5, 3.0, 1.5]), rng.standard_normal(5)
    rows = np.diag(r) @ np.linalg.qr(rng.standard_normal((5, 5)))[0]
    signed = 2 * (np.linalg.norm(np.maximum(y / r, 0)) + np.linalg.norm(np.maximum(-y / r, 0)))
    X, M = rng.standard_normal((8, 4)), rng.standard_normal((4, 3))
    pair = np.array([[1.0], [-1.0]])
    return [
        ("one-hot classes", np.eye(9), classes, {}, 2 * np.sqrt([2, 3, 4]).sum()),
        ("bipartite 4", np.eye(4), block(4), {}, 16.0),
        ("orthogonal rows", rows, y, {}, signed),
        ("identity, scalar", np.eye(5), np.abs(y), {}, 2 * np.linalg.norm(y)),
        ("linear", X, X @ M, {"activation": "linear"}, 2 * np.linalg.norm(M, "nuc")),
        ("proposition 19", pair, np.ones((2, 1)), {}, 4.0),
        ("proposition 19, lam", pair, np.ones((2, 1)), {"lam": 0.15}, 2 * 0.3 - 0.3**2),
    ]


@pytest.mark.parametrize("case", closed_forms(), ids=lambda c: c[0])
def test_closed_forms(case: tuple) -> None:
    _, X, Y, options, value = case
    result = covopt.solve(X, Y, bias=0.0, gap=1e-9, certify="fast", time_limit=90, **options)
    assert result.cost == pytest.approx(value, rel=1e-8)
    if result.lower is not None:
        assert result.lower <= value * (1 + 1e-12)
    assert (result.certificate == Certificate.NONE) == (result.lower is None)


def gaussian(seed: int, N: int = 12, d: int = 5, m: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((N, d)), rng.standard_normal((N, m))


def solved(X: np.ndarray, Y: np.ndarray, **options: object) -> float:
    how = {"lam": 1e-2, "gap": 1e-4, "certify": "fast", "time_limit": 30} | options
    return covopt.solve(X, Y, **how).cost  # type: ignore[arg-type]


def test_invariances() -> None:
    X, Y = gaussian(1, N=7, d=3)
    cost = solved(X, Y)
    order = np.random.default_rng(2).permutation(7)
    turn = np.linalg.qr(np.random.default_rng(3).standard_normal((3, 3)))[0]
    assert solved(X[order], Y[order]) == pytest.approx(cost, rel=1e-5)
    assert solved(X @ turn, Y) == pytest.approx(cost, rel=1e-5)
    # The mean over the samples does not see each sample written twice.
    assert solved(np.vstack([X, X]), np.vstack([Y, Y])) == pytest.approx(cost, rel=1e-5)


def test_homogeneity_of_the_representation_cost() -> None:
    X, Y = gaussian(4, N=6, m=1)
    cost = solved(X, Y, lam=None, bias=0.0)
    assert solved(X, 3 * Y, lam=None, bias=0.0) == pytest.approx(3 * cost, rel=1e-5)
    assert solved(2 * X, Y, lam=None, bias=0.0) == pytest.approx(cost / 2, rel=1e-5)


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
@pytest.mark.parametrize("activation", ["relu", "leaky:0.1", "leaky:-0.3", "linear"])
def test_proved_bounds_and_random_networks(loss: str, activation: str) -> None:
    """Rank 2: the bound is met, and no random network, nor one trained from it, is below it."""
    rng = np.random.default_rng(6)
    X, Y = rng.standard_normal((15, 1)), np.eye(3)[rng.integers(3, size=15)]
    result = covopt.solve(X, Y, lam=1e-2, loss=loss, activation=activation, gap=1e-6, time_limit=30)
    assert result.status == Status.OPTIMAL
    problem = make_problem(X, Y, lam=1e-2, loss=loss, activation=activation)
    g = torch.Generator().manual_seed(0)
    for scale in (0.01, 0.1, 1.0):
        for _ in range(30):
            noise = [W + scale * torch.randn(W.shape, generator=g, dtype=W.dtype) for W in result.weights]
            assert evaluate(problem, noise).total >= result.lower


def test_cost_is_recomputed_from_the_weights() -> None:
    X, Y = gaussian(8)
    result = covopt.solve(X, Y, lam=1e-2, certify="fast", time_limit=5)
    W1, W2 = (W.numpy() for W in result.weights)
    Zs = np.maximum(np.hstack([X, np.ones((12, 1))]) @ W1.T, 0)
    F = np.hstack([Zs, np.ones((12, 1))]) @ W2.T
    cost = np.sum((F - Y) ** 2) / 12 + 1e-2 * (np.sum(W1**2) + np.sum(W2**2))
    assert result.cost == pytest.approx(cost, rel=1e-12)
    assert np.allclose(result.predict(X), F)
    assert torch.allclose(result.weights[0].norm(dim=1), result.weights[1][:, :-1].norm(dim=0), rtol=1e-9)


def test_without_proof_no_bound() -> None:
    X, Y = gaussian(9)
    result = covopt.solve(X, Y, lam=1e-1, gap=1e-3, certify="none", time_limit=30)
    assert (result.certificate, result.lower, result.gap) == (Certificate.NONE, None, None)
    assert result.status == Status.CONVERGED
    spectral = covopt.solve(X, Y, lam=1e-1, gap=1e-3, certify="fast", time_limit=30)
    assert (spectral.certificate, spectral.status) == (Certificate.SPECTRAL, Status.CONVERGED)
    assert 0 < spectral.lower <= spectral.cost
    assert spectral.dual is None
    plain = covopt.solve(X[:, :1], Y, lam=1e-1, certify="none", gap=1e-3, time_limit=30)
    assert (plain.certificate, plain.lower) == (Certificate.NONE, None)


def test_whole_numbers_of_numpy_are_seeds() -> None:
    X, Y = gaussian(10)
    options = {"lam": 1e-2, "certify": "none", "max_iterations": 1, "time_limit": 60}
    first, second = (covopt.solve(X, Y, seed=seed, **options) for seed in (3, np.uint8(3)))
    assert (second.cost, second.seed) == (first.cost, 3)
    assert type(second.seed) is int


def test_starts_from_an_earlier_run() -> None:
    X, Y = gaussian(11)
    how = {"lam": 1e-2, "gap": 1e-3, "certify": "fast", "time_limit": 60}
    first = covopt.solve(X, Y, **how)
    costs: list[float] = []
    again = covopt.solve(X, Y, **how, init=first, callback=lambda p: costs.append(p.cost))
    assert costs[0] == pytest.approx(first.cost, rel=1e-3)
    assert again.cost <= first.cost * (1 + 1e-9)


@pytest.mark.parametrize("bias", [1.0, 0.5, "free"])
def test_starts_from_a_module(bias: float | str) -> None:
    """The same network as a Result and as a module is the same start."""
    X, Y = gaussian(11)
    how = {"lam": 1e-2, "bias": bias, "certify": "none", "max_iterations": 1, "time_limit": 60}
    first = covopt.solve(X, Y, **how)
    by_module, by_weights = (covopt.solve(X, Y, **how, init=init) for init in (first.to_torch(), first.weights))
    assert by_module.cost <= first.cost * (1 + 1e-9)
    assert by_module.cost == pytest.approx(by_weights.cost, rel=1e-6)
    with pytest.raises(covopt.CovoptError, match="BatchNorm"):
        covopt.solve(X, Y, **how, init=torch.nn.Sequential(first.to_torch(), torch.nn.BatchNorm1d(Y.shape[1])))


def test_time_limit_and_ctrl_c_keep_the_best_network() -> None:
    X, Y = gaussian(12, N=40, d=10)

    def interrupt(line: covopt.runtime.loop.Progress) -> None:
        if line.iteration == 3:
            raise KeyboardInterrupt

    stopped = covopt.solve(X, Y, lam=1e-3, certify="fast", callback=interrupt)
    assert stopped.status == Status.INTERRUPTED
    assert np.isfinite(stopped.cost)
    numbers = [line.iteration for line in stopped.history]
    assert numbers == sorted(numbers)
    assert numbers[-2:] == [3, 4]
    assert stopped.cost <= min(p.cost for p in stopped.history) * (1 + 1e-9)
    limited = covopt.solve(X, Y, lam=1e-4, gap=0.0, certify="fast", time_limit=0.5)
    costs = [line.cost for line in limited.history]
    assert costs[:-1] == sorted(costs[:-1], reverse=True)
    assert limited.status == Status.TIME_LIMIT
    assert np.isfinite(limited.cost)
    assert limited.cost == pytest.approx(min(p.cost for p in limited.history), rel=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_weak_neurons_that_no_merge_reaches_are_dropped(seed: int) -> None:
    """Proposition 14 with the complete bipartite graph on 3 + 3 vertices: 9 neurons, its edges, merged at the end."""
    result = covopt.solve(np.eye(6), block(6), bias=0.0, gap=1e-7, time_limit=60, seed=seed)
    assert (result.widths, result.cost) == ([9], pytest.approx(36.0, rel=1e-7))
    assert result.residual <= 1e-10


def test_reduction_leaves_one_neuron_for_proportional_targets() -> None:
    assert covopt.solve(np.eye(5), np.arange(1.0, 6.0), bias=0.0, gap=1e-9, certify="fast", time_limit=20).widths == [1]


def test_zero_targets_cost_nothing() -> None:
    result = covopt.solve(np.eye(3), np.zeros((3, 2)), lam=0.1)
    assert (result.cost, result.widths) == (0.0, [0])
    assert covopt.solve(np.eye(3), np.zeros((3, 2))).cost == 0.0


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("lam", [None, 0.1])
def test_a_cost_of_zero_needs_no_proof(depth: int, lam: float | None) -> None:
    result = covopt.solve(np.eye(3), np.zeros((3, 2)), lam=lam, depth=depth, certify="none", max_iterations=1000)
    assert (result.cost, result.status) == (0.0, "optimal")
    assert len(result.history) < 5
    assert "optimal: no cost is below 0" in repr(result)


@pytest.mark.parametrize("samples", [3, 4])
def test_points_far_from_zero_are_fitted(samples: int) -> None:
    """Years, say: their kinks are in directions that a search without them does not come near."""
    x = 1000.0 + np.arange(samples)[:, None] / samples
    found = covopt.solve(x, np.random.default_rng(samples).standard_normal((samples, 1)), bias=1.0, time_limit=3)
    assert found.lower is not None
    assert found.lower <= found.cost < math.inf


@pytest.mark.parametrize("seed", [16, 64])
def test_columns_of_very_different_sizes_are_proved_again(seed: int, tmp_path: Path) -> None:
    """Rounding hides up to 1e-8 of such a bound from a second look."""
    rng = np.random.default_rng(seed)
    samples = int(rng.integers(3, 8))
    X = rng.standard_normal((samples, 2)) * [1e6, 1e-6]
    covopt.solve(X, rng.standard_normal((samples, 1)), depth=2, bias=0.0, time_limit=1.5).save(tmp_path / "run")
    assert covopt.verify(tmp_path / "run").passed


def test_an_exact_fit_that_needs_more_neurons_than_the_search_has_atoms() -> None:
    """The best mixture of 400 directions with kinks between flowers, by another solver, costs 67.3."""
    X, kinds = (A[::3] for A in load_iris(return_X_y=True))
    Xt, Y, rng = np.column_stack([X, np.ones(50)]), np.eye(3)[kinds], np.random.default_rng(0)
    pairs, W = rng.integers(50, size=(2, 400)), rng.standard_normal((400, 5))
    between = Xt[pairs[0]] + Xt[pairs[1]]
    W -= ((W * between).sum(axis=1) / (between**2).sum(axis=1))[:, None] * between
    Phi = np.maximum(Xt @ (W / np.linalg.norm(W, axis=1, keepdims=True)).T, 0.0)
    V, b = cp.Variable((400, 3)), cp.Variable((1, 3))
    norm = 2.0 * cp.sum(cp.norm(V, axis=1)) + cp.sum_squares(b)
    least = cp.Problem(cp.Minimize(norm), [Phi @ V + np.ones((50, 1)) @ b == Y]).solve(solver="CLARABEL")
    assert covopt.solve(X, Y, certify="none", time_limit=2.0).cost < 0.8 * least
