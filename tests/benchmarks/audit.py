"""Benchmarks of `validate`: networks that training cannot leave, and the way out of them."""

from __future__ import annotations

import time

import numpy as np

import covopt
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


AUDIT = {"stuck": Benchmark(run_stuck, "Prop. 19's local minima: which neuron is missing, and the way out (seconds)")}
