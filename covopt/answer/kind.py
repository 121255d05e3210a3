"""Kinds of stored answers: an object `KIND` in a file holds all that differs between them.

`covopt show` needs no torch, so what pages and checks are made of is loaded when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covopt.records import record
from covopt.records.page import Page, Pairs
from covopt.runtime.errors import RecordError

if TYPE_CHECKING:
    from covopt.answer import verify as checks

Summary = Mapping[str, Any]


def _result(directory: Path) -> object:
    solves = [path.parent.relative_to(directory) for path in sorted(directory.rglob(record.SUMMARY))]
    named = f"; load one of them, such as {directory / solves[0]}" if solves else "; run the command again with --out"
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
