"""An audit in sentences, from its summary alone."""

from __future__ import annotations

from collections.abc import Sequence

from covopt.answer import function_words as function
from covopt.records.numerals import percent
from covopt.records.record import Pairs, Summary, headline
from covopt.runtime.errors import counted

PASSES = (
    "so many samples that training on is by batches; no other question was tried, no block solved on its own, no"
    " network trained on with a neuron more"
)
"""What an audit of many samples leaves out."""


def answer(s: Summary) -> str:
    """Return the verdict."""
    return s["verdict"]


def pairs(s: Summary) -> Pairs:
    """Return an audit as labelled lines."""
    inert = ", ".join(f"{part:.2g}" for part in s["inert"] if part is not None)
    lines = [("question", headline(s["solver"])), ("verdict", s["verdict"])]
    if s["trained"] is not None:
        costs = ", ".join(f"{cost:.8g}" for cost in sorted(cost for cost in s["trained"] if cost is not None))
        lines.append(("trained", f"{costs}  (the best is the network)"))
    lines += [
        ("loss", f"{s['loss']:.8g}"),
        *([("training on", text)] if (text := training_on(s)) else []),
        ("best known", f"{s['best']:.8g}"),
        ("stationary", stationary(s)),
        ("residuals", f"{_residuals(s['residuals'])}  (of stationarity, for W_1 ... W_L)"),
        *([("precision", text)] if (text := precision(s)) else []),
        *([("batches", text)] if (text := batches(s)) else []),
        *([("in passes", PASSES)] if s["in_passes"] else []),
        ("inert", f"{inert}  (part of W_1 ... W_L without effect on the data)"),
    ]
    for layer in s["layers"]:
        ranks = f"{counted(layer['width'], 'neuron')}, rank K {layer['rank_K']}, rank Ks {layer['rank_Ks']}"
        lines.append((f"layer {layer['layer']}", f"{ranks}. {layer['verdict']}"))
    return [*lines, *function.pairs(s)]


def training_on(s: Summary) -> str:
    """State an audit's gain by fine-tuning; empty where there was none."""
    descended = s["descended"]
    loss, gain = descended["loss"], descended["gain"]
    if loss is None or gain is None:
        return ""
    ended = "" if descended["finished"] else ", where its time ran out"
    return f"gains {percent(gain)} and leads to {loss:.8g}{ended}"


def stationary(s: Summary) -> str:
    """State whether a network is stationary, and if not, what lowers its loss."""
    if s["stationary"]:
        gain = s["descended"]["gain"]
        trained = "" if gain is None else f"training on gains {percent(gain)}, and "
        return f"yes: {trained}no neuron was found that lowers the loss"
    if s["finding"] == "moving":
        return "no: batches move it"
    if s["finding"] == "untrained":
        return "no: training on lowers the loss"
    missing = [str(layer["layer"]) for layer in s["layers"] if layer["missing"]]
    return f"no: a neuron is missing in hidden layer {', '.join(missing)}" if missing else "no"


def batches(s: Summary) -> str:
    """State what mini-batches do to a network's training; empty without data on it."""
    training = s["training"]
    if training is None:
        return ""
    layers = [layer or {} for layer in s["noise"]]
    rms, floor = (", ".join(f"{layer.get(name) or 0.0:.2g}" for layer in layers) for name in ("rms", "floor"))
    steps = counted(training["steps"], "step") if s["kept"] is not None else ""
    share = f"; {s['kept']:.2g} of the start is left after {steps}" if steps else ""
    return (
        f"of {training['batch_size']}: gradients of {rms} times 2 lam |W_l| (root mean square, for W_1 ... W_L), at"
        f" least {floor} at weights of this size{share}"
    )


def precision(s: Summary) -> str:
    """State what an audit misses as the weights were stored coarsely; empty for float64."""
    rounded, end = s["rounded"], s["descended"]["loss"]
    if rounded is None or rounded["loss"] is None or end is None:
        return ""
    loss, residuals = rounded["loss"], _residuals(rounded["residuals"])
    moved = f"{abs(loss - end) / end:.1g} of the loss" if end > 0.0 else f"the loss by {abs(loss - end):.1g}"
    return (
        f"the weights are stored in {s['stored']}: rounding to it moves {moved} where training on ends, and leaves"
        f" residuals of {residuals} there"
    )


def _residuals(parts: Sequence[float | None] | None) -> str:
    return "not determined" if parts is None else ", ".join(f"{part:.2g}" for part in parts if part is not None)
