"""`covopt figure2`: train and test loss of trained networks against their width."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

from covopt.io import record
from covopt.io.wording import STATUSES
from covopt.kinds.kind import Kind, Pairs, Summary, checks, parts, pictures, provenance, study_figure2
from covopt.report.page import Page, Section, Table

UNCHECKED = (
    *("panel", "data", "status", "seconds", "version"),
    "the losses of the trials, whose networks are not stored",
)
"""What nothing in its files tells."""
MEANING = (
    "Nothing is proved here: each dot is a network that was trained, and a network of the same width may cost less."
    " covopt plateau says what is proved about widths."
)

DIFFERS = {
    "digits": "The paper's panel has 1,000 images of MNIST, 28 x 28; without --data-dir these are scikit-learn's"
    " digits, 8 x 8, tested on the other 797. Depth 3, the loss and both values of lam are the paper's; the widths"
    " and the trainer are chosen here.",
    "teacher": "Depth 3, the teacher's widths, 1,000 samples and lam are the paper's; the widths and the trainer are"
    " chosen here.",
}
"""What a panel takes from the paper, and what it does not."""

ENDED = {
    "time_limit": "Some trainings were stopped by the time limit; longer ones may reach lower losses.",
    "interrupted": "The trainings were interrupted; longer ones may reach lower losses.",
}
"""What ended the trainings, where that matters."""


def _load(directory: Path) -> Any:
    """The trials come back; the curves follow from them."""
    try:
        with (directory / "trials.csv").open(newline="", encoding="utf-8") as stream:
            trials = [
                study_figure2.Trial(
                    int(row["width"]), float(row["lam"]), int(row["seed"]), float(row["train"]), float(row["test"])
                )
                for row in csv.DictReader(stream)
            ]
    except csv.Error as error:
        raise ValueError(f"trials.csv is damaged: {error}") from error
    if not trials:
        raise ValueError("trials.csv holds no trial")
    s = record.read_object(directory / str(record.kind_of(directory)))
    status = study_figure2.Status(s["status"])
    return study_figure2.Figure2(str(s["panel"]), str(s["data"]), trials, status, float(str(s["seconds"])))


def _pairs(s: Summary) -> Pairs:
    pairs = [("question", f"figure 2, panel {s['panel']}: {s['data']}")]
    for curve in s["curves"]:
        widths = [point["width"] for point in curve["curve"]]
        starts = ", ".join(f"{100 * float(eps):g} % from width {n}" for eps, n in curve["start"].items())
        level = "unknown" if curve["level"] is None else f"{curve['level']:.6g}"
        said = (
            f"least train loss {level}, of widths {min(widths)} to {max(widths)}; within {starts} (trained, not proved)"
        )
        pairs.append((f"lam {curve['lam']:g}", said))
    ended = STATUSES[str(s["status"])][0].partition(";")[0]
    return [*pairs, ("status", ended), ("time", f"{s['seconds']:.3g} s")]


def _page(directory: Path, name: str, s: Summary) -> Page:
    figure, origin = _load(directory), provenance.read_origin(directory)
    rows = [list(row) for row in figure.rows()]
    trials = [[t.lam, t.width, t.seed, t.train, t.test] for t in figure.trials]
    starts = [
        [f"{lam:g}", _level(figure.level(lam)), *(figure.start(lam, eps) for eps in study_figure2.EPS)]
        for lam in figure.strengths
    ]
    within = [f"within {100 * eps:g} %" for eps in study_figure2.EPS]
    said = "; ".join(
        f"with λ = {lam:g} the least train loss is {_level(figure.level(lam))}, and the narrowest trained network"
        f" within 1 % of it has width {figure.start(lam, 0.01)}"
        for lam in figure.strengths
    )
    strengths = ", ".join(f"{lam:g}" for lam in figure.strengths)
    sections = [
        Section(
            "Losses against the width",
            [],
            [pictures.losses(panel) for panel in figure.panels()],
            [
                Table("Where the lowest train loss stops falling", ["λ", "least train loss", *within], starts),
                Table("The best network of each width", ["λ", "width", "train loss", "test loss"], rows),
                Table("All trials", ["λ", "width", "seed", "train loss", "test loss"], trials),
            ],
        )
    ]
    return Page(
        kind="figure2",
        data=f"Figure 2, {figure.data}",
        question="Where do the losses of trained networks stop falling, as the networks are made wider?",
        answer=f"{said[:1].upper()}{said[1:]}.",
        notes=[text for text in (DIFFERS.get(figure.panel), ENDED.get(s["status"])) if text],
        facts=[
            ("trained networks", str(len(figure.trials))),
            ("widths", str(len({t.width for t in figure.trials}))),
            ("time", f"{figure.seconds:.3g} s"),
        ],
        asked=[("panel", figure.panel), ("data", figure.data), ("λ (lam)", strengths)],
        proof=[MEANING, "The check recomputes the curves from the stored trials."],
        check=parts.check(name),
        sections=sections,
        command=origin.quoted,
        python=_in_python(figure),
        origin=list(origin.machine.items()) or [("covopt", str(s["version"]))],
        finished=origin.finished,
    )


def _level(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else "unknown"


def _in_python(figure: Any) -> str:
    widths, seeds = sorted({t.width for t in figure.trials}), sorted({t.seed for t in figure.trials})
    asked = f"strengths={figure.strengths!r}, widths={widths!r}, trials={len(seeds)}, seed={seeds[0]}"
    return f"from covopt.study.figure2 import figure2\nfigure2({figure.panel!r}, {asked})"


def _verify(directory: Path, s: Summary, rounding: float) -> checks.Verification:
    file = str(record.kind_of(directory))
    messages = checks.differences(file, s, _load(directory).summary())
    return checks.of_study(directory, file, s, {}, messages, UNCHECKED, "The summary agrees with the trials")


KIND = Kind("figure2", "figure2.json", _pairs, _page, _verify, _load, formerly=(record.PLATEAU, "panel"))
