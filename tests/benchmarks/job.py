"""The job of a contender in a process of its own, and what comes of it; NumPy alone, for any environment.

The directory holds job.json and data.npz; weights.npz and run.json come to lie beside them.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

Contender = Callable[[np.ndarray, np.ndarray, dict], Sequence[tuple[Sequence[np.ndarray], dict]]]
"""From inputs, targets and the job to its runs: the weights, and what is told of each run beside them."""


def run_job(contender: Contender) -> None:
    """Run the job in the directory that the command line names, and write what came of it."""
    directory = Path(sys.argv[1])
    with np.load(directory / "data.npz") as data:
        X, Y = data["X"], data["Y"]
    runs = contender(X, Y, json.loads((directory / "job.json").read_text()))
    arrays = {f"{k}_{layer}": W for k, (weights, _) in enumerate(runs) for layer, W in enumerate(weights, start=1)}
    np.savez(directory / "weights.npz", **arrays)
    (directory / "run.json").write_text(json.dumps([told | {"peak_mib": peak_mib()} for _, told in runs]))


class Stopwatch:
    """Seconds of the clock and of the processor since it was made."""

    def __init__(self) -> None:
        self._started, self._worked = time.perf_counter(), time.process_time()

    def told(self) -> dict[str, float]:
        """As a run is told of."""
        return {"seconds": time.perf_counter() - self._started, "cpu_seconds": time.process_time() - self._worked}


def peak_mib() -> float:
    """Most memory that this process has held; Linux's getrusage would count what it was forked from as well."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
