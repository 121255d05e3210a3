"""Answers that a change of the code's structure must not change: costs, bounds, widths, verdicts and JSON keys.

    python -m tests.benchmarks.frozen            compare with the stored answers
    python -m tests.benchmarks.frozen --store    store today's answers

Every problem is small, and counted effort ends it, never the clock, so the same seed gives the same answer on a fast
and on a busy machine. Each answer is saved, printed by `covopt show --json` and checked by `covopt verify`; the printed
JSON is what is compared. Numbers may differ by 1e-9 relative, everything else must be equal.
"""

import argparse
import contextlib
import io
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import torch
from joblib import Parallel, delayed

import covopt
from covopt.app.cli import main

STORED = Path(__file__).parent / "results" / "frozen.json"
TOLERANCE = 1e-9
NO_CLOCK = 1e7
"""Seconds of time limit: effort ends every solve long before."""
UNSTABLE_KEYS = {"seconds", "version", "timing", "machine", "commit", "started", "memory"}
"""Keys whose values depend on the machine and the day."""

RNG = np.random.default_rng(7)
X, Y = RNG.standard_normal((12, 3)), RNG.standard_normal((12, 2))
CLASSES = np.eye(3)[np.arange(12) % 3]
SIGNS = np.where(RNG.standard_normal(12) > 0, 1.0, -1.0)[:, None]
LINE, WAVE = np.linspace(-1.0, 1.0, 10)[:, None], np.sin(np.linspace(-3.0, 3.0, 10))[:, None]
PLANE, HEIGHT = RNG.standard_normal((10, 2)), RNG.standard_normal((10, 1))
FEW_X, FEW_Y = RNG.standard_normal((6, 4)), RNG.standard_normal((6, 3))
MANY_X = RNG.standard_normal((400, 6))
MANY_Y = np.maximum(MANY_X @ RNG.standard_normal((6, 4)), 0.0) @ RNG.standard_normal((4, 2))
WIDE_X = RNG.standard_normal((2100, 2000))  # so many entries that training begins with mini-batches
WEIGHTS = np.linspace(0.5, 2.0, 12)


def solved(inputs: Any, targets: Any, **options: Any) -> Callable[[], Any]:
    """Return a problem for `covopt.solve`, 6 iterations of it unless the options say otherwise."""
    return lambda: covopt.solve(inputs, targets, **({"time_limit": NO_CLOCK, "max_iterations": 6} | options))


def of(face: Callable[..., Any], *data: Any, **options: Any) -> Callable[[], Any]:
    """Return a problem for another public function, without a clock."""
    return lambda: face(*data, **({"time_limit": NO_CLOCK} | options))


def trained_network(seed: int = 0, depth: int = 2) -> list[np.ndarray]:
    """Weights of the shapes 3 -> 5 -> ... -> 2 that nobody has optimised."""
    rng, widths = np.random.default_rng(seed), [3, *[5] * (depth - 1), 2]
    return [0.5 * rng.standard_normal((m, n + 1)) for n, m in pairwise(widths)]


def graph_matrix(name: str) -> np.ndarray:
    """Return E^T E of a triangle-free graph: its cp-rank is the number of edges."""
    incidence = np.abs(nx.incidence_matrix(getattr(nx, name)()).toarray())
    return incidence @ incidence.T


