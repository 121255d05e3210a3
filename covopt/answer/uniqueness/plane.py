"""A two-layer problem with two input coordinates, in whole numbers: nothing is rounded.

Every float64 is a whole number times a power of two. With X~ = s X', Y = t Y', both powers of two, and v = (t / s) v',
the objective of neurons (w_k, v_k) and the output bias b = t b' is t^2 times

    sum_i q_i |F'_i - Y'_i|^2 + 2 kappa sum_k |w_k| |v'_k| + lam |b'|^2,

F' = sum_k sigma(X' w_k) v'_k^T + beta 1 b'^T, kappa = lam / (s t). With a dual point Lambda and h(w) =
|Lambda^T sigma(X' w)| <= 1 on the unit circle, a network costs more than the bound of MATH.md section 4 by exactly

    sum_i q_i |F'_i - Y'_i + kappa Lambda_i / q_i|^2 + 2 kappa sum_k (|w_k| |v_k| - <Lambda^T sigma(X' w_k), v_k>)
        + lam |b' - (beta kappa / lam) Lambda^T 1|^2,

a sum of three terms that are none of them negative: `excess`. So a tiny gap can be computed without cancellation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covopt.model.problem import Problem

Whole = NDArray[Any]
"""An array of Python's whole numbers, which have no largest one."""
BITS = 320
"""Numbers of a network and of a dual point have so many binary digits, beyond their largest."""


@dataclass(frozen=True)
class Plane:
    """The problem in whole numbers.

    Attributes:
        X: X' times 2^inputs (N, 2); Y: Y' times 2^targets (N, m).
        shares: q_i.
        kappa, lam, beta: as in the module's text; slope: of the activation, `steep` over 2^fine.
        units: s / t, by which output weights are multiplied on the way in; size: t.
    """

    X: Whole
    inputs: int
    Y: Whole
    targets: int
    shares: list[Fraction]
    kappa: Fraction
    lam: Fraction
    beta: Fraction
    steep: int
    fine: int
    units: Fraction
    size: Fraction

    @staticmethod
    def of(problem: Problem) -> Plane:
        """Return the problem in the plane: at most two columns, the bias's included, are nonzero."""
        X, inputs, s = whole(two_columns(problem))
        Y, targets, t = whole(problem.Y.double().cpu().numpy())
        N, lam = len(X), Fraction(problem.lam)
        weight = [1.0] * N if problem.weight is None else problem.weight.double().tolist()
        steep, power = Fraction(problem.activation.slope).as_integer_ratio()
        return Plane(
            *(X, inputs, Y, targets),
            [Fraction(w) / N for w in weight],
            *(lam / (s * t), lam, Fraction(problem.beta)),
            *(steep, power.bit_length() - 1, s / t, t),
        )

    @property
    def outputs(self) -> int:
        """m."""
        return self.Y.shape[1]

    @property
    def slope(self) -> float:
        """a."""
        return self.steep / (1 << self.fine)

    @cached_property
    def float_inputs(self) -> NDArray[np.float64]:
        """X' (N, 2)."""
        return np.array([[int(x) / (1 << self.inputs) for x in row] for row in self.X])

    @cached_property
    def float_shares(self) -> NDArray[np.float64]:
        """q (N,)."""
        return np.array([float(share) for share in self.shares])

    @property
    def feature_bits(self) -> int:
        """`features` are sigma(X' w) times 2 to this."""
        return self.inputs + self.fine

    def pattern(self, w: Whole) -> Whole:
        """Return X w for one direction: its signs say which samples are active (N,)."""
        return self.X @ w

    def features(self, directions: Whole) -> Whole:
        """Return sigma(X' w) for whole directions (K, 2), times 2^feature_bits (N, K)."""
        Z = self.X @ directions.T
        return np.where(Z >= 0, Z << self.fine, Z * self.steep)

    def linear(self, Lambda: Whole, inside: Whole) -> Whole:
        """Return A (m, 2), times 2^feature_bits: Lambda^T sigma(X' w) = A w next to `inside`."""
        slopes = np.where(self.pattern(inside) >= 0, 1 << self.fine, self.steep)
        return Lambda.T @ (slopes[:, None] * self.X)

    def residuals(self, directions: Whole, V: Whole) -> tuple[list[Fraction], NDArray[Any]]:
        """Return b' (m,), the best output bias, and Y' - F' (N, m) for V times 2^-BITS, exactly."""
        scale = 1 << (self.feature_bits + BITS)
        ours, wanted = self.features(directions) @ V, self.Y
        residual = np.array(
            [
                [Fraction(int(y), 1 << self.targets) - Fraction(int(f), scale) for y, f in zip(*rows, strict=True)]
                for rows in zip(wanted, ours, strict=True)
            ],
            dtype=object,
        )
        if not self.beta:
            return [Fraction(0)] * self.outputs, residual
        means = [sum(q * r for q, r in zip(self.shares, residual[:, j], strict=True)) for j in range(self.outputs)]
        bias = [self.beta * mean / (self.beta**2 + self.lam) for mean in means]
        return bias, residual - np.array([self.beta * b for b in bias], dtype=object)

    def dual_point(self, residual: NDArray[Any]) -> Whole:
        """Return Lambda = q (Y' - F') / kappa times 2^BITS, rounded to whole numbers (N, m)."""
        scale = (1 << BITS) / self.kappa
        return np.array(
            [[round(q * scale * r) for r in row] for q, row in zip(self.shares, residual, strict=True)], object
        )

    def orthogonal(self, Lambda: Whole, scale: int) -> tuple[Whole, int]:
        """Return the nearest dual point (Lambda, scale) with Lambda^T X' = 0; X' has rank 2."""
        G, determinant = self._gram
        pulled = self.X.T @ Lambda
        adjoint = np.array([[G[1, 1], -G[0, 1]], [-G[1, 0], G[0, 0]]], dtype=object)
        return determinant * Lambda - self.X @ (adjoint @ pulled), scale * determinant

    @property
    def spans(self) -> bool:
        """Return True if the inputs have rank 2."""
        return self._gram[1] != 0

    @property
    def _gram(self) -> tuple[Whole, int]:
        """X^T X and its determinant."""
        G = self.X.T @ self.X
        return G, int(G[0, 0] * G[1, 1] - G[0, 1] * G[1, 0])

    def hidden_outputs(self, Lambda: Whole, scale: int) -> list[list[Fraction]]:
        """Return F' of hidden neurons (N, m): Y' - kappa Lambda_i / q_i minus the output bias."""
        step = self.kappa / scale
        bias = [self.beta**2 / self.lam * step * int(mass) for mass in Lambda.sum(axis=0)]
        return [
            [Fraction(int(y), 1 << self.targets) - step / q * int(d) - b for y, d, b in zip(*rows, bias, strict=True)]
            for q, *rows in zip(self.shares, self.Y, Lambda, strict=True)
        ]

    def cost(self, directions: Whole, V: Whole, bias: list[Fraction], residual: NDArray[Any]) -> Fraction:
        """Return the objective over t^2 of a network with these residuals, up to rounding."""
        fit = sum(q * sum(r * r for r in row) for q, row in zip(self.shares, residual, strict=True))
        norms = [math.isqrt(int(w @ w) * int(v @ v)) for w, v in zip(directions, V, strict=True)]
        return fit + 2 * self.kappa * Fraction(sum(norms), 1 << BITS) + self.lam * sum(b * b for b in bias)

    def excess(self, directions: Whole, V: Whole, Lambda: Whole, scale: int) -> Fraction:
        """Return an upper bound on the network's cost, over t^2, above Lambda / scale's bound."""
        bias, residual = self.residuals(directions, V)
        point = [[Fraction(int(entry), scale) for entry in row] for row in Lambda]
        total = Fraction(0)
        for q, row, dual in zip(self.shares, residual, point, strict=True):
            total += q * sum((self.kappa * d / q - r) ** 2 for r, d in zip(row, dual, strict=True))
        seen = self.features(directions).T @ Lambda
        for w, v, pulled in zip(directions, V, seen, strict=True):
            product = Fraction(math.isqrt((int(w @ w) * int(v @ v)) << (2 * BITS)) + 1, 1 << (2 * BITS))
            total += 2 * self.kappa * (product - Fraction(int(pulled @ v), scale << (self.feature_bits + BITS)))
        sums = [sum(row[j] for row in point) for j in range(self.outputs)]
        return total + self.lam * sum(
            (b - self.beta * self.kappa / self.lam * mass) ** 2 for b, mass in zip(bias, sums, strict=True)
        )


