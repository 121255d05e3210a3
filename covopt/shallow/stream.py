"""Two-layer networks on more samples than whole passes suit: cycles of Adam on random batches, memory of one chunk.

With N samples of d entries a round of Frank-Wolfe costs hundreds of passes of N n d operations, and the first ones need
no such accuracy. So networks begin here: each cycle is Adam over random batches in float32 with a rate that falls along
a cosine, twice as long as the cycle before. At its end the outputs of mse become the best ones for the hidden neurons
(0.7 percent lower than Adam's on 60,000 samples), and the loss of the balanced network is evaluated over all samples in
the dtype of the data. What the cycles leave is the start of the rounds (shallow/solver.py).

Nothing of the size of the features (N, n) is formed. The data enter through `Samples.total` alone, also where the rows
are spread over processes: of a batch each process draws as much from its own.

Sources: Kingma, Ba, Adam (2015); Loshchilov, Hutter, SGDR (2017), for the cycles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.linalg.cholesky import lower_gram, solve_lower
from covopt.loop import Budget, Progress, Status
from covopt.model.chunks import Samples
from covopt.model.loss import Weight, mean_gradient, mean_loss
from covopt.model.problem import Problem, with_bias
from covopt.oracles.exact import problem_has_exact_oracle
from covopt.oracles.neurons import balance
from covopt.shallow.sliding import Parts, pulled_back
from covopt.shallow.starts import first_neurons
from covopt.training.cycles import CyclePace
from covopt.training.descent import Adam, AdamOptions

PARTS = 2  # of the rows, over which sums are taken on up to two processes; more take longer to be exchanged
RATE = 0.2  # Adam's first, relative to the root mean square of the hidden weights
FIRST_OUTPUTS = 0.3  # size of the first outputs, relative to that of the targets
STALL_GAIN = 1e-3  # the cycles end when one lowers the loss by less than this, relative
FEWEST_BATCHES = 4  # of the samples, fewer than which are no reason for batches
TURNS = 40  # turns of a round's descent, fewer than which are not worth beginning
TIDYING = 6.0  # losses over all samples that take as long as what follows the cycles: fewer neurons, the result
FINISHING = 2.0  # losses over all samples that take as long as the best outputs
RATE_OF_TURNS = 1e10  # multiplications in a second of those turns, on one core of a CPU, roughly


@dataclass(frozen=True)
class StreamOptions:
    """When data are streamed, and how.

    Attributes:
        entries: of Xt, above which they are.
        neurons: of the network.
        batch: samples of a step, on the CPU and on other devices.
        first: passes over the samples in the first cycle; each cycle has twice as many as the one before.
    """

    entries: int = 2**22
    neurons: int = 500
    batch: int = 512
    first: int = 2


def suits_streaming(problem: Problem, seconds: float, options: StreamOptions | None = None) -> bool:
    """Whether the data are too many for rounds of so many seconds; `interpolate` has no loss to descend.

    Where an oracle is exact, rounds have no descent and are short.
    """
    if problem.interpolates or problem.activation.is_linear:
        return False
    options = options or StreamOptions()
    many = problem.samples >= FEWEST_BATCHES * options.batch
    long = many and descent_is_long(problem, first_neurons(problem), seconds) and not problem_has_exact_oracle(problem)
    return long or problem.samples * (problem.X.shape[1] + 1) > options.entries


def descent_is_long(problem: Problem, neurons: int, seconds: float) -> bool:
    """Whether TURNS turns of a round's descent take longer on a CPU of each process, by their multiplications."""
    each = problem.samples / problem.spread.processes
    turn = each * neurons * (0.5 * neurons + 2.0 * (problem.X.shape[1] + 1))
    return not problem.X.is_cuda and TURNS * turn > RATE_OF_TURNS * seconds


