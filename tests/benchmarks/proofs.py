"""Benchmarks of the lower bounds: how small a gap is proved, and how fast."""

import sys
from collections.abc import Sequence
from functools import partial

import numpy as np

from tests.benchmarks import works
from tests.benchmarks.harness import (
    ENDED,
    LATE,
    Failed,
    Outcome,
    Run,
    Settings,
    benchmark,
    covopt,
    ended,
    judged,
    rounded,
    show,
    spawn,
    worst,
)

WEIGHTS = (0.1, 0.01)  # b: the penalty of the random sets
RELAXING = 200.0  # seconds for the relaxations of each of them


@benchmark("random-sets", "200 random sets in the plane, certified; the relaxation beside (450 s)")
def run_random_sets(settings: Settings) -> Outcome:
    """100 random sets for each b; their (1/2) |F - Y|^2 + (b/2) |theta|^2 is N / 2 times our loss at lam = b / N."""
    rows, runs, loose, told, met = [], [], [], [], True
    for b in WEIGHTS:
        sets = works.random_sets(b)[: 4 if settings.quick else None]
        solved, gaps, seconds, verdicts = _solve_sets(sets, settings)
        met = met and all(run.error is None and _proved(run, 1e-6) and run.seconds < 2.0 for run in solved)
        costs = [run.cost * len(work.X) / 2.0 for run, work in zip(solved, sets, strict=True)]
        rows.append((b, "arrangement", len(solved), *_quartiles(costs), *_gaps([run.gap for run in solved])))
        rows[-1] += (*_times([run.seconds for run in solved]), *_counts(verdicts))
        rows.append((b, "relaxation", len(gaps), None, None, None, *_gaps(gaps), *_times(seconds), *[None] * 5))
        told += verdicts
        runs += solved
        loose.append(f"{', '.join(show(gap) for gap in _quartiles(gaps))} at b = {b} ({len(gaps)} sets)")
    certified = sum(_proved(run, 1e-6) for run in runs)
    one, several, neither, fewest, slowest = _counts(told)
    return Outcome(
        target="every set certified to 1e-6 by the arrangement, in less than 2 s each, and a proved verdict on whether"
        " its optimum is the only one",
        reached=f"{certified} of {len(runs)}, worst gap {show(worst([run.gap for run in runs]))}, slowest "
        f"{show(rounded(worst([run.seconds for run in runs])))} s; the only optimum {one} times, one of infinitely many"
        f" {several} times, undecided {neither} times, the fewest neurons known {fewest} times, slowest "
        f"{show(slowest)} s; quartiles of the gap that the relaxation alone proves: {'; '.join(loose)}",
        met=met and neither == 0,
        columns=(
            *("b", "bound", "sets", "their cost: quartile", "median", "quartile"),
            *("gap: quartile", "median", "quartile", "worst", "seconds: median", "slowest"),
            *("unique", "not unique", "undecided", "fewest known", "slowest verdict"),
        ),
        rows=rows,
        runs=runs,
    )


Verdict = tuple[str, bool, float]
"""Whether an optimum is the only one, whether its fewest neurons are known, and in how many seconds that was found."""


def _counts(verdicts: list[Verdict]) -> tuple[int, int, int, int, float | None]:
    """How many are unique, not unique and undecided, of how many the fewest neurons are known, and the slowest."""
    said = [verdict for verdict, *_ in verdicts]
    slowest = rounded(max((seconds for *_, seconds in verdicts), default=None), 3)
    known = sum(fewest for _, fewest, _ in verdicts)
    return said.count("unique"), said.count("not unique"), said.count("undecided"), known, slowest


def _solve_sets(
    sets: list[works.Work], settings: Settings
) -> tuple[list[Run], list[float], list[float], list[Verdict]]:
    """One process: each set solved, the gaps and seconds of the relaxations that there was time for, and verdicts."""
    options = {"gap": 1e-6, "time_limit": settings.limit(20), "certify": "fast"}
    job = {"lam": sets[0].lam, "options": options, "threads": settings.threads, "relaxing": settings.limit(RELAXING)}
    try:
        runs = spawn(job, np.stack([w.X for w in sets]), np.stack([w.Y for w in sets]), 2400.0, "sets")
    except Failed as error:
        print(f"  {error}", file=sys.stderr)
        return [Run("covopt", work.name, 0, options, error=str(error)) for work in sets], [], [], []
    solved = [judged(Run("covopt", work.name, 0, options), work, *run) for run, work in zip(runs, sets, strict=True)]
    told = [each for _, each in runs]
    relaxed = [(run, each) for run, each in zip(solved, told, strict=True) if each["relaxed"] is not None]
    gaps = [(run.cost - each["relaxed"]) / run.cost for run, each in relaxed]
    verdicts = [(each["unique"], _is_known(each["fewest"]), each["deciding"]) for each in told]
    return solved, gaps, [each["relaxing"] for _, each in relaxed], verdicts


