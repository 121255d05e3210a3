"""Fully corrective Frank-Wolfe over the cone S for two-layer networks (MATH.md section 4).

Each round asks the oracle for many distinct local maxima of h at the current dual point, hands them to the master as new
atoms, and keeps what the master uses. Active atoms move because the oracle's ascents continue from them: their improved
copies take their place in the master's next mixture. Most new atoms come from ascents that start beside active ones: on
digits (200 rows) seven in ten of those end above 1, against two in ten from random directions.

The solver works in directions w in the row space of Xt, and in residuals; it never forms an (N, N) matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.cone.convex_concave import ConvexConcaveOracle, distinct
from covopt.cone.oracle import Answer
from covopt.cone.reduce import balance, caratheodory, merge
from covopt.linalg.psd import thin
from covopt.loop import Budget, Progress, Status
from covopt.model.problem import Problem
from covopt.model.weights import evaluate
from covopt.solvers.fits import InterpolationFit, make_fit
from covopt.solvers.master import Mixture

ExactOracle = Callable[[Float[Tensor, "N m"]], Answer]
Bound = Callable[[Float[Tensor, "N m"], float], float | None]


@dataclass(frozen=True)
class ShallowOptions:
    """What the rounds try and when they end.

    Attributes:
        gap: stop at this proved relative gap.
        quiet: without a proof, stop when the search finds no h above 1 + quiet * gap and the cost has stopped falling.
        patience: rounds in a row that must find nothing.
        starts: ascents each round, besides those from the active atoms.
        fresh: the part of them that starts anywhere rather than beside an active atom.
        nearest, farthest: distances of the starts from the unit atoms that they are beside.
        efforts: convex-concave steps of an ascent, from the first rounds to the last.
        slow: relative falls of the cost in a round below which the effort grows, one for each step of `efforts`.
        new_atoms: atoms added in a round, at most.
        looseness: the master's tolerance relative to the last violation, and its bounds.
    """

    gap: float = 1e-4
    quiet: float = 1e-2
    patience: int = 3
    starts: int = 300
    fresh: float = 0.2
    nearest: float = 0.1
    farthest: float = 0.8
    efforts: tuple[int, ...] = (5, 10, 20, 40)
    slow: tuple[float, ...] = (3e-2, 5e-3, 1e-3)
    new_atoms: int = 400
    looseness: float = 0.05
    loosest: float = 1e-3
    tightest: float = 1e-12


@dataclass
class Network:
    """A two-layer network: hidden weights U (n, n_0 + 1), outputs V (n, m), output bias b (m,), and its cost."""

    U: Float[Tensor, "n d"]
    V: Float[Tensor, "n m"]
    b: Float[Tensor, " m"]
    cost: float

    def weights(self) -> list[Tensor]:
        """[W_1, W_2]."""
        return [self.U, torch.cat([self.V, self.b[:, None].T], dim=0).T.contiguous()]


@dataclass
class State:
    """Where the rounds stand.

    Attributes:
        directions: the atoms' unit directions in the row-space basis (n, r).
        mixture: the master's answer on them.
        answer: what the oracle found at the mixture's dual point.
        best: the best network so far.
        lower: the best proved bound so far.
        effort: place in `ShallowOptions.efforts`.
        calm: rounds in a row in which nothing was found.
        exhausted: the master has made nothing of what the oracle found; rounding has the last word.
    """

    directions: Float[Tensor, "n r"]
    mixture: Mixture
    answer: Answer
    best: Network
    lower: float | None = None
    effort: int = 0
    calm: int = 0
    previous: float = field(default=torch.inf)


class ShallowSolver:
    """The rounds, for `loop.run`.

    Args:
        problem: depth 2; solved in its own dtype on its own device.
        exact: an oracle that knows the maximum, where there is one; else the convex-concave search is used.
        bound: turns a dual point and a proved maximum into the best lower bound so far (certify's business).
        budget: the clock.
        seed: of the search's starts.
        init: hidden weights (n, n_0 + 1) of a network to start from.
    """

    def __init__(
        self,
        problem: Problem,
        budget: Budget,
        bound: Bound,
        exact: ExactOracle | None = None,
        options: ShallowOptions | None = None,
        seed: int = 0,
        init: Float[Tensor, "n d"] | None = None,
    ) -> None:
        self.problem, self.budget, self.options = problem, budget, options or ShallowOptions()
        self._bound, self._exact, self._init = bound, exact, init
        factor = thin(problem.Xt)
        self._Q = factor.V.T[factor.kept > 0]
        self._X = problem.Xt @ self._Q.T
        self._search = ConvexConcaveOracle(self._X, problem.activation)
        self._generator = torch.Generator(device=problem.X.device).manual_seed(seed)
        self._fit = make_fit(problem)

    # -- what loop.run asks for ---------------------------------------------------------------------------------

    def init(self) -> State:
        """The zero network, or the one to start from, and what the oracle says about it."""
        directions = self._X.new_zeros(0, self._X.shape[1])
        if self._init is not None:
            rows = self._init.to(self._X) @ self._Q.T
            directions = torch.nn.functional.normalize(rows[rows.norm(dim=1) > 0], dim=1)
        return self._round(directions, directions.new_zeros(len(directions)), None)

    def step(self, state: State) -> State:
        """Add the oracle's atoms, solve the master, ask the oracle."""
        found = self._chosen(state)
        directions = torch.cat([state.directions, found])
        eta = torch.cat([state.mixture.eta, found.new_zeros(len(found))])
        return self._round(directions, eta, state)

    def finished(self, state: State) -> Status | None:
        """OPTIMAL at the target gap; CONVERGED when the search has found nothing for `patience` rounds."""
        cost, lower = state.best.cost, state.lower
        if lower is not None and cost < torch.inf and cost - lower <= self.options.gap * cost:
            return Status.OPTIMAL
        return Status.CONVERGED if state.calm >= self.options.patience else None

    def progress(self, state: State, iteration: int, seconds: float) -> Progress:
        """Cost, bound and width of the best network."""
        return Progress(iteration, seconds, state.best.cost, state.lower, len(state.best.U))

    # -- one round ------------------------------------------------------------------------------------------------

    def _round(self, directions: Tensor, eta: Tensor, last: State | None) -> State:
        Phi = self.problem.activation(self._X @ directions.T)
        mixture = self._fit.solve(Phi, eta, self._tolerance(last), self.budget.spent)
        used = mixture.eta > 0
        mixture = replace(mixture, eta=mixture.eta[used], outputs=mixture.outputs[used])
        directions, Phi = directions[used], Phi[:, used]
        network = self._network(directions, Phi, mixture)
        best = network if last is None or network.cost < last.best.cost else last.best
        answer, lower = self._ask(directions, mixture, last)
        state = State(directions, mixture, answer, best, lower, previous=best.cost)
        if last is not None:
            self._pace(state, last)
        return state

    def _ask(self, directions: Tensor, mixture: Mixture, last: State | None) -> tuple[Answer, float | None]:
        """The oracle at the mixture's dual point, and the bound that follows where the oracle's is proved."""
        lower = last.lower if last is not None else None
        if self._exact is None:
            effort = self.options.efforts[last.effort if last is not None else 0]
            self._search.options = replace(self._search.options, steps=effort)
            answer = self._search(mixture.Lambda, self._starts(directions, mixture), self.budget.spent)
        else:
            answer = self._exact(mixture.Lambda)
            proved = self._bound(mixture.Lambda, answer.upper_bound)
            lower = proved if proved is not None else lower
            answer = replace(answer, directions=answer.directions @ self._Q.T)
        if isinstance(self._fit, InterpolationFit):
            self._fit.follow(mixture.Lambda, float(answer.values.max()) if len(answer.values) else 0.0)
        return answer, lower

    def _starts(self, directions: Tensor, mixture: Mixture) -> Tensor:
        """The active atoms, directions beside them, directions of linear neurons, and anywhere."""
        count, r, options = self.options.starts, self._X.shape[1], self.options
        fresh = self._normal(max(1, int(options.fresh * count)), r)
        outputs = self._normal(max(1, len(fresh) // 2), mixture.Lambda.shape[1])
        linear = outputs @ mixture.Lambda.T @ self._X
        beside = max(0, count - len(fresh) - len(linear))
        if not len(directions):
            return torch.cat([self._normal(beside, r), fresh, linear])
        place = torch.randint(len(directions), (beside,), generator=self._generator, device=self._X.device)
        distance = options.nearest + (options.farthest - options.nearest) * torch.rand(
            beside, 1, generator=self._generator, dtype=self._X.dtype, device=self._X.device
        )
        away = torch.nn.functional.normalize(self._normal(beside, r), dim=1)
        return torch.cat([directions, directions[place] + distance * away, fresh, linear])

    def _normal(self, rows: int, columns: int) -> Tensor:
        return torch.randn(
            rows, columns, generator=self._generator, dtype=self._X.dtype, device=self._X.device
        )

    def _chosen(self, state: State) -> Tensor:
        """The best of the distinct violators that the oracle found."""
        answer = state.answer
        found = answer.directions[answer.values > 1.0]
        return torch.nn.functional.normalize(found[: self.options.new_atoms], dim=1)

    def _tolerance(self, last: State | None) -> float:
        options = self.options
        violation = self._violation(last.answer) if last is not None else 1.0
        return min(options.loosest, max(options.tightest, options.looseness * violation))

    def _violation(self, answer: Answer) -> float:
        return max(0.0, float(answer.values.max()) - 1.0) if len(answer.values) else 0.0

    def _pace(self, state: State, last: State) -> None:
        """More effort when a round gains little; a round that finds nothing at full effort is calm."""
        options, cost = self.options, state.best.cost
        fall = (last.best.cost - cost) / cost if cost > 0 and cost < torch.inf else torch.inf
        state.effort = last.effort
        while state.effort < len(options.slow) and fall < options.slow[state.effort]:
            state.effort += 1
        full = self._exact is not None or last.effort == len(options.efforts) - 1
        small = max(options.tightest, options.quiet * options.gap)
        quiet = self._violation(state.answer) <= small and fall <= small
        state.calm = last.calm + 1 if full and quiet else 0

    # -- networks -----------------------------------------------------------------------------------------------

    def _network(self, directions: Tensor, Phi: Tensor, mixture: Mixture) -> Network:
        """The balanced network of a mixture; of infinite cost where it does not fit exactly yet but should."""
        parts = self._fit.network(Phi, mixture)
        if parts is None:
            return self._assemble(directions[:0], mixture.outputs[:0], torch.zeros_like(mixture.bias), feasible=False)
        return self._assemble(directions, *parts)

    def _assemble(self, directions: Tensor, outputs: Tensor, b: Tensor, feasible: bool = True) -> Network:
        U, V = balance(directions @ self._Q, outputs)
        network = Network(U, V, b, torch.inf)
        if feasible:
            network.cost = evaluate(self.problem, network.weights()).total
        return network

    def reduced(self, network: Network, tolerance: float = 1e-12) -> Network:
        """Fewer neurons at no higher cost: aligned ones merged, dependent ones dropped; the same one where neither helps."""
        candidate, rows = network, self.problem.samples * self.problem.Y.shape[1]
        merged = merge(network.U, network.V)
        if len(merged.directions) < len(network.U):
            candidate = self._better(candidate, merged.directions, merged.outputs, tolerance)
        lengths = candidate.U.norm(dim=1, keepdim=True)
        if len(candidate.U) * min(rows, len(candidate.U)) * rows <= 2**33 and bool((lengths > 0).any()):
            alive = lengths[:, 0] > 0
            directions, outputs = candidate.U[alive] / lengths[alive], candidate.V[alive] * lengths[alive]
            Phi = self.problem.activation(self.problem.Xt @ directions.T)
            selected = caratheodory(Phi, outputs)
            if len(selected.kept) < len(candidate.U):
                candidate = self._better(candidate, directions[selected.kept], selected.outputs, tolerance)
        return candidate

    def _better(self, network: Network, directions: Tensor, outputs: Tensor, tolerance: float) -> Network:
        U, V = balance(directions, outputs)
        smaller = Network(U, V, network.b, torch.inf)
        cost = evaluate(self.problem, smaller.weights())
        residual = evaluate(self.problem, network.weights()).residual
        smaller.cost = cost.total
        exact = not self.problem.interpolates or cost.residual <= max(2.0 * residual, 1e-12)
        return smaller if exact and cost.total <= network.cost * (1.0 + tolerance) else network


__all__ = ["Network", "ShallowOptions", "ShallowSolver", "State", "distinct"]
