"""The group lassos of `sampled` by skglm (Bertrand et al. 2022), working sets and block coordinate descent.

Its loss is half of ours, and `alpha` multiplies the sum of the norms.
"""

from __future__ import annotations

import numpy as np
from skglm import GroupLasso, MultiTaskLasso  # pyright: ignore[reportMissingImports]

from tests.benchmarks.rival_methods.common import Question
from tests.benchmarks.rival_methods.log import Log
from tests.benchmarks.rival_methods.sampled import rounds

TOLERANCE = 1e-6


def run(question: Question, log: Log, seed: int, *, gates: int = 25, method: str = "") -> None:
    """Rounds of more and more patterns until the time is up."""
    rounds(question, log, seed, _gated, _tasks, gates)


def _gated(A: np.ndarray, y: np.ndarray, d: int, lam: float) -> np.ndarray:
    return GroupLasso(groups=d, alpha=lam, fit_intercept=False, tol=TOLERANCE).fit(A, y).coef_


def _tasks(H: np.ndarray, Y: np.ndarray, lam: float) -> np.ndarray:
    return MultiTaskLasso(alpha=lam, fit_intercept=False, tol=TOLERANCE).fit(H, Y).coef_.reshape(Y.shape[1], -1).T
