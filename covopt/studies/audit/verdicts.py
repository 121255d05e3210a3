"""What an audit found: one finding from its numbers, and the words, all of them derived from that.

Every sentence states a loss that was evaluated, what a search did or did not find, or a bound that is proved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from torch import Tensor

from covopt.answer.result import Result
from covopt.records.numerals import down, percent, percent_at_most, up
from covopt.runtime.errors import counted, listed
from covopt.runtime.loop import Certificate
from covopt.studies.audit.batches import Batches
from covopt.studies.audit.layer_audit import LayerAudit

# A loss within this of another, relative, is as good.
SAME = 1e-4
# A network is trained where training on gains at most this part of the loss: Adam hovers so far above the place that it
# goes round, since the gradient jumps at kinks and its steps do not shrink.
TRAINED_GAIN = 5e-3
# A neuron is missing where h_l exceeds 1 by more than this, and the loss falls with it.
MISSING_VIOLATION = 1e-3
# Weights whose inert or unbalanced part is larger than this are said to have one.
NOTABLE_PART = 1e-2
# A gain of more than this part of the loss is not given in per cent, where it would be rounded to all of it.
NEARLY_ALL = 0.999
# A loss above this many times another is given as a multiple.
MULTIPLE = 10.0
NOT_JUDGED = "Whether a neuron is missing is not judged while batches move the network."
# Entries of a direction that are written out.
WRITTEN = 6


class Finding(StrEnum):
    """Where a network is.

    * minimum: within SAME of a proved lower bound.
    * best: no network better by more than SAME is known.
    * moving: SGD at a constant rate keeps it moving, so that training on in the same way leads nowhere else.
    * untrained: training on gains more than TRAINED_GAIN.
    * near: trained, and within TRAINED_GAIN of the best known.
    * stuck: trained, further off, and a neuron lowers the loss where training on ends.
    * apart: trained, further off, and no single neuron is found to lower it.
    """

    MINIMUM = "minimum"
    BEST = "best"
    MOVING = "moving"
    UNTRAINED = "untrained"
    NEAR = "near"
    STUCK = "stuck"
    APART = "apart"


@dataclass(frozen=True)
class Losses:
    """The losses that an audit knows.

    Attributes:
        loss: of the network.
        descended: where training on ends, or was when its time was up; at most `loss`.
        finished: whether training on came to its end.
        best: the lowest known.
        reached: from this network by neurons, blocks and descents; None where that is no lower.
        lower: a proved lower bound, or None.
    """

    loss: float
    descended: float
    finished: bool
    best: float
    reached: float | None
    lower: float | None

    @property
    def gain(self) -> float:
        """What training on gains, as a part of the loss."""
        return (self.loss - self.descended) / self.loss if self.loss > 0.0 else 0.0


def finding(losses: Losses, missing: bool, moving: bool = False) -> Finding:
    """Where the network is; `missing`: a neuron lowers the loss where training on ends; `moving`: see `is_moving`."""
    loss, best, lower = losses.loss, losses.best, losses.lower
    if loss == 0.0 or (lower is not None and loss - lower <= SAME * loss):
        return Finding.MINIMUM
    if loss - best <= SAME * best:
        return Finding.BEST
    if moving:
        return Finding.MOVING
    if losses.gain > TRAINED_GAIN:
        return Finding.UNTRAINED
    if loss - best <= TRAINED_GAIN * best:
        return Finding.NEAR
    return Finding.STUCK if missing else Finding.APART


def is_stationary(found: Finding, missing: bool) -> bool:
    """Whether neither training on nor a neuron more lowers the loss, as far as was measured."""
    if found in (Finding.MINIMUM, Finding.BEST):
        return True
    return found not in (Finding.UNTRAINED, Finding.MOVING) and not missing


def is_moving(losses: Losses, batches: Batches | None) -> bool:
    """Whether what training on would gain is what the batches of the training undo."""
    return batches is not None and batches.move and losses.gain > SAME


def is_missing(value: float, with_neuron: float, without: float) -> bool:
    """Whether a neuron of this h_l is missing: first order promises a lower loss, and trained with it the loss is."""
    return value > 1.0 + MISSING_VIOLATION and with_neuron < without * (1.0 - SAME)


def lacks_neuron(found: LayerAudit, descended: float, in_passes: bool) -> bool:
    """Whether the layer's neuron is missing; on many samples it is not trained with, so that its own gain counts."""
    if found.escape is None:
        return False
    cost = found.escape.cost if in_passes else found.grown
    return cost is not None and is_missing(found.escape.value, cost, descended)


