"""The parts that the pages of several kinds share, made from a stored run."""

from __future__ import annotations

import shlex
from typing import Any

from covopt.answer import layers as layer_figures, pictures, words
from covopt.answer.result import Result
from covopt.records import record
from covopt.records.numerals import down, percent_at_most
from covopt.records.page import Pairs, Section, Table
from covopt.records.provenance import Origin
from covopt.records.record import Summary, number
from covopt.records.svg import Picture

# Hidden layers whose figures are drawn, and samples up to which those of every sample are.
LAYERS, CROWD = 4, 2000
REPEATED = ("lam", "loss", "depth", "bias", "skip", "activation", "method", "certify", "seed")
"""The options of a solve that its summary contains."""
OTHERS = {"plateau": ("method",), "compare": ("method",), "validate": ("method", "depth")}
"""Options among these that the call does not have."""


def asked(s: Summary, origin: Origin) -> Pairs:
    """Return the options of the problem."""
    penalty = [] if s["lam"] is None else [("λ (lam)", f"{s['lam']:g}")]
    searched = [("method", str(s["method"])), ("certify", str(s["certify"]))] if "method" in s else []
    labels = ("inputs", origin.columns), ("classes", origin.classes)
    names = [(label, ", ".join(texts)) for label, texts in labels if texts is not None]
    return [
        ("data", str(s["data"] or "given in Python")),
        ("samples", f"{s['rows']}{', weighted' if s.get('weighted') else ''}"),
        *names,
        ("scale", str(s["scale"] or "none")),
        ("loss", str(s["loss"])),
        *penalty,
        ("depth", f"{s['depth']}"),
        ("bias (β)", s["bias"] if isinstance(s["bias"], str) else f"{s['bias']:g}"),
        *([("skip", "free")] if s.get("skip") else []),
        ("activation", str(s["activation"])),
        *searched,
        ("seed", str(s["seed"])),
    ]


def facts(s: Summary) -> Pairs:
    """Return the numbers of a solve's result."""
    cost, lower, gap = s["cost"], s["lower"], s["gap"]
    pairs = [
        ("cost", number(cost, 8)),
        ("lower bound", bound(lower)),
        ("gap", "unknown" if gap is None else percent_at_most(float(str(gap)))),
        ("width", words.neurons_of(s["widths"]).partition(" neuron")[0].replace("no", "0")),
        ("norm |W|²", number(s["norm"], 6)),
    ]
    if s["loss"] == "interpolate":
        pairs.append(("residual (max |F − Y|)", number(s["residual"], 3)))
    else:
        pairs.append(("fit (loss without penalty)", number(s["fit"], 6)))
    return [*pairs, ("time", f"{number(s['seconds'], 3)} s")]


def notes(s: Summary) -> list[str]:
    """Say why the search ended, if that matters, if its network ignores its inputs, and its held-out scores."""
    scores = f"Held-out data: {words.tested(s)}." if s.get("test") else ""
    return [sentence for sentence in (words.status(s), record.ignores_inputs(s), scores) if sentence]


def proof(s: Summary) -> list[str]:
    """Say what proves the bound, what that means, and what a check of it does."""
    optima = words.optima_in_words(s)
    verdict = f"{optima[:1].upper()}{optima[1:]}"
    return [text for text in (words.proof(s), words.better_bound(s), verdict, words.checking(s)) if text]


def in_python(s: Summary, run: str, call: str = "solve", network: str | None = None, **varied: object) -> str:
    """Return the call that repeats a run on its stored data, with a network's file or the `varied` option if needed."""
    repeated = {key: s[key] for key in REPEATED if key not in OTHERS.get(call, ()) and s.get(key) is not None}
    options = [f"{key}={value!r}" for key, value in (varied | repeated).items() if value is not False]
    first = [] if network is None else [repr(network)]
    options += ["sample_weight=data.weights"] if s.get("weighted") else []
    arguments = ", ".join([*first, "data.X", "data.Y", *options])
    return f"data = covopt.read_data({f'{run}/{record.PROBLEM}'!r})\ncovopt.{call}({arguments})"


