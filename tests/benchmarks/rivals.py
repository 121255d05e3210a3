"""covopt and the methods of other papers and packages, raced on 25 problems in processor seconds of one thread.

Each contender runs in a process of its own and is judged by the shared objective on the networks it had at times in a
geometric progression; what it costs to judge them is not timed. covopt's times are those of its callback. A rival with
several settings in the list below takes part once with each, and is counted with the best of them at every time.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from tests.benchmarks import teachers, works
from tests.benchmarks.harness import Outcome, Run, Settings, benchmark, repeated, rounded
from tests.benchmarks.works import Work

WITHIN = (0.01, 0.001)
"""Of the lowest cost that any contender reached; for the times to it."""
FIRST, TIMES = 0.5, 40
"""covopt is to be the lowest at so many times from the first one on, in seconds."""
SHOWN = (1.0, 3.0, 10.0, 30.0, 60.0)
"""The times of the table."""
EQUAL = 1e-6
"""Relative: two costs that near are level."""
ON_DEVICES = ("lbfgs", "adamw", "one-cycle", "muon", "soap", "schedule-free")
"""The rivals that run on a GPU; the clock is that of the wall there, and covopt on the processor takes part beside."""
Entry = tuple[str, dict[str, float]]


@dataclass(frozen=True)
class Race:
    """A problem, the processor seconds of each contender, and who takes part."""

    work: Callable[[], Work]
    seconds: float
    rivals: Sequence[Entry]
    ours: dict[str, object] = field(default_factory=dict)


def _deep(work: Callable[[], Work], depth: int) -> Work:
    return replace(work(), depth=depth)


def _mixture_depth_3(loss: str | None) -> Work:
    return replace(works.mixture(20_000), depth=3, loss=loss)


def settings_of(method: str, *pairs: tuple[int, float], **options: bool) -> tuple[Entry, ...]:
    """The method with each of these (width, rate)."""
    return tuple((method, {"width": width, "rate": rate, **options}) for width, rate in pairs)


SMALL: tuple[Entry, ...] = (
    ("lbfgs", {"width": 60}),
    *settings_of("adamw", (60, 3e-2), (60, 1e-1)),
    *settings_of("one-cycle", (60, 3e-2), (60, 1e-1), (150, 1e-1)),
    *settings_of("muon", (60, 3e-2), (60, 3e-1), (150, 1e-1)),
    *settings_of("soap", (60, 1e-2), (60, 1e-1), (150, 3e-2)),
    *settings_of("schedule-free", (60, 3e-2), (60, 3e-1), (150, 1e-1)),
)
"""Descents for problems with few inputs and outputs."""
SMALL_SHALLOW: tuple[Entry, ...] = (
    ("gauss-newton", {"width": 30}),
    ("gauss-newton", {"width": 60}),
    ("varpro", {"width": 30}),
    ("varpro", {"width": 60}),
    ("particles", {"width": 100}),
    ("adelie", {"gates": 25}),
    ("skglm", {"gates": 25}),
    *SMALL,
)
"""Beside them what is for two layers and the squared error alone."""
DIGITS: tuple[Entry, ...] = (
    ("lbfgs", {"width": 150}),
    ("lbfgs", {"width": 350}),
    *settings_of("adamw", (150, 3e-2), (350, 1e-2)),
    *settings_of("one-cycle", (150, 3e-2), (150, 1e-1), (350, 3e-2)),
    *settings_of("muon", (150, 3e-2), (150, 1e-2), (350, 3e-2)),
    *settings_of("soap", (150, 3e-2), (150, 1e-2), (350, 1e-2)),
    *settings_of("schedule-free", (150, 3e-2), (150, 1e-1), (350, 3e-2)),
)
DIGITS_SHALLOW: tuple[Entry, ...] = (
    ("gauss-newton", {"width": 120, "turns": 20}),
    ("gauss-newton", {"width": 250, "turns": 20}),
    ("varpro", {"width": 60}),
    ("varpro", {"width": 120}),
    ("particles", {"width": 300}),
    ("adelie", {"gates": 25}),
    ("skglm", {"gates": 25}),
    *DIGITS,
)
DEEP: tuple[Entry, ...] = (
    ("lbfgs", {"width": 60}),
    *settings_of("adamw", (60, 1e-2), (60, 3e-3)),
    *settings_of("one-cycle", (60, 3e-3), (60, 1e-2), (120, 1e-2)),
    *settings_of("muon", (60, 1e-2), (60, 3e-2), (120, 1e-2)),
    *settings_of("soap", (60, 3e-3), (60, 1e-2), (120, 1e-2)),
    *settings_of("schedule-free", (60, 1e-2), (60, 3e-2), (120, 1e-2)),
)
"""For three layers and more."""
MANY: tuple[Entry, ...] = (
    ("lbfgs", {"width": 150}),
    *settings_of("adamw", (150, 3e-3), (150, 1e-2), single=True),
    *settings_of("one-cycle", (150, 1e-2), (150, 3e-2), (350, 1e-2), single=True),
    *settings_of("muon", (150, 1e-2), (150, 3e-2), (350, 3e-2), single=True),
    *settings_of("soap", (150, 3e-3), (150, 1e-2), (150, 3e-2), single=True),
    *settings_of("schedule-free", (150, 1e-2), (150, 3e-2), (350, 1e-2), single=True),
)
"""For many samples, in float32; the patterns of the group lassos and the projection would not fit."""
MANY_SHALLOW: tuple[Entry, ...] = (("gauss-newton", {"width": 60, "turns": 10}), ("particles", {"width": 100}), *MANY)

RACES = {
    "rivals-digits-200": Race(lambda: works.digits(200, 1e-3), 60.0, DIGITS_SHALLOW),
    "rivals-digits-200-small-lam": Race(lambda: works.digits(200, 1e-4), 60.0, DIGITS_SHALLOW),
    "rivals-teacher": Race(lambda: works.teacher(0), 30.0, SMALL_SHALLOW),
    "rivals-diabetes": Race(lambda: works.table("diabetes", None, 1.0), 30.0, SMALL_SHALLOW),
    "rivals-20000": Race(lambda: works.mixture(20_000), 120.0, MANY_SHALLOW),
    "rivals-digits-500-classes": Race(lambda: works.digits(500, 1e-3, loss="cross_entropy"), 30.0, DIGITS),
    "rivals-breast-cancer": Race(lambda: works.two_classes(1e-3), 30.0, SMALL),
    "rivals-wine": Race(lambda: replace(works.table("wine", None, 1e-3), loss="cross_entropy"), 30.0, SMALL),
    "rivals-diabetes-huber": Race(
        lambda: works.standardised(works.table("diabetes", None, 1e-2), "huber"), 30.0, SMALL
    ),
    "rivals-20000-classes": Race(lambda: replace(works.mixture(20_000), loss="cross_entropy"), 60.0, MANY),
    **{f"rivals-digits-200-depth-{L}": Race(partial(works.digits, 200, 1e-3, L), 30.0, DEEP) for L in (3, 4, 6)},
    "rivals-teacher-depth-13": Race(lambda: teachers.teacher(4, 13), 30.0, DEEP),
    "rivals-training": Race(lambda: teachers.teacher(4, 13), 30.0, DEEP, {"by": "train"}),
    **{f"rivals-teacher-depth-{L}": Race(partial(_deep, partial(works.teacher, 0), L), 30.0, DEEP) for L in (3, 5)},
    **{f"rivals-wide-depth-{L}": Race(partial(_deep, works.wide, L), 10.0, DEEP) for L in (3, 4)},
    **{f"rivals-checkerboard-depth-{L}": Race(partial(_deep, works.checkerboard, L), 10.0, DEEP) for L in (3, 4)},
    **{f"rivals-digits-1797-depth-{L}": Race(partial(works.digits, 1797, 1e-3, L), 10.0, DEEP) for L in (3, 5)},
    "rivals-20000-depth-3": Race(partial(_mixture_depth_3, None), 15.0, MANY),
    "rivals-20000-classes-depth-3": Race(partial(_mixture_depth_3, "cross_entropy"), 15.0, MANY),
}


def run_race(settings: Settings, race: Race) -> Outcome:
    """All contenders on one problem."""
    work, seconds = race.work(), settings.limit(race.seconds)
    if settings.quick:
        work = replace(work, X=work.X[:200], Y=work.Y[:200])
    rivals = race.rivals[: 1 if settings.quick else None]
    asked = [("covopt", race.ours), *rivals]
    if settings.device != "cpu":
        ours = race.ours | {"clock": "wall"}
        rivals = [(name, options | {"clock": "wall"}) for name, options in rivals if name in ON_DEVICES]
        on_device = [(name, options | {"device": settings.device}) for name, options in [("covopt", ours), *rivals]]
        asked = [on_device[0], ("covopt", ours), *on_device[1:]]
    raced = [repeated(f"rival-{name}", work, settings, seconds=seconds, **options) for name, options in asked]
    ours, theirs = raced[0], [run for runs in raced[1:] for run in runs]
    runs = [*ours, *theirs]
    best = min((run.cost for run in runs if run.error is None), default=math.nan)
    shown = [t for t in SHOWN if t <= seconds]
    ahead, behind = _beaten(ours, theirs, seconds)
    return Outcome(
        target=f"covopt lowest at every time from {FIRST:g} s to {seconds:g} s",
        reached=_words(ahead, behind),
        met=behind == [] and ahead > 0,
        columns=(
            "contender",
            "settings",
            *(f"at {t:g} s" for t in shown),
            "to 1 % (s)",
            "to 0.1 % (s)",
            "cost",
            "width",
        ),
        rows=[_row(run, shown, best) for run in runs],
        runs=runs,
    )


def cost_at(run: Run, seconds: float) -> float:
    """The lowest cost that the run had by then; infinite before it had a network."""
    return min((cost for when, cost in run.history if when <= seconds), default=math.inf)


def _beaten(ours: Sequence[Run], theirs: Sequence[Run], seconds: float) -> tuple[int, list[tuple[float, str, float]]]:
    """At how many times the worst of our runs is lowest, and (time, rival, relative distance) where it is not."""
    ahead, behind = 0, []
    for when in np.geomspace(min(FIRST, seconds), seconds, TIMES):
        best = min(theirs, key=lambda run: cost_at(run, when))
        mine = max(cost_at(run, when) for run in ours)
        if mine <= cost_at(best, when) * (1.0 + EQUAL) and math.isfinite(mine):
            ahead += 1
        else:
            behind.append((float(when), best.contender.removeprefix("rival-"), mine / cost_at(best, when) - 1.0))
    return ahead, behind


def _words(ahead: int, behind: list[tuple[float, str, float]]) -> str:
    if not behind:
        return f"lowest at all {ahead} times"
    words = [f"lowest at {ahead} of {ahead + len(behind)} times"]
    above = [part for part in behind if math.isfinite(part[2])]
    if len(above) < len(behind):
        words.append(f"no network yet at {max(when for when, _, off in behind if math.isinf(off)):.2g} s")
    if above:
        names, widest = ", ".join(sorted({name for _, name, _ in above})), max(off for _, _, off in above)
        first, last = (f"{seconds:.2g}" for seconds in (above[0][0], above[-1][0]))
        when = f"at {first} s" if first == last else f"between {first} and {last} s"
        words.append(f"above {names} {when}, by at most {100.0 * widest:.3g} %")
    return "; ".join(words)


def _row(run: Run, shown: Sequence[float], best: float) -> tuple[object, ...]:
    options = ", ".join(f"{key} {value}" for key, value in run.options.items() if key not in ("seed", "seconds"))
    return (
        run.contender.removeprefix("rival-"),
        options,
        *(cost_at(run, t) for t in shown),
        *(rounded(run.time_to(best * (1.0 + part))) for part in WITHIN),
        run.cost,
        run.width,
    )


for _name, _race in RACES.items():
    benchmark(
        _name,
        f"{_name.removeprefix('rivals-')}: covopt beside other methods and optimisers "
        f"({len(_race.rivals) + 1} runs of {_race.seconds:g} processor seconds)",
    )(partial(run_race, race=_race))
