"""Directories that covopt replaces only if all their content is its own, unchanged.

A directory is its files by their paths from there, with slashes, each with its SHA-256. Symbolic links are never
followed, and nothing is deleted that is not listed.
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

Writer = Callable[[Path], object]
Listing = Mapping[str, str | None]
"""The files that covopt wrote, each with its digest; None if that is unknown."""

DRAFT = ".part"
"""The ending of the names of drafts."""
LONGEST = 120
"""The maximum length of a library's own message in a sentence."""


def spare(writer: Writer) -> Writer:
    """Return a writer that warns where it fails, for parts that a run can do without."""

    def write(path: Path) -> None:
        try:
            writer(path)
        except Exception as error:  # a picture that fails must not cost a run that took hours
            path.unlink(missing_ok=True)
            system_reason = isinstance(error, OSError) and error.strerror
            reason = system_reason or " ".join(str(error).split())[:LONGEST].rstrip(".") or type(error).__name__
            sentence = f"{path.name} cannot be made ({reason}); the rest is stored without it."
            warnings.warn(sentence, CovoptWarning, stacklevel=2)

    return write


def digest(file: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digests(directory: Path) -> dict[str, str]:
    """Return the digest of each file in a directory and below."""
    return {name: digest(directory / name) for name, entry in _walk(directory) if entry.is_file(follow_symlinks=False)}


def foreign(directory: Path, listed: Listing) -> str | None:
    """Describe the first thing in a directory that is not a listed file as written; or None."""
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
    """Make a new directory beside `path` for a draft; remove the drafts of killed programs.

    Its name holds the machine and the process, so that a draft is recognised as abandoned: no other one is touched.
    """
    pattern = re.compile(re.escape(f".{path.name}.{_machine()}.") + r"(\d+)\..+" + re.escape(DRAFT))
    for draft in path.parent.iterdir():
        if (named := pattern.fullmatch(draft.name)) and draft.is_dir() and not _runs(int(named[1])):
            shutil.rmtree(draft, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f".{path.name}.{_machine()}.{os.getpid()}.", suffix=DRAFT, dir=path.parent))


def _machine() -> str:
    return re.sub(r"\W", "", platform.node()) or "here"


def _runs(process: int) -> bool:
    """Return True if a process of this number runs here, or if that cannot be found out."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def move_in(draft: Path, path: Path, check: Callable[[Path], Listing] | None) -> None:
    """Rename a complete draft; an earlier directory steps aside, and comes back on failure.

    Args:
        draft: a sibling of `path`.
        path: where it is to be.
        check: returns which files of a directory may be deleted, or raises where it may not be replaced; None: nothing
            may be deleted.

    Raises:
        FileExistsError: something is there that may not be replaced; the draft has another name then, which is given.
    """
    if check is None:
        with suppress(OSError):  # raised for a directory that is not empty
            draft.rename(path)
            return
        refuge = Path(tempfile.mkdtemp(prefix=f"{path.name}.kept.", dir=path.parent))
        draft.rename(refuge)
        raise FileExistsError(refuge)
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
        refuge = Path(tempfile.mkdtemp(prefix=f"{path.name}.kept.", dir=path.parent))
        aside.rename(refuge)
        warnings.warn(f"What was put into {path} meanwhile is kept in {refuge}.", CovoptWarning, stacklevel=2)


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
    with os.scandir(directory) as scanned:
        entries = sorted(scanned, key=lambda entry: entry.name)
    for entry in entries:
        yield prefix + entry.name, entry
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), f"{prefix}{entry.name}/")
