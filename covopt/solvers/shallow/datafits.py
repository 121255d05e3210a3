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

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.psd import RankRule, thin
from covopt.model.problem import Problem
from covopt.model.spread import Alone
from covopt.solvers.shallow.master import Master, Mixture
from covopt.solvers.shallow.newton import hessians, refine

LOST_DIGITS = 1e-9
"""Below this part of `largest_mu`, mu = N lam leaves less than half of the digits of Lambda = (Y - F) / mu."""

# The augmented Lagrangian's schedule.
FIRST_MU = 0.03  # relative to `largest_mu`
SHRINK = 0.1  # mu falls by this factor while the residual falls too slowly
LEAST_MU = 1e-4  # for `interpolate` mu never falls below this, relative to the first
QUICK_SHRINK = 1e-2  # for mse mu falls by this, and the multiplier does not follow, while the misfit is not CLOSE
CLOSE = 1e-6  # |F - Y|_F relative to |Y|_F
ROUNDING = 1e-16  # for mse mu may fall down to N lam, but not below this part of `largest_mu`
PROGRESS = 0.3  # the fall of the residual per round that leaves mu as it is
RICH_ENOUGH = 1.5  # the multiplier follows once max h is at most this; before, the dictionary is too poor to fit

# The proximal Newton method's limits.
MODELS = 12  # for each call, at most
# The least curvature, relative to the largest possible 1 / (2 N), at most; for inputs of size 1 the minimum has 1 - p
# of about N lam, and below that nothing is gained.
FLOOR = 1e-4
DAMPING_FACTOR = 4.0  # factor on the curvature after a step that failed
LARGEST_DAMPING = 1e6  # the largest such factor in all


def mixture_outputs(
    Phi: Float[Tensor, "N n"], outputs: Float[Tensor, "n m"], bias: Float[Tensor, " m"], beta: float
) -> Float[Tensor, "N m"]:
    """Return F = Phi V + beta 1 b^T."""
    return torch.addmm(beta * bias, Phi, outputs)


def _squares(F: Tensor, targets: Tensor, mu: Tensor, spread: Alone) -> tuple[Tensor, Tensor]:
    """Return sum_i |F_i - T_i|^2 / mu_i and its gradient."""
    residual = F - targets
    gradient = 2.0 * residual / mu[:, None]
    return 0.5 * spread.sum(lambda rows: rows.sum(), gradient * residual), gradient


@runtime_checkable
class Datafit(Protocol):
    """A loss, seen by the master through least squares."""

    def solve(
        self, Phi: Float[Tensor, "N n"], eta: Float[Tensor, " n"], tolerance: float, stop: Callable[[], bool]
    ) -> Mixture:
        """Solve the master from eta; `Lambda` of the result is the dual point of the true loss."""
        ...

    @property
    def settled(self) -> bool:
        """Return True if the next `solve` has the same problem, not one nearer to the loss."""
        ...

    def squares(self) -> tuple[Float[Tensor, "N m"], float] | None:
        """Return T and mu of the loss if it is least squares with mu_i = mu / w_i, else None."""
        ...

    def smooth(self, F: Float[Tensor, "N m"]) -> tuple[Float[Tensor, ""], Float[Tensor, "N m"]]:
        """Return the loss for descents between master solves, in units of lam, and its gradient."""
        ...

    def curvature(self, F: Float[Tensor, "N m"]) -> float:
        """Half of the mean diagonal of `smooth`'s Hessian at F, in units of lam."""
        ...

    def update(self, F: Float[Tensor, "N m"], mixture: Mixture) -> None:
        """Take note that the weights have descended to a network with outputs F."""
        ...

    def network(
        self, Phi: Float[Tensor, "N n"], mixture: Mixture
    ) -> tuple[Float[Tensor, "n m"], Float[Tensor, " m"]] | None:
        """Return outputs v_k and bias b of the network to report; None if not feasible yet."""
        ...

    def memory(self) -> tuple[dict[str, object], dict[str, Tensor]]:
        """Return what further calls depend on: numbers, and arrays with a row for each sample."""
        ...

    def recall(self, facts: Mapping[str, Any], arrays: Mapping[str, Tensor]) -> None:
        """Restore what `memory` returned."""
        ...


