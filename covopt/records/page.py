"""The content of a report page, and its HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from covopt.records.numerals import shown
from covopt.records.record import Pairs
from covopt.runtime.lazy import lazy

if TYPE_CHECKING:
    from covopt.records import svg
else:
    svg = lazy("covopt.records.svg")


PROSE = 30
"""Characters above which a cell is prose."""
_TEMPLATES = Environment(
    loader=PackageLoader("covopt"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
"""The templates escape every inserted text, because names in data may be hostile."""


@dataclass(frozen=True)
class Table:
    """Rows under named columns."""

    caption: str  # a sentence on the rows
    columns: Sequence[str]  # the names of the columns
    rows: Sequence[Sequence[object]]  # the cells; numbers are shortened, None is a dash

    @property
    def kinds(self) -> list[str]:
        """Return the style of each column: number (aligned right), prose (long texts, which need width), or none."""
        numeric = [all(_is_number(row[i]) for row in self.rows) for i in range(len(self.columns))]
        long = [max((len(row[i]) for row in self.cells), default=0) > PROSE for i in range(len(self.columns))]
        return ["number" if n else "prose" if p else "" for n, p in zip(numeric, long, strict=True)]

    @property
    def cells(self) -> list[list[str]]:
        """Return the rows as text for people."""
        return [[_cell(value) for value in row] for row in self.rows]


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading of its own; a `folded` one shows its heading alone until a click."""

    title: str
    text: Sequence[str] = ()
    pictures: Sequence[svg.Picture] = ()
    tables: Sequence[Table] = ()
    folded: bool = False


@dataclass(frozen=True)
class Page:
    """A report page."""

    kind: str  # the command that computes such answers
    data: str  # the name of the data
    question: str  # the problem, in one sentence
    answer: str  # the answer, in one sentence
    notes: Sequence[str]  # remarks beside the answer
    facts: Pairs  # the numbers of the answer
    asked: Pairs  # the options of the call
    proof: Sequence[str]  # the proof of the bound and its meaning, in paragraphs; `proof_title` is their heading
    check: str  # the command that checks the proof again
    sections: Sequence[Section]  # all other parts
    command: str | None  # the command that repeats the run; None for a run made in Python
    python: str  # the code that repeats it in Python
    origin: Pairs = field(default_factory=list)  # versions and machine
    finished: str | None = None  # when the run was stored
    proof_title: str = "Proof"


def as_html(page: Page) -> str:
    """Return the page as one HTML file without external resources."""
    sections = [part for part in page.sections if part.text or part.pictures or part.tables]
    return _TEMPLATES.get_template("report.html").render(page=page, sections=sections)


def summary(sentence: str, pairs: Pairs, image: str | None) -> str:
    """Return the HTML of an answer for a notebook: a sentence, a picture by its address, and labels with texts."""
    return _TEMPLATES.get_template("summary.html").render(sentence=sentence, pairs=pairs, image=image)


def _is_number(value: object) -> bool:
    return value is None or isinstance(value, int | float) or (isinstance(value, str) and value.endswith(" %"))


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return shown(value, 6) if isinstance(value, float) else str(value)
