"""`covopt path`: the minimum as a function of lam."""

from __future__ import annotations

from pathlib import Path

from covopt.answer import parts, words
from covopt.records import provenance, svg
from covopt.records.numerals import row_of
from covopt.records.page import Page, Section, Table
from covopt.records.record import Summary
from covopt.studies.path import figure as path_figures, words as path_words

CURVE = (
    "Each point is the cheapest network found at its λ. The dashed line is proved: no network costs less. Between the"
    " points the minimum is bounded too: it is concave in λ, so that no chord between two proved bounds is above it,"
    " and every network is a line above it."
)


def page(directory: Path, name: str, s: Summary) -> Page:
    """Return the report of a stored run."""
    origin = provenance.read_origin(directory)
    one = dict(s) | {"lam": s["points"][0]["lam"]}
    return Page(
        kind="path",
        data=parts.title(s),
        question="What does λ change? "
        + words.question(one).replace(
            f"λ = {one['lam']:g}", f"λ from {one['lam']:.4g} to {s['points'][-1]['lam']:.4g}"
        ),
        answer=path_words.answer(s),
        notes=[path_words.ended(s).capitalize() + "."],
        facts=[("points", str(len(s["points"]))), ("time", f"{s['seconds']:.3g} s")],
        asked=parts.asked(dict(s) | {"lam": None}, origin),
        proof=[CURVE],
        sections=[Section("Along λ", [CURVE], [_picture(s)], [_table(s)])],
        python=parts.in_python(s, name, "path", lams=[p["lam"] for p in s["points"]]),
        **parts.made(name, s, origin),
    )


def _picture(s: Summary) -> svg.Picture:
    return svg.picture(
        lambda figure: path_figures.draw(figure, s),
        alt="Cost and proved bound, fit, norm and width against lambda.",
        caption="Cost and proved bound, loss without penalty, norm and width against λ; dotted: the λ that is picked.",
        size=path_figures.SIZE,
    )


def _table(s: Summary) -> Table:
    columns = ["λ", "cost", "at least", "proved by", "fit", "|W|²", "neurons", "held out"]
    rows = [row_of(p, path_words.KEYS) for p in s["points"]]
    return Table("The cheapest network found at each λ", columns, rows)