class TwoLayerLoss:
    """L(U, V, b) = C(F) + lam (|U|^2 + |V|^2 + |b|^2) over samples, and its gradient.

    Args:
        problem: loss, lam, activation and beta; its data are not used.
        samples: the data.
    """

    def __init__(self, problem: Problem, samples: Samples) -> None:
        self.problem, self.samples, self.count = problem, samples, samples.count()

    def value(self, U: Tensor, V: Tensor, b: Tensor) -> Float[Tensor, ""]:
        """L, one pass forward."""

        def part(Xt: Tensor, Y: Tensor, weight: Weight) -> tuple[Tensor]:
            F = torch.addmm(self.problem.bias(1) * b, self.problem.activation(Xt @ U.T), V)
            return ((len(Y) / self.count) * mean_loss(self.problem.loss, F, Y, weight),)

        return self.samples.total(part)[0] + self._penalty(U, V, b)

    def gradient(self, U: Tensor, V: Tensor, b: Tensor) -> tuple[Float[Tensor, ""], Parts]:
        """L and its gradient in U, V and b, one pass forward and one back."""
        problem = self.problem

        def part(Xt: Tensor, Y: Tensor, weight: Weight) -> tuple[Tensor, ...]:
            def loss(F: Tensor) -> tuple[Tensor, Tensor]:
                share, given = len(Y) / self.count, (problem.loss, F, Y, weight)
                return share * mean_loss(*given), share * mean_gradient(*given)

            value, slopes = pulled_back(Xt, problem.activation, problem.bias(1), (U, V, b), loss)
            return value, *slopes

        fit, *slopes = self.samples.total(part)
        for slope, x in zip(slopes, (U, V, b), strict=True):
            slope.add_(x, alpha=2.0 * problem.lam)
        return fit + self._penalty(U, V, b), (slopes[0], slopes[1], slopes[2])

    def best_outputs(self, U: Tensor) -> tuple[Float[Tensor, "n m"], Float[Tensor, " m"]]:
        """For mse, V and b of least L: (P^T Q P + N lam I)^-1 P^T Q Y with P = [Phi, beta 1] and Q the weights, on the
        diagonal; NaN where rounding fails.
        """
        problem = self.problem

        def part(Xt: Tensor, Y: Tensor, weight: Weight) -> tuple[Tensor, Tensor]:
            P = torch.cat([problem.activation(Xt @ U.T), Xt.new_full((len(Xt), 1), problem.bias(1))], dim=1)
            if weight is not None:
                root = weight.sqrt()[:, None]
                P, Y = root * P, root * Y
            return lower_gram(P.T), P.T @ Y

        inner, right = self.samples.total(part)
        inner.diagonal().add_(self.count * problem.lam)
        both = solve_lower(inner, right)
        return both[:-1], both[-1]

    def _penalty(self, U: Tensor, V: Tensor, b: Tensor) -> Tensor:
        return self.problem.lam * (U.square().sum() + V.square().sum() + b.square().sum())


@dataclass
class Streamed:
    """Where the cycles stand.

    Attributes:
        parts: U, V, b of the last cycle, in float32.
        best: the best network so far, in the dtype of the data; cost: its loss over all samples.
        passes: of the next cycle.
        ended: why no other cycle is to follow; None while one is.
        cycle: of one under way how many steps it has, its first rate, and what Adam depends on; None between two.
    """

    parts: Parts
    best: Parts
    cost: float
    passes: int
    ended: Status | None = None
    cycle: tuple[int, float, dict[str, Tensor]] | None = None

    def weights(self) -> list[Tensor]:
        """[W_1, W_2] of the best network."""
        U, V, b = self.best
        return [U, torch.cat([V, b[None]]).T.contiguous()]