SOLVES: dict[str, Callable[[], Any]] = {
    "mse": solved(X, Y, lam=1e-2),
    "mse without a bias": solved(X, Y, lam=3e-2, bias=0.0),
    "mse, fast": solved(X, Y, lam=1e-2, certify="fast"),
    "mse, full": solved(FEW_X, FEW_Y, lam=1e-2, certify="full", max_iterations=3),
    "mse, weighted samples": solved(X, Y, lam=1e-2, sample_weight=WEIGHTS),
    "mse, plane": solved(PLANE, HEIGHT, lam=1e-2),
    "mse, leaky": solved(X, Y, lam=1e-2, activation="leaky:0.3"),
    "mse, linear": solved(X, Y, lam=1e-2, activation="linear"),
    "mse, large lam": solved(X, Y, lam=10.0),
    "mse, tiny scale": solved(1e-40 * X, 1e-40 * Y, lam=1e-42),
    "mse, 400 samples": solved(MANY_X, MANY_Y, lam=1e-2, max_iterations=2, certify="none"),
    "mse, mini-batches": solved(WIDE_X, WIDE_X[:, :2], lam=1e-2, max_iterations=1, certify="none"),
    "training": solved(X, Y, lam=1e-2, method="train", width=8, starts=3),
    "hidden representations": solved(X, Y, lam=1e-2, method="hidden", width=8, starts=2),
    "exact fit, line": solved(LINE, WAVE),
    "exact fit, plane, no bias": solved(PLANE, HEIGHT, bias=0.0),
    "exact fit": solved(FEW_X, FEW_Y),
    "exact fit, identity": solved(np.eye(5), np.abs(RNG.standard_normal((5, 2))), bias=0.0),
    "cross-entropy": solved(X, CLASSES, lam=1e-2, loss="cross_entropy"),
    "logistic": solved(X, SIGNS, lam=1e-2, loss="logistic"),
    "huber": solved(X, Y, lam=1e-2, loss="huber:0.5"),
    "free bias": solved(X, Y, lam=1e-2, bias="free"),
    "free bias and skip": solved(X, Y, lam=1e-2, bias="free", skip=True),
    "free bias, exact fit": solved(LINE, WAVE, bias="free"),
    "free bias, logistic": solved(PLANE, SIGNS[:10], lam=1e-2, loss="logistic", bias="free"),
    "depth 3": solved(X, Y, lam=1e-2, depth=3, starts=2, max_iterations=1),
    "depth 3, exact fit": solved(FEW_X, FEW_Y, depth=3, starts=2, max_iterations=1),
    "depth 4, cross-entropy": solved(X, CLASSES, lam=1e-3, loss="cross_entropy", depth=4, starts=2, max_iterations=1),
    "depth 5, no bias": solved(FEW_X, FEW_Y, lam=1e-2, depth=5, bias=0.0, starts=2, max_iterations=1),
    "depth 3, linear": solved(FEW_X, FEW_X[:, :2], depth=3, activation="linear", bias=0.0, starts=2, max_iterations=1),
    "depth 3, training": solved(X, Y, lam=1e-2, depth=3, method="train", width=6, starts=2),
    "depth 3, at most 3 neurons": solved(X, Y, lam=1e-2, depth=3, max_width=3, starts=2, max_iterations=1),
}
STUDIES: dict[str, Callable[[], Any]] = {
    "plateau": of(covopt.plateau, PLANE, HEIGHT, lam=3e-2, starts=4),
    "plateau, exact fit": of(covopt.plateau, LINE[:7], WAVE[:7], starts=4),
    "plateau, depth 3": of(covopt.plateau, LINE[:5], WAVE[:5], lam=0.1, depth=3, starts=2, widths=[1, 2, 3]),
    "depth": of(covopt.depth, LINE[:4], WAVE[:4], depths=[2, 3, 4]),
    "path": of(covopt.path, X, Y, points=4, ratio=1e-2, max_iterations=4, test=(X[::-1], Y)),
    "path, cross-entropy": of(covopt.path, PLANE, CLASSES[:10], loss="cross_entropy", points=3, ratio=0.1),
    "path, free bias": of(covopt.path, LINE, WAVE, bias="free", points=3, ratio=0.1, folds=2),
    "ranks": of(
        covopt.ranks, LINE[:5], WAVE[:5], lam=1e-2, batch_size=4, rate=0.05, steps=60, width=6, seeds=1, reference=1e6
    ),
    "validate": of(covopt.validate, trained_network(), X, Y, lam=1e-2, function=True),
    "validate, depth 3": of(covopt.validate, trained_network(depth=3), X[:5], Y[:5], lam=1e-2, function=True),
    "compare": of(covopt.compare, FEW_X, FEW_Y, lam=0.1, width=6, starts=2),
    "cp-rank, triangle-free": of(covopt.cp_rank, graph_matrix("petersen_graph")),
    "cp-rank, dense": of(covopt.cp_rank, FEW_X @ FEW_X.T + 6.0),
    "sigma rank": of(covopt.sigma_rank, LINE @ LINE.T, np.maximum(LINE, 0.0) @ np.maximum(LINE, 0.0).T),
    "copositivity": of(covopt.copositivity, np.array([[1.0, -1, 1], [-1, 1, -1], [1, -1, 1.5]])),
}
PROBLEMS = SOLVES | STUDIES


