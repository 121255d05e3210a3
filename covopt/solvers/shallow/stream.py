"""Two-layer networks on many samples: cycles of Adam on random batches, chunk by chunk.

With N samples of d entries a round of Frank-Wolfe costs hundreds of passes of N n d operations, and the first ones need
no such accuracy. So networks begin here: each cycle is Adam over random batches in float32 with a rate that falls along
a cosine, twice as long as the cycle before. At its end the outputs of mse become the best ones for the hidden neurons,
and the loss of the balanced network is evaluated over all samples in the dtype of the data. What the cycles leave is
the start of the rounds (solvers/shallow/solver.py).

Where the inputs have many directions, the first cycles see the few that most of them lies in (leading.py): a step there
takes an eighth of the time on 784 inputs. When a cycle gains little they see all.

Nothing of the size of the features (N, n) is formed. The data enter through `Samples.total` alone. Where the rows are
spread over processes, each trains on batches of its own, and they meet every few steps (solvers/training/cycles.py).

Sources: Kingma, Ba, Adam (2015); Loshchilov, Hutter, SGDR (2017), for the cycles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.linalg.cholesky import lower_gram, solve_lower
from covopt.model.loss import Likelihood, Weight, mean_gradient, mean_loss
from covopt.model.passes import Samples
from covopt.model.problem import Problem
from covopt.oracles.exact import problem_has_exact_oracle
from covopt.oracles.neurons import balance
from covopt.runtime.loop import Budget, Progress, Status
from covopt.solvers.checkpoint import Facts
from covopt.solvers.shallow.leading import Basis, View, leading_directions
from covopt.solvers.shallow.networks import Network
from covopt.solvers.shallow.sliding import Parts
from covopt.solvers.shallow.starts import first_neurons, turned_to_kinks
from covopt.solvers.training.cycles import CyclePace, LocalAdam
from covopt.solvers.training.descent import AdamOptions

FEWEST_BATCHES = 4  # of the samples, fewer than which are no reason for batches
RATE_OF_TURNS = 1e10  # multiplications in a second of a descent's turns, and of products, on one core of a CPU, roughly

Outward = tuple[Float[Tensor, "n d"], Float[Tensor, "n m"], Float[Tensor, " m"]]  # `Parts` for all directions


@dataclass(frozen=True)
class StreamOptions:
    """When data are streamed, and how."""

    entries: int = 2**22  # data are streamed above this number of entries of Xt
    neurons: int = 500  # the number of neurons of the network
    batch: int = 512  # samples of a step; of each part, where rows are spread
    first: int = 2  # passes over the samples in the first cycle; each cycle has twice as many as the one before
    directions: int = 64  # the first cycles see this number of directions of the inputs, where these are few enough


def suits_streaming(problem: Problem, seconds: float, options: StreamOptions | None = None) -> bool:
    """Return True if the data are too many for rounds in this time; never for `interpolate`.

    Where an oracle is exact, rounds have no descent and are short.
    """
    if not problem.can_be_split:
        return False
    options = options or StreamOptions()
    many = problem.samples >= FEWEST_BATCHES * options.batch
    long = many and descent_is_long(problem, first_neurons(problem), seconds) and not problem_has_exact_oracle(problem)
    return long or problem.samples * (problem.X.shape[1] + 1) > options.entries


def descent_is_long(problem: Problem, neurons: int, seconds: float) -> bool:
    """Return True if 40 turns of a round's descent, fewer than which are not worth beginning, take longer on CPUs."""
    rows_each = problem.samples / problem.spread.processes
    turns = 40.0 * rows_each * neurons * (0.5 * neurons + 2.0 * (problem.X.shape[1] + 1))
    return not problem.X.is_cuda and turns > RATE_OF_TURNS * seconds


def products_are_long(problem: Problem, seconds: float) -> bool:
    """Return True if the inputs' products, for a spectrum or linear map, take longer on CPUs."""
    rows_each, d = problem.samples / problem.spread.processes, problem.X.shape[1]
    return not problem.X.is_cuda and rows_each * d * min(rows_each, d) > RATE_OF_TURNS * seconds


