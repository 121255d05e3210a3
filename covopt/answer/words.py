"""A result in one sentence, and what its proof means, for reports, notebooks and shells.

Everything is derived from the summaries, the JSON of each command. What is not proved is never worded as if it were.
"""

from __future__ import annotations

from collections.abc import Mapping

from covopt.answer import function_words as function
from covopt.answer.uniqueness import words as optima_words
from covopt.model.wording import CERTIFICATES, FREE, STATUSES
from covopt.records.numerals import down, interval, percent, percent_at_most, up
from covopt.records.record import describe, ended, headline
from covopt.runtime.errors import counted

Summary = Mapping[str, object]
Pairs = list[tuple[str, str]]

SHORT = 7
"""The significant digits of a result's own words."""
OPTIMAL = "optimal"
"""The status of a run whose proved gap is within its target."""
# Ends further apart than this, relative, are not called close.
CLOSE = 0.01


def question(s: Summary) -> str:
    """State the problem in one sentence."""
    network = f"{_activation(str(s['activation']))} networks of depth {s['depth']} and any width, {_bias(s)}"
    if s["loss"] == "interpolate":
        return f"The representation cost R: the least sum of squared weights |W|² over {network} that fit Y exactly."
    return f"The least value of {_fit(s)} + λ |W|² over {network}, with λ = {s['lam']:g}."


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
    cost, lower = _number(s["cost"]), _number(s["lower"])
    name = "R" if s["loss"] == "interpolate" else "The minimum"
    if cost is None:
        proved = "" if lower is None else f"; what is proved is that {_low(name)} is at least {down(lower)}"
        return f"No network that answers the question was found{proved}."
    if cost == 0.0:
        return (
            f"{name} is 0: {_found(s)} costs nothing."
            if s.get("skip")
            else f"{name} is 0: the zero function costs nothing."
        )
    subject, misses = _found(s), _misses(s)
    if lower is None or lower <= 0.0:
        unknown = f"Nothing is proved about how much lower {_low(name)} could be."
        return f"{name} is at most {up(cost)}, which {subject} costs{misses}. {unknown}"
    low, high = interval(lower, cost)
    text = f"{name} is between {low} and {high}"
    if s["status"] == OPTIMAL and is_constant(s["widths"]):
        return f"{text}; no neurons are needed to come within {percent_at_most((cost - lower) / lower)} of it{misses}."
    if cost - lower <= CLOSE * cost:
        return f"{text}; {subject} comes within {percent_at_most((cost - lower) / lower)} of it{misses}."
    apart = f"the proved ends are {percent_at_most((cost - lower) / cost, 2)} apart"
    return f"{text}: {subject} reaches the upper end{misses}, and {apart}."


def short(s: Summary) -> str:
    """Return a solve in five lines."""
    cost, lower, gap = _number(s["cost"]), _number(s["lower"]), _number(s["gap"])
    apart = "" if gap is None else f", at most {percent_at_most(gap)} below the cost"
    proved = "none proved" if lower is None else f"{down(lower, SHORT)} ({s['certificate']}){apart}"
    neurons = neurons_of(s["widths"]).replace(" neuron", " hidden neuron")
    lines = [
        ("", headline(s)),
        ("cost", "no network yet" if cost is None else up(cost, SHORT)),
        ("lower bound", proved),
        ("width", neurons),
        ("status", ended(s)),
    ]
    return "\n".join(f"{label:<13}{text}".lstrip() for label, text in lines)


