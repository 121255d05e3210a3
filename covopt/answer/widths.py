"""The figures of losses against the width. Takes plain arrays, as drawing.py does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from covopt.answer.drawing import BOUND_COLOR, CURVE_COLORS, LOG_RANGE, count_along
from covopt.records.numerals import down
from covopt.runtime.lazy import lazy

if TYPE_CHECKING:
    from matplotlib import pyplot
else:
    pyplot = lazy("matplotlib.pyplot")

LEVEL_COLOR = "#5b5b5b"


@dataclass(frozen=True)
class WidthCurve:
    """One loss against the width.

    Attributes:
        name: for the legend.
        widths, values: the line (k,); values that are not finite are left out.
        dots: (width, value) of single networks (r, 2).
    """

    name: str
    widths: Float[np.ndarray, " k"]
    values: Float[np.ndarray, " k"]
    dots: Float[np.ndarray, "r 2"]


@dataclass(frozen=True)
class WidthPanel:
    """One picture of curves over one axis of widths.

    Attributes:
        title: the problem in a few words.
        curves: the losses.
        level, lower: the level of the plateau and a proved bound on it, where they are known.
        marks: (width, what starts there).
    """

    title: str
    curves: Sequence[WidthCurve]
    level: float | None = None
    lower: float | None = None
    marks: Sequence[tuple[int, str]] = field(default_factory=list)


def draw_widths(panels: Sequence[WidthPanel], path: Path) -> None:
    """Write the panels side by side as a PNG."""
    figure = Figure(figsize=(6.6 * len(panels), 4.8), layout="constrained", dpi=130)
    FigureCanvasAgg(figure)
    for axes, panel in zip(np.atleast_1d(figure.subplots(1, len(panels))), panels, strict=True):
        draw_panel(axes, panel)
    figure.savefig(path, format="png")


def plot_widths(panel: WidthPanel, axes: Axes | None = None) -> Axes:
    """Draw the panel in these axes, or in a new figure of pyplot; return the axes."""
    if axes is None:
        axes = pyplot.subplots(layout="constrained")[1]
    draw_panel(axes, panel)
    return axes


def draw_panel(axes: Axes, panel: WidthPanel) -> None:
    """Losses against the width, the level, the proved bound, and where each tolerance is met."""
    for number, curve in enumerate(panel.curves):
        color = CURVE_COLORS[number % len(CURVE_COLORS)]
        shown = np.isfinite(curve.values)
        axes.plot(curve.widths[shown], curve.values[shown], color=color, marker="o", markersize=3, label=curve.name)
        axes.plot(*curve.dots.T, ".", color=color, alpha=0.5)
    if panel.level is not None:
        axes.axhline(panel.level, color=LEVEL_COLOR, linewidth=0.9, linestyle=":", label=f"level {panel.level:.6g}")
    if panel.lower is not None:
        axes.axhline(
            panel.lower, color=BOUND_COLOR, linewidth=1.2, linestyle="--", label=f"proved {down(panel.lower, 6)}"
        )
    _choose_scale(axes, panel)
    _mark(axes, panel.marks)
    axes.set_xlabel("width (neurons)")
    axes.set_ylabel("loss")
    axes.set_title(panel.title, fontsize=10, parse_math=False)
    count_along(axes.xaxis)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)


def _mark(axes: Axes, marks: Sequence[tuple[int, str]]) -> None:
    """Draw a line at each width, named once for all that start there."""
    for width in sorted({width for width, _ in marks}):
        text = ", ".join(name for place, name in marks if place == width)
        axes.axvline(width, color=LEVEL_COLOR, linewidth=0.7, alpha=0.7)
        place = {"xycoords": ("data", "axes fraction"), "rotation": 90, "va": "center", "ha": "right"}
        axes.annotate(text, (width, 0.62), fontsize=8, color=LEVEL_COLOR, **place)  # type: ignore[arg-type]


def _choose_scale(axes: Axes, panel: WidthPanel) -> None:
    values = np.concatenate([np.concatenate([curve.values, curve.dots[:, 1]]) for curve in panel.curves])
    values = values[np.isfinite(values)]
    if len(values) and values.min() > 0.0 and values.max() > LOG_RANGE * values.min():
        axes.set_yscale("log")
