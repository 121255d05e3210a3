"""Sweeps that are killed: a process of its own with a solver made by hand, and what it left in the file."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import covopt.studies.sweep.grid as doing
import covopt.studies.sweep.sweep as study
from covopt.runtime.errors import CovoptError


class HandMade:
    """Stands for `solve`: notes each start in a file, and takes a few milliseconds.

    The answer is a function of the seed, so that a result in the wrong cell is seen.
    """

    def __init__(self, log: Path, seconds: float = 0.004) -> None:
        self.log, self.seconds = log, seconds

    def __call__(self, X: object, Y: object, **options: object) -> HandMade:
        self.seed = int(str(options["seed"]))
        with self.log.open("a") as stream:
            stream.write(f"{self.seed}\n")
        time.sleep(self.seconds)
        return self

    def summary(self) -> dict[str, object]:
        return {"status": "converged", "cost": 1.5 * self.seed, "widths": [self.seed], "seconds": self.seconds}

    def started(self) -> list[int]:
        return [int(line) for line in self.log.read_text().split()] if self.log.exists() else []


def spec(cells: int) -> dict[str, object]:
    return {"data": "iris", "rows": 6, "lam": 0.1, "seed": list(range(cells))}


def start(solver: HandMade, cells: int, database: Path, prepare: Callable[[], object] | None = None) -> int:
    """Start a process that sweeps; its number. It ends with 0, or with 3 and its sentence in a file."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        if prepare is not None:
            prepare()
        doing.solve = solver  # type: ignore[assignment]
        study.sweep(spec(cells), database, resume=True)
        code = 0
    except CovoptError as error:
        database.with_suffix(".said").write_text(str(error))
        code = 3
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def finished(database: Path) -> dict[int, float]:
    """Cost by seed, read by SQLite alone, after SQLite has found the file whole."""
    if not database.exists():
        return {}
    connection = sqlite3.connect(database)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        if not connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
            return {}
        found = connection.execute(
            "SELECT options ->> 'seed', outcome ->> 'cost' FROM cells WHERE outcome IS NOT NULL"
        ).fetchall()
    finally:
        connection.close()
    return {int(seed): float(cost) for seed, cost in found}


@dataclass
class Killings:
    """What came of it.

    Attributes:
        kills: processes killed while they swept; cells: of the sweep; lost: results that vanished; twice: cells solved
        again after their result was stored; wrong: results in the wrong cell; in_flight: cells that a kill cut short.
    """

    kills: int
    cells: int
    lost: int
    twice: int
    wrong: int
    in_flight: int


def wait_for(solver: HandMade, cells: int, child: int) -> None:
    """Until that many cells have begun in all, or the process is gone."""
    while len(solver.started()) < cells and not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        time.sleep(solver.seconds / 8)


def kill_again_and_again(directory: Path, kills: int, cells: int, seed: int = 0) -> Killings:
    """Kill a sweep with SIGKILL at random moments, `kills` times, then let it end.

    A moment is counted in cells begun, so that how fast the machine is does not matter: none of the kills comes after
    the sweep's end, and one in a few comes while the process still begins.
    """
    solver, database, rng = HandMade(directory / "log"), directory / "s.sqlite", random.Random(seed)
    done: dict[int, float] = {}
    killed, lost, twice = 0, 0, 0
    while True:
        began = len(solver.started())
        child = start(solver, cells, database)
        if killed < kills:
            wait_for(solver, began + rng.randrange(cells // (kills + 1)), child)
            time.sleep(rng.uniform(0.0, solver.seconds))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        now = finished(database)
        lost += len(done.keys() - now.keys())
        twice += len(done.keys() & set(solver.started()[began:]))
        done = now
        if os.WIFSIGNALED(status):
            killed += 1
            continue
        assert os.WEXITSTATUS(status) == 0
        break
    wrong = sum(cost != 1.5 * number for number, cost in done.items()) + len(set(range(cells)) - done.keys())
    return Killings(killed, cells, lost, twice, wrong, len(solver.started()) - cells)
