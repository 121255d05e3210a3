"""The verdicts of an audit of ranks, in words.

Each sentence follows from one inequality between numbers of the summary. A bound is called one only if it is below the
width, and a rank is called the start's or learned only if the numbers show it.
"""

from __future__ import annotations

from covopt.records.numerals import down, up
from covopt.records.record import Summary
from covopt.runtime.errors import counted


def of_layer(
    layer: Summary,
    tolerance: str,
    *,
    batch_size: int | None = None,
    retained: float | None = None,
    reference: int | None = None,
) -> str:
    """Return the verdict on one weight matrix.

    Args:
        layer: `LayerRanks.summary()`.
        tolerance: one of the keys of its rank.
        batch_size: of the training; None if it is unknown.
        retained: the retained fraction of the start; None if it is unknown.
        reference: the rank of the same matrix in the solver's network; None if it is unknown.
    """
    sentences = [
        of_start(layer, tolerance, retained),
        "" if retained == 1.0 else of_window(layer, batch_size),
        of_noise(layer, batch_size),
        of_theorem(layer, batch_size),
        against(layer["rank"][tolerance], reference),
        of_dead(layer),
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def is_of_start(layer: Summary, tolerance: str) -> bool:
    """Return True if the decayed start alone gives the rank, up to a tenth of it."""
    rank = layer["rank"][tolerance]
    return layer["predicted"] is not None and abs(layer["predicted"][tolerance] - rank) <= 0.1 * rank


def of_start(layer: Summary, tolerance: str, retained: float | None) -> str:
    """Describe whether the rank comes from the remaining share of the start."""
    rank = layer["rank"][tolerance]
    if rank == 0:
        return "Nothing is left of it: the rank is 0."
    if retained == 1.0:
        return f"No decay: the start never fades; the rank is {rank}."
    if layer["predicted"] is None:
        return ""
    start = layer["predicted"][tolerance]
    if is_of_start(layer, tolerance):
        return f"The rank {rank} is the start's: what is left of the start alone gives {start}."
    if start < 0.5 * rank:
        return f"The rank {rank} was learned: what is left of the start alone gives {start}."
    if start < rank:
        return f"The rank {rank} is in part the start's: what is left of the start alone gives {start}."
    return f"The rank {rank} is below what is left of the start alone would give, {start}."


def of_window(layer: Summary, batch_size: int | None) -> str:
    """Describe the proved bound on the rank."""
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
    """Describe whether the layer can be at rest."""
    noise = layer["noise"]
    if noise is None or batch_size is None or not (noise["floor"] or 0.0) > 0.0 or noise["rms"] is None:
        return ""
    return (
        f"It cannot come to rest at a constant rate: batches of {batch_size} move it by at least"
        f" {down(noise['floor'], 2)} times its decay a step (root mean square), in fact by {noise['rms']:.2g} times."
    )


def of_theorem(layer: Summary, batch_size: int | None) -> str:
    """Describe the bound from one batch, if it is below |W|: others hold for every matrix."""
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
    """Compare the rank with that of the solver's network."""
    if reference is None:
        return ""
    if rank == reference:
        return "As low as the solver's."
    above = "above" if rank > reference else "below"
    return f"{abs(rank - reference)} {above} the solver's, {reference}."


def of_dead(layer: Summary) -> str:
    """Describe the dead neurons."""
    return f"{layer['dead']} of {counted(layer['shape'][0], 'neuron')} are dead." if layer["dead"] else ""
