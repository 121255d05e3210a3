"""covopt, by rounds."""

import numpy as np
from benchopt import BaseSolver  # pyright: ignore[reportMissingImports, reportAttributeAccessIssue]

import covopt


class Solver(BaseSolver):
    """Frank-Wolfe over the covariances."""

    name = "covopt"
    sampling_strategy = "iteration"
    requirements = ("covopt",)

    def set_objective(self, X: np.ndarray, Y: np.ndarray, lam: float, beta: float) -> None:
        """The problem."""
        self.problem, self.options = (X, Y), {"lam": lam, "bias": beta, "certify": "none"}

    def run(self, n_iter: int) -> None:
        """So many rounds."""
        self.weights = covopt.solve(*self.problem, max_iterations=n_iter, **self.options).weights

    def get_result(self) -> dict[str, np.ndarray]:
        """The weights."""
        return {"W1": self.weights[0].numpy(), "W2": self.weights[1].numpy()}
