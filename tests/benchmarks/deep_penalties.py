"""Sixty races of depth 3 to 8 against plain Adam of the same time, from lam_max / 2 to lam_max / 100.

Both contenders have one thread and count processor seconds, so that other programs on the machine slow both alike.
The result is stored after each race: a benchmark that was cut short goes on from there.
"""

import json
import math
import statistics
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from covopt.model.problem import make_problem
from covopt.studies.path.lam_max import lam_max
from tests.benchmarks import machine
from tests.benchmarks.harness import Outcome, Run, Settings, benchmark, covopt, repeated, rounded, write
from tests.benchmarks.works import Work

NAME = "deep-penalties"
SETS, DEPTHS = 10, (3, 4, 5, 6, 7, 8)
SECONDS = 8.0  # of each contender
ABOVE = 1e-4  # relative: a cost that is higher by more is a race lost
ADAM = {"starts": 48, "width": 24, "rate": 3e-3}
"""He starts in float32, trained in one batch. The rate falls along a cosine over the time: 3,000 to 6,000 steps."""


def races() -> Iterator[Work]:
    """Twelve normal points in 4 dimensions with 3 normal targets; each depth meets ten data sets and ten penalties."""
    for number in range(SETS):
        rng = np.random.default_rng(number)
        X, Y = rng.normal(size=(12, 4)), rng.normal(size=(12, 3))
        # That of two layers: deeper networks have none that is known.
        largest = lam_max(make_problem(X, Y, lam=1.0, bias=1.0), 0.0).lower
        assert largest is not None
        for place, depth in enumerate(DEPTHS):
            part = 2.0 * 50.0 ** ((number + place) % SETS / (SETS - 1))
            yield Work(f"set {number}, L = {depth}, lam_max / {part:.3g}", X, Y, largest / part, 1.0, depth)


@benchmark(NAME, "depth 3 to 8, 60 races against plain Adam of equal time (20 min)")
def run_deep_penalties(settings: Settings) -> Outcome:
    """A solve and a training for each race, one after the other."""
    works, before = list(races())[: len(DEPTHS) if settings.quick else None], machine.describe(1)
    known = _stored(settings, len(works))
    for work in works:
        if work.name not in known:
            known[work.name] = _raced(work, settings)
            write(NAME, _outcome(known, len(works)), settings, before)
            print(f"  {work.name}: {100.0 * _difference(*known[work.name]):+.3f} %", file=sys.stderr, flush=True)
    return _outcome(known, len(works))


def _stored(settings: Settings, number: int) -> dict[str, list[Run]]:
    """The races of a benchmark that was cut short; none of one that came to its end."""
    path = settings.directory / f"{NAME}.json"
    stored = json.loads(path.read_text())["runs"] if path.exists() else []
    if len(stored) >= 2 * number:
        return {}
    runs = [Run(**run) for run in stored]
    return {ours.work: [ours, theirs] for ours, theirs in zip(runs[::2], runs[1::2], strict=True)}


def _outcome(known: dict[str, list[Run]], number: int) -> Outcome:
    differences = [_difference(*pair) for pair in known.values()]
    lost, middle = sum(off > ABOVE for off in differences), statistics.median(differences)
    rows = [
        (work, ours.cost, theirs.cost, off, rounded(ours.seconds), rounded(theirs.seconds))
        for (work, (ours, theirs)), off in zip(known.items(), differences, strict=True)
    ]
    raced = "" if len(rows) == number else f"{len(rows)} races so far: "
    return Outcome(
        target=f"{number} races of {SECONDS:g} processor seconds each: 0 above plain Adam by more than 1e-4, and the"
        " median below",
        reached=f"{raced}{lost} above, the worst by {100.0 * max(differences):.2f} %; median {100.0 * middle:+.2f} %",
        met=(lost == 0 and middle < 0.0) if not raced or lost else None,
        columns=("work", "covopt", "Adam", "difference", "seconds", "Adam's seconds"),
        rows=rows,
        runs=[run for pair in known.values() for run in pair],
    )


def _difference(ours: Run, theirs: Run) -> float:
    """How much ours costs more, relative; infinite where a contender failed."""
    off = ours.cost / theirs.cost - 1.0
    return off if math.isfinite(off) else math.inf


def _raced(work: Work, settings: Settings) -> list[Run]:
    alone, asked = replace(settings, threads=1), {"clock": "processor"}
    seconds = settings.limit(SECONDS)
    ours = covopt(work, alone, [0], time_limit=seconds, certify="none", **asked)
    return [*ours, *repeated("adam", work, alone, [0], seconds=seconds, **ADAM, **asked)]
