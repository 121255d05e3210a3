"""Runs of every kind that covopt stores, tampered with and forged, given to `verify` and `covopt-check`."""

import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tampering
from forging import Forgery, of_cp_rank, of_solve
from forging_studies import of_study

import covopt
from covopt import check
from tests.benchmarks.harness import Outcome, Settings, benchmark, rounded

CHECKED = 5.0
"""Seconds that covopt-check has for a forgery; a proof that takes longer is none."""


def judge(forgery: Forgery, target: Path, checked: bool) -> str:
    """refused; or ACCEPTED or CRASHED, and by which program."""
    shutil.rmtree(target, ignore_errors=True)
    forgery.write(target)
    try:
        if covopt.verify(target).passed:
            return "ACCEPTED by verify"
    except covopt.CovoptError:
        pass
    except Exception as error:
        return f"CRASHED in verify: {type(error).__name__} {error}"
    if checked and forgery.cost_or_bound:
        code, told = check.check(target, CHECKED)
        if code == 0:
            return f"ACCEPTED by covopt-check: {told}"
    return "refused"


Maker = Callable[[int], Any]
Forger = Callable[[Path, Path], Iterator[Forgery]]
Attack = Callable[[Path, Path], Iterator[tuple[str, str]]]
"""From a run and one of other data to the changes of it, and what is said of each."""


def attacked(
    runs: dict[str, tuple[Maker, Attack]], verdicts: tuple[str, ...], good: tuple[str, ...]
) -> tuple[list[tuple[object, ...]], list[str]]:
    """For each run: whether it passes as it is, its changes, those of each verdict, seconds; and what is not good."""
    rows: list[tuple[object, ...]] = []
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        for kind, (make, attack) in runs.items():
            both = [Path(name) / f"{kind} {seed}" for seed in (0, 1)]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for seed, run in enumerate(both):
                    make(seed).save(run)
            began, honest = time.perf_counter(), all(covopt.verify(run).passed for run in both)
            found = Counter[str]()
            for change, verdict in attack(*both):
                found[verdict.split()[0].removesuffix(":")] += 1
                if verdict not in good:
                    faults.append(f"{kind}, {change}: {verdict}")
                    print(f"  {faults[-1]}", file=sys.stderr, flush=True)
            print(f"  {kind}: {dict(found)}", file=sys.stderr, flush=True)
            counts = (found[verdict] for verdict in verdicts)
            rows.append((kind, honest, found.total(), *counts, rounded(time.perf_counter() - began)))
    return rows, faults


@benchmark("tampering", "every entry and file of runs of all kinds tampered with (25 min)")
def run_tampering(settings: Settings) -> Outcome:
    """Each change of each run (tests/tampering.py): noticed, or what it changes is named as unchecked."""

    def attack(run: Path, other: Path) -> Iterator[tuple[str, str]]:
        for change in [*tampering.tamperings(run), *tampering.forgeries(run)]:
            verdict = tampering.judge(run, run.parent / "scratch", change)
            if verdict != "the same":
                yield change.name, verdict

    verdicts = ("noticed", "named", "MISSED", "CRASHED")
    makers = {kind: made[0] for kind, made in kinds(settings).items()}
    rows, faults = attacked({kind: (makers[kind], attack) for kind in TAMPERED}, verdicts, ("noticed", "named"))
    return Outcome(
        target="every entry and every file of runs of all kinds: noticed, or named as unchecked; honest runs pass",
        reached=f"{sum(row[2] for row in rows)} changes: {sum(row[5] for row in rows)} missed, "  # type: ignore[misc]
        f"{sum(row[6] for row in rows)} in a traceback" + "".join(f"; {fault}" for fault in faults[:5]),  # type: ignore[misc]
        met=all(row[1] for row in rows) and not faults,
        columns=("run", "honest passes", "changes", "noticed", "named", "missed", "crashed", "seconds"),
        rows=rows,
    )


