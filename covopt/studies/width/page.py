"""`covopt plateau`: how wide must a network be?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from covopt.answer import words
from covopt.answer.kind import Kind, Summary
from covopt.records import record
from covopt.records.page import Page, Section, Table
from covopt.runtime.lazy import lazy

if TYPE_CHECKING:
    from covopt.answer import parts, pictures, stored, widths
    from covopt.answer import verify as checks
    from covopt.records import provenance
    from covopt.studies.width import check as studies
else:
    checks = lazy("covopt.answer.verify")
    parts = lazy("covopt.answer.parts")
    pictures = lazy("covopt.answer.pictures")
    provenance = lazy("covopt.records.provenance")
    stored = lazy("covopt.answer.stored")
    studies = lazy("covopt.studies.width.check")
    widths = lazy("covopt.answer.widths")


def _page(directory: Path, name: str, s: Summary) -> Page:
    origin = provenance.read_origin(directory)
    solution, result = record.read_summary(directory / record.SOLUTION), stored.load(directory / record.SOLUTION)
    level = s["level"]
    rows = [[_widths(p["width"]), p["cost"], _excess(p["cost"], level)] for p in s["curve"]]
    points = [p for p in s["curve"] if p["cost"] is not None]
    line = widths.WidthCurve(
        "lowest cost known",
        np.array([_width(p["width"], s["layer"]) for p in points], dtype=np.float64),
        np.array([p["cost"] for p in points], dtype=np.float64),
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
            [pictures.widths(widths.WidthPanel("", [line], level, s["lower"], marks))],
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
        facts=[*parts.facts(solution)[:3], ("level", parts.number(level, 8)), ("time", f"{s['seconds']:.3g} s")],
        asked=parts.asked(s, origin),
        proof=parts.proof(solution),
        check=parts.check(name),
        sections=sections,
        command=origin.quoted,
        python=parts.in_python(solution, f"{name}/{record.SOLUTION}", "plateau"),
        origin=parts.origin_pairs(origin, s),
        finished=origin.finished,
    )


def _excess(cost: float | None, level: float | None) -> str | None:
    return None if cost is None or level is None or not level > 0.0 else words.percent((cost - level) / level)


def _width(width: int | list[int], layer: int | None) -> int:
    """Return the width of the layer that varies."""
    return width[0 if layer is None else layer - 1] if isinstance(width, list) else width


def _widths(width: int | list[int]) -> str | int:
    return " × ".join(map(str, width)) if isinstance(width, list) else width


def _verify(directory: Path, s: Summary, rounding: float) -> checks.Verification:
    solution = directory / record.SOLUTION
    runs, unchecked = checks.inside(directory, [record.SOLUTION], rounding), studies.PLATEAU
    differences = studies.plateau(s, directory, record.read_summary(solution), stored.load(solution), rounding)
    return checks.of_study(directory, KIND.file, s, runs, differences, unchecked)


KIND = Kind("plateau", record.PLATEAU, words.plateau_pairs, _page, _verify)
