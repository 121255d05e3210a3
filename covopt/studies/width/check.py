"""Check the summary of a plateau or comparison against the runs and networks in it."""

from __future__ import annotations

import csv
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from covopt.answer import questions
from covopt.answer.check import SAME
from covopt.answer.result import Result
from covopt.answer.stated import equal, evaluated, same, weights_of
from covopt.data.arrays import read_npz
from covopt.records import record
from covopt.records.storing import FILES
from covopt.studies.width.width_search import widths_at

Summary = Mapping[str, Any]
Sentences = Iterator[str]

# Entries that nothing in the files of each kind proves.
PLATEAU = ("start", "exact_start", "reasons", "bounds", "layer", "status", "seconds")
COMPARISON = ("why a method cannot solve the problem",)


def plateau(s: Summary, directory: Path, solution: Summary, result: Result, rounding: float) -> Sentences:
    """Check the curve against the networks, its level, and the bound of the solver's run."""
    question = ("depth", "bias", "loss", "lam", "activation", "data", "scale", "rows", "seed", "version")
    for name in (*question, "lower", "certificate"):
        if not equal(s[name], solution[name]):
            yield f"plateau.json and its solution state different values of {name}."
    if not equal(s.get("weighted", False), solution.get("weighted", False)):
        yield "plateau.json and its solution state different values of weighted."
    with (directory / "curve.csv").open(newline="", encoding="utf-8") as stream:
        lines = [(int(row["width"]), float(row["cost"])) for row in csv.DictReader(stream)]
    costs = _costs(result, directory)
    for width, cost in lines:
        if math.isfinite(cost) and not (width in costs and same(costs[width], cost, rounding)):
            yield f"The stored network of width {width} does not cost what curve.csv states."
    lowest = [record.known(float(cost)) for cost in np.minimum.accumulate([cost for _, cost in lines])]
    if [point["cost"] for point in s["curve"]] != lowest:
        yield "plateau.json states another curve than curve.csv."
    layer = s["layer"]
    widths = [n if layer is None else widths_at(result.widths, layer, n) for n, _ in lines]
    if not equal([point["width"] for point in s["curve"]], widths):
        yield "plateau.json and curve.csv state different widths."
    level = min((cost for _, cost in lines), default=math.inf)
    if s["level"] != record.known(level):
        yield "plateau.json states a level that is not the lowest of its curve."
    yield from _gap("plateau.json", s["level"], s["lower"], s["gap"])
    if not s["estimate"].keys() == s["start"].keys() == s["reasons"].keys() - {"0"}:
        yield "plateau.json states starts, estimates and reasons for different eps."
    for eps, width in s["estimate"].items():
        near = [n for n, cost in lines if cost <= (1.0 + float(eps)) * level < math.inf]
        if not equal(width, min(near, default=None)):
            yield f"plateau.json states another estimate at {eps} than its curve gives."
    for ends in [*s["start"].values(), s["exact_start"]]:
        if not 0 <= ends[0] <= ends[1]:
            yield "plateau.json states a start whose ends are the wrong way round."


def comparison(s: Summary, directory: Path, names: Sequence[str], rounding: float) -> Sentences:
    """Check each method's entry against its run, the best of them, and the highest bound."""
    yield from questions.others(questions.asked(directory, names))
    runs: dict[str, dict[str, Any]] = {name: {**record.read_summary(directory / name)} for name in names}
    costs = {name: run["cost"] for name, run in runs.items() if run["cost"] is not None}
    yield from questions.crossed(costs, {name: run["lower"] for name, run in runs.items()}, rounding)
    entries = {m["method"]: m for m in s["methods"] if m.keys() != {"method", "reason"}}
    if entries.keys() != runs.keys() or len({m["method"] for m in s["methods"]}) < len(s["methods"]):
        yield "comparison.json and its directories hold different methods."
        return
    for name, run in runs.items():
        entry = entries[name]
        stored = {key: value for key, value in run.items() if key not in (FILES, "starts")}
        different = [key for key, value in stored.items() if not equal(entry.get(key, ...), value)]
        if different:
            yield f"comparison.json and the run {name} state different values of {different[0]}."
        if not equal(entry["starts"], run["starts"] or [run["cost"]]):
            yield f"comparison.json and the run {name} state different starts."
        starts = [math.nan if cost is None else cost for cost in entry["starts"]]
        if entry["median"] != record.known(statistics.median(starts) if starts else math.nan):
            yield f"comparison.json states a median of {name} that is not that of its starts."
    lines = [[name, *row] for name in entries for row in _rows(directory / name / record.HISTORY)]
    if _rows(directory / record.HISTORY) != lines:
        yield "history.csv of the comparison holds other lines than those of its runs."
    run_costs = {name: run["cost"] for name, run in runs.items() if run["cost"] is not None}
    if s["best"] != min(run_costs.values(), default=None) or (run_costs and run_costs.get(s["method"]) != s["best"]):
        yield "comparison.json names another best network than its runs."
    if s["lower"] != max((run["lower"] for run in runs.values() if run["lower"] is not None), default=None):
        yield "comparison.json states another bound than the highest of its runs."


def _rows(file: Path) -> list[list[str]]:
    """Return the rows of a table below its head."""
    with file.open(newline="", encoding="utf-8") as stream:
        return list(csv.reader(stream))[1:]


def _costs(result: Result, directory: Path) -> dict[int, float]:
    """Return the cost of each network of networks.npz; infinite if it must fit and does not."""
    problem, grouped = result.problem.double(), defaultdict(dict)
    for name, array in read_npz(directory / "networks.npz").items():
        match = re.fullmatch(r"n(\d+)_(W\d+)", name)
        if match is None:
            raise ValueError(f"{name} in networks.npz")
        grouped[int(match[1])][match[2]] = array
    costs = {width: evaluated(problem, weights_of(arrays)) for width, arrays in grouped.items()}
    return {width: cost.total if problem.allows(cost.residual) else math.inf for width, cost in costs.items()}


def _gap(file: str, cost: float | None, lower: float | None, part: float | None) -> Sentences:
    expected = None if cost is None or lower is None or not cost > 0.0 else (cost - lower) / cost
    agrees = part == expected if part is None or expected is None else math.isclose(part, expected, abs_tol=SAME)
    if not agrees or (expected is not None and expected < 0.0):
        yield f"{file} states another gap than its cost and its bound give."
