"""How far hidden representations are from the feasible set of [JGHG22, Prop. 1]."""

from covopt.linalg.cholesky import factorize
from covopt.linalg.psd import RANK_RULE, RankRule
from covopt.model.hidden import Representations, layer_inputs
from covopt.model.problem import Problem


def infeasibility(problem: Problem, Z: Representations, rule: RankRule = RANK_RULE) -> float:
    """max_l |(I - P_{Im Zs_{l-1}}) Z_l|_F / |Z_l|_F, 0 on the feasible set and at most 1."""
    worst = 0.0
    for z, Zs in zip(Z, layer_inputs(problem, Z), strict=True):
        size = float(z.norm())
        if size > 0.0:
            worst = max(worst, float(factorize(Zs, rule).reject(z).norm()) / size)
    return worst
