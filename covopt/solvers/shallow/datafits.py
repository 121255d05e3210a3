"""Data fits: each loss as least squares, so that one master serves them all.

The master (master.py) minimises sum_i |F_i - T_i|^2 / mu_i + the cost of the neurons, in units of lam:

* mse: mu_i = lam / q_i (N lam without weights) and T = Y, exactly.
* interpolate: the augmented Lagrangian, T = Y + mu Lambda_prev; F = Y holds in the limit (Rockafellar 1976: the
  proximal-point method on the dual). The answer is repaired to F = Y exactly.
* mse with so small a lam that Y - F = N lam Lambda would be lost in rounding: the same with mu / w_i, mu larger, and
  T = Y + (mu - N lam) Lambda_prev / w, whose limit is F = Y - N lam Lambda / w. The answer gets the best outputs for
  N lam.
* cross_entropy and every other loss: a quadratic model at F with each sample's own curvature rho_i, the largest of its
  outputs', mu_i = 2 lam / rho_i and T = F - grad / rho; raised until the true objective falls (a proximal Newton
  method).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.linalg.narrow import times_narrow
from covopt.linalg.psd import RANK_RULE, RankRule, thin
from covopt.model.problem import Problem
from covopt.runtime.loop import Stop
from covopt.solvers.checkpoint import Facts
from covopt.solvers.shallow.master import Master, Mixture
from covopt.solvers.shallow.newton import refine
from covopt.solvers.shallow.sliding import Eliminated, Joint


def mixture_outputs(
    Phi: Float[Tensor, "N n"], outputs: Float[Tensor, "n m"], bias: Float[Tensor, " m"], beta: float
) -> Float[Tensor, "N m"]:
    """Return F = Phi V + beta 1 b^T."""
    return times_narrow(Phi, outputs) + beta * bias


class Datafit(ABC):
    """A loss, seen by the master through least squares."""

    random_atoms = 200  # random directions that the first master chooses from, besides the oracle's
    has_multiplier: bool = False
    """True if `solve` is one step of an augmented Lagrangian, whose multiplier follows the dual point of the master."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    @property
    def settled(self) -> bool:
        """Return True if the next `solve` has the same problem, not one nearer to the loss."""
        return True

    @abstractmethod
    def solve(self, Phi: Float[Tensor, "N n"], eta: Float[Tensor, " n"], tolerance: float, stop: Stop) -> Mixture:
        """Solve the master from eta; `Lambda` of the result is the dual point of the true loss."""

    @abstractmethod
    def smooth(self, F: Float[Tensor, "N m"]) -> tuple[Float[Tensor, ""], Float[Tensor, "N m"]]:
        """Return the loss for descents between master solves, in units of lam, and its gradient."""

    @abstractmethod
    def curvature(self, F: Float[Tensor, "N m"]) -> float:
        """Half of the mean diagonal of `smooth`'s Hessian at F, in units of lam."""

    def rank_rule(self) -> RankRule:
        """Return the rule by which directions of the inputs are left out."""
        return RANK_RULE

    def objective(self, X: Float[Tensor, "N r"]) -> Joint | Eliminated:
        """Return the objective of descents on inputs X; least squares eliminate the outputs."""
        problem = self._problem
        outputs, beta = problem.Y.shape[1], problem.bias(1)
        return Joint(X, problem.activation, beta, self.smooth, self.curvature, outputs, X.dtype, problem.spread)

    def update(self, F: Float[Tensor, "N m"], mixture: Mixture) -> None:  # noqa: B027 (least squares note nothing)
        """Take note that the weights have descended to a network with outputs F."""

    def update_multiplier(self, Lambda: Float[Tensor, "N m"], maximum: float) -> None:  # noqa: B027
        """Move the multiplier to the last dual point if the dictionary is rich enough there."""

    @property
    def misfit(self) -> float:
        """Return |F - Y|_F of the last mixture in exact fits, where that is small; infinite otherwise."""
        return math.inf

    def completed(
        self, Phi: Float[Tensor, "N n"], eta: Float[Tensor, " n"], stop: Stop
    ) -> tuple[Int[Tensor, " k"], Float[Tensor, "k m"], Float[Tensor, " m"]] | None:
        """Return an exact fit of small sum_k |v_k| with these features: places, outputs and bias; None if none fits.

        Minimises sum_k |v_k|^2 / eta_k several times, first with `eta` > 0, then with eta_k = |v_k| of the last time.
        Source: Daubechies, DeVore, Fornasier, Gunturk, Iteratively reweighted least squares minimization (2010).
        """
        return None

    def network(
        self, Phi: Float[Tensor, "N n"], mixture: Mixture
    ) -> tuple[Float[Tensor, "n m"], Float[Tensor, " m"]] | None:
        """Return outputs v_k and bias b of the network to report; None if not feasible yet."""
        return mixture.outputs, mixture.bias

    def memory(self) -> tuple[dict[str, object], dict[str, Tensor]]:
        """Return what further calls depend on: numbers, and arrays with a row for each sample."""
        return {}, {}

    def recall(self, facts: Facts, arrays: Mapping[str, Tensor]) -> None:  # noqa: B027
        """Restore what `memory` returned."""


