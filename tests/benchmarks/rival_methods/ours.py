"""covopt itself, timed as its rivals are: in processor seconds, by its callback."""

from __future__ import annotations

import time

from covopt.answer.solve import solve
from tests.benchmarks.rival_methods.common import Question
from tests.benchmarks.rival_methods.log import Log


def run(
    question: Question,
    log: Log,
    seed: int,
    *,
    certify: str = "none",
    by: str = "cone",
    device: str = "cpu",
    method: str = "",
) -> None:
    """One solve, which proves nothing, like the rivals; its time limit counts the seconds of the log, as theirs do."""
    time.perf_counter = log.clock
    costs: list[tuple[float, float]] = log.costs
    result = solve(
        question.X,
        question.Y,
        lam=question.lam,
        bias=question.beta,
        depth=question.depth,
        method=by,
        device=device,
        loss=question.loss,
        seed=seed,
        time_limit=log.limit,
        certify=certify,
        callback=lambda line: costs.append((log.seconds(), line.cost)),
    )
    log.see(*(W.cpu().numpy() for W in result.weights), always=True)
