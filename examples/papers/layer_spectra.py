"""The layers of a stored network, as numbers of a figure and as pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from figure_design import Numbers
from jaxtyping import Float

from covopt.answer import drawing
from covopt.model.jacobian import Passage
from covopt.model.problem import make_problem
from covopt.studies.audit.function_layers import layers_of

Layers = Sequence[Float[np.ndarray, "_ _"]]
SMALL = 1e-6
"""Singular values below this part of the largest are given as 0: they are what a descent left, or rounding."""


def seen_in(
    layers: Layers, X: Float[np.ndarray, "N n0"], moved: Float[np.ndarray, "N n0"] | None = None
) -> list[Numbers]:
    """Each layer of a ReLU network at inputs.

    Args:
        layers: W_1 ... W_L.
        X: the inputs; moved: the same after a transformation, row by row.

    Returns:
        Of each layer the largest singular values of A_l (`weights`) and of Z_l / sqrt N (`representations`), how many
        of A_l are above 1/2 with all layers in balance (`dimension`), |Z_l - relu(Z_l)| / |Z_l| (`nonlinearity`, None
        for the outputs), and the distance of samples and their transforms over that of strangers (`collapse`).

    Raises:
        ValueError: the inputs do not fit the network, or each other.
    """
    fits = X.ndim == 2 and len(X) > 0 and X.shape[1] + 1 == layers[0].shape[1]
    if not fits or (moved is not None and moved.shape != X.shape):
        raise ValueError("the inputs do not fit the network, or each other")
    at, weights = torch.from_numpy(X), [torch.from_numpy(W) for W in layers]
    problem = make_problem(X, np.zeros((len(X), len(layers[-1]))), depth=len(layers))
    passage = Passage(weights, at, problem.beta, problem.activation)
    found = layers_of(problem, weights, passage, None, None if moved is None else torch.from_numpy(moved))
    return [
        {
            "dimension": layer.dimension,
            "weights": _kept(layer.singular_values),
            "representations": _kept(layer.activation_values),
            "nonlinearity": layer.nonlinearity,
            "collapse": layer.orbit_collapse,
        }
        for layer in found
    ]


def _kept(values: list[float] | None) -> list[float]:
    """Return the values with negligible ones set to 0."""
    return [s if s > SMALL * max(values) else 0.0 for s in values] if values else []


def largest(A: Float[np.ndarray, "*b n m"]) -> Float[np.ndarray, "*b k"]:
    """The singular values of A, descending; those that do not count are 0."""
    s = np.linalg.svd(A, compute_uv=False)
    return np.where(s > SMALL * s[..., :1], s, 0.0)


def spectrum_panel(title: str, up: str, values: Sequence[Sequence[float]], first: int) -> drawing.Panel:
    """Singular values against the layer, a line for each place in the order; the first ones in one colour."""
    most = max(len(each) for each in values)
    full = np.array([[*each, *[0.0] * (most - len(each))] for each in values])
    numbers = np.arange(1.0, len(values) + 1.0)
    names = {0: f"the {first} largest", first: "the next"}
    lines = [
        drawing.Line(names.get(place, ""), numbers, full[:, place], "o-", 0 if place < first else 1)
        for place in range(most)
    ]
    return drawing.Panel(title, "layer l", up, lines)
