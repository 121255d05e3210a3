"""Operations on a stored run of any kind: find, load, verify, report.

Each kind of answer is a folder with the modules that `Kind` names, and its line in KINDS.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from covopt.records import record, storing
from covopt.records.directories import Writer, spare
from covopt.records.record import REPORT, Pairs, Summary
from covopt.runtime.errors import DataError, ProblemError, RecordError, shown
from covopt.runtime.files import check_free, starts_with, write_file
from covopt.runtime.lazy import lazy
from covopt.runtime.options import checked
from covopt.runtime.threads import fitted

if TYPE_CHECKING:
    from covopt.answer import stored, verify as checks
    from covopt.records import page as pages
    from covopt.records.answer import Answer
else:
    checks = lazy("covopt.answer.verify")
    pages, stored = lazy("covopt.records.page"), lazy("covopt.answer.stored")


@dataclass(frozen=True)
class Kind:
    """A kind of stored answer.

    Its folder has the functions `pairs` in words.py, `page` in page.py, and `verify` and `load` in check.py. These
    raise a RecordError if a run in it is missing or damaged, and one of DAMAGED for other files.
    """

    name: str  # the command that computes such an answer
    folder: str  # the subpackage of covopt, as `studies.width`
    file: str  # the name of the summary file

    def module(self, name: str) -> Any:
        """Import a module when it is first used: `covopt show` uses only words.py, which needs no torch."""
        return import_module(f"covopt.{self.folder}.{name}")


KINDS = (
    Kind("compare", "studies.compare", record.COMPARISON),
    Kind("cprank", "completely_positive", "cprank.json"),
    Kind("depth", "studies.depth", "depth.json"),
    Kind("path", "studies.path", "path.json"),
    Kind("plateau", "studies.width", record.PLATEAU),
    Kind("ranks", "studies.ranks", "ranks.json"),
    Kind("solve", "answer", record.SUMMARY),
    Kind("validate", "studies.audit", record.AUDIT),
)
"""Every kind of answer that covopt stores."""
DAMAGED = (KeyError, TypeError, ValueError, AttributeError, StopIteration)
"""The errors that a missing entry, or one of another type, raises where it is read."""


def find(directory: str | os.PathLike[str]) -> tuple[Kind, Summary]:
    """Return the kind of the run in a directory, and its summary; raise a RecordError if it is missing or damaged."""
    own = _kind_of(directory)
    if own is not None:
        is_solve = own.file == record.SUMMARY
        return own, record.read_summary(directory) if is_solve else record.read_object(Path(directory) / own.file)
    file = record.kind_of(Path(directory))
    if file is None:
        raise record.no_run(directory)
    path = Path(directory) / file
    raise RecordError(f"{path} is of a kind that this version of covopt does not know; use the one that stored it.")


def _kind_of(directory: str | os.PathLike[str]) -> Kind | None:
    return next((kind for kind in KINDS if (Path(directory) / kind.file).is_file()), None)


def pairs_of(kind: Kind, summary: Summary) -> Pairs:
    """Return a stored run as labels and texts; raise a RecordError if its summary lacks an entry of its kind."""
    try:
        return kind.module("words").pairs(summary)
    except DAMAGED as error:
        message = f"{kind.file} is damaged: it lacks what a run of its kind has ({error}); run it again."
        raise RecordError(message) from error


@checked
@fitted
def load(directory: str | os.PathLike[str]) -> Any:
    """Load a stored run; no file in it is trusted (no pickles, shapes checked).

    >>> covopt.solve([[0.0], [1.0]], [0.0, 1.0], lam=0.1).save("run")
    >>> covopt.load("run").widths
    [1]

    Args:
        directory: of the run.

    Returns:
        The answer of the command that stored it; for `solve` the `Result`, its cost recomputed from the stored
        weights. An audit cannot be loaded as a whole; load the solve in it, `DIR/solution`.

    Raises:
        RecordError: there is no run, one of another kind, or an incomplete or damaged one.
    """
    own = _kind_of(directory)
    if own is None or own.file == record.SUMMARY:
        return stored.load(directory)
    return _guarded(directory, lambda kind, _: kind.module("check").load(Path(directory)))


@checked
@fitted
def verify(directory: str | os.PathLike[str], rounding: float = 1e-9) -> checks.Verification:
    """Check the statements of a stored run from its files alone, without running the solver.

    >>> covopt.solve([[0.0], [1.0]], [0.0, 1.0], lam=0.1).save("run")
    >>> covopt.verify("run").passed
    True

    For a solve: the cost from the stored weights, the bound from its stored proof, all that follows from these, and the
    list of files. For a study: the same for the runs in it, and their agreement with the summary. For a cp-rank: the
    verdict and both ends, from the stored proofs.

    Args:
        directory: of the run.
        rounding: the relative difference from the stated value that a cost or bound may have.

    Returns:
        Whether the files prove what is stated, why not, what they prove, and what is not checked.

    Raises:
        RecordError: there is no run, or a damaged one.
    """
    return _guarded(directory, lambda kind, summary: kind.module("check").verify(Path(directory), summary, rounding))


def _guarded(directory: str | os.PathLike[str], action: Callable[[Kind, Summary], Any]) -> Any:
    """Apply an action to a run; raise a RecordError if one of its files is damaged."""
    kind, summary = find(directory)
    try:
        return action(kind, summary)
    except (DataError, ProblemError) as error:
        raise record.broken(directory, error) from error
    except (*DAMAGED, OSError, IndexError, ArithmeticError, csv.Error) as error:
        raise RecordError(f"{directory} is not a complete run ({error}); run the command again with --out.") from error


@checked
@fitted
def write_report(
    run: Answer | str | os.PathLike[str], file: str | os.PathLike[str] | None = None, *, force: bool = False
) -> Path:
    """Write an answer as one HTML file that loads nothing and opens from disk.

    >>> result = covopt.solve([[0.0], [1.0]], [0.0, 1.0], lam=0.1)
    >>> covopt.write_report(result, "report.html").name
    'report.html'

    Args:
        run: an answer that covopt stores, such as a Result or a Plateau, or the directory of a stored one.
        file: the file to write; None for a stored run is `report.html` in its directory.
        force: replace an earlier file.

    Returns:
        The file.

    Raises:
        RecordError: there is no run, or a damaged one; the file exists, or cannot be written.
    """
    if isinstance(run, str | os.PathLike):
        target = Path(run) / REPORT if file is None else Path(file)
        find(run)
        check_free(target, force, is_report)
        page, own = html_of(Path(run), os.fspath(run)), Path(run) / REPORT
    elif not hasattr(run, "save"):
        raise RecordError(f"A report cannot be made of {shown(run)}; give an answer, or the directory of a stored one.")
    elif file is None:
        raise RecordError("A report of an answer that is not stored needs a file; name one, such as report.html.")
    else:
        target, own = Path(file), None
        check_free(target, force, is_report)
        with TemporaryDirectory() as scratch:
            run.save(Path(scratch) / "run")
            page = html_of(Path(scratch) / "run", "run")
    write_file(target, lambda draft: _write_page(draft, page), force, is_report)
    if own is not None and target.absolute() == own.absolute():
        storing.adopt(target)
    return target


def report_writer(out: str | os.PathLike[str]) -> Writer:
    """Return a writer of the report of the run in `out`; the run is valid without it."""

    def write(draft: Path) -> None:
        _write_page(draft, html_of(draft.parent, os.fspath(out)))

    return spare(write)


def is_report(path: Path) -> bool:
    """Return True if a file is a report of covopt."""
    return starts_with(path, b'name="generator" content="covopt"')


def _write_page(path: Path, page: str) -> None:
    """Write the page; question marks replace characters that UTF-8 cannot encode."""
    path.write_text(page, encoding="utf-8", errors="replace")


def html_of(directory: Path, name: str) -> str:
    """Return the report of a run, called `name` in commands, as HTML; raise a RecordError if the run is damaged."""
    kind, summary = find(directory)
    try:
        return pages.as_html(kind.module("page").page(directory, name, summary))
    except (*DAMAGED, OSError, IndexError) as error:
        raise RecordError(f"{name} is not a complete run ({error}); run the command again with --out.") from error
