"""Membership of the cone S of pairs of covariances [JGHG22, section 3].

    S = cone { (z z^T, sigma(z) sigma(z)^T) : z in R^N } + (0, beta^2 11^T)

A pair (K, Ks) lies in S if neurons Z (N, n) have K = Z Z^T and Ks = sigma(Z) sigma(Z)^T + beta^2 11^T. Inside S, such
a Z is sought; outside, a linear function that separates the pair from S, which can be checked from its arrays alone.
Deciding membership is hard in general, as for completely positive matrices: the pairs with K = Ks and beta = 0.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike

from covopt.completely_positive import pairs
from covopt.completely_positive.completely_positive import TOLERANCE, cp_rank
from covopt.completely_positive.connected import Verdict
from covopt.completely_positive.copositive import Witness
from covopt.completely_positive.pairs import SeparatingPair, separate
from covopt.completely_positive.sigma_rank import Realisable, read_pair
from covopt.linalg.rounding import EPS
from covopt.model.activation import Activation
from covopt.runtime.errors import ProblemError
from covopt.runtime.interrupts import gently
from covopt.runtime.loop import past
from covopt.runtime.options import checked

Matrix = Float[np.ndarray, "N N"]


@dataclass(frozen=True)
class Membership:
    """The verdict on a pair of covariances in the cone S, with neurons or a witness.

    Attributes:
        verdict: `realisable` within the residual; `not realisable` (proved); or `undecided`.
        Z: neurons that realise the pair, one in each column (N, n), or None.
        residual: the larger of |K - Z Z^T| and |S - sigma(Z) sigma(Z)^T|, over |K|, or None; S = Ks - beta^2 11^T.
        witness: separates the pair from S, or None: a `SeparatingPair`, or a copositive matrix that separates
            Ks - beta^2 11^T from the completely positive ones.
    """

    verdict: Realisable
    Z: Float[np.ndarray, "N n"] | None = None
    residual: float | None = None
    witness: SeparatingPair | Witness | None = None

    def __bool__(self) -> bool:
        """Return True if the pair is known to lie in S."""
        return self.verdict is Realisable.YES


@checked
@gently()
def in_cone(
    K: ArrayLike | torch.Tensor,
    Ks: ArrayLike | torch.Tensor,
    *,
    bias: float | str = 1.0,
    activation: str = "relu",
    tolerance: float = TOLERANCE,
    time_limit: float = 10.0,
    seed: int = 0,
) -> Membership:
    """Decide whether K = Z Z^T, Ks = sigma(Z) sigma(Z)^T + beta^2 11^T for some neurons Z [JGHG22, section 3].

    >>> K, Ks = covopt.covariances_of([[1.0], [-1.0]])
    >>> answer = covopt.in_cone(K, Ks)
    >>> bool(answer), str(answer.verdict), bool(covopt.in_cone(Ks, K))
    (True, 'realisable', False)

    Args:
        K: covariance of the pre-activations (N, N), symmetric.
        Ks: covariance of the activations with their bias column (N, N), symmetric.
        bias: amount of bias beta >= 0, or "free" (beta = 1); Ks contains beta^2 11^T.
        activation: relu, leaky:A or linear.
        tolerance: relative error of the covariances; seed: of the random starts of the search.
        time_limit: seconds after which nothing new is tried.

    Returns:
        The verdict with neurons (N, n) or a witness; its truth value is True if the pair is found to be in the cone.

    Raises:
        DataError: a matrix is not finite, symmetric and square, or the shapes differ.
        ProblemError: an option is out of range.
    """
    deadline = time.perf_counter() + time_limit
    K, S, root, beta = read_pair(K, Ks, bias, tolerance)
    slope, largest = Activation.parse(activation).slope, float(np.abs(S).max()) * root**2
    # Ks = beta^2 11^T + S loses the digits of S that are small beside beta^2.
    accuracy = max(tolerance, 4 * EPS, EPS * beta**2 / max(largest, np.finfo(np.float64).tiny))
    answer = _decide(K, S, slope, accuracy, seed, deadline)
    return answer if answer.Z is None else Membership(answer.verdict, answer.Z * root, answer.residual)


def representations_of(
    K: ArrayLike | torch.Tensor,
    Ks: ArrayLike | torch.Tensor,
    *,
    bias: float | str = 1.0,
    activation: str = "relu",
    tolerance: float = TOLERANCE,
    time_limit: float = 10.0,
    seed: int = 0,
) -> Float[np.ndarray, "N n"]:
    """Return representations Z of a layer with given covariances, as `covariances_of` has them [JGHG22, Prop. 3].

    >>> Z = covopt.representations_of(*covopt.covariances_of([[1.0], [-1.0]]))
    >>> abs(Z).round(6).tolist()
    [[1.0], [1.0]]

    Args:
        K, Ks: the pair of covariances, both (N, N).
        bias, activation, tolerance, time_limit, seed: as for `in_cone`.

    Returns:
        Z (N, n), one neuron in each column; other neurons may have the same covariances.

    Raises:
        DataError: as `in_cone`.
        ProblemError: the pair is not in the cone, or no neurons were found in the time.
    """
    answer = in_cone(K, Ks, bias=bias, activation=activation, tolerance=tolerance, time_limit=time_limit, seed=seed)
    if answer.Z is not None:
        return answer.Z
    if answer.verdict is Realisable.NO:
        raise ProblemError("No neurons have these covariances (proved); see covopt.in_cone for the witness.")
    raise ProblemError(
        f"No neurons with these covariances were found in {time_limit:g} seconds; give a longer time limit."
    )


def _decide(K: Matrix, S: Matrix, slope: float, tolerance: float, seed: int, deadline: float) -> Membership:
    """Decide `in_cone` for a pair from `read_pair`."""
    if not K.any() and not S.any():
        return Membership(Realisable.YES, np.zeros((len(K), 0)), 0.0)
    first_search = 0.3  # seconds: most pairs inside the cone take less, and a witness against one outside comes next
    Z = _neurons(K, S, slope, tolerance, seed, min(deadline, time.perf_counter() + first_search))
    if Z is None:
        witness = separate(K, S, slope, tolerance, max(1.0, deadline - time.perf_counter()))
        if witness is None and slope == 0.0:
            chain = cp_rank(S, tolerance=tolerance, time_limit=max(1e-3, 0.5 * (deadline - time.perf_counter())))
            witness = chain.witness if chain.verdict is Verdict.NOT else None
        if witness is not None:
            return Membership(Realisable.NO, witness=witness)
        Z = _neurons(K, S, slope, tolerance, seed + 1, deadline)
    if Z is None:
        return Membership(Realisable.UNDECIDED)
    return Membership(Realisable.YES, Z, pairs.residual(K, S, Z, slope))


def _neurons(
    K: Matrix, S: Matrix, slope: float, tolerance: float, seed: int, deadline: float
) -> Float[np.ndarray, "N n"] | None:
    """Return at most N (N + 1) neurons that realise the pair within the tolerance; or None."""
    n, most = max(1, *(int(np.linalg.matrix_rank(A, hermitian=True)) for A in (K, S))), len(K) * (len(K) + 1)
    while not past(deadline):
        Z = pairs.search(K, S, slope, n, seed, deadline)
        if Z is not None and pairs.residual(K, S, Z, slope) <= tolerance:
            return Z
        if n == most:
            return None
        n = min(n + 1 + n // 2, most)
    return None
