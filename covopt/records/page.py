"""The content of a page of a report, and the file that it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from covopt.records.numerals import shown
from covopt.records.record import Pairs
from covopt.runtime.lazy import lazy

if TYPE_CHECKING:
    from covopt.records import markup, svg
else:
    svg, markup = lazy("covopt.records.svg"), lazy("covopt.records.markup")


@dataclass(frozen=True)
class Table:
    """Rows under named columns.

    Attributes:
        caption: what it lists.
        columns: their names.
        rows: the cells; numbers are shortened, None is a dash.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]

    @property
    def numeric(self) -> list[bool]:
        """Return True for columns that hold nothing but numbers, and stand at the right."""
        return [all(_is_number(row[i]) for row in self.rows) for i in range(len(self.columns))]

    @property
    def cells(self) -> list[list[str]]:
        """Return the rows as a person reads them."""
        return [[_cell(value) for value in row] for row in self.rows]


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading of its own."""

    title: str
    text: Sequence[str] = ()
    pictures: Sequence[svg.Picture] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True)
class Page:
    """A report page.

    Attributes:
        kind: the command that computes such answers.
        data: the name of the data.
        question: a sentence.
        answer: a sentence.
        notes: remarks beside the answer.
        facts: the numbers of the answer.
        asked: the options of the call.
        proof: the proof of the bound and its meaning, in paragraphs.
        check: the command that checks it again.
        sections: the rest.
        command: repeats the run; None where it was made in Python.
        python: repeats it in Python.
        origin: versions and machine.
        finished: when the run was stored.
    """

    kind: str
    data: str
    question: str
    answer: str
    notes: Sequence[str]
    facts: Pairs
    asked: Pairs
    proof: Sequence[str]
    check: str
    sections: Sequence[Section]
    command: str | None
    python: str
    origin: Pairs = field(default_factory=list)
    finished: str | None = None


def as_html(page: Page) -> str:
    """Return the page as one HTML file that loads nothing."""
    sections = [part for part in page.sections if part.text or part.pictures or part.tables]
    return markup.render("report.html", page=page, sections=sections)


def _is_number(value: object) -> bool:
    return value is None or isinstance(value, int | float) or (isinstance(value, str) and value.endswith(" %"))


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return shown(value, 6) if isinstance(value, float) else str(value)
