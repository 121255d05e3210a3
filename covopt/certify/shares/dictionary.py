"""Finitely many first-layer neurons that stand for all of them, for inputs of rank 3 at most (MATH.md section 5).

At rank 2 let n_1, n_2, ... be directions in the plane, each at less than a right angle to the next, around the whole
circle. A unit w between n_j and n_k is a n_j + b n_k with a, b >= 0 and a + b <= 1 / cos(angle / 2). If no sample
changes its sign between the two, sigma(X w) = a sigma(X n_j) + b sigma(X n_k). If x_i does, the two sides differ in
entry i by at most min(a |x_i n_j|, b |x_i n_k|), which is charged. So the dictionary may hold any directions: where
it lacks an end of an arc, or has it only up to rounding, the bound is a little lower.

At rank 3 the directions are the corners of small triangles on the sphere. A unit w in one of them is a sum of its
corners with weights a_j >= 0, and with l the longest chord of an edge 1 = |w|^2 >= (sum_j a_j)^2 (1 - l^2 / 3), since
the products of three parts of 1, two by two, add up to 1/3 at most. The triangles (`cover`) are right-angled ones, cut
along the great circle of each sample, where x_i^T w changes its sign, and then halved at their longest edges until
these are short. Corners are computed up to rounding, so that neighbours may leave a gap of GAP at most between them,
which is charged.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.linalg.row_space import RowSpace

# An upper bound on the rounding of a sum of two products, and of angles and norms of directions.
CHARGED = 2.0**-48
FINEST = 0.1
"""The smallest step on a sphere. It costs step^2 / 9 of an exact fit's bound, with 5,000 to 13,000 directions."""
APART = 0.98  # the largest cosine between two neurons that are added together
GAP = 2.0**-34
"""A bound on the distance of any unit vector from the triangles: above the rounding of cuts, and of equal corners."""
ON_CIRCLE = 1e-12  # corners as near as that to a great circle are on it


@dataclass(frozen=True)
class Dictionary:
    """The outputs of finitely many neurons on the samples.

    For every unit w there are a few neurons j and a_j >= 0 with sum_j a_j <= `secant` such that each sigma(x_i w)
    differs from sum_j a_j S_ij by at most sum_j a_j missed_ij + neglected.
    """

    directions: Float[np.ndarray, "J d"]  # the neurons' directions, in the space of the inputs
    values: Float[np.ndarray, "N J"]  # S
    missed: Float[np.ndarray, "N J"]
    secant: float  # a bound on the sum of the weights
    neglected: float  # a bound on the part outside the space of the directions
    on_circle: bool = True  # the directions are in a plane, in order

    @staticmethod
    def of(X: Float[Tensor, "N d"], step: float) -> Dictionary:
        """Return the dictionary of inputs of rank 3 at most, of size about 1, with their bias column if they have one.

        The angle between neighbours is at most `step`, at most 1; at rank 3 FINEST takes the place of a smaller one.
        """
        space = RowSpace.of(X, least=1, whole=2)
        P = space.size * space.P[:, :3].numpy()
        neglected = space.size * space.neglected if len(space.Q) <= 3 else math.inf  # then nothing is proved
        if P.shape[1] == 3:
            return Dictionary._on_sphere(P, space, step, neglected)
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

    @staticmethod
    def _on_sphere(P: Float[np.ndarray, "N 3"], space: RowSpace, step: float, neglected: float) -> Dictionary:
        step = max(step, FINEST)
        directions, triangles = cover(P, step)
        products = P @ directions.T
        corners = products[:, triangles]
        above, below = np.maximum(corners, 0.0), np.maximum(-corners, 0.0)
        charged = np.where((above.max(axis=2) <= below.max(axis=2))[:, :, None], above, below)
        charged *= (above.max(axis=2) > 0.0)[:, :, None] & (below.max(axis=2) > 0.0)[:, :, None]
        missed = np.zeros_like(products)
        for k in range(3):
            np.maximum.at(missed.T, triangles[:, k], charged[:, :, k].T)
        size = np.linalg.norm(P, axis=1)
        secant = space.stretch / math.sqrt(1.0 - step * step / 3.0) * (1.0 + CHARGED)
        directions = directions @ space.Q[:3].numpy()
        missed, neglected = missed + CHARGED * size[:, None], neglected + GAP * float(size.max())
        return Dictionary(directions, np.maximum(products, 0.0), missed, secant, neglected, on_circle=False)

    def peaks(self, values: Float[np.ndarray, " J"], most: int) -> Int[np.ndarray, " _"]:
        """Return the neurons at the largest local maxima of a circle, or with the largest values that are apart."""
        if self.on_circle:
            peaks = np.flatnonzero((values >= np.roll(values, 1)) & (values >= np.roll(values, -1)))
            return peaks[np.argsort(-values[peaks])][:most]
        chosen: list[int] = []
        for j in np.argsort(-values)[: 40 * most].tolist():
            if len(chosen) == most:
                break
            if not chosen or (self.directions[chosen] @ self.directions[j]).max() < APART:
                chosen.append(j)
        return np.array(chosen, dtype=int)


