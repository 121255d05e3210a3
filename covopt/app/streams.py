"""The program's standard streams: readers who leave, closed streams, and full disks."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class _Read(io.RawIOBase):
    """Standard output for as long as it is read; then nothing, and the command goes on.

    `covopt solve ... --out run | head -1` stores its run like any other.

    Attributes:
        left: True if the reader has left.
    """

    def __init__(self, raw: io.FileIO) -> None:
        self._raw, self.left = raw, False

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._raw.fileno()

    def isatty(self) -> bool:
        return self._raw.isatty()

    def write(self, data: Any) -> int | None:
        try:
            return self._raw.write(data)
        except BrokenPipeError:
            self.left = True
            discard_output()
            return self._raw.write(data)


@contextmanager
def standard_streams() -> Iterator[None]:
    """Open closed streams on nothing, lest a file take their number; survive leaving readers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (open(os.devnull, "w") if stream is None else stream for stream in before)  # noqa: SIM115
    output = sys.stdout
    buffer = getattr(output, "buffer", None)
    raw = getattr(buffer, "raw", buffer)  # the same where Python runs unbuffered
    if isinstance(raw, io.FileIO):  # a test's stand-in is none
        at_once = raw is buffer or raw.isatty()
        kind = {"encoding": output.encoding, "errors": output.errors, "line_buffering": at_once}
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(_Read(raw)), **kind)
    try:
        yield
    finally:
        with suppress(OSError):  # commands flush their answers themselves, and print what was wrong
            sys.stdout.flush()
        sys.stdout, sys.stderr = before


def reader_left() -> bool:
    """Return True if the reader of standard output has closed it."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return isinstance(raw, _Read) and raw.left


def discard_output() -> None:
    """Let what is still written to standard output go nowhere."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
