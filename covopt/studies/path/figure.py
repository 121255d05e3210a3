"""The figure of a path: cost, bounds, norm, fit, width and held-out loss against lam."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from covopt.answer.drawing import BOUND_COLOR, COST_COLOR, CURVE_COLORS
from covopt.records.record import Summary
from covopt.runtime.lazy import lazy

if TYPE_CHECKING:
    from matplotlib import pyplot
else:
    pyplot = lazy("matplotlib.pyplot")

MARK_COLOR = "#5b5b5b"
SIZE = (7.4, 6.4)


@dataclass(frozen=True)
class PathPicture:
    """Numbers against lam, one entry for each point; NaN for unknown values.

    Attributes:
        lams, costs, lower, fits, norms, widths, tests: (n,).
        picked: the lam with the lowest held-out loss.
    """

    lams: Float[np.ndarray, " n"]
    costs: Float[np.ndarray, " n"]
    lower: Float[np.ndarray, " n"]
    fits: Float[np.ndarray, " n"]
    norms: Float[np.ndarray, " n"]
    widths: Float[np.ndarray, " n"]
    tests: Float[np.ndarray, " n"]
    picked: float | None = None


def picture_of(s: Summary) -> PathPicture:
    """Return the picture of the summary of a path."""
    names = ("lam", "cost", "lower", "fit", "norm", "width", "test")
    columns = [np.array([point[name] for point in s["points"]], dtype=np.float64) for name in names]
    return PathPicture(*columns, picked=s["picked"])


def plot_costs(picture: PathPicture, axes: Axes | None = None) -> Axes:
    """Draw cost and proved bound in these axes, or in those of a new figure; return the axes."""
    if axes is None:
        axes = pyplot.subplots(layout="constrained")[1]
    _costs(axes, picture)
    axes.set_xlabel("λ")
    return axes


def draw_path(picture: PathPicture, path: Path) -> None:
    """Write the figure as a PNG."""
    figure = Figure(figsize=SIZE, layout="constrained", dpi=130)
    FigureCanvasAgg(figure)
    draw_panels(figure, picture)
    figure.savefig(path, format="png")


def draw_panels(figure: Figure, picture: PathPicture) -> None:
    """Draw four panels over one axis of lam: costs, fit and held-out loss, norm, width."""
    panels = figure.subplots(2, 2, sharex=True)
    _costs(panels[0, 0], picture)
    _lines(panels[0, 1], picture, (("fit", picture.fits, COST_COLOR), ("held out", picture.tests, CURVE_COLORS[1])))
    panels[0, 1].set_ylabel("loss without penalty")
    _lines(panels[1, 0], picture, (("|W|²", picture.norms, COST_COLOR),))
    panels[1, 0].set_ylabel("|W|²")
    _lines(panels[1, 1], picture, (("width", picture.widths, COST_COLOR),), logarithmic=False)
    panels[1, 1].set_ylabel("neurons")
    for axes in panels[1]:
        axes.set_xlabel("λ")
    for axes in panels.flat:
        if picture.picked is not None:
            axes.axvline(picture.picked, color=MARK_COLOR, linewidth=0.8, linestyle=":")


def _costs(axes: Axes, picture: PathPicture) -> None:
    bounds = ("proved lower bound", picture.lower, BOUND_COLOR)
    _lines(axes, picture, (("cost", picture.costs, COST_COLOR), bounds))
    axes.set_ylabel("minimum")


def _lines(
    axes: Axes,
    picture: PathPicture,
    lines: tuple[tuple[str, Float[np.ndarray, " n"], str], ...],
    logarithmic: bool = True,
) -> None:
    """Draw named lines against lam, with a legend if there is more than one."""
    drawn = [line for line in lines if np.isfinite(line[1]).any()]
    for name, values, color in drawn:
        style = "--" if color == BOUND_COLOR else "-"
        axes.plot(picture.lams, values, style, color=color, marker="o", markersize=2.5, linewidth=1.2, label=name)
    axes.set_xscale("log")
    if logarithmic and any((values[np.isfinite(values)] > 0.0).all() for _, values, _ in drawn):
        axes.set_yscale("log")
    elif not logarithmic:
        axes.set_ylim(bottom=0.0)
    axes.spines[["top", "right"]].set_visible(False)
    if len(drawn) > 1:
        axes.legend(frameon=False, fontsize=8)
