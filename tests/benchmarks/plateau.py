"""Benchmarks of the plateau: data whose width is known, 30 digits, and the two panels of Figure 2."""

from __future__ import annotations

import time

import numpy as np

import covopt
from covopt.certify.graphs import bipartite_gram, gram_data
from covopt.study.figure2 import figure2
from tests.benchmarks.harness import Benchmark, Outcome, Settings, show

PANEL = 240.0  # seconds for each panel of Figure 2


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
        runs=[],
    )


def _known(name: str, X: np.ndarray, Y: np.ndarray, R: float, width: int, settings: Settings) -> tuple:
    found = covopt.plateau(X, Y, bias=0.0, gap=1e-8, time_limit=settings.limit(60.0))
    ends = found.exact.lower.width, found.exact.upper.width
    level = found.lower is not None and abs(found.lower - R) <= 1e-6 * R and abs(found.level - R) <= 1e-6 * R
    starts = [f"{s.lower.width} to {s.upper.width}" for s in found.starts]
    return (
        name, found.lower, R, f"{ends[0]} to {ends[1]}", width, *starts, found.seconds, level and ends == (width, width)
    )  # fmt: skip


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
        runs=[],
    )


def run_figure2(settings: Settings) -> Outcome:
    """Both panels, 20 widths and three trials of each."""
    rows, used = [], []
    for panel in ("digits", "teacher"):
        begun, worked = time.perf_counter(), time.process_time()
        found = figure2(panel, time_limit=settings.limit(PANEL))
        used.append((time.perf_counter() - begun, time.process_time() - worked))
        for lam in found.strengths:
            starts = [found.start(lam, eps) for eps in (0.1, 0.01, 0.001)]
            rows.append((panel, lam, len(found.trials), found.level(lam), *starts, str(found.status), *used[-1]))
    wall, cpu = (sum(column) for column in zip(*used, strict=True))
    return Outcome(
        target="both panels in 30 minutes on two cores",
        reached=f"{wall / 60:.1f} minutes of wall time, {cpu / 60:.1f} of processor time",
        met=wall <= 1800.0,
        columns=(
            *("panel", "lam", "networks", "level", "start 10 %", "start 1 %", "start 0.1 %", "status"),
            *("seconds", "processor seconds"),
        ),
        rows=rows,
        runs=[],
    )


PLATEAU = {
    "plateau-known": Benchmark(run_known_widths, "the plateau of data whose width is known"),
    "plateau-digits": Benchmark(run_digits, "the cost of 30 digits against the width"),
    "figure2": Benchmark(run_figure2, "Figure 2 of the paper: both panels, 20 widths, three trials"),
}
