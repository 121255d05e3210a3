"""Training on random batches: the time that it takes, and schedule-free Adam on sharded samples.

An exchange of gradients between processes takes about as long as the products of a step. So each part of the rows takes
MEETING steps on batches of its own, after which its point and its memory become the means over all parts: three points
are exchanged for MEETING gradients, and the noise of the gradients is averaged as in steps on batches of all.

Sources: Defazio et al., The road less scheduled (2024); Stich, Local SGD converges fast and communicates little (2019),
for the meetings; here for Adam.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.model.spread import Alone
from covopt.runtime.loop import Budget
from covopt.runtime.threads import without_subnormals
from covopt.solvers.training.descent import Adam, AdamOptions, Function

MEETING = 8  # steps between two averages of the parts


class CyclePace:
    """The seconds that a step and closing a cycle take, first those expected, and what they leave time for."""

    def __init__(self, step: float = 0.0, closing: float = 0.0) -> None:
        self._step, self._closing, self._ended = step, closing, 0.0

    def steps(self, wanted: int, budget: Budget, following: float = 2.0) -> tuple[int, bool]:
        """Return the steps of a cycle, and whether it is the last that the time allows.

        It is the last, and takes all the time, if less than `following` times its time is left after it.
        """
        # A last, shortened cycle leaves a tenth of the remaining time to its evaluation.
        usable = 0.9 * max(0.0, budget.remaining() - self._closing)
        last = usable < (1.0 + following) * wanted * self._step
        return (max(1, int(usable / self._step)), True) if last else (wanted, False)

    def expect(self, closing: float) -> None:
        """Expect that closing the next cycle takes these seconds."""
        self._closing = closing

    def fits(self, steps: int, budget: Budget) -> bool:
        """Return True if there is time for these steps and for closing the cycle."""
        return steps * self._step + 1.5 * self._closing < budget.remaining()

    def descend(self, adam: Adam, steps: int, budget: Budget, after_step: Callable[[], object] = lambda: None) -> None:
        """Take `steps` steps; fewer if the cycle has to close, or if `after_step`, called after each, returns True."""
        began, before = budget.seconds(), adam.steps_taken
        look = 1 if budget.alone else 8  # processes that share a clock look at it less often
        with without_subnormals():  # the gradients of samples that fit well underflow
            while adam.steps_taken < steps:
                # Closing may take half as long again as the last time.
                if (adam.steps_taken - before) % look == 0 and budget.remaining() <= 1.5 * self._closing:
                    break
                adam.iterate()
                if after_step():
                    break
        if adam.x.is_cuda:  # which may still be running the last of them
            torch.cuda.synchronize(adam.x.device)
        self._ended = budget.seconds()
        self._step = (self._ended - began) / max(1, adam.steps_taken - before)

    def closed(self, budget: Budget) -> None:
        """Note the time at which the cycle's network has been evaluated."""
        self._closing = budget.seconds() - self._ended


def up_to_meeting(steps: float) -> int:
    """Return the number of steps, rounded up to one after which all parts are at the same point."""
    return MEETING * math.ceil(steps / MEETING)


class ScheduleFree(Adam):
    """Schedule-free Adam [Defazio et al. 2024] from one point, for each part of the rows that this process holds.

    A fast point z takes Adam's steps without momentum at a constant rate; x is the mean of all fast points so far, and
    step k has the gradient at a point near x:

        g = f'(near x + (1 - near) z),   z <- z - rate g / sqrt(v),   x <- x + (z - x) / k,   v a running mean of g^2.

    So x needs no rate that falls towards an end, and can be used at any time.

    The function takes the points of the parts. `draws` are the generators that the function draws from. Of what `Adam`
    has, `best` and `lowest` are not kept up: a batch does not say which point is the best.
    """

    decay, near = 0.97, 0.9  # of the mean of squares; `near` of the formula

    def __init__(
        self,
        function: Function,
        start: Float[Tensor, " P"],
        rate: float,
        spread: Alone,
        draws: Sequence[torch.Generator] = (),
    ) -> None:
        self._spread = spread
        copies = start.expand(len(spread.shares()), -1)
        super().__init__(function, copies, AdamOptions(rate=rate), draws if spread.parts == 1 else None)
        self.fast = copies.clone()

    @property
    def met(self) -> bool:
        """True if all parts are at the same point."""
        return self._spread.parts == 1 or self.steps_taken % MEETING == 0

    def iterate(self) -> None:
        """Take a step of each part, and average the parts when it is time."""
        super().iterate()
        if self.met and self._spread.parts > 1:
            every = torch.cat([self.x, self.fast, self._second], dim=1)
            self.x, self.fast, self._second = self._spread.averaged(every).tensor_split(3, dim=1)

    def _advance(self, step: Any) -> None:
        _, g = self._function(self.fast.lerp(self.x, self.near))
        self._second.mul_(self.decay).addcmul_(g, g, value=1.0 - self.decay)
        size = (self._second / (1.0 - self.decay**step)).sqrt_().add_(1e-8)
        self.fast.addcdiv_(g, size, value=-self._options.rate)
        self.x.add_((self.fast - self.x) / step)

    def memory(self) -> dict[str, Tensor]:
        """Return what further steps depend on, of one part, after an average."""
        parts = {"x": self.x[:1], "fast": self.fast[:1], "second": self._second[:1]}
        return parts | {"steps": torch.tensor(self.steps_taken, dtype=torch.int64)}

    def recall(self, memory: Mapping[str, Tensor]) -> None:
        """Restore all parts from the memory of one."""
        self.x, self.fast, self._second = (memory[key].expand_as(self.x).clone() for key in ("x", "fast", "second"))
        self.steps_taken = int(memory["steps"])
        if self._recorded is not None:
            self._taken.fill_(self.steps_taken)
