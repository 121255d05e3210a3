"""Matrices made to break what `cp_rank` states: of each the truth is known beforehand."""

import time
from collections import defaultdict

import covopt
from tests.benchmarks.harness import Outcome, Settings, benchmark, show
from tests.hostile_matrices import falsehoods, hostile_matrices

COUNT, LIMIT = 3000, 0.3  # matrices, seconds for each


@benchmark("hostile-matrices", "3,000 matrices against cp_rank, the truth known (10 min)")
def run_matrices(settings: Settings) -> Outcome:
    """Small roots, two scales, the Horn face, rounded zeros: by kind, what was answered and what of it was false."""
    told: dict[str, list[tuple[str, bool, list[str], float]]] = defaultdict(list)
    for hostile in hostile_matrices(100 if settings.quick else COUNT):
        begun = time.perf_counter()
        answer = covopt.cp_rank(hostile.A, time_limit=LIMIT, **hostile.options)  # type: ignore[arg-type]
        seconds = time.perf_counter() - begun
        told[hostile.kind.split()[0]].append((answer.verdict.value, answer.exact, falsehoods(hostile, answer), seconds))
    rows = []
    for kind, answers in told.items():
        decided = sum(verdict != "undecided" for verdict, *_ in answers)
        exact = sum(exact for _, exact, *_ in answers)
        false = sum(bool(found) for _, _, found, _ in answers)
        rows.append((kind, len(answers), decided, exact, false, max(seconds for *_, seconds in answers)))
    slowest = max(row[-1] for row in rows)
    return Outcome(
        target="no false verdict, end or check",
        reached=f"{sum(row[4] for row in rows)} false of {sum(row[1] for row in rows)}; slowest {show(slowest)} s, the "
        f"limit being {LIMIT:g}",
        met=not any(row[4] for row in rows),
        columns=("kind", "number", "decided", "proved", "false", "slowest seconds"),
        rows=rows,
    )
