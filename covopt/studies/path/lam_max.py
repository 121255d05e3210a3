"""Bound lam_max, the smallest lam at which no hidden neurons are needed (MATH.md section 10).

Without hidden neurons the outputs are F_0 = beta 1 b^T, b = b(lam) the minimiser of C(beta 1 b^T) + lam |b|^2, and 0
for beta = 0. For two layers this network is optimal iff H(lam) <= 1, where

    H(lam) = max_w |Lambda(lam)^T sigma(Xt w)|,   Lambda(lam) = -grad C(F_0) / (2 lam),   |w| = 1.

Without a bias Lambda is proportional to 1 / lam. With a bias the set of these lam need not be an interval, so that
lam_max is the supremum of all lam with H > 1. For lam <= u, with S >= max_w |1^T sigma(Xt w)|,

    H(lam) <= (u / lam) H(u) + (u / lam - 1) kappa,   kappa = |b(lam)| S / (N beta),

because lam b(lam) changes no faster than |b(lam)|, which falls in lam. So H <= 1 between u (H(u) + kappa) / (1 + kappa)
and u. Such steps down from a lam that is too large end at lam_max, from above; with a proved bound in place of H(u),
they end at a proved upper end. The same steps for the neurons of a search end at a lower end.

With free biases F_0, a constant or affine function, does not depend on lam. So Lambda(lam) = A / lam with A = -grad
C(F_0) / 2, which is orthogonal to the unpenalised columns: lam_max = max h at A (MATH.md section 4).

Three layers and more: rho = prod_l |W_l|_F gives C(F) >= max(0, C(0) - g rho), g = |grad C(0)|_op |X|_op, where
beta = 0, at a penalty of lam L rho^(2/L) or more: 0 is optimal where lam >= C(0) / (L (C(0) / g)^(2/L)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.certify.cones.branch import ConeTree, branch_and_bound
from covopt.certify.dual import oracle_of, strongest
from covopt.certify.dual_space import distance, orthogonal, widened
from covopt.certify.free import proved_maximum
from covopt.certify.relaxation.bound import Relaxation, relaxed_maximum
from covopt.certify.spectral import largest_singular_value
from covopt.model.affine import Affine
from covopt.model.biases import centred
from covopt.model.problem import Problem
from covopt.model.scalars import SMALLEST
from covopt.model.weights import Cost
from covopt.oracles.exact import problem_has_exact_oracle
from covopt.oracles.neurons import rows_of, strongest as best_neuron
from covopt.oracles.search import ConvexConcaveOracle
from covopt.runtime.loop import Budget

# Steps down end when they are shorter than this, relative; maximum number of steps.
SHORTEST, MOST_STEPS = 1e-12, 400
# Ascents of a search; number of searches without a larger value after which the lower end counts as found.
ASCENTS, PATIENCE = 100, 2
# Ascents of a search with free biases; rounding of Y minus its unpenalised part, relative to Y.
FREE_ASCENTS, LOST = 200, 2.0**-46
# Relative rounding of an end; ends of an exact maximum that are nearer than EXACT count as equal.
ROUNDING, EXACT = 1e-12, 1e-9
# A proof of the maximum is good enough at this relative distance to the attained value.
NEAR = 1e-3
# Maximum number of slow proofs, one for each step down.
PROOFS = 4
NEWTON_STEPS = 1000
# Steps down end below this: such a small lam is refused as an option, and H is below 1 at all of them.
NOWHERE = SMALLEST**2
# Steps in the exponents of a softmax below this that no longer shrink are rounding.
NOISE = 1e-3

Maximum = Callable[[Float[Tensor, "N m"]], float]


@dataclass(frozen=True)
class LamMax:
    """The ends of an interval for lam_max; equal if known to 1e-9; None if nothing is proved."""

    lower: float | None
    upper: float | None


def lam_max(problem: Problem, seconds: float, seed: int = 0) -> LamMax:
    """Bound lam_max for mse or cross-entropy with equal sample weights in float64, whatever its own lam.

    Slow proofs of the upper end take these seconds; the seed is that of the search for the lower end.
    """
    if problem.depth > 2:
        return LamMax(0.0, _deep_end(problem))
    if problem.free:
        low, high = _free_ends(problem, seconds, seed)
        if not math.isfinite(high):
            return LamMax(low, None)
        return LamMax(high if high - low <= EXACT * high else min(low, high), high)
    family = _Family(problem)
    if not bool(family.at(1.0).any()):
        return LamMax(0.0, 0.0)
    oracle, lower = oracle_of(problem.Xt, problem.activation), _lower_end(problem, family, seed)
    if lower <= ROUNDING * _norms_of(problem)(family.A):  # rounding, as of inputs that are all equal
        lower = 0.0
    if oracle is not None:

        def exact(Lambda: Tensor) -> float:
            return oracle(Lambda, problem.Xt[:0]).upper_bound

        spread = exact(torch.ones_like(problem.Y[:, :1])) if problem.beta else 0.0
        upper = family.down(exact, family.far(exact), spread) * (1.0 + ROUNDING)
        near = upper - lower <= EXACT * upper
        return LamMax(upper if near else min(lower, upper), upper)
    upper = _proved_end(problem, family, lower, seconds)
    return LamMax(min(lower, upper), upper)


class _Family:
    """The family Lambda(lam) = A / lam + 1 b(lam)^T / (N beta); A has means 0 if beta > 0."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.mean = problem, problem.Y.mean(dim=0)
        if problem.beta:
            self.A = (problem.Y - self.mean) / ((2.0 if problem.ridge is None else 1.0) * problem.samples)
        else:
            self.A = -0.5 * problem.gradient_at(torch.zeros_like(problem.Y))

    def at(self, lam: float) -> Float[Tensor, "N m"]:
        """Return Lambda(lam)."""
        return self.A / lam + self.share(lam)

    def share(self, lam: float) -> Float[Tensor, "1 m"]:
        """Return b(lam)^T / (N beta), the means that the output bias does not fit; 0 without bias."""
        beta = self.problem.beta
        if beta == 0.0:
            return torch.zeros_like(self.mean)[None]
        return self._bias(lam)[None] / (self.problem.samples * beta)

    def far(self, maximum: Maximum) -> float:
        """Return a lam such that H <= 1 at every larger one.

        H(lam) <= max h at A / lam + |b(lam)| S / (N beta), which falls in lam.
        """
        beta = self.problem.beta
        size = maximum(self.A)
        if beta == 0.0:
            return size
        spread, lam = maximum(torch.ones_like(self.A[:, :1])), size
        lam = max(lam, beta**2)
        while size / lam + float(self.share(lam).norm()) * spread > 1.0:
            lam *= 2.0
        return lam

    def down(self, maximum: Maximum, start: float, spread: float) -> float:
        """Step down from a lam above which H <= 1, until a step is too short."""
        upper = start
        for _ in range(MOST_STEPS):
            lower = self.step(upper, maximum(self.at(upper)), spread)
            if not lower < upper * (1.0 - SHORTEST):
                break
            upper = lower
            if upper < NOWHERE:
                break
        return upper

    def attains(self, maximum: Maximum, lam: float, spread: float) -> bool:
        """Return True if the steps down ended at lam because H is 1 there, not by their number."""
        kappa = float(self.share(lam).norm()) * spread
        return lam >= NOWHERE and maximum(self.at(lam)) >= 1.0 - 10.0 * SHORTEST * (1.0 + kappa)

    def step(self, upper: float, maximum: float, spread: float) -> float:
        """Return the lower end of the interval below `upper` where H <= 1; `maximum` >= H(upper)."""
        if self.problem.beta == 0.0 or maximum >= 1.0:
            return upper * maximum
        end = upper
        for _ in range(2):  # |b| falls in lam: the second time it is taken at the end of the first step
            kappa = float(self.share(end).norm()) * spread
            end = upper * (maximum + kappa) / (1.0 + kappa)
        return end

    def _bias(self, lam: float) -> Float[Tensor, " m"]:
        """Return the minimiser b of C(beta 1 b^T) + lam |b|^2."""
        beta = self.problem.beta
        if self.problem.ridge is not None:  # least squares
            return beta * self.mean / (beta**2 + lam)
        # Newton's method in u = beta b, where sum u = 0: the Hessian is D - p p^T, D = diag(p + 2 mu). As the slope
        # sums to 0 too, the step is computed without cancellation, also if p is 0 for a class without samples.
        u, mu, before = torch.zeros_like(self.mean), lam / beta**2, math.inf
        for _ in range(NEWTON_STEPS):
            p = torch.softmax(u, dim=0)
            slope, D = p - self.mean + 2.0 * mu * u, p + 2.0 * mu
            step = (slope - p * ((slope / D).sum() / (p / D).sum())) / D
            size = float(step.abs().max())
            u = u - step / max(1.0, size)
            if size <= ROUNDING * float(u.abs().max()) or before <= size < NOISE:
                break
            before = size
        return u / beta


