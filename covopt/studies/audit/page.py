"""`covopt validate`: is a trained network at the minimum?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from covopt.answer import parts, pictures, stored, words
from covopt.answer.drawing import COST_COLOR, count_along, dress
from covopt.answer.layers import log_scale
from covopt.data.arrays import read_npz
from covopt.records import provenance, record
from covopt.records.numerals import Lower, percent, percent_above
from covopt.records.page import Page, Section, Table
from covopt.records.record import Summary
from covopt.records.svg import Picture, picture
from covopt.studies.audit import words as audit_words
from covopt.studies.audit.words import line_of

MEASURES = {"singular_values": "singular values of the weights", "activation_values": "singular values of Z / √N"}


def spectra(function: Summary) -> Picture | None:
    """Draw the largest singular values of W and Z against the layer; None if all are 0.

    Args:
        function: the entry `function` of an audit's summary.
    """
    drawn = {key: _curves(function["layers"], key) for key in MEASURES}
    if not all(drawn.values()):
        return None

    def draw(figure: Figure) -> None:
        for axes, (key, curves) in zip(figure.subplots(1, 2), drawn.items(), strict=True):
            _draw(axes, curves)
            dress(axes, "layer", MEASURES[key])

    return picture(
        draw,
        alt="The largest singular values of the weights and of the representations, layer by layer.",
        caption="The ten largest singular values of the weights without their bias columns (left) and of the"
        " pre-activations over √N (right), layer by layer. At a bottleneck few are left, near 1 on the left.",
        size=(9.0, 3.3),
    )


def _curves(layers: list[Summary], key: str) -> list[list[tuple[int, float]]]:
    """Return the curve of the i-th singular value over the layers for each i, without noise."""
    values = [layer[key] or [] for layer in layers]
    largest = max((s for spectrum in values for s in spectrum), default=0.0)
    curves = [
        [(layer["layer"], spectrum[i]) for layer, spectrum in zip(layers, values, strict=True) if i < len(spectrum)]
        for i in range(max((len(spectrum) for spectrum in values), default=0))
    ]
    visible = [[(layer, s) for layer, s in curve if s > 1e-8 * largest] for curve in curves]
    return [curve for curve in visible if curve]


def _draw(axes: Axes, curves: list[list[tuple[int, float]]]) -> None:
    for number, curve in enumerate(curves):
        layers, values = zip(*curve, strict=True)
        axes.plot(layers, values, "o-", color=COST_COLOR, alpha=1.0 - 0.07 * number, markersize=3.0, linewidth=1.0)
    log_scale(axes, np.array([value for curve in curves for _, value in curve]))
    count_along(axes.xaxis)


LEGEND = (
    "Further training is L-BFGS on the cost itself from the network's weights; layers are examined where it ends."
    " |Mᵀs| is the largest value that a search found of |Mᵀσ(Zw)| over unit directions w: above 1, a small neuron in"
    " that direction lowers the cost to first order. The residual of stationarity is |W − MᵀZ| / |W|, 0 where the"
    " gradient of the cost vanishes. Steps of constant size leave it large near kinks (z = 0 for some sample) although"
    " little can be gained, so the verdict rests on the gain of further training, not on the residual."
)
"""What the columns of an audit's tables mean."""
BOUND = "lower bound"
FUNCTION = (
    "A is W without its bias column, S = σ(Z). The dimension counts singular values of A above 1/2 once the layers are"
    " rescaled to the smallest |W|²; the distance is the layer's part of that to the bottleneck; the nonlinearity is"
    " |Z − σ(Z)| / |Z|."
)
"""The same of what the network is as a function."""


