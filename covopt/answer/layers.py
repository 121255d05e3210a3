"""The figures of one hidden layer: spectra, covariances, forces."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from covopt.answer import drawing
from covopt.answer.forces import ForcesPicture, draw_neuron_plane, draw_samples
from covopt.answer.pictures import short
from covopt.answer.result import Result
from covopt.linalg.psd import RANK_RULE
from covopt.model.problem import with_bias
from covopt.records.provenance import Origin
from covopt.records.svg import Picture, picture


def spectra(result: Result, layer: int) -> Picture | None:
    """Draw the eigenvalues of K_l and Ks_l; None if all are zero."""
    kinds = zip(("K", "Kσ"), (drawing.COST_COLOR, drawing.BOUND_COLOR), layer_spectra(result, layer), strict=True)
    drawn = [(name, color, s[: rank_of(s)] ** 2) for name, color, s in kinds if rank_of(s) > 0]
    if not drawn:
        return None

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for name, color, values in drawn:
            numbers = np.arange(1, len(values) + 1)
            axes.plot(numbers, values, "o-", color=color, markersize=3.5, linewidth=1.0, label=name)
        log_scale(axes, np.concatenate([values for _, _, values in drawn]))
        drawing.count_along(axes.xaxis)
        drawing.dress(axes, "index of the eigenvalue, largest first", "eigenvalue", legend=True)

    return picture(
        draw,
        alt=f"Eigenvalues of the covariances of hidden layer {layer}, before and after the activation.",
        caption=f"Hidden layer {layer}: the eigenvalues of K and Kσ that count by the rank rule.",
    )


def covariance(result: Result, layer: int, run: drawing.RunPicture) -> Picture:
    """Draw Ks_l, the samples sorted as in the figure of the run."""
    _, Ks = result.covariances(layer)
    shown = Ks[np.ix_(run.order, run.order)]
    limit, beyond = drawing.robust_limit(shown)
    low = -limit if shown.min() < 0.0 else 0.0
    style = {"cmap": drawing.SIGNED if low < 0.0 else "magma", "vmin": low, "vmax": limit}
    side = f"sample, by {run.order_name}"
    return picture(
        lambda figure: drawing.draw_entries(figure.subplots(), shown, side, side, beyond, **style),
        alt=f"The covariance of hidden layer {layer} after the activation, as an image.",
        caption=f"Hidden layer {layer}: Kσ, sample against sample, the samples sorted by {run.order_name}."
        + ("" if beyond == "neither" else " Entries beyond the scale have its last colour."),
        size=(4.6, 3.6),
    )


def forces(result: Result, layer: int, origin: Origin) -> list[Picture]:
    """Draw attraction and repulsion on a hidden layer's samples and neurons, if any is active."""
    shown = result.forces_picture(layer)
    if shown.Z.size == 0 or not np.abs(shown.Z).max() > 0.0:
        return []
    if shown.classes and origin.classes is not None and len(origin.classes) == result.problem.Y.shape[1]:
        names = np.array([f"\u200b{short(name)}" for name in origin.classes])
        shown = replace(shown, labels=names[shown.labels.astype(int)])
    arrows = "Blue: attraction; orange: repulsion; each arrow points where that force would move the point."
    planes = (
        ("Samples", draw_samples, f"the samples in the plane where they vary most. {arrows}"),
        ("Neurons", draw_neuron_plane, "its neurons in their own plane. Neurons of one direction share a grey ray."),
    )
    return [
        picture(
            partial(_draw_plane, draw=draw, shown=shown),
            alt=f"{name} of hidden layer {layer} in their principal plane with attraction and repulsion as arrows.",
            caption=f"Hidden layer {layer}: {text}",
            size=(4.6, 4.0),
        )
        for name, draw, text in planes
    ]


def layer_spectra(result: Result, layer: int) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " m"]]:
    """Return the singular values of Z_l and Zs_l, roots of K_l's and Ks_l's eigenvalues."""
    Z = torch.as_tensor(result.representations(layer))
    Zs = with_bias(result.problem.activation(Z), result.problem.beta)
    return torch.linalg.svdvals(Z).numpy(), torch.linalg.svdvals(Zs).numpy()


def rank_of(s: Float[np.ndarray, " k"]) -> int:
    """Return the numerical rank by `RANK_RULE`."""
    return int(RANK_RULE.keeps(torch.as_tensor(s)).sum())


def _draw_plane(figure: Figure, draw: object, shown: ForcesPicture) -> None:
    axes = figure.subplots()
    draw(axes, shown)  # type: ignore[operator]
    axes.set_title("")
    if (legend := axes.get_legend()) is not None:
        for text in legend.get_texts():
            text.set_parse_math(False)


def log_scale(axes: Axes, values: Float[np.ndarray, " k"]) -> None:
    """Set a logarithmic axis, with plain numbers if the values span less than two decades."""
    axes.set_yscale("log")
    if values.max() > 100.0 * values.min():
        axes.minorticks_off()
    else:
        drawing.plain_numbers(axes.yaxis)
