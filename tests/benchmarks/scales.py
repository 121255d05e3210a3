"""Random problems at scales from 1e-16 to 1e16, every depth and loss with a gradient, against L-BFGS of the same time.

The rival is SciPy's L-BFGS-B from as many random starts as fit in the time, on the weights alone, of the objective in
tests/adversary.py, which shares nothing with covopt. By the way the benchmark notes tracebacks, hangs, runs that end
late, and bounds above a network's cost.
"""

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

import covopt
from tests.adversary import Question, drawn
from tests.benchmarks.harness import Outcome, Settings, benchmark

WORSE = 1.01  # times the rival's cost: what counts as worse
LATE = (1.05, 0.5)  # a run may take so many times its limit, or so many seconds more
NEVER = 60.0  # seconds beyond its limit after which a run counts as endless
FLOOR = 1e-15  # of the loss of zero outputs: costs below it are rounding, and are not compared
KINDS = ("gauss", "int", "bin", "repeat", "collinear", "zero", "near", "rank", "rows", "columns", "scale", "twice")

Matrix = NDArray[np.float64]


def case(seed: int) -> tuple[Question, str]:
    """A small problem, its data degenerate or far from 1 more often than not, and what makes it special."""
    rng = np.random.default_rng(seed)
    N, d, m = int(rng.integers(1, 8)), int(rng.integers(1, 6)), int(rng.choice([1, 1, 1, 2, 3]))
    depth, kind = int(rng.choice([2, 2, 2, 3, 4, 6])), str(rng.choice(KINDS))
    X = _inputs(rng, N, d, kind)
    loss = str(rng.choice(["mse", "mse", "cross_entropy"]))
    slope = float(rng.choice([0.0, 0.0, 0.0, 0.01, 0.5, -0.5, 1.0]))
    beta = float(rng.choice([0.0, 1.0, 1.0, 1.0, 1e-3, 1e3]))
    lam = float(10.0 ** rng.choice([-12, -9, -6, -4, -3, -2, -1, 0, 3]))
    targets = str(rng.choice(["gauss", "bin", "const", "big", "tiny"]))
    if loss == "cross_entropy":
        m, targets = max(2, m), "classes"
        Y = np.eye(m)[rng.integers(0, m, N)]
    else:
        Y = rng.standard_normal((N, m)) if targets != "bin" else rng.integers(0, 2, (N, m)).astype(float)
        Y = np.ones((N, m)) if targets == "const" else Y
        Y *= 10.0 ** {"big": rng.uniform(0, 8), "tiny": rng.uniform(-8, 0)}.get(targets, 0.0)
    says = f"{seed}: {N} x {d} {kind}, {m} {targets}, {loss} {lam:.0e}, depth {depth}, bias {beta:g}, slope {slope:g}"
    return Question(X, Y, loss, lam, depth, beta, slope), says


def _inputs(rng: np.random.Generator, N: int, d: int, kind: str) -> Matrix:
    X, one = rng.standard_normal((N, d)), rng.integers(N)
    other = (one + 1) % N
    if kind == "int":
        return rng.integers(-2, 3, (N, d)).astype(float)
    if kind == "bin":
        return rng.integers(0, 2, (N, d)).astype(float)
    if kind == "repeat":
        X[one] = X[other]
    elif kind == "collinear":
        X = np.outer(rng.standard_normal(N), rng.standard_normal(d))
    elif kind == "zero":
        X[one] = 0.0
    elif kind == "near":
        X[one] = X[other] + 10.0 ** rng.uniform(-16, -4) * rng.standard_normal(d)
    elif kind == "rank":
        X = np.outer(rng.standard_normal(N), rng.standard_normal(d)) + 10.0 ** rng.uniform(-14, -5) * X
    elif kind == "rows":
        X *= 10.0 ** rng.uniform(-8, 8, (N, 1))
    elif kind == "columns":
        X *= 10.0 ** rng.uniform(-8, 8, (1, d))
    elif kind == "scale":
        X *= 10.0 ** rng.uniform(-8, 8)
    elif kind == "twice":
        X[:, 0] = X[:, -1] * rng.choice([1, -1, 2])
    return X


