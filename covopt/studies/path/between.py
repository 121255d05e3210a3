"""Mix networks and dual points of neighbouring lam in two layers, without a solver.

The problem is convex over mixtures of neurons, and so is the set of dual feasible points, which does not depend on lam.

* Networks p and q, the neurons of p scaled by (1 - t)^(1/2) in both layers, those of q by t^(1/2), the output biases
  mixed: F = (1 - t) F_p + t F_q costs C(F) + lam ((1 - t) |W_p|^2 + t |W_q|^2) or less, |b|^2 being convex. One more
  line for each t.
* max_w h(w) of (1 - t) Lambda_p + t Lambda_q is at most (1 - t) M_p + t M_q, whatever the lam at which these maxima
  were proved. D_lam of the mixture, for the best t, is a bound at every lam, with the proofs of p and of q.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from covopt.answer.result import DualPoint
from covopt.certify.dual import dual_bound
from covopt.model.problem import Problem

# Number of mixtures of two networks, and of values of lam between two dual points at which a mixture is evaluated.
MIXTURES, PLACES = 7, 7
# Evaluations in the search for the best mixture of two dual points.
EVALUATIONS = 12
GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)


Feasible = tuple[float, DualPoint, str]
"""The lam for which a dual point was found, the point, and the kind of the proof of its maximum."""


def mixed_lines(problem: Problem, networks: list[tuple[Float[Tensor, "N m"], float]]) -> Iterator[tuple[float, float]]:
    """Yield (fit, norm) of mixtures of neighbours; networks are given by (F, norm)."""
    for (F, norm), (G, other) in pairwise(networks):
        for t in np.arange(1, MIXTURES + 1) / (MIXTURES + 1):
            fit = float(problem.loss_at((1.0 - t) * F + t * G))
            yield fit, (1.0 - t) * norm + t * other


def mixed_bounds(problem: Problem, points: list[Feasible]) -> Iterator[tuple[float, float, str]]:
    """Yield (lam, lower, kind) between neighbouring dual points, sorted from the largest lam."""
    for (high, p, kind), (low, q, other) in pairwise(points):
        for lam in np.geomspace(high, low, PLACES + 2)[1:-1].tolist():
            yield lam, _best(replace(problem, lam=lam), p, q), _weaker(kind, other)


def _best(problem: Problem, p: DualPoint, q: DualPoint) -> float:
    """Return the best D over mixtures of p and q; it has one peak, D being concave there."""

    def bound(t: float) -> float:
        mixed = torch.from_numpy((1.0 - t) * p.Lambda + t * q.Lambda)
        return dual_bound(problem, mixed, ((1.0 - t) * p.maximum + t * q.maximum) * (1.0 + 2.0**-50)).lower

    return max(bound(0.0), bound(1.0), _peak(bound))


def _peak(f: Callable[[float], float]) -> float:
    """Return the largest value that a golden-section search on [0, 1] sees."""
    low, high = 0.0, 1.0
    a, b = 1.0 - GOLDEN, GOLDEN
    at_a, at_b = f(a), f(b)
    best = max(at_a, at_b)
    for _ in range(EVALUATIONS - 2):
        if at_a < at_b:
            low, a, at_a = a, b, at_b
            b = low + GOLDEN * (high - low)
            at_b = f(b)
        else:
            high, b, at_b = b, a, at_a
            a = high - GOLDEN * (high - low)
            at_a = f(a)
        best = max(best, at_a, at_b)
    return best


def _weaker(kind: str, other: str) -> str:
    """Name the kind of a bound that needs two proofs: exact with another kind is that kind."""
    return other if kind == "exact" else kind
