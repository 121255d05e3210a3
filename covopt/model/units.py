"""The units that solvers compute in: the largest input and the largest target are about 1.

sigma is homogeneous, so every problem is another one in other units. With X = s X', Y = t Y', c = (t / s)^(1/L) and
W_l = c W'_l, the layers are Z_l = s c^l Z'_l, if the bias column of Zs_l shrinks along, from beta to beta / (s c^l):

    mse:            L(W) = t^2 L'(W'),  lam' = lam c^2 / t^2,
    huber:          the same, and the threshold is D' = D / t,
    cross_entropy:  L(W) = L'(W'),      lam' = lam c^2 and t = 1, since the outputs have a scale of their own,
                    and so for logistic and losses of one's own,
    interpolate:    |W|^2 = c^2 |W'|^2,

and for L = 2 the dual points are Lambda = Lambda' / s. So lam, the inputs and the targets together are one strength,
lam', and only it says whether a problem is hard (derived; tested by costs that must agree). Columns of X are never
scaled on their own: |w|^2 would become another norm. s and t are powers of 2, and 1 for most data, so that the data
keep their digits. Bounds are proved in the user's units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.rounding import largest
from covopt.model.loss import Scalable
from covopt.model.problem import Problem
from covopt.model.spread import ALONE
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Progress


@dataclass(frozen=True)
class Units:
    """The user's units: the value of one of covopt's own units of each quantity."""

    inputs: float  # s
    weights: float  # c
    cost: float  # t^2, 1 or c^2
    problem: Problem  # the problem in these units
    basis: Float[Tensor, "d r"] | None = None  # Q, if W'_1 acts on inputs in a basis of their span

    @staticmethod
    def of(problem: Problem) -> Units:
        """Return the units in which the largest input and the largest target are between 1 and 2."""
        s, t, c = _units(problem)
        cost = c * c if problem.interpolates else t * t
        scaled = replace(
            problem,
            X=problem.X if s == 1.0 else problem.X / s,
            Y=problem.Y if t == 1.0 else problem.Y / t,
            loss=problem.loss.scaled(t) if isinstance(problem.loss, Scalable) else problem.loss,
            lam=1.0 if problem.interpolates else problem.lam * (c / t) ** 2,
            beta=problem.beta / s,
            taper=problem.taper / c,
        )
        return Units(s, c, cost, scaled)

    def in_span(self) -> Units:
        """Return the same units with inputs X' = X Q, if there are more inputs than samples; N columns are left.

        Q (d, N) is an orthonormal basis of the span of the samples, and W_1 = W'_1 Q^T. Outputs and costs stay the
        same, because the part of W_1 outside the span changes no output and only costs. Rounding changes a sample by
        its norm times eps, as a product with it does.
        """
        if not spans_less(self.problem):
            return self
        Q, R = torch.linalg.qr(self.problem.X.T)
        return replace(self, problem=replace(self.problem, X=R.T.contiguous()), basis=Q)

    def inward(self, weights: Sequence[Float[Tensor, "_ _"]]) -> list[Tensor]:
        """Return W'_1 ... W'_L of W_1 ... W_L."""
        return self._turned([W / self.weights for W in weights], self.basis)

    def outward(self, weights: Sequence[Float[Tensor, "_ _"]]) -> list[Tensor]:
        """Return W_1 ... W_L of W'_1 ... W'_L."""
        return self._turned([self.weights * W for W in weights], None if self.basis is None else self.basis.T)

    def _turned(self, weights: list[Tensor], turn: Tensor | None) -> list[Tensor]:
        """Return the weights with W_1 times this matrix; its bias stays."""
        if turn is None:
            return weights
        return [torch.cat([weights[0][:, :-1] @ turn.to(weights[0]), weights[0][:, -1:]], dim=1), *weights[1:]]

    def dual(self, Lambda: Float[Tensor, "N m"]) -> Float[Tensor, "N m"]:
        """Return Lambda of Lambda', for L = 2."""
        return Lambda / self.inputs

    def in_user_units(self, line: Progress) -> Progress:
        """Return a line of history in the user's units; its bound is in them already."""
        return replace(line, cost=self.cost * line.cost)


def unit_of_inputs(problem: Problem) -> float:
    """Return s; where it is 1, the inputs are not copied."""
    faint = 1e-3  # inputs below this part of the bias stay small in these units, in which the bias would be huge
    s = _power(max(problem.spread.largest(largest(problem.X)), faint * problem.beta))
    near = 16.0  # many inputs are left as they are if their size is so near to 1: a copy is as large
    return 1.0 if has_many_inputs(problem) and 1.0 / near <= s <= near else s


def spans_less(problem: Problem) -> bool:
    """Return True if there are more inputs than samples, and a basis of their span takes about a second at most.

    Exact fits keep their inputs: whether they exist may depend on the smallest ones.
    """
    N, d = problem.X.shape
    plain = problem.spread is ALONE and not (problem.interpolates or problem.skip)
    return plain and d > N and N * N * d <= 1e10


def has_many_inputs(problem: Problem) -> bool:
    """Return True if the inputs of all processes are so many that a copy counts."""
    return problem.samples * problem.X.shape[1] >= 2**22


def at_depth(problem: Problem, depth: int) -> Problem:
    """Return the same problem for networks of another depth, data in the same units.

    The unit of a weight, c = (t / s)^(1/L), depends on the depth; taper = 1 / c, and lam' = lam c^2 / t^2.
    """
    taper = problem.taper ** (problem.depth / depth)
    lam = problem.lam if problem.interpolates else problem.lam * (problem.taper / taper) ** 2
    return replace(problem, depth=depth, taper=taper, lam=lam)


def check_strength(problem: Problem) -> None:
    """Raise a ProblemError where lam's effect is lost in the fit's rounding, eps^2 |Y|^2."""
    if problem.interpolates or not isinstance(problem.loss, Scalable):
        return
    _, t, c = _units(problem)
    strength = problem.lam * (c / t) ** 2
    lost = 1e-29  # below, lam' |W'|^2 is lost in the rounding of |F' - Y'|^2, which is 10^-32
    if strength < lost:
        least = 2.0 * problem.lam * (lost / strength)
        raise ProblemError(
            f"lam is {problem.lam:g}, so small beside these data that float64 cannot tell the minimum from an exact"
            f" fit; give at least {least:.0e}, or ask for the representation cost, which takes no lam."
        )


def _units(problem: Problem) -> tuple[float, float, float]:
    """Return s, t and c; nothing is copied."""
    s = unit_of_inputs(problem)
    t = _power(problem.spread.largest(largest(problem.Y))) if isinstance(problem.loss, Scalable) else 1.0
    return s, t, 2.0 ** ((math.log2(t) - math.log2(s)) / problem.depth)


def _power(size: float) -> float:
    """Return the power of 2 below a size; 1 for 0."""
    return 2.0 ** math.floor(math.log2(size)) if size > 0.0 else 1.0
