"""The convex-concave search: thousands of ascents in a batch against one `scipy.optimize.lsq_linear` for each step."""

import statistics

import numpy as np
import torch
from scipy.optimize import lsq_linear

from covopt.answer.solve import solve
from covopt.model.activation import Activation
from covopt.oracles.oracle import oracle_values
from covopt.oracles.search import AscentOptions, ConvexConcaveOracle
from tests.benchmarks import works
from tests.benchmarks.harness import Outcome, Settings, benchmark
from tests.benchmarks.kernels import now
from tests.benchmarks.objective import Array

TARGET = 20.0
STEPS, INNER, GAIN = 100, 300, 1e-7  # an ascent ends when a step gains less than GAIN, relative


@benchmark("oracle", "4,096 ascents on 200 digits against scipy's lsq_linear (3 min)")
def run_oracle(settings: Settings) -> Outcome:
    """Random starts on 200 digits, at the dual point that the solver reaches."""
    torch.set_num_threads(settings.threads)
    work = works.digits(200, 1e-3)
    result = solve(work.X, work.Y, lam=work.lam, bias=work.beta, time_limit=settings.limit(20), certify="none")
    Lambda = (work.Y - np.asarray(result.predict(work.X))) / (len(work.X) * work.lam)  # type: ignore[operator]
    count, few = (256, 2) if settings.quick else (4096, 8)
    starts = np.random.default_rng(0).standard_normal((count, work.X.shape[1]))
    turns, rates, means = 2 if settings.quick else 3, {"ours": [], "scipy": []}, []
    for turn in range(turns):
        begun = now(settings.device)
        values = _ours(work.X, Lambda, starts, settings.device)
        rates["ours"].append(count / (now(settings.device) - begun))
        chosen = slice(turn * few, (turn + 1) * few)
        begun = now(settings.device)
        theirs = [_one_by_one(work.X, Lambda, w) for w in starts[chosen]]
        rates["scipy"].append(few / (now(settings.device) - begun))
        means.append((float(np.mean(values[chosen])), float(np.mean([h for h, _ in theirs]))))
    ours, theirs = (statistics.median(rates[name]) for name in ("ours", "scipy"))
    mean = [float(np.mean([pair[i] for pair in means])) for i in range(2)]
    rows = [
        ("covopt", count, round(ours, 1), mean[0], float(np.max(values))),
        ("lsq_linear", turns * few, round(theirs, 2), mean[1], None),
    ]
    return Outcome(
        target=f"4,096 ascents to convergence: {TARGET:.0f} times the throughput of one scipy lsq_linear a step",
        reached=f"{ours / theirs:.0f} times, {ours:.0f} ascents a second; mean value on the same {turns * few} starts "
        f"{mean[0]:.4f} against {mean[1]:.4f}",
        met=None if settings.quick else ours >= TARGET * theirs and mean[0] >= 0.995 * mean[1],
        columns=("contender", "ascents", "a second", "mean value, same starts", "best value"),
        rows=rows,
    )


def _ours(X: Array, Lambda: Array, starts: Array, device: str) -> Array:
    """The values that all ascents end at."""
    Xt, dual, W = (torch.from_numpy(A).to(device) for A in (X, Lambda, starts))
    search = ConvexConcaveOracle(Xt, Activation(), AscentOptions(steps=STEPS, box_steps=INNER, gain=GAIN))
    directions, _ = search.ascend(dual, W)
    return oracle_values(Xt, Activation(), dual, directions).cpu().numpy()


def _one_by_one(X: Array, Lambda: Array, w: Array) -> tuple[float, int]:
    """One ascent as one writes it down: the value that it ends at, and its steps."""
    w = w / np.linalg.norm(w)
    h = float(np.linalg.norm(Lambda.T @ np.maximum(X @ w, 0.0)))
    for step in range(1, STEPS + 1):
        if h == 0.0:  # nothing to ascend from; ours ends there as well
            return h, step
        z = X @ w
        u = Lambda.T @ np.maximum(z, 0.0)
        a = Lambda @ (u / np.linalg.norm(u))
        g = X.T @ np.where((a > 0) & (z > 0), a, 0.0)
        concave = a < 0
        found = lsq_linear(X[concave].T, g, bounds=(0.0, -a[concave]))
        w = g - X[concave].T @ found.x
        w = w / np.linalg.norm(w)
        before, h = h, float(np.linalg.norm(Lambda.T @ np.maximum(X @ w, 0.0)))
        if h - before <= GAIN * before:
            return max(h, before), step
    return h, STEPS
