"""Runs on one deep problem in a process of its own: `python -m tests.benchmarks.deep_contender DIRECTORY`.

The weights of run k are k_1 ... k_L. Every run is timed by itself, without imports; with `clock` "processor" it counts
the seconds of the processor instead.
"""

import math
import time
from itertools import pairwise

import numpy as np
import torch

from covopt.answer.solve import solve
from covopt.model.problem import make_problem
from covopt.runtime.loop import Budget
from covopt.solvers.training.batch import Batch
from covopt.solvers.training.trainer import train
from tests.benchmarks.job import Stopwatch, peak_mib, run_job


def run(X: np.ndarray, Y: np.ndarray, job: dict) -> tuple[dict[str, np.ndarray], dict]:
    """Solve several times, or train several networks together."""
    torch.set_num_threads(job["threads"])
    if job.get("clock") == "processor":
        time.perf_counter = time.process_time
    if job["contender"] == "trainings":
        runs = _train(X, Y, job)
    elif job["contender"] == "adam":
        runs = [_plain_adam(X, Y, job)]
    else:
        runs = [_solve(X, Y, job, seed) for seed in job["seeds"]]
    weights = {f"{k}_{layer}": W for k, (network, _) in enumerate(runs) for layer, W in enumerate(network, start=1)}
    return weights, {"runs": [told for _, told in runs], "peak_mib": peak_mib()}


def _solve(X: np.ndarray, Y: np.ndarray, job: dict, seed: int) -> tuple[list[np.ndarray], dict]:
    watch = Stopwatch()
    result = solve(X, Y, seed=seed, **job["question"], **job["options"])
    told = watch.told() | {
        "status": str(result.status),
        "lower": result.lower,
        "certificate": str(result.certificate),
        "widths": result.widths,
        "history": [(line.seconds, line.cost) for line in result.history],
    }
    return [W.cpu().numpy() for W in result.weights], told


def _train(X: np.ndarray, Y: np.ndarray, job: dict) -> list[tuple[list[np.ndarray], dict]]:
    """All networks together; the seconds are those of the whole batch."""
    problem, watch = make_problem(X, Y, **job["question"]), Stopwatch()
    batch = train(problem, job["width"], seeds=job["seeds"], budget=Budget(job["seconds"]))
    spent = watch.told()
    return [
        (
            [W.cpu().numpy() for W in network.weights],
            spent
            | {
                "status": "converged" if network.converged else "time_limit",
                "widths": network.widths,
                "history": network.history.tolist(),
            },
        )
        for network in batch.networks
    ]


def _plain_adam(X: np.ndarray, Y: np.ndarray, job: dict) -> tuple[list[np.ndarray], dict]:
    """The best of many He starts, all in one batch; the rate falls to 0 along a cosine over the time."""
    options, started, seconds = job["options"], time.perf_counter(), job["seconds"]
    problem = make_problem(X, Y, **job["question"]).to(torch.float32)
    widths = [options["width"]] * (problem.depth - 1)
    sizes = [X.shape[1], *widths, problem.Y.shape[1]]
    generator = torch.Generator().manual_seed(0)
    batch = Batch(problem, [widths] * options["starts"])
    x = batch.pack([_he(sizes, generator) for _ in range(options["starts"])])
    first, second, steps = torch.zeros_like(x), torch.zeros_like(x), 0
    while (part := (time.perf_counter() - started) / seconds) < 1.0:
        gradient, steps = batch.evaluate(x)[1], steps + 1
        first.lerp_(gradient, 0.1)
        second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        rate = options["rate"] * 0.5 * (1.0 + math.cos(math.pi * part)) / (1.0 - 0.9**steps)
        x.addcdiv_(first, (second / (1.0 - 0.999**steps)).sqrt_().add_(1e-8), value=-rate)
    best = x[batch.evaluate(x)[0].argmin()]
    took = time.perf_counter() - started
    told = {"seconds": took, "cpu_seconds": took, "status": f"{steps} steps", "widths": widths, "history": []}
    return [W.double().numpy() for W in batch.unpack(best, widths)], told


def _he(sizes: list[int], generator: torch.Generator) -> list[torch.Tensor]:
    shapes = [(n, below) for below, n in pairwise(sizes)]
    drawn = [torch.randn(shape, generator=generator) * math.sqrt(2.0 / shape[1]) for shape in shapes]
    return [torch.cat([W, torch.zeros(len(W), 1)], dim=1) for W in drawn]


if __name__ == "__main__":
    run_job(run)
