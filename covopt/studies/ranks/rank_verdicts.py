"""What an audit of ranks found, in words: each sentence from one inequality between numbers of its summary.

Nothing is called a bound that is not below the width, and nothing the start's or learned that the numbers do not show.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from covopt.records.numerals import down, up
from covopt.runtime.errors import counted

Summary = Mapping[str, Any]

# A rank is the start's where the decayed start alone gives as much, to this part of it; learned where it gives less
# than half.
SAME_RANK = 0.1
LEARNED = 0.5


def of_layer(
    layer: Summary,
    tolerance: str,
    *,
    batch_size: int | None = None,
    kept: float | None = None,
    reference: int | None = None,
) -> str:
    """The verdict on one matrix of weights.

    Args:
        layer: `LayerRanks.summary()`.
        tolerance: one of the keys of its rank.
        batch_size: of the training; None where it is not known.
        kept: what is left of the start; None where it is not known.
        reference: the rank of the same matrix of the solver's network; None where it is not known.
    """
    said = [
        of_start(layer, tolerance, kept),
        "" if kept == 1.0 else of_window(layer, batch_size),
        of_noise(layer, batch_size),
        of_theorem(layer, batch_size),
        against(layer["rank"][tolerance], reference),
        of_dead(layer),
    ]
    return " ".join(sentence for sentence in said if sentence)


def of_start(layer: Summary, tolerance: str, kept: float | None) -> str:
    """Whether the rank is what is left of the start."""
    rank = layer["rank"][tolerance]
    if rank == 0:
        return "Nothing is left of it: the rank is 0."
    if kept == 1.0:
        return f"No decay: the start never fades; the rank is {rank}."
    if layer["predicted"] is None:
        return ""
    start = layer["predicted"][tolerance]
    if abs(start - rank) <= SAME_RANK * rank:
        return f"The rank {rank} is the start's: what is left of the start alone gives {start}."
    if start < LEARNED * rank:
        return f"The rank {rank} was learned: what is left of the start alone gives {start}."
    if start < rank:
        return f"The rank {rank} is in part the start's: what is left of the start alone gives {start}."
    return f"The rank {rank} is below what is left of the start alone would give, {start}."


def of_window(layer: Summary, batch_size: int | None) -> str:
    """What the theory proves of the rank."""
    if batch_size is None:
        return ""
    width = min(layer["shape"])
    if layer["window"] is None:
        return "No bound on the rank: no decay by numbers alone is known (there is none for Adam or AdamW, or lam = 0)."
    steps, bound = layer["window"]["steps"], layer["window"]["bound"]
    if bound is None:
        return f"No bound on the rank below {width}: the weights remember {counted(steps, 'step')}."
    return f"Proved: the rank is at most {bound}; what is older than {counted(steps, 'step')} has faded."


def of_noise(layer: Summary, batch_size: int | None) -> str:
    """Whether the layer can be at rest."""
    noise = layer["noise"]
    if noise is None or batch_size is None or not (noise["floor"] or 0.0) > 0.0 or noise["rms"] is None:
        return ""
    return (
        f"It cannot come to rest at a constant rate: batches of {batch_size} move it by at least"
        f" {down(noise['floor'], 2)} times its decay a step (root mean square), in fact by {noise['rms']:.2g} times."
    )


def of_theorem(layer: Summary, batch_size: int | None) -> str:
    """What the bound from one batch says; at |W| and above nothing, which is within |W| of every rank."""
    chain = layer["batch_bound"]
    if chain is None or chain["theorem"] is None or batch_size is None:
        return ""
    theorem = up(chain["theorem"], 3)
    if chain["theorem"] >= 1.0:
        return f"[GP22, (10)] says nothing about it: {theorem} |W|, at least |W|."
    return (
        f"[GP22, (10)] puts it within {theorem} |W| of rank {batch_size}, from which it is {chain['tail']:.3g} |W| off."
    )


def against(rank: int, reference: int | None) -> str:
    """The rank beside that of the solver's network."""
    if reference is None:
        return ""
    if rank == reference:
        return "As low as the solver's."
    above = "above" if rank > reference else "below"
    return f"{abs(rank - reference)} {above} the solver's, {reference}."


def of_dead(layer: Summary) -> str:
    """Neurons that do nothing."""
    return f"{layer['dead']} of {counted(layer['shape'][0], 'neuron')} are dead." if layer["dead"] else ""
