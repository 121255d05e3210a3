"""The cells of a sweep in one SQLite file, with claims that expire and durable results.

The file is in SQLite's rollback mode with `synchronous = EXTRA`: when a transaction returns it survives loss of power,
and a transaction of a killed process is rolled back at the next opening.
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from covopt.records.directories import is_running
from covopt.runtime.errors import RecordError
from covopt.runtime.threads import repeating

APPLICATION = 0x636F7670
"""SQLite's application_id of sweep files."""
LEASE = 60.0
"""Seconds that a claim holds without renewal; a live process renews it four times as often."""
PATIENCE = 60.0
"""Seconds to wait for another process that is writing."""
FAILED = "failed"

_SCHEMA = """CREATE TABLE IF NOT EXISTS cells (
    key TEXT PRIMARY KEY, place INTEGER NOT NULL, options TEXT NOT NULL,
    owner TEXT, expires REAL, outcome TEXT, status TEXT) WITHOUT ROWID"""
_FREE = "outcome IS NULL AND (owner IS NULL OR expires < ?)"

Options = dict[str, object]


@dataclass(frozen=True)
class Counts:
    """The state of a sweep: all cells, and those finished, refused or failed."""

    cells: int
    finished: int
    refused: int
    failed: int


class Store:
    """One process's access to a sweep's file; its methods may be called from any thread.

    Args:
        path: the file, created if it is missing.
        cells: the options of each cell by its key, in their order. A file may hold fewer of them, but no others.
        resume: whether the file may hold results already; cells that failed are then free again.
        lease: seconds that a claim holds without renewal.
    """

    def __init__(
        self, path: str | os.PathLike[str], cells: Mapping[str, Options], *, resume: bool = False, lease: float = LEASE
    ) -> None:
        self.path, self.lease = Path(path), lease
        self.owner = f"{_machine()}|{os.getpid()}|{uuid.uuid4().hex}"
        self._lock = threading.RLock()
        if os.path.exists(path) and not resume:
            raise RecordError(f"{path} exists already; continue it with --resume, or choose another --database.")
        if not self.path.parent.is_dir():
            raise RecordError(f"{path} cannot be written, because {self.path.parent} is no directory; make it first.")
        with self._clear():
            self._connection = sqlite3.connect(
                self.path, timeout=PATIENCE, isolation_level=None, check_same_thread=False
            )
            try:
                self._connection.execute("PRAGMA synchronous = EXTRA")
                self._begin(cells)
            except BaseException:
                self._connection.close()
                raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; claims stay until they are released or expire."""
        self._connection.close()

    def claim(self) -> tuple[str, Options] | None:
        """Claim the first free cell; return None if no cell is free."""
        with self._transaction() as connection:
            now = time.time()
            row = connection.execute(
                f"SELECT key, options FROM cells WHERE {_FREE} ORDER BY place LIMIT 1", (now,)
            ).fetchone()
            if row is None:
                return None
            claim = (self.owner, now + self.lease, row[0])
            connection.execute("UPDATE cells SET owner = ?, expires = ? WHERE key = ?", claim)
        return row[0], self._decoded(row[1])

    def finish(self, key: str, outcome: Options) -> bool:
        """Store a cell's result, durable on return; return False if one was stored before."""
        with self._transaction() as connection:
            stored = connection.execute(
                "UPDATE cells SET outcome = ?, status = ?, owner = NULL, expires = NULL"
                " WHERE key = ? AND outcome IS NULL",
                (json.dumps(outcome, allow_nan=False), str(outcome["status"]), key),
            )
            return stored.rowcount == 1

    def renew(self) -> None:
        """Renew the claims of this process for another lease."""
        with self._transaction() as connection:
            expires = time.time() + self.lease
            connection.execute(
                "UPDATE cells SET expires = ? WHERE owner = ? AND outcome IS NULL", (expires, self.owner)
            )

    def release(self) -> None:
        """Give back the cells that this process claimed and did not finish."""
        with self._transaction() as connection:
            connection.execute("UPDATE cells SET owner = NULL, expires = NULL WHERE owner = ?", (self.owner,))

    def release_dead(self) -> None:
        """Give back the claims of processes of this machine that are gone, before they expire."""
        with self._clear():
            owners = self._connection.execute("SELECT DISTINCT owner FROM cells WHERE owner IS NOT NULL").fetchall()
        dead = [owner for (owner,) in owners if _gone(owner)]
        if dead:
            with self._transaction() as connection:
                connection.executemany(
                    "UPDATE cells SET owner = NULL, expires = NULL WHERE owner = ?", [(owner,) for owner in dead]
                )

    def counts(self) -> Counts:
        """Return the state of the sweep."""
        with self._clear():
            row = self._connection.execute(
                "SELECT COUNT(*), COUNT(outcome), COALESCE(SUM(status = 'refused'), 0),"
                f" COALESCE(SUM(status = '{FAILED}'), 0) FROM cells"
            ).fetchone()
        return Counts(*row)

    def rows(self) -> list[Options]:
        """Return options and result of each finished cell, in the order of the sweep."""
        with self._clear():
            rows = self._connection.execute(
                "SELECT options, outcome FROM cells WHERE outcome IS NOT NULL ORDER BY place"
            ).fetchall()
        return [self._decoded(options) | self._decoded(outcome) for options, outcome in rows]

    def _decoded(self, text: object) -> Options:
        """Return a JSON object of the file."""
        try:
            entry = json.loads(str(text))
        except ValueError:
            entry = None
        if not isinstance(entry, dict):
            raise RecordError(f"{self.path} is damaged (an entry is no JSON object); choose another --database.")
        return entry

    def _begin(self, cells: Mapping[str, Options]) -> None:
        """Check whose file it is, add the cells that it lacks, and free those that failed."""
        connection = self._connection
        with self._transaction():
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if tables and connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
                raise RecordError(f"{self.path} is no file of a sweep, or damaged; choose another --database.")
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(_SCHEMA)
            stored = {key for (key,) in connection.execute("SELECT key FROM cells")}
            if not stored <= cells.keys():
                raise RecordError(
                    f"{self.path} holds another sweep ({len(stored - cells.keys())} of its {len(stored)} cells are not"
                    " in this one, or their data changed); choose another --database."
                )
            added = [(key, i, json.dumps(options)) for i, (key, options) in enumerate(cells.items())]
            connection.executemany(
                "INSERT INTO cells (key, place, options) VALUES (?, ?, ?)"
                " ON CONFLICT (key) DO UPDATE SET place = excluded.place",
                added,
            )
            connection.execute(f"UPDATE cells SET outcome = NULL, status = NULL WHERE status = '{FAILED}'")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Run the block as one transaction; other processes wait meanwhile."""
        with self._lock, self._clear():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _clear(self) -> Iterator[None]:
        """Turn an error of SQLite into one sentence."""
        try:
            with self._lock:
                yield
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the details of SQLite's extended codes
            if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_SCHEMA):
                raise RecordError(
                    f"{self.path} is no file of a sweep, or damaged; choose another --database."
                ) from error
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise RecordError(
                    f"{self.path} is held by another process; continue with --resume when that has ended."
                ) from error
            raise RecordError(
                f"{self.path} cannot be written or read ({error}); what was stored is kept: make room or repair the"
                " disk, and continue with --resume."
            ) from error


def renewing(store: Store) -> AbstractContextManager[None]:
    """Renew the store's claims from a thread for as long as the block runs."""

    def renew() -> None:
        with suppress(RecordError):  # storing the next result raises the same error
            store.renew()

    return repeating(renew, store.lease / 4.0)


def _machine() -> str:
    """Name this machine and its space of process numbers (containers may share a name)."""
    try:
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        space = 0
    return f"{socket.gethostname()}/{space}"


def _gone(owner: object) -> bool:
    """Return True if the owner is a dead process of this machine, or no process at all."""
    machine, _, process = str(owner).partition("|")
    number = process.partition("|")[0]
    return not number.isdecimal() or (machine == _machine() and not is_running(int(number)))
