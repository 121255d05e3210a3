"""How the time to 1 percent grows with the samples: on more and more digits, and on 60,000 samples."""

import math

import numpy as np

from tests.benchmarks import works
from tests.benchmarks.harness import (
    ENDED,
    Outcome,
    Settings,
    benchmark,
    covopt,
    ended,
    median,
    references,
    rounded,
    show,
)

NEAR = 0.01  # relative: "within 1 percent of the best cost known"
SIZES = {100: 5.0, 200: 10.0, 400: 20.0, 800: 40.0, 1797: 80.0}  # rows: seconds
STEEPEST = 1.15
SOON, GIVEN = 45.0, 240.0  # seconds to 1 percent on many rows, and of the run that may lower the best known cost


@benchmark("growth", "digits, 100 to 1,797 rows: seconds to 1 percent (3 min; --reference S: 5 S more); --device")
def run_growth(settings: Settings) -> Outcome:
    """Digits, lam 1e-3: how long covopt takes to 1 percent of the best cost that any run has reached."""
    known, rows, runs, times = references(settings, "growth"), [], [], []
    sizes, asked = dict(list(SIZES.items())[: 2 if settings.quick else None]), {"certify": "none"}
    asked["device"] = settings.device
    for size, seconds in sizes.items():
        work = works.digits(size, 1e-3)
        ours = covopt(work, settings, time_limit=settings.limit(seconds), **asked)
        if settings.reference is not None:
            ours_long = covopt(work, settings, time_limit=settings.limit(settings.reference), **asked)
            runs += ours_long
        runs += ours
        for run in runs:
            if run.work == work.name and math.isfinite(run.cost):
                known[work.name] = min(run.cost, known.get(work.name, math.inf))
        best = known.get(work.name, math.nan)
        when = median([run.time_to((1.0 + NEAR) * best) for run in ours]) or math.inf
        times.append(when)
        for run in ours:
            above = run.cost / best - 1.0
            rows.append((size, run.cost, best, above, rounded(run.time_to((1.0 + NEAR) * best)), *ended(run)))
    references(settings, "growth", known)
    exponent = slope(list(sizes), times)
    listed = ", ".join(f"{size}: {show(rounded(when))}" for size, when in zip(sizes, times, strict=True))
    return Outcome(
        target=f"seconds to {100 * NEAR:g} % of the best known cost grow no faster than N^{STEEPEST}",
        reached=f"N^{exponent:.2f}; seconds at N = {listed}",
        met=None if settings.quick or not math.isfinite(exponent) else exponent <= STEEPEST,
        columns=("rows", "cost", "best known", "above", "seconds to 1 %", *ENDED),
        rows=rows,
        runs=runs,
    )


@benchmark("soon", "60,000 samples of 784 inputs: seconds to 1 percent (5 min); --rows, --device cuda")
def run_soon(settings: Settings) -> Outcome:
    """Many rows, no proof: seconds to 1 percent of the best cost that any run has reached."""
    work, known = works.mixture(1000 if settings.quick else settings.rows), references(settings, "growth")
    ours = covopt(work, settings, time_limit=settings.limit(GIVEN), certify="none", device=settings.device)
    best = min(known.get(work.name, math.inf), *(run.cost for run in ours if math.isfinite(run.cost)))
    references(settings, "growth", known | {work.name: best})
    times = [run.time_to((1.0 + NEAR) * best) for run in ours]
    when = median(times)
    return Outcome(
        target=f"{settings.rows} samples of 784 inputs: within {100 * NEAR:g} % of the best known cost in {SOON:g} s",
        reached=f"after {'no time' if when is None else show(rounded(when))} s; best {show(best)}",
        met=None if settings.quick else when is not None and when <= SOON,
        columns=("cost", "above best", "seconds to 1 %", *ENDED),
        rows=[(run.cost, run.cost / best - 1.0, rounded(at), *ended(run)) for run, at in zip(ours, times, strict=True)],
        runs=ours,
    )


def slope(sizes: list[float], times: list[float]) -> float:
    """The exponent p of times ~ sizes^p, by least squares of the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0]) if np.isfinite(times).all() else math.nan
