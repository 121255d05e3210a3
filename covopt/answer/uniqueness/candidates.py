"""Directions of the neurons of an optimum: all, from one dual point and a tiny gap.

The dual optimum Lambda* is within delta of the dual point Lambda that is known, |(Lambda* - Lambda)^T sigma(X' w)| <=
delta for unit w (`radius`). Neurons of an optimum lie where h* = |Lambda*^T sigma(X' w)| is 1, and a, b and c of every
arc (`arcs.py`) differ from those of Lambda* by at most p = 2 delta + delta^2. So

* the normal of a sample is such a direction only if a <= p there;
* inside an arc with b > p there is none, nor where all active samples are multiples of one end;
* inside an arc with a, c > p there is at most one, and none if (|b| + p)^2 < (a - p)(c - p). It is the eigenvector of
  A*^T A* for the eigenvalue 1, A* being within delta of A, so that it is within the angle whose sine is p / (1 - mu) of
  that of A^T A, mu the smaller eigenvalue.

* on an arc with b, a <= p < c the normal at its start or one direction inside is one, but not both: if a* > 0 the zero
  of a* x^2 + 2 b* x y + c* y^2 is at y / x = -b* / c* <= (p - b) / (c - p), else at y = 0. It stands for both,
  `blurred`, unless the arc on the other side is of that kind, too. The same with a and c exchanged.

What is left are arcs with a, |b|, c <= p, on which h may be 1 throughout: `whole`, and `continuum.py` says more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from covopt.answer.uniqueness.arcs import Arc, Circle
from covopt.answer.uniqueness.plane import Plane, Whole, unit
from covopt.answer.uniqueness.polish import Neurons

ROUNDING = 1e-12
"""What the float64 computations below may be off by, relative: matrices of entries rounded once, of small order."""


@dataclass(frozen=True)
class Candidate:
    """One direction."""

    w: NDArray[np.float64]  # the unit direction (2,)
    d: NDArray[np.float64]  # Lambda^T sigma(X' w), a unit vector (m,)
    phi: NDArray[np.float64]  # sigma(X' w) (N,)
    turned: float  # a bound on how far w may be from that of the optimum
    pulled: float  # the same of d
    inside: bool = False  # True if it lies inside an arc
    blurred: bool = False  # True if it may be there, or at the arc's end


@dataclass(frozen=True)
class Optimum:
    """Estimates that hold for every optimum."""

    delta: float  # as in the module's text
    outputs: NDArray[np.float64]  # what its hidden neurons add to F' (N m,), up to `off` in norm
    off: float


def optimum(plane: Plane, Lambda: Whole, scale: int, excess: float) -> Optimum:
    """Locate every optimum by a network with cost at most `excess` (over t^2) above its bound.

    The bound is that of Lambda / scale. The terms sum_i q_i |F*_i - Y'_i + kappa Lambda_i / q_i|^2 and lam |b* - (beta
    kappa / lam) Lambda^T 1|^2 of its own excess are at most `excess`.
    """
    root = math.sqrt(excess) * (1.0 + ROUNDING)
    X, q = plane.float_inputs, plane.float_shares
    delta = root / float(plane.kappa) * math.sqrt(float(q @ np.square(X).sum(axis=1)))
    bias = float(plane.beta) * math.sqrt(len(X) / float(plane.lam))
    outputs = np.array(plane.hidden_outputs(Lambda, scale), dtype=float).ravel()
    off = root * (1.0 / math.sqrt(q.min()) + bias) + ROUNDING * float(np.linalg.norm(outputs))
    return Optimum(delta * (1.0 + ROUNDING), outputs, off * (1.0 + ROUNDING))


@dataclass(frozen=True)
class Found:
    """The directions and arcs where the neurons of an optimum can be."""

    single: list[Candidate]  # directions, one by one, those at the ends of whole arcs left out
    whole: list[Arc]  # arcs on which h may be 1 throughout, no two of them with a common end


def find(circle: Circle, Lambda: Whole, scale: int, delta: float) -> Found | None:
    """Return all directions of neurons, or None where an arc leaves their number open."""
    arcs, X, p = circle.arcs(Lambda, scale), circle.plane.float_inputs, (2.0 * delta + delta * delta) * (1.0 + ROUNDING)
    single, whole, blur = [], [], [[0.0] for _ in arcs]
    for arc in arcs:
        if arc.b > p or arc.peaked:
            continue
        if max(arc.a, arc.c, -arc.b) <= p:
            whole.append(arc)
        elif max(arc.a, arc.c) <= p:
            return None
        elif min(arc.a, arc.c) <= p:
            blur[arc.start if arc.a <= p else arc.end].append(2.0 * (p - arc.b) / (max(arc.a, arc.c) - p))
        elif (abs(arc.b) + p) ** 2 * (1.0 + ROUNDING) >= (arc.a - p) * (arc.c - p):
            turned = _uncertain_angle(arc, p)
            if turned is None:
                return None
            single.append(_inside(circle, arc, X, delta, turned))
    ends = [end for arc in whole for end in (arc.start, arc.end)]
    if len(set(ends)) < len(ends) or any(len(blur[end]) > 1 for end in ends):
        return None
    for arc, before, turned in zip(arcs, [arcs[-1], *arcs[:-1]], blur, strict=True):
        if arc.a > p or arc.start in ends:
            continue
        if len(turned) > 2 or max(turned) > 0.5:
            return None
        w, steep = unit(circle.breaks[arc.start].w), max(float(np.linalg.norm(arc.A)), float(np.linalg.norm(before.A)))
        at = _candidate(circle, w, arc, X, (delta, max(turned), steep))
        single.append(replace(at, blurred=len(turned) > 1))
    return Found(single, whole)


def _uncertain_angle(arc: Arc, p: float) -> float | None:
    """Return an angle's largest error inside an arc, or None if h is nearly constant."""
    smaller = float(np.linalg.eigvalsh(arc.A.T @ arc.A)[0])
    return 2.0 * (p + ROUNDING) / (1.0 - smaller) if 1.0 - smaller > 1e-6 and arc.b < -p else None


