"""Lower bounds for many samples: Lambda and the multipliers of `groups`, optimised together.

For given multipliers the bound tau(Lambda, c, M) on h^2 is the largest eigenvalue of a matrix of the order of the rank,
and D(Lambda / tau^(1/2)) is a bound of the problem. L-BFGS maximises its logarithm over (Lambda, log c, M^(1/2)), with
the p-norm of the eigenvalues, p growing, which is smooth and not below the largest one, and with a barrier, falling as
1 / p, against a singular I - R D R^T, where the ascent would stall without it. Groups are halved at the median of their
principal direction, and each level starts from the multipliers of the one before.

The start is near the spectral bound: Lambda of a constant network, c constant, all entries of M_pn equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.certify.dual import DualProof, dual_bound, is_provable
from covopt.certify.proof import Proved, Target
from covopt.certify.relaxation.ground import make_ground, whole_maximum
from covopt.certify.relaxation.groups import Groups, make_quadratic, prove_groups, scaled, scales
from covopt.linalg.lbfgs import DescentOptions, descend
from covopt.linalg.rounding import to_unit_scale
from covopt.model.loss import Scalable
from covopt.model.problem import Problem
from covopt.runtime.errors import ProblemError
from covopt.runtime.interrupts import gently, remember
from covopt.runtime.loop import Budget, Certificate, Stop
from covopt.runtime.threads import fitted

# None of these touches the proof.
DESCENT = DescentOptions(iterations=600, slow=1e-4)


@dataclass(frozen=True)
class Grouped(DualProof):
    """A bound from a dual point, with multipliers that groups of samples share, which bound its h."""

    groups: Groups

    kind: ClassVar[Certificate] = Certificate.GROUPS
    alternates: ClassVar[bool] = True
    most: ClassVar[int] = 256  # groups

    @classmethod
    def suits(cls, problem: Problem) -> bool:
        """Return True if the arrays, which grow with the samples, are small enough."""
        entries = problem.samples * (problem.X.shape[1] + 1 + problem.Y.shape[1])  # Xt would be a copy
        return is_provable(problem) and entries <= 4_000_000

    @classmethod
    def memory(cls, problem: Problem) -> float:
        """Return the approximate bytes of the arrays and their gradients."""
        (samples, inputs), outputs = problem.X.shape, problem.Y.shape[1]
        return 200.0 * samples * (inputs + 1 + outputs)

    @classmethod
    @gently()
    @fitted
    def prove(cls, problem: Problem, target: Target, last: GroupedBound | None = None) -> GroupedBound:
        """Return the best bound of the target's time, or the first within its gap; `last`, if that cannot be improved.

        The network's dual point is not used, so none is refuted.

        Raises:
            ProblemError: for another depth.
        """
        if last is not None and last.done:
            return last
        if problem.depth != 2:
            raise ProblemError(f"The relaxation bounds depth 2 and this problem has depth {problem.depth}.")
        budget = Budget(target.time_limit)
        best = _Search(problem).run(min(cls.most, problem.samples), target, budget)
        proof = best.proof
        return replace(best, proof=replace(proof, lower=min(proof.lower, proof.bound(problem))))

    def proved_maximum(self, problem: Problem) -> float:
        return check_groups(problem, self.Lambda, self.groups.checked(problem.samples))


@dataclass(frozen=True)
class GroupedBound(Proved):
    """A proof by shared multipliers."""

    proof: Grouped
    done: bool = False  # True if more time would not improve it


def check_groups(problem: Problem, Lambda: Float[Tensor, "N m"], groups: Groups) -> float:
    """Return a proved M >= max_w |Lambda^T sigma(Xt w)| over unit w, from any multipliers."""
    ground = make_ground(problem.Xt, problem.activation)
    return whole_maximum(ground, Lambda.double(), prove_groups(ground, Lambda.double(), groups))


class _Search:
    """The variables F, log c and M^(1/2) in units that bring them near 1; Lambda = -grad C(F) / (2 lam).

    For `interpolate`, whose outputs determine no Lambda, F is Lambda. `norms` are the p of the p-norms, in order.
    """

    norms: ClassVar[tuple[float, ...]] = (16.0, 64.0, 256.0)

    def __init__(self, problem: Problem) -> None:
        self.problem = problem = problem.double()
        self.ground = make_ground(problem.Xt, problem.activation)
        Y = problem.Y.double()
        self.labels = torch.zeros(len(Y), dtype=torch.int64, device=Y.device)
        self.unit = 1.0
        spread = Y - problem.mean(Y)
        self.size = to_unit_scale(spread)[1] if isinstance(problem.loss, Scalable) and bool(spread.any()) else 1.0
        # D is linear along Lambda for exact fits, and has its maximum at the Lambda of the outputs for losses.
        F = self._constant(Y)
        F, self.longest = (spread, math.inf) if problem.multiplier_at(F) is None else (F, 1.0)
        self.point: list[Tensor] = [F / self.size, Y.new_zeros(len(Y)), Y.new_ones(3, 1, 1)]
        self.reference, self.room = 1.0, Y.new_zeros(())

    def run(self, most: int, target: Target, budget: Budget) -> GroupedBound:
        """Halve groups up to this number, as long as that gains, and optimise at each level; return the best proof."""
        # From a single group, the multipliers of standardised data go to 0 and rarely return: wine then ended at 0.385
        # of the cost instead of 0.52.
        first, further, gain = 4, 2, 2e-3  # halvings, and the relative gain of a level that makes the next worthwhile
        if not self.begins():
            return GroupedBound(self.nothing(), done=True)
        best = self.nothing()
        self.halve(min(first, int(math.log2(max(1, most)))))
        while True:
            before = best.lower
            for norm in self.norms:
                self.climb(norm, budget.spent)
                proof = self.proof()
                best = proof if proof.lower > best.lower else best
                try:
                    if target.on_bound is not None:
                        target.on_bound(budget.seconds(), best.lower)
                except KeyboardInterrupt:  # from the callback
                    if not remember():
                        raise
                if best.lower >= target.cost * (1.0 - target.gap) or budget.spent():
                    return GroupedBound(best, done=False)
            stalled = before > 0.0 and best.lower <= before * (1.0 + gain)
            if stalled or 2**further * self.count > most:
                return GroupedBound(best, done=True)
            self.halve(further)

    def _constant(self, Y: Tensor) -> Tensor:
        """Return the outputs of an almost best constant network."""
        mean = self.problem.mean(Y)
        name = self.problem.loss.name
        constant = mean.clamp_min(1e-9).log() if name == "cross_entropy" else mean if name == "mse" else 0.0 * mean
        return constant.expand_as(Y).clone()

    @property
    def count(self) -> int:
        return self.point[2].shape[1]

    def begins(self) -> bool:
        """Set the units; return False if there is nothing to optimise."""
        Lambda = self._point(self.point)[0]
        if not bool(Lambda.any()):  # the constant network fits perfectly; only its bias has a cost
            self.point[0] *= 0.0
            Lambda = self._point(self.point)[0]
        size = float(torch.linalg.matrix_norm(Lambda, 2)) ** 2
        if not (math.isfinite(size) and size > 0.0):
            return False
        self.unit = size
        self.point[1] += math.log(3.2)  # the first c, in |Lambda|_op^2
        self.point[2][:2] *= math.sqrt(0.05)  # M_pp, M_nn in M_pn
        self.reference = 1.0
        value = self._value(self.point, self.norms[0])
        if value is None or not float(value) > 0.0:
            return False
        self.reference = float(value)
        return True

    def _point(self, parts: list[Tensor]) -> tuple[Tensor, Groups]:
        """Return Lambda, and multipliers for it."""
        F, c, root = parts
        F = self.size * F
        Lambda = self.problem.multiplier_at(F)
        groups = Groups(self.unit * c.exp(), self.labels, self.unit / len(F) * root.square())
        return F if Lambda is None else Lambda, groups

    def _value(self, parts: list[Tensor], norm: float) -> Tensor | None:
        """Return D(t Lambda), t = min(1, 1 / tau^(1/2)), tau by this norm; None if the multipliers prove nothing."""
        Lambda, groups = self._point(parts)
        live = torch.where(self.ground.zero[:, None], 0.0, Lambda)
        q = make_quadratic(self.ground.P, self.ground.slope, live, groups)
        q = scaled(q, scales(q))
        n = len(q.W)
        eye = torch.eye(n, dtype=q.W.dtype, device=q.W.device)
        # W is raised and I - R D R^T lowered a little, so that the factorisations of the proof succeed at the end.
        lower, failed = torch.linalg.cholesky_ex(q.W + 1e-13 * n * eye)
        if int(failed):
            return None
        middle, failed = torch.linalg.cholesky_ex((1.0 - 1e-8) * eye - lower.T @ q.D @ lower)
        if int(failed):
            return None
        half = torch.linalg.solve_triangular(middle, lower.T @ q.J, upper=False)
        values = torch.linalg.eigvalsh(q.T0 + half.T @ half)
        top = values[-1].detach()
        if not 0.0 < float(top) < math.inf:
            return None
        tau = top * (values.clamp_min(0.0) / top).pow(norm).sum().pow(1.0 / norm)
        scale = 1.0 / (self.ground.size * tau.sqrt())
        self.room = 2.0 * middle.diagonal().log().sum()
        return self.problem.dual_value(scale.clamp_max(self.longest) * Lambda)

    def climb(self, norm: float, stop: Stop) -> None:
        """Run L-BFGS on -log D until it is slow."""
        shapes = [part.shape for part in self.point]

        def split(x: Tensor) -> list[Tensor]:
            parts = x.split([shape.numel() for shape in shapes])
            return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

        def value(x: Tensor) -> tuple[float, Tensor]:
            x = x.detach().requires_grad_(True)
            dual_value = self._value(split(x), norm)
            if dual_value is None or not float(dual_value.detach()) > 0.0:
                return math.inf, torch.zeros_like(x)
            f = -(dual_value / self.reference).log() - 0.05 / norm * self.room  # log det (I - R D R^T), the barrier
            (gradient,) = torch.autograd.grad(f, x)
            good = math.isfinite(float(f.detach())) and bool(torch.isfinite(gradient).all())
            return (float(f.detach()), gradient) if good else (math.inf, torch.zeros_like(x))

        start = torch.cat([part.flatten() for part in self.point])
        self.point = [part.clone() for part in split(descend(value, start, stop, DESCENT).detach())]

    def nothing(self) -> Grouped:
        """Return a proof of 0."""
        Lambda, groups = self._point(self.point)
        return Grouped(0.0, torch.zeros_like(Lambda), 0.0, groups)

    def proof(self) -> Grouped:
        """Return the proof by the current variables."""
        Lambda, groups = self._point(self.point)
        unit = to_unit_scale(Lambda)[1]
        groups = groups.scaled(1.0 / unit)
        maximum = whole_maximum(self.ground, Lambda, prove_groups(self.ground, Lambda, groups))
        bound = dual_bound(self.problem, Lambda, maximum)
        stored = groups.scaled(bound.scale * unit / to_unit_scale(bound.Lambda)[1]) if bound.lower > 0.0 else groups
        return Grouped(*bound[:3], groups=stored)

    def halve(self, times: int) -> None:
        """Halve every group `times` times at the median of its principal direction."""
        rows = self.ground.P / self.ground.length[:, None]
        for _ in range(times):
            self.labels = halved(rows, self.labels, self.count)
            parents = torch.arange(2 * self.count, device=self.labels.device) // 2
            self.point[2] = self.point[2][:, parents][:, :, parents]
        self._seed()

    def _seed(self) -> None:
        """Raise small multipliers while they still prove a bound, because M^(1/2) cannot leave 0."""
        F, c, root = self.point
        least = 0.3 * float(c.exp().mean().sqrt())
        for _ in range(10):
            raised = [F, c, root.abs().clamp_min(least)]
            if self._value(raised, self.norms[0]) is not None:
                self.point = raised
                return
            least *= 0.5


def halved(rows: Float[Tensor, "N r"], labels: Int[Tensor, " N"], k: int) -> Int[Tensor, " N"]:
    """Return labels 2 g and 2 g + 1 for the two halves of each group g."""
    new = 2 * labels
    for group in range(k):
        (members,) = (labels == group).nonzero(as_tuple=True)
        if len(members) > 1:
            centred = rows[members] - rows[members].mean(dim=0)
            along = centred @ torch.linalg.eigh(centred.T @ centred)[1][:, -1]
            new[members[along.argsort()[len(members) // 2 :]]] += 1
    return new
