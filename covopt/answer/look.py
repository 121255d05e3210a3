"""A network of one or two inputs as a function: kinks, data, neurons' shares, regions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgb
from numpy.typing import NDArray
from torch import Tensor

from covopt.answer.drawing import COST_COLOR, CURVE_COLORS, MARGIN, color_bar, dress
from covopt.model.loss import Likelihood
from covopt.model.problem import Problem
from covopt.model.weights import Weights, breakpoints, kinks, outputs, preactivations_at
from covopt.records.svg import CLASSES, INK, on

OUTPUTS, SAMPLES, NEURONS = 5, 1500, 60  # numbers, samples and neurons that are drawn, at most
SMOOTH, PIXELS, STRAIGHT = 400, 240, 11
"""Points along a curve that is not piecewise linear, along each side of a map, and of one with straight lines."""
ROWS = 8192  # points at which a network is evaluated at once
LONGEST_NAME = 18
SHADE = 0.22  # how strongly a region has the colour of its class


@dataclass(frozen=True)
class Look:
    """A network as a function, on the data and a little beyond."""

    problem: Problem
    weights: Weights
    columns: tuple[str, ...] | None  # names of the inputs; None where they have none
    names: tuple[str, ...]  # the names of the outputs or classes
    labels: NDArray[np.int64] | None  # the class of each sample (N,); None where the targets are numbers

    @property
    def inputs(self) -> int:
        """n_0."""
        return self.problem.X.shape[1]

    @property
    def neurons(self) -> int:
        """The number of neurons of the last hidden layer."""
        return len(self.weights[-2])

    @property
    def shown(self) -> NDArray[np.int64]:
        """The samples that are drawn: all, or some of many, evenly."""
        return np.arange(0, self.problem.samples, math.ceil(self.problem.samples / SAMPLES))

    @property
    def quantity(self) -> str:
        """Return what is drawn of each class: its probability, or its output."""
        return "probability" if isinstance(self.problem.loss, Likelihood) else "output"

    def axis(self, place: int) -> str:
        """Return the name of an input."""
        if self.columns is not None and len(self.columns) == self.inputs:
            return short(self.columns[place])
        return "input" if self.inputs == 1 else f"input {place + 1}"

    def ends(self, place: int) -> tuple[float, float]:
        """Return the range of an input with a margin."""
        x = self.problem.X[:, place]
        low, high = float(x.min()), float(x.max())
        margin = MARGIN * (high - low) or max(abs(low), abs(high)) or 1.0
        return low - margin, high + margin

    def outputs(self, X: Float[Tensor, "M n0"]) -> Float[Tensor, "M nL"]:
        """Return F at X."""
        return outputs(self.problem, self.weights, X)

    def shares(self, x: Float[Tensor, " k"]) -> Float[Tensor, "k n"]:
        """Return what each neuron of the last hidden layer adds to the first output."""
        Z = preactivations_at(self.problem, self.weights, x[:, None], self.problem.depth - 1)
        return self.problem.activation(Z) * self.weights[-1][0, : Z.shape[1]]


def look_at(
    problem: Problem, weights: Weights, columns: tuple[str, ...] | None, classes: tuple[str, ...] | None
) -> Look | None:
    """Return what is drawn of a network; None for more than two inputs or infinite values."""
    problem, weights = problem.double(), [W.double() for W in weights]
    if problem.X.shape[1] > 2:
        return None
    Y = problem.Y
    one_hot = Y.shape[1] > 1 and bool(((Y == 0.0) | (Y == 1.0)).all() and (Y.sum(dim=1) == 1.0).all())
    labels = Y.argmax(dim=1).cpu().numpy() if one_hot else None
    named = classes if classes is not None and len(classes) == Y.shape[1] else None
    numbers = range(Y.shape[1])  # classes are counted from 0, as in predictions
    unnamed = tuple(f"class {k}" if one_hot else f"output {k + 1}" for k in numbers)
    names = unnamed if named is None else tuple(map(short, named))
    look = Look(problem, weights, columns, names, labels)
    ends = torch.cartesian_prod(*(problem.X.new_tensor(look.ends(k)) for k in range(look.inputs)))
    seen = look.outputs(ends.reshape(-1, look.inputs))
    return look if bool(torch.isfinite(seen).all() and torch.isfinite(look.outputs(problem.X)).all()) else None


def draw_look(axes: Axes, look: Look) -> None:
    """Draw the function with the data in one picture; for two inputs its first output."""
    if look.inputs == 1:
        _draw_line(axes, look)
    elif look.labels is not None:
        _draw_regions(axes, look)
    else:
        draw_map(axes, look, 0)


# ---- one input


def draw_shares(axes: Axes, look: Look) -> None:
    """Draw what each neuron of the last hidden layer adds to the first output, and the sum."""
    x = breakpoints(look.problem, look.weights, *look.ends(0))
    shares, F = look.shares(x).cpu().numpy(), look.outputs(x[:, None]).cpu().numpy()
    order = np.argsort(-np.abs(shares).max(axis=0), kind="stable")[:NEURONS]
    for place, k in enumerate(order):
        color = on(axes, CLASSES[place % len(CLASSES)])
        axes.plot(x.cpu().numpy(), shares[:, k], color=color, linewidth=0.9, alpha=0.8)
    axes.plot(x.cpu().numpy(), F[:, 0], color=on(axes, INK), linewidth=1.4, linestyle="--")
    dress(axes, look.axis(0), "share of the output")


def _draw_line(axes: Axes, look: Look) -> None:
    low, high = look.ends(0)
    x = breakpoints(look.problem, look.weights, low, high)
    bent = kinks(x, look.outputs(x[:, None])).cpu().numpy()
    if look.labels is not None:
        _draw_classes(axes, look, x, bent)
    else:
        _draw_numbers(axes, look, x, bent)
    axes.set_xlim(low, high)


def _draw_numbers(axes: Axes, look: Look, x: Tensor, bent: NDArray) -> None:
    at, F = x.cpu().numpy(), look.outputs(x[:, None]).cpu().numpy()
    X, Y = (values[look.shown].cpu().numpy() for values in (look.problem.X[:, 0], look.problem.Y))
    count = min(OUTPUTS, F.shape[1])
    for k in range(count):
        color = on(axes, CURVE_COLORS[k])
        axes.plot(X, Y[:, k], "o", color=color, markersize=3.5, alpha=0.45, markeredgewidth=0.0)
        axes.plot(at, F[:, k], color=color, linewidth=1.6, label=f"\u200b{look.names[k]}")
        axes.plot(bent, np.interp(bent, at, F[:, k]), "o", color=color, markersize=4.5, markerfacecolor="none")
    span = axes.get_ylim()
    if count == 1:
        shares = look.shares(x).cpu().numpy()
        for k in np.argsort(-np.abs(shares).max(axis=0), kind="stable")[:NEURONS]:
            axes.plot(at, shares[:, k], color=on(axes, COST_COLOR), linewidth=0.7, alpha=0.5, zorder=1)
    axes.set_ylim(span)
    dress(axes, look.axis(0), "output")
    if count > 1:
        legend(axes)


def _draw_classes(axes: Axes, look: Look, x: Tensor, bent: NDArray) -> None:
    """Draw the outputs or, for cross-entropy, probabilities of all classes, with the data."""
    likely = look.quantity == "probability"
    grid = torch.cat([x, torch.linspace(float(x[0]), float(x[-1]), SMOOTH, dtype=x.dtype, device=x.device)]).unique()
    F = look.outputs(grid[:, None])
    F = torch.softmax(F, dim=1) if likely else F
    at, values = grid.cpu().numpy(), F.cpu().numpy()
    colors = [on(axes, CLASSES[k % len(CLASSES)]) for k in range(values.shape[1])]
    low, high = (0.0, 1.0) if likely else (float(values.min()), float(values.max()))
    step = 0.05 * ((high - low) or 1.0)
    for start, end, k in regions(x, look.outputs(x[:, None])):
        axes.axvspan(start, end, color=colors[k], alpha=SHADE, linewidth=0.0, zorder=0)
    X = look.problem.X[look.shown, 0].cpu().numpy()
    labels = look.labels[look.shown] if look.labels is not None else X.astype(int)
    for k, color in enumerate(colors):
        axes.plot(at, values[:, k], color=color, linewidth=1.6, label=f"\u200b{look.names[k]}")
        row = low - step * (k + 1)
        axes.plot(X[labels == k], np.full((labels == k).sum(), row), "o", color=color, markersize=3.0, alpha=0.7)
    axes.plot(bent, np.full(len(bent), high + step), "|", color=on(axes, INK), markersize=5.0)
    axes.set_ylim(low - step * (len(colors) + 1), high + 2.0 * step)
    dress(axes, look.axis(0), look.quantity)
    if likely:
        axes.set_yticks([0.0, 0.25, 0.5, 0.75, 1.0])
    legend(axes, beside=len(colors) > OUTPUTS)


def regions(x: Float[Tensor, " k"], F: Float[Tensor, "k m"]) -> list[tuple[float, float, int]]:
    """Return intervals (start, end, class) where each class has the largest output; F is linear between the x."""
    intervals: list[tuple[float, float, int]] = []
    for start, end, before, after in zip(x[:-1].tolist(), x[1:].tolist(), F[:-1], F[1:], strict=True):
        ahead, ahead_after = before[:, None] - before, after[:, None] - after
        crossings = (ahead / (ahead - ahead_after))[ahead.sign() * ahead_after.sign() < 0.0]
        parts = torch.cat([x.new_tensor([0.0, 1.0]), crossings]).unique()
        middles = 0.5 * (parts[1:] + parts[:-1])
        largest = torch.lerp(before, after, middles[:, None]).argmax(dim=1).tolist()
        ends = (start + parts * (end - start)).tolist()
        for low, high, k in zip(ends[:-1], ends[1:], largest, strict=True):
            if intervals and intervals[-1][2] == k:
                intervals[-1] = (intervals[-1][0], high, k)
            elif high > low:
                intervals.append((low, high, k))
    return intervals


# ---- two inputs


def draw_map(axes: Axes, look: Look, output: int) -> None:
    """Draw one output over the plane, the data in the same colours, and the neurons' lines."""
    extent, F = _values(look)
    values = F[:, :, output]
    targets = look.problem.Y[:, output].cpu().numpy()
    limits = {"vmin": min(values.min(), targets.min()), "vmax": max(values.max(), targets.max()), "cmap": "viridis"}
    drawn = axes.imshow(values, extent=extent, origin="lower", aspect="auto", **limits)  # type: ignore[arg-type]
    _draw_neurons(axes, look, "#f5f5f5")
    X = look.problem.X[look.shown].cpu().numpy()
    axes.scatter(X[:, 0], X[:, 1], c=targets[look.shown], s=16.0, edgecolors="#f5f5f5", linewidths=0.7, **limits)  # type: ignore[arg-type]
    dress(axes, look.axis(0), look.axis(1))
    color_bar(drawn, axes).set_label(look.names[output] if F.shape[2] > 1 else "output", parse_math=False)


