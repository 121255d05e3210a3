"""Benchmarks of time limits that hold, and of trees that use several cores."""

import functools
import itertools
import math
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from sklearn.datasets import load_digits

from covopt.answer.solve import solve
from covopt.certify.cones.branch import branch_and_bound
from covopt.certify.relaxation.ground import make_ground
from covopt.certify.relaxation.signs import SignBranch
from covopt.model.problem import Problem
from covopt.runtime.loop import Budget
from tests.benchmarks import works
from tests.benchmarks.harness import Outcome, Settings, benchmark, covopt, rounded, show
from tests.benchmarks.works import Work

LIMITS = (1.0, 10.0, 60.0)
LONGEST = 600.0  # for one row of each depth: more would take hours
TURNS, GROWING = 3, 20.0  # of each tree with one core and with two; seconds of each
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
    """All works, with limits from a second to a minute."""
    return _limits(settings, LIMITS[:1] if settings.quick else LIMITS, lambda name, options: True)


@benchmark("long-limits", "time limits of 600 s: how late (80 min)")
def run_long_limits(settings: Settings) -> Outcome:
    """One work of each depth, and each kind of proof, with ten minutes."""

    def long(name: str, options: dict) -> bool:
        return bool(options) or name in ("1,797 digits, L = 2", "1,797 digits, L = 5")

    return _limits(settings, (settings.limit(LONGEST),), long)


def _limits(settings: Settings, limits: tuple[float, ...], chosen: Callable[[str, dict], bool]) -> Outcome:
    """One solve for each work and limit; the seconds are those that the caller waits, without imports."""
    rows, runs, punctual = [], [], 0
    for work, options in limited():
        for limit in limits if chosen(work.name, options) else ():
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
    works = {
        "12 normal points": (rng.normal(size=(12, 4)), rng.normal(size=(12, 3))),
        "200 digits": (np.asarray(pixels)[:200] / 16.0, np.eye(10)[classes[:200]]),
    }
    torch.set_num_threads(settings.threads)
    rows = []
    for (name, (X, Y)), options in itertools.product(works.items(), _with_starts()):
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


def _cones(problem: Problem, Lambda: torch.Tensor, seconds: float) -> tuple[int, float]:
    """Cones bounded in so many seconds, and what they prove."""
    found = branch_and_bound(problem.Xt, problem.activation, Lambda, target=1.0, time_limit=seconds)
    return len(found.tree), found.upper_bound


def _signs(problem: Problem, Lambda: torch.Tensor, seconds: float) -> tuple[int, float]:
    """Nodes of the tree of signs after so many seconds, and what they prove."""
    ground = make_ground(problem.Xt, problem.activation)
    tree = SignBranch(ground, Lambda)
    tree.grow(0.0, Budget(seconds))
    return tree.nodes, tree.maximum * ground.size


def _at_a_dual_point(work: Work) -> tuple[Problem, torch.Tensor]:
    """The problem, and the dual point of the network that three rounds find."""
    found = solve(work.X, work.Y, lam=work.lam, bias=work.beta, certify="none", max_iterations=3)
    problem = found.problem.double()
    outputs = torch.as_tensor(found.predict(work.X)).reshape(problem.Y.shape)
    return problem, problem.gradient_at(outputs) / (-2.0 * problem.lam)


@benchmark("proof-cores", "nodes of both trees with one core and with two (4 min)")
def run_proof_cores(settings: Settings) -> Outcome:
    """Both trees with one core and with two in turns; the medians of what they have after the same time.

    The processor seconds say how much of two cores the machine gave: beside other work a wall clock shows little.
    """
    rows, gains, before = [], [], torch.get_num_threads()
    trees = (("cones, 7 inputs", _cones, works.teacher(0, 7)), ("signs, 30 digits", _signs, works.digits(30, 1e-2)))
    for name, made, work in trees:
        grow = functools.partial(made, *_at_a_dual_point(work))
        grow(1.0)  # loads what it needs
        rates: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(1 if settings.quick else TURNS):
            for threads in (1, 2):
                torch.set_num_threads(threads)
                began, busy = time.perf_counter(), _busy()
                nodes, bound = grow(settings.limit(GROWING))
                took, (here, there) = time.perf_counter() - began, np.subtract(_busy(), busy)
                rates[threads].append(nodes / took)
                told = (nodes, rounded(took), rounded(here), rounded(there), rounded(nodes / took), bound - 1.0)
                rows.append((name, threads, *told))
                print(f"  {name}, {threads}: {nodes} in {took:.1f} s", file=sys.stderr, flush=True)
        gains.append(statistics.median(rates[2]) / statistics.median(rates[1]))
    torch.set_num_threads(before)
    return Outcome(
        target="1.7 times the nodes in 20 s with two cores, both trees, the start of the helper included",
        reached=" and ".join(f"{gain:.2f}" for gain in gains) + " times",
        met=min(gains) >= 1.7,
        columns=("tree", "cores", "nodes", "seconds", "here", "in helpers", "nodes a second", "bound - 1"),
        rows=rows,
    )


def _busy() -> tuple[float, float]:
    """Processor seconds of this process, and of those of its children that have ended."""
    here, there = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return here.ru_utime + here.ru_stime, there.ru_utime + there.ru_stime
