"""Networks of three layers: is the network that is found in 5 s within 1 % of the best of 60 s?

The sets are random ones of `deep-proofs`: 40 of two and three samples, 20 of four, 40 of five. A proof that nothing is
lower by more than 1 % takes the place of the longer solve.
"""

import sys

import numpy as np

import covopt
from tests.benchmarks.deep_proofs import random_set
from tests.benchmarks.harness import Outcome, Settings, benchmark, rounded
from tests.benchmarks.objective import objective

COLUMNS = ("samples", "bias", "seed", "cost", "best", "above", "how")
SETS = [
    (samples, bias, seed)
    for samples, seeds in ((2, 10), (3, 10), (4, 10), (5, 20))
    for bias in (0.0, 1.0)
    for seed in range(seeds)
]
SHORT, LONG, NEAR, PART = 5.0, 60.0, 0.01, 0.95


@benchmark("deep-search", "three layers: the cost after 5 s against the best of 60 s, 100 small random sets (25 min)")
def run(settings: Settings) -> Outcome:
    """All sets, and how many are within 1 %."""
    rows = [_row(*which, settings) for which in (SETS[:4] if settings.quick else SETS)]
    near = sum(row[5] <= NEAR for row in rows)
    proved, worst = sum(row[6] == "proved" for row in rows), max(row[5] for row in rows)
    return Outcome(
        target=f"the cost after {SHORT:g} s at most {NEAR:.0%} above that of {LONG:g} s on {PART:.0%} of the sets",
        reached=f"{near} of {len(rows)}, {proved} of them by a proof; the worst {worst:.2%} above",
        met=near >= PART * len(rows),
        columns=COLUMNS,
        rows=rows,
    )


def _row(samples: int, bias: float, seed: int, settings: Settings) -> list:
    """Solve one set once, and once more with more time if the first solve has proved too little."""
    X, Y = random_set(samples, bias, seed)

    def solved(limit: float) -> tuple[float, float]:
        result = covopt.solve(X, Y, depth=3, bias=bias, gap=NEAR, time_limit=settings.limit(limit))
        weights = [np.asarray(W) for W in result.weights]
        return objective(X, Y, weights, lam=None, beta=bias, slope=0.0).cost, result.lower or 0.0

    cost, lower = solved(SHORT)
    proved = cost <= (1.0 + NEAR) * lower
    best = lower if proved else min(cost, solved(LONG)[0])
    above = cost / best - 1.0
    how = "proved" if proved else f"against {LONG:g} s"
    print(f"  N {samples}, bias {bias:g}, seed {seed}: {above:.3%} above, {how}", file=sys.stderr, flush=True)
    return [samples, bias, seed, *(rounded(value, 8) for value in (cost, best, above)), how]
