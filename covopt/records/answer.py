"""What all answers have in common: they show and store themselves, from their facts."""

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
"""In place of the files of a run that a study holds: its picture would show nothing that the study's does not."""


class Answer(ABC):
    """The answer of a command.

    Attributes:
        file: the name of its summary in the directory of a run.
    """

    file: ClassVar[str]

    @abstractmethod
    def summary(self) -> dict[str, object]:
        """Return the answer as JSON has it; unknown or unproved values are None."""

    @abstractmethod
    def sentence(self) -> str:
        """Return the answer in a sentence or two."""

    @abstractmethod
    def describe(self) -> Pairs:
        """Return the answer as a person reads it: pairs of a label and its text."""

    @abstractmethod
    def files(self) -> dict[str, Writer]:
        """Return the writers of the files beside the summary and origin.json, by their names in the directory."""

    def stated(self) -> dict[str, object]:
        """Return what the file of the summary holds."""
        return self.summary()

    def save(
        self,
        directory: str | os.PathLike[str],
        *,
        force: bool = False,
        others: Mapping[str, Writer] | None = None,
    ) -> None:
        """Write the answer into a new directory, whole or not at all.

        Its page in the documentation lists the files.

        Args:
            directory: its parents are made.
            force: replace an earlier run there.
            others: further files, or others in place of these, each written by its function into the path it is given.

        Raises:
            RecordError: the directory exists, or cannot be written, or the answer holds nothing to store.
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
        return "\n".join(f"{label:<13}{text}" for label, text in self.describe())

    def _repr_html_(self) -> str:
        return markup.summary(self.sentence(), self.describe())
