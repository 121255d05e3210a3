"""An interval for Rank_sigma(K, Ks), the fewest neurons that realise a pair of covariances.

Rank_sigma(K, Ks) is the smallest n with Z (N, n), Z Z^T = K and sigma(Z) sigma(Z)^T + beta^2 11^T = Ks ([JGHG22], eq.
4.1). With S = Ks - beta^2 11^T:

* n >= rank(K) and n >= rank(S); for the ReLU also n >= cp-rank(S), as sigma(Z) >= 0. Where K = S, every z is
  non-negative and Rank_sigma is the cp-rank of K itself;
* n <= N (N + 1) for every pair in the cone ([JGHG22], Prop. 8), and n <= the number of neurons found (`pairs`);
* a pair outside the cone has a separating pair (`separate`), or S has a copositive witness.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike

from covopt.completely_positive import pairs
from covopt.completely_positive.answer import CPRank
from covopt.completely_positive.completely_positive import TOLERANCE, cp_rank
from covopt.completely_positive.connected import Search, Verdict
from covopt.completely_positive.copositive import Witness
from covopt.completely_positive.pairs import SeparatingPair, separate
from covopt.completely_positive.prepared import check_matrix, root_of_unit
from covopt.linalg.rounding import EPS
from covopt.model.activation import Activation
from covopt.model.reading import as_numbers
from covopt.model.scalars import as_number
from covopt.model.wording import FREE
from covopt.runtime.errors import DataError, ProblemError
from covopt.runtime.interrupts import gently
from covopt.runtime.loop import past
from covopt.runtime.options import checked

Matrix = Float[np.ndarray, "N N"]


class Realisable(StrEnum):
    """The verdict on neurons with given covariances."""

    YES = "realisable"
    NO = "not realisable"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class End:
    """One end of the interval, and the reason for it."""

    value: int
    reason: str


@dataclass(frozen=True)
class SigmaRank:
    """An interval for Rank_sigma of a pair.

    Attributes:
        verdict: says if the pair lies in the cone. `realisable` is within the residual; `not realisable` is proved.
        lower, upper: ends of the interval; None if nothing is proved, or the pair is not realisable.
        lower_reason, upper_reason: the reasons for both ends.
        Z: neurons that realise the pair, one in each column (N, n), or None.
        residual: the larger of |K - Z Z^T| and |S - sigma(Z) sigma(Z)^T|, over |K|, or None.
        witness: a separating pair, or a copositive matrix that separates S from the completely positive ones.
        tolerance: the tolerance of the call.
    """

    verdict: Realisable
    lower: int | None = None
    upper: int | None = None
    lower_reason: str | None = None
    upper_reason: str | None = None
    Z: Float[np.ndarray, "N n"] | None = None
    residual: float | None = None
    witness: SeparatingPair | Witness | None = None
    tolerance: float = TOLERANCE


@checked
@gently()
def sigma_rank(
    K: ArrayLike | torch.Tensor,
    Ks: ArrayLike | torch.Tensor,
    *,
    bias: float | str = 0.0,
    activation: str = "relu",
    Z: ArrayLike | torch.Tensor | None = None,
    tolerance: float = TOLERANCE,
    time_limit: float = 60.0,
    seed: int = 0,
) -> SigmaRank:
    """Bound Rank_sigma, the fewest neurons Z that realise a pair (K, Ks) of covariances [JGHG22, eq. 4.1, Prop. 8].

    >>> answer = covopt.sigma_rank(*covopt.covariances_of([[1.0], [-1.0]], bias=0.0))
    >>> answer.lower, answer.upper
    (1, 1)

    Args:
        K, Ks: Z Z^T and sigma(Z) sigma(Z)^T + bias^2 11^T, symmetric (N, N).
        bias: beta >= 0, or "free" (beta = 1); activation: relu, leaky:A or linear.
        Z: neurons (N, n) that realise the pair, such as `Result.representations(1)`; their number, after they are
            merged and reduced by Caratheodory's theorem, is an upper end.
        tolerance: relative error of the covariances.
        time_limit: seconds after which nothing new is tried.
        seed: of the random starts.

    Returns:
        The verdict, both ends of the interval with their reasons, and neurons (N, n) or a witness.

    Raises:
        DataError: a matrix is not finite, symmetric and square, or shapes differ.
        ProblemError: an option is out of range, or Z does not realise the pair.
    """
    deadline = time.perf_counter() + time_limit
    K, S, root, _ = read_pair(K, Ks, bias, tolerance)
    slope = Activation.parse(activation).slope
    neurons = None if Z is None else _neurons(Z, len(S)) / root
    answer = _rank(K, S, slope, neurons, Search(max(tolerance, 4 * EPS), seed, deadline, None))
    return answer if answer.Z is None else replace(answer, Z=answer.Z * root)


def read_pair(
    K: ArrayLike | torch.Tensor, Ks: ArrayLike | torch.Tensor, bias: float | str, tolerance: float
) -> tuple[Matrix, Matrix, float, float]:
    """Return K / u^2, S / u^2, u, a power of two such that squares do not underflow, and beta.

    S is Ks - beta^2 11^T, without exact zeros (for proofs) where beta^2 is rounded.
    """
    first, second = check_matrix(K), check_matrix(Ks)
    if first.shape != second.shape:
        raise DataError(f"K has shape {first.shape} and Ks has {second.shape}; give both for the same samples.")
    beta = 1.0 if isinstance(bias, str) and bias == FREE else as_number(bias, "bias")
    if not (beta >= 0.0 and 0.0 <= as_number(tolerance, "tolerance") < 0.1):
        raise ProblemError("The bias must be at least 0 or 'free', and the tolerance from 0 to below 0.1.")
    S = second - beta**2
    if Fraction(beta) ** 2 != Fraction(beta**2):
        S = np.where(S == 0.0, np.finfo(np.float64).tiny, S)
    root = root_of_unit(first, S)
    return first / root / root, S / root / root, root, beta


def _rank(K: Matrix, S: Matrix, slope: float, Z: Float[np.ndarray, "N n"] | None, search: Search) -> SigmaRank:
    """Bound `sigma_rank` of a pair from `read_pair`."""
    tolerance, seed, deadline = search.tolerance, search.seed, search.deadline
    if Z is not None and (off := pairs.residual(K, S, Z, slope)) > max(tolerance, 1e-12):
        raise ProblemError(
            f"Z does not realise the pair (relative residual {off:.1e}); leave it out, or raise tolerance."
        )
    chain = None
    if slope == 0.0:
        third = max(1e-3, 0.3 * (deadline - time.perf_counter()))
        chain = cp_rank(S, tolerance=tolerance, time_limit=third, seed=seed)
    if chain is not None and chain.verdict is Verdict.NOT:
        return SigmaRank(Realisable.NO, witness=chain.witness, tolerance=tolerance)
    lower = _lower(K, S, chain, tolerance)
    proved = SigmaRank(Realisable.UNDECIDED, lower.value, lower_reason=lower.reason, tolerance=tolerance)
    same = float(np.linalg.norm(K - S)) <= tolerance * float(np.linalg.norm(K))
    if same and chain is not None and chain.B is not None and chain.upper is not None:
        upper = End(chain.upper, f"K = Ks: the cp-rank, {chain.upper_reason}")
        return _realised(proved, upper, chain.B.T, pairs.residual(K, S, chain.B.T, slope))
    neurons = None if Z is None else pairs.fewer(Z, slope)
    if neurons is None:
        neurons = pairs.search(K, S, slope, max(1, lower.value), seed, deadline)
    if neurons is None or pairs.residual(K, S, neurons, slope) > tolerance:
        witness = separate(K, S, slope, tolerance, max(1.0, deadline - time.perf_counter()))
        if witness is not None:
            return SigmaRank(Realisable.NO, witness=witness, tolerance=tolerance)
    neurons = _fewest(K, S, slope, lower.value, neurons, seed, deadline)
    if neurons is None or (off := pairs.residual(K, S, neurons, slope)) > tolerance:
        return proved
    ends = End(neurons.shape[1], "neurons with these covariances"), End(len(S) * (len(S) + 1), "N (N + 1)")
    upper = min(ends, key=lambda end: end.value)
    return _realised(proved, upper, neurons, off)


def _realised(proved: SigmaRank, upper: End, Z: Float[np.ndarray, "N n"], residual: float) -> SigmaRank:
    """Return the answer with these neurons and the upper end."""
    ends = {"upper": upper.value, "upper_reason": upper.reason}
    return replace(proved, verdict=Realisable.YES, Z=Z, residual=residual, **ends)


def _neurons(Z: ArrayLike | torch.Tensor, samples: int) -> Float[np.ndarray, "N n"]:
    """Return Z as a float64 matrix."""
    values = as_numbers(Z, "Z").cpu().numpy().astype(np.float64)
    if values.ndim != 2 or len(values) != samples or not np.isfinite(values).all():
        raise ProblemError(f"Z has shape {values.shape}; give finite pre-activations with {samples} rows.")
    return values


def _lower(K: Matrix, S: Matrix, chain: CPRank | None, tolerance: float) -> End:
    """Return the largest of the cp-rank's lower end and the ranks within the tolerance."""
    ends = []
    for name, A in (("K", K), ("Ks - beta^2 11^T", S)):
        least = (tolerance + 16 * len(A) * EPS) * float(np.linalg.norm(A))
        ends.append(End(int((np.linalg.eigvalsh(A) > least).sum()), f"rank of {name}"))
    if chain is not None and chain.lower is not None:
        ends.append(End(chain.lower, f"cp-rank of Ks - beta^2 11^T: {chain.lower_reason}"))
    return max(ends, key=lambda end: end.value)


def _fewest(
    K: Matrix, S: Matrix, slope: float, lower: int, best: Float[np.ndarray, "N n"] | None, seed: int, deadline: float
) -> Float[np.ndarray, "N fewest"] | None:
    """Search with growing numbers of neurons from the lower end on; return the first found, else `best`."""
    most, n = len(K) * (len(K) + 1), max(1, lower)
    while n <= most and not past(deadline) and (best is None or n < best.shape[1]):
        neurons = pairs.search(K, S, slope, n, seed, deadline)
        if neurons is not None:
            return neurons
        n += 1 + max(0, n - lower - len(K)) // 4  # one by one at first, then in ever larger steps
    return best
