"""covopt and the optimisers of today on problems that a generator draws, so that nobody can have tuned to them.

`--seed` is the seed of the first problem. The stored figures begin with 100: what the first twelve showed was mended.
"""

import math
import statistics

import numpy as np

from tests.benchmarks.harness import Outcome, Run, Settings, benchmark, repeated
from tests.benchmarks.objective import Array
from tests.benchmarks.rivals import EQUAL, FIRST, Entry, cost_at, settings_of
from tests.benchmarks.works import Work

NUMBER, SECONDS = 12, 10.0
TIMES = (FIRST, 1.0, 2.0, 4.0, SECONDS)
RIVALS: tuple[Entry, ...] = (
    ("lbfgs", {"width": 60}),
    *settings_of("one-cycle", (60, 1e-2), (60, 5e-2)),
    *settings_of("muon", (60, 3e-2)),
    *settings_of("soap", (60, 1e-2), (60, 5e-2)),
    *settings_of("schedule-free", (60, 3e-2)),
)


def drawn(seed: int) -> Work:
    """Inputs, targets, loss, lam, bias and depth by chance: 50 to 5,000 rows, 2 to 100 inputs, 2 to 6 layers."""
    rng = np.random.default_rng([seed, 2026])
    rows, inputs = (round(math.exp(rng.uniform(math.log(low), math.log(high)))) for low, high in ((50, 5000), (2, 100)))
    outputs, depth = int(rng.choice([1, 3, 10])), int(rng.choice([2, 3, 3, 4, 6]))
    lam, beta = float(f"{10.0 ** rng.uniform(-4.5, -1.5):.1g}"), float(rng.choice([0.0, 1.0, 1.0]))
    X = _inputs(rng, rows, inputs)
    kind = str(rng.choice(["teacher", "smooth", "waves", "noise", "classes"]))
    Y, loss = _targets(rng, kind, X, outputs), None
    if kind == "classes":
        loss = "logistic" if outputs == 1 else "cross_entropy"
    elif rng.random() < 0.2:
        loss = "huber"
    return Work(f"{kind}-{seed}", X, Y, lam, beta, depth, loss)


def _inputs(rng: np.random.Generator, rows: int, inputs: int) -> Array:
    """Normal, uniform, or normal on a subspace of a third of the dimensions with noise; deviation 1 about."""
    kind = rng.choice(["normal", "uniform", "subspace"])
    if kind == "uniform":
        return rng.uniform(-math.sqrt(3.0), math.sqrt(3.0), (rows, inputs))
    X = rng.standard_normal((rows, inputs))
    if kind == "normal":
        return X
    rank = max(1, inputs // 3)
    basis = np.linalg.qr(rng.standard_normal((inputs, rank)))[0]
    return math.sqrt(inputs / rank) * (X @ basis) @ basis.T + 0.1 * rng.standard_normal((rows, inputs))


def _targets(rng: np.random.Generator, kind: str, X: Array, outputs: int) -> Array:
    """Of mean 0 and deviation 1, or classes: one-hot, and -1 and 1 for one output."""
    hidden = X @ rng.standard_normal((X.shape[1], 8)) / math.sqrt(X.shape[1])
    if kind == "teacher":
        Y = np.maximum(hidden, 0.0) @ rng.standard_normal((8, outputs))
    elif kind == "smooth":
        Y = np.tanh(hidden) @ rng.standard_normal((8, outputs))
    elif kind == "waves":
        Y = np.sin(2.0 * hidden[:, :2]) @ rng.standard_normal((2, outputs))
    elif kind == "noise":
        Y = rng.standard_normal((len(X), outputs))
    else:
        scores = np.maximum(hidden, 0.0) @ rng.standard_normal((8, max(outputs, 2)))
        scores = (scores - np.mean(scores, axis=0)) / np.std(scores, axis=0) + 0.3 * rng.standard_normal(scores.shape)
        Y = np.eye(scores.shape[1])[np.argmax(scores, axis=1)]
        return Y if outputs > 1 else 2.0 * Y[:, :1] - 1.0
    return (Y - np.mean(Y, axis=0)) / np.std(Y, axis=0)


@benchmark(
    "rivals-drawn", f"covopt beside today's optimisers on {NUMBER} problems drawn by chance ({SECONDS:g} s each)"
)
def run_drawn(settings: Settings) -> Outcome:
    """Each problem with each contender, one after another."""
    seconds, rivals = settings.limit(SECONDS), RIVALS[: 1 if settings.quick else None]
    rows, runs = [], []
    for seed in range(settings.seed, settings.seed + (2 if settings.quick else NUMBER)):
        work = drawn(seed)
        raced = [
            repeated(f"rival-{name}", work, settings, (0,), seconds=seconds, **o)[0]
            for name, o in (("covopt", {}), *rivals)
        ]
        rows.append(_row(work, raced, seconds))
        runs += raced
    shares = [part for row in rows for part in row[7 : 7 + len(TIMES)]]
    lowest, late = sum(part <= 100.0 * EQUAL for part in shares), sum(map(math.isinf, shares))
    worst = max(filter(math.isfinite, shares), default=math.inf)
    early = f", no network yet at {late}" if late else ""
    return Outcome(
        target=f"covopt lowest on every problem at {', '.join(f'{t:g}' for t in TIMES)} s",
        reached=f"lowest at {lowest} of {len(shares)} pairs of a problem and a time; beside the best rival: "
        f"median {statistics.median(shares):+.2g} %, at worst {worst:+.3g} %{early}",
        met=lowest == len(shares),
        columns=(
            "problem",
            "rows",
            "inputs",
            "outputs",
            "layers",
            "loss",
            "lam",
            *(f"% above at {t:g} s" for t in TIMES),
            "best rival",
            "cost",
        ),
        rows=rows,
        runs=runs,
    )


def _row(work: Work, raced: list[Run], seconds: float) -> list[object]:
    """The problem, and by how many percent covopt is above the best rival at each time."""
    ours, theirs = raced[0], raced[1:]
    best = min(theirs, key=lambda run: run.cost if run.error is None else math.inf)
    above = []
    for t in TIMES:
        rival = min(cost_at(run, min(t, seconds)) for run in theirs)
        above.append(100.0 * (cost_at(ours, min(t, seconds)) / rival - 1.0) if math.isfinite(rival) else -100.0)
    told = (work.name, *work.X.shape, work.Y.shape[1], work.depth, work.loss or "mse", work.lam)
    return [*told, *(round(part, 3) for part in above), best.contender.removeprefix("rival-"), ours.cost]
