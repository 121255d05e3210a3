"""Figures of costs against depth, from the summary of a `depth`, and of its layers, from arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from covopt.answer.drawing import BOUND_COLOR, COST_COLOR, CURVE_COLORS, count_along, dress
from covopt.records.record import Summary
from covopt.runtime.errors import counted, listed

SIZE = (6.6, 4.8)
GUIDE_COLOR = "#cfcfcf"
# Costs above this multiple of the median are left out of the scale.
FAR = 6.0


def draw(figure: Figure, s: Summary) -> None:
    """Draw the curve alone on a figure."""
    plot(figure.subplots(), s)


def plot(axes: Axes, s: Summary) -> None:
    """Draw costs and bounds over lines of integer slope; colours show the dimension of the narrowest layer."""
    depths, lower, every_cost = (_column(s["curve"], name) for name in ("depth", "lower", "cost"))
    finite, proved = np.isfinite(every_cost), np.isfinite(lower)
    L, costs = depths[finite], every_cost[finite]
    dimensions = [p["dimension"] for p, has_cost in zip(s["curve"], finite, strict=True) if has_cost]
    axes.plot(L, costs, color=COST_COLOR, linewidth=0.9, alpha=0.6)
    handles = []
    for number, k in enumerate(sorted(set(dimensions))):
        at = np.array(dimensions) == k
        color = CURVE_COLORS[number % len(CURVE_COLORS)]
        axes.plot(L[at], costs[at], "o", color=color, markersize=5)
        handles.append(Line2D([], [], marker="o", linestyle="", color=color, label=f"cost, {counted(k, 'dimension')}"))
    if proved.any():
        axes.plot(depths[proved], lower[proved], "--", color=BOUND_COLOR, linewidth=1.2)
        handles.append(Line2D([], [], linestyle="--", color=BOUND_COLOR, label="lower bound"))
    top = _top(costs)
    for family in s["families"]:
        at, values = _column(family["curve"], "depth"), _column(family["curve"], "cost")
        color = CURVE_COLORS[(family["rank"] - 1) % len(CURVE_COLORS)]
        axes.plot(at, values, ":", color=color, linewidth=1.0)
        if (values <= top).any():  # in the legend: families end at the same point where one is the other's best
            handles.append(Line2D([], [], linestyle=":", color=color, label=f"rank {family['rank']}"))
    if len(L):
        unit = 1.0 if s["lam"] is None else s["lam"]  # the cost of a dimension in each layer
        guides = sorted({*dimensions, 1} - {0})
        for k in guides:  # through the last point: at the largest depth the slope is nearest to its limit
            axes.plot(L, costs[-1] + k * unit * (L - L[-1]), color=GUIDE_COLOR, linewidth=0.8, zorder=0)
        label = f"slope {listed(guides)}{'' if s['lam'] is None else ' lam'}"
        handles.append(Line2D([], [], color=GUIDE_COLOR, label=label))
        axes.set_ylim(bottom=0.0, top=top)
    dress(axes, "depth L (layers of weights)", "cost")
    count_along(axes.xaxis)
    axes.legend(handles=handles, frameon=False, fontsize=8)


def spectra_panel(axes: Axes, spectra: Mapping[int, Sequence[Float[np.ndarray, " k"]]]) -> None:
    """Draw the largest singular values of each A_l against l / L, one colour a depth."""
    for number, (depth, values) in enumerate(spectra.items()):
        color = CURVE_COLORS[number % len(CURVE_COLORS)]
        most = max((len(s) for s in values), default=0)
        for place in range(min(most, 8)):
            line = [s[place] if place < len(s) else np.nan for s in values]
            at = np.arange(1, depth + 1) / depth
            label = None if place else f"L = {depth}"
            axes.plot(at, line, ".-", color=color, linewidth=0.8, markersize=4, label=label)
    axes.axhline(1.0, color=GUIDE_COLOR, linewidth=0.8, zorder=0)
    axes.set_ylim(bottom=0.0)
    dress(axes, "layer, l / L", "singular values of the weights", legend=True)


def nonlinearity_panel(axes: Axes, lines: Mapping[int, Sequence[float]]) -> None:
    """Draw the nonlinearity of each hidden layer against l / L, one colour a depth."""
    for number, (depth, values) in enumerate(lines.items()):
        color = CURVE_COLORS[number % len(CURVE_COLORS)]
        at = np.arange(1, depth) / depth
        axes.plot(at, values, "o-", color=color, linewidth=1.0, markersize=4, label=f"L = {depth}")
    axes.set_ylim(bottom=0.0)
    dress(axes, "hidden layer, l / L", "nonlinearity |Z − σ(Z)| / |Z|", legend=True)


def _column(lines: Sequence[Summary], name: str) -> Float[np.ndarray, " n"]:
    return np.array([line[name] for line in lines], dtype=np.float64)


def _top(costs: Float[np.ndarray, " n"]) -> float:
    """Return the top of the scale: above the costs, without those far above the others."""
    if not len(costs):
        return 1.0
    near = costs[costs <= FAR * float(np.median(costs))]
    return 1.12 * float(near.max()) if float(near.max()) > 0.0 else 1.0
