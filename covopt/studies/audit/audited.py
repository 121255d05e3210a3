"""The answer of `validate`: what was found, its verdict, and how it is stored."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from covopt.answer import words
from covopt.answer.result import Result
from covopt.data.arrays import write_npz
from covopt.data.networks import FoundWeights, named, write_network
from covopt.model.passes import has_many
from covopt.model.problem import Problem
from covopt.model.weights import Cost, evaluate
from covopt.records import markup, record, storing
from covopt.records.directories import Writer
from covopt.records.provenance import ORIGIN, write_origin
from covopt.studies.audit import verdicts
from covopt.studies.audit.batches import Batches
from covopt.studies.audit.examination import is_constant
from covopt.studies.audit.function import FunctionAudit
from covopt.studies.audit.layer_audit import LayerAudit
from covopt.studies.audit.verdicts import Finding, Losses

DESCENDED, BETTER, AT, ORBITS = "descended.npz", "better.npz", "at.npz", "orbits.npz"


@dataclass
class Audit:
    """The answer of `validate`.

    Attributes:
        problem: the question, of the network's depth.
        weights: the network's.
        cost: its loss and the parts of it.
        reference: the solver's answer to the same question.
        descended: where training on from the weights ends; they themselves where it gains nothing.
        descended_loss: the loss there; that of the network before.
        finished: whether it came to an end, and was not stopped by time.
        layers: each hidden layer, from the first.
        inert: |W_l - Z_l^T (Zs_{l-1}^T)^+| / |W_l| for l = 1 ... L, the part of the weights that acts on nothing.
        residuals: |W_l - M_l^T Zs_{l-1}| / |W_l| for l = 1 ... L, 0 at stationary weights, with the best slopes at
            kinks; None where the multiplier is not determined. Adam that hovers about kinks leaves large ones.
        left: the same where training on ends.
        stored: the numbers that the weights came in. rounded: the loss of `descended` rounded to them, and the
            residuals then; None for float64.
        hint: a sentence on another question that the network may have been trained for; empty without one.
        escape: a better network, reached from `descended` by new neurons, blocks and descents; [W_1, ..., W_L] with a
            method to_torch(); None if none was found.
        escape_cost: its loss.
        trained: the trainings, where the network is the best of them.
        interrupted: whether Ctrl-C ended it.
        function: what the network is as a function; None where Ctrl-C came before.
        at: the inputs at which it is looked at as a function; None: those of the problem.
        orbits: these inputs after a transformation.
        batches: what the batches of its training do to it; None where they are not known.
    """

    problem: Problem
    weights: list[Tensor]
    cost: Cost
    reference: Result
    descended: list[Tensor] = field(default_factory=list)
    finished: bool = False
    layers: list[LayerAudit] = field(default_factory=list)
    inert: list[float] = field(default_factory=list)
    residuals: list[float] | None = None
    left: list[float] | None = None
    stored: torch.dtype = torch.float64
    rounded: tuple[float, list[float] | None] | None = None
    hint: str = ""
    escape: FoundWeights | None = None
    escape_cost: float | None = None
    trained: Result | None = None
    interrupted: bool = False
    function: FunctionAudit | None = None
    at: Tensor | None = None
    orbits: Tensor | None = None
    batches: Batches | None = None
    descended_loss: float = math.nan

    def __post_init__(self) -> None:
        if math.isnan(self.descended_loss):
            self.descended_loss = evaluate(self.problem, self.descended).total if self.descended else self.loss

    @property
    def loss(self) -> float:
        """C + lam |W|^2, or |W|^2 for `interpolate`."""
        return self.cost.total

    @property
    def best(self) -> float:
        """The lowest loss known: of the network, after training on, the solver's, or what was reached from there."""
        known = [self.loss, self.descended_loss, self.reference.cost]
        known += [math.inf if self.escape_cost is None else self.escape_cost]
        return min(cost for cost in known if math.isfinite(cost))

    @property
    def excess(self) -> float:
        """(loss - best) / best."""
        return (self.loss - self.best) / self.best if self.best > 0.0 else 0.0

    @property
    def losses(self) -> Losses:
        """The losses that the verdict rests on."""
        descended = self.descended_loss
        return Losses(self.loss, descended, self.finished, self.best, self.escape_cost, self.reference.lower)

    @property
    def finding(self) -> Finding:
        """The verdict as one word."""
        return verdicts.finding(self.losses, any(layer.missing for layer in self.layers), self.moving)

    @property
    def moving(self) -> bool:
        """Whether its batches undo what training on would gain."""
        return verdicts.is_moving(self.losses, self.batches)

    @property
    def in_passes(self) -> bool:
        """Whether the samples are so many that what takes hundreds of passes over them was left out."""
        return has_many(self.problem, self.weights)

    @property
    def stationary(self) -> bool:
        """Whether neither training on nor a neuron more lowers the loss, as far as was measured."""
        return verdicts.is_stationary(self.finding, any(layer.missing for layer in self.layers))

    @cached_property
    def constant(self) -> bool:
        """Whether its outputs are the same for all samples, whose targets differ."""
        return is_constant(self.problem, self.weights)

    @property
    def verdict(self) -> str:
        """In words."""
        last = self.problem.depth - 1
        missing = [verdicts.of_neuron(layer, layer.facts.layer == last) for layer in self.layers[::-1] if layer.missing]
        losses, solved, hint = self.losses, self.reference, self.hint
        return verdicts.of_network(losses, solved, missing, constant=self.constant, hint=hint, batches=self.batches)

    def summary(self) -> dict[str, object]:
        """The JSON of `covopt validate`; what is unknown or unproved is None."""
        return {
            "loss": record.known(self.loss),
            "fit": record.known(self.cost.fit),
            "norm": record.known(self.cost.norm),
            "best": record.known(self.best),
            "excess": record.known(self.excess),
            "lower": record.known(self.reference.lower),
            "certificate": str(self.reference.certificate),
            "stationary": self.stationary,
            "finding": str(self.finding),
            "verdict": self.verdict,
            "descended": {
                "loss": record.known(self.descended_loss),
                "gain": record.known(self.losses.gain),
                "finished": self.finished,
                "residuals": _known(self.left),
            },
            "in_passes": self.in_passes,
            "constant": self.constant,
            "hint": self.hint or None,
            "stored": str(self.stored).removeprefix("torch."),
            "rounded": None
            if self.rounded is None
            else {"loss": record.known(self.rounded[0]), "residuals": _known(self.rounded[1])},
            "inert": [record.known(part) for part in self.inert],
            "residuals": _known(self.residuals),
            "layers": [layer.summary() for layer in self.layers],
            "escape": record.known(self.escape_cost),
            "widths": [len(W) for W in self.weights[:-1]],
            "trained": None if self.trained is None else [record.known(cost) for cost in self.trained.starts],
            **({"training": None, "kept": None, "noise": None} if self.batches is None else self.batches.summary()),
            "function": None if self.function is None else self.function.summary(),
            "solver": self.reference.summary(),
        }

    def describe(self) -> list[tuple[str, str]]:
        """The audit as a person reads it: pairs of a label and its text."""
        return words.audit_pairs(self.summary())

    def _repr_html_(self) -> str:
        return markup.summary(self.verdict, [pair for pair in self.describe() if pair[0] != "verdict"])

    def save(
        self,
        directory: str | os.PathLike[str],
        *,
        force: bool = False,
        others: Mapping[str, Writer] | None = None,
    ) -> None:
        """Write audit.json, network.npz (what was audited), descended.npz (where training on ends), better.npz (where a
        better network was found), at.npz and orbits.npz (the inputs, where they were given), origin.json and the
        solver's run, `solution`; force and others as for `Result.save`.

        Raises:
            RecordError: the directory exists, or cannot be written.
        """
        writers: dict[str, Writer] = {
            record.AUDIT: lambda path: record.write_summary(path, self.summary()),
            record.NETWORK: lambda path: write_npz(path, named(self.weights)),
            ORIGIN: write_origin(),
        }
        if self.descended:
            writers[DESCENDED] = lambda path: write_npz(path, named(self.descended))
        if self.reference.weights:
            writers[record.SOLUTION] = self.reference.save
        for name, given in ((AT, self.at), (ORBITS, self.orbits)):
            if given is not None:
                arrays = {"X": given.cpu().numpy()}
                writers[name] = lambda path, held=arrays: write_npz(path, held)
        if self.escape is not None:
            better = named(self.escape)
            writers[BETTER] = lambda path: write_npz(path, better)
        storing.put(directory, record.AUDIT, writers | dict(others or {}), force=force)

    def save_escape(self, path: str | os.PathLike[str], *, force: bool = False) -> bool:
        """Write the better network into a file; False where there is none.

        Args:
            path: a .pt file gets a state dict, as `escape.to_torch().state_dict()`; a .npz file W1 ... WL.
            force: replace an earlier file.

        Raises:
            RecordError: the file exists, or cannot be written.
        """
        if self.escape is None:
            return False
        write_network(Path(path), self.escape, force)
        return True


def _known(parts: Sequence[float] | None) -> list[float | None] | None:
    return None if parts is None else [record.known(part) for part in parts]
