"""The deep benchmarks: solves against trainings of the same time, and exact values at any depth."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from tests.benchmarks import machine
from tests.benchmarks.harness import Benchmark, Outcome, Run, Settings, show
from tests.benchmarks.objective import Array, deep_objective

WIDTH, TRAININGS, SOLVES = 40, 20, 10
TOGETHER = 180.0  # seconds that the trainings take together at most; they end earlier when all stand still
LOWEST_KNOWN = 45.514  # of the one-hot identity at depth 5: MATH, section 7


@dataclass(frozen=True)
class DeepWork:
    """A problem of any depth; `lam` None asks for the representation cost, `value` is what it is known to be."""

    name: str
    X: Array
    Y: Array
    lam: float | None
    beta: float
    depth: int
    loss: str | None = None
    activation: str = "relu"
    value: float | None = None

    @property
    def question(self) -> dict:
        """The options of `covopt.solve` that ask it."""
        asked = {"lam": self.lam, "bias": self.beta, "depth": self.depth, "activation": self.activation}
        return asked | ({} if self.loss is None else {"loss": self.loss})


def races() -> Iterator[DeepWork]:
    """Five data sets of two to four layers."""
    pixels, classes = load_digits(return_X_y=True)
    X, Y = np.asarray(pixels)[:30] / 16.0, np.eye(10)[classes[:30]]
    yield DeepWork("digits-30, L = 3, beta 1", X, Y, 1e-2, 1.0, 3)
    yield DeepWork("digits-30, L = 4, beta 0", X, Y, 1e-2, 0.0, 4)
    x = np.linspace(-1.0, 1.0, 20)
    waves = np.column_stack([np.sin(np.pi * x), np.cos(np.pi * x)])
    yield DeepWork("sine and cosine, L = 3", x[:, None], waves, 1e-3, 1.0, 3)
    yield teacher()
    yield DeepWork("digits-30, cross-entropy, L = 2", X, Y, 1e-3, 1.0, 2, "cross_entropy")
    yield DeepWork("digits-30, cross-entropy, L = 3", X, Y, 1e-3, 1.0, 3, "cross_entropy")


def teacher() -> DeepWork:
    """50 normal points in 5 dimensions, and a ReLU network of widths (5, 5), its output of deviation 1."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 5))
    A, B, v = rng.standard_normal((5, 5)), rng.standard_normal((5, 5)), rng.standard_normal((5, 1))
    F = np.maximum(np.maximum(X @ A.T, 0.0) @ B.T, 0.0) @ v
    return DeepWork("depth-3 teacher, N = 50", X, F / F.std(), 1e-3, 1.0, 3)


def exact_values() -> Iterator[DeepWork]:
    """Closed forms at depth 3 to 5: linear networks, and non-negative scalar targets on X = I."""
    rng = np.random.default_rng(1)
    X, A = rng.standard_normal((8, 4)), rng.standard_normal((4, 3))
    y = np.abs(rng.standard_normal((5, 1)))
    s = np.linalg.svd(A, compute_uv=False)
    for depth in (3, 4, 5):
        value = float(depth * np.sum(s ** (2.0 / depth)))
        yield DeepWork(f"linear network, L = {depth}", X, X @ A, None, 0.0, depth, activation="linear", value=value)
        value = float(depth * np.linalg.norm(y) ** (2.0 / depth))
        yield DeepWork(f"X = I, scalar y >= 0, L = {depth}", np.eye(5), y, None, 0.0, depth, value=value)


def run_deep_races(settings: Settings) -> Outcome:
    """The median of ten solves, each of a tenth of the time, against the best of twenty trainings."""
    rows, runs, won = [], [], 0
    trainings, solves = (3, 2) if settings.quick else (TRAININGS, SOLVES)
    for work in races():
        job = {"contender": "trainings", "width": WIDTH, "seeds": trainings, "seconds": settings.limit(TOGETHER)}
        theirs = spawn(work, job, settings)
        share = theirs[0].seconds / solves
        options = {"time_limit": share, "certify": "none", "gap": 1e-6}
        ours = spawn(work, {"contender": "covopt", "seeds": list(range(solves)), "options": options}, settings)
        median, best = statistics.median(run.cost for run in ours), min(run.cost for run in theirs)
        worst = max(run.cost for run in ours)
        won += median <= best
        seconds = statistics.median(run.seconds for run in ours)
        middle = statistics.median(run.cost for run in theirs)
        rows.append((work.name, median, worst, best, middle, median <= best, round(seconds, 1), round(share, 1)))
        print(f"  {work.name}: {show(median)} against {show(best)}", file=sys.stderr, flush=True)
        runs += ours + theirs
    return Outcome(
        target="the median of 10 solves, each given a tenth of the time of 20 trainings of width 40 together,"
        " at or below the best of the 20, on every one",
        reached=f"{won} of {len(rows)}",
        met=won == len(rows),
        columns=("work", "median", "worst", "best training", "median training", "won", "seconds", "tenth"),
        rows=rows,
        runs=runs,
    )


