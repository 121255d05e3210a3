"""Runs are stored whole or not at all, and replace earlier runs only.

Nothing that covopt did not write is deleted. The summary of a run lists its other files with their SHA-256, those of
the runs in it included. So the files are bound to each other, and `--force` knows what it may replace.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Container, Mapping
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
        RecordError: it exists and `force` is false; it exists and holds what covopt did not write (never replaced); it
            cannot be made.
    """
    try:
        path = Path(directory).resolve()
        there = path.exists() or path.is_symlink()
    except (OSError, TypeError, ValueError, RuntimeError) as error:  # too long, with a NUL, links that go in a circle
        raise RecordError(f"{directory} is no name of a directory; choose another one.") from error
    if there:
        if not force:
            raise RecordError(f"{directory} exists already; choose another directory, or replace it with --force.")
        _replaceable(path, directory)
    ancestor = next(p for p in path.parents if p.exists())
    if not ancestor.is_dir() or not os.access(ancestor, os.W_OK):
        raise RecordError(f"{directory} cannot be written, because {ancestor} is not a writable directory.")
    return path


def put(
    directory: str | os.PathLike[str],
    kind: str,
    writers: Mapping[str, Writer],
    *,
    force: bool = False,
    spared: Container[str] = PICTURES,
) -> None:
    """Write a directory whole or not at all: a sibling first, renamed when it is complete.

    Its files are listed in its summary, under FILES, with their digests.

    Args:
        directory: where; its parents are made.
        kind: the name of its summary.
        writers: for each file the function that writes it into a path.
        force: replace an earlier run.
        spared: files that are omitted after Ctrl-C, because the user waits for the end.

    Raises:
        RecordError: as `check_free`; the disk refuses; or, without `force`, another program has made the directory in
            the meantime: then the run is complete beside it, under a name that is given.
    """
    path = check_free(directory, force)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = directories.begin(path)
        try:
            for name, writer in writers.items():
                if not (interrupted() and name in spared):
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
    """List a rewritten file anew in the summary of its run, and of the runs around this.

    Raises:
        RecordError: a summary is damaged or cannot be written.
    """
    changed, directory = [file.resolve()], file.resolve().parent
    while (kind := record.kind_of(directory)) is not None:
        summary, own = directory / kind, changed[-1].relative_to(directory).as_posix()
        listed = record.read_object(summary).get(FILES)
        if not isinstance(listed, dict) or (len(changed) > 1 and own not in listed):
            return
        anew = {path.relative_to(directory).as_posix(): directories.digest(path) for path in changed}
        files = listed | anew
        write_file(summary, lambda draft, s=summary, f=files: _seal(draft, f, s), force=True)
        changed.append(summary)
        directory = directory.parent


def _seal(path: Path, listed: Mapping[str, str], source: Path | None = None) -> None:
    """Write the summary `source` (default: that at `path`) with the list of the other files."""
    digests = {name: digest for name, digest in sorted(listed.items()) if name != (source or path).name}
    record.write_summary(path, record.read_object(source or path) | {FILES: digests})


def _replaceable(path: Path, shown: str | os.PathLike[str]) -> Listing:
    """Return the files that --force may delete in an existing directory.

    Raises:
        RecordError: it is no run of covopt, or holds more than covopt wrote there; `shown` is its name.
    """
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
    """Return the files of a stored run that covopt wrote, with digests; None if it is no run.

    Among them is its summary, which binds the others.
    """
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
