"""The group lassos of `sampled` by adelie (Yang, Hastie 2024), block coordinate descent.

Its loss is half of ours, for several outputs divided by their number, and `lmda` multiplies the sum of the norms.
"""

from __future__ import annotations

import adelie  # pyright: ignore[reportMissingImports]
import numpy as np

from tests.benchmarks.rival_methods.common import Question
from tests.benchmarks.rival_methods.log import Log
from tests.benchmarks.rival_methods.sampled import rounds

TOLERANCE = 1e-9
SETTINGS = {"intercept": False, "progress_bar": False, "early_exit": False, "tol": TOLERANCE}


def run(question: Question, log: Log, seed: int, *, gates: int = 25, method: str = "") -> None:
    """Rounds of more and more patterns until the time is up."""
    rounds(question, log, seed, _gated, _tasks, gates)


def _gated(A: np.ndarray, y: np.ndarray, d: int, lam: float) -> np.ndarray:
    groups = np.arange(0, A.shape[1], d)
    loss = adelie.glm.gaussian(y=y)
    state = adelie.grpnet(X=A, glm=loss, groups=groups, penalty=np.ones(len(groups)), lmda_path=[lam], **SETTINGS)
    return state.betas.toarray()[-1]


def _tasks(H: np.ndarray, Y: np.ndarray, lam: float) -> np.ndarray:
    if Y.shape[1] == 1:
        return _gated(H, np.ascontiguousarray(Y[:, 0]), 1, lam)[:, None]
    loss = adelie.glm.multigaussian(Y)
    path = [lam / Y.shape[1]]
    state = adelie.grpnet(X=H, glm=loss, penalty=np.ones(H.shape[1]), lmda_path=path, **SETTINGS)
    return state.betas.toarray()[-1].reshape(-1, Y.shape[1])
