"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from covopt.errors import RecordError


def check_free(path: Path, force: bool = False) -> None:
    """Raise a RecordError unless a file may be written there: none exists, or `force` replaces it."""
    if os.path.isdir(path) or (os.path.exists(path) and not force):  # unlike those of Path, these never raise
        remedy = "choose another name" if os.path.isdir(path) else "choose another name, or replace it with --force"
        raise RecordError(f"{path} exists already; {remedy}.")
    if not os.path.isdir(path.absolute().parent):
        raise RecordError(f"{path} cannot be written, because there is no directory {path.parent}; make it.")


def write_file(path: Path, writer: Callable[[Path], object], force: bool = False) -> None:
    """Let `writer` write a sibling of `path`, which is renamed when it is complete.

    Raises:
        RecordError: as `check_free`, or the disk refuses.
    """
    check_free(path, force)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.absolute().parent)
        os.close(handle)
        draft = Path(name)
        try:
            writer(draft)
            draft.chmod(0o666 & ~umask())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise RecordError(f"{path} cannot be written ({error.strerror}); choose another name.") from error


def umask() -> int:
    """The permissions that new files do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
