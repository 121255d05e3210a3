"""Fully corrective Frank-Wolfe over the cone S for two-layer networks (MATH.md section 4).

Each round asks the oracle for many distinct local maxima of h at the current dual point, hands them to the master as
new atoms, and keeps what the master uses. Active atoms move because the oracle's ascents continue from them: their
improved copies take their place in the master's next mixture. Most new atoms come from ascents that start beside
active ones: on digits (200 rows) seven in ten of those end above 1, against two in ten from random directions.

The solver works in directions w in the row space of Xt, and in residuals; it forms no matrix larger than
the features (N, n), and an (N, N) one only where n >= N.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.narrow import times_narrow
from covopt.linalg.psd import row_space
from covopt.model.problem import Problem
from covopt.model.units import Units
from covopt.model.weights import evaluate
from covopt.oracles.neurons import merge
from covopt.oracles.oracle import Answer, Oracle, Wrap
from covopt.oracles.search import AscentOptions, ConvexConcaveOracle
from covopt.runtime.interrupts import interrupted
from covopt.runtime.loop import Budget, OnIncumbent, Stop, ignore_incumbent
from covopt.solvers.checkpoint import Facts
from covopt.solvers.shallow.datafits import make_datafit, mixture_outputs
from covopt.solvers.shallow.master import Mixture
from covopt.solvers.shallow.networks import ExactNetworks, Network, NetworkBuilder
from covopt.solvers.shallow.rounds import Rounds, ShallowOptions, State, largest_value, violation_of
from covopt.solvers.shallow.sliding import SlideOptions, slide
from covopt.solvers.shallow.starts import FEWEST_FIRST, Starts, first_neurons
from covopt.solvers.training.kinks import NewtonAtKinks, suits

Bound = Callable[[Float[Tensor, "N m"], float], float | None]


@dataclass(frozen=True)
class Effort:
    """The effort of one round's search."""

    starts: int  # ascents, besides those from the active atoms
    steps: int  # convex-concave steps of each, at most
    gradient_steps: int  # projected-gradient steps in each of those
    slow_fall: float  # the relative fall of the cost in a round below which the next effort follows


EFFORTS = (
    Effort(60, 3, 25, 1e-1),
    Effort(120, 5, 50, 2e-2),
    Effort(300, 10, 100, 5e-3),
    Effort(300, 20, 100, 1e-3),
    Effort(300, 40, 150, 0.0),
)
"""Of the search, from the first rounds to the last."""


