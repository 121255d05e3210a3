"""covopt itself, timed as its rivals are: in processor seconds, by its callback."""

from __future__ import annotations

import numpy as np

from covopt.answer import solve
from tests.benchmarks.rival_methods.log import Log


def run(
    X: np.ndarray,
    Y: np.ndarray,
    lam: float,
    beta: float,
    log: Log,
    seed: int,
    *,
    certify: str = "none",
    method: str = "",
) -> None:
    """One solve, which proves nothing, like the rivals; its time limit is of the wall clock."""
    costs: list[tuple[float, float]] = log.costs
    result = solve(
        X,
        Y,
        lam=lam,
        bias=beta,
        seed=seed,
        time_limit=log.limit,
        certify=certify,
        callback=lambda line: costs.append((log.seconds(), line.cost)),
    )
    W1, W2 = (W.cpu().numpy() for W in result.weights)
    log.see(W1, W2, always=True)
