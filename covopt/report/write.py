"""Reports as files: beside a run when it is stored, or made again from a stored run."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, runtime_checkable

from covopt import record
from covopt.data import Dataset
from covopt.errors import CovoptError, RecordError
from covopt.files import check_free, write_file
from covopt.origin import ORIGIN, write_origin
from covopt.record import REPORT, Writer
from covopt.report.kinds import KINDS
from covopt.report.page import as_html


@runtime_checkable
class Storable(Protocol):
    """An answer that stores itself: Result, Plateau, Comparison, Audit."""

    def save(self, directory: str | os.PathLike[str]) -> None: ...


def write_report(
    run: Storable | str | os.PathLike[str], file: str | os.PathLike[str] | None = None, *, force: bool = False
) -> Path:
    """Write an answer as one HTML file that loads nothing and opens from disk.

    Args:
        run: a Result, Plateau, Comparison or Audit, or the directory of a stored one.
        file: where; None for a stored run is `report.html` in its directory.
        force: replace an earlier file.

    Returns:
        The file.

    Raises:
        RecordError: no run there, or a damaged one; the file exists, or cannot be written.
    """
    if isinstance(run, str | os.PathLike):
        target = Path(run) / REPORT if file is None else Path(file)
        record.read_kind(run)
        check_free(target, force)
        page = html_of(Path(run), os.fspath(run))
        write_file(target, lambda draft: draft.write_text(page, encoding="utf-8"), force)
        return target
    if file is None:
        raise RecordError("A report of an answer that is not stored needs a file; name one, such as report.html.")
    check_free(Path(file), force)
    with TemporaryDirectory() as scratch:
        run.save(Path(scratch) / "run")
        page = html_of(Path(scratch) / "run", "run")
    write_file(Path(file), lambda draft: draft.write_text(page, encoding="utf-8"), force)
    return Path(file)


def beside(out: str | os.PathLike[str], command: Sequence[str], data: Dataset) -> Mapping[str, Writer]:
    """What a command adds to its run's directory `out`: where the run comes from, and its report."""

    def write(draft: Path) -> None:
        try:
            page = html_of(draft.parent, os.fspath(out))
        except Exception as error:  # a page must never cost a run that took hours
            warnings.warn(f"The report of {out} could not be made ({error}); the run is stored without.", stacklevel=2)
        else:
            draft.write_text(page, encoding="utf-8")

    return {ORIGIN: write_origin(command, data.columns, data.classes), REPORT: write}


def html_of(directory: Path, name: str) -> str:
    """The report of a stored run.

    Args:
        directory: where it lies.
        name: what it is called in the commands on the page.

    Raises:
        RecordError: no run there, or a damaged one.
    """
    kind, _ = record.read_kind(directory)
    try:
        return as_html(KINDS[kind](directory, name))
    except CovoptError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise RecordError(f"{name} is not a complete run ({error}); run the command again with --out.") from error
