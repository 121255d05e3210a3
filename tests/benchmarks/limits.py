"""Benchmarks of time limits that hold."""

import itertools
import math
import sys
import time
from collections.abc import Iterator

import numpy as np
import torch
from sklearn.datasets import load_digits

from covopt.answer.solve import solve
from tests.benchmarks.harness import Outcome, Settings, benchmark, covopt, rounded, show
from tests.benchmarks.works import Work

LIMITS = (1.0, 10.0, 60.0)
LATE = 0.03, 0.5
"""How late a solve may end: the larger of this part of its time limit and of these seconds."""
START_LIMITS, STARTS, START_LATE = (0.5, 2.0), (1, 100, 10_000, 1_000_000), (0.05, 0.5)
"""Time limits, starts and lateness of the grid of starts."""


def limited() -> Iterator[tuple[Work, dict]]:
    """From one sample to 60,000, two layers and five, and each kind of proof; with the options of their solves."""
    pixels, classes = load_digits(return_X_y=True)
    X, Y = np.asarray(pixels) / 16.0, np.eye(10)[classes]
    rng = np.random.default_rng(0)
    wide = rng.standard_normal((60_000, 20))
    noisy = np.maximum(wide @ rng.standard_normal((20, 20)), 0.0) @ rng.standard_normal((20, 2)) / 20.0**0.5
    noisy += 0.3 * rng.standard_normal(noisy.shape)
    outputs = np.maximum(X[:200] @ rng.standard_normal((64, 40)), 0.0)
    for depth in (2, 5):
        yield Work(f"1 digit, L = {depth}", X[:1], Y[:1], 1e-2, 1.0, depth), {}
        yield Work(f"100 digits, L = {depth}", X[:100], Y[:100], 1e-3, 1.0, depth), {}
        yield Work(f"200 digits, 40 outputs, L = {depth}", X[:200], outputs, 1e-3, 1.0, depth), {}
        yield Work(f"1,797 digits, L = {depth}", X, Y, 1e-3, 1.0, depth), {}
        yield Work(f"60,000 samples, L = {depth}", wide, noisy, 1e-3, 1.0, depth), {}
    full = {"certify": "full"}
    yield Work("60,000 samples, L = 3", wide, noisy, 1e-3, 1.0, 3), {}
    yield Work("30 digits, a proof by signs", X[:30], Y[:30], 1e-2, 0.0, 2), full
    yield Work("60 digits, a proof by signs", X[:60], Y[:60], 1e-2, 0.0, 2), full
    yield Work("1,797 digits, a proof by groups", X, Y, 1e-3, 0.0, 2), full
    seven = rng.standard_normal((100, 7))
    target = np.maximum(seven @ rng.standard_normal((7, 5)), 0.0) @ rng.standard_normal((5, 1))
    yield Work("100 samples of 7 inputs, a proof by cones", seven, target, 1e-2, 0.0, 2), full
    four = rng.standard_normal((20_000, 4))
    yield Work("20,000 samples of 4 inputs, a proof by cones", four, np.abs(four[:, :1]), 1e-2, 0.0, 2), full


@benchmark("time-limits", "time limits of 1 to 60 s, 1 to 60,000 samples: how late (20 min)")
def run_time_limits(settings: Settings) -> Outcome:
    """One solve for each work and limit; the seconds are those that the caller waits, without imports."""
    rows, runs, punctual = [], [], 0
    for work, options in limited():
        for limit in LIMITS[:1] if settings.quick else LIMITS:
            (run,) = covopt(work, settings, [0], **options, time_limit=limit)
            late = run.seconds - limit
            kept = bool(late <= max(LATE[0] * limit, LATE[1]) and np.isfinite(run.cost))
            punctual += kept
            rows.append((work.name, limit, rounded(run.seconds), rounded(max(0.0, late)), run.status, run.cost, kept))
            runs.append(run)
            print(f"  {work.name}, {limit:g} s: {show(rounded(run.seconds))} s", file=sys.stderr, flush=True)
    return Outcome(
        target="ended at most 3 % or 0.5 s late, with a network, every one",
        reached=f"{punctual} of {len(rows)}",
        met=punctual == len(rows),
        columns=("work", "time limit", "seconds", "late", "status", "cost", "in time"),
        rows=rows,
        runs=runs,
    )


def _with_starts() -> Iterator[dict]:
    """The options of each solve: methods, kinds of proof, depths and starts; two layers by cones take no starts."""
    for depth in (2, 3, 5):
        for options in ({"certify": "auto"}, {"certify": "fast"}, {"method": "hidden"}, {"method": "train"}):
            if depth == 2 and "certify" in options:
                yield {"depth": depth, **options}
                continue
            for starts in STARTS:
                yield {"depth": depth, **options, "starts": starts}


@benchmark("start-limits", "time limits over 1 to 1,000,000 starts, methods, depths (4 min)")
def run_start_limits(settings: Settings) -> Outcome:
    """A solve for each limit and set of options, one after the other in this process."""
    rng, (pixels, classes) = np.random.default_rng(0), load_digits(return_X_y=True)
    problems = {
        "12 normal points": (rng.normal(size=(12, 4)), rng.normal(size=(12, 3))),
        "200 digits": (np.asarray(pixels)[:200] / 16.0, np.eye(10)[classes[:200]]),
    }
    torch.set_num_threads(settings.threads)
    rows = []
    for (name, (X, Y)), options in itertools.product(problems.items(), _with_starts()):
        for limit in START_LIMITS[:1] if settings.quick else START_LIMITS:
            began = time.perf_counter()
            found = solve(X, Y, lam=1e-2, time_limit=limit, **options)
            late = time.perf_counter() - began - limit
            kept = late <= max(START_LATE[0] * limit, START_LATE[1]) and math.isfinite(found.cost)
            method = options.get("method", f"cone, {options.get('certify')}")
            told = (method, options["depth"], options.get("starts"), limit)
            rows.append((name, *told, rounded(max(0.0, late)), str(found.status), found.cost, kept))
            print(f"  {name}, {told}: {late:+.2f} s", file=sys.stderr, flush=True)
    punctual, latest = sum(bool(row[-1]) for row in rows), max(row[5] for row in rows)
    return Outcome(
        target="ended at most 5 % or 0.5 s late, with a network, every one",
        reached=f"{punctual} of {len(rows)}, the latest by {latest:.2f} s",
        met=punctual == len(rows),
        columns=("work", "method", "depth", "starts", "time limit", "late", "status", "cost", "in time"),
        rows=rows,
    )
