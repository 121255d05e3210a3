"""The figure of a network as a function: its remaining directions, layer by layer."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from covopt.answer.drawing import COST_COLOR, count_along
from covopt.answer.layers import log_scale
from covopt.records.record import Summary
from covopt.records.svg import Picture, picture

MEASURES = {"singular_values": "singular values of the weights", "activation_values": "singular values of Z / √N"}


def spectra(function: Summary) -> Picture | None:
    """Draw the largest singular values of W and Z against the layer; None if all are 0.

    Args:
        function: the entry `function` of an audit's summary.
    """
    drawn = {key: _curves(function["layers"], key) for key in MEASURES}
    if not all(drawn.values()):
        return None

    def draw(figure: Figure) -> None:
        for axes, (key, curves) in zip(figure.subplots(1, 2), drawn.items(), strict=True):
            _draw(axes, curves)
            axes.set_ylabel(MEASURES[key], parse_math=False)

    return picture(
        draw,
        alt="The largest singular values of the weights and of the representations, layer by layer.",
        caption="The ten largest singular values of the weights without their bias columns (left) and of the"
        " pre-activations over √N (right), layer by layer. At a bottleneck few are left, near 1 on the left.",
        size=(9.0, 3.3),
    )


def _curves(layers: list[Summary], key: str) -> list[list[tuple[int, float]]]:
    """Return the curve of the i-th singular value over the layers for each i, without noise."""
    values = [layer[key] or [] for layer in layers]
    largest = max((s for spectrum in values for s in spectrum), default=0.0)
    most = max((len(spectrum) for spectrum in values), default=0)
    curves = [
        [(layer["layer"], spectrum[i]) for layer, spectrum in zip(layers, values, strict=True) if i < len(spectrum)]
        for i in range(most)
    ]
    visible = [[(layer, s) for layer, s in curve if s > 1e-8 * largest] for curve in curves]
    return [curve for curve in visible if curve]


def _draw(axes: Axes, curves: list[list[tuple[int, float]]]) -> None:
    for number, curve in enumerate(curves):
        layers, values = zip(*curve, strict=True)
        fading = 1.0 - 0.07 * number
        axes.plot(layers, values, "o-", color=COST_COLOR, alpha=fading, markersize=3.0, linewidth=1.0)
    log_scale(axes, np.array([value for curve in curves for _, value in curve]))
    axes.set_xlabel("layer")
    count_along(axes.xaxis)
    axes.spines[["top", "right"]].set_visible(False)
