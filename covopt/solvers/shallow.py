"""Fully corrective Frank-Wolfe over the cone S for two-layer networks (MATH.md section 4).

Each round asks the oracle for many distinct local maxima of h at the current dual point, hands them to the master as
new atoms, and keeps what the master uses. Active atoms move because the oracle's ascents continue from them: their
improved copies take their place in the master's next mixture. Most new atoms come from ascents that start beside
active ones: on digits (200 rows) seven in ten of those end above 1, against two in ten from random directions.

The solver works in directions w in the row space of Xt, and in residuals; it never forms an (N, N) matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.cone.convex_concave import ConvexConcaveOracle
from covopt.cone.oracle import Answer, Oracle
from covopt.cone.reduce import balance, caratheodory, merge
from covopt.linalg.psd import thin
from covopt.loop import Budget, Progress, Status
from covopt.model.problem import Problem
from covopt.model.weights import evaluate
from covopt.solvers.fits import InterpolationFit, make_fit, mixture_outputs
from covopt.solvers.master import Mixture
from covopt.solvers.slide import SlideOptions, slide

Bound = Callable[[Float[Tensor, "N m"], float], float | None]


@dataclass(frozen=True)
class Effort:
    """How hard one round's search tries.

    Attributes:
        starts: ascents, besides those from the active atoms.
        steps: convex-concave steps of each, at most.
        inner: projected-gradient steps in each of those.
    """

    starts: int
    steps: int
    inner: int


@dataclass(frozen=True)
class ShallowOptions:
    """What the rounds try and when they end.

    Attributes:
        gap: stop at this proved relative gap.
        quiet: without a proof, stop when the search finds no h above 1 + quiet * gap and the cost has stopped falling.
        patience: rounds in a row that must find nothing.
        first: random directions that the first master chooses from, besides the oracle's: these limits, and within
            them a quarter of N.
        fresh: the part of them that starts anywhere rather than beside an active atom.
        nearest, farthest: distances of the starts from the unit atoms that they are beside.
        efforts: of the search, from the first rounds to the last.
        slow: relative falls of the cost in a round below which the effort grows, one for each step of `efforts`.
        new_atoms: atoms added in a round, at most.
        sliding, hurrying: a descent of the weights ends at the latest when ten steps gain less than the first of these,
            relative, and never while they gain more than the second.
        settled, settled_exactly: no descent once the last violation is below this; the second for `interpolate`, whose
            multiplier follows a master's exact dual point.
        merging: at the end neurons are merged whose angles have cosines above 1 - these, one after the other.
        dropping: at the end dependent neurons are dropped where that takes about so many multiplications at most.
        grace: merging may end this much after the time limit, relative.
        reduction: what a smaller network may cost more, relative (rounding).
        looseness: the master's tolerance relative to the last violation, and its bounds.
    """

    gap: float = 1e-4
    quiet: float = 1e-2
    patience: int = 3
    first: tuple[int, int] = (200, 500)
    fresh: float = 0.2
    nearest: float = 0.1
    farthest: float = 0.8
    efforts: tuple[Effort, ...] = (
        Effort(60, 3, 25),
        Effort(120, 5, 50),
        Effort(300, 10, 100),
        Effort(300, 20, 100),
        Effort(300, 40, 150),
    )
    slow: tuple[float, ...] = (1e-1, 2e-2, 5e-3, 1e-3)
    new_atoms: int = 400
    sliding: float = 3e-6
    hurrying: float = 1e-2
    settled: float = 1e-3
    settled_exactly: float = 1.0
    merging: tuple[float, ...] = (1e-9, 1e-7, 1e-5, 1e-3)
    dropping: float = 2.0**31
    grace: float = 0.01
    reduction: float = 1e-10
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
    """

    directions: Float[Tensor, "n r"]
    mixture: Mixture
    answer: Answer
    best: Network
    lower: float | None = None
    effort: int = 0
    calm: int = 0


