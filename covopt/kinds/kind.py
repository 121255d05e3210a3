"""What a kind of stored answer is: one object, `KIND` in a file of this package, says all that is different about it.

`covopt show` needs no torch, so what pages and checks are made of is loaded when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covopt.errors import RecordError
from covopt.io import record
from covopt.lazy import lazy
from covopt.report.page import Page, Pairs

if TYPE_CHECKING:
    import torch

    from covopt.figures import depths as depth_figures
    from covopt.figures import drawing, widths
    from covopt.figures import paths as path_figures
    from covopt.io import provenance
    from covopt.matrices import answer as matrices
    from covopt.methods import penalised as methods
    from covopt.report import function as function_figures
    from covopt.report import parts, pictures, svg
    from covopt.verification import audits, stored, studies
    from covopt.verification import depths as depth_runs
    from covopt.verification import paths as path_runs
    from covopt.verification import ranks as rank_runs
    from covopt.verification import verify as checks
else:
    torch, methods, provenance = lazy("torch"), lazy("covopt.methods.penalised"), lazy("covopt.io.provenance")
    drawing, widths = lazy("covopt.figures.drawing"), lazy("covopt.figures.widths")
    parts, pictures = lazy("covopt.report.parts"), lazy("covopt.report.pictures")
    function_figures = lazy("covopt.report.function")
    depth_figures, svg = lazy("covopt.figures.depths"), lazy("covopt.report.svg")
    depth_runs = lazy("covopt.verification.depths")
    rank_runs = lazy("covopt.verification.ranks")
    path_runs = lazy("covopt.verification.paths")
    path_figures = lazy("covopt.figures.paths")
    audits, checks = lazy("covopt.verification.audits"), lazy("covopt.verification.verify")
    matrices = lazy("covopt.matrices.answer")
    stored, studies = lazy("covopt.verification.stored"), lazy("covopt.verification.studies")

__all__ = [
    "Kind", "Pairs", "Summary", "audits", "checks", "depth_figures", "depth_runs", "drawing", "function_figures",
    "matrices", "methods", "parts", "path_figures", "path_runs", "pictures", "provenance", "rank_runs", "stored",
    "studies", "svg", "torch", "widths",
]  # fmt: skip

Summary = Mapping[str, Any]


def _result(directory: Path) -> object:
    inner = [path.parent.relative_to(directory) for path in sorted(directory.rglob(record.SUMMARY))]
    named = f"; load one of them, such as {directory / inner[0]}" if inner else "; run the command again with --out"
    raise RecordError(f"{directory} holds a study, whose solves do not come back as one answer{named}.")


@dataclass(frozen=True)
class Kind:
    """A kind of stored answer.

    Attributes:
        name: the command that makes it.
        file: its summary; of a new kind, the name with `.json`, which `storing.put` marks as such.
        pairs: from its summary to what `covopt show` prints, labels and texts.
        page: from its directory, its name on the page and its summary to its report.
        verify: from its directory, its summary and a tolerance to what its files prove, and what is not checked.
        load: from its directory to the answer, where that comes back; else what a solve takes it for.
        read: its summary, from that file.
    """

    name: str
    file: str
    pairs: Callable[[Summary], Pairs]
    page: Callable[[Path, str, Summary], Page]
    verify: Callable[[Path, Summary, float], checks.Verification]
    load: Callable[[Path], object] = _result
    read: Callable[[Path], Summary] = record.read_object
