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


ROWS = rows(
    globals(),
    """
    # What typer finds.
    $ solve  ->  Missing argument 'DATA'; see covopt --help.
    $ solv iris  ->  No such command 'solv'; did you mean 'solve'; see covopt --help.
    $ solve iris --lamb 0.1  ->  No such option: --lamb; did you mean --lam; see covopt --help.
    $ solve iris --bogus  ->  No such option: --bogus; see covopt --help.
    $ solve iris --lam much
    Invalid value for '--lam': Input should be a valid number, unable to parse string as a number; see covopt --help.
    $ solve iris --depth 2.5
    Invalid value for '--depth': Input should be a valid integer, unable to parse string as an integer; see covopt --help.
    $ solve iris --method magic
    Invalid value for '--method': 'magic' is not one of 'cone', 'hidden', 'train'; see covopt --help.
    $ solve iris --lam  ->  Option '--lam' requires an argument; see covopt --help.
    $ solve iris wine  ->  Got unexpected extra argument(s) (wine); see covopt --help.
    # What would have no effect.
    $ solve iris --force  ->  There is nothing to replace, because nothing is to be written; leave --force out.
    $ show HERE/run --force  with RUN
    There is nothing to replace, because nothing is to be written; leave --force out.
    $ solve iris --lam 0.1 --starts 3
    The method cone at depth 2 has no use for starts, which is for the methods hidden and train, and for cone at depth 3 and more; leave it out.
    $ solve iris --lam 0.1 --depth 3 --width 3
    The method cone at depth 3 has no use for width, which is for the methods hidden and train; leave it out.
    $ solve iris --lam 0.1 --depth 3 --method train --max-width 3
    The method train at depth 3 has no use for max_width, which is for the method cone at depth 3 and more; leave it out.
    $ solve iris --lam 0.1 --method hidden --tol 1e-3
    The method hidden at depth 2 has no use for tol, which is for the method cone; leave it out.
    $ compare iris --lam 0.1 --method cone --width 3
    The method cone finds its own width; leave that out, or compare others too.
    $ validate iris --net net.npz --width 3
    width and starts are for the trainings without a network; leave them out, or the network.
    # What is to be written.
    $ solve iris --out HERE/run  with RUN
    HERE/run exists already; choose another directory, or replace it with --force.
    $ solve iris --out HERE/run --force  with {"run/notes.txt": b"mine"}
    HERE/run is not a run of covopt and is not replaced; choose another directory.
    $ solve iris --out HERE/file/run  with {"file": b""}
    HERE/file/run cannot be written, because HERE/file is not a writable directory.
    $ solve iris --out HERE/LONG  ->  HERE/... is no name of a directory; choose another one.
    $ solve iris --out HERE/run --force  with {**RUN, "run/thesis.tex": b"mine"}
    HERE/run holds thesis.tex, which covopt did not write, and is not replaced; move that file away, or choose another directory.
    $ cprank HERE/a.npz --out HERE/a.npz --force  with {"a.npz": archive(B=np.eye(2))}
    HERE/a.npz is what is read, and is not replaced; choose another name.
    $ forces HERE/run --out HERE/f.png --force  with {**RUN, "f.png": b"mine"}
    HERE/f.png is not a file that covopt wrote so, and is not replaced; choose another name.
    > full_directory(here)  ->  HERE/run cannot be written (No space left on device); choose another directory.
    $ cprank HERE/a.npy --out HERE/b.txt  ->  HERE/b.txt is to hold arrays; give a name that ends in .npz.
    $ cprank HERE/a.npy --out HERE/b.npz  with {"b.npz": b""}
    HERE/b.npz exists already; choose another name, or replace it with --force.
    $ cprank HERE/a.npy --out HERE/none/b.npz
    HERE/none/b.npz cannot be written, because there is no directory HERE/none; make it.
    > full_archive(here)  ->  HERE/a.npz cannot be written (No space left on device); choose another name.
    $ forces HERE/run --out HERE/f.png  with {**RUN, "f.png": b""}
    HERE/f.png exists already; choose another name, or replace it with --force.
    $ forces HERE/run --out HERE/none/f.png  with RUN
    HERE/none/f.png cannot be written, because there is no directory HERE/none; make it.
    # Memory, and Ctrl-C before there is an answer.
    > without_memory(MemoryError())
    There is not memory enough for this; take fewer rows, smaller widths or fewer starts.
    > without_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    There is not memory enough for this; take fewer rows, smaller widths or fewer starts.
    > interrupted("solve iris", "covopt.data.data.read_data")
    Interrupted before there was an answer; nothing is written.
    > interrupted("validate iris", "covopt.data.data.read_data")
    Interrupted before there was anything to say; nothing is written.
    > interrupted("cprank a.npy", "covopt.data.arrays.read_matrix")
    Interrupted before there was an answer; nothing is written.
    > interrupted("sweep s.toml", "covopt.studies.sweep.sweep.read_grid")
    Interrupted; continue with --resume: finished cells are stored in s.sqlite.
    """,
)
