"""An audit and the network as a function in sentences, from the summary alone.

**Statements** of the papers, evaluated: inequalities of two numbers, with the sentences that say what the numbers are.

Each is proved in MATH.md section 8, in the form in which it is evaluated. So there are three verdicts: `holds`; `void`
with a reason, where a hypothesis fails, the bound says nothing, or rounding outweighs it; and `number`, where the paper
states no more than an order of magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from covopt.records.numerals import down, percent, up
from covopt.records.record import Pairs, Summary, headline
from covopt.runtime.errors import counted

# Relative to the larger side: what the rounding of sums, logarithms and singular values may have moved.
SLACK = 1e-9

SENTENCES = {
    "J23a Prop. 4": "some hidden layer has s_2 / s_1 of {smaller:.3g} (of Z, less its mean where there is a bias), by"
    " the norm at most {larger:.3g}",
    "J23a Prop. 4, as printed": "L^(1/4) times the smallest s_2 / s_1 of Z in the hidden layers is {smaller:.3g}",
    "J23b Thm. 7": "the squared sizes of the inputs of the layers sum to {smaller:.4g} (mean over samples), by the"
    " trace of the kernel at most {larger:.4g}",
    "J23b Cor. 8": "the next singular value of Z / sqrt N beyond the k of the bottleneck is {smaller:.3g} (mean over"
    " layers), at most {larger:.3g}",
    "J23b Prop. 9": "the mixed second derivative of the kernel is at least {larger:.4g} s^(2 - 2/L), s the largest"
    " singular value of the Jacobian; its proof gives {smaller:g}, and the paper prints twice that",
    "J23b Prop. 13": "two samples with different Jacobians bound the norm of this network by {smaller:.6g} from below;"
    " it is {larger:.6g} without biases",
    "J23b composition": "cut in any hidden layer, the Jacobian bounds of the two parts sum to at least {larger:.6g},"
    " and that of the whole is {smaller:.6g}",
}
"""By source, with the names of the numbers in them."""


class Void(Exception):
    """A statement says nothing here; the message is the reason."""


@dataclass(frozen=True)
class Statement:
    """An inequality smaller <= larger, or a number."""

    source: str  # paper and number, a key of SENTENCES
    smaller: float | None = None  # one side; None where the verdict is void
    larger: float | None = None  # the other; None for a number too
    reason: str = ""  # why it is void; else empty

    @property
    def verdict(self) -> str:
        """Return holds, void or number."""
        return "void" if self.reason else "number" if self.larger is None else "holds"

    def summary(self) -> dict[str, object]:
        """Return the entries for JSON."""
        return {"source": self.source, "verdict": self.verdict, **vars(self)}


def evaluated(source: str, sides: Callable[[], tuple[float, float | None]]) -> Statement:
    """Evaluate a statement: void if `sides` raises Void, or if its numbers do not bear it out."""
    try:
        smaller, larger = sides()
    except Void as reason:
        return Statement(source, reason=str(reason))
    if not all(math.isfinite(side) for side in (smaller, larger) if side is not None):
        return Statement(source, reason="float64 cannot hold its numbers")
    borne_out = larger is None or smaller <= larger + SLACK * abs(larger)
    return Statement(source, smaller, larger, "" if borne_out else "rounding outweighs it")


def line_of(s: Summary) -> str:
    """Return a statement as a text: its verdict, then its numbers or the reason."""
    if s["reason"]:
        return f"void: {s['reason']}"
    sentence = SENTENCES[s["source"]].format(**s)
    return f"holds: {sentence}" if s["verdict"] == "holds" else sentence


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
        *([("status", "interrupted before everything was tested")] if s.get("status") == "interrupted" else []),
        ("residuals", f"{_residuals(s['residuals'])}  (of stationarity, for W_1 ... W_L)"),
        *([("precision", text)] if (text := precision(s)) else []),
        *([("batches", text)] if (text := batches(s)) else []),
        *([("large data", PASSES)] if s["in_passes"] else []),
        ("inert", f"{inert}  (part of W_1 ... W_L without effect on the data)"),
    ]
    for layer in s["layers"]:
        ranks = f"{counted(layer['width'], 'neuron')}, rank K {layer['rank_K']}, rank Ks {layer['rank_Ks']}"
        lines.append((f"layer {layer['layer']}", f"{ranks}. {layer['verdict']}"))
    return [*lines, *function_pairs(s)]


def further_training(s: Summary) -> str:
    """State how far further training lowers the cost; empty where there was none."""
    descended = s["descended"]
    loss, gain = descended["loss"], descended["gain"]
    if loss is None or gain is None:
        return ""
    limit = "the interruption" if s.get("status") == "interrupted" else "its time limit"
    if not (descended["finished"] or gain > 0.0):
        return f"further training gained nothing before {limit}"
    ended = "" if descended["finished"] else f", where {limit} ended it"
    return f"further training lowers the cost by {percent(gain)} to {loss:.8g}{ended}"


def stationary(s: Summary) -> str:
    """State whether a network is stationary, and if not, what lowers its loss."""
    if s["stationary"] is None:
        return "not decided"
    if s["finding"] == "minimum":
        return "yes: its cost is at a proved minimum"
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
    moved = percent(abs(loss - end) / end) if end > 0.0 else f"{loss:.1g}"
    changes, by = ("does not change", "") if loss == end else ("changes", f" by {moved}")
    change = f"{changes} the cost after further training{by}"
    return f"the weights are stored in {s['stored']}: rounding to it {change}, and leaves residuals of {residuals}"


def _residuals(parts: Sequence[float | None] | None) -> str:
    return "not determined" if parts is None else ", ".join(f"{part:.2g}" for part in parts if part is not None)


def function_pairs(s: Summary) -> Pairs:
    """Return the lines on the network as a function, if the audit has them."""
    audit = s["function"]
    if audit is None:
        return []
    layers = audit["layers"]
    hidden = layers[:-1]
    lines = [
        ("Jacobian", _ranks(audit)),
        ("its function", _same(audit, s)),
        ("R_1", _first_correction(audit)),
        ("bottleneck", _bottleneck(audit)),
        ("NTK", _kernel(audit)),
        ("dimensions", f"{_list(layers, 'dimension')}: singular values of A_1 ... A_L above 1/2, layers balanced"),
        ("affine", f"{_list(hidden, 'affine_dimension')}: dimensions of S_1 ... S_(L-1), centred"),
        ("nonlinearity", f"{_list(hidden, 'nonlinearity')}: |Z - sigma(Z)| / |Z| of Z_1 ... Z_(L-1)"),
        ("orbits", _orbits(layers)),
    ]
    return [*(line for line in lines if line[1]), *((s["source"], line_of(s)) for s in audit["statements"])]


def function_sentences(s: Summary) -> list[str]:
    """Return the same as sentences, for a report."""
    audit = s["function"]
    first = _first_correction(audit)
    texts = (
        f"its Jacobian has {_ranks(audit)}",
        _same(audit, s),
        first and f"R_1 is {first}",
        _bottleneck(audit),
        _kernel(audit),
    )
    return [f"{text[:1].upper()}{text[1:]}." for text in texts if text]


def _ranks(audit: Summary) -> str:
    counts = {int(rank): int(count) for rank, count in audit["jacobian_rank"].items()}
    where = "given inputs" if audit["elsewhere"] else "samples"
    rows = audit["rows"]
    if len(counts) == 1:
        ranks = f"{next(iter(counts))} at {f'all {rows} {where}' if rows > 1 else f'the only one of the {where}'}"
    else:
        listed = [f"{rank} at {count}" for rank, count in counts.items()]
        ranks = f"{', '.join(listed[:-1])} and {listed[-1]} of {rows} {where}"
    text = f"rank {ranks}"
    if audit["kinks"]:
        text += f" ({audit['kinks']} on a kink, where one side is taken)"
    if audit["jacobian_values"]:
        text += f"; the medians of its singular values are {_numbers(audit['jacobian_values'])}"
    if audit["pseudo_determinant"] is not None:
        low, middle, high = audit["pseudo_determinant"]
        text += f"; at rank {max(counts)} they multiply to {low:.4g} ... {high:.4g}, median {middle:.4g}"
    return text


def _same(audit: Summary, s: Summary) -> str:
    if audit["lower"] is None:
        return ""
    depth = len(audit["layers"])
    where = "these inputs" if audit["elsewhere"] else "these samples"
    share = "" if audit["share"] is None else f", {down(100.0 * audit['share'])} % of this network's {s['norm']:.8g}"
    return (
        f"every network of {counted(depth, 'layer')} that computes the same function near {where} has |W|^2 of at least"
        f" {down(audit['lower'], 8)}{share}; networks that fit the data by another function may have less"
    )


def _first_correction(audit: Summary) -> str:
    if audit["R1_lower"] is None:
        return ""
    rank = max(int(rank) for rank in audit["jacobian_rank"])
    return f"at least {down(audit['R1_lower'])} if R_0 of the function is {rank}, and unknown otherwise"


def _bottleneck(audit: Summary) -> str:
    low = audit["bottleneck"]
    if low is None:
        return ""
    ones = counted(low["k"], "singular value")
    return (
        f"the layers are {low['sum']:.5g} (sum of squares) away from {ones} of 1 each and nothing else, by [J23b,"
        f" Theorem 6] at most {up(low['at_most'])}"
    )


def _kernel(audit: Summary) -> str:
    trace, sharp, step = audit["ntk_trace"], audit["sharpness"], audit["stable_step"]
    text = "its trace is unknown" if trace is None else f"Tr Theta(x, x) / L is {trace:.5g} on average"
    if sharp is not None:
        text += f"; sharpness {sharp:.5g} (largest eigenvalue of the Gauss-Newton matrix of the loss on the data)"
    return text if step is None else f"{text}, stable step of gradient descent {step:.4g}"


def _orbits(layers: Sequence[Summary]) -> str:
    if layers[0]["orbit_collapse"] is None:
        return ""
    return f"{_list(layers, 'orbit_collapse')}: distance to the transformed input over that to another one, by layer"


def _list(layers: Sequence[Summary], name: str) -> str:
    return _numbers([layer[name] for layer in layers])


def _numbers(values: Sequence[float | None]) -> str:
    """Numbers in a row, several equal ones once."""
    runs = [(text, len(list(run))) for text, run in groupby("-" if x is None else f"{x:.2g}" for x in values)]
    return ", ".join(text if count == 1 else f"{text} ({count} times)" for text, count in runs)
