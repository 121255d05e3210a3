"""Sweeps that are killed: 50 times with SIGKILL at random moments (the processes of tests/sweeping.py)."""

import tempfile
import time
from pathlib import Path

from sweeping import kill_again_and_again

from tests.benchmarks.harness import Outcome, Settings, benchmark, rounded

KILLS, CELLS = 50, 3000


@benchmark("sweep-kills", "a sweep killed 50 times (3 min)")
def run_sweep_kills(settings: Settings) -> Outcome:
    """No finished cell lost, run twice, or wrong; at most one cell in flight for each kill."""
    rows: list[tuple[object, ...]] = []
    met = True
    for seed in range(settings.repeats):
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as name:
            kills, cells = (5, 200) if settings.quick else (KILLS, CELLS)
            found = kill_again_and_again(Path(name), kills, cells, seed)
        good = found.lost == found.twice == found.wrong == 0 and found.in_flight <= found.kills
        enough = settings.quick or found.kills == KILLS
        met = met and good and enough
        told = (found.kills, found.cells, found.lost, found.twice, found.wrong, found.in_flight)
        rows.append((seed, *told, rounded(time.perf_counter() - began)))
    return Outcome(
        target=f"{KILLS} times kill -9 at random moments: no result lost, none computed twice",
        reached=f"{sum(row[1] for row in rows)} kills: {sum(row[3] for row in rows)} lost, "  # type: ignore[misc]
        f"{sum(row[4] for row in rows)} twice, {sum(row[5] for row in rows)} wrong, "  # type: ignore[misc]
        f"{sum(row[6] for row in rows)} cells cut short",  # type: ignore[misc]
        met=met,
        columns=("seed", "kills", "cells", "lost", "twice", "wrong", "cut short", "seconds"),
        rows=list(rows),
    )
