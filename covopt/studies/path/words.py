"""A path in words, from its summary alone; no unproved fact sounds proved."""

from __future__ import annotations

from covopt.records.numerals import down, interval, percent_at_most, row_of, up
from covopt.records.record import Pairs, Summary, ended_of_several, headline
from covopt.runtime.errors import counted

DIGITS = 7
_COLUMNS = {name: name for name in ("lam", "cost", "lower", "certificate", "fit", "norm", "width", "test")}
_COLUMNS |= {"lower": "lower bound", "test": "held-out loss"}
"""The entries of a point that tables show, and their names there."""


def title(s: Summary) -> str:
    """Return the problem in a few words."""
    first, last = s["points"][0]["lam"], s["points"][-1]["lam"]
    return headline({**s, "lam": f"from {first:.4g} to {last:.4g}" if last != first else f"{first:.4g}"})


def answer(s: Summary) -> str:
    """Return the answer in sentences: lam_max, the gap of the curve, and the picked lam."""
    return " ".join(f"{text[:1].upper()}{text[1:]}." for text in (maximum(s), gap(s), picked(s)) if text)


def pairs(s: Summary) -> Pairs:
    """Return a path as a person reads it: labels and texts."""
    lines = [("problem", title(s)), ("lam_max", maximum(s)), ("gap", gap(s))]
    if s["points"]:
        ends = dict.fromkeys(
            f"cost {p['cost']:.{DIGITS}g} at lam {p['lam']:.4g} ({counted(p['width'], 'neuron')})"
            for p in (s["points"][0], s["points"][-1])
        )
        lines.append(("points", f"{len(s['points'])}: {', ..., '.join(ends)}"))
    if s["end"] is not None:
        lines.append(("lam to 0", end(s)))
    if s["picked"] is not None:
        lines.append(("picked", picked(s)))
    return [*lines, ("status", ended(s)), ("time", f"{s['seconds']:.3g} s")]


def table(s: Summary) -> tuple[list[str], list[tuple[object, ...]]]:
    """Return the names of the columns and a row for each point; the held-out loss only if something was held out."""
    keys = [key for key in _COLUMNS if key != "test" or any(point["test"] is not None for point in s["points"])]
    return [_COLUMNS[key] for key in keys], [row_of(point, keys) for point in s["points"]]


def maximum(s: Summary) -> str:
    """Describe lam_max, the smallest lam at which no hidden neuron is needed."""
    low, high = s["lam_max"]
    name = "the smallest lam at which no hidden neuron is needed"
    if low is None and high is None:
        return f"{name} is not known"
    if low == high:
        return f"{name} is {low:.10g}"
    if not low:
        return f"{name} is at most {up(high)} (proved)"
    if high is None:
        return f"{name} is at least {down(low)} (proved); no upper bound is known"
    below, above = interval(low, high)
    return f"{name} is between {below} and {above} (proved)"


def gap(s: Summary) -> str:
    """Describe the proved gap of the curve over the whole range."""
    if s["largest_gap"] is None:
        return "no lower bound is proved"
    text = percent_at_most(s["largest_gap"])
    return f"at every lam in the range, also between the points, the minimum is at most {text} below a known network"


def picked(s: Summary) -> str:
    """Describe the lam of the lowest loss on held-out data."""
    if s["picked"] is None:
        return ""
    best = next(point for point in s["points"] if point["lam"] == s["picked"])
    data = "the held-out data" if s["scored_by"] == "test" else f"{counted(int(s['scored_by']), 'fold')} of the data"
    return f"lam = {s['picked']:.6g} has the lowest loss on {data}, {best['test']:.6g}"


def end(s: Summary) -> str:
    """Describe the limit of the path at lam = 0."""
    cost, lower = s["end"]["cost"], s["end"]["lower"]
    if cost is None:
        return "no network that fits exactly was found"
    low = "no lower bound" if lower is None else f"at least {down(lower, DIGITS)} (proved)"
    return f"minimum / lam tends to the representation cost: at most {up(cost, DIGITS)}, {low}"


def ended(s: Summary) -> str:
    """Describe the end of the search."""
    proved = "optimal: at each point the proved gap is within the target"
    return ended_of_several(s, proved, "converged: no point's network improves its neighbours, but this is no proof")
