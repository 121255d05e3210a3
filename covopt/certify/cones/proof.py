"""Proofs of two layers by branch and bound over cones of directions, for data of small rank (MATH.md section 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, UInt8
from torch import Tensor

from covopt.certify.cones.branch import BranchOptions, branch_and_bound, replay
from covopt.certify.dual import DualProof, dual_bound, is_provable
from covopt.certify.proof import Proved, Target
from covopt.model.problem import Problem
from covopt.oracles.exact import inputs_have_rank_at_most
from covopt.runtime.loop import Certificate

# By how much the cones of a stored tree may be bounded worse at the scaled point, relative: an interior-point method
# chooses their multipliers, and rounding its path. 1e-8 was measured; what is stated is a bound that is proved again.
AGAIN = 2.0**-23


@dataclass(frozen=True)
class ConeTree(DualProof):
    """A bound from a dual point, and a tree over cones of directions that bounds h there.

    Attributes:
        tree: the codes of `cones.tree`.
    """

    tree: UInt8[np.ndarray, " _"]

    kind: ClassVar[Certificate] = Certificate.BRANCH_AND_BOUND
    alternates: ClassVar[bool] = True

    @classmethod
    def applies(cls, problem: Problem) -> bool:
        """Return True if branch and bound is affordable: rank at most 6, or 8 with one output."""
        if problem.depth > 2 or not is_provable(problem):
            return False
        # Trees close in seconds up to rank 5. With one output, where gaps of chords count, they prove a few per cent in
        # minutes at rank 7 and 8; with several, no tree was closed at rank 7.
        return inputs_have_rank_at_most(problem, 8 if problem.Y.shape[1] == 1 else 6)

    @classmethod
    def memory(cls, problem: Problem) -> float:
        """Return about the bytes of 512 cones and of the samples."""
        return 100e6 * min(1.0, problem.samples / 500) + 12e3 * problem.samples

    @classmethod
    def prove(cls, problem: Problem, target: Target, last: Any = None) -> Proved:
        """Grow a new tree at the dual point, until it proves the gap."""
        Lambda = target.point
        answer = branch_and_bound(
            problem.Xt,
            problem.activation,
            Lambda,
            target=_enough(problem, Lambda, target),
            time_limit=target.time_limit,
            starts=target.starts,
            options=BranchOptions(worth=target.worth),
        )
        bound = dual_bound(problem, Lambda, answer.upper_bound * (1.0 + AGAIN))
        return Proved(cls(*bound[:3], tree=answer.tree), answer)

    def proved_maximum(self, problem: Problem) -> float:
        return replay(problem.Xt, problem.activation, self.Lambda, self.tree, claimed=self.maximum)


def _enough(problem: Problem, Lambda: Float[Tensor, "N m"], target: Target) -> float:
    """Return a maximum of h that proves the gap at this dual point; one near 1 where none seems to.

    D falls at most about twice as fast as M grows, relative, often half as fast, and the dual point takes its share.
    """
    maxima = [1.0 + room * target.gap for room in (2.0, 1.4, 1.0, 0.7, 0.5, 0.35, 0.25)]
    least = target.cost * (1.0 - target.gap)
    good = (M for M in maxima if dual_bound(problem, Lambda, M * (1.0 + AGAIN)).lower > least)
    return next(good, maxima[-1])
