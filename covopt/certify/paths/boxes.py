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

import torch
from jaxtyping import Bool, Float
from torch import Tensor

TINY = 1e-300


@dataclass(frozen=True)
class Boxes:
    """The boxes of a batch of nodes.

    Attributes:
        low, high: the ends, which may be infinite (B, N).
        varies: the entries of c that are chosen; the others are 0 (B, N).
        offsets: o (B, J).
    """

    low: Float[Tensor, "B N"]
    high: Float[Tensor, "B N"]
    varies: Bool[Tensor, "B N"]
    offsets: Float[Tensor, "B J"]


@dataclass(frozen=True)
class Settled:
    """Bounds and prices of each node.

    Attributes:
        prices: the best c (B, N).
        above: the maximum at c, an upper bound on the minimum (B,).
        below: a lower bound on it (B,).
        plus, minus: the multipliers of both kinds of rows, which add up to 1 (B, J).
    """

    prices: Float[Tensor, "B N"]
    above: Float[Tensor, " B"]
    below: Float[Tensor, " B"]
    plus: Float[Tensor, "B J"]
    minus: Float[Tensor, "B J"]

    def improve(self, where: Tensor, state: _State, A: Float[Tensor, "N J"]) -> None:
        """Take over what an iterate says of these nodes."""
        products, boxes = state.c @ A, state.boxes
        value = torch.maximum((boxes.offsets + products).amax(dim=1), (-products).amax(dim=1))
        lower = value < self.above[where]
        self.above[where[lower]], self.prices[where[lower]] = value[lower], state.c[lower]
        total = (state.plus + state.minus).sum(dim=1, keepdim=True)
        plus, minus = state.plus / total, state.minus / total
        g = (plus - minus) @ A.T
        end = torch.where(g > 0.0, boxes.low, boxes.high)
        least = (plus * boxes.offsets).sum(dim=1) + torch.where((g.abs() < 1e-12) | ~boxes.varies, 0.0, g * end).sum(
            dim=1
        )
        valid = torch.isfinite(total[:, 0]) & ((least > self.below[where]) | torch.isinf(self.below[where]))
        self.below[where[valid]] = torch.maximum(least, self.below[where])[valid]
        self.plus[where[valid]], self.minus[where[valid]] = plus[valid], minus[valid]


@dataclass(frozen=True)
class _State:
    """An iterate: prices c, the maximum t, the multipliers of the rows and of the ends of the box."""

    boxes: Boxes
    c: Float[Tensor, "B N"]
    t: Float[Tensor, "B 1"]
    plus: Float[Tensor, "B J"]
    minus: Float[Tensor, "B J"]
    low: Float[Tensor, "B N"]
    high: Float[Tensor, "B N"]

    @staticmethod
    def start(boxes: Boxes, A: Float[Tensor, "N J"]) -> _State:
        """Return a point inside of the box, and multipliers that belong to it."""
        low, high = boxes.low, boxes.high
        bounded_below, bounded_above = boxes.varies & torch.isfinite(low), boxes.varies & torch.isfinite(high)
        ends = torch.where(bounded_below, low.abs(), 0.0), torch.where(bounded_above, high.abs(), 0.0)
        size = 0.3 * torch.maximum(*ends).amax(dim=1, keepdim=True) + 1e-12
        one_sided = torch.where(bounded_below, low + size, torch.where(bounded_above, high - size, 0.0))
        c = torch.where(bounded_below & bounded_above, 0.5 * (low + high), one_sided)
        products = c @ A
        t = 1.1 * torch.maximum((boxes.offsets + products).amax(dim=1), (-products).amax(dim=1))[:, None] + 1e-9
        plus, minus = 1.0 / (t - boxes.offsets - products), 1.0 / (t + products)
        total = (plus + minus).sum(dim=1, keepdim=True)
        at_low = torch.where(bounded_below, 1.0 / (c - low), 0.0)
        at_high = torch.where(bounded_above, 1.0 / (high - c), 0.0)
        return _State(boxes, c, t, plus / total, minus / total, at_low / total, at_high / total)

    def kept(self, keep: Tensor) -> _State:
        """Return the iterate of some of the nodes."""
        boxes = Boxes(*(getattr(self.boxes, field.name)[keep] for field in fields(Boxes)))
        return _State(boxes, *(getattr(self, field.name)[keep] for field in fields(self)[1:]))

    def stepped(self, A: Float[Tensor, "N J"], squares: Float[Tensor, "J N*N"]) -> _State:
        """Return the iterate after a predictor and a corrector step."""
        newton = _Newton(self, A, squares)
        first = newton.step(newton.products_of(None))
        reached = newton.complementarity(first)
        aim = (reached / newton.mean).clamp(0.0, 1.0) ** 3 * newton.mean
        step = newton.step(newton.products_of(first, aim[:, None]))
        primal, dual = newton.lengths(step)
        return _State(
            self.boxes,
            self.c + primal * step.c,
            self.t + primal * step.t,
            self.plus + dual * step.plus,
            self.minus + dual * step.minus,
            self.low + dual * step.low,
            self.high + dual * step.high,
        )


class _Step:
    """A direction: of c, t, the slacks and the multipliers of the four kinds of rows."""

    def __init__(self, c: Tensor, t: Tensor, slacks: list[Tensor], multipliers: list[Tensor]) -> None:
        self.c, self.t, self.slacks = c, t, slacks
        self.plus, self.minus, self.low, self.high = self.multipliers = multipliers


