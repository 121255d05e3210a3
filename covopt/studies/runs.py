"""What is done with a stored run, whatever its kind: found, loaded, checked, and made a report of.

Each kind of answer has a `page.py` in its folder, which holds its `KIND`.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from covopt.answer.kind import Kind, Pairs, Summary
from covopt.records import record, storing
from covopt.records.directories import Writer, spare
from covopt.records.page import as_html
from covopt.records.record import REPORT
from covopt.runtime.errors import CovoptError, DataError, ProblemError, RecordError, shown
from covopt.runtime.files import check_free, starts_with, write_file
from covopt.runtime.lazy import lazy
from covopt.runtime.options import checked
from covopt.runtime.threads import fitted

if TYPE_CHECKING:
    from covopt.answer import stored
    from covopt.answer import verify as checks
else:
    checks = lazy("covopt.answer.verify")
    stored = lazy("covopt.answer.stored")


PAGES = (
    "studies.compare", "completely_positive", "studies.depth", "studies.path", "studies.width", "studies.ranks",
    "answer", "studies.audit",
)  # fmt: skip
_MODULES = [import_module(f"covopt.{place}.page") for place in PAGES]
KINDS: tuple[Kind, ...] = tuple(module.KIND for module in _MODULES)
"""Every kind of answer that covopt stores."""


def find(directory: str | os.PathLike[str]) -> tuple[Kind, Summary]:
    """The kind of the run that lies there, and its summary.

    Raises:
        RecordError: no run of any kind there, or its summary is damaged.
    """
    file = record.kind_of(Path(directory))
    if file is None:
        names = ", ".join(kind.file for kind in KINDS)
        raise RecordError(f"{directory} holds no run ({names}: none is there); give one that --out wrote.")
    path = Path(directory) / file
    own = next((kind for kind in KINDS if kind.file == file), None)
    summary = record.read_object(path) if own is None else own.read(path)
    if own is None:
        raise RecordError(f"{path} is of a kind that this version of covopt does not know; use the one that stored it.")
    return own, summary


def pairs_of(kind: Kind, summary: Summary) -> Pairs:
    """A stored run as a person reads it: labels and texts.

    Raises:
        RecordError: the summary lacks what every run of its kind has.
    """
    try:
        return kind.pairs(summary)
    except (KeyError, TypeError, ValueError) as error:
        said = f"{kind.file} is damaged: it lacks what a run of its kind has ({error}); run it again."
        raise RecordError(said) from error


@checked
@fitted
def load(directory: str | os.PathLike[str]) -> Any:
    """A run that `save` or `--out` stored; no file in it is trusted (no pickles, shapes checked).

    Args:
        directory: of the run.

    Returns:
        Of `solve` the `Result`, its cost evaluated anew from the stored weights; of `cprank`, `depth`, `path` and
        `ranks` their answers. Plateaus, comparisons and audits do not come back as one: load the solves
        in them, `DIR/solution` or `DIR/METHOD`.

    Raises:
        RecordError: no run there, one of another kind, or an incomplete or damaged one.
    """
    if record.kind_of(Path(directory)) in (None, record.SUMMARY):
        return stored.load(directory)
    return _guarded(directory, lambda kind, _: kind.load(Path(directory)))


@checked
@fitted
def verify(directory: str | os.PathLike[str], rounding: float = 1e-9) -> checks.Verification:
    """Check what a stored run says from its files alone; the solver is not run.

    Of a solve: the cost and its parts from the stored weights, the bound from the dual point and its evidence, and all
    that follows from these and from the problem; that the files are those that `result.json` lists. Of a plateau, a
    comparison or an audit: the same of the runs in it, and that the summary agrees with them. Of a cp-rank: the verdict
    and both ends, from the stored proofs.

    Args:
        directory: of the run.
        rounding: by how much a cost or bound may differ from what is stated, relative.

    Returns:
        Whether the files prove what is stated, why not, what they prove, and what is not checked.

    Raises:
        RecordError: no run there, or a damaged one.
    """
    return _guarded(directory, lambda kind, summary: kind.verify(Path(directory), summary, rounding))


def _guarded(directory: str | os.PathLike[str], action: Callable[[Kind, Summary], Any]) -> Any:
    """What is made of a run; a RecordError where a file in it is not what it should be."""
    kind, summary = find(directory)
    try:
        return action(kind, summary)
    except (DataError, ProblemError) as error:
        raise record.broken(directory, error) from error
    except (OSError, KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError, csv.Error) as error:
        raise RecordError(f"{directory} is not a complete run ({error}); run the command again with --out.") from error


@runtime_checkable
class Storable(Protocol):
    """An answer that stores itself: a Result, a CPRank and the others."""

    def save(self, directory: str | os.PathLike[str]) -> None: ...


@checked
@fitted
def write_report(
    run: Storable | str | os.PathLike[str], file: str | os.PathLike[str] | None = None, *, force: bool = False
) -> Path:
    """Write an answer as one HTML file that loads nothing and opens from disk.

    Args:
        run: a Result, Plateau, Comparison, Audit or CPRank, or the directory of a stored one.
        file: where; None for a stored run is `report.html` in its directory.
        force: replace an earlier file.

    Returns:
        The file.

    Raises:
        RecordError: no run there, or a damaged one; the file exists, or cannot be written.
    """
    if isinstance(run, str | os.PathLike):
        target = Path(run) / REPORT if file is None else Path(file)
        find(run)
        check_free(target, force, is_report)
        page = html_of(Path(run), os.fspath(run))
        write_file(target, lambda draft: _write_page(draft, page), force, is_report)
        if target.absolute() == (Path(run) / REPORT).absolute():
            storing.adopt(target)
        return target
    if not isinstance(run, Storable):
        raise RecordError(f"A report cannot be made of {shown(run)}; give an answer, or the directory of a stored one.")
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
    kind, summary = find(directory)
    try:
        return as_html(kind.page(directory, name, summary))
    except CovoptError:
        raise
    except (OSError, KeyError, TypeError, ValueError, IndexError, AttributeError, StopIteration) as error:
        raise RecordError(f"{name} is not a complete run ({error}); run the command again with --out.") from error
