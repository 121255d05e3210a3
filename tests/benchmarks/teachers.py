"""A benchmark of large depth."""

import sys

import numpy as np

from tests.benchmarks.harness import Outcome, Run, Settings, benchmark, covopt, repeated, show
from tests.benchmarks.machine import ROOT
from tests.benchmarks.works import Work

CASES = ROOT / "tests" / "cases"
RANK_FOUR = ((60.0, 0.44), (100.0, 0.431), (300.0, 0.42))
"""Seconds, and the cost to reach in them: a teacher of rank 4, 200 samples, 13 layers."""
DEPTHS, EACH, TRAININGS, WIDTH = (5, 9, 13, 17, 21, 25), 20.0, 4, 60
"""Of the teacher of rank 2: the seconds of each solve, and of so many trainings of that width together."""
THIRTEEN = (60.0, 0.063)
"""What is to be reached at 13 layers."""


def teacher(rank: int, depth: int) -> Work:
    """A deep teacher of this rank, as in the papers on the rank of deep networks."""
    with np.load(CASES / f"teacher_rank{rank}.npz") as data:
        X, Y = data["X"], data["Y"]
    return Work(f"rank {rank}, L = {depth}", X, Y, 0.05 / depth if rank == 4 else 1e-3, 1.0, depth)


@benchmark("deep-teachers", "teachers of rank 4 and 2 at depth 5 to 25, against trainings")
def run_deep_teachers(settings: Settings) -> Outcome:
    """The teachers of rank 4 and 2."""
    rows, runs = [], []

    def add(work: Work, seconds: float, aim: float, theirs: list[Run]) -> None:
        ours = _solved(work, settings, seconds)
        rows.append((work.name, seconds, ours.cost, aim, ours.cost <= aim, round(ours.seconds, 1)))
        runs.extend([ours, *theirs])
        print(f"  {work.name}, {seconds:g} s: {show(ours.cost)} against {show(aim)}", file=sys.stderr, flush=True)

    for seconds, aim in RANK_FOUR[: 1 if settings.quick else None]:
        add(teacher(4, 13), seconds, aim, [])
    for depth in DEPTHS[: 1 if settings.quick else None]:
        asked = {"width": WIDTH, "networks": TRAININGS, "seconds": settings.limit(EACH)}
        theirs = repeated("trainings", teacher(2, depth), settings, [0], **asked)
        add(teacher(2, depth), EACH, min(run.cost for run in theirs), theirs)
    add(teacher(2, 13), *THIRTEEN, [])
    return Outcome(
        target="rank 4: 0.44 in 60 s, 0.431 in 100 s, 0.42 in 300 s; rank 2: at or below the best of four trainings"
        " given the same 20 s at every depth, and 0.063 at 13 layers",
        reached=f"{sum(bool(row[4]) for row in rows)} of {len(rows)}",
        met=all(bool(row[4]) for row in rows),
        columns=("teacher", "time limit", "cost", "to reach", "met", "seconds"),
        rows=rows,
        runs=runs,
    )


def _solved(work: Work, settings: Settings, seconds: float, **options: object) -> Run:
    return covopt(work, settings, [0], time_limit=settings.limit(seconds), **options)[0]