def _draw_regions(axes: Axes, look: Look) -> None:
    """Draw the class with the largest output over the plane, the data, and neurons' lines."""
    extent, F = _values(look)
    colors = [on(axes, CLASSES[k % len(CLASSES)]) for k in range(F.shape[2])]
    shades = [(*to_rgb(color), SHADE) for color in colors]
    codes = F.argmax(axis=2)
    style = {"interpolation": "nearest", "vmin": -0.5, "vmax": len(colors) - 0.5}
    axes.imshow(codes, cmap=ListedColormap(shades), extent=extent, origin="lower", aspect="auto", **style)  # type: ignore[arg-type]
    _draw_neurons(axes, look, on(axes, INK))
    X, labels = look.problem.X[look.shown].cpu().numpy(), (look.labels if look.labels is not None else codes)
    for k, color in enumerate(colors):
        own = X[labels[look.shown] == k]
        axes.plot(own[:, 0], own[:, 1], "o", color=color, markersize=4.0, label=f"\u200b{look.names[k]}")
    dress(axes, look.axis(0), look.axis(1))
    legend(axes, beside=True)


def _values(look: Look) -> tuple[tuple[float, float, float, float], Float[np.ndarray, "r c m"]]:
    """Return the corners of the map, and F at the middle of each of its pixels."""
    middles = [low + (high - low) * (np.arange(PIXELS) + 0.5) / PIXELS for low, high in map(look.ends, range(2))]
    F = [look.outputs(part) for part in _points(look, middles).split(ROWS)]
    return (*look.ends(0), *look.ends(1)), torch.cat(F).cpu().numpy().reshape(PIXELS, PIXELS, -1)


