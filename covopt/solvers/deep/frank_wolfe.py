"""Frank-Wolfe over the cone S, layer by layer, for three layers of weights and more (MATH.md 3; [JGHG22, section 3.3]).

    minimise  C + lam (Tr[K_1 (Ks_0)^+] + sum_{l>1} Tr[K_l (Ks_{l-1} + eps_{l-1} I)^{-1}])  over pairs (K_l, Ks_l) in S.

With the pairs of the other layers held, the pair of one layer solves a problem of two layers: its inputs are Zs_{l-1}
beside sqrt(eps) I, and its outputs have to come near Z_{l+1}, for each unit of squared distance at the price lam / eps
(the last hidden layer has the loss itself). Rounds of fully corrective Frank-Wolfe take these problems in turn: the
linear oracle of the layer, then the best mixture of all its atoms. No weight ever descends.

With eps = 0 no layer could move alone, because its outputs would have to be Z_{l+1} exactly: on 30 digits the rounds
end 4 % above the method cone. With eps > 0 both layers move, and eps falls. A network is read off by ridge regression,
its last hidden layer by one more round with the true inputs, and its cost, without eps, is the one that is reported
(docs/notes/2026-11-frank-wolfe.md).

Zero is a local minimum for three layers and more, which no round leaves. So the rounds begin at a random network, or at
a given one. Each later start is the best network so far without some of the neurons of one layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.cholesky import factorize
from covopt.linalg.psd import RankRule, thin
from covopt.linalg.pseudo_inverse import trace_value
from covopt.model.loss import LOSSES
from covopt.model.problem import Problem, with_bias
from covopt.model.weights import Weights, check_weights, evaluate, preactivations
from covopt.runtime.loop import Budget, Progress, Status, run
from covopt.solvers.deep.pruning import parts, with_parts
from covopt.solvers.incumbent import cost_of
from covopt.solvers.shallow.plain import PlainRounds
from covopt.solvers.shallow.solver import EFFORTS, Effort
from covopt.solvers.training.exact_fit import explored_problem, fit_exactly, nearest_fit

QUICK = EFFORTS[0]
THOROUGH = Effort(starts=20, steps=10, gradient_steps=100, slow_fall=0.0)
"""It takes three times as long; eight rounds of a block with small eps then gain 0.24 % of the cost, not 0.03 %."""


@dataclass(frozen=True)
class Passes:
    """Passes over all layers with one Tikhonov parameter."""

    tikhonov: float  # eps_l, relative to the mean eigenvalue of Ks_l
    slow: float  # they end when a step of `LayerOptions.passes` passes lowers the objective by less than this, relative
    effort: Effort = QUICK  # of each search for neurons


@dataclass(frozen=True)
class LayerOptions:
    """The schedule of the rounds; docs/notes/2026-11-frank-wolfe.md has others that were tried.

    Attributes:
        schedule: the passes from each start, one after the other.
        passes: the number of passes over all layers before neurons are removed and a network is read off again.
        starts: the number of starts, each of which takes the time that it needs.
        retained: the fractions of the neurons of one layer of the best network with which later starts begin, in turn.
    """

    schedule: tuple[Passes, ...] = (
        Passes(1e-2, 1e-2),
        Passes(1e-3, 2e-3),
        Passes(1e-3, 2e-3, THOROUGH),
        Passes(1e-4, 1e-3, THOROUGH),
    )
    passes: int = 5
    starts: int = 8
    retained: tuple[float, ...] = (0.45, 0.45, 0.2, 0.2)


@dataclass(frozen=True)
class LayerState:
    """The pairs of all hidden layers, as K_l = Z_l Z_l^T and Ks_l = sigma(Z_l) sigma(Z_l)^T + beta^2 1 1^T.

    Attributes:
        Z: Z_1 ... Z_{L-1}.
        objective: with Tikhonov, after the last pass; infinite before the first one.
        weights: the best network so far.
        costs: the lowest cost without Tikhonov from each start, that under way the last.
        gaps: for each layer the most that a better pair could gain, relative to the objective, provided that the search
            found the strongest neuron; no proved bound. Empty before the first pass.
        stage: the index of the `Passes` of this start; passes: the number of passes so far.
        ended: whether the last start has ended.
    """

    Z: list[Float[Tensor, "N _"]]
    objective: float
    weights: list[Float[Tensor, "_ _"]]
    costs: tuple[float, ...]
    gaps: tuple[float, ...] = ()
    stage: int = 0
    passes: int = 0
    ended: bool = False

    @property
    def cost(self) -> float:
        """The cost of the best network, without Tikhonov."""
        return min(self.costs)


class LayerRounds:
    """The rounds from one start after the other, for `loop.run`.

    Args:
        problem: of three layers and more, with penalised biases, in its own dtype on its own device.

    Raises:
        ProblemError: `init` does not fit the problem.

    Source: [JGHG22, section 3.3]; the order of the layers, eps and its fall are ours.
    """

    width = 40
    """The neurons of each hidden layer of a random start; the rounds then find their own number."""
    eased = 1e-2
    """Exact fits are approached by a penalty, which falls with eps and is that of explored problems at this one."""
    last = Passes(1e-5, 1e-3, THOROUGH)  # for exact fits, after the schedule: their penalty has to fall further

    def __init__(
        self, problem: Problem, seed: int = 0, init: Weights | None = None, options: LayerOptions | None = None
    ) -> None:
        self.problem, self.options, self._seed = problem, options or LayerOptions(), seed
        self._start = None if init is None else [W.to(problem.X) for W in init]
        if self._start is not None:
            check_weights(problem, self._start)
        self._first, self._smooth = thin(problem.Xt), explored_problem(problem)
        self._schedule = self.options.schedule + (() if self._smooth is problem else (self.last,))
        self._reading = 0.0  # the seconds that it takes to read off a network

    # -- what loop.run asks for

    def init(self, budget: Budget) -> LayerState:
        """Return the pairs of the first start, with its network."""
        weights = self._random_start(0) if self._start is None else self._start
        Z, began = preactivations(self.problem, weights)[:-1], budget.seconds()
        state = LayerState(Z, math.inf, weights, (cost_of(self.problem, weights),))
        state = self._with_network(state, budget)
        self._reading = budget.seconds() - began
        return state

    def step(self, state: LayerState, budget: Budget) -> LayerState:
        """Pass over the layers a few times, and read off the network."""
        new = state
        for _ in range(self.options.passes):
            began = budget.seconds()
            new = self._pass(new, budget)
            if budget.remaining() < budget.seconds() - began + 2.0 * self._reading:
                break
        new = self._with_network(new, budget)
        slow = state.objective - new.objective <= self._schedule[state.stage].slow * new.objective
        if min(Z.shape[1] for Z in new.Z) == 0 or (slow and state.stage + 1 == len(self._schedule)):
            return self._next_start(new)  # no round leaves zero
        return replace(new, stage=state.stage + 1, objective=math.inf) if slow else new

    def finished(self, state: LayerState) -> Status | None:
        """Return CONVERGED once the last start has ended."""
        return Status.CONVERGED if state.ended else None

    def progress(self, state: LayerState, iteration: int, seconds: float) -> Progress:
        """Return the cost, the largest hidden width and the gaps; this method has no bound."""
        return Progress(iteration, seconds, state.cost, None, max(len(W) for W in state.weights[:-1]), gaps=state.gaps)

    def _next_start(self, state: LayerState) -> LayerState:
        """Return the state with which the next start begins."""
        number = len(state.costs)
        if number == self.options.starts:
            return replace(state, ended=True)
        # Not of the last hidden layer: its pair is the best one for those below, whatever it was.
        weights, layer = state.weights, 1 + number % (self.problem.depth - 2)
        if min(map(len, weights[:-1])) == 0:
            weights = self._random_start(number)
        else:
            incoming, outgoing = parts(weights, layer)
            order = torch.randperm(len(incoming), generator=self._generator(number), device=incoming.device)
            fraction = self.options.retained[(number - 1) % len(self.options.retained)]
            neurons = order[: math.ceil(fraction * len(order))]
            weights = with_parts(weights, layer, incoming[neurons], outgoing[neurons])
        Z = preactivations(self.problem, weights)[:-1]
        return replace(state, Z=Z, costs=(*state.costs, cost_of(self.problem, weights)), objective=math.inf, stage=0)

    # -- one pass

    def _pass(self, state: LayerState, budget: Budget) -> LayerState:
        """Solve the problem of each layer for one round, from the last hidden layer down."""
        problem, Z, gaps = self._eased(state), list(state.Z), list[float]()
        eps, outputs = self._eps(state), 0.0
        for layer in reversed(range(1, problem.depth)):
            block, price = self._block(problem, Z, layer, eps)
            Z[layer - 1], value, gap = self._round(block, Z[layer - 1], state, budget)
            gaps.insert(0, price * gap)
            outputs = value if layer == problem.depth - 1 else outputs
        objective = outputs + problem.lam * self._norm(Z, eps)
        relative = tuple(max(0.0, gap / objective) for gap in gaps) if objective > 0.0 else ()
        relative = relative if all(map(math.isfinite, relative)) else ()
        return replace(state, Z=Z, objective=objective, gaps=relative, passes=state.passes + 1)

    def _block(self, problem: Problem, Z: list[Tensor], layer: int, eps: list[float]) -> tuple[Problem, float]:
        """Return the problem of two layers of one hidden layer, and what its cost counts in the whole objective."""
        N, inputs, beta = problem.samples, problem.X, problem.bias(layer - 1)
        if layer > 1:
            own = math.sqrt(eps[layer - 2]) * torch.eye(N, dtype=inputs.dtype, device=inputs.device)
            inputs = torch.cat([problem.activation(Z[layer - 2]), own], dim=1)
        if layer == problem.depth - 1:
            return replace(problem, X=inputs, depth=2, beta=beta), 1.0
        lam = eps[layer - 1] / N
        near = replace(problem, X=inputs, Y=Z[layer], loss=LOSSES["mse"], lam=lam, depth=2, beta=beta, weight=None)
        return near, problem.lam / lam

    def _round(
        self, block: Problem, Z: Float[Tensor, "N n"], state: LayerState, budget: Budget
    ) -> tuple[Float[Tensor, "N _"], float, float]:
        """Return Z_l after a round, C + lam |W_{l+1}|^2 there, and the gap that its search leaves."""
        if not block.Y.shape[1]:  # no neurons above
            return Z[:, :0], 0.0, 0.0
        solver = PlainRounds(block, no_bound, seed=self._seed + state.passes, init=factorize(block.Xt).solve(Z).mT)
        solver.efforts = (self._schedule[state.stage].effort,)
        end = run(solver, replace(budget, max_iterations=1)).state
        is_last = (state.passes + 1) % self.options.passes == 0
        weights = (solver.reduced(end, budget) if is_last else solver.network(end)).weights()
        value = evaluate(block, weights)
        return block.Xt @ weights[0].mT, value.total - block.lam * float(weights[0].square().sum()), solver.gap(end)

    def _norm(self, Z: list[Tensor], eps: list[float]) -> float:
        """Return Tr[K_1 (Ks_0)^+] + sum_{l>1} Tr[K_l (Ks_{l-1} + eps I)^{-1}]."""
        norm = float(trace_value(Z[0], self._first))
        for layer in range(2, self.problem.depth):
            Zs = self.problem.appended(Z[layer - 2], layer - 1)
            norm += float(trace_value(Z[layer - 1], factorize(Zs, RankRule(tikhonov=eps[layer - 2]))))
        return norm

    def _eps(self, state: LayerState) -> list[float]:
        """Return eps_1 ... eps_{L-2}, above 0."""
        relative, tiny = self._schedule[state.stage].tikhonov, torch.finfo(self.problem.X.dtype).tiny
        traces = [float(self.problem.appended(Z, layer).square().sum()) for layer, Z in enumerate(state.Z, start=1)]
        return [max(tiny, relative * trace / self.problem.samples) for trace in traces[:-1]]

    # -- networks

    def _with_network(self, state: LayerState, budget: Budget) -> LayerState:
        """Return the state with the network of its pairs, where that costs less than those before."""
        weights = self._network(state, budget)
        cost = cost_of(self.problem, weights)
        costs = (*state.costs[:-1], min(cost, state.costs[-1]))
        return replace(state, costs=costs, weights=weights if cost < state.cost else state.weights)

    def _network(self, state: LayerState, budget: Budget) -> list[Tensor]:
        """Return the network of the pairs: ridge weights, and a round of the last hidden layer with its true inputs."""
        problem, inputs, weights = self._eased(state), self.problem.X, list[Tensor]()
        rules = [RankRule(), *(RankRule(tikhonov=eps) for eps in self._eps(state))]
        for layer, (Z, rule) in enumerate(zip(state.Z, rules, strict=True)):
            Zs = with_bias(inputs, problem.bias(layer))
            weights.append(factorize(Zs, rule).solve(Z).mT)
            if layer < problem.depth - 2:
                inputs = problem.activation(Zs @ weights[-1].mT)
        block = replace(problem, X=inputs, depth=2, beta=problem.bias(problem.depth - 2))
        solver = PlainRounds(block, no_bound, seed=self._seed + state.passes, init=weights[-1])
        last = run(solver, replace(budget, max_iterations=1)).state
        weights = [*weights[:-1], *solver.reduced(last, budget).weights()]
        if self._smooth is self.problem:
            return weights
        return nearest_fit(self.problem, fit_exactly(self.problem, weights), budget.pace())

    def _eased(self, state: LayerState) -> Problem:
        """Return the problem, or for an exact fit a penalty that falls with eps."""
        smooth, eps = self._smooth, self._schedule[state.stage].tikhonov
        return smooth if smooth is self.problem else replace(smooth, lam=smooth.lam * eps / self.eased)

    def _generator(self, number: int) -> torch.Generator:
        return torch.Generator(device=self.problem.X.device).manual_seed(self._seed + number)

    def _random_start(self, number: int) -> list[Tensor]:
        """Return a network with Gaussian weights, of about the size of the inputs in each layer."""
        problem, X, generator = self.problem, self.problem.X, self._generator(number)
        widths = [min(self.width, problem.samples)] * (problem.depth - 1)

        def drawn(n: int, d: int) -> Tensor:
            return math.sqrt(2.0 / d) * torch.randn(n, d, generator=generator, dtype=X.dtype, device=X.device)

        return [drawn(n, d) for n, d in problem.shapes(widths)]


@dataclass(frozen=True)
class InTurn:
    """`LayerRounds` from the best network of a search.

    They leave minima at which descents and blocks end. Of 14 races of 8 s against plain Adam, three were lost by up to
    0.04 % without them, and none with them (docs/notes/2026-11-deep-penalties.md).

    Attributes:
        rounds: the schedule of eps. Larger first values and a smaller last one take longer and end no lower.
        steps: the maximum number of steps, of `rounds.passes` passes each.
        share: the maximum share of the time limit.
        samples: the maximum number of samples, because each layer has one more input for each. On 200 and 400 digits
            the cost after 40 s changes by -0.04 to +0.01 %.
        gain: the blocks follow if all starts are drawn and the rounds lowered the cost by less than this, relative. Two
            races were lost, by 0.01 and 0.04 %, where blocks came before the next starts.
    """

    rounds: LayerOptions = LayerOptions((Passes(1e-3, 1e-3), Passes(1e-4, 1e-3)), starts=1)
    steps: int = 40
    share: float = 0.25
    samples: int = 400
    gain: float = 1e-5

    def moved(self, problem: Problem, weights: Weights, seed: int, budget: Budget) -> list[Tensor]:
        """Return the best network of the rounds, which costs no more than the given one."""
        limit = min(budget.time_limit, budget.seconds() + self.share * budget.time_limit)
        rounds = LayerRounds(problem, seed, weights, self.rounds)
        return run(rounds, replace(budget, time_limit=limit, max_iterations=self.steps)).state.weights


def no_bound(Lambda: Float[Tensor, "N m"], maximum: float) -> None:
    """Prove nothing: the problem of one layer bounds no network."""