def _free_ends(problem: Problem, seconds: float, seed: int) -> tuple[float, float]:
    """Return the ends of an interval for lam_max of two layers with free biases.

    They are nearly equal if an oracle is exact. The upper end is infinite if unpenalised columns depend on one another,
    up to rounding; without seconds it is that by norms.
    """
    A = _free_slope(problem)
    if not bool(A.any()):
        return 0.0, 0.0
    Xc = centred(problem.X)
    # |sigma(X w + b)| <= 2 N^(1/2) max |x| at a breakpoint; the error of A is the rounding of Y.
    off = LOST * float((problem.shares[:, None] * problem.Y).norm()) * 2.0 * float(Xc.norm(dim=1).max())
    off *= math.sqrt(problem.samples)
    if problem_has_exact_oracle(problem):
        answer, off_space = strongest(problem, A), distance(problem, orthogonal(problem, A))
        low, high = float(answer.values[0]), widened(problem, off_space, answer.upper_bound)
    else:
        none = rows_of(problem.X[:0], A[:0, 0])
        neuron = best_neuron(problem.X, problem.activation, A / A.norm(), none, FREE_ASCENTS, seed)
        low = 0.0 if neuron is None else neuron[2] * float(A.norm())
        high = proved_maximum(problem, A, seconds, low, NEAR)
    return max(0.0, low * (1.0 - ROUNDING) - off), high + off


