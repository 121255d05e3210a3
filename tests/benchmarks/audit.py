"""A benchmark of `validate` on many samples."""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from tests.benchmarks import machine, works
from tests.benchmarks.harness import Outcome, Settings, benchmark, show
from tests.benchmarks.spread import adam_on_batches

LAM, WIDTH, TRAINING = 1e-4, 512, 60.0
"""Of the network that is audited, and the seconds that it is trained for."""
LIMIT, MOST, MEMORY = 50.0, 60.0, 2e9
COMMAND = """
import atexit, pathlib, sys
from covopt.app.cli import main
status = pathlib.Path("/proc/self/status")
atexit.register(lambda: pathlib.Path(sys.argv[1]).write_text(status.read_text()))
main(sys.argv[2:])
"""
"""covopt's command line, which leaves what Linux knows of the process at its end."""


@benchmark("audit-many", "validate on 60,000 samples of 784 inputs: time and memory (2 min); --rows")
def run_audit_many(settings: Settings) -> Outcome:
    """`covopt validate` on 784 inputs, 512 neurons and 10 outputs: seconds from the shell, and the peak."""
    mixture = works.mixture(2000 if settings.quick else settings.rows)
    with tempfile.TemporaryDirectory() as name:
        data, net, told = (Path(name) / file for file in ("mixture.npz", "net.pt", "status"))
        np.savez(data, X=mixture.X, Y=mixture.Y)
        trained = {"width": WIDTH, "lam": LAM, "seconds": settings.limit(TRAINING), "rate": 1e-3, "bias": False}
        torch.save(adam_on_batches(mixture.X, mixture.Y, **trained).state_dict(), net)
        words = [str(told), "validate", str(data), "--net", str(net), "--lam", str(LAM), "--bias", "0", "--json"]
        words += ["--time-limit", str(settings.limit(LIMIT))]
        del mixture
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        run = [sys.executable, "-c", COMMAND, *words]
        out = subprocess.run(run, cwd=machine.ROOT, capture_output=True, text=True, check=True).stdout
        seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        peak = next(line for line in told.read_text().splitlines() if line.startswith("VmHWM"))
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    memory, verdict = 1024.0 * float(peak.split()[1]), json.loads(out)["verdict"]
    return Outcome(
        target=f"784-{WIDTH}-10 on {settings.rows} rows, time limit {LIMIT:g} s: {MOST:g} s from the shell, and"
        f" {MEMORY / 1e9:g} GB",
        reached=f"{show(seconds)} s ({show(processor)} s of the processor), {memory / 1e9:.3g} GB",
        met=None if settings.quick else seconds <= MOST and memory <= MEMORY,
        columns=("seconds", "processor (s)", "GB", "verdict"),
        rows=[(seconds, processor, memory / 1e9, verdict)],
    )
