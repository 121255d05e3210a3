"""Adam and L-BFGS for a batch of independent functions: every row has its own memory, direction and line search.

All rows go through the same operations at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Function = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Rows (b, P) to values (b,) and gradients (b, P)."""


@dataclass(frozen=True)
class AdamOptions:
    """Settings of Adam [Kingma, Ba 2015].

    Attributes:
        steps: how many.
        rate: the first learning rate; a cosine takes it to `final` times it.
    """

    steps: int = 1000
    rate: float = 3e-3
    final: float = 1e-2
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8


class Adam:
    """Adam with a cosine schedule from each row of `start`.

    Attributes:
        best: the lowest points so far (B, P); lowest: their values (B,).
        made: steps made.
    """

    def __init__(self, function: Function, start: Float[Tensor, "B P"], options: AdamOptions | None = None) -> None:
        self._function, self._options = function, options or AdamOptions()
        self._x = start.clone()
        self._first, self._second = torch.zeros_like(start), torch.zeros_like(start)
        self.best, self.lowest, self.made = start, torch.full_like(start[:, 0], torch.inf), 0

    def iterate(self) -> None:
        """Look at the value where the rows are, and go on."""
        o = self._options
        f, g = self._function(self._x)
        better = f < self.lowest
        self.best = torch.where(better[:, None], self._x, self.best)
        self.lowest = torch.where(better, f, self.lowest)
        fall = o.final + (1.0 - o.final) * 0.5 * (1.0 + math.cos(math.pi * self.made / o.steps))
        self.made += 1
        self._first.lerp_(g, 1.0 - o.betas[0])
        self._second.mul_(o.betas[1]).addcmul_(g, g, value=1.0 - o.betas[1])
        spread = (self._second / (1.0 - o.betas[1] ** self.made)).sqrt_().add_(o.epsilon)
        self._x.addcdiv_(self._first, spread, value=-o.rate * fall / (1.0 - o.betas[0] ** self.made))


@dataclass(frozen=True)
class LBFGSOptions:
    """Settings of L-BFGS.

    Attributes:
        memory: pairs remembered; 0 is gradient descent with the step lengths of Barzilai and Borwein.
        decrease, curvature: the constants of the weak Wolfe conditions.
        trials: points that one line search may try.
    """

    memory: int = 20
    decrease: float = 1e-4
    curvature: float = 0.9
    trials: int = 20


