"""The inputs of the relaxation in their row space, and the span of the maximisers in a piece of the sphere.

A *piece* of the sphere is given by the states of the samples, z_i = x_i^T w:

    FREE        any sign                  POSITIVE    z_i >= 0
    NEGATIVE    z_i < 0                   STRICT      z_i > 0
                                          KINK        z_i = 0

**The span.** Let w be a *maximiser* of h on the sphere, ReLU, f = h(w)^2 > 0, and a = Lambda Lambda^T sigma. Then

    sum over z_i > 0 of a_i x_i^T d + sum over z_i = 0 of a_i (x_i^T d)_+ <= f w^T d   for every direction d

(the derivative of h^2, which is homogeneous). A d orthogonal to all x_j with z_j >= 0 makes the left side 0, and so
does -d: w is orthogonal to it. So w lies in the span of the samples that it does not switch off, and w = sum_i g_i x_i
over these. On a piece, the samples A that are not negative therefore span w. If they are independent, the *dual
coordinates* g_A of w are linear in w, and w is in the part of span(A) orthogonal to the kinks: each negative sample and
each kink removes a dimension. This bounds max h, not the maximum over a piece. (Derived; tested against exact maxima.)

**Rounding of the span.** Let Xh be unit rows, w = Xh_A^T g a unit vector, s the smallest singular value of Xh_A, so
that |g| <= 1 / s, and Xh_A^T = Q^T R computed, kinks first, with the error e = |Xh_A - Xh_A Q^T Q|. Q misses at most
e / s of w. R_KK^T Q_K w = -(error) w shows |Q_K w| <= e / s too. So the rows Q_{A - K}, the basis, leave out
eta = 2 e / s at most. With V the computed inverse of R, V Q w differs from g by |I - V Q Xh_A^T| / s + |V| e / s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from covopt.linalg.rounding import UNIT_ROUNDOFF
from covopt.linalg.row_space import RowSpace, neglected
from covopt.model.activation import Activation

FREE, POSITIVE, NEGATIVE, STRICT, KINK = 0, 1, -1, 2, 3


@dataclass(frozen=True)
class Ground:
    """The inputs in the coordinates of their row space, at unit scale."""

    P: Float[Tensor, "N r"]  # the rows x_i of Xt / size in an orthonormal basis; those that count as zero are zero
    basis: Float[Tensor, "r d"]  # the orthonormal rows of that basis, in input coordinates
    length: Float[Tensor, " N"]  # |x_i|, and 1 for zero rows
    zero: Bool[Tensor, " N"]  # the rows that are zero
    size: float  # the power of two that Xt was divided by
    neglected: float  # a bound on the Frobenius norm of what P omits of Xt / size
    stretch: float  # a bound on the norm of the projection on the basis
    slope: float  # the activation's a

    @property
    def samples(self) -> int:
        return len(self.P)

    @property
    def rank(self) -> int:
        return self.P.shape[1]


def make_ground(Xt: Float[Tensor, "N d"], activation: Activation) -> Ground:
    """Reduce Xt to its row space; rows shorter than 1e-12 times the longest become zero, and bounds include them."""
    space = RowSpace.of(Xt, least=1)
    # If all inputs are zero, any direction will do.
    basis = space.Q if space.rank else torch.eye(1, space.X.shape[1], dtype=space.X.dtype, device=space.X.device)
    length = space.P.norm(dim=1)
    zero = length <= 1e-12 * length.max()
    P = torch.where(zero[:, None], 0.0, space.P)
    outside = neglected(space.X, P, basis)
    lengths = torch.where(zero, 1.0, length)
    return Ground(P, basis, lengths, zero, space.size, outside, space.stretch, activation.slope)


@dataclass(frozen=True)
class Span:
    """The subspace that the maximisers in a piece lie in."""

    basis: Float[Tensor, "k r"]  # Q, orthonormal rows
    error: float = 0.0  # eta, a bound on what Q omits of a unit w; 0 for the whole space
    stretch: float = 1.0  # a bound on |Q w|^2 for unit w
    members: Int[Tensor, " A"] | None = None  # A, the samples that are not negative, if they are independent; else None
    dual: Float[Tensor, "A k"] | None = None  # maps the coordinates Q w to g_A (|A|, k); None if `members` is None
    dual_error: float = 0.0  # a bound on the error of g_A for unit w
    dual_size: float = 0.0  # a bound on |g_A| for unit w


def make_span(ground: Ground, states: Int[Tensor, " N"]) -> Span:
    """Return the span of the samples that are not negative, without the kinks, or the whole space.

    It is the whole space unless the activation is the ReLU and the samples are independent: the singular values of
    their unit rows are above 1e-5.
    """
    r = ground.rank
    whole = Span(torch.eye(r, dtype=ground.P.dtype, device=ground.P.device))
    states = states.to(ground.zero.device)
    members = ((states != NEGATIVE) & ~ground.zero).nonzero()[:, 0]
    members = members[(states[members] != KINK).long().sort(stable=True)[1]]
    n = len(members)
    if ground.slope != 0.0 or not 0 < n <= r:
        return whole
    rows = ground.P[members] / ground.length[members, None]
    Q, R = torch.linalg.qr(rows.T)
    all_rows = Q.T.contiguous()
    rounding = 16 * r**1.5 * math.sqrt(n) * UNIT_ROUNDOFF
    missed = float((rows - (rows @ Q) @ all_rows).norm()) + rounding
    smallest = float(torch.linalg.svdvals(R)[-1]) - missed - 4 * r * rounding
    if smallest < 1e-5:
        return whole
    inverse = torch.linalg.solve_triangular(R, torch.eye(n, dtype=R.dtype, device=R.device), upper=True)
    defect = float((all_rows @ Q - torch.eye(n, dtype=R.dtype, device=R.device)).norm()) + rounding
    off = float((inverse @ (all_rows @ rows.T)).sub_(torch.eye(n, dtype=R.dtype, device=R.device)).norm())
    off += rounding * n * float(inverse.norm())
    kinks = int((states[members] == KINK).sum())
    return Span(
        basis=all_rows[kinks:],
        error=2.0 * missed / smallest + rounding,
        stretch=1.0 + defect,
        members=members,
        dual=inverse[:, kinks:],
        dual_error=(off + float(inverse.norm()) * missed) / smallest,
        dual_size=1.0 / smallest,
    )


def whole_maximum(ground: Ground, Lambda: Float[Tensor, "N m"], inside: float) -> float:
    """Return a bound on h in the user's units from `inside`, a bound within the row space.

    The neglected part of Xt adds |Lambda|_F times its norm, because sigma is 1-Lipschitz.
    """
    outside = float(Lambda.norm()) * ground.neglected * (1.0 + 2 * Lambda.numel() * UNIT_ROUNDOFF)
    return ground.size * (inside * ground.stretch + outside) * (1.0 + 8 * UNIT_ROUNDOFF)


def climb(
    ground: Ground, Lambda: Float[Tensor, "N m"], w: Float[Tensor, "S r"], steps: int
) -> tuple[float, Float[Tensor, " r"]]:
    """Maximise h by power steps w <- P^T (sigma' * Lambda Lambda^T sigma); return h and the unit w."""
    best, where = 0.0, torch.nn.functional.normalize(w[0], dim=0)
    for _ in range(steps + 1):
        w = torch.nn.functional.normalize(w, dim=1)
        z = w @ ground.P.T
        slope = torch.where(z > 0, 1.0, torch.full((), ground.slope, dtype=z.dtype, device=z.device))
        outputs = (slope * z) @ Lambda
        value, place = outputs.norm(dim=1).max(dim=0)
        if float(value) > best:
            best, where = float(value), w[place]
        w = (slope * (outputs @ Lambda.T)) @ ground.P
    return best, where


def rough_maximum(ground: Ground, Lambda: Float[Tensor, "N m"]) -> tuple[float, Float[Tensor, " r"]]:
    """Run `climb` briefly from random directions, to find the scale of h."""
    starts = torch.randn(64, ground.rank, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return climb(ground, Lambda, starts.to(ground.P), steps=30)


def dividing_wall(moments: Float[Tensor, "n r"], weight: Float[Tensor, " N"]) -> Float[Tensor, " r"]:
    """Return the best normal a of a dividing wall among a few combinations of top eigenvectors of E[w w^T].

    `moments` are E[(w, p, n) w^T]. If a^T w has one sign on all directions that the node mixes, so has every entry of
    E[(p, n) a^T w]. So the best a has the largest minimum of the norms of their positive and negative parts.
    """
    r = moments.shape[1]
    top = torch.linalg.eigh(moments[:r])[1][:, -3:]
    pairs = [(i, j, sign) for i in range(top.shape[1]) for j in range(i) for sign in (1.0, -1.0)]
    normals = torch.stack(list(top.T) + [(top[:, i] + sign * top[:, j]) / math.sqrt(2.0) for i, j, sign in pairs])
    sides = weight.repeat(2)[:, None] * (moments[r:] @ normals.T)
    divided = torch.minimum(sides.clamp_min(0.0).norm(dim=0), sides.clamp_max(0.0).norm(dim=0))
    return normals[int(divided.argmax())]
