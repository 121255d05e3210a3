"""The lifted cone of the relaxation: a neuron, its activations, and its conditions of stationarity.

For a direction w let z = X w, p = z_+ and n = (-z)_+ >= 0. With u = (w, p_F), F the samples whose state is FREE
(`certify.relaxation.ground`), everything is linear: n = p - X w, sigma_a(z) = p - a n, and on a piece

    u = (w, p_F),   y = B u,   sigma(z) = G u,   |w| = 1,

where the rows y_j of a piece, in units of |x_i|, are

    p_i >= 0 and n_i >= 0      of the samples that can be positive, or negative; p_i n_i = 0
    a^T w >= 0                 for each wall
    g_i, alpha_i, beta_i       of stationarity, below

and the sphere is covered by pieces, so that max h is at most the largest of their bounds.

**Stationarity.** Only maximisers matter, and only those with f = h(w)^2 >= f0, a number that may be chosen; f <= f1 is
known from an earlier bound. For ReLU, w = sum_i g_i x_i over the samples that are not negative (`ground`), and the
derivative of h^2 says, with a = Lambda Lambda^T sigma,

    z_i > 0:  f g_i = a_i,      z_i = 0:  a_i <= f g_i <= 0,      z_i < 0:  g_i = 0.

Where the samples A that are not negative in a piece are independent, g_A is linear in w. In units in which w =
sum g_i x_i / |x_i|, and with alpha = a / f0 - g, beta = (f1 / f0) g - a / f0, quadratic relations follow:

    always       g_i n_i = 0,  g_i alpha_i >= 0
    STRICT       alpha_i beta_i >= 0,  g_i beta_i >= 0          (alpha = (f / f0 - 1) g, beta = ((f1 - f) / f0) g)
    KINK         -g_i >= 0 and -alpha_i >= 0, with all their products with p, n and the walls

Proof of the second for z_i = 0: alpha_i = a_i / f0 - g_i <= (f / f0) g_i - g_i <= 0 and g_i <= 0. That a_i <= f g_i
<= 0 at a kink: for every theta in [0, 1] where a_i > 0 the inequality of `ground` gives dual coordinates with f g_i =
theta a_i; they are unique, so a_i <= 0. The inequality then says that 0 is in the subdifferential of a convex function
of d, whose kinks have coefficients between a_i and 0. (Derived; tested against exact maxima. The closer f1 is to f0,
the closer a strict piece comes to one eigenvector.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.certify.relaxation.ground import FREE, KINK, NEGATIVE, POSITIVE, STRICT, Ground, Span, make_span
from covopt.linalg.rounding import UNIT_ROUNDOFF

SIGNED, EQUAL, NONE = 1, 0, -1
"""A pair of rows has y_i y_j >= 0 (multiplier >= 0), y_i y_j = 0 (any multiplier), or no relation (none)."""

P, N, G, ALPHA, BETA, WALL = range(6)  # the kinds of rows


@dataclass(frozen=True)
class Stationarity:
    """The data of the stationarity conditions."""

    Lambda: Float[Tensor, "N m"]  # the dual point, in units of the ground
    floor: float  # f0; maximisers with h^2 < f0 are ignored
    ceiling: float  # f1, a proved bound on h^2; infinite if there is none


@dataclass(frozen=True)
class Piece:
    """The lifted cone of one piece of the sphere."""

    ground: Ground
    states: Int[Tensor, " N"]  # the states of the samples
    span: Span  # the subspace of w
    B: Float[Tensor, "K q"]  # rows y from u = (w, p_F), q = k + |F|; w in the coordinates of the span
    kind: Int[Tensor, " K"]  # the kind of each row: P, N, G, ALPHA, BETA or WALL
    sample: Int[Tensor, " K"]  # the sample of each row, or the number of the wall
    sign: Float[Tensor, " K"]  # -1 for the rows of kinks, which are -g and -alpha
    rule: Int[Tensor, "K K"]  # SIGNED, EQUAL or NONE for every pair of rows
    reach: Float[Tensor, " K"]  # a bound on |y_j| for unit w
    slip: Float[Tensor, " K"]  # a bound on its error in B u

    @property
    def gauge(self) -> Float[Tensor, " K"]:
        """Return units of the rows that suit first-order methods: rows of stationarity count less."""
        interior = (self.kind == G) | (self.kind == ALPHA) | (self.kind == BETA)
        return torch.where(interior, 0.3 / self.B.norm(dim=1).clamp_min(UNIT_ROUNDOFF), 1.0)

    @property
    def rank(self) -> int:
        """Return k, the dimension of the span of w."""
        return len(self.span.basis)

    @property
    def undecided(self) -> Int[Tensor, " F"]:
        """Return the samples whose state is FREE."""
        return (self.states == FREE).nonzero()[:, 0]

    def weigh(self, Lambda: Float[Tensor, "N m"]) -> Float[Tensor, "K m"]:
        """Return R with Lambda^T sigma(z) = R^T y: |x_i| lambda_i at p_i, and -slope times that at n_i."""
        rows = torch.where(self.kind < WALL, self.sample, 0)
        factor = torch.zeros_like(self.sign)
        factor[self.kind == P] = 1.0
        factor[self.kind == N] = -self.ground.slope
        return (factor * self.ground.length[rows])[:, None] * Lambda[rows]

    def outputs(self, Lambda: Float[Tensor, "N m"]) -> Float[Tensor, "q m"]:
        """Return G^T Lambda."""
        return self.B.T @ self.weigh(Lambda)

    def identity(self) -> Int[Tensor, " K"]:
        """Return a number for each row that identifies it in other pieces."""
        return self.kind * len(self.states) + self.sample


def make_piece(
    ground: Ground,
    states: Sequence[int] | Tensor | None = None,
    walls: Float[Tensor, "k r"] | None = None,
    stationarity: Stationarity | None = None,
) -> Piece:
    """Return the piece of these states, cut by walls a^T w >= 0; without both, the whole sphere.

    If the samples that are not negative are dependent, STRICT and KINK are relaxed to POSITIVE.
    """
    signs = torch.zeros(ground.samples, dtype=torch.int64) if states is None else torch.as_tensor(states).long()
    signs = torch.where(ground.zero, POSITIVE, signs.to(ground.zero.device))
    span = make_span(ground, signs)
    if span.members is None:
        signs = torch.where((signs == STRICT) | (signs == KINK), POSITIVE, signs)
    rows = _Rows(ground, signs, span)
    rows.activations()
    if span.members is not None and stationarity is not None:
        rows.stationarity(stationarity)
    if walls is not None and len(walls):
        rows.walls(walls)
    return rows.piece()


class _Rows:
    """The rows of a piece, kind by kind."""

    def __init__(self, ground: Ground, states: Tensor, span: Span) -> None:
        self.ground, self.states, self.span = ground, states, span
        self.undecided = (states == FREE).nonzero()[:, 0]
        k, like = len(span.basis), ground.P
        self.columns = k + len(self.undecided)
        xh = ground.P / ground.length[:, None] @ span.basis.T
        self.p, self.z = like.new_zeros(len(like), self.columns), like.new_zeros(len(like), self.columns)
        self.z[:, :k] = xh
        self.p[:, :k] = torch.where(((states == POSITIVE) | (states == STRICT))[:, None], xh, 0.0)
        self.p[self.undecided, k + torch.arange(len(self.undecided), device=like.device)] = 1.0
        self.parts: list[tuple[int, Tensor, Tensor, Tensor, Tensor]] = []
        self.pairs: list[tuple[int, int, Tensor, int]] = []

    def add(self, kind: int, samples: Tensor, rows: Tensor, reach: Tensor | float, slip: Tensor | float) -> None:
        """Add rows of one kind, with bounds on their values (`reach`) and on their errors (`slip`)."""
        one = rows.new_ones(len(rows))
        self.parts.append((kind, samples, rows, reach * one, slip * one))

    def activations(self) -> None:
        """Add p of the samples that can be positive, and n of those that can be negative."""
        states, eta = self.states, self.span.error
        on = ((states != NEGATIVE) & (states != KINK)).nonzero()[:, 0]
        off = ((states == FREE) | (states == NEGATIVE)).nonzero()[:, 0]
        self.add(P, on, self.p[on], 1.0 + eta, eta)
        self.add(N, off, (self.p - self.z)[off], 1.0 + eta, eta)
        self.pairs.append((P, N, self.undecided, EQUAL))

    def walls(self, walls: Float[Tensor, "c r"]) -> None:
        """Add a^T w of each wall."""
        rows = torch.nn.functional.pad(walls @ self.span.basis.T, (0, len(self.undecided)))
        size = walls.norm(dim=1)
        numbers = torch.arange(len(walls), device=rows.device)
        self.add(WALL, numbers, rows, size * (1.0 + self.span.error), size * self.span.error)

    def stationarity(self, stationary: Stationarity) -> None:
        """Add g, alpha and beta, and their relations."""
        span, ground, bounded = self.span, self.ground, stationary.ceiling < float("inf")
        assert span.members is not None
        assert span.dual is not None
        A = span.members
        strict = bounded & (self.states[A] == STRICT)
        g = torch.nn.functional.pad(span.dual, (0, len(self.undecided)))
        weighted = ground.length[:, None] * stationary.Lambda
        a = (weighted[A] @ (weighted.T @ self.p)) / stationary.floor
        heavy = weighted[A].norm(dim=1) * float(weighted.norm(dim=1).sum()) / stationary.floor
        rounding = 4 * (sum(weighted.shape) + ground.rank + 8) * UNIT_ROUNDOFF
        slip = heavy * (span.error + rounding) + span.dual_error + rounding * span.dual_size
        reach = heavy + span.dual_size + slip
        smooth = self.states[A] != KINK
        self.add(G, A, torch.where(smooth[:, None], g, -g), span.dual_size + slip, slip)
        self.add(ALPHA, A, torch.where(smooth[:, None], a - g, g - a), reach, slip)
        self.pairs += [(G, N, self.undecided, EQUAL), (G, ALPHA, A[smooth], SIGNED)]
        if bool(strict.any()):
            ratio = stationary.ceiling / stationary.floor
            self.add(BETA, A[strict], (ratio * g - a)[strict], ratio * reach[strict], (ratio * slip)[strict])
            self.pairs += [(ALPHA, BETA, A[strict], SIGNED), (G, BETA, A[strict], SIGNED), (G, G, A[strict], SIGNED)]

    def piece(self) -> Piece:
        """Return the piece with all rows so far."""
        kinds, samples, rows, reaches, slips = zip(*self.parts, strict=True)
        kind = torch.cat([torch.full_like(part, kind) for kind, part in zip(kinds, samples, strict=True)])
        sample, B, reach, slip = (torch.cat(parts) for parts in (samples, rows, reaches, slips))
        kink = ((kind == G) | (kind == ALPHA)) & (self.states[torch.where(kind < WALL, sample, 0)] == KINK)
        signed = (kind == P) | (kind == N) | (kind == WALL) | kink
        rule = torch.where(signed & signed[:, None], SIGNED, NONE)
        where = torch.full((WALL, len(self.states)), -1, device=kind.device)
        interior = kind < WALL
        where[kind[interior], sample[interior]] = interior.nonzero()[:, 0]
        for first, second, samples, what in self.pairs:
            i, j = where[first, samples], where[second, samples]
            rule[i, j] = rule[j, i] = what
        sign = torch.where(kink, -1.0, 1.0).to(B)
        return Piece(self.ground, self.states, self.span, B, kind, sample, sign, rule, reach, slip)
