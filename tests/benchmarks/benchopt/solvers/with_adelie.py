"""Group lassos over sampled patterns by adelie."""

from collections.abc import Callable

import numpy as np
from benchopt import BaseSolver  # pyright: ignore[reportMissingImports, reportAttributeAccessIssue]

from tests.benchmarks.rival_methods import with_adelie
from tests.benchmarks.rival_methods.callback import CallbackLog


class Solver(BaseSolver):
    """`rival_methods.with_adelie`."""

    name = "adelie"
    sampling_strategy = "callback"
    requirements = ("adelie",)
    parameters = {"gates": [25]}  # noqa: RUF012 - benchopt's way

    def set_objective(self, X: np.ndarray, Y: np.ndarray, lam: float, beta: float) -> None:
        """The problem."""
        self.problem = (X, Y, lam, beta)
        self.weights = {"W1": np.zeros((1, X.shape[1] + 1)), "W2": np.zeros((Y.shape[1], 2))}

    def run(self, callback: Callable[[], bool]) -> None:
        """Until the callback wants no more."""
        with_adelie.run(*self.problem, CallbackLog(self.weights, callback), 0, gates=self.gates)

    def get_result(self) -> dict[str, np.ndarray]:
        """The latest weights."""
        return dict(self.weights)
