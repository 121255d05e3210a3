"""The parts of a figure of a paper: its settings, its arrays, what follows from the arrays alone, and its program."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from covopt.answer import drawing
from covopt.answer.drawing import MADE
from covopt.model.weights import Weights
from covopt.runtime.errors import CovoptError
from covopt.runtime.loop import Budget, Status

Arrays = Mapping[str, Float[np.ndarray, "*shape"]]
Numbers = dict[str, Any]
Size = TypeVar("Size")


def through(name: str, points: Float[np.ndarray, "k 2"], style: str, color: int) -> drawing.Line:
    """Return the line through points of the plane, or dots at them."""
    return drawing.Line(name, points[:, 0], points[:, 1], style, color)


@dataclass(frozen=True)
class Asked:
    """The options of a figure.

    Attributes:
        paper: whether in the sizes that the paper prints.
        quick: whether in sizes that end in seconds, for a first look and for the tests.
        seed: of the data and of the training.
        device: where to compute.
        budget: the time for all of it.
        images: the directory of the files of mnist; None takes scikit-learn's digits.
    """

    paper: bool = False
    quick: bool = False
    seed: int = 0
    device: str = "cpu"
    budget: Budget = field(default_factory=lambda: Budget(60.0))
    images: str | None = None

    def size(self, quick: Size, usual: Size, paper: Size | None = None) -> Size:
        """Return the size that is asked for; without a size of the paper, the usual one takes its place."""
        if self.quick:
            return quick
        return paper if self.paper and paper is not None else usual


@dataclass(frozen=True)
class Setting:
    """A setting of the experiment: its name, its value, and whether the paper states it (else it is chosen here)."""

    name: str
    value: str
    stated: bool


@dataclass(frozen=True)
class Made:
    """A computed figure: the settings, the arrays from which all else follows, and why the training ended."""

    settings: list[Setting]
    arrays: dict[str, Float[np.ndarray, "*shape"]]
    status: Status


@dataclass(frozen=True)
class Claim:
    """A statement that the figure should show, and whether it does."""

    text: str
    seen: bool


@dataclass(frozen=True)
class Design:
    """A figure.

    Attributes:
        title: what it shows, in a few words.
        source: paper and statement.
        question: a sentence.
        differs: where it differs from the paper, a sentence.
        make: the data and the networks.
        numbers: all numbers of the answer, from the arrays alone.
        claims: what a reader should see.
        columns, rows: of its table.
        panels: its pictures.
        across: pictures in a row; None puts all side by side.
        draw: the whole picture, where panels cannot draw it.
        limit: seconds that it takes by default; None: it counts its steps, on the CPU, in one size but the quick one.
        images: whether it takes the images of mnist.
    """

    title: str
    source: str
    question: str
    differs: str
    make: Callable[[Asked], Made]
    numbers: Callable[[Arrays], Numbers]
    claims: Callable[[Numbers], list[Claim]]
    columns: Sequence[str]
    rows: Callable[[Numbers], list[list[object]]]
    panels: Callable[[Arrays, Numbers], list[drawing.Panel]] = lambda arrays, numbers: []
    across: int | None = None
    draw: Callable[[Arrays, Numbers], Figure] | None = None
    limit: float | None = 60.0
    images: bool = False

    def run(self, arguments: Sequence[str] | None = None) -> None:
        """Make the figure that the command line asks for, print whether a reader sees what the paper says, draw it."""
        parser = self._parser()
        given = parser.parse_args(arguments)
        usual = math.inf if self.limit is None else (LONGER if given.paper else 1.0) * self.limit
        limit = usual if given.time_limit is None else given.time_limit
        if given.seed < 0 or not limit > 0.0:
            parser.error("give a seed of at least 0 and a time limit above 0")
        try:
            made = self.make(Asked(given.paper, given.quick, given.seed, given.device, Budget(limit), given.data_dir))
            numbers = self.numbers(made.arrays)
            self._print(made, numbers)
            self.picture(made.arrays, numbers).savefig(given.out, format="png", metadata=MADE)
        except (CovoptError, OSError) as error:
            parser.error(str(error))
        print(f"\nThe picture is {given.out}.")

    def picture(self, arrays: Arrays, numbers: Numbers) -> Figure:
        """Return the picture."""
        if self.draw is not None:
            return self.draw(arrays, numbers)
        shown = self.panels(arrays, numbers)
        across = self.across or len(shown)
        figure, places = canvas(-(-len(shown) // across), across)
        for axes, panel in zip(places, shown, strict=False):
            drawing.draw_panel(axes, panel)
            axes.set_title(panel.title, fontsize=10, parse_math=False)
        return figure

    def _print(self, made: Made, numbers: Numbers) -> None:
        print(f"{self.source}: {self.title}.\n{self.question}\n")
        for each in made.settings:
            print(f"{each.name} ({'of the paper' if each.stated else 'chosen here'}): {each.value}")
        print(f"\n{self.differs}\n")
        for claim in self.claims(numbers):
            print(f"{'seen' if claim.seen else 'NOT SEEN'}: {claim.text}")
        print("\n" + "\n".join("  ".join(row) for row in _aligned([list(self.columns), *self.rows(numbers)])))
        if made.status is not Status.CONVERGED:
            print("\nSome trainings ended by a limit of time or steps; longer ones may reach lower losses.")

    def _parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(description=self.question, epilog=self.differs)
        parser.set_defaults(paper=False, time_limit=None, device="cpu", data_dir=None)
        if self.limit is not None:
            parser.add_argument("--paper", action="store_true", help="take the sizes that the paper prints")
            parser.add_argument("--time-limit", type=float, metavar="SECONDS", help=f"default: {self.limit:g}")
            parser.add_argument("--device", help="cpu or cuda")
        parser.add_argument("--quick", action="store_true", help="take sizes that end in seconds")
        parser.add_argument("--seed", type=int, default=0, help="of the data and of the training")
        name = Path(sys.argv[0]).stem
        parser.add_argument("--out", type=Path, default=Path(f"{name}.png"), metavar="FILE", help="the picture, a PNG")
        if self.images:
            parser.add_argument("--data-dir", metavar="DIR", help="of the files of mnist; else scikit-learn's digits")
        return parser


WIDTH = 11.2
"""The width of a figure in inches."""
LONGER = 15.0
"""How many times longer a figure takes in the sizes of its paper."""


def canvas(down: int, across: int) -> tuple[Figure, list[Axes]]:
    """Return a figure, as wide as a page whatever it shows, so that its letters can be read, and its axes by rows."""
    figure = Figure(figsize=(WIDTH, 0.82 * down * WIDTH / across), layout="constrained", dpi=130)
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(down, across, squeeze=False).ravel())


def _aligned(rows: list[list[object]]) -> list[list[str]]:
    """Return the cells as texts, those of a column of one width."""
    texts = [[f"{cell:.5g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    widths = [max(len(row[place]) for row in texts) for place in range(len(texts[0]))]
    return [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in texts]


def worst(ended: Sequence[Status]) -> Status:
    """Return why several trainings ended: Ctrl-C if it ended one, else a limit if that did, else convergence."""
    if Status.INTERRUPTED in ended:
        return Status.INTERRUPTED
    return next((status for status in ended if status is not Status.CONVERGED), Status.CONVERGED)


def ended(budget: Budget) -> Status:
    """Return why descents ended that stop by themselves: convergence, the time limit, or Ctrl-C."""
    if not budget.spent():
        return Status.CONVERGED
    return Status.TIME_LIMIT if budget.seconds() >= budget.time_limit else Status.INTERRUPTED


def stored(name: str, weights: Weights) -> dict[str, Float[np.ndarray, "_ _"]]:
    """The layers of a network as arrays: name_W1, name_W2, ..."""
    return {f"{name}_W{layer}": W.detach().double().cpu().numpy() for layer, W in enumerate(weights, start=1)}


def network(arrays: Arrays, name: str) -> list[Float[np.ndarray, "_ _"]]:
    """The layers that `stored` named.

    Raises:
        ValueError: there are none, or they do not fit each other.
    """
    count = sum(key.startswith(f"{name}_W") for key in arrays)
    layers = [arrays[f"{name}_W{layer}"] for layer in range(1, count + 1)]
    fits = all(W.ndim == 2 for W in layers) and all(
        len(below) + 1 == above.shape[1] for below, above in pairwise(layers)
    )
    if not layers or not fits:
        raise ValueError(f"the layers of the network {name} do not fit each other")
    return layers


def preactivations(
    layers: Sequence[Float[np.ndarray, "_ _"]], X: Float[np.ndarray, "N n0"]
) -> list[Float[np.ndarray, "N _"]]:
    """Z_1 ... Z_L of a ReLU network, Z_l = sigma(Z_{l-1}) A_l^T + b_l."""
    Z: list[Float[np.ndarray, "N _"]] = []
    for W in layers:
        Z.append((np.maximum(Z[-1], 0.0) if Z else X) @ W[:, :-1].T + W[:, -1])
    return Z


def applied(layers: Sequence[Float[np.ndarray, "_ _"]], X: Float[np.ndarray, "N n0"]) -> Float[np.ndarray, "N nL"]:
    """The outputs of a ReLU network."""
    return preactivations(layers, X)[-1]


def square(weights: Sequence[Tensor] | Sequence[np.ndarray]) -> float:
    """|W|^2, bias columns included."""
    return float(sum((np.asarray(W) ** 2).sum() for W in weights))
