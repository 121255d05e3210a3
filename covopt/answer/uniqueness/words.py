"""Whether an optimum is the only one, in words, from the summary of a solve alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from covopt.runtime.errors import counted

VERDICTS = {
    "unique": "the optimal network is the only one, which is proved",
    "not unique": "there are infinitely many optimal networks, which is proved",
    "undecided": "not decided",
}


def verdict(s: Mapping[str, Any]) -> str:
    """Whether the optimum is the only one, and how many neurons optima have; empty where nobody asked."""
    told = s.get("unique")
    if not told:
        return ""
    said = f"{VERDICTS[told['verdict']]}: {_low(told['reason'])}"
    neurons = counts(told)
    return f"{said} {neurons}" if neurons else said


def counts(told: Mapping[str, Any]) -> str:
    """How few and how many neurons an optimum has, as a sentence; empty where that is not known."""
    if told["fewest"] is None:
        return ""
    if told["most"] is None:
        return f"The narrowest has {_between(told['fewest'])}, and there is no widest."
    if told["verdict"] == "unique":
        return f"It has {_between(told['fewest'])}."
    return f"The narrowest has {_between(told['fewest'])}, the widest {_between(told['most'])}."


def _between(ends: Sequence[int]) -> str:
    low, high = ends
    return counted(high, "neuron") if low == high else f"between {low} and {counted(high, 'neuron')}"


def _low(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
