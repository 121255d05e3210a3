"""Lower bounds of the shallow problem from the doubly non-negative relaxation (MATH.md section 4, ways 2, 3 and 4).

Lambda is first optimised against the relaxation, which is fast and a few percent loose. Then, if the dual point of a
good network is given, the tree of `certify.relaxation.signs` grows for it, whose gap closes with time. `repair.prove`
proves every number, with its rounding; no solver is trusted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.certify.dual import DualBound, DualProof, dual_bound, is_provable, last_that_holds, nothing
from covopt.certify.proof import REFUTATION_SLACK, Proved, Target
from covopt.certify.relaxation.admm import AlternatingDirections, FreeLambda
from covopt.certify.relaxation.ground import make_ground, whole_maximum
from covopt.certify.relaxation.lift import make_piece
from covopt.certify.relaxation.multipliers import Multipliers, check_maximum, enter, proved_maximum
from covopt.certify.relaxation.signs import SignBranch
from covopt.certify.spectral import LOSSES
from covopt.model.activation import Activation
from covopt.model.problem import Problem
from covopt.oracles.exact import inputs_have_rank_at_most
from covopt.oracles.oracle import Answer
from covopt.runtime.cores import crew
from covopt.runtime.errors import ProblemError
from covopt.runtime.interrupts import gently, remember
from covopt.runtime.loop import Budget, Certificate
from covopt.runtime.pace import FAIR, Pace
from covopt.runtime.threads import fitted


@dataclass(frozen=True)
class Relaxation(DualProof):
    """A bound from a dual point, with multipliers of the relaxation that bound its h."""

    multipliers: Multipliers  # the multipliers of a single piece, or of the leaves of a tree of signs

    kind: ClassVar[Certificate] = Certificate.RELAXATION
    alternates: ClassVar[bool] = True

    @classmethod
    def suits(cls, problem: Problem) -> bool:
        """Return True if the matrices are small enough."""
        # N + rank + outputs is the order of the matrices: one eigendecomposition for each step.
        most = 600 - problem.samples - problem.Y.shape[1]
        return is_provable(problem) and most >= 0 and inputs_have_rank_at_most(problem, most)

    @classmethod
    def memory(cls, problem: Problem) -> float:
        """Return the bytes of 200 matrices of the relaxation."""
        (samples, inputs), outputs = problem.X.shape, problem.Y.shape[1]
        return 200 * 8.0 * (samples + min(samples, inputs + 1) + outputs) ** 2

    @classmethod
    @gently()
    @fitted
    def prove(cls, problem: Problem, target: Target, last: RelaxedBound | None = None) -> RelaxedBound:
        """Return the best bound of the target's time, or the first within its gap; the violator is the best direction.

        The dual point is that of a good network, -grad C(F) / (2 lam); without it there is no second part. The last
        proof replaces the first part. Trees end where doubling the time is expected to close less than `target.worth`
        of the distance to the gap, by the pace of the most promising one (`runtime.pace`).

        Raises:
            ProblemError: for another depth.
        """
        if problem.depth != 2:
            raise ProblemError(f"The relaxation bounds depth 2 and this problem has depth {problem.depth}.")
        work, Lambda0 = _Work(problem, target), target.Lambda
        try:
            with crew():
                if last is not None:
                    work.begin(last)
                elif type(problem.loss) in LOSSES:  # the proximal maps of others are not known
                    work.optimise(0.25 * target.time_limit if Lambda0 is not None else target.time_limit)
                if Lambda0 is not None:
                    work.branch(Lambda0.double())
        except KeyboardInterrupt:  # from the callback
            if not remember():
                raise
        return work.result()

    def proved_maximum(self, problem: Problem) -> float:
        return check_maximum(problem.Xt, problem.activation, self.Lambda, self.multipliers)


@dataclass(frozen=True)
class SignBranching(Relaxation):
    """A relaxation with branches on the signs of samples."""

    kind: ClassVar[Certificate] = Certificate.SIGN_BRANCHING


@dataclass(frozen=True)
class RelaxedBound(Proved):
    """A proof by the relaxation, and where to continue from."""

    proof: Relaxation
    seconds: float = 0.0
    relaxed: Float[Tensor, "N m"] = field(kw_only=True)  # the last dual point of the first part, scaled to be feasible


def relaxed_maximum(
    Xt: Float[Tensor, "N d"], activation: Activation, Lambda: Float[Tensor, "N m"], target: float, budget: Budget
) -> float:
    """Return a proved M >= max_w |Lambda^T sigma(Xt w)| over unit w, by a tree that grows until M <= target."""
    ground, Lambda = enter(Xt, activation, Lambda)
    tree = SignBranch(ground, Lambda)
    tree.grow(target / ground.size, budget)
    return whole_maximum(ground, Lambda, tree.maximum)


class _Work:
    """The best proof so far, and the two ways to a better one.

    At the end the proof is made again from its multipliers, for which time is reserved.
    """

    check: ClassVar[int] = 50  # the number of steps between two proofs of the first part, at first
    patience: ClassVar[int] = 3  # it ends after this number of proofs in a row that barely raise the bound
    newton: ClassVar[int] = 4  # the number of Newton steps of cross_entropy's proximal map
    stall: ClassVar[float] = 2e-5  # the relative gain below which a proof counts as no progress
    # the shares for which the second part grows trees at share * Lambda0 + (1 - share) * the first part's Lambda:
    # Lambda0 is best in the end, but the gaps of the others close sooner
    mixtures: ClassVar[tuple[float, ...]] = (1.0, 0.75, 0.5, 0.25)
    reserve: ClassVar[float] = 1.25  # the time reserved to prove a tree again, relative to its estimate

    def __init__(self, problem: Problem, target: Target) -> None:
        self.problem, self.target, self.budget = problem, target, Budget(target.time_limit)
        self.goal, self.callback, self.before = target.cost * (1.0 - target.gap), target.on_bound, 0.0
        self.ground = make_ground(problem.Xt, problem.activation)
        Lambda = torch.zeros_like(problem.Y, dtype=torch.float64)
        self.best, self.relaxed = nothing(Lambda), Lambda
        self.direction, self.value = torch.zeros_like(problem.Xt[0], dtype=torch.float64), 0.0
        # The multipliers of a tree, many megabytes, are made at the end; until then the tree can only improve.
        self.proof: Multipliers | SignBranch = Multipliers.root(self.ground)
        self.proved_again = False

    def offer(self, bound: DualBound, proof: Multipliers | SignBranch) -> None:
        """Store this proof if it is better."""
        if bound.lower > self.best.lower:
            self.best, self.proof, self.proved_again = bound, proof, False
        if self.callback is not None:
            self.callback(self.budget.seconds(), self.best.lower)

    def begin(self, start: RelaxedBound) -> None:
        """Continue from an earlier result."""
        proof = start.proof
        self.before, self.proof, self.proved_again = start.seconds, proof.multipliers, True
        self.best, self.relaxed = DualBound(proof.lower, proof.Lambda, proof.maximum, 1.0), start.relaxed

    def optimise(self, time_limit: float) -> None:
        """Optimise Lambda against the relaxation until the bound stalls."""
        piece, share = make_piece(self.ground), replace(self.budget, time_limit=time_limit)
        goal = FreeLambda(self.problem, piece, self.newton)
        method = AlternatingDirections([piece], goal.prox, self.problem.Y.shape[1])
        state, steps, idle = method.start(rho=10.0), float(self.check), 0
        while idle < self.patience and self.best.lower < self.goal and not share.spent():
            for _ in range(max(1, round(steps / self.check))):
                state = method.run(state, self.check, share.spent)
                if share.spent():
                    break
            before = self.best.lower
            Lambda, proof = goal.Lambda.clone(), Multipliers.root(self.ground, goal.multipliers(state))
            maximum = whole_maximum(self.ground, Lambda, proved_maximum(self.ground, Lambda, proof))
            self.offer(dual_bound(self.problem, Lambda, maximum), proof)
            idle = idle + 1 if self.best.lower <= before * (1.0 + self.stall) and before > 0.0 else 0
            steps *= 1.1
            self.relaxed = self.best.Lambda

    def branch(self, Lambda0: Tensor) -> None:
        """Grow trees at mixtures of the relaxation's Lambda and Lambda0; the most promising one gets the next turn."""
        if not bool(Lambda0.any()):
            return
        # The time of a turn; it is never longer than all the work before it.
        trees, longest = list[_Tree](), 0.04 * self.budget.remaining()
        for share in self.mixtures if bool(self.relaxed.any()) else (1.0,):
            trees.append(_Tree(self, share * Lambda0 + (1.0 - share) * self.relaxed))
            self.direction, self.value = trees[0].violator
            if self.value > self.target.refuted or self.best.lower >= self.goal:
                return
            trees[-1].grow(min(longest, self.spent()))
        first = trees[0]
        while self.best.lower < self.goal and not self.budget.spent():
            self.direction, self.value = first.violator
            if self.value > self.target.refuted:
                return
            trees = [tree for tree in trees if tree.grows and tree.ceiling > self.best.lower * (1.0 + self.stall)]
            if not trees or not any(self._pays(tree) for tree in trees):
                break
            turn = min(longest, self.spent())
            max(trees, key=lambda tree: tree.promise(turn)).grow(turn)

    def left(self, tree: SignBranch) -> float:
        """Return the seconds to grow this tree; the others are reserved to prove it, or the best one, again."""
        price = max(tree.price, self.proof.price if isinstance(self.proof, SignBranch) else 0.0)
        return max(0.0, self.budget.remaining() - self.reserve * price)

    def spent(self) -> float:
        """Return the seconds of work on this problem, including those of the start."""
        return self.before + self.budget.seconds()

    def _pays(self, tree: _Tree) -> bool:
        """Return True if doubling the time of this tree is expected to gain enough."""
        if self.target.worth == 0.0 or self.spent() < FAIR:
            return True
        reach = min(tree.ceiling, tree.lower + tree.pace.again)
        return reach - self.best.lower >= self.target.worth * (self.goal - self.best.lower)

    def result(self) -> RelaxedBound:
        """Return the best proof, its multipliers scaled like its Lambda."""
        best, lower = self.best, self.best.lower
        multipliers = self.proof.multipliers() if isinstance(self.proof, SignBranch) else self.proof
        if not self.proved_again:
            # The repair of rounding is not homogeneous in Lambda: return the bound of the scaled point.
            multipliers = multipliers.scaled(best.scale)
            M = check_maximum(self.problem.Xt, self.problem.activation, best.Lambda, multipliers)
            lower = min(best.lower, dual_bound(self.problem, best.Lambda, M).lower)
        kind = SignBranching if multipliers.leaves > 1 else Relaxation
        value = self.direction.new_tensor([self.value])
        refutes = value > 1.0 + REFUTATION_SLACK * self.target.gap
        return RelaxedBound(
            kind(lower, best.Lambda, best.maximum, multipliers),
            Answer(self.direction[None][refutes], value[refutes]),
            seconds=self.budget.seconds(),
            relaxed=self.relaxed,
        )


