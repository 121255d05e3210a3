"""Directories that covopt replaces only if covopt wrote all their files and none has changed.

A listing maps the path of each file in the directory, with slashes, to its SHA-256. Symbolic links are never followed,
and only listed files are deleted.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from covopt.runtime.errors import CovoptWarning
from covopt.runtime.files import reason_of

Writer = Callable[[Path], object]
Listing = Mapping[str, str | None]
"""The files that covopt wrote, each with its digest; None if that is unknown."""

DRAFT = ".part"
"""The ending of the names of drafts."""
LONGEST = 120
"""The maximum length of a library's own message in a sentence."""


def spare(writer: Writer) -> Writer:
    """Return a writer that warns if it fails, for files that a run can do without."""

    def write(path: Path) -> None:
        try:
            writer(path)
        except Exception as error:  # a picture that fails must not cost a run that took hours
            path.unlink(missing_ok=True)
            sentence = f"{path.name} cannot be made ({reason_of(error, LONGEST)}); the rest is stored without it."
            warnings.warn(sentence, CovoptWarning, stacklevel=2)

    return write


def digest(file: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digests(directory: Path) -> dict[str, str]:
    """Return the digest of each file in a directory and its subdirectories."""
    return {name: digest(directory / name) for name, entry in _walk(directory) if entry.is_file(follow_symlinks=False)}


def foreign(directory: Path, listed: Listing) -> str | None:
    """Describe the first entry of a directory that is not listed, or was changed; None if all are as listed."""
    parents = {parent.as_posix() for name in listed for parent in Path(name).parents}
    for name, entry in _walk(directory):
        if entry.is_dir(follow_symlinks=False):
            own = name in parents
        else:
            own = name in listed and entry.is_file(follow_symlinks=False)
        if not own:
            return f"{name}, which covopt did not write"
        if listed.get(name) is not None and listed[name] != digest(directory / name):
            return f"{name}, which was changed after covopt wrote it"
    return None


def begin(path: Path) -> Path:
    """Make a new directory for a draft beside `path`, and remove the drafts of programs that were killed.

    A draft's name has the machine and the process, which show whether it is abandoned.
    """
    pattern = re.compile(re.escape(f".{path.name}.{_machine()}.") + r"(\d+)\..+" + re.escape(DRAFT))
    for draft in path.parent.iterdir():
        if (named := pattern.fullmatch(draft.name)) and draft.is_dir() and not is_running(int(named[1])):
            shutil.rmtree(draft, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f".{path.name}.{_machine()}.{os.getpid()}.", suffix=DRAFT, dir=path.parent))


def _machine() -> str:
    return re.sub(r"\W", "", platform.node()) or "here"


def is_running(process: int) -> bool:
    """Return True if a process with this number runs here, or may run."""
    try:
        if os.name == "posix":
            os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it is another user's
        return True
    return True


def move_in(draft: Path, path: Path, check: Callable[[Path], Listing] | None) -> None:
    """Rename a complete draft to its sibling `path`; an earlier directory moves aside, and back if this fails.

    `check` returns the files of the earlier directory that may be deleted, or raises if it may not be replaced. Without
    it nothing may be replaced: a FileExistsError holds the new name of the draft.
    """
    if check is None:
        with suppress(OSError):  # raised for a directory that is not empty
            draft.rename(path)
            return
        raise FileExistsError(_set_aside(draft, path))
    if not os.path.lexists(path):
        draft.rename(path)
        return
    aside = draft.with_suffix(".old")
    try:
        path.rename(aside)
        listed = check(aside)  # checked again, now that no other program finds it
        draft.rename(path)
    except BaseException:
        if aside.exists() and not os.path.lexists(path):
            aside.rename(path)
        raise
    if not _remove(aside, listed):
        refuge = _set_aside(aside, path)
        warnings.warn(f"Files that were put into {path} meanwhile are now in {refuge}.", CovoptWarning, stacklevel=2)


def _set_aside(directory: Path, path: Path) -> Path:
    """Rename a directory to a new name beside `path`, and return it."""
    return directory.rename(tempfile.mkdtemp(prefix=f"{path.name}.kept.", dir=path.parent))


def _remove(directory: Path, listed: Listing) -> bool:
    """Delete the listed files and then the empty directories; return True if nothing remains."""
    entries = list(_walk(directory))
    for name, entry in entries:
        if name in listed and entry.is_file(follow_symlinks=False):
            os.unlink(directory / name)
    subdirectories = [directory / name for name, entry in entries if entry.is_dir(follow_symlinks=False)]
    for path in [*reversed(subdirectories), directory]:
        try:
            path.rmdir()
        except OSError:  # something remains in it or below
            continue
    return not directory.exists()


def _walk(directory: Path, prefix: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield all entries of a directory and below, a directory before its contents, by path."""
    with os.scandir(directory) as scan:
        entries = sorted(scan, key=lambda entry: entry.name)
    for entry in entries:
        yield prefix + entry.name, entry
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), f"{prefix}{entry.name}/")
