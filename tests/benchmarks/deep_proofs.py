"""Networks of three layers: how much of the minimum is proved, and in what time.

The random sets have standard normal inputs and one standard normal output: two inputs without a bias, or one with it.
Those of the first repeat are the ones at which the bounds were worked out; with `--repeats 2` as many new ones
follow. A gap is that of the run's own network, whose cost NumPy evaluates.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import covopt
from tests.benchmarks.harness import Outcome, Settings, benchmark, rounded
from tests.benchmarks.objective import Array, objective

CASES = json.loads((Path(__file__).parents[1] / "cases" / "deep.json").read_text())["cases"]
COLUMNS = ("group", "set", "bias", "lam", "limit", "cost", "lower", "gap", "status", "certificate", "seconds")
NEW = 10_000  # between the seeds of one repeat and the next


@dataclass(frozen=True)
class Group:
    """Sets of one kind, and what is to be proved of them.

    Attributes:
        limit: seconds for each.
        wanted: relative gaps, and the part of the sets in which each is to be reached.
    """

    name: str
    limit: float
    wanted: tuple[tuple[float, float], ...]


GROUPS = (
    Group("N = 2 and 3", 5.0, ((0.01, 1.0), (0.001, 0.75))),
    Group("N = 4", 30.0, ((0.01, 0.9), (0.03, 1.0))),
    Group("N = 5", 60.0, ((0.05, 1.0), (0.01, 0.5))),
)
LOWEST = {
    "five-points": (60.0, 13.6),
    "sine-cosine-20": (60.0, 20.1),
    "circle-12": (60.0, 7.0),
    "digits 30, lam 0.01, bias 1": (20.0, 0.121),
    "digits 30, lam 0.01, bias 0": (20.0, 0.121),
    "digits 30, exact fit, bias 1": (20.0, 13.3),
}
"""Seconds, and the bound to be reached, of data sets with a name."""


def random_set(samples: int, bias: float, seed: int) -> tuple[Array, Array]:
    """Two inputs without a bias, one with it; one output."""
    rng = np.random.default_rng(1000 + seed if bias else seed)
    X = np.sort(rng.standard_normal((samples, 1)), axis=0) if bias else rng.standard_normal((samples, 2))
    return X, rng.standard_normal((samples, 1))


def sets_of(group: Group, first: int) -> Iterator[tuple[int, float, int]]:
    """Return samples, bias and seed of the sets of a group."""
    if group.name.startswith("N = 2"):
        yield from ((N, bias, first + k) for N in (2, 3) for bias in (0.0, 1.0) for k in range(10))
    elif group.name == "N = 4":
        yield from ((4, bias, first + k) for bias in (0.0, 1.0) for k in range(10))
    else:
        yield from ((5, bias, first + k) for bias in (0.0, 1.0) for k in range(4))


def named(name: str) -> tuple[Array, Array, float, float | None]:
    """Return X, Y, the bias and lam of a set with a name."""
    for case in CASES:
        if case["name"] == name:
            return np.array(case["X"], float), np.array(case["Y"], float), float(case["beta"]), None
    X, classes = load_digits(return_X_y=True)
    return X[:30] / 16.0, np.eye(10)[classes[:30]], float(name[-1]), 0.01 if "lam" in name else None


@benchmark("deep-proofs", "three layers: what is proved of small random sets and of sets with a name (25 min a repeat)")
def run(settings: Settings) -> Outcome:
    """All sets, and how many of each group are proved as far as they are to be."""
    rows, sentences, met = [], [], True
    for group in GROUPS:
        least = min(near for near, _ in group.wanted)
        for first in range(0, settings.repeats * NEW, NEW):
            sets = list(sets_of(group, first))[: 2 if settings.quick else None]
            solved = [
                _row(group.name, f"N {N}, seed {k}", *random_set(N, b, k), b, None, group.limit, settings, least)
                for N, b, k in sets
            ]
            for near, part in group.wanted:
                count = sum(row[7] <= near for row in solved)
                met = met and count >= part * len(solved)
                sentences.append(f"{group.name}, seeds from {first}: {count} of {len(solved)} within {near:.1%}")
            rows += solved
    for name, (limit, wanted) in LOWEST.items():
        X, Y, bias, lam = named(name)
        row = _row("with a name", name, X, Y, bias, lam, limit, settings, 0.01)
        met = met and row[6] >= wanted
        sentences.append(f"{name}: {row[6]:.5g} of {row[5]:.5g} proved, to reach {wanted:g}")
        rows.append(row)
    return Outcome(
        target="; ".join(
            f"{group.name}: {part:.0%} within {near:.1%} in {group.limit:g} s"
            for group in GROUPS
            for near, part in group.wanted
        )
        + "; of sets with a name at least the bounds of the table",
        reached="; ".join(sentences),
        met=met,
        columns=COLUMNS,
        rows=rows,
    )


def _row(
    group: str,
    name: str,
    X: Array,
    Y: Array,
    bias: float,
    lam: float | None,
    limit: float,
    settings: Settings,
    gap: float,
) -> list:
    """Solve one set; its cost is evaluated in NumPy."""
    loss = "interpolate" if lam is None else "mse"
    result = covopt.solve(X, Y, lam=lam, loss=loss, depth=3, bias=bias, gap=gap, time_limit=settings.limit(limit))
    cost = objective(X, Y, [W.numpy() for W in result.weights], lam=lam, beta=bias, slope=0.0).cost
    lower = result.lower or 0.0
    print(f"  {name}, bias {bias:g}: {lower:.6g} of {cost:.6g} in {result.seconds:.1f} s", file=sys.stderr, flush=True)
    numbers = [rounded(value, 8) for value in (cost, lower, (cost - lower) / cost)]
    ending = [str(result.status), str(result.certificate), rounded(result.seconds)]
    return [group, name, bias, lam, limit, *numbers, *ending]
