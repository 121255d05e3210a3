"""covopt itself, timed as its rivals are: in processor seconds, by its callback."""

from __future__ import annotations

from covopt.answer.solve import solve
from tests.benchmarks.rival_methods.common import Question
from tests.benchmarks.rival_methods.log import Log


def run(question: Question, log: Log, seed: int, *, certify: str = "none", method: str = "") -> None:
    """One solve, which proves nothing, like the rivals; its time limit is of the wall clock."""
    costs: list[tuple[float, float]] = log.costs
    result = solve(
        question.X,
        question.Y,
        lam=question.lam,
        bias=question.beta,
        seed=seed,
        time_limit=log.limit,
        certify=certify,
        callback=lambda line: costs.append((log.seconds(), line.cost)),
    )
    W1, W2 = (W.cpu().numpy() for W in result.weights)
    log.see(W1, W2, always=True)
