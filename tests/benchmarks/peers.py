"""covopt beside its peers: pyscnn, the sampled convex programme in cvxpy, and ordinary training, at equal objective."""

from collections.abc import Sequence

from tests.benchmarks import works
from tests.benchmarks.harness import Outcome, Run, Settings, benchmark, convex, covopt, ended, pyscnn, rounded, trainer

SOONER_THAN_PYSCNN, SOONER_THAN_TRAINING = 20.0, 5.0
GATES = (25, 100)  # of pyscnn on digits: with the second it takes minutes
NEAR = 1e-4  # relative: "the best trainer's within"


@benchmark("peers-digits-200", "200 digits beside pyscnn and training (20 min)")
def run_peers_digits(settings: Settings) -> Outcome:
    """200 digits, two strengths."""
    groups = []
    for lam in (1e-3, 1e-4):
        work, limit = works.digits(200, lam), settings.limit(60)
        ours, theirs = covopt(work, settings, time_limit=limit), trainer(work, settings, seconds=limit)
        slow = {"max_primal_iters": 10, "max_dual_iters": 2} if settings.quick else {}
        counts = GATES[:1] if settings.quick else GATES
        sampled = [run for gates in counts for run in pyscnn(work, settings, gates=gates, **slow)]
        groups.append((f"lam {lam:g}", ours, theirs, sampled))
    return _judged(groups, margin=3e-3)


@benchmark("peers-teacher", "a teacher beside pyscnn, cvxpy and training (5 min)")
def run_peers_teacher(settings: Settings) -> Outcome:
    """A teacher of 5 neurons, 100 points with 5 inputs."""
    work, limit = works.teacher(0), settings.limit(20)
    ours, theirs = covopt(work, settings, gap=1e-6, time_limit=limit), trainer(work, settings, seconds=limit)
    sampled = pyscnn(work, settings, gates=100)
    if not settings.quick:
        sampled += pyscnn(work, settings, gates=500) + pyscnn(work, settings, gates=500, tol=1e-9, constraint_tol=1e-9)
    written = convex(work, settings, gates=100) + ([] if settings.quick else convex(work, settings, gates=500))
    return _judged([(work.name, ours, theirs, sampled + written)], margin=0.0)


Group = tuple[str, Sequence[Run], Sequence[Run], Sequence[Run]]


def _judged(groups: Sequence[Group], margin: float) -> Outcome:
    """For each problem: how much sooner the worst of our runs reaches the peers' best, and where it ends."""
    rows, runs, told, met = [], [], [], True
    for name, ours, theirs, peers in groups:
        at_work = [run for run in peers if run.error is None]
        by_scnn = [run for run in at_work if run.contender == "pyscnn"]
        best_peer, best_trained = (min(each, key=lambda run: run.cost, default=None) for each in (by_scnn, theirs))
        ends = max(run.cost for run in ours)
        sooner = [_sooner(ours, best_peer, 0.0), _sooner(ours, best_trained, NEAR)]
        reached = [run.cost for run in (*at_work, *theirs)]
        below = min(reached) / ends - 1.0 if reached else None
        met = (
            met
            and below is not None
            and below >= margin
            and (sooner[0] or 0.0) >= SOONER_THAN_PYSCNN
            and (sooner[1] or 0.0) >= SOONER_THAN_TRAINING
        )
        told.append(
            f"{name}: {_times(sooner[0])} sooner than {best_peer.contender if best_peer else 'no peer'}, "
            f"{_times(sooner[1])} than training, ends {100 * below if below is not None else float('nan'):.2f} % below"
        )
        for run in (*ours, *theirs, *peers):
            options = ", ".join(f"{key} {value:g}" for key, value in run.options.items() if key != "seed")
            rows.append((name, run.contender, options, run.cost, rounded(run.cpu_seconds), *ended(run)))
            runs.append(run)
    return Outcome(
        target=f"at the peers' best cost {SOONER_THAN_PYSCNN:.0f} times sooner, at the best training's within {NEAR:g} "
        f"{SOONER_THAN_TRAINING:.0f} times sooner, and ends below both{f' by {100 * margin:g} %' if margin else ''}",
        reached="; ".join(told),
        met=met,
        columns=("problem", "contender", "options", "cost", "cpu s", "neurons", "status", "seconds", "peak MiB"),
        rows=rows,
        runs=runs,
    )


def _sooner(ours: Sequence[Run], other: Run | None, near: float) -> float | None:
    """The other's time to its cost (within `near`) over the slowest of ours to the same; None where one has none."""
    if other is None:
        return None
    goal = other.cost * (1.0 + near)
    times = [run.time_to(goal) for run in ours]
    if any(value is None for value in times):
        return None
    when = other.time_to(goal) if other.history else None
    return (when or other.seconds) / max(max(value for value in times if value is not None), 1e-3)


def _times(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} times"
