"""The objective of every solver: the penalised fit of a two-layer ReLU network."""

import numpy as np
from benchopt import BaseObjective  # pyright: ignore[reportMissingImports, reportAttributeAccessIssue]

from tests.benchmarks.objective import objective


class Objective(BaseObjective):
    """(1/N) |F - Y|^2 + lam (|W_1|^2 + |W_2|^2)."""

    name = "Two-layer ReLU representation cost"
    min_benchopt_version = "1.6"
    requirements = ("numpy",)
    parameters = {"lam": [1e-3]}  # noqa: RUF012 - benchopt's way

    def set_data(self, X: np.ndarray, Y: np.ndarray, beta: float) -> None:
        """Inputs (N, n_0), targets (N, n_L) and the size of the bias neuron."""
        self.X, self.Y, self.beta = X, Y, beta

    def evaluate_result(self, W1: np.ndarray, W2: np.ndarray) -> dict[str, float]:
        """Cost, fit and norm of the weights (n, n_0 + 1) and (n_L, n + 1)."""
        told = objective(self.X, self.Y, [W1, W2], lam=self.lam, beta=self.beta, slope=0.0)
        return {"value": told.cost, "fit": told.fit, "norm": told.norm, "width": len(W1)}

    def get_one_result(self) -> dict[str, np.ndarray]:
        """The zero network."""
        return {"W1": np.zeros((1, self.X.shape[1] + 1)), "W2": np.zeros((self.Y.shape[1], 2))}

    def get_objective(self) -> dict[str, object]:
        """What solvers are given."""
        return {"X": self.X, "Y": self.Y, "lam": self.lam, "beta": self.beta}
