"""An audit in sentences, from its summary alone."""

from __future__ import annotations

from collections.abc import Sequence

from covopt.answer import function_words as function
from covopt.records.numerals import percent
from covopt.records.record import Pairs, Summary, headline
from covopt.runtime.errors import counted

PASSES = (
    "further training by mini-batches; other problems, single blocks and retraining with an added neuron were skipped"
)
"""What an audit of many samples leaves out."""


def answer(s: Summary) -> str:
    """Return the verdict."""
    return s["verdict"]


def pairs(s: Summary) -> Pairs:
    """Return an audit as labelled lines."""
    inert = ", ".join(f"{part:.2g}" for part in s["inert"] if part is not None)
    lines = [("problem", headline(s["solver"])), ("verdict", s["verdict"])]
    if s["trained"] is not None:
        costs = ", ".join(f"{cost:.8g}" for cost in sorted(cost for cost in s["trained"] if cost is not None))
        lines.append(("trained", f"{costs}  (the best is the network)"))
    lines += [
        ("cost", f"{s['loss']:.8g}"),
        *([("training", text)] if (text := further_training(s)) else []),
        ("best known", f"{s['best']:.8g}"),
        ("stationary", stationary(s)),
        ("residuals", f"{_residuals(s['residuals'])}  (of stationarity, for W_1 ... W_L)"),
        *([("precision", text)] if (text := precision(s)) else []),
        *([("batches", text)] if (text := batches(s)) else []),
        *([("large data", PASSES)] if s["in_passes"] else []),
        ("inert", f"{inert}  (part of W_1 ... W_L without effect on the data)"),
    ]
    for layer in s["layers"]:
        ranks = f"{counted(layer['width'], 'neuron')}, rank K {layer['rank_K']}, rank Ks {layer['rank_Ks']}"
        lines.append((f"layer {layer['layer']}", f"{ranks}. {layer['verdict']}"))
    return [*lines, *function.pairs(s)]


def further_training(s: Summary) -> str:
    """State how far further training lowers the cost; empty where there was none."""
    descended = s["descended"]
    loss, gain = descended["loss"], descended["gain"]
    if loss is None or gain is None:
        return ""
    ended = "" if descended["finished"] else ", where its time limit ended it"
    return f"further training lowers the cost by {percent(gain)} to {loss:.8g}{ended}"


def stationary(s: Summary) -> str:
    """State whether a network is stationary, and if not, what lowers its loss."""
    if s["stationary"]:
        gain = s["descended"]["gain"]
        trained = "" if gain is None else f"further training gains {percent(gain)}, and "
        return f"yes: {trained}no neuron was found that lowers the cost"
    if s["finding"] == "moving":
        return "no: SGD noise moves it"
    if s["finding"] == "untrained":
        return "no: further training lowers the cost"
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
    share = f"; {s['kept']:.2g} of the initial weights remains after {steps}" if steps else ""
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
    moved = f"{abs(loss - end) / end:.1g} of it" if end > 0.0 else f"{abs(loss - end):.1g}"
    return (
        f"the weights are stored in {s['stored']}: rounding to it changes the cost after further training by {moved},"
        f" and leaves residuals of {residuals}"
    )


def _residuals(parts: Sequence[float | None] | None) -> str:
    return "not determined" if parts is None else ", ".join(f"{part:.2g}" for part in parts if part is not None)