def page(directory: Path, name: str, s: Summary) -> Page:
    """Return the report of a stored run."""
    origin = provenance.read_origin(directory)
    solution, reference = s["solver"], stored.load(directory / record.SOLUTION)
    network = read_npz(directory / record.NETWORK)
    weights = [torch.from_numpy(network[f"W{i}"]).double() for i in range(1, reference.problem.depth + 1)]
    audited = replace(reference, weights=weights, layers=[], history=[])
    descended = s["descended"]
    trained_further = descended["loss"] is not None and (descended["finished"] or descended["gain"])
    further = [["after further training", descended["loss"]]] if trained_further else []
    reached = [] if s["escape"] is None else [["after adding neurons and solving blocks", s["escape"]]]
    bound = [] if s["lower"] is None else [[BOUND, Lower(s["lower"])]]
    networks = [["the network", s["loss"]], *further, *reached, ["the solver's network", solution["cost"]], *bound]
    costs = [[name, cost, None if name == BOUND else percent_above(cost, s["best"])] for name, cost in networks]
    trained = [[k, cost] for k, cost in enumerate(sorted(s["trained"] or []), start=1)]
    first, _, details = s["verdict"].replace("M^T s", "Mᵀs").removesuffix(".").partition(". ")
    still = s["residuals"] or [None] * len(weights)
    after = descended["residuals"] or [None] * len(weights)
    columns = ["layer", "neurons", "|Mᵀs|", "cost with that neuron", "cost with its block solved", "unbalanced"]
    keys = ("layer", "width", "stationarity", "loss_with_neuron", "loss_with_block", "unbalanced_neuron")
    rows = [[layer[key] for key in keys] for layer in s["layers"]]
    measured = ["residual of stationarity", "after further training", "part without effect on the data"]
    measures = [still, after, s["inert"]]
    if s["noise"]:
        measured += ["gradient of a batch (root mean square)", "its lower bound"]
        measures += [[None if layer is None else layer[name] for layer in s["noise"]] for name in ("rms", "floor")]
    matrices = [[f"W{i}", *row] for i, row in enumerate(zip(*measures, strict=True), start=1)]
    sections = [
        Section(
            "Costs",
            pictures=pictures.side_by_side(audited, reference, origin, (s["loss"], reference.cost)),
            tables=[Table("What is known", ["", "cost", "above the best known"], costs)],
        ),
        Section(
            "What the network lacks",
            [
                *(_verdict(layer) for layer in s["layers"]),
                *([f"Precision: {text}."] if (text := audit_words.precision(s)) else []),
                *([f"Batches {text}."] if (text := audit_words.batches(s)) else []),
                LEGEND,
            ],
            tables=[Table("Hidden layers", columns, rows), Table("Matrices of weights", ["", *measured], matrices)],
        ),
        Section("Trainings", tables=[Table("The best is the network", ["", "cost"], trained)] if trained else []),
        Section("The network", pictures=parts.network(audited, origin)),
        parts.layers(audited),
        parts.forces(audited, origin),
        *_function(s),
        Section("The solver's search", pictures=[pictures.convergence(reference.history, s["loss"])]),
    ]
    return Page(
        kind="validate",
        question=f"Is the network at the minimum? {words.question(solution)}",
        answer=f"{first}.",
        notes=[details] if details else [],
        facts=[
            ("cost", record.number(s["loss"], 8)),
            ("best known", record.number(s["best"], 8)),
            ("lower bound", parts.bound(s["lower"])),
            ("above the best known", percent(s["excess"])),
            ("width", " × ".join(map(str, s["widths"]))),
            ("stationary", audit_words.stationary(s).partition(":")[0]),
        ],
        asked=parts.asked(solution, origin),
        proof=parts.proof(solution),
        sections=sections,
        python=parts.in_python(solution, f"{name}/{record.SOLUTION}", "validate", f"{name}/{record.NETWORK}"),
        **parts.made(name, solution, origin),
    )


def _verdict(layer: Summary) -> str:
    """Name the hidden layer, if its verdict does not."""
    name, verdict = f"idden layer {layer['layer']}", layer["verdict"].replace("M^T s", "Mᵀs")
    return verdict if name in verdict else f"H{name}: {verdict}"


def _function(s: Summary) -> list[Section]:
    """Describe the network as a function, if the audit did."""
    measured = s["function"]
    if not measured:
        return []
    names = {
        "dimension": "dimension",
        "distance": "distance to the bottleneck",
        "affine_dimension": "affine dimension of S",
        "nonlinearity": "nonlinearity",
        "orbit_collapse": "collapse of orbits",
    }
    shown = [key for key in names if any(layer[key] is not None for layer in measured["layers"])]
    measures = [[layer["layer"], *(layer[key] for key in shown)] for layer in measured["layers"]]
    tables = [Table("Each layer", ["layer", *(names[key] for key in shown)], measures)]
    for key, matrix in (("singular_values", "A_l"), ("activation_values", "Z_l / √N")):
        rows = [(layer["layer"], [float(f"{s:.3g}") for s in layer[key] or []]) for layer in measured["layers"]]
        most = max(len(values) for _, values in rows)
        filled = [[number, *values, *[None] * (most - len(values))] for number, values in rows]
        tables.append(Table(f"Singular values of {matrix}", ["layer", *map(str, range(1, most + 1))], filled))
    statements = [[statement["source"], line_of(statement)] for statement in measured["statements"]]
    tables.append(Table("Statements of the papers on this network", ["statement", "here"], statements))
    drawn = spectra(measured)
    text = [*audit_words.function_sentences(s), FUNCTION]
    return [Section("As a function", text, [] if drawn is None else [drawn], tables, folded=True)]
