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
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covopt.model.problem import Problem

Whole = NDArray[Any]  # an array of Python's whole numbers, which have no largest one
Exact = NDArray[Any]  # an array of fractions
BITS = 320
"""Numbers of a network and of a dual point have this number of binary digits, counted from that of the largest one."""


@dataclass(frozen=True)
class Plane:
    """The problem in whole numbers and fractions."""

    X: Whole  # X' times 2^inputs (N, 2), in whole numbers
    inputs: int
    Y: Exact  # Y' (N, m)
    shares: Exact  # q (N,)
    kappa: Fraction  # as in the module's text, like lam and beta
    lam: Fraction
    beta: Fraction
    steep: int  # the slope of the activation is this over 2^fine
    fine: int
    units: Fraction  # s / t, by which output weights are multiplied on the way in
    size: Fraction  # t

    @staticmethod
    def of(problem: Problem) -> Plane:
        """Return the problem in the plane: at most two columns, the bias's included, are nonzero."""
        X, s = scaled(two_columns(problem))
        Y, t = scaled(problem.Y.double().cpu().numpy())
        inputs = max(x.denominator.bit_length() - 1 for x in X.flat)
        N, lam = len(X), Fraction(problem.lam)
        weight = [1.0] * N if problem.weight is None else problem.weight.double().tolist()
        steep, power = Fraction(problem.activation.slope).as_integer_ratio()
        return Plane(
            *(_each(int)(X * (1 << inputs)), inputs, Y),
            np.array([Fraction(w) / N for w in weight], dtype=object),
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
        return self.shares.astype(float)

    @property
    def feature_bits(self) -> int:
        """`features` are sigma(X' w) times 2 to this."""
        return self.inputs + self.fine

    def features(self, directions: Whole) -> Whole:
        """Return sigma(X' w) for whole directions (K, 2), times 2^feature_bits (N, K)."""
        Z = self.X @ directions.T
        return np.where(Z >= 0, Z << self.fine, Z * self.steep)

    def linear(self, Lambda: Whole, inside: Whole) -> Whole:
        """Return A (m, 2), times 2^feature_bits: Lambda^T sigma(X' w) = A w next to `inside`."""
        slopes = np.where(self.X @ inside >= 0, 1 << self.fine, self.steep)
        return Lambda.T @ (slopes[:, None] * self.X)

    def residuals(self, directions: Whole, V: Whole) -> tuple[Exact, Exact]:
        """Return b' (m,), the best output bias, and Y' - F' (N, m) for V times 2^-BITS, exactly."""
        residual = self.Y - self.features(directions) @ V * Fraction(1, 1 << (self.feature_bits + BITS))
        bias = self.beta / (self.beta**2 + self.lam) * (self.shares @ residual)
        return bias, residual - self.beta * bias

    def dual_point(self, residual: Exact) -> Whole:
        """Return Lambda = q (Y' - F') / kappa times 2^BITS, rounded to whole numbers (N, m)."""
        return _each(round)((1 << BITS) / self.kappa * self.shares[:, None] * residual)

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

    def hidden_outputs(self, Lambda: Whole, scale: int) -> Exact:
        """Return F' of hidden neurons (N, m): Y' - kappa Lambda_i / q_i minus the output bias."""
        bias = self.beta**2 / self.lam * self.kappa / scale * Lambda.sum(axis=0)
        return self.Y - self.kappa / scale * Lambda / self.shares[:, None] - bias

    def cost(self, directions: Whole, V: Whole, bias: Exact, residual: Exact) -> Fraction:
        """Return the objective over t^2 of a network with these residuals, up to rounding."""
        fit = self.shares @ (residual**2).sum(axis=1)
        norms = [math.isqrt(int(w @ w) * int(v @ v)) for w, v in zip(directions, V, strict=True)]
        return fit + 2 * self.kappa * Fraction(sum(norms), 1 << BITS) + self.lam * (bias**2).sum()

    def excess(self, directions: Whole, V: Whole, Lambda: Whole, scale: int) -> Fraction:
        """Return an upper bound on the network's cost, over t^2, above Lambda / scale's bound."""
        bias, residual = self.residuals(directions, V)
        point = Lambda * Fraction(1, scale)
        total = self.shares @ ((self.kappa * point / self.shares[:, None] - residual) ** 2).sum(axis=1)
        for w, v, pulled in zip(directions, V, self.features(directions).T @ Lambda, strict=True):
            product = Fraction(math.isqrt((int(w @ w) * int(v @ v)) << (2 * BITS)) + 1, 1 << (2 * BITS))
            total += 2 * self.kappa * (product - Fraction(int(pulled @ v), scale << (self.feature_bits + BITS)))
        return total + self.lam * ((bias - self.beta * self.kappa / self.lam * point.sum(axis=0)) ** 2).sum()


def two_columns(problem: Problem) -> NDArray[np.float64]:
    """Return the nonzero columns of X~, filled up with zeros to two (N, 2)."""
    Xt = problem.Xt.double().cpu().numpy()
    used = Xt[:, columns_used(problem)]
    return np.hstack([used, np.zeros((len(Xt), max(0, 2 - used.shape[1])))])


def columns_used(problem: Problem) -> NDArray[np.int64]:
    """Which columns of X~ are not zero."""
    return np.flatnonzero(problem.Xt.double().cpu().numpy().any(axis=0))


def scaled(A: NDArray[np.float64]) -> tuple[Exact, Fraction]:
    """Return A / size, and the power of two `size` <= max |A|."""
    largest = float(np.abs(A).max(initial=0.0))
    size = Fraction(2) ** (math.frexp(largest)[1] - 1) if largest else Fraction(1)
    return np.array([[Fraction(a) / size for a in row] for row in A.tolist()], dtype=object), size


def _each(function: Callable[[Any], int]) -> np.ufunc:
    """Return the function applied to each entry of an array."""
    return np.frompyfunc(function, 1, 1)


def unit(w: Whole) -> NDArray[np.float64]:
    """Return the direction of a whole vector, as floats."""
    size = math.isqrt(int(w @ w) << 256)
    return np.array([(int(x) << 128) / size for x in w])
