"""Figures of runs and comparisons, and the axes that they consist of.

The functions take plain arrays. They use figures and axes of matplotlib, never its global state (pyplot).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import LinearSegmentedColormap, ListedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogFormatter, MaxNLocator
from numpy.typing import NDArray

from covopt.records.numerals import down
from covopt.runtime.files import starts_with
from covopt.runtime.loop import Progress

COST_COLOR, BOUND_COLOR, NEURON_COLOR = "#1f3b73", "#d9822b", "#4a6fa5"
CURVE_COLORS = (COST_COLOR, "#2a8f6d", "#a03a6b", "#7a6a2f", "#5b5b5b")
MADE = {"Software": "covopt"}  # metadata of each picture; `--force` replaces only pictures that have it
LOG_RANGE = 10.0  # an axis is logarithmic if the ratio of its largest to its smallest value exceeds this
MARGIN = 0.08  # a function is drawn beyond the samples by this fraction of their range
SIGNED = LinearSegmentedColormap.from_list(
    "signed", [to_rgba("#2f74c0"), to_rgba("#2f74c0", 0.0), to_rgba("#d6492f", 0.0), to_rgba("#d6492f")]
)
"""Blue for negative, red for positive, transparent at zero: suits light and dark pages."""
BULK, OUTLYING = 98.0, 2.0
"""A colour scale ends at percentile BULK if the largest value is more than OUTLYING times this percentile."""
SAME, TINY = 1e-12, 1e-300
"""Costs are equal if their relative difference is at most SAME; TINY prevents divisions by a zero cost."""


class PlainLogFormatter(LogFormatter):
    """Labels the ticks that matplotlib chooses as 0.2, not as 2e-01."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:g}" if super().__call__(x, pos) else ""


