"""Reports as files: beside a run when it is stored, or made again from a stored run."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, runtime_checkable

from covopt.errors import CovoptError, RecordError
from covopt.io import record, storing
from covopt.io.directories import Writer, spare
from covopt.io.files import check_free, starts_with, write_file
from covopt.io.record import REPORT
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
        check_free(target, force, is_report)
        page = html_of(Path(run), os.fspath(run))
        write_file(target, lambda draft: _write_page(draft, page), force, is_report)
        if target.absolute() == (Path(run) / REPORT).absolute():
            storing.adopt(target)
        return target
    if file is None:
        raise RecordError("A report of an answer that is not stored needs a file; name one, such as report.html.")
    check_free(Path(file), force, is_report)
    with TemporaryDirectory() as scratch:
        run.save(Path(scratch) / "run")
        page = html_of(Path(scratch) / "run", "run")
    write_file(Path(file), lambda draft: _write_page(draft, page), force, is_report)
    return Path(file)


def report_writer(out: str | os.PathLike[str]) -> Writer:
    """Writes the report of the run that is being stored in the directory `out`; a run can do without."""

    def write(draft: Path) -> None:
        _write_page(draft, html_of(draft.parent, os.fspath(out)))

    return spare(write)


def is_report(path: Path) -> bool:
    """Whether a file is a report of covopt."""
    return starts_with(path, b'name="generator" content="covopt"')


def _write_page(path: Path, page: str) -> None:
    """Names in it that are not UTF-8, as those of files may be, get question marks."""
    path.write_text(page, encoding="utf-8", errors="replace")


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
