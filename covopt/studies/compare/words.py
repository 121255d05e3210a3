"""A comparison of methods in sentences, from its summary alone."""

from __future__ import annotations

from covopt.answer.words import neurons_of
from covopt.records.numerals import down, percent, row_of
from covopt.records.record import Pairs, Summary, headline


def answer(s: Summary) -> str:
    """State which method reached the lowest cost, and how far the others are above it."""
    costs = {m["method"]: m["cost"] for m in s["methods"] if m.get("cost") is not None}
    best, lower = s["best"], s["lower"]
    proved = "No lower bound is proved" if lower is None else f"No network costs less than {down(lower)} (proved)"
    if not costs or best is None:
        return f"No method found a network that fits exactly. {proved}."
    first = f"{s['method'].capitalize()} reached the lowest cost, {best:.7g}"
    comparisons = [_beside(name, cost, best) for name, cost in costs.items() if name != s["method"]]
    return f"{'; '.join([first, *comparisons])}. {proved}."


def pairs(s: Summary) -> Pairs:
    """Return a comparison as labelled lines, one for each method."""
    lines = [("problem", headline(next(m for m in s["methods"] if m["method"] == s["method"])))]
    for m in s["methods"]:
        if "cost" not in m:
            lines.append((m["method"], m["reason"]))
            continue
        cost, median = m["cost"], m["median"]
        middle = "" if median is None else f" (median {median:.7g})"
        text = "no network" if cost is None else f"cost {cost:.7g}{middle}, {neurons_of(m['widths'])}"
        lines.append((m["method"], f"{text}, {m['seconds']:.3g} s, {m['status'].replace('_', ' ')}"))
    return [*lines, ("lower bound", "none proved" if s["lower"] is None else down(s["lower"], 8))]


def row(m: Summary, report: bool = False) -> tuple[object, ...]:
    """Return the row of a method in a table, with the signs of a report or those of a terminal."""
    if "cost" not in m:
        return m["method"], None, None, None, "", None, m["reason"]
    widths = (" × " if report else " x ").join(map(str, m["widths"]))
    status = m["status"].replace("_", " ") if report else m["status"]
    return *row_of(m, ("method", "cost", "median", "lower")), widths, m["seconds"], status


def _beside(name: str, cost: float, best: float) -> str:
    if cost == best:
        return f"{name} reached the same cost"
    return f"{name} is {percent((cost - best) / best) if best > 0.0 else f'{cost - best:.3g}'} above it"
