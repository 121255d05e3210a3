"""`covopt compare`: every method on one problem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from covopt.answer import words
from covopt.answer.kind import Kind, Summary
from covopt.records import record
from covopt.records.numerals import Lower
from covopt.records.page import Page, Section, Table
from covopt.runtime.lazy import lazy

if TYPE_CHECKING:
    from covopt.answer import drawing, parts, pictures, stored
    from covopt.answer import verify as checks
    from covopt.records import provenance
    from covopt.solvers import penalised as methods
    from covopt.studies.width import check as studies
else:
    checks = lazy("covopt.answer.verify")
    drawing = lazy("covopt.answer.drawing")
    methods = lazy("covopt.solvers.penalised")
    parts = lazy("covopt.answer.parts")
    pictures = lazy("covopt.answer.pictures")
    provenance = lazy("covopt.records.provenance")
    stored = lazy("covopt.answer.stored")
    studies = lazy("covopt.studies.width.check")


def _page(directory: Path, name: str, s: Summary) -> Page:
    origin = provenance.read_origin(directory)
    solved = [m for m in s["methods"] if "cost" in m]
    runs = {m["method"]: stored.load(directory / m["method"]) for m in solved if (directory / m["method"]).is_dir()}
    best, result = next(m for m in solved if m["method"] == s["method"]), runs[s["method"]]
    proving = max(solved, key=lambda m: -1.0 if m["lower"] is None else m["lower"])
    curves = [drawing.Curve(m["method"], runs[m["method"]].history, m["starts"]) for m in solved if m["method"] in runs]
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
        check=parts.check(name),
        sections=sections,
        command=origin.quoted,
        python=parts.in_python(best, f"{name}/{s['method']}", "compare"),
        origin=parts.origin_pairs(origin, best),
        finished=origin.finished,
    )


def _method_row(m: Summary) -> list[object]:
    if "cost" not in m:
        return [m["method"], None, None, None, "", None, m["reason"]]
    wide, ended = " × ".join(map(str, m["widths"])), m["status"].replace("_", " ")
    lower = None if m["lower"] is None else Lower(m["lower"])
    return [m["method"], m["cost"], m["median"], lower, wide, m["seconds"], ended]


def _gap(cost: float | None, lower: float | None) -> float | None:
    return None if cost is None or lower is None or not cost > 0.0 else (cost - lower) / cost


def _verify(directory: Path, s: Summary, rounding: float) -> checks.Verification:
    names = [name for name in methods.METHODS if (directory / name).is_dir()]
    runs = checks.inside(directory, names, rounding)
    differences = studies.comparison(s, directory, names, rounding)
    return checks.of_study(directory, KIND.file, s, runs, differences, studies.COMPARISON)


KIND = Kind("compare", record.COMPARISON, words.comparison_pairs, _page, _verify)