def dress(axes: Axes, across: str, up: str, legend: bool = False) -> None:
    """Name the axes, hide the frame above and on the right, and add a legend."""
    axes.set_xlabel(across, parse_math=False)
    axes.set_ylabel(up, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    if legend:
        axes.legend(frameon=False, fontsize=8)


def plain_numbers(axis: Axis) -> None:
    """Label a logarithmic axis with plain numbers, between the powers of ten too where it spans two decades or less."""
    axis.set_major_formatter(PlainLogFormatter())
    axis.set_minor_formatter(PlainLogFormatter(minor_thresholds=(2, 0.4)))


@dataclass(frozen=True)
class RunPicture:
    """Contents of the figure of a run."""

    title: str  # the problem in a few words
    history: Sequence[Progress]  # cost and bound over time
    # |w_k|^2 + |v_k|^2 of each hidden neuron, w_k its incoming and v_k its outgoing weights
    norms: Float[np.ndarray, " n"]
    activations: Float[np.ndarray, "N n"]  # sigma(Z)
    order: NDArray[np.int64]  # indices of the samples, from top to bottom (N,)
    order_name: str  # the quantity that sorts the samples, for the label of the axis


def is_picture(path: Path) -> bool:
    """Return True if covopt drew the picture in this file."""
    return starts_with(path, b"Software\0" + MADE["Software"].encode())


def draw_run(picture: RunPicture, path: Path) -> None:
    """Write the figure of a run as a PNG: convergence left, hidden neurons right."""
    figure = Figure(figsize=(11.0, 4.8), layout="constrained", dpi=130)
    columns = figure.add_gridspec(1, 2, width_ratios=(1.0, 1.15), wspace=0.05)
    figure.suptitle(picture.title, fontsize=11, parse_math=False)
    draw_convergence(figure.add_subplot(columns[0]), picture.history)
    if len(picture.norms):
        rows = columns[1].subgridspec(2, 1, height_ratios=(1.0, 2.2))
        norms = figure.add_subplot(rows[0])
        draw_neurons(norms, figure.add_subplot(rows[1], sharex=norms), picture)
    else:
        say(figure.add_subplot(columns[1]), "no hidden neurons: the zero function")
    figure.savefig(path, format="png", metadata=MADE)


@dataclass(frozen=True)
class Curve:
    """One method in the figure of a comparison."""

    name: str
    history: Sequence[Progress]  # cost over time
    starts: Sequence[float]  # final cost of each start


def draw_curves(title: str, curves: Sequence[Curve], lower: float | None, path: Path) -> None:
    """Write the figure of a comparison as a PNG: cost and excess over the best cost, against time.

    Dots at the end of a line show the final costs of all starts of the method.
    """
    figure = Figure(figsize=(11.0, 4.8), layout="constrained", dpi=130)
    figure.suptitle(title, fontsize=11, parse_math=False)
    costs, excess = figure.subplots(1, 2)
    drawn = colored(curves)
    if drawn:
        draw_costs(costs, drawn, lower)
        draw_excess(excess, drawn)
    else:
        say(costs, "no finite cost was reached")
        excess.axis("off")
    figure.savefig(path, format="png", metadata=MADE)


def colored(curves: Sequence[Curve]) -> list[tuple[Curve, list[Progress], str]]:
    """Return the methods that reach a finite cost, each with its finite history and a colour."""
    finite = [(curve, [p for p in curve.history if np.isfinite(p.cost)]) for curve in curves]
    return [(curve, lines, color) for (curve, lines), color in zip(finite, cycle(CURVE_COLORS)) if lines]


def draw_costs(axes: Axes, drawn: Sequence[tuple[Curve, list[Progress], str]], lower: float | None) -> None:
    """Draw the cost of the `colored` methods against time, and the proved bound."""
    for row, (curve, lines, color) in enumerate(drawn):
        axes.plot([p.seconds for p in lines], [p.cost for p in lines], color=color, marker=_marker(lines), markersize=4)
        name_line(axes, f"{curve.name} {min(*curve.starts, lines[-1].cost, np.inf):.7g}", color, row)
    if lower is not None:
        axes.axhline(lower, color=BOUND_COLOR, linewidth=1.2, linestyle="--")
        name_line(axes, f"lower bound {down(lower, 7)}", BOUND_COLOR, len(drawn))
    points = [p for _, lines, _ in drawn for p in lines]
    _scale_costs(axes, np.array([p.cost for p in points]), np.array([] if lower is None else [lower]))
    _over_time(axes, "cost", np.array([p.seconds for p in points]))


def draw_excess(axes: Axes, drawn: Sequence[tuple[Curve, list[Progress], str]]) -> None:
    """Draw (cost - best) / best on a logarithmic axis; costs equal to the best are left out."""
    best = min(min(*curve.starts, *(p.cost for p in lines), np.inf) for curve, lines, _ in drawn)
    shown = False
    for curve, lines, color in drawn:
        x, y = np.array([p.seconds for p in lines]), np.array([p.cost for p in lines]) / max(best, TINY) - 1.0
        above, starts = y > SAME, np.array(curve.starts) / max(best, TINY) - 1.0
        axes.plot(x[above], y[above], color=color, marker=_marker(lines), markersize=4)
        if len(starts) > 1:
            axes.plot(np.full(len(starts), x[-1])[starts > SAME], starts[starts > SAME], ".", color=color, alpha=0.6)
        shown = shown or bool(above.any())
    if not shown:
        say(axes, "every method has the best cost from its start")
        return
    axes.set_yscale("log")
    seconds = np.array([p.seconds for _, lines, _ in drawn for p in lines])
    _over_time(axes, "relative excess over the lowest cost of all", seconds)


def _over_time(axes: Axes, label: str, seconds: NDArray | None = None) -> None:
    """Name the axes; the time is logarithmic if the given times span a decade."""
    later = np.empty(0) if seconds is None else seconds[seconds > 0]
    if len(later) > 2 and later.max() > LOG_RANGE * later.min():
        axes.set_xscale("log")
        plain_numbers(axes.xaxis)
    dress(axes, "time (seconds)", label)
    if axes.get_autoscaley_on():
        axes.margins(y=0.12)


def draw_convergence(axes: Axes, history: Sequence[Progress]) -> None:
    """Draw cost and proved bound against time."""
    lines = [p for p in history if np.isfinite(p.cost)]
    if not lines:
        say(axes, "no finite cost was reached")
        return
    seconds, cost = np.array([p.seconds for p in lines]), np.array([p.cost for p in lines])
    axes.plot(seconds, cost, color=COST_COLOR, linewidth=1.6, marker=_marker(lines), markersize=4)
    name_line(axes, f"cost {cost[-1]:.7g}", COST_COLOR, row=0)
    proved = [p for p in lines if p.lower is not None and np.isfinite(p.lower)]
    if proved:
        bound = np.array([p.lower for p in proved], dtype=float)
        times = np.array([p.seconds for p in proved])
        axes.plot(times, bound, color=BOUND_COLOR, linewidth=1.6, marker=_marker(proved), markersize=4)
        name_line(axes, f"lower bound {down(float(bound[-1]), 7)}", BOUND_COLOR, row=1)
    _scale_costs(axes, cost, np.array([p.lower for p in proved], dtype=float))
    axes.set_title("Convergence" if proved else "Convergence (no bound is proved)", fontsize=10, loc="left")
    _over_time(axes, "cost", seconds)


def gaps(history: Sequence[Progress]) -> list[tuple[float, float]]:
    """Return (seconds, (cost - bound) / cost) of the steps with a positive bound below the cost."""
    proved = [(p.seconds, p.cost, p.lower) for p in history if p.lower is not None]
    return [(seconds, (cost - lower) / cost) for seconds, cost, lower in proved if 0.0 < lower < cost < np.inf]


def draw_gap(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    """Draw `gaps` against time."""
    axes.plot(*np.transpose(points), color=COST_COLOR, linewidth=1.6, marker=_marker(points), markersize=4)
    values = [value for _, value in points]
    if max(values) > LOG_RANGE * min(values):
        axes.set_yscale("log")
        axes.minorticks_off()
    else:
        axes.set_ylim(0.0, 1.12 * max(values))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100.0 * value:g} %"))
    _over_time(axes, "gap")


def _scale_costs(axes: Axes, cost: NDArray, bound: NDArray) -> None:
    """Set a logarithmic axis of costs if they span a decade; a bound near zero does not count."""
    values = np.concatenate([cost, bound[bound > 0.1 * cost.min()]])
    if values.min() > 0 and values.max() > LOG_RANGE * values.min():
        axes.set_yscale("log")
        plain_numbers(axes.yaxis)


def draw_neurons(norms: Axes, image: Axes, picture: RunPicture) -> None:
    """Draw norms above and activations of samples below, neurons in the same order."""
    order = np.argsort(-picture.norms, kind="stable")
    count = len(order)
    width = 0.8 if count < 80 else 1.0  # the gaps between many bars are too thin to draw
    norms.bar(np.arange(1, count + 1), picture.norms[order], width=width, color=NEURON_COLOR)
    norms.set_ylabel(r"$|w_k|^2+|v_k|^2$")
    norms.set_title(f"{count} hidden neuron{'s' if count > 1 else ''}, largest first", fontsize=10)
    norms.spines[["top", "right"]].set_visible(False)
    shown = picture.activations[np.ix_(picture.order, order)]
    peak = np.abs(shown).max(axis=0)
    scaled = shown / np.where(peak > 0, peak, 1.0)
    extent = (0.5, count + 0.5, len(shown) + 0.5, 0.5)
    drawn = image.imshow(scaled, aspect="auto", extent=extent, cmap="magma", interpolation="nearest")
    drawn.set_clim(min(0.0, scaled.min()), 1.0)
    image.set_xlabel("neuron")
    image.set_ylabel(f"sample, by {picture.order_name}")
    count_along(image.xaxis)
    count_along(image.yaxis)
    norms.tick_params(labelbottom=False)
    color_bar(drawn, [norms, image], aspect=40).set_label("activation, as a share of the neuron's largest")


def name_line(axes: Axes, text: str, color: str, row: int) -> None:
    """Write the name and the last value of a line in its colour, above the axes."""
    axes.text(1.0, 1.02 + 0.07 * row, text, transform=axes.transAxes, ha="right", va="bottom", color=color)


def count_along(axis: Axis) -> None:
    """Label an axis with whole numbers only, even if its range holds just one."""
    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def color_bar(
    drawn: ScalarMappable, axes: Axes | Sequence[Axes], aspect: float = 30.0, extend: str = "neither"
) -> Colorbar:
    """Draw a colour bar without a frame, as an image: vector shapes would show seams."""
    figure = (axes if isinstance(axes, Axes) else axes[0]).figure
    bar = figure.colorbar(drawn, ax=axes, aspect=aspect, pad=0.02, extend=extend)
    bar.solids.set_rasterized(True)  # type: ignore[union-attr]
    bar.outline.set_visible(False)  # type: ignore[operator]
    return bar


def draw_entries(
    axes: Axes, A: Float[np.ndarray, "r n"], across: str, down: str, extend: str, **style: Any
) -> Colorbar:
    """Draw a matrix entry by entry, and return its colour bar, which is pointed where `extend` says."""
    drawn = axes.imshow(A, extent=(0.5, A.shape[1] + 0.5, len(A) + 0.5, 0.5), interpolation="nearest", **style)
    axes.set_xlabel(across)
    axes.set_ylabel(down)
    count_along(axes.xaxis)
    count_along(axes.yaxis)
    return color_bar(drawn, axes, extend=extend)


def robust_limit(values: Float[np.ndarray, "..."]) -> tuple[float, str]:
    """Return the limit of a colour scale that ignores outliers, and the ends that it clips."""
    sizes = np.abs(values)
    largest, bulk = float(sizes.max(initial=0.0)), float(np.percentile(sizes, BULK)) if values.size else 0.0
    if 0.0 < OUTLYING * bulk < largest:
        return bulk, "both" if values.min() < 0.0 else "max"
    return largest or 1.0, "neither"


def _marker(points: Sequence[object]) -> str:
    """Return the marker of a line; many markers would hide it."""
    return "o" if len(points) < 15 else ""


def say(axes: Axes, text: str) -> None:
    """Show a text in place of a plot."""
    axes.axis("off")
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes)


