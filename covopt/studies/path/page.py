"""`covopt path`: the minimum as a function of lam."""

from __future__ import annotations

import re
from pathlib import Path

from covopt.answer import parts, words
from covopt.records import provenance, svg
from covopt.records.numerals import percent_at_most
from covopt.records.page import Page, Section, Table
from covopt.records.record import Pairs, Summary
from covopt.studies.path import figure as path_figures, words as path_words

CURVE = (
    "Each point is the network of lowest cost found at its λ. The dashed line is the lower bound: no network costs"
    " less. Between the points the minimum, a concave function of λ, is bounded too: it lies above each chord between"
    " two proved bounds, and below the straight line of every network, fit + λ |W|²."
)


def page(directory: Path, name: str, s: Summary) -> Page:
    """Return the report of a stored run."""
    origin = provenance.read_origin(directory)
    first, last = s["points"][0]["lam"], s["points"][-1]["lam"]
    problem = words.question(dict(s) | {"lam": first}).replace(f"λ = {first:g}", f"λ from {first:.4g} to {last:.4g}")
    columns, rows = path_words.table(s)
    columns = [{"lam": "λ", "norm": "norm |W|²"}.get(name, name) for name in columns]
    table = Table("The lowest cost found at each λ", columns, rows)
    return Page(
        kind="path",
        question=f"What does λ change? {problem}",
        answer=re.sub(r"\blam\b", "λ", path_words.answer(s), flags=re.IGNORECASE),
        notes=[path_words.ended(s).capitalize() + "."],
        facts=_facts(s),
        asked=parts.asked(dict(s) | {"lam": None}, origin),
        proof=[CURVE],
        sections=[Section("Along λ", [], [_picture(s, label) for label in path_figures.PANELS], [table])],
        python=parts.in_python(s, name, "path", lams=[p["lam"] for p in s["points"]]),
        **parts.made(name, s, origin),
    )


def _facts(s: Summary) -> Pairs:
    ends = [f"{'≥' if side == 0 else '≤'} {value:.6g}" for side, value in enumerate(s["lam_max"]) if value]
    gap = "unknown" if s["largest_gap"] is None else percent_at_most(s["largest_gap"])
    picked = [] if s["picked"] is None else [("λ picked", f"{s['picked']:.6g}")]
    size, time = str(len(s["points"])), f"{s['seconds']:.3g} s"
    return [("lam_max", ", ".join(ends) or "unknown"), ("largest gap", gap), *picked, ("points", size), ("time", time)]


def _picture(s: Summary, label: str) -> svg.Picture:
    names = " and ".join(name for name, _, _ in path_figures.PANELS[label])
    picked = "" if s["picked"] is None else " Dotted line: the λ that is picked."
    text = f"{names[:1].upper()}{names[1:]} against λ.{picked}"
    return svg.picture(lambda figure: path_figures.plot(figure.subplots(), s, label), alt=text, caption=text)
