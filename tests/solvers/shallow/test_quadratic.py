"""The non-negative quadratic programme of the master, against SciPy and the optimality conditions."""

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, strategies as st

from covopt.solvers.shallow.quadratic import nonnegative_quadratic


def programme(seed: int, n: int, rank: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    B = torch.randn(rank, n, generator=g, dtype=torch.float64)
    start = torch.relu(torch.randn(n, generator=g, dtype=torch.float64))
    # A gradient in the range of H at the start keeps the programme bounded.
    return B.T @ B, B.T @ torch.randn(rank, generator=g, dtype=torch.float64), start


def value(H: torch.Tensor, g: torch.Tensor, start: torch.Tensor, x: torch.Tensor) -> float:
    move = x - start
    return float(g @ move + 0.5 * move @ (H @ move))


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 12))
def test_optimality_conditions(seed: int, n: int, rank: int) -> None:
    H, g, start = programme(seed, n, rank)
    x = nonnegative_quadratic(H, g, start)
    gradient = g + H @ (x - start)
    scale = float(g.abs().max()) + 1e-12
    assert (x >= 0).all()
    assert (gradient >= -1e-8 * scale).all()
    assert float((x * gradient).abs().sum()) <= 1e-7 * scale * (1.0 + float(x.sum()))


@pytest.mark.parametrize("n", [5, 40, 150])
def test_agrees_with_scipy(n: int) -> None:
    """min |B x - y|^2 / 2 over x >= 0 is SciPy's nnls."""
    rng = np.random.default_rng(n)
    B, y = rng.standard_normal((2 * n, n)), rng.standard_normal(2 * n)
    expected, _ = scipy.optimize.nnls(B, y)
    H, g = torch.tensor(B.T @ B), torch.tensor(-B.T @ y)
    x = nonnegative_quadratic(H, g, torch.zeros(n, dtype=torch.float64))
    best = 0.5 * np.sum((B @ expected - y) ** 2)
    assert 0.5 * np.sum((B @ x.numpy() - y) ** 2) <= best * (1 + 1e-9)


def test_equal_columns_do_not_break_it() -> None:
    H, g, start = programme(3, 6, 4)
    twice = torch.arange(6).repeat(2)
    x = nonnegative_quadratic(H[twice][:, twice], g[twice], start[twice])
    single = nonnegative_quadratic(4.0 * H, 2.0 * g, start)
    assert value(H[twice][:, twice], g[twice], start[twice], x) == pytest.approx(
        value(4.0 * H, 2.0 * g, start, single), rel=1e-8
    )


def test_never_worse_than_the_start() -> None:
    for seed in range(50):
        H, g, start = programme(seed, 30, 8)
        for pivots in (0, 1, 25):
            assert value(H, g, start, nonnegative_quadratic(H, g, start, pivots=pivots)) <= 1e-12
