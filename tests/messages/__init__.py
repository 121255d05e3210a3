"""Every message that a user can meet, with the input that makes it: the tables, and how a row is tried.

A row is tried in a process without the tests' checks of types, as a user would meet it (`python -m messages`).
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

Given = bytes | Callable[[Path], object]


@dataclass(frozen=True)
class Row:
    """A sentence and what makes it.

    Attributes:
        says: the whole sentence; HERE stands for the directory, ... for what a library says.
        what: a command line, or a call, which is handed the directory.
        given: files of the directory that are there before: bytes, or what makes them from their path.
        code: the exit code of a command.
    """

    says: str
    what: str | Callable[[Path], object]
    given: dict[str, Given] = field(default_factory=dict)
    code: int = 2


def prepare(row: Row, here: Path) -> None:
    """Make the files of a row in an empty directory, and go there."""
    for name, content in row.given.items():
        path = here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            content(path)
    os.chdir(here)


def command(main: Callable[[list[str]], None], words: list[str]) -> tuple[object, str, str]:
    """Exit code, standard output and standard error of a command line."""
    out, err = io.StringIO(), io.StringIO()
    code: object = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(words)
        except SystemExit as ended:
            code = ended.code
    return code, out.getvalue(), err.getvalue()
