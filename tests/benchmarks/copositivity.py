"""Copositivity of matrices on both sides of the boundary: of each the truth is known beforehand."""

import time
from collections import defaultdict
from dataclasses import dataclass

import covopt
from tests.benchmarks.harness import LATE, Outcome, Settings, benchmark, show
from tests.copositive_matrices import planted_matrices

COUNT, LIMIT = 200, 5.0  # matrices, seconds for each
SHARE = 0.02  # of them that may stay undecided


@dataclass(frozen=True)
class _Answer:
    order: int
    copositive: bool
    wrong: bool
    undecided: bool
    nodes: int
    seconds: float
    cpu_seconds: float


@benchmark("copositivity", "200 matrices of orders 11 to 25 against copositivity (minutes)")
def run_copositivity(settings: Settings) -> Outcome:
    """By kind: what was answered, what of it was wrong, and the slowest."""
    told: dict[str, list[_Answer]] = defaultdict(list)
    for planted in planted_matrices(16 if settings.quick else COUNT):
        begun, cpu = time.perf_counter(), time.process_time()
        found = covopt.copositivity(planted.C, time_limit=LIMIT)
        spent = time.perf_counter() - begun, time.process_time() - cpu
        undecided = found.verdict == "undecided"
        wrong = not undecided and (found.verdict == "copositive") != planted.copositive
        told[planted.kind.rsplit(" ", 1)[0]].append(
            _Answer(len(planted.C), planted.copositive, wrong or not found.check(), undecided, found.nodes, *spent)
        )
    rows = [_row(kind, answers) for kind, answers in told.items()]
    rows.append(_row("all", [answer for answers in told.values() for answer in answers]))
    _, number, _, _, wrong, undecided, _, seconds, cpu_seconds = rows[-1]
    return Outcome(
        target=f"{COUNT} matrices of orders 11 to 25, planted both ways: no wrong verdict, at most 2 % undecided, "
        f"{LIMIT:g} s each",
        reached=f"{wrong} wrong and {undecided} undecided of {number}; slowest {show(seconds)} s "
        f"({show(cpu_seconds)} s of processor time)",
        met=wrong == 0 and undecided <= SHARE * number and seconds <= LATE * LIMIT,
        columns=(
            *("kind", "number", "copositive", "orders", "wrong", "undecided"),
            *("most nodes", "slowest seconds", "slowest processor seconds"),
        ),
        rows=rows,
    )


def _row(kind: str, answers: list[_Answer]) -> tuple:
    orders = [answer.order for answer in answers]
    return (
        kind,
        len(answers),
        sum(answer.copositive for answer in answers),
        f"{min(orders)} to {max(orders)}",
        sum(answer.wrong for answer in answers),
        sum(answer.undecided for answer in answers),
        max(answer.nodes for answer in answers),
        max(answer.seconds for answer in answers),
        max(answer.cpu_seconds for answer in answers),
    )
