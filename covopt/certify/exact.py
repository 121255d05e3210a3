"""Proofs of two layers by the maximum of h itself: linear networks, and data of rank at most 3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from covopt.certify.dual import DualProof, dual_bound, is_provable
from covopt.certify.proof import Proved, Target
from covopt.model.problem import Problem
from covopt.oracles.exact import exact_oracle, problem_has_exact_oracle
from covopt.oracles.linear import LinearOracle
from covopt.oracles.oracle import Oracle
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Certificate


def oracle_of(problem: Problem) -> Oracle | None:
    """Return an oracle that computes max h itself; None where there is none."""
    if problem.activation.is_linear:
        return LinearOracle(problem.Xt)
    return exact_oracle(problem.Xt, problem.activation)


@dataclass(frozen=True)
class Exact(DualProof):
    """A bound from a dual point, whose maximum an exact oracle computes."""

    kind: ClassVar[Certificate] = Certificate.EXACT

    @classmethod
    def applies(cls, problem: Problem) -> bool:
        if problem.depth > 2 or not is_provable(problem):
            return False
        return problem.activation.is_linear or problem_has_exact_oracle(problem)

    @classmethod
    def prove(cls, problem: Problem, target: Target, last: Any = None) -> Proved | None:
        """Ask the oracle at the dual point; None where there is no oracle."""
        oracle = oracle_of(problem)
        if oracle is None:
            return None
        answer = oracle(target.point, problem.Xt[:0])
        return Proved(cls(*dual_bound(problem, target.point, answer.upper_bound)[:3]), answer)

    def proved_maximum(self, problem: Problem) -> float:
        oracle = oracle_of(problem)
        if oracle is None:
            raise ProblemError(
                "The certificate says exact, but no oracle is exact for data of this rank; certify the run again."
            )
        return oracle(self.Lambda, problem.Xt[:0]).upper_bound
