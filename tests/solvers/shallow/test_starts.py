"""Directions that searches and descents begin with."""

import pytest
import torch

import covopt
from covopt.solvers.shallow.starts import Starts


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
    draws = torch.Generator().manual_seed(1)
    X = 4.0 + torch.randn(80, 6, generator=draws, dtype=torch.float64)
    Y = (X - 4.0).abs().sum(dim=1, keepdim=True)
    options = {"lam": 1e-4, "certify": "none", "max_iterations": 1, "time_limit": 60}
    between = [covopt.solve(X, Y, seed=seed, **options).cost for seed in range(3)]
    monkeypatch.setattr(Starts, "between", Starts.anywhere)
    anywhere = [covopt.solve(X, Y, seed=seed, **options).cost for seed in range(3)]
    assert max(between) < min(anywhere)
