"""Lower bounds of the shallow problem from a dual point (MATH.md section 4).

For any Lambda and any M >= max_w h(w), |w| = 1, every t in [0, 1/M] makes t Lambda dual feasible, and

    D(t Lambda) = -C*(-2 lam t Lambda) - lam beta^2 t^2 |Lambda^T 1|^2  <=  min L

is concave in t. For mse and interpolate it is a parabola through 0 and the best t is known; for cross_entropy
-C*(-2 lam t Lambda) = -sum_i q_i p_i . log p_i with p_i = Y_i - 2 lam t Lambda_i / q_i in the simplex, q_i = 1/N or the
share of the sample's weight, and the best t is found by bisection: any t gives a true bound, a poor one only a lower
one.

Of any other loss that is `Provable` (huber, logistic, and those of one's own) D is evaluated: the best t in the domain
of C* is found by Brent's method. What its numbers prove is exact for the dual point Lambda' with -2 lam Lambda'_i / q_i
equal to the rounded G_i that the conjugate was evaluated at; it is off by 8 roundings of Lambda at most, |Lambda|_F
|Xt|_F of which may be in M. The loss says itself how far rounding moves c*(G_i).

`interpolate` is bounded over all networks whose misfit is allowed (`Problem.allowed_misfit`), so that b falls by
2 eps |Lambda|_1: of rows that float64 cannot distinguish, with targets that differ as little, nothing is proved.

The bound holds for the numbers as they are stored. What rounding could add to the evaluation of D is subtracted, and
where Lambda has to be moved by Delta to make p a point of the simplex, M grows by |Delta|_F |Xt|_F, which is at least
max_w |Delta^T sigma(Xt w)|.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from covopt.certify.dual_space import distance, lost, orthogonal, widened
from covopt.certify.proof import Proof, Proved, Target, Unproved
from covopt.linalg.rounding import EPS
from covopt.model.activation import Activation
from covopt.model.biases import Free, Penalised
from covopt.model.loss import ENTROPY, CrossEntropy, Interpolation, MeanSquaredError, Provable
from covopt.model.problem import Problem
from covopt.oracles.exact import LinearOracle, exact_oracle, problem_has_exact_oracle
from covopt.oracles.oracle import Answer, Oracle
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Certificate, Stop

# What one product may lose below the smallest normal number, absolute.
UNDERFLOW = 2.0**-1021
PARABOLAS = (MeanSquaredError, Interpolation)
"""The losses whose D(t Lambda) is a parabola in t; their subclasses need not have one."""
MISSING = "The stored dual point is missing or does not have the shape of Y; solve again."


class DualBound(NamedTuple):
    """A bound from a dual point and a proved maximum of h there; its first three numbers are those of a `DualProof`."""

    lower: float  # the bound, at least 0; exactly 0 where nothing is proved
    Lambda: Float[Tensor, "N m"]  # the dual point that proves it, scaled by t and moved into the domain of C*
    maximum: float  # a proved bound on h at `Lambda`, at most 1
    scale: float  # t; a proof of the maximum at the unscaled point is scaled by it too


@dataclass(frozen=True)
class DualProof(Proof):
    """A bound D(Lambda) of two layers; its subclasses prove that h is at most 1 there."""

    depths: ClassVar[range] = range(2, 3)

    Lambda: Float[Tensor, "_ _"] = field(metadata={"finite": False})  # the dual point (N, m), already scaled
    maximum: float  # M >= max_w h(w) at `Lambda`, at most 1, as it was proved

    @abstractmethod
    def proved_maximum(self, problem: Problem) -> float:
        """Return a bound on max_w h(w) at `Lambda` that the arrays prove; infinity if they prove none; see `bound`."""

    def certified(self, problem: Problem) -> tuple[float, float]:
        """Return (M, lower): the proved maximum, which no lam changes, and the bound at the problem's lam.

        M is a bound on what is exactly orthogonal to what is free.
        """
        self.check_point(problem)
        maximum = self.proved_maximum(problem)
        bound = dual_bound(problem, self.Lambda, maximum)
        return widened(problem, distance(problem, orthogonal(problem, self.Lambda)), maximum), bound.lower

    def proved_again(self, problem: Problem) -> Proof:
        """Return this proof, with the maximum and the bound that its arrays prove now if that is less."""
        maximum, lower = self.certified(problem)
        return self if lower >= self.lower and maximum <= self.maximum else replace(self, lower=lower, maximum=maximum)

    def check_point(self, problem: Problem) -> None:
        """Raise a ProblemError if the dual point does not fit the problem."""
        if self.Lambda.shape != problem.Y.shape:
            raise ProblemError(MISSING)
        if not bool(torch.isfinite(self.Lambda).all()):
            raise ProblemError("The stored dual point has NaN or infinite entries; solve again.")

    def bound(self, problem: Problem) -> float:
        """Return the bound at the dual point, after proving its maximum again."""
        return self.certified(problem)[1]

    def holds(self, problem: Problem, lower: float, rounding: float) -> bool:
        """Return True if the arrays prove both `lower` and the stated maximum."""
        maximum, proved = self.certified(problem)
        return lower <= proved * (1.0 + rounding) and maximum <= self.maximum * (1.0 + rounding)

    @classmethod
    def read(cls, lower: float, arrays: Mapping[str, NDArray]) -> Proof:
        """Return the proof that a file holds, its dual point in float64; see `Proof.read`."""
        Lambda = arrays.get("Lambda")
        if Lambda is None:
            return Unproved(lower, MISSING)
        if Lambda.dtype.kind not in "fiu" or Lambda.ndim != 2:
            raise ValueError("no real matrix Lambda")
        if "maximum" not in arrays:
            raise ValueError("no maximum")
        return super().read(lower, {**arrays, "Lambda": Lambda.astype(np.float64)})


def dual_bound(problem: Problem, Lambda: Float[Tensor, "N m"], maximum: float) -> DualBound:
    """Return the best D(t Lambda) over t in [0, 1/maximum], less its rounding.

    With free biases the bound is at the part of Lambda that is orthogonal to what is free. `maximum` is a proved M >=
    max h there; infinity proves nothing and gives the bound 0, and so does a loss that does not say how its conjugate
    is rounded. Another depth, and a `maximum` that is negative or NaN, raise a ProblemError.
    """
    if problem.depth != 2:
        raise ProblemError(
            f"The dual bounds networks of depth 2 and this problem has depth {problem.depth}; use the spectral bound."
        )
    if not maximum >= 0.0:
        raise ProblemError(f"The proved maximum of h is {maximum}; give a number >= 0, or infinity for none.")
    Lambda = orthogonal(problem, Lambda)
    if not is_provable(problem) or not math.isfinite(maximum) or not bool(torch.isfinite(Lambda).all()):
        return nothing(Lambda)
    off = distance(problem, Lambda)
    if not math.isfinite(off):
        return nothing(Lambda)
    entropy = type(problem.loss) is CrossEntropy  # a subclass need not have it
    of_loss = _entropy_bound if entropy else _parabola_bound if type(problem.loss) in PARABOLAS else _concave_bound
    bound = of_loss(problem, Lambda, widened(problem, off, maximum))
    if bound is None or not 0.0 < bound.lower < math.inf:
        return nothing(Lambda)
    return bound._replace(lower=max(0.0, bound.lower - lost(problem, bound.Lambda, bound.scale * off)))


def is_provable(problem: Problem) -> bool:
    """Return True if the loss lets a dual point bound the minimum of two layers.

    With free biases only mse and exact fits do: what is orthogonal to what is free may leave the domain of the other
    conjugates.
    """
    provable = isinstance(problem.loss, Provable) and isinstance(problem.biases, Penalised)
    return provable or type(problem.loss) in PARABOLAS


def nothing(Lambda: Float[Tensor, "N m"]) -> DualBound:
    """Return the bound 0."""
    return DualBound(0.0, torch.zeros_like(Lambda), 0.0, 0.0)


def _parabola_bound(problem: Problem, Lambda: Tensor, maximum: float) -> DualBound | None:
    """mse and interpolate: D(t Lambda) = b t - q t^2, b = 2 lam (<Lambda, Y> - eps |Lambda|_1), q >= 0."""
    slope = 2.0 * problem.lam * float((Lambda * problem.Y.double()).sum())
    slope -= 2.0 * problem.lam * problem.allowed_misfit * float(Lambda.abs().sum())
    curvature = problem.lam * problem.dual_beta**2 * float(Lambda.sum(dim=0).square().sum())
    curvature += problem.lam**2 * problem.dual_squares(Lambda)
    # Where D grows without end (maximum = 0), no network fits the data; that is not for a bound to say.
    largest = (1.0 - EPS) / maximum if maximum > 0.0 else math.inf
    scale = min(slope / (2.0 * curvature) if curvature > 0.0 else math.inf, largest)
    if slope <= 0.0 or not math.isfinite(scale):
        return None
    point = scale * Lambda
    terms = 2.0 * problem.lam * float((point * problem.Y.double()).abs().sum())
    terms += problem.lam**2 * problem.dual_squares(point)
    lower = float(problem.dual_value(point)) - _rounding(problem, point, terms)
    return DualBound(lower, point, min(1.0, scale * maximum), scale)


def _rounding(problem: Problem, point: Tensor, terms: float) -> float:
    """Bound what rounding adds to `dual_value`: (n + 8) roundings of the sums of absolute terms and of the biases."""
    bias = problem.lam * problem.dual_beta**2 * float(point.abs().sum(dim=0).square().sum())
    return (2 * point.numel() + 16) * (EPS * (terms + bias) + UNDERFLOW)


def _concave_bound(problem: Problem, Lambda: Tensor, maximum: float) -> DualBound | None:
    """Any other loss: D(t Lambda) is concave in t, and -infinity outside the domain of C*."""
    size = float(Lambda.norm()) * float(problem.Xt.double().norm()) * (1.0 + 2.0**-30)
    largest = (1.0 - 8 * EPS) / (maximum + 8 * EPS * size) if maximum + size > 0.0 else math.inf
    if not math.isfinite(largest):
        return None

    def value(t: float) -> float:
        dual_value = float(problem.dual_value(t * Lambda))
        return dual_value if math.isfinite(dual_value) else -math.inf

    scale = _highest(value, last_that_holds(lambda t: value(t) > -math.inf, largest))
    point = scale * Lambda
    lower = value(scale) - _concave_rounding(problem, point)
    return DualBound(lower, point, min(1.0, scale * (maximum + 8 * EPS * size)), scale)


def last_that_holds(holds: Callable[[float], bool], largest: float) -> float:
    """About the last t <= `largest` at which something holds that ceases to hold; 0 where there is none above it."""
    if holds(largest):
        return largest
    low, high = 0.0, largest
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _highest(value: Callable[[float], float], last: float) -> float:
    """Return a maximiser of a concave function on [0, last], by Brent's method; `last`, if it is as high."""
    settings: dict[str, Any] = {"bounds": (0.0, 1.0), "method": "bounded", "options": {"xatol": 1e-12}}
    with np.errstate(all="ignore"):  # values may be as large as floats are
        middle = last * float(scipy.optimize.minimize_scalar(lambda part: -value(part * last), **settings).x)
    return last if value(last) >= value(middle) else middle