def plateau_answer(s: Summary) -> str:
    """State how many neurons come within 1 % of the minimum."""
    level, lower = _number(s["level"]), _number(s["lower"])
    starts, estimate = _mapping(s["start"]), _mapping(s["estimate"])
    within = starts["0.01"]
    least, most = within if isinstance(within, list) else (0, 0)
    wide = " in each hidden layer" if s["layer"] is None and int(str(s["depth"])) > 2 else ""
    if least == most:
        span = f"{counted(int(str(most)), 'neuron')}{wide} {'is' if most == 1 else 'are'} enough and no fewer"
    else:
        span = f"at least {least} and at most {counted(int(str(most)), 'neuron')}{wide} are needed"
    text = f"To come within 1 % of the minimum, {span}, which is proved"
    if estimate["0.01"] is not None and least != most:
        text += f"; the narrowest network found within 1 % of the lowest cost known has {estimate['0.01']}"
    if level is None:
        return f"{text}."
    if lower is None or lower <= 0.0:
        return f"{text}. The minimum over all widths is at most {up(level)}."
    low, high = interval(lower, level)
    return f"{text}. The minimum over all widths is between {low} and {high}."


def comparison_answer(s: Summary) -> str:
    """State which method reached the lowest cost, and how far the others are above it."""
    costs = {str(m["method"]): cost for m in _mappings(s["methods"]) if (cost := _number(m.get("cost"))) is not None}
    best, lower = _number(s["best"]), _number(s["lower"])
    proved = "Nothing is proved" if lower is None else f"No network costs less than {down(lower)}, which is proved"
    if not costs or best is None:
        return f"No method found a network that answers the question. {proved}."
    first = f"{_capital(str(s['method']))} reached the lowest cost, {best:.7g}"
    comparisons = [_beside(name, cost, best) for name, cost in costs.items() if name != s["method"]]
    return f"{'; '.join([first, *comparisons])}. {proved}."


def plateau_pairs(s: Summary) -> Pairs:
    """Return a plateau as labelled lines."""
    level, lower = _number(s["level"]), _number(s["lower"])
    proved = "no bound" if lower is None else f"at least {down(lower, 8)}"
    reached = "no network was found" if level is None else f"{level:.8g}"
    pairs = [("question", headline(s)), ("level", f"{reached}, {proved} ({s['certificate']})")]
    starts, estimates, reasons = _mapping(s["start"]), _mapping(s["estimate"]), _mapping(s["reasons"])
    for eps, ends in [*starts.items(), ("0", s["exact_start"])]:
        best_known = "" if estimates.get(eps) is None else f"; best known {estimates[eps]}"
        (least, most), (why_least, why_most) = _pair(ends), _pair(reasons[eps])
        label = f"within {100 * float(eps):g} %" if float(eps) else "exactly"
        why = f"at least: {why_least}; at most: {why_most}"
        neurons = f"{most} neuron{'' if least == most == 1 else 's'}"
        pairs.append((label, f"{least} to {neurons}{best_known} ({why})"))
    return [*pairs, ("status", STATUSES[str(s["status"])][0]), ("time", f"{s['seconds']:.3g} s")]


def comparison_pairs(s: Summary) -> Pairs:
    """Return a comparison as labelled lines, one for each method."""
    best = next((m for m in _mappings(s["methods"]) if m["method"] == s["method"]), {})
    pairs = [("question", headline(best))]
    for m in _mappings(s["methods"]):
        if "cost" not in m:
            pairs.append((str(m["method"]), str(m["reason"])))
            continue
        cost, median = (_number(m[key]) for key in ("cost", "median"))
        middle = "" if median is None else f" (median {median:.7g})"
        text = "no network" if cost is None else f"cost {cost:.7g}{middle}, {neurons_of(m['widths'])}"
        pairs.append((str(m["method"]), f"{text}, {m['seconds']:.3g} s, {str(m['status']).replace('_', ' ')}"))
    lower = _number(s["lower"])
    return [*pairs, ("lower bound", "none proved" if lower is None else down(lower, 8))]


PASSES = (
    "so many samples that training on is by batches; no other question was tried, no block solved on its own, no"
    " network trained on with a neuron more"
)
"""What an audit of many samples leaves out."""


