"""The facts of an audit on one hidden layer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from covopt.records import record
from covopt.records.record import Summary
from covopt.solvers.deep.missing_neuron import MissingNeuron
from covopt.solvers.layer import Layer


@dataclass(frozen=True)
class LayerAudit:
    """The facts of an audit on one hidden layer.

    Attributes:
        facts: stationarity and gap at the end of further training; ranks and number of mergeable groups of the network.
        escape: the neuron to add at the end of further training; None if the multiplier is not determined.
        solved: the loss there after the layer's block was solved; None if it was not.
        grown: the loss after further training with that neuron; None if no size of the neuron lowers the loss.
        missing: whether that neuron lowers the loss, at first order and trained with it.
        dead: number of neurons of the network without effect on these data.
        merging: groups of neurons (numbered from 0) that could be merged into one each.
        unbalanced: | |W_l|^2 - |W_{l+1} without its bias column|^2 | / (their sum).
        unbalanced_neuron: the same for the worst neuron, relative to the largest neuron.
        verdict: in words.
    """

    facts: Layer
    escape: MissingNeuron | None
    solved: float | None
    merging: list[list[int]]
    unbalanced: float
    unbalanced_neuron: float
    grown: float | None = None
    missing: bool = False
    dead: int = 0
    verdict: str = ""

    def summary(self) -> dict[str, object]:
        """Return the entries for JSON."""
        neuron = self.escape
        return {
            **self.facts.summary(),
            "direction": None if neuron is None else neuron.direction.tolist(),
            "output": None if neuron is None else neuron.output.tolist(),
            "loss_with_neuron": None if neuron is None else record.known(neuron.cost),
            "loss_trained_with_neuron": record.known(self.grown),
            "missing": self.missing,
            "loss_with_block": record.known(self.solved),
            "dead": self.dead,
            "merging": self.merging,
            "unbalanced": record.known(self.unbalanced),
            "unbalanced_neuron": record.known(self.unbalanced_neuron),
            "verdict": self.verdict,
        }

    @classmethod
    def from_summary(cls, summary: Summary) -> LayerAudit:
        """Read what `summary` returned; missing values are NaN, and so is the neuron's size."""
        facts = Layer.from_summary({name: summary[name] for name in record.LAYER})
        escape = None
        if summary["direction"] is not None:
            direction, output = (torch.tensor(summary[name], dtype=torch.float64) for name in ("direction", "output"))
            value, cost = _number(summary["stationarity"]), _number(summary["loss_with_neuron"])
            escape = MissingNeuron(facts.layer, value, direction, output, cost, math.nan)
        return cls(
            facts=facts,
            escape=escape,
            solved=summary["loss_with_block"],
            merging=summary["merging"],
            unbalanced=_number(summary["unbalanced"]),
            unbalanced_neuron=_number(summary["unbalanced_neuron"]),
            grown=summary["loss_trained_with_neuron"],
            missing=summary["missing"],
            dead=summary["dead"],
            verdict=summary["verdict"],
        )


def _number(value: float | None) -> float:
    return math.nan if value is None else value
