"""The effect of depth in words, from the summary alone; no unproved fact sounds proved."""

from __future__ import annotations

from covopt.records.numerals import down, up
from covopt.records.record import Pairs, Summary, ended_of_several, headline
from covopt.runtime.errors import counted, listed

DIGITS = 7
SLACK = 1e-9
"""The relative part of a cost that rounding of the representations may contribute."""
COLUMNS = (
    *("depth", "cost", "lower bound", "certificate", "per layer", "slope"),
    *("dimension", "affine dimension", "bottleneck", "from"),
)
KEYS = "depth cost lower certificate per_layer slope dimension affine_dimension bottleneck source".split()
"""The entries of a depth that tables show, and their names there."""


def title(s: Summary) -> str:
    """Return the problem in a few words."""
    return headline({**s, "depth": listed(p["depth"] for p in s["curve"])})


def answer(s: Summary) -> str:
    """Return the answer in sentences: the depth of lowest cost, and the proved limits."""
    solved = [p for p in s["curve"] if p["cost"] is not None]
    if not solved:
        return "No network that fits exactly was found at any of these depths."
    best = min(solved, key=lambda p: p["cost"])
    name = "the representation cost" if s["loss"] == "interpolate" else "the minimum"
    text = f"Depth {best['depth']} has the lowest cost found at these depths, {best['cost']:.{DIGITS}g}"
    if best["lower"] is not None:
        text += f"; {name} at that depth is at least {down(best['lower'], DIGITS)} (proved)"
    text = f"{text}."
    return f"{text} {large(s['limit'])}" if s["limit"] is not None else text


def pairs(s: Summary, curve: bool = True) -> Pairs:
    """Return labels and texts of the answer; `curve`: with a line for each depth."""
    lines = [("problem", title(s))]
    lines += [(f"depth {p['depth']}", _line(p)) for p in s["curve"]] if curve else []
    lines += [(f"depth {refusal['depth']}", str(refusal["reason"])) for refusal in s["refused"]]
    lines += [(f"rank {f['rank']}", _family(f)) for f in s["families"]]
    if s["limit"] is not None:
        lines.append(("large depth", large(s["limit"])))
    lines += [("fit", fitted(fit)) for fit in s["fit"]]
    if s["rank_one"] is not None:
        lines.append(("one neuron", one_neuron(s)))
    lines += [(label, text) for label, text in (("its kernel", kernel(s)), ("composition", composition(s))) if text]
    if ignoring := _ignoring(s):
        lines.append(("note", ignoring))
    return [*lines, ("status", ended(s)), ("time", f"{s['seconds']:.3g} s")]


def ended(s: Summary) -> str:
    """Describe the end of the search."""
    proved = "optimal: at each depth the proved gap is within the target"
    return ended_of_several(s, proved, "converged: no network of one depth improves another, but this is no proof")


def fitted(fit: Summary) -> str:
    """Describe the fit of one range of depths, which proves nothing."""
    where = f"depths {fit['from']} to {fit['to']}, {counted(fit['R0'], 'dimension')}"
    if not fit["good"]:
        return f"{where}: R0 L + R1 + R2 / L does not fit the costs, so its coefficients mean nothing here"
    (r1, low1, high1), (r2, low2, high2) = fit["R1"], fit["R2"]
    terms = f"{fit['R0']} L {_signed(r1)} ({low1:.4g} to {high1:.4g}) {_signed(r2)} / L ({low2:.3g} to {high2:.3g})"
    return f"{where}: the costs found are about {terms} (a fit, not a proof)"


