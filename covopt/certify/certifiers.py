"""The certifiers: for each kind of proof, where it applies, how it is found, and how its arrays are checked.

Every bound of two layers is D(Lambda) for a dual point Lambda and a proved M >= max_w h(w) (dual.py), or comes from the
data alone and holds for every depth: spectral, and for three layers and more those of certify/deep/. M comes from an
exact oracle; from branch and bound over cones of directions where the rank is small; or from the doubly non-negative
relaxation, with branches on the signs of samples where the samples are few, with shared multipliers where they are
many.

A new kind is one class here, a name in `loop.Certificate`, and its words in `model/wording.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.certify.cones.branch import BranchOptions, branch_and_bound, replay
from covopt.certify.cones.tree import Tree
from covopt.certify.deep.certifiers import DEEP
from covopt.certify.dual import MISSING, Proof, dual_bound, is_provable
from covopt.certify.relaxation.bound import RelaxationOptions, RelaxedBound, check_maximum, relaxed_bound
from covopt.certify.relaxation.grouping import GroupedBound, check_groups, grouped_bound
from covopt.certify.relaxation.groups import ARRAYS, Groups
from covopt.certify.relaxation.multipliers import Multipliers
from covopt.certify.spectral import LOSSES, spectral_bound
from covopt.model.problem import Problem
from covopt.oracles.exact import exact_oracle, inputs_have_rank_at_most, problem_has_exact_oracle
from covopt.oracles.linear import LinearOracle
from covopt.oracles.oracle import Answer, Oracle
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Certificate

# Trees over cones of directions close in seconds up to rank 5. With one output, where gaps of chords count, they prove
# a few per cent in minutes at rank 7 and 8; with several, no tree was closed at rank 7.
LARGEST_BRANCHING_RANK, WITH_ONE_OUTPUT = 6, 8
# A tree aims at M = 1 + gap times the first of these that is known to prove the gap.
ROOM = (2.0, 1.4, 1.0, 0.7, 0.5, 0.35, 0.25)
# Matrices of the relaxation have this order, N + rank + outputs, at most: one eigendecomposition for each step.
LARGEST_RELAXATION = 600
# Entries of the inputs and the targets, at most, of which groups share the multipliers.
LARGEST_GROUPED = 4_000_000
# A direction refutes a dual point only if h exceeds 1 by more than this part of the gap.
REFUTATION_SLACK = 0.1


@dataclass(frozen=True)
class Aim:
    """What the search wants of a proof at its dual point.

    Attributes:
        cost: of the best network.
        gap: relative gap wanted of the bound.
        time_limit: seconds; a proof that is cut short proves less, and proves it all the same.
        starts: the active neurons' directions (S, n_0 + 1).
        refuted: the proof may end as soon as a direction with h above this is met, which belongs to a worse network.
        worth: end when as much time again would take less than this part off what the bound lacks; 0: never.
        on_bound: gets the seconds so far and the best bound so far.
    """

    cost: float
    gap: float
    time_limit: float
    starts: Float[Tensor, "S d"]
    refuted: float = math.inf
    worth: float = 0.0
    on_bound: Callable[[float, float], None] | None = None


@runtime_checkable
class Certifier(Protocol):
    """One kind of proof.

    Attributes:
        evidence: the arrays that it stores beside the dual point: the kind of their entries, their dimensions.
    """

    evidence: ClassVar[Mapping[str, tuple[str, int]]]

    def applies(self, problem: Problem) -> bool:
        """Whether it can prove a bound of this problem, by its depth, rank and size."""
        ...

    def check(self, problem: Problem, proof: Proof) -> float:
        """The lower bound that stored arrays prove, by dual feasibility anew; 0 where they prove nothing.

        Raises:
            ProblemError: arrays are missing or do not fit the problem.
        """
        ...


@runtime_checkable
class Prover(Certifier, Protocol):
    """A certifier that takes turns with the search."""

    def prove(
        self, problem: Problem, Lambda: Float[Tensor, "N m"], aim: Aim, last: Proof | None
    ) -> tuple[Proof, Answer]:
        """The bound at this dual point, and the directions with h above 1 that were met; `last` is gone on from."""
        ...


class Exact:
    """The maximum of h itself: linear networks, and data of rank at most 3."""

    evidence: ClassVar[Mapping[str, tuple[str, int]]] = {}

    def applies(self, problem: Problem) -> bool:
        """Whether an oracle knows the maximum."""
        if problem.depth > 2 or not is_provable(problem):
            return False
        return problem.activation.is_linear or problem_has_exact_oracle(problem)

    def maximum(self, problem: Problem, proof: Proof) -> float:
        """The oracle at the stored dual point."""
        Lambda, oracle = _point(problem, proof), oracle_of(problem)
        if oracle is None:
            raise ProblemError(
                "The certificate says exact, but no oracle is exact for data of this rank; certify the run again."
            )
        return oracle(Lambda, problem.Xt[:0]).upper_bound

    def check(self, problem: Problem, proof: Proof) -> float:
        """The bound from that maximum."""
        return dual_bound(problem, _point(problem, proof), self.maximum(problem, proof)).lower


AGAIN = 2.0**-23
"""What the cones of a stored tree may be bounded worse at the scaled point, relative: an interior-point method chooses
their multipliers, and rounding its path. 1e-8 was met; a bound is stated that is proved again."""


class Cones:
    """Branch and bound over cones of directions."""

    evidence: ClassVar[Mapping[str, tuple[str, int]]] = {"tree": ("u", 1), "counts": ("i", 1)}  # of free biases

    def applies(self, problem: Problem) -> bool:
        """Whether its trees have a chance to close."""
        if problem.depth > 2 or not is_provable(problem):
            return False
        return inputs_have_rank_at_most(problem, WITH_ONE_OUTPUT if problem.Y.shape[1] == 1 else LARGEST_BRANCHING_RANK)

    def prove(
        self, problem: Problem, Lambda: Float[Tensor, "N m"], aim: Aim, last: Proof | None = None
    ) -> tuple[Proof, Answer]:
        """A new tree for each dual point, which ends at an M that proves the gap."""
        found = branch_and_bound(
            problem.Xt,
            problem.activation,
            Lambda,
            target=_enough(problem, Lambda, aim),
            time_limit=aim.time_limit,
            starts=aim.starts,
            options=BranchOptions(worth=aim.worth),
        )
        evidence, maximum = {"tree": found.tree.codes}, found.upper_bound * (1.0 + AGAIN)
        return dual_bound(problem, Lambda, maximum, Certificate.BRANCH_AND_BOUND, evidence), found

    def maximum(self, problem: Problem, proof: Proof) -> float:
        """The leaves of the stored tree; nothing but its codes is believed."""
        if "tree" not in proof.evidence:
            raise _without_evidence(proof)
        Lambda, tree = _point(problem, proof), Tree(proof.evidence["tree"])
        return replay(problem.Xt, problem.activation, Lambda, tree, claimed=proof.maximum)

    def check(self, problem: Problem, proof: Proof) -> float:
        """The bound from that maximum."""
        return dual_bound(problem, _point(problem, proof), self.maximum(problem, proof)).lower


class Relaxation:
    """The doubly non-negative relaxation, Lambda optimised against it or its tree of signs grown at Lambda."""

    evidence: ClassVar[Mapping[str, tuple[str, int]]] = {
        "splits": ("i", 1),
        "stages": ("i", 1),
        "heights": ("f", 1),
        "walls": ("f", 2),
        "values": ("f", 1),
    }

    def applies(self, problem: Problem) -> bool:
        """Whether its matrices are small enough."""
        most = LARGEST_RELAXATION - problem.samples - problem.Y.shape[1]
        return problem.depth == 2 and is_provable(problem) and most >= 0 and inputs_have_rank_at_most(problem, most)

    def prove(
        self, problem: Problem, Lambda: Float[Tensor, "N m"], aim: Aim, last: Proof | None = None
    ) -> tuple[Proof, Answer]:
        """Go on from the last proof; the direction is the best one met."""
        found = relaxed_bound(
            problem,
            Lambda,
            time_limit=aim.time_limit,
            target=aim.cost * (1.0 - aim.gap),
            refuted=aim.refuted,
            start=last if isinstance(last, RelaxedBound) else None,
            callback=aim.on_bound,
            options=RelaxationOptions(worth=aim.worth),
        )
        value = found.direction.new_tensor([found.value])
        met = value > 1.0 + REFUTATION_SLACK * aim.gap
        return found, Answer(found.direction[None][met], value[met])

    def maximum(self, problem: Problem, proof: Proof) -> float:
        """The multipliers, good or bad, without a solver."""
        try:
            multipliers = Multipliers.of(proof.evidence)
        except KeyError as error:
            raise _without_evidence(proof) from error
        return check_maximum(problem.Xt, problem.activation, _point(problem, proof), multipliers)

    def check(self, problem: Problem, proof: Proof) -> float:
        """The bound from that maximum."""
        return dual_bound(problem, _point(problem, proof), self.maximum(problem, proof)).lower


class Grouped:
    """The relaxation with multipliers that groups of samples share, Lambda optimised against it; any dual point."""

    evidence: ClassVar[Mapping[str, tuple[str, int]]] = ARRAYS

    def applies(self, problem: Problem) -> bool:
        """Whether its arrays, which grow with the samples, are small enough."""
        entries = problem.samples * (problem.Xt.shape[1] + problem.Y.shape[1])
        return problem.depth == 2 and is_provable(problem) and entries <= LARGEST_GROUPED

    def prove(
        self, problem: Problem, Lambda: Float[Tensor, "N m"], aim: Aim, last: Proof | None = None
    ) -> tuple[Proof, Answer]:
        """Once: the network's dual point has no part in it, and so none is refuted."""
        found = last if isinstance(last, GroupedBound) and last.done else None
        if found is None:
            target = aim.cost * (1.0 - aim.gap)
            found = grouped_bound(problem, time_limit=aim.time_limit, target=target, callback=aim.on_bound)
            found = replace(found, lower=min(found.lower, self.check(problem, found)))
        return found, Answer(problem.Xt[:0], problem.Xt.new_zeros(0))

    def maximum(self, problem: Problem, proof: Proof) -> float:
        """The multipliers, good or bad, without a solver."""
        Lambda = _point(problem, proof)
        try:
            groups = Groups.of(proof.evidence, problem.samples)
        except KeyError as error:
            raise _without_evidence(proof) from error
        return check_groups(problem, Lambda, groups)

    def check(self, problem: Problem, proof: Proof) -> float:
        """The bound from that maximum."""
        return dual_bound(problem, _point(problem, proof), self.maximum(problem, proof)).lower