def _free_slope(problem: Problem) -> Float[Tensor, "N m"]:
    """Return A = -grad C(F_0) / 2."""
    Y, shares = problem.Y, problem.shares[:, None]
    if problem.ridge is None:  # cross-entropy: F_0 = log p, also where a class is missing
        return 0.5 * shares * (Y - problem.mean(Y))
    Xc = problem.X - problem.X.mean(dim=0)
    return shares * Affine(problem.biases.skipped(Xc / (float(Xc.abs().max()) or 1.0)), problem.weight).off(Y)


def _lower_end(problem: Problem, family: _Family, seed: int) -> float:
    """Return the largest lam with |Lambda(lam)^T sigma(Xt w)| = 1 for a neuron of a search."""
    search = ConvexConcaveOracle(problem.Xt, problem.activation)
    generator = torch.Generator().manual_seed(seed)
    directions, lam, idle = problem.Xt[:0], 0.0, 0
    at = NEAR * family.far(_norms_of(problem))
    while idle < PATIENCE:
        starts = torch.randn(ASCENTS, problem.Xt.shape[1], generator=generator, dtype=torch.float64)
        starts = torch.cat([directions, starts.to(problem.Xt)])
        directions = torch.cat([directions, search(family.at(lam or at), starts).directions[:ASCENTS]])
        features = problem.activation(problem.Xt @ directions.T)

        def attained(Lambda: Tensor, features: Tensor = features) -> float:
            return float((features.T @ Lambda).norm(dim=1).max()) if features.shape[1] else 0.0

        spread = float(features.sum(dim=0).abs().max()) if features.shape[1] else 0.0
        end = family.down(attained, family.far(attained), spread)
        end = end if family.attains(attained, end, spread) else 0.0
        idle = idle + 1 if end <= lam * (1.0 + ROUNDING) else 0
        lam = max(lam, end)
    return lam * (1.0 - ROUNDING)


