"""Files that appear whole or not at all."""

from __future__ import annotations

import csv
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from covopt.runtime.errors import RecordError


def check_free(path: Path, force: bool = False, is_own: Callable[[Path], bool] = os.path.isfile) -> None:
    """Raise a RecordError unless a file may be written: none exists, or `force` replaces it.

    `is_own` returns True for a file of the kind to be written; no other is replaced.
    """
    if os.path.isdir(path) or (os.path.lexists(path) and not force):  # unlike the methods of Path, these never raise
        replacing = "" if os.path.isdir(path) else ", or replace it with --force (force=True)"
        raise RecordError(f"{path} exists already; choose another name{replacing}.")
    if os.path.lexists(path) and not is_own(path):
        raise RecordError(f"{path} is not a file that covopt wrote so, and is not replaced; choose another name.")
    if not os.path.isdir(path.absolute().parent):
        raise RecordError(f"{path} cannot be written, because there is no directory {path.parent}; make it.")


def check_apart(path: Path, source: Path) -> None:
    """Raise a RecordError if the file to write is the file that is read."""
    if os.path.exists(path) and os.path.exists(source) and os.path.samefile(path, source):
        raise RecordError(f"{path} is what is read, and is not replaced; choose another name.")


def starts_with(path: Path, text: bytes) -> bool:
    """Return True if the first 4096 bytes of a file contain a text."""
    try:
        with path.open("rb") as stream:
            return text in stream.read(4096)
    except OSError:
        return False


def write_file(
    path: Path, writer: Callable[[Path], object], force: bool = False, is_own: Callable[[Path], bool] = os.path.isfile
) -> None:
    """Let `writer` write a draft beside `path`, and rename it when it is complete; `check_free` is asked first."""
    check_free(path, force, is_own)
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
        raise RecordError(f"{path} cannot be written ({reason_of(error)}); choose another name.") from error


def columns_of(path: Path) -> list[str]:
    """Return the names in the first row of a .csv file; none if it is not such a file."""
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            return next(csv.reader(stream), [])
    except (OSError, ValueError, csv.Error):
        return []


def reason_of(error: Exception, longest: int | None = None) -> str:
    """Return the system's words for a failure, else the error's message, cut to `longest` characters."""
    system_reason = isinstance(error, OSError) and error.strerror
    return system_reason or " ".join(str(error).split())[:longest].rstrip(".") or type(error).__name__


def umask() -> int:
    """Return the permissions that the system takes from new files."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