def audit_pairs(s: Summary) -> Pairs:
    """Return an audit as labelled lines."""
    inert = ", ".join(f"{part:.2g}" for part in _numbers(s["inert"]))
    pairs = [("question", headline(_mapping(s["solver"]))), ("verdict", str(s["verdict"]))]
    if s["trained"] is not None:
        costs = ", ".join(f"{cost:.8g}" for cost in sorted(_numbers(s["trained"])))
        pairs.append(("trained", f"{costs}  (the best is the network)"))
    pairs += [
        ("loss", f"{s['loss']:.8g}"),
        *([("training on", text)] if (text := training_on(s)) else []),
        ("best known", f"{s['best']:.8g}"),
        ("stationary", stationary(s)),
        ("residuals", f"{_residuals(s['residuals'])}  (of stationarity, for W_1 ... W_L)"),
        *([("precision", text)] if (text := precision(s)) else []),
        *([("batches", text)] if (text := batches(s)) else []),
        *([("in passes", PASSES)] if s.get("in_passes") else []),
        ("inert", f"{inert}  (part of W_1 ... W_L without effect on the data)"),
    ]
    for layer in _mappings(s["layers"]):
        ranks = f"{counted(int(str(layer['width'])), 'neuron')}, rank K {layer['rank_K']}, rank Ks {layer['rank_Ks']}"
        pairs.append((f"layer {layer['layer']}", f"{ranks}. {layer['verdict']}"))
    return [*pairs, *function.pairs(s)]


def training_on(s: Summary) -> str:
    """State an audit's gain by fine-tuning; empty in audits of earlier versions."""
    descended = _mapping(s.get("descended"))
    loss, gain = _number(descended.get("loss")), _number(descended.get("gain"))
    if loss is None or gain is None:
        return ""
    ended = "" if descended["finished"] else ", where its time ran out"
    return f"gains {percent(gain)} and leads to {loss:.8g}{ended}"


def stationary(s: Summary) -> str:
    """State whether a network is stationary, and if not, what lowers its loss."""
    if s["stationary"]:
        gain = _number(_mapping(s.get("descended")).get("gain"))
        trained = "" if gain is None else f"training on gains {percent(gain)}, and "
        return f"yes: {trained}no neuron was found that lowers the loss"
    if s.get("finding") == "moving":
        return "no: batches move it"
    if s.get("finding") == "untrained":
        return "no: training on lowers the loss"
    missing = [str(layer["layer"]) for layer in _mappings(s["layers"]) if layer.get("missing")]
    return f"no: a neuron is missing in hidden layer {', '.join(missing)}" if missing else "no"


def batches(s: Summary) -> str:
    """State what mini-batches do to a network's training; empty without data on it."""
    if not s.get("training"):
        return ""
    training, layers = _mapping(s["training"]), _mappings(s["noise"])
    rms, floor = (", ".join(f"{_number(layer[name]) or 0.0:.2g}" for layer in layers) for name in ("rms", "floor"))
    retained = _number(s["kept"])
    share = (
        ""
        if retained is None
        else f"; {retained:.2g} of the start is left after {counted(int(str(training['steps'])), 'step')}"
    )
    return (
        f"of {training['batch_size']}: gradients of {rms} times 2 lam |W_l| (root mean square, for W_1 ... W_L), at"
        f" least {floor} at weights of this size{share}"
    )


def precision(s: Summary) -> str:
    """State what an audit misses as the weights were stored coarsely; empty for float64."""
    rounded = _mapping(s.get("rounded"))
    loss, end = _number(rounded.get("loss")), _number(_mapping(s.get("descended")).get("loss"))
    if loss is None or end is None:
        return ""
    residuals = _residuals(rounded["residuals"])
    moved = f"{abs(loss - end) / end:.1g} of the loss" if end > 0.0 else f"the loss by {abs(loss - end):.1g}"
    return (
        f"the weights are stored in {s['stored']}: rounding to it moves {moved} where training on ends, and leaves"
        f" residuals of {residuals} there"
    )


def _residuals(parts: object) -> str:
    return "not determined" if parts is None else ", ".join(f"{part:.2g}" for part in _numbers(parts))


def status(s: Summary) -> str:
    """State why a run ended, as a sentence; empty where it ran to its end."""
    return STATUSES[str(s["status"])][1]


