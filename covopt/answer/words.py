"""A result in one sentence, and what its proof means, for reports, notebooks and shells.

Everything is derived from the summaries, the JSON of each command. What is not proved is never worded as if it were.
"""

from __future__ import annotations

from covopt.answer.uniqueness.uniqueness import Uniqueness
from covopt.model.wording import CERTIFICATES, FREE, STATUSES
from covopt.records.numerals import down, interval, percent_at_most, up
from covopt.records.record import DIGITS, Pairs, Summary, bound_of, ended, headline, ignores_inputs, number
from covopt.runtime.errors import counted

SHORT = 7  # the significant digits of a result's own words
OPTIMAL = "optimal"  # the status of a run whose proved gap is within its target


def question(s: Summary) -> str:
    """State the problem in one sentence."""
    activation = {"relu": "ReLU"}.get(s["activation"], s["activation"])
    network = f"{activation} networks of depth {s['depth']} and any width, {_bias(s)}"
    if s["loss"] == "interpolate":
        return f"The representation cost R: the smallest sum of squared weights |W|² of {network} that fit Y exactly."
    return f"The minimum of {_fit(s)} + λ |W|² over {network}, with λ = {s['lam']:g}."


def _fit(s: Summary) -> str:
    """Name C."""
    name, weighted = str(s["loss"]), "weighted " if s.get("weighted") else ""
    if name == "mse":
        return "the weighted mean of |Fᵢ − Yᵢ|²" if weighted else "(1/N) |F − Y|²"
    kind, _, threshold = name.partition(":")
    names = {"cross_entropy": "cross-entropy", "huber": "Huber loss", "logistic": "logistic loss"}
    with_threshold = f" of threshold {threshold}" if threshold else ""
    return f"the {weighted}mean {names.get(kind, name)}{with_threshold}"


def answer(s: Summary) -> str:
    """State a solve's result: the network's cost and how much lower the minimum can be."""
    cost, lower = s["cost"], s["lower"]
    name = "R" if s["loss"] == "interpolate" else "The minimum"
    if cost is None:
        subject = name if name == "R" else name.lower()
        proved = "" if lower is None else f"; {subject} is at least {down(lower)} (proved)"
        return f"No network that fits exactly was found{proved}."
    if cost == 0.0:
        return (
            f"{name} is 0: {_found(s)} costs nothing."
            if s.get("skip")
            else f"{name} is 0: the zero function costs nothing."
        )
    subject, residual = _found(s), s["residual"]
    misses = f" (up to {up(residual, 2)} off Y)" if residual else ""
    if lower is None or lower <= 0.0:
        return f"{name} is at most {up(cost)}, the cost of {subject}{misses}. No lower bound is proved."
    low, high, gap = *interval(lower, cost), (cost - lower) / cost
    text = f"{name} is between {low} and {high}, a gap of {percent_at_most(gap)}"
    needed = ", so no hidden neurons are needed" if s["status"] == OPTIMAL and is_constant(s["widths"]) else ""
    return f"{text}; the upper end is the cost of {subject}{misses}{needed}."


def short(s: Summary) -> str:
    """Return a solve in five lines."""
    cost, lower, gap = s["cost"], s["lower"], s["gap"]
    apart = "" if gap is None else f", gap {percent_at_most(gap)}"
    proved = bound_of(s, SHORT) + ("" if lower is None else f" ({s['certificate']}){apart}")
    lines = [
        ("", headline(s)),
        ("cost", "no network yet" if cost is None else up(cost, SHORT)),
        ("lower bound", proved),
        ("width", neurons_of(s["widths"]).replace(" neuron", " hidden neuron")),
        ("status", ended(s)),
    ]
    return "\n".join(f"{label:<13}{text}".lstrip() for label, text in lines)


def status(s: Summary) -> str:
    """State why a run ended, as a sentence; empty if it ran to its end."""
    return STATUSES[str(s["status"])][1]


CHECKING = (
    "The check recomputes the cost from the stored weights and the bound from the stored certificate, without running"
    " the solver. Both are computed in float64, and the bound is lowered by what rounding could change; this is not"
    " interval arithmetic."
)
CHECKING_COST = (
    "The check recomputes the cost from the stored weights, in float64, without running the solver. There is no bound"
    " to check."
)


def checking(s: Summary) -> str:
    """State what a check of a stored run recomputes."""
    return CHECKING_COST if s["lower"] is None else CHECKING


def proof(s: Summary) -> str:
    """State what proves the lower bound of a solve, and what that means."""
    kind = str(s["certificate"])
    if s["activation"] == "linear" and kind == "exact":
        return (
            "The bound is proved by a dual point Λ, one row for each sample: D(Λ) is at most the objective of every"
            " linear network if |ΛᵀXw| ≤ 1 for all unit directions w; the largest value is a singular value."
        )
    return CERTIFICATES[kind].proof


