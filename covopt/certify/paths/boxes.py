"""The best prices of many nodes at once: the largest inner product, made small over a box, by an interior point method.

For neurons' outputs a_j >= 0 on the samples and fixed offsets o_j, a node asks for

    min over c in a box of  max_j max( o_j + <c, a_j>, -<c, a_j> ),

a linear programme with a few variables and many rows. All nodes share the a_j, so that Mehrotra's predictor and
corrector steps of a whole batch are a few products and one batched Cholesky factorisation. Nothing has to be trusted:
any c in the box proves a bound of its own, and any outputs x >= 0 with sum 1 describe a neuron.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

TINY = 1e-300


@dataclass(frozen=True)
class Boxes:
    """The boxes of a batch of nodes.

    A node has four kinds of rows, which are at least 0: t - o_j - <c, a_j>, t + <c, a_j>, c_i - low_i and high_i - c_i.
    """

    low: Float[Tensor, "B N"]  # its lower ends, which may be infinite
    high: Float[Tensor, "B N"]  # its upper ends
    varies: Bool[Tensor, "B N"]  # the entries of c that are chosen; the others are 0
    offsets: Float[Tensor, "B J"]  # o

    def only(self, keep: Tensor) -> Boxes:
        """Return the boxes of some of the nodes."""
        return Boxes(*(getattr(self, field.name)[keep] for field in fields(self)))

    @cached_property
    def rows(self) -> Bool[Tensor, "B R"]:
        """A mask of the rows that a node has: its box may be open on some sides."""
        ends = [self.varies & torch.isfinite(end) for end in (self.low, self.high)]
        return torch.cat([torch.ones_like(self.offsets, dtype=torch.bool).repeat(1, 2), *ends], dim=1)

    def slacks(self, c: Tensor, t: Tensor, A: Float[Tensor, "N J"]) -> Float[Tensor, "B R"]:
        """Return the values of the rows; 1 for those that a node does not have."""
        products = c @ A
        values = torch.cat([t - self.offsets - products, t + products, c - self.low, self.high - c], dim=1)
        return torch.where(self.rows, values, 1.0)

    def largest(self, c: Tensor, A: Float[Tensor, "N J"]) -> Float[Tensor, " B"]:
        """Return the maximum at c, which is the smallest t there."""
        products = c @ A
        return torch.maximum((self.offsets + products).amax(dim=1), (-products).amax(dim=1))


@dataclass(frozen=True)
class Settled:
    """Bounds and prices of each node."""

    prices: Float[Tensor, "B N"]  # the best c
    above: Float[Tensor, " B"]  # the maximum at c, an upper bound on the minimum
    below: Float[Tensor, " B"]  # a lower bound on it
    plus: Float[Tensor, "B J"]  # multipliers of the rows of either kind: they add up
    minus: Float[Tensor, "B J"]  # to 1 together

    def improve(self, where: Tensor, state: _State, A: Float[Tensor, "N J"]) -> None:
        """Take over what an iterate says of these nodes."""
        boxes, value = state.boxes, state.boxes.largest(state.c, A)
        lower = value < self.above[where]
        self.above[where[lower]], self.prices[where[lower]] = value[lower], state.c[lower]
        plus, minus, _ = state.multipliers.split([A.shape[1], A.shape[1], 2 * len(A)], dim=1)
        total = (plus + minus).sum(dim=1, keepdim=True)
        plus, minus = plus / total, minus / total
        g = (plus - minus) @ A.T
        ends = torch.where((g.abs() < 1e-12) | ~boxes.varies, 0.0, g * torch.where(g > 0.0, boxes.low, boxes.high))
        least = (plus * boxes.offsets).sum(dim=1) + ends.sum(dim=1)
        valid = torch.isfinite(total[:, 0]) & ((least > self.below[where]) | torch.isinf(self.below[where]))
        self.below[where[valid]] = torch.maximum(least, self.below[where])[valid]
        self.plus[where[valid]], self.minus[where[valid]] = plus[valid], minus[valid]


@dataclass(frozen=True)
class _State:
    """An iterate: prices c, the maximum t, and the multipliers of the rows, 0 for those that a node does not have."""

    boxes: Boxes
    c: Float[Tensor, "B N"]
    t: Float[Tensor, "B 1"]
    multipliers: Float[Tensor, "B R"]

    @staticmethod
    def start(boxes: Boxes, A: Float[Tensor, "N J"]) -> _State:
        """Return a point inside of the box, and multipliers that belong to it."""
        low, high = boxes.low, boxes.high
        bounded_below, bounded_above = boxes.varies & torch.isfinite(low), boxes.varies & torch.isfinite(high)
        ends = torch.where(bounded_below, low.abs(), 0.0), torch.where(bounded_above, high.abs(), 0.0)
        size = 0.3 * torch.maximum(*ends).amax(dim=1, keepdim=True) + 1e-12
        one_sided = torch.where(bounded_below, low + size, torch.where(bounded_above, high - size, 0.0))
        c = torch.where(bounded_below & bounded_above, 0.5 * (low + high), one_sided)
        t = 1.1 * boxes.largest(c, A)[:, None] + 1e-9
        multipliers = torch.where(boxes.rows, 1.0 / boxes.slacks(c, t, A), 0.0)
        return _State(boxes, c, t, multipliers / multipliers[:, : 2 * A.shape[1]].sum(dim=1, keepdim=True))

    def only(self, keep: Tensor) -> _State:
        """Return the iterate of some of the nodes."""
        return _State(self.boxes.only(keep), self.c[keep], self.t[keep], self.multipliers[keep])

    def stepped(self, A: Float[Tensor, "N J"], squares: Float[Tensor, "J N*N"]) -> _State:
        """Return the iterate after a predictor and a corrector step."""
        newton = _Newton(self, A, squares)
        first = newton.step(torch.zeros_like(self.multipliers))
        aim = (newton.complementarity(first) / newton.mean).clamp(0.0, 1.0) ** 3 * newton.mean
        step = newton.step(torch.where(newton.rows, aim[:, None] - first.slacks * first.multipliers, 0.0))
        primal, dual = newton.lengths(step)
        c, t = self.c + primal * step.c, self.t + primal * step.t
        return _State(self.boxes, c, t, self.multipliers + dual * step.multipliers)


class _Step(NamedTuple):
    """A direction: of c, t, the slacks and the multipliers."""

    c: Float[Tensor, "B N"]
    t: Float[Tensor, "B 1"]
    slacks: Float[Tensor, "B R"]
    multipliers: Float[Tensor, "B R"]


class _Newton:
    """The linearised conditions at an iterate, with a factorised matrix."""

    def __init__(self, state: _State, A: Float[Tensor, "N J"], squares: Float[Tensor, "J N*N"]) -> None:
        boxes, N, J = state.boxes, *A.shape
        self._A, self._varies, self.rows = A, boxes.varies, boxes.rows
        self._slacks = boxes.slacks(state.c, state.t, A).clamp_min(TINY)
        self._multipliers = state.multipliers
        self._weights = self._multipliers / self._slacks
        self.mean = (self._multipliers * self._slacks).sum(dim=1) / self.rows.sum(dim=1)
        plus, minus, low, high = self._weights.split([J, J, N, N], dim=1)
        matrix = ((plus + minus) @ squares).view(-1, N, N) * boxes.varies[:, :, None] * boxes.varies[:, None]
        matrix = matrix + torch.diag_embed(torch.where(boxes.varies, low + high, 1.0))
        border = ((minus - plus) @ A.T * boxes.varies)[:, :, None]
        corner = (plus + minus).sum(dim=1)[:, None, None]
        whole = torch.cat([torch.cat([matrix, border], 2), torch.cat([border.mT, corner], 2)], 1)
        self._scale = torch.diagonal(whole, dim1=1, dim2=2).clamp_min(TINY).rsqrt()
        whole = self._scale[:, :, None] * whole * self._scale[:, None]
        self._factor = torch.linalg.cholesky_ex(whole + 1e-12 * torch.eye(N + 1, dtype=A.dtype))[0]

    def step(self, wanted: Float[Tensor, "B R"]) -> _Step:
        """Return the direction towards these products of slack and multiplier."""
        (N, J), targets = self._A.shape, wanted / self._slacks
        plus, minus, low, high = targets.split([J, J, N, N], dim=1)
        along = ((minus - plus) @ self._A.T + low - high) * self._varies
        right = self._scale * torch.cat([along, (plus + minus).sum(dim=1, keepdim=True) - 1.0], 1)
        solved = self._scale * torch.cholesky_solve(right[:, :, None], self._factor)[:, :, 0]
        c, t = solved[:, :-1] * self._varies, solved[:, -1:]
        moved = c @ self._A
        slacks = torch.where(self.rows, torch.cat([t - moved, t + moved, c, -c], dim=1), 0.0)
        return _Step(c, t, slacks, targets - self._multipliers - self._weights * slacks)

    def lengths(self, step: _Step) -> tuple[Float[Tensor, "B 1"], Float[Tensor, "B 1"]]:
        """Return how far slacks and multipliers can go and stay positive."""
        return _length(self._slacks, step.slacks), _length(self._multipliers, step.multipliers)

    def complementarity(self, step: _Step) -> Float[Tensor, " B"]:
        """Return the mean product of slack and multiplier after a step."""
        primal, dual = self.lengths(step)
        products = (self._slacks + primal * step.slacks) * (self._multipliers + dual * step.multipliers)
        return products.sum(dim=1) / self.rows.sum(dim=1)


def _length(values: Float[Tensor, "B R"], steps: Float[Tensor, "B R"]) -> Float[Tensor, "B 1"]:
    ratios = torch.where(steps < 0.0, -values / steps, math.inf)
    return (0.99 * ratios.amin(dim=1, keepdim=True)).clamp_max(1.0)


def settle(
    A: Float[Tensor, "N J"],
    boxes: Boxes,
    goal: float,
    hopeless: Float[Tensor, " B"],
    tolerance: float = 1e-5,
    iterations: int = 40,
) -> Settled:
    """Return prices of each node: the best up to the tolerance, unless they prove the goal, or none is worth a proof.

    A are outputs of neurons on the samples, at least 0. A node ends once its prices prove `goal`, or once no prices can
    prove what is `hopeless`; the tolerance is relative.
    """
    (B, N), J = boxes.low.shape, A.shape[1]
    settled = Settled(
        A.new_zeros(B, N), A.new_full((B,), math.inf), A.new_full((B,), -math.inf), A.new_zeros(B, J), A.new_zeros(B, J)
    )
    where, state = torch.arange(B), _State.start(boxes, A)
    squares = (A[:, None] * A[None]).reshape(N * N, J).T.contiguous()
    for _ in range(iterations):
        settled.improve(where, state, A)
        above, below = settled.above[where], settled.below[where]
        close = above - below <= tolerance * above.abs()
        keep = (above > goal) & (below <= hopeless[where]) & ~close & torch.isfinite(state.t[:, 0])
        where, state = where[keep], state.only(keep)
        if not len(where):
            break
        state = state.stepped(A, squares)
    return settled
