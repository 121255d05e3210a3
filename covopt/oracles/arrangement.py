"""The exact oracle for data of rank at most two: all activation cells of the circle.

Let Q (2, d) hold an orthonormal basis of the row space of Xt and P = Xt Q^T (N, 2). A unit direction w acts only
through q = Q w, |q| <= 1, and h(w) = |Lambda^T sigma(P q)|, so that the maximum lies on the circle |q| = 1. There the
signs of P q change at the at most N lines orthogonal to a row of P; between two of them sigma(P q) = D P q, D fixed,

    h(q) = |A q|,  A = sum_i D_i lambda_i p_i^T  (m, 2),

and the maximum over the arc is the top right singular vector of A, if that lies inside, or an end of the arc. Crossing
line i changes A by -(1 - a) lambda_i p'_i^T (p'_i is +-p_i, turned into the upper half plane), so that prefix sums give
every A; on the opposite arc all signs are opposite and A is (1 + a) Lambda^T P - A (MATH.md section 4, way 1).

**Why the bound is a proof.** u = 2^-53, S = sum_i |lambda_i| |p_i|.
* The prefix sums are balanced trees of depth k = ceil(log2 2N), written out here and not left to a library: each A is a
  sum of rounded terms with error at most (9 k + 30) u S in Frobenius norm.
* Computed angles are within 10 u of the exact ones. Each q lies in one of the computed arcs, and its signs differ from
  the arc's only for samples with |p_i^T q| <= 10 u |p_i|: an error of at most 2 * 10 u S in Lambda^T sigma(P q).
* The ends are evaluated at the exact normal of the line (5 u S away), through A q itself and not through q^T A^T A q,
  whose root would lose half of the digits. Where the true top singular vector is inside the arc, the value is at least
  |A|_F / sqrt 2, so that rounding A^T A, or the angle, costs at most 20 u of the value whether it is found or not.
* Normalised rows, norms over m outputs: (m + 20) u, relative.
* The part of Xt that Q does not span, E = Xt - P Q, changes h by at most |Lambda|_F |E|_F, since sigma is 1-Lipschitz.
  So the bound includes whatever the rank rule neglects.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.psd import row_space
from covopt.linalg.rounding import UNIT_ROUNDOFF, to_unit_scale
from covopt.linalg.row_space import RowSpace
from covopt.model.activation import Activation
from covopt.oracles.oracle import Answer, oracle_values
from covopt.runtime.errors import ProblemError


def row_rank(Xt: Float[Tensor, "N d"]) -> int:
    """Return the numerical rank of Xt."""
    return len(row_space(Xt.double()))


def has_rank_at_most(Xt: Float[Tensor, "N d"], most: int) -> bool:
    """Return True if `row_rank` is at most `most`; a few rows often refute it."""
    few = Xt[: 8 * (most + 1)]
    return row_rank(few) <= most and (len(few) == len(Xt) or row_rank(Xt) <= most)


class ArrangementOracle:
    """The exact maximum of h(w) = |Lambda^T sigma(Xt w)|, rank(Xt) <= 2, in O(N m log N).

    Calling it returns all local maxima on the circle, best first (on a plateau its two ends), evaluated by
    `oracle_values`, and a proved `upper_bound`: the maximum and the rounding that the module's text derives. Where h is
    0 everywhere the result is one arbitrary direction with value 0. A ProblemError refuses inputs of higher rank.
    """

    def __init__(self, Xt: Float[Tensor, "N d"], activation: Activation) -> None:
        self.Xt, self.activation = Xt, activation
        self._space = RowSpace.of(Xt, least=2, whole=2)
        if self._space.rank > 2:
            raise ProblemError(
                f"The inputs and their bias column have rank {self._space.rank}, and the arrangement covers rank 2 at"
                " most; use branch-and-bound or the relaxation."
            )
        self._X, P = self._space.X, self._space.P
        radius = torch.hypot(P[:, 0], P[:, 1])
        rows = (radius > 0).nonzero()[:, 0]
        unit = P[rows] / radius[rows, None]
        lower = (unit[:, 1] < 0) | ((unit[:, 1] == 0) & (unit[:, 0] < 0))
        sign = 1.0 - 2.0 * lower.double()
        unit = unit * sign[:, None]
        angle, order = torch.atan2(unit[:, 1], unit[:, 0]).sort()
        self._rows, self._radius, self._sign = rows[order], radius[rows[order]], sign[order]
        self._unit, self._angle = unit[order], angle

    def __call__(self, Lambda: Float[Tensor, "N m"], starts: Float[Tensor, "S d"] | None = None) -> Answer:
        """Return all local maxima of h and the proved maximum; `starts` is ignored."""
        Lambda, size = to_unit_scale(Lambda.double())
        scale = size * self._space.size
        weights = Lambda[self._rows] * self._radius[:, None]
        off_space = float(Lambda.norm()) * self._space.neglected
        if not weights.any():
            direction = torch.eye(1, self._X.shape[1], dtype=self._X.dtype, device=self._X.device)
            return Answer.like(self.Xt, direction, direction.new_zeros(1), scale * off_space * (1.0 + 2.0**-40))
        total = float(weights.norm(dim=1).sum())
        arcs = _Arcs(self._matrices(weights), self._unit, self._angle)
        q = arcs.maxima(256.0 * UNIT_ROUNDOFF * total)  # smaller derivatives of h^2, over |A|_F, count as zero
        directions = torch.nn.functional.normalize(q @ self._space.Q, dim=1)
        values, order = oracle_values(self._X, self.activation, Lambda, directions).sort(descending=True)
        # An arc value's absolute rounding, S = `total`: the sum in the module's text.
        allowance = (9 * math.ceil(math.log2(2 * len(self._rows))) + 100) * UNIT_ROUNDOFF * total
        bound = (max(float(values[0]), arcs.best) + allowance) * self._space.stretch
        bound = (bound * (1.0 + (Lambda.shape[1] + 20) * UNIT_ROUNDOFF) + off_space) * (1.0 + 8 * UNIT_ROUNDOFF)
        return Answer.like(self.Xt, directions[order], scale * values, scale * bound)

    def _matrices(self, weights: Float[Tensor, "K m"]) -> Float[Tensor, "2*K m 2"]:
        """Return A on the arcs after line 1 ... K and, opposite them, after line 1 ... K again."""
        slope = self.activation.slope
        # D_i s_i just before the first line; two Python numbers in torch.where would make it single precision.
        active = torch.where(self._sign > 0, self._sign, slope * self._sign)
        terms = weights[:, :, None] * self._unit[:, None, :]
        sums = prefix_sums(torch.cat([active[:, None, None] * terms, (slope - 1.0) * terms]))
        start, arcs = sums[len(weights) - 1], sums[len(weights) :]
        # A before the first line and A after the last one add up to (1 + a) Lambda^T P.
        return torch.cat([arcs, start + arcs[-1] - arcs])


class _Arcs:
    """The 2K arcs of the circle: arc j starts at the normal of line j, ends at the next one."""

    def __init__(self, A: Float[Tensor, "J m 2"], unit: Float[Tensor, "K 2"], angle: Float[Tensor, " K"]) -> None:
        normal = torch.stack([-unit[:, 1], unit[:, 0]], dim=1)
        ends = torch.cat([angle[1:], angle[:1] + math.pi])
        self.start_q = torch.cat([normal, -normal])
        self.start_e = torch.cat([unit, -unit])
        self.start, self.width = torch.cat([angle, angle + math.pi]), (ends - angle).repeat(2)
        self.A = A
        self.first = _side(A, self.start_q, self.start_e)
        self.last = _side(A, self.start_q.roll(-1, 0), self.start_e.roll(-1, 0))
        self.gap, self.inside_q, self.inside = self._top()
        self.inside_value = (A @ self.inside_q[:, :, None])[:, :, 0].norm(dim=1)
        ends_best = torch.maximum(self.first[0], self.last[0]).max()
        self.best = float(torch.maximum(ends_best, torch.where(self.inside, self.inside_value, 0.0).max()))

    def _top(self) -> tuple[Tensor, Float[Tensor, "J 2"], Tensor]:
        """Return A^T A's eigenvalue gap, top eigenvector on the arc's side, and if it is inside."""
        x, y = self.A[:, :, 0], self.A[:, :, 1]
        twice, difference = 2.0 * (x * y).sum(dim=1), (x + y).mul(x - y).sum(dim=1)
        # q = (-sin theta, cos theta): theta is a quarter turn behind the usual angle of q.
        theta = 0.5 * torch.atan2(twice, difference) - 0.5 * math.pi
        offset = torch.remainder(theta - self.start, math.pi)
        theta = self.start + offset
        q = torch.stack([-theta.sin(), theta.cos()], dim=1)
        return torch.hypot(twice, difference), q, (offset > 0) & (offset < self.width)

    def maxima(self, slope: float) -> Float[Tensor, "B 2"]:
        """Return every local maximum q of h: inside an arc, or at a line that h climbs to.

        Rounding can turn a zero derivative into `slope` times |A|_F.
        """
        keep = (self.width > 2e-15).nonzero()[:, 0]  # lines closer than that (radians) are one; no proof rests on it
        size = slope * self.A.flatten(1).norm(dim=1)
        falls, flat = _shape(self.first, -1.0, size)
        rises, level = _shape(self.last, 1.0, size)
        falls, flat, rises, level = falls[keep], flat[keep], rises[keep].roll(1), level[keep].roll(1)
        kink = (falls & (rises | level)) | (flat & rises)
        inside = (self.inside & (self.gap > size))[keep]
        q = torch.cat([self.start_q[keep][kink], self.inside_q[keep][inside]])
        values = torch.cat([self.first[0][keep][kink], self.inside_value[keep][inside]])
        positive = values > 0
        if not positive.any():  # h is constant on the circle
            return self.start_q[self.first[0].argmax()][None]
        return _distinct(q[positive], values[positive])


def _side(A: Tensor, q: Tensor, e: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return |A q| and half the derivatives of |A q|^2 along the circle, dq/dtheta = -e."""
    at, along = (A @ q[:, :, None])[:, :, 0], (A @ e[:, :, None])[:, :, 0]
    value = at.norm(dim=1)
    return value, -(at * along).sum(dim=1), along.square().sum(dim=1) - value.square()


