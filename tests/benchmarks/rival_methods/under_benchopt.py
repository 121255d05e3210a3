"""A rival as a solver of benchopt: the question it is given, and the latest weights, by a callback."""

from collections.abc import Callable

import numpy as np
from benchopt import BaseSolver  # pyright: ignore[reportMissingImports, reportAttributeAccessIssue]

from tests.benchmarks.rival_methods.callback import CallbackLog
from tests.benchmarks.rival_methods.common import Question


class RivalSolver(BaseSolver):
    """Runs `rival`, which is the `run` of a method, with the solver's `parameters`."""

    sampling_strategy = "callback"
    rival: Callable[..., None]

    def set_objective(self, X: np.ndarray, Y: np.ndarray, lam: float, beta: float) -> None:
        """The question."""
        self.question = Question(X, Y, lam, beta)
        self.weights = {"W1": np.zeros((1, X.shape[1] + 1)), "W2": np.zeros((Y.shape[1], 2))}

    def run(self, callback: Callable[[], bool]) -> None:
        """Until the callback wants no more."""
        options = {name: getattr(self, name) for name in self.parameters}
        self.rival(self.question, CallbackLog(self.weights, callback), 0, **options)

    def get_result(self) -> dict[str, np.ndarray]:
        """The latest weights."""
        return dict(self.weights)
