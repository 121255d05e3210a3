"""Load a stored plateau, and check its files against its networks and its solve."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from numpy.typing import NDArray

from covopt.answer import check as runs, verify as checks
from covopt.answer.result import Result
from covopt.answer.stored import load as load_run
from covopt.answer.verify import evaluated, same, weights_of
from covopt.data.arrays import read_npz
from covopt.records import record
from covopt.records.record import Summary
from covopt.runtime.loop import Status
from covopt.studies.width.plateau import Plateau, Start
from covopt.studies.width.width_bounds import WidthBound
from covopt.studies.width.width_search import Point

UNCHECKED = ("start", "exact_start", "reasons", "bounds", "layer", "status", "seconds")
"""Entries of the summary that the files cannot prove."""


def load(directory: Path) -> Plateau:
    """Load a stored plateau; no file in it is trusted."""
    stated, result = record.read_object(directory / Plateau.file), load_run(directory / record.SOLUTION)
    networks, (_, *lines) = read_npz(directory / "networks.npz"), record.read_table(directory / "curve.csv")
    if networks.keys() - {f"n{width}_W{layer}" for width, *_ in lines for layer in range(1, result.problem.depth + 1)}:
        raise ValueError("networks of other widths than curve.csv lists")
    widths = [int(width) for width, *_ in lines]
    if widths != sorted(set(widths)):
        raise ValueError("widths in curve.csv that do not ascend")
    layer = None if stated["layer"] is None else int(stated["layer"])
    reasons = stated["reasons"]
    return Plateau(
        result=result,
        layer=layer,
        points=[_point(result, layer, width, networks, line[-1]) for width, line in zip(widths, lines, strict=True)],
        exact=_start(0.0, stated["exact_start"], reasons["0"], None),
        starts=[
            _start(float(eps), ends, reasons[eps], stated["estimate"][eps]) for eps, ends in stated["start"].items()
        ],
        bounds=[WidthBound(int(bound["width"]), str(bound["reason"])) for bound in stated["bounds"]],
        status=Status(stated["status"]),
        seconds=float(stated["seconds"]),
    )


def verify(directory: Path, s: Summary, rounding: float) -> checks.Verification:
    """Check the stored solve, and the curve against the stored networks."""
    solves = runs.inside(directory, [record.SOLUTION], rounding)
    return checks.of_study(directory, Plateau.file, s, solves, _complaints(directory, s, rounding), UNCHECKED)


def _complaints(directory: Path, stated: Summary, rounding: float) -> Iterator[str]:
    """Yield each contradiction between stated values, the networks and the bound."""
    answer = load(directory)
    yield from checks.differences(Plateau.file, stated, answer.summary(), rounding)
    yield from checks.crossed({"a network of the curve": answer.level}, {"its solution": answer.lower}, rounding)
    _, *lines = record.read_table(directory / "curve.csv")
    for (width, cost, lowest, _), point, (_, best) in zip(lines, answer.points, answer.curve, strict=True):
        if not (_agree(point.cost, float(cost), rounding) and _agree(best, float(lowest), rounding)):
            yield f"The stored network of width {width} does not cost what curve.csv states."
    for start in answer.starts:
        limit = (1.0 + start.eps) * answer.level
        widths_on_plateau = [point.width for point in answer.points if point.cost <= limit < math.inf]
        if start.estimate != min(widths_on_plateau, default=None):
            yield f"{Plateau.file} states another estimate at {start.eps:g} than its curve gives."
    for start in [*answer.starts, answer.exact]:
        if not 0 <= start.lower.width <= start.upper.width:
            yield f"{Plateau.file} states a start whose ends are the wrong way round."


def _point(result: Result, layer: int | None, width: int, networks: Mapping[str, NDArray], source: str) -> Point:
    """Return the stored network of a width; its cost is infinite if there is none, or if it does not fit as asked."""
    weights = weights_of(networks, f"n{width}_")
    if not weights:
        return Point(width, source, [])
    problem = result.problem.double()
    cost = evaluated(problem, weights)
    widths = [len(W) for W in weights[:-1]]
    if max(widths if layer is None else [widths[layer - 1]]) > width:
        raise ValueError(f"a network that is wider than {width}")
    return Point(width, source, weights, cost.total if problem.allows(cost.residual) else math.inf)


def _start(eps: float, ends: list[int], reasons: list[str], estimate: int | None) -> Start:
    """Return the start of the plateau from its two proved ends and their reasons."""
    lower, upper = (WidthBound(int(width), str(reason)) for width, reason in zip(ends, reasons, strict=True))
    return Start(eps, lower, upper, estimate)


def _agree(computed: float, stated: float, rounding: float) -> bool:
    """Return True if two costs are the same up to rounding, or both infinite."""
    return same(computed, stated, rounding) if math.isfinite(computed) else math.isinf(stated)
