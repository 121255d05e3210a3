"""Benchmarks of the plateau: data whose width is known, 30 digits, and the two panels of Figure 2."""

import sys
import time

import numpy as np

import covopt
from tests.adversary import Array, Question, drawn
from tests.benchmarks.harness import Outcome, Settings, benchmark, show
from tests.references.grams import bipartite_gram, gram_data

SETS, SMALL, TRAININGS = 50, 10.0, 8  # small sets, seconds for the plateau of each, trainings of each width
WORSE = 1e-3  # how far a point of a curve may be above the best training of its width, relative


@benchmark("plateau-known", "the plateau of data whose width is known")
def run_known_widths(settings: Settings) -> Outcome:
    """Proposition 14: B_N, whose exact start is N^2/4, and one-hot classes, one neuron each."""
    rows = []
    for N in (4, 6, 8):
        X, Y = gram_data(bipartite_gram(N // 2, N // 2))
        rows.append(_known(f"B_{N}", X, Y, float(N * N), N * N // 4, settings))
    for sizes in ((1, 2, 5), (3, 4, 6, 2), (1, 1, 2, 3, 5, 8)):
        Y = np.eye(len(sizes))[np.repeat(np.arange(len(sizes)), sizes)]
        rows.append(_known(f"one-hot {sizes}", np.eye(len(Y)), Y, 2.0 * np.sqrt(sizes).sum(), len(sizes), settings))
    return Outcome(
        target="the level certified to 1e-6, and the exact start proved from both sides",
        reached=f"{sum(row[-1] for row in rows)} of {len(rows)}",
        met=all(row[-1] for row in rows),
        columns=(
            *("data", "proved level", "R", "exact start", "known", "start 10 %", "start 1 %", "start 0.1 %"),
            *("seconds", "right"),
        ),
        rows=rows,
    )


def _known(name: str, X: np.ndarray, Y: np.ndarray, R: float, width: int, settings: Settings) -> tuple:
    found = covopt.plateau(X, Y, bias=0.0, gap=1e-8, time_limit=settings.limit(60.0))
    ends = found.exact.lower.width, found.exact.upper.width
    level = found.lower is not None and abs(found.lower - R) <= 1e-6 * R and abs(found.level - R) <= 1e-6 * R
    starts = [f"{s.lower.width} to {s.upper.width}" for s in found.starts]
    return (
        name, found.lower, R, f"{ends[0]} to {ends[1]}", width, *starts, found.seconds, level and ends == (width, width)
    )  # fmt: skip


@benchmark("plateau-digits", "the cost of 30 digits against the width")
def run_digits(settings: Settings) -> Outcome:
    """The curve of 30 digits: lam 1e-2, no bias."""
    digits = covopt.read_data("digits", rows=30, scale="max")
    limit = settings.limit(300.0)
    found = covopt.plateau(digits.X, digits.Y, lam=1e-2, bias=0.0, time_limit=limit)
    starts = [f"{s.eps:g}: {s.lower.width} to {s.upper.width}, best known {s.estimate}" for s in found.starts]
    return Outcome(
        target="the curve in five minutes",
        reached=f"level {found.level:.6f}; {'; '.join(starts)}; {show(found.seconds)} s",
        met=found.seconds <= 1.05 * limit,
        columns=("width", "cost", "above the level"),
        rows=found.rows(),
    )


@benchmark("plateau-small", "50 small sets: every point of a curve against eight trainings (10 min)")
def run_small_sets(settings: Settings) -> Outcome:
    """Fifty seeded sets: each point of the curve against short trainings by SciPy that take no more time than it."""
    rows = []
    for seed in range(1, (6 if settings.quick else SETS) + 1):
        kind, X, Y, options = small_set(seed)
        begun = time.process_time()
        found = covopt.plateau(X, Y, time_limit=settings.limit(SMALL), **options)
        took, rng, worst, at = time.process_time() - begun, np.random.default_rng(seed), 0.0, None
        begun = time.process_time()
        curve = [(n, cost) for n, cost in found.curve if n > 0]
        for turn, (width, cost) in enumerate(curve, start=1):
            best = np.inf
            for _ in range(TRAININGS):
                if time.process_time() - begun < took * turn / len(curve):
                    best = min(best, _trained(X, Y, width, rng, **options))
            if cost / best - 1.0 > worst:
                worst, at = cost / best - 1.0, width
        trained = time.process_time() - begun
        rows.append((seed, kind, len(X), len(curve), str(found.status), worst, at, took, trained, worst <= WORSE))
        print(f"  set {seed}, {kind}: {worst:.2e}", file=sys.stderr, flush=True)
    return Outcome(
        target=f"no point of a curve more than {WORSE:g} (relative) above the best of {TRAININGS} trainings there"
        " in the processor time that the curve took",
        reached=f"{sum(row[-1] for row in rows)} of {len(rows)} sets, worst {show(max(row[5] for row in rows))}",
        met=all(row[-1] for row in rows),
        columns=(
            *("set", "kind", "rows", "widths", "status", "worst", "at width", "processor seconds", "of the trainings"),
            "met",
        ),
        rows=rows,
    )


def small_set(seed: int) -> tuple[str, Array, Array, dict]:
    """Two to eight samples: one input, several inputs and outputs, depth 3, or classes; lam from 1e-4 to 1."""
    rng = np.random.default_rng(seed)
    N, kind = int(rng.integers(2, 9)), str(rng.choice(["one input", "several", "deep", "classes"]))
    options: dict = {"lam": 10.0 ** rng.uniform(-4, 0), "loss": "mse", "depth": 2}
    if kind == "one input":
        X = np.sort(rng.standard_normal((N, 1)), axis=0) if rng.random() < 0.6 else np.linspace(-1.0, 1.0, N)[:, None]
        return kind, X, rng.standard_normal((N, 1)) if rng.random() < 0.5 else np.abs(X), options
    if kind == "several":
        return kind, rng.standard_normal((N, 3)), rng.standard_normal((N, 3)), options
    X = rng.standard_normal((N, 2))
    if kind == "deep":
        return kind, X, rng.standard_normal((N, 1)), {**options, "depth": 3}
    return kind, X, np.eye(3)[rng.integers(0, 3, N)], {**options, "loss": "cross_entropy"}


def _trained(X: Array, Y: Array, width: int, rng: np.random.Generator, lam: float, loss: str, depth: int) -> float:
    """The objective after one training of all weights by SciPy's L-BFGS from a random start."""
    question = Question(X, Y, loss, lam, depth, 1.0, 0.0)
    start = drawn(rng, [X.shape[1], *[width] * (depth - 1), Y.shape[1]])
    size = rng.choice([0.1, 0.5, 1.0, 2.0])
    options = {"maxiter": 800, "maxfun": 1600, "ftol": 1e-15, "gtol": 1e-12}
    return question.cost(question.trained([size * W for W in start], **options))
