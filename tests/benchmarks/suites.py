"""The benchmarks: one function each, from settings to an outcome that states its target and what was reached."""

import math

from tests.benchmarks import works
from tests.benchmarks.harness import (
    ENDED,
    LATE,
    Outcome,
    Run,
    Settings,
    benchmark,
    covopt,
    ended,
    median,
    references,
    rounded,
    show,
    trainer,
    worst,
)

FITS = 1e-9  # largest |F - Y| / |Y| at which a network counts as an exact fit


@benchmark("shallow-exact", "certified cases of one or two inputs")
def run_shallow_exact(settings: Settings) -> Outcome:
    """One input with bias, or two inputs: certified optima of an independent solver."""
    rows, runs, met = [], [], True
    for work in works.shallow_exact():
        solved = covopt(work, settings, gap=5e-7, time_limit=settings.limit(60))
        off, gap = worst([work.off(r.cost) for r in solved]), worst([r.gap for r in solved])
        misfit = worst([_misfit(r, work) for r in solved])
        exact = all(run.certificate == "exact" for run in solved)
        true = all(run.lower is not None and run.lower <= (work.upper or 0.0) * (1 + 1e-12) for run in solved)
        good = off <= 1e-6 and gap <= 1e-5 and exact and true and (work.lam is not None or misfit <= FITS)
        met = met and good
        cells = (median(r.cost for r in solved), off, gap, solved[0].certificate, misfit if work.lam is None else None)
        rows.append((work.name, *cells, _clock(solved), good))
        runs += solved
    largest = {name: max(row[i] for row in rows) for name, i in (("off", 2), ("gap", 3))}
    done = sum(bool(row[-1]) for row in rows)
    return Outcome(
        target="every case: cost within 1e-6 of the certified value, gap <= 1e-5, certificate exact",
        reached=f"{done} of {len(rows)}; worst distance {show(largest['off'])}, worst gap {show(largest['gap'])}; "
        f"{_seconds(runs, total=True)} in all",
        met=met,
        columns=("case", "cost", "off", "gap", "certificate", "misfit", "seconds", "met"),
        rows=rows,
        runs=runs,
    )


@benchmark("one-input", "1,000 points on a line, two outputs, with a proof (30 s)")
def run_one_input(settings: Settings) -> Outcome:
    """1,000 points on a line, with a proof."""
    runs = covopt(works.one_input(), settings, gap=1e-6, time_limit=settings.limit(30))
    gap = worst([run.gap for run in runs])
    return Outcome(
        target="proved gap <= 1e-6 in 30 s",
        reached=f"gap {show(gap)}, certificate {runs[0].certificate}, in {_seconds(runs)}",
        met=gap <= 1e-6 and all(run.certificate == "exact" and run.seconds <= 30 for run in runs),
        columns=("seed", "cost", "gap", "certificate", *ENDED),
        rows=[(run.seed, run.cost, run.gap, run.certificate, *ended(run)) for run in runs],
        runs=runs,
    )


@benchmark("digits-30", "30 digits, lam 1e-2 (2 x 60 s)")
def run_digits_30(settings: Settings) -> Outcome:
    """30 digits."""
    return _race(works.digits(30, 1e-2), settings, target=0.13594, limit=60)


@benchmark("digits-200", "200 digits, lam 1e-3 (2 x 240 s)")
def run_digits_200(settings: Settings) -> Outcome:
    """200 digits."""
    return _race(works.digits(200, 1e-3), settings, target=0.0296, limit=240)


def _race(work: works.Work, settings: Settings, *, target: float, limit: float) -> Outcome:
    """covopt against a cost to reach in a time, the trainer beside it at equal time."""
    limit = settings.limit(limit)
    ours, theirs = covopt(work, settings, time_limit=limit), trainer(work, settings, seconds=limit)
    cost, rival = (median(run.cost for run in runs) for runs in (ours, theirs))
    when = median(run.time_to(target) for run in ours)
    return Outcome(
        target=f"cost <= {target} in {show(float(limit))} s",
        reached=f"{show(cost)} in {_seconds(ours)}"
        + (f", {target} after {when:.1f} s" if when is not None else "")
        + f"; training {show(rival)}",
        met=all(run.cost <= target and run.seconds <= LATE * limit for run in ours),
        columns=("contender", "seed", "cost", f"seconds to {target}", *ENDED),
        rows=[(run.contender, run.seed, run.cost, rounded(run.time_to(target)), *ended(run)) for run in ours + theirs],
        runs=ours + theirs,
    )


@benchmark("digits-all", "1,797 digits, lam 1e-4 (2 x each of --seconds)")
def run_digits_all(settings: Settings) -> Outcome:
    """All digits: each time limit is a race of its own, because the trainer's schedule is made for its limit."""
    work, runs, rows, met = works.digits(1797, 1e-4), [], [], True
    for limit in dict.fromkeys(settings.limit(seconds) for seconds in settings.seconds):
        ours = covopt(work, settings, time_limit=limit)
        theirs = trainer(work, settings, seconds=limit)
        costs = median(run.cost for run in ours), median(run.cost for run in theirs)
        peak = worst([run.peak_mib for run in ours])
        won = None not in costs and costs[0] < costs[1]  # type: ignore[operator]
        met = met and won and peak * 2**20 < 2e9 and all(run.seconds <= LATE * limit for run in ours)
        rows.append((limit, *costs, won, median(r.width for r in ours), _clock(ours), rounded(peak, 0)))
        runs += ours + theirs
    races = ", ".join(f"{show(row[1])} against {show(row[2])} in {row[0]:.0f} s" for row in rows)
    return Outcome(
        target="under 2 GB of memory, and a lower cost than the trainer at equal time",
        reached=f"{races}; peak {max(row[-1] for row in rows):.0f} MiB",
        met=met,
        columns=("time limit", "covopt", "trainer", "won", "neurons", "seconds", "peak MiB"),
        rows=rows,
        runs=runs,
    )


