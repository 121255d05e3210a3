"""Ctrl-C, handled in this one place.

The first asks the running work to end with its best result so far, the next one ends it at once. While somebody answers
it `gently`, the first signal is only remembered: whoever works looks at `interrupted` now and then, as every `Budget`
does, and nothing is torn apart. Outside of that, and from the second signal on, it is Python's own KeyboardInterrupt.
Standard library alone, so that the program can answer signals before anything else is loaded.
"""

from __future__ import annotations

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

_OTHERS_DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)


@dataclass
class _State:
    """The state of signal handling in this process.

    Attributes:
        caught: the first signal since `heeding` began.
        gentle: how many callers on the stack answer it themselves.
        raised: when the last KeyboardInterrupt was raised, of time.monotonic().
        heeding: True while signals are handled here.
        program: True if the process is a program of covopt's own; loading: True while it loads a large library.
        shielded, postponed: True while a KeyboardInterrupt has to wait; True if one does.
    """

    caught: int | None = None
    gentle: int = 0
    raised: float = -math.inf
    shielded: bool = False
    postponed: bool = False
    heeding: bool = False
    program: bool = False
    loading: bool = False


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
    """Answer these signals until the end of the block, and then forget them.

    Handlers of others are left alone. Does nothing within another such block, and outside of the main thread, which
    gets all signals.
    """
    if _state.heeding or not _in_main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in signals}
    mine = {number: handler for number, handler in before.items() if handler in _OTHERS_DEFAULTS}
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
    """End this block at Ctrl-C or SIGTERM with one line and the exit code of shells."""
    with heeding(signal.SIGINT, signal.SIGTERM):
        _state.raised, outer, _state.program = -math.inf, _state.program, True
        try:
            yield
        except BaseException as error:  # an import may make another exception of the KeyboardInterrupt
            ours = isinstance(error, KeyboardInterrupt) or _state.raised > -math.inf
            if isinstance(error, SystemExit) or not ours:
                raise
            print("covopt: Interrupted.", file=sys.stderr)
            sys.exit(exit_code() or 128 + signal.SIGINT)
        finally:
            _state.program = outer


def ignore() -> None:
    """Ignore signals from now on: Python's own shutdown would answer them with a traceback."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def loading() -> Iterator[None]:
    """Protect this block, which loads a large library, from exceptions within its C++.

    A signal that nobody answers gently ends a program at once; elsewhere its KeyboardInterrupt comes at the end.
    """
    if not _in_main_thread():  # which gets all signals
        yield
        return
    outer, _state.loading = _state.loading, True
    try:
        with shielded():
            yield
    finally:
        _state.loading = outer


@contextmanager
def gently() -> Iterator[None]:
    """Answer the first Ctrl-C in this block by `interrupted`, the second by KeyboardInterrupt."""
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
    """Raise a KeyboardInterrupt again that a callback of Python's own would lose."""
    if unraisable.exc_type is KeyboardInterrupt:
        _state.raised = -math.inf
        signal.raise_signal(signal.SIGINT)
    else:
        sys.__unraisablehook__(unraisable)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
