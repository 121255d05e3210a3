"""Adam, SOAP, Muon, L-BFGS and SGD for a batch of independent functions, one in each row.

All rows go through the same operations at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from covopt.linalg.lbfgs import CURVATURE, DECREASE, TRIALS
from covopt.solvers.training.recorded import Recorded

_dot = torch.linalg.vecdot
Function = Callable[[Tensor], tuple[Tensor, Tensor]]  # rows (b, P) to values (b,) and gradients (b, P)
Views = Callable[[Tensor], list[Tensor]]

PATIENCE = 10  # trials of a line search after which any sufficient decrease is taken


@dataclass(frozen=True)
class AdamOptions:
    """Settings of Adam [Kingma, Ba 2015], SOAP and Muon."""

    steps: int = 1000  # the number of steps
    rate: float = 3e-3  # the first learning rate; it falls along a cosine


class Adam:
    """Adam with a cosine schedule from each row of `start`.

    On a GPU its steps are recorded, unless `draws`, the generators that the function draws from, is None. `best` holds
    the lowest points so far, and `lowest` their values.
    """

    def __init__(
        self,
        function: Function,
        start: Float[Tensor, "B P"],
        options: AdamOptions | None = None,
        draws: Sequence[torch.Generator] | None = (),
    ) -> None:
        self._function, self._options = function, options or AdamOptions()
        self.x, self.best = start.clone(), start.clone()
        self._first, self._second = torch.zeros_like(start), torch.zeros_like(start)
        self.lowest, self.steps_taken = torch.full_like(start[:, 0], torch.inf), 0
        self._recorded: Recorded | None = None
        if start.is_cuda and draws is not None:
            self._taken = torch.zeros((), dtype=torch.float64, device=start.device)
            self._recorded = Recorded(draws)

    def iterate(self) -> None:
        """Take one step in each row."""
        if self._recorded is None:
            self.steps_taken += 1
            self._advance(self.steps_taken)
        else:
            self._recorded(self._advance_there)
            self.steps_taken += 1

    def _advance_there(self) -> None:
        """Take a step whose number is on the GPU, so that it is another one when the step is replayed."""
        self._taken.add_(1.0)
        self._advance(self._taken)

    def _advance(self, step: Any) -> None:
        """Take the step with this number, from 1 on, in place."""
        o, final = self._options, 1e-2  # the part of the first learning rate at which the cosine ends
        f, g = self._function(self.x)
        better = f < self.lowest
        torch.where(better[:, None], self.x, self.best, out=self.best)
        torch.where(better, f, self.lowest, out=self.lowest)
        angle = math.pi * (step - 1) / o.steps
        cosine = angle.cos() if isinstance(angle, Tensor) else math.cos(angle)
        self._move(g, o.rate * (final + (1.0 - final) * 0.5 * (1.0 + cosine)), step)

    def _move(self, g: Float[Tensor, "B P"], rate: Any, step: Any) -> None:
        slow, slower = 0.9, 0.999  # Adam's rates of decay
        self._first.lerp_(g, 1.0 - slow)
        self._second.mul_(slower).addcmul_(g, g, value=1.0 - slower)
        spread = (self._second / (1.0 - slower**step)).sqrt_().add_(1e-8)
        length = -rate / (1.0 - slow**step)
        if isinstance(length, Tensor):
            self.x.addcmul_(self._first / spread, length.to(spread))
        else:
            self.x.addcdiv_(self._first, spread, value=length)


class SOAP(Adam):
    """Adam in the eigenbases of the means of G G^T and G^T G, of each matrix G of the gradient [Vyas et al. 2024].

    Entries whose gradient is exactly 0, as in the padding of a batch, stay. The rate rises over the first steps.
    `stacks` views rows (B, P) as stacks of matrices of one shape (B, g, n, k). The moments are kept in the eigenbases.
    """

    decay, warm_up = 0.95, 20  # of all means; steps
    every, largest = 10, 300  # steps between changes of the bases; entries of an axis that gets a basis

    def __init__(self, function: Function, start: Float[Tensor, "B P"], options: AdamOptions, stacks: Views) -> None:
        super().__init__(function, start, options, draws=None)
        self._stacks = stacks
        self._moments = [W.new_zeros(2, *W.flatten(0, 1).shape) for W in stacks(start)]  # the first and the second
        self._means: dict[tuple[int, int], Tensor] = {}  # of the axes 1 and 2 of each stack
        self._bases: dict[tuple[int, int], Tensor] = {}

    def _move(self, g: Float[Tensor, "B P"], rate: float, step: int) -> None:
        decay = self.decay
        rate *= min(1.0, step / self.warm_up) * math.sqrt(1.0 - decay**step) / (1.0 - decay**step)
        for k, (slopes, W) in enumerate(zip(self._stacks(g), self._stacks(self.x), strict=True)):
            G, (first, second) = slopes.flatten(0, 1), self._moments[k]
            self._follow(k, G, step)
            turned = self._turned(k, G)
            first.lerp_(turned, 1.0 - decay)
            second.mul_(decay).addcmul_(turned, turned, value=1.0 - decay)
            move = self._turned(k, first / (second.sqrt() + 1e-8), back=True)
            W.sub_(move.masked_fill_(G == 0.0, 0.0).view_as(W), alpha=rate)

    def _turned(self, stack: int, G: Float[Tensor, "b n k"], back: bool = False) -> Float[Tensor, "b n k"]:
        """Return G in the bases of its two axes, or from there."""
        P, Q = (self._bases.get((stack, axis)) for axis in (1, 2))
        G = G if P is None else (P if back else P.mT) @ G
        return G if Q is None else G @ (Q.mT if back else Q)

    def _follow(self, stack: int, G: Float[Tensor, "b n k"], step: int) -> None:
        """Add G to the means; turn the bases by a step of orthogonal iteration, in falling order, and the moments."""
        (first, second), turns = self._moments[stack], step % self.every == 0
        before = self._turned(stack, first, back=True) if turns else first
        for axis, own in ((1, G), (2, G.mT)):
            key = (stack, axis)
            if step == 1 and own.shape[1] <= self.largest:
                self._means[key] = (1.0 - self.decay) * (own @ own.mT)
                self._bases[key] = _eigenvectors(self._means[key].nan_to_num(0.0, 0.0, 0.0))
            elif key in self._means:
                self._means[key].baddbmm_(own, own.mT, beta=self.decay, alpha=1.0 - self.decay)
                if turns:
                    product = self._means[key] @ self._bases[key]
                    order = (self._bases[key] * product).sum(dim=1).argsort(dim=1, descending=True)
                    self._bases[key] = torch.linalg.qr(product.gather(2, order[:, None].expand_as(product)))[0]
                    order = order.unsqueeze(3 - axis).expand_as(second)
                    second.copy_(second.gather(axis, order))
        if turns:
            first.copy_(self._turned(stack, before))


class Muon(Adam):
    """Momentum with orthogonal steps, for each matrix of the gradient [Jordan et al. 2024].

    A step is about U V^T, of the momentum's singular vectors, scaled to entries of root mean square `size`: `turns` odd
    polynomials bring all but the smallest singular values near 1. Entries whose gradient is exactly 0 stay, the rate
    rises over the first steps, and `stacks` is as for SOAP.
    """

    decay, warm_up, size, turns = 0.95, 20, 0.2, 3
    polynomial = (3.4445, -4.7750, 2.0315)  # a s + b s^3 + c s^5

    def __init__(self, function: Function, start: Float[Tensor, "B P"], options: AdamOptions, stacks: Views) -> None:
        super().__init__(function, start, options, draws=None)
        self._stacks = stacks
        self._moments = [torch.zeros_like(W.flatten(0, 1)) for W in stacks(start)]

    def _move(self, g: Float[Tensor, "B P"], rate: float, step: int) -> None:
        rate *= self.size * min(1.0, step / self.warm_up)
        for moment, slopes, W in zip(self._moments, self._stacks(g), self._stacks(self.x), strict=True):
            G = slopes.flatten(0, 1)
            moment.lerp_(G, 1.0 - self.decay)
            move = self._orthogonal(torch.lerp(G, moment, self.decay)) * math.sqrt(max(G.shape[1:]))
            W.sub_(move.masked_fill_(G == 0.0, 0.0).view_as(W), alpha=rate)

    def _orthogonal(self, G: Float[Tensor, "b n k"]) -> Float[Tensor, "b n k"]:
        """Return about U V^T for G = U S V^T."""
        a, b, c = self.polynomial
        X = G / G.norm(dim=(1, 2), keepdim=True).clamp_min(torch.finfo(G.dtype).tiny)
        tall = X.shape[1] > X.shape[2]
        X = X.mT if tall else X
        for _ in range(self.turns):
            A = X @ X.mT
            X = a * X + (b * A + c * (A @ A)) @ X
        return X.mT if tall else X


def steps_on_matrices(function: Function, start: Float[Tensor, "B P"], options: AdamOptions, stacks: Views) -> Adam:
    """Return SOAP, or Muon where an axis is too long for a basis, as that of 784 inputs.

    20,000 samples of 784 inputs, three layers, 10 s: 0.0184 by SOAP with a basis on one side, 0.0174 by Muon. On digits
    Muon ends between 0.2 % lower and 3 % higher (docs/notes/2026-11-deep-batches.md).
    """
    longest = max(max(W.shape[2:]) for W in stacks(start))
    return (Muon if longest > SOAP.largest else SOAP)(function, start, options, stacks)


def _eigenvectors(M: Float[Tensor, "b n n"]) -> Float[Tensor, "b n n"]:
    """Return the eigenvectors, largest eigenvalue first; the identity if the sizes of the entries differ too much."""
    try:
        return torch.linalg.eigh(M)[1].flip(-1)
    except RuntimeError:  # torch's LinAlgError
        return torch.eye(M.shape[1], dtype=M.dtype, device=M.device).expand_as(M).clone()


class SGD:
    """SGD with momentum from each row of `start`, with the row's own rate, momentum and form, Nesterov's or not.

    v <- m v + g, x <- x - rate v; Nesterov's form is x <- x - rate (g + m v). This is PyTorch's `SGD` without
    dampening, where g holds the penalty's part 2 lam x, PyTorch's weight_decay x.
    """

    def __init__(
        self,
        start: Float[Tensor, "B P"],
        rate: Float[Tensor, "B 1"],
        momentum: Float[Tensor, "B 1"],
        nesterov: Bool[Tensor, "B 1"],
    ) -> None:
        self.x, self._rate, self._momentum = start.clone(), rate, momentum
        self._ahead = torch.where(nesterov, momentum, torch.zeros_like(momentum))
        self._v = torch.zeros_like(start)
        self._heavy = bool((momentum != 0.0).any())

    def iterate(self, g: Float[Tensor, "B P"]) -> None:
        """Take a step with the gradients g."""
        if not self._heavy:
            self.x.addcmul_(self._rate, g, value=-1.0)
            return
        self._v.mul_(self._momentum).add_(g)
        # Nesterov's g + m v, and v itself elsewhere.
        step = torch.where(self._ahead > 0.0, torch.addcmul(g, self._ahead, self._v), self._v)
        self.x.addcmul_(self._rate, step, value=-1.0)

    def scale_rates(self, factors: Float[Tensor, "B 1"]) -> None:
        """Multiply the rate of each row by a factor; velocities stay."""
        self._rate = self._rate * factors

    def keep(self, rows: Bool[Tensor, " B"]) -> None:
        """Keep these rows alone."""
        self.x, self._v = self.x[rows], self._v[rows]
        self._rate, self._momentum, self._ahead = self._rate[rows], self._momentum[rows], self._ahead[rows]


class BatchedLBFGS:
    """L-BFGS from each row of `start` at its own pace: a turn tries one point of each.

    A row that accepts its point takes a new direction, the others shorten or lengthen their step, so that none waits
    for another's line search. It asks for weak Wolfe conditions, which suit functions with kinks [Lewis, Overton 2013].

    The directions come from the compact form of the inverse [Byrd, Nocedal, Schnabel 1994, theorem 2.2], in which the
    pairs (s, y) meet the gradient in two matrix products. The rows share the slots of the memory: a row that took no
    step in a turn leaves the pair (0, 0) there, which does nothing. Without memory it is gradient descent with the step
    lengths of Barzilai and Borwein.

    x holds the points, f their values, which never rise, and g their gradients; `stuck` marks the rows that found no
    lower point along the steepest descent in the last turn.
    """

    def __init__(self, function: Function, start: Float[Tensor, "B P"], memory: int = 20) -> None:
        self._function, self._memory = function, memory
        self.x = start.clone()
        self.f, self.g = function(self.x)
        rows = len(self.f)
        self._pairs = self.x.new_zeros(rows, 2 * memory, self.x.shape[1])  # s of each row, then y
        self._products = self.x.new_zeros(rows, 2 * memory, memory)  # of the pairs with each y
        self._scale, self._turns = torch.ones_like(self.f), 0
        everyone = torch.ones_like(self.f, dtype=torch.bool)
        self.stuck, self._fresh = ~everyone, everyone
        self._direction, self._slope = torch.zeros_like(self.g), torch.zeros_like(self.f)
        self._length, self._low, self._high = (torch.zeros_like(self.f) for _ in range(3))
        self._trials = torch.zeros_like(self.f, dtype=torch.int64)
        self._turn(everyone)

    def iterate(self) -> None:
        """Try one point for every row."""
        length = self._length
        point = torch.addcmul(self.x, length[:, None], self._direction)
        value, gradient = self._function(point)
        gain = value - self.f
        falls = gain <= DECREASE * length * self._slope  # False for NaN
        short = falls & (_dot(gradient, self._direction) < CURVATURE * self._slope)
        self._trials += 1
        taken = falls & (~short | (self._trials >= PATIENCE))
        lost = ~taken & (self._trials >= TRIALS)
        self._low, self._high = torch.where(short, length, self._low), torch.where(falls, self._high, length)
        self._length = self._next(gain)
        self.stuck = lost & self._fresh
        if bool(taken.any()):
            self._move(taken, point, value, gradient)
        renewed = taken | lost
        if bool(renewed.any()):
            if bool(lost.any()):
                self.reset_memory(lost)
            self._turn(renewed)

    def reset_memory(self, rows: Bool[Tensor, " B"]) -> None:
        """Clear the memory of some rows."""
        self._pairs[rows], self._products[rows], self._scale[rows] = 0.0, 0.0, 1.0
        self._fresh = self._fresh | rows

    def keep(self, rows: Bool[Tensor, " B"]) -> None:
        """Keep these rows alone."""
        for name in _ROWS:
            setattr(self, name, getattr(self, name)[rows])

    def _move(
        self,
        taken: Bool[Tensor, " B"],
        point: Float[Tensor, "B P"],
        value: Float[Tensor, " B"],
        gradient: Float[Tensor, "B P"],
    ) -> None:
        """Go to the accepted points, and remember the steps."""
        moved, none = taken[:, None], self.x.new_zeros(())
        step, change = (torch.where(moved, d, none) for d in (point - self.x, gradient - self.g))
        self.x, self.g = torch.where(moved, point, self.x), torch.where(moved, gradient, self.g)
        self.f = torch.where(taken, value, self.f)
        curvature, length = _dot(step, change), _dot(change, change)
        good = curvature > torch.finfo(curvature.dtype).tiny
        self._scale = torch.where(good, curvature / length, self._scale)
        self._fresh = self._fresh & ~good
        if self._memory:
            self._remember(*(torch.where(good[:, None], d, none) for d in (step, change)))

    def _turn(self, rows: Bool[Tensor, " B"]) -> None:
        """Begin a line search in the new direction, or in steepest descent if that leads uphill."""
        direction = self._quasi_newton()
        slope = _dot(self.g, direction)
        uphill = rows & ~(slope < 0.0)
        if bool(uphill.any()):
            self.reset_memory(uphill)
            direction = torch.where(uphill[:, None], -self.g, direction)
            slope = torch.where(uphill, -_dot(self.g, self.g), slope)
            self.stuck = self.stuck | (uphill & (slope == 0.0))
        self._direction = torch.where(rows[:, None], direction, self._direction)
        self._slope = torch.where(rows, slope, self._slope)
        first = torch.where(self._fresh, (-slope).rsqrt().clamp(max=1.0), torch.ones_like(slope))
        self._length = torch.where(rows, first, self._length)
        self._low = torch.where(rows, torch.zeros_like(slope), self._low)
        self._high = torch.where(rows, torch.full_like(slope, torch.inf), self._high)
        self._trials = torch.where(rows, torch.zeros_like(self._trials), self._trials)

    def _remember(self, step: Float[Tensor, "B P"], change: Float[Tensor, "B P"]) -> None:
        """Put the pairs in the place of the oldest ones."""
        memory = self._memory
        slot = self._turns % memory
        self._pairs[:, slot], self._pairs[:, memory + slot] = step, change
        products = torch.bmm(change[:, None], self._pairs.mT)[:, 0]
        self._products[:, :, slot], self._products[:, memory + slot] = products, products[:, memory:]
        self._turns += 1

    def _quasi_newton(self) -> Float[Tensor, "B P"]:
        """Minus the approximate inverse Hessian times the gradient.

        With the pairs in the columns of S and Y, R the upper triangle of S^T Y and D its diagonal,

            H g = c g + S R^-T [ (D + c Y^T Y) R^-1 S^T g - c Y^T g ] - c Y R^-1 S^T g.
        """
        memory, scale = self._memory, self._scale[:, None]
        if not memory:
            return -scale * self.g
        oldest_first = (torch.arange(memory, device=self.g.device) + self._turns) % memory
        both = torch.cat([oldest_first, oldest_first + memory])
        along = torch.bmm(self.g[:, None], self._pairs.mT).mT[:, both]
        products = self._products[:, both][:, :, oldest_first]
        diagonal = torch.diagonal(products[:, :memory], dim1=1, dim2=2)
        R = products[:, :memory].triu() + torch.diag_embed((diagonal == 0.0).to(diagonal))
        solved = torch.linalg.solve_triangular(R, along[:, :memory], upper=True)
        outer = torch.baddbmm(along[:, memory:], products[:, memory:], solved, beta=-1.0) * scale[:, :, None]
        outer = torch.linalg.solve_triangular(R.mT, outer + diagonal[:, :, None] * solved, upper=False)
        parts = torch.empty_like(along)
        parts[:, both] = torch.cat([outer, -scale[:, :, None] * solved], dim=1)
        return torch.addcmul(torch.bmm(parts.mT, self._pairs)[:, 0], scale, self.g).neg_()

    def _next(self, gain: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
        """Double the step while it is unbounded; else take the parabola's minimum in the bracket."""
        t, slope, low, high = self._length, self._slope, self._low, self._high
        parabola = (-0.5 * slope * t * t / (gain - slope * t)).nan_to_num(nan=0.0)
        inside = torch.where(low > 0.0, 0.5 * (low + high), parabola)
        inside = torch.minimum(torch.maximum(inside, low + 0.1 * (high - low)), low + 0.5 * (high - low))
        return torch.where(torch.isinf(high), 2.0 * t, inside)


_ROWS = ("x", "f", "g", "stuck", "_fresh", "_scale", "_direction", "_slope", "_length", "_low", "_high", "_trials")
_ROWS += ("_pairs", "_products")
