"""One network of `ranks`: how it was trained, what is left of its start, and the audit of its ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from covopt.records.record import known
from covopt.runtime.errors import ProblemError
from covopt.studies.ranks import rank_verdicts
from covopt.studies.ranks.rank_audit import LayerRanks, audit_ranks
from covopt.studies.ranks.sgd import Course, Descended, SGDOptions

OUTSIDE = 1e-6
"""Below this part of its norm, what the start has outside the inputs' span is rounding."""
GONE = 1e-6
"""A matrix whose norm has fallen below this part of its start's has decayed to nothing, and counts as 0."""


@dataclass(frozen=True)
class Setting:
    """How a network was trained; None where that is not known.

    Attributes:
        lam: strength of the penalty; 0 is allowed here.
        batch_size, rate, momentum, nesterov: of SGD.
        steps: how many were asked for.
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
        """The recursion by which the start fades."""
        return None if self.rate is None else Decay(self.rate, self.lam, self.momentum, self.nesterov)

    def options(self) -> SGDOptions:
        """For the trainer, of a setting that says all."""
        told: dict[str, Any] = {name: value for name, value in vars(self).items() if name != "seed"}
        return SGDOptions(**told)


@dataclass(frozen=True)
class RankCell:
    """One network with its audit.

    Attributes:
        setting: how it was trained.
        weights: W_1 ... W_L in float64; start: those at the first step, where they are known.
        steps: taken; None where that is not known.
        diverged: the weights were no longer finite after so many; then there is no audit.
        course: the records on the way, of a network that was trained here.
        cost: of the weights; accuracy: the part of the samples in the right class, of cross-entropy.
        layers: what is known of the rank of each matrix.
        samples: N.
        measured: what is left of the start by `measured_kept`, of a given network.
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
        """Whether all steps that were asked for were taken."""
        return self.steps == self.setting.steps

    @property
    def kept(self) -> float | None:
        """What is left of the start: (A^T)_11 of the exact recursion."""
        decay = self.setting.decay
        return None if decay is None or self.steps is None else decay.kept(self.steps)

    @property
    def epochs(self) -> float | None:
        """Samples seen, over N."""
        size = self.setting.batch_size
        return None if size is None or self.steps is None else self.steps * size / self.samples

    def summary(self, reference: Sequence[LayerRanks] | None) -> dict[str, object]:
        """For JSON; with the ranks of the solver's network for the verdicts."""
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
            "verdict": [self._verdict(told, reference) for told in layers],
        }

    def _verdict(self, layer: Mapping[str, Any], reference: Sequence[LayerRanks] | None) -> str:
        tolerance = next(iter(layer["rank"]))
        other = None if reference is None else reference[layer["layer"] - 1].rank[float(tolerance)]
        size = self.setting.batch_size
        return rank_verdicts.of_layer(layer, tolerance, batch_size=size, kept=self.kept, reference=other)


def cell_of(
    problem: Problem,
    setting: Setting,
    found: Descended | Sequence[Tensor],
    start: Sequence[Tensor] | None,
    *,
    tolerances: Sequence[float],
    seed: int,
) -> RankCell:
    """Audit a network that was trained here, or that was given with its setting.

    Args:
        problem: the question, in float64.
        tolerances, seed: as for `audit_ranks`.
    """
    question = replace(problem, lam=setting.lam)
    trained = isinstance(found, Descended)
    weights = [W.to(problem.X) for W in (found.weights if trained else found)]
    first = None if start is None else [W.to(problem.X) for W in start]
    steps, diverged = (found.steps, found.diverged) if trained else (setting.steps, False)
    layers = []
    try:
        layers = (
            []
            if diverged
            else audit_ranks(
                question,
                without_what_is_gone(weights, first),
                tolerances=tolerances,
                batch_size=setting.batch_size,
                decay=setting.decay,
                steps=steps,
                start=first,
                seed=seed,
            )
        )
    except ProblemError:
        if not trained:
            raise
        diverged = True  # the weights are finite yet, the loss or its gradient no longer
    cost, course = evaluate(question, weights), found.course if trained else None
    right = _accuracy(question, weights)
    measured = None if course is not None or first is None else measured_kept(problem, weights[0], first[0])
    return RankCell(setting, weights, first, steps, diverged, course, cost, right, layers, problem.samples, measured)


def measured_kept(problem: Problem, W: Tensor, start: Tensor) -> float | None:
    """What is left of the start, from W_1 alone: outside the span of the inputs it is kept times the start, exactly.

    That is the c with the least |W_1 - c W_{1,0}| on the complement of the rows of [X, beta 1]; None where there is
    none, or the start has nothing there.
    """
    s, Vt = torch.linalg.svd(problem.Xt, full_matrices=False)[1:]
    rows = Vt[RANK_RULE.keeps(s)]
    here, there = (each - (each @ rows.T) @ rows for each in (W, start))
    size = frobenius(there.flatten())
    if not size > OUTSIDE * frobenius(start.flatten()):
        return None
    return known(float(((here / size) * (there / size)).sum()))


def without_what_is_gone(weights: Sequence[Tensor], start: Sequence[Tensor] | None) -> list[Tensor]:
    """The weights with 0 for each matrix that has decayed to nothing, of which rounding alone has a rank."""
    if start is None or len(start) != len(weights):
        return list(weights)
    pairs = zip(weights, start, strict=True)
    return [torch.zeros_like(W) if frobenius(W.flatten()) < GONE * frobenius(V.flatten()) else W for W, V in pairs]


def _accuracy(problem: Problem, weights: list[Tensor]) -> float | None:
    if problem.loss.name != "cross_entropy":
        return None
    F = outputs(problem, weights, problem.X)
    return float((F.argmax(dim=1) == problem.Y.argmax(dim=1)).double().mean())


@dataclass(frozen=True)
class Reference:
    """What the solver found for the same question, and its ranks."""

    result: Result
    layers: list[LayerRanks]

    def summary(self) -> dict[str, object]:
        """For JSON."""
        told = self.result.summary()
        kept = ("lam", "cost", "lower", "certificate", "status", "widths", "seconds")
        return {name: told[name] for name in kept} | {"layers": [layer.summary() for layer in self.layers]}


def reference_of(problem: Problem, result: Result, tolerances: Sequence[float]) -> Reference:
    """The ranks of the solver's network."""
    weights = [W.to(problem.X) for W in result.weights]
    return Reference(result, audit_ranks(replace(problem, lam=result.problem.lam), weights, tolerances=tolerances))
