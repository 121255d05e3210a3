"""Triangles that cover the sphere, no larger than a step, on which all outputs of a neuron are linear.

Eight right-angled triangles are cut along the great circle of each sample, where x_i^T w changes its sign, and then
halved at their longest edges until these are short. Corners are computed up to rounding, so that neighbours may leave a
gap of GAP at most between them, which the dictionary charges.
"""

from __future__ import annotations

import itertools

import numpy as np
from jaxtyping import Float, Int

GAP = 2.0**-34
"""A bound on the distance of any unit vector from the triangles: above the rounding of cuts, and of equal corners."""
ON_CIRCLE = 1e-12  # corners as near as that to a great circle are on it


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
