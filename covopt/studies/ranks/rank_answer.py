"""The answer of `ranks`: networks, their ranks, the solver's ranks; storing it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from covopt import __version__
from covopt.answer.held_out import HeldOut
from covopt.data.data import Dataset
from covopt.model.problem import Problem
from covopt.records import record
from covopt.records.answer import UNDRAWN, Answer, Table, Words
from covopt.records.directories import Writer, spare
from covopt.records.record import Summary
from covopt.runtime.lazy import lazy
from covopt.runtime.loop import Status
from covopt.studies.ranks import words as rank_words
from covopt.studies.ranks.architectures import PLAIN, Architecture
from covopt.studies.ranks.rank_cells import RankCell, Reference
from covopt.studies.ranks.sgd import Setting

if TYPE_CHECKING:
    from covopt.answer import drawing as drawn
    from covopt.studies.ranks import rank_curves
else:
    drawn = lazy("covopt.answer.drawing")
    rank_curves = lazy("covopt.studies.ranks.rank_curves")

TABLE = "cells.csv"
SETTING = ("batch_size", "rate", "lam", "momentum", "nesterov", "seed")
TRAINED = ("steps", "finished", "diverged", "epochs", "kept", "loss", "fit", "accuracy", "test_accuracy", "distance")

COURSES = ("fits", "norms", "accuracies", "distances", "test_accuracies")
"""The numbers of each record; the last ones only with held-out data."""


@dataclass(repr=False)
class Ranks(Answer):
    """The ranks at the end of SGD, and their explanation.

    Attributes:
        problem: in float64; no network uses its lam.
        cells: every network, in the order of the grid; or the given one.
        references: the solver's results, by lam.
        tolerances: of the threshold ranks.
        until: `kept`, `epochs` or `steps`, and its value; None for a given network.
        status: `converged` if no limit ended the training.
        seconds: the time of everything; seed: of the first start.
        data, scale, targets, shuffle: the description of the data set, if it is known.
        refused: the reason why the solver has no result, by lam.
        architecture: of all networks.
        test: the held-out data.
    """

    file: ClassVar[str] = "ranks.json"
    words: ClassVar[Words] = rank_words

    problem: Problem
    cells: list[RankCell]
    references: dict[float, Reference]
    tolerances: list[float]
    until: dict[str, Any] | None
    status: Status
    seconds: float
    seed: int
    data: str | None = None
    scale: str | None = None
    targets: str | None = None
    shuffle: int | None = None
    refused: dict[float, str] = field(default_factory=dict)
    architecture: Architecture = PLAIN
    test: HeldOut | None = None

    @property
    def widths(self) -> list[int]:
        """The widths n_1 ... n_{L-1}."""
        return [len(W) for W in self.cells[0].weights[:-1]]

    def rank(self, layer: int, tolerance: float | None = None, **setting: object) -> float | None:
        """Return the mean rank of W_l over the networks of a setting; None if there are none.

        Args:
            layer: l, from 1 to L.
            tolerance: one of the requested ones; None: the first.
            setting: common values of the networks by the names of `Setting`, such as `batch_size=4`; others may differ.
        """
        which = self.tolerances[0] if tolerance is None else tolerance
        values = [
            cell.layers[layer - 1].rank[which]
            for cell in self.cells
            if cell.layers and all(getattr(cell.setting, name) == value for name, value in setting.items())
        ]
        return sum(values) / len(values) if values else None

    def summary(self) -> dict[str, object]:
        """Return the JSON of `covopt ranks`; unknown or unproved values are None."""
        p = self.problem
        places = enumerate(self.references.values(), start=1)
        references = [{"run": f"references/{place}", **reference.summary()} for place, reference in places]
        layers = {lam: reference.layers for lam, reference in self.references.items()}
        return {
            "data": self.data,
            **{name: getattr(self, name) for name in ("scale", "targets", "shuffle")},
            "rows": p.samples,
            **{name: p.stated()[name] for name in ("loss", "depth", "bias", "activation")},
            "architecture": self.architecture.name,
            "widths": self.widths,
            "test_rows": None if self.test is None else len(self.test.X),
            "tolerance": self.tolerances,
            "until": self.until,
            "references": references,
            "cells": [cell.summary(layers.get(cell.setting.lam)) for cell in self.cells],
            "refused": [{"lam": lam, "reason": reason} for lam, reason in self.refused.items()],
            "status": str(self.status),
            "seconds": self.seconds,
            "seed": self.seed,
            "version": __version__,
        }

    def describe_data(self, data: Dataset) -> None:
        """Take over the description of a data set: name, scale, targets, shuffled rows."""
        self.data, self.scale, self.targets, self.shuffle = data.name, data.scale, data.targets, data.shuffle
        for reference in self.references.values():
            reference.result.describe_data(data)

    def overview(self) -> tuple[record.Pairs, Table]:
        """Return the answer without a line for each setting, and the settings as a table."""
        summary = self.summary()
        return rank_words.pairs(summary, settings=False), rank_words.table(summary)

    def panels(self) -> list[drawn.Panel]:
        """Return the panels: rank against epochs and against the retained fraction, spectra."""
        return rank_curves.panels(self.cells, self.references, self.problem.depth, self.tolerances[0])

    def files(self) -> dict[str, Writer]:
        """Return the writers of the files beside ranks.json.

        They are cells.csv, the arrays of `networks` and `spectra` as .npz, problem.npz, figure.png and the solver's
        runs, such as `references/1`.
        """
        held = {} if self.test is None else {"X_test": self.test.X, "Y_test": self.test.Y}
        return {
            TABLE: record.table(lambda: lines_of(self.summary())),
            "networks.npz": record.archive(self.networks),
            "spectra.npz": record.archive(self.spectra),
            record.PROBLEM: record.archive(lambda: record.numpy_of(X=self.problem.X, Y=self.problem.Y, **held)),
            "figure.png": spare(lambda path: drawn.draw_panels(self.panels(), path)),
            **{
                f"references/{place}": partial(reference.result.save, others=UNDRAWN)
                for place, reference in enumerate(self.references.values(), start=1)
            },
        }

    def networks(self) -> dict[str, NDArray]:
        """Return all weights `c1_W1` and starts: `start0_W1` of seed 0, `start_W1` if given."""
        starts = {name_of_start(cell.setting): cell.start or [] for cell in self.cells}
        networks = {f"c{place}": cell.weights for place, cell in enumerate(self.cells, start=1)}
        return record.layers_of(starts | networks)

    def spectra(self) -> dict[str, NDArray]:
        """Return the records of all networks.

        `c1_steps` (R,) are the steps of the records; `c1_fits`, `c1_norms`, `c1_accuracies`, `c1_distances` (R,), with
        held-out data `c1_test_accuracies`, and the singular values `c1_W1` (R, min(n_1, n_0 + 1)) are their values.
        """
        arrays: dict[str, NDArray] = {}
        for place, cell in enumerate(self.cells, start=1):
            if cell.course is not None:
                arrays[f"c{place}_steps"] = np.array(cell.course.steps)
                for name in COURSES[: None if cell.course.test_accuracies else -1]:
                    arrays[f"c{place}_{name}"] = np.array(getattr(cell.course, name), dtype=np.float64)
                for layer, rows in enumerate(zip(*cell.course.spectra, strict=True), start=1):
                    arrays[f"c{place}_W{layer}"] = np.stack([values.numpy() for values in rows])
        return arrays


def name_of_start(setting: Setting) -> str:
    """Return the name of a network's start in networks.npz."""
    return "start" if setting.seed is None else f"start{setting.seed}"


def lines_of(summary: Summary) -> list[list[object]]:
    """Return the table of cells.csv: a row for each layer of each network."""
    names = [f"{tolerance:g}" for tolerance in summary["tolerance"]]
    measures = ("stable_rank", "functional_rank", "residual", "dead")
    head = [*SETTING, *TRAINED, "layer", *(f"rank_{n}" for n in names), *(f"predicted_{n}" for n in names), *measures]
    lines: list[list[object]] = [list(head)]
    for cell in summary["cells"]:
        common = [cell[name] for name in (*SETTING, *TRAINED)]
        for layer in cell["layers"] or [None]:
            if layer is None:  # a network that diverged
                lines.append([*common, *[None] * (len(head) - len(common))])
                continue
            predicted = layer["predicted"] or {}
            ranks = [layer["rank"][n] for n in names] + [predicted.get(n) for n in names]
            lines.append([*common, layer["layer"], *ranks, *(layer[name] for name in measures)])
    return lines
