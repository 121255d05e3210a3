"""Two layers with free biases: rounds as in solver.py, on neurons (w, b), |w| = 1, any b.

The output bias is free, and so is a linear function of the inputs where there is a skip: with mse and interpolate the
master is that of the problem without bias, Phi and Y less the nearest such functions, by the weights of the samples.
For other losses, whose curvature reweighs the samples, the output bias is one with so large an amount that its price
is lost in rounding (`amount`).

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

from covopt.certify.dual import Exact, dual_bound, strongest
from covopt.certify.proof import Proof
from covopt.model.affine import Affine
from covopt.model.biases import PENALISED
from covopt.model.problem import Problem, with_bias
from covopt.model.weights import evaluate
from covopt.oracles.neurons import best_breakpoints, rows_of
from covopt.oracles.oracle import Answer
from covopt.oracles.search import AscentOptions, ConvexConcaveOracle, distinct
from covopt.runtime.loop import Budget
from covopt.solvers.shallow.datafits import make_datafit
from covopt.solvers.shallow.master import Mixture
from covopt.solvers.shallow.networks import Network
from covopt.solvers.shallow.rounds import Rounds, ShallowOptions, State, largest_value, violation_of
from covopt.solvers.shallow.sliding import Joint, Parts, SlideOptions, slide
from covopt.solvers.shallow.starts import Starts, first_neurons


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


class FreeSolver(Rounds):
    """The rounds where the penalty is not on biases; the inputs and targets have size 1 in them.

    If `exact` oracles choose the neurons, the rounds end at a relative `gap` that these prove. Else they end with
    rounds of a search that lower the cost by less than `tol`, relative. They start from hidden weights `init` (n, n_0 +
    1).
    """

    new_atoms = 200
    amount = 1e5
    """Scale of the output bias for losses other than least squares: its penalty is 1e-10 of its square, if the inputs
    have size 1."""
    starts, ascent = 200, AscentOptions(steps=12, box_steps=80)
    """Number of starts of a search, and the settings of its ascents."""
    small_violation = 1e-3  # no descent once the last violation is below this

    def __init__(
        self,
        problem: Problem,
        exact: bool,
        gap: float,
        seed: int = 0,
        tol: float | None = None,
        init: Float[Tensor, "n d"] | None = None,
    ) -> None:
        self.problem, self._exact, self._init = problem, exact, init
        self.proof: Proof | None = None  # the best bound that exact oracles proved
        self._centres = problem.ridge is not None
        self._mean = problem.X.mean(dim=0)
        Xc = problem.X - self._mean
        self._rho = float(Xc.norm(dim=1).max()) or 1.0
        self._X = Xc / self._rho
        self._affine = Affine(problem.biases.skipped(self._X), problem.weight)
        Yc = self._affine.rest(problem.Y) if self._centres else problem.Y
        self._tau = (float(Yc.abs().max()) or 1.0) if self._centres else 1.0
        lam = problem.lam / (self._rho * self._tau)  # nothing to an exact fit
        beta, taper = (0.0, 1.0) if self._centres else (1.0, self.amount)
        self._inner = replace(problem, X=self._X, Y=Yc / self._tau, lam=lam, beta=beta, taper=taper, biases=PENALISED)
        super().__init__(ShallowOptions(gap=gap, tol=tol), make_datafit(self._inner))
        self._seen = with_bias(self._X, 1.0)
        self._search = ConvexConcaveOracle(self._seen, problem.activation, self.ascent)
        self._random = Starts(self._seen, seed)

    def init(self, budget: Budget) -> State:
        """Return the state of the constant network, or of the neurons to start from."""
        rows = self._seen[:0]
        if self._init is not None:
            A, b = self._init[:, :-1].to(rows), self._init[:, -1].to(rows)
            size = A.norm(dim=1)
            A, b, size = A[size > 0], b[size > 0], size[size > 0]
            rows = rows_of(A / size[:, None], (b + A @ self._mean) / (size * self._rho))
        return self._round(rows, rows.new_zeros(len(rows)), None, budget)

    def with_violators(self, state: State, violators: Answer) -> State:
        """Return the state with new neurons above its dual point, rows (w, b) in the user's units."""
        W, b, h = violators.directions[:, :-1], violators.directions[:, -1], violators.values
        above = (h > 1.0) & (W.norm(dim=1) > 0.5)
        W, b, h = W[above].to(self._X), b[above].to(self._X), h[above].to(self._X)
        order = h.argsort(descending=True)
        rows = rows_of(W[order], ((b + W @ self._mean) / self._rho)[order])
        return self.after_proof(state, _distinct(rows, h[order]), state.lower)

    def cost(self, state: State) -> float:
        """Return the cost of the best network so far; networks are in the user's units."""
        return state.best.cost

    def dual(self, state: State) -> Float[Tensor, "N m"]:
        """Return the dual point in the user's units, up to its scale for `interpolate`."""
        return state.mixture.Lambda / self._rho

    def _round(self, directions: Tensor, eta: Tensor, last: State | None, budget: Budget) -> State:
        tolerance = self.smallest_tolerance if self._exact else self._tolerance(last)
        if not self._exact and last is not None and violation_of(last.answer) > self.small_violation:
            with budget.phase("descent"):
                directions, eta = self._descend(directions, eta, last, budget)
        rows, Phi, mixture = self._solved(directions, self._features(directions), eta, tolerance, budget)
        best = self._better_of(self._network(rows, Phi, mixture), last)
        with budget.phase("search"):
            answer = self._query(rows, mixture.Lambda, budget)
        self._fit.update_multiplier(mixture.Lambda, largest_value(answer))
        state = State(rows, mixture, answer, best, None if self.proof is None else self.proof.lower)
        if last is not None:
            tol = self.options.tol
            is_slow = tol is not None and not self._exact and best.cost >= last.best.cost * (1.0 - tol)
            state.stalled = last.stalled + 1 if self._stands(last, state) else 0
            state.slow = last.slow + 1 if is_slow else 0
        return state

    def _stands(self, last: State, state: State) -> bool:
        """Return True if a round with a feasible network improved neither cost nor bound."""
        cost, gap = state.best.cost, self.options.gap
        small = 1e-3 * gap * cost
        if not (self._fit.settled and math.isfinite(cost)) or cost < last.best.cost - small:
            return False
        if self._exact and state.lower is not None:
            return last.lower is not None and state.lower <= last.lower + small
        return largest_value(state.answer) <= 1.0 + 1e-2 * gap or cost >= last.best.cost - 0.1 * small

    def _features(self, rows: Tensor) -> Float[Tensor, "N n"]:
        Phi = self._hidden(rows)
        return self._affine.off(Phi) if self._centres else Phi

    def _hidden(self, rows: Tensor) -> Float[Tensor, "N n"]:
        return self.problem.activation(torch.addmm(rows[:, -1], self._X, rows[:, :-1].contiguous().T))

    def _network(self, rows: Tensor, Phi: Tensor, mixture: Mixture) -> Network:
        """Return the balanced network in the user's units, of infinite cost if it should fit but does not."""
        parts = self._fit.network(Phi, mixture)
        V, c = parts or (torch.zeros_like(mixture.outputs), torch.zeros_like(mixture.bias))
        S, c = V.new_zeros(0, V.shape[1]), c * self._inner.bias(1)
        if self._centres:
            both = self._affine.coefficients(self.problem.Y / self._tau - self._hidden(rows) @ V)
            S, c = both[:-1] / self._rho, both[-1]
            c = c - self._mean @ S if len(S) else c
        size = (V.norm(dim=1) * self._tau / self._rho).sqrt()
        alive = size > 0
        W, b, V, size = rows[alive, :-1], rows[alive, -1], V[alive], size[alive][:, None]
        U = rows_of(size * W, size[:, 0] * (self._rho * b - W @ self._mean))
        network = Network(U, V * self._tau / self._rho / size, self._tau * c, math.inf, self._tau * S)
        cost = evaluate(self.problem, network.weights())
        if parts is not None and self.problem.allows(cost.residual):
            network.cost = cost.total
        return network

    def _query(self, rows: Tensor, Lambda: Tensor, budget: Budget) -> Answer:
        """Return distinct neurons with large h; exact oracles also prove a bound."""
        if self._exact:
            answer = strongest(self.problem, Lambda / self._rho, budget.spent)
            proof = Exact(*dual_bound(self.problem, Lambda / self._rho, answer.upper_bound)[:3])
            if proof.lower > (0.0 if self.proof is None else self.proof.lower):
                self.proof = proof
            W, b = answer.directions[:, :-1], answer.directions[:, -1]
            return _distinct(rows_of(W, (b + W @ self._mean) / self._rho), answer.values)
        starts = self._random.around(torch.nn.functional.normalize(rows, dim=1), Lambda, self.starts)
        W = self._search(Lambda, starts, stop=budget.pace()).directions[:, :-1]
        length = W.norm(dim=1)
        unit = W[length > 1e-9] / length[length > 1e-9, None]
        biases, values = best_breakpoints(self._X, self.problem.activation, Lambda, unit)
        return _distinct(rows_of(unit, biases), values)

    def _smooth(self, F: Tensor) -> tuple[Tensor, Tensor]:
        """Return the fit of the network with outputs F and the best affine function."""
        S, slope = self._fit.smooth(self._affine.off(F))
        return S, self._affine.transposed(slope)

    def _descend(self, rows: Tensor, eta: Tensor, last: State, budget: Budget) -> tuple[Tensor, Tensor]:
        """All neurons together, from the last mixture and its violators with a little weight each."""
        slopes = self._features(rows).T @ last.mixture.Lambda
        few = len(eta) < first_neurons(self.problem)
        total = float(eta.sum()) or float(self._inner.Y.norm())
        eta = torch.where(eta > 0, eta, (0.1 if few else 0.01) * total / max(1, len(eta)))
        V = eta[:, None] * torch.nn.functional.normalize(slopes, dim=1)
        V[: len(last.mixture.outputs)] = last.mixture.outputs
        smooth = self._smooth if self.problem.skip else self._fit.smooth
        joint = FreeJoint(self._seen, self.problem.activation, 1.0, smooth, self._fit.curvature, V.shape[1], V.dtype)
        c = last.mixture.bias * self._inner.bias(1)
        if self._centres:
            c = -self._inner.mean(self._hidden(rows) @ V)
        root = V.norm(dim=1).clamp_min(1e-300).sqrt()[:, None]
        slow = 1e-5 if last.stalled == 0 else 1e-6
        *_, (U, V, _) = slide(joint, root * rows, V / root, c, budget.pace(), SlideOptions(slow=slow))
        size = U[:, :-1].norm(dim=1)
        alive = size > 0
        return U[alive] / size[alive, None], V[alive].norm(dim=1) * size[alive]


def _distinct(rows: Float[Tensor, "B d"], values: Float[Tensor, " B"]) -> Answer:
    """Return neurons (w, b) that differ: the cosines between their rows are below 1 - 1e-9."""
    places = distinct(torch.nn.functional.normalize(rows, dim=1), values, 1e-9)
    return Answer(rows[places], values[places])
