"""`covopt plateau`: how wide must a network be?"""

from __future__ import annotations

from pathlib import Path

from covopt.answer import parts, stored, words
from covopt.records import provenance, record, svg
from covopt.records.numerals import percent
from covopt.records.page import Page, Section, Table
from covopt.records.record import Summary
from covopt.studies.width import figure as width_figures, words as width_words


def page(directory: Path, name: str, s: Summary) -> Page:
    """Return the report of a stored run."""
    origin = provenance.read_origin(directory)
    solution, result = record.read_summary(directory / record.SOLUTION), stored.load(directory / record.SOLUTION)
    level = s["level"]
    rows = [[_widths(p["width"]), p["cost"], _excess(p["cost"], level)] for p in s["curve"]]
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
            [_picture(s)],
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
        answer=width_words.answer(s),
        notes=parts.notes(s),
        facts=[*parts.facts(solution)[:3], ("level", parts.number(level, 8)), ("time", f"{s['seconds']:.3g} s")],
        asked=parts.asked(s, origin),
        proof=parts.proof(solution),
        sections=sections,
        python=parts.in_python(solution, f"{name}/{record.SOLUTION}", "plateau"),
        **parts.made(name, s, origin),
    )


def _excess(cost: float | None, level: float | None) -> str | None:
    return None if cost is None or level is None or not level > 0.0 else percent((cost - level) / level)


def _picture(s: Summary) -> svg.Picture:
    return svg.picture(
        lambda figure: width_figures.curve_panel(figure.subplots(), s),
        alt="The lowest cost found for each width, its level, and where the plateau starts.",
        caption=(
            "The lowest cost found of networks of each width. Vertical lines: the narrowest network found within 10 %,"
            " 1 % and 0.1 % of the level; the proved intervals are in the table."
        ),
        size=(7.4, 3.8),
    )


def _widths(width: int | list[int]) -> str | int:
    return " × ".join(map(str, width)) if isinstance(width, list) else width
