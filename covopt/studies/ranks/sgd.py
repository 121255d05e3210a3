"""SGD with weight decay for many networks at once, which records their spectra.

Networks with the same batch size are trained as one batch (batch.py) and see the same samples in the same order,
whatever their rates, penalties, momenta and starts. Steps are counted, never seconds: a network leaves its batch when
its steps are done, or when its weights are no longer finite.

An epoch is a random permutation of the samples, cut into batches of B each; the remaining N mod B are left out, as with
`drop_last` in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, TypedDict

import torch
from torch import Tensor

from covopt.answer.held_out import HeldOut
from covopt.model.activation import Activation
from covopt.model.loss import Loss
from covopt.model.problem import Problem
from covopt.model.recursion import Decay, StepwiseDecay
from covopt.model.weights import Weights
from covopt.runtime.loop import Budget, Callback, Progress, Status, run
from covopt.solvers.training.batch import Widths, work
from covopt.solvers.training.descent import SGD
from covopt.studies.ranks.architectures import PLAIN, Architecture

Numbers = float | Sequence[float]


class Training(TypedDict, total=False):
    """The options of SGD, and the problem besides lam and the depth; with defaults."""

    loss: Annotated[str | Loss | None, None]
    bias: Annotated[float, 1.0]
    activation: Annotated[str | Activation | None, None]
    device: Annotated[str | torch.device | None, None]
    task: Annotated[str | None, None]
    batch_size: Annotated[int | Sequence[int] | None, None]
    rate: Annotated[Numbers | None, None]
    momentum: Annotated[Numbers, 0.0]
    nesterov: Annotated[bool, False]
    milestones: Annotated[Numbers | None, None]
    gamma: Annotated[float, 0.1]
    kept: Annotated[float | None, None]
    epochs: Annotated[float | None, None]
    steps: Annotated[int | None, None]
    seeds: Annotated[int | None, None]
    reference: Annotated[float | None, None]


@dataclass(frozen=True)
class Setting:
    """The training of one network; None for values that are unknown, of a network that was trained elsewhere."""

    batch_size: int | None  # B samples in each step, at most N
    rate: float | None  # the learning rate mu
    lam: float  # strength of the penalty lam |W|^2, half of PyTorch's weight_decay; 0 is allowed here
    steps: int | None  # the requested number
    momentum: float = 0.0  # m of PyTorch's `SGD`, without dampening
    nesterov: bool = False  # Nesterov's form of it
    milestones: tuple[int, ...] = ()  # the steps after which the rate is multiplied by `gamma`
    gamma: float = 1.0
    seed: int | None = None  # the seed of the start

    def decay(self, steps: int | None) -> Decay | StepwiseDecay | None:
        """Return the recursion by which the initial weights fade in these steps; None if the rate is unknown."""
        if self.rate is None:
            return None
        constant = Decay(self.rate, self.lam, self.momentum, self.nesterov)
        if not self.milestones or steps is None:
            return constant
        return StepwiseDecay(constant, self.milestones, self.gamma, steps)


@dataclass
class Course:
    """The R records of one network, the start first, whose distance is 0."""

    steps: list[int] = field(default_factory=list)  # the steps of the records
    fits: list[float] = field(default_factory=list)  # C over all samples
    norms: list[float] = field(default_factory=list)  # |W|^2
    accuracies: list[float] = field(default_factory=list)  # the share of right samples
    distances: list[float] = field(default_factory=list)  # |W_{l,t} - W_{l,t-1}|_F of the last step, the layers' mean
    test_accuracies: list[float] = field(default_factory=list)  # accuracies on held-out samples; empty without them
    spectra: list[list[Tensor]] = field(default_factory=list)  # for each record and layer s_i(W_l), descending


@dataclass(frozen=True)
class Descended:
    """One network at the end of its training."""

    weights: list[Tensor]  # W_1 ... W_L at the last step; if it diverged, at its last record
    steps: int | None  # the number taken, None if unknown; fewer than requested if time ended, or if it diverged
    diverged: bool = False  # True if the weights were no longer finite
    course: Course | None = None  # its records; None for a network that was trained elsewhere


def he_start(problem: Problem, widths: Widths, seed: int) -> list[Tensor]:
    """Draw W_l ~ N(0, 2 / n_{l-1}) with biases 0 [He, Zhang, Ren, Sun 2015]."""
    generator = torch.Generator().manual_seed(seed)
    weights = []
    for below, n in pairwise([problem.X.shape[1], *widths, problem.Y.shape[1]]):
        W = torch.randn(n, below, generator=generator, dtype=torch.float64) * math.sqrt(2.0 / below)
        weights.append(torch.cat([W, W.new_zeros(n, 1)], dim=1).to(problem.X))
    return weights


def train_sgd(
    problem: Problem,
    starts: Sequence[Weights],
    options: Sequence[Setting],
    *,
    architecture: Architecture = PLAIN,
    test: HeldOut | None = None,
    seed: int = 0,
    budget: Budget | None = None,
    callback: Callback | None = None,
) -> tuple[list[Descended], Status]:
    """Train each network from its start with its options, which are all known; one group for each batch size.

    The loss is mse or cross_entropy, the penalty that of the options; the problem's own lam plays no part. Accuracies
    on `test` are recorded, and the seed orders the samples. Return the networks in the order of their starts, as they
    are when the time is over, and CONVERGED if no limit ended the training.
    """
    trainer = _Trainer(_Task(problem, architecture, test, seed), starts, options)
    outcome = run(trainer, budget or Budget(), callback)
    return trainer.networks(), outcome.status


@dataclass(frozen=True)
class _Task:
    """Data, architecture, held-out data and the seed of the order of the samples, the same for all groups."""

    problem: Problem
    architecture: Architecture
    test: HeldOut | None
    seed: int

    def test_accuracy(self, weights: Weights) -> float:
        """Return the share of right held-out samples."""
        assert self.test is not None
        X, Y = self.test.X.to(self.problem.X), self.test.Y.to(self.problem.Y)
        return accuracy(self.architecture.outputs(self.problem, weights, X), Y)


class _Trainer:
    """The iteration of the loop: a round advances the first group that is not finished."""

    def __init__(self, task: _Task, starts: Sequence[Weights], options: Sequence[Setting]) -> None:
        groups = _grouped(starts, options)
        self._groups = [_Group(task, own, [starts[i] for i in own], [options[i] for i in own]) for own in groups]

    def networks(self) -> list[Descended]:
        """Return the networks in the order of the starts."""
        pairs = [pair for group in self._groups for pair in zip(group.members, group.networks(), strict=True)]
        return [network for _, network in sorted(pairs, key=lambda pair: pair[0])]

    def init(self, budget: Budget) -> _Trainer:
        return self

    def step(self, state: _Trainer, budget: Budget) -> _Trainer:
        group = self._current
        if group is not None:
            with budget.phase("training"):
                group.advance(budget)
        return self

    def finished(self, state: _Trainer) -> Status | None:
        return Status.CONVERGED if self._current is None else None

    def progress(self, state: _Trainer, iteration: int, seconds: float) -> Progress:
        group = self._current or self._groups[-1]
        phase = f"batches of {group.batch_size}, step {group.steps} of {group.last}"
        return Progress(iteration, seconds, group.cost, None, group.width, phase)

    @property
    def _current(self) -> _Group | None:
        return next((group for group in self._groups if not group.finished), None)


def _grouped(starts: Sequence[Weights], options: Sequence[Setting]) -> Iterator[list[int]]:
    """Yield the indices of networks that are trained together: of one batch size, small first."""
    for size in sorted({option.batch_size or 0 for option in options}):
        members = [i for i, option in enumerate(options) if option.batch_size == size]
        widest = max(sum(len(W) for W in starts[i]) for i in members)
        weights = max(sum(W.numel() for W in starts[i]) for i in members)
        most = max(1, min(10_000_000 // (size * widest), 20_000_000 // weights))  # activations and weights in memory
        yield from (members[i : i + most] for i in range(0, len(members), most))


class _Group:
    """Networks of one batch size, `members` by their indices, which have taken `steps` of `last` steps.

    `cost` is the lowest at the last record; the group is finished when nothing is left to do.
    """

    def __init__(self, task: _Task, members: list[int], starts: Sequence[Weights], options: Sequence[Setting]) -> None:
        self.members, self._task, problem = members, task, task.problem
        ends = [option.steps or 0 for option in options]
        self.batch_size, self.last = options[0].batch_size or 0, max(ends)
        self._widths = [[len(W) for W in weights[:-1]] for weights in starts]
        self.width = max(max(widths) for widths in self._widths)
        self._batch = task.architecture.batch(problem, self._widths, self.batch_size)
        x = self._batch.pack(starts)
        rate, momentum = x.new_tensor([[[option.rate], [option.momentum]] for option in options]).unbind(1)
        nesterov = torch.tensor([[option.nesterov] for option in options], device=x.device)
        self._sgd = SGD(x, rate, momentum, nesterov)
        self._lam = x.new_tensor([[option.lam] for option in options])
        self._ends = torch.tensor(ends)
        self._options, self._milestones = options, {step for option in options for step in option.milestones}
        self._rows = torch.arange(len(options))  # the networks that are still training
        self._at, self._final = x.clone(), [0] * len(options)
        self._before = x  # the weights before the step that is recorded next
        self._diverged, self.courses = [False] * len(options), [Course() for _ in options]
        self._samples = epochs(problem.samples, self.batch_size, task.seed)
        self._recorded = recorded_steps(set(ends))
        self.steps, self.cost, self.finished = 0, math.inf, False
        multiplications = sum(work(problem, widths) for widths in self._widths) * self.batch_size / problem.samples
        overhead = 5e5  # of a step beside its arithmetic, in multiplications
        self._round = max(1, int(4e8 / (multiplications + overhead)))  # steps between looks at the clock
        self._record()

    def networks(self) -> list[Descended]:
        """Return the networks in their present state."""
        for place, row in enumerate(self._rows.tolist()):
            if not self._diverged[row]:
                self._at[row], self._final[row] = self._sgd.x[place], self.steps
        weights = [self._batch.unpack(x, widths) for x, widths in zip(self._at, self._widths, strict=True)]
        return [Descended(*state) for state in zip(weights, self._final, self._diverged, self.courses, strict=True)]

    def advance(self, budget: Budget) -> None:
        """Take a round of steps."""
        for _ in range(self._round):
            if self.finished or budget.spent():
                return
            if self.steps in self._milestones:
                options = [self._options[row] for row in self._rows.tolist()]
                factors = [[option.gamma if self.steps in option.milestones else 1.0] for option in options]
                self._sgd.scale_rates(self._lam.new_tensor(factors))
            rows = next(self._samples).to(self._lam.device)
            if self.steps + 1 in self._recorded:
                self._before = self._sgd.x.clone()
            self._sgd.iterate(self._batch.slopes(self._sgd.x, rows, self._lam))
            self.steps += 1
            if self.steps in self._recorded or self.steps % 64 == 0:
                finite = torch.isfinite(self._sgd.x).all(dim=1).cpu()
                for row in self._rows[~finite].tolist():
                    self._diverged[row], self._final[row] = True, self.steps
                self._keep(finite)
            if self.steps in self._recorded and not self.finished:
                self._record()

    def _record(self) -> None:
        """Record the state of each network, and remove those at their last step."""
        x, rows = self._sgd.x, self._rows.tolist()
        self._at[self._rows] = x
        fits, accuracies = self._batch.fits(x)
        norms = x.square().sum(dim=1)
        self.cost = float((fits + self._lam[:, 0] * norms).min())
        spectra = self._batch.spectra(x, [self._widths[row] for row in rows])
        distances = self._batch.mean_norms(x - self._before)
        for place, row in enumerate(rows):
            course = self.courses[row]
            course.steps.append(self.steps)
            course.fits.append(float(fits[place]))
            course.norms.append(float(norms[place]))
            course.accuracies.append(float(accuracies[place]))
            course.distances.append(float(distances[place]))
            if self._task.test is not None:
                weights = self._batch.unpack(x[place], self._widths[row])
                course.test_accuracies.append(self._task.test_accuracy(weights))
            course.spectra.append(spectra[place])
            self._final[row] = self.steps
        self._keep(self._ends[self._rows] > self.steps)

    def _keep(self, going: Tensor) -> None:
        if not bool(going.all()):
            device = going.to(self._lam.device)
            self._sgd.keep(device)
            self._lam, self._rows, self._before = self._lam[device], self._rows[going], self._before[device]
            self.finished = not len(self._rows)


def accuracy(F: Tensor, Y: Tensor) -> float:
    """Return the share of samples whose largest output is that of their class."""
    return float((F.argmax(dim=1) == Y.argmax(dim=1)).double().mean())


def recorded_steps(ends: set[int]) -> set[int]:
    """Return the steps to record: the first ones, four a doubling later, and the ends."""
    doublings = math.log2(max(*ends, 1))
    return ends | {round(2.0 ** (k / 4)) for k in range(int(4 * doublings) + 1)}


def epochs(samples: int, size: int, seed: int) -> Iterator[Tensor]:
    """Yield batches of `size` sample indices, epoch after epoch, each freshly shuffled."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(samples, generator=generator)
        yield from (order[i : i + size] for i in range(0, samples - size + 1, size))
