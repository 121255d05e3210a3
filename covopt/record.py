"""Runs on disk: one directory for each run, plain arrays in it, written whole or not at all.

This room knows files, not solvers: `Stored` is what a run consists of, and `Result` (result.py) turns itself into
one and back. It needs no torch, so that `covopt show` answers at once.
"""

from __future__ import annotations

import csv
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covopt import numerals
from covopt.arrays import check_readable, read_npz
from covopt.errors import CovoptError, DataError, RecordError
from covopt.files import umask
from covopt.loop import Progress

SUMMARY, NETWORK, PROBLEM = "result.json", "network.npz", "problem.npz"
CERTIFICATE, HISTORY = "certificate.npz", "history.csv"
COMPARISON, PLATEAU, AUDIT = "comparison.json", "plateau.json", "audit.json"
REPORT = "report.html"
KINDS = (SUMMARY, PLATEAU, COMPARISON, AUDIT)
SOLUTION = "solution"
"""The directory of the solver's run inside a plateau or an audit."""
COLUMNS = ("iteration", "seconds", "cost", "lower", "width")

DIGITS = 8
"""Of the numbers of an answer as a person reads it."""

Writer = Callable[[Path], object]


@dataclass(frozen=True)
class Stored:
    """What a run consists of on disk.

    Attributes:
        summary: `result.json`; None where something is unknown or unproved.
        network: W1 ... WL, shapes (n_l, n_{l-1} + 1), the bias column last.
        problem: X (N, n_0), Y (N, n_L) and the options.
        certificate: what the lower bound rests on; empty without one.
        history: cost, bound and width over time.
    """

    summary: dict[str, object]
    network: dict[str, NDArray]
    problem: dict[str, NDArray]
    certificate: dict[str, NDArray]
    history: list[Progress]


def check_free(directory: str | os.PathLike[str], force: bool = False) -> Path:
    """The absolute path of `directory`, if a run may be written there.

    Raises:
        RecordError: it exists and `force` is false; it exists and is no run (never replaced); it cannot be made.
    """
    try:
        path = Path(directory).resolve()
        there = path.exists()
    except (OSError, ValueError) as error:  # a name too long, or with a NUL
        raise RecordError(f"{directory} is no name of a directory; choose another one.") from error
    if there:
        if not force:
            raise RecordError(f"{directory} exists already; choose another directory, or replace it with --force.")
        if not _is_run(path):
            raise RecordError(f"{directory} is not a run of covopt and is not replaced; choose another directory.")
    ancestor = next(p for p in path.parents if p.exists())
    if not ancestor.is_dir() or not os.access(ancestor, os.W_OK):
        raise RecordError(f"{directory} cannot be written, because {ancestor} is not a writable directory.")
    return path


def write(
    run: Stored, directory: str | os.PathLike[str], *, force: bool = False, others: Mapping[str, Writer] | None = None
) -> None:
    """Write a run.

    Args:
        run: what to write.
        directory: where; its parents are made.
        force: replace an earlier run.
        others: further files, each written by its function into the path that it is handed.

    Raises:
        RecordError: as `check_free`, or the disk refuses.
    """
    put(directory, {"": lambda draft: _write_files(run, draft), **(others or {})}, force=force)


def put(directory: str | os.PathLike[str], writers: Mapping[str, Writer], *, force: bool = False) -> None:
    """Write a directory whole or not at all: into a sibling first, which is renamed when it is complete.

    Args:
        directory: where; its parents are made.
        writers: for each file the function that writes it into the path that it is handed; "" is the directory itself.
        force: replace an earlier run.

    Raises:
        RecordError: as `check_free`, or the disk refuses.
    """
    path = check_free(directory, force)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
        try:
            for name, writer in writers.items():
                writer(draft / name)
            draft.chmod(0o777 & ~umask())
            _put_in_place(draft, path)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise RecordError(f"{directory} cannot be written ({error.strerror}); choose another directory.") from error


def read(directory: str | os.PathLike[str]) -> Stored:
    """A run as it was written.

    Raises:
        RecordError: no such directory, a file of the run is missing or damaged.
    """
    path, summary = Path(directory), read_summary(directory)
    try:
        return Stored(
            summary=summary,
            network=read_npz(path / NETWORK),
            problem=read_npz(path / PROBLEM),
            certificate=read_npz(path / CERTIFICATE),
            history=_read_history(path / HISTORY),
        )
    except DataError as error:
        raise broken(directory, error) from error


