"""One run of one contender in a process of its own: `python -m tests.benchmarks.contender DIRECTORY`.

The directory holds job.json and data.npz; weights.npz and run.json come to lie beside them. The clock starts after the
imports, and stops when the weights are there. The peak memory is that of this process, interpreter and torch included.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

import numpy as np
import torch

import covopt
from covopt.answer.solve import solve
from tests.benchmarks.trainer import TrainerOptions, train, warm_up


def main(directory: Path) -> None:
    """Run the job and write what came of it."""
    job = json.loads((directory / "job.json").read_text())
    torch.set_num_threads(job["threads"])
    with np.load(directory / "data.npz") as data:
        X, Y = data["X"], data["Y"]
    if job["contender"] == "trainer":
        warm_up()
    started, worked = time.perf_counter(), time.process_time()
    weights, told = _CONTENDERS[job["contender"]](X, Y, job)
    told |= {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - worked}
    told["peak_mib"] = peak_mib()
    if torch.cuda.is_initialized():
        told["device_mib"] = torch.cuda.max_memory_allocated() / 2**20
    np.savez(directory / "weights.npz", W1=weights[0], W2=weights[1])
    (directory / "run.json").write_text(json.dumps(told))


def peak_mib() -> float:
    """Most memory that this process has held; Linux's getrusage would count what it was forked from as well."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def _covopt(X: np.ndarray, Y: np.ndarray, job: dict) -> tuple[list[np.ndarray], dict]:
    result = solve(X, Y, lam=job["lam"], bias=job["beta"], activation=job["activation"], **job["options"])
    told = {
        "lower": result.lower,
        "certificate": str(result.certificate),
        "status": str(result.status),
        "width": result.widths[0],
        "version": covopt.__version__,
        "history": [(line.seconds, line.cost) for line in result.history],
    }
    return [W.cpu().numpy() for W in result.weights], told


def _trainer(X: np.ndarray, Y: np.ndarray, job: dict) -> tuple[list[np.ndarray], dict]:
    options = dict(job["options"])
    seconds, seed = options.pop("seconds"), options.pop("seed")
    training = train(
        X, Y, lam=job["lam"], beta=job["beta"], seconds=seconds, seed=seed, options=TrainerOptions(**options)
    )
    told = {"width": len(training.weights[0]), "history": training.history, "starts": training.starts}
    return training.weights, told


_CONTENDERS = {"covopt": _covopt, "trainer": _trainer}

if __name__ == "__main__":
    main(Path(sys.argv[1]))
