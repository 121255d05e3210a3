"""The exact oracle for data of rank three.

It visits every cell, arc and vertex of N great circles on the sphere. Let Q (3, d) hold an orthonormal basis of the row
space of Xt and P = Xt Q^T (N, 3); as in `arrangement`, the maximum of h(q) = |Lambda^T sigma(P q)| over |q| = 1 is
sought. sigma_a(t) = ((1 + a) t + (1 - a) |t|) / 2, so that rows p_i which are parallel, or opposite, make one term:
with unit rows e_g and p_i = +-r_i e_g for the samples i of group g,

    h(q) = |M q + sum_g omega_g |e_g^T q||,  M = (1 + a)/2 Lambda^T P,  omega_g = (1 - a)/2 sum_i r_i lambda_i.

The signs of e_g^T q are fixed on each of the at most G (G - 1) + 2 cells into which the circles e_g^T q = 0 cut the
sphere. There h(q) = |A q|, and the maximum over the closed cell is the top singular vector of A, if that lies inside,
or is on the boundary: on a circle, which is an arrangement of rank two with 2 (G - 1) arcs. Every cell has an arc on
its boundary, so the arcs of all circles show all cells: O(N^2 m) operations (MATH.md section 4, way 1). `circles`
computes them.

**Why the bound is a proof.** u = 2^-53, S = sum_i |lambda_i| |p_i|, k = ceil(log2 2N).
* *Grouping.* Rows within 4e-10 of each other form one group; it changes h by at most
  sum_i |lambda_i| |p_i -+ r_i e_g|, which is added. The part that Q does not span is added as in `arrangement`.
* *Matrices.* Prefix sums are trees, so that each A has an error below (4 k + n + 80) u S, n the largest group.
* *Arcs.* In its circle's frame, a computed e_j^T q has an error below eps = 50 u. So a point of circle g lies in a
  computed arc whose signs are its own except where |e_j^T q| <= eps: an error of 2 eps S. The maximum over the arc is
  an end, or the top singular vector in the circle's plane: where that is inside the arc and the computed one is not,
  |A q| falls from the one towards the other to (1 - 20 u) of the maximum at most, and an end is in between.
* *Cells seen.* Let theta_g be the smallest sine of an angle between circle g and another. In the middle of an arc of C
  longer than pi eps / theta_g all |e_j^T q| > eps, j != g, so that the computed arc there has the signs of C, and its
  A. Then V = |A|_op bounds h in the interior of C, and is attained only by q*, a top singular vector inside. The
  computed one, q', |A q'|^2 >= V^2 / (1 + eta), is either in C, where h(q') = |A q'| is evaluated; or the great
  circle from q* to q' (to -q' if q*^T q' < 0), along which |A q| decreases, leaves C at a point of an arc, and h is
  at least |A q'| there. So the signs of q' need not be exact, and a cell with V below the best value so far needs no
  q'.
* *Cells not seen* have no such arc, so a boundary shorter than pi eps sum_g 1/theta_g (they are convex: one arc for
  each circle), and no disc of radius arcsin kappa fits in, kappa = (eps/2) sum_g 1/theta_g. If q* is inside C, a point
  q of the boundary is that close, and |A q| >= V (1 - kappa^2)^(1/2).
* A A^T and norms over m outputs: (2 m + 60) u, relative; h(q') and |A q'| agree up to (4 N + 8 k + 4 m + 400) u S.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.rounding import UNIT_ROUNDOFF, to_unit_scale
from covopt.linalg.row_space import RowSpace
from covopt.model.activation import Activation
from covopt.oracles.arrangement import prefix_sums
from covopt.oracles.circles import Arcs, Circles, Points, leaders
from covopt.oracles.oracle import Answer, oracle_values
from covopt.runtime.errors import ProblemError


class SphereOracle:
    """The exact maximum of h(w) = |Lambda^T sigma(Xt w)|, rank(Xt) = 3, in O(N^2 m log N).

    Calling it returns the local maxima with h >= `keep` times the maximum, best first, evaluated by `oracle_values`,
    and a proved `upper_bound`: the maximum and the rounding that the module's text derives. Local maxima are inside
    cells, inside arcs, or at vertices; where more than two circles meet in one point, or h is flat, some may be missing
    and others may not be local maxima, but never the largest. Where h is 0 everywhere the result is one arbitrary
    direction with value 0. Memory is O(N^2), for a table of all crossings; the matrices (3, m) of one batch of circles
    have about `entries` entries. A ProblemError refuses inputs of another rank.
    """

    def __init__(
        self, Xt: Float[Tensor, "N d"], activation: Activation, keep: float = 0.5, entries: int = 2**18
    ) -> None:
        self.Xt, self.activation, self.keep, self.entries = Xt, activation, keep, entries
        self._space = RowSpace.of(Xt, whole=3)
        if (rank := self._space.rank) != 3:
            remedy = "ArrangementOracle" if rank < 3 else "branch-and-bound or the relaxation"
            raise ProblemError(
                f"The inputs and their bias column have rank {rank}, and the arrangement on the sphere covers rank 3"
                f" only; use {remedy}."
            )
        self._X, self._Q, self._P = self._space.X, self._space.Q, self._space.P
        self._radius = self._P.norm(dim=1)
        eps = 50 * UNIT_ROUNDOFF  # the uncertainty of a computed e_j^T q: eps in the module's text
        self._circles = Circles.of(self._group(), eps)
        kappa = 0.5 * eps * float((1.0 / self._circles.length.amin(dim=0)).sum()) * (1.0 + 2.0**-20)
        self._growth = 1.0 / math.sqrt(1.0 - kappa**2) if kappa < 1.0 else math.inf

    def __call__(self, Lambda: Float[Tensor, "N m"], starts: Float[Tensor, "S d"] | None = None) -> Answer:
        """Return the large local maxima of h and the proved maximum; `starts` is ignored."""
        Lambda, size = to_unit_scale(Lambda.double())
        scale = size * self._space.size
        sizes = Lambda.norm(dim=1)
        off_space = (float(Lambda.norm()) * self._space.neglected + float(sizes @ self._moved)) * (1.0 + 2.0**-30)
        total = float(sizes @ self._radius) * (1.0 + 2.0**-30)
        if total == 0.0:
            direction = torch.eye(1, self._X.shape[1], dtype=self._X.dtype, device=self._X.device)
            return Answer.like(self.Xt, direction, direction.new_zeros(1), scale * off_space * self._space.stretch)
        search = _Search(self, Lambda, total)
        directions = torch.nn.functional.normalize(_distinct(search.found) @ self._Q, dim=1)
        values, order = oracle_values(self._X, self.activation, Lambda, directions).sort(descending=True)
        bound = (max(float(values[0]), search.best) + self._allowance() * total) * (1.0 + search.eta)
        bound *= (1.0 + (2 * Lambda.shape[1] + 60) * UNIT_ROUNDOFF) * self._growth
        bound = (bound + off_space) * self._space.stretch * (1.0 + 8 * UNIT_ROUNDOFF)
        return Answer.like(self.Xt, directions[order], scale * values, scale * bound)

    def _group(self) -> Float[Tensor, "G 3"]:
        """Group the rows that share a circle, bound the error of this, return the circles' rows.

        If there are fewer than three, circles of weight 0 are added, which are harmless and give every cell an arc.
        """
        rows = (self._radius > 0).nonzero()[:, 0]
        if self.activation.is_linear:
            rows = rows[:0]
        unit = self._P[rows] / self._radius[rows, None]
        axes = torch.eye(3, dtype=unit.dtype, device=unit.device)
        # Unit rows closer than this (up to sign) are one circle. It balances the error of grouping, near S, with that
        # of nearly parallel circles, (eps / near)^2.
        near = 4e-10
        for candidates in (unit, torch.cat([unit, axes])):
            lead, group = torch.unique(leaders(candidates, near), return_inverse=True)
            if len(lead) >= 3:
                break
        normal, group = candidates[lead], group[: len(rows)]
        turned = torch.where(((unit * normal[group]).sum(dim=1) < 0)[:, None], -normal[group], normal[group])
        moved = (self._P[rows] - self._radius[rows, None] * turned).norm(dim=1) + 8 * UNIT_ROUNDOFF * self._radius[rows]
        self._moved = torch.zeros_like(self._radius).index_copy(0, rows, moved)
        self._rows, self._group_of = rows, group
        return normal

    def _allowance(self) -> float:
        """Return the absolute rounding of any value, for S = 1.

        A has an error at q*, at q', and on the arc where the path from q* to q' leaves the cell, twice more if it
        leaves at the arc's end; 4 eps and the error of the ends are added.
        """
        largest = int(torch.bincount(self._group_of).max()) if len(self._group_of) else 0
        return (20 * self._depth() + 5 * largest + 800) * UNIT_ROUNDOFF

    def _depth(self) -> int:
        return math.ceil(math.log2(2 * max(len(self._X), 3)))

    def _terms(self, Lambda: Float[Tensor, "N m"]) -> tuple[Float[Tensor, "m 3"], Float[Tensor, "G m"]]:
        """Return M and the omega_g."""
        slope = self.activation.slope
        odd = 0.5 * (1.0 + slope) * prefix_sums(Lambda[:, :, None] * self._P[:, None, :])[-1]
        weights = 0.5 * (1.0 - slope) * self._radius[self._rows, None] * Lambda[self._rows]
        return odd, weights.new_zeros(len(self._circles.normal), Lambda.shape[1]).index_add(0, self._group_of, weights)


class _Search:
    """One pass over all circles: the points found are the large local maxima, and the point with the largest h.

    `best` is this h, and `eta` a bound on the relative error of the cells' computed singular vectors.
    """

    def __init__(self, oracle: SphereOracle, Lambda: Float[Tensor, "N m"], total: float) -> None:
        self.odd, self.even = oracle._terms(Lambda)
        self.circles, self.keep = oracle._circles, oracle.keep
        roundings = 4 * len(oracle._X) + 8 * oracle._depth() + 4 * Lambda.shape[1] + 400
        self.agreement = roundings * UNIT_ROUNDOFF * total  # up to this difference h(q') and |A q'| count as equal
        poles = torch.cat([self.circles.normal, -self.circles.normal])
        self.best, self.eta, self._where = -1.0, 0.0, poles[:1]
        self._climb(Points(poles, self._values(poles)))
        maxima = []
        for columns in self.circles.slices(Lambda.shape[1], oracle.entries):
            maxima += self._look_at(Arcs(self.circles, columns, self.odd, self.even))
        large = [points.where(points.values >= self.keep * self.best) for points in maxima]
        values = torch.cat([points.values for points in large] + [poles.new_full((1,), self.best)])
        self.found = Points(torch.cat([points.q for points in large] + [self._where]), values)

    def _look_at(self, arcs: Arcs) -> list[Points]:
        """Return large local maxima on the circles and in the cells next to them."""
        self._climb(arcs.best())
        tops, eta = arcs.cells(self.keep * self.best).tops()
        self.eta = max(self.eta, eta)
        inside = tops.where((self._values(tops.q) - tops.values).abs() <= self.agreement)
        self._climb(inside)
        return [inside, arcs.kinks(self.keep * self.best)]

    def _climb(self, points: Points) -> None:
        """Keep the best of these points if it is the best so far."""
        if len(points.values):
            top = int(points.values.argmax())
            if float(points.values[top]) > self.best:
                self.best, self._where = float(points.values[top]), points.q[top : top + 1]

    def _values(self, q: Float[Tensor, "B 3"]) -> Float[Tensor, " B"]:
        """Return h(q), from the odd and the even part."""
        return (q @ self.odd.T + (q @ self.circles.normal.T).abs() @ self.even).norm(dim=1)


def _distinct(points: Points) -> Float[Tensor, "C 3"]:
    """Return the best of points closer than 1e-8 to each other, at most 500."""
    most = 500
    # Each point is found at most a few times: four times as many contain enough distinct ones.
    q = points.q[points.values.argsort(descending=True)[: 4 * most]]
    close = torch.cdist(q, q, compute_mode="donot_use_mm_for_euclid_dist") <= 1e-8
    first = close.to(torch.uint8).argmax(dim=1) == torch.arange(len(q), device=q.device)
    return q[first][:most]
