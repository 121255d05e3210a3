"""Store runs whole or not at all, and replace earlier runs only.

Only files that covopt wrote are deleted. The summary of a run lists its other files with their SHA-256, including those
of the runs inside it. This binds the files to each other, and tells `--force` what it may replace.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from covopt.records import directories, record
from covopt.records.directories import Listing, Writer
from covopt.records.record import PICTURES
from covopt.runtime.errors import RecordError
from covopt.runtime.files import reason_of, umask, write_file
from covopt.runtime.interrupts import interrupted, shielded

FILES = "files"
"""The entry of a summary that lists the other files of the run, and of the runs in it, each with its SHA-256."""


def check_free(directory: str | os.PathLike[str], force: bool = False) -> Path:
    """Check that a run may be written to `directory`, and return its absolute path.

    Raises:
        RecordError: it exists and `force` is false; it holds files that covopt did not write (these are never
            replaced); it cannot be made.
    """
    try:
        path = Path(directory).resolve()
        exists = path.exists() or path.is_symlink()
    except (OSError, TypeError, ValueError, RuntimeError) as error:  # too long, with a NUL, or a cycle of links
        raise RecordError(f"{directory} is no name of a directory; choose another one.") from error
    if exists:
        if not force:
            raise RecordError(f"{directory} exists already; choose another, or replace it with --force (force=True).")
        _replaceable(path, directory)
    ancestor = next(p for p in path.parents if p.exists())
    if not ancestor.is_dir() or not os.access(ancestor, os.W_OK):
        raise RecordError(f"{directory} cannot be written, because {ancestor} is not a writable directory.")
    return path


def put(directory: str | os.PathLike[str], kind: str, writers: Mapping[str, Writer], *, force: bool = False) -> None:
    """Write a directory whole or not at all: a draft beside it is renamed when it is complete.

    The summary lists the other files and their digests under FILES.

    Args:
        directory, kind: the run's directory and the file name of its summary; missing parents are made.
        writers: for each file, the function that writes it to a path.
        force: replace an earlier run.

    Raises:
        RecordError: as `check_free`; writing fails; or, without `force`, another program has made the directory
            meanwhile: then the complete run is beside it, under a name that the message gives.
    """
    path = check_free(directory, force)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = directories.begin(path)
        try:
            for name, writer in writers.items():
                if not (interrupted() and name in PICTURES):  # the user waits for the end
                    writer(draft / name)
            _seal(draft / kind, directories.digests(draft))
            draft.chmod(0o777 & ~umask())
            with shielded():
                check = (lambda earlier: _replaceable(earlier, directory)) if force else None
                directories.move_in(draft, path, check)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except FileExistsError as error:
        raise RecordError(f"Another program has written {directory} meanwhile; this run is in {error}.") from error
    except OSError as error:
        raise RecordError(f"{directory} cannot be written ({reason_of(error)}); choose another directory.") from error


def adopt(file: Path) -> None:
    """Update the digest of a rewritten file in the summary of its run, and of the runs that contain it."""
    changed, directory = [file.resolve()], file.resolve().parent
    while (kind := record.kind_of(directory)) is not None:
        summary, own = directory / kind, changed[-1].relative_to(directory).as_posix()
        listed = record.read_object(summary).get(FILES)
        if not isinstance(listed, dict) or (len(changed) > 1 and own not in listed):
            return
        files = listed | {path.relative_to(directory).as_posix(): directories.digest(path) for path in changed}
        write_file(summary, lambda draft, s=summary, f=files: _seal(draft, f, s), force=True)
        changed.append(summary)
        directory = directory.parent


def _seal(path: Path, listed: Mapping[str, str], source: Path | None = None) -> None:
    """Write the summary `source` (default: the one at `path`) to `path`, with the list of the other files."""
    digests = {name: digest for name, digest in sorted(listed.items()) if name != (source or path).name}
    record.write_summary(path, record.read_object(source or path) | {FILES: digests})


def _replaceable(path: Path, shown: str | os.PathLike[str]) -> Listing:
    """Return the files that --force may delete in a directory, called `shown` if it is no run or has other files."""
    listed = listing(path) if path.is_dir() else None
    foreign = directories.foreign(path, listed or {}) if path.is_dir() else ""
    if listed is None and foreign is not None:
        raise RecordError(f"{shown} is not a run of covopt and is not replaced; choose another directory.")
    if foreign is not None:
        raise RecordError(
            f"{shown} holds {foreign}, and is not replaced; move that file away, or choose another directory."
        )
    return listed or {}


def listing(directory: Path) -> Listing | None:
    """Return the files that covopt wrote for a run, with digests, its summary included; None if it is no run."""
    kind = record.kind_of(directory)
    if kind is None:
        return None
    try:
        listed = record.read_object(directory / kind).get(FILES)
    except RecordError:
        return None
    if not isinstance(listed, dict) or not all(isinstance(digest, str) for digest in listed.values()):
        return None
    return listed | {kind: None}