CHECKING = (
    "The check recomputes the cost from the stored weights and the bound from the stored certificate, without running"
    " the solver. Both are computations in float64 with bounds on the rounding of the search added, not in interval"
    " arithmetic."
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
    """State what would prove more than a spectral bound or none; empty otherwise."""
    kind, way = str(s["certificate"]), str(s.get("attainable", "none"))
    if kind not in ("spectral", "none") or way == "none" or s["cost"] == 0.0:
        return ""
    if s["certify"] == "none":
        return "No bound was asked for; --certify auto looks for one."
    if way == "spectral":
        scope = "for one sample" if int(str(s["depth"])) > 2 else "for so many samples of so many inputs"
        return f"No tighter one is known {scope}: neither --certify full nor more time raises it."
    if int(str(s["depth"])) > 2:
        return f"{_capital(CERTIFICATES[way].way)}: more time may prove more."
    if s["method"] != "cone":
        return f"{_capital(CERTIFICATES[way].way)}: --method cone may prove more."
    if s["certify"] == "fast" and way != "exact":
        return f"{_capital(CERTIFICATES[way].way)}: --certify full and enough time may prove more."
    return f"{_capital(CERTIFICATES[way].way)}, but proved no more in this time: --certify full and more time may."


def solve_pairs(s: Summary) -> Pairs:
    """Return a solve as labelled lines, with what would prove more than a spectral bound."""
    pairs, more = describe(s), better_bound(s)
    place = [label for label, _ in pairs].index("certificate") + 1
    held_out = [("test", tested(s))] if s.get("test") else []
    optima = [("optima", text)] if (text := optima_words.verdict(s)) else []
    return [*pairs[:place], *([("better bound", more)] if more else []), *pairs[place:], *optima, *held_out]


def tested(s: Summary) -> str:
    """State the network's scores on held-out data; empty without such data."""
    test = _mapping(s.get("test"))
    if not test:
        return ""
    loss, accuracy, r2 = (_number(test[name]) for name in ("loss", "accuracy", "r2"))
    name = "mse" if s["loss"] == "interpolate" else str(s["loss"])
    scores = ["no network to test" if loss is None else f"{name} {loss:.6g}"]
    scores += [] if accuracy is None else [f"accuracy {accuracy:.4g}"]
    scores += [] if r2 is None else [f"R² {r2:.4g}"]
    return f"{', '.join(scores)} on {counted(int(str(test['rows'])), 'row')} of {test['data']}; this bounds nothing"


def is_constant(widths: object) -> bool:
    """Return True if networks of these widths are constant, as an empty layer blocks inputs."""
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
    neurons = neurons_of(s["widths"])
    return f"the network of {neurons}"


def _misses(s: Summary) -> str:
    """Say how far a network is off the targets, if it should fit them exactly."""
    residual = _number(s["residual"])
    return "" if not residual else f" (up to {up(residual, 2)} off Y)"


def _beside(name: str, cost: float, best: float) -> str:
    return f"{name} reached the same" if cost == best else f"{name} is {_part(cost, best)} above it"


def _activation(name: str) -> str:
    return {"relu": "ReLU", "linear": "linear"}.get(name, name)


def _bias(s: Summary) -> str:
    beta = s["bias"]
    if s.get("skip"):
        return "with free biases and a free linear function of the inputs"
    if beta == FREE:
        return "with free biases"
    return "without bias" if beta == 0 else "with bias" if beta == 1 else f"with bias β = {beta:g}"


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _mapping(value: object) -> Summary:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: object) -> list[Summary]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def _numbers(value: object) -> list[float]:
    return [float(entry) for entry in value if entry is not None] if isinstance(value, list) else []


def _pair(value: object) -> tuple[object, object]:
    return (value[0], value[1]) if isinstance(value, list) else (None, None)


def _low(name: str) -> str:
    return name if name == "R" else name.lower()


def _capital(name: str) -> str:
    return name[:1].upper() + name[1:]


def _part(cost: float, best: float) -> str:
    return percent((cost - best) / best) if best > 0.0 else f"{cost - best:.3g}"
