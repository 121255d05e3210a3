"""The number of threads that a public function uses where the user sets none; actions that a thread repeats.

A computation with small products uses one thread: two threads on two quiet cores take up to twice as long (400 digits),
and threads that spin while they wait (`waiting`) take many times as long beside other programs. The other cores are
then for independent pieces of work (`usable`).
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from covopt.runtime.lazy import lazy
from covopt.runtime.waiting import POLICY, passive

if TYPE_CHECKING:
    import torch
else:
    torch = lazy("torch")  # `covopt show` uses none

LARGE = 4_000_000  # the number of entries of the inputs above which the products of a solve keep several threads busy
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")
_before: ContextVar[int | None] = ContextVar("threads before a solve", default=None)


def usable() -> int:
    """Return the number of cores for pieces of work: PyTorch's threads before a solve changed them."""
    return _before.get() or torch.get_num_threads()


@contextmanager
def fitting(entries: int) -> Iterator[None]:
    """Set the number of threads for this block by the number of entries of the inputs."""
    before, most = torch.get_num_threads(), usable()
    count = before if _setting() is not None else most if entries >= LARGE else 1
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
    def wrapper(*arguments: Arguments.args, **named: Arguments.kwargs) -> Answer:
        with fitting(max(map(_entries, (*arguments, *named.values())), default=0)):
            return function(*arguments, **named)

    return wrapper


def _entries(argument: object, levels: int = 3) -> int:
    """Return the number of entries in an argument: an array, a list, a problem or a result."""
    if isinstance(argument, (list, tuple)):
        return len(argument) * max((_entries(part, levels - 1) for part in argument[:16] if levels), default=0)
    if isinstance(argument, torch.Tensor):
        return argument.numel()
    shape = getattr(argument, "shape", None)
    if isinstance(shape, tuple):
        return math.prod(shape)
    X = getattr(getattr(argument, "problem", argument), "X", None)
    return math.prod(X.shape) if isinstance(X, torch.Tensor) else 1


def _setting() -> tuple[str, int] | None:
    """Return the environment variable that sets the number of threads, and that number; None without one."""
    for name in VARIABLES:
        number = os.environ.get(name, "").partition(",")[0].strip()  # of a list, the first is for the outermost loops
        if number.isdecimal() and int(number) > 0:
            return name, int(number)
    return None


def chosen() -> str:
    """Describe the number of threads that a solve uses, and why."""
    count = torch.get_num_threads()
    if count == 1:
        return "with 1 thread"
    if (setting := _setting()) is not None:
        return f"with {count} threads, as {setting[0] if setting[1] == count else 'torch.set_num_threads'} says"
    wait = "sleep" if passive() else "spin"
    return f"with 1 thread below {LARGE:,} numbers of inputs, else with {count}, which {wait} as they wait ({POLICY})"


@contextmanager
def without_subnormals() -> Iterator[None]:
    """Round subnormal numbers to 0 while this thread runs the block.

    They are too close to 0 to have all digits: below 1.2e-38 in float32. A product with them takes up to 160 times as
    long. Other threads of PyTorch, which compute parts of large products, do not round them.
    """
    before = bool(torch.full((), 1e-40, dtype=torch.float32, device="cpu") * 1.0 == 0.0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


@contextmanager
def repeating(action: Callable[[], object], seconds: float) -> Iterator[None]:
    """Call an action at this interval from a thread of its own, for as long as the block runs."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            action()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