def better_bound(s: Summary) -> str:
    """State what could raise a spectral bound, or give one; empty for other bounds."""
    kind, way = str(s["certificate"]), str(s.get("attainable", "none"))
    if kind not in ("spectral", "none") or way == "none" or s["cost"] == 0.0:
        return ""
    if s["certify"] == "none":
        return "No bound was requested; --certify auto computes one."
    if way == "spectral":
        scope = "for one sample" if s["depth"] > 2 else "for data of this size"
        return f"No tighter one is known {scope}; neither --certify full nor more time raises it."
    name = CERTIFICATES[way].way
    name = name[:1].upper() + name[1:]
    if s["depth"] > 2:
        return f"{name}: more time may prove more."
    if s["method"] != "cone":
        return f"{name}: --method cone may prove more."
    if s["certify"] == "fast" and way != "exact":
        return f"{name}: --certify full and enough time may prove more."
    if s["status"] == "interrupted":  # maybe before it was tried
        return f"{name}: --certify full and more time may prove more."
    return f"{name}, but proved no more in this time; --certify full and more time may."


def pairs(s: Summary) -> Pairs:
    """Return a solve as labelled lines, with what would prove more than a spectral bound."""
    widths, residual = s["widths"], f"{number(s['residual'], 3)}  (largest deviation from the targets)"
    nothing = s["cost"] == 0.0 and s["lower"] is None  # the bound is 0, and needs no certificate
    lines = [
        ("problem", headline(s)),
        ("cost", number(s["cost"])),
        ("fit", number(s["fit"])) if s["residual"] is None else ("residual", residual),
        ("norm", f"{number(s['norm'])}  (sum of squared weights)"),
        ("lower bound", bound_of(s, DIGITS)),
        ("gap", ("" if nothing else "unknown") if s["gap"] is None else percent_at_most(s["gap"])),
        ("certificate", "" if nothing else CERTIFICATES[s["certificate"]].short),
        ("better bound", better_bound(s)),
        ("status", ended(s)),
        ("width", " x ".join(str(n) for n in widths) + f" hidden neuron{'' if widths == [1] else 's'}"),
        ("time", f"{number(s['seconds'], 3)} s"),
        ("note", ignores_inputs(s)),
        *((f"layer {layer['layer']}", _layer(layer)) for layer in s["layers"]),
        ("optima", optima_in_words(s)),
        ("held-out", tested(s)),
    ]
    return [(label, text) for label, text in lines if text]


def _layer(layer: Summary) -> str:
    """Describe a hidden layer in one line: stationarity, the gap of its block, and ranks."""
    bounded = layer["gap"] is not None
    gap = f"gap {percent_at_most(layer['gap'])} ({layer['gap_certificate']})" if bounded else "no bound"
    ranks = f"rank K {layer['rank_K']}, rank Ks {layer['rank_Ks']}"
    return f"stationarity {number(layer['stationarity'], 5)}, {gap}, {ranks}"


def optima_in_words(s: Summary) -> str:
    """Say if the optimum is the only one, and how many neurons optima have; empty if unknown."""
    return Uniqueness.from_summary(s["unique"]).sentence() if s.get("unique") else ""


def tested(s: Summary) -> str:
    """State the network's scores on held-out data; empty without such data."""
    test = s.get("test")
    if not test:
        return ""
    loss, accuracy, r2 = (test[name] for name in ("loss", "accuracy", "r2"))
    name = "mse" if s["loss"] == "interpolate" else str(s["loss"])
    scores = ["no network to test" if loss is None else f"{name} {loss:.6g}"]
    scores += [] if accuracy is None else [f"accuracy {accuracy:.4g}"]
    scores += [] if r2 is None else [f"R² {r2:.4g}"]
    return f"{', '.join(scores)} on {counted(test['rows'], 'row')} of {test['data']} (a score, not a bound)"


def is_constant(widths: object) -> bool:
    """Return True if a layer is empty, so that the network ignores its inputs."""
    return isinstance(widths, list) and 0 in widths


def neurons_of(widths: object) -> str:
    """Return "14 neurons", or "20 x 15 neurons" for several layers."""
    listed = widths if isinstance(widths, list) else []
    if not any(listed):
        return "no neurons"
    return " × ".join(str(n) for n in listed) + (" neuron" if listed == [1] else " neurons")


def _found(s: Summary) -> str:
    """Return the network as the subject of a sentence."""
    if is_constant(s["widths"]):
        if s.get("skip"):
            return "an affine function"
        return "the zero function" if s["bias"] == 0 else "a constant function"
    return f"the network of {neurons_of(s['widths'])}"


def _bias(s: Summary) -> str:
    beta = s["bias"]
    if s.get("skip"):
        return "with unpenalised biases and an unpenalised linear function of the inputs"
    if beta == FREE:
        return "with unpenalised biases"
    return "without bias" if beta == 0 else "with bias" if beta == 1 else f"with bias β = {beta:g}"
