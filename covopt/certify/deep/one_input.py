"""The minimum cost of three layers on one input without biases, from two numbers of a network (MATH.md section 5).

A ReLU network without biases is linear on each side of 0, so its samples are two: x = 1 and x = -1. Let r and t >= 0 be
the second hidden layer there. As no neuron of the first layer is active on both sides, |W_1|^2 + |W_2|^2 is at least
2 |r| + 2 |t|. With multipliers Lambda and their sums u, v = sum_i |x_i| Lambda_i over the samples of the two sides,

    |W_3|^2 + C(F) / lam >= 2 <Lambda, Y> - lam sum_i |Lambda_i|^2 / q_i - |u r^T + v t^T|^2 ,

and |u r^T + v t^T|^2 <= |u|^2 |r|^2 + |v|^2 |t|^2 + 2 max(0, u . v) |r| |t|. The sum of the two bounds is concave in
each of rho = |r| and tau = |t|, so on a rectangle of them it is smallest at a corner. A tree of rectangles, each with
the multipliers that are the best in its middle or at its end, bounds the cost of all networks; they are a closed form,
so that nothing has to be stored.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from covopt.certify.proof import DeepProof, Proved, Target
from covopt.certify.spectral import SLACK
from covopt.model.loss import Interpolation, MeanSquaredError
from covopt.model.problem import Problem
from covopt.model.units import Units
from covopt.runtime.loop import Certificate

UNIT = 2.0**-53
CHARGED = 2.0**-47  # an upper bound on the rounding of a few sums of products, relative to their absolute terms
Numbers = Float[np.ndarray, "*cells"]


@dataclass(frozen=True)
class OneInput(DeepProof):
    """A bound on all networks of one input without biases; it has no arrays, because its search is a closed form."""

    kind: ClassVar[Certificate] = Certificate.ONE_INPUT
    losses: ClassVar[tuple[type, ...]] = (Interpolation, MeanSquaredError)
    depths: ClassVar[range] = range(3, 4)

    @classmethod
    def suits(cls, problem: Problem) -> bool:
        """Return True for ReLU networks of one input without biases."""
        return problem.X.shape[1] == 1 and problem.beta == 0.0 and problem.activation.slope == 0.0

    @classmethod
    def prove(cls, problem: Problem, target: Target, last: Any = None) -> Proved:
        """Prove the minimum, and hand over the network that has it."""
        sides = Sides.of(problem)
        target.meet(sides.network(*sides.least()[1:]))
        return cls(0.0).proved(problem)

    def bound(self, problem: Problem) -> float:
        """Return the smallest bound of a rectangle."""
        if not self.applies(problem):
            return 0.0
        sides = Sides.of(problem)
        lower = sides.unit * sides.least()[0] * (1.0 - SLACK)
        return lower if math.isfinite(lower) else 0.0


@dataclass(frozen=True)
class Sides:
    """A problem of one input as one of two samples, x = 1 and x = -1, in units in which the data have size 1."""

    targets: Float[np.ndarray, "2 2"]  # the targets of the two samples, in a plane that contains both
    plane: Float[np.ndarray, "2 _"]  # a basis of it (2, m)
    ridge: Float[np.ndarray, " 2"]  # lam / sum_i q_i x_i^2 over the samples of each side; 0 for exact fits
    misfit: float  # the loss that no network avoids, divided by lam
    moved: Float[np.ndarray, " 2"]  # how far exact targets, or a network that counts as an exact fit, may be from them
    lost: float  # the rounding of `misfit`
    unit: float  # the value of a unit of |W|^2 in the user's cost
    weights: float  # the value of a unit of the weights in the user's

    @staticmethod
    def of(problem: Problem) -> Sides:
        """Return the two samples: for an exact fit the largest on each side, for mse the least-squares fits."""
        units = Units.of(problem.double())
        scaled = units.problem
        x, Y = scaled.X[:, 0].cpu().numpy(), scaled.Y.cpu().numpy()
        inputs = np.maximum(np.stack([x, -x]), 0.0)
        N, m = Y.shape
        length = np.linalg.norm(Y, axis=1)
        if isinstance(scaled.loss, Interpolation):
            rows, size = inputs.argmax(axis=1), inputs.max(axis=1)
            has_samples, size = size > 0.0, np.where(size > 0.0, size, 1.0)
            values = np.where(has_samples[:, None], Y[rows] / size[:, None], 0.0)
            moved = np.where(has_samples, scaled.allowed_misfit * math.sqrt(m) / size, 0.0)
            ridge, misfit, lost = np.zeros(2), 0.0, 0.0
        else:
            lam, shares = scaled.lam, scaled.shares.cpu().numpy()
            squares = np.square(inputs) @ shares
            held = np.where(squares > 0.0, squares, 1.0)
            values = (inputs * shares) @ Y / held[:, None]
            moved = 4.0 * (N + 16) * UNIT * ((inputs * shares) @ length) / held
            ridge = lam / held * (1.0 + (N + 16) * CHARGED)
            remaining = float(shares @ np.square(Y - inputs.T @ values).sum(axis=1))
            lost = UNIT * ((N + m + 16) * remaining + 32.0 * math.sqrt(remaining * float(shares @ np.square(length))))
            misfit, lost = remaining / lam, (lost + 2.0 * float(squares @ np.square(moved))) / lam
        Q, R = np.linalg.qr(np.pad(values, ((0, 0), (0, max(0, 2 - m)))).T)
        moved = (moved + (m + 16) * CHARGED * np.linalg.norm(values, axis=1)) * (1.0 + SLACK)
        return Sides(R.T, Q.T[:, :m], ridge, misfit, moved, lost, units.cost * scaled.lam, units.weights)

    def best(self, rho: Numbers, tau: Numbers) -> tuple[Numbers, Numbers, Float[np.ndarray, "*cells 2 2"]]:
        """Return, for the best r and t of these lengths, what the third layer costs, r . t, and (u, v).

        With K the products of r and t and D the ridge, (u, v) = (K + D)^-1 Y, and the cost is u . y + v . z. The best
        r . t is where u . v = 0, or 0, or rho tau.
        """
        (y, z), (d, e) = self.targets, self.ridge
        p, q, s, area = y @ y, y @ z, z @ z, y[0] * z[1] - y[1] * z[0]
        a, b = np.maximum(np.square(rho) + d, 1e-100), np.maximum(np.square(tau) + e, 1e-100)
        both, root = p * b + s * a, np.sqrt(np.square(p * b - s * a) + 4.0 * area * area * a * b)
        if q <= 0.0:
            k, scale, cost = np.zeros_like(both), a * b, both / (a * b)
        else:
            total = np.maximum(both + root, 1e-300)
            k, scale, cost = 2.0 * q * a * b / total, 2.0 * a * b * root / total, total / (2.0 * a * b)
            above = k > rho * tau * (1.0 + 1e-12)
            k, scale = np.minimum(k, rho * tau), np.where(above, np.square(rho) * e + np.square(tau) * d + d * e, scale)
            cost = np.where(above, (both - 2.0 * q * k) / scale, cost)
        rows = (np.multiply.outer(b, y) - np.multiply.outer(k, z), np.multiply.outer(a, z) - np.multiply.outer(k, y))
        return cost, k, np.stack(rows, axis=-2) / scale[..., None, None]

    def cost(self, rho: Numbers, tau: Numbers) -> Numbers:
        """Return what the best network of these lengths costs."""
        return 2.0 * rho + 2.0 * tau + self.best(rho, tau)[0] + self.misfit

    def bound_of(self, cells: Float[np.ndarray, "n 4"]) -> Float[np.ndarray, " n"]:
        """Return a bound on the networks of cells [low rho, low tau, high rho, high tau].

        It is the highest of three: by the best multipliers in the middle, at the upper end, and by a mean of those at
        the other two corners, which is the best where the targets have one direction and K is singular.
        """
        low, high = cells[:, :2].T, cells[:, 2:].T
        middle = 0.5 * (low + high)
        part = (middle[0] / middle.sum(axis=0))[:, None, None]
        mean = part * self.best(low[0], high[1])[2] + (1.0 - part) * self.best(high[0], low[1])[2]
        points = self.best(*middle)[2], self.best(*high)[2], mean
        bound = np.max([self._proved(cells, np.nan_to_num(point, posinf=0.0, neginf=0.0)) for point in points], axis=0)
        return np.maximum(bound, 2.0 * low.sum(axis=0) * (1.0 - SLACK))

    def _proved(
        self, cells: Float[np.ndarray, "n 4"], multipliers: Float[np.ndarray, "n 2 2"]
    ) -> Float[np.ndarray, " n"]:
        """Return the bounds that any u and v prove, rounding charged; -infinity where they overflow."""
        size, length = np.linalg.norm(multipliers, axis=2).T, np.linalg.norm(self.targets, axis=1)
        a, b = np.square(size)
        cross = np.maximum((multipliers[:, 0] * multipliers[:, 1]).sum(axis=1), 0.0) + CHARGED * size[0] * size[1]
        signal = 2.0 * (multipliers * self.targets).sum(axis=(1, 2)) - 2.0 * self.moved @ size
        constant = self.misfit - self.lost + signal - self.ridge @ np.square(size)
        terms = self.misfit + 2.0 * length @ size + self.ridge @ np.square(size)
        lowest = np.full(len(cells), math.inf)
        for rho, tau in itertools.product((cells[:, 0], cells[:, 2]), (cells[:, 1], cells[:, 3])):
            paid = a * np.square(rho) + b * np.square(tau) + 2.0 * cross * rho * tau
            plain = 2.0 * (rho + tau)
            lowest = np.minimum(lowest, constant + plain - paid - CHARGED * (terms + plain + paid))
        return np.where(np.isfinite(lowest), lowest, -math.inf)

    @np.errstate(all="ignore")
    def least(self, precision: float = 1e-7, most: int = 20_000) -> tuple[float, float, float]:
        """Return a proved lower bound in units of |W|^2, and the lengths rho and tau of the network of lowest cost.

        The precision is relative, and the misfit of an exact fit and rounding may leave more; `most` limits the
        rectangles.
        """
        lengths = np.linalg.norm(self.targets, axis=1) ** (2.0 / 3.0)
        factors = np.append(0.0, 2.0 * 0.5 ** np.arange(32))
        grid = np.stack(np.meshgrid(lengths[0] * factors, lengths[1] * factors)).reshape(2, -1)
        costs = self.cost(*grid)
        best, at = float(costs.min()), grid[:, costs.argmin()]
        cells, lower, count = np.array([[0.0, 0.0, 0.5 * best, 0.5 * best]]), best, 0  # beyond it, lengths cost more
        while len(cells) and 0.0 < best < math.inf:
            middles = 0.5 * (cells[:, :2] + cells[:, 2:]).T
            costs, bounds = self.cost(*middles), self.bound_of(cells)
            if costs.min() < best:
                best, at = float(costs.min()), middles[:, costs.argmin()]
            count += len(cells)
            is_open = (bounds < best * (1.0 - precision)) & (count < most)
            lower = min(lower, float(bounds[~is_open].min(initial=lower)))
            cells = _halves(cells[is_open])
        return max(0.0, lower), float(at[0]), float(at[1])

    @np.errstate(all="ignore")
    def network(self, rho: float, tau: float) -> list[Tensor]:
        """Return the best network of these lengths, in the user's units, with two neurons in each hidden layer."""
        along = float(self.best(np.array([rho]), np.array([tau]))[1][0]) / rho if rho > 0.0 else 0.0
        hidden = np.array([[rho, 0.0], [along, math.sqrt(max(0.0, tau * tau - along * along))]])
        roots = np.sqrt([rho, tau])
        ridged = np.hstack([hidden, np.diag(np.sqrt(self.ridge))])
        third = (np.linalg.lstsq(ridged, self.targets)[0][:2] @ self.plane).T
        layers = (roots * [1.0, -1.0])[:, None], hidden.T / np.where(roots > 0.0, roots, 1.0), third
        return [torch.from_numpy(self.weights * np.pad(W, ((0, 0), (0, 1)))) for W in layers]


def _halves(cells: Float[np.ndarray, "n 4"]) -> Float[np.ndarray, "2*n 4"]:
    """Return the halves of cells by their longer side, which is cut at a quarter where it begins at 0."""
    low, high = cells[:, :2], cells[:, 2:]
    rows, side = np.arange(len(cells)), (high - low).argmax(axis=1)
    at = np.where(low == 0.0, 0.25 * high, 0.5 * (low + high))[rows, side]
    below, above = cells.copy(), cells.copy()
    below[rows, 2 + side], above[rows, side] = at, at
    return np.concatenate([below, above])
