"""Pictures of lines, dots and coloured regions, side by side, from plain arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from covopt.answer.drawing import CURVE_COLORS, MADE, count_along, plain_numbers


@dataclass(frozen=True)
class Line:
    """A curve, or dots.

    Attributes:
        name: for the legend; empty for none.
        x, y: the points (k,).
        style: matplotlib's, `-` or `o` say.
        color: a number, the same for what belongs together.
    """

    name: str
    x: Float[np.ndarray, " k"]
    y: Float[np.ndarray, " k"]
    style: str = "-"
    color: int = 0


@dataclass(frozen=True)
class Panel:
    """One picture.

    Attributes:
        title: in a few words.
        across, up: what the axes are.
        lines: what is drawn, in this order.
        regions: the number of the class at each point of a grid, the first row below; None: no grid.
        extent: left, right, bottom and top of that grid.
        logarithmic: the axes that are, of `x` and `y`; counted: those of whole numbers.
        alike: whether both axes have one scale.
    """

    title: str
    across: str
    up: str
    lines: Sequence[Line]
    regions: Float[np.ndarray, "r c"] | None = None
    extent: tuple[float, float, float, float] = (0.0, 1.0, 0.0, 1.0)
    logarithmic: str = ""
    counted: str = ""
    alike: bool = False


def through(name: str, points: Float[np.ndarray, "k 2"], style: str, color: int) -> Line:
    """Return the line through points of the plane, or dots at them."""
    return Line(name, points[:, 0], points[:, 1], style, color)


def draw_panels(panels: Sequence[Panel], path: Path) -> None:
    """Write the panels side by side as a PNG."""
    figure = Figure(figsize=(5.6 * len(panels), 4.6), layout="constrained", dpi=130)
    FigureCanvasAgg(figure)
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        draw_panel(axes, panel)
        axes.set_title(panel.title, fontsize=10, parse_math=False)
    figure.savefig(path, format="png", metadata=MADE)


def draw_panel(axes: Axes, panel: Panel) -> None:
    """Regions below, lines and dots above."""
    if panel.regions is not None:
        count = int(panel.regions.max()) + 1
        shades = ListedColormap([CURVE_COLORS[k % len(CURVE_COLORS)] for k in range(count)])
        style = {"origin": "lower", "interpolation": "nearest", "alpha": 0.35, "vmin": -0.5, "vmax": count - 0.5}
        axes.imshow(panel.regions, cmap=shades, extent=panel.extent, aspect="auto", **style)  # type: ignore[arg-type]
    for line in panel.lines:
        color = CURVE_COLORS[line.color % len(CURVE_COLORS)]
        axes.plot(line.x, line.y, line.style, color=color, markersize=3.5, linewidth=1.5, label=line.name or None)
    axes.set_xscale("log" if "x" in panel.logarithmic else "linear")
    axes.set_yscale("log" if "y" in panel.logarithmic else "linear")
    for axis in (axes.xaxis, axes.yaxis):
        if axis.axis_name in panel.logarithmic:
            plain_numbers(axis)
        elif axis.axis_name in panel.counted:
            count_along(axis)
    if panel.alike:
        axes.set_aspect("equal", adjustable="datalim")
    axes.set_xlabel(panel.across)
    axes.set_ylabel(panel.up)
    axes.spines[["top", "right"]].set_visible(False)
    if any(line.name for line in panel.lines):
        axes.legend(fontsize=8, framealpha=0.8, edgecolor="none")  # readable where it has to lie on a line
