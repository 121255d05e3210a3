"""The state of a solve in a file, from which another process, or another number of them, goes on.

One .npz file: arrays by name, and one text with the rest as JSON. It is written whole or not at all, and nothing in it
is unpickled; what it says of a cost is computed again from its network, and it holds no bound.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covopt.errors import CovoptWarning, DataError, ProblemError, RecordError, shown
from covopt.io import files
from covopt.io.arrays import read_npz

FACTS = "facts"
CLOSE = 1e-9
"""Sums over the same data agree up to this, relative, in whatever order they were taken."""


@dataclass(frozen=True)
class Saved:
    """What a file holds.

    Attributes:
        stage: of the solve; seconds: since its start.
        facts: numbers, and lists of them, by name.
        arrays: by name.
    """

    stage: str
    seconds: float
    facts: dict[str, Any]
    arrays: dict[str, NDArray]


class Checkpoint:
    """Where and when the state of a solve is kept.

    Args:
        path: the file.
        every: seconds between two states.
        writes: whether this process writes the file; one of several does.

    Attributes:
        saved: the state to go on from.
    """

    def __init__(self, path: str | os.PathLike[str], every: float = 60.0, writes: bool = True) -> None:
        if isinstance(every, bool) or not isinstance(every, (int, float)) or not every > 0.0:
            raise ProblemError(f"The time between checkpoints is {shown(every)}; give seconds above 0.")
        self.path, self._every, self._writes = Path(path), every, writes
        self.saved: Saved | None = None
        self._question: dict[str, object] = {}
        self._last = 0.0

    def about(self, question: dict[str, object], resume: bool) -> None:
        """State the question, and find the state to go on from, if that is asked for.

        Raises:
            RecordError: there is none, or it is of another question; or a file cannot be written there.
        """
        self._question = question
        if not resume:
            if self._writes:
                files.check_free(self.path, force=True)
            return
        try:
            arrays = read_npz(self.path)
            told = json.loads(str(arrays.pop(FACTS)))
            self.saved = Saved(told["stage"], told["seconds"], told["facts"], arrays)
            before = told["question"]
        except (DataError, KeyError, TypeError, ValueError) as error:
            raise RecordError(f"{self.path} holds no state of a solve to go on from; leave resume out.") from error
        for name, value in question.items():
            if not _agrees(before.get(name), value):
                raise RecordError(f"{self.path} is the state of a solve with another {name}; leave resume out.")
        self._last = self.saved.seconds

    def due(self, seconds: float) -> bool:
        """Whether so many seconds after the start the state is to be kept."""
        return seconds - self._last >= self._every

    def keep(self, stage: str, seconds: float, facts: Mapping[str, object], arrays: Mapping[str, NDArray]) -> None:
        """Write the file; where the disk refuses, the solve goes on without."""
        self._last = seconds
        if not self._writes:
            return
        told = json.dumps({"question": self._question, "stage": stage, "seconds": seconds, "facts": dict(facts)})

        def write(draft: Path) -> None:
            with draft.open("wb") as stream:
                np.savez(stream, allow_pickle=False, **{FACTS: np.array(told)}, **arrays)

        try:
            files.write_file(self.path, write, force=True)
        except RecordError as error:
            warnings.warn(str(error), CovoptWarning, stacklevel=2)


def _agrees(before: object, now: object) -> bool:
    if isinstance(before, float) and isinstance(now, float):
        return abs(before - now) <= CLOSE * max(abs(before), abs(now))
    return before == now