class StreamSolver:
    """The cycles, for `loop.run`.

    Args:
        problem: depth 2, mse or cross_entropy; its data are the rows of this process.
        seed: of the start and of the batches.
    """

    def __init__(
        self,
        problem: Problem,
        options: StreamOptions | None = None,
        seed: int = 0,
    ) -> None:
        self.problem, self.options = problem, options or StreamOptions()
        spread = problem.spread.in_parts(PARTS)
        samples = Samples(problem.X, problem.Y, problem.weight, spread=spread, beta=problem.beta)
        self._exact = TwoLayerLoss(problem, samples)
        Xt, Y = with_bias(problem.X.float(), problem.beta), problem.Y.float()
        weight = None if problem.weight is None else problem.weight.float()
        self._rough = Samples(Xt, Y, weight, spread=spread)
        self._generator = torch.Generator(device=problem.X.device).manual_seed(seed)
        self._pace, self._judging, self._tidying = CyclePace(), 0.0, 0.0
        self.within: Callable[[Streamed], None] = lambda state: None
        """Takes the state after each step of a cycle."""

    def init(self, budget: Budget) -> Streamed:
        """A balanced draw, its outputs of the size of the targets."""
        d, m, n = self._rough.Xt.shape[1], self._rough.Y.shape[1], self.options.neurons
        U, V = balance(self._normal(n, d), self._normal(n, m))
        b = V.new_zeros(m)
        few = self._rough.some(lambda rows, count: torch.arange(min(rows, count), device=U.device), self._rough.chunk)
        F = self.problem.activation(few.Xt @ U.T) @ V
        sizes = few.spread.sums(lambda Y, F: (Y.square().sum(), F.square().sum()), few.Y, F)
        size = float(FIRST_OUTPUTS**2 * sizes[0] / sizes[1].clamp_min(torch.finfo(F.dtype).tiny)) ** 0.25
        parts = (size * U, size * V, b)
        best, started = self._balanced(parts), budget.seconds()
        cost = float(self._exact.value(*best))
        self._judging = budget.seconds() - started
        self._tidying = min(TIDYING * self._judging, 0.5 * budget.remaining())
        return Streamed(parts, best, cost, self.options.first)

    def step(self, state: Streamed, budget: Budget) -> Streamed:
        """One cycle of Adam, and the loss at its end; a last one takes what is left, but for the tidying."""
        budget = replace(budget, time_limit=budget.time_limit - self._tidying)
        wanted = math.ceil(state.passes * self._exact.count / self.options.batch)
        steps, last = self._pace.steps(wanted, budget)
        shapes = [part.shape for part in state.parts]
        start = torch.cat([part.flatten() for part in state.parts])[None]
        rate = RATE * float(state.parts[0].square().mean().sqrt())
        if state.cycle is not None:
            steps, rate, _ = state.cycle
        adam = Adam(lambda x: self._slope(x, shapes), start, AdamOptions(steps=steps, rate=rate))
        if state.cycle is not None:
            adam.recall(state.cycle[2])
        self._pace.descend(adam, steps, budget, lambda: self.within(replace(state, cycle=(steps, rate, adam.memory()))))
        parts = _parts(adam.x[0], shapes)
        if budget.remaining() > FINISHING * self._judging:
            parts = self._finished(parts)
        best = self._balanced(parts)
        cost = float(self._exact.value(*best))
        self._pace.closed(budget)
        status = Status.CONVERGED if state.cost - cost <= STALL_GAIN * state.cost else None
        if last or budget.spent():
            status = Status.TIME_LIMIT
        if cost >= state.cost:
            best, cost = state.best, state.cost
        return Streamed(parts, best, cost, 2 * state.passes, status)

    def finished(self, state: Streamed) -> Status | None:
        """CONVERGED when a cycle gained too little, and the rounds are to go on from there."""
        return state.ended

    def progress(self, state: Streamed, iteration: int, seconds: float) -> Progress:
        """Cost and width; no bound."""
        return Progress(iteration, seconds, state.cost, None, len(state.best[0]))

    def memory(self, state: Streamed) -> tuple[dict[str, object], dict[str, Tensor]]:
        """What further cycles depend on."""
        steps, rate, adam = state.cycle or (0, 0.0, {})
        converged = state.ended is Status.CONVERGED
        facts = {"cost": state.cost, "passes": state.passes, "converged": converged, "steps": steps, "rate": rate}
        parts = zip(("U", "V", "b", "best_U", "best_V", "best_b"), (*state.parts, *state.best), strict=True)
        return facts, {**dict(parts), **adam, "generator": self._generator.get_state()}

    def recalled(self, facts: Mapping[str, Any], found: Mapping[str, Tensor]) -> Streamed:
        """The state that was remembered."""
        self._generator.set_state(found["generator"])
        parts, best = ((found[f"{of}U"], found[f"{of}V"], found[f"{of}b"]) for of in ("", "best_"))
        cycle = (facts["steps"], facts["rate"], dict(found)) if facts["steps"] else None
        ended = Status.CONVERGED if facts["converged"] else None
        return Streamed(parts, best, facts["cost"], facts["passes"], ended, cycle)

    def _slope(self, x: Float[Tensor, "1 P"], shapes: list[torch.Size]) -> tuple[Tensor, Tensor]:
        """L and its gradient on a random batch."""
        batch = self._rough.some(self._draw, self.options.batch)
        value, slopes = TwoLayerLoss(self.problem, batch).gradient(*_parts(x[0], shapes))
        return value[None], torch.cat([slope.flatten() for slope in slopes])[None]

    def _draw(self, rows: int, count: int) -> Int[Tensor, " count"]:
        return torch.randint(rows, (count,), generator=self._generator, device=self.problem.X.device)

    def _finished(self, parts: Parts) -> Parts:
        """The parts with the best outputs for their hidden neurons, where the loss is least squares."""
        if self.problem.loss.name != "mse":
            return parts
        V, b = TwoLayerLoss(self.problem, self._rough).best_outputs(parts[0])
        return (*balance(parts[0], V), b) if bool(V.isfinite().all()) else parts

    def _balanced(self, parts: Parts) -> Parts:
        U, V, b = (part.to(self.problem.X) for part in parts)
        return *balance(U, V), b

    def _normal(self, rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=self._generator, dtype=torch.float32, device=self.problem.X.device)


def _parts(x: Float[Tensor, " P"], shapes: list[torch.Size]) -> Parts:
    U, V, b = (part.view(shape) for part, shape in zip(x.split([s.numel() for s in shapes]), shapes, strict=True))
    return U, V, b
