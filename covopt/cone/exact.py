"""The exact oracle that data allow, if there is one: the circle up to rank two, the sphere for rank three."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from covopt.cone.arrangement import ArrangementOracle, row_rank
from covopt.cone.sphere import SphereOracle
from covopt.linalg.psd import RANK_RULE, RankRule
from covopt.model.activation import Activation

# More great circles than this are too many for their table of crossings (150 bytes for each pair).
MOST_CIRCLES = 1500


def exact_oracle(
    Xt: Float[Tensor, "N d"], activation: Activation, rule: RankRule = RANK_RULE, most_circles: int = MOST_CIRCLES
) -> ArrangementOracle | SphereOracle | None:
    """An oracle whose bound is the maximum itself; None for rank > 3, or rank 3 with more than `most_circles` rows."""
    rank = row_rank(Xt, rule)
    if rank <= 2:
        return ArrangementOracle(Xt, activation, rule)
    return SphereOracle(Xt, activation, rule) if rank == 3 and len(Xt) <= most_circles else None
