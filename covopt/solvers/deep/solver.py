"""Networks of depth L >= 3: many starts, refined layer by layer (MATH.md 3 and 5).

The objective is not convex across layers, and its local minima differ by percents (they differ in the ranks of their
middle layers), so the solver has many starts (starts.py): the answer of two layers with identity layers inserted; at a
large depth networks whose ends descend first, one for each rank; and random starts, a batch of which is trained by Adam
(exploration.py) or, for exact fits and where that would take too long, descends through smoothed kinks (homotopy.py);
the best of each batch are refined. Between batches, and at the end until nothing is gained, the best network of all is
improved: copies of lower rank and wider ones are trained, L-BFGS moves all its weights, its layers move in turn
(frank_wolfe.py), and its layer blocks, from the last one down, are shallow problems (blocks.py), whose oracle adds and
drops neurons. Every step is confirmed by evaluating the loss. No bound is proved.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.weights import Weights, evaluate
from covopt.runtime.loop import Budget, OnIncumbent, Progress, Status, ignore_incumbent
from covopt.solvers.deep.blocks import solve_block
from covopt.solvers.deep.descent import descent_for
from covopt.solvers.deep.exploration import Exploration, RandomStarts, few_starts
from covopt.solvers.deep.fine_tuning import FurtherTraining
from covopt.solvers.deep.first_training import first_training, has_small_lam
from covopt.solvers.deep.insertion import in_balance
from covopt.solvers.deep.pruning import reduced
from covopt.solvers.deep.starts import BRIEFLY, ENDS, ROUGHLY, draws_to_descend, ends_first, from_two_layers, most_ranks
from covopt.solvers.deep.state import DeepOptions, State
from covopt.solvers.options import SolveOptions
from covopt.solvers.training.homotopy import EXPLORING, POLISHING, REFINING, descend
from covopt.solvers.training.simple import simple_networks

AT_FIRST = 6  # starts of a batch at most, where few come at a time
RANKS = 6  # that are built outer layers first in one step
# The largest depth at which random starts come before networks that are built outer layers first: in general, and if a
# start is trained and lam is not small (docs/notes/2026-11-first-starts.md).
DEEPEST, DEEPEST_TRAINED = 8, 16
BATCHES = 3  # that descend through smoothed kinks; as many starts are trained in one
FEW = 4  # starts of three layers that are trained before the best network is refined, at most
ELITE = 6  # networks of a batch that are refined, at most
# A pass that gains more than this, relative, stops at the last layer's block and is repeated at once.
LARGE_GAIN = 1e-3
# A pass over the blocks that lowers the cost by less than this, relative, is stalled: it is the last, all starts drawn.
STALL_GAIN = 1e-6


class DeepSolver:
    """The steps for `loop.run`: explore a batch, refine its best, improve the best's blocks.

    The search ends at the cost `enough`, which is within the gap asked for of a proved bound.
    """

    hurries = True  # True if a start is trained before all else, even if others descend in little time

    def __init__(
        self,
        problem: Problem,
        options: DeepOptions | None = None,
        seed: int = 0,
        init: Weights | None = None,
        max_width: int | None = None,
        enough: float = 0.0,
    ) -> None:
        self.problem, self.options = problem, options or DeepOptions()
        self._seed, self._init, self._max_width, self.enough = seed, init, max_width, enough
        self._exploration, self._lowest = Exploration(), math.inf
        self._early = 0  # starts that are trained before all others, as `_training` says
        self._training = Exploration()
        self._descents = descent_for(problem, seed, max_width)
        self.on_incumbent: OnIncumbent = ignore_incumbent

    # -- what loop.run asks for ---------------------------------------------------------------------------------

    def init(self, budget: Budget) -> State:
        """Return the best of the networks at hand (simple.py, starts.py), or the given start."""
        empty = [self.problem.X.new_zeros(shape) for shape in self.problem.shapes([0] * (self.problem.depth - 1))]
        state = State(empty, self._descents.cost(empty))
        self._descents.on_network = partial(self._keep, state)
        for weights in filter(self._narrow, simple_networks(self.problem)):
            self._keep(state, weights)
            self._keep(state, in_balance(weights))
        if self._init is not None:
            start = [W.to(self.problem.X) for W in self._init]
            self._keep(state, start)
            state.pool, state.costs = {0: start}, [self._descents.cost(start)]
        if state.cost > self.enough and self.options.starts:
            self._training = first_training(self.problem, budget.time_limit, self._max_width)
            seconds, starts, batch = budget.time_limit, self.options.starts, self.options.batch
            if not self._together(budget, 0):
                self._early = self._training.early(self.problem, seconds, starts, batch, self.hurries)
                state.skipped, state.further = int(has_small_lam(self.problem)), self._training.further
            late, first = self._begins_late, self.hurries and self._init is None and not self._early
            state.begins = late or (first and self._training.fits(self.problem, seconds))
            if not state.begins:
                with budget.phase("first networks"):
                    self._begin(state, budget)
        else:
            self._keep(state, self._descents.nearest(state.best, budget.pace()))
        return state

    def step(self, state: State, budget: Budget) -> State:
        """Do the next batch, refinement or pass over blocks; the clock does not change the order."""
        if state.begins and not self._begins_late:
            with budget.phase("first networks"):
                start, keep = self._draw(0, self._training.starts), partial(self._keep_all, state)
                self._keep(state, self._training.train_briefly(self._descents.smooth, start, budget, keep))
                self._train_copy(state, state.best, budget)
                self._begin(state, budget)
        phase, _, take = self._next(state)
        with budget.phase(phase):
            take(state, budget)
        return state

    def finished(self, state: State) -> Status | None:
        """Return OPTIMAL at a proved minimum, CONVERGED after all starts and a stalled pass, TOLERANCE if slow."""
        if state.cost <= self.enough:
            return Status.OPTIMAL
        if state.stalled and not (state.pool or state.waiting or state.ranks or self._drawing(state)):
            return Status.CONVERGED
        return Status.TOLERANCE if state.slow else None

    def progress(self, state: State, iteration: int, seconds: float) -> Progress:
        """Cost and largest width of the best network, and what comes next; there is no bound."""
        return Progress(iteration, seconds, state.cost, None, max(map(len, state.best[:-1])), self._next(state)[1])

    def _next(self, state: State) -> tuple[str, str, Callable[[State, Budget], None]]:
        """Return the phase of the next step, what it does in words, and the step."""
        first, options = len(state.costs), self.options
        explore = self._train_first if self._early and not self._descents.deepened_first else self._explore
        if state.pool:
            return "refining", f"refining the best of {first} starts", self._refine
        if self._drawing_few(state):
            return "exploring", "the first starts", explore if self._early else partial(self._explore, few=True)
        if self._building(state):
            ranks = f"{state.ranks.start} to {state.ranks.stop - 1}"
            return "outer layers first", f"networks of ranks {ranks}, outer layers first", self._build
        if self._settling(state):
            return "refining", "descending from deepened networks", self._settle
        if not state.due and self._drawing(state):
            return "exploring", f"random starts from number {first + 1} of {options.starts} on", explore
        return "improving", "improving the best network", self._improve

    def _drawing_few(self, state: State) -> bool:
        """Return True if a few starts come now: early if there are not too many layers, else after building."""
        few = self._early or self.problem.depth > ENDS
        if state.costs or not few or self._descents.deepened_first or not self._drawing(state):
            return False
        return self.problem.depth <= self._deepest or state.descended > 0 or not (state.ranks or state.waiting)

    @property
    def _deepest(self) -> int:
        """The largest depth at which random starts come before networks that are built outer layers first."""
        wide = (self._max_width or math.inf) >= self._training.starts.narrowest
        trained = self._early and wide and not has_small_lam(self.problem)
        return DEEPEST_TRAINED if trained else DEEPEST

    @property
    def _begins_late(self) -> bool:
        """True if a start is trained before the answer of two layers is made deeper."""
        late = self._early > 0 and self._init is None and self.options.starts > 1
        return late and self.problem.depth <= self._deepest and not self._descents.deepened_first

    def _building(self, state: State) -> bool:
        first = state.ranks.start == 1 and not self._descents.deepened_first
        return bool(state.ranks) and (first or not state.waiting) and not (state.trained and state.due)

    def _settling(self, state: State) -> bool:
        """Return True if deepened networks descend now; starts of few layers, or trained, win."""
        first = self._descents.deepened_first or (self.problem.depth > ENDS and not state.trained)
        return bool(state.waiting) and (first or (bool(state.costs) and not state.due))

    # -- steps --------------------------------------------------------------------------------------------------

    def _explore(self, state: State, budget: Budget, few: bool = False) -> None:
        first, exploration = len(state.costs), self._exploration
        batch = self.options.batch if self.options.tol is None else AT_FIRST
        batch = min(AT_FIRST, few_starts(self.problem, budget.time_limit)) if few else batch
        state.trained = (together := self._together(budget, first)) > 0
        numbers = range(first, first + together if together else min(first + batch, self.options.starts))
        starts = exploration.starts if state.trained else draws_to_descend(self.problem.depth)
        draws = [self._draw(k, starts) for k in numbers]
        if state.trained:
            networks = exploration.train(self._descents.smooth, draws, budget)
            self._choose(state, networks, exploration.elite, exploration.promising, budget)
        else:
            networks = descend(self._descents.smooth, draws, EXPLORING, budget.pace())
            self._choose(state, networks, ELITE, 0.03, budget)

    def _train_first(self, state: State, budget: Budget) -> None:
        """Train the first start for a cycle, later ones a few at a time."""
        if not state.early:
            first = len(state.costs)
            if first and state.begins:
                self._begin(state, budget)
            numbers = range(first, min(first + self._early, self.options.starts)) if first else range(1)
            state.early = [self._draw(k, self._training.starts) for k in numbers]
            state.cycles = list(self._training.cycles[-1:] if first else self._training.cycles[:-1])
            state.early_end = min(budget.time_limit, budget.seconds() + self._training.share * budget.time_limit)
        within = replace(budget, time_limit=state.early_end)
        cycle, keep = state.cycles.pop(0), partial(self._keep_all, state)
        state.early = self._training.train_cycle(self._descents.smooth, state.early, cycle, within, keep)
        if state.cycles and not within.spent():
            self._keep_all(state, [self._descents.completed(weights) for weights in state.early])
            return
        state.trained, state.due = True, not state.costs
        self._choose(state, state.early, self._training.elite, self._training.promising, budget)
        state.early, state.pool = [], {}  # wider copies of the best are trained next

    def _choose(self, state: State, networks: list[list[Tensor]], elite: int, promising: float, budget: Budget) -> None:
        """Keep the best of the networks that explored, and choose those that are refined."""
        before, numbers = state.cost, range(len(state.costs), len(state.costs) + len(networks))
        values = [evaluate(self._descents.smooth, weights).total for weights in networks]
        fits = [self._descents.completed(weights) for weights in networks]
        state.costs += map(self._descents.cost, fits)
        self._keep_all(state, fits, budget)
        self._lowest = min(self._lowest, *values)
        worst = (1.0 + promising) * self._lowest
        ranked = sorted(zip(numbers, values, networks, strict=True), key=lambda start: start[1])[:elite]
        state.pool = {k: weights for k, value, weights in ranked if value <= worst}
        if state.trained:
            state.pool = {k: reduced(self.problem, weights, budget.pace()) for k, weights in state.pool.items()}
        state.due = state.due or self.options.tol is not None or state.cost < before

    def _together(self, budget: Budget, first: int) -> int:
        """Return how many starts, beginning with number `first`, Adam trains; 0 if L-BFGS explores."""
        most = min(BATCHES * self.options.batch, self.options.starts - first)
        return self._exploration.count(self.problem, budget.time_limit, most)

    def _begin(self, state: State, budget: Budget) -> None:
        """Start from deepened two-layer solutions; on small problems also by short descents."""
        state.begins = False
        trained = self._early > 0 or self._together(budget, len(state.costs)) >= self._exploration.fewest[0]
        deepened = from_two_layers(self.problem, budget, self._seed, BRIEFLY if trained else ROUGHLY)
        narrow = list(filter(self._narrow, deepened))
        self._keep_all(state, narrow)
        state.waiting = narrow[:3][::-1]
        if self.problem.depth > ENDS and not self.problem.activation.is_linear:
            state.ranks = range(1, min(RANKS, most_ranks(self.problem)) + 1)
        if trained:
            return  # random starts that are trained end lower, in less time
        simple = list(filter(self._narrow, simple_networks(self.problem)))
        self._keep_all(state, self._descents.briefly(simple, torch.Generator().manual_seed(self._seed), budget.pace()))

    def _build(self, state: State, budget: Budget) -> None:
        """Build networks of several ranks, outer layers first; continue if the highest rank is best."""
        usual = RandomStarts().width(self.problem, 1.0)
        width = min(usual, self._max_width or usual)
        networks = ends_first(self.problem, state.ranks, width, self._seed, budget.pace())
        networks = [built for built in networks if self._narrow(built.weights)][:3]
        complete = [built.weights for built in networks]
        self._keep_all(state, complete)
        state.waiting = sorted([*state.waiting, *complete], key=lambda W: -evaluate(self._descents.smooth, W).total)
        stop = state.ranks.stop
        more = bool(networks) and networks[0].rank == stop - 1 and not budget.spent()
        state.ranks = range(stop, min(stop + RANKS, most_ranks(self.problem) + 1)) if more else range(0)

    def _settle(self, state: State, budget: Budget) -> None:
        """One of the waiting networks, down to where its descent ends."""
        self._keep_all(state, self._descents.descend([state.waiting.pop()], POLISHING, budget))
        state.due, state.descended = True, state.descended + 1

    def _refine(self, state: State, budget: Budget) -> None:
        """Descend from the pool's networks, down to the kinks."""
        before = state.cost
        refined = self._descents.descend(list(state.pool.values()), REFINING, budget)
        for k, weights in zip(state.pool, refined, strict=True):
            state.costs[k] = min(state.costs[k], self._descents.cost(weights))
        self._keep_all(state, refined, budget)
        state.due = state.due or state.cost < before
        state.pool = {}

    def _improve(self, state: State, budget: Budget) -> None:
        """Train copies by SOAP, if starts are trained; descend, pass over the blocks, descend again."""
        before = state.cost
        self._keep(state, reduced(self.problem, state.best, budget.pace()), at_most=True)
        if self._early and state.further and self._train_further(state, state.further, budget):
            return
        if self._early and state.in_vain < self._training.restarts:
            generator, smooth = self._descents.generator, self._descents.smooth
            self._keep_all(state, [self._training.restart(smooth, state.best, generator, budget)], budget)
            state.in_vain = 0 if self._fell(before, state.cost, LARGE_GAIN) else state.in_vain + 1
            return
        if self._early and self._train_wider(state, budget):
            return
        copies = [state.best] if self._early else self._descents.with_wider(state.best, self.options.widening)
        self._keep_all(state, self._descents.descend(copies, POLISHING, budget), budget)
        if not (budget.spent() or self._early):
            copies = self._descents.with_wider(state.best, self.options.widening)
            self._keep_all(state, self._descents.fine_tuned(self._exploration, copies, budget))
        if not self._move_in_turn(state, budget):
            for layer in range(self.problem.depth - 1, 0, -1):
                if budget.spent():
                    return
                self._keep(state, self._block(state, layer, budget))
                if self._fell(before, state.cost, LARGE_GAIN):
                    break
            self._keep(state, self._descents.descend([state.best], POLISHING, budget)[0])
        self._keep(state, reduced(self.problem, state.best, budget.pace()), at_most=True)
        state.due = self._fell(before, state.cost, LARGE_GAIN)
        state.stalled = math.isfinite(before) and not self._fell(before, state.cost, STALL_GAIN)
        if self.options.tol is not None:
            state.slow = math.isfinite(before) and not self._fell(before, state.cost, self.options.tol)

    def _train_further(self, state: State, further: FurtherTraining, budget: Budget) -> bool:
        """Train the best network further; return True if it gains so much that a longer cycle follows."""
        before, start = state.cost, self._descents.wide_enough(state.best, self.options.widening[:1])
        smooth, report = self._descents.smooth, partial(self._keep_all, state)
        self._keep(state, self._training.train_further(smooth, start, further, budget, report))
        state.further = further.longer() if self._fell(before, state.cost, further.gain) else None
        return state.further is not None

    def _train_wider(self, state: State, budget: Budget) -> bool:
        """Train the widest copy by SOAP, then other starts, then a narrower copy; return True once one gains much."""
        before, (own, *wider) = state.cost, self._descents.with_wider(state.best, self.options.widening)
        copies = wider[::-1][state.skipped :] or [own]
        while copies:
            copy = copies.pop(0)
            ended_high = self._train_copy(state, copy, budget)
            if self._fell(before, state.cost, LARGE_GAIN):
                return True
            if ended_high and not copies:
                copies.append(copy)  # once more, now for longer
            state.skipped = max(0, len(wider) - 1)
            if self._start_again(state, budget):
                return True
        return False

    def _train_copy(self, state: State, copy: list[Tensor], budget: Budget) -> bool:
        """Train a copy of the best network by SOAP; return True if it ends so high that the next is trained longer."""
        own = self._training.tuning
        worst, training = (1.0 + own.high) * state.cost, replace(self._training, tuning=own.longer(state.ended_high))
        trained = self._descents.fine_tuned(training, [copy], budget, partial(self._keep_all, state))
        self._keep_all(state, [reduced(self.problem, W, budget.pace()) for W in trained], budget)
        ended_high = state.ended_high < own.extensions and any(self._descents.cost(W) > worst for W in trained)
        state.ended_high += ended_high
        return ended_high

    def _start_again(self, state: State, budget: Budget) -> bool:
        """Train other starts, where they come this early; return True once one gains much."""
        before, numbers = state.cost, range(len(state.costs), min(FEW, self.options.starts))
        draws = (self._draw(number, self._training.starts) for number in numbers)
        for weights in self._training.one_by_one(self._descents.smooth, draws, budget):
            fitted = self._descents.completed(weights)
            state.costs.append(self._descents.cost(fitted))
            self._keep(state, fitted)
            if self._fell(before, state.cost, LARGE_GAIN):
                return True
        return False

    def _move_in_turn(self, state: State, budget: Budget) -> bool:
        """Move the layers in turn and descend from there; return True if the blocks may wait."""
        before, options = state.cost, self.options.in_turn
        if budget.spent() or self.problem.samples > options.samples or not self._descents.moves_in_turn:
            return False
        moved = options.moved(self.problem, state.best, self._seed + len(state.costs), budget)
        if self._narrow(moved):
            self._keep_all(state, [moved, *self._descents.descend([moved], POLISHING, budget)])
        return self._drawing(state) or self._fell(before, state.cost, options.gain)

    def _block(self, state: State, layer: int, budget: Budget) -> list[Tensor]:
        options = SolveOptions(replace(budget, max_iterations=8), certify="none", seed=self._seed)
        changed = solve_block(self.problem, state.best, layer, options).weights
        return changed if self._narrow(changed) else state.best

    # -- parts of the steps -------------------------------------------------------------------------------------

    def _keep(self, state: State, weights: list[Tensor], at_most: bool = False) -> None:
        """Make the network the best one if it costs less (with `at_most`, up to rounding)."""
        cost = self._descents.cost(weights)
        if cost < state.cost * (1.0 - STALL_GAIN):
            state.stalled = False
        if cost < state.cost:
            self.on_incumbent(cost, max(len(W) for W in weights[:-1]))
        if cost < state.cost or (at_most and cost <= state.cost * (1.0 + 1e-10)):
            state.best, state.cost = [W.clone() for W in weights], cost

    def _keep_all(self, state: State, networks: list[list[Tensor]], budget: Budget | None = None) -> None:
        """Keep the best of these networks; with a budget, also of those that corrective rounds make of them."""
        for weights in networks if budget is None else self._descents.corrected(networks, state.cost, budget):
            self._keep(state, weights)

    @staticmethod
    def _fell(before: float, now: float, part: float) -> bool:
        """Return True if the cost fell by more than a part of itself, or became finite."""
        return now < (before if math.isinf(before) else before * (1.0 - part))

    def _drawing(self, state: State) -> bool:
        return len(state.costs) < self.options.starts

    def _narrow(self, weights: Weights) -> bool:
        return self._max_width is None or max(len(W) for W in weights[:-1]) <= self._max_width

    def _draw(self, number: int, starts: RandomStarts) -> list[Tensor]:
        return starts.draw(self._descents.smooth, number, self._seed, self._max_width)
