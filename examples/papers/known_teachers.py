"""Teachers of a known rank: data whose targets depend on a few of the numbers that the inputs are made of.

A teacher of rank k: x = g(z) and y = h(z_1, ..., z_k), z Gaussian numbers, g and h random ReLU networks of two layers.
As a function of x the targets pass k dimensions, up to how well x tells z.

Source: [J23a, App. F] and [J23b, Figure 1], which state the sizes and not the scales.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

BIASES = 0.5
"""Deviation of the biases of a random ReLU network, whose inputs and slopes have deviation 1."""


class Teacher(NamedTuple):
    """Sizes of a teacher: latent numbers z, those that the targets depend on, inputs, outputs, neurons of g and h."""

    latent: int
    rank: int
    inputs: int
    outputs: int
    neurons: int


def drawn(
    teacher: Teacher, counts: Sequence[int], seed: int, size: float
) -> list[tuple[Float[np.ndarray, "N n0"], Float[np.ndarray, "N nL"]]]:
    """Sets of samples (X, Y) of one teacher; Y moved and scaled, so that in the first set its mean is 0.

    Args:
        teacher: its sizes.
        counts: samples of each set.
        seed: of the teacher and the samples.
        size: the root of the mean of |y|^2 in the first set.
    """
    rng = np.random.default_rng(seed)
    g, h = (_random(rng, n, teacher.neurons, m) for n, m in _shapes(teacher))
    sets = []
    for count in counts:
        z = rng.standard_normal((count, teacher.latent))
        sets.append((_of(g, z), _of(h, z[:, : teacher.rank])))
    first = sets[0][1]
    middle = first.mean(axis=0)
    scale = size / np.sqrt(((first - middle) ** 2).sum(axis=1).mean())
    return [(X, scale * (Y - middle)) for X, Y in sets]


def _shapes(teacher: Teacher) -> list[tuple[int, int]]:
    return [(teacher.latent, teacher.inputs), (teacher.rank, teacher.outputs)]


def _random(rng: np.random.Generator, inputs: int, neurons: int, outputs: int) -> list[np.ndarray]:
    """W_1, b_1 and A_2 of a ReLU network of two layers, whose outputs have about deviation 1."""
    return [
        rng.standard_normal((neurons, inputs)) / np.sqrt(inputs),
        BIASES * rng.standard_normal(neurons),
        rng.standard_normal((outputs, neurons)) * np.sqrt(2.0 / neurons),
    ]


def _of(f: list[np.ndarray], z: Float[np.ndarray, "N d"]) -> Float[np.ndarray, "N m"]:
    return np.maximum(z @ f[0].T + f[1], 0.0) @ f[2].T
