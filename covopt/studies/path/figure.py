"""The figure of a path: cost, bounds, norm, fit, width and held-out loss against lam."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from covopt.answer.drawing import BOUND_COLOR, COST_COLOR, CURVE_COLORS, dress
from covopt.records.record import Summary

MARK_COLOR = "#5b5b5b"
SIZE = (7.4, 6.4)


Lines = tuple[tuple[str, str, str], ...]
"""Lines in one picture: the name of each, the entry of a point that it shows, and its colour."""
PANELS: dict[str, Lines] = {
    "cost": (("cost", "cost", COST_COLOR), ("lower bound", "lower", BOUND_COLOR)),
    "fit (loss without penalty)": (("fit", "fit", COST_COLOR), ("held-out loss", "test", CURVE_COLORS[1])),
    "norm |W|²": (("norm", "norm", COST_COLOR),),
    "width (hidden neurons)": (("width", "width", COST_COLOR),),
}
"""The panels over lam, by the labels of their vertical axes."""


def plot(axes: Axes, s: Summary, label: str = "cost") -> None:
    """Draw one panel, with a legend if more than one of its lines is known, and the picked lam."""
    lines, logarithmic = PANELS[label], "width" not in label
    keys = ["lam", *(key for _, key, _ in lines)]
    values = {key: np.array([p[key] for p in s["points"]], dtype=np.float64) for key in keys}
    drawn = [(name, values[key], color) for name, key, color in lines if np.isfinite(values[key]).any()]
    for name, column, color in drawn:
        style = "--" if color == BOUND_COLOR else "-"
        axes.plot(values["lam"], column, style, color=color, marker="o", markersize=2.5, linewidth=1.2, label=name)
    axes.set_xscale("log")
    if logarithmic and any((column[np.isfinite(column)] > 0.0).all() for _, column, _ in drawn):
        axes.set_yscale("log")
    elif not logarithmic:
        axes.set_ylim(bottom=0.0)
    dress(axes, "λ", label, legend=len(drawn) > 1)
    if s["picked"] is not None:
        axes.axvline(s["picked"], color=MARK_COLOR, linewidth=0.8, linestyle=":")


def draw(figure: Figure, s: Summary) -> None:
    """Draw the four panels."""
    for axes, label in zip(figure.subplots(2, 2).flat, PANELS, strict=True):
        plot(axes, s, label)
