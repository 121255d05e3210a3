"""The number of threads of a computation, where the user sets none.

This is the policy of every public function. A computation that only has small products uses one: two on two quiet cores
take up to twice as long (400 digits), and threads that spin while they wait (`waiting`) many times as long where other
programs are at work. The cores are for work that comes in pieces then (`usable`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

from covopt.runtime.waiting import POLICY, passive

LARGE = 4_000_000
"""Entries in the inputs from which on the products of a solve keep several threads busy."""
SAID = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")
_before: ContextVar[int | None] = ContextVar("threads before a solve", default=None)


def usable() -> int:
    """Return the cores for work in pieces: PyTorch's threads before a solve changed them."""
    return _before.get() or torch.get_num_threads()


@contextmanager
def fitting(numbers: int) -> Iterator[None]:
    """Set the number of threads that serves inputs of so many numbers, for this block."""
    before, most = torch.get_num_threads(), usable()
    count = before if _said() is not None else most if numbers >= LARGE else 1
    if count == before:
        yield
        return
    token = _before.set(most)
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _before.reset(token)


def fitted(function: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """Decorate a function to run in a block `fitting` for the largest of its arguments."""

    @wraps(function)
    def door(*arguments: Arguments.args, **named: Arguments.kwargs) -> Answer:
        with fitting(max(map(_numbers, (*arguments, *named.values())), default=0)):
            return function(*arguments, **named)

    return door


def _numbers(argument: object, levels: int = 3) -> int:
    """Return the number of entries in an argument: an array, a list, a problem or a result."""
    if isinstance(argument, (list, tuple)):
        return len(argument) * max((_numbers(part, levels - 1) for part in argument[:16] if levels), default=0)
    if isinstance(argument, torch.Tensor):
        return argument.numel()
    shape = getattr(argument, "shape", None)
    if isinstance(shape, tuple):
        return math.prod(shape)
    X = getattr(getattr(argument, "problem", argument), "X", None)
    return math.prod(X.shape) if isinstance(X, torch.Tensor) else 1


def _said() -> tuple[str, int] | None:
    """Return the variable that sets the number of threads, and the number, if it is one."""
    for name in SAID:
        number = os.environ.get(name, "").partition(",")[0].strip()  # the first is that of the outermost loops
        if number.isdecimal() and int(number) > 0:
            return name, int(number)
    return None


def chosen() -> str:
    """Describe the number of threads that a solve uses, and why."""
    count = torch.get_num_threads()
    if count == 1:
        return "with 1 thread"
    if (setting := _said()) is not None:
        return f"with {count} threads, as {setting[0] if setting[1] == count else 'torch.set_num_threads'} says"
    wait = "sleep" if passive() else "spin"
    return f"with 1 thread below {LARGE:,} numbers of inputs, else with {count}, which {wait} as they wait ({POLICY})"
