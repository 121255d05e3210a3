"""How many threads a solve uses where nobody has said.

Threads that wait asleep (`waiting`) are never in the way: as many as PyTorch takes. Threads that spin are, as soon as
anything else uses the cores; a solve that only has small products uses one thread then.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

from covopt.linalg.waiting import POLICY, passive

LARGE = 4_000_000
"""Numbers in the inputs from which on the products of a solve keep several threads busy, also if these spin."""
SAID = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_before: ContextVar[int | None] = ContextVar("threads before a solve", default=None)


def usable() -> int:
    """Cores for work that comes in pieces: PyTorch's threads, whatever a solve has left of them for its products."""
    return _before.get() or torch.get_num_threads()


@contextmanager
def fitting(numbers: int) -> Iterator[None]:
    """A block whose inputs have so many numbers, with the threads that serve it; those of before at its end."""
    count = torch.get_num_threads()
    if count == 1 or numbers >= LARGE or _harmless():
        yield
        return
    token = _before.set(usable())
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)
        _before.reset(token)


def chosen() -> str:
    """How many threads a solve uses, and why."""
    count = torch.get_num_threads()
    if count == 1:
        return "with 1 thread"
    said = next((name for name in SAID if name in os.environ), None)
    if said is not None:
        return f"with {count} threads, as {said} says"
    if passive():
        return f"with {count} threads, which sleep while they wait for one another ({POLICY})"
    return f"with {count} threads, which spin while they wait; with 1 for inputs of fewer than {LARGE:,} numbers"


def _harmless() -> bool:
    return passive() or any(name in os.environ for name in SAID)
