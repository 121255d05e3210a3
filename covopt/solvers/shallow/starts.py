"""Starts of searches: active atoms, beside them, linear neurons, anywhere, from one seed."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.spread import ALONE, Alone

FEWEST_FIRST = 200  # neurons of a first descent


def first_neurons(problem: Problem) -> int:
    """Return the most neurons of a first descent: from 200 to 700, and within that 8 times the root of N m."""
    return min(700, max(FEWEST_FIRST, round(8.0 * (problem.samples * problem.Y.shape[1]) ** 0.5)))


def turned_to_kinks(
    rows: Float[Tensor, "count r"],
    X: Float[Tensor, "N r"],
    generator: torch.Generator,
    spread: Alone = ALONE,
    part: float = 0.85,
) -> Float[Tensor, "count r"]:
    """Turn directions w towards a kink between two random samples, which is where w^T c = 0.

    c is the mean of the two samples. From there descents end lower, by as much as 0.7 % (measured:
    docs/notes/2026-11-starts.md). `part` is how much of the way they turn; with all of it, samples on some lines would
    get no kinks between them. The rows w and the state of the generator, which draws the pairs, are the same on all
    processes.
    """
    N = spread.samples(len(X))
    # Their sums stand for the means: a direction is turned alike.
    drawn = torch.randint(N, (2, len(rows)), generator=generator, device=X.device)
    place = drawn - int(spread.own(torch.arange(N, device=X.device)[:, None], len(X))[0])
    is_local = (place >= 0) & (place < len(X))
    centres = spread.added((X[place.where(is_local, 0)] * is_local[:, :, None]).sum(dim=0))
    squares = centres.square().sum(dim=1, keepdim=True)
    along = (rows * centres).sum(dim=1, keepdim=True) / squares.where(squares > 0.0, 1.0)
    return rows - part * along * centres


class Starts:
    """Random directions in the coordinates of X (N, r)."""

    fresh = 0.2  # share of the starts that are drawn anywhere; the others are near active atoms
    nearest, farthest = 0.1, 0.8  # distances of the starts from the unit atoms that they are beside

    def __init__(self, X: Float[Tensor, "N r"], seed: int, spread: Alone = ALONE) -> None:
        self._X, self._spread = X, spread
        self.generator = torch.Generator(device=X.device).manual_seed(seed)

    def anywhere(self, count: int, dimensions: int | None = None) -> Float[Tensor, "count k"]:
        """Draw normal rows, by default in r dimensions."""
        X, k = self._X, dimensions or self._X.shape[1]
        return torch.randn(count, k, generator=self.generator, dtype=X.dtype, device=X.device)

    def between(self, count: int) -> Float[Tensor, "count r"]:
        """Draw normal rows, turned towards kinks between samples."""
        return turned_to_kinks(self.anywhere(count), self._X, self.generator, self._spread)

    def at_kinks(self, count: int) -> Float[Tensor, "count r"]:
        """Draw normal rows with kinks between samples, also where all samples are far from 0 and near each other."""
        return turned_to_kinks(self.anywhere(count), self._X, self.generator, self._spread, part=1.0)

    def near(self, directions: Float[Tensor, "n r"], count: int) -> Float[Tensor, "count r"]:
        """Draw unit directions beside these, at distances from 0.01 to 0.5, half of them below 0.07."""
        place = torch.randint(len(directions), (count,), generator=self.generator, device=directions.device)
        random = torch.rand(count, 1, generator=self.generator, dtype=directions.dtype, device=directions.device)
        away = torch.nn.functional.normalize(self.anywhere(count), dim=1)
        return torch.nn.functional.normalize(directions[place] + 0.01 * 50.0**random * away, dim=1)

    def around(
        self, directions: Float[Tensor, "n r"], Lambda: Float[Tensor, "N m"], count: int
    ) -> Float[Tensor, "S r"]:
        """Return the active atoms, directions near them, those of linear neurons, and random ones."""
        X = self._X
        fresh = self.anywhere(max(1, int(self.fresh * count)))
        outputs = self.anywhere(max(1, len(fresh) // 2), Lambda.shape[1])
        linear = self._spread.sum(lambda Lambda, X: outputs @ Lambda.T @ X, Lambda, X)
        beside = max(0, count - len(fresh) - len(linear))
        if not len(directions):
            return torch.cat([self.anywhere(beside), fresh, linear])
        place = torch.randint(len(directions), (beside,), generator=self.generator, device=X.device)
        distance = self.nearest + (self.farthest - self.nearest) * torch.rand(
            beside, 1, generator=self.generator, dtype=X.dtype, device=X.device
        )
        away = torch.nn.functional.normalize(self.anywhere(beside), dim=1)
        return torch.cat([directions, directions[place] + distance * away, fresh, linear])
