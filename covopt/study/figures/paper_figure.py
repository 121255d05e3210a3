"""`figure`: a figure of a paper, made anew; its answer stores itself, and comes back from its files."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Float

from covopt import __version__
from covopt.errors import ProblemError, listed, shown
from covopt.interrupts import gently
from covopt.io import record, storing
from covopt.io.arrays import read_npz
from covopt.io.directories import Writer, spare
from covopt.io.provenance import ORIGIN, write_origin
from covopt.linalg.threads import fitted
from covopt.loop import Budget, Callback, Status
from covopt.model.problem import parse_device
from covopt.study.figure2 import Figure2, figure2
from covopt.study.figures import counterexample, denoising, depth_rank, rank_recovery, symmetry, tripoints
from covopt.study.figures.design import Asked, Claim, Design, Numbers, Setting, panels

SUMMARY, ARRAYS, TABLE = "figure.json", "arrays.npz", "table.csv"
WIDTH = "width"
"""The figure that is one of trained networks of many widths, figure2.py."""
DESIGNS: dict[str, Design] = {
    "counterexample": counterexample.DESIGN,
    "tripoints": tripoints.DESIGN,
    "denoising": denoising.DESIGN,
    "rank-recovery": rank_recovery.DESIGN,
    "depth-rank": depth_rank.DESIGN,
    "symmetry": symmetry.DESIGN,
}
"""The figures of the papers on depth, by name."""
NAMES = (WIDTH, *DESIGNS)
SMALL = (1, 2, 4, 6, 8, 10, 12, 16, 20)
"""The widths of a small `width`."""
LIMIT, LONGER = 60.0, 15.0
"""Seconds for `width`; how many times longer a figure takes in the paper's sizes."""


@dataclass(frozen=True)
class PaperFigure:
    """A figure of a paper.

    Attributes:
        name: which.
        paper: whether in the sizes that the paper prints.
        seed: of the data and of the training.
        settings: of the experiment, and which of them the paper states.
        arrays: the data and networks, from which all else follows.
        status: `converged` when every training came to a stand.
        seconds: in all.
    """

    name: str
    paper: bool
    seed: int
    settings: list[Setting]
    arrays: dict[str, Float[np.ndarray, "*shape"]]
    status: Status
    seconds: float

    @property
    def design(self) -> Design:
        """What the figure consists of."""
        return DESIGNS[self.name]

    @cached_property
    def numbers(self) -> Numbers:
        """The numbers of the figure, computed from its arrays."""
        with np.errstate(over="ignore", invalid="ignore"):  # of arrays that somebody changed; the numbers differ then
            return self.design.numbers(self.arrays)

    @property
    def claims(self) -> list[Claim]:
        """What a reader should see, and whether it is there."""
        return self.design.claims(self.numbers)

    def rows(self) -> list[list[object]]:
        """The rows of its table."""
        return self.design.rows(self.numbers)

    def panels(self) -> list[panels.Panel]:
        """Its pictures."""
        return self.design.panels(self.arrays, self.numbers)

    def summary(self) -> dict[str, object]:
        """The JSON of `covopt figure`."""
        numbers = self.numbers
        return {
            "name": self.name,
            "source": self.design.source,
            "paper": self.paper,
            "seed": self.seed,
            "settings": [{"name": s.name, "value": s.value, "paper": s.stated} for s in self.settings],
            "numbers": numbers,
            "claims": [{"text": claim.text, "seen": claim.seen} for claim in self.design.claims(numbers)],
            "status": str(self.status),
            "seconds": self.seconds,
            "version": __version__,
        }

    def save(
        self,
        directory: str | os.PathLike[str],
        *,
        force: bool = False,
        others: Mapping[str, Writer] | None = None,
    ) -> None:
        """Write figure.json, table.csv, arrays.npz, figure.png and origin.json; force and others as for `Result.save`.

        Raises:
            RecordError: the directory exists, or cannot be written.
        """
        writers: dict[str, Writer] = {
            SUMMARY: lambda path: record.write_summary(path, self.summary()),
            ARRAYS: lambda path: np.savez(path, allow_pickle=False, **self.arrays),
            TABLE: self._write_table,
            "figure.png": spare(lambda path: panels.draw_panels(self.panels(), path)),
            ORIGIN: write_origin(),
            **(others or {}),
        }
        storing.put(directory, SUMMARY, writers, force=force, spared=())

    def _write_table(self, path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as stream:
            table = csv.writer(stream)
            table.writerow(self.design.columns)
            table.writerows(self.rows())


@gently()
@fitted
def figure(
    name: str,
    *,
    paper: bool = False,
    seed: int = 0,
    time_limit: float | None = None,
    device: str = "cpu",
    callback: Callback | None = None,
) -> PaperFigure | Figure2:
    """A figure of the papers on depth, made anew on data of its own, with what a reader should see in it.

    Args:
        name: `width` (Figure 2 of [JGHG22], its panel teacher), `counterexample` ([J23b, D.1]), `rank-recovery`,
            `tripoints` and `denoising` ([J23a, Fig. 1, 2, 3]), `depth-rank` and `symmetry` ([J23b, Fig. 1, 2]).
        paper: the sizes that the paper prints, where it prints any; else small ones.
        seed: of the data and of the training.
        time_limit: seconds in all; None: at most a minute, and at most a quarter of an hour for `paper`.
        device: where to compute, cpu or cuda.
        callback: gets a `Progress` after each round of a training.

    Returns:
        The figure; of `width` the `Figure2`.

    Raises:
        ProblemError: an unknown name, device or time limit.
    """
    if name not in NAMES:
        raise ProblemError(f"There is no figure {shown(name)}; use one of {listed(NAMES)}.")
    limit = default_limit(name, paper) if time_limit is None else time_limit
    if not limit > 0.0:
        raise ProblemError(f"The time limit of a figure is {limit:g}; give seconds above 0.")
    parse_device(device)
    if name == WIDTH:
        sizes = None if paper else SMALL
        return figure2("teacher", widths=sizes, time_limit=limit, seed=seed, device=device, callback=callback)
    budget = Budget(limit)
    made = DESIGNS[name].make(Asked(paper, seed, device, budget, callback))
    return PaperFigure(name, paper, seed, made.settings, made.arrays, made.status, budget.seconds())


def default_limit(name: str, paper: bool) -> float:
    """The seconds that a figure takes at most where nobody says."""
    small = DESIGNS[name].limit if name in DESIGNS else LIMIT
    return LONGER * small if paper else small


def load_figure(directory: Path) -> PaperFigure:
    """A stored figure; its arrays are not trusted.

    Raises:
        DataError, KeyError, TypeError, ValueError: it is damaged.
    """
    s = record.read_object(directory / SUMMARY)
    arrays = read_npz(directory / ARRAYS)
    for name, array in arrays.items():
        if array.dtype != np.float64 or not np.isfinite(array).all():
            raise ValueError(f"the array {name} does not hold finite numbers")
    if s["name"] not in DESIGNS or not isinstance(s["settings"], list) or type(s["paper"]) is not bool:
        raise ValueError("figure.json is of another kind")
    settings = [Setting(str(each["name"]), str(each["value"]), each["paper"]) for each in s["settings"]]
    return PaperFigure(
        name=str(s["name"]),
        paper=s["paper"],
        seed=int(str(s["seed"])),
        settings=settings,
        arrays=arrays,
        status=Status(s["status"]),
        seconds=float(str(s["seconds"])),
    )
