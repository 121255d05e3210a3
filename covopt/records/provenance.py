"""The origin of a run: command, names in its data, versions and machine.

Every run stores it in `origin.json`, and its report shows it. Nothing in it changes an answer.
"""

from __future__ import annotations

import json
import os
import platform
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import NoneType

import torch

from covopt import __version__
from covopt.records import record
from covopt.runtime.errors import RecordError

ORIGIN = "origin.json"
TEXTS = (NoneType, [str, ...])
FORM = {"command": TEXTS, "columns": TEXTS, "classes": TEXTS, "finished": (NoneType, str), "machine": {...: str}}
"""The forms of its entries."""
NEEDED = "numpy scipy torch cvxpy clarabel networkx scikit-learn matplotlib jinja2 joblib rich typer jaxtyping".split()
EXTRAS = {"pyarrow": "parquet", "dask": "sweep", "distributed": "sweep"}
"""Packages that only some features need, and the extra of covopt that installs each."""


@dataclass(frozen=True)
class Origin:
    """The origin of a run; None for what is unknown, or for a command in Python."""

    command: Sequence[str] | None = None  # the words of the command line
    columns: Sequence[str] | None = None  # the names of the inputs
    classes: Sequence[str] | None = None  # the names of the outputs
    finished: str | None = None  # when the run was stored, UTC, to the second
    machine: dict[str, str] = field(default_factory=dict)  # the result of `machine()`


def write_origin(
    command: Sequence[str] | None = None, columns: Sequence[str] | None = None, classes: Sequence[str] | None = None
) -> Callable[[Path], None]:
    """Return the writer of `origin.json` for a run on this machine."""

    def write(path: Path) -> None:
        origin = Origin(command, columns, classes, datetime.now(UTC).isoformat(timespec="seconds"), machine())
        path.write_text(json.dumps(asdict(origin), indent=2) + "\n", encoding="utf-8")

    return write


def read_origin(directory: Path) -> Origin:
    """Read `origin.json` of a run, if there is one; raise a RecordError if it is damaged."""
    file = directory / ORIGIN
    if not file.is_file():
        return Origin()
    stored = record.read_object(file)
    if not record.has_form(stored, FORM):
        raise RecordError(f"{file} is damaged and cannot be read; solve again with --out.")
    return Origin(**stored)


def machine() -> dict[str, str]:
    """Return versions of installed packages, system, cores, threads and GPU, those that are known."""
    present = {key: value for key, value in examine().items() if value is not None and key not in (*EXTRAS, "missing")}
    return {key: str(value) for key, value in present.items()}


def examine() -> dict[str, object]:
    """Return versions (None: not installed), threads and devices; `missing` tells what to install."""
    versions: dict[str, object] = {package: _version(package) for package in [*NEEDED, *EXTRAS]}
    lacking = [package for package, version in versions.items() if version is None]
    remedies = [f"pip install '.[{EXTRAS[p]}]' in the checkout" if p in EXTRAS else f"pip install {p}" for p in lacking]
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "covopt": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        **versions,
        "sqlite": sqlite3.sqlite_version,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": ", ".join(gpus) or None,
        "cuda": torch.version.cuda,
        "missing": "; ".join(dict.fromkeys(remedies)) or "nothing",
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
