"""Messages of the command line itself: options, what is written, Ctrl-C, a full disk."""

from pathlib import Path
from unittest.mock import patch

import numpy as np
from hostile import archive, run_with

from covopt.app.cli import main
from covopt.data import arrays
from covopt.records import storing
from messages import command, rows

FULL = OSError(28, "No space left on device")
RUN = {"run": run_with(lambda path: None)}


def interrupted(words: str, where: str) -> str:
    """What a command says when Ctrl-C meets it there."""
    with patch(where, side_effect=KeyboardInterrupt):
        code, _, err = command(main, words.split())
    assert code == 130, (code, err)
    return err.strip().removeprefix("covopt: ")


def without_memory(error: Exception) -> str:
    with patch("covopt.data.data.read_data", side_effect=error):
        code, _, err = command(main, ["solve", "iris"])
    assert code == 2, (code, err)
    return err.strip().removeprefix("covopt: ")


def full_archive(here: Path) -> None:
    with patch("covopt.data.arrays.np.savez", side_effect=FULL):
        arrays.write_npz(here / "a.npz", {"A": np.eye(2)})


def full_directory(here: Path) -> None:
    def refuse(path: Path) -> None:
        raise FULL

    storing.put(here / "run", "result.json", {"file": refuse})


ROWS = rows(globals())