def broken(directory: str | os.PathLike[str], error: CovoptError) -> RecordError:
    """That a run cannot be used, with what is wrong and without the remedy of its parts."""
    reason = str(error).partition(";")[0].rstrip(".")
    return RecordError(f"{directory} is not a complete run ({reason}); solve again with --out.")


def read_summary(directory: str | os.PathLike[str]) -> dict[str, object]:
    """`result.json` of a run.

    Raises:
        RecordError: no such run, or the file is damaged.
    """
    file = Path(directory) / SUMMARY
    if not file.is_file():
        raise RecordError(f"{directory} holds no run ({SUMMARY} is missing); give a directory that --out wrote.")
    return _checked(file, _read_object(file))


def read_kind(directory: str | os.PathLike[str]) -> tuple[str, dict[str, object]]:
    """The file that tells what kind of run lies there (one of KINDS), and what it holds.

    Raises:
        RecordError: no run of any kind there, or the file is damaged.
    """
    kind = next((name for name in KINDS if (Path(directory) / name).is_file()), None)
    if kind is None:
        raise RecordError(f"{directory} holds no run ({', '.join(KINDS)}: none is there); give one that --out wrote.")
    file = Path(directory) / kind
    summary = _read_object(file)
    return kind, _checked(file, summary) if kind == SUMMARY else summary


def _checked(file: Path, summary: dict[str, object]) -> dict[str, object]:
    wrong = _wrong_entry(summary)
    if wrong is not None:
        raise RecordError(f"{file} is not a summary of covopt (its {wrong} is wrong); solve again with --out.")
    return summary


def _wrong_entry(summary: dict[str, Any]) -> str | None:
    """The first entry that is missing or is not of its kind; None where all are well."""
    for name, kinds in ENTRIES.items():
        if not isinstance(summary.get(name, ""), kinds):
            return name
    for name, words in (("status", STATUSES), ("certificate", CERTIFICATES)):
        if summary[name] not in words:
            return name
    if summary.get("attainable", "none") not in CERTIFICATES:
        return "attainable"
    if not all(isinstance(layer, dict) and layer.keys() >= LAYER for layer in summary.get("layers", [])):
        return "layers"
    return None


def known(value: float | None) -> float | None:
    """`value`, or None where it is not a finite number: JSON has no NaN."""
    return value if value is not None and math.isfinite(value) else None


def as_json(summary: Mapping[str, object], indent: int | None = None) -> str:
    """One JSON object, NaN refused."""
    return json.dumps(summary, allow_nan=False, indent=indent)


CERTIFICATES = {
    "exact": "proved, by the exact maximum over all neurons",
    "branch-and-bound": "proved, by branch and bound over all neurons",
    "relaxation": "proved, by a convex relaxation",
    "spectral": "proved, by the spectral bound that holds for every network",
    "none": "none: nothing is proved about how far the cost is from the minimum",
}
STATUSES = {
    "optimal": "optimal: the proved gap is within the target",
    "converged": "converged: the search finds no improvement, but this is no proof",
    "time_limit": "stopped by the time limit; the best network so far",
    "iteration_limit": "stopped by the iteration limit; the best network so far",
    "interrupted": "interrupted; the best network so far",
    "unsolved": "not solved",
}


_NUMBER, _TEXT = (int, float, NoneType), (str, NoneType)
ENTRIES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("cost", "fit", "norm", "residual", "lower", "gap", "seconds", "lam"), _NUMBER),
    **dict.fromkeys(("loss", "activation", "status", "certificate", "method", "certify"), (str,)),
    **dict.fromkeys(("data", "scale"), _TEXT),
    **dict.fromkeys(("rows", "depth", "seed"), (int,)),
    "bias": (int, float),
    "widths": (list,),
}
"""The kind of each entry of `result.json` that covopt reads again."""
LAYER = {"layer", "stationarity", "gap", "gap_certificate", "rank_K", "rank_Ks"}


def headline(summary: Mapping[str, object]) -> str:
    """The question of a run in a few words."""
    s = summary
    rows = f"{s['rows']} row{'' if s['rows'] == 1 else 's'}"
    drawn = "" if s.get("shuffle") is None else f" drawn with seed {s['shuffle']}"
    targets = "" if s.get("targets") is None else f", {s['targets']}"
    scale = f", scale {s['scale']}" if s["scale"] not in (None, "none") else ""
    data = f"{s['data'] or 'data'}, {rows}{drawn}{targets}{scale}"
    question = "representation cost" if s["loss"] == "interpolate" else f"{s['loss']}, lam {_short(s['lam'])}"
    return f"{data}: {question}, depth {s['depth']}, bias {_short(s['bias'])}, {s['activation']}"


