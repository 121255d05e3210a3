"""The base class of all answers: they show and store themselves."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from covopt.records import record, storing
from covopt.records.directories import Writer
from covopt.records.provenance import ORIGIN, write_origin
from covopt.records.record import Pairs, Summary
from covopt.runtime.errors import ProblemError
from covopt.runtime.lazy import lazy

if TYPE_CHECKING:
    from matplotlib import figure as figures, pyplot
    from matplotlib.axes import Axes

    from covopt.records import page, svg
else:
    figures = lazy("matplotlib.figure")
    pyplot = lazy("matplotlib.pyplot")
    page, svg = lazy("covopt.records.page"), lazy("covopt.records.svg")

Table = tuple[Sequence[str], Sequence[Sequence[object]]]
"""Columns and rows."""
UNDRAWN: Mapping[str, Writer] = {"figure.png": lambda path: None}
"""Omits the picture of a solve that a study stores: the study's own picture shows the same."""


class Words(Protocol):
    """The module of a kind of answers that puts a summary into words."""

    def answer(self, s: Summary, /) -> str:
        """Return the answer in a sentence or two."""
        ...

    def pairs(self, s: Summary, /) -> Pairs:
        """Return the answer for people: pairs of a label and a text."""
        ...


class Answer(ABC):
    """The answer of a command.

    Attributes:
        file: the name of the summary file in the directory of a run.
        words: the module that puts its summary into words.
    """

    file: ClassVar[str]
    words: ClassVar[Words]

    @abstractmethod
    def summary(self) -> dict[str, object]:
        """Return the answer as a JSON object; unknown or unproved values are None."""

    @abstractmethod
    def files(self) -> dict[str, Writer]:
        """Return the writers of all files but the summary and origin.json, by file name."""

    def stated(self) -> dict[str, object]:
        """Return the contents of the summary file: `summary()`, unless a class stores more."""
        return self.summary()

    def sentence(self) -> str:
        """Return the answer in a sentence or two."""
        return self.words.answer(self.stated())

    def describe(self) -> Pairs:
        """Return the answer as a person reads it: pairs of a label and its text."""
        return self.words.pairs(self.stated())

    def overview(self) -> tuple[Pairs, Table | None]:
        """Return what a command prints: labels with their texts, and columns with rows of a table below them."""
        return self.describe(), None

    def save(
        self, directory: str | os.PathLike[str], *, force: bool = False, others: Mapping[str, Writer] | None = None
    ) -> None:
        """Write the answer into a new directory, whole or not at all.

        The documentation page of each command lists its files.

        Args:
            directory: it is created, with its parents.
            force: replace an earlier run in the directory.
            others: writers of further files, by file name; they override the answer's own writers. Each function
                writes to the path that it receives.

        Raises:
            RecordError: the directory exists, cannot be written, or the answer holds nothing to store.
        """
        writers: dict[str, Writer] = {
            self.file: lambda path: record.write_summary(path, self.stated()),
            ORIGIN: write_origin(),
            **self.files(),
            **(others or {}),
        }
        storing.put(directory, self.file, writers, force=force)

    def __repr__(self) -> str:
        """Return at most five lines: the problem, the answer in a sentence or two, and why it ended."""
        facts = dict(self.describe())
        if len(facts) <= 5:
            return str(self)
        first, *further = wrap(self.sentence(), 105, max_lines=3, placeholder=" ...")
        lines = [("problem", facts.get("problem", "")), ("answer", first), *(("", line) for line in further)]
        lines += [("status", facts.get("status", ""))]
        return "\n".join(f"{label:<12} {text}" for label, text in lines if text)

    def __str__(self) -> str:
        """Return the whole answer, a line for each fact."""
        # Labels are padded to 13 characters, so that the texts begin in one column.
        return "\n".join(f"{label:<12} {text}" for label, text in self.describe())

    def _repr_html_(self) -> str:
        plot, image = getattr(self, "plot", None), None
        if plot is not None:
            with suppress(ProblemError):  # there is no network to draw yet
                image = svg.picture(lambda figure: plot(figure.subplots()), alt=self.sentence(), caption="").uri
        facts = [(label, text) for label, text in self.describe() if text != self.sentence()]
        return page.summary(self.sentence(), facts, image)


class Drawn(Answer):
    """An answer with a picture of its own.

    Attributes:
        figures: the module that draws a summary: `plot(axes, s)` one picture, `draw(figure, s)` all, of SIZE in inches.
    """

    figures: ClassVar[Any]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the curve of the answer, and what is proved of it.

        Args:
            ax: matplotlib axes; None makes a figure by pyplot, so that a notebook shows it.

        Returns:
            The axes.
        """
        axes = pyplot.subplots(layout="constrained")[1] if ax is None else ax
        self.figures.plot(axes, self.summary())
        return axes

    def draw(self, path: Path) -> None:
        """Write the picture of the answer as a PNG at `path`."""
        figure = figures.Figure(figsize=self.figures.SIZE, layout="constrained", dpi=130)
        self.figures.draw(figure, self.summary())
        figure.savefig(path, format="png")