class ShallowSolver(Rounds):
    """The rounds where the penalty is on all weights.

    They run in the dtype and on the device of the problem, in units of their own (model/units.py), in which `State` is,
    from hidden weights `init` (n, n_0 + 1) of a network. `exact` is an oracle that knows the maximum, where there is
    one; else the convex-concave search is used. `bound` turns a dual point and a maximum, proved or infinite, into the
    best lower bound so far (certify's business). `wrap` is put around the oracle and the search.
    """

    efforts: tuple[Effort, ...] = EFFORTS  # of its searches, the first of the first round
    newton_work = 1e8  # multiplications of a Newton step at most; wine as classes and teachers take 1e7
    first_weight = 0.5  # a first descent begins with this multiple of the weights of the first master
    more_neurons = 3.2
    """With the squared error, and for exact fits, a first descent has at most this many times the neurons of the first
    master, which uses few of its atoms if lam is large. 1,797 digits, lam 1e-2: 0.2848 after 0.3 s, and after 1.5 s
    without this limit. With cross-entropy 500 digits are lower at 1 s, but 0.005 % higher at 4 s."""
    least_gain = 5e-5
    """A descent of the weights ends when ten steps gain less, relative. Between 1e-5 and 1e-4 costs after 3 s differ by
    0.3 % at most, up and down; with 1e-3 for the first descent, cross-entropy is up to 0.3 % higher after 1 s."""
    first_gain = 0.0  # the same for the first descent from a given network, if this is larger
    alike = 1e-3
    """While neurons still move far, those whose cosine is within this of 1 become one atom: descents make hundreds
    alike, with which the next master would take seconds."""
    window_share = 0.03
    """Ten steps of a descent must gain at least this share of the tolerance of the rounds. Solves of 300 rows of 10
    inputs take a third of the time with 1e-3 as with 0, and cost at most 0.5 % more; with 0.1, some cost 3 % more."""
    last_part = 0.1  # mixtures that no outputs fit are completed after descents, and in this last part of the time
    worthwhile = 1e-3  # a completed mixture has many neurons; it is taken if it lowers the cost by this part of it
    smoothing_gain = 5e-4
    """A descent through rounded kinks that gains less than this, relative, is the last with the roundest."""
    small_violation, small_violation_exactly = 1e-3, 1.0
    """No descent once the last violation is below this; the second for `interpolate`, whose multiplier follows a
    master's exact dual point."""
    faint = 1e-12
    """Neurons of a network to start from whose squared norms are below this part of all are directions without
    weight."""

    def __init__(
        self,
        problem: Problem,
        bound: Bound,
        exact: Oracle | None = None,
        options: ShallowOptions | None = None,
        seed: int = 0,
        init: Float[Tensor, "n d"] | None = None,
        wrap: Wrap = lambda oracle: oracle,
    ) -> None:
        self.units = Units.of(problem)
        self._original, self.problem = problem, self.units.problem
        problem = self.problem
        super().__init__(options or ShallowOptions(), make_datafit(problem))
        self._bound, self._init = bound, init
        self._Q = row_space(problem.condensed_Xt, self._fit.rank_rule())
        self._X = problem.Xt @ self._Q.T
        self._exact = None if exact is None else wrap(exact)
        search = ConvexConcaveOracle(self._X, problem.activation, None, problem.spread, self.options.entries)
        self._search = wrap(search)
        self._random, self._seed = Starts(self._X, seed, problem.spread), seed
        builder = ExactNetworks if problem.interpolates else NetworkBuilder
        self._networks = builder(problem, self._X, self._Q, self._fit)
        self._incumbent: Network | None = None
        self._searching = exact is None
        self.on_incumbent: OnIncumbent = ignore_incumbent

    def inward(self, directions: Float[Tensor, "n d"]) -> Float[Tensor, "n r"]:
        """Directions in input coordinates, bias last, in the row-space basis that `State` uses."""
        return directions @ self._Q.T

    def outward(self, directions: Float[Tensor, "n r"]) -> Float[Tensor, "n d"]:
        """Directions of `State` in input coordinates, bias last."""
        return directions @ self._Q

    def init(self, budget: Budget) -> State:
        """Return the state of the zero network, or of the start, with the oracle's answer."""
        rows = self._X.new_zeros(0, self._X.shape[1])
        if self._init is not None:
            rows = self.inward(self._init.to(self._X)) / self.units.weights
            rows = rows[rows.norm(dim=1) > 0]
        # In a balanced network the weight of an atom is its neuron's squared norm; the master begins there.
        eta = rows.square().sum(dim=1)
        eta = torch.where(eta > self.faint * eta.sum(), eta, 0.0)
        return self._round(torch.nn.functional.normalize(rows, dim=1), eta, None, budget)

    def step(self, state: State, budget: Budget) -> State:
        """Merge atoms that descents made alike, then take a round."""
        if len(state.directions) and self._unsettled(state):
            merged = merge(state.directions, state.mixture.outputs, self.alike)
            eta = state.mixture.eta.new_zeros(len(merged.directions))
            eta.index_add_(0, merged.group.clamp_min(0), state.mixture.eta.where(merged.group >= 0, 0.0))
            mixture = replace(state.mixture, eta=eta, outputs=merged.outputs)
            state = replace(state, directions=merged.directions, mixture=mixture)
        return super().step(state, budget)

    def best(self, state: State) -> Network:
        """Return the best network so far, that of a descent or of a completed mixture included."""
        return self._cheaper(state.best)

    def cost(self, state: State) -> float:
        """Return the cost of the best network so far, in the user's units."""
        return self.units.cost * self.best(state).cost

    def dual(self, state: State) -> Float[Tensor, "N m"]:
        """Return the dual point in the user's units."""
        return self.units.dual(state.mixture.Lambda)

    def reduced(self, state: State, budget: Budget) -> Network:
        """Return a network with fewer neurons at no higher cost, from the best network so far."""
        network = self.best(state)
        with budget.phase("merging"):
            if not (math.isfinite(network.cost) and budget.overdue()):
                self._complete(network, state.directions, state.mixture, interrupted)
                network = self.best(state)
            if not math.isfinite(network.cost):
                nothing = state.directions[:0], state.mixture.eta[:0]
                network = self._networks.completed(*nothing, Starts(self._X, self._seed), interrupted) or network
            smaller = self._networks.reduced(network, budget.overdue)
        return self._in_user_units(smaller)

    def network(self, state: State) -> Network:
        """Return the best network so far in the user's units, with all its neurons."""
        return self._in_user_units(self.best(state))

    def _in_user_units(self, network: Network) -> Network:
        scale = self.units.weights
        outward = Network(scale * network.U, scale * network.V, scale * network.b, torch.inf)
        outward.cost = evaluate(self._original, outward.weights()).total
        return outward

    def memory(self) -> tuple[dict[str, object], dict[str, Tensor]]:
        """Return what further rounds depend on besides the state: numbers, and arrays."""
        fit, arrays = self._fit.memory()
        facts = {"fit": fit, "searching": self._searching, "incumbent": None}
        if (incumbent := self._incumbent) is not None:
            facts["incumbent"] = incumbent.cost
            arrays |= {"known_U": incumbent.U, "known_V": incumbent.V, "known_b": incumbent.b}
        return facts, arrays | {"generator": self._random.generator.get_state()}

    def recall(self, facts: Facts, arrays: Mapping[str, Tensor]) -> None:
        """Restore what `memory` returned."""
        self._fit.recall(facts["fit"], arrays)
        self._random.generator.set_state(arrays["generator"])
        self._searching = facts["searching"]
        if facts["incumbent"] is not None:
            U, V, b = (arrays[f"known_{name}"] for name in "UVb")
            self._incumbent = Network(U, V, b, facts["incumbent"])

    def _round(self, directions: Tensor, eta: Tensor, last: State | None, budget: Budget) -> State:
        Phi = self.problem.activation(self._X @ directions.T)
        directions, Phi, mixture = self._solved(directions, Phi, eta, self._tolerance(last), budget)
        network = self._networks.of_mixture(directions, Phi, mixture)
        best = self._better_of(network, last)
        slides = self._searching and len(directions) and self._unsettled(last)
        smoothing_stage = last.smoothing_stage if last is not None else int(self._fit.has_multiplier)
        moved = None
        if slides:
            slow, before = max(self.least_gain, self.window_share * (self.options.tol or 0.0)), mixture.value
            slow = slow if last is not None else max(slow, self.first_gain)
            if last is not None and not len(last.directions):
                directions, mixture = self._spread(directions, mixture)
            with budget.phase("descent"):
                moved = directions, mixture = self._slide(directions, mixture, slow, smoothing_stage, budget)
            smoothing_stage += before - mixture.value < self.smoothing_gain * mixture.value
        elif self._searching and len(directions):
            with budget.phase("descent"):
                moved = self._settle(directions, mixture, budget)
        if moved is not None:
            directions, mixture = moved
            Phi = self.problem.activation(self._X @ directions.T)
            best = min(best, self._networks.of_mixture(directions, Phi, mixture), key=lambda network: network.cost)
        ends = budget.remaining() < self.last_part * budget.time_limit
        if (slides or ends) and not math.isfinite(network.cost):
            with budget.phase("descent"):
                self._complete(best, directions, mixture, budget.overdue)
        slow = self._slow_rounds(best, last)
        answer = Answer(self._X[:0], self._X.new_zeros(0))
        lower = self._bound(self.units.dual(mixture.Lambda), math.inf)
        if slow < self.slow_rounds:  # else what is found would not be used
            with budget.phase("search"):
                answer, lower = self._query_oracle(directions, mixture, last, budget)
        state = State(directions, mixture, answer, best, lower, 0, 0, slow, smoothing_stage, self._fit.misfit)
        if last is not None:
            self._adapt_effort(state, last)
        return state

    def _cheaper(self, network: Network) -> Network:
        """Return the network, or the incumbent if that costs less."""
        return network if self._incumbent is None or network.cost <= self._incumbent.cost else self._incumbent

    def _complete(self, best: Network, directions: Tensor, mixture: Mixture, late: Stop) -> None:
        """Report the exact fit near a mixture, which has more neurons, if it is worth it."""
        enough = (1.0 - self.worthwhile) * self._cheaper(best).cost
        norm = 2.0 * float(mixture.outputs.norm(dim=1).sum()) + float(mixture.bias.square().sum())
        if self._fit.misfit < math.inf and norm < enough:
            fit = self._networks.nearest(directions, mixture, late)
            if fit is None or fit.cost >= enough:
                fit = self._networks.completed(directions, mixture.eta, Starts(self._X, self._seed), late)
            if fit is not None and fit.cost < enough:
                self._report(fit)

    def _slow_rounds(self, best: Network, last: State | None) -> int:
        """Return how many rounds in a row at full effort gained less than the tolerance."""
        tol = self.options.tol
        if tol is None or last is None or last.effort < self._most_effort() or _fall(last.best.cost, best.cost) >= tol:
            return 0
        return last.slow + 1

    def _unsettled(self, last: State | None) -> bool:
        """Return True if neurons still move far; later, kinks stop descents and blur the dual."""
        still = self.small_violation_exactly if self._fit.has_multiplier else self.small_violation
        return last is None or violation_of(last.answer) > still

    def _spread(self, directions: Tensor, mixture: Mixture) -> tuple[Tensor, Mixture]:
        """Spread less weight equally on more atoms: wide networks descend further than few atoms."""
        n = first_neurons(self.problem)
        if self.problem.ridge is not None:
            n = min(n, max(FEWEST_FIRST, round(self.more_neurons * int((mixture.eta > 0.0).sum()))))
        more = self._random.between(max(0, n - len(directions)))
        directions = torch.cat([directions, torch.nn.functional.normalize(more, dim=1)])
        Phi = self.problem.activation(self._X @ directions.T)
        slopes = self.problem.spread.sum(lambda Phi, Lambda: times_narrow(Phi.T, Lambda), Phi, mixture.Lambda)
        eta = torch.full_like(slopes[:, 0], self.first_weight * float(mixture.eta.sum()) / len(directions))
        outputs = eta[:, None] * torch.nn.functional.normalize(slopes, dim=1)
        return directions, replace(mixture, eta=eta, outputs=outputs)

    def _slide(
        self, directions: Tensor, mixture: Mixture, slow: float, smoothing_stage: int, budget: Budget
    ) -> tuple[Tensor, Mixture]:
        """Move all neurons together, until a window of the descent gains less than `slow`."""
        options = SlideOptions(kinks=SlideOptions().kinks[smoothing_stage:], slow=slow)
        descent = slide(self._fit.objective(self._X), directions, mixture.outputs, mixture.bias, budget.pace(), options)
        U, V, b = next(descent)
        for U, V, b in descent:
            self._offer_incumbent(U, V, b)
        return self._mixture_of(U, V, b) or (directions, mixture)

    def _settle(self, directions: Tensor, mixture: Mixture, budget: Budget) -> tuple[Tensor, Mixture] | None:
        """Move all neurons by Newton steps that hold them on kinks; None if a step takes too long."""
        weights = self._networks.of_rows(directions, mixture.outputs, mixture.bias).weights()
        if not suits(self.problem, weights, self.newton_work):
            return None
        W1, W2 = NewtonAtKinks().settled(self.problem, weights, budget.pace()).weights
        U, V, b = self.inward(W1), W2[:, :-1].T, W2[:, -1]
        self._offer_incumbent(U, V, b)
        return self._mixture_of(U, V, b)

    def _mixture_of(self, U: Tensor, V: Tensor, b: Tensor) -> tuple[Tensor, Mixture] | None:
        """Return directions and mixture of a network in the row-space basis; None if they leave float64."""
        lengths = U.norm(dim=1, keepdim=True)
        alive = lengths[:, 0] > 0
        directions, outputs = U[alive] / lengths[alive], V[alive] * lengths[alive]
        F = mixture_outputs(self.problem.activation(self._X @ directions.T), outputs, b, self.problem.bias(1))
        value, gradient = self._fit.smooth(F)
        sizes = outputs.norm(dim=1)
        total = float(value + 2.0 * sizes.sum() + b.square().sum())
        lost = self.problem.spread.largest(float(not torch.isfinite(gradient).all()))
        if lost or not math.isfinite(total):
            return None
        moved = Mixture(sizes, outputs, b, -0.5 * gradient, total)
        self._fit.update(F, moved)
        return directions, moved

    def _offer_incumbent(self, U: Tensor, V: Tensor, b: Tensor) -> None:
        """Report a network within a round that is better than all before."""
        network = self._networks.in_descent(U, V, b)
        if network is not None and (self._incumbent is None or network.cost < self._incumbent.cost):
            self._report(network)

    def _report(self, network: Network) -> None:
        self._incumbent = network
        self.on_incumbent(self.units.cost * network.cost, len(network.U))

    def _query_oracle(
        self, directions: Tensor, mixture: Mixture, last: State | None, budget: Budget
    ) -> tuple[Answer, float | None]:
        """Query the oracle at the mixture's dual point; return its answer and proved bound."""
        answer, bound = Answer(self._X[:0], self._X.new_zeros(0)), torch.inf
        Lambda = self.units.dual(mixture.Lambda)
        if self._exact is not None:
            answer = self._exact(Lambda, self._original.Xt[:0])
            answer, bound = replace(answer, directions=self.inward(answer.directions)), answer.upper_bound
            # If its bound is far above its best value, rounding hides something in its coordinates.
            self._searching = bound > max(1.0, *answer.values.tolist()) * (1.0 + self._stall_threshold())
        if self._searching:
            effort = self.efforts[last.effort if last is not None else 0]
            # Near the end float32 would leave the atoms too far from their maxima to be merged.
            finishing = AscentOptions.finishing if self._unsettled(last) else effort.steps
            options = AscentOptions(effort.steps, effort.gradient_steps, finishing=finishing)
            starts = self._random.around(directions, mixture.Lambda, effort.starts)
            ascents = self._search(mixture.Lambda, starts, options=options, stop=budget.pace())
            values, order = torch.cat([answer.values, ascents.values]).sort(descending=True)
            answer = Answer(torch.cat([answer.directions, ascents.directions])[order], values)
        lower = self._bound(Lambda, bound)
        self._fit.update_multiplier(mixture.Lambda, largest_value(answer))
        return answer, lower

    def _atoms(self, state: State) -> Tensor:
        """Return the best of the distinct violators; for a first master random directions too."""
        atoms = super()._atoms(state)
        if self._exact is None and self._fit.random_atoms and not len(state.directions):
            atoms = torch.cat([atoms, self._random.between(self._fit.random_atoms)])
        return torch.nn.functional.normalize(atoms, dim=1)

    def _stall_threshold(self) -> float:
        """Return the relative violation, or fall of the cost, that counts as none."""
        return max(self.smallest_tolerance, self.options.stall_tolerance * self.options.gap)

    def _most_effort(self) -> int:
        """Return the last usable place in `efforts`; those for falls that no longer count are left out."""
        return sum(effort.slow_fall > max(self.options.tol or 0.0, self._stall_threshold()) for effort in self.efforts)

    def _adapt_effort(self, state: State, last: State) -> None:
        """Raise the effort if a round gains little; without gain at full effort it is stalled."""
        fall, most = _fall(last.best.cost, state.best.cost), self._most_effort()
        if state.best.cost == math.inf and state.misfit < math.inf:
            fall = _fall(last.misfit, state.misfit)
        state.effort = last.effort
        if state.effort < most and fall < self.efforts[state.effort].slow_fall:
            state.effort += 1
        full = not self._searching or last.effort == most
        small = self._stall_threshold()
        no_gain = violation_of(state.answer) <= small and fall <= small
        state.stalled = last.stalled + 1 if full and no_gain and self._fit.settled else 0


class AfterBatches(ShallowSolver):
    """The rounds from a network that was trained on batches.

    The first descent, through the roundest kinks, reaches no lower network before its end. With 1e-3 in place of 3e-3
    one of four sets costs 5 % more after 8 s, and another 1.4 % less after 15 s.
    """

    first_gain = 3e-3


def _fall(before: float, now: float) -> float:
    """By how much of itself the cost fell; from no fit to one, or to 0, endlessly."""
    return (before - now) / now if 0.0 < now < math.inf else math.inf
