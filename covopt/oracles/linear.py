"""The exact oracle of linear networks, |Lambda^T Xt w|: the top right singular vector."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.oracles.oracle import Answer


class LinearOracle:
    """The oracle of linear networks: all right singular vectors of Lambda^T Xt.

    The values are the singular values, and the largest one is the maximum. `upper_bound` adds `rounding`, relative to
    |Lambda|_F |Xt|_F: far more than the errors of LAPACK and of the matrix product in float64.
    """

    def __init__(self, Xt: Float[Tensor, "N d"], rounding: float = 1e-13) -> None:
        self.Xt, self.rounding = Xt.double(), rounding
        self._size = float(self.Xt.norm())

    def __call__(self, Lambda: Float[Tensor, "N m"], starts: Float[Tensor, "S d"] | None = None) -> Answer:
        """Return the right singular vectors, best first; `starts` is ignored."""
        Lambda = Lambda.double()
        _, s, Vh = torch.linalg.svd(Lambda.T @ self.Xt, full_matrices=False)
        allowance = self.rounding * len(self.Xt) ** 0.5 * float(Lambda.norm()) * self._size
        return Answer(Vh, s, float(s[0]) + allowance)
