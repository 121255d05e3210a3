"""Directions where a dual point is active: h(w) = |Lambda^T sigma(X' w)| may be 1.

The circle is cut at the normals of all samples. Between two neighbouring ones n_1 and n_2 (units here) the pattern is
fixed, Lambda^T sigma(X' w) = A w, and for w = x n_1 + y n_2, x, y >= 0,

    |w|^2 - h(w)^2 = a x^2 + 2 b x y + c y^2,   a = 1 - |A n_1|^2,  c = 1 - |A n_2|^2,  b = n_1 n_2 - (A n_1)(A n_2).

So h <= 1 on the arc if and only if a, c >= 0 and b >= -(a c)^(1/2). If b > 0, h < 1 inside the arc; if a, c > 0 and
b = -(a c)^(1/2), h = 1 in exactly one direction. All of this is decided in whole numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from covopt.answer.uniqueness.plane import Plane, Whole


@dataclass(frozen=True)
class Break:
    """A direction that cuts the circle: `sample` is True if a sample's sign changes there."""

    w: Whole
    sample: bool


@dataclass(frozen=True)
class Arc:
    """The slack below 1 on the arc from `start` to the next break `end`: a, b, c, A (m, 2).

    `peaked`: all samples that are active there are multiples of one end, so that h is largest at that end and nowhere
    inside, whatever Lambda is.
    """

    start: int
    end: int
    a: float
    b: float
    c: float
    A: NDArray[np.float64]
    peaked: bool


def breaks(plane: Plane) -> list[Break]:
    """Return the normals of all samples, both ways, by angle; add more in wide arcs."""
    normals: list[Whole] = []
    for x, y in plane.X:
        divisor = math.gcd(int(x), int(y))
        if divisor:
            n = np.array([-y // divisor, x // divisor], dtype=object)
            normals += [n, -n]
    unique = list({(int(n[0]), int(n[1])): n for n in normals}.values())
    unique.sort(key=_angle)
    if not unique:
        return [Break(np.array(axis, dtype=object), False) for axis in [(1, 0), (0, 1), (-1, 0), (0, -1)]]
    breaks_and_fillers = []
    for k, n in enumerate(unique):
        breaks_and_fillers.append(Break(n, True))
        following = unique[(k + 1) % len(unique)]
        if len(unique) == 2:  # half a turn
            breaks_and_fillers += [Break(_between(n, following, part), False) for part in (0.3, 0.7)]
    return breaks_and_fillers


def _between(n: Whole, following: Whole, part: float) -> Whole:
    """Return a direction part of the way, counterclockwise."""
    start = math.atan2(n[1], n[0])
    width = (math.atan2(following[1], following[0]) - start) % (2.0 * math.pi)
    return rounded(start + part * width)


def rounded(angle: float) -> Whole:
    """Return the direction of an angle, in whole numbers of at most 120 binary digits."""
    return np.array([int(math.ldexp(x, 60)) << 60 for x in (math.cos(angle), math.sin(angle))], dtype=object)


def _angle(w: Whole) -> tuple[bool, float | Fraction]:
    """Return a key that grows with the angle of w in [0, 2 pi): the half turn, and minus the cotangent."""
    x, y = int(w[0]), int(w[1])
    return y < 0 or (y == 0 and x < 0), Fraction(-x, y) if y else -math.inf


class Circle:
    """All arcs of one plane, whatever the dual point."""

    def __init__(self, plane: Plane) -> None:
        self.plane, self.breaks = plane, breaks(plane)
        count = len(self.breaks)
        self.ends = [(k, (k + 1) % count) for k in range(count)]
        self.peaked = [self._is_peaked(k) for k in range(count)]

    def _is_peaked(self, k: int) -> bool:
        slopes = np.where(self.plane.X @ self.inside(k) >= 0, 1, self.plane.steep)
        x, y = self.plane.X[slopes != 0].T
        ends = (self.breaks[end].w for end in self.ends[k])
        return any(bool((x * w[1] == y * w[0]).all()) for w in ends)

    def inside(self, k: int) -> Whole:
        """Return a direction inside the arc after break k."""
        one, other = (self.breaks[j].w for j in self.ends[k])
        # Ends of very different lengths would leave the sum next to one of them.
        return one * max(1, math.isqrt(int(other @ other))) + other * max(1, math.isqrt(int(one @ one)))

    def feasible(self, Lambda: Whole, scale: int) -> int:
        """Return a whole number s >= `scale`, the smallest found, such that Lambda / s has h <= 1."""
        bits = self.plane.feature_bits
        for one, other in self.ends:
            n, m = self.breaks[one].w, self.breaks[other].w
            A = self.plane.linear(Lambda, self.inside(one))
            for w in (n, m):
                scale = max(scale, _root((int((A @ w) @ (A @ w)) // int(w @ w) >> (2 * bits)) + 1))
            a, b, c = _form(A, n, m, (scale << bits) ** 2)
            if b < 0 and b * b > a * c:
                scale = max(scale, self._norm(A))
        return scale

    def bounded(self, Lambda: Whole, scale: int, arcs: list[int]) -> int:
        """Return the same for |A|_op <= 1 on these arcs, also for directions outside them."""
        return max([scale, *(self._norm(self.plane.linear(Lambda, self.inside(start))) for start in arcs)])

    def _norm(self, A: Whole) -> int:
        """Return a whole number at or above |A|_op, for A times 2^feature_bits."""
        G = A.T @ A
        spread = (int(G[0, 0]) - int(G[1, 1])) ** 2 + 4 * int(G[0, 1]) ** 2
        largest_eigenvalue = (int(G[0, 0]) + int(G[1, 1]) + _root(spread)) // 2 + 1
        return _root((largest_eigenvalue >> (2 * self.plane.feature_bits)) + 1)

    def arcs(self, Lambda: Whole, scale: int) -> list[Arc]:
        """Return a, b and c of every arc, rounded once."""
        unit = scale << self.plane.feature_bits
        arcs = []
        for one, other in self.ends:
            n, m = self.breaks[one].w, self.breaks[other].w
            A = self.plane.linear(Lambda, self.inside(one))
            a, b, c = _form(A, n, m, unit * unit)
            nn, mm = int(n @ n) * unit * unit, int(m @ m) * unit * unit
            mixed = math.isqrt(nn * mm)
            entries = np.array([[int(x) / unit for x in row] for row in A])
            arcs.append(Arc(one, other, a / nn, b / mixed, c / mm, entries, self.peaked[one]))
        return arcs


def _form(A: Whole, n: Whole, m: Whole, square: int) -> tuple[int, int, int]:
    """Return a, b and c, times `square`."""
    An, Am = A @ n, A @ m
    return (int(n @ n) * square - int(An @ An), int(n @ m) * square - int(An @ Am), int(m @ m) * square - int(Am @ Am))


def _root(square: int) -> int:
    """Return a whole number whose square is at least `square`."""
    root = math.isqrt(square)
    return root if root * root == square else root + 1
