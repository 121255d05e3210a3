"""`covopt plateau`: how wide must a network be?"""

from __future__ import annotations

from pathlib import Path

from covopt.answer import parts, stored, words
from covopt.records import provenance, record, svg
from covopt.records.numerals import percent_above
from covopt.records.page import Page, Section, Table
from covopt.records.record import Summary, number
from covopt.studies.width import figure as width_figures, words as width_words


def page(directory: Path, name: str, s: Summary) -> Page:
    """Return the report of a stored run."""
    origin = provenance.read_origin(directory)
    solution, result = record.read_summary(directory / record.SOLUTION), stored.load(directory / record.SOLUTION)
    level, time = s["level"], f"{s['seconds']:.3g} s"
    rows = [[_widths(p["width"]), p["cost"], percent_above(p["cost"], level)] for p in s["curve"]]
    estimate, why = s["estimate"], s["reasons"]
    starts = [[f"{100 * float(eps):g} %", *ends, estimate[eps], *why[eps]] for eps, ends in s["start"].items()]
    starts.append(["0 (exactly)", *s["exact_start"], None, *s["reasons"]["0"]])
    columns = ["above the minimum", "needed", "enough", "best found", "why needed", "why enough"]
    text = (
        "The width at which the cost comes within a given percentage of the minimum: the neurons that are proved to be"
        " needed, and those that are proved to be enough. The best network found may need fewer than the latter, never"
        " fewer than the former."
    )
    sections = [
        Section(
            "How wide",
            [text],
            [_picture(s), *([_excess_picture(s)] if level else [])],
            [
                Table("Where the plateau starts", columns, starts),
                Table("The lowest cost for each width", ["width", "cost", "above the lowest cost"], rows),
            ],
        ),
        parts.search(result, origin),
        parts.layers(result),
        parts.forces(result, origin),
    ]
    return Page(
        kind="plateau",
        question=f"How wide must a network be to come near the minimum? {words.question(s)}",
        answer=width_words.answer(s),
        notes=parts.notes(s),
        facts=[("lowest cost", number(level, 8)), *parts.facts(solution)[1:4], ("time", time)],
        asked=parts.asked(s, origin),
        proof=parts.proof(solution),
        sections=sections,
        python=parts.in_python(solution, f"{name}/{record.SOLUTION}", "plateau"),
        **parts.made(name, s, origin),
    )


def _picture(s: Summary) -> svg.Picture:
    return svg.picture(
        lambda figure: width_figures.curve_panel(figure.subplots(), s),
        alt="The lowest cost found for each width, and where the plateau starts.",
        caption=(
            "The lowest cost found of networks of each width. Vertical lines: the narrowest network found within 10 %,"
            " 1 % and 0.1 % of the lowest cost; the proved intervals are in the table."
        ),
    )


def _excess_picture(s: Summary) -> svg.Picture:
    return svg.picture(
        lambda figure: width_figures.excess_panel(figure.subplots(), s),
        alt="How far the lowest cost of each width is above the lowest of all, on a logarithmic axis.",
        caption="How far the cost of each width is above the lowest one; dotted: 10 %, 1 % and 0.1 %.",
    )


def _widths(width: int | list[int]) -> str | int:
    return " × ".join(map(str, width)) if isinstance(width, list) else width
