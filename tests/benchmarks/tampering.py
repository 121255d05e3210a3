"""Tampering with every entry and every file of stored runs of all kinds (the changes of tests/tampering.py)."""

import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

from tampering import forgeries, judge, tamperings

import covopt
from tests.benchmarks.forgeries import kinds
from tests.benchmarks.harness import Outcome, Settings, benchmark, rounded

KINDS = (
    *(
        "exact",
        "branch-and-bound",
        "relaxation",
        "signs",
        "spectral",
        "depth 3",
        "interpolate",
        "cross-entropy",
        "cprank",
    ),
    *("plateau", "compare", "validate"),
)
GOOD = ("noticed", "named", "the same")


@benchmark("tampering", "every entry and file of runs of all kinds tampered with (25 min)")
def run_tampering(settings: Settings) -> Outcome:
    """Each change of each run: noticed, or what it changes is named as unchecked."""
    rows: list[tuple[object, ...]] = []
    faults: list[str] = []
    makers = kinds(settings)
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        for kind in KINDS:
            run = here / kind
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                makers[kind][0](0).save(run)
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
    )
