"""Limited-memory BFGS for one function with kinks: two-loop recursion and weak Wolfe line search.

torch.optim's L-BFGS takes seconds to import and uses the strong Wolfe conditions. The one in descent.py is for batches
of functions: for a batch of one it takes twice the time (182 and 7510 entries), and it has no preconditioner.

Sources: Nocedal, Wright, Numerical Optimization, algorithm 7.4; Lewis, Overton, Nonsmooth optimization via
quasi-Newton methods (2013), algorithm 2.6.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.runtime.loop import Stop

Value = Callable[[Float[Tensor, " p"]], tuple[float, Float[Tensor, " p"]]]  # f and its gradient; f may be infinite

WINDOW = 10  # iterations over which progress is judged
DECREASE, CURVATURE = 1e-4, 0.9  # the constants of the weak Wolfe conditions
TRIALS = 25  # the maximum number of step lengths in one line search


@dataclass(frozen=True)
class DescentOptions:
    """The limits of L-BFGS."""

    memory: int = 20  # the number of pairs of steps and gradient differences that approximate the Hessian
    iterations: int = 2000  # the maximum number of iterations
    slow: float = 1e-5  # stop when ten iterations lower the value by less than this, relative
    renews: bool = False  # compute the preconditioner again after 5, 15, 35, 75, ... iterations


class Memory:
    """The approximate inverse Hessian H from the last `size` pairs (s, y) of steps and gradient changes.

    For 10^4 entries and more, two loops over the pairs take two thirds of the time of the compact form's matrix
    products, and agree with them to 1e-11 (docs/notes/2026-11-variable-projection.md). `preconditioner` is the diagonal
    of the initial inverse Hessian, up to a factor, and may be replaced at any time; None stands for equal entries.
    """

    def __init__(self, size: int, preconditioner: Float[Tensor, " p"] | None = None) -> None:
        self._pairs: deque[tuple[Tensor, Tensor, float]] = deque(maxlen=size)
        self.preconditioner = preconditioner

    def __len__(self) -> int:
        return len(self._pairs)

    def add(self, step: Float[Tensor, " p"], change: Float[Tensor, " p"], curvature: float) -> None:
        """Remember a pair with s^T y = `curvature` > 0."""
        self._pairs.append((step, change, curvature))

    def times(self, g: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
        """Return H g; on a GPU all numbers stay there, because the processor would wait for each."""
        q, weights = g.clone(), []

        def dot(a: Tensor, b: Tensor) -> Any:
            return a @ b if g.is_cuda else float(a @ b)

        def add(v: Tensor, factor: Any) -> None:
            q.addcmul_(v, factor) if g.is_cuda else q.add_(v, alpha=factor)

        for step, change, curvature in reversed(self._pairs):
            weights.append(dot(step, q) / curvature)
            add(change, -weights[-1])
        D = self.preconditioner
        if D is not None:
            q.mul_(D)
        if self._pairs:
            _, change, curvature = self._pairs[-1]
            q.mul_(curvature / dot(change, change if D is None else D * change))
        for (step, change, curvature), weight in zip(self._pairs, reversed(weights), strict=True):
            add(step, weight - dot(change, q) / curvature)
        return q


def lbfgs(
    value: Value,
    x: Float[Tensor, " p"],
    options: DescentOptions | None = None,
    preconditioner: Callable[[Float[Tensor, " p"]], Float[Tensor, " p"]] | None = None,
) -> Iterator[Float[Tensor, " p"]]:
    """Yield x and the point after each iteration, until L-BFGS stalls or gains too little; f never rises."""
    options = options or DescentOptions()
    f, g = value(x)
    memory, renewal = Memory(options.memory, None if preconditioner is None else preconditioner(x)), 5
    recent: deque[float] = deque([f], maxlen=WINDOW + 1)
    yield x
    for count in range(options.iterations):
        if preconditioner is not None and options.renews and count == renewal:
            memory.preconditioner, renewal = preconditioner(x), 2 * renewal + 5
        direction = memory.times(g).neg_()
        slope = float(g @ direction)
        if not slope < 0.0:
            return
        first = 1.0 if len(memory) else min(1.0, 1.0 / math.sqrt(-slope))
        accepted = _weak_wolfe(value, x, f, direction, slope, first)
        if accepted is None:
            return
        new, f, gradient = accepted
        step, change = new - x, gradient - g
        curvature = float(step @ change)
        if curvature > 0.0:
            memory.add(step, change, curvature)
        x, g = new, gradient
        yield x
        recent.append(f)
        if len(recent) > WINDOW and recent[0] - f <= options.slow * abs(f):
            return


def descend(
    value: Value, x: Float[Tensor, " p"], stop: Stop, options: DescentOptions | None = None
) -> Float[Tensor, " p"]:
    """Run L-BFGS, asking `stop` before each iteration, and return its last point."""
    for point in lbfgs(value, x, options):
        x = point
        if stop():
            break
    return x


def _weak_wolfe(
    value: Value, x: Tensor, f: float, direction: Tensor, slope: float, length: float
) -> tuple[Tensor, float, Tensor] | None:
    """Return a point that meets both Wolfe conditions, else one of sufficient decrease, else None."""
    low, high, accepted = 0.0, torch.inf, None
    for _ in range(TRIALS):
        new = torch.add(x, direction, alpha=length)
        at, gradient = value(new)
        if not at <= f + DECREASE * length * slope:
            high = length
        else:
            accepted = (new, at, gradient)
            if float(gradient @ direction) >= CURVATURE * slope:
                break
            low = length
        length = 0.5 * (low + high) if high < torch.inf else 2.0 * length
    return accepted