def describe(summary: Mapping[str, object]) -> list[tuple[str, str]]:
    """The summary of a run as a person reads it: pairs of a label and its text."""
    s = summary
    widths = s["widths"] if isinstance(s["widths"], list) else []
    pairs = [
        ("question", headline(s)),
        ("cost", _short(s["cost"])),
        ("fit", _short(s["fit"])),
        ("norm", f"{_short(s['norm'])}  (sum of squared weights)"),
        ("lower bound", numerals.down(s["lower"], DIGITS) if isinstance(s["lower"], int | float) else "none proved"),
        ("gap", numerals.up(s["gap"], DIGITS) if isinstance(s["gap"], int | float) else "unknown"),
        ("certificate", CERTIFICATES.get(str(s["certificate"]), str(s["certificate"]))),
        ("status", ended(s)),
        ("width", " x ".join(str(n) for n in widths) + f" hidden neuron{'' if widths == [1] else 's'}"),
        ("time", f"{_short(s['seconds'], digits=3)} s"),
    ]
    if s["residual"] is not None:
        pairs[2] = ("residual", f"{_short(s['residual'], digits=3)}  (largest deviation from the targets)")
    listed = s.get("layers")
    layers = listed if isinstance(listed, list) else []
    pairs += [(f"layer {layer['layer']}", _layer(layer)) for layer in layers]
    return pairs


def ended(s: Mapping[str, object]) -> str:
    """What ended a run; no word of a network where none was found."""
    said = STATUSES.get(str(s["status"]), str(s["status"]))
    return said if s["cost"] is not None else f"{said.partition(';')[0]}; no network was found"


def _layer(layer: Mapping[str, object]) -> str:
    """A hidden layer in a line: is a neuron missing, and what its block could still give."""
    known = layer["gap"] is not None
    gap = f"gap {numerals.up(float(str(layer['gap'])), 3)} ({layer['gap_certificate']})" if known else "no bound"
    ranks = f"rank K {layer['rank_K']}, rank Ks {layer['rank_Ks']}"
    return f"stationarity {_short(layer['stationarity'], digits=5)}, {gap}, {ranks}"


def _short(value: object, digits: int = DIGITS) -> str:
    return f"{value:.{digits}g}" if isinstance(value, (int, float)) else "unknown"


def _read_object(file: Path) -> dict[str, object]:
    try:
        summary = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{file} is damaged and cannot be read; solve again with --out.") from error
    if not isinstance(summary, dict):
        raise RecordError(f"{file} is not a summary of covopt; solve again with --out.")
    return summary


def _write_files(run: Stored, draft: Path) -> None:
    (draft / SUMMARY).write_text(as_json(run.summary, indent=2) + "\n", encoding="utf-8")
    np.savez(draft / NETWORK, allow_pickle=False, **run.network)
    np.savez(draft / PROBLEM, allow_pickle=False, **run.problem)
    np.savez(draft / CERTIFICATE, allow_pickle=False, **run.certificate)
    with (draft / HISTORY).open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(COLUMNS)
        for line in run.history:
            lower = "" if line.lower is None else line.lower
            table.writerow([line.iteration, line.seconds, line.cost, lower, line.width])


def _read_history(file: Path) -> list[Progress]:
    """The history of a run.

    Raises:
        DataError: it is missing or damaged.
    """
    check_readable(file)
    try:
        return _parse_history(file)
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise DataError(f"{file} is damaged; solve again.") from error


def _parse_history(file: Path) -> list[Progress]:
    with file.open(newline="", encoding="utf-8") as stream:
        table = csv.DictReader(stream)
        if table.fieldnames is None or set(table.fieldnames) != set(COLUMNS):
            raise KeyError(str(table.fieldnames))
        return [
            Progress(
                iteration=int(row["iteration"]),
                seconds=float(row["seconds"]),
                cost=float(row["cost"]),
                lower=float(row["lower"]) if row["lower"] else None,
                width=int(row["width"]),
            )
            for row in table
        ]


def _put_in_place(draft: Path, path: Path) -> None:
    """Rename the complete draft; an earlier run steps aside first, and comes back should the renaming fail."""
    if not path.exists():
        draft.rename(path)
        return
    aside = draft.with_suffix(".old")
    path.rename(aside)
    try:
        draft.rename(path)
    except BaseException:
        aside.rename(path)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _is_run(path: Path) -> bool:
    """Whether --force may replace this: a run, a comparison of runs, a plateau, an audit, or an empty directory."""
    held = any((path / name).is_file() for name in KINDS)
    return path.is_dir() and (held or not any(path.iterdir()))
