"""Try every row: what is said, with which exit code, and which lines of covopt made the sentence; as JSON."""

import json
import sys
import tempfile
import warnings
from pathlib import Path

from covopt.app.cli import main
from covopt.runtime.errors import CovoptError, printable
from messages import Row, command, prepare
from messages.commands import ROWS as COMMANDS
from messages.faces import ROWS as FACES
from messages.files import ROWS as FILES
from messages.further import ROWS as FURTHER
from messages.model import ROWS as MODEL
from messages.proofs import ROWS as PROOFS
from messages.ranks import ROWS as RANKS
from messages.spread import ROWS as SPREAD
from messages.stored import ROWS as STORED
from messages.studies import ROWS as STUDIES

ROWS: list[Row] = [*COMMANDS, *FACES, *FILES, *FURTHER, *MODEL, *PROOFS, *RANKS, *SPREAD, *STORED, *STUDIES]
_made: list[tuple[str, int, str]] = []


def _recording(self: CovoptError, message: str) -> None:
    """CovoptError.__init__, which notes besides on which line an error is made."""
    frame = sys._getframe(1)
    _made.append((frame.f_code.co_filename, frame.f_lineno, printable(message)))
    Exception.__init__(self, printable(message))


def try_row(row: Row, here: Path) -> dict[str, object]:
    """What a row says."""
    _made.clear()
    prepare(row, here)
    code: object = None
    if isinstance(row.what, str):
        code, out, err = command(main, [word.replace("HERE", str(here)) for word in row.what.split()])
        text = (err or out).removesuffix("\n").removeprefix("covopt: ")
    else:
        try:
            text = str(row.what(here))
        except CovoptError as error:
            text = str(error)
    # A damaged part of a run is told without its own remedy.
    sites = [(file, line) for file, line, message in _made if message in text or message.partition(";")[0] in text]
    return {"said": text.replace(str(here), "HERE"), "code": code, "sites": sites}


if __name__ == "__main__":
    CovoptError.__init__ = _recording  # type: ignore[method-assign]
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        found = []
        for number, row in enumerate(ROWS):
            here = Path(name).resolve() / str(number)
            here.mkdir()
            found.append(try_row(row, here))
    json.dump(found, sys.stdout)
