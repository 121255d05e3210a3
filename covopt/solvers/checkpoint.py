"""The state of a solve in a file, from which other processes resume it.

One .npz file: arrays by name, one text with the rest as JSON, and a digest of both. It is written whole or not at all,
and nothing in it is unpickled; what it says of a cost is computed again from its network, and it holds no bound.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covopt.data.arrays import read_npz
from covopt.runtime import files
from covopt.runtime.errors import CovoptWarning, DataError, RecordError

FACTS, DIGEST = "covopt_state", "digest"
"""The arrays of texts; by the name of the first, which is written first, a state is known from other files."""
Facts = Mapping[str, Any]  # numbers, and lists of them, by name, as a file holds them; a reader must check their types
CLOSE = 1e-9  # sums over the same data agree up to this, relative, in whatever order they were taken


@dataclass(frozen=True)
class Saved:
    """The contents of a checkpoint file."""

    path: Path  # the file
    stage: str  # the stage of the solve
    seconds: float  # since its start
    facts: Facts  # numbers, and lists of them, by name
    arrays: dict[str, NDArray]  # the arrays by their names

    @contextmanager
    def understood(self) -> Iterator[None]:
        """Raise a RecordError where this block does not find what it looks for."""
        try:
            yield
        except (AttributeError, IndexError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise no_state(self.path) from error


def no_state(path: Path) -> RecordError:
    """Return the error for a file from which no solve can resume."""
    return RecordError(f"{path} holds no state of a solve to continue; leave resume out.")


def is_state(path: Path) -> bool:
    """Return True if a file is a checkpoint of covopt."""
    return files.starts_with(path, f"{FACTS}.npy".encode())


class Checkpoint:
    """The file to which a solve saves its state, and the times at which it does.

    `every` is the time between two states, in seconds. Of several processes one writes the file.
    """

    def __init__(self, path: str | os.PathLike[str], every: float = 60.0, writes: bool = True) -> None:
        self.path, self._every, self._writes = Path(path), every, writes
        self.saved: Saved | None = None  # the state to continue from
        self._question: dict[str, object] = {}
        self._last = 0.0

    def about(self, question: dict[str, object], resume: bool) -> None:
        """State the problem, and read the state to resume from, if asked for; a RecordError says why it cannot."""
        self._question = question
        if not resume:
            if self._writes and is_state(self.path):
                remedy = "continue from it with resume, or remove it"
                raise RecordError(f"{self.path} is the state of an earlier solve; {remedy}.")
            if self._writes:
                files.check_free(self.path, force=True, is_own=is_state)
            return
        self.saved, before = self._read()
        for name, value in question.items():
            if not _agrees(before.get(name), value):
                raise RecordError(
                    f"{self.path} is the state of a solve with another {name}; ask the same, or give another file."
                )
        self._last = self.saved.seconds

    def _read(self) -> tuple[Saved, dict[str, object]]:
        """Return the saved state and the problem it belongs to."""
        try:
            arrays = read_npz(self.path)
            digest, text = (str(arrays.pop(name)) for name in (DIGEST, FACTS))
            contents = json.loads(text)
            saved = Saved(self.path, contents["stage"], contents["seconds"], contents["facts"], arrays)
            if digest != _digest(text, arrays) or not 0.0 <= saved.seconds < math.inf:
                raise no_state(self.path)
            return saved, dict(contents["question"])
        except (DataError, KeyError, TypeError, ValueError) as error:
            raise no_state(self.path) from error

    def due(self, seconds: float) -> bool:
        """Return True if the state is to be saved this many seconds after the start."""
        return seconds - self._last >= self._every

    def keep(self, stage: str, seconds: float, facts: Facts, arrays: Mapping[str, NDArray]) -> None:
        """Write the file; if that fails, the solve continues without it."""
        self._last = seconds
        if not self._writes:
            return
        text = json.dumps({"question": self._question, "stage": stage, "seconds": seconds, "facts": dict(facts)})
        header = {FACTS: np.array(text), DIGEST: np.array(_digest(text, arrays))}

        def write(draft: Path) -> None:
            with draft.open("wb") as stream:
                np.savez(stream, allow_pickle=False, **header, **arrays)

        try:
            files.write_file(self.path, write, force=True, is_own=is_state)
        except RecordError as error:
            warnings.warn(str(error), CovoptWarning, stacklevel=2)


def _agrees(before: object, now: object) -> bool:
    if isinstance(before, float) and isinstance(now, float):
        return abs(before - now) <= CLOSE * max(abs(before), abs(now))
    return before == now


def _digest(text: str, arrays: Mapping[str, NDArray]) -> str:
    """Return a digest of all that a file holds, so that a damaged file is not resumed from."""
    digest = hashlib.sha256(text.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