def _concave_rounding(problem: Problem, point: Tensor) -> float:
    G = -2.0 * problem.lam * point * problem.inverse_shares[:, None]
    Y = problem.Y.double()
    assert isinstance(problem.loss, Provable)
    conjugates = float(problem.shares @ problem.loss.conjugate_rounding(G, Y)) * (1.0 + 2.0**-30)
    return conjugates + _rounding(problem, point, float(problem.shares @ problem.loss.conjugates(G, Y).abs()))


def _entropy_bound(problem: Problem, Lambda: Tensor, maximum: float) -> DualBound | None:
    """cross_entropy: p(t) = Y - 2 lam t Lambda / q, kept in the simplex; bisection on the sign of D'(t)."""
    Y, size = problem.Y.double(), float(problem.Xt.double().norm()) * (1.0 + 2.0**-30)
    point = _into_domain(Lambda, Y)
    maximum += float((point - Lambda).norm()) * size * (1.0 + 2.0**-30)
    strength = 2.0 * problem.lam * problem.inverse_shares[:, None]
    # The rows of p add up to 1 within `off`; the exact point of the simplex next to p differs by that much.
    row_rounding = 4 * Y.shape[1] * EPS
    off = (Y.sum(dim=1) - 1.0).abs() + row_rounding
    slack = 1.0 - float((off / strength[:, 0]).norm()) * size - 8 * EPS
    positive = point > 0
    domain = float((Y[positive] / (strength * point)[positive]).min()) if positive.any() else 0.0  # Lambda = 0
    largest = min(slack / maximum if maximum > 0.0 else math.inf, domain * (1.0 - 8 * EPS))
    if slack <= 0.0 or not math.isfinite(largest):
        return None
    bias = problem.dual_beta**2 * float(point.sum(dim=0).square().sum())

    def rises(t: float) -> bool:
        """Return the sign of D'(t) / (2 lam) = <point, log p(t)> - beta^2 t |point^T 1|^2, which decreases."""
        p = Y - strength * t * point
        return float(torch.xlogy(point, p.clamp_min(0.0)).sum()) > t * bias

    scale = last_that_holds(rises, largest)
    scaled = scale * point
    lower = float(problem.dual_value(scaled)) - _entropy_rounding(problem, scaled, off)
    return DualBound(lower, scaled, min(1.0, scale * maximum + 1.0 - slack), scale)