def _points(look: Look, sides: list[NDArray]) -> Float[Tensor, "M 2"]:
    """Return the points of a grid, the lowest row first."""
    return look.problem.X.new_tensor(np.stack([coordinate.ravel() for coordinate in np.meshgrid(*sides)], axis=1))


def _draw_neurons(axes: Axes, look: Look, color: str) -> None:
    """Draw where neurons switch: straight lines in the first hidden layer, dotted above it."""
    axes.set_xlim(look.ends(0))
    axes.set_ylim(look.ends(1))
    if look.problem.activation.is_linear:
        return
    for layer in range(1, look.problem.depth):
        pixels = STRAIGHT if layer == 1 else PIXELS
        sides = [np.linspace(*look.ends(k), pixels) for k in range(2)]
        parts = _points(look, sides).split(ROWS)
        Z = torch.cat([preactivations_at(look.problem, look.weights, part, layer) for part in parts]).cpu().numpy()
        strongest = np.argsort(-np.abs(Z).max(axis=0, initial=0.0), kind="stable")[:NEURONS]
        width, line = (0.7, "solid") if layer == 1 else (0.8, "dotted")
        style = {"linewidths": width, "linestyles": line, "levels": [0.0], "colors": [color], "alpha": 0.6}
        for k in (k for k in strongest if Z[:, k].min() < 0.0 < Z[:, k].max()):
            axes.contour(*sides, Z[:, k].reshape(pixels, pixels), **style)


# ---- what all have


def legend(axes: Axes, beside: bool = False) -> None:
    """Add a legend with the names as they are written."""
    place = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if beside else {}
    for text in axes.legend(frameon=False, fontsize=8, **place).get_texts():
        text.set_parse_math(False)


def short(name: str) -> str:
    """Shorten a name to fit beside an axis; remove control characters, which SVG forbids."""
    printable = "".join(letter if letter.isprintable() else " " for letter in name)
    return printable if len(printable) <= LONGEST_NAME else f"{printable[: LONGEST_NAME - 1]}…"
