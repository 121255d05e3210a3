"""One run of a rival in a process of its own: `python -m tests.benchmarks.rival DIRECTORY`, as `contender` runs covopt.

It imports a method only when the job names it, and besides it NumPy alone, so that each method can run in an
environment of its own. Times are processor seconds of the one thread: they mean the same on a busy machine.
"""

from __future__ import annotations

import importlib
import time

import numpy as np

from tests.benchmarks.job import run_job
from tests.benchmarks.objective import objective
from tests.benchmarks.rival_methods.common import Question
from tests.benchmarks.rival_methods.log import Log

METHODS = {
    "covopt": "ours",
    "gauss-newton": "gauss_newton",
    "varpro": "projection",
    "particles": "particles",
    "adelie": "with_adelie",
    "skglm": "with_skglm",
    "lbfgs": "descents",
    "adamw": "descents",
}
"""The module of `rival_methods` that has a method."""


def run(X: np.ndarray, Y: np.ndarray, job: dict) -> list[tuple[list[np.ndarray], dict]]:
    """Run the method that the job names."""
    name, options = job["contender"].removeprefix("rival-"), dict(job["options"])
    seconds, seed = options.pop("seconds"), options.pop("seed")
    method = importlib.import_module(f"tests.benchmarks.rival_methods.{METHODS[name]}").run
    warm_up(method, options | {"method": name})
    started, log = time.perf_counter(), Log(seconds)
    lam, beta = job["question"]["lam"], job["question"]["bias"]
    method(Question(X, Y, lam, beta), log, seed, method=name, **options)
    told = {"seconds": time.perf_counter() - started, "cpu_seconds": log.seconds()}
    history, weights = judged(X, Y, lam, beta, log)
    return [(weights, told | {"history": history, "width": len(weights[0])})]


def warm_up(method: object, options: dict) -> None:
    """A run on next to nothing, so that what is loaded or compiled at first use is not timed."""
    X = np.random.default_rng(0).standard_normal((8, 2))
    method(Question(X, np.maximum(X, 0.0), 1e-2, 1.0), Log(0.3), 0, **options)  # type: ignore[operator]


def judged(
    X: np.ndarray, Y: np.ndarray, lam: float, beta: float, log: Log
) -> tuple[list[tuple[float, float]], list[np.ndarray]]:
    """(seconds, cost) of every network that was the best so far, by the shared objective, and the best network."""
    weights = [np.zeros((0, X.shape[1] + 1)), np.zeros((Y.shape[1], 1))]
    best, history = np.inf, list(log.costs)
    for seconds, W1, W2 in log.kept:
        cost = objective(X, Y, [W1, W2], lam=lam, beta=beta, slope=0.0).cost
        if cost < best:
            best, weights = cost, [W1, W2]
            history.append((seconds, cost))
    return history, weights


if __name__ == "__main__":
    run_job(run)
