"""The answer of `validate`: its facts, its verdict, and how it is stored."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from covopt.answer.result import Result
from covopt.data.networks import FoundWeights, named, write_network
from covopt.records import record
from covopt.records.answer import Answer, Words
from covopt.records.directories import Writer
from covopt.studies.audit import words
from covopt.studies.audit.function import FunctionAudit
from covopt.studies.audit.verdicts import ExaminedNetwork

DESCENDED, BETTER, AT, ORBITS = "descended.npz", "better.npz", "at.npz", "orbits.npz"


@dataclass(repr=False)
class Audit(Answer, ExaminedNetwork):
    """The answer of `validate`.

    Attributes:
        problem: at the network's depth.
        weights: the network's.
        cost: its loss and the parts of it.
        reference: the solver's result for the same problem.
        descended: the end of further training from the weights; the weights themselves if it gains nothing.
        descended_loss: the loss there, at first the network's; finished: whether it ended by itself, and not by time.
        layers: each hidden layer, from the first.
        hint: a sentence on another problem that the network may have been trained for; empty without one.
        escape_cost: the loss of a better network, reached by neurons, blocks and descents; None without one.
        batches: the effects of the batches of its training; None if they are not reported.
        inert: |W_l - Z_l^T (Zs_{l-1}^T)^+| / |W_l| for l = 1 ... L, the part of the weights that acts on nothing.
        residuals: |W_l - M_l^T Zs_{l-1}| / |W_l| for l = 1 ... L, 0 at stationary weights, with the best slopes at
            kinks; None where the multiplier is not determined. After Adam they stay large near kinks.
        left: the same at the end of further training.
        stored: the dtype in which the weights came. rounded: the loss of `descended` after rounding to it, and the
            residuals then; None for float64.
        escape: a better network, reached from `descended`, or None: [W_1, ..., W_L] with a method to_torch().
        trained: the trainings, if the network is the best of them.
        interrupted: whether Ctrl-C ended the audit; `status` and `finding` follow from it.
        function: the properties of the network as a function, if they were asked for and Ctrl-C did not come before.
        at: the inputs at which it has them; None: those of the problem. orbits: these inputs after a transformation.
    """

    file: ClassVar[str] = record.AUDIT
    words: ClassVar[Words] = words

    inert: list[float] = field(default_factory=list)
    residuals: list[float] | None = None
    left: list[float] | None = None
    stored: torch.dtype = torch.float64
    rounded: tuple[float, list[float] | None] | None = None
    escape: FoundWeights | None = None
    trained: Result | None = None
    function: FunctionAudit | None = None
    at: Tensor | None = None
    orbits: Tensor | None = None

    def summary(self) -> dict[str, object]:
        """Return the JSON of `covopt validate`; unknown or unproved values are None."""
        facts = {
            "loss": self.loss,
            "fit": self.cost.fit,
            "norm": self.cost.norm,
            "best": self.best,
            "excess": self.excess,
            "lower": self.reference.lower,
            "certificate": self.reference.certificate,
            "stationary": self.stationary,
            "finding": self.finding,
            "verdict": self.verdict,
            "status": self.status,
            "descended": {
                "loss": self.descended_loss,
                "gain": self.gain,
                "finished": self.finished,
                "residuals": self.left,
            },
            "in_passes": self.in_passes,
            "constant": self.constant,
            "hint": self.hint or None,
            "stored": str(self.stored).removeprefix("torch."),
            "rounded": None if self.rounded is None else dict(zip(("loss", "residuals"), self.rounded, strict=True)),
            "inert": self.inert,
            "residuals": self.residuals,
            "layers": self.layers,
            "escape": self.escape_cost,
            "widths": [len(W) for W in self.weights[:-1]],
            "trained": None if self.trained is None else self.trained.starts,
            **({"training": None, "kept": None, "noise": None} if self.batches is None else vars(self.batches)),
            "function": self.function,
            "solver": self.reference,
        }
        return record.plain(facts)

    def files(self) -> dict[str, Writer]:
        """Return the writers of the files beside audit.json.

        They are network.npz (the audited network), descended.npz (the end of further training), better.npz (a better
        network, if one was found), at.npz and orbits.npz (the inputs, if they were given) and the solver's run,
        `solution`.
        """
        networks = {record.NETWORK: self.weights, DESCENDED: self.descended or None, BETTER: self.escape}
        inputs = {AT: self.at, ORBITS: self.orbits}
        return {
            **{name: record.archive(partial(named, W)) for name, W in networks.items() if W is not None},
            **{name: record.archive(partial(record.numpy_of, X=X)) for name, X in inputs.items() if X is not None},
            **({record.SOLUTION: self.reference.save} if self.reference.weights else {}),
        }

    def save_escape(self, path: str | os.PathLike[str], *, force: bool = False) -> bool:
        """Write the better network into a file; return False if there is none.

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
