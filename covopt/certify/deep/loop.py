"""A bound from winding numbers of a loop of samples, for exact fits of every depth (MATH.md section 5).

Samples x_1 ... x_m, joined in this order, bound a disc of area at most A (the fan from their mean), and pi projects the
outputs to a plane. Let lam = prod_l |A_l|_op. On the edge from x_i to x_{i+1} the network stays within

    delta_i = (lam^2 |x_i - x_{i+1}|^2 - |y_i - y_{i+1}|^2)^(1/2) / 2

of the chord of the outputs, so that a point about which pi(y) winds, farther than delta_i from every edge i, is an
output on the disc. The area V(lam) of these points is at most A times the largest product of two singular values of the
Jacobian, and that is at most prod_l s_1(A_l) s_2(A_l):

    R >= min over lam >= the steepest pair of  L (lam^(2/L) + (V(lam) / (A lam))^(2/L)).

Here pi(y) is convex, counterclockwise, and V is the polygon with each side moved inwards by delta_i. Between two values
of lam delta_i = u^(1/2) / 2 is at most (u / c + c) / 4 for any c > 0, which is linear in lam^2; with sides that move
linearly V^(1/2) is concave (Brunn and Minkowski), at least its chord in lam^2. On a fine grid of the interval the first
term is then taken at the lower and the second at the upper end of each cell.

Source of the idea: Jacot (2023a), Remark 4 and Theorem 1, for functions; for samples: derived.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy
import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from torch import Tensor

from covopt.certify.deep.angle import parallelograms
from covopt.certify.proof import DeepProof, Proved, Target
from covopt.certify.spectral import SLACK
from covopt.linalg.rounding import to_unit_scale
from covopt.model.problem import Problem
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Certificate, Stop

# Rounding of an area or a distance, relative to the polygon's size.
CHARGED = 2.0**-44


@dataclass(frozen=True)
class Loop(DeepProof):
    """A bound from a closed polygon of samples and a plane of the outputs in which it is convex."""

    loop: Int[Tensor, " _"]  # the samples in order (m,)
    plane: Float[Tensor, "_ _"]  # two directions of the outputs (2, n_L), orthonormal up to rounding

    kind: ClassVar[Certificate] = Certificate.LOOP
    missing: ClassVar[str] = "The stored loop is missing or does not fit the data; solve again."

    @classmethod
    def suits(cls, problem: Problem) -> bool:
        """Return True if there are at least two inputs and two outputs."""
        return problem.samples > 2 and min(problem.Y.shape[1], problem.X.shape[1]) > 1

    @classmethod
    def prove(cls, problem: Problem, target: Target, last: Any = None) -> Proved | None:
        """Take the best of a few hulls."""
        loop = best_loop(problem, target.stop)
        return None if loop is None else loop.proved(problem)

    def bound(self, problem: Problem) -> float:
        """Return the bound from the loop; 0 where its outputs are not convex in its plane."""
        corners, plane = self.loop, self.plane
        inside = len(corners) > 2 and bool(((corners >= 0) & (corners < problem.samples)).all())
        if not inside or plane.shape != (2, problem.Y.shape[1]) or not bool(torch.isfinite(plane).all()):
            raise ProblemError(self.missing)
        figure = _Figure.of(problem, self) if self.applies(problem) else None
        return 0.0 if figure is None else max(0.0, float(figure.least()) * (1.0 - SLACK))


def best_loop(problem: Problem, stop: Stop = lambda: False) -> Loop | None:
    """Return the best hull of an exact fit's outputs in planes of two of the first principal components, or None."""
    Y, _ = to_unit_scale(problem.Y.double())
    centred = Y - Y.mean(dim=0)
    directions = torch.linalg.svd(centred, full_matrices=False).Vh[:4]
    loops: list[tuple[float, Loop]] = []
    for first, second in itertools.combinations(range(len(directions)), 2):
        if stop():
            break
        plane = directions[[first, second]]
        try:
            corners = scipy.spatial.ConvexHull((centred @ plane.T).numpy()).vertices
        except scipy.spatial.QhullError:
            continue
        step = -(-len(corners) // 100)  # that many corners at most
        loop = Loop(0.0, torch.from_numpy(corners[::step].astype(np.int64)), plane)
        figure = _Figure.of(problem, loop)
        if figure is not None:
            loops.append((figure.least(refinements=0), loop))
    return max(loops, key=lambda entry: entry[0])[1] if loops else None


@dataclass(frozen=True)
class _Figure:
    """The polygon of outputs, scaled to size 1."""

    points: Float[np.ndarray, "m 2"]  # corners of pi(y)
    steps: Float[np.ndarray, " m"]  # |x_i - x_{i+1}|, at most
    rises: Float[np.ndarray, " m"]  # |y_i - y_{i+1}|, at least
    missed: float  # how far a corner may be from its target
    area: float  # A, at most
    steepest: float  # a lower bound on lam
    unit: float  # the factor of lam in the user's units
    depth: int  # L

    @staticmethod
    def of(problem: Problem, loop: Loop) -> _Figure | None:
        corners, plane = loop.loop.long(), loop.plane.double()
        X, size = to_unit_scale(problem.X.double()[corners])
        Y, height = to_unit_scale(problem.Y.double()[corners])
        missed = problem.allowed_misfit / height * math.sqrt(Y.shape[1]) * (1.0 + 2.0**-40)
        norm = float(torch.linalg.matrix_norm(plane, 2)) * (1.0 + CHARGED)
        if not 0.0 < norm < math.inf:
            return None
        points = (Y @ (plane / norm).T).numpy()
        missed += CHARGED * float(Y.norm())
        if not _is_convex(points):
            return None
        steps = (X - X.roll(-1, 0)).norm(dim=1).numpy() * (1.0 + CHARGED)
        rises = np.maximum(0.0, (Y - Y.roll(-1, 0)).norm(dim=1).numpy() - 2.0 * missed)
        spokes = X - X.mean(dim=0)
        area = 0.5 * float(parallelograms(spokes, spokes.roll(-1, 0))[1].sum()) + CHARGED * float(spokes.norm()) ** 2
        # Equal inputs with different targets have no fit; their slope must only be large.
        slopes = rises / np.maximum(steps, 1e-300)
        return _Figure(points, steps, rises, missed, area, float(slopes.max()), height / size, problem.depth)

    def _value(self, low: float, high: float) -> float:
        """Return a lower bound on the minimum over lam in [low, high], in units of unit^(2/L)."""
        middle = math.sqrt(0.5 * (low**2 + high**2))
        first, last = (math.sqrt(self._inside(end, middle)) for end in (low, high))
        if not last > 0.0:  # an empty polygon's area has no concave root
            return float(self._sum(low, self._inside(high, high)))
        lam = np.linspace(low, high, 257)
        part = (np.square(lam) - low**2) / max(high**2 - low**2, 1e-300)
        return float(self._sum(lam[:-1], np.square(first + part[1:] * (last - first)), lam[1:]).min())

    def _sum(self, lam: ArrayLike, area: ArrayLike, upper: ArrayLike | None = None) -> np.ndarray | np.floating:
        """Return L (lam^(2/L) + (V / (A lam))^(2/L)), V = `area`, with `upper` for lam in the second term."""
        second = np.divide(area, np.multiply(self.area, lam if upper is None else upper))
        return self.depth * (np.power(lam, 2.0 / self.depth) + np.power(second, 2.0 / self.depth))

    def _inside(self, lam: float, near: float) -> float:
        """Return a lower bound on V(lam), by sides that move linearly in lam^2; it is best where lam is `near`."""
        roots = np.maximum(np.sqrt(self._squares(near)), CHARGED)
        off = 0.25 * (self._squares(lam) / roots + roots) * (1.0 + CHARGED)
        return _shrunk(self.points, off + 2.0 * self.missed + CHARGED * (1.0 + off))

    def _squares(self, lam: float) -> Float[np.ndarray, " m"]:
        """Return (2 delta_i)^2."""
        return np.maximum(0.0, (lam * self.steps) ** 2 - self.rises**2)

    def least(self, refinements: int = 60) -> float:
        """Return the bound in the user's units; fewer `refinements` of the lowest interval give a lower one."""
        if not self.steepest > 0.0 or not self.area > 0.0:
            return 0.0
        # Where V = 0 the value is L lam^(2/L), and more for larger lam.
        top = self.steepest
        while self._inside(top, top) > 0.0:
            top *= 1.5
        ends = list(np.linspace(self.steepest, top, 48)) if top > self.steepest else [top, top]
        values = [self._value(a, b) for a, b in itertools.pairwise(ends)]
        last = float(self._sum(top, 0.0))
        for _ in range(refinements):
            k = int(np.argmin(values))
            middle = 0.5 * (ends[k] + ends[k + 1])
            reached = float(self._sum(middle, self._inside(middle, middle)))
            if values[k] >= last or values[k] >= reached * (1.0 - 1e-6):  # near a value of the function
                break
            cuts = list(np.linspace(ends[k], ends[k + 1], 5))
            values[k : k + 1] = [self._value(a, b) for a, b in itertools.pairwise(cuts)]
            ends[k : k + 2] = cuts
        lowest = min(*values, last)
        exponent = 2.0 / self.depth * math.log(self.unit)
        return lowest * math.exp(min(exponent, 700.0 - math.log(max(lowest, 1.0))))


def _is_convex(points: Float[np.ndarray, "m 2"]) -> bool:
    """Return True if the corners wind once, counterclockwise, and always turn left."""
    sides = np.roll(points, -1, axis=0) - points
    following = np.roll(sides, -1, axis=0)
    turns = sides[:, 0] * following[:, 1] - sides[:, 1] * following[:, 0]
    angles = np.arctan2(turns, (sides * following).sum(axis=1))
    return bool((turns > 0.0).all()) and abs(float(angles.sum()) - 2.0 * math.pi) < 1.0


def _shrunk(points: Float[np.ndarray, "m 2"], off: Float[np.ndarray, " m"]) -> float:
    """Return the area of the points farther than off_i from side i of a convex polygon, rounded down."""
    sides = np.roll(points, -1, axis=0) - points
    normals = np.stack([-sides[:, 1], sides[:, 0]], axis=1) / np.linalg.norm(sides, axis=1, keepdims=True)
    heights = (normals * points).sum(axis=1) + off
    polygon = points
    for normal, height in zip(normals, heights, strict=True):
        values = polygon @ normal - height
        inside = values > 0.0
        if inside.all():
            continue
        if not inside.any():
            return 0.0
        # Before each corner, insert the point at which its side is crossed, if it is.
        earlier, before = np.roll(values, 1), np.roll(polygon, 1, axis=0)
        crossed = inside != np.roll(inside, 1)
        part = np.where(crossed, earlier / np.where(crossed, earlier - values, 1.0), 0.0)
        points_and_corners = np.stack([before + part[:, None] * (polygon - before), polygon], axis=1)
        polygon = points_and_corners[np.stack([crossed, inside], axis=1)]
    rolled = np.roll(polygon, -1, axis=0)
    area = 0.5 * float((polygon[:, 0] * rolled[:, 1] - polygon[:, 1] * rolled[:, 0]).sum())
    return max(0.0, area - CHARGED * (1.0 + float(np.square(polygon).sum())) * len(polygon))
