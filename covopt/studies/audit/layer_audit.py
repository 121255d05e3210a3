"""What an audit found in one hidden layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from covopt.records import record
from covopt.solvers.deep.layer import Layer
from covopt.solvers.deep.missing_neuron import MissingNeuron


@dataclass(frozen=True)
class LayerAudit:
    """What an audit found in one hidden layer.

    Attributes:
        facts: stationarity and gap where training on ends; ranks and the number of groups that merge of the network.
        escape: the neuron to add where training on ends; None where the multiplier is not determined.
        solved: the loss there after the layer's block was solved; None where it was not.
        grown: the loss after training on with that neuron; None where it lowers the loss in no size.
        missing: whether that neuron lowers the loss, at first order and trained with it.
        dead: neurons of the network that give nothing on these data.
        merging: groups of neurons (numbered from 0) that could be one each.
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
        """For JSON."""
        found = self.escape
        return {
            **self.facts.summary(),
            "direction": None if found is None else found.direction.tolist(),
            "output": None if found is None else found.output.tolist(),
            "loss_with_neuron": None if found is None else record.known(found.cost),
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
    def from_summary(cls, told: Mapping[str, Any]) -> LayerAudit:
        """What `summary` told; NaN what it left out. The size of the neuron is not told."""
        facts = Layer.from_summary({name: told[name] for name in record.LAYER})
        escape = None
        if told["direction"] is not None:
            direction, output = (torch.tensor(told[name], dtype=torch.float64) for name in ("direction", "output"))
            value, cost = _number(told["stationarity"]), _number(told["loss_with_neuron"])
            escape = MissingNeuron(facts.layer, value, direction, output, cost, math.nan)
        return cls(
            facts=facts,
            escape=escape,
            solved=told["loss_with_block"],
            merging=told["merging"],
            unbalanced=_number(told["unbalanced"]),
            unbalanced_neuron=_number(told["unbalanced_neuron"]),
            grown=told["loss_trained_with_neuron"],
            missing=told["missing"],
            dead=told["dead"],
            verdict=told["verdict"],
        )


def _number(told: float | None) -> float:
    return math.nan if told is None else told