class LeastSquaresDatafit:
    """mse."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._mu = _mu(problem, problem.samples * problem.lam)

    def solve(self, Phi: Tensor, eta: Tensor, tolerance: float, stop: Callable[[], bool]) -> Mixture:
        problem = self._problem
        return Master(Phi, problem.Y, self._mu, problem.bias(1), problem.spread).solve(eta, tolerance, stop)

    @property
    def settled(self) -> bool:
        return True

    def squares(self) -> tuple[Tensor, float]:
        return self._problem.Y, self._problem.samples * self._problem.lam

    def smooth(self, F: Tensor) -> tuple[Tensor, Tensor]:
        return _squares(F, self._problem.Y, self._mu, self._problem.spread)

    def curvature(self, F: Tensor) -> float:
        return float(self._mu.reciprocal().mean())

    def update(self, F: Tensor, mixture: Mixture) -> None:
        """Nothing to remember."""

    def network(self, Phi: Tensor, mixture: Mixture) -> tuple[Tensor, Tensor]:
        return mixture.outputs, mixture.bias

    def memory(self) -> tuple[dict[str, object], dict[str, Tensor]]:
        return {}, {}

    def recall(self, facts: Mapping[str, Any], arrays: Mapping[str, Tensor]) -> None:
        """Do nothing: there is no memory."""


class MultiplierDatafit:
    """interpolate, and mse with a small lam: `solve` takes one augmented-Lagrangian step."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._size = problem.spread.norm(problem.Y)
        largest = largest_mu(problem)
        self._first = FIRST_MU * largest or 1.0
        # What mu is to be in the end: F = Y - mu Lambda.
        self._last = 0.0 if problem.interpolates else problem.samples * problem.lam
        self._least = max(self._last, ROUNDING * largest)
        if problem.interpolates:
            self._least = LEAST_MU * self._first
        self._close = problem.interpolates
        self._mu = self._used = self._first
        self._multiplier, self._residual = torch.zeros_like(problem.Y), torch.inf
        self._targets, self._weights = problem.Y, _mu(problem, self._mu)

    def solve(self, Phi: Tensor, eta: Tensor, tolerance: float, stop: Callable[[], bool]) -> Mixture:
        problem = self._problem
        self._targets = problem.Y + _mu(problem, self._mu - self._last)[:, None] * self._multiplier
        self._used, self._weights = self._mu, _mu(problem, self._mu)
        master = Master(Phi, self._targets, self._weights, problem.bias(1), problem.spread)
        mixture = master.solve(eta, tolerance, stop)
        F = mixture_outputs(Phi, mixture.outputs, mixture.bias, problem.bias(1))
        residual = problem.spread.norm(F - problem.Y + _mu(problem, self._last)[:, None] * mixture.Lambda)
        if not problem.interpolates:
            self._close = problem.spread.norm(F - problem.Y) <= CLOSE * self._size
        if not self._close:
            self._mu = max(self._mu * QUICK_SHRINK, self._least)
        elif residual > PROGRESS * self._residual:
            self._mu = max(self._mu * SHRINK, self._least)
        self._residual = residual
        return mixture

    @property
    def settled(self) -> bool:
        return self._close or self._used <= self._least

    def update_multiplier(self, Lambda: Tensor, maximum: float) -> None:
        """Move the multiplier to the last dual point if the dictionary is rich enough there."""
        if maximum <= RICH_ENOUGH and self._close:
            self._multiplier = Lambda

    def squares(self) -> tuple[Tensor, float]:
        return self._targets, self._used

    def smooth(self, F: Tensor) -> tuple[Tensor, Tensor]:
        return _squares(F, self._targets, self._weights, self._problem.spread)

    def curvature(self, F: Tensor) -> float:
        return float(self._weights.reciprocal().mean())

    def update(self, F: Tensor, mixture: Mixture) -> None:
        self._residual = self._problem.spread.norm(F - self._problem.Y)

    def network(self, Phi: Tensor, mixture: Mixture) -> tuple[Tensor, Tensor] | None:
        """Minimise sum |v_k|^2 / eta_k + |b|^2, F = Y: V = eta^{1/2} (Phi eta^{1/2})^+ Y.

        For mse + sum_i w_i |F_i - Y_i|^2 / (N lam) instead of F = Y, which makes the pseudo-inverse a ridge regression.
        """
        problem, alive = self._problem, mixture.eta > 0
        if problem.interpolates and self._residual > 0.1 * self._size:
            return None
        root = mixture.eta[alive].sqrt()
        bias = Phi.new_full((len(Phi), 1), problem.bias(1))
        P = problem.weighted(torch.cat([Phi[:, alive] * root, bias], dim=1))
        P, Y = problem.spread.condensed(P, problem.weighted(problem.Y))
        scaled = thin(P, RankRule(tikhonov=self._last)).solve(Y)
        outputs = torch.zeros_like(mixture.outputs)
        outputs[alive] = root[:, None] * scaled[:-1]
        F = mixture_outputs(Phi, outputs, scaled[-1], problem.bias(1))
        if problem.interpolates and not problem.allows(float((F - problem.Y).abs().max())):
            return None
        return outputs, scaled[-1]

    def memory(self) -> tuple[dict[str, object], dict[str, Tensor]]:
        facts = {"mu": self._mu, "used": self._used, "residual": self._residual, "close": self._close}
        return facts, {"rows_multiplier": self._multiplier, "rows_targets": self._targets}

    def recall(self, facts: Mapping[str, Any], arrays: Mapping[str, Tensor]) -> None:
        self._mu, self._used, self._residual = facts["mu"], facts["used"], facts["residual"]
        self._close, self._weights = facts["close"], _mu(self._problem, self._used)
        self._multiplier, self._targets = arrays["rows_multiplier"], arrays["rows_targets"]