def _is_known(ends: list[int] | None) -> bool:
    return ends is not None and ends[0] == ends[1]


def _proved(run: Run, gap: float) -> bool:
    return run.gap is not None and run.gap <= gap and run.certificate == "exact"


def _quartiles(values: Sequence[float]) -> tuple[float | None, ...]:
    return tuple(map(float, np.quantile(values, (0.25, 0.5, 0.75)))) if len(values) else (None, None, None)


def _gaps(gaps: Sequence[float | None]) -> tuple[float | None, ...]:
    known = [gap for gap in gaps if gap is not None]
    return *_quartiles(known), max(known, default=None)


def _times(seconds: Sequence[float]) -> tuple[float | None, ...]:
    return rounded(_quartiles(seconds)[1], 3), rounded(max(seconds, default=None), 3)


def run_proof(settings: Settings, work: works.Work, must: float, aim: float, limit: float) -> Outcome:
    """One problem with `certify="full"`: the gap that is proved in the time."""
    runs = covopt(work, settings, certify="full", gap=min(1e-4, aim), time_limit=settings.limit(limit))
    gap = worst([run.gap for run in runs])
    on_time = all(run.seconds <= LATE * limit for run in runs)
    return Outcome(
        target=f"proved gap <= {show(must)} in {show(limit)} s (aim {show(aim)})",
        reached=f"gap {show(gap)}{'' if gap > aim else ', the aim,'} by {runs[0].certificate} "
        f"in {show(rounded(worst([run.seconds for run in runs]), 1))} s",
        met=gap <= must and on_time,
        columns=("seed", "cost", "lower", "gap", "certificate", *ENDED),
        rows=[(*(run.seed, run.cost, run.lower, run.gap, run.certificate), *ended(run)) for run in runs],
        runs=runs,
    )


@benchmark("proof-digits-all", "twice the spectral bound for all 1,797 digits (600 s)")
def run_proof_all(settings: Settings, limit: float = 600.0) -> Outcome:
    """All digits: the bound against the spectral one, which `certify="fast"` gives."""
    work = works.digits(1797, 1e-3)
    runs = covopt(work, settings, certify="full", gap=1e-4, time_limit=settings.limit(limit))
    loose = covopt(work, settings, certify="fast", gap=1e-4, time_limit=1.0)[0].lower
    ratio = min((run.lower or 0.0) / loose for run in runs) if loose else None
    on_time = all(run.seconds <= LATE * limit for run in runs)
    return Outcome(
        target=f"a bound of twice the spectral one in {show(limit)} s",
        reached=f"{show(rounded(ratio, 3))} times it by {runs[0].certificate}"
        f" in {show(rounded(worst([run.seconds for run in runs]), 1))} s",
        met=ratio is not None and ratio >= 2.0 and on_time,
        columns=("seed", "cost", "lower", "gap", "certificate", *ENDED),
        rows=[(*(run.seed, run.cost, run.lower, run.gap, run.certificate), *ended(run)) for run in runs],
        runs=runs,
    )


for _name, _work, _must, _aim, _limit, _says in (
    ("digits-15", works.digits(15, 1e-2), 2e-2, 1e-3, 120.0, "15 digits"),
    ("digits-30", works.digits(30, 1e-2), 4e-2, 5e-3, 300.0, "30 digits"),
    ("digits-60", works.digits(60, 1e-2), 8e-2, 2e-2, 600.0, "60 digits"),
    ("digits-200", works.digits(200, 1e-3), 5e-2, 2e-2, 600.0, "200 digits"),
    ("wine", works.table("wine", None, 1e-2), 3e-2, 1e-2, 600.0, "wine"),
    ("breast-cancer", works.table("breast-cancer", 100, 1e-2), 3e-2, 1e-2, 600.0, "100 rows of breast cancer"),
    ("diabetes", works.table("diabetes", 100, 1e-2), 1e-1, 5e-2, 600.0, "100 rows of diabetes"),
    ("iris", works.table("iris", None, 1e-2), 5e-2, 1e-2, 600.0, "iris, standardised, with a bias"),
    ("one-input", works.one_input(), 1e-6, 1e-6, 30.0, "1,000 points on a line, two outputs"),
    ("teacher", works.teacher(0), 1e-2, 1e-4, 300.0, "the first teacher"),
    ("teacher-7", works.teacher(0, 7), 1e-2, 1e-3, 300.0, "a teacher of 7 inputs"),
    ("teacher-8", works.teacher(0, 8), 5e-2, 1e-2, 300.0, "a teacher of 8 inputs"),
):
    benchmark(f"proof-{_name}", f"a proof for {_says} ({_limit:.0f} s)")(
        partial(run_proof, work=_work, must=_must, aim=_aim, limit=_limit)
    )
