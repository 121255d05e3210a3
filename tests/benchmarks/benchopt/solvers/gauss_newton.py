"""The structure-guided Gauss-Newton method."""

from collections.abc import Callable

import numpy as np
from benchopt import BaseSolver  # pyright: ignore[reportMissingImports, reportAttributeAccessIssue]

from tests.benchmarks.rival_methods import gauss_newton
from tests.benchmarks.rival_methods.callback import CallbackLog


class Solver(BaseSolver):
    """`rival_methods.gauss_newton`."""

    name = "gauss-newton"
    sampling_strategy = "callback"
    requirements = ("numpy",)
    parameters = {"width": [60]}  # noqa: RUF012 - benchopt's way

    def set_objective(self, X: np.ndarray, Y: np.ndarray, lam: float, beta: float) -> None:
        """The problem."""
        self.problem = (X, Y, lam, beta)
        self.weights = {"W1": np.zeros((1, X.shape[1] + 1)), "W2": np.zeros((Y.shape[1], 2))}

    def run(self, callback: Callable[[], bool]) -> None:
        """Until the callback wants no more."""
        gauss_newton.run(*self.problem, CallbackLog(self.weights, callback), 0, width=self.width)

    def get_result(self) -> dict[str, np.ndarray]:
        """The latest weights."""
        return dict(self.weights)
