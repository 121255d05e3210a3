"""Figure 2 of [JGHG22]: train and test loss of trained networks against their width, and the plateau that they show.

* `digits`: cross-entropy on 1,000 images, MNIST where its files are at hand, else scikit-learn's digits, with two
  strengths of the penalty; depth 3.
* `teacher`: mean squared error on the outputs of a random network with widths (50, 10, 10, 10); depth 3.

The train loss is the cost, penalty included; the test loss is C alone, on other samples. Networks are trained the
ordinary way (trainer.py), all widths and trials together. What the dots show is no proof: `plateau` gives intervals.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from covopt import __version__
from covopt.errors import ProblemError, shown
from covopt.interrupts import gently
from covopt.io import record, storing
from covopt.io.data import read_data
from covopt.io.directories import Writer, spare
from covopt.io.provenance import ORIGIN, write_origin
from covopt.lazy import lazy
from covopt.linalg.threads import fitted
from covopt.loop import Budget, Callback, Status
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import outputs
from covopt.study.width_search import EPS
from covopt.training.trainer import Trainings, train

if TYPE_CHECKING:
    from covopt.figures import widths as width_figures
else:
    width_figures = lazy("covopt.figures.widths")

SUMMARY = "figure2.json"
SAMPLES = 1000
TEACHER = (50, 10, 10, 10)


@dataclass(frozen=True)
class Experiment:
    """One panel: where its data come from, and what is asked of them."""

    data: Callable[[str | os.PathLike[str] | None, int], tuple[NDArray, NDArray, NDArray, NDArray, str]]
    loss: str
    depth: int
    strengths: tuple[float, ...]
    widths: tuple[int, ...]


@dataclass(frozen=True)
class Trial:
    """One trained network: its width, the strength of the penalty, its seed, its cost and its test loss."""

    width: int
    lam: float
    seed: int
    train: float
    test: float


@dataclass(frozen=True)
class Figure2:
    """All trials of a panel.

    Attributes:
        panel, data: which, and on what.
        trials: in the order of lam, width and seed.
        status: `converged` when every network came to a stand.
        seconds: in all.
    """

    panel: str
    data: str
    trials: list[Trial]
    status: Status
    seconds: float

    @property
    def strengths(self) -> list[float]:
        """The values of lam, in the order in which they were trained."""
        return list(dict.fromkeys(trial.lam for trial in self.trials))

    def lowest(self, lam: float) -> list[tuple[int, float, float]]:
        """(width, lowest train loss, the same network's test loss), by width."""
        mine = [trial for trial in self.trials if trial.lam == lam]
        best = [min((t for t in mine if t.width == n), key=lambda t: t.train) for n in sorted({t.width for t in mine})]
        return [(trial.width, trial.train, trial.test) for trial in best]

    def level(self, lam: float) -> float:
        """The lowest train loss of all widths."""
        return min(train for _, train, _ in self.lowest(lam))

    def start(self, lam: float, eps: float) -> int:
        """The narrowest width with a trial within (1 + eps) of the level: what the dots show, not a proof."""
        return min(n for n, train, _ in self.lowest(lam) if train <= (1.0 + eps) * self.level(lam))

    def summary(self) -> dict[str, object]:
        """The JSON of `covopt figure2`."""
        curves = [
            {
                "lam": lam,
                "level": record.known(self.level(lam)),
                "start": {f"{eps:g}": self.start(lam, eps) for eps in EPS},
                "curve": [
                    {"width": n, "cost": record.known(a), "test": record.known(b)} for n, a, b in self.lowest(lam)
                ],
            }
            for lam in self.strengths
        ]
        told: dict[str, object] = {"panel": self.panel, "data": self.data, "curves": curves, "status": str(self.status)}
        return told | {"seconds": self.seconds, "version": __version__}

    def rows(self) -> list[tuple[object, ...]]:
        """lam, width, lowest train loss, test loss."""
        return [(lam, *line) for lam in self.strengths for line in self.lowest(lam)]

    def panels(self) -> list[width_figures.WidthPanel]:
        """A picture for each lam: all trials as dots, the lowest train loss and its test loss as lines, the plateau."""
        panels = []
        for lam in self.strengths:
            mine = [trial for trial in self.trials if trial.lam == lam]
            widths, train, test = (np.array(column, dtype=np.float64) for column in zip(*self.lowest(lam), strict=True))
            curves = [
                width_figures.WidthCurve("train loss", widths, train, np.array([(t.width, t.train) for t in mine])),
                width_figures.WidthCurve(
                    "test loss, no penalty", widths, test, np.array([(t.width, t.test) for t in mine])
                ),
            ]
            marks = [(self.start(lam, eps), f"within {100 * eps:g} %") for eps in EPS]
            panels.append(width_figures.WidthPanel(f"{self.data}: lam {lam:g}", curves, self.level(lam), None, marks))
        return panels

    def save(
        self,
        directory: str | os.PathLike[str],
        *,
        force: bool = False,
        others: Mapping[str, Writer] | None = None,
    ) -> None:
        """Write figure2.json, trials.csv, figure.png and origin.json; force and others as for `Result.save`.

        Raises:
            RecordError: the directory exists, or cannot be written.
        """
        writers: dict[str, Writer] = {
            SUMMARY: lambda path: record.write_summary(path, self.summary()),
            "trials.csv": self._write_trials,
            "figure.png": spare(lambda path: width_figures.draw_widths(self.panels(), path)),
            ORIGIN: write_origin(),
            **(others or {}),
        }
        storing.put(directory, SUMMARY, writers, force=force, spared=())

    def _write_trials(self, path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as stream:
            table = csv.writer(stream)
            table.writerow(("width", "lam", "seed", "train", "test"))
            table.writerows((t.width, t.lam, t.seed, t.train, t.test) for t in self.trials)


@gently()
@fitted
def figure2(
    panel: str,
    *,
    strengths: Sequence[float] | None = None,
    widths: Sequence[int] | None = None,
    trials: int = 3,
    time_limit: float = 900.0,
    seed: int = 0,
    device: str | torch.device = "cpu",
    data_dir: str | os.PathLike[str] | None = None,
    callback: Callback | None = None,
) -> Figure2:
    """Train networks of many widths, and say where their losses stop falling.

    Args:
        panel: digits or teacher.
        strengths: values of lam; None takes those of the panel.
        widths: of every hidden layer; None takes the twenty of the panel.
        trials: networks for each width and lam, with seeds `seed`, `seed` + 1, ...
        time_limit: seconds in all, shared equally by the values of lam.
        seed: of the first trial, and of the teacher.
        device: where to compute.
        data_dir: where the files of mnist lie; None takes scikit-learn's digits.
        callback: gets a `Progress` after each round of the training.

    Raises:
        ProblemError: an unknown panel, or an option out of range.
    """
    if panel not in EXPERIMENTS:
        raise ProblemError(f"The panel {shown(panel)} is unknown; use {' or '.join(EXPERIMENTS)}.")
    if panel == "teacher" and data_dir is not None:
        raise ProblemError("The panel teacher makes its own data; leave the directory of images out.")
    if trials < 1 or not time_limit > 0.0:
        raise ProblemError("There must be at least one trial, and a time limit above 0.")
    experiment = EXPERIMENTS[panel]
    X, Y, X_test, Y_test, name = experiment.data(data_dir, seed)
    budget, found, stopped = Budget(time_limit), [], []
    strengths = list(experiment.strengths if strengths is None else strengths)
    for place, lam in enumerate(strengths):
        problem = make_problem(X, Y, lam=lam, loss=experiment.loss, depth=experiment.depth, device=device)
        share = Budget(budget.remaining() / (len(strengths) - place))
        seeds = range(seed, seed + trials)
        trained = train(problem, list(widths or experiment.widths), seeds=seeds, budget=share, callback=callback)
        found += _judged(problem, trained, X_test, Y_test, lam)
        stopped.append(trained.status)
        if trained.status is Status.INTERRUPTED:
            break
    worst = next((status for status in stopped if status is not Status.CONVERGED), Status.CONVERGED)
    return Figure2(panel, name, found, worst, budget.seconds())


def _judged(problem: Problem, trained: Trainings, X_test: NDArray, Y_test: NDArray, lam: float) -> list[Trial]:
    X = torch.as_tensor(X_test).to(problem.X)
    Y = torch.as_tensor(Y_test).to(problem.X)
    return [
        Trial(
            max(network.widths),
            lam,
            -1 if network.seed is None else network.seed,
            network.cost.total,
            float(problem.loss.values(outputs(problem, network.weights, X), Y).mean()),
        )
        for network in trained.networks
    ]


def _images(data_dir: str | os.PathLike[str] | None, seed: int) -> tuple[NDArray, NDArray, NDArray, NDArray, str]:
    """The first 1,000 images, and the 1,000 (797 of digits) that follow."""
    name = "digits" if data_dir is None else "mnist"
    rows = None if data_dir is None else 2 * SAMPLES
    images = read_data(name, rows=rows, scale="max", data_dir=data_dir)
    return images.X[:SAMPLES], images.Y[:SAMPLES], images.X[SAMPLES:], images.Y[SAMPLES:], name


def _teacher(data_dir: str | os.PathLike[str] | None, seed: int) -> tuple[NDArray, NDArray, NDArray, NDArray, str]:
    """Gaussian inputs and the outputs of a Gaussian network without biases, He-scaled."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((2 * SAMPLES, TEACHER[0]))
    Y = X
    for layer, (below, above) in enumerate(pairwise(TEACHER)):
        Y = (np.maximum(Y, 0.0) if layer else Y) @ rng.standard_normal((below, above)) * math.sqrt(2.0 / below)
    return X[:SAMPLES], Y[:SAMPLES], X[SAMPLES:], Y[SAMPLES:], f"teacher {TEACHER}"


EXPERIMENTS = {
    "digits": Experiment(
        _images,
        "cross_entropy",
        3,
        (1e-3, 1e-4),
        (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 25, 30, 40, 50, 70, 100),
    ),
    "teacher": Experiment(
        _teacher,
        "mse",
        3,
        (1e-6,),
        (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 24, 28, 34, 40),
    ),
}
