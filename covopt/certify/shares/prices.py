"""The bound that prices of the hidden neurons' outputs prove in one cell (MATH.md section 5).

Multipliers L (N,) and a price vector Z_k (N,) for each kind k, with Z_ki >= e_k L_i where k is active and Z_ki <= 0
elsewhere, e_k the sign of its output weight, give Z_k . h >= e_k L . sigma(h) for every pre-activation h of that kind.
So with the paths m_kj = |v_k| u_kj |w_j| of a network, and q_k = |v_k| |b_k|,

    <L, F> <= sum_kj |m_kj| |Z_k . s_j| + sum_k q_k beta |Z_k . 1| + beta |b_3| |L . 1| .

M bounds (sum_A tau_A pi_A^2)^(1/2), pi_A the largest |Z_k . s(w)| of the kinds of class A, for all unit w and all
shares tau of the cell, and omega the same for beta |Z_k . 1|. An exact fit without biases costs 3 (<L, Y> / M)^(2/3)
or more. For the others let M = 1, by the scale of L; with s = |W_3|^2, every k in [0, 1], and
b = beta^2 (L . 1)^2 + lam sum_i L_i^2 / q_i,

    |W|^2 + C(F) / lam >= s + 2 k <L, Y> s^(-1/2) - k^2 (b / s + omega^2).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from covopt.certify.shares.cells import Cell, Kinds
from covopt.certify.shares.dictionary import CHARGED, Dictionary
from covopt.certify.spectral import SLACK
from covopt.model.problem import Problem
from covopt.model.units import Units


class Prices(NamedTuple):
    """The multipliers and prices that prove the bound of one cell."""

    multipliers: Float[np.ndarray, " N"]  # L
    prices: Float[np.ndarray, "P N"]  # Z, a row for each kind


class Multipliers(NamedTuple):
    """Multipliers of the outputs, and the prices that a network's paths and biases have with them."""

    values: Float[np.ndarray, "N m"]  # L
    most: float  # M, the price of a path
    biased: float  # omega before it is divided by M, the price of a hidden bias