def of_layer(found: LayerAudit, losses: Losses, *, last: bool, deep: bool, moving: bool = False) -> str:
    """The verdict on one hidden layer.

    Args:
        found: the layer's numbers, at the end of training on where they speak of losses.
        losses: of the network.
        last: it is the last hidden layer, where a missing neuron is certain at first order.
        deep: there are other hidden layers, so its block was solved.
        moving: the network moves because of its batches, so that no neuron is called missing.
    """
    facts, loss, said = found.facts, losses.descended, []
    said.append(NOT_JUDGED if moving and found.escape is not None else of_neuron(found, last))
    if deep and found.solved is not None:
        if found.solved < loss * (1.0 - SAME):
            said.append(f"Solving its block, the other layers fixed, lowers the loss to {found.solved:.8g}.")
        elif facts.gap is not None and facts.gap <= SAME:
            said.append(f"Its block is at its minimum, proved to {up(facts.gap, 1)} of the loss.")
        else:
            said.append("Solving its block found nothing lower.")
    if found.dead:
        which = "all" if found.dead == facts.width else str(found.dead)
        said.append(f"Dead (nothing comes of them on these data): {which} of its {counted(facts.width, 'neuron')}.")
    if found.merging:
        count = sum(len(group) for group in found.merging)
        said.append(f"{count} of its {facts.width} neurons could be {len(found.merging)}: their directions agree.")
    if found.unbalanced_neuron > NOTABLE_PART:
        said.append(
            f"Its neurons are unbalanced by up to {found.unbalanced_neuron:.2g}: equal incoming and outgoing norms"
            " cost less."
        )
    return " ".join(said)


def of_network(
    losses: Losses,
    reference: Result,
    missing: list[str],
    *,
    constant: bool,
    hint: str,
    batches: Batches | None = None,
) -> str:
    """The verdict on the network.

    Args:
        losses: what is known.
        reference: the solver's answer.
        missing: what is said of each missing neuron.
        constant: whether its outputs are the same for all samples, which differ.
        hint: of another question that the network may answer; empty without one.
        batches: of the training, where that is known.
    """
    found = finding(losses, bool(missing), is_moving(losses, batches))
    loss, best, lower = losses.loss, losses.best, losses.lower
    if loss == 0.0:
        return "At the minimum: the loss is 0, and no loss is below that."
    if found is Finding.MINIMUM and lower is not None:
        within = percent_at_most(max(0.0, loss - lower) / loss)
        return f"At the minimum: the loss {loss:.8g} is within {within} of a proved lower bound."
    if found is Finding.BEST:
        return (
            f"No better network was found: the loss {loss:.8g} is within {part((loss - best) / best)} of the best"
            f" known; {_proved(reference, best)}."
        )
    said = [_whereabouts(found, losses, bool(missing)), *missing[:1]]
    if batches is not None:
        said = [_moving(losses, batches)] if found is Finding.MOVING else [*said, *_fading(found, batches)]
    if constant:
        said.append("Its outputs are the same for every sample.")
    if losses.reached is not None and losses.reached < losses.descended * (1.0 - SAME):
        moves = "New neurons and descents" if reference.problem.free else "New neurons, block solves and descents"
        said.append(f"{moves} lead from there to {losses.reached:.8g}.")
    solved = f"The solver reached {reference.cost:.8g}; " if math.isfinite(reference.cost) else ""
    proved = _proved(reference, best)
    said.append(f"{solved}{proved if solved else proved[:1].upper() + proved[1:]}.")
    return " ".join([*said, hint] if hint else said)


def _whereabouts(found: Finding, losses: Losses, missing: bool) -> str:
    """The first sentences: what training on gains, and where its end is."""
    end, best = losses.descended, losses.best
    at_least = "" if losses.finished else "at least "
    if found is Finding.UNTRAINED:
        gained = "" if losses.gain > NEARLY_ALL else f" by {at_least}{part(losses.gain)}"
        first = f"Not trained to the end: training on lowers the loss {losses.loss:.8g}{gained} to {end:.8g}"
        if end - best <= SAME * best:
            return f"{first}, as low as the best known; train on."
        if not losses.finished:
            return f"{first}, where its time was up; train on. The best known is {best:.8g}."
        there = "it is stuck" if missing else "no single neuron is found to lower it"
        if end - best <= TRAINED_GAIN * best:
            there = "a neuron is missing still" if missing else there
        return f"{first}; train on. There it is {_above(end, best)}, and {there}."
    trained = f"training on gains {at_least}{part(losses.gain)}"
    if found is Finding.NEAR:
        return f"Nearly at the best known: the loss {losses.loss:.8g} is {_above(losses.loss, best)}; {trained}."
    if found is Finding.STUCK:
        return f"Stuck: {trained}, but the loss {losses.loss:.8g} is {_above(losses.loss, best)}."
    return (
        f"Apart from the best known: {trained} and no single neuron is found to lower it, but the loss"
        f" {losses.loss:.8g} is {_above(losses.loss, best)}."
    )


