"""Ctrl-C, handled in this one place.

The first Ctrl-C asks the running work to end with its best result so far, the second ends it at once. Inside a
`gently` block the first signal is only remembered: loops check `interrupted` now and then, as every `Budget` does.
Outside of such blocks, and from the second signal on, Python raises KeyboardInterrupt.
This module needs the standard library alone, so that signals can be answered before anything else is loaded.
"""

from __future__ import annotations

import gc
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)


@dataclass
class _State:
    """The state of signal handling in this process."""

    caught: int | None = None  # the first signal since `heeding` began
    gentle: int = 0  # the number of `gently` blocks that are open
    raised: float = -math.inf  # the time.monotonic() of the last KeyboardInterrupt
    shielded: bool = False  # True while a KeyboardInterrupt must wait
    postponed: bool = False  # True if one is waiting
    heeding: bool = False  # True inside a `heeding` block
    program: bool = False  # True if the process is one of covopt's programs
    loading: bool = False  # True while it loads a large library


_state = _State()


def interrupted() -> bool:
    """Return True if a signal asks the running work to end."""
    return _state.caught is not None


def exit_code() -> int | None:
    """Return 128 + the signal's number, as shells have it; None without a signal."""
    return None if _state.caught is None else 128 + _state.caught


def remember(number: int = signal.SIGINT) -> bool:
    """Note a KeyboardInterrupt from elsewhere, such as a callback; False if it must be raised."""
    if not _in_main_thread() or not _state.gentle or interrupted():
        return not interrupted()
    _state.caught = number
    return True


@contextmanager
def heeding(*signals: signal.Signals) -> Iterator[None]:
    """Handle these signals until the end of the block, and then forget them.

    Handlers that another library has set are not replaced. Does nothing inside another such block, or outside of the
    main thread, which receives all signals.
    """
    if _state.heeding or not _in_main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in signals}
    mine = {number: handler for number, handler in before.items() if handler in _DEFAULTS}
    hook = sys.unraisablehook
    _state.heeding, _state.caught = True, None
    try:
        sys.unraisablehook = _raised_again
        for number in mine:
            signal.signal(number, _handle)
        yield
    finally:
        for number, handler in mine.items():
            signal.signal(number, handler)
        sys.unraisablehook = hook
        _state.heeding, _state.caught = False, None


@contextmanager
def ending() -> Iterator[None]:
    """On Ctrl-C or SIGTERM in this block, print one line and exit with 128 + the signal's number."""
    with heeding(signal.SIGINT, signal.SIGTERM):
        _state.raised, outer, _state.program = -math.inf, _state.program, True
        try:
            yield
        except BaseException as error:  # an import may turn the KeyboardInterrupt into another exception
            ours = isinstance(error, KeyboardInterrupt) or _state.raised > -math.inf
            if isinstance(error, SystemExit) or not ours:
                raise
            print("covopt: Interrupted.", file=sys.stderr)
            sys.exit(exit_code() or 128 + signal.SIGINT)
        finally:
            _state.program = outer


def ignore() -> None:
    """Ignore signals until the end: Python's own shutdown would answer them with a traceback."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def loading() -> Iterator[None]:
    """Load a large library in this block, without exceptions inside its C++ code and without garbage collection.

    Unless a `gently` block is open, a signal ends one of covopt's programs at once; other programs get its
    KeyboardInterrupt at the end of the block.
    """
    if not _in_main_thread():
        yield
        return
    outer, _state.loading, collects = _state.loading, True, gc.isenabled()
    gc.disable()  # a collection while torch loads takes up to 0.1 s, and frees nothing
    try:
        with shielded():
            yield
    finally:
        _state.loading = outer
        if collects:
            gc.enable()


@contextmanager
def gently() -> Iterator[None]:
    """Let the first Ctrl-C in this block set `interrupted`; the second raises KeyboardInterrupt."""
    if not _in_main_thread():
        yield
        return
    with heeding(signal.SIGINT):
        _state.gentle += 1
        try:
            yield
        finally:
            _state.gentle -= 1


@contextmanager
def shielded() -> Iterator[None]:
    """Postpone any KeyboardInterrupt to the end of this block, which must be short."""
    if not _in_main_thread():
        yield
        return
    outer, _state.shielded = _state.shielded, True
    try:
        yield
    finally:
        _state.shielded = outer
        if _state.postponed and not outer:
            _state.postponed, _state.raised = False, time.monotonic()
            raise KeyboardInterrupt


def _handle(number: int, _: FrameType | None) -> None:
    if _state.loading and _state.program and not _state.gentle:
        os.write(2, b"covopt: Interrupted.\n")
        os._exit(128 + number)
    gentle = _state.gentle > 0 and _state.caught is None
    if _state.caught is None:
        _state.caught = number
    _state.postponed = _state.shielded and not gentle
    cleaning = 1.0  # seconds after a KeyboardInterrupt in which further signals (a key held down) do not disturb
    if gentle or _state.shielded or time.monotonic() - _state.raised < cleaning:
        return
    _state.raised = time.monotonic()
    raise KeyboardInterrupt


def _raised_again(unraisable: sys.UnraisableHookArgs) -> None:
    """Raise again a KeyboardInterrupt that came inside one of Python's own callbacks, which lose it.

    A thread sends it a moment later: raised here, it would still be inside the callback, and lost again.
    """
    if unraisable.exc_type is KeyboardInterrupt:
        threading.Timer(0.01, _send_again).start()
    else:
        sys.__unraisablehook__(unraisable)


def _send_again() -> None:
    main = threading.main_thread().ident
    if main and _state.heeding:
        _state.raised = -math.inf
        signal.pthread_kill(main, signal.SIGINT)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
