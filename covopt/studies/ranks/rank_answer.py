"""The answer of `ranks`: networks, their ranks, the solver's ranks; storing it."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from covopt import __version__
from covopt.data.data import Dataset
from covopt.model.problem import Problem
from covopt.records import record, storing
from covopt.records.directories import Writer, spare
from covopt.records.provenance import ORIGIN, write_origin
from covopt.runtime.lazy import lazy
from covopt.runtime.loop import Status
from covopt.studies.ranks import rank_words
from covopt.studies.ranks.rank_cells import RankCell, Reference, Setting

if TYPE_CHECKING:
    from covopt.answer import panels as drawn
    from covopt.records import markup
    from covopt.studies.ranks import rank_curves
else:
    drawn, markup = lazy("covopt.answer.panels"), lazy("covopt.records.markup")
    rank_curves = lazy("covopt.studies.ranks.rank_curves")

FILE, TABLE = "ranks.json", "cells.csv"
SETTING = ("batch_size", "rate", "lam", "momentum", "nesterov", "seed")
TRAINED = ("steps", "finished", "diverged", "epochs", "kept", "loss", "fit", "accuracy")


@dataclass
class Ranks:
    """The ranks at the end of SGD, and their explanation.

    Attributes:
        problem: in float64; no network uses its lam.
        cells: every network, in the order of the grid; or the given one.
        references: the solver's results, by lam.
        tolerances: of the threshold ranks.
        until: `kept`, `epochs` or `steps`, and its value; None for a given network.
        status: `converged` if no limit ended the training.
        seconds: the time of everything; seed: of the first start.
        data, scale: name and scaling of the data set, if they are known.
        refused: the reason why the solver has no result, by lam.
    """

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
    refused: dict[float, str] = field(default_factory=dict)

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
        references = [
            {"run": f"references/{place}", **reference.summary()}
            for place, reference in enumerate(self.references.values(), start=1)
        ]
        layers = {lam: reference.layers for lam, reference in self.references.items()}
        return {
            "data": self.data,
            "scale": self.scale,
            "rows": p.samples,
            "loss": p.loss.name,
            "depth": p.depth,
            "bias": p.beta,
            "activation": p.activation.name,
            "widths": self.widths,
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
        """Take over the name and scale of a data set."""
        self.data, self.scale = data.name, data.scale
        for reference in self.references.values():
            reference.result.describe_data(data)

    def describe(self) -> list[tuple[str, str]]:
        """Return the answer as a person reads it: pairs of a label and its text."""
        return rank_words.pairs(self.summary())

    def __repr__(self) -> str:
        """Return the answer in a few lines."""
        return "\n".join(f"{label:<13}{text}" for label, text in self.describe())

    def _repr_html_(self) -> str:
        s = self.summary()
        return markup.summary(rank_words.answer(s), rank_words.pairs(s))

    def panels(self) -> list[drawn.Panel]:
        """Return the panels: rank against epochs and against the retained fraction, spectra."""
        return rank_curves.panels(self.cells, self.references, self.problem.depth, self.tolerances[0])

    def save(
        self,
        directory: str | os.PathLike[str],
        *,
        force: bool = False,
        others: Mapping[str, Writer] | None = None,
    ) -> None:
        """Write the answer into a directory.

        The files are ranks.json, cells.csv, the arrays of `networks` and `spectra` as .npz, problem.npz, figure.png,
        origin.json and the solver's runs, such as `references/1`; force and others as for `Result.save`.

        Raises:
            RecordError: the directory exists, or cannot be written.
        """
        plain: Mapping[str, Writer] = {"figure.png": lambda path: None}
        runs: dict[str, Writer] = {
            f"references/{place}": lambda path, result=reference.result: result.save(path, others=plain)
            for place, reference in enumerate(self.references.values(), start=1)
        }
        storing.put(
            directory,
            FILE,
            {
                FILE: lambda path: record.write_summary(path, self.summary()),
                TABLE: self._write_table,
                "networks.npz": lambda path: np.savez(path, allow_pickle=False, **self.networks()),
                "spectra.npz": lambda path: np.savez(path, allow_pickle=False, **self.spectra()),
                record.PROBLEM: lambda path: np.savez(path, allow_pickle=False, **self._data()),
                "figure.png": spare(lambda path: drawn.draw_panels(self.panels(), path)),
                **runs,
                ORIGIN: write_origin(),
                **(others or {}),
            },
            force=force,
        )

    def networks(self) -> dict[str, NDArray]:
        """Return all weights `c1_W1` and starts: `start0_W1` of seed 0, `start_W1` if given."""
        arrays = {
            f"{name_of_start(cell.setting)}_W{layer}": W
            for cell in self.cells
            for layer, W in enumerate(cell.start or [], start=1)
        }
        arrays |= {
            f"c{place}_W{layer}": W
            for place, cell in enumerate(self.cells, start=1)
            for layer, W in enumerate(cell.weights, start=1)
        }
        return {name: W.cpu().numpy() for name, W in arrays.items()}

    def spectra(self) -> dict[str, NDArray]:
        """Return the records of all networks.

        `c1_steps` (R,) are the steps of the records; `c1_fits`, `c1_norms`, `c1_accuracies` (R,) and the singular
        values `c1_W1` (R, min(n_1, n_0 + 1)) are their values.
        """
        arrays: dict[str, NDArray] = {}
        for place, cell in enumerate(self.cells, start=1):
            if cell.course is not None:
                arrays[f"c{place}_steps"] = np.array(cell.course.steps)
                for name in ("fits", "norms", "accuracies"):
                    arrays[f"c{place}_{name}"] = np.array(getattr(cell.course, name), dtype=np.float64)
                for layer, rows in enumerate(zip(*cell.course.spectra, strict=True), start=1):
                    arrays[f"c{place}_W{layer}"] = np.stack([values.numpy() for values in rows])
        return arrays

    def _data(self) -> dict[str, NDArray]:
        p = self.problem
        return {"X": p.X.cpu().numpy(), "Y": p.Y.cpu().numpy()}

    def _write_table(self, path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as stream:
            table = csv.writer(stream)
            table.writerows(lines_of(self.summary()))


def name_of_start(setting: Setting) -> str:
    """Return the name of a network's start in networks.npz."""
    return "start" if setting.seed is None else f"start{setting.seed}"


def lines_of(summary: Mapping[str, Any]) -> list[list[str]]:
    """Return cells.csv: a row for each layer of each network; None becomes an empty field."""
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
    return [["" if value is None else str(value) for value in line] for line in lines]
