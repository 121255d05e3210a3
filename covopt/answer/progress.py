"""The progress of a solve or a study: one line on a terminal or in a notebook, elsewhere one every few seconds."""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

from rich.console import Console
from rich.text import Text

from covopt.records import numerals
from covopt.runtime.loop import Callback, Progress
from covopt.runtime.threads import repeating

EVERY = 5.0  # seconds between two lines that are not on a terminal
PADDED = 110  # characters of a line that replaces the one before
_outermost = threading.Lock()
"""Held while a function shows its progress, or is to show none: the solves within it show nothing of their own."""
Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


class ProgressLine:
    """The latest progress as a line of text, whose clock runs on during long rounds."""

    def __init__(self, time_limit: float) -> None:
        self._time_limit, self._since = time_limit, 0.0
        self._latest: Progress | None = None

    def follow(self, progress: Progress) -> None:
        """Show this progress; a callback for `covopt.solve`."""
        self._latest, self._since = progress, time.perf_counter()

    def __str__(self) -> str:
        if self._latest is None:
            return "reading the problem ..."
        seconds = self._latest.seconds + time.perf_counter() - self._since
        return progress_text(replace(self._latest, seconds=seconds), self._time_limit)

    def __rich__(self) -> Text:
        return Text(str(self))


@contextmanager
def progress_line(time_limit: float, progress: bool | None) -> Iterator[Callback | None]:
    """Provide the callback that shows a solve on standard error; None if nothing is to be shown.

    With `progress` None it shows on a terminal and in a notebook, with True also elsewhere, with False nowhere.
    """
    if not _outermost.acquire(blocking=False):
        yield None
        return
    try:
        console = Console(stderr=True, highlight=False)
        first = os.environ.get("RANK", "0") == "0"  # of the processes that torchrun starts
        if progress is False or not first or not (progress or console.is_terminal or console.is_jupyter):
            yield None
            return
        line = ProgressLine(time_limit)
        with console.status(line) if console.is_terminal else _telling(line, in_place=console.is_jupyter):
            yield line.follow
    finally:
        _outermost.release()


def followed(function: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
    """Decorate a function that takes `callback`, `time_limit` and `progress` to show what its callback gets."""
    declared = signature(function)

    @wraps(function)
    def wrapper(*arguments: Arguments.args, **named: Arguments.kwargs) -> Returned:
        bound = declared.bind(*arguments, **named)
        bound.apply_defaults()
        own = bound.arguments["callback"]
        with progress_line(bound.arguments["time_limit"], bound.arguments["progress"]) as show:

            def both(line: Progress) -> None:
                for callback in (own, show):
                    if callback is not None:
                        callback(line)

            bound.arguments["callback"] = own if show is None else both
            return function(*bound.args, **bound.kwargs)

    return wrapper


def progress_text(line: Progress, time_limit: float) -> str:
    """Describe the progress: cost, bound and width of the best network, the phase, and the time."""
    cost = f"{line.cost:.6g}" if math.isfinite(line.cost) else "none yet"
    bound = "none yet" if line.lower is None else numerals.down(line.lower, 6)
    parts = [f"cost {cost}", f"lower bound {bound}", f"width {line.width}", line.phase]
    return "   ".join([*filter(None, parts), f"{line.seconds:.0f} of {time_limit:g} s"])


class _Needs(logging.Handler):
    """Prints what a solve will need as soon as it is known."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError, ValueError):  # the reader is gone, or the stream is closed
            print(f"covopt: {record.getMessage()}", file=sys.stderr, flush=True)


@contextmanager
def telling_needs(following: bool) -> Iterator[None]:
    """Print the estimated needs of a solve (solvers/plan.py), where progress is followed."""
    if not following:
        yield
        return
    log, handler = logging.getLogger("covopt"), _Needs(logging.INFO)
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


def _telling(line: ProgressLine, in_place: bool) -> AbstractContextManager[None]:
    """Print the line every few seconds in this block, while it is read; `in_place` over the one before."""

    def tell() -> None:
        with suppress(OSError, ValueError):  # the reader is gone, or the stream is closed
            text = f"covopt: {line}"
            sys.stderr.write(f"\r{text:<{PADDED}}" if in_place else f"{text}\n")
            sys.stderr.flush()

    return repeating(tell, EVERY)
