"""Two layers with free biases: rounds as in solver.py, on neurons (w, b), |w| = 1, any b.

The output bias is free, and so is a linear function of the inputs where there is a skip: with mse and interpolate the
master is that of the problem without bias, Phi and Y less the nearest such functions, by the weights of the samples.
For other losses, whose curvature reweighs the samples, the output bias is one with so large an amount that its price
is lost in rounding (`AMOUNT`).

Where the N problems without bias have exact oracles (certify/free.py), these choose the neurons. Else a search does,
on inputs with a bias column of the samples' own size, each neuron then moved to its best breakpoint; and all neurons
descend together before each master, biases free of the penalty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.certify.free import FreeExact, anchored, free_bound
from covopt.certify.proof import Proof
from covopt.model.affine import Affine
from covopt.model.problem import Problem, with_bias
from covopt.model.weights import evaluate
from covopt.oracles.breakpoints import best_breakpoints, rows_of
from covopt.oracles.search import AscentOptions, ConvexConcaveOracle, distinct
from covopt.runtime.loop import Budget, Progress, Status
from covopt.solvers.shallow.datafits import MultiplierDatafit, make_datafit
from covopt.solvers.shallow.master import Mixture
from covopt.solvers.shallow.sliding import Joint, Parts, SlideOptions, slide
from covopt.solvers.shallow.starts import Starts, first_neurons

AMOUNT = 1e5
"""Of the output bias of losses that are no least squares; its price is 1e-10 of its square, in inputs of size 1."""
STARTS, ASCENT = 200, AscentOptions(steps=12, box_steps=80)
"""Of each search."""
NEW_ATOMS = 200
"""Atoms added in a round, at most."""
TOLERANCE = 1e-12
"""Of the masters between exact oracles; with a search it is loosened to a part of the last violation."""
PATIENCE, SLOW_ROUNDS = 3, 2
"""Rounds without gain, and with less than a given tolerance, after which the search ends."""
SETTLED = 1e-3
"""No descent once the last violation is below this."""
SAME = 1e-9
"""Neurons are one when the cosine between their rows (w, b) is within this of 1."""


@dataclass
class State:
    """The state of the rounds, in units in which the inputs and targets have size 1.

    Attributes:
        W, b: the atoms, unit rows (n, n_0) and biases (n,).
        mixture: the master's answer on them.
        violators: neurons that violate its dual point, unit w, b, and h.
        maximum: the largest h found.
        weights, cost: the best network so far and what it costs, in the user's units.
        proof: the best bound that exact oracles proved.
        stalled: rounds in a row without gain; slow: with less than the tolerance.
    """

    W: Float[Tensor, "n d"]
    b: Float[Tensor, " n"]
    mixture: Mixture
    violators: tuple[Tensor, Tensor, Tensor]
    maximum: float
    weights: list[Tensor]
    cost: float
    proof: Proof | None
    stalled: int = 0
    slow: int = 0

    @property
    def lower(self) -> float | None:
        """The proved bound."""
        return None if self.proof is None else self.proof.lower


@dataclass(frozen=True)
class FreeJoint(Joint):
    """S(F) + |A|^2 + |V|^2 over x = (U, V, c), U = [A, b] on inputs [X, 1]: biases are free."""

    def value(self, x: Float[Tensor, " P"]) -> tuple[float, Float[Tensor, " P"]]:
        f, gradient = super().value(x)
        U, _, b = self.parts(x)
        free = float(U[:, -1] @ U[:, -1] + b @ b)
        into, _, out = self.parts(gradient)
        into[:, -1].sub_(U[:, -1], alpha=2.0)
        out.sub_(b, alpha=2.0)
        return f - free, gradient

    def network(self, x: Float[Tensor, " P"]) -> tuple[float, Parts]:
        U, V, b = self.parts(x)
        S, _ = self.smooth(torch.addmm(b, self.activation(self.X @ U.T), V).to(self.dtype))
        into, out = U[:, :-1].norm(dim=1), V.norm(dim=1)
        alive = (into > 0) & (out > 0)
        factor = torch.where(alive, (out / torch.where(alive, into, 1.0)).sqrt(), 1.0)[:, None]
        return float(S + 2.0 * (into * out).sum()), (factor * U, V / factor, b)


class FreeSolver:
    """The rounds, for `loop.run`.

    Args:
        problem: two layers, free biases.
        exact: whether the exact oracles choose the neurons.
        gap: relative gap at which the rounds end, where exact oracles prove one.
        seed: of the search's starts.
        tol: rounds of a search that lower the cost by less than this, relative, are slow, and end it.
        init: hidden weights (n, n_0 + 1) to start from.
    """

    def __init__(
        self,
        problem: Problem,
        exact: bool,
        gap: float,
        seed: int = 0,
        tol: float | None = None,
        init: Float[Tensor, "n d"] | None = None,
    ) -> None:
        self.problem, self._exact, self._gap, self._tol, self._init = problem, exact, gap, tol, init
        self._centres = problem.loss.name in ("mse", "interpolate")
        self._mean = problem.X.mean(dim=0)
        Xc = problem.X - self._mean
        self._rho = float(Xc.norm(dim=1).max()) or 1.0
        self._X = Xc / self._rho
        self._affine = Affine(self._X, problem.weight, problem.skip)
        Yc = self._affine.rest(problem.Y) if self._centres else problem.Y
        self._tau = (float(Yc.abs().max()) or 1.0) if self._centres else 1.0
        lam = problem.lam if problem.interpolates else problem.lam / (self._rho * self._tau)
        beta, taper = (0.0, 1.0) if self._centres else (1.0, AMOUNT)
        self._inner = replace(
            problem, X=self._X, Y=Yc / self._tau, lam=lam, beta=beta, taper=taper, free=False, skip=False
        )
        self._fit = make_datafit(self._inner)
        self._seen = with_bias(self._X, 1.0)
        self._search = ConvexConcaveOracle(self._seen, problem.activation, ASCENT)
        self._random = Starts(self._seen, seed)

    # -- what loop.run asks for ---------------------------------------------------------------------------------

    def init(self, budget: Budget) -> State:
        """Return the state of the constant network, or of the neurons to start from."""
        W = self._X.new_zeros(0, self._X.shape[1])
        b = W.new_zeros(0)
        if self._init is not None:
            A, first = self._init[:, :-1].to(W), self._init[:, -1].to(W)
            size = A.norm(dim=1)
            A, first, size = A[size > 0], first[size > 0], size[size > 0]
            W, b = A / size[:, None], (first + A @ self._mean) / (size * self._rho)
        return self._round(W, b, W.new_zeros(len(W)), None, budget)

    def step(self, state: State, budget: Budget) -> State:
        """Add the neurons that were found, descend, solve the master, search."""
        W, b, h = state.violators
        keep = (h > 1.0).nonzero()[:NEW_ATOMS, 0]
        eta = torch.cat([state.mixture.eta, h.new_zeros(len(keep))])
        W, b = torch.cat([state.W, W[keep]]), torch.cat([state.b, b[keep]])
        return self._round(W, b, eta, state, budget)

    def with_violators(
        self, state: State, W: Float[Tensor, "B n0"], b: Float[Tensor, " B"], h: Float[Tensor, " B"]
    ) -> State:
        """Return the state with new neurons above its dual point, given in the user's units."""
        above = (h > 1.0) & (W.norm(dim=1) > 0.5)
        W, b, h = W[above].to(self._X), b[above].to(self._X), h[above].to(self._X)
        order = h.argsort(descending=True)
        W, b, h = W[order], ((b + W @ self._mean) / self._rho)[order], h[order]
        distinct_rows = distinct(torch.nn.functional.normalize(rows_of(W, b), dim=1), h, SAME)
        violators = (W[distinct_rows], b[distinct_rows], h[distinct_rows])
        return replace(state, violators=violators, maximum=float(h.max()) if len(h) else 0.0, stalled=0, slow=0)

    def finished(self, state: State) -> Status | None:
        """Return OPTIMAL at the target gap, CONVERGED after `PATIENCE` rounds without a neuron."""
        if state.lower is not None and math.isfinite(state.cost) and state.cost - state.lower <= self._gap * state.cost:
            return Status.OPTIMAL
        if state.stalled >= PATIENCE:
            return Status.CONVERGED
        return Status.TOLERANCE if state.slow >= SLOW_ROUNDS else None

    def progress(self, state: State, iteration: int, seconds: float) -> Progress:
        """Return cost, bound and width of the best network."""
        return Progress(iteration, seconds, state.cost, state.lower, len(state.weights[0]))

    def dual(self, state: State) -> Float[Tensor, "N m"]:
        """Return the dual point in the user's units, up to its scale for `interpolate`."""
        return state.mixture.Lambda / self._rho

    # -- one round ------------------------------------------------------------------------------------------------

    def _round(self, W: Tensor, b: Tensor, eta: Tensor, last: State | None, budget: Budget) -> State:
        tolerance = TOLERANCE
        if not self._exact:
            violation = math.inf if last is None else last.maximum - 1.0
            tolerance = min(1e-3, max(TOLERANCE, 0.05 * violation))
            if last is not None and violation > SETTLED:
                with budget.phase("descent"):
                    W, b, eta = self._descend(W, b, eta, last, budget)
        with budget.phase("master"):
            Phi = self._features(W, b)
            mixture = self._fit.solve(Phi, eta, tolerance, budget.pace())
        used = mixture.eta > 0
        mixture = replace(mixture, eta=mixture.eta[used], outputs=mixture.outputs[used])
        W, b, Phi = W[used], b[used], Phi[:, used]
        weights, cost = self._network(W, b, Phi, mixture)
        with budget.phase("search"):
            violators, maximum, proof = self._query(W, b, mixture, budget)
        if isinstance(self._fit, MultiplierDatafit):
            self._fit.update_multiplier(mixture.Lambda, maximum)
        if last is None:
            return State(W, b, mixture, violators, maximum, weights, cost, proof)
        best = (weights, cost) if cost < last.cost else (last.weights, last.cost)
        proofs = [bound for bound in (last.proof, proof) if bound is not None]
        state = State(
            W, b, mixture, violators, maximum, *best, max(proofs, key=lambda bound: bound.lower, default=None)
        )
        slow = self._tol is not None and not self._exact and state.cost >= last.cost * (1.0 - self._tol)
        stalled = last.stalled + 1 if self._stands(last, state) else 0
        return replace(state, stalled=stalled, slow=last.slow + 1 if slow else 0)

    def _stands(self, last: State, state: State) -> bool:
        """Return True if a round with a feasible network improved neither cost nor bound."""
        small = 1e-3 * self._gap * state.cost
        if not (self._fit.settled and math.isfinite(state.cost)) or state.cost < last.cost - small:
            return False
        if self._exact and state.lower is not None:
            return last.lower is not None and state.lower <= last.lower + small
        return state.maximum <= 1.0 + 1e-2 * self._gap or state.cost >= last.cost - 0.1 * small

    def _features(self, W: Tensor, b: Tensor) -> Float[Tensor, "N n"]:
        Phi = self._hidden(W, b)
        return self._affine.off(Phi) if self._centres else Phi

    def _hidden(self, W: Tensor, b: Tensor) -> Float[Tensor, "N n"]:
        return self.problem.activation(torch.addmm(b, self._X, W.T))

    def _network(self, W: Tensor, b: Tensor, Phi: Tensor, mixture: Mixture) -> tuple[list[Tensor], float]:
        """Return the balanced network in the user's units, and its cost; infinite if infeasible."""
        parts = self._fit.network(Phi, mixture)
        V, c = parts if parts is not None else (torch.zeros_like(mixture.outputs), torch.zeros_like(mixture.bias))
        S, c = V.new_zeros(0, V.shape[1]), c * self._inner.bias(1)
        if self._centres:
            both = self._affine.coefficients(self.problem.Y / self._tau - self._hidden(W, b) @ V)
            S, c = both[:-1] / self._rho, both[-1]
            c = c - self._mean @ S if self.problem.skip else c
        size = (V.norm(dim=1) * self._tau / self._rho).sqrt()
        alive = size > 0
        W, b, V, size = W[alive], b[alive], V[alive], size[alive][:, None]
        first = torch.cat([size * W, size * (self._rho * b - W @ self._mean)[:, None]], dim=1)
        second = torch.cat([(V * self._tau / self._rho / size).T, self._tau * S.T, (self._tau * c)[:, None]], dim=1)
        cost = evaluate(self.problem, [first, second])
        fits = parts is not None and self.problem.allows(cost.residual)
        return [first, second], cost.total if fits else math.inf

    def _query(
        self, W: Tensor, b: Tensor, mixture: Mixture, budget: Budget
    ) -> tuple[tuple[Tensor, Tensor, Tensor], float, Proof | None]:
        """Return neurons with h above 1, the largest h, and the bound where it is proved."""
        Lambda = mixture.Lambda
        if self._exact:
            answer, biases = anchored(self.problem, Lambda / self._rho, budget.spent)
            proof = FreeExact(*free_bound(self.problem, Lambda / self._rho, answer.upper_bound)[:3])
            biases = (biases + answer.directions @ self._mean) / self._rho
            violators = (answer.directions, biases, answer.values)
            proof = proof if proof.lower > 0.0 else None
        else:
            unit = torch.nn.functional.normalize(rows_of(W, b), dim=1)
            starts = self._random.around(unit, Lambda, STARTS)
            answer = self._search(Lambda, starts, stop=budget.pace())
            length = answer.directions[:, :-1].norm(dim=1)
            real = length > 1e-9
            unit = answer.directions[real, :-1] / length[real, None]
            violators = (unit, *best_breakpoints(self._X, self.problem.activation, Lambda, unit))
            proof = None
        directions, biases, values = violators
        distinct_rows = distinct(torch.nn.functional.normalize(rows_of(directions, biases), dim=1), values, SAME)
        violators = (directions[distinct_rows], biases[distinct_rows], values[distinct_rows])
        return violators, float(values.max()) if len(values) else 0.0, proof

    def _smooth(self, F: Tensor) -> tuple[Tensor, Tensor]:
        """Return the fit of the network with outputs F and the best affine function."""
        S, slope = self._fit.smooth(self._affine.off(F))
        return S, self._affine.transposed(slope)

    def _descend(self, W: Tensor, b: Tensor, eta: Tensor, last: State, budget: Budget) -> tuple[Tensor, Tensor, Tensor]:
        """All neurons together, from the last mixture and its violators with a little weight each."""
        slopes = self._features(W, b).T @ last.mixture.Lambda
        few = len(eta) < first_neurons(self.problem)
        total = float(eta.sum()) or float(self._inner.Y.norm())
        eta = torch.where(eta > 0, eta, (0.1 if few else 0.01) * total / max(1, len(eta)))
        V = eta[:, None] * torch.nn.functional.normalize(slopes, dim=1)
        V[: len(last.mixture.outputs)] = last.mixture.outputs
        smooth = self._smooth if self.problem.skip else self._fit.smooth
        joint = FreeJoint(self._seen, self.problem.activation, 1.0, smooth, self._fit.curvature, V.shape[1], V.dtype)
        c = last.mixture.bias * self._inner.bias(1)
        if self._centres:
            c = -self._inner.mean(self._hidden(W, b) @ V)
        root = V.norm(dim=1).clamp_min(1e-300).sqrt()[:, None]
        U, V = root * rows_of(W, b), V / root
        slow = 1e-5 if last.stalled == 0 else 1e-6
        *_, (U, V, _) = slide(joint, U, V, c, budget.pace(), SlideOptions(slow=slow))
        size = U[:, :-1].norm(dim=1)
        alive = size > 0
        U, V, size = U[alive], V[alive], size[alive]
        return U[:, :-1] / size[:, None], U[:, -1] / size, V.norm(dim=1) * size