@dataclass(frozen=True)
class Instance:
    """A problem of three layers in units in which the solver and the check compute.

    Data have size 1, and without biases so has each sample's input: a network is then homogeneous in each sample.
    """

    targets: Float[np.ndarray, "N m"]  # Y
    missed: Float[np.ndarray, " N"]  # the misfit that is allowed
    curvature: Float[np.ndarray, " N"]  # lam / q_i, 0 for exact fits
    atoms: Dictionary  # the first layer
    hidden_bias: float  # the entry of the second layer's bias column
    output_bias: float  # the entry of the third layer's
    unit: float  # the value of a unit of |W|^2 in the user's cost
    weights: float  # the value of a unit of the weights in the user's
    is_homogeneous: bool  # True for exact fits without biases, for which the scale of the output layer does not matter

    @cached_property
    def kinds(self) -> Kinds:
        """Return the kinds of the second layer's neurons; there are few enough for a few samples only."""
        return Kinds(len(self.targets))

    @staticmethod
    def of(problem: Problem, step: float) -> Instance:
        """Return the instance; `step` is the largest angle between neighbours of its dictionary."""
        units = Units.of(problem.double())
        scaled = units.problem
        X, Y = scaled.Xt if problem.beta else scaled.X, scaled.Y.cpu().numpy()
        sizes = np.ones(len(Y))
        if not problem.beta:
            largest = X.abs().amax(dim=1).cpu().numpy()
            sizes = np.where(largest > 0.0, np.exp2(np.frexp(largest)[1] - 1.0), 1.0)  # powers of two: exact
            X = X / torch.from_numpy(sizes).to(X)[:, None]
        exact = problem.interpolates
        curvature = np.zeros(len(Y)) if exact else scaled.lam * scaled.inverse_shares.cpu().numpy() / sizes**2
        return Instance(
            targets=Y / sizes[:, None],
            missed=scaled.allowed_misfit / sizes,
            curvature=curvature,
            atoms=Dictionary.of(X.cpu(), step),
            hidden_bias=scaled.bias(1),
            output_bias=scaled.bias(2),
            unit=units.cost * scaled.lam,
            weights=units.weights,
            is_homogeneous=exact and not problem.beta,
        )

    def asks(self, cell: Cell, prices: Prices) -> Float[np.ndarray, " J"]:
        """Return (sum_A tau_A pi_A^2)^(1/2) at its worst shares, for each neuron of the dictionary; rounding included.

        Then for what lies outside the dictionary's plane, and for the biases.
        """
        multipliers, Z = prices
        # Move the prices to where Z_k . h >= e_k L . sigma(h) for every h of kind k.
        Z = np.where(self.kinds.active, np.maximum(Z, self.kinds.signs[:, None] * multipliers), np.minimum(Z, 0.0))
        size, atoms = np.abs(Z), self.atoms
        steep = np.abs(Z @ atoms.values) + size @ (atoms.missed + CHARGED * atoms.values)
        total = size.sum(axis=1)
        beyond = atoms.neglected * total
        biased = self.hidden_bias * (np.abs(Z.sum(axis=1)) + CHARGED * total)
        pi = np.zeros((cell.classes, atoms.values.shape[1] + 2))
        np.maximum.at(pi, cell.labels(self.kinds.features), np.column_stack([steep, beyond, biased]))
        return np.sqrt((cell.corners @ np.square(pi)).max(axis=0))

    def value(self, cell: Cell, prices: Prices) -> float:
        """Return the bound, in units of |W|^2, on all networks of a cell; 0 if nothing is proved."""
        asks = self.asks(cell, prices)
        most = self.atoms.secant * asks[:-2].max(initial=0.0) + asks[-2]
        return self.proved(prices.multipliers[:, None], float(most), float(asks[-1]), cell.scale)

    def proved(
        self, multipliers: Float[np.ndarray, "N m"], most: float, biased: float, scale: tuple[float, float]
    ) -> float:
        """Return the bound of multipliers whose paths have prices, in units of |W|^2; 0 if nothing is proved.

        The price of a path is M = `most`, and `biased` is omega before it is divided by M, the price of a hidden bias.
        The scale is an interval of |W_3|^2 without the bias of the output.
        """
        size = np.abs(multipliers).sum(axis=1)
        signal = float((multipliers * self.targets).sum())
        signal -= float(size @ self.missed) + CHARGED * float((np.abs(multipliers) * np.abs(self.targets)).sum())
        plain = 0.0 if self.is_homogeneous else scale[0]
        if not 0.0 < most < math.inf or not 0.0 < signal < math.inf:
            return plain
        a = signal / most
        if self.is_homogeneous:
            return 3.0 * a ** (2.0 / 3.0) * (1.0 - SLACK)
        total = self.output_bias * (float(np.linalg.norm(multipliers.sum(axis=0))) + CHARGED * float(size.sum()))
        b = (total**2 + float(self.curvature @ np.square(multipliers).sum(axis=1))) / most**2 * (1.0 + SLACK)
        omega = (biased / most) ** 2 * (1.0 + SLACK)
        least = _least(scale, a, b, omega) if math.isfinite(a) and math.isfinite(b + omega) else 0.0
        return max(plain, least * (1.0 - SLACK))

    def proved_at_any_scale(self, points: Sequence[Multipliers]) -> tuple[float, float]:
        """Return the bound for every |W_3|^2, each by the best of these points, and where it is the lowest."""

        def of(low: float, high: float) -> tuple[float, float, float]:
            return max((self.proved(*point, (low, high)) for point in points), default=0.0), low, high

        def near(at: float) -> float:
            return of(at * (1.0 - 1e-9), at * (1.0 + 1e-9))[0]

        if self.is_homogeneous:
            return of(0.0, math.inf)[0], 1.0
        grid = 2.0 ** np.arange(-40.0, 40.0, 0.5)
        values = np.array([near(at) for at in grid])
        top = float(values.min())
        if not top > 0.0:
            return 0.0, 1.0
        intervals = [of(0.0, top)]  # beyond it the scale alone costs more
        for _ in range(200):
            lower, low, high = intervals[0]
            middle = math.sqrt(low * high) if low else 0.25 * high
            if near(middle) < lower * (1.0 + 1e-5) or not lower < top:
                break
            heapq.heapreplace(intervals, of(low, middle))
            heapq.heappush(intervals, of(middle, high))
        lower, low, high = intervals[0]
        level = grid[values < 1.05 * top]  # where it rises slowly, the next multipliers are looked for at the end
        return min(lower, top), float(level.max()) if low == 0.0 else math.sqrt(low * high)


def _least(scale: tuple[float, float], a: float, b: float, omega: float) -> float:
    """Return the smallest s + 2 k a / s^(1/2) - k^2 (b / s + omega) on the interval, for the best k of a few.

    In x = s^(1/2) it lies above its chord of an interval of length d less d^2 / 8 times a bound on its curvature, which
    is at most 2 + 4 k a / x^3.
    """
    low, high = scale
    if math.isinf(high):
        return low
    if low == 0.0:  # with k = t s^(1/2) for one t the value is linear in s
        t = min(1.0 / math.sqrt(high), a / (b + omega * high) if b + omega * high > 0.0 else math.inf)
        ends = np.array([0.0, high])
        return float((ends + 2.0 * t * a - t * t * (b + omega * ends)).min())
    x = np.linspace(math.sqrt(low), math.sqrt(high), 129)
    x[0], x[-1] = math.sqrt(low) * (1.0 - CHARGED), math.sqrt(high) * (1.0 + CHARGED)
    best = 0.0
    for at in (low, math.sqrt(low * high), high):
        bends = b / at + omega
        k = min(1.0, a / math.sqrt(at) / bends) if bends > 0.0 else 1.0
        values = x**2 + 2.0 * k * a / x - k * k * (b / x**2 + omega)
        lost = CHARGED * (x**2 + 2.0 * k * a / x + k * k * (b / x**2 + omega))
        chords = np.minimum(values[:-1] - lost[:-1], values[1:] - lost[1:])
        curved = 0.125 * np.square(np.diff(x)) * (2.0 + 4.0 * k * a / x[:-1] ** 3) * (1.0 + SLACK)
        best = max(best, float((chords - curved).min()))
    return best
