"""Tampering with every entry and every file of stored runs of all kinds (the changes of tests/tampering.py)."""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import covopt
from tests.benchmarks.harness import Benchmark, Outcome, Settings, rounded

sys.path.insert(0, str(Path(__file__).parents[1]))

from tampering import forgeries, judge, tamperings

GOOD = ("noticed", "named", "the same")


def run_tampering(settings: Settings) -> Outcome:
    """Each change of each run: noticed, or what it changes is named as unchecked."""
    rows: list[tuple[object, ...]] = []
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        for kind, make in _kinds(settings).items():
            run = here / kind
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                make().save(run)
            began, checked = time.perf_counter(), covopt.verify(run)
            found = Counter[str]()
            for each in [*tamperings(run), *forgeries(run)]:
                verdict = judge(run, here / "scratch", each)
                found[verdict.partition(":")[0]] += 1
                if verdict not in GOOD:
                    faults.append(f"{kind}, {each.name}: {verdict}")
            print(f"  {kind}: {dict(found)}", file=sys.stderr, flush=True)
            seconds = rounded(time.perf_counter() - began)
            told = (found["noticed"], found["named"], found["MISSED"], found["CRASHED"])
            rows.append((kind, checked.passed, found.total() - found["the same"], *told, seconds))
    honest = all(row[1] for row in rows)
    return Outcome(
        target="every entry and every file of runs of all kinds: noticed, or named as unchecked; honest runs pass",
        reached=f"{sum(row[2] for row in rows)} changes: {sum(row[5] for row in rows)} missed, "  # type: ignore[misc]
        f"{sum(row[6] for row in rows)} in a traceback" + "".join(f"; {fault}" for fault in faults[:5]),  # type: ignore[misc]
        met=honest and not faults,
        columns=("run", "honest passes", "changes", "noticed", "named", "missed", "crashed", "seconds"),
        rows=rows,
        runs=[],
    )


def _kinds(settings: Settings) -> dict[str, Callable[[], Any]]:
    """What makes a run of each kind."""
    rng = np.random.default_rng(0)
    X = np.linspace(-1.0, 1.0, 8)[:, None]
    Y, classes = np.abs(X), np.eye(2)[(X[:, 0] > 0).astype(int)]

    def drawn(rows: int, inputs: int, outputs: int = 1) -> tuple[Any, Any]:
        return rng.standard_normal((rows, inputs)), rng.standard_normal((rows, outputs))

    branched, relaxed, signs, spectral, deep = drawn(10, 3), drawn(5, 9), drawn(6, 9, 2), drawn(12, 8, 2), drawn(6, 3)
    few = {"lam": 1e-2, "time_limit": settings.limit(6)}
    full = {"lam": 0.1, "certify": "full", "time_limit": settings.limit(15)}
    return {
        "exact": lambda: covopt.solve(X, Y, **few),
        "branch-and-bound": lambda: covopt.solve(*branched, **full),
        "relaxation": lambda: covopt.solve(*relaxed, gap=0.2, **full),
        "signs": lambda: covopt.solve(*signs, gap=1e-3, **full),
        "spectral": lambda: covopt.solve(*spectral, lam=0.1, certify="fast", time_limit=settings.limit(5)),
        "deep": lambda: covopt.solve(*deep, depth=3, **few),
        "interpolate": lambda: covopt.solve(X, Y, time_limit=settings.limit(6)),
        "cross-entropy": lambda: covopt.solve(X, classes, loss="cross_entropy", **few),
        "cprank": lambda: covopt.cp_rank(np.eye(3) + 1.0),
        "plateau": lambda: covopt.plateau(X, Y, **few),
        "compare": lambda: covopt.compare(X, Y, **few),
        "audit": lambda: covopt.validate(None, X, Y, **few),
    }


TAMPERING = {"tampering": Benchmark(run_tampering, "every entry and file of runs of all kinds tampered with (25 min)")}
