"""The cone in which a neuron and its activations are relaxed, and the proof of a bound on h from its multipliers.

For a direction w let z = X w, p = z_+ and n = (-z)_+ >= 0. With u = (w, p) everything is linear: n = p - X w and
sigma_a(z) = p - a n. A *piece* of the sphere is given by signs: sample i has z_i >= 0 (so n_i = 0, p_i = x_i^T w),
z_i <= 0 (so p_i = 0), or either (p_i stays a variable, i in F); walls a^T w >= 0 may cut it further. On a piece


    u = (w, p_F),   y = (p, n, walls) = B u >= 0,   sigma(z) = G u,   p_i n_i = 0,   |w| = 1.

**Whose span.** Let w be a *maximiser* of h on the sphere, f = h(w)^2 > 0, and a = Lambda Lambda^T sigma. For ReLU

    sum over z_i > 0 of a_i x_i^T d + sum over z_i = 0 of a_i (x_i^T d)_+ <= f w^T d   for every direction d

(the derivative of h^2, which is homogeneous). A d orthogonal to all x_j with z_j >= 0 makes the left side 0, and so
does -d: w is orthogonal to it. So w lies in the span of the samples that it does not switch off. On a piece z_i <= 0
may be read as z_i < 0, since maximisers with z_i = 0 are in the other half; hence where the samples that are not
negative are independent and fewer than r, w ranges over their span only, and a piece loses a dimension with each
negative sample. What is proved is max h all the same, and not the maximum over a piece. (Derived; tested against
exact maxima.)

**The proof.** Let Pi (K, K) be symmetric, >= 0 except at the entries (p_i, n_i), where it may be anything. Then
y^T Pi y >= 0 on the piece, and for every tau

    h(w)^2 = |Lambda^T G u|^2 = tau - u^T S u - y^T Pi y <= tau - u^T S u,
    S = tau E - G^T Lambda Lambda^T G - B^T Pi B,   E = diag(1 for w, 0 for p).

So S >= 0 (positive semi-definite) proves h <= sqrt(tau) on the piece, whatever computed Pi (MATH.md section 4, way 2).

**The repair.** An inexact Pi gives an S that is not quite positive in the block of p. Adding c sum_i p_i n_i / |x_i|^2,
c >= 0, which is 0 on the piece, turns this block from A into A + c I (for p in units of |x_i|), and costs only as much
as the Schur complement says:

    tau(c) = largest eigenvalue of  D + C_c (A + c I)^{-1} C_c^T,   C_c = C - (c / 2) Xh_F^T,

D, C the other blocks of -S at tau = 0 and of S, Xh the rows x_i / |x_i|. tau(c) is convex. It is a quarter of the
price of moving p by |p| <= |X w|.

**Rounding.** S is proved positive by its Cholesky factor: if the factorisation of S in floating point runs to its end,
then S + D >= 0 with |D|_2 <= g / (1 - g) tr S, g = (n + 1) u [Rump, Verification of positive definiteness, BIT 46
(2006)]. What the sums that make S can lose is bounded by the same sums of absolute values. Both are paid for with
|u|^2 <= 1 + |F| in these units.

**Rounding of the span.** A unit w of the span is Xh_J^T c with |c| <= 1 / s, s the smallest singular value of the rows
Xh_J. With Q (k, r) the computed basis, |(I - Q^T Q) w| <= eta = |Xh_J - Xh_J Q^T Q| / s. So z, n and the walls move by
eta at most, y^T Pi y by 2 eta (1 + eta) sum |Pi|, and Lambda^T sigma by eta sum |lambda_i| |x_i|.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from covopt.linalg.psd import RANK_RULE, RankRule
from covopt.linalg.rounding import UNIT_ROUNDOFF
from covopt.linalg.row_space import RowSpace, neglected
from covopt.model.activation import Activation

# How the cheapest repair is looked for; none of these touches the proof.
SMALLEST_SHIFT = 1e-9  # c beyond the least admissible one, relative to the largest eigenvalue of A
LARGEST_SHIFT = 1.0  # the first that is tried as too large; doubled while tau still falls there
SHIFTS = 24  # tried between them, and doublings of the largest, at most
CLOSE = 1e-6  # they end when tau is known to be within this, relative, of its minimum
MARGIN = 2.0**-42  # tau is raised by this, relative, so that the Cholesky factorisation has room
ATTEMPTS = 40  # doublings of MARGIN until it succeeds, at most; then nothing is proved


@dataclass(frozen=True)
class Ground:
    """The inputs in the coordinates of their row space, at unit scale.

    Attributes:
        P: rows x_i (N, r), Xt / size in an orthonormal basis of its row space; rows that count as zero are zero.
        basis: the orthonormal rows of that basis, in input coordinates (r, d).
        length: |x_i|, and 1 for zero rows (N,).
        zero: the rows that are zero (N,).
        size: the power of two that Xt was divided by.
        neglected: |what P leaves out of Xt / size|_F or more.
        stretch: a bound on the norm of the projection on the basis.
        slope: the activation's a.
    """

    P: Float[Tensor, "N r"]
    basis: Float[Tensor, "r d"]
    length: Float[Tensor, " N"]
    zero: Bool[Tensor, " N"]
    size: float
    neglected: float
    stretch: float
    slope: float

    @property
    def samples(self) -> int:
        """N."""
        return len(self.P)

    @property
    def rank(self) -> int:
        """r."""
        return self.P.shape[1]


def make_ground(
    Xt: Float[Tensor, "N d"], activation: Activation, rule: RankRule = RANK_RULE, tiny: float = 1e-12
) -> Ground:
    """Reduce Xt to its row space; rows shorter than `tiny` times the longest count as zero and are paid for."""
    space = RowSpace.of(Xt, rule, least=1)
    # Inputs of zero: any direction will do.
    basis = space.Q if space.rank else torch.eye(1, space.X.shape[1], dtype=space.X.dtype, device=space.X.device)
    length = space.P.norm(dim=1)
    zero = length <= tiny * length.max()
    P = torch.where(zero[:, None], 0.0, space.P)
    left = neglected(space.X, P, basis)
    lengths = torch.where(zero, 1.0, length)
    return Ground(P, basis, lengths, zero, space.size, left, space.stretch, activation.slope)


@dataclass(frozen=True)
class Span:
    """The subspace that the maximisers in a piece lie in.

    Attributes:
        basis: Q, orthonormal rows (k, r).
        error: eta, what Q may leave out of a unit w; 0 for the whole space.
        stretch: a bound on |Q w|^2 for unit w.
    """

    basis: Float[Tensor, "k r"]
    error: float = 0.0
    stretch: float = 1.0


def make_span(ground: Ground, signs: Int[Tensor, " N"], independent: float = 1e-5) -> Span:
    """The span of the samples that are not negative, or the whole space.

    The whole space where the activation switches nothing off, or where they are dependent: their unit rows have a
    singular value below `independent`.
    """
    r = ground.rank
    whole = Span(torch.eye(r, dtype=ground.P.dtype, device=ground.P.device))
    left = (signs >= 0).to(ground.zero.device) & ~ground.zero
    k = int(left.sum())
    if ground.slope != 0.0 or not 0 < k < r:
        return whole
    rows = (ground.P / ground.length[:, None])[left]
    Q, R = torch.linalg.qr(rows.T)
    basis = Q.T.contiguous()
    rounding = 16 * r**1.5 * math.sqrt(k) * UNIT_ROUNDOFF
    missed = float((rows - (rows @ Q) @ basis).norm()) + rounding
    smallest = float(torch.linalg.svdvals(R)[-1]) - missed - 4 * r * rounding
    if smallest < independent:
        return whole
    defect = float((basis @ Q - whole.basis[:k, :k]).norm()) + rounding
    return Span(basis, missed / smallest + rounding, 1.0 + defect)


@dataclass(frozen=True)
class Piece:
    """The lifted cone of one piece of the sphere; see the module's text.

    Attributes:
        ground: the inputs.
        signs: +1, -1, or 0 for a free sample (N,).
        span: what w ranges over.
        B: y = (p, n, walls), p and n in units of |x_i|, from u = (w, p_F) (K, q), K = 2N + walls, q = k + |F|; w in the
            coordinates of the span.
        free: where Pi may have any sign: entries (p_i, n_i), and all rows of what is 0 on the piece (K, K).
        longest: a bound on |y_j| for unit w: 1, or the norm of the longest wall.
    """

    ground: Ground
    signs: Int[Tensor, " N"]
    span: Span
    B: Float[Tensor, "K q"]
    free: Bool[Tensor, "K K"]
    longest: float = 1.0

    @property
    def rank(self) -> int:
        """k, the dimension that w ranges over."""
        return len(self.span.basis)

    @property
    def loose(self) -> Int[Tensor, " F"]:
        """The free samples."""
        return (self.signs == 0).nonzero()[:, 0]

    def outputs(self, Lambda: Float[Tensor, "N m"]) -> Float[Tensor, "q m"]:
        """G^T Lambda."""
        N = self.ground.samples
        weighted = self.ground.length[:, None] * Lambda
        return self.B[:N].T @ weighted - self.ground.slope * (self.B[N : 2 * N].T @ weighted)


def make_piece(
    ground: Ground, signs: Sequence[int] | Tensor | None = None, walls: Float[Tensor, "k r"] | None = None
) -> Piece:
    """The piece of these signs, cut by walls a^T w >= 0; the whole sphere without either."""
    N = ground.samples
    given = torch.zeros(N, dtype=torch.int64) if signs is None else torch.as_tensor(signs).to(torch.int64).cpu()
    given = torch.where(ground.zero.cpu(), 1, given)
    loose = (given == 0).nonzero()[:, 0]
    span = make_span(ground, given)
    k = len(span.basis)
    rows = ground.P / ground.length[:, None] @ span.basis.T
    sign = given.to(ground.P.device)
    B = ground.P.new_zeros(2 * N, k + len(loose))
    B[:N, :k] = torch.where(sign[:, None] > 0, rows, 0.0)
    B[N:, :k] = torch.where(sign[:, None] > 0, 0.0, -rows)
    columns = k + torch.arange(len(loose))
    B[loose, columns] = 1.0
    B[N + loose, columns] = 1.0
    nothing = torch.cat([sign < 0, sign > 0])
    pairs = torch.eye(N, dtype=torch.bool, device=B.device).repeat(2, 2)
    diagonal = torch.eye(2 * N, dtype=torch.bool, device=B.device)
    free = (pairs & ~diagonal) | nothing[:, None] | nothing
    if walls is None or len(walls) == 0:
        return Piece(ground, given, span, B, free)
    B = torch.cat([B, torch.nn.functional.pad(walls @ span.basis.T, (0, len(loose)))])
    whole = torch.zeros(len(B), len(B), dtype=torch.bool, device=B.device)
    whole[: 2 * N, : 2 * N] = free
    return Piece(ground, given, span, B, whole, max(1.0, float(walls.norm(dim=1).max())))


def clip(piece: Piece, multipliers: Float[Tensor, "K K"]) -> Float[Tensor, "K K"]:
    """The nearest admissible Pi: symmetric, >= 0 where it must be; what is 0 on the piece has rows of 0 in B."""
    Pi = torch.nan_to_num(0.5 * (multipliers + multipliers.T), nan=0.0, posinf=0.0, neginf=0.0)
    return torch.where(piece.free, Pi, Pi.clamp_min(0.0))


def prove(piece: Piece, Lambda: Float[Tensor, "N m"], multipliers: Float[Tensor, "K K"]) -> float:
    """A proved bound on max |Lambda^T sigma(P w)|^2 over unit w in the piece, from any numbers as multipliers.

    `multipliers` belong to y in units of |x_i|. Infinity where the repair fails.
    """
    k, Pi = piece.rank, clip(piece, multipliers)
    B, H = piece.B, piece.outputs(Lambda)
    S = -(H @ H.T) - B.T @ Pi @ B
    S = 0.5 * (S + S.T)
    if not bool(torch.isfinite(S).all()):
        return math.inf
    shift, tau = _cheapest_shift(S, piece)
    if not math.isfinite(tau):
        return math.inf
    K = _shift_matrix(piece)
    size = _largest_sums(piece, Lambda, Pi) + shift * float(K.norm())
    bound = _with_rounding(S + shift * K, k, tau, size)
    return _off_the_span(piece, Lambda, float(Pi.abs().sum()) + shift * len(piece.loose), bound)


def _off_the_span(piece: Piece, Lambda: Tensor, weight: float, bound: float) -> float:
    """The bound on h^2 with what the computed span leaves out of w; `weight` is the sum of all |multipliers|."""
    eta = piece.span.error * (1.0 + 1e-3)
    if eta == 0.0:
        return bound
    bound = bound * piece.span.stretch + 2.0 * eta * piece.longest**2 * weight
    moved = eta * float((Lambda.norm(dim=1) * piece.ground.length).sum())
    return (math.sqrt(bound) + moved) ** 2 * (1.0 + 8 * UNIT_ROUNDOFF)


def _shift_matrix(piece: Piece) -> Float[Tensor, "q q"]:
    """K with u^T K u = sum over F of p_i n_i, in units of |x_i|."""
    r, q = piece.rank, piece.B.shape[1]
    K = piece.B.new_zeros(q, q)
    K[r:, r:] = torch.eye(q - r, dtype=K.dtype, device=K.device)
    half = 0.5 * piece.B[piece.ground.samples + piece.loose, :r]
    K[r:, :r], K[:r, r:] = half, half.T
    return K


def _cheapest_shift(S: Float[Tensor, "q q"], piece: Piece) -> tuple[float, float]:
    """(c, tau(c)) near the minimum of tau; (0, .) where no sample is free.

    tau is convex above the least admissible c, so two tangents bound its minimum from below, and where they cross is
    the next c to try; every other time it is the geometric mean, for near its pole a tangent says little.
    """
    r = piece.rank
    D = -S[:r, :r]
    if S.shape[0] == r:
        return 0.0, _top(D)[0]
    values, Q = torch.linalg.eigh(S[r:, r:])
    C = S[:r, r:] @ Q
    step = piece.B[piece.ground.samples + piece.loose, :r].T @ Q * 0.5
    least = max(0.0, -float(values[0])) * (1.0 + 1e-6)
    unit = max(float(values.abs().max()), 1e-300)

    def tangent(gap: float) -> _Tangent:
        c = least + gap
        Cc = C + c * step
        height, v = _top(D + (Cc / (values + c)) @ Cc.T)
        y = (Cc.T @ v) / (values + c)
        return _Tangent(gap, height, float(2.0 * (v @ step) @ y - y @ y))

    low, high = tangent(SMALLEST_SHIFT * unit), tangent(LARGEST_SHIFT * unit)
    for _ in range(SHIFTS):
        if high.slope >= 0.0:
            break
        low, high = high, tangent(2.0 * high.gap)
    for tried in range(SHIFTS):
        best = min(low, high, key=lambda each: each.height)
        crossing, floor = low.meets(high)
        if low.slope >= 0.0 or high.slope <= 0.0 or best.height - floor <= CLOSE * abs(best.height):
            break
        between = crossing if tried % 2 == 0 else math.sqrt(low.gap * high.gap)
        if not low.gap < between < high.gap:
            break
        found = tangent(between)
        low, high = (found, high) if found.slope < 0.0 else (low, found)
    best = min(low, high, key=lambda each: each.height)
    return least + best.gap, best.height


class _Tangent(NamedTuple):
    """tau and its derivative at `gap` above the least admissible shift."""

    gap: float
    height: float
    slope: float

    def meets(self, other: _Tangent) -> tuple[float, float]:
        """Where the two tangents cross, and how high."""
        if not self.slope < other.slope:
            return self.gap, -math.inf
        gap = (self.height - other.height + other.slope * other.gap - self.slope * self.gap) / (
            other.slope - self.slope
        )
        return gap, self.height + self.slope * (gap - self.gap)


def _top(A: Float[Tensor, "r r"]) -> tuple[float, Float[Tensor, " r"]]:
    """The largest eigenvalue and its unit vector; infinity where A is not finite."""
    if not bool(torch.isfinite(A).all()):
        return math.inf, A.new_zeros(len(A))
    values, vectors = torch.linalg.eigh(A)
    return float(values[-1]), vectors[:, -1]


def _largest_sums(piece: Piece, Lambda: Float[Tensor, "N m"], Pi: Float[Tensor, "K K"]) -> float:
    """|.|_F of the sums of absolute values of the terms of S, times how many roundings each can have met."""
    N, B = piece.ground.samples, piece.B.abs()
    weighted = piece.ground.length[:, None] * Lambda.abs()
    H = B[:N].T @ weighted + abs(piece.ground.slope) * (B[N : 2 * N].T @ weighted)
    roundings = 2 * len(B) + 2 * N + Lambda.shape[1] + 40
    return roundings * float((H @ H.T + B.T @ Pi.abs() @ B).norm())


def _with_rounding(S: Float[Tensor, "q q"], r: int, tau: float, size: float) -> float:
    """The least tau' >= tau for which S + tau' E is proved positive, and the payment for rounding.

    `size` is the error of S in units of u; |u|^2 <= 1 + F for F free samples.
    """
    q = S.shape[0]
    corner = torch.arange(r, device=S.device)
    lift = max(abs(tau), float(S.diagonal()[:r].abs().max()), 1e-300)
    jitter = 2.0 * size * UNIT_ROUNDOFF
    for attempt in range(ATTEMPTS):
        tried = tau + MARGIN * 2.0**attempt * lift
        T = S.clone()
        T[corner, corner] += tried
        T.diagonal().add_(jitter)
        if int(torch.linalg.cholesky_ex(T).info) == 0:
            g = 2.0 * (q + 2) * UNIT_ROUNDOFF
            lost = 2.0 * jitter + g * float(T.diagonal().sum()) + 4 * UNIT_ROUNDOFF * tried
            return max(0.0, tried) + lost * (2.0 + q - r) if tried + lost > 0.0 else lost * (2.0 + q - r)
    return math.inf
