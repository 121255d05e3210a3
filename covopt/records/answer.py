"""The base class of all answers: they show and store themselves."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from covopt.records import record, storing
from covopt.records.directories import Writer
from covopt.records.provenance import ORIGIN, write_origin
from covopt.records.record import Pairs
from covopt.runtime.lazy import lazy

if TYPE_CHECKING:
    from covopt.records import markup
else:
    markup = lazy("covopt.records.markup")

UNDRAWN: Mapping[str, Writer] = {"figure.png": lambda path: None}
"""Omits the picture of a solve that a study stores: the study's own picture shows the same."""


class Answer(ABC):
    """The answer of a command.

    Attributes:
        file: the name of the summary file in the directory of a run.
    """

    file: ClassVar[str]

    @abstractmethod
    def summary(self) -> dict[str, object]:
        """Return the answer as a JSON object; unknown or unproved values are None."""

    @abstractmethod
    def sentence(self) -> str:
        """Return the answer in a sentence or two."""

    @abstractmethod
    def describe(self) -> Pairs:
        """Return the answer for people: pairs of a label and a text."""

    @abstractmethod
    def files(self) -> dict[str, Writer]:
        """Return the writers of all files but the summary and origin.json, by file name."""

    def stated(self) -> dict[str, object]:
        """Return the contents of the summary file: `summary()`, unless a class stores more."""
        return self.summary()

    def save(
        self,
        directory: str | os.PathLike[str],
        *,
        force: bool = False,
        others: Mapping[str, Writer] | None = None,
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
        """Return the answer in a few lines."""
        # Labels are padded to 13 characters, so that the texts begin in one column.
        return "\n".join(f"{label:<13}{text}" for label, text in self.describe())

    def _repr_html_(self) -> str:
        return markup.summary(self.sentence(), self.describe())
