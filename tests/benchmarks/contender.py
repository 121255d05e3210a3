"""One run of one contender in a process of its own: `python -m tests.benchmarks.contender DIRECTORY`.

The clock starts after the imports, and stops when the weights are there. The peak memory is that of this process,
interpreter and torch included.
"""

import numpy as np
import torch

import covopt
from covopt.answer.solve import solve
from tests.benchmarks.job import Stopwatch, peak_mib, run_job
from tests.benchmarks.trainer import TrainerOptions, train, warm_up


def run(X: np.ndarray, Y: np.ndarray, job: dict) -> tuple[dict[str, np.ndarray], dict]:
    """Run the contender that the job names."""
    torch.set_num_threads(job["threads"])
    if job["contender"] == "trainer":
        warm_up()
    watch = Stopwatch()
    weights, told = _CONTENDERS[job["contender"]](X, Y, job)
    told |= watch.told() | {"peak_mib": peak_mib()}
    if torch.cuda.is_initialized():
        told["device_mib"] = torch.cuda.max_memory_allocated() / 2**20
    return {"W1": weights[0], "W2": weights[1]}, told


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
    run_job(run)
