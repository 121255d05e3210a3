"""What an audit found, in words a person can act on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from covopt.loop import Certificate
from covopt.numerals import down, percent_at_most, up
from covopt.result import Result

if TYPE_CHECKING:
    from covopt.study.audit import LayerAudit

# A loss within this of another, relative, is as good.
SAME = 1e-4
# Weights with a smaller residual of stationarity are at a stand: the loss they could still lose is of its square.
STILL = 1e-2
# A neuron is missing where h_l exceeds 1 by more than this, and adding it lowers the loss.
MISSING = 1e-3
# Weights whose inert or unbalanced part is larger than this are said to have one.
NOTICED = 1e-2
# Entries of a direction that are written out.
WRITTEN = 6


def is_missing(value: float, cost: float, loss: float) -> bool:
    """Whether a neuron of this h_l is missing: first order promises a lower loss, and the loss with it is lower."""
    return value > 1.0 + MISSING and cost < loss


def of_layer(found: LayerAudit, loss: float, *, last: bool, deep: bool) -> str:
    """The verdict on one hidden layer.

    Args:
        found: the layer's numbers.
        loss: of the network.
        last: it is the last hidden layer, where a missing neuron is certain at first order.
        deep: there are other hidden layers, so its block was solved.
    """
    facts, said = found.facts, []
    said.append(of_neuron(found, loss, last))
    if deep and found.solved is not None:
        if found.solved < loss * (1.0 - SAME):
            said.append(f"Solving its block, the other layers fixed, lowers the loss to {found.solved:.8g}.")
        elif facts.gap is not None and facts.gap <= SAME:
            said.append(f"Its block is at its minimum, proved to {up(facts.gap, 1)} of the loss.")
        else:
            said.append("Solving its block found nothing lower.")
    if found.merging:
        count = sum(len(group) for group in found.merging)
        said.append(f"{count} of its {facts.width} neurons could be {len(found.merging)}: their directions agree.")
    if found.unbalanced_neuron > NOTICED:
        said.append(
            f"Its neurons are unbalanced by up to {found.unbalanced_neuron:.2g}: equal incoming and outgoing norms"
            " cost less."
        )
    return " ".join(said)


def of_network(
    *,
    loss: float,
    best: float,
    reference: Result,
    residual: float | None,
    missing: list[str],
    escape_cost: float | None,
) -> str:
    """The verdict on the network.

    Args:
        loss: of the network; best: the lowest known.
        reference: the solver's answer.
        residual: the largest of the weights' residuals of stationarity.
        missing: what is said of each missing neuron.
        escape_cost: the loss that was reached from the network; None where that is no lower.
    """
    lower = reference.lower
    if lower is not None and loss - lower <= SAME * loss:
        near = percent_at_most(max(0.0, loss - lower) / loss)
        return f"At the minimum: the loss {loss:.8g} is within {near} of a proved lower bound."
    if loss - best <= SAME * best:
        return (
            f"No better network was found: the loss {loss:.8g} is within {_part((loss - best) / best)} of the best"
            + (f" known; {_proved(reference, best)}.")
        )
    above = f"the loss {loss:.8g} is {_part((loss - best) / best)} above the best known, {best:.8g}"
    if residual is not None and residual > STILL:
        said = f"Not trained to the end: {above}, and the weights still move (residual {residual:.2g}); train on."
    elif missing:
        said = f"Stuck: the weights are stationary, but {above}."
    else:
        said = f"In a worse minimum: {above}, and no single neuron lowers it."
    said = " ".join([said, *missing[:1]])
    if escape_cost is not None:
        said += f" New neurons, block solves and descents lead from it to {escape_cost:.8g}."
    return f"{said} The solver reached {reference.cost:.8g}; {_proved(reference, best)}."


def of_neuron(found: LayerAudit, loss: float, last: bool) -> str:
    """What the search for a missing neuron says."""
    layer, escape = found.facts.layer, found.escape
    if escape is None:
        return "Whether a neuron is missing is not determined: its inputs have rank below the number of samples."
    shown = f"|M^T s| = {escape.value:.5g}"
    if is_missing(escape.value, escape.cost, loss):
        hint = "" if last else " (a hint: below the last hidden layer kinks may forbid it, and block solves decide)"
        return (
            f"A neuron is missing in hidden layer {layer}: {shown} > 1 at direction {_vector(escape.direction)}, bias"
            f" last; adding it with output along {_vector(escape.output)} lowers the loss to {escape.cost:.8g}{hint}."
        )
    if escape.value > 1.0 + MISSING:
        return f"{shown} > 1 in hidden layer {layer}, but adding that neuron in any size raises the loss (kinks)."
    found_by = "by search" if last else "by search, exact away from kinks only"
    return f"No neuron is missing in hidden layer {layer}: {shown}, {found_by}."


def _proved(reference: Result, best: float) -> str:
    if reference.lower is None or reference.certificate is Certificate.NONE:
        return "nothing is proved about the minimum"
    if best - reference.lower <= SAME * best:
        return f"{best:.8g} is proved to be the minimum, to {_part(SAME)}"
    return (
        f"the minimum is proved to be at least {down(reference.lower, 8)} ({_part(1.0 - reference.lower / best)} lower)"
    )


def _part(relative: float) -> str:
    """A relative difference as a percentage, rounding below zero hidden."""
    return f"{100.0 * max(0.0, relative):.3g} %"


def _vector(entries: Tensor) -> str:
    shown = [f"{0.0 if abs(entry) < 5e-5 else entry:.4g}" for entry in entries.tolist()[:WRITTEN]]
    more = [f"... {len(entries)} entries"] if len(entries) > WRITTEN else []
    return f"({', '.join(shown + more)})"