class ShallowSolver:
    """The rounds, for `loop.run`.

    Args:
        problem: depth 2; solved in its own dtype on its own device.
        exact: an oracle that knows the maximum, where there is one; else the convex-concave search is used.
        bound: turns a dual point and a maximum, proved or infinite, into the best lower bound so far (certify's
            business).
        budget: the clock.
        seed: of the search's starts.
        init: hidden weights (n, n_0 + 1) of a network to start from.
    """

    def __init__(
        self,
        problem: Problem,
        budget: Budget,
        bound: Bound,
        exact: Oracle | None = None,
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

    def inward(self, directions: Float[Tensor, "n d"]) -> Float[Tensor, "n r"]:
        """Directions in input coordinates, bias last, in the row-space basis that `State` uses."""
        return directions @ self._Q.T

    def outward(self, directions: Float[Tensor, "n r"]) -> Float[Tensor, "n d"]:
        """Directions of `State` in input coordinates, bias last."""
        return directions @ self._Q

    # -- what loop.run asks for ---------------------------------------------------------------------------------

    def init(self) -> State:
        """The zero network, or the one to start from, and what the oracle says about it."""
        directions = self._X.new_zeros(0, self._X.shape[1])
        if self._init is not None:
            rows = self.inward(self._init.to(self._X))
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
        best = self._better_of(self._network(directions, Phi, mixture), last)
        if self._exact is None and len(directions) and self._unsettled(last):
            directions, mixture = self._slide(directions, mixture, self._worthwhile(mixture, last))
            Phi = self.problem.activation(self._X @ directions.T)
            network = self._network(directions, Phi, mixture)
            best = network if network.cost < best.cost else best
        answer, lower = self._ask(directions, mixture, last)
        state = State(directions, mixture, answer, best, lower)
        if last is not None:
            self._pace(state, last)
        return state

    def _better_of(self, network: Network, last: State | None) -> Network:
        return network if last is None or network.cost < last.best.cost else last.best

    def _unsettled(self, last: State | None) -> bool:
        """Whether neurons still move far: near the end kinks stop the descent, and it would blur the dual point."""
        still = self.options.settled_exactly if self.problem.interpolates else self.options.settled
        return last is None or self._violation(last.answer) > still

    def _worthwhile(self, mixture: Mixture, last: State | None) -> float:
        """The relative fall in one window of the descent below which the next search and master bring more.

        Both are paid in multiplications, counted and not timed, so that the same seed gives the same answer.
        """
        if last is None:
            return self.options.sliding
        (N, r), n, m = self._X.shape, len(mixture.eta), mixture.Lambda.shape[1]
        effort = self.options.efforts[last.effort]
        descent = SlideOptions().window * 8.0 * N * n * (r + m)
        # A search's multiplications take about four times as long: its matrices are small and its rest is entrywise.
        search = 8.0 * (effort.starts + n) * effort.steps * effort.inner * N * r
        gained = max(0.0, last.mixture.value - mixture.value) / mixture.value
        equal = gained * descent / (search + 10.0 * n * n * (N + n))
        return min(self.options.hurrying, max(self.options.sliding, equal))

    def _slide(self, directions: Tensor, mixture: Mixture, slow: float) -> tuple[Tensor, Mixture]:
        """All neurons moved together, until a window of the descent gains less than `slow`, relative."""
        beta = self.problem.beta
        U, V, b = slide(
            self._X,
            self.problem.activation,
            beta,
            self._fit.smooth,
            directions,
            mixture.outputs,
            mixture.bias,
            self.budget.spent,
            SlideOptions(slow=slow),
        )
        lengths = U.norm(dim=1, keepdim=True)
        alive = lengths[:, 0] > 0
        directions, outputs = U[alive] / lengths[alive], V[alive] * lengths[alive]
        F = mixture_outputs(self.problem.activation(self._X @ directions.T), outputs, b, beta)
        value, gradient = self._fit.smooth(F)
        sizes = outputs.norm(dim=1)
        total = float(value + 2.0 * sizes.sum() + b.square().sum())
        moved = Mixture(sizes, outputs, b, -0.5 * gradient, total, 0.0)
        self._fit.moved(F, moved)
        return directions, moved

    def _ask(self, directions: Tensor, mixture: Mixture, last: State | None) -> tuple[Answer, float | None]:
        """The oracle at the mixture's dual point, and the bound that follows where the oracle's is proved."""
        if self._exact is None:
            effort = self.options.efforts[last.effort if last is not None else 0]
            # Near the end float32 would leave the atoms too far from their maxima to be merged.
            finishing = self._search.rough if self._unsettled(last) else effort.steps
            changed = {"steps": effort.steps, "inner": effort.inner, "finishing": finishing}
            self._search.options = replace(self._search.options, **changed)
            answer = self._search(mixture.Lambda, self._starts(directions, mixture, effort.starts), self.budget.spent)
        else:
            answer = self._exact(mixture.Lambda, self._X[:0])
            answer = replace(answer, directions=self.inward(answer.directions))
        lower = self._bound(mixture.Lambda, answer.upper_bound)
        if isinstance(self._fit, InterpolationFit):
            self._fit.follow(mixture.Lambda, float(answer.values.max()) if len(answer.values) else 0.0)
        return answer, lower

    def _starts(self, directions: Tensor, mixture: Mixture, count: int) -> Tensor:
        """The active atoms, directions beside them, directions of linear neurons, and anywhere."""
        r, options = self._X.shape[1], self.options
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
        return torch.randn(rows, columns, generator=self._generator, dtype=self._X.dtype, device=self._X.device)

    def _chosen(self, state: State) -> Tensor:
        """The best of the distinct violators that the oracle found."""
        answer = state.answer
        found = answer.directions[answer.values > 1.0]
        found = found[: self.options.new_atoms]
        if self._exact is None and not self.problem.interpolates and not len(state.directions):
            found = torch.cat([found, self._normal(self._first(), self._X.shape[1])])
        return torch.nn.functional.normalize(found, dim=1)

    def _first(self) -> int:
        low, high = self.options.first
        return min(high, max(low, len(self._X) // 4))

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
        network = self._built(directions @ self._Q, outputs, b)
        return network if feasible else replace(network, cost=torch.inf)

    def reduced(self, network: Network) -> Network:
        """Fewer neurons at no higher cost: aligned ones merged, dependent ones dropped; itself where neither helps."""
        for cosine in self.options.merging:
            if len(network.U) and not self._late():
                merged = merge(network.U, network.V, cosine)
                network = self._better(network, self._polished(network, merged.directions, merged.outputs))
        rows = self.problem.samples * self.problem.Y.shape[1]
        if len(network.U) and len(network.U) * min(rows, len(network.U)) * rows <= self.options.dropping:
            lengths = network.U.norm(dim=1, keepdim=True)
            directions = network.U / lengths
            selected = caratheodory(self.problem.activation(self.problem.Xt @ directions.T), network.V * lengths)
            network = self._better(network, self._built(directions[selected.kept], selected.outputs, network.b))
        return network

    def _late(self) -> bool:
        return self.budget.seconds() > (1.0 + self.options.grace) * self.budget.time_limit

    def _polished(self, network: Network, directions: Tensor, outputs: Tensor) -> Network:
        """The network of the master on these few directions; they may have moved, so the outputs have to follow."""
        if len(directions) == len(network.U):
            return network
        reduced = directions @ self._Q.T
        Phi = self.problem.activation(self._X @ reduced.T)
        mixture = self._fit.solve(Phi, outputs.norm(dim=1), self.options.tightest, self._late)
        return self._network(reduced, Phi, mixture)

    def _built(self, directions: Tensor, outputs: Tensor, b: Tensor) -> Network:
        U, V = balance(directions, outputs)
        network = Network(U, V, b, torch.inf)
        network.cost = evaluate(self.problem, network.weights()).total
        return network

    def _better(self, network: Network, smaller: Network) -> Network:
        """`smaller`, if it has fewer neurons that are not zero, costs no more and fits as exactly."""
        alive = (smaller.U != 0).any(dim=1)
        if not len(smaller.U) < len(network.U) or smaller.cost > network.cost * (1.0 + self.options.reduction):
            return network
        if self.problem.interpolates:
            before, after = (evaluate(self.problem, n.weights()).residual for n in (network, smaller))
            if after > max(2.0 * before, 1e-12):
                return network
        return Network(smaller.U[alive], smaller.V[alive], smaller.b, smaller.cost)
