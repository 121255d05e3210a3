"""Finitely many first-layer neurons that stand for all of them, where the inputs have rank 2 (MATH.md section 5).

Let n_1, n_2, ... be directions in the plane, each at less than a right angle to the next, around the whole circle. A
unit w between n_j and n_k is a n_j + b n_k with a, b >= 0 and a + b <= 1 / cos(angle / 2). If no sample changes its
sign between the two, sigma(X w) = a sigma(X n_j) + b sigma(X n_k). If x_i does, the two sides differ in entry i by at
most min(a |x_i n_j|, b |x_i n_k|), which is charged. So the dictionary may hold any directions: where it lacks an end
of an arc, or has it only up to rounding, the bound is a little lower.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.row_space import RowSpace

# An upper bound on the rounding of a sum of two products, and of angles and norms of directions.
CHARGED = 2.0**-48


@dataclass(frozen=True)
class Dictionary:
    """The outputs of finitely many neurons on the samples.

    For every unit w there are neurons j and k and a, b >= 0 with a + b <= `secant` such that each sigma(x_i w) differs
    from a S_ij + b S_ik by at most a missed_ij + b missed_ik + neglected.

    Attributes:
        directions: of the neurons, in the space of the inputs (J, d).
        values: S (N, J).
        missed: (N, J).
        secant: a bound on a + b.
        neglected: what lies outside the plane.
    """

    directions: Float[np.ndarray, "J d"]
    values: Float[np.ndarray, "N J"]
    missed: Float[np.ndarray, "N J"]
    secant: float
    neglected: float

    @staticmethod
    def of(X: Float[Tensor, "N d"], step: float) -> Dictionary:
        """Return the dictionary of inputs of rank 2 at most, of size about 1.

        Args:
            X: the inputs, with their bias column if they have one.
            step: the largest angle between neighbours, at most 1.
        """
        space = RowSpace.of(X, least=1, whole=2)
        P = space.size * space.P[:, :2].numpy()
        neglected = space.size * space.neglected if len(space.Q) <= 2 else math.inf  # then nothing is proved
        if P.shape[1] == 1:  # the line has two directions, without anything between them
            Q, values = space.Q[:1].numpy(), np.maximum(np.hstack([P, -P]), 0.0)
            missed, secant = CHARGED * np.abs(np.hstack([P, P])), space.stretch * (1.0 + CHARGED)
            return Dictionary(np.vstack([Q, -Q]), values, missed, secant, neglected)
        ends = np.arctan2(P[:, 1], P[:, 0])
        grid = np.linspace(0.0, 2.0 * math.pi, math.ceil(2.0 * math.pi / step), endpoint=False)
        angles = np.unique(np.concatenate([ends + math.pi / 2, ends - math.pi / 2, grid]) % (2.0 * math.pi))
        widest = float(np.diff(angles, append=angles[0] + 2.0 * math.pi).max()) + CHARGED
        directions = np.column_stack([np.cos(angles), np.sin(angles)])
        products = P @ directions.T
        following = np.roll(products, -1, axis=1)
        crossed = np.where(products * following < 0.0, np.minimum(np.abs(products), np.abs(following)), 0.0)
        missed = np.maximum(crossed, np.roll(crossed, 1, axis=1)) + CHARGED * np.linalg.norm(P, axis=1)[:, None]
        secant = space.stretch / math.cos(0.5 * widest) * (1.0 + CHARGED)
        return Dictionary(directions @ space.Q[:2].numpy(), np.maximum(products, 0.0), missed, secant, neglected)


def is_flat(X: Float[Tensor, "N d"]) -> bool:
    """Return True if the inputs have rank 2 at most, by the rank rule."""
    return RowSpace.of(X.cpu(), least=1, whole=2).Q.shape[0] <= 2 and bool(torch.isfinite(X).all())
