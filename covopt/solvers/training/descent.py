"""Adam, L-BFGS and SGD for a batch of independent functions, one in each row.

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

PATIENCE = 10  # trials of a line search after which any sufficient decrease is taken


@dataclass(frozen=True)
class AdamOptions:
    """Settings of Adam [Kingma, Ba 2015] and of the methods that step on matrices."""

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
