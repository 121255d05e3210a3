"""`covopt compare`: every method on one problem."""

from __future__ import annotations

from pathlib import Path

from covopt.answer import drawing, parts, pictures, stored, words
from covopt.records import provenance
from covopt.records.page import Page, Section, Table
from covopt.records.record import Summary
from covopt.studies.compare import words as compare_words
from covopt.studies.compare.compare import COLUMNS


def page(directory: Path, name: str, s: Summary) -> Page:
    """Return the report of a stored run."""
    origin = provenance.read_origin(directory)
    solved = [m for m in s["methods"] if "cost" in m]
    runs = {m["method"]: stored.load(directory / m["method"]) for m in solved if (directory / m["method"]).is_dir()}
    best, result = next(m for m in solved if m["method"] == s["method"]), runs[s["method"]]
    proving = max(solved, key=lambda m: -1.0 if m["lower"] is None else m["lower"])
    curves = [drawing.Curve(m["method"], runs[m["method"]].history, m["starts"]) for m in solved if m["method"] in runs]
    rows = [compare_words.row(m, report=True) for m in s["methods"]]
    sections = [
        Section("Side by side", [], pictures.curves(curves, s["lower"]), [Table("All methods", COLUMNS, rows)]),
        Section(f"The best network ({s['method']})", pictures=parts.network(result, origin)),
        parts.layers(result),
    ]
    return Page(
        kind="compare",
        question=words.question(best),
        answer=compare_words.answer(s),
        notes=parts.notes(best),
        facts=parts.facts(best | {"lower": s["lower"], "gap": _gap(s["best"], s["lower"])}),
        asked=[pair for pair in parts.asked(best, origin) if pair[0] != "method"],
        proof=parts.proof(proving),
        sections=sections,
        python=parts.in_python(best, f"{name}/{s['method']}", "compare"),
        **parts.made(name, best, origin),
    )


def _gap(cost: float | None, lower: float | None) -> float | None:
    return None if cost is None or lower is None or not cost > 0.0 else (cost - lower) / cost