def rival(question: Question, seconds: float, seed: int) -> float:
    """The lowest cost that L-BFGS finds in the time from random starts of many sizes; zero weights are one of them."""
    rng, until = np.random.default_rng(seed), time.perf_counter() + seconds
    width = min(10, 2 * len(question.X) + 2)
    widths = [question.X.shape[1], *[width] * (question.depth - 1), question.Y.shape[1]]
    best = question.cost([0.0 * W for W in drawn(np.random.default_rng(0), widths)])
    inputs, targets = max(1e-30, float(np.abs(question.X).max())), max(1e-30, float(np.abs(question.Y).max()))
    fitting = (targets / max(inputs, 1e-3 * question.beta)) ** (1.0 / question.depth)
    options = {"maxiter": 3000, "maxfun": 6000, "ftol": 1e-15, "gtol": 1e-300}
    with contextlib.suppress(TimeoutError):
        while True:
            size = fitting * rng.choice([0.1, 0.3, 1.0, 2.0])
            start = [size * W for W in drawn(rng, widths)]
            best = min(best, question.cost(question.trained(start, until, **options)))
    return best


@dataclass(frozen=True)
class Found:
    """What came of one solve.

    Attributes:
        says: of the case.
        flaws: refused, traceback, endless, late, false bound, or worse, with the numbers.
    """

    says: str
    flaws: dict[str, str]


def attempt(question: Question, says: str, limit: float, seed: int) -> Found:
    """One solve, and L-BFGS for as long."""
    begun = time.perf_counter()
    try:
        with _at_most(limit + NEVER):
            result = covopt.solve(question.X, question.Y, time_limit=limit, seed=seed, **question.options)
    except covopt.CovoptError as error:
        return Found(says, {"refused": str(error)})
    except TimeoutError:
        return Found(says, {"endless": f"{limit + NEVER:g} s"})
    except Exception as error:  # whatever comes, it is what is counted
        return Found(says, {"traceback": f"{type(error).__name__}: {error}"})
    took, flaws = time.perf_counter() - begun, {}
    if took > max(LATE[0] * limit, limit + LATE[1]):
        flaws["late"] = f"{took:.1f} s"
    cost = question.cost([W.numpy() for W in result.weights])
    with np.errstate(all="ignore"):
        best = rival(question, limit, seed)
    floor = FLOOR * question.cost([np.zeros_like(W.numpy()) for W in result.weights])
    if result.lower is not None and not result.lower <= min(cost, best) * (1.0 + 1e-9) + floor:
        flaws["false bound"] = f"{result.lower:.6g} above {min(cost, best):.6g}"
    if not cost <= WORSE * best + floor:
        flaws["worse"] = f"{cost:.6g}, L-BFGS {best:.6g}, {result.status}"
        if result.status.value in ("converged", "optimal"):
            flaws["worse and converged"] = flaws["worse"]
    return Found(says, flaws)


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block after so many seconds."""

    def ring(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


FLAWS = ("refused", "traceback", "endless", "late", "false bound", "worse", "worse and converged")


@benchmark("scales", "--number random problems of all scales, --limits seconds each, against L-BFGS")
def run_scales(settings: Settings) -> Outcome:
    """`--number` problems with each of the limits, from `--seed` on, no problem twice."""
    torch.set_num_threads(settings.threads)
    covopt.solve([[1.0]], [[1.0]], lam=0.1, time_limit=1.0)  # what is imported late is imported now
    rows, met, first = [], True, settings.seed
    for limit, number in zip(settings.limits, settings.number, strict=True):
        found, seeds = [], range(first, first + number)
        first += number
        for seed in seeds:
            found.append(attempt(*case(seed), limit, seed))
            for name, says in found[-1].flaws.items():
                print(f"{limit:g} s, {name}: {says}  [{found[-1].says}]", file=sys.stderr, flush=True)
        counts = [sum(name in each.flaws for each in found) for name in FLAWS]
        met = met and not any(counts[1:])
        rows.append((limit, len(found), *counts))
    return Outcome(
        target="no traceback, no endless or late run, no false bound, none above L-BFGS of the same time by 1 %",
        reached="; ".join(f"{row[0]:g} s: {row[-2]} of {row[1]} above it, {row[-1]} of them converged" for row in rows),
        met=met,
        columns=("limit", "problems", *FLAWS),
        rows=rows,
    )
