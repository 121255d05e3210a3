"""Changes of stored runs: entries of summaries, arrays of files, and lists of files that are made true again."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import covopt
from covopt.data.arrays import read_npz
from covopt.records import directories
from covopt.studies.runs import KINDS

SUMMARIES = {kind.file for kind in KINDS}
Change = Callable[[Path], object]


def rewritten(file: str, change: Callable[[dict[str, Any]], object]) -> Change:
    """Let a function change what a summary holds."""

    def edit(run: Path) -> None:
        told = json.loads((run / file).read_text())
        change(told)
        (run / file).write_text(json.dumps(told))

    return edit


def states(file: str, /, **entries: object) -> Change:
    """Change entries of a summary; a function is asked with what it holds, ... takes an entry away."""

    def change(told: dict[str, Any]) -> None:
        told |= {name: value(told) if callable(value) else value for name, value in entries.items()}
        for name, value in entries.items():
            if value is ...:
                del told[name]

    return rewritten(file, change)


def holds(file: str, /, **arrays: object) -> Change:
    """Change arrays of a file; a function is asked with the array, None takes it away."""

    def change(run: Path) -> None:
        held: dict[str, Any] = read_npz(run / file)
        held |= {name: value(held[name]) if callable(value) else value for name, value in arrays.items()}
        np.savez(run / file, **{name: array for name, array in held.items() if array is not None})

    return change


def certified(run: Path) -> None:
    """Let certificate.npz state the bound and the certificate that result.json states."""
    told = json.loads((run / "result.json").read_text())
    held = read_npz(run / "certificate.npz")
    copies = {name: np.array(told[name]) for name in ("lower", "certificate") if name in held}
    holds("certificate.npz", **copies)(run)


def sealed(directory: Path) -> None:
    """Make the lists of files true again, those of inner runs first."""
    found = [path for path in directory.rglob("*") if path.name in SUMMARIES]
    for summary in sorted(found, key=lambda path: -len(path.parts)):
        told = json.loads(summary.read_text())
        if isinstance(told, dict) and isinstance(told.get("files", {}), dict):
            listed = directories.digests(summary.parent)
            summary.write_text(json.dumps(told | {"files": {k: v for k, v in listed.items() if k != summary.name}}))


def forged(*changes: Change) -> Change:
    """All changes, and lists of files that are true."""

    def forge(run: Path) -> None:
        for change in (*changes, sealed):
            change(run)

    return forge


def arrays(file: str, **changes: object) -> Change:
    """Other arrays in a file, and lists of files that are true."""
    return forged(holds(file, **changes))


def moved(source: Path, target: Path) -> None:
    """Put a copy of a run in the place of another one."""
    shutil.rmtree(target)
    shutil.copytree(source, target)


def is_refused(run: Path) -> bool:
    """Whether `verify` does not pass a run, or cannot read it."""
    try:
        return not covopt.verify(run).passed
    except covopt.RecordError:
        return True


def accepted(
    check: Callable[[Path], tuple[int, dict[str, Any]]],
    stored: Path,
    tampered: Sequence[tuple[str, Change]],
    copy: Path,
) -> list[tuple[int, str, int, dict[str, Any]]]:
    """The changed runs that the checker does not refuse with a reason: their places, names, exit codes and answers.

    Args:
        check: the checker, with 1 for what is refused and 2 for what cannot be read.
        stored: the folder of the runs.
        tampered: their names, and how a copy is changed.
        copy: where the copies are made, one after the other.
    """
    missed = []
    for place, (name, change) in enumerate(tampered):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(stored / name, copy)
        change(copy)
        code, answer = check(copy)
        if code not in (1, 2) or not answer["why"]:
            missed.append((place, name, code, answer))
    return missed
