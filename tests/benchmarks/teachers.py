"""Benchmarks of large depth, and of many samples at three layers and more."""

import sys
from collections.abc import Iterator

import numpy as np
from sklearn.datasets import load_digits

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
LATE = 0.05, 1.0
"""A run may end this late: the larger of the part of its time limit and of the seconds."""


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


def many_samples() -> Iterator[tuple[Work, float]]:
    """All digits, and a shallow teacher with and without noise; each with its time limit."""
    pixels, classes = load_digits(return_X_y=True)
    digits = np.asarray(pixels) / 16.0, np.eye(10)[classes]
    for depth, seconds in ((3, 10.0), (3, 60.0), (5, 60.0)):
        yield Work(f"digits 1,797, L = {depth}", *digits, 1e-3, 1.0, depth), seconds
    for samples, depth, seconds in ((5_000, 4, 20.0), (60_000, 3, 10.0), (60_000, 3, 60.0)):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((samples, 20))
        Y = np.maximum(X @ rng.standard_normal((20, 20)), 0.0) @ rng.standard_normal((20, 2)) / 20.0**0.5
        noisy = Y + 0.3 * rng.standard_normal(Y.shape)
        yield Work(f"20 neurons and noise, N = {samples:,}, L = {depth}", X, noisy, 1e-3, 1.0, depth), seconds


@benchmark("deep-many", "many samples at depth 3 to 5: time limits, and trainings of the same time")
def run_deep_many(settings: Settings) -> Outcome:
    """Solves with their proofs, and trainings of covopt's own choice of width in the same time."""
    rows, runs = [], []
    for work, seconds in many_samples():
        ours, theirs = (_solved(work, settings, seconds, method=method) for method in ("cone", "train"))
        punctual = ours.seconds <= seconds + max(LATE[0] * seconds, LATE[1])
        rows.append((work.name, seconds, ours.cost, theirs.cost, ours.cost <= theirs.cost, ours.seconds, punctual))
        runs += [ours, theirs]
        print(f"  {work.name}: {show(ours.cost)} against {show(theirs.cost)}", file=sys.stderr, flush=True)
    won, ended = (sum(bool(row[place]) for row in rows) for place in (4, 6))
    return Outcome(
        target="at or below ten trainings given the same time, and ended at most 5 % or 1 s late",
        reached=f"{won} of {len(rows)} won, {ended} ended in time",
        met=won == ended == len(rows),
        columns=("work", "time limit", "cost", "training", "won", "seconds", "in time"),
        rows=rows,
        runs=runs,
    )


def _solved(work: Work, settings: Settings, seconds: float, **options: object) -> Run:
    return covopt(work, settings, [0], time_limit=settings.limit(seconds), **options)[0]
