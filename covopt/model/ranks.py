"""Four measures of the rank of weights, and the rank that a decayed start gives.

See MATH.md section 9. Singular values are s_1 >= s_2 >= ..., |W|_F^2 = sum s_i^2. All sums of squares are of numbers
divided by s_1, so that float64 holds them for weights of any size. W = 0 has rank 0 in every measure.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.psd import RANK_RULE
from covopt.linalg.rounding import largest
from covopt.model.problem import Problem
from covopt.model.weights import Weights, inputs_from, outputs_above, preactivations
from covopt.runtime.errors import ProblemError

Values = Float[Tensor, " r"]

TOLERANCE = 1e-3  # tau of the threshold rank


def frobenius(values: Float[Tensor, "*shape"]) -> float:
    """Return |W|_F from the singular values of W, or from its entries."""
    size = largest(values)
    return size * float((values / size).norm()) if size > 0.0 else 0.0


def check_tolerance(value: float) -> None:
    """Raise a ProblemError unless this is a tolerance of the threshold rank."""
    if not 0.0 < value < 1.0:
        raise ProblemError(f"The tolerance of a rank is {value:g}; give a number above 0 and below 1.")


def threshold_rank(values: Values, tolerance: float) -> int:
    """Return rank_tau(W) = #{i : s_i > tau |W|_F}, and 0 for W = 0.

    Source: [GP22], 4.1, with the norm and the default of the authors' code.
    """
    return int((values > tolerance * frobenius(values)).sum())


def stable_rank(values: Values) -> float:
    """Return |W|_F^2 / s_1^2, from 1 to the rank, and 0 for W = 0."""
    size = largest(values)
    return float((values / size).square().sum()) if size > 0.0 else 0.0


def tail(values: Values, r: int) -> float:
    """Return tail_r(W) = (sum_{i > r} s_i^2)^(1/2), the distance |W - M|_F to matrices M of rank <= r.

    Source: Eckart, Young, 1936.
    """
    return frobenius(values.sort(descending=True).values[r:])


def predicted_rank(start_values: Values, retained: float, norm: float, tolerance: float) -> int:
    """Predict the rank of W_T as #{i : |retained| s_i(W_0) > tau |W_T|_F}, from the initial weights alone.

    `retained` is their retained fraction, as `Decay.kept`, and `norm` is |W_T|_F; W_T = 0 has rank 0.

    Source: P6 of MATH.md section 9.
    """
    return int((abs(retained) * start_values > tolerance * norm).sum()) if norm > 0.0 else 0


def functional_ranks(problem: Problem, weights: Weights, rise: float = 0.01) -> list[int]:
    """Return for each layer the smallest r whose rank-r replacement raises C by at most `rise` C.

    One layer is replaced at a time, by its best approximation of rank r. C_l(r) is the loss without its penalty after
    W_l is replaced (truncated singular value decomposition). It need not fall with r, so that r = 0, 1, 2, ... are
    tried one after another, and the result is the first with C_l(r) <= (1 + rise) C; later ones may be worse again.
    Directions that covopt's rule for numerical rank drops count as zero: the result is at most that rank, also where C
    = 0 or rounding. For `interpolate` a replacement counts where its misfit is allowed. C must be finite.
    """
    Z = preactivations(problem, weights)
    allowed = (1.0 + rise) * float(problem.loss_at(Z[-1]))
    if not math.isfinite(allowed):
        raise ProblemError("The network's loss on these data is not finite; check its weights and the scale of X.")
    inputs = inputs_from(problem, Z)
    return [_functional_rank(problem, weights, layer, inputs[layer - 1], allowed) for layer in range(1, len(Z) + 1)]


def _functional_rank(problem: Problem, weights: Weights, layer: int, Zs: Float[Tensor, "N d"], allowed: float) -> int:
    U, s, Vt = torch.linalg.svd(weights[layer - 1], full_matrices=False)
    most = int(RANK_RULE.keeps(s).sum())
    Z = Zs.new_zeros(len(Zs), len(U))
    for r in range(most):
        if r > 0:
            Z = Z + torch.outer(Zs @ Vt[r - 1], s[r - 1] * U[:, r - 1])
        F = outputs_above(problem, weights, layer, Z)
        if problem.interpolates:
            enough = problem.allows(float((F - problem.Y).abs().max()))
        else:
            enough = float(problem.loss_at(F)) <= allowed
        if enough:
            return r
    return most
