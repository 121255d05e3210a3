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

import math
from dataclasses import dataclass
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
    """The multipliers and prices that prove the bound of one cell.

    Attributes:
        multipliers: L (N,).
        prices: Z (P, N), a row for each kind.
    """

    multipliers: Float[np.ndarray, " N"]
    prices: Float[np.ndarray, "P N"]


@dataclass(frozen=True)
class Instance:
    """A problem of three layers and one output in units in which the solver and the check compute.

    Data have size 1, and without biases so has each sample's input: a network is then homogeneous in each sample.

    Attributes:
        targets: Y (N,).
        missed: the misfit that is allowed (N,).
        curvature: lam / q_i, 0 for exact fits (N,).
        atoms: the first layer.
        hidden_bias, output_bias: the entries of the bias columns of the second and third layer.
        kinds: of the second layer's neurons.
        unit: the value of a unit of |W|^2 in the user's cost.
        weights: the value of a unit of the weights in the user's.
        is_homogeneous: True for exact fits without biases, for which the scale of the output layer does not matter.
    """

    targets: Float[np.ndarray, " N"]
    missed: Float[np.ndarray, " N"]
    curvature: Float[np.ndarray, " N"]
    atoms: Dictionary
    hidden_bias: float
    output_bias: float
    kinds: Kinds
    unit: float
    weights: float
    is_homogeneous: bool

    @staticmethod
    def of(problem: Problem, step: float) -> Instance:
        """Return the instance; `step` is the largest angle between neighbours of its dictionary."""
        units = Units.of(problem.double())
        scaled = units.problem
        X, y = scaled.Xt if problem.beta else scaled.X, scaled.Y[:, 0].cpu().numpy()
        sizes = np.ones(len(y))
        if not problem.beta:
            largest = X.abs().amax(dim=1).cpu().numpy()
            sizes = np.where(largest > 0.0, np.exp2(np.frexp(largest)[1] - 1.0), 1.0)  # powers of two: exact
            X = X / torch.from_numpy(sizes).to(X)[:, None]
        exact = problem.interpolates
        curvature = np.zeros(len(y)) if exact else scaled.lam * scaled.inverse_shares.cpu().numpy() / sizes**2
        return Instance(
            targets=y / sizes,
            missed=scaled.allowed_misfit / sizes,
            curvature=curvature,
            atoms=Dictionary.of(X.cpu(), step),
            hidden_bias=scaled.bias(1),
            output_bias=scaled.bias(2),
            kinds=Kinds(len(y)),
            unit=units.cost * scaled.lam,
            weights=units.weights,
            is_homogeneous=exact and not problem.beta,
        )

    def majorant(self, prices: Prices) -> Float[np.ndarray, "P N"]:
        """Return the prices, moved to where Z_k . h >= e_k L . sigma(h) for every h of kind k."""
        multipliers, Z = prices
        active = self.kinds.active
        return np.where(active, np.maximum(Z, self.kinds.signs[:, None] * multipliers), np.minimum(Z, 0.0))

    def asks(self, cell: Cell, prices: Prices) -> Float[np.ndarray, " J"]:
        """Return (sum_A tau_A pi_A^2)^(1/2) at its worst shares, for each neuron of the dictionary; rounding included.

        Then for what lies outside the dictionary's plane, and for the biases.
        """
        Z = self.majorant(prices)
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
        asks, L = self.asks(cell, prices), prices.multipliers
        most = self.atoms.secant * asks[:-2].max(initial=0.0) + asks[-2]
        signal = L @ self.targets - np.abs(L) @ (self.missed + CHARGED * np.abs(self.targets))
        if not 0.0 < most < math.inf or not 0.0 < signal < math.inf:
            return self._plain(cell)
        a = signal / most
        if self.is_homogeneous:
            return 3.0 * a ** (2.0 / 3.0) * (1.0 - SLACK)
        total = self.output_bias * (abs(float(L.sum())) + CHARGED * float(np.abs(L).sum()))
        b = (total**2 + float(self.curvature @ np.square(L))) / most**2 * (1.0 + SLACK)
        omega = (float(asks[-1]) / most) ** 2 * (1.0 + SLACK)
        least = _least(cell.scale, a, b, omega) if math.isfinite(a) and math.isfinite(b + omega) else 0.0
        return max(self._plain(cell), least * (1.0 - SLACK))

    def _plain(self, cell: Cell) -> float:
        """Return what the scale alone costs."""
        return 0.0 if self.is_homogeneous else cell.scale[0]


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
