"""A bound from multipliers of one sign in each column, for ReLU networks of every depth (MATH.md section 5).

Let no column of Lambda (N, m) change sign. Then Lambda Lambda^T >= 0 entrywise, and g(z) = |Lambda^T sigma(z)| is
convex, homogeneous and non-decreasing in sigma(z): g(sum_j a_j sigma(z_j)) <= sum_j |a_j| g(z_j). So with
M >= max_w g(Xt w), |w| = 1, and q = beta^2 |Lambda^T 1|^2, the sums t_l = sum_k g(z_k)^2 over the neurons of a layer
obey t_1 <= |W_1|^2 M^2 and t_{l+1} <= |W_{l+1}|^2 (t_l + q), and <Lambda, F>^2 <= |W_L|^2 (t_{L-1} + q): the smallest
budget that reaches <Lambda, Y> (`growth`) is a bound. Without a bias it is L (<Lambda, Y> / M)^(2/L), which is the
minimum wherever the multipliers of two layers are of this kind.

M is the maximum of an exact oracle (rank 3 at most), or |Lambda^T Xt|_op where Xt and Lambda have no negative entry.

**The growth.** From layer to layer a signal t_l obeys

    t_1 <= p_1 M^2,   t_{l+1} <= p_{l+1} (t_l + q),   p_l = |W_l|_F^2.

T_l(B) is the largest t_l with p_1 + ... + p_l = B: T_1(B) = M^2 B and T_{l+1}(B) = max_s (B - s) (T_l(s) + q). For each
s the function (B - s)_+ (T_l(s) + q) is convex in B, so that T is convex: it lies below its chords, and on a chord the
maximum over s is that of a parabola. So the table `Growth` is above T between its points, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy
import torch
from jaxtyping import Float
from torch import Tensor

from covopt.certify.dual import PARABOLAS
from covopt.certify.proof import DeepProof, Proved, Target
from covopt.certify.spectral import CHARGED, SLACK
from covopt.linalg.rounding import to_unit_scale
from covopt.model.problem import Problem
from covopt.oracles.exact import exact_oracle, has_exact_oracle
from covopt.runtime.errors import ProblemError
from covopt.runtime.lazy import lazy
from covopt.runtime.loop import Certificate, Stop

clarabel: Any = lazy("clarabel")


@dataclass(frozen=True)
class Convexity(DeepProof):
    """A bound from multipliers of one sign in each column."""

    multipliers: Float[Tensor, "_ _"]  # Lambda (N, m)

    kind: ClassVar[Certificate] = Certificate.CONVEXITY
    effort: ClassVar[int] = 2
    missing: ClassVar[str] = "The stored multipliers are missing or do not fit the data; solve again."
    losses: ClassVar[tuple[type, ...]] = PARABOLAS

    @classmethod
    def suits(cls, problem: Problem) -> bool:
        """Return True for ReLU networks on few samples with an exact oracle."""
        return problem.activation.slope == 0.0 and problem.samples <= 200 and has_exact_oracle(problem.Xt)

    @classmethod
    def prove(cls, problem: Problem, target: Target, last: Any = None) -> Proved | None:
        """Find the best multipliers by cutting planes."""
        Lambda = multipliers(problem, target.stop)
        return None if Lambda is None else cls(0.0, Lambda).proved(problem)

    def bound(self, problem: Problem) -> float:
        """Return the bound from these multipliers; 0 if a column changes sign, or M is unknown."""
        if self.multipliers.shape != problem.Y.shape:
            raise ProblemError(self.missing)
        return _bound(problem, self.multipliers.double()) if self.applies(problem) else 0.0


def _bound(problem: Problem, Lambda: Float[Tensor, "N m"]) -> float:
    if not bool(torch.isfinite(Lambda).all()) or bool(((Lambda > 0).any(dim=0) & (Lambda < 0).any(dim=0)).any()):
        return 0.0
    Xt, size = to_unit_scale(problem.Xt.double())
    Y, height = to_unit_scale(problem.Y.double())
    Lambda, _ = to_unit_scale(Lambda)  # every multiple gives the same bound
    maximum = _maximum(problem, Xt, Lambda)
    lost = (Y.numel() + 16) * 2.0**-52 * float((Lambda * Y).abs().sum())
    missed = problem.allowed_misfit / height * float(Lambda.abs().sum()) * (1.0 + 2.0**-40)
    signal = float((Lambda * Y).sum()) - lost - missed
    if not 0.0 < maximum < math.inf or not signal > 0.0:
        return 0.0
    added = (float(Lambda.sum(dim=0).norm()) * problem.beta / size / maximum) ** 2 * (1.0 + SLACK)
    exact = problem.interpolates
    if exact and added == 0.0:
        exponent = 2.0 / problem.depth * (math.log(signal / maximum) + math.log(height) - math.log(size))
        return problem.depth * math.exp(min(exponent, 700.0)) * (1.0 - SLACK)
    square = (signal / maximum * (height / size)) ** 2
    if not 0.0 < square < math.inf or not math.isfinite(added):
        return 0.0
    table = growth(problem.depth, 1.0, added, square)
    if exact:
        return table.least(square) * (1.0 - SLACK)
    # C(F) >= (signal - <Lambda, F>)_+^2 / sum_i (|Lambda_i|^2 / q_i), at the end of each cell; |W|^2 at its beginning.
    missing = height * np.maximum(0.0, signal - maximum * size / height * np.sqrt(table.signals[1:]))
    costs = missing**2 / float(problem.inverse_shares @ Lambda.square().sum(dim=1)) + problem.lam * table.budgets[:-1]
    lower = min(float(costs.min()), problem.lam * float(table.budgets[-1])) * (1.0 - SLACK)
    return lower if math.isfinite(lower) else 0.0


def _maximum(problem: Problem, Xt: Float[Tensor, "N d"], Lambda: Float[Tensor, "N m"]) -> float:
    """Return a proved upper bound on max_w |Lambda^T sigma(Xt w)|."""
    if bool((Xt >= 0).all()) and bool((Lambda >= 0).all() or (Lambda <= 0).all()):
        product = Lambda.T @ Xt
        lost = (len(Xt) + max(product.shape)) * CHARGED * float(product.norm())
        return float(torch.linalg.matrix_norm(product, 2)) + lost
    oracle = exact_oracle(Xt, problem.activation)
    return math.inf if oracle is None else oracle(Lambda, Xt[:0]).upper_bound


def multipliers(problem: Problem, stop: Stop = lambda: False) -> Float[Tensor, "N m"] | None:
    """Find the best multipliers with the signs of the targets' column sums, by cutting planes; None if that fails."""
    Xt, _ = to_unit_scale(problem.Xt.double())
    Y, height = to_unit_scale(problem.Y.double())
    oracle = exact_oracle(Xt, problem.activation)
    if oracle is None or height == 0.0:
        return None
    signs = torch.where(Y.sum(dim=0) < 0, -1.0, 1.0)
    Lambda, neurons = (Y * signs).clamp_min(0.0) * signs, Xt[:, :0]
    for _ in range(40):
        answer = oracle(Lambda, Xt[:0])
        if not answer.upper_bound > 0.0:
            return None
        if neurons.shape[1] and answer.upper_bound <= 1.0 + 1e-8:
            break
        neurons = torch.cat([neurons, problem.activation(Xt @ answer.directions.T)], dim=1)
        better = _master(neurons, Y, signs)
        if better is None or stop():
            break
        Lambda = better
    return Lambda


