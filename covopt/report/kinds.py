"""A stored run of each kind as a page: solve, plateau, compare, validate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from covopt.figures.drawing import Curve
from covopt.figures.widths import WidthCurve, WidthPanel
from covopt.io import record
from covopt.io.arrays import read_npz
from covopt.io.numerals import Lower
from covopt.io.provenance import read_origin
from covopt.report import parts, pictures
from covopt.report.page import Page, Section, Table
from covopt.text import words
from covopt.verification.stored import load

Summary = Mapping[str, Any]


def solve_page(directory: Path, name: str) -> Page:
    """The page of a solve.

    Args:
        directory: where the run lies.
        name: what the run's directory is called in the commands on the page.
    """
    s, result, origin = _summary(directory), load(directory), read_origin(directory)
    starts = [[k, cost] for k, cost in enumerate(sorted(result.starts), start=1)]
    sections = [
        parts.search(result, origin),
        parts.layers(result),
        parts.forces(result, origin),
        Section("Starts", tables=[Table("The lowest cost that came of each start", ["start", "cost"], starts)])
        if len(starts) > 1
        else Section("Starts"),
    ]
    return Page(
        kind="solve",
        data=parts.title(s),
        question=words.question(s),
        answer=words.answer(s),
        notes=parts.notes(s),
        facts=parts.facts(s),
        asked=parts.asked(s, origin),
        proof=parts.proof(s),
        check=parts.check(name),
        sections=sections,
        command=origin.quoted,
        python=parts.in_python(s, name),
        origin=parts.origin_pairs(origin, s),
        finished=origin.finished,
    )


def plateau_page(directory: Path, name: str) -> Page:
    """The page of a plateau; see `solve_page`."""
    s, origin = _summary(directory), read_origin(directory)
    inner, result = record.read_summary(directory / record.SOLUTION), load(directory / record.SOLUTION)
    level = s["level"]
    rows = [[_widths(p["width"]), p["cost"], _excess(p["cost"], level)] for p in s["curve"]]
    found = [p for p in s["curve"] if p["cost"] is not None]
    line = WidthCurve(
        "lowest cost known",
        np.array([_width(p["width"], s["layer"]) for p in found], dtype=np.float64),
        np.array([p["cost"] for p in found], dtype=np.float64),
        np.empty((0, 2)),
    )
    marks = [(n, f"{100 * float(eps):g} %") for eps, n in s["estimate"].items() if n is not None]
    starts = [
        [f"{100 * float(eps):g} %", *s["start"][eps], s["estimate"][eps], *s["reasons"][eps]] for eps in s["start"]
    ]
    starts.append(["0 (exactly)", *s["exact_start"], None, *s["reasons"]["0"]])
    columns = ["above the minimum", "at least", "at most", "best found", "why at least", "why at most"]
    text = (
        "How many neurons come within a given part of the minimum. At least and at most are proved; the best network"
        " found may be narrower than what is proved to suffice, never narrower than what is proved to be needed."
    )
    sections = [
        Section(
            "How wide",
            [text],
            [pictures.widths(WidthPanel("", [line], level, s["lower"], marks))],
            [
                Table("Where the plateau starts", columns, starts),
                Table("The lowest cost for each width", ["width", "cost", "above the level"], rows),
            ],
        ),
        parts.search(result, origin),
        parts.layers(result),
        parts.forces(result, origin),
    ]
    return Page(
        kind="plateau",
        data=parts.title(s),
        question=f"How wide must a network be to come near the minimum? {words.question(s)}",
        answer=words.plateau_answer(s),
        notes=parts.notes(s),
        facts=[*parts.facts(inner)[:3], ("level", parts.number(level, 8)), ("time", f"{s['seconds']:.3g} s")],
        asked=parts.asked(s, origin),
        proof=parts.proof(inner),
        check=parts.check(f"{name}/{record.SOLUTION}"),
        sections=sections,
        command=origin.quoted,
        python=parts.in_python(inner, f"{name}/{record.SOLUTION}", "plateau"),
        origin=parts.origin_pairs(origin, s),
        finished=origin.finished,
    )


def comparison_page(directory: Path, name: str) -> Page:
    """The page of a comparison; see `solve_page`."""
    s, origin = _summary(directory), read_origin(directory)
    solved = [m for m in s["methods"] if "cost" in m]
    runs = {m["method"]: load(directory / m["method"]) for m in solved if (directory / m["method"]).is_dir()}
    best, result = next(m for m in solved if m["method"] == s["method"]), runs[s["method"]]
    proving = max(solved, key=lambda m: -1.0 if m["lower"] is None else m["lower"])
    curves = [Curve(m["method"], runs[m["method"]].history, m["starts"]) for m in solved if m["method"] in runs]
    columns = ["method", "best cost", "median cost", "proved bound", "hidden neurons", "seconds", "status"]
    rows = [_method_row(m) for m in s["methods"]]
    sections = [
        Section("Side by side", [], pictures.curves(curves, s["lower"]), [Table("All methods", columns, rows)]),
        Section(f"The best network ({s['method']})", pictures=parts.network(result, origin)),
        parts.layers(result),
    ]
    return Page(
        kind="compare",
        data=parts.title(best),
        question=words.question(best),
        answer=words.comparison_answer(s),
        notes=parts.notes(best),
        facts=parts.facts(best | {"lower": s["lower"], "gap": _gap(s["best"], s["lower"])}),
        asked=[pair for pair in parts.asked(best, origin) if pair[0] != "method"],
        proof=parts.proof(proving),
        check=parts.check(f"{name}/{proving['method']}"),
        sections=sections,
        command=origin.quoted,
        python=parts.in_python(best, f"{name}/{s['method']}", "compare"),
        origin=parts.origin_pairs(origin, best),
        finished=origin.finished,
    )


def audit_page(directory: Path, name: str) -> Page:
    """The page of an audit; see `solve_page`."""
    s, origin = _summary(directory), read_origin(directory)
    inner, reference = s["solver"], load(directory / record.SOLUTION)
    network = read_npz(directory / record.NETWORK)
    weights = [torch.from_numpy(network[f"W{i}"]).double() for i in range(1, reference.problem.depth + 1)]
    audited = replace(reference, weights=weights, layers=[], history=[])
    descended = s.get("descended") or {"loss": None}
    further = [] if descended["loss"] is None else [["after training on from it", descended["loss"]]]
    reached = [] if s["escape"] is None else [["reached from there by neurons, blocks and descents", s["escape"]]]
    bound = [] if s["lower"] is None else [["proved lower bound on the minimum", Lower(s["lower"])]]
    losses = [["the network", s["loss"]], *further, *reached, ["the solver's network", inner["cost"]], *bound]
    trained = [[k, cost] for k, cost in enumerate(sorted(s["trained"] or []), start=1)]
    first, _, rest = s["verdict"].removesuffix(".").partition(". ")
    still = s["residuals"] or [None] * len(weights)
    left = descended.get("residuals") or [None] * len(weights)
    columns = ["layer", "neurons", "|Mᵀs|", "loss with that neuron", "loss with its block solved", "unbalanced"]
    keys = ("layer", "width", "stationarity", "loss_with_neuron", "loss_with_block", "unbalanced_neuron")
    rows = [[layer[key] for key in keys] for layer in s["layers"]]
    matrices = [[f"W{i}", *row] for i, row in enumerate(zip(still, left, s["inert"], strict=True), start=1)]
    measured = ["residual of stationarity", "after training on", "part that acts on nothing"]
    sections = [
        Section(
            "Losses",
            pictures=pictures.side_by_side(audited, reference, origin, (s["loss"], reference.cost)),
            tables=[Table("What is known", ["", "loss"], losses)],
        ),
        Section(
            "What the network lacks",
            [
                *(f"Hidden layer {layer['layer']}: {layer['verdict']}" for layer in s["layers"]),
                *([f"Precision: {said}."] if (said := words.precision(s)) else []),
                LEGEND,
            ],
            tables=[
                Table("Hidden layers", columns, rows),
                Table("Matrices of weights", ["", *measured], matrices),
            ],
        ),
        Section("Trainings", tables=[Table("The best is the network", ["", "loss"], trained)] if trained else []),
        Section("The network", pictures=parts.network(audited, origin)),
        parts.layers(audited),
        parts.forces(audited, origin),
        Section("The solver's search", pictures=[pictures.convergence(reference.history, s["loss"])]),
    ]
    return Page(
        kind="validate",
        data=parts.title(inner),
        question=f"Does the network sit at the minimum? {words.question(inner)}",
        answer=f"{first}.",
        notes=[rest] if rest else [],
        facts=[
            ("loss of the network", parts.number(s["loss"], 8)),
            ("best known", parts.number(s["best"], 8)),
            ("proved lower bound", parts.bound(s["lower"])),
            ("above the best", words.percent(s["excess"])),
            ("hidden neurons", " × ".join(map(str, s["widths"]))),
            ("stationary", words.stationary(s)),
        ],
        asked=parts.asked(inner, origin),
        proof=parts.proof(inner),
        check=parts.check(f"{name}/{record.SOLUTION}"),
        sections=sections,
        command=origin.quoted,
        python=parts.in_python(inner, f"{name}/{record.SOLUTION}", "validate", f"{name}/{record.NETWORK}"),
        origin=parts.origin_pairs(origin, inner),
        finished=origin.finished,
    )


LEGEND = (
    "Training on is L-BFGS on the loss itself from the network's weights; layers are looked at where it ends. |Mᵀs| is"
    " the largest value that a search found of |Mᵀσ(Zw)| over unit directions w: above 1, a small neuron in that"
    " direction lowers the loss to first order. The residual of stationarity is |W − MᵀZ| / |W|, 0 where the gradient"
    " of the loss vanishes. Steps that do not shrink leave it large about kinks (z = 0 for some sample) although there"
    " is little to gain, so that the verdict rests on what training on gains, not on the residual."
)
"""What the columns of an audit's tables mean."""