def one_neuron(s: Summary) -> str:
    """Describe the bound for networks with a layer of one neuron, and where it excludes them."""
    path, costs = s["rank_one"], {p["depth"]: p["cost"] for p in s["curve"]}
    bounds = {int(L): value for L, value in path["lower"].items() if value}
    if not bounds:
        return "nothing is proved about networks with a hidden layer of one neuron"
    some = ", ".join(f"{down(value, 5)} at depth {L}" for L, value in list(bounds.items())[:3])
    low, high = path["tsp"]
    between = f"at least {down(low)}" if high is None else f"between {down(low)} and {up(high)}"
    why = f"a shortest path through the targets is {between} long, the inputs are at most {up(path['diameter'])} apart"
    if path["rows"] < s["rows"]:
        why = f"of the first {path['rows']} rows, {why}"
    text = f"no network with a hidden layer of one neuron costs less than {some}{', ...' if len(bounds) > 3 else ''}"
    text = f"{text} (proved: {why})"
    excluded = [L for L, value in bounds.items() if costs.get(L) is not None and value > costs[L]]
    if excluded:
        return f"{text}; at depth {listed(excluded)} a network without such a layer costs less"
    return f"{text}; no network below this bound was found at these depths"


def kernel(s: Summary) -> str:
    """Describe the neural tangent kernel of networks with a layer of one neuron; empty where nothing is proved."""
    bounds = {} if s["rank_one"] is None else {L: value for L, value in s["rank_one"]["kernel"].items() if value}
    if not bounds:
        return ""
    some = ", ".join(f"{down(value, 3)} at depth {L}" for L, value in list(bounds.items())[-2:])
    return (
        "if a network with a hidden layer of one neuron fits, the mixed second derivative of its neural tangent"
        f" kernel reaches at least {some} (proved)"
    )


def composition(s: Summary) -> str:
    """Compare each cost with that of the network one layer shallower plus an identity layer, as the minima compare."""
    above = [p for p in s["curve"] if p["identity"] is not None and p["cost"] > p["identity"] * (1.0 + SLACK)]
    below = [p["depth"] for p in s["curve"] if p["identity"] is not None and p not in above]
    texts = (
        [f"at depth {listed(below)} the cost is at most that of the depth before with identity layers"] if below else []
    )
    texts += [
        f"at depth {p['depth']} the network of the depth before with identity layers costs less,"
        f" {p['identity']:.{DIGITS}g}: the network found is not a minimum"
        for p in above
    ]
    return "; ".join(texts)


def large(limit: Summary) -> str:
    """Describe what is proved at large depth."""
    if limit["R0"] is None:
        return f"Nothing is proved about large depths: {limit['reason']}."
    low, high = limit["R1"]
    text = f"R(L) / L tends to {limit['R0']} (proved): {limit['reason']}."
    if low is None and high is None:
        return text
    if low is None:
        ends = f"at most {up(high)}"
    elif high is None:
        ends = f"at least {down(low)}"
    else:
        ends = f"between {down(low)} and {up(high)}"
    return f"{text} R(L) - L tends to a value {ends} (proved)."


def _line(p: Summary) -> str:
    """Describe one depth of the curve."""
    if p["cost"] is None:
        return "no network that fits was found"
    bound = "" if p["lower"] is None else f", lower bound {down(p['lower'], DIGITS)} ({p['certificate']})"
    slope = "" if p["slope"] is None else f", slope {p['slope']:.4g}"
    dimensions = f"{counted(p['dimension'], 'dimension')} in layer {p['bottleneck']}"
    return f"cost {p['cost']:.{DIGITS}g}{bound}{slope}, {dimensions}; from: {p['source']}"


def _family(family: Summary) -> str:
    if not family["curve"]:
        return "no network with a hidden layer this narrow was found"
    costs = ", ".join(f"{line['cost']:.6g} at depth {line['depth']}" for line in family["curve"])
    return f"lowest costs found with a hidden layer of at most {counted(family['rank'], 'neuron')}: {costs}"


def _ignoring(s: Summary) -> str:
    """Warn that networks are constants at depths where this is not proved to be best."""
    zero = [p for p in s["curve"] if p["dimension"] == 0 and p["cost"]]
    open_ = [str(p["depth"]) for p in zero if p["lower"] is None or p["cost"] - p["lower"] > 1e-4 * p["cost"]]
    constant = s["limit"] is not None and s["limit"]["R0"] == 0
    if not open_ or constant:
        return ""
    where = f"at depth {', '.join(open_)}"
    return f"the network {where} ignores its inputs; this does not prove that using them cannot cost less"


def _signed(value: float) -> str:
    return f"{'-' if value < 0.0 else '+'} {abs(value):.5g}"
