"""Arcs on which h is 1 throughout: whole cones of neurons that an optimum can have.

On such an arc with the unit ends n_1 and n_2, sigma(X' w) = D X' w and Lambda^T sigma(X' w) = A w. Consider the convex
problem in which the arc has a matrix G (2, m) in the place of its neurons,

    F' = ... + D X' G,   at the cost 2 kappa |G|_*,   |G|_* the nuclear norm.

Neurons of the arc are such a G at no higher cost, so that its minimum is at most that of the problem; and a dual point
with h <= 1 and |A|_op <= 1 bounds it from below. At its minimum <A^T, G> = |G|_*, hence G = H A^T, H = (G G^T)^(1/2):
A keeps the length of what H does not send to 0. That is linear in H. So where (c, H) -> F' is injective, with something
to spare, H is known up to something. If

    H = alpha n_1 n_1^T + beta n_2 n_2^T + gamma (n_1 n_2^T + n_2 n_1^T),   gamma > 0,   alpha beta > gamma^2,

H is a sum of w w^T of the arc: completely positive in the coordinates of the ends. So the minima agree, and as H is
inside the cone of all such sums, it is one in infinitely many ways: each is an optimum. Two neurons are enough, at an
end and at the direction of (gamma, beta) or of (alpha, gamma), and one is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from covopt.answer.uniqueness.arcs import Arc, Circle
from covopt.answer.uniqueness.candidates import ROUNDING, Columns, Found, Optimum, features, units
from covopt.answer.uniqueness.plane import unit
from covopt.answer.uniqueness.polish import Neurons
from covopt.answer.uniqueness.uniqueness import SEVERAL, Examined, Uniqueness
from covopt.runtime.errors import counted


@dataclass(frozen=True)
class Cone:
    """One whole arc."""

    ends: NDArray[np.float64]  # n_1 and n_2 in columns (2, 2)
    phi: NDArray[np.float64]  # D X' n_1 and D X' n_2 in columns (N, 2)
    d: NDArray[np.float64]  # A n_1 and A n_2 (m, 2)

    @staticmethod
    def of(circle: Circle, arc: Arc) -> Cone:
        """Return the cone of an arc; as sigma is continuous, its ends have the patterns inside."""
        ends = np.stack([unit(circle.breaks[k].w) for k in (arc.start, arc.end)], axis=1)
        Z = circle.plane.float_inputs @ ends
        return Cone(ends, np.where(Z >= 0.0, Z, circle.plane.slope * Z), arc.A @ ends)

    @property
    def columns(self) -> NDArray[np.float64]:
        """Return what alpha, beta and gamma add to F' (N m, 3)."""
        (one, other), (d, e) = self.phi.T, self.d.T
        parts = (np.outer(one, d), np.outer(other, e), np.outer(one, e) + np.outer(other, d))
        return np.stack([part.ravel() for part in parts], axis=1).astype(np.float64)

    def coordinates(self, w: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (x, y) with w = x n_1 + y n_2."""
        return np.linalg.solve(self.ends, w).astype(np.float64)

    def moments(self, W: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (alpha, beta, gamma) of sum_k sizes_k w_k w_k^T."""
        x, y = self.coordinates(W.T)
        return np.array([sizes @ (x * x), sizes @ (y * y), sizes @ (x * y)])

    def spread(self, moments: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return four neurons, directions (4, 2) and outputs |w| v (4, m), with these moments."""
        alpha, beta, gamma = moments
        pairs = np.array([[1.0, 0.0], [gamma, beta], [0.0, 1.0], [alpha, gamma]])
        sizes = 0.5 * np.array([alpha - gamma**2 / beta, 1.0 / beta, beta - gamma**2 / alpha, 1.0 / alpha])
        W = pairs @ self.ends.T
        lengths = np.linalg.norm(W, axis=1, keepdims=True)
        return W / lengths, sizes[:, None] * lengths * (pairs @ self.d.T)


def continuum(circle: Circle, neurons: Neurons, candidates: Found, estimate: Optimum) -> Examined | None:
    """Prove that infinitely many networks are optimal, by neurons next to an optimum; return None without a proof.

    Candidates are where neurons can be, from a dual point with |A|_op <= 1 on all whole arcs. The estimate is of every
    optimum, and of every minimiser of the convex problem.
    """
    cones = [Cone.of(circle, arc) for arc in candidates.whole]
    W, sizes = units(neurons)
    moments, is_single = [], np.full(len(W), True)
    for cone in cones:
        within = is_single & (cone.coordinates(W.T) >= -1e-9).all(axis=0)  # or barely beyond its end
        is_single = is_single & ~within
        moments.append(cone.moments(W[within], sizes[within]))
    c = np.zeros(len(candidates.single))
    for w, size in zip(W[is_single], sizes[is_single], strict=True):
        if len(c):  # what belongs to none shows in the distance below
            c[np.argmax([w @ k.w for k in candidates.single])] += size
    matrix = _columns(circle, candidates, cones, estimate.delta)
    if not matrix.independent:
        return None
    off = matrix.distance(np.concatenate([c, *moments]), estimate.outputs, estimate.off)
    for alpha, beta, gamma in moments:
        inside = min(alpha, beta) > off and (alpha - off) * (beta - off) > (gamma + off) ** 2 * (1.0 + ROUNDING)
        if not inside or gamma <= off:
            return None
    spread = [cone.spread(cone_moments) for cone, cone_moments in zip(cones, moments, strict=True)]
    directions = np.concatenate([*([k.w] for k in candidates.single), *(w for w, _ in spread)])
    alone = [[size * k.d] for size, k in zip(c, candidates.single, strict=True)]
    outputs = np.concatenate([*alone, *(v for _, v in spread)])
    singles, pairs = len(c), 2 * len(cones)
    verdict = Uniqueness(
        SEVERAL,
        f"On {counted(len(cones), 'arc')} of directions every neuron can be part of an optimum, and those of an optimum"
        " are not determined: two or more do the same.",
        fewest=(int((c > off).sum()) + pairs, singles + pairs),
        independence=matrix.smallest,
    )
    plane = circle.plane
    bias, _ = plane.residuals(neurons.directions, neurons.V)
    return Examined(verdict, directions, outputs / float(plane.units), np.array([float(b * plane.size) for b in bias]))


def _columns(circle: Circle, candidates: Found, cones: list[Cone], delta: float) -> Columns:
    """Return the map (c, H) -> F'."""
    parts, off = [k.columns for k in cones], [delta * math.sqrt(3.0) * float(np.linalg.norm(k.phi)) for k in cones]
    if candidates.single:
        singles = features(circle.plane, candidates.single)
        parts, off = [singles.T, *parts], [singles.off, *off]
    T = np.hstack(parts)
    return Columns(T, math.hypot(*off) + ROUNDING * float(np.linalg.norm(T)))
