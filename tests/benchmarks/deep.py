"""The deep benchmarks: solves against trainings of the same time, and the network of low rank."""

import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_digits

from tests.benchmarks import harness
from tests.benchmarks.harness import Outcome, Run, Settings, benchmark, show
from tests.benchmarks.objective import Array, objective

WIDTH, TRAININGS, SOLVES = 40, 20, 10
TOGETHER = 180.0  # seconds that the trainings take together at most; they end earlier when all stand still
LOWEST_KNOWN = 45.514  # of the one-hot identity at depth 5: MATH, section 7


@dataclass(frozen=True)
class DeepWork:
    """A problem of any depth; `lam` None asks for the representation cost."""

    name: str
    X: Array
    Y: Array
    lam: float | None
    beta: float
    depth: int
    loss: str | None = None
    activation: str = "relu"

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


@benchmark("deep-races", "depth 2 to 4: ten solves against twenty trainings of the same time")
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


@benchmark("deep-identity", "one-hot identity at depth 5: the low-rank network")
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
    told, weights = harness.spawn(job, work.X, work.Y, None, "deep_contender")
    networks = [[weights[f"{k}_{i}"] for i in range(1, work.depth + 1)] for k in range(len(told["runs"]))]
    pairs = zip(networks, told["runs"], strict=True)
    return [_judged(work, job, seed, *pair, told["peak_mib"]) for seed, pair in enumerate(pairs)]


def _judged(work: DeepWork, job: dict, seed: int, weights: list[Array], told: dict, peak: float) -> Run:
    run = Run(job["contender"], work.name, seed, job.get("options", {}), peak_mib=peak)
    run.seconds, run.cpu_seconds, run.status = told["seconds"], told["cpu_seconds"], told["status"]
    run.history, run.width = told["history"], max(told["widths"])
    slope = {"relu": 0.0, "linear": 1.0}[work.activation]
    loss = work.loss or "mse"
    run.judge(objective(work.X, work.Y, weights, lam=work.lam, beta=work.beta, slope=slope, loss=loss))
    return run
