"""The program's standard streams: closed pipes, and streams that are closed at the start."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class _Read(io.FileIO):
    """Standard output that discards the rest once its reader has closed the pipe.

    So `covopt solve ... --out run | head -1` stores its run like any other.
    """

    abandoned = False  # True if the reader has closed the pipe

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            self.abandoned = True
            discard_output()
            return super().write(data)


@contextmanager
def standard_streams() -> Iterator[None]:
    """Open closed streams on os.devnull, so that no file gets their number; survive a closed pipe."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (open(os.devnull, "w") if stream is None else stream for stream in before)  # noqa: SIM115
    output = sys.stdout
    buffer = getattr(output, "buffer", None)
    raw = getattr(buffer, "raw", buffer)  # the buffer itself if Python runs unbuffered
    if isinstance(raw, io.FileIO):  # tests replace it
        kind = {"encoding": output.encoding, "errors": output.errors, "line_buffering": raw is buffer or raw.isatty()}
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(_Read(raw.fileno(), "w", closefd=False)), **kind)
    try:
        yield
    finally:
        with suppress(OSError):  # commands have flushed their answers and reported errors
            sys.stdout.flush()
        sys.stdout, sys.stderr = before


def reader_left() -> bool:
    """Return True if the reader of standard output has closed it."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return isinstance(raw, _Read) and raw.abandoned


def discard_output() -> None:
    """Discard all further output to standard output."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