class ConvexDatafit:
    """cross_entropy, huber, logistic and custom losses: quadratic models at the outputs."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        reach = max(1.0, problem.spread.largest(float(problem.Xt.square().sum(dim=1).max())))
        self._floor = min(FLOOR, problem.samples * problem.lam / reach)
        self._stiffness = 1.0
        self._F, self._cost = torch.zeros_like(problem.Y), torch.inf

    def solve(self, Phi: Tensor, eta: Tensor, tolerance: float, stop: Callable[[], bool]) -> Mixture:
        problem = self._problem
        mixture, best = None, None
        for _ in range(MODELS):
            targets, mu = self._model(self._F)
            mixture = Master(Phi, targets, mu, problem.bias(1), problem.spread).solve(eta, tolerance, stop)
            mixture = self._refined(Phi, mixture, tolerance, stop)
            new = mixture_outputs(Phi, mixture.outputs, mixture.bias, problem.bias(1))
            value = self._objective(new, mixture)
            if value > self._cost and self._stiffness < LARGEST_DAMPING:
                self._stiffness *= DAMPING_FACTOR
                continue
            fall = self._cost - value
            if best is None or fall > 0:
                self._F, self._cost, eta, best = new, value, mixture.eta, mixture
            self._stiffness = max(1.0, self._stiffness / 2.0)
            if fall <= tolerance * self._cost or stop():
                break
        result = best or mixture
        assert result is not None
        return replace(result, Lambda=-problem.gradient_at(self._F) / (2.0 * problem.lam))

    @property
    def settled(self) -> bool:
        return True

    def squares(self) -> None:
        """Return None: this loss is no least squares."""

    def smooth(self, F: Tensor) -> tuple[Tensor, Tensor]:
        problem = self._problem
        return problem.loss_at(F) / problem.lam, problem.gradient_at(F) / problem.lam

    def curvature(self, F: Tensor) -> float:
        problem = self._problem
        diagonal = hessians(problem, F).diagonal(dim1=1, dim2=2)
        mean = problem.spread.sum(lambda rows: rows.mean() * (len(rows) / problem.samples), diagonal)
        return float(mean) / (2.0 * problem.lam)

    def update(self, F: Tensor, mixture: Mixture) -> None:
        self._F, self._cost = F, self._objective(F, mixture)

    def network(self, Phi: Tensor, mixture: Mixture) -> tuple[Tensor, Tensor]:
        return mixture.outputs, mixture.bias

    def memory(self) -> tuple[dict[str, object], dict[str, Tensor]]:
        return {"cost": self._cost, "stiffness": self._stiffness}, {"rows_outputs": self._F}

    def recall(self, facts: Mapping[str, Any], arrays: Mapping[str, Tensor]) -> None:
        self._cost, self._stiffness, self._F = facts["cost"], facts["stiffness"], arrays["rows_outputs"]

    def _model(self, F: Tensor) -> tuple[Tensor, Tensor]:
        """Return T and mu of the quadratic model at F; rho_i bounds sample i's Hessian from above."""
        problem = self._problem
        curvature = problem.loss.curvatures(F, problem.Y).amax(dim=1).clamp_min(0.5 * self._floor)
        rho = self._stiffness * curvature * problem.shares.to(F)
        targets = F - problem.gradient_at(F) / rho[:, None]
        return targets, 2.0 * problem.lam / rho

    def _refined(self, Phi: Tensor, mixture: Mixture, tolerance: float, stop: Callable[[], bool]) -> Mixture:
        """Minimise the loss itself over the outputs of the neurons that a model's minimum uses."""
        problem, used = self._problem, mixture.outputs.square().sum(dim=1) > 0.0
        start = mixture.outputs[used], mixture.bias
        refined = refine(problem, Phi[:, used], *start, tolerance, stop)
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
    least = problem.lam * float(problem.inverse_shares.min())
    if problem.loss.name == "mse" and least < LOST_DIGITS * largest_mu(problem):
        return MultiplierDatafit(problem)
    kinds = {"mse": LeastSquaresDatafit, "interpolate": MultiplierDatafit}
    return kinds.get(problem.loss.name, ConvexDatafit)(problem)
