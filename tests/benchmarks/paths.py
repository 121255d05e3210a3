"""Paths in lam: their time beside that of three solves, their costs beside cold solves, and gaps between the values."""

import math
import sys
import time
from dataclasses import replace

import numpy as np
import torch

import covopt
from covopt.model.problem import make_problem
from covopt.studies.path.lam_max import lam_max
from tests.benchmarks import works
from tests.benchmarks.harness import Outcome, Settings, benchmark, rounded
from tests.benchmarks.works import Work

LIMIT, POINTS, RATIO = 60.0, 50, 1e-4
TIMES, ABOVE = 3.0, 1e-4
GAP = 1e-3


@benchmark("path-times", "paths on 200 digits and diabetes, beside three solves (20 min)")
def run_times(settings: Settings) -> Outcome:
    """The time of a path, and its costs."""
    torch.set_num_threads(settings.threads)
    rows: list[tuple[object, ...]] = []
    for work in (works.digits(200, 1.0), works.table("diabetes", None, 1.0)):
        options = {"bias": work.beta, "certify": "fast"}
        top = lam_max(make_problem(work.X, work.Y, lam=1.0, bias=work.beta).double(), 0.0).lower or 1.0
        began = time.perf_counter()
        for part in (10.0, 100.0, 1.0 / RATIO):
            covopt.solve(work.X, work.Y, lam=top / part, time_limit=settings.limit(LIMIT), **options)
        three = time.perf_counter() - began
        found = covopt.path(work.X, work.Y, points=POINTS, ratio=RATIO, time_limit=TIMES * three, **options)
        for part in (10.0, 100.0, 1.0 / RATIO):
            point = min(found.points, key=lambda each: abs(math.log(each.lam * part / top)))
            cold = covopt.solve(work.X, work.Y, lam=point.lam, time_limit=found.seconds / POINTS, **options)
            above = point.cost.total / cold.cost - 1.0
            good = above <= ABOVE and found.seconds <= TIMES * three * 1.01
            rows.append((work.name, point.lam, point.cost.total, cold.cost, above, found.seconds, three, good))
            print(f"  {rows[-1]}", file=sys.stderr, flush=True)
    return Outcome(
        target=f"{POINTS} values over {RATIO:g} in at most {TIMES:g} times the time of three solves (at lam_max / 10,"
        f" / 100 and at the end, {LIMIT:g} s each at most), no cost more than {ABOVE:g} above a cold solve that takes"
        " as long as the path for one value",
        reached=f"{sum(bool(row[-1]) for row in rows)} of {len(rows)}",
        met=None if settings.quick else all(bool(row[-1]) for row in rows),
        columns=("work", "lam", "cost", "cold", "above", "seconds", "three solves", "met"),
        rows=rows,
    )


@benchmark("path-gaps", "proved gaps between the values: one input, teacher, iris (10 min)")
def run_gaps(settings: Settings) -> Outcome:
    """The largest proved gap of a range."""
    torch.set_num_threads(settings.threads)
    x = np.linspace(-1.0, 1.0, 20)[:, None]
    noisy = np.sin(4.0 * x) + 0.1 * np.random.default_rng(0).normal(size=x.shape)
    asked = [
        (Work("20 points of one input", x, noisy, 1.0, 1.0), 60.0),
        (replace(works.teacher(0), name="teacher"), 150.0),
        (works.table("iris", None, 1.0), 300.0),
    ]
    rows: list[tuple[object, ...]] = []
    for work, seconds in asked:
        limit = settings.limit(seconds)
        options = {"points": POINTS, "ratio": RATIO, "bias": work.beta, "gap": 0.9 * GAP, "time_limit": limit}
        found = covopt.path(work.X, work.Y, **options)
        gap = found.largest_gap
        rows.append((work.name, gap, len(found.points), rounded(found.seconds), gap is not None and gap <= GAP))
        print(f"  {rows[-1]}", file=sys.stderr, flush=True)
    return Outcome(
        target=f"proved gap of at most {GAP:g} at every lam of the range, between the values too",
        reached=f"{sum(bool(row[-1]) for row in rows)} of {len(rows)}",
        met=None if settings.quick else all(bool(row[-1]) for row in rows),
        columns=("work", "largest gap", "values", "seconds", "met"),
        rows=rows,
    )