class _Tree:
    """The tree of one dual point, with the bound that it proves and an estimate of what it can still prove."""

    def __init__(self, work: _Work, Lambda: Tensor) -> None:
        self.work, self.Lambda = work, Lambda
        self.tree = SignBranch(work.ground, Lambda)
        self.lower = self.gain = self.seconds = 0.0
        self.pace, self.grows = Pace(), True

    @property
    def violator(self) -> tuple[Float[Tensor, " d"], float]:
        """Return the direction of the largest h found, and that h."""
        return self.tree.direction, self.tree.attained * self.work.ground.size

    @property
    def ceiling(self) -> float:
        """Return the bound by the largest h found, above which this Lambda proves nothing."""
        return self._bound(self.tree.attained).lower

    def promise(self, seconds: float) -> float:
        """Return the expected bound after a turn of `seconds`, at the pace of the last one."""
        return min(self.ceiling, self.lower + self.gain * seconds)

    def _bound(self, maximum: float) -> DualBound:
        return dual_bound(self.work.problem, self.Lambda, whole_maximum(self.work.ground, self.Lambda, maximum))

    def grow(self, seconds: float) -> None:
        """Grow the tree for `seconds`, and offer its proof."""
        work, before, started = self.work, self.lower, self.work.budget.seconds()
        nodes = self.tree.nodes

        def watch(maximum: float, nodes: int) -> None:
            if work.callback is not None:
                work.callback(work.budget.seconds(), max(self._bound(maximum).lower, work.best.lower))

        try:
            self.tree.grow(self.wanted, Budget(min(seconds, work.left(self.tree))), callback=watch)
        finally:
            bound = self._bound(self.tree.maximum)
            took = max(1e-9, work.budget.seconds() - started)
            self.lower, self.gain, self.seconds = bound.lower, (bound.lower - before) / took, self.seconds + took
            self.pace.add(self.seconds, self.lower)
            self.grows = self.tree.nodes > nodes
            work.offer(bound, self.tree)

    @cached_property
    def wanted(self) -> float:
        """The largest bound on h, in units of the tree, with which this Lambda proves the target; 0 if none does."""

        def proves(maximum: float) -> bool:
            return dual_bound(self.work.problem, self.Lambda, maximum).lower >= self.work.goal

        if math.isinf(self.work.goal):
            return 0.0
        return last_that_holds(proves, 4.0) * (1.0 - 1e-9) / self.work.ground.size