def has_dictionary(X: Float[Tensor, "N d"]) -> bool:
    """Return True if the inputs have rank 3 at most, by the rank rule."""
    return RowSpace.of(X.cpu(), least=1, whole=2).Q.shape[0] <= 3 and bool(torch.isfinite(X).all())


def cover(normals: Float[np.ndarray, "N 3"], step: float) -> tuple[Float[np.ndarray, "J 3"], Int[np.ndarray, "T 3"]]:
    """Return unit vectors and triangles of them, with chords up to `step`, cut by great circles with these normals."""
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=3)))
    triangles = signs[:, :, None] * np.eye(3)
    for normal in normals:
        size = np.linalg.norm(normal)
        triangles = _cut(triangles, normal / size) if size > 0.0 else triangles
    while True:
        edges = np.linalg.norm(triangles - np.roll(triangles, -1, axis=1), axis=2)
        longest = edges.argmax(axis=1)
        long = edges.max(axis=1) > step
        if not long.any():
            break
        halved, k = triangles[long], longest[long]
        rows = np.arange(len(halved))
        a, b, c = halved[rows, k], halved[rows, (k + 1) % 3], halved[rows, (k + 2) % 3]
        middle = a + b
        middle /= np.linalg.norm(middle, axis=1, keepdims=True)
        halves = [np.stack(corners, axis=1) for corners in ((a, middle, c), (middle, b, c))]
        triangles = np.concatenate([triangles[~long], *halves])
    rounded = np.round(triangles.reshape(-1, 3), 11) + 0.0
    _, first, corners = np.unique(rounded, axis=0, return_index=True, return_inverse=True)
    return triangles.reshape(-1, 3)[first], corners.reshape(-1, 3)


def _cut(triangles: Float[np.ndarray, "T 3 3"], normal: Float[np.ndarray, " 3"]) -> Float[np.ndarray, "U 3 3"]:
    """Return triangles none of which has corners on both sides of a great circle."""
    heights = triangles @ normal
    heights[np.abs(heights) < ON_CIRCLE] = 0.0
    crossed = (heights.max(axis=1) > 0.0) & (heights.min(axis=1) < 0.0)
    pieces = [triangles[~crossed]]
    for corners, z in zip(triangles[crossed], heights[crossed], strict=True):
        if (z == 0.0).any():  # through a corner: two pieces
            k = int(np.flatnonzero(z == 0.0)[0])
            o, a, b = (corners[(k + j) % 3] for j in range(3))
            middle = _crossing(a, b, z[(k + 1) % 3], z[(k + 2) % 3])
            pieces.append(np.array([[o, a, middle], [o, middle, b]]))
            continue
        k = int(np.flatnonzero((z > 0.0) == (np.sum(z > 0.0) == 1))[0])  # alone on its side: three pieces
        o, a, b = (corners[(k + j) % 3] for j in range(3))
        p, q = _crossing(o, a, z[k], z[(k + 1) % 3]), _crossing(o, b, z[k], z[(k + 2) % 3])
        pieces.append(np.array([[o, p, q], [p, a, b], [p, b, q]]))
    return np.concatenate(pieces)


def _crossing(a: np.ndarray, b: np.ndarray, above: float, below: float) -> Float[np.ndarray, " 3"]:
    """Return where an edge meets the great circle, from the heights of its ends."""
    point = a * abs(below) + b * abs(above)
    return point / np.linalg.norm(point)