class TwoLayerLoss:
    """L(U, V, b) = C(F) + lam (|U|^2 + |V|^2 + |b|^2) over samples (not those of the problem), and its gradient."""

    def __init__(self, problem: Problem, samples: Samples) -> None:
        self.problem, self.samples, self.count = problem, samples, samples.count()
        # Sums in float32 hold no more than 1e30: of a larger lam the network is all but zero as well.
        self.lam = problem.lam if samples.Xt.dtype == torch.float64 else min(problem.lam, 1e30)

    def value(self, U: Tensor, V: Tensor, b: Tensor) -> Float[Tensor, ""]:
        """Return L, by one pass forward."""

        def part(Xt: Tensor, Y: Tensor, weight: Weight) -> tuple[Tensor]:
            F = torch.addmm(self.problem.bias(1) * b, self.problem.activation(Xt @ U.T), V)
            return ((len(Y) / self.count) * mean_loss(self.problem.loss, F, Y, weight),)

        return self.samples.total(part)[0] + self._penalty(U, V, b)

    def gradient(self, U: Tensor, V: Tensor, b: Tensor) -> tuple[Float[Tensor, ""], Parts]:
        """Return L and its gradient in U, V and b, by one pass forward and one back."""
        problem = self.problem

        def part(Xt: Tensor, Y: Tensor, weight: Weight) -> tuple[Tensor, ...]:
            Z = Xt @ U.T
            Phi = problem.activation(Z)
            arguments = problem.loss, torch.addmm(problem.bias(1) * b, Phi, V), Y, weight
            share = len(Y) / self.count
            G = (share * mean_gradient(*arguments)).to(Phi)
            by_U = problem.activation.pull_back(G @ V.T, Z).T @ Xt
            return share * mean_loss(*arguments), by_U, Phi.T @ G, problem.bias(1) * G.sum(dim=0)

        fit, *slopes = self.samples.total(part)
        for slope, x in zip(slopes, (U, V, b), strict=True):
            slope.add_(x, alpha=2.0 * self.lam)
        return fit + self._penalty(U, V, b), (slopes[0], slopes[1], slopes[2])

    def best_outputs(self, U: Tensor) -> tuple[Float[Tensor, "n m"], Float[Tensor, " m"]]:
        """Return V and b of least L for mse, or NaN if rounding prevents it.

        They are (P^T Q P + N lam I)^-1 P^T Q Y with P = [Phi, beta 1] and the diagonal matrix Q of sample weights.
        """
        problem = self.problem

        def part(Xt: Tensor, Y: Tensor, weight: Weight) -> tuple[Tensor, Tensor]:
            P = torch.cat([problem.activation(Xt @ U.T), Xt.new_full((len(Xt), 1), problem.bias(1))], dim=1)
            if weight is not None:
                root = weight.sqrt()[:, None]
                P, Y = root * P, root * Y
            return lower_gram(P.T), P.T @ Y

        gram, moments = self.samples.total(part)
        gram.diagonal().add_(self.count * self.lam)
        both = solve_lower(gram, moments)
        return both[:-1], both[-1]

    def _penalty(self, U: Tensor, V: Tensor, b: Tensor) -> Tensor:
        return self.lam * (U.square().sum() + V.square().sum() + b.square().sum())


@dataclass
class Streamed:
    """The state of the cycles."""

    parts: Parts  # U, V, b of the last cycle, in float32; U in the directions of `basis`
    best: Outward  # the best network so far, in the dtype of the data
    cost: float  # its loss over all samples
    passes: int  # the passes of the next cycle
    ended: Status | None = None  # why no other cycle is to follow; None while one is
    # of a cycle under way the number of steps, the first rate, and the state of Adam; None between two
    cycle: tuple[int, float, dict[str, Tensor]] | None = None
    basis: Basis | None = None  # a basis of the directions that the next cycle sees (k, d); None for all
    opening: bool = False  # True if the next cycle is the first that sees all directions

    def weights(self) -> list[Tensor]:
        """Return [W_1, W_2] of the best network."""
        return Network(*self.best, self.cost).weights()


