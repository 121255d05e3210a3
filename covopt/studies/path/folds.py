"""The loss of networks on held-out data, which is no bound on the minimum."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.model.loss import mean_loss
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import Weights, outputs
from covopt.runtime.errors import ProblemError, counted, shown


@dataclass(frozen=True)
class HeldOut:
    """Inputs (M, n_0) and targets (M, n_L) that no network sees during its training."""

    X: Float[Tensor, "M n0"]
    Y: Float[Tensor, "M nL"]

    @staticmethod
    def of(test: object, problem: Problem) -> HeldOut | None:
        """Check a pair of held-out inputs and targets against the data of a problem; None stays None.

        Raises:
            ProblemError: it is no pair, the columns differ, or there are no data.
        """
        if test is None:
            return None
        if not (isinstance(test, (tuple, list)) and len(test) == 2):
            raise ProblemError(f"test is {shown(test)}; give a pair of held-out inputs and targets.")
        task = "regression" if problem.classes is None else None
        checked = make_problem(
            *test, lam=problem.stated_lam, loss=problem.loss, depth=problem.depth, device=problem.X.device, task=task,
            classes=problem.classes,
        ).double()  # fmt: skip
        for name, mine, theirs in (("inputs", checked.X, problem.X), ("targets", checked.Y, problem.Y)):
            if mine.shape[1] != theirs.shape[1]:
                raise ProblemError(
                    f"The held-out {name} have {counted(mine.shape[1], 'column')} and those of the data"
                    f" {theirs.shape[1]}; give held-out data of the same kind."
                )
        return HeldOut(checked.X, checked.Y)

    def score(self, problem: Problem, weights: Weights) -> float:
        """Return C(F) on these data, without the penalty."""
        return float(mean_loss(problem.loss, outputs(problem, weights, self.X), self.Y, None))


def folds_of(samples: int, folds: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Return (rows to solve on, rows held out) of random folds that differ by at most one row.

    Raises:
        ProblemError: there are fewer than 2 folds, or more than samples.
    """
    if not 2 <= folds <= samples:
        raise ProblemError(f"folds is {shown(folds)}; give a whole number from 2 to {samples}, the number of rows.")
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(seed))
    parts = order.tensor_split(folds)
    training = [torch.cat([part for part in parts if part is not held]) for held in parts]
    return [(rows.sort().values, held.sort().values) for rows, held in zip(training, parts, strict=True)]
