"""Kinds of stored answers: each has a folder, in which modules of fixed names hold all that differs between them."""

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

    The modules of its folder are loaded when they are first needed: `covopt show` needs the words alone, no torch.

    Attributes:
        name: the command that makes it.
        folder: of the package; it holds words.py, page.py and check.py.
        file: its summary; by default the name with `.json`.
    """

    name: str
    folder: str
    own_file: str = ""

    @property
    def file(self) -> str:
        """The name of its summary."""
        return self.own_file or f"{self.name}.json"

    def read(self, path: Path) -> Summary:
        """Return its summary from that file."""
        return record.read_checked(path) if self.file == record.SUMMARY else record.read_object(path)

    def pairs(self, summary: Summary) -> Pairs:
        """Return what `covopt show` prints, labels and texts."""
        return self._module("words").pairs(summary)

    def page(self, directory: Path, name: str, summary: Summary) -> Page:
        """Return the report of a run that has this name on the page."""
        return self._module("page").page(directory, name, summary)

    def verify(self, directory: Path, summary: Summary, rounding: float) -> Verification:
        """Return what the files of a run prove, up to `rounding`, and what is not checked."""
        return self._module("check").verify(directory, summary, rounding)

    def load(self, directory: Path) -> Any:
        """Return the answer."""
        return self._module("check").load(directory)

    def _module(self, name: str) -> Any:
        return import_module(f"covopt.{self.folder}.{name}")