class StreamSolver:
    """The cycles, for `loop.run`; the problem's data are the rows of this process.

    `judging` are the seconds that a loss over all samples takes. `within` takes a function that returns the state,
    after each step of a cycle.
    """

    parts = 2  # of the rows, on up to two processes, and as many as there are of more: each trains on its own batches
    chunk, chunk_of_gpu = 1024, 4096  # rows at once: more take no less time on a CPU, and more memory
    rate = 0.2  # Adam's first, relative to the root mean square of the hidden weights
    first_outputs = 0.3  # size of the first outputs, relative to that of the targets
    stall_gain = 1e-3  # the cycles end when one lowers the loss by less than this, relative
    little_gain, most_passes = 5e-2, 32  # a cycle in few directions that gains less, or has more passes, is their last
    few_directions = 0.25  # the part of all directions that is few enough for cycles of their own
    tried, trial = 4096, 15  # samples that tell the directions, and steps on them that tell whether these are enough
    smaller = 4  # times smaller batches, which tell it as well
    enough = 1.25  # times the loss that steps in all directions lead to, which take much longer
    judged = 1024  # samples whose loss tells how long that of all takes
    tidying = 8.0  # losses over all samples that take as long as what follows the cycles: fewer neurons, the result
    finishing = 2.0  # losses over all samples that take as long as the best outputs
    # With classes, minima have fewer neurons (docs/notes/2026-11-many-samples.md): at least so many, so many for each.
    class_neurons, neurons_of_each, class_batch = 150, 15, 256  # and samples of a step on a CPU

    def __init__(self, problem: Problem, options: StreamOptions | None = None, seed: int = 0) -> None:
        self.problem, self.options = problem, options or StreamOptions()
        if isinstance(problem.loss, Likelihood):
            most = max(self.class_neurons, self.neurons_of_each * problem.Y.shape[1])
            batch = self.options.batch if problem.X.is_cuda else min(self.options.batch, self.class_batch)
            self.options = replace(self.options, neurons=min(self.options.neurons, most), batch=batch)
        spread = problem.spread.in_parts(max(self.parts, problem.spread.processes))
        chunk = self.chunk_of_gpu if problem.X.is_cuda else self.chunk
        self._all = Samples(problem.X, problem.Y, problem.weight, chunk, spread, problem.beta)
        self._batch = self.options.batch * spread.parts
        self._view: View | None = None
        self._generator = torch.Generator(device=problem.X.device).manual_seed(seed)
        self._pace, self.judging, self._tidying = CyclePace(), 0.0, 0.0
        self.within: Callable[[Callable[[], Streamed]], None] = lambda state: None

    def init(self, budget: Budget) -> Streamed:
        """Return a balanced random network after a few steps, or that network itself."""
        basis, parts = self._begun()
        view = self._seen(basis)
        best, cost = self._judged(parts, view)
        started = budget.seconds()
        TwoLayerLoss(self.problem, self._all.some(self._first, self.judged)).value(*best)
        self.judging = (budget.seconds() - started) * max(1.0, self._all.count() / self.judged)
        self._tidying = min(self.tidying * self.judging, 0.5 * budget.remaining())
        return Streamed(parts, best, cost, self.options.first, basis=basis)

    def _begun(self) -> tuple[Basis | None, Parts]:
        """Return leading directions, if steps on few samples lead as far down in them as in all, and a network."""
        d, k = self.problem.X.shape[1] + 1, self.options.directions
        if k > self.few_directions * d:
            return None, self._drawn(self._seen(None).rough)
        some = self._all.some(self._draw, self.tried)
        every = View.of(some, None)
        few = View.of(some, leading_directions(every.rough, self._normal(d, k).to(self.problem.X)))
        (far, there), (lowest, elsewhere) = self._trial(few.rough), self._trial(every.rough)
        view, parts = (few, there) if not far > self.enough * lowest else (every, elsewhere)
        return view.basis, self._finished(parts, view)

    def _trial(self, samples: Samples) -> tuple[float, Parts]:
        """Return loss and network after some steps of training; the start if the loss diverges."""
        drawn = self._drawn(samples)
        adam = self._adam(drawn, samples, self.trial, batch=max(1, self._batch // self.smaller))
        for _ in range(self.trial):
            adam.iterate()
        parts = _parts(adam.x[0], drawn)
        loss = float(TwoLayerLoss(self.problem, samples).value(*parts))
        return (loss, parts) if math.isfinite(loss) else (math.inf, drawn)

    def _drawn(self, samples: Samples) -> Parts:
        """Draw a balanced network whose outputs have the size of the targets."""
        few, m, n = samples.some(self._first, self.judged), samples.Y.shape[1], self.options.neurons
        U = turned_to_kinks(self._normal(n, samples.Xt.shape[1]), few.Xt, self._generator, few.spread)
        U, V = balance(U, self._normal(n, m))
        F = self.problem.activation(few.Xt @ U.T) @ V
        sizes = few.spread.sums(lambda Y, F: (Y.square().sum(), F.square().sum()), few.Y, F)
        size = float(self.first_outputs**2 * sizes[0] / sizes[1].clamp_min(torch.finfo(F.dtype).tiny)) ** 0.25
        return size * U, size * V, V.new_zeros(m)

    def _adam(
        self, parts: Parts, samples: Samples, steps: int, rate: float | None = None, batch: int | None = None
    ) -> LocalAdam:
        """Return Adam from these parts, on random batches."""
        start, size = torch.cat([part.flatten() for part in parts]), batch or self._batch
        options = AdamOptions(steps=steps, rate=self._rate(parts) if rate is None else rate)
        slope, draws = (lambda x: self._slope(x, parts, samples, size)), [self._generator]
        return LocalAdam(slope, start, options, samples.spread, draws)

    def _rate(self, parts: Parts) -> float:
        return self.rate * float(parts[0].square().mean().sqrt())

    def step(self, state: Streamed, budget: Budget) -> Streamed:
        """Run one cycle of Adam and evaluate its loss; a last one takes the remaining time."""
        budget = replace(budget, time_limit=budget.time_limit - self._tidying)
        view = self._seen(state.basis)
        if state.opening and state.cycle is None:
            self._pace = self._pace_of(state.parts, view, budget)
        steps, last = self._pace.steps(math.ceil(state.passes * self._all.count() / self._batch), budget)
        steps, rate, begun = state.cycle or (steps, self._rate(state.parts), None)
        adam = self._adam(state.parts, view.rough, steps, rate)
        if begun is not None:
            adam.recall(begun)

        def each() -> None:
            if adam.met:
                self.within(lambda: replace(state, cycle=(steps, rate, adam.memory())))

        self._pace.descend(adam, steps, budget, each)
        parts = _parts(adam.x[0], state.parts)
        if budget.remaining() > self.finishing * self.judging:
            parts = self._finished(parts, view)
        best, cost = self._judged(parts, view)
        self._pace.closed(budget)
        if not math.isfinite(cost):
            parts, cost = state.parts, state.cost
        gain = state.cost - cost
        if gain <= 0.0:
            best, cost = state.best, state.cost
        following = Streamed(parts, best, cost, 2 * state.passes, basis=state.basis)
        if last or budget.spent():
            following.ended = Status.TIME_LIMIT
        elif view.basis is None and not state.opening and gain <= self.stall_gain * state.cost:
            following.ended = Status.CONVERGED
        elif view.basis is not None and (gain <= self.little_gain * state.cost or following.passes > self.most_passes):
            following = self._opened(following, view)
        return following

    def _opened(self, state: Streamed, view: View) -> Streamed:
        """Return the state in all directions; its next cycle takes as long as one in few."""
        U, V, b = state.parts
        parts = view.outward(U), V, b
        passes = max(self.options.first, math.ceil(state.passes * U.shape[1] / parts[0].shape[1]))
        return replace(state, parts=parts, passes=passes, basis=None, opening=True)

    def _pace_of(self, parts: Parts, view: View, budget: Budget) -> CyclePace:
        """Measure the pace of cycles on one step; a first step, which loads much, is not timed."""
        adam = self._adam(parts, view.rough, 2)
        adam.iterate()
        started = budget.seconds()
        adam.iterate()
        return CyclePace(budget.seconds() - started, (1.0 + self.finishing) * self.judging)

    def _seen(self, basis: Basis | None) -> View:
        """Return the samples in these directions; only the last view is held in memory."""
        if self._view is None or self._view.basis is not basis:
            self._view = None  # before the next one is made
            self._view = View.of(self._all, basis)
        return self._view

    def finished(self, state: Streamed) -> Status | None:
        """Return CONVERGED when a cycle gained too little; rounds then continue from there."""
        return state.ended

    def progress(self, state: Streamed, iteration: int, seconds: float) -> Progress:
        """Cost and width; no bound."""
        return Progress(iteration, seconds, state.cost, None, len(state.best[0]))

    def memory(self, state: Streamed) -> tuple[dict[str, object], dict[str, Tensor]]:
        """Return what further cycles depend on."""
        steps, rate, adam = state.cycle or (0, 0.0, {})
        converged = state.ended is Status.CONVERGED
        facts = {"cost": state.cost, "passes": state.passes, "converged": converged, "steps": steps, "rate": rate}
        parts = zip(("U", "V", "b", "best_U", "best_V", "best_b"), (*state.parts, *state.best), strict=True)
        basis = {} if state.basis is None else {"basis": state.basis}
        arrays = {**dict(parts), **adam, **basis, "generator": self._generator.get_state()}
        return {**facts, "opening": state.opening}, arrays

    def recalled(self, facts: Facts, arrays: Mapping[str, Tensor]) -> Streamed:
        """Return the state that `memory` returned."""
        self._generator.set_state(arrays["generator"])
        parts, best = ((arrays[f"{of}U"], arrays[f"{of}V"], arrays[f"{of}b"]) for of in ("", "best_"))
        cycle = (facts["steps"], facts["rate"], dict(arrays)) if facts["steps"] else None
        ended = Status.CONVERGED if facts["converged"] else None
        basis, opening = arrays.get("basis"), facts["opening"]
        return Streamed(parts, best, facts["cost"], facts["passes"], ended, cycle, basis, opening)

    def _slope(self, x: Float[Tensor, "B P"], like: Parts, samples: Samples, size: int) -> tuple[Tensor, Tensor]:
        """Return L and its gradient on a random batch of each part of the samples."""
        batches = samples.some(self._draw, size).shares()
        both = zip(batches, x, strict=True)
        values_and_slopes = [TwoLayerLoss(self.problem, some).gradient(*_parts(at, like)) for some, at in both]
        gradients = [torch.cat([slope.flatten() for slope in slopes]) for _, slopes in values_and_slopes]
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
        return (*balance(parts[0], V), b) if bool(V.isfinite().all()) else parts

    def _judged(self, parts: Parts, view: View) -> tuple[Outward, float]:
        """Return the balanced network for all directions in the data's dtype, and its full loss."""
        U, V, b = (part.to(self.problem.X) for part in parts)
        U, V = balance(U, V)
        return (view.outward(U), V, b), float(TwoLayerLoss(self.problem, view.exact).value(U, V, b))

    def _normal(self, rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=self._generator, dtype=torch.float32, device=self.problem.X.device)


def _parts(x: Float[Tensor, " P"], like: Parts) -> Parts:
    U, V, b = (part.view_as(old) for part, old in zip(x.split([old.numel() for old in like]), like, strict=True))
    return U, V, b