@benchmark("teacher", "five random teachers (5 x 2 x 10 s; with --reference S, 5 x 2 x S more)")
def run_teacher(settings: Settings) -> Outcome:
    """Five teachers; the references are the best of long runs of both contenders, and are kept."""
    seeds, limit = range(5), settings.limit(10)
    runs, rows, met = [], [], True
    best = references(settings, "teacher")
    for seed in seeds:
        work = works.teacher(seed)
        if settings.reference is not None:
            runs += _lower_reference(best, work, settings, settings.reference)
        ours = covopt(work, settings, time_limit=limit)
        theirs = trainer(work, settings, seconds=limit)
        runs += ours + theirs
        known = best.get(work.name)
        cost, rival = (median(run.cost for run in each) for each in (ours, theirs))
        excess = None if known is None else worst([run.cost / known["cost"] - 1.0 for run in ours])
        late = any(run.seconds > LATE * limit for run in ours)
        met = None if excess is None or met is None else met and excess <= 1e-4 and not late
        reference = (known["cost"], known["by"]) if known else (None, None)
        width, seconds = median(r.width for r in ours), _clock(ours)
        rows.append((seed, cost, excess, *reference, rival, width, seconds))
    excesses = [row[2] for row in rows]
    return Outcome(
        target="within 1e-4 of the best cost of any 10-minute run, in 10 s, on 5 seeds",
        reached="no reference yet: run with --reference 600"
        if None in excesses
        else f"excess {', '.join(show(excess) for excess in excesses)}",
        met=met,
        columns=("teacher", "cost", "excess", "reference", "by", "trainer", "neurons", "seconds"),
        rows=rows,
        runs=runs,
    )


def _lower_reference(known: dict[str, dict], work: works.Work, settings: Settings, seconds: float) -> list[Run]:
    """Long runs of both contenders; the best cost of all times is kept."""
    runs = [*covopt(work, settings, gap=1e-9, time_limit=seconds), *trainer(work, settings, seconds=seconds, seeds=5)]
    for run in runs:
        if math.isfinite(run.cost) and (work.name not in known or run.cost < known[work.name]["cost"]):
            known[work.name] = {"cost": run.cost, "by": run.contender, "seconds": round(run.seconds, 1)}
    references(settings, "teacher", known)
    return runs


@benchmark("exact-values", "closed forms")
def run_exact_values(settings: Settings) -> Outcome:
    """Closed forms."""
    rows, runs = [], []
    options = {"gap": 1e-9, "time_limit": settings.limit(20)}

    def add(name: str, value: float | None, solved: list[Run], off: float, misfit: float) -> None:
        good = off <= 1e-8 and misfit <= FITS
        rows.append((name, value, median(r.cost for r in solved), off, misfit, _clock(solved), good))
        runs.extend(solved)

    for work in works.exact_values():
        solved = covopt(work, settings, **options)
        misfit = worst([_misfit(r, work) for r in solved]) if work.lam is None else 0.0
        add(work.name, work.upper, solved, worst([work.off(r.cost) for r in solved]), misfit)
    for name, first, second, factor in works.pairs():
        one, other = covopt(first, settings, **options), covopt(second, settings, **options)
        off = worst([abs(b.cost / (factor * a.cost) - 1.0) for a, b in zip(one, other, strict=True)])
        misfit = worst([_misfit(r, w) for w, each in ((first, one), (second, other)) for r in each])
        add(name, None, one + other, off, misfit)
    for work in works.shallow_exact():
        if work.name in ("reg-1d-vector", "reg-plane-onehot"):
            solved = covopt(work, settings, **options)
            off = worst([r.unbalanced for r in solved])
            add(f"balanced neurons, {work.name}", None, solved, off, 0.0)
    return Outcome(
        target="relative error <= 1e-8",
        reached=f"{sum(bool(row[-1]) for row in rows)} of {len(rows)}; worst {show(max(row[3] for row in rows))}",
        met=all(row[-1] for row in rows),
        columns=("case", "value", "cost", "off", "misfit", "seconds", "met"),
        rows=rows,
        runs=runs,
    )


def _misfit(run: Run, work: works.Work) -> float:
    """max |F - Y| / max |Y|."""
    return run.residual / float(abs(work.Y).max())


def _clock(runs: list[Run]) -> float | None:
    """The median of the runs' seconds, for a table."""
    return rounded(median(run.seconds for run in runs))


def _seconds(runs: list[Run], total: bool = False) -> str:
    """The median of the runs' seconds, or their sum."""
    seconds = [run.seconds for run in runs]
    value = sum(seconds) if total else median(seconds)
    return "no time" if value is None or math.isnan(value) else f"{value:.1f} s"