def run_deep_exact(settings: Settings) -> Outcome:
    """Linear networks and scalar targets on X = I."""
    rows, runs, worst = [], [], 0.0
    for work in exact_values():
        options = {"time_limit": settings.limit(60), "starts": 24, "certify": "none"}
        run = spawn(work, {"contender": "covopt", "seeds": [0], "options": options}, settings)[0]
        off = abs(run.cost - work.value) / work.value if work.value else math.nan
        worst = max(worst, off) if math.isfinite(off) else math.inf
        rows.append((work.name, run.cost, work.value, off, run.residual, round(run.seconds, 1)))
        runs.append(run)
    return Outcome(
        target="linear networks of any depth, scalar non-negative targets on X = I: exact to 1e-6",
        reached=f"{len(rows)} cases, worst {show(worst)}",
        met=worst <= 1e-6,
        columns=("case", "cost", "value", "off", "misfit", "seconds"),
        rows=rows,
        runs=runs,
    )


def run_deep_identity(settings: Settings) -> Outcome:
    """One-hot Y = X = I_10 at depth 5 without bias: is the low-rank network found?"""
    work = DeepWork("one-hot, X = I_10, L = 5", np.eye(10), np.eye(10), None, 0.0, 5)
    seeds = list(range(1 if settings.quick else 5))
    options = {"time_limit": settings.limit(60), "certify": "none"}
    runs = spawn(work, {"contender": "covopt", "seeds": seeds, "options": options}, settings)
    worst = max(run.cost for run in runs)
    return Outcome(
        target=f"at or below {LOWEST_KNOWN}, where the class-orthogonal network costs 50",
        reached=f"{show(min(run.cost for run in runs))} at best, {show(worst)} at worst of {len(runs)} seeds",
        met=worst <= LOWEST_KNOWN,
        columns=("seed", "cost", "misfit", "seconds", "status"),
        rows=[(run.seed, run.cost, run.residual, round(run.seconds, 1), run.status) for run in runs],
        runs=runs,
    )


def spawn(work: DeepWork, job: dict, settings: Settings) -> list[Run]:
    """Run the job in a process of its own, and judge its networks."""
    job = job | {"question": work.question, "threads": settings.threads}
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        np.savez(directory / "data.npz", X=work.X, Y=work.Y)
        (directory / "job.json").write_text(json.dumps(job))
        subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.deep_contender", str(directory)],
            cwd=machine.ROOT,
            env=os.environ | dict.fromkeys(names, str(settings.threads)),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        told = json.loads((directory / "run.json").read_text())
        with np.load(directory / "weights.npz") as archive:
            networks = [[archive[f"{k}_{i}"] for i in range(1, work.depth + 1)] for k in range(len(told["runs"]))]
    return [_judged(work, job, seed, *each, told["peak_mib"]) for seed, each in enumerate(_pairs(networks, told))]


def _pairs(networks: list[list[Array]], told: dict) -> list[tuple[list[Array], dict]]:
    return list(zip(networks, told["runs"], strict=True))


def _judged(work: DeepWork, job: dict, seed: int, weights: list[Array], told: dict, peak: float) -> Run:
    run = Run(job["contender"], work.name, seed, job.get("options", {}), peak_mib=peak)
    run.seconds, run.cpu_seconds, run.status = told["seconds"], told["cpu_seconds"], told["status"]
    run.history, run.width = told["history"], max(told["widths"])
    slope = {"relu": 0.0, "linear": 1.0}[work.activation]
    loss = work.loss or "mse"
    value = deep_objective(work.X, work.Y, weights, lam=work.lam, beta=work.beta, slope=slope, loss=loss)
    run.cost, run.fit, run.norm, run.residual = value.cost, value.fit, value.norm, value.residual
    return run


DEEP = {
    "deep-races": Benchmark(run_deep_races, "depth 2 to 4: ten solves against twenty trainings of the same time"),
    "deep-exact": Benchmark(run_deep_exact, "exact values at depth 3 to 5"),
    "deep-identity": Benchmark(run_deep_identity, "one-hot identity at depth 5: the low-rank network"),
}
