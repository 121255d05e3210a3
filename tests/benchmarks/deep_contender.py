"""Runs on one deep problem in a process of its own: `python -m tests.benchmarks.deep_contender DIRECTORY`.

`job.json` and `data.npz` lie there; `weights.npz` (k_1 ... k_L for run k) and `run.json` come to lie beside them. Every
run is timed by itself, without imports.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

from covopt.answer import solve
from covopt.loop import Budget
from covopt.model.problem import make_problem
from covopt.training.trainer import train
from tests.benchmarks.contender import peak_mib


def main(directory: Path) -> None:
    """Solve several times, or train several networks together, and write what came of it."""
    job = json.loads((directory / "job.json").read_text())
    torch.set_num_threads(job["threads"])
    with np.load(directory / "data.npz") as data:
        X, Y = data["X"], data["Y"]
    runs = _train(X, Y, job) if job["contender"] == "trainings" else [_solve(X, Y, job, seed) for seed in job["seeds"]]
    weights = {f"{k}_{layer}": W for k, (found, _) in enumerate(runs) for layer, W in enumerate(found, start=1)}
    np.savez(directory / "weights.npz", **weights)
    (directory / "run.json").write_text(json.dumps({"runs": [told for _, told in runs], "peak_mib": peak_mib()}))


def _solve(X: np.ndarray, Y: np.ndarray, job: dict, seed: int) -> tuple[list[np.ndarray], dict]:
    started, worked = time.perf_counter(), time.process_time()
    result = solve(X, Y, seed=seed, **job["question"], **job["options"])
    told = {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - worked,
        "status": str(result.status),
        "lower": result.lower,
        "certificate": str(result.certificate),
        "widths": result.widths,
        "history": [(line.seconds, line.cost) for line in result.history],
    }
    return [W.cpu().numpy() for W in result.weights], told


def _train(X: np.ndarray, Y: np.ndarray, job: dict) -> list[tuple[list[np.ndarray], dict]]:
    """All networks together; the seconds are those of the whole batch."""
    problem, started, worked = make_problem(X, Y, **job["question"]), time.perf_counter(), time.process_time()
    found = train(problem, job["width"], seeds=job["seeds"], budget=Budget(job["seconds"]))
    seconds, cpu = time.perf_counter() - started, time.process_time() - worked
    return [
        (
            [W.cpu().numpy() for W in network.weights],
            {
                "seconds": seconds,
                "cpu_seconds": cpu,
                "status": "converged" if network.converged else "time_limit",
                "widths": network.widths,
                "history": network.history.tolist(),
            },
        )
        for network in found.networks
    ]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
