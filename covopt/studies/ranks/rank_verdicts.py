"""The verdicts of an audit of ranks, in words.

Each sentence follows from one inequality between numbers of the summary. A bound is stated only if it is below the
width, and a rank is attributed to the initialisation or to learning only if the numbers show it.
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
        retained: the retained fraction of the initial weights; None if it is unknown.
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
    """Return True if the decayed initial weights alone have this rank, up to a tenth of it."""
    rank = layer["rank"][tolerance]
    return layer["predicted"] is not None and abs(layer["predicted"][tolerance] - rank) <= 0.1 * rank


def of_start(layer: Summary, tolerance: str, retained: float | None) -> str:
    """Describe whether the rank comes from what remains of the initial weights."""
    rank = layer["rank"][tolerance]
    if rank == 0:
        return "The weights have vanished: the rank is 0."
    if retained == 1.0:
        return f"Rank {rank}. Without decay the initial weights never fade."
    if layer["predicted"] is None:
        return ""
    start = layer["predicted"][tolerance]
    if is_of_start(layer, tolerance):
        return f"Rank {rank}, from the initialisation: what remains of it alone has rank {start}."
    if start < 0.5 * rank:
        return f"Rank {rank}, learned: what remains of the initialisation alone has rank {start}."
    if start < rank:
        return f"Rank {rank}, in part from the initialisation: what remains of it alone has rank {start}."
    return f"Rank {rank}, below that of what remains of the initialisation alone, {start}."


def of_window(layer: Summary, batch_size: int | None) -> str:
    """Describe the proved bound on the rank."""
    if batch_size is None:
        return ""
    width = min(layer["shape"])
    if layer["window"] is None:
        return "No bound on the rank: it needs SGD with weight decay (not Adam, AdamW or lam = 0)."
    steps, bound = layer["window"]["steps"], layer["window"]["bound"]
    if bound is None:
        return f"No bound on the rank below {width}: the last {counted(steps, 'step')} still count."
    return f"Proved: the rank is at most {bound}, as steps before the last {steps} have faded."


def of_noise(layer: Summary, batch_size: int | None) -> str:
    """Describe whether the layer can be at rest."""
    noise = layer["noise"]
    if noise is None or batch_size is None or not (noise["floor"] or 0.0) > 0.0 or noise["rms"] is None:
        return ""
    return (
        f"SGD noise keeps it moving: a batch of {batch_size} changes it {noise['rms']:.2g} times as much as the decay"
        f" does (root mean square; proved: at least {down(noise['floor'], 2)} times)."
    )


def of_theorem(layer: Summary, batch_size: int | None) -> str:
    """Describe the bound from one batch, if it is below |W|: others hold for every matrix."""
    chain = layer["batch_bound"]
    if chain is None or chain["theorem"] is None or batch_size is None:
        return ""
    theorem = up(chain["theorem"], 3)
    if chain["theorem"] >= 1.0:
        return f"Bound (10) of [GP22] is void here: {theorem} |W|."
    return (
        f"By [GP22, (10)] it is within {theorem} |W| of rank {batch_size}; the true distance is {chain['tail']:.3g}"
        " |W|."
    )


def against(rank: int, reference: int | None) -> str:
    """Compare the rank with that of the solver's network."""
    if reference is None:
        return ""
    if rank == reference:
        return "The solver's network has the same rank."
    return f"The solver's network has rank {reference}."


def of_dead(layer: Summary) -> str:
    """Describe the dead neurons."""
    return f"{layer['dead']} of {counted(layer['shape'][0], 'neuron')} are dead." if layer["dead"] else ""