class LeastSquaresDatafit(Datafit):
    """mse."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._last = problem.samples * problem.lam
        self._aim_at(problem.Y, self._last)

    def _aim_at(self, targets: Float[Tensor, "N m"], mu: float) -> None:
        """Make the loss sum_i |F_i - T_i|^2 / mu_i, mu_i = mu / w_i."""
        self._targets, self._used, self._weights = targets, mu, _mu(self._problem, mu)

    def solve(self, Phi: Tensor, eta: Tensor, tolerance: float, stop: Stop) -> Mixture:
        problem = self._problem
        return Master(Phi, self._targets, self._weights, problem.bias(1), problem.spread).solve(eta, tolerance, stop)

    def rank_rule(self) -> RankRule:
        """Return a rule that is finer for smaller mu, within rounding.

        A direction of singular value s adds at most s |Lambda| to h, and |Lambda| <= max w |Y| / (N lam).
        """
        strength = self._last / self._problem.samples * float(self._problem.inverse_shares.min())
        part = 1e-6 * strength / (largest_mu(self._problem) or 1.0)  # what is left out adds 1e-6 to h at most
        rounding = 2.0**-46  # relative to the largest singular value
        return RankRule(double=min(RANK_RULE.double, max(part, rounding)))

    def objective(self, X: Tensor) -> Eliminated:
        problem, targets, mu = self._problem, self._targets, self._used
        return Eliminated(X, problem.activation, problem.bias(1), targets, mu, problem.weight, problem.spread)

    def smooth(self, F: Tensor) -> tuple[Tensor, Tensor]:
        residual = F - self._targets
        gradient = 2.0 * residual / self._weights[:, None]
        return 0.5 * self._problem.spread.sum(lambda rows: rows.sum(), gradient * residual), gradient

    def curvature(self, F: Tensor) -> float:
        return float(self._weights.reciprocal().mean())


class MultiplierDatafit(LeastSquaresDatafit):
    """mse with a small lam: `solve` takes one augmented-Lagrangian step."""

    has_multiplier = True

    first_mu = 0.03  # the first mu, relative to `largest_mu`
    shrink = 0.1  # mu falls by this factor while the residual falls too slowly
    progress = 0.3  # mu stays as it is if the residual falls at least by this factor in a round
    rich_enough = 1.5  # the multiplier follows once max h is at most this; before, the dictionary is too poor to fit
    quick_shrink, close_misfit = 1e-2, 1e-6
    """mu falls by the first, and the multiplier does not follow, while |F - Y|_F is above the second, relative to
    |Y|_F."""
    rounding = 1e-16  # mu may fall down to N lam, but not below this part of `largest_mu`

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        largest, size = largest_mu(problem), problem.spread.norm(problem.Y)
        self._mu = self.first_mu * largest or 1.0
        # `last` is what mu is to be in the end: F = Y - mu Lambda.
        self._least, self._close = max(self._last, self.rounding * largest), False
        self._close_misfit, self._feasible_residual = self.close_misfit * size, math.inf
        self._multiplier, self._residual = torch.zeros_like(problem.Y), torch.inf
        self._aim_at(problem.Y, self._mu)

    def solve(self, Phi: Tensor, eta: Tensor, tolerance: float, stop: Stop) -> Mixture:
        problem = self._problem
        self._aim_at(problem.Y + _mu(problem, self._mu - self._last)[:, None] * self._multiplier, self._mu)
        mixture = super().solve(Phi, eta, tolerance, stop)
        F = mixture_outputs(Phi, mixture.outputs, mixture.bias, problem.bias(1))
        residual = problem.spread.norm(F - problem.Y + _mu(problem, self._last)[:, None] * mixture.Lambda)
        if self._close_misfit < math.inf:
            self._close = problem.spread.norm(F - problem.Y) <= self._close_misfit
        if not self._close:
            self._mu = max(self._mu * self.quick_shrink, self._least)
        elif residual > self.progress * self._residual:
            self._mu = max(self._mu * self.shrink, self._least)
        self._residual = residual
        return mixture

    @property
    def settled(self) -> bool:
        return self._close or self._used <= self._least

    def update_multiplier(self, Lambda: Tensor, maximum: float) -> None:
        if maximum <= self.rich_enough and self._close:
            self._multiplier = Lambda

    def update(self, F: Tensor, mixture: Mixture) -> None:
        self._residual = self._problem.spread.norm(F - self._problem.Y)

    def network(self, Phi: Tensor, mixture: Mixture) -> tuple[Tensor, Tensor] | None:
        """Minimise sum |v_k|^2 / eta_k + |b|^2, F = Y: V = eta^{1/2} (Phi eta^{1/2})^+ Y.

        For mse + sum_i w_i |F_i - Y_i|^2 / (N lam) instead of F = Y, which makes the pseudo-inverse a ridge regression.
        """
        return None if self._residual > self._feasible_residual else self._fitted(Phi, mixture.eta)

    def _fitted(self, Phi: Tensor, eta: Tensor) -> tuple[Tensor, Tensor] | None:
        problem, alive = self._problem, eta > 0
        root = eta[alive].sqrt()
        P = problem.weighted(torch.cat([Phi[:, alive] * root, Phi.new_full((len(Phi), 1), problem.bias(1))], dim=1))
        P, Y = problem.spread.condensed(P, problem.weighted(problem.Y))
        scaled = thin(P, RankRule(tikhonov=self._last)).solve(Y)
        outputs = Phi.new_zeros(Phi.shape[1], problem.Y.shape[1])
        outputs[alive] = root[:, None] * scaled[:-1]
        F = mixture_outputs(Phi, outputs, scaled[-1], problem.bias(1))
        return (outputs, scaled[-1]) if problem.allows(float((F - problem.Y).abs().max())) else None

    def memory(self) -> tuple[dict[str, object], dict[str, Tensor]]:
        facts = {"mu": self._mu, "used": self._used, "residual": self._residual, "close": self._close}
        return facts, {"rows_multiplier": self._multiplier, "rows_targets": self._targets}

    def recall(self, facts: Facts, arrays: Mapping[str, Tensor]) -> None:
        self._mu, self._residual, self._close = facts["mu"], facts["residual"], facts["close"]
        self._multiplier = arrays["rows_multiplier"]
        self._aim_at(arrays["rows_targets"], facts["used"])


class ExactDatafit(MultiplierDatafit):
    """interpolate: mu Lambda is 0 in the end, and the multiplier follows from the beginning."""

    random_atoms = 0
    least_mu = 1e-4  # mu never falls below this, relative to the first
    # For each sample, `completed` reweighs 8 features 5 times, the strongest 4 another 5 times, then 2 for 20 times.
    # All 8 for 20 times take twice as long, end 0.01 to 0.05 % higher, and leave three times as many neurons.
    reweighings = ((8, 5), (4, 5), (2, 20))
    nearly = 3e-2  # mixtures are completed where |F - Y|_F is below this part of |Y|_F

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._last, self._least, self._close = 0.0, self.least_mu * self._mu, True
        self._close_misfit, self._feasible_residual = math.inf, 0.1 * problem.spread.norm(problem.Y)

    @property
    def misfit(self) -> float:
        close = self.nearly * self._problem.spread.norm(self._problem.Y)
        return self._residual if self._residual <= close else math.inf

    def completed(self, Phi: Tensor, eta: Tensor, stop: Stop) -> tuple[Tensor, Tensor, Tensor] | None:
        Y, beta, faint = self._problem.Y, self._problem.bias(1), 1e-13
        places = torch.arange(len(eta), device=eta.device)
        for most, turns in self.reweighings:
            strongest = eta.topk(min(len(eta), most * len(Y))).indices
            places, eta, Phi = places[strongest], eta[strongest], Phi[:, strongest]
            for _ in range(turns):
                A = (Phi * eta) @ Phi.T + beta**2
                A.diagonal().mul_(1.0 + 1e-15)  # for rounding
                factor, failed = torch.linalg.cholesky_ex(A)
                if int(failed) or stop():
                    break
                eta = eta * (Phi.T @ torch.cholesky_solve(Y, factor)).norm(dim=1)
                eta = torch.maximum(eta, faint * eta.max())
        parts = self._fitted(Phi, torch.where(eta > 1e4 * faint * eta.max(), eta, 0.0))
        return None if parts is None else (places, *parts)


class ConvexDatafit(Datafit):
    """cross_entropy, huber, logistic and custom losses: quadratic models at the outputs, a proximal Newton method."""

    models = 3
    """The maximum number for each call, beside those that fail. With 12 the first networks come 1.5 times later, with 1
    breast cancer is 0.07 % higher after 1 s."""
    floor = 1e-4
    """The smallest curvature, relative to the largest possible 1 / (2 N), at most; for inputs of size 1 the minimum has
    1 - p of about N lam, and below that nothing is gained."""
    damping_factor, largest_damping = 4.0, 1e6
    """A failed step multiplies the curvature by the first number; the product is at most the second."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        reach = max(1.0, problem.spread.largest(float(problem.Xt.square().sum(dim=1).max())))
        self._floor = min(self.floor, problem.samples * problem.lam / reach)
        self._stiffness = 1.0
        self._F, self._cost = torch.zeros_like(problem.Y), torch.inf

    def solve(self, Phi: Tensor, eta: Tensor, tolerance: float, stop: Stop) -> Mixture:
        problem = self._problem
        mixture, best, taken = None, None, 0
        while taken < self.models:
            targets, mu = self._model(self._F)
            mixture = Master(Phi, targets, mu, problem.bias(1), problem.spread).solve(eta, tolerance, stop)
            mixture = self._refined(Phi, mixture, tolerance, stop)
            new = mixture_outputs(Phi, mixture.outputs, mixture.bias, problem.bias(1))
            value = self._objective(new, mixture)
            if value > self._cost and self._stiffness < self.largest_damping:
                self._stiffness *= self.damping_factor
                continue
            taken += 1
            fall = self._cost - value
            if best is None or fall > 0:
                self._F, self._cost, eta, best = new, value, mixture.eta, mixture
            self._stiffness = max(1.0, self._stiffness / 2.0)
            if fall <= tolerance * self._cost or stop():
                break
        result = best or mixture
        assert result is not None
        return replace(result, Lambda=-problem.gradient_at(self._F) / (2.0 * problem.lam))

    def smooth(self, F: Tensor) -> tuple[Tensor, Tensor]:
        problem = self._problem
        return problem.loss_at(F) / problem.lam, problem.gradient_at(F) / problem.lam

    def curvature(self, F: Tensor) -> float:
        problem = self._problem
        diagonal = problem.hessians_at(F).diagonal(dim1=1, dim2=2)
        mean = problem.spread.sum(lambda rows: rows.mean() * (len(rows) / problem.samples), diagonal)
        return float(mean) / (2.0 * problem.lam)

    def update(self, F: Tensor, mixture: Mixture) -> None:
        self._F, self._cost = F, self._objective(F, mixture)

    def memory(self) -> tuple[dict[str, object], dict[str, Tensor]]:
        return {"cost": self._cost, "stiffness": self._stiffness}, {"rows_outputs": self._F}

    def recall(self, facts: Facts, arrays: Mapping[str, Tensor]) -> None:
        self._cost, self._stiffness, self._F = facts["cost"], facts["stiffness"], arrays["rows_outputs"]

    def _model(self, F: Tensor) -> tuple[Tensor, Tensor]:
        """Return T and mu of the quadratic model at F; rho_i bounds sample i's Hessian from above."""
        problem = self._problem
        curvature = problem.loss.curvatures(F, problem.Y).amax(dim=1).clamp_min(0.5 * self._floor)
        rho = self._stiffness * curvature * problem.shares.to(F)
        targets = F - problem.gradient_at(F) / rho[:, None]
        return targets, 2.0 * problem.lam / rho

    def _refined(self, Phi: Tensor, mixture: Mixture, tolerance: float, stop: Stop) -> Mixture:
        """Minimise the loss itself over the outputs of the neurons that a model's minimum uses."""
        problem, used = self._problem, mixture.outputs.square().sum(dim=1) > 0.0
        refined = refine(problem, Phi[:, used], mixture.outputs[used], mixture.bias, tolerance, stop)
        if refined is None:
            return mixture
        outputs = torch.zeros_like(mixture.outputs)
        outputs[used] = refined[0]
        return replace(mixture, eta=outputs.norm(dim=1), outputs=outputs, bias=refined[1])

    def _objective(self, F: Tensor, mixture: Mixture) -> float:
        problem = self._problem
        norm = 2.0 * mixture.outputs.norm(dim=1).sum() + mixture.bias.square().sum()
        return float(problem.loss_at(F) + problem.lam * norm)


def _mu(problem: Problem, mu: float) -> Float[Tensor, " N"]:
    """Return mu / w_i of each sample."""
    return problem.Y.new_full((len(problem.Y),), mu) / (1.0 if problem.weight is None else problem.weight)


def largest_mu(problem: Problem) -> float:
    """Return |Y|_F |Xt|_op: with mse and a larger N lam no neuron pays."""
    return problem.spread.norm(problem.Y) * float(torch.linalg.matrix_norm(problem.condensed_Xt, 2))


def make_datafit(problem: Problem) -> Datafit:
    """Return the data fit for the problem's loss and lam."""
    kinds = {"mse": LeastSquaresDatafit, "interpolate": ExactDatafit}
    kind, least = kinds.get(problem.loss.name, ConvexDatafit), problem.lam * float(problem.inverse_shares.min())
    # With a smaller mu = N lam less than half of the digits of Lambda = (Y - F) / mu are left.
    if kind is LeastSquaresDatafit and least < 1e-9 * largest_mu(problem):
        return MultiplierDatafit(problem)
    return kind(problem)