class Spectral:
    """Singular values and distances of the data: every network of every depth."""

    evidence: ClassVar[Mapping[str, tuple[str, int]]] = {}

    def applies(self, problem: Problem) -> bool:
        """Whether the bounds of the loss from the data alone are known."""
        return problem.loss.name in LOSSES

    def check(self, problem: Problem, proof: Proof) -> float:
        """The bound from the data."""
        return spectral_bound(problem)


CONES, RELAXATION, GROUPED = Cones(), Relaxation(), Grouped()
CERTIFIERS: dict[Certificate, Certifier] = {
    Certificate.EXACT: Exact(),
    Certificate.BRANCH_AND_BOUND: CONES,
    Certificate.RELAXATION: RELAXATION,
    Certificate.SIGN_BRANCHING: RELAXATION,
    Certificate.GROUPS: GROUPED,
    **{kind: DEEP[kind] for kind in (Certificate.LAPLACIAN, *DEEP)},
    Certificate.SPECTRAL: Spectral(),
}
"""Who finds and checks each kind of proof, the tightest first."""
EVIDENCE = {name: kind for certifier in CERTIFIERS.values() for name, kind in certifier.evidence.items()}
"""What may prove a dual point besides it."""

PROVERS: tuple[Prover, ...] = (CONES, RELAXATION, GROUPED)
"""Those that take turns with the search: branch and bound is better, where there are few samples or much time."""


