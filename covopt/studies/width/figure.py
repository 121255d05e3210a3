"""The figure of a plateau: the lowest cost against the width, from its summary."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from covopt.answer.drawing import BOUND_COLOR, COST_COLOR, LOG_RANGE, count_along, dress, plain_numbers
from covopt.records.numerals import down
from covopt.records.record import Summary, headline

LEVEL_COLOR = "#5b5b5b"
SIZE = (6.6, 4.8)


def draw(figure: Figure, s: Summary) -> None:
    """Draw the curve alone on a figure."""
    plot(figure.subplots(), s)


def plot(axes: Axes, s: Summary) -> None:
    """Draw the curve with its title."""
    curve_panel(axes, s, "within ")
    axes.set_title(headline(s), fontsize=10, parse_math=False)


def curve_panel(axes: Axes, s: Summary, near: str = "") -> None:
    """Draw costs, the lower bound, and lines at the starts of the plateau, named `near` 10 %, 1 % and 0.1 %."""
    level, lower = s["level"], s["lower"]
    points = [(_width(p["width"], s["layer"]), p["cost"]) for p in s["curve"] if p["cost"] is not None]
    widths, costs = np.array(points, dtype=np.float64).reshape(-1, 2).T
    axes.plot(widths, costs, color=COST_COLOR, marker="o", markersize=3, label="cost")
    if level is not None:
        axes.axhline(level, color=LEVEL_COLOR, linewidth=0.9, linestyle=":", label=f"lowest cost {level:.6g}")
    if lower is not None:
        axes.axhline(lower, color=BOUND_COLOR, linewidth=1.2, linestyle="--", label=f"lower bound {down(lower, 6)}")
    if len(costs) and costs.min() > 0.0 and costs.max() > LOG_RANGE * costs.min():
        axes.set_yscale("log")
    for width in sorted({width for width in s["estimate"].values() if width is not None}):
        text = ", ".join(f"{near}{100 * float(eps):g} %" for eps, place in s["estimate"].items() if place == width)
        axes.axvline(width, color=LEVEL_COLOR, linewidth=0.7, alpha=0.7)
        place = {"xycoords": ("data", "axes fraction"), "rotation": 90, "va": "center", "ha": "right"}
        axes.annotate(text, (width, 0.62), fontsize=8, color=LEVEL_COLOR, **place)  # type: ignore[arg-type]
    count_along(axes.xaxis)
    dress(axes, "width (neurons)", "cost", legend=True)


def excess_panel(axes: Axes, s: Summary) -> None:
    """Draw how far the cost of each width is above the lowest one, in percent, over lines at 10 %, 1 % and 0.1 %."""
    points = [(_width(p["width"], s["layer"]), p["cost"] / s["level"] - 1.0) for p in s["curve"] if p["cost"]]
    visible = [(width, 100.0 * excess) for width, excess in points if excess > 1e-8]
    axes.plot(*np.array(visible, dtype=np.float64).reshape(-1, 2).T, color=COST_COLOR, marker="o", markersize=3)
    axes.set_yscale("log")
    for eps in s["start"]:
        axes.axhline(100.0 * float(eps), color=LEVEL_COLOR, linewidth=0.7, linestyle=":")
    count_along(axes.xaxis)
    plain_numbers(axes.yaxis)
    dress(axes, "width (neurons)", "above the lowest cost (%)")


def _width(width: int | list[int], layer: int | None) -> int:
    """Return the width of the layer that varies."""
    return width[0 if layer is None else layer - 1] if isinstance(width, list) else width