def _moving(losses: Losses, batches: Batches) -> str:
    """That training on in the same way is of no use, and what is."""
    at_least = "" if losses.finished else "at least "
    batch = f"batches of {batches.batch_size}" if batches.batch_size > 1 else "single samples"
    left = 0.0 if batches.kept is None else batches.kept
    return (
        "The network moves because of its batches; lower the rate or average the weights: gradients of"
        f" {batch} are {_in_order(batches.rms)} times the decay 2 lam |W_l| (root mean square), the gradient of"
        f" all samples {_in_order(batches.residuals)} times, and {left:.2g} of the start is left."
        f" Descending without batches lowers the loss {losses.loss:.8g} by {at_least}{part(losses.gain)} to"
        f" {losses.descended:.8g}."
    )


def _fading(found: Finding, batches: Batches) -> list[str]:
    """Why a network whose batches move it is to be trained on all the same."""
    if found is not Finding.UNTRAINED or batches.faded or batches.kept is None:
        return []
    return [f"Of its start {percent(abs(batches.kept))} is left."]


def _in_order(values: Sequence[float]) -> str:
    """Numbers of the layers, in their order."""
    return listed([f"{value:.2g}" for value in values])


def of_neuron(found: LayerAudit, last: bool) -> str:
    """What the search for a missing neuron says."""
    layer, escape = found.facts.layer, found.escape
    if escape is None:
        return "Whether a neuron is missing is not determined: its inputs have rank below the number of samples."
    shown = f"|M^T s| = {escape.value:.5g}"
    if found.missing:
        hint = "" if last else " (a hint: below the last hidden layer kinks may forbid it)"
        grown = "" if found.grown is None else f", and training on from there to {found.grown:.8g}"
        added = f"adding it with output along {_vector(escape.output)} lowers the loss to {escape.cost:.8g}"
        return (
            f"A neuron is missing in hidden layer {layer}: {shown} > 1 at direction {_vector(escape.direction)}, bias"
            f" last; {added}{grown}{hint}."
        )
    if escape.value <= 1.0 + MISSING_VIOLATION:
        found_by = "by search" if last else "by search, exact away from kinks only"
        if escape.cut:
            return f"No neuron was found missing in hidden layer {layer} before time was up: {shown}, {found_by}."
        return f"No neuron is missing in hidden layer {layer}: {shown}, {found_by}."
    if found.grown is not None:
        gains = f"adding that neuron and training on gained less than {part(SAME)} in its time"
    else:
        gains = f"adding that neuron in no size that was tried lowers the loss by {part(SAME)}"
    return f"{shown} > 1 in hidden layer {layer}, but {gains}."


def part(relative: float) -> str:
    """A relative difference as a percentage, rounding below zero hidden."""
    return f"{100.0 * max(0.0, relative):.3g} %"


def _above(loss: float, best: float) -> str:
    """How far a loss is above the best known."""
    if best > 0.0 and loss <= MULTIPLE * best:
        return f"{part((loss - best) / best)} above the best known, {best:.8g}"
    times = f"{loss / best:.2g} times " if best > 0.0 and loss / best < 1e300 else "above "
    return f"{times}the best known, {best:.8g}"


def _proved(reference: Result, best: float) -> str:
    if reference.lower is None or reference.certificate is Certificate.NONE:
        return "nothing is proved about the minimum"
    if best - reference.lower <= SAME * best:
        return f"{best:.8g} is proved to be the minimum, to {part(SAME)}"
    if not reference.lower > 0.0:
        return "nothing is proved about the minimum but that it is not negative"
    return (
        f"the minimum is proved to be at least {down(reference.lower, 8)} ({part(1.0 - reference.lower / best)} lower)"
    )


def _vector(entries: Tensor) -> str:
    shown = [f"{0.0 if abs(entry) < 5e-5 else entry:.4g}" for entry in entries.tolist()[:WRITTEN]]
    more = [f"... {len(entries)} entries"] if len(entries) > WRITTEN else []
    return f"({', '.join(shown + more)})"
