"""The exact oracle for some data: the circle for rank up to two, the sphere for rank three."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from covopt.linalg.psd import RANK_RULE, RankRule
from covopt.model.activation import Activation
from covopt.model.problem import Problem, with_bias
from covopt.model.spread import ALONE
from covopt.oracles.arrangement import ArrangementOracle, has_rank_at_most
from covopt.oracles.sphere import SphereOracle

# More great circles than this are too many for their table of crossings (150 bytes for each pair).
MOST_CIRCLES = 1500


def exact_oracle(
    Xt: Float[Tensor, "N d"], activation: Activation, rule: RankRule = RANK_RULE, most_circles: int = MOST_CIRCLES
) -> ArrangementOracle | SphereOracle | None:
    """Return an exact oracle for rank <= 2, or 3 with up to `most_circles` rows; else None."""
    if has_rank_at_most(Xt, 2, rule):
        return ArrangementOracle(Xt, activation, rule)
    return SphereOracle(Xt, activation, rule) if has_exact_oracle(Xt, rule, most_circles) else None


def inputs_have_rank_at_most(problem: Problem, most: int) -> bool:
    """Return `has_rank_at_most` of Xt, assembled only where its first rows allow it."""
    first = with_bias(problem.X[: 8 * (most + 1)], problem.beta)
    return has_rank_at_most(first, most) and has_rank_at_most(problem.Xt, most)


def problem_has_exact_oracle(problem: Problem) -> bool:
    """Return `has_exact_oracle` of all rows of Xt, assembled only if its first ones allow it."""
    if problem.spread is not ALONE:
        return has_rank_at_most(problem.condensed_Xt, 3 if problem.samples <= MOST_CIRCLES else 2)
    return inputs_have_rank_at_most(problem, 3) and has_exact_oracle(problem.Xt)


def has_exact_oracle(Xt: Float[Tensor, "N d"], rule: RankRule = RANK_RULE, most_circles: int = MOST_CIRCLES) -> bool:
    """Return True if `exact_oracle` has an oracle."""
    return has_rank_at_most(Xt, 3 if len(Xt) <= most_circles else 2, rule)