def _shape(side: tuple[Tensor, Tensor, Tensor], towards: float, size: Tensor) -> tuple[Tensor, Tensor]:
    """Return masks: h falls away from the line on this side, or is level (to second order)."""
    _, derivative, curvature = side
    zero = derivative.abs() <= size
    return (towards * derivative > size) | (zero & (curvature < -size)), zero & (curvature.abs() <= size)


def _distinct(q: Float[Tensor, "B 2"], values: Float[Tensor, " B"]) -> Float[Tensor, "C 2"]:
    """Return the best of each run of directions within 1e-9 radians of the next."""
    q = q[values.argsort(descending=True)]
    angle, order = torch.atan2(q[:, 1], q[:, 0]).sort()
    opens = torch.diff(angle, prepend=angle[-1:] - 2.0 * math.pi) > 1e-9
    run = opens.long().cumsum(0)
    run = torch.where(run == 0, run[-1], run)  # directions before the first gap belong to the last run
    _, label = torch.unique(run, return_inverse=True)
    best = torch.full((int(label.max()) + 1,), len(q), device=q.device).scatter_reduce(0, label, order, "amin")
    return q[best]


def prefix_sums(terms: Float[Tensor, "n _ _"]) -> Float[Tensor, "n _ _"]:
    """Return the sums of terms 0 ... k, added as trees: error <= ceil(log2 n) u sum |terms|."""
    sums, shift = terms, 1
    while shift < len(sums):
        sums = torch.cat([sums[:shift], sums[shift:] + sums[:-shift]])
        shift *= 2
    return sums
