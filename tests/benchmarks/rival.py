"""One run of a rival in a process of its own: `python -m tests.benchmarks.rival DIRECTORY`, as `contender` runs covopt.

It imports a method only when the job names it, and besides it NumPy alone, so that each method can run in an
environment of its own. Times are processor seconds of the one thread: they mean the same on a busy machine. On a GPU
they are seconds of the wall clock.
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
    "one-cycle": "descents",
    "muon": "with_pytorch_optimizer",
    "soap": "with_pytorch_optimizer",
    "schedule-free": "with_pytorch_optimizer",
}
"""The module of `rival_methods` that has a method."""


def run(X: np.ndarray, Y: np.ndarray, job: dict) -> list[tuple[list[np.ndarray], dict]]:
    """Run the method that the job names."""
    name, options = job["contender"].removeprefix("rival-"), dict(job["options"])
    seconds, seed, wall = options.pop("seconds"), options.pop("seed"), options.pop("clock", None) == "wall"
    method = importlib.import_module(f"tests.benchmarks.rival_methods.{METHODS[name]}").run
    warm_up(method, options | {"method": name})
    asked = job["question"]
    question = Question(X, Y, asked["lam"], asked["bias"], asked["depth"], asked.get("loss", "mse"))
    log = Log(seconds, clock=time.monotonic if wall else time.process_time)
    started = time.perf_counter()
    method(question, log, seed, method=name, **options)
    told = {"seconds": time.perf_counter() - started, "cpu_seconds": log.seconds()}
    history, weights = judged(question, log)
    return [(weights, told | {"history": history, "width": max(map(len, weights[:-1]))})]


def warm_up(method: object, options: dict) -> None:
    """A run on next to nothing, so that what is loaded or compiled at first use is not timed."""
    X = np.random.default_rng(0).standard_normal((8, 2))
    method(Question(X, np.maximum(X, 0.0), 1e-2, 1.0), Log(0.3), 0, **options)  # type: ignore[operator]


def judged(question: Question, log: Log) -> tuple[list[tuple[float, float]], list[np.ndarray]]:
    """(seconds, cost) of every network that was the best so far, by the shared objective, and the best network."""
    X, Y = question.X, question.Y
    weights = [np.zeros((0, X.shape[1] + 1)), *[np.zeros((0, 1))] * (question.depth - 2), np.zeros((Y.shape[1], 1))]
    best, history = np.inf, list(log.costs)
    for seconds, network in log.kept:
        cost = objective(X, Y, network, lam=question.lam, beta=question.beta, slope=0.0, loss=question.loss).cost
        if cost < best:
            best, weights = cost, network
            history.append((seconds, cost))
    return history, weights


if __name__ == "__main__":
    run_job(run)
