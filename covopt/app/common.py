"""Shared parts of the commands: printing and storing answers, Ctrl-C and error messages."""

from __future__ import annotations

import errno
import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.table import Table

from covopt.app.streams import discard_output
from covopt.records import numerals
from covopt.runtime.errors import CovoptError, RecordError, printable
from covopt.runtime.interrupts import exit_code, gently, loading

BAD_INPUT, INTERRUPTED, CLOSED = 2, 130, 141
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
COMMAND: ContextVar[list[str]] = ContextVar("command")
"""The words of the command line that runs; a stored run records them."""


def deliver(show: Callable[[], object], *writings: Callable[[], object]) -> None:
    """Print an answer, then write the requested files, whatever ended the solve.

    Only a second Ctrl-C stops this. If one step fails, the others still run, so that an answer is stored even if it
    cannot be printed.
    """
    failures: list[CovoptError | OSError] = []
    with gently():
        for action in (lambda: (show(), sys.stdout.flush()), *writings):
            try:
                action()
            except (CovoptError, OSError) as error:
                failures.append(error)
    for error in failures[:-1]:
        if isinstance(error, CovoptError):
            say(str(error))
    if failures:
        raise failures[-1]


def print_pairs(pairs: list[tuple[str, str]]) -> None:
    """Print a label and its text on each line; on a terminal, fold long texts."""
    pairs = [(label, printable(text)) for label, text in pairs]
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:  # one line for each pair, however long
        print("\n".join(f"{label:<12} {text}" for label, text in pairs))
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in pairs:
        table.add_row(label, text)
    console.print(table)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print named columns with shortened numbers, as plain text on a terminal and in a pipe."""
    shown = [tuple(columns), *(tuple(_cell(value) for value in row) for row in rows)]
    widths = [max(len(row[i]) for row in shown) for i in range(len(columns))]
    for row in shown:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return numerals.shown(value, 7) if isinstance(value, float) else printable(str(value))


def check_force(force: bool, *targets: Path | None) -> None:
    """Raise a RecordError for --force without a file to write: its user expects one."""
    if force and not any(targets):
        raise RecordError("There is nothing to replace, because nothing is to be written; leave --force out.")


def check_device(device: str) -> None:
    """Raise a ProblemError unless torch can compute on this device."""
    from covopt.model.reading import parse_device

    parse_device(device)


@contextmanager
def interruptible(message: str = "Interrupted before there was an answer; nothing is written.") -> Iterator[None]:
    """Exit with this message if Ctrl-C comes twice, or before the solver can answer it."""
    try:
        if "torch" not in sys.modules:
            with loading():
                import_module("torch")
                gc.freeze()  # later collections do not look through it again
        yield
    except KeyboardInterrupt:
        complain(message, exit_code() or INTERRUPTED)


def flush() -> None:
    """Flush standard output; exit with a message if that fails, as on a full disk."""
    try:
        sys.stdout.flush()
    except OSError as error:
        unwritten(error)


def unwritten(error: OSError) -> NoReturn:
    """Exit with the message that the answer cannot be written to standard output."""
    discard_output()
    complain(f"The answer cannot be written ({error.strerror}); send it elsewhere, or make room.", BAD_INPUT)


def is_memory(error: Exception) -> bool:
    """Return True if Python or torch, which has no class for this error, ran out of memory."""
    return isinstance(error, MemoryError) or "out of memory" in str(error) or "can't allocate memory" in str(error)


def tell_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning as one sentence; `warnings.showwarning` would add a line of source code."""
    print(f"covopt: warning: {printable(str(message))}", file=sys.stderr)


def say(message: str) -> None:
    """Print a sentence on standard error."""
    print(f"covopt: {printable(message)}", file=sys.stderr)


def complain(message: str, code: int) -> NoReturn:
    """Print a message on standard error, and exit."""
    say(message)
    sys.exit(code)
