"""Benchmarks of `validate`: networks that training cannot leave, and the way out of them."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import covopt
from tests.benchmarks import machine, works
from tests.benchmarks.harness import Benchmark, Outcome, Settings, rounded, show
from tests.benchmarks.objective import objective

STRENGTHS = (0.01, 0.1, 0.3, 0.6, 0.9)  # of the penalty in the paper's scaling, |F - Y|^2 + lam |W|^2


def run_stuck(settings: Settings) -> Outcome:
    """[JGHG22, Prop. 19]: a local minimum in the weights only; our loss is half of theirs at lam / 2."""
    X, Y, rows = np.array([[1.0], [-1.0]]), np.ones((2, 1)), []
    for lam in STRENGTHS:
        a = (1.0 - lam) ** 0.5 * np.array([0.6, 0.8])
        weights = [np.column_stack([a, np.zeros(2)]), np.append(a, 0.0)[None]]
        begun = time.perf_counter()
        audit = covopt.validate(weights, X, Y, lam=lam / 2.0, bias=0.0, time_limit=settings.limit(20.0))
        seconds = time.perf_counter() - begun
        escape = audit.layers[0].escape
        value, direction = (np.nan, np.nan) if escape is None else (escape.value, float(escape.direction[0]))
        left = weights if audit.escape is None else [W.numpy() for W in audit.escape]
        before, after = (
            2.0 * objective(X, Y, each, lam=lam / 2.0, beta=0.0, slope=0.0).cost for each in (weights, left)
        )
        off = after / (4.0 * lam - 2.0 * lam**2) - 1.0
        named = abs(direction + 1.0) < 1e-9 and abs(value * lam - 1.0) < 1e-9 and "direction (-1, 0)" in audit.verdict
        good = named and abs(off) <= 1e-6 and abs(before - (1.0 + 2.0 * lam - lam**2)) < 1e-12
        rows.append((lam, before, value, direction, after, off, rounded(seconds), bool(good)))
    return Outcome(
        target="the missing neuron w = -1 is named, with h = 1 / lam, and the loss falls from 1 + 2 lam - lam^2 to 4 "
        "lam - 2 lam^2, to 1e-6",
        reached=f"{sum(row[-1] for row in rows)} of {len(rows)}; worst distance "
        f"{show(max(abs(row[5]) for row in rows))}, slowest {show(max(row[6] or 0.0 for row in rows))} s",
        met=all(row[-1] for row in rows),
        columns=("lam", "stuck at", "h", "direction", "escaped to", "off", "seconds", "met"),
        rows=rows,
        runs=[],
    )


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


def run_audit_many(settings: Settings) -> Outcome:
    """`covopt validate` on 784 inputs, 512 neurons and 10 outputs: seconds from the shell, and the peak."""
    mixture = works.mixture(2000 if settings.quick else settings.rows)
    with tempfile.TemporaryDirectory() as name:
        data, net, told = (Path(name) / file for file in ("mixture.npz", "net.pt", "status"))
        np.savez(data, X=mixture.X, Y=mixture.Y)
        torch.save(_trained(mixture, settings.limit(TRAINING)).state_dict(), net)
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
        runs=[],
    )


def _trained(work: works.Work, seconds: float) -> torch.nn.Module:
    """By Adam on batches of 512, the penalty in the loss."""
    torch.manual_seed(0)
    X, Y = torch.from_numpy(work.X).float(), torch.from_numpy(work.Y).float()
    layers = torch.nn.Linear(X.shape[1], WIDTH, bias=False), torch.nn.Linear(WIDTH, Y.shape[1], bias=False)
    net = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1])
    adam, began = torch.optim.Adam(net.parameters(), lr=1e-3), time.perf_counter()
    while time.perf_counter() - began < seconds:
        batch = torch.randint(len(X), (512,))
        norm = torch.stack([p.square().sum() for p in net.parameters()]).sum()
        loss = (net(X[batch]) - Y[batch]).square().sum(dim=1).mean() + LAM * norm
        adam.zero_grad()
        loss.backward()
        adam.step()
    return net


AUDIT = {
    "audit-many": Benchmark(
        run_audit_many, "validate on 60,000 samples of 784 inputs: time and memory (2 min); --rows"
    ),
    "stuck": Benchmark(run_stuck, "Prop. 19's local minima: which neuron is missing, and the way out (seconds)"),
}
