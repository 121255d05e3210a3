"""One network of `ranks`: its training, its retained fraction, the audit of its ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from covopt.answer.held_out import HeldOut
from covopt.answer.result import Result
from covopt.linalg.psd import RANK_RULE
from covopt.model.loss import CrossEntropy
from covopt.model.problem import Problem
from covopt.model.ranks import frobenius
from covopt.model.weights import Cost
from covopt.records.record import Summary, known
from covopt.runtime.errors import ProblemError
from covopt.studies.ranks import words
from covopt.studies.ranks.architectures import PLAIN, Architecture
from covopt.studies.ranks.rank_audit import LayerRanks, audit_ranks
from covopt.studies.ranks.sgd import Course, Descended, Setting, accuracy

FAINT = 1e-6
"""Parts of the start below this share of its norm are rounding: its part outside the span of the inputs, or what the
decay has left."""


@dataclass(frozen=True)
class RankCell:
    """One network with its audit."""

    setting: Setting  # its training
    weights: list[Tensor]  # W_1 ... W_L in float64
    start: list[Tensor] | None  # the weights before the first step, if they are known
    steps: int | None  # the number taken; None if that is unknown
    diverged: bool  # the weights were no longer finite after these steps; then there is no audit
    course: Course | None  # the records of a network that was trained here
    cost: Cost  # the cost of the weights
    accuracy: float | None  # the share of samples in the right class, for cross-entropy
    layers: list[LayerRanks]  # the audit of the rank of each matrix
    samples: int  # N
    measured: float | None = None  # the retained fraction by `measured_kept`, for a given network
    test_accuracy: float | None = None  # the same of the held-out data, if there are any

    @property
    def finished(self) -> bool:
        """True if all requested steps were taken."""
        return self.steps == self.setting.steps

    @property
    def kept(self) -> float | None:
        """The retained fraction of the initial weights: (A^T)_11 of the exact recursion."""
        decay = self.setting.decay(self.steps)
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
            "test_accuracy": None if self.diverged else self.test_accuracy,
            "distance": None if self.diverged or self.course is None else self.course.distances[-1],
            "layers": layers,
            "verdict": [self._verdict(layer, reference) for layer in layers],
        }

    def _verdict(self, layer: Summary, reference: Sequence[LayerRanks] | None) -> str:
        tolerance = next(iter(layer["rank"]))
        other = None if reference is None else reference[layer["layer"] - 1].rank[float(tolerance)]
        size = self.setting.batch_size
        return words.of_layer(layer, tolerance, batch_size=size, retained=self.kept, reference=other)


def cell_of(
    problem: Problem,
    setting: Setting,
    network: Descended,
    start: Sequence[Tensor] | None,
    *,
    architecture: Architecture = PLAIN,
    test: HeldOut | None = None,
    tolerances: Sequence[float],
    seed: int,
) -> RankCell:
    """Audit a network that was trained here, or elsewhere with what is known of its setting; see `audit_ranks`."""
    question = replace(problem, lam=setting.lam)
    weights = [W.to(problem.X) for W in network.weights]
    first = None if start is None else [W.to(problem.X) for W in start]
    steps, diverged, course = network.steps, network.diverged, network.course
    layers = []
    if not diverged:
        training = {"batch_size": setting.batch_size, "decay": setting.decay(steps), "steps": steps, "start": first}
        present = without_what_is_gone(weights, first)
        try:
            layers = audit_ranks(
                question, present, architecture=architecture, tolerances=tolerances, seed=seed, **training
            )
        except ProblemError:
            if course is None:
                raise
            diverged = True  # the weights are still finite, but the loss or its gradient is not
    cost, right, test_right = architecture.cost(question, weights), None, None
    if type(problem.loss) is CrossEntropy:
        right = accuracy(architecture.outputs(question, weights, problem.X), problem.Y)
        test_right = None if test is None else accuracy(architecture.outputs(question, weights, test.X), test.Y)
    measured = None if course is not None or first is None else measured_kept(problem, weights[0], first[0])
    facts = (cost, right, layers, problem.samples, measured, test_right)
    return RankCell(setting, weights, first, steps, diverged, course, *facts)


def measured_kept(problem: Problem, W: Tensor, start: Tensor) -> float | None:
    """Measure the retained fraction of the initial weights from W_1 alone.

    Outside the span of the inputs W_1 is exactly this fraction of its initial value. Return the c with the smallest
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
