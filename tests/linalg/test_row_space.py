"""What the coordinates of the row space cost a proof, against exact arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from covopt.linalg.row_space import RowSpace, neglected


def _exactly_left(X: torch.Tensor, P: torch.Tensor, Q: torch.Tensor) -> Fraction:
    """|X - P Q|_F^2 without rounding."""
    total = Fraction(0)
    for x, p in zip(X.tolist(), P.tolist(), strict=True):
        for column, entry in enumerate(x):
            product = sum((Fraction(a) * Fraction(q[column]) for a, q in zip(p, Q.tolist(), strict=True)), Fraction(0))
            total += (Fraction(entry) - product) ** 2
    return total


@pytest.mark.parametrize("seed", range(40))
def test_both_numbers_are_bounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    N, d, rank = int(rng.integers(1, 9)), int(rng.integers(1, 8)), int(rng.integers(1, 5))
    X = rng.standard_normal((N, rank)) @ rng.standard_normal((rank, d))
    X *= 10.0 ** rng.uniform(-9, 9, (N, 1)) if seed % 3 == 0 else 1.0
    X += 10.0 ** rng.uniform(-17, -3) * rng.standard_normal((N, d))
    space = RowSpace.of(torch.from_numpy(X), least=seed % 3, whole=2 * (seed % 2))
    assert torch.equal(space.X * space.size, torch.from_numpy(X))
    assert _exactly_left(space.X, space.P, space.Q) <= Fraction(space.neglected) ** 2
    gram = [
        [sum(Fraction(a) * Fraction(b) for a, b in zip(p, q, strict=True)) for q in space.Q.tolist()]
        for p in space.Q.tolist()
    ]
    largest = float(np.linalg.norm(np.array([[float(g) for g in row] for row in gram]), 2)) * (1.0 - 1e-15)
    assert math.sqrt(largest) <= space.stretch
    assert len(space.Q) >= max(space.rank, seed % 3)


def test_rows_that_are_dropped_are_paid_for() -> None:
    space = RowSpace.of(torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 1e-13]], dtype=torch.float64))
    P = torch.where(torch.tensor([[False], [True]]), 0.0, space.P)
    assert neglected(space.X, P, space.Q) * space.size >= 1e-13


def test_inputs_of_zero() -> None:
    space = RowSpace.of(torch.zeros(3, 4), least=2)
    assert (space.rank, space.Q.shape, space.neglected) == (0, (2, 4), 0.0)


@pytest.mark.parametrize("scale", [2.0**-498, 2.0**498])
def test_it_is_the_same_at_every_scale(scale: float) -> None:
    X = torch.from_numpy(np.random.default_rng(0).standard_normal((6, 4)))
    plain, scaled = RowSpace.of(X), RowSpace.of(scale * X)
    assert torch.equal(plain.P, scaled.P)
    assert (plain.neglected, plain.stretch) == (scaled.neglected, scaled.stretch)


def test_many_coordinates_are_paid_for() -> None:
    """Beyond 8 coordinates the rounding of Q Q^T grows with their number."""
    space = RowSpace.of(torch.from_numpy(np.random.default_rng(1).standard_normal((60, 40))))
    assert _exactly_left(space.X[:5], space.P[:5], space.Q) <= Fraction(space.neglected) ** 2
    assert float(np.linalg.norm(space.Q.numpy(), 2)) * (1.0 - 1e-13) <= space.stretch <= 1.0 + 1e-10