class _Newton:
    """The linearised conditions at an iterate, with a factorised matrix.

    Rows come in four kinds: t - o - <c, a>, t + <c, a>, c - low and high - c are at least 0.

    Attributes:
        mean: the mean product of slack and multiplier (B,).
    """

    def __init__(self, state: _State, A: Float[Tensor, "N J"], squares: Float[Tensor, "J N*N"]) -> None:
        boxes, products = state.boxes, state.c @ A
        self._A, self._varies = A, boxes.varies
        self._bounded = boxes.varies & torch.isfinite(boxes.low), boxes.varies & torch.isfinite(boxes.high)
        ends = (
            torch.where(self._bounded[0], state.c - boxes.low, 1.0),
            torch.where(self._bounded[1], boxes.high - state.c, 1.0),
        )
        slacks = state.t - boxes.offsets - products, state.t + products, *ends
        self._slacks = [slack.clamp_min(TINY) for slack in slacks]
        self._multipliers = [state.plus, state.minus, state.low, state.high]
        self._weights = [z / s for z, s in zip(self._multipliers, self._slacks, strict=True)]
        self._rows = 2 * A.shape[1] + sum(bounded.sum(dim=1) for bounded in self._bounded)
        self.mean = sum((z * s).sum(dim=1) for z, s in zip(self._multipliers, self._slacks, strict=True)) / self._rows
        plus, minus, low, high = self._weights
        matrix = ((plus + minus) @ squares).view(-1, len(A), len(A)) * boxes.varies[:, :, None] * boxes.varies[:, None]
        matrix = matrix + torch.diag_embed(torch.where(boxes.varies, low + high, 1.0))
        border = ((minus - plus) @ A.T * boxes.varies)[:, :, None]
        corner = (plus + minus).sum(dim=1)[:, None, None]
        whole = torch.cat([torch.cat([matrix, border], 2), torch.cat([border.mT, corner], 2)], 1)
        self._scale = torch.diagonal(whole, dim1=1, dim2=2).clamp_min(TINY).rsqrt()
        whole = self._scale[:, :, None] * whole * self._scale[:, None]
        whole = whole + 1e-12 * torch.eye(len(A) + 1, dtype=A.dtype)
        self._factor = torch.linalg.cholesky_ex(whole)[0]

    def products_of(self, step: _Step | None, aim: float | Tensor = 0.0) -> list[Tensor]:
        """Return the products of slack and multiplier to be reached, corrected by those of an earlier step."""
        if step is None:
            return [torch.zeros_like(z) for z in self._multipliers]
        wanted = [aim - s * z for s, z in zip(step.slacks, step.multipliers, strict=True)]
        return wanted[:2] + [torch.where(b, w, 0.0) for b, w in zip(self._bounded, wanted[2:], strict=True)]

    def step(self, wanted: list[Tensor]) -> _Step:
        """Return the direction towards these products of slack and multiplier."""
        zipped = zip(wanted, self._slacks, self._multipliers, strict=True)
        plus, minus, low, high = (w / s for w, s, _ in zipped)
        along = (((plus - minus) @ self._A.T) - low + high) * self._varies
        right = self._scale * torch.cat([-along, (plus.sum(dim=1) + minus.sum(dim=1) - 1.0)[:, None]], 1)
        solved = self._scale * torch.cholesky_solve(right[:, :, None], self._factor)[:, :, 0]
        c, t = solved[:, :-1] * self._varies, solved[:, -1:]
        moved = c @ self._A
        slacks = [t - moved, t + moved, torch.where(self._bounded[0], c, 0.0), torch.where(self._bounded[1], -c, 0.0)]
        targets = plus, minus, low, high
        zipped = zip(targets, self._multipliers, self._weights, slacks, strict=True)
        multipliers = [target - z - weight * slack for target, z, weight, slack in zipped]
        return _Step(c, t, slacks, multipliers)

    def lengths(self, step: _Step) -> tuple[Float[Tensor, "B 1"], Float[Tensor, "B 1"]]:
        """Return how far slacks and multipliers can go and stay positive."""
        multipliers = [
            *self._multipliers[:2],
            *(torch.where(b, z, 1.0) for b, z in zip(self._bounded, self._multipliers[2:], strict=True)),
        ]
        return _length(self._slacks, step.slacks), _length(multipliers, step.multipliers)

    def complementarity(self, step: _Step) -> Float[Tensor, " B"]:
        """Return the mean product of slack and multiplier after a step."""
        primal, dual = self.lengths(step)
        zipped = zip(self._slacks, step.slacks, self._multipliers, step.multipliers, strict=True)
        products = torch.stack([((s + primal * ds) * (z + dual * dz)).sum(dim=1) for s, ds, z, dz in zipped])
        return products.sum(dim=0) / self._rows


def _length(values: list[Tensor], steps: list[Tensor]) -> Float[Tensor, "B 1"]:
    ratios = [
        torch.where(step < 0.0, -value / step, math.inf).amin(dim=1) for value, step in zip(values, steps, strict=True)
    ]
    return (0.99 * torch.stack(ratios).amin(dim=0)).clamp_max(1.0)[:, None]


def settle(
    A: Float[Tensor, "N J"],
    boxes: Boxes,
    goal: float,
    hopeless: Float[Tensor, " B"],
    tolerance: float = 1e-5,
    iterations: int = 40,
) -> Settled:
    """Return prices of each node: the best up to the tolerance, unless they prove the goal, or none is worth a proof.

    Args:
        A: outputs of neurons on the samples, at least 0.
        boxes: of the nodes.
        goal: a node ends once its prices prove this.
        hopeless: a node ends once no prices can prove this.
        tolerance: relative.
        iterations: at most.
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
        where, state = where[keep], state.kept(keep)
        if not len(where):
            break
        state = state.stepped(A, squares)
    return settled