class BatchedLBFGS:
    """Descends from each row of `start`, in turns of one iteration for all rows.

    The line search asks for weak Wolfe conditions, which suit functions with kinks [Lewis, Overton 2013]. Only rows
    whose search goes on are evaluated again. A pair (s, y) of the memory that a row must not use has the weight
    1 / (s . y) = 0, with which it does nothing in the two-loop recursion [Nocedal, Wright 2006, algorithm 7.4].

    Attributes:
        x: points (B, P); f: values (B,), which never rise; g: gradients (B, P).
        fresh: rows without memory, whose next direction is the steepest descent.
        stuck: rows whose last line search found no lower point.
        stop: asked before each evaluation of a line search whether to end it.
    """

    def __init__(
        self,
        function: Function,
        start: Float[Tensor, "B P"],
        options: LBFGSOptions | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._function, self._options, self._stop = function, options or LBFGSOptions(), stop
        self.x = start.clone()
        self.f, self.g = function(self.x)
        self.fresh = torch.ones_like(self.f, dtype=torch.bool)
        self.stuck = torch.zeros_like(self.f, dtype=torch.bool)
        memory = self._options.memory
        self._steps, self._changes = self.x.new_zeros(2, memory, *self.x.shape)
        self._weights = self.f.new_zeros(memory, len(self.f))
        self._scale = torch.ones_like(self.f)
        self._made = 0

    def iterate(self) -> None:
        """One iteration for every row."""
        direction = self._direction()
        slope = _dot(self.g, direction)
        uphill = ~(slope < 0.0)
        if bool(uphill.any()):
            self.forget(uphill)
            direction = torch.where(uphill[:, None], -self.g, direction)
            slope = torch.where(uphill, -_dot(self.g, self.g), slope)
        x, f, g = self._search(direction, slope)
        self._remember(x - self.x, g - self.g)
        self.x, self.f, self.g = x, f, g

    def forget(self, rows: Bool[Tensor, " B"]) -> None:
        """Clear the memory of some rows."""
        self._weights[:, rows] = 0.0
        self._scale[rows] = 1.0
        self.fresh = self.fresh | rows

    def keep(self, rows: Bool[Tensor, " B"]) -> None:
        """Go on with these rows only."""
        self.x, self.f, self.g = self.x[rows], self.f[rows], self.g[rows]
        self.fresh, self.stuck = self.fresh[rows], self.stuck[rows]
        self._steps, self._changes = self._steps[:, rows], self._changes[:, rows]
        self._weights, self._scale = self._weights[:, rows], self._scale[rows]

    def _direction(self) -> Float[Tensor, "B P"]:
        """Minus the approximate inverse Hessian times the gradient."""
        memory = self._options.memory
        newest_first = [k % memory for k in range(self._made - 1, max(-1, self._made - 1 - memory), -1)]
        q, parts = self.g.neg(), {}
        for k in newest_first:
            parts[k] = self._weights[k] * _dot(self._steps[k], q)
            q.addcmul_(parts[k][:, None], self._changes[k], value=-1.0)
        q.mul_(self._scale[:, None])
        for k in reversed(newest_first):
            q.addcmul_((parts[k] - self._weights[k] * _dot(self._changes[k], q))[:, None], self._steps[k])
        return q

    def _remember(self, step: Float[Tensor, "B P"], change: Float[Tensor, "B P"]) -> None:
        curvature, length = _dot(step, change), _dot(change, change)
        good = curvature > torch.finfo(curvature.dtype).tiny
        self._scale = torch.where(good, curvature / length, self._scale)
        self.fresh = self.fresh & ~good
        if self._options.memory:
            slot = self._made % self._options.memory
            self._steps[slot], self._changes[slot] = step, change
            self._weights[slot] = torch.where(good, 1.0 / curvature, torch.zeros_like(curvature))
            self._made += 1

    def _search(
        self, direction: Float[Tensor, "B P"], slope: Float[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B P"], Float[Tensor, " B"], Float[Tensor, "B P"]]:
        """The points that satisfy the weak Wolfe conditions; where there is none, the lowest that decrease enough."""
        options = self._options
        x, f, g = self.x.clone(), self.f.clone(), self.g.clone()
        first = (1.0 / _dot(self.g, self.g).sqrt()).clamp(max=1.0)
        t = torch.where(self.fresh, first, torch.ones_like(first))
        low, high = torch.zeros_like(t), torch.full_like(t, torch.inf)
        rows = (slope < 0.0).nonzero()[:, 0]
        for _ in range(options.trials):
            if not len(rows) or self._stop():
                break
            length, down = t[rows], slope[rows]
            point = torch.addcmul(self.x[rows], length[:, None], direction[rows])
            value, gradient = self._function(point)
            rise = value - self.f[rows] - options.decrease * length * down
            falls = rise <= 0.0  # False for NaN
            short = falls & (_dot(gradient, direction[rows]) < options.curvature * down)
            lower = falls & (value <= f[rows])
            taken = rows[lower]
            x[taken], f[taken], g[taken] = point[lower], value[lower], gradient[lower]
            low[rows] = torch.where(short, length, low[rows])
            high[rows] = torch.where(falls, high[rows], length)
            t[rows] = self._next(length, value - self.f[rows], down, low[rows], high[rows])
            rows = rows[~falls | short]
        self.stuck = ~(f < self.f)
        return x, f, g

    @staticmethod
    def _next(t: Tensor, gain: Tensor, slope: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Twice as far while nothing bounds the step; else the parabola's minimum, kept inside the bracket."""
        parabola = -0.5 * slope * t * t / (gain - slope * t)
        inside = torch.where(low > 0.0, 0.5 * (low + high), parabola.nan_to_num(nan=0.0))
        inside = torch.minimum(torch.maximum(inside, low + 0.1 * (high - low)), low + 0.5 * (high - low))
        return torch.where(torch.isinf(high), 2.0 * t, inside)


def _dot(a: Float[Tensor, "B P"], b: Float[Tensor, "B P"]) -> Float[Tensor, " B"]:
    """Inner products of the rows."""
    return torch.linalg.vecdot(a, b)