def _proved_end(problem: Problem, family: _Family, lower: float, seconds: float) -> float:
    """Return an upper end without an exact oracle: by norms, and by proofs of maxima.

    Above v, H(lam) <= (v / lam) H(v) + (1 - v / lam) kappa(v) by the same argument: a proof at one v near the lower end
    is enough where kappa < 1. Else steps go down from a lam that is too large.
    """
    norms, budget = _norms_of(problem), Budget(max(seconds, 1e-9))
    upper = family.far(norms)

    def proved(Lambda: Tensor, parts: int) -> float:
        share = replace(budget, time_limit=budget.seconds() + budget.remaining() / parts)
        return min(norms(Lambda), _proved(problem, Lambda, share))

    if seconds > 0.0 and problem.beta == 0.0:
        upper = min(upper, proved(family.A, 1))
    elif seconds > 0.0:
        spread, at = proved(torch.ones_like(problem.Y[:, :1]), PROOFS), max(lower, NEAR * upper)
        kappa, maximum = float(family.share(at).norm()) * spread, proved(family.at(at), PROOFS - 1)
        if kappa < 1.0:
            upper = min(upper, at * max(1.0, (maximum - kappa) / (1.0 - kappa)))
        for count in range(PROOFS - 2, 0, -1):
            if budget.spent() or upper <= lower * (1.0 + NEAR):
                break
            upper = min(upper, family.step(upper, proved(family.at(upper), count), spread))
    return upper * (1.0 + ROUNDING)


def _proved(problem: Problem, Lambda: Float[Tensor, "N m"], budget: Budget) -> float:
    """Prove a bound on max h by branch and bound, or by the relaxation; else infinite."""
    Xt, sigma = problem.Xt, problem.activation
    maxima = ConvexConcaveOracle(Xt, sigma)(Lambda, torch.cat([Xt, -Xt])[:ASCENTS])
    aim = float(maxima.values[0]) * (1.0 + NEAR) if len(maxima.values) else 0.0
    two_layers = replace(problem, depth=2)
    if ConeTree.applies(two_layers):
        limit = budget.remaining()
        return branch_and_bound(Xt, sigma, Lambda, target=aim, time_limit=limit, starts=maxima.directions).upper_bound
    return relaxed_maximum(Xt, sigma, Lambda, aim, budget) if Relaxation.applies(two_layers) else math.inf


def _norms_of(problem: Problem) -> Maximum:
    """Return the bound h(w) <= |Lambda|_op |sigma(Xt w)| <= |Lambda|_op |Xt|_op."""
    largest = largest_singular_value(problem, problem.Xt, centred=False)
    return lambda Lambda: largest_singular_value(problem, Lambda, centred=False) * largest


def _deep_end(problem: Problem) -> float | None:
    """Return the upper end for three layers and more, without a bias."""
    if problem.beta:
        return None
    zero = torch.zeros_like(problem.Y)
    cost = float(problem.loss_at(zero))
    steep = largest_singular_value(problem, problem.gradient_at(zero), centred=False)
    steep *= largest_singular_value(problem, problem.X, centred=False)
    if not (cost > 0.0 and steep > 0.0):
        return 0.0
    # C(0) / (L (C(0) / g)^(2/L)), by logarithms: its powers may leave float64's range.
    power = math.log(cost) - 2.0 / problem.depth * (math.log(cost) - math.log(steep))
    return math.exp(power) / problem.depth * (1.0 + ROUNDING)


def beaten(constant: float, networks: Sequence[Cost]) -> float:
    """Return the largest lam at which a network costs less than the zero network, `constant` (beta = 0)."""
    return max(((constant - cost.fit) / cost.norm for cost in networks if cost.norm > 0.0), default=0.0)
