"""Matrices of the optimum that are known up to an error: are their columns independent?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from covopt.answer.uniqueness.candidates import ROUNDING, Candidate
from covopt.answer.uniqueness.plane import Plane


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
