"""Several cores for work that comes in pieces: threads, each of which computes with one core.

PyTorch's own threads divide one operation. Over batches of small matrices they bring nothing, and cost much where the
machine is busy, as they wait by spinning. Operations release Python's lock, so that threads with a piece each do
better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch

Piece = TypeVar("Piece")
Done = TypeVar("Done")


@dataclass(frozen=True)
class Cores:
    """How many cores there are, and their threads; None where there is one.

    Attributes:
        count: pieces that are worked on at the same time.
    """

    count: int = 1
    _pool: ThreadPoolExecutor | None = None

    def map(self, function: Callable[[Piece], Done], pieces: Iterable[Piece]) -> list[Done]:
        """What `function`, which must change nothing, makes of each piece, in their order; raises what it raises."""
        return list(map(function, pieces) if self._pool is None else self._pool.map(function, pieces))


@contextmanager
def cores(device: torch.device) -> Iterator[Cores]:
    """As many cores as PyTorch has threads (`torch.set_num_threads`, OMP_NUM_THREADS), which has one in the meantime.

    One core, and nothing changed, for work on another device.
    """
    count = torch.get_num_threads()
    if count == 1 or device.type != "cpu":
        yield Cores()
        return
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(count, "covopt", initializer=partial(torch.set_num_threads, 1)) as pool:
            yield Cores(count, pool)
    finally:
        torch.set_num_threads(count)
