"""The verdict on the set of optima in words, from the summary of a solve."""

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
    """Say if the optimum is the only one, and how many neurons optima have; empty if unknown."""
    unique = s.get("unique")
    if not unique:
        return ""
    text = f"{VERDICTS[unique['verdict']]}: {_low(unique['reason'])}"
    neurons = counts(unique)
    return f"{text} {neurons}" if neurons else text


def counts(unique: Mapping[str, Any]) -> str:
    """Say how many neurons an optimum has, at least and at most; empty if unknown."""
    if unique["fewest"] is None:
        return ""
    if unique["most"] is None:
        return f"The narrowest has {_between(unique['fewest'])}, and there is no widest."
    if unique["verdict"] == "unique":
        return f"It has {_between(unique['fewest'])}."
    return f"The narrowest has {_between(unique['fewest'])}, the widest {_between(unique['most'])}."


def _between(ends: Sequence[int]) -> str:
    low, high = ends
    return counted(high, "neuron") if low == high else f"between {low} and {counted(high, 'neuron')}"


def _low(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