def two_columns(problem: Problem) -> NDArray[np.float64]:
    """Return the nonzero columns of X~, filled up with zeros to two (N, 2)."""
    Xt = problem.Xt.double().cpu().numpy()
    used = Xt[:, columns_used(problem)]
    return np.hstack([used, np.zeros((len(Xt), max(0, 2 - used.shape[1])))])


def columns_used(problem: Problem) -> NDArray[np.int64]:
    """Which columns of X~ are not zero."""
    return np.flatnonzero(problem.Xt.double().cpu().numpy().any(axis=0))


def whole(A: NDArray[np.float64]) -> tuple[Whole, int, Fraction]:
    """Return whole numbers A 2^bits / size, bits, and the power of two `size` <= max |A|."""
    largest = float(np.abs(A).max(initial=0.0))
    size = Fraction(2) ** (math.frexp(largest)[1] - 1) if largest else Fraction(1)
    parts = [[Fraction(a) / size for a in row] for row in A.tolist()]
    bits = max((part.denominator.bit_length() - 1 for row in parts for part in row), default=0)
    return np.array([[int(part * (1 << bits)) for part in row] for row in parts], dtype=object), bits, size


def unit(w: Whole) -> NDArray[np.float64]:
    """Return the direction of a whole vector, as floats."""
    size = math.isqrt(int(w @ w) << 256)
    return np.array([(int(x) << 128) / size for x in w])
