"""One network of `ranks`: its training, its retained fraction, the audit of its ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from covopt.answer.result import Result
from covopt.linalg.psd import RANK_RULE
from covopt.model.problem import Problem
from covopt.model.ranks import frobenius
from covopt.model.recursion import Decay
from covopt.model.weights import Cost, evaluate, outputs
from covopt.records.record import Summary, known
from covopt.runtime.errors import ProblemError
from covopt.studies.ranks import rank_verdicts
from covopt.studies.ranks.rank_audit import LayerRanks, audit_ranks
from covopt.studies.ranks.sgd import Course, Descended, SGDOptions

FAINT = 1e-6
"""Parts of the start below this share of its norm are rounding: its part outside the span of the inputs, or what the
decay has left."""


@dataclass(frozen=True)
class Setting:
    """The training of a network; None for unknown values.

    Attributes:
        lam: strength of the penalty; 0 is allowed here.
        batch_size, rate, momentum, nesterov: of SGD.
        steps: the requested number.
        seed: of the start.
    """

    lam: float
    batch_size: int | None = None
    rate: float | None = None
    momentum: float = 0.0
    nesterov: bool = False
    steps: int | None = None
    seed: int | None = None

    @property
    def decay(self) -> Decay | None:
        """The recursion by which the start fades; None if the rate is unknown."""
        return None if self.rate is None else Decay(self.rate, self.lam, self.momentum, self.nesterov)

    def options(self) -> SGDOptions:
        """Return the options of the trainer; the setting must be complete."""
        values: dict[str, Any] = {name: value for name, value in vars(self).items() if name != "seed"}
        return SGDOptions(**values)


@dataclass(frozen=True)
class RankCell:
    """One network with its audit.

    Attributes:
        setting: its training.
        weights: W_1 ... W_L in float64; start: the weights before the first step, if they are known.
        steps: the number taken; None if that is unknown.
        diverged: the weights were no longer finite after these steps; then there is no audit.
        course: the records of a network that was trained here.
        cost: of the weights; accuracy: the share of samples in the right class, for cross-entropy.
        layers: the audit of the rank of each matrix.
        samples: N.
        measured: the retained fraction of the start by `measured_kept`, for a given network.
    """

    setting: Setting
    weights: list[Tensor]
    start: list[Tensor] | None
    steps: int | None
    diverged: bool
    course: Course | None
    cost: Cost
    accuracy: float | None
    layers: list[LayerRanks]
    samples: int
    measured: float | None = None

    @property
    def finished(self) -> bool:
        """True if all requested steps were taken."""
        return self.steps == self.setting.steps

    @property
    def kept(self) -> float | None:
        """The retained fraction of the start: (A^T)_11 of the exact recursion."""
        decay = self.setting.decay
        return None if decay is None or self.steps is None else decay.kept(self.steps)

    @property
    def epochs(self) -> float | None:
        """The number of samples seen, divided by N."""
        size = self.setting.batch_size
        return None if size is None or self.steps is None else self.steps * size / self.samples

    def summary(self, reference: Sequence[LayerRanks] | None) -> dict[str, object]:
        """Return the entries for JSON; verdicts use the ranks of the solver's network."""
        own = {name: value for name, value in vars(self.setting).items() if name != "steps"}
        layers = [layer.summary() for layer in self.layers]
        return {
            **own,
            "asked": self.setting.steps,
            "steps": self.steps,
            "finished": self.finished,
            "diverged": self.diverged,
            "epochs": self.epochs,
            "kept": None if self.kept is None else known(self.kept),
            "kept_measured": self.measured,
            "loss": None if self.diverged else known(self.cost.total),
            "fit": None if self.diverged else known(self.cost.fit),
            "accuracy": None if self.diverged else self.accuracy,
            "layers": layers,
            "verdict": [self._verdict(layer, reference) for layer in layers],
        }

    def _verdict(self, layer: Summary, reference: Sequence[LayerRanks] | None) -> str:
        tolerance = next(iter(layer["rank"]))
        other = None if reference is None else reference[layer["layer"] - 1].rank[float(tolerance)]
        size = self.setting.batch_size
        return rank_verdicts.of_layer(layer, tolerance, batch_size=size, retained=self.kept, reference=other)


