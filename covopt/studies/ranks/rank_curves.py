"""The pictures of `ranks`: rank against epochs and against the retained fraction, spectra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from covopt.answer.drawing import Line, Panel
from covopt.model.ranks import frobenius, predicted_rank, threshold_rank
from covopt.studies.ranks.rank_cells import RankCell, Reference


def panels(
    cells: Sequence[RankCell], references: Mapping[float, Reference], depth: int, tolerance: float
) -> list[Panel]:
    """Return the panels of rank against epochs, rank against the retained fraction, and each layer's spectra."""
    layer = max(1, depth - 1)
    settings = _settings(cells)
    trained = [group for group in settings if group[0].course is not None]
    shown = []
    if trained:
        up, epochs, retained, dashed = f"rank of W{layer} at {tolerance:g}", [], [], []
        for color, cells in enumerate(trained):
            name, points = _name(trained, cells), _means(cells, layer, tolerance)
            present = {key: values[points["kept"] > 0.0] for key, values in points.items()}
            epochs.append(Line(name, points["epochs"], points["rank"], "-", color))
            retained.append(Line(name, present["kept"], present["rank"], "-", color))
            alone = "" if color else "initialisation alone"
            dashed.append(Line(alone, present["kept"], present["predicted"], "--", color))
        shown += [
            Panel("Against epochs", "epochs", up, epochs, logarithmic="x", counted="y"),
            Panel("Against what remains", "retained fraction", up, [*retained, *dashed], logarithmic="x", counted="y"),
        ]
    layers = sorted({1, *range(max(2, depth - 2), depth + 1)})  # the first and the last three
    return [*shown, *(_spectra(settings, references, number) for number in layers)]


def curve(cell: RankCell, layer: int, tolerance: float) -> dict[str, NDArray]:
    """Return epochs, kept, rank and predicted rank of W_l at each record after the start."""
    course, decay = cell.course, cell.setting.decay(cell.steps)
    assert course is not None
    assert decay is not None
    first = course.spectra[0][layer - 1]
    rows = []
    for step, spectra in zip(course.steps[1:], course.spectra[1:], strict=True):
        values = spectra[layer - 1]
        retained, norm = decay.kept(step), frobenius(values)
        predicted = predicted_rank(first, retained, norm, tolerance)
        epochs = step * (cell.setting.batch_size or 1) / cell.samples
        rows.append((epochs, abs(retained), threshold_rank(values, tolerance), predicted))
    columns = np.array(rows, dtype=np.float64).reshape(-1, 4).T
    return dict(zip(("epochs", "kept", "rank", "predicted"), columns, strict=True))


def _settings(cells: Sequence[RankCell]) -> list[list[RankCell]]:
    """Group the cells that differ only in the seed."""
    groups: dict[tuple[object, ...], list[RankCell]] = {}
    for cell in cells:
        if not cell.diverged:
            s = cell.setting
            groups.setdefault((s.batch_size, s.rate, s.lam, s.momentum, s.nesterov), []).append(cell)
    return list(groups.values())


def _means(cells: Sequence[RankCell], layer: int, tolerance: float) -> dict[str, NDArray]:
    """Return the mean curve of the seeds, up to the end of the shortest."""
    curves = [curve(cell, layer, tolerance) for cell in cells]
    shortest = min(len(columns["kept"]) for columns in curves)
    return {name: np.mean([columns[name][:shortest] for columns in curves], axis=0) for name in curves[0]}


def _spectra(settings: Sequence[Sequence[RankCell]], references: Mapping[float, Reference], layer: int) -> Panel:
    """Return the panel of s_i / |W| of each setting's first network, and of the solver's."""
    lines = [
        _falling(_name(settings, cells), cells[0].layers[layer - 1].values, "-", color)
        for color, cells in enumerate(settings)
    ]
    own_color = 4
    for place, (lam, reference) in enumerate(references.items()):
        name = f"solver, lam {lam:g}" if len(references) > 1 else "solver"
        lines.append(_falling(name, reference.layers[layer - 1].values, ":" if place == 0 else "-.", own_color))
    return Panel(f"Spectrum of W{layer}", "i", "s_i / |W|", lines, logarithmic="y", counted="x")


def _falling(name: str, values: torch.Tensor, style: str, color: int) -> Line:
    size = frobenius(values)
    parts = (values / size).cpu().numpy() if size > 0.0 else np.empty(0)
    parts = parts[parts > 1e-8]  # others are rounding
    return Line(name, np.arange(1.0, len(parts) + 1.0), parts, style, color)


def _name(settings: Sequence[Sequence[RankCell]], cells: Sequence[RankCell]) -> str:
    """Name a setting by the values that distinguish it from the others."""
    own, labels = vars(cells[0].setting), []
    for name, label in (("batch_size", "batches of"), ("rate", "rate"), ("lam", "lam"), ("momentum", "momentum")):
        if own[name] is not None and (name == "batch_size" or len({vars(c[0].setting)[name] for c in settings}) > 1):
            labels.append(f"{label} {own[name]:g}")
    return ", ".join(labels) or "the network"
