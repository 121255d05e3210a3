"""The findings of an audit and its sentences, all derived from its numbers.

Every sentence states a loss that was evaluated, the result of a search, or a proved bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from torch import Tensor

from covopt.answer.result import Result
from covopt.model.passes import has_many
from covopt.model.problem import Problem
from covopt.model.weights import Cost, evaluate
from covopt.records.numerals import down, percent_at_most, up
from covopt.runtime.errors import counted, listed
from covopt.runtime.loop import Certificate, Status
from covopt.studies.audit.batches import Batches
from covopt.studies.audit.examination import LayerAudit, is_constant

# Two losses that differ by less than this, relative, count as equal.
SAME = 1e-4
# A network is trained if further training gains at most this part of the loss: Adam hovers this far above a minimum,
# since the gradient jumps at kinks and its steps do not shrink.
TRAINED_GAIN = 5e-3
# A neuron is missing if h_l exceeds 1 by more than this, and the loss falls with it.
MISSING_VIOLATION = 1e-3
NOT_JUDGED = "Missing neurons are not judged while SGD noise moves the network."


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


@dataclass(repr=False)
class ExaminedNetwork:
    """A network with the facts on which its verdict rests, and the rules that turn them into a finding and sentences.

    `Audit` explains its fields.
    """

    problem: Problem
    weights: list[Tensor]
    cost: Cost
    reference: Result
    descended: list[Tensor] = field(default_factory=list)
    descended_loss: float = math.nan
    finished: bool = False
    layers: list[LayerAudit] = field(default_factory=list)
    hint: str = ""
    escape_cost: float | None = None
    batches: Batches | None = None
    interrupted: bool = False

    def __post_init__(self) -> None:
        if math.isnan(self.descended_loss):
            self.descended_loss = evaluate(self.problem, self.descended).total if self.descended else self.loss

    @property
    def loss(self) -> float:
        """The cost, C + lam |W|^2, or |W|^2 for `interpolate`."""
        return self.cost.total

    @property
    def best(self) -> float:
        """The lowest loss of the networks of this audit (given, trained further, solved, improved)."""
        losses = [self.loss, self.descended_loss, self.reference.cost]
        losses += [math.inf if self.escape_cost is None else self.escape_cost]
        return min(cost for cost in losses if math.isfinite(cost))

    @property
    def excess(self) -> float:
        """(loss - best) / best."""
        return (self.loss - self.best) / self.best if self.best > 0.0 else 0.0

    @property
    def in_passes(self) -> bool:
        """True if the samples are too many for methods that take hundreds of passes over them."""
        return has_many(self.problem, self.weights)

    @cached_property
    def constant(self) -> bool:
        """True if the outputs are the same for all samples although their targets differ."""
        return is_constant(self.problem, self.weights)

    @property
    def gain(self) -> float:
        """The gain of further training, relative to the loss."""
        return (self.loss - self.descended_loss) / self.loss if self.loss > 0.0 else 0.0

    @property
    def status(self) -> Status:
        """Why the audit ended: Ctrl-C, a limit that ended further training, or neither (converged)."""
        ended = Status.CONVERGED if self.finished else Status.TIME_LIMIT
        return Status.INTERRUPTED if self.interrupted else ended

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
        return promised and cost is not None and cost < self.descended_loss * (1.0 - SAME)

    @property
    def finding(self) -> Finding | None:
        """The verdict as one word; None if the audit ended before it was tested.

        A proof, a gain of further training and a missing neuron stand however the audit ended. That further training
        gains little holds only if it finished, and that nothing better was found only if no search was interrupted.
        """
        loss, best, lower = self.loss, self.best, self.reference.lower
        if loss == 0.0 or (lower is not None and loss - lower <= SAME * loss):
            return Finding.MINIMUM
        if self.moving:
            return Finding.MOVING
        if self.gain > TRAINED_GAIN:
            return Finding.UNTRAINED
        far = loss - best > TRAINED_GAIN * best
        if self.finished and far and any(layer.missing for layer in self.layers):
            return Finding.STUCK
        if self.status is not Status.CONVERGED:
            return None
        if loss - best <= SAME * best:
            return Finding.BEST
        return Finding.APART if far else Finding.NEAR

    @property
    def stationary(self) -> bool | None:
        """True if neither further training nor one more neuron lowers the loss, as measured; None if undecided."""
        finding = self.finding
        if finding in (None, Finding.MINIMUM, Finding.BEST):
            return None if finding is None else True
        return finding not in (Finding.UNTRAINED, Finding.MOVING) and not any(layer.missing for layer in self.layers)

    def of_layer(self, layer: LayerAudit) -> str:
        """Return the verdict on one hidden layer, whose numbers are those at the end of further training."""
        facts, loss = layer.facts, self.descended_loss
        sentences = [NOT_JUDGED if self.moving and layer.escape is not None else self.of_neuron(layer)]
        if self.problem.depth > 2 and layer.solved is not None:
            if layer.solved < loss * (1.0 - SAME):
                sentences.append(f"Solving its block, the other layers fixed, lowers the cost to {layer.solved:.8g}.")
            elif facts.gap is not None and facts.gap <= SAME:
                sentences.append(f"Its block is at its minimum, proved to {up(facts.gap, 1)} of the cost.")
            else:
                sentences.append("Solving its block does not lower the cost.")
        if layer.dead:
            which = "all" if layer.dead == facts.width else str(layer.dead)
            sentences.append(f"Dead (without effect on these data): {which} of its {counted(facts.width, 'neuron')}.")
        if layer.merging:
            count, groups = sum(len(group) for group in layer.merging), len(layer.merging)
            sentences.append(f"{count} of its {facts.width} neurons could merge into {groups}: their directions agree.")
        if layer.unbalanced_neuron > 1e-2:
            sentences.append(
                f"Its neurons are unbalanced by up to {layer.unbalanced_neuron:.2g}: with equal incoming and outgoing"
                " norms they would cost less."
            )
        return " ".join(sentences)

    def of_neuron(self, layer: LayerAudit) -> str:
        """Describe the result of the search for a missing neuron, certain in the last hidden layer only."""
        number, escape = layer.facts.layer, layer.escape
        last = number == self.problem.depth - 1
        if escape is None:
            return "Missing neurons are not searched for: the inputs have rank below the number of samples."
        shown = f"|M^T s| = {escape.value:.5g}"
        trained = layer.grown is not None and layer.grown < escape.cost
        if layer.missing:
            hint = "" if last else " (a hint: below the last hidden layer kinks may forbid it)"
            grown = f", and further training to {layer.grown:.8g}" if trained else ""
            added = f"adding it with output along {_vector(escape.output)} lowers the cost to {escape.cost:.8g}"
            return (
                f"A neuron is missing in hidden layer {number}: {shown} > 1 at direction {_vector(escape.direction)},"
                f" bias last; {added}{grown}{hint}."
            )
        if escape.value <= 1.0 + MISSING_VIOLATION:
            found_by = "by search" if last else "by search, exact away from kinks only"
            if escape.cut:
                return f"No missing neuron was found in hidden layer {number} within the time: {shown}, {found_by}."
            return f"No neuron is missing in hidden layer {number}: {shown}, {found_by}."
        if trained:
            gains = f"adding that neuron and further training gained less than {part(SAME)} within the time"
        else:
            gains = f"adding that neuron, in every size tried, lowers the cost by less than {part(SAME)}"
        return f"{shown} > 1 in hidden layer {number}, but {gains}."

    @property
    def verdict(self) -> str:
        """The verdict in sentences; of the layers that lack a neuron the last is described."""
        finding, loss, best, lower = self.finding, self.loss, self.best, self.reference.lower
        if loss == 0.0:
            return "At the minimum: the cost is 0, and no cost is below that."
        if finding is Finding.MINIMUM and lower is not None:
            within = percent_at_most(max(0.0, loss - lower) / loss)
            return f"At the minimum: the cost {loss:.8g} is within {within} of a proved lower bound."
        if finding is Finding.BEST:
            return (
                f"No better network was found: the cost {loss:.8g} is within {part((loss - best) / best)} of the best"
                f" known; {_proved(self.reference, best)}."
            )
        missing = [self.of_neuron(layer) for layer in self.layers[::-1] if layer.missing]
        sentences = [self._whereabouts(finding, bool(missing)), *missing[:1]]
        if self.batches is not None and finding is Finding.MOVING:
            sentences = [self._unrest(self.batches)]
        elif self.batches is not None and finding is Finding.UNTRAINED:
            sentences += self.batches.fading()
        if self.constant:
            sentences.append("The network's outputs are the same for every sample.")
        if self.escape_cost is not None and self.escape_cost < self.descended_loss * (1.0 - SAME):
            solves = ", solving blocks" if self.problem.has_blocks else ""
            sentences.append(
                f"Adding neurons{solves} and descending lowers the cost further, to {self.escape_cost:.8g}."
            )
        solved = f"The solver reached {self.reference.cost:.8g}; " if math.isfinite(self.reference.cost) else ""
        proved = _proved(self.reference, best)
        sentences.append(f"{solved}{proved if solved else proved[:1].upper() + proved[1:]}.")
        return " ".join([*sentences, self.hint] if self.hint else sentences)

    def _undecided(self) -> str:
        """Return the first sentences of an audit that ended before it decided: what ended it, and what it tested."""
        why = "the audit was interrupted" if self.interrupted else "further training reached its limit; give more time"
        trained = f"further training lowers the cost by {'' if self.finished else 'at least '}{part(self.gain)}"
        trained = trained if self.finished or self.gain > 0.0 else "further training gained nothing"
        above = f"the cost {self.loss:.8g} is {_above(self.loss, self.best)}"
        alone = f"no network was found more than {part(SAME)} below the cost {self.loss:.8g}"
        return f"Not decided: {why}. So far {trained}, and {above if self.excess > SAME else alone}."

    def _whereabouts(self, finding: Finding | None, missing: bool) -> str:
        """Return the first sentences: the gain of further training, and where it ends."""
        if finding is None:
            return self._undecided()
        end, best = self.descended_loss, self.best
        if finding is Finding.UNTRAINED:
            at_least = "" if self.finished else "at least "
            # In per cent more would round to all of the loss.
            gained = "" if self.gain > 0.999 else f" by {at_least}{part(self.gain)}"
            first = f"Not trained to the end: further training lowers the cost {self.loss:.8g}{gained} to {end:.8g}"
            if end - best <= SAME * best:
                return f"{first}, as low as the best known; train longer."
            if not self.finished:
                limit = "the audit was interrupted" if self.interrupted else "its time limit"
                return f"{first} before {limit}; train longer. The best known is {best:.8g}."
            there = f"{first}; train longer. There it is {_above(end, best)}"
            if missing:
                near = end - best <= TRAINED_GAIN * best
                return f"{there}, and {'a neuron is still missing' if near else 'it is stuck'}."
            return f"{there}." if self.interrupted else f"{there}, and no single neuron was found that lowers it."
        trained = f"further training lowers the cost by {part(self.gain)}"
        if finding is Finding.NEAR:
            return f"Nearly at the best known: the cost {self.loss:.8g} is {_above(self.loss, best)}; {trained}."
        if finding is Finding.STUCK:
            return f"Stuck: {trained}, but {self.loss:.8g} is {_above(self.loss, best)}."
        return (
            f"Not the best known: {trained}, and no single neuron was found that lowers it more, but"
            f" {self.loss:.8g} is {_above(self.loss, best)}."
        )

    def _unrest(self, batches: Batches) -> str:
        """Explain that further training in the same way is of no use, and what is."""
        at_least = "" if self.finished else "at least "
        size = batches.training.batch_size
        batch = f"batches of {size}" if size > 1 else "single samples"
        retained = 0.0 if batches.kept is None else batches.kept
        return (
            "SGD noise keeps the network moving; lower the rate or average the weights: gradients of"
            f" {batch} are {_in_order(batches.rms)} times the decay 2 lam |W_l| (root mean square), the gradient of"
            f" all samples {_in_order(batches.residuals)} times, and {retained:.2g} of the initial weights remains."
            f" Descent on all samples lowers the cost {self.loss:.8g} by {at_least}{part(self.gain)} to"
            f" {self.descended_loss:.8g}."
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
        return "no lower bound above 0 is proved"
    return (
        f"the minimum is proved to be at least {down(reference.lower, 8)} ({part(1.0 - reference.lower / best)} lower)"
    )


def _vector(entries: Tensor) -> str:
    most = 6
    shown = [f"{0.0 if abs(entry) < 5e-5 else entry:.4g}" for entry in entries.tolist()[:most]]
    more = [f"... {len(entries)} entries"] if len(entries) > most else []
    return f"({', '.join(shown + more)})"