def _master(neurons: Float[Tensor, "N K"], Y: Float[Tensor, "N m"], signs: Float[Tensor, " m"]) -> Tensor | None:
    """Maximise <Lambda, Y> in a box, with these signs and |Lambda^T s_k| <= 1 for the neurons so far."""
    active = neurons[:, neurons.norm(dim=0) > 0]
    if not active.numel():
        return None
    (N, m), count = Y.shape, active.shape[1]
    # Variables: Lambda row by row, without its signs. For each neuron a cone |Lambda^T s_k| <= 1; then the box.
    under_one = np.vstack([np.zeros(m), np.eye(m)])
    one = scipy.sparse.eye_array(N * m)
    rows = scipy.sparse.vstack([-scipy.sparse.kron(active.numpy().T, under_one), -one, one], format="csc")
    offsets = np.concatenate([np.tile(np.eye(m + 1)[0], count), np.zeros(N * m), np.full(N * m, 1e4)])
    cones = [*[clarabel.SecondOrderConeT(m + 1)] * count, clarabel.NonnegativeConeT(2 * N * m)]
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    no_square = scipy.sparse.csc_array((N * m, N * m))
    answer = clarabel.DefaultSolver(no_square, -(Y * signs).numpy().ravel(), rows, offsets, cones, settings).solve()
    if "Solved" not in str(answer.status):  # an inaccurate solution, "AlmostSolved", only proves less
        return None
    return torch.tensor(answer.x, dtype=Y.dtype).reshape(N, m).clamp_min(0.0) * signs


@dataclass(frozen=True)
class Growth:
    """A table of T_L, the largest signal for a budget."""

    budgets: Float[np.ndarray, " P"]  # B, ascending from 0
    signals: Float[np.ndarray, " P"]  # upper bounds on T_L(B); the chords between them are upper bounds, too

    def least(self, signal: float) -> float:
        """Return a lower bound on the budget of this signal."""
        if signal <= 0.0:
            return 0.0
        above = np.flatnonzero(self.signals >= signal)
        if not len(above):
            return float(self.budgets[-1])
        k = int(above[0])
        low, high = self.signals[k - 1], self.signals[k]
        part = (signal - low) / (high - low)
        return float(self.budgets[k - 1] + part * (self.budgets[k] - self.budgets[k - 1])) * (1.0 - SLACK)


def growth(depth: int, first: float, added: float, signal: float) -> Growth:
    """Return the table of T_L for budgets that reach `signal`, with M^2 = `first` > 0 and q = `added` >= 0."""
    most = depth * (signal / first) ** (1.0 / depth)
    most = (min(most, signal / added) if added > 0.0 else most) * (1.0 + 1e-9)
    # Chords between this number of points are above T by about L^2 / (8 points^2), relative.
    budgets = np.linspace(0.0, most, 1500)
    if added == 0.0:
        signals = np.exp(np.log(first) + depth * np.log(np.maximum(budgets, 1e-300) / depth))
        return Growth(budgets, signals * (1.0 + SLACK))
    signals = first * budgets
    for _ in range(depth - 1):
        signals = _next(budgets, signals + added) * (1.0 + SLACK)
    return Growth(budgets, signals)


def _next(budgets: Float[np.ndarray, " P"], heights: Float[np.ndarray, " P"]) -> Float[np.ndarray, " P"]:
    """Return max_s (B - s) h(s) for each B, where h is the chords of `heights`."""
    slopes = np.diff(heights) / np.diff(budgets)
    bases = heights[:-1] - slopes * budgets[:-1]
    roots = np.where(slopes > 0.0, bases / np.where(slopes > 0.0, slopes, 1.0), math.inf)
    best, rows = np.zeros(len(budgets)), 250  # at a time
    for start in range(0, len(budgets), rows):
        B = budgets[start : start + rows, None]
        s = np.clip(0.5 * (B - roots), budgets[:-1], budgets[1:])
        best[start : start + rows] = ((B - s) * (bases + slopes * s)).max(axis=1)
    return np.maximum(best, 0.0)
