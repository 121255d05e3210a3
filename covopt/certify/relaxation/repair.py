"""A proved bound on h over a piece of the sphere, from any multipliers.

**The proof.** Let Pi (K, K) be symmetric, >= 0 at the pairs of rows with y_i y_j >= 0, anything where y_i y_j = 0, and
0 elsewhere (`certify.relaxation.lift`). Then y^T Pi y >= 0 on the piece, and for every tau

    h(w)^2 = |Lambda^T G u|^2 = tau - u^T S u - y^T Pi y <= tau - u^T S u,
    S = tau E - G^T Lambda Lambda^T G - B^T Pi B,   E = diag(1 for w, 0 for p).

So S >= 0 (positive semi-definite) proves h <= sqrt(tau) on the piece, whatever computed Pi (MATH.md section 4, way 2).

**The repair.** An inexact Pi gives an S that is not quite positive in the block of p. Adding c sum_i p_i n_i / |x_i|^2,
c >= 0, which is 0 on the piece, turns this block from A into A + c I (for p in units of |x_i|), and raises tau by the
Schur complement:

    tau(c) = largest eigenvalue of  D + C_c (A + c I)^{-1} C_c^T,   C_c = C - (c / 2) Xh_F^T,

D, C the other blocks of -S at tau = 0 and of S, Xh the rows x_i / |x_i|. tau(c) is convex. This costs a quarter of a
repair that uses |p| <= |X w|.

**Rounding.** S is proved positive by its Cholesky factor: if the factorisation of S in floating point runs to its end,
then S + D >= 0 with |D|_2 <= g / (1 - g) tr S, g = (n + 1) u [Rump, Verification of positive definiteness, BIT 46
(2006)]. The rounding of the sums in S is bounded by the same sums of absolute values. Both enter the bound through
|u|^2 <= 1 + |F| in these units. If B u differs from y by `slip`, y^T Pi y changes by 2 slip^T |Pi| reach, and
Lambda^T sigma by eta sum |lambda_i| |x_i|.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.certify.relaxation.lift import EQUAL, NONE, N, Piece
from covopt.linalg.rounding import UNIT_ROUNDOFF


def clip(piece: Piece, multipliers: Float[Tensor, "K K"]) -> Float[Tensor, "K K"]:
    """Return the nearest admissible Pi: symmetric, and >= 0 or 0 by the rules of the pairs."""
    Pi = torch.nan_to_num(0.5 * (multipliers + multipliers.T), nan=0.0, posinf=0.0, neginf=0.0)
    Pi = torch.where(piece.rule == NONE, 0.0, Pi)
    return torch.where(piece.rule == EQUAL, Pi, Pi.clamp_min(0.0))


def prove(piece: Piece, Lambda: Float[Tensor, "N m"], multipliers: Float[Tensor, "K K"]) -> float:
    """Return a proved bound on |Lambda^T sigma(P w)|^2 at the maximisers w in the piece; infinity if the repair fails.

    `multipliers` are for y in units of |x_i|.
    """
    k, Pi = piece.rank, clip(piece, multipliers)
    if k == 0:  # no unit w at all
        return _off_the_span(piece, Lambda, Pi, 0.0, 0.0)
    S, half = _forms(piece, Lambda, Pi)
    if not bool(torch.isfinite(S).all()):
        return math.inf
    shift, tau = _cheapest_shift(S, k, half)
    if not math.isfinite(tau):
        return math.inf
    K = _shift_matrix(half, k)
    size = _largest_sums(piece, Lambda, Pi) + shift * float(K.norm())
    return _off_the_span(piece, Lambda, Pi, shift, _with_rounding(S + shift * K, k, tau, size))


def cheapest_shift(piece: Piece, Lambda: Float[Tensor, "N m"], Pi: Float[Tensor, "K K"]) -> tuple[float, float]:
    """Return (c, tau(c)) near the minimum of tau, not rounded, for admissible multipliers of a piece with k > 0."""
    S, half = _forms(piece, Lambda, Pi)
    return _cheapest_shift(S, piece.rank, half)


def _forms(piece: Piece, Lambda: Tensor, Pi: Tensor) -> tuple[Float[Tensor, "q q"], Float[Tensor, "F k"]]:
    """Return S at tau = 0, and half of the rows n_i of the free samples in w."""
    H = piece.outputs(Lambda)
    S = -(H @ H.T) - piece.B.T @ Pi @ piece.B
    at = piece.sample.new_full((piece.ground.samples,), -1)
    rows = (piece.kind == N).nonzero()[:, 0]
    at[piece.sample[rows]] = rows
    return 0.5 * (S + S.T), 0.5 * piece.B[at[piece.undecided], : piece.rank]


def _off_the_span(piece: Piece, Lambda: Tensor, Pi: Tensor, shift: float, bound: float) -> float:
    """Return the bound on h^2 with the error of B u added."""
    eta = piece.span.error * (1.0 + 1e-3)
    if not bool(piece.slip.any()):
        return bound
    moved = 2.0 * float(piece.slip @ Pi.abs() @ piece.reach) + 2.0 * eta * (1.0 + eta) * shift * len(piece.undecided)
    bound = bound * piece.span.stretch + moved * (1.0 + 1e-3)
    moved = eta * float((Lambda.norm(dim=1) * piece.ground.length).sum())
    return (math.sqrt(bound) + moved) ** 2 * (1.0 + 8 * UNIT_ROUNDOFF)


def _shift_matrix(half: Float[Tensor, "F k"], k: int) -> Float[Tensor, "q q"]:
    """Return K with u^T K u = sum over F of p_i n_i, in units of |x_i|; `half` is half of the rows n_i in w."""
    q = k + len(half)
    K = half.new_zeros(q, q)
    K[k:, k:] = torch.eye(q - k, dtype=K.dtype, device=K.device)
    K[k:, :k], K[:k, k:] = half, half.T
    return K


def _cheapest_shift(S: Float[Tensor, "q q"], r: int, half: Float[Tensor, "F r"]) -> tuple[float, float]:
    """Return (c, tau(c)) near the minimum of tau; (0, tau) if no sample is free.

    tau is convex above the smallest admissible c, so two tangents bound its minimum from below; the next c is where
    they cross, or every other time the geometric mean, because a tangent near the pole of tau gives little.
    """
    D = -S[:r, :r]
    if S.shape[0] == r:
        return 0.0, _top(D)[0]
    values, Q = torch.linalg.eigh(S[r:, r:])
    C = S[:r, r:] @ Q
    step = half.T @ Q
    least = max(0.0, -float(values[0])) * (1.0 + 1e-6)
    unit = max(float(values.abs().max()), 1e-300)

    def tangent(gap: float) -> _Tangent:
        c = least + gap
        Cc = C + c * step
        height, v = _top(D + (Cc / (values + c)) @ Cc.T)
        y = (Cc.T @ v) / (values + c)
        return _Tangent(gap, height, float(2.0 * (v @ step) @ y - y @ y))

    # From a c next to the smallest admissible one (relative to the largest eigenvalue of A) to one at which tau rises.
    most, low, high = 24, tangent(1e-9 * unit), tangent(unit)
    for _ in range(most):
        if high.slope >= 0.0:
            break
        low, high = high, tangent(2.0 * high.gap)
    for tried in range(most):
        best = min(low, high, key=lambda end: end.height)
        crossing, floor = low.meets(high)
        if low.slope >= 0.0 or high.slope <= 0.0 or best.height - floor <= 1e-6 * abs(best.height):
            break
        between = crossing if tried % 2 == 0 else math.sqrt(low.gap * high.gap)
        if not low.gap < between < high.gap:
            break
        middle = tangent(between)
        low, high = (middle, high) if middle.slope < 0.0 else (low, middle)
    best = min(low, high, key=lambda end: end.height)
    return least + best.gap, best.height


class _Tangent(NamedTuple):
    """tau and its derivative at `gap` above the smallest admissible shift."""

    gap: float
    height: float
    slope: float

    def meets(self, other: _Tangent) -> tuple[float, float]:
        """Return the gap at which the two tangents cross, and their height there."""
        if not self.slope < other.slope:
            return self.gap, -math.inf
        apart = self.height - other.height + other.slope * other.gap - self.slope * self.gap
        gap = apart / (other.slope - self.slope)
        return gap, self.height + self.slope * (gap - self.gap)


def _top(A: Float[Tensor, "r r"]) -> tuple[float, Float[Tensor, " r"]]:
    """Return the largest eigenvalue and its unit vector; infinity if A is not finite."""
    if not bool(torch.isfinite(A).all()):
        return math.inf, A.new_zeros(len(A))
    values, vectors = torch.linalg.eigh(A)
    return float(values[-1]), vectors[:, -1]


def _largest_sums(piece: Piece, Lambda: Float[Tensor, "N m"], Pi: Float[Tensor, "K K"]) -> float:
    """Return |.|_F of the sums of absolute values of the terms of S, times the number of roundings of each."""
    B = piece.B.abs()
    H = B.T @ piece.weigh(Lambda).abs()
    roundings = 2 * len(B) + 2 * piece.ground.samples + Lambda.shape[1] + 40
    return roundings * float((H @ H.T + B.T @ Pi.abs() @ B).norm())


def _with_rounding(S: Float[Tensor, "q q"], r: int, tau: float, size: float) -> float:
    """Return tau' near tau with S + tau' E proved positive, plus the rounding of the bound.

    `size` is the error of S in units of u; |u|^2 <= 1 + F for F free samples.
    """
    q, jitter = S.shape[0], 2.0 * size * UNIT_ROUNDOFF
    lift = max(abs(tau), float(S.diagonal()[:r].abs().max()), 1e-300)
    tried, T = least_positive(S, r, tau, lift, lambda T: jitter)
    if tried == math.inf:
        return math.inf
    g = 2.0 * (q + 2) * UNIT_ROUNDOFF
    lost = 2.0 * jitter + g * float(T.diagonal().sum()) + 4 * UNIT_ROUNDOFF * tried
    return max(0.0, tried) + lost * (2.0 + q - r) if tried + lost > 0.0 else lost * (2.0 + q - r)


def least_positive(
    S: Float[Tensor, "q q"], r: int, tau: float, lift: float, added: Callable[[Tensor], float]
) -> tuple[float, Float[Tensor, "q q"]]:
    """Return a tau' near tau, and T = S + tau' E + added(S + tau' E) I, whose Cholesky factorisation succeeds.

    tau is raised by a part of `lift` that doubles until the factorisation succeeds; (infinity, S) if it never does.
    E is 1 in the first r entries.
    """
    corner = torch.arange(r, device=S.device)
    for attempt in range(40):
        tried, T = tau + 2.0 ** (attempt - 42) * lift, S.clone()
        T[corner, corner] += tried
        T.diagonal().add_(added(T))
        if int(torch.linalg.cholesky_ex(T).info) == 0:
            return tried, T
    return math.inf, S
