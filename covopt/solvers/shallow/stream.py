"""Two-layer networks on many samples: schedule-free Adam on random batches, chunk by chunk.

With N samples of d entries a round of Frank-Wolfe costs hundreds of passes of N n d operations, and the first ones need
no such accuracy. So networks begin here, with steps on random batches in float32. Now and then, the outputs of mse
become the best ones for the hidden neurons, and the loss of the balanced network is evaluated over all samples in the
dtype of the data. What the training leaves is the start of the rounds (solvers/shallow/solver.py).

Where the steps see all directions from the start, the network is narrow at first, because few neurons lead down faster.
As soon as its loss falls slowly, neurons are added along which it would fall (`TwoLayerLoss.new_neurons`).

Where the inputs have many directions, the steps see the few that most of them lies in (leading.py): a step there takes
an eighth of the time on 784 inputs. When the loss falls little, they alternate with descents in all directions
(all_directions.py). What these learn outside of the few stays as it is during the steps. A descent also follows steps
in all directions that gain nothing, unless rounds come next.

Steps after a descent hold one array of the size of the features (N, n); where that is large, they see all directions
instead. The data enter through `Samples.total` alone. Where the rows are spread over processes, each trains on batches
of its own, and they meet every few steps (solvers/training/cycles.py).

Source: Defazio, Yang, Mehta, Mishchenko, Khaled, Cutkosky, The road less scheduled (2024).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.model.loss import Likelihood
from covopt.model.passes import Samples
from covopt.model.problem import Problem
from covopt.oracles.neurons import balance
from covopt.runtime.loop import Budget, Progress, Status
from covopt.solvers.checkpoint import Facts
from covopt.solvers.shallow.all_directions import Metric, packed, points_of_descent, unpacked
from covopt.solvers.shallow.leading import Basis, View, leading_directions
from covopt.solvers.shallow.networks import Network
from covopt.solvers.shallow.sliding import Parts
from covopt.solvers.shallow.starts import turned_to_kinks
from covopt.solvers.shallow.stream_options import StreamOptions, descent_is_long, has_large_inputs
from covopt.solvers.shallow.two_layer_loss import TwoLayerLoss, multiplies_bfloat16
from covopt.solvers.training.cycles import MEETING, CyclePace, ScheduleFree, up_to_meeting

HELD_ENTRIES = 2**26  # the most that steps after a descent hold: the inputs in few directions, and preactivations
FACTS = ("cost", "due", "rate", "descents", "last")  # the numbers in a state

Outward = tuple[Float[Tensor, "w d"], Float[Tensor, "w m"], Float[Tensor, " m"]]  # `Parts` for all directions


@dataclass(frozen=True)
class Streamed:
    """The state of the training."""

    # U, V, b where the steps or the descent began, in float32; U in the directions of `basis` until the first descent
    parts: Parts
    best: Outward  # the best network so far, in the dtype of the data
    cost: float  # its loss over all samples
    due: int  # the steps after which the loss over all samples is evaluated next; 0 where a descent comes next
    rate: float  # of the steps, relative to the root mean square of their hidden weights
    basis: Basis | None = None  # a basis of the directions that the steps see (k, d); None for all
    descents: int = 0  # the descents in all directions so far
    descent: Mapping[str, Tensor] | None = None  # the memory of `ScheduleFree`; None before its first step
    last: float = math.inf  # the loss that the next one is compared with
    ended: Status | None = None  # why no other step is to follow; None while one is

    def fell(self, cost: float, gain: float) -> bool:
        """Return True if this loss is below the last one by more than `gain`, relative."""
        return self.last - cost > gain * self.cost

    def weights(self) -> list[Tensor]:
        """Return [W_1, W_2] of the best network."""
        return Network(*self.best, self.cost).weights()


class StreamSolver:
    """The training, for `loop.run`; the problem's data are the rows of this process.

    `judging` are the seconds that a loss over all samples takes. `within` takes a function that returns the state,
    after each step.
    """

    parts = 2  # of the rows, on up to two processes, and as many as there are of more: each trains on its own batches
    chunk, chunk_of_gpu = 1024, 4096  # rows at once: more take no less time on a CPU, and more memory
    batches_of_gpu = 2  # batches of a step on a GPU, where steps of 512 samples were measured (2026-11-gpu.md)
    rate, smaller_rate = 0.25, 0.6  # the first rate of the steps, as in `Streamed`; its factor at each descent
    worse = 1.03  # a descent starts from the last network of the steps, unless that costs more than this times the best
    growth = 1.7  # of the number of steps from one evaluation of the loss over all samples to the next
    first_outputs = 0.3  # size of the first outputs, relative to that of the targets
    stall_gain = 5e-4  # the training ends when the loss falls by less than this from one evaluation to the next
    # Where 40 turns of a descent take at most this many seconds, rounds follow as soon as the loss falls by less than
    # this after these passes. Four sets of 5,000 and 8,000 rows end 0.1 to 4 % lower after 15 s.
    short, small_gain, fewest_passes = 10.0, 0.05, 64
    # Neurons are added where the loss falls by less than the first part of itself, if they are more than the second
    # part of the network's.
    slow_fall, many_more = 0.2, 0.1
    little_gain, most_passes = 3e-2, 32  # in few directions they end when the loss falls by less, or after these passes
    passes_after = 8  # the passes of the steps after the first descent; their number doubles with each later descent
    turns = 6  # of a descent in all directions, after which the loss over all samples is evaluated
    few_directions = 0.25  # the part of all directions that is few enough to begin in them
    tried = 4096  # samples that tell the directions
    # Steps of training on them, half with best outputs; few directions are enough if they lead as low in less time.
    trial, trial_in_all = 8 * MEETING, 4 * MEETING
    smaller = 4  # times smaller batches, which tell it as well
    judged = 1024  # samples whose loss tells how long that of all takes
    tidying = 5.0  # losses over all samples that take as long as what follows the training: fewer neurons, the result
    finishing = 2.0  # losses over all samples that take as long as the best outputs
    # With classes, minima have fewer neurons (docs/notes/2026-11-many-samples.md): at least so many, so many for each.
    class_neurons, neurons_of_each = 150, 15

    def __init__(self, problem: Problem, options: StreamOptions | None = None, seed: int = 0) -> None:
        self.problem, self.options = problem, self.suited(options or StreamOptions(), problem)
        spread = problem.spread.in_parts(max(self.parts, problem.spread.processes))
        chunk = self.chunk_of_gpu if problem.X.is_cuda else self.chunk
        self._all = Samples(problem.X, problem.Y, problem.weight, chunk, spread, problem.beta)
        self._batch = self.options.batch * spread.parts * (self.batches_of_gpu if problem.X.is_cuda else 1)
        self._view: View | None = None
        self._path: Iterator[tuple[Parts, bool]] | None = None  # the descent in all directions that is under way
        self._generator = torch.Generator(device=problem.X.device).manual_seed(seed)
        self._pace, self.judging, self._tidying = CyclePace(), 0.0, 0.0
        self.within: Callable[[Callable[[], Streamed]], None] = lambda state: None

    @classmethod
    def suited(cls, options: StreamOptions, problem: Problem) -> StreamOptions:
        """Return the options with the numbers of neurons for this problem."""
        many = has_large_inputs(problem, options) or cls.begins_in_few(options, problem)
        most = options.neurons if many else options.fewer_neurons
        if many and isinstance(problem.loss, Likelihood):
            most = min(most, max(cls.class_neurons, cls.neurons_of_each * problem.Y.shape[1]))
        neurons = min(options.neurons, most)
        return replace(options, neurons=neurons, narrow=neurons if many else min(options.narrow, neurons))

    @classmethod
    def held(cls, options: StreamOptions, problem: Problem) -> int:
        """Return the entries of a sample that steps after a descent hold, in float32 at most; 0 if they hold none."""
        entries = options.directions + options.neurons
        holds = cls.begins_in_few(options, problem) and problem.samples * entries <= HELD_ENTRIES
        return entries if holds else 0

    @classmethod
    def begins_in_few(cls, options: StreamOptions, problem: Problem) -> bool:
        """Return True if the first steps may see few directions of the inputs."""
        return options.directions <= cls.few_directions * (problem.X.shape[1] + 1)

    @property
    def descending(self) -> bool:
        """True while a descent in all directions is under way; from a saved state it would begin again."""
        return self._path is not None

    def init(self, budget: Budget) -> Streamed:
        """Return a balanced random network after a few steps, or that network itself."""
        basis, parts = self._begun()
        self._view = view = View.of(self._all, basis)
        best, cost = self._judged(parts, view)
        started = budget.seconds()
        TwoLayerLoss(self.problem, self._all.some(self._first, self.judged)).value(*best)
        self.judging = (budget.seconds() - started) * max(1.0, self._all.count() / self.judged)
        self._tidying = min(self.tidying * self.judging, 0.5 * budget.remaining())
        return Streamed(parts, best, cost, self._steps(self.options.first), self.rate, basis)

    def _begun(self) -> tuple[Basis | None, Parts]:
        """Return leading directions, if steps on few samples lead as far down in them as in all, and a network."""
        if not self.begins_in_few(self.options, self.problem):
            return None, self._drawn(View.of(self._all, None).rough)
        some = self._all.some(self._draw, self.tried)
        every = View.of(some, None)
        few = View.of(some, self._leading(every.rough))
        (cost, parts), (cost_in_all, elsewhere) = self._trial(few, self.trial), self._trial(every, self.trial_in_all)
        view, (U, V, b) = (few, parts) if cost <= cost_in_all else (every, elsewhere)
        return view.basis, (*balance(U, V), b)

    def _leading(self, samples: Samples) -> Basis:
        """Return leading directions of these samples."""
        d = self.problem.X.shape[1] + 1
        return leading_directions(samples, self._normal(d, min(self.options.directions, d)).to(self.problem.X))

    def _trial(self, view: View, steps: int) -> tuple[float, Parts]:
        """Return loss and network after some steps of training; the start if the loss diverges."""
        samples = view.rough
        drawn = self._drawn(samples)
        descent = self._descent(drawn, samples, max(1, self._batch // self.smaller), self.rate)
        for _ in range(steps if self.problem.ridge is None else steps // 2):
            descent.iterate()
        parts = self._finished(unpacked(descent.x[0], drawn), view)
        cost = float(TwoLayerLoss(self.problem, samples).value(*parts))
        return (cost, parts) if math.isfinite(cost) else (math.inf, drawn)

    def _drawn(self, samples: Samples) -> Parts:
        """Draw a balanced network whose outputs have the size of the targets."""
        few, m, n = samples.some(self._first, self.judged), samples.Y.shape[1], self.options.narrow
        U = turned_to_kinks(self._normal(n, few.Xt.shape[1]), few.Xt, self._generator, few.spread)
        U, V = balance(U, self._normal(n, m))
        F = self.problem.activation(few.Xt @ U.T) @ V
        sizes = few.spread.sums(lambda Y, F: (Y.square().sum(), F.square().sum()), few.Y, F)
        size = float(self.first_outputs**2 * sizes[0] / sizes[1].clamp_min(torch.finfo(F.dtype).tiny)) ** 0.25
        return size * U, size * V, V.new_zeros(m)

    def _descent(self, parts: Parts, samples: Samples, batch: int, rate: float) -> ScheduleFree:
        """Return schedule-free Adam from these parts, on random batches."""
        slope = partial(self._slope, like=parts, samples=samples, size=batch)
        length = rate * float(parts[0].square().mean().sqrt())
        return ScheduleFree(slope, packed(parts), length, samples.spread, [self._generator])

    def _steps(self, passes: float) -> int:
        return up_to_meeting(passes * self._all.count() / self._batch)

    def step(self, state: Streamed, budget: Budget) -> Streamed:
        """Train until the loss over all samples is due, or until the time is over, and evaluate it."""
        budget = replace(budget, time_limit=budget.time_limit - self._tidying)
        if not state.due:
            return self._descended(state, budget)
        view = self._seen(state)
        parts = view.inward(state.parts[0]), *state.parts[1:]
        descent = self._descent(parts, view.rough, self._batch, state.rate)
        if state.descent is not None:
            descent.recall(state.descent)

        def each() -> None:
            if descent.met:
                self.within(lambda: replace(state, descent=descent.memory()))

        self._pace.descend(descent, state.due, budget, each)
        trained = unpacked(descent.x[0], parts)
        if budget.remaining() > self.finishing * self.judging:
            trained = self._finished(trained, view)
        network, cost = self._judged(trained, view)
        self._pace.closed(budget)
        memory = descent.memory() if math.isfinite(cost) else None
        best, lowest = (network, cost) if cost < state.cost else (state.best, state.cost)
        due = up_to_meeting(self.growth * state.due)
        following = replace(state, best=best, cost=lowest, due=due, descent=memory, last=cost)
        if descent.steps_taken < state.due or budget.spent():
            return replace(following, ended=Status.TIME_LIMIT)
        few = state.basis is not None
        if not (few or state.descents or state.fell(cost, self.slow_fall)):
            U, V, b = _single(network)
            more_U, more_V = self._new_neurons((U, V, b), view)
            if len(more_U) > self.many_more * len(U):
                return replace(following, parts=(torch.cat([U, more_U]), torch.cat([V, more_V]), b), descent=None)
        least = self.small_gain if self._rounds_are_short(state, budget) else self.stall_gain
        gain, most = (self.little_gain, self._steps(self.most_passes)) if few else (least, math.inf)
        if not state.descents and state.fell(cost, gain) and due <= most:
            return following
        # It ends before a first descent if rounds have the time to go on; later, if a descent and steps gain nothing.
        rounds = not few and not descent_is_long(self.problem, len(network[0]), budget.remaining())
        ends = not state.fell(lowest, self.stall_gain) if state.descents else rounds
        if ends:
            return replace(following, ended=Status.CONVERGED)
        parts, rate = _single(network if cost <= self.worse * lowest else best), self.smaller_rate * state.rate
        seen = state.basis if self.held(self.options, self.problem) else None
        return replace(following, parts=parts, due=0, last=lowest, rate=rate, basis=seen)

    def _new_neurons(self, network: Parts, view: View) -> tuple[Tensor, Tensor]:
        """Return small neurons that lower the network's loss, up to the maximum number of neurons in all."""
        few, most = view.rough.some(self._draw, self.tried), self.options.neurons
        directions = turned_to_kinks(self._normal(2 * most, few.Xt.shape[1]), few.Xt, self._generator, few.spread)
        return TwoLayerLoss(self.problem, few).new_neurons(network, directions, max(0, most - len(network[0])))

    def _rounds_are_short(self, state: Streamed, budget: Budget) -> bool:
        """Return True if the training has had its fewest passes, and the rounds after it have short descents."""
        seconds = min(self.short, budget.remaining())
        passed = state.basis is None and state.due >= self._steps(self.fewest_passes)
        return passed and not descent_is_long(self.problem, len(state.parts[0]), seconds)

    def _descended(self, state: Streamed, budget: Budget) -> Streamed:
        """Descend in all directions; when that gains little, begin steps again."""
        self._view = None  # whose memory the descent needs
        view, stop, network = View.of(self._all, None), budget.pace(), state.parts
        if self._path is None:
            some = TwoLayerLoss(self.problem, view.rough.some(self._draw, self.tried))
            basis = (self._leading(some.samples) if state.basis is None else state.basis).float()
            metric = Metric.of(some, network, basis)
            dtype = some.shortest_dtype(*network) if multiplies_bfloat16(self.problem.X.device) else torch.float32
            loss = TwoLayerLoss(self.problem, replace(view.rough, dtype=dtype))
            self._path = points_of_descent(loss, metric, network)
        for turn, point in enumerate(self._path):
            network, done = point
            if done or turn == self.turns or stop():
                break
        else:
            done = True
        self._path = None if done else self._path
        reached, cost = self._judged(network, view)
        best, lowest = (reached, cost) if cost < state.cost else (state.best, state.cost)
        parts = _single(reached if cost <= self.worse * lowest else best)
        following = replace(state, parts=parts, best=best, cost=lowest)
        due = self._steps(min(self.passes_after * 2.0**state.descents, self.most_passes))
        self._pace.expect(closing=(1.0 + self.finishing) * self.judging)
        if budget.spent():
            return replace(following, ended=Status.TIME_LIMIT)
        if not done or not self._pace.fits(due, budget):
            return following
        return replace(following, due=due, descent=None, descents=state.descents + 1)

    def _seen(self, state: Streamed) -> View:
        """Return the samples as these steps see them; only the last view is held in memory."""
        if self._view is None or self._view.basis is not state.basis:
            self._view, outside, held = None, None, torch.float32  # before the next one is made
            if state.basis is not None and state.descents:
                U, basis = state.parts[0], state.basis.float()
                outside = U - (U @ basis.T) @ basis
                some = TwoLayerLoss(self.problem, self._all.some(self._first, self.judged))
                held = some.shortest_dtype(*state.parts)
            self._view = View.of(self._all, state.basis, outside, held)
        return self._view

    def finished(self, state: Streamed) -> Status | None:
        """Return CONVERGED when the training gained too little; rounds then continue from there."""
        return state.ended

    def progress(self, state: Streamed, iteration: int, seconds: float) -> Progress:
        """Cost and width; no bound."""
        return Progress(iteration, seconds, state.cost, None, len(state.best[0]))

    def memory(self, state: Streamed) -> tuple[dict[str, object], dict[str, Tensor]]:
        """Return what further steps depend on."""
        facts: dict[str, object] = {name: getattr(state, name) for name in FACTS}
        facts |= {"converged": state.ended is Status.CONVERGED, "judging": self.judging}
        parts = zip(("U", "V", "b", "best_U", "best_V", "best_b"), (*state.parts, *state.best), strict=True)
        basis = {} if state.basis is None else {"basis": state.basis}
        return facts, {**dict(parts), **(state.descent or {}), **basis, "generator": self._generator.get_state()}

    def recalled(self, facts: Facts, arrays: Mapping[str, Tensor]) -> Streamed:
        """Return the state that `memory` returned."""
        self._generator.set_state(arrays["generator"])
        self.judging, self._tidying = facts["judging"], self.tidying * facts["judging"]
        parts, best = ((arrays[f"{of}U"], arrays[f"{of}V"], arrays[f"{of}b"]) for of in ("", "best_"))
        descent = dict(arrays) if "steps" in arrays else None
        ended = Status.CONVERGED if facts["converged"] else None
        numbers = {name: facts[name] for name in FACTS}
        return Streamed(parts, best, **numbers, basis=arrays.get("basis"), descent=descent, ended=ended)

    def _slope(self, x: Float[Tensor, "B P"], *, like: Parts, samples: Samples, size: int) -> tuple[Tensor, Tensor]:
        """Return L and its gradient on a random batch of each part of the samples."""
        batches = samples.some(self._draw, size).shares()
        both = zip(batches, x, strict=True)
        values_and_slopes = [TwoLayerLoss(self.problem, some).gradient(*unpacked(at, like)) for some, at in both]
        gradients = [packed(slopes) for _, slopes in values_and_slopes]
        return torch.stack([value for value, _ in values_and_slopes]), torch.stack(gradients)

    def _draw(self, rows: int, count: int) -> Int[Tensor, " count"]:
        return torch.randint(rows, (count,), generator=self._generator, device=self.problem.X.device)

    def _first(self, rows: int, count: int) -> Int[Tensor, " count"]:
        return torch.arange(min(rows, count), device=self.problem.X.device)

    def _finished(self, parts: Parts, view: View) -> Parts:
        """Give the hidden neurons their best outputs, if the loss is least squares."""
        if self.problem.ridge is None:
            return parts
        V, b = TwoLayerLoss(self.problem, view.rough).best_outputs(parts[0])
        return (parts[0], V, b) if bool(V.isfinite().all()) else parts

    def _judged(self, parts: Parts, view: View) -> tuple[Outward, float]:
        """Return the balanced network for all directions in the data's dtype, and its full loss."""
        U, V, b = (part.to(self.problem.X) for part in parts)
        U, V = balance(view.completed(U), V)
        return (view.outward(U), V, b), float(TwoLayerLoss(self.problem, view.exact).value(U, V, b))

    def _normal(self, rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=self._generator, dtype=torch.float32, device=self.problem.X.device)


def _single(network: Outward) -> Parts:
    U, V, b = (part.float() for part in network)
    return U, V, b
