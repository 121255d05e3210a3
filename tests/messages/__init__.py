"""Every message that a user can meet, with the input that makes it: the tables, and how a row is tried.

A row of a table (NAME.txt beside NAME.py) is a command line (`$ solve iris`) or a Python expression in the names of
NAME.py (`> solve(depth=1)`), and the whole sentence that answers it, after `->` or on a line of its own. Behind it,
`with` gives the files that are there before, and `exit` the code of a command that does not end with 2. HERE, in Python
`here`, stands for the directory of the row, LONG for a name that is too long, and ... in a sentence for what a library
says. Indented lines continue the line above.

A row is tried in a process without the tests' checks of types, as a user would meet it (`python -m messages`).
"""

import contextlib
import io
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from hostile import archive

Given = bytes | Callable[[Path], object]
X, Y = np.arange(12.0).reshape(6, 2) % 5, np.arange(6.0)[:, None] % 2


@dataclass(frozen=True)
class Row:
    """A sentence and what makes it.

    Attributes:
        says: the whole sentence.
        what: a command line, or a call, which is handed the directory.
        given: files of the directory that are there before: bytes, or what makes them from their path.
        code: the exit code of a command.
    """

    says: str
    what: str | Callable[[Path], object]
    given: dict[str, Given] = field(default_factory=dict)
    code: int = 2


CALL = re.compile(
    r"(?P<mark>[$>]) (?P<what>.*?)(?:  with (?P<given>.*?))?(?:  exit (?P<code>\d))?(?:  ->  (?P<says>.*))?"
)


def rows(names: dict[str, object]) -> list[Row]:
    """The rows of the table beside a module, of which these are the names."""
    made, table = [], Path(str(names["__file__"])).with_suffix(".txt").read_text(encoding="utf-8")
    lines = iter(re.sub(r"\n {2,}", "  ", table).replace("LONG", "n" * 300).splitlines())
    for line in map(str.strip, lines):
        if line and not line.startswith("#"):
            row = CALL.fullmatch(line)
            assert row, line
            what = row["what"] if row["mark"] == "$" else _call(row["what"], names)
            given = eval(row["given"] or "{}", names)
            made.append(Row(row["says"] or next(lines).strip(), what, given, int(row["code"] or 2)))
    return made


def _call(expression: str, names: dict[str, object]) -> Callable[[Path], object]:
    code = compile(expression, expression, "eval")
    return lambda here: eval(code, names | {"here": here})


def npz(**arrays: object) -> dict[str, Given]:
    """An archive of arrays, the file of a row."""
    return {"a.npz": archive(**arrays)}


def table(text: str) -> dict[str, Given]:
    """A table, the file of a row."""
    return {"a.csv": text.encode()}


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
