"""A plateau in sentences, from its summary alone."""

from __future__ import annotations

from covopt.records.numerals import interval, up
from covopt.records.record import Pairs, Summary, bound_of, ended, headline
from covopt.runtime.errors import counted


def answer(s: Summary) -> str:
    """State how many neurons come within 1 % of the minimum."""
    level, lower, estimate = s["level"], s["lower"], s["estimate"]["0.01"]
    least, most = s["start"]["0.01"]
    wide = " in each hidden layer" if s["layer"] is None and s["depth"] > 2 else ""
    if least == most:
        span = f"{counted(most, 'neuron')}{wide} {'is' if most == 1 else 'are'} needed and enough"
    else:
        span = f"at least {least} and at most {counted(most, 'neuron')}{wide} are needed"
    text = f"To come within 1 % of the minimum, {span} (proved)"
    if estimate is not None and least != most:
        text += f"; the narrowest network found within 1 % of the lowest cost known has {estimate}"
    if level is None:
        return f"{text}."
    if lower is None or lower <= 0.0:
        return f"{text}. The minimum over all widths is at most {up(level)}."
    low, high = interval(lower, level)
    return f"{text}. The minimum over all widths is between {low} and {high}."


def pairs(s: Summary) -> Pairs:
    """Return a plateau as labelled lines."""
    level, lower = s["level"], s["lower"]
    proved = bound_of({"cost": level, "lower": lower}, 8) + ("" if lower is None else f" ({s['certificate']})")
    reached = "no network was found" if level is None else f"{level:.8g}"
    lines = [("problem", headline(s)), ("lowest cost", reached), ("lower bound", proved)]
    for eps, (least, most) in [*s["start"].items(), ("0", s["exact_start"])]:
        estimate, (why_least, why_most) = s["estimate"].get(eps), s["reasons"][eps]
        best_known = "" if estimate is None else f"; best known {estimate}"
        label = f"within {100 * float(eps):g} %" if float(eps) else "exactly"
        why = f"lower end: {why_least}; upper end: {why_most}"
        neurons = counted(most, "neuron") if least == most else f"{least} to {most} neurons"
        lines.append((label, f"{neurons}{best_known} ({why})"))
    return [*lines, ("status", ended({"status": s["status"], "cost": level})), ("time", f"{s['seconds']:.3g} s")]
