"""The stage of ordinary training."""

from __future__ import annotations

from dataclasses import dataclass

from covopt.model.problem import Problem
from covopt.solvers.incumbent import Incumbent
from covopt.solvers.options import SolveOptions
from covopt.solvers.stages.stage import DOUBLE, Stage, in_units, size_in_units, take
from covopt.solvers.training.trainer import default_width, fitting, train_best


@dataclass(frozen=True)
class Train(Stage):
    """Adam and L-BFGS on the weights, all starts as one batch."""

    name = "training"
    why = "Several random networks are trained by Adam and L-BFGS as one batch."
    starts: int = 10  # the default number of networks

    def memory(self, problem: Problem, options: SolveOptions) -> dict[str, float]:
        """Return the bytes of activations forward and back, and of L-BFGS's memory of parameters."""
        (N, d), starts = problem.X.shape, options.starts or self.starts
        width = options.width or default_width(problem, starts, options.budget.time_limit)
        widths, remembered = [width] * (problem.depth - 1), 2 * 20  # arrays of parameters that L-BFGS remembers
        starts = min(starts, fitting(problem, widths, options.budget))
        parameters = sum(n * k for n, k in problem.shapes(widths))
        activations = 3 * N * width * (problem.depth - 1)
        copies = size_in_units(problem) + 2 * DOUBLE * N * (d + 1)
        return {"training": copies + DOUBLE * starts * (activations + (remembered + 8) * parameters)}

    def run(self, incumbent: Incumbent, options: SolveOptions) -> None:
        """Train as many batches as the starts need."""
        units, o = in_units(incumbent.problem, options)
        starts = o.starts or self.starts
        take(incumbent, units, train_best(units.problem, o.budget, o.width, starts, o.seed, o.init, o.callback))

    def remedies(self, phase: str) -> list[str]:
        """Return what makes the batch smaller."""
        return ["fewer starts, a smaller width"] if phase == "training" else []
