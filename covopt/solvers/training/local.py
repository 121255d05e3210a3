"""Adam on sharded samples: each part steps on its own; all average every few steps.

An exchange of gradients takes about as long as the products of a step. So each part of the rows takes MEETING steps of
Adam on batches of its own, after which its point and its memory become the means over all parts: three points are
exchanged for MEETING gradients, and the noise of the gradients is averaged as in steps on batches of all.

Source: Stich, Local SGD converges fast and communicates little (2019), for the idea; here for Adam.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.model.spread import Alone
from covopt.solvers.training.descent import Adam, AdamOptions, Function

MEETING = 8  # steps between two averages of the parts


class LocalAdam(Adam):
    """Adam from one point, for each part of the rows that this process holds.

    Args:
        function: of the points of these parts (B, P), values (B,) and gradients (B, P).
        start: of all (P,).
        spread: how the rows are; where one process holds all in one part, this is `Adam`.
    """

    def __init__(self, function: Function, start: Float[Tensor, " P"], options: AdamOptions, spread: Alone) -> None:
        self._spread = spread
        super().__init__(function, start.expand(len(spread.shares()), -1), options)

    @property
    def met(self) -> bool:
        """True if all parts are at the same point."""
        return self._spread.parts == 1 or self.steps_taken % MEETING == 0 or self.steps_taken >= self._options.steps

    def iterate(self) -> None:
        """Take a step of each part, and average the parts when it is time."""
        super().iterate()
        if self.met and self._spread.parts > 1:
            every = torch.cat([self.x, self._first, self._second], dim=1)
            self.x, self._first, self._second = self._spread.averaged(every).tensor_split(3, dim=1)

    def memory(self) -> dict[str, Tensor]:
        """Return the memory of one part, after an average."""
        return {name: tensor[:1] if tensor.ndim else tensor for name, tensor in super().memory().items()}

    def recall(self, memory: Mapping[str, Tensor]) -> None:
        """Restore all parts from the memory of one."""
        points = {name: memory[name].expand_as(self.x).clone() for name in ("x", "first", "second")}
        super().recall(points | {"steps": memory["steps"]})