def cell_of(
    problem: Problem,
    setting: Setting,
    network: Descended,
    start: Sequence[Tensor] | None,
    *,
    tolerances: Sequence[float],
    seed: int,
) -> RankCell:
    """Audit a network that was trained here, or elsewhere with what is known of its setting.

    Args:
        problem: in float64.
        tolerances, seed: as for `audit_ranks`.
    """
    question = replace(problem, lam=setting.lam)
    weights = [W.to(problem.X) for W in network.weights]
    first = None if start is None else [W.to(problem.X) for W in start]
    steps, diverged, course = network.steps, network.diverged, network.course
    layers = []
    if not diverged:
        training = {"batch_size": setting.batch_size, "decay": setting.decay, "steps": steps, "start": first}
        present = without_what_is_gone(weights, first)
        try:
            layers = audit_ranks(question, present, tolerances=tolerances, seed=seed, **training)
        except ProblemError:
            if course is None:
                raise
            diverged = True  # the weights are still finite, but the loss or its gradient is not
    cost, right = evaluate(question, weights), _accuracy(question, weights)
    measured = None if course is not None or first is None else measured_kept(problem, weights[0], first[0])
    return RankCell(setting, weights, first, steps, diverged, course, cost, right, layers, problem.samples, measured)


def measured_kept(problem: Problem, W: Tensor, start: Tensor) -> float | None:
    """Measure the retained fraction of the start from W_1 alone.

    Outside the span of the inputs W_1 is exactly this fraction of the start. Return the c with the least
    |W_1 - c W_{1,0}| on the complement of the rows of [X, beta 1]; None if there is no complement, or the start is 0
    there.
    """
    s, Vt = torch.linalg.svd(problem.Xt, full_matrices=False)[1:]
    rows = Vt[RANK_RULE.keeps(s)]
    end_part, start_part = (A - (A @ rows.T) @ rows for A in (W, start))
    size = frobenius(start_part.flatten())
    if not size > FAINT * frobenius(start.flatten()):
        return None
    return known(float(((end_part / size) * (start_part / size)).sum()))


def without_what_is_gone(weights: Sequence[Tensor], start: Sequence[Tensor] | None) -> list[Tensor]:
    """Replace matrices that decayed to nothing by 0; their rank would be one of rounding."""
    if start is None or len(start) != len(weights):
        return list(weights)
    pairs = zip(weights, start, strict=True)
    return [torch.zeros_like(W) if frobenius(W.flatten()) < FAINT * frobenius(V.flatten()) else W for W, V in pairs]


def _accuracy(problem: Problem, weights: list[Tensor]) -> float | None:
    if problem.loss.name != "cross_entropy":
        return None
    F = outputs(problem, weights, problem.X)
    return float((F.argmax(dim=1) == problem.Y.argmax(dim=1)).double().mean())


@dataclass(frozen=True)
class Reference:
    """The solver's result for the same problem, and its ranks."""

    result: Result
    layers: list[LayerRanks]

    def summary(self) -> dict[str, object]:
        """Return the entries for JSON."""
        summary = self.result.summary()
        keys = ("lam", "cost", "lower", "certificate", "status", "widths", "seconds")
        return {name: summary[name] for name in keys} | {"layers": [layer.summary() for layer in self.layers]}


def reference_of(problem: Problem, result: Result, tolerances: Sequence[float]) -> Reference:
    """Return the solver's result with its ranks."""
    weights = [W.to(problem.X) for W in result.weights]
    return Reference(result, audit_ranks(replace(problem, lam=result.problem.lam), weights, tolerances=tolerances))