@benchmark("forgeries", "forged runs of every kind, for verify and covopt-check (10 min)")
def run_forgeries(settings: Settings) -> Outcome:
    """Forge runs of each kind; count what is accepted, and honest ones that are refused."""

    def judged(forge: Forger) -> Attack:
        checked = forge is not of_study
        return lambda run, other: (
            (each.name, judge(each, run.parent / "forged", checked)) for each in forge(run, other)
        )

    runs = {kind: (make, judged(forge)) for kind, (make, forge) in kinds(settings).items()}
    rows, faults = attacked(runs, ("refused", "ACCEPTED", "CRASHED"), ("refused",))
    forged = sum(int(str(row[2])) for row in rows)
    return Outcome(
        target="0 accepted, by verify or covopt-check, of at least 200 forged runs of every kind; honest ones pass",
        reached=f"{forged} forgeries: {sum('ACCEPTED' in fault for fault in faults)} accepted,"
        f" {sum('CRASHED' in fault for fault in faults)} in a traceback"
        + "".join(f"; {fault}" for fault in faults[:5]),
        met=not faults and all(row[1] for row in rows) and forged >= 200,
        columns=("run", "honest pass", "forgeries", "refused", "accepted", "crashed", "seconds"),
        rows=rows,
    )


TAMPERED = (
    *("exact", "branch-and-bound", "relaxation", "signs", "spectral", "depth 3", "interpolate"),
    *("cross-entropy", "cprank", "plateau", "compare", "validate"),
)


def kinds(settings: Settings) -> dict[str, tuple[Maker, Forger]]:
    """What makes a run of each kind from data of a seed, and what forges it."""
    limit = settings.limit(6)

    def solve(rows: int, inputs: int, outputs: int = 1, targets: Any = None, **options: Any) -> tuple[Maker, Forger]:
        def make(seed: int) -> Any:
            rng = np.random.default_rng(seed)
            X, Y = rng.standard_normal((rows, inputs)), rng.standard_normal((rows, outputs))
            return covopt.solve(X, Y if targets is None else targets(Y), **({"time_limit": limit} | options))

        return make, of_solve

    def study(function: Callable[..., Any], **options: Any) -> tuple[Maker, Forger]:
        def make(seed: int) -> Any:
            rng = np.random.default_rng(seed)
            return function(np.linspace(-1.0, 1.0, 6)[:, None], rng.standard_normal((6, 1)), **options)

        return make, of_study

    few, full = {"lam": 1e-2}, {"lam": 0.1, "certify": "full", "gap": 0.05}
    small = {"batch_size": 2, "steps": 3, "width": 2, "depth": 2, "seeds": 1, "rate": 0.1}
    net = [np.array([[1.0, 0.5], [-1.0, 0.25]], np.float32), np.array([[0.3, 0.4, 0.1]], np.float32)]
    classes = lambda Y: np.eye(2)[(Y[:, 0] > 0).astype(int)]  # noqa: E731
    return {
        "exact": solve(8, 1, **few),
        "without bias": solve(8, 2, bias=0.0, **few),
        "free biases": solve(8, 1, bias="free", **few),
        "free biases and skip": solve(8, 1, bias="free", skip=True, **few),
        "leaky": solve(8, 1, activation="leaky:0.3", **few),
        "linear": solve(8, 3, 2, activation="linear", **few),
        "weighted": solve(8, 1, sample_weight=np.arange(1.0, 9.0), **few),
        "cross-entropy": solve(8, 1, 2, classes, loss="cross_entropy", **few),
        "huber": solve(8, 1, loss="huber:0.5", **few),
        "logistic": solve(8, 1, 1, np.sign, loss="logistic", **few),
        "interpolate": solve(6, 1),
        "branch-and-bound": solve(10, 3, **full),
        "relaxation": solve(5, 9, **(full | {"gap": 0.2})),
        "signs": solve(6, 9, 2, **(full | {"gap": 1e-3})),
        "spectral": solve(12, 8, 2, lam=0.1, certify="fast"),
        "depth 3": solve(6, 2, depth=3, lam=0.05),
        "depth 4": solve(6, 2, depth=4, lam=0.05),
        "depth 3, interpolate": solve(5, 1, depth=3),
        "cprank": (lambda seed: covopt.cp_rank(np.eye(3) + 1.0 + seed), of_cp_rank),
        "cprank, not positive": (lambda seed: covopt.cp_rank(2.0 - np.eye(3) * (1.0 + 0.1 * seed)), of_cp_rank),
        "plateau": study(covopt.plateau, time_limit=limit, **few),
        "plateau, interpolate": study(covopt.plateau, time_limit=limit),
        "compare": study(covopt.compare, time_limit=2.0, starts=1, **few),
        "depth": study(covopt.depth, depths=[2, 3], time_limit=limit, **few),
        "path": study(covopt.path, lams=[0.1, 0.01], interpolate=True, time_limit=limit),
        "ranks": study(covopt.ranks, time_limit=limit, lam=[0.01], **small),
        "validate": study(lambda X, Y, **options: covopt.validate(net, X, Y, **options), time_limit=limit, **few),
    }