@dataclass(frozen=True)
class Line:
    """A curve, or dots."""

    name: str  # its text in the legend; empty for none
    x: Float[np.ndarray, " k"]
    y: Float[np.ndarray, " k"]
    style: str = "-"  # matplotlib's, `-` or `o` say
    color: int = 0  # a number, the same for what belongs together


@dataclass(frozen=True)
class Panel:
    """One picture."""

    title: str  # in a few words
    across: str  # what the axes are
    up: str
    lines: Sequence[Line]  # the lines, in the order in which they are drawn
    regions: Float[np.ndarray, "r c"] | None = None  # the class at each point of a grid, the first row below; or none
    extent: tuple[float, float, float, float] = (0.0, 1.0, 0.0, 1.0)  # left, right, bottom and top of that grid
    logarithmic: str = ""  # the axes that are, of `x` and `y`
    counted: str = ""  # those of whole numbers


def draw_panels(panels: Sequence[Panel], path: Path) -> None:
    """Write the panels side by side as a PNG."""
    figure = Figure(figsize=(5.6 * len(panels), 4.6), layout="constrained", dpi=130)
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
    axes.set_xlabel(panel.across)  # with mathematics, as in examples/
    axes.set_ylabel(panel.up)
    axes.spines[["top", "right"]].set_visible(False)
    if any(line.name for line in panel.lines):
        axes.legend(fontsize=8, framealpha=0.8, edgecolor="none")  # readable where it has to lie on a line
