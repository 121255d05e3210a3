"""How many threads a solve uses where nobody has said.

A solve that only has small products uses one: two on two quiet cores take up to twice as long (400 digits), and threads
that spin while they wait (`waiting`) many times as long where other programs are at work. The cores are for work that
comes in pieces then (`usable`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

from covopt.linalg.waiting import POLICY, passive

LARGE = 4_000_000
"""Numbers in the inputs from which on the products of a solve keep several threads busy."""
SAID = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_before: ContextVar[int | None] = ContextVar("threads before a solve", default=None)


def usable() -> int:
    """Cores for work that comes in pieces: PyTorch's threads, whatever a solve has left of them for its products."""
    return _before.get() or torch.get_num_threads()


@contextmanager
def fitting(numbers: int) -> Iterator[None]:
    """A block whose inputs have so many numbers, with the threads that serve it; those of before at its end."""
    count = torch.get_num_threads()
    if count == 1 or numbers >= LARGE or _said() is not None:
        yield
        return
    token = _before.set(usable())
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)
        _before.reset(token)


def _said() -> tuple[str, int] | None:
    """The variable that says how many, and the number; texts that are none say nothing, as to OpenMP."""
    for name in SAID:
        number = os.environ.get(name, "").partition(",")[0].strip()  # the first is that of the outermost loops
        if number.isdecimal() and int(number) > 0:
            return name, int(number)
    return None


def chosen() -> str:
    """How many threads a solve uses, and why."""
    count = torch.get_num_threads()
    if count == 1:
        return "with 1 thread"
    if (said := _said()) is not None:
        return f"with {count} threads, as {said[0] if said[1] == count else 'torch.set_num_threads'} says"
    wait = "sleep" if passive() else "spin"
    return f"with 1 thread below {LARGE:,} numbers of inputs, else with {count}, which {wait} as they wait ({POLICY})"