def _inside(circle: Circle, arc: Arc, X: NDArray[np.float64], delta: float, turned: float) -> Candidate:
    w = np.linalg.eigh(arc.A.T @ arc.A)[1][:, 1]
    w = w * (1.0 if w @ unit(circle.inside(arc.start)) > 0 else -1.0)
    return replace(_candidate(circle, w, arc, X, (delta, turned, float(np.linalg.norm(arc.A)))), inside=True)


def _candidate(
    circle: Circle, w: NDArray[np.float64], arc: Arc, X: NDArray[np.float64], off: tuple[float, float, float]
) -> Candidate:
    """Return a direction on the closed arc; `off` is delta, its angle's error, and |A| nearby."""
    delta, turned, steep = off
    Z = X @ w
    phi = np.where(Z >= 0.0, Z, circle.plane.slope * Z)
    # The entries of A may be large where they cancel.
    return Candidate(w, arc.A @ w, phi, turned + ROUNDING, delta + (1.0 + steep) * (turned + ROUNDING))


def amounts(neurons: Neurons, candidates: list[Candidate]) -> NDArray[np.float64] | None:
    """Return sizes c_k >= 0 of the neurons at each candidate, or None; no proof rests on them."""
    total = np.zeros(len(candidates))
    W = np.stack([k.w for k in candidates]) if candidates else np.full((1, 2), np.inf)
    for w, size in zip(*units(neurons), strict=True):
        away = np.linalg.norm(W - w, axis=1)
        if away.min() > 1e-6:  # it is none of the candidates
            return None
        total[away.argmin()] += size
    return total


def units(neurons: Neurons) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the unit directions of neurons (K, 2), and their sizes |w_k| |v_k| (K,)."""
    W = np.array([unit(w) for w in neurons.directions]).reshape(-1, 2)
    return W, np.linalg.norm(neurons.amounts, axis=1) if len(W) else np.zeros(0)


@dataclass(frozen=True)
class Columns:
    """A matrix of the optimum, known up to `off` in the Frobenius norm."""

    T: NDArray[np.float64]
    off: float

    @cached_property
    def smallest(self) -> float:
        """0 where there are more columns than rows, which are never independent."""
        return float(np.linalg.svd(self.T, compute_uv=False)[-1]) if self.T.shape[1] <= self.T.shape[0] else 0.0

    @property
    def independent(self) -> bool:
        """True if the columns of the optimum's matrix are proved to be linearly independent."""
        return self.smallest > 2.0 * self.off

    def distance(self, x: NDArray[np.float64], right: NDArray[np.float64], off: float) -> float:
        """Bound |x* - x| if T* x* is within `off` of `right`, for independent columns."""
        size = float(np.linalg.norm(x))
        rounding = ROUNDING * (float(np.linalg.norm(self.T)) * size + float(np.linalg.norm(right)))
        missed = float(np.linalg.norm(self.T @ x - right)) + off + self.off * size + rounding
        return missed / (self.smallest - self.off)


def columns(parts: list[NDArray], candidates: list[Candidate], steep: float) -> Columns:
    """Return the columns p d^T of p(w) for each candidate; p turns `steep` times as fast as w."""
    T = np.stack([np.outer(p, k.d).ravel() for p, k in zip(parts, candidates, strict=True)], axis=1)
    wrong = [steep * k.turned + float(np.linalg.norm(p)) * k.pulled for p, k in zip(parts, candidates, strict=True)]
    return Columns(T, math.hypot(*wrong) + ROUNDING * float(np.linalg.norm(T)))


def features(plane: Plane, candidates: list[Candidate]) -> Columns:
    """Return what the neurons of these directions add to F', by size."""
    return columns([k.phi for k in candidates], candidates, float(np.linalg.norm(plane.float_inputs)))