def printed(answer: Any) -> dict[str, Any]:
    """Return what `covopt show --json` prints of a saved answer, and the exit code of `covopt verify`."""
    if not hasattr(answer, "save"):
        return {key: plain(value) for key, value in vars(answer).items()}
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        answer.save(run)
        code, output = command("show", str(run), "--json")
        assert code == 0, output
        return {"json": json.loads(output), "verify": command("verify", str(run))[0]}


def plain(value: Any) -> Any:
    """Return a value as JSON holds it."""
    if isinstance(value, np.ndarray | torch.Tensor):
        return np.asarray(value).tolist()
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def command(*arguments: str) -> tuple[int, str]:
    """Run a command line in this process; return its exit code and what it printed."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
        try:
            main(arguments)
        except SystemExit as ended:
            return int(ended.code or 0), output.getvalue()
    return 0, output.getvalue()


def answered(name: str) -> tuple[str, dict[str, Any], float]:
    """Answer one problem; return its name, what is printed, and the seconds that it took."""
    started = time.perf_counter()
    try:
        answer = printed(PROBLEMS[name]())
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    return name, answer, time.perf_counter() - started


def flat(value: Any, place: str = "") -> dict[str, Any]:
    """Return the leaves of nested JSON by their place, without what depends on the machine."""
    if isinstance(value, Mapping) and place.endswith(".files"):  # names and digests, which hold times
        parts = {f"{place}.{name}": True for name in value}
    elif isinstance(value, Mapping):
        parts = {f"{place}.{key}": entry for key, entry in value.items() if key not in UNSTABLE_KEYS}
    elif isinstance(value, list):
        parts = {f"{place}[{index}]": entry for index, entry in enumerate(value)}
    else:
        return {place: value}
    return {key: leaf for name, entry in parts.items() for key, leaf in flat(entry, name).items()}


def equal(mine: Any, theirs: Any) -> bool:
    """True if two leaves agree, numbers within the tolerance."""
    numbers = all(isinstance(leaf, int | float) and not isinstance(leaf, bool) for leaf in (mine, theirs))
    return math.isclose(mine, theirs, rel_tol=TOLERANCE, abs_tol=1e-300) if numbers else mine == theirs


def differences(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Return a line for each leaf that two answers do not share."""
    new, old = flat(mine), flat(theirs)
    missing = object()
    pairs = {place: (old.get(place, missing), new.get(place, missing)) for place in old | new}
    lines = []
    for place, (before, after) in pairs.items():
        if before is missing or after is missing:
            lines.append(f"  {place.lstrip('.')}: {'new' if before is missing else 'gone'}")
        elif not equal(after, before):
            lines.append(f"  {place.lstrip('.')}: {before!r} before, {after!r} now")
    return lines


def run() -> int:
    """Read the options, answer the problems, and store or compare; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.frozen", description=__doc__)
    parser.add_argument("names", nargs="*", help="only problems whose name contains one of these")
    parser.add_argument("--store", action="store_true", help="store the answers instead of comparing them")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    options = parser.parse_args()
    names = [name for name in PROBLEMS if not options.names or any(part in name for part in options.names)]
    answers, changed = {}, 0
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    for name, answer, seconds in Parallel(options.jobs, return_as="generator")(delayed(answered)(n) for n in names):
        lines = [] if options.store else differences(answer, stored.get(name, {}))
        print(f"{name}: {'stored' if options.store else 'changed' if lines else 'equal'} ({seconds:.1f} s)", flush=True)
        print("".join(f"{line}\n" for line in lines[:40]), end="")
        answers[name], changed = answer, changed + bool(lines)
    if options.store:
        STORED.write_text(json.dumps(stored | answers, indent=1, sort_keys=True) + "\n")
    print(f"{len(names)} problems, {changed} changed")
    return int(changed > 0)


if __name__ == "__main__":
    sys.exit(run())
