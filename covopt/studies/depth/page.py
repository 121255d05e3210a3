"""`covopt depth`: the effect of depth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from covopt.answer import parts, stored, words
from covopt.data.arrays import read_npz
from covopt.records import provenance, record, svg
from covopt.records.numerals import row_of
from covopt.records.page import Page, Section, Table
from covopt.records.record import Pairs, Summary
from covopt.studies.depth import figure as depth_figures, words as depth_words

# Depths whose spectra and nonlinearity are drawn.
DRAWN = 4


def page(directory: Path, name: str, s: Summary) -> Page:
    """Return the report of a stored run."""
    origin = provenance.read_origin(directory)
    last = record.read_summary(directory / record.SOLUTION)
    result = stored.load(directory / record.SOLUTION)
    rows = [row_of(p, depth_words.KEYS) for p in s["curve"]]
    curve = Table("The lowest cost found at each depth", depth_words.COLUMNS, rows)
    picture = svg.picture(
        lambda figure: depth_figures.plot(figure.subplots(), s),
        alt="Cost and lower bound against the depth, over lines of integer slope.",
        caption="Cost and lower bound; dotted, rank k: networks with a hidden layer of at most k neurons.",
        size=(7.4, 4.2),
    )
    sections = [
        Section("Cost against depth", [CURVE], [picture], [curve, *_family_tables(s)]),
        Section("Layer by layer", [LAYERS], _layer_pictures(directory, s)),
        Section("Large depth", _large(s), [], _fit_tables(s)),
        parts.search(result, origin),
    ]
    return Page(
        kind="depth",
        question=f"What does depth change? {words.question(dict(s) | {'depth': _depths(s)})}",
        answer=depth_words.answer(s),
        notes=[depth_words.ended(s).capitalize() + "."],
        facts=_facts(s),
        asked=parts.asked(dict(s) | {"depth": _depths(s)}, origin),
        proof=[PROOFS.format(last["depth"]), *parts.proof(last)],
        sections=sections,
        python=parts.in_python(s, f"{name}/{record.SOLUTION}", "depth", depths=[p["depth"] for p in s["curve"]]),
        **parts.made(name, s, origin),
    )


def _facts(s: Summary) -> Pairs:
    best = min((p for p in s["curve"] if p["cost"] is not None), key=lambda p: p["cost"], default=None)
    lowest = [] if best is None else [("lowest cost", f"{best['cost']:.7g}"), ("at depth", str(best["depth"]))]
    lowest += [] if best is None else [("lower bound", parts.bound(best["lower"]))]
    return [*lowest, ("depths", _depths(s)), ("time", f"{s['seconds']:.3g} s")]


PROOFS = "Each depth has a lower bound with its own certificate, named in the table. The one of the last depth, {}:"
CURVE = (
    "Each point is the network of lowest cost found at its depth, in the colour of its dimension: the number of"
    " singular values above 1/2 of the weights into its narrowest layer. The dashed line is the lower bound: no"
    " network of that depth costs less. Grey lines have integer slopes, in units of lam where there is a penalty:"
    " where the curve follows the line of slope k, each further layer costs one unit for each of k dimensions that it"
    " passes on."
)
LAYERS = (
    "In a deep network most layers pass on few dimensions: their singular values are near 1 or 0, and they are almost"
    " linear (nonlinearity near 0)."
)


def _layer_pictures(directory: Path, s: Summary) -> list[Any]:
    solved = [p["depth"] for p in s["curve"] if p["cost"] is not None]
    if not solved:
        return []
    chosen = [solved[place] for place in np.unique(np.linspace(0, len(solved) - 1, DRAWN).round().astype(int))]
    arrays = read_npz(directory / "spectra.npz")
    spectra = {L: [arrays[f"d{L}_A{layer}"] for layer in range(1, L + 1)] for L in chosen}
    lines = {p["depth"]: p["nonlinearity"] for p in s["curve"] if p["depth"] in chosen}
    return [
        svg.picture(
            lambda figure: depth_figures.spectra_panel(figure.subplots(), spectra),
            alt="The largest singular values of each layer's weights against the layer, for several depths.",
            caption="The largest singular values of the weights, without their bias columns, layer by layer.",
        ),
        svg.picture(
            lambda figure: depth_figures.nonlinearity_panel(figure.subplots(), lines),
            alt="The nonlinearity of each hidden layer, for several depths.",
            caption="How far each hidden layer is from passing its inputs on unchanged: 0 is linear on the data.",
        ),
    ]


def _family_tables(s: Summary) -> list[Table]:
    depths = [p["depth"] for p in s["curve"]]
    rows = []
    for family in s["families"]:
        costs = {line["depth"]: line["cost"] for line in family["curve"]}
        rows.append([family["rank"], *(costs.get(depth) for depth in depths)])
    columns = ["neurons", *(f"depth {depth}" for depth in depths)]
    return [Table("The lowest cost found with a hidden layer of at most this number of neurons", columns, rows)]


def _large(s: Summary) -> list[str]:
    sentences = [] if s["limit"] is None else [depth_words.large(s["limit"])]
    sentences += [] if s["rank_one"] is None else [_sentence(depth_words.one_neuron(s))]
    return [*sentences, *(_sentence(depth_words.fitted(fit)) for fit in s["fit"])]


def _fit_tables(s: Summary) -> list[Table]:
    if not s["fit"]:
        return []
    columns = ["depths", "R0", "R1", "from", "to", "R2", "from", "to", "rms", "good"]
    rows = [[f"{f['from']} to {f['to']}", f["R0"], *f["R1"], *f["R2"], f["rms"], f["good"]] for f in s["fit"]]
    return [Table("R(L) = R0 L + R1 + R2 / L + ..., fitted where the dimension is one; not proved", columns, rows)]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _depths(s: Summary) -> str:
    return ", ".join(str(p["depth"]) for p in s["curve"])
