"""`covopt figure`: a figure of a paper, made anew, with what a reader should see in it."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from covopt.io.wording import STATUSES
from covopt.kinds.kind import Kind, Pairs, Summary, checks, parts, pictures, provenance, study_figures
from covopt.report.page import Page, Section, Table

COMMON = ("paper", "seed", "settings", "status", "seconds", "version", "figure.png")
DRAWN, TRAINED = "that the data were drawn from this seed", "that the networks were trained as the settings say"
"""What nothing in its files tells; the last of trained networks alone."""
TINY = 1e-12
"""Numbers that differ by no more than this, and have the same sign, are what rounding left of them."""
ENDED = "Some trainings were stopped by their limits or by Ctrl-C; longer ones may reach lower losses."
COLUMNS = ["", "value", "from"]


def pairs(s: Summary) -> Pairs:
    """The answer as a person reads it."""
    found = [("figure", f"{s['name']}: {s['source']}"), ("seed", str(s["seed"]))]
    found += [(_origin(each["paper"]), f"{each['name']}: {each['value']}") for each in s["settings"]]
    found += [("seen" if claim["seen"] else "NOT SEEN", str(claim["text"])) for claim in s["claims"]]
    if s["status"] != "converged":
        found.append(("status", STATUSES[str(s["status"])][0].partition(";")[0]))
    return [*found, ("time", f"{s['seconds']:.3g} s")]


def _origin(stated: bool) -> str:
    return "the paper's" if stated else "chosen here"


def _load(directory: Path) -> Any:
    return study_figures.load_figure(directory)


def _page(directory: Path, name: str, s: Summary) -> Page:
    figure, origin = _load(directory), provenance.read_origin(directory)
    design, claims = figure.design, figure.claims
    missing = [claim.text for claim in claims if not claim.seen]
    answer = "All of what the figure should show is there." if not missing else f"Not seen: {'; '.join(missing)}."
    settings = [[each.name, each.value, _origin(each.stated)] for each in figure.settings]
    seen = [[claim.text, claim.seen] for claim in claims]
    sections = [
        Section(
            "The figure",
            [],
            [pictures.panel(panel) for panel in figure.panels()],
            [
                Table("What a reader should see", ["", "seen"], seen),
                Table("Its numbers", list(design.columns), figure.rows()),
            ],
        ),
        Section("Settings", [design.differs], [], [Table("Whose settings they are", COLUMNS, settings)]),
    ]
    chosen = ", ".join([repr(figure.name), *(["paper=True"] if figure.paper else []), f"seed={figure.seed}"])
    return Page(
        kind="figure",
        data=f"{figure.name}: {design.title}",
        question=design.question,
        answer=answer,
        notes=[ENDED] if s["status"] not in ("converged", "optimal") else [],
        facts=[
            ("claims seen", f"{len(claims) - len(missing)} of {len(claims)}"),
            ("source", design.source),
            ("time", f"{figure.seconds:.3g} s"),
        ],
        asked=[
            ("figure", figure.name),
            ("sizes", "the paper's" if figure.paper else "small"),
            ("seed", str(s["seed"])),
        ],
        proof=[
            "A figure shows what these networks do, and proves nothing about others.",
            "The check computes all numbers and the table again from the stored data and weights.",
        ],
        check=parts.check(name),
        sections=sections,
        command=origin.quoted,
        python=f"covopt.figure({chosen})",
        origin=parts.origin_pairs(origin, s),
        finished=origin.finished,
    )


def _verify(directory: Path, s: Summary, rounding: float) -> checks.Verification:
    figure = _load(directory)
    unchecked = [*COMMON, DRAWN, *([TRAINED] if figure.design.trained else [])]
    again = "The numbers and the table follow from the stored arrays"
    return checks.of_study(directory, KIND.file, s, {}, _complaints(directory, s, figure, rounding), unchecked, again)


def _complaints(directory: Path, s: Summary, figure: Any, rounding: float) -> Iterator[str]:
    """What figure.json and table.csv say, held against the arrays."""
    found = figure.summary()
    numbers = found.pop("numbers")
    yield from checks.differences(KIND.file, {k: v for k, v in s.items() if k != "numbers"}, found)
    if "numbers" not in s or not _same(s["numbers"], numbers, rounding):
        yield f"{KIND.file} states other numbers than the stored arrays give."
    with (directory / study_figures.TABLE).open(newline="", encoding="utf-8") as stream:
        try:
            told = list(csv.reader(stream))
        except csv.Error as error:
            raise ValueError(f"{study_figures.TABLE} is damaged: {error}") from error
    rows = [list(figure.design.columns), *figure.rows()]
    if len(told) != len(rows) or not all(_row_is(*both, rounding) for both in zip(told, rows, strict=True)):
        yield f"{study_figures.TABLE} holds another table than the stored arrays give."


def _row_is(texts: list[str], cells: list[object], rounding: float) -> bool:
    """Whether a line of the table holds these numbers and texts."""
    return len(texts) == len(cells) and all(
        _same(float(text), cell, rounding) if isinstance(cell, float) else text == str(cell)
        for text, cell in zip(texts, cells, strict=True)
    )


def _same(a: object, b: object, rounding: float) -> bool:
    """Whether two trees of numbers and texts are the same, up to rounding."""
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=rounding, abs_tol=TINY) and not a * b < 0.0
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[name], b[name], rounding) for name in b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_same(x, y, rounding) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and a == b


KIND = Kind("figure", "figure.json", pairs, _page, _verify, _load)
