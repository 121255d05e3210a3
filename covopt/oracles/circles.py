"""Great circles on the sphere, their arcs, and the maxima of a function h next to each arc.

**The function.** h(q) = |M q + sum_g omega_g |e_g^T q||, with M (m, 3) and omega_g in R^m, on the unit sphere. It is
|A q| with one matrix A (m, 3) on each cell between the circles {q : e_g^T q = 0}, and has kinks on the circles.

**One circle.** The frame B_g of circle g has the rows b_1, b_2 and e_g. In its coordinates the points of the circle are
q = (cos, sin, 0). Circle j crosses it where f_j^T q = 0, f_j the first two coordinates of B_g e_j. Turn every e_j such
that f_j is in the upper half plane, and sort by the angle of f_j: a point that goes round the circle meets the
crossings in this order, and each e_j^T q changes from + to - there.

**The matrices.** On an arc of circle g, the other circles add the part R = sum_j +- omega_j e_j^T to M. With T the sum
of all omega_j e_j^T and the crossings sorted, R is T minus twice a prefix sum; on the opposite arc it is -R. The two
cells that meet at the arc have the matrices A = M + R +- omega_g e_g^T.

**Shapes.** Matrices (m, 3) are stored transposed, as (3, m). The arcs are the other dimensions: 2 halves of the circle
(the arc, the opposite arc), K crossings, c circles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from covopt.linalg.rounding import UNIT_ROUNDOFF
from covopt.linalg.three import eigenvectors, largest_eigenvalue
from covopt.oracles.arrangement import prefix_sums


@dataclass(frozen=True)
class Circles:
    """G great circles and their K = G - 1 crossings each; nothing here depends on h. Column g is circle g."""

    normal: Float[Tensor, "G 3"]  # e_g (G, 3), unit rows
    frame: Float[Tensor, "G 3 3"]  # B_g (G, 3, 3)
    order: Int[Tensor, "K G"]  # the circle j that makes each crossing (K, G)
    local: Float[Tensor, "3 K G"]  # B_g e_j (3, K, G), turned and sorted as the module's text says
    # |f_j|, the sine of the angle between the circles (K, G); small where they are nearly parallel
    length: Float[Tensor, "K G"]
    angle: Float[Tensor, "K G"]  # the angle of f_j (K, G), ascending in [0, pi]
    # the arcs from which the cells beside them are examined (K, G). Every cell lies beside such an arc
    shown: Bool[Tensor, "K G"]

    @classmethod
    def of(cls, normal: Float[Tensor, "G 3"], rounding: float) -> Circles:
        """Return the arrangement of the circles with these unit normals, in time O(G^2 log G).

        No two of them may be parallel. `rounding` bounds the error of a computed e_j^T q.
        """
        axis = torch.nn.functional.one_hot(normal.abs().argmin(dim=1), 3).to(normal.dtype)
        first = torch.nn.functional.normalize(torch.linalg.cross(normal, axis), dim=1)
        # Right-handed orthonormal frames, with the rows b_1, b_2 and the normal e.
        frame = torch.stack([first, torch.linalg.cross(normal, first), normal], dim=1)
        local = torch.einsum("gab,jb->ajg", frame, normal)
        local = torch.where((local[1] < 0) | ((local[1] == 0) & (local[0] < 0)), -local, local)
        angle = torch.atan2(local[1], local[0])
        angle.fill_diagonal_(math.inf)  # a circle does not cross itself: sorted last and dropped
        angle, order = angle.sort(dim=0)
        order = order[:-1]
        local = local.gather(1, order.expand(3, -1, -1))
        length = torch.hypot(local[0], local[1])
        shown = _shown(order, angle[:-1], 4.0 * math.pi * rounding / length.amin(dim=0))
        return cls(normal, frame, order, local, length, angle[:-1], shown)

    def slices(self, rows: int, entries: int) -> Iterator[slice]:
        """Yield slices of circles; the matrices (3, rows) of all arcs of one slice have at most `entries` entries."""
        count = max(1, entries // (3 * rows * max(1, len(self.order))))
        for start in range(0, len(self.normal), count):
            yield slice(start, start + count)


def _shown(order: Int[Tensor, "K G"], angle: Float[Tensor, "K G"], short: Float[Tensor, " G"]) -> Bool[Tensor, "K G"]:
    """Return a mask of arcs: at least one beside every cell that has an arc longer than `short`.

    Call a circle clear if all of its arcs are longer: then their order is certain. An arc of a clear circle g is left
    out if one of the two circles that end it is clear and comes before g, for that circle has arcs beside the same
    cells. So of the long arcs of a cell one remains: one on a circle that is not clear, or the first one.
    """
    clear = (torch.cat([angle[1:], angle[:1] + math.pi]) - angle > short).all(dim=0)
    earlier = clear[order] & (order < torch.arange(len(clear), device=order.device))
    return ~(clear & (earlier | earlier.roll(-1, 0)))


@dataclass(frozen=True)
class Points:
    """Points q on the sphere (B, 3), and the values of h there (B,)."""

    q: Float[Tensor, "B 3"]
    values: Float[Tensor, " B"]

    def where(self, keep: Bool[Tensor, " B"]) -> Points:
        """Return the points at which the mask is true."""
        return Points(self.q[keep], self.values[keep])


class Arcs:
    """All arcs of the circles in `columns`, for the h with M = `odd` and omega_g the rows of `even`.

    Attributes:
        value: h at the point where the arc starts (2, K, c); the arc before it ends there.
        inside: True if h, on the circle, has a local maximum inside the arc (2, K, c): where the top right singular
            vector of A, restricted to the circle's plane, lies inside it.
        top: h at that maximum, the singular value (2, K, c).
    """

    def __init__(self, circles: Circles, columns: slice, odd: Float[Tensor, "m 3"], even: Float[Tensor, "G m"]) -> None:
        self.frame, self.own = circles.frame[columns], even[columns].T
        self.order, self.angle = circles.order[:, columns], circles.angle[:, columns]
        self.local, self.length = circles.local[:, :, columns], circles.length[:, columns]
        self.shown = circles.shown[:, columns]
        self.even, self.index = even, torch.arange(len(even), device=even.device)[columns]
        M = torch.einsum("md,cbd->bmc", odd, self.frame)
        terms = even.T[:, self.order].permute(1, 0, 2)[:, None] * self.local.permute(1, 0, 2)[:, :, None]
        sums = prefix_sums(terms.flatten(1, 2).contiguous()).unflatten(1, (3, len(odd)))
        R = sums[-1:] - 2.0 * sums
        self.A = torch.stack([M + R, M - R])
        self._measure()

    def _measure(self) -> None:
        x, y = self.A[:, :, 0], self.A[:, :, 1]
        self.unit = self.local[:2] / self.length
        self.value = (y * self.unit[0, :, None] - x * self.unit[1, :, None]).square_().sum(dim=2).sqrt_()
        self.xx, self.yy, self.xy = x.square().sum(dim=2), y.square().sum(dim=2), (x * y).sum(dim=2)
        mean, difference = 0.5 * (self.xx + self.yy), 0.5 * (self.xx - self.yy)
        self.top = (mean + torch.hypot(difference, self.xy)).sqrt()
        start = self.angle + 0.5 * math.pi
        width = torch.cat([self.angle[1:], self.angle[:1] + math.pi]) - self.angle
        # The opposite arc starts half a turn later, and a singular vector is known up to half a turn.
        offset = torch.remainder(0.5 * torch.atan2(self.xy, difference) - start, math.pi)
        self.inside = (offset > 0) & (offset < width)
        self.top_angle = start + offset

    def best(self) -> Points:
        """Return two points: the start of an arc with the largest h, and the highest maximum inside an arc.

        The second value is 0 if no arc has a maximum inside.
        """
        tops = torch.where(self.inside, self.top, 0.0)
        start, top = _largest(self.value), _largest(tops)
        q = torch.cat([self._global(self._starts(start), start), self._global(self._tops(top), top)])
        return Points(q, torch.cat([self.value[start], tops[top]]))

    def kinks(self, floor: float) -> Points:
        """Return the local maxima of h that lie on circles, inside arcs or at crossings, with h >= floor."""
        inside, crossing = self._kinks_inside(floor), self._kinks_crossing(floor)
        return Points(torch.cat([inside.q, crossing.q]), torch.cat([inside.values, crossing.values]))

    def _kinks_inside(self, floor: float) -> Points:
        """Return the local maxima inside arcs.

        With y = A q and a_3 the last column of A, the slope of h^2 / 2 away from the circle is y^T omega + y^T a_3 on
        one side and y^T omega - y^T a_3 on the other. Both must be negative.
        """
        where = (self.inside & (self.top >= floor)).nonzero().unbind(1)
        q, A = self._tops(where), self._matrices(where)
        y = _apply(A, q)
        falls = (y * A[:, 2]).sum(dim=1).abs() < -(y * self.own[:, where[2]].T).sum(dim=1)
        where = tuple(index[falls] for index in where)
        return Points(self._global(q[falls], where), self.top[where])

    def _kinks_crossing(self, floor: float) -> Points:
        """Return the local maxima at crossings: h falls along both circles, in both directions.

        Then it falls in all directions, since its slope is linear between them. Beyond the crossing A is its matrix,
        before it A + 2 omega_j e_j^T.
        """
        where = ((self.value >= floor) & (self.order < self.index)).nonzero().unbind(1)
        half, k, c = where
        q, A = self._starts(where), self._matrices(where)
        y, e, length = _apply(A, q), self.local[:, k, c].T, self.length[k, c]
        sign = 1.0 - 2.0 * half.to(e.dtype)
        backwards = torch.cat([self.unit[:, k, c].T * sign[:, None], torch.zeros_like(e[:, :1])], dim=1)
        slope = (y * _apply(A, backwards)).sum(dim=1)
        own, other = (y * self.own[:, c].T).sum(dim=1), (y * self.even[self.order[k, c]]).sum(dim=1)
        along = (y * _apply(A, torch.linalg.cross(q, e))).sum(dim=1)
        falls = (slope > 0) & (slope + 2.0 * length * other < 0) & (along.abs() < -length * own)
        where = (half[falls], k[falls], c[falls])
        return Points(self._global(q[falls], where), self.value[where])

    def cells(self, floor: float) -> Cells:
        """Return the cells beside the shown arcs in which h may reach `floor`, judged by bounds on |A|_op."""
        side, half, k, c = ((self._reach() >= floor * floor) & self.shown).nonzero().unbind(1)
        sign, turn = (1.0 - 2.0 * index.to(self.own.dtype) for index in (side, half))
        A = self._matrices((half, k, c))
        A[:, 2] += sign[:, None] * self.own[:, c].T
        # On the arc after crossing k, e_k^T q < 0 and the next one is > 0; after the last comes the first, turned.
        following = (k + 1) % len(self.order)
        wraps = torch.where(following == 0, -turn, turn)
        walls = [-turn[:, None] * self.local[:, k, c].T, wraps[:, None] * self.local[:, following, c].T]
        return Cells(A, torch.stack(walls, dim=1), sign, self.frame[c])

    def _reach(self) -> Float[Tensor, "2 2 K c"]:
        """Return upper bounds on |A|_op^2 for the cells on the positive and on the negative side of each arc."""
        x, y, z = self.A.unbind(2)
        xz, yz, zz = (x * z).sum(dim=2), (y * z).sum(dim=2), z.square().sum(dim=2)
        own_x, own_y, own_z = ((column * self.own).sum(dim=2) for column in (x, y, z))
        own = self.own.square().sum(dim=0)
        # Terms of the entries below can cancel.
        rounding = 8 * (len(self.own) + 6) * UNIT_ROUNDOFF * (self.xx + self.yy + zz + own)
        sides = []
        for side in (1.0, -1.0):
            diagonal = (self.xx, self.yy, zz + own + 2.0 * side * own_z)
            off = (self.xy, xz + side * own_x, yz + side * own_y)
            sides.append(largest_eigenvalue(diagonal, off) + rounding)
        return torch.stack(sides)

    def _matrices(self, where: tuple[Tensor, ...]) -> Float[Tensor, "B 3 m"]:
        half, k, c = where
        return self.A[half, k, :, :, c]

    def _starts(self, where: tuple[Tensor, ...]) -> Float[Tensor, "B 3"]:
        half, k, c = where
        sign = 1.0 - 2.0 * half.to(self.unit.dtype)
        return torch.stack([-self.unit[1, k, c] * sign, self.unit[0, k, c] * sign, torch.zeros_like(sign)], dim=1)

    def _tops(self, where: tuple[Tensor, ...]) -> Float[Tensor, "B 3"]:
        angle = self.top_angle[where] + math.pi * where[0]
        return torch.stack([angle.cos(), angle.sin(), torch.zeros_like(angle)], dim=1)

    def _global(self, q: Float[Tensor, "B 3"], where: tuple[Tensor, ...]) -> Float[Tensor, "B 3"]:
        return (q[:, None] @ self.frame[where[2]])[:, 0]


@dataclass(frozen=True)
class Cells:
    """Some cells, each in the frame (B, 3, 3) of the circle from which it was seen."""

    A: Float[Tensor, "B 3 m"]  # the matrix of h in the cell, transposed (B, 3, m)
    walls: Float[Tensor, "B 2 3"]  # the normals of the two circles that end the arc, turned inwards (B, 2, 3)
    side: Float[Tensor, " B"]  # the side of the circle on which the cell lies, +-1 (B,)
    frame: Float[Tensor, "B 3 3"]

    def tops(self) -> tuple[Points, float]:
        """Return the top singular vectors q that lie inside the three known walls, |A q|, and a bound eta.

        Both q and -q are tried. |A|_op^2 <= (1 + eta) |A q|^2 for every cell, also for those whose q lies outside. It
        is proved by Gershgorin's circles for V^T (A^T A) V, V the computed eigenvectors: no library's accuracy is
        relied on.
        """
        if len(self.A) == 0:
            return Points(self.A.new_zeros(0, 3), self.A.new_zeros(0)), 0.0
        G = self.A @ self.A.mT
        V = eigenvectors(G)
        T = V.mT @ G @ V
        defect = float((V.mT @ V - torch.eye(3, dtype=V.dtype, device=V.device)).flatten(1).norm(dim=1).max())
        top, column = T.diagonal(dim1=1, dim2=2).max(dim=1)
        ratio = T.abs().sum(dim=2).amax(dim=1) / top.clamp_min(torch.finfo(T.dtype).tiny)
        eta = max(0.0, float(ratio.max()) * (1.0 + 4.0 * defect) - 1.0) + 64 * UNIT_ROUNDOFF
        q = V.gather(2, column[:, None, None].expand(-1, 3, 1))[:, :, 0]
        q = torch.cat([q, -q])
        again = torch.arange(len(self.A), device=q.device).repeat(2)
        inside = (q[:, 2] * self.side[again] > 0) & ((self.walls[again] @ q[:, :, None])[:, :, 0] > 0).all(dim=1)
        q, again = q[inside], again[inside]
        values = _apply(self.A[again], q).norm(dim=1)
        return Points((q[:, None] @ self.frame[again])[:, 0], values), eta


def _apply(A: Float[Tensor, "B 3 m"], q: Float[Tensor, "B 3"]) -> Float[Tensor, "B m"]:
    """Return A q for each cell; A is stored transposed."""
    return (q[:, None] @ A)[:, 0]


def _largest(values: Tensor) -> tuple[Tensor, ...]:
    """Return the index of the largest entry, as one tensor of length 1 for each dimension."""
    place = int(values.argmax())  # torch.unravel_index imports sympy: a second
    return tuple(torch.tensor([k], device=values.device) for k in np.unravel_index(place, values.shape))


def leaders(unit: Float[Tensor, "n 3"], near: float) -> Int[Tensor, " n"]:
    """Return for each unit row the index of its leader: an earlier row within `near` of it up to sign, or itself."""
    lead = torch.full((len(unit),), -1, device=unit.device)
    close = _close(unit, near)
    lonely = close.sum(dim=1) == 1
    lead[lonely] = lonely.nonzero()[:, 0]
    for row in (~lonely).nonzero()[:, 0].tolist():
        if lead[row] < 0:
            lead[close[row] & (lead < 0)] = row
    return lead


def _close(unit: Float[Tensor, "n 3"], near: float) -> Bool[Tensor, "n n"]:
    """Return a mask of the pairs of rows within `near` of each other up to sign.

    It uses differences of entries, as cosines see no angle below 1e-8.
    """
    same, opposite = (
        torch.stack([(unit[:, None, axis] - sign * unit[None, :, axis]).square() for axis in range(3)]).sum(dim=0)
        for sign in (1.0, -1.0)
    )
    return torch.minimum(same, opposite) <= near * near
