"""The figure of the forces on a hidden layer, in principal planes, from plain arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from covopt.answer.drawing import MADE, NEURON_COLOR, color_bar, say

ATTRACTION_COLOR, REPULSION_COLOR, RAY_COLOR = "#2f6fbf", "#d06a1c", "#cfcfcf"
MARKER: dict[str, Any] = {"s": 34, "edgecolor": "white", "linewidth": 0.6, "zorder": 3}
ALIGNED = 0.995  # neurons whose representations have a cosine above this lie on one ray
LONGISH = 1.6  # a plane is drawn in one scale where neither side is more than this many times the other
LONGEST_ARROW = 0.3  # the longest arrow, as a share of the picture's half width


@dataclass(frozen=True)
class ForcesPicture:
    """The contents of the figure of the forces on one hidden layer."""

    title: str  # the layer and the problem in a few words
    Z: Float[np.ndarray, "N n"]  # Z_l
    attraction: Float[np.ndarray, "N n"]  # the derivative of the loss, within Im Zs_{l-1}; the arrow points against it
    repulsion: Float[np.ndarray, "N n"]  # the same
    labels: NDArray  # each sample's class, or its first target (N,)
    classes: bool  # True if the labels are classes


def draw_forces(picture: ForcesPicture, path: Path) -> None:
    """Write a PNG: samples and neurons of a layer in principal planes, with both forces.

    Samples are the rows of Z_l and neurons its columns, each projected on the two leading singular directions. These
    are not centred, so that the origin is the origin and neurons of one direction lie on one ray from it.

    Source: [JGHG22], the figure of attraction and repulsion.
    """
    figure = Figure(figsize=(11.6, 5.6), layout="constrained", dpi=130)
    samples, neurons = figure.subplots(1, 2)
    figure.suptitle(picture.title, fontsize=11, parse_math=False)
    if picture.Z.size == 0 or not np.abs(picture.Z).max() > 0.0:
        say(samples, "no neuron is active here")
        say(neurons, "")
    else:
        draw_samples(samples, picture)
        draw_neuron_plane(neurons, picture)
        styles = (ATTRACTION_COLOR, 3), (REPULSION_COLOR, 3), (RAY_COLOR, 1)
        marks = [Line2D([], [], color=color, linewidth=width) for color, width in styles]
        figure.legend(
            marks,
            ["attraction", "repulsion (arrows: where each would move the point, one scale)", "ray of aligned neurons"],
            loc="outside lower center",
            ncols=3,
            frameon=False,
        )
    figure.savefig(path, format="png", metadata=MADE)


def draw_samples(axes: Axes, picture: ForcesPicture) -> None:
    """Draw the rows of Z_l in their principal plane, with both forces."""
    plane, share = _principal_plane(picture.Z)
    points = picture.Z @ plane
    _draw_arrows(axes, points, [-picture.attraction @ plane, -picture.repulsion @ plane])
    if picture.classes:
        names = np.unique(picture.labels)
        many = len(names) > 10
        colors = colormaps["turbo" if many else "tab10"](np.linspace(0.0, 1.0, len(names) if many else 10))
        for name, color in zip(names, colors, strict=False):
            axes.scatter(*points[picture.labels == name].T, color=color, label=f"{name}", **MARKER)
        if len(names) <= 12:
            side = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "frameon": False}
            axes.legend(title="class", fontsize=8, title_fontsize=8, **side)
    else:
        color_bar(axes.scatter(*points.T, c=picture.labels, cmap="viridis", **MARKER), axes).set_label("target")
    _finish_plane(axes, f"{len(points)} samples, rows of $Z_\\ell$", share)


def draw_neuron_plane(axes: Axes, picture: ForcesPicture) -> None:
    """Draw the columns of Z_l in their principal plane, with both forces."""
    plane, share = _principal_plane(picture.Z.T)
    points = picture.Z.T @ plane
    reach = 1.25 * np.abs(points).max()
    rays = _rays(picture.Z.T)
    for ray in rays:
        end = ray @ plane
        if np.linalg.norm(end) > 1e-3:
            axes.plot(*np.outer(end / np.linalg.norm(end), (0.0, reach)), color=RAY_COLOR, linewidth=1.0, zorder=1)
    _draw_arrows(axes, points, [-picture.attraction.T @ plane, -picture.repulsion.T @ plane])
    axes.scatter(*points.T, color=NEURON_COLOR, **MARKER)
    _finish_plane(axes, f"{len(points)} neurons, columns of $Z_\\ell$, on {len(rays)} rays", share)


def _principal_plane(points: Float[np.ndarray, "k d"]) -> tuple[Float[np.ndarray, "d 2"], NDArray[np.float64]]:
    """Return the two leading directions (or 0) in columns, and their shares of |points|^2."""
    _, s, Vh = np.linalg.svd(points, full_matrices=False)
    share = s**2 / (s**2).sum()
    missing = max(0, 2 - len(s))
    plane = np.concatenate([Vh[:2].T, np.zeros((points.shape[1], missing))], axis=1)
    return plane, np.concatenate([share[:2], np.zeros(missing)])


def _rays(neurons: Float[np.ndarray, "n N"]) -> list[NDArray[np.float64]]:
    """Return unit directions along which the neurons lie, each from its largest neuron."""
    norms = np.linalg.norm(neurons, axis=1)
    rays: list[NDArray[np.float64]] = []
    for k in np.argsort(-norms, kind="stable"):
        if norms[k] <= 1e-6 * norms.max():
            break
        unit = neurons[k] / norms[k]
        if all(unit @ ray < ALIGNED for ray in rays):
            rays.append(unit)
    return rays


def _draw_arrows(axes: Axes, points: NDArray, forces: Sequence[NDArray]) -> None:
    """Both forces in one scale."""
    longest = max(float(np.linalg.norm(force, axis=1).max()) for force in forces)
    scale = LONGEST_ARROW * float(np.abs(points).max()) / longest if longest > 0.0 else 0.0
    style: dict[str, Any] = {"angles": "xy", "scale_units": "xy", "scale": 1.0, "width": 0.003, "zorder": 2}
    for force, color in zip(forces, (ATTRACTION_COLOR, REPULSION_COLOR), strict=True):
        axes.quiver(*points.T, *(scale * force).T, color=color, **style)
        axes.update_datalim(points + scale * force)


def _finish_plane(axes: Axes, title: str, share: NDArray) -> None:
    axes.axhline(0.0, color="#e4e4e4", linewidth=0.8, zorder=0)
    axes.axvline(0.0, color="#e4e4e4", linewidth=0.8, zorder=0)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(f"first principal direction ({share[0]:.0%})")
    axes.set_ylabel(f"second principal direction ({share[1]:.0%})")
    axes.margins(0.15)
    axes.autoscale_view()
    wide, high = np.ptp(axes.get_xlim()), np.ptp(axes.get_ylim())
    if max(wide, high) <= LONGISH * min(wide, high):  # in one scale a long cloud would be squeezed to a line
        axes.set_aspect("equal", adjustable="datalim")
    axes.spines[["top", "right"]].set_visible(False)
