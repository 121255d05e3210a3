"""Kinds of stored answers: the folder of a kind holds all that is special to it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covopt.records import record
from covopt.records.record import Pairs, Summary

if TYPE_CHECKING:
    from covopt.answer.verify import Verification
    from covopt.records.page import Page


@dataclass(frozen=True)
class Kind:
    """A kind of stored answer.

    The modules are imported when they are first used: `covopt show` uses only `words`, which needs no torch.

    Attributes:
        name: the command that computes such an answer.
        folder: the subpackage of covopt that holds words.py, page.py and check.py, as in `studies.width`.
        own_file: the name of the summary file if it is not `name` with `.json`.
    """

    name: str
    folder: str
    own_file: str = ""

    @property
    def file(self) -> str:
        """The name of the summary file."""
        return self.own_file or f"{self.name}.json"

    def read(self, path: Path) -> Summary:
        """Read a summary file."""
        return record.read_checked(path) if self.file == record.SUMMARY else record.read_object(path)

    def pairs(self, summary: Summary) -> Pairs:
        """Return the labels and texts that `covopt show` prints."""
        return self._module("words").pairs(summary)

    def page(self, directory: Path, name: str, summary: Summary) -> Page:
        """Return the report of a run; `name` stands on the page."""
        return self._module("page").page(directory, name, summary)

    def verify(self, directory: Path, summary: Summary, rounding: float) -> Verification:
        """Check a run up to relative errors of `rounding`; name what is not checked."""
        return self._module("check").verify(directory, summary, rounding)

    def load(self, directory: Path) -> Any:
        """Load the answer that a directory stores."""
        return self._module("check").load(directory)

    def _module(self, name: str) -> Any:
        return import_module(f"covopt.{self.folder}.{name}")