def certifier_of(proof: Proof) -> Certifier:
    """Who checks this proof; runs stored before 2026-11-22 call trees over signs branch-and-bound, too."""
    if proof.certificate is Certificate.BRANCH_AND_BOUND and "tree" not in proof.evidence:
        return RELAXATION
    return CERTIFIERS[proof.certificate]


def maximum_at(problem: Problem, proof: Proof) -> tuple[float, float]:
    """(M, lower): the proved maximum of h at a stored dual point, which no lam changes, and the bound at the problem's.

    Raises:
        ProblemError: the certificate has no dual point, or arrays are missing or do not fit the problem.
    """
    certifier = certifier_of(proof)
    if not isinstance(certifier, Exact | Cones | Relaxation | Grouped):
        raise ProblemError(MISSING)
    maximum = certifier.maximum(problem, proof)
    return maximum, dual_bound(problem, proof.point, maximum).lower


def oracle_of(problem: Problem) -> Oracle | None:
    """An oracle that knows max h itself: linear networks, and data of rank at most 3; None where there is none."""
    if problem.activation.is_linear:
        return LinearOracle(problem.Xt)
    return exact_oracle(problem.Xt, problem.activation)


def _point(problem: Problem, proof: Proof) -> Float[Tensor, "N m"]:
    """The dual point of a proof that fits this problem."""
    Lambda = proof.point
    if Lambda.shape != problem.Y.shape:
        raise ProblemError(MISSING)
    if not bool(torch.isfinite(Lambda).all()):
        raise ProblemError("The stored dual point has NaN or infinite entries; certify the run again.")
    return Lambda


def _enough(problem: Problem, Lambda: Float[Tensor, "N m"], aim: Aim) -> float:
    """A maximum of h that proves the gap at this dual point; one near 1 where none seems to.

    D falls at most about twice as fast as M grows, relative, often half as fast, and the dual point takes its share.
    """
    targets = [1.0 + room * aim.gap for room in ROOM]
    least = aim.cost * (1.0 - aim.gap)
    good = (M for M in targets if dual_bound(problem, Lambda, M * (1.0 + AGAIN)).lower > least)
    return next(good, targets[-1])


def _without_evidence(proof: Proof) -> ProblemError:
    return ProblemError(f"The certificate '{proof.certificate}' comes without its evidence; certify the run again.")