KINDS: dict[str, Callable[[Path, str], Page]] = {
    record.SUMMARY: solve_page,
    record.PLATEAU: plateau_page,
    record.COMPARISON: comparison_page,
    record.AUDIT: audit_page,
}
"""The file that tells the kind of a run, and what makes the page of it."""


def _summary(directory: Path) -> Summary:
    return record.read_kind(directory)[1]


def _method_row(m: Summary) -> list[object]:
    if "cost" not in m:
        return [m["method"], None, None, None, "", None, m["reason"]]
    wide, ended = " × ".join(map(str, m["widths"])), m["status"].replace("_", " ")
    lower = None if m["lower"] is None else Lower(m["lower"])
    return [m["method"], m["cost"], m["median"], lower, wide, m["seconds"], ended]


def _excess(cost: float | None, level: float | None) -> str | None:
    return None if cost is None or level is None or not level > 0.0 else words.percent((cost - level) / level)


def _gap(cost: float | None, lower: float | None) -> float | None:
    return None if cost is None or lower is None or not cost > 0.0 else (cost - lower) / cost


def _width(width: int | list[int], layer: int | None) -> int:
    """Of the layer whose width varies."""
    return width[0 if layer is None else layer - 1] if isinstance(width, list) else width


def _widths(width: int | list[int]) -> str | int:
    return " × ".join(map(str, width)) if isinstance(width, list) else width