def made(name: str, s: Summary, origin: Origin, data: str | None = None) -> dict[str, Any]:
    """Return the data (those of `s` by default), command, check, versions, machine, seed and date, for every page."""
    machine = origin.machine or {"covopt": str(s["version"])}
    return {
        "data": record.data_of(s) if data is None else data,
        "check": shlex.join(["covopt", "verify", name]),
        "command": None if origin.command is None else shlex.join(origin.command),
        "origin": [("seed", str(s["seed"])), *machine.items()],
        "finished": origin.finished,
    }


def search(result: Result, origin: Origin, audited: float | None = None) -> Section:
    """Describe the search and its network."""
    drawn = [pictures.convergence(result.history, audited)] if result.history else []
    drawn += [gap] if (gap := pictures.gap(result.history)) is not None else []
    return Section("The search and its network", pictures=[*drawn, *network(result, origin)])


def network(result: Result, origin: Origin) -> list[Picture]:
    """Draw the network as a function, where that is possible, and its neurons."""
    layers = [pictures.activations(result.run_picture()), pictures.neurons(result, origin)]
    return [figure for figure in (*pictures.function(result, origin), *layers) if figure is not None]


def timing(result: Result) -> Section:
    """Return the table of the time of a solve."""
    other = result.seconds - sum(seconds for phase, seconds in result.timing.items() if phase != "reading")
    phases = result.timing | {"everything else": max(0.0, other)}
    rows = [[phase, round(phases[phase], 2)] for phase in sorted(phases, key=phases.__getitem__, reverse=True)]
    return Section("Time", tables=[Table("Seconds of each phase", ["phase", "seconds"], rows)] if result.timing else [])


def layers(result: Result) -> Section:
    """Describe each hidden layer: its covariances' spectra, its ranks and its own report."""
    reports = {layer.layer: layer for layer in result.layers}
    rows = []
    for layer, width in enumerate(result.widths, start=1):
        s, s_sigma = layer_figures.layer_spectra(result, layer)
        report = reports.get(layer)
        tested = [None] * 3 if report is None else [report.stationarity, report.gap, report.mergeable]
        ranks = (layer_figures.rank_of(s), layer_figures.rank_of(s_sigma))
        rows.append([layer, width, *ranks, float((s**2).sum()), *(tested if reports else [])])
    columns = ["layer", "neurons", "rank K", "rank Kσ", "trace of K"]
    text = ["K and Kσ are the covariances of a layer on the samples, before and after the activation."]
    if reports:
        columns += ["|Mᵀs|", "gap", "merging groups"]
        text.append(
            "|Mᵀs| above 1: a neuron is missing, to first order. Gap: solving this layer alone lowers the cost by at"
            " most this part. Merging groups: sets of neurons that could each be one neuron. None of this proves that"
            " the whole network is at a minimum."
        )
    drawn: list[Picture] = []
    run = result.run_picture()
    for layer in range(1, min(result.problem.depth - 1, LAYERS) + 1):
        if (spectra := layer_figures.spectra(result, layer)) is not None:
            drawn.append(spectra)
            drawn += [layer_figures.covariance(result, layer, run)] if result.problem.samples <= CROWD else []
    return Section("Layer by layer", text, drawn, [Table("Hidden layers", columns, rows)])


def forces(result: Result, origin: Origin) -> Section:
    """Attraction and repulsion."""
    if result.problem.samples > CROWD or not result.problem.has_blocks:
        return Section("Forces")
    last = min(result.problem.depth - 1, LAYERS)
    drawn = [figure for layer in range(1, last + 1) for figure in layer_figures.forces(result, layer, origin)]
    text = (
        "The penalty on a layer's own weights pulls its representations together; the penalty on the next layer's"
        " pushes them apart. Where the network is at a local minimum and the layer has full rank, the two cancel."
    )
    return Section("Attraction and repulsion", [text] if drawn else [], drawn)


def bound(value: object) -> str:
    """Format a proved lower bound, rounded down, or say that there is none."""
    return down(value, 8) if isinstance(value, int | float) else "none"
