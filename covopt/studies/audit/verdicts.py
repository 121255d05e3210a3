"""The findings of an audit and its sentences, all derived from its numbers.

Every sentence states a loss that was evaluated, the result of a search, or a proved bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from torch import Tensor

from covopt.answer.result import Result
from covopt.records.numerals import down, percent_at_most, up
from covopt.runtime.errors import counted, listed
from covopt.runtime.loop import Certificate
from covopt.studies.audit.batches import Batches
from covopt.studies.audit.examination import LayerAudit

# Two losses that differ by less than this, relative, count as equal.
SAME = 1e-4
# A network is trained if further training gains at most this part of the loss: Adam hovers this far above a minimum,
# since the gradient jumps at kinks and its steps do not shrink.
TRAINED_GAIN = 5e-3
# A neuron is missing if h_l exceeds 1 by more than this, and the loss falls with it.
MISSING_VIOLATION = 1e-3
NOT_JUDGED = "Whether a neuron is missing is not judged while batches move the network."


class Finding(StrEnum):
    """The place of a network relative to the minimum.

    * minimum: within SAME of a proved lower bound.
    * best: no network better by more than SAME is known.
    * moving: SGD at a constant rate keeps it moving, so that further training in the same way is of no use.
    * untrained: further training gains more than TRAINED_GAIN.
    * near: trained, and within TRAINED_GAIN of the best known.
    * stuck: trained, further off, and a neuron lowers the loss at the end of further training.
    * apart: trained, further off, and no single neuron was found that lowers it.
    """

    MINIMUM = "minimum"
    BEST = "best"
    MOVING = "moving"
    UNTRAINED = "untrained"
    NEAR = "near"
    STUCK = "stuck"
    APART = "apart"


@dataclass(frozen=True)
class Judge:
    """The rules by which an audit's numbers become a finding, missing neurons and sentences.

    Attributes:
        loss: of the network.
        descended: after further training, complete or cut short by time; at most `loss`.
        finished: whether further training was complete.
        best: the lowest known.
        reached: from this network by neurons, blocks and descents; None if that is no lower.
        lower: a proved lower bound, or None.
        batches: of the training, if that is reported.
        in_passes: True if the samples were too many for further training with a missing neuron.
        depth: L.
    """

    loss: float
    descended: float
    finished: bool
    best: float
    reached: float | None
    lower: float | None
    batches: Batches | None
    in_passes: bool
    depth: int

    @property
    def gain(self) -> float:
        """The gain of further training, relative to the loss."""
        return (self.loss - self.descended) / self.loss if self.loss > 0.0 else 0.0

    @property
    def moving(self) -> bool:
        """True if the batches of the training undo what further training would gain."""
        return self.batches is not None and self.batches.move and self.gain > SAME

    def lacks_neuron(self, layer: LayerAudit) -> bool:
        """Return True if first order promises a lower loss for a neuron and training confirms it.

        On many samples, where that training is left out, the neuron's own gain counts.
        """
        if layer.escape is None or self.moving:
            return False
        cost = layer.escape.cost if self.in_passes else layer.grown
        promised = layer.escape.value > 1.0 + MISSING_VIOLATION
        return promised and cost is not None and cost < self.descended * (1.0 - SAME)

    def finding(self, layers: Sequence[LayerAudit]) -> Finding:
        """Decide where the network is."""
        loss, best, lower = self.loss, self.best, self.lower
        if loss == 0.0 or (lower is not None and loss - lower <= SAME * loss):
            return Finding.MINIMUM
        if loss - best <= SAME * best:
            return Finding.BEST
        if self.moving:
            return Finding.MOVING
        if self.gain > TRAINED_GAIN:
            return Finding.UNTRAINED
        if loss - best <= TRAINED_GAIN * best:
            return Finding.NEAR
        return Finding.STUCK if any(layer.missing for layer in layers) else Finding.APART

    def is_stationary(self, layers: Sequence[LayerAudit]) -> bool:
        """Return True if neither further training nor another neuron lowers the loss."""
        finding = self.finding(layers)
        if finding in (Finding.MINIMUM, Finding.BEST):
            return True
        return finding not in (Finding.UNTRAINED, Finding.MOVING) and not any(layer.missing for layer in layers)

    def of_layer(self, layer: LayerAudit) -> str:
        """Return the verdict on one hidden layer, whose numbers are those at the end of further training."""
        facts, loss = layer.facts, self.descended
        sentences = [NOT_JUDGED if self.moving and layer.escape is not None else self.of_neuron(layer)]
        if self.depth > 2 and layer.solved is not None:
            if layer.solved < loss * (1.0 - SAME):
                sentences.append(f"Solving its block, the other layers fixed, lowers the loss to {layer.solved:.8g}.")
            elif facts.gap is not None and facts.gap <= SAME:
                sentences.append(f"Its block is at its minimum, proved to {up(facts.gap, 1)} of the loss.")
            else:
                sentences.append("Solving its block found nothing lower.")
        if layer.dead:
            which = "all" if layer.dead == facts.width else str(layer.dead)
            sentences.append(
                f"Dead (nothing comes of them on these data): {which} of its {counted(facts.width, 'neuron')}."
            )
        if layer.merging:
            count, groups = sum(len(group) for group in layer.merging), len(layer.merging)
            sentences.append(f"{count} of its {facts.width} neurons could be {groups}: their directions agree.")
        if layer.unbalanced_neuron > 1e-2:
            sentences.append(
                f"Its neurons are unbalanced by up to {layer.unbalanced_neuron:.2g}: equal incoming and outgoing norms"
                " cost less."
            )
        return " ".join(sentences)

    def of_neuron(self, layer: LayerAudit) -> str:
        """Describe the result of the search for a missing neuron, certain in the last hidden layer only."""
        number, escape = layer.facts.layer, layer.escape
        last = number == self.depth - 1
        if escape is None:
            return "Whether a neuron is missing is not determined: its inputs have rank below the number of samples."
        shown = f"|M^T s| = {escape.value:.5g}"
        if layer.missing:
            hint = "" if last else " (a hint: below the last hidden layer kinks may forbid it)"
            grown = "" if layer.grown is None else f", and training on from there to {layer.grown:.8g}"
            added = f"adding it with output along {_vector(escape.output)} lowers the loss to {escape.cost:.8g}"
            return (
                f"A neuron is missing in hidden layer {number}: {shown} > 1 at direction {_vector(escape.direction)},"
                f" bias last; {added}{grown}{hint}."
            )
        if escape.value <= 1.0 + MISSING_VIOLATION:
            found_by = "by search" if last else "by search, exact away from kinks only"
            if escape.cut:
                return f"No neuron was found missing in hidden layer {number} before time was up: {shown}, {found_by}."
            return f"No neuron is missing in hidden layer {number}: {shown}, {found_by}."
        if layer.grown is not None:
            gains = f"adding that neuron and training on gained less than {part(SAME)} in its time"
        else:
            gains = f"adding that neuron in no size that was tried lowers the loss by {part(SAME)}"
        return f"{shown} > 1 in hidden layer {number}, but {gains}."

    def of_network(self, layers: Sequence[LayerAudit], reference: Result, *, constant: bool, hint: str) -> str:
        """Return the verdict on the network.

        Args:
            layers: its hidden layers; of those that lack a neuron the last is described.
            reference: the solver's result.
            constant: whether the outputs are the same for all samples, which differ.
            hint: on another problem that the network may solve; empty without one.
        """
        finding, loss, best, lower = self.finding(layers), self.loss, self.best, self.lower
        if loss == 0.0:
            return "At the minimum: the loss is 0, and no loss is below that."
        if finding is Finding.MINIMUM and lower is not None:
            within = percent_at_most(max(0.0, loss - lower) / loss)
            return f"At the minimum: the loss {loss:.8g} is within {within} of a proved lower bound."
        if finding is Finding.BEST:
            return (
                f"No better network was found: the loss {loss:.8g} is within {part((loss - best) / best)} of the best"
                f" known; {_proved(reference, best)}."
            )
        missing = [self.of_neuron(layer) for layer in layers[::-1] if layer.missing]
        sentences = [self._whereabouts(finding, bool(missing)), *missing[:1]]
        if self.batches is not None and finding is Finding.MOVING:
            sentences = [self._unrest(self.batches)]
        elif self.batches is not None and finding is Finding.UNTRAINED:
            sentences += self.batches.fading()
        if constant:
            sentences.append("Its outputs are the same for every sample.")
        if self.reached is not None and self.reached < self.descended * (1.0 - SAME):
            solves = ", block solves" if reference.problem.has_blocks else ""
            sentences.append(f"New neurons{solves} and descents lead from there to {self.reached:.8g}.")
        solved = f"The solver reached {reference.cost:.8g}; " if math.isfinite(reference.cost) else ""
        proved = _proved(reference, best)
        sentences.append(f"{solved}{proved if solved else proved[:1].upper() + proved[1:]}.")
        return " ".join([*sentences, hint] if hint else sentences)

    def _whereabouts(self, finding: Finding, missing: bool) -> str:
        """Return the first sentences: the gain of further training, and where it ends."""
        end, best = self.descended, self.best
        at_least = "" if self.finished else "at least "
        if finding is Finding.UNTRAINED:
            # In per cent more would round to all of the loss.
            gained = "" if self.gain > 0.999 else f" by {at_least}{part(self.gain)}"
            first = f"Not trained to the end: training on lowers the loss {self.loss:.8g}{gained} to {end:.8g}"
            if end - best <= SAME * best:
                return f"{first}, as low as the best known; train on."
            if not self.finished:
                return f"{first}, where its time was up; train on. The best known is {best:.8g}."
            there = "it is stuck" if missing else "no single neuron is found to lower it"
            if end - best <= TRAINED_GAIN * best:
                there = "a neuron is missing still" if missing else there
            return f"{first}; train on. There it is {_above(end, best)}, and {there}."
        trained = f"training on gains {at_least}{part(self.gain)}"
        if finding is Finding.NEAR:
            return f"Nearly at the best known: the loss {self.loss:.8g} is {_above(self.loss, best)}; {trained}."
        if finding is Finding.STUCK:
            return f"Stuck: {trained}, but the loss {self.loss:.8g} is {_above(self.loss, best)}."
        return (
            f"Apart from the best known: {trained} and no single neuron is found to lower it, but the loss"
            f" {self.loss:.8g} is {_above(self.loss, best)}."
        )

    def _unrest(self, batches: Batches) -> str:
        """Explain that further training in the same way is of no use, and what is."""
        at_least = "" if self.finished else "at least "
        size = batches.training.batch_size
        batch = f"batches of {size}" if size > 1 else "single samples"
        retained = 0.0 if batches.kept is None else batches.kept
        return (
            "The network moves because of its batches; lower the rate or average the weights: gradients of"
            f" {batch} are {_in_order(batches.rms)} times the decay 2 lam |W_l| (root mean square), the gradient of"
            f" all samples {_in_order(batches.residuals)} times, and {retained:.2g} of the start is left."
            f" Descending without batches lowers the loss {self.loss:.8g} by {at_least}{part(self.gain)} to"
            f" {self.descended:.8g}."
        )


def _in_order(values: Sequence[float]) -> str:
    """Return the numbers of the layers, in their order."""
    return listed([f"{value:.2g}" for value in values])


def part(relative: float) -> str:
    """Return a relative difference in per cent; rounding below zero shows as 0."""
    return f"{100.0 * max(0.0, relative):.3g} %"


def _above(loss: float, best: float) -> str:
    """Describe how far a loss is above the best one."""
    if best > 0.0 and loss <= 10.0 * best:
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
    most = 6
    shown = [f"{0.0 if abs(entry) < 5e-5 else entry:.4g}" for entry in entries.tolist()[:most]]
    more = [f"... {len(entries)} entries"] if len(entries) > most else []
    return f"({', '.join(shown + more)})"