def _entropy_rounding(problem: Problem, point: Tensor, off: Float[Tensor, " N"]) -> float:
    """Bound what rounding, and rows of p that add up to 1 only within `off`, add to `dual_value`."""
    classes = point.shape[1]
    moved = float(problem.shares @ off) * (2.0 + math.log(classes)) + classes * ENTROPY
    return moved + _rounding(problem, point, math.log(classes))


def _into_domain(Lambda: Float[Tensor, "N m"], Y: Float[Tensor, "N m"]) -> Float[Tensor, "N m"]:
    """Lambda with no entry > 0 where Y is 0 and with rows of sum 0, by moving each row's entry of largest Y."""
    point = torch.where((Y <= 0.0) & (Lambda > 0.0), 0.0, Lambda)
    label = Y.argmax(dim=1, keepdim=True)
    return point.scatter(1, label, -point.scatter(1, label, 0.0).sum(dim=1, keepdim=True))


def oracle_of(inputs: Float[Tensor, "N d"], activation: Activation) -> Oracle | None:
    """Return an oracle that computes max h itself; None where there is none."""
    return LinearOracle(inputs) if activation.is_linear else exact_oracle(inputs, activation)


def strongest(problem: Problem, Lambda: Float[Tensor, "N m"], stop: Stop = lambda: False) -> Answer:
    """Return the strongest neurons of every view by exact oracles, as rows of weights, and the proved maximum of h.

    The bound is infinite where `stop` came first, or where an oracle is missing.
    """
    Lambda = orthogonal(problem, Lambda)
    rows, values, bounds = [problem.Xt[:0].double()], [Lambda[:0, 0]], [0.0]
    for view in problem.biases.views(problem.X.double(), problem.beta):
        if stop() or (oracle := oracle_of(view.inputs, problem.activation)) is None:
            bounds.append(math.inf)
            break
        answer = oracle(Lambda, view.inputs[:0])
        # sigma is 1-Lipschitz.
        bounds.append(answer.upper_bound + view.rounding * float(Lambda.norm()))
        rows.append(view.rows(answer.directions))
        values.append(answer.values)
    h, order = torch.cat(values).sort(descending=True)
    return Answer(torch.cat(rows)[order], h, float(np.max(bounds)))


@dataclass(frozen=True)
class Exact(DualProof):
    """A bound from a dual point, whose maximum exact oracles compute, one for each view."""

    kind: ClassVar[Certificate] = Certificate.EXACT
    biases: ClassVar[tuple[type, ...]] = (Penalised, Free)

    @classmethod
    def suits(cls, problem: Problem) -> bool:
        return is_provable(problem) and problem_has_exact_oracle(problem)

    @classmethod
    def prove(cls, problem: Problem, target: Target, last: Any = None) -> Proved | None:
        """Ask the oracles at the dual point; None where one is missing, or `target.stop` comes first."""
        answer = strongest(problem, target.point, target.stop)
        if not answer.proved:
            return None
        return Proved(cls(*dual_bound(problem, target.point, answer.upper_bound)[:3]), answer)

    settled = DualProof.proved_again  # at the scaled point the oracles charge other rounding

    def proved_maximum(self, problem: Problem) -> float:
        if not problem_has_exact_oracle(problem):
            raise ProblemError("The certificate says exact, but no oracle is exact for data of this rank; solve again.")
        return strongest(problem, self.Lambda).upper_bound
