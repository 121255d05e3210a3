"""Projected gradient descent on the representations Z (MATH.md 2; [JGHG22, Prop. 1]).

    minimise  L_r(Z) = C(Z_L) + lam sum_l |Z_l^T (Zs_{l-1}^T)^+|_F^2    over Im Z_l inside Im Zs_{l-1}.

The loss of one layer depends on its neighbours only ([JGHG22, section 3]), but the ranges tie the layers
together: after a step Z_l is projected on Im Zs_{l-1}, from l = 1 up, and what is descended is Z -> L_r(project(Z)),
whose gradient knows how the ranges turn. Where every Zs_l has full row rank the projection does nothing above the first
layer.

**The metric.** The attraction 2 (Ks_{l-1})^+ Z_l is enormous along weak directions of Ks_{l-1}, so that the Euclidean
gradient of Z crawls. Steps are measured by the weights that make them instead: around a base point, Z_l = Zs_{l-1} V_l
with Zs_{l-1} held, and |V_l|^2 is the layer's own share of the penalty. L-BFGS runs in V with a line search that
accepts decrease only; then the base moves to the point that was reached, first after few steps and later after many.

**Tikhonov.** Where Zs_l loses rank, a move that would restore it makes the loss jump: a wall. With eps > 0, in place of
Ks^+, (Ks + eps I)^{-1} rounds the walls off:

    Tr[K_l (Ks_{l-1} + eps I)^{-1}] = min_W |W|^2 + |Zs_{l-1} W^T - Z_l|^2 / eps,

so that the ridge weights behind it are a network, too. A falling sequence of eps ends in 0. That is another objective:
what counts is always the cost of weights, W_l = Z_l^T (Zs_{l-1}^T)^+ or the ridge weights, and the best of these is the
answer.

For `interpolate`, Z_L = Y is held and a step may not take Y out of Im Zs_{L-1}.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy
import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.lbfgs import DescentOptions, descend
from covopt.linalg.psd import RankRule, thin
from covopt.model import hidden
from covopt.model.problem import Problem
from covopt.model.weights import check_weights, evaluate, preactivations
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Budget, Callback, Progress, Status, run

NO_TIKHONOV = (0.0,)
"""`HiddenOptions.tikhonov` for `interpolate`: other eps gained nothing there, and made deep networks much worse."""
MEMORY = 30
"""L-BFGS's pairs of steps and gradient differences."""
SLOW = 1e-8
"""A base point is left when ten steps lower the loss by less than this, relative."""
STALL_GAIN, PATIENCE = 1e-7, 2
"""A base point from which the loss falls by less than this, relative, is stalled; so many in a row end the descent."""
OUTSIDE_RANGE = 1e-8
"""`interpolate`: what of Y may lie outside Im Zs_{L-1}, relative to max |Y|."""
WIDEST = 100
"""The default width, at most; `interpolate` takes N + 1."""
POOL = 40
"""Candidates for a hidden layer of a start, for each sample, where there is time."""
START_SHARE, RATE = 0.3, 5e8
"""The part of the remaining time that the layers of a start may take, and the multiplications of QR in a second."""


@dataclass(frozen=True)
class HiddenOptions:
    """Options of the descent, and of how far one base point is used.

    Attributes:
        tikhonov: eps, one after the other, relative to the mean eigenvalue of the Ks of largest trace at the start;
            each until nothing is gained.
        steps: L-BFGS steps from the first base point and, doubled from base to base, from a later one at most.
    """

    tikhonov: tuple[float, ...] = (1e-3, 1e-5, 1e-7, 0.0)
    steps: tuple[int, int] = (10, 2560)


@dataclass
class HiddenState:
    """The state of the descent.

    Attributes:
        Z: a feasible point; the next base point.
        loss: L_r there, with this stage's Tikhonov.
        weights, cost: the best network so far, and its cost without Tikhonov.
        stage: place in `HiddenOptions.tikhonov` or `NO_TIKHONOV`.
        steps: L-BFGS steps for the next base point, at most.
        stalled: base points in a row without gain.
    """

    Z: list[Float[Tensor, "N _"]]
    loss: float
    weights: list[Float[Tensor, "_ _"]]
    cost: float
    stage: int
    steps: int
    stalled: int = 0


class HiddenSolver:
    """The descent from one start, for `loop.run`; the loss never rises.

    Args:
        problem: any depth, solved in its own dtype on its own device.
        width: of every hidden layer; None takes N + 1, at most 100 unless for `interpolate`.
        seed: of the random start.
        init: weights [W_1, ..., W_L] to start from instead.

    Raises:
        ProblemError: `init` of the wrong shape, or (by `init()`) a start whose last hidden layer does not hold Y.
    """

    def __init__(
        self,
        problem: Problem,
        width: int | None = None,
        seed: int = 0,
        init: Sequence[Float[Tensor, "_ _"]] | None = None,
        options: HiddenOptions | None = None,
    ) -> None:
        self.problem, self.options = problem, options or HiddenOptions()
        most = problem.samples + 1
        self.width = width or (most if problem.interpolates else min(most, WIDEST))
        self._start = None if init is None else [W.to(problem.X) for W in init]
        if self._start is not None:
            check_weights(problem, self._start)
        self._generator = torch.Generator(device=problem.X.device).manual_seed(seed)
        self._first = thin(problem.Xt)
        self._scale = 0.0
        self._stages = NO_TIKHONOV if problem.interpolates else self.options.tikhonov

    # -- what loop.run asks for ---------------------------------------------------------------------------------

    def init(self, budget: Budget) -> HiddenState:
        """Return the projected start."""
        Z = self._random_start(budget) if self._start is None else preactivations(self.problem, self._start)
        Z = self._with_targets(hidden.project(self.problem, Z))
        self._scale = max(float(Zs.square().sum()) for Zs in hidden.layer_inputs(self.problem, Z)) / len(Z[0])
        if not math.isfinite(self._value(Z, 0).value):
            raise ProblemError(
                f"The start's last hidden layer, of width {Z[-2].shape[1]}, does not span the targets; give a larger"
                " width, at least the number of samples, or a network that fits to start from."
            )
        cost, weights = self._network(Z, 0)
        return HiddenState(Z, self._value(Z, 0).value, weights, cost, 0, self.options.steps[0])

    def step(self, state: HiddenState, budget: Budget) -> HiddenState:
        """Run L-BFGS around the base point that the last step reached."""
        with budget.phase("descent"):
            Z = self._descend(state, budget)
        loss, (cost, weights) = self._value(Z, state.stage).value, self._network(Z, state.stage)
        new = replace(state, Z=Z, loss=loss, steps=min(2 * state.steps, self.options.steps[1]))
        if cost < state.cost:
            new = replace(new, weights=weights, cost=cost)
        new.stalled = state.stalled + 1 if state.loss - loss <= STALL_GAIN * abs(loss) else 0
        if new.stalled >= PATIENCE and state.stage + 1 < len(self._stages):
            new = self._next_stage(new, weights)
        return new

    def finished(self, state: HiddenState) -> Status | None:
        """Return CONVERGED after PATIENCE base points without gain, with the last eps."""
        return Status.CONVERGED if state.stalled >= PATIENCE else None

    def progress(self, state: HiddenState, iteration: int, seconds: float) -> Progress:
        """Return the cost and the largest hidden width; this method has no bound."""
        return Progress(iteration, seconds, state.cost, None, max(len(W) for W in state.weights[:-1]))

    # -- the descent --------------------------------------------------------------------------------------------

    def _rule(self, stage: int) -> RankRule:
        return RankRule(tikhonov=self._stages[stage] * self._scale)

    def _value(self, Z: hidden.Representations, stage: int) -> hidden.Projected:
        """Return L_r(project(Z)); infinite for `interpolate` with Y outside the range."""
        rule = self._rule(stage)
        loss = hidden.projected_loss(self.problem, Z, rule, self._first if rule.tikhonov == 0.0 else None)
        allowed = OUTSIDE_RANGE * float(self.problem.Y.abs().max())
        return replace(loss, value=math.inf) if self.problem.interpolates and loss.missed > allowed else loss

    def _network(self, Z: hidden.Representations, stage: int) -> tuple[float, list[Tensor]]:
        """Return the better of the network that makes Z and the ridge network, with its cost."""
        rules = [RankRule()] if self.problem.interpolates else [RankRule(), self._rule(stage)]
        candidates = [hidden.to_weights(self.problem, Z, rule) for rule in rules]
        return min(((evaluate(self.problem, W).total, W) for W in candidates), key=lambda pair: pair[0])

    def _next_stage(self, state: HiddenState, weights: list[Tensor]) -> HiddenState:
        """Go on with the next eps, from the network of this one."""
        Z = self._with_targets(hidden.project(self.problem, preactivations(self.problem, weights)))
        if not math.isfinite(self._value(Z, state.stage + 1).value):
            Z = state.Z
        loss = self._value(Z, state.stage + 1).value
        return replace(state, Z=Z, loss=loss, stage=state.stage + 1, steps=self.options.steps[0], stalled=0)

    def _descend(self, state: HiddenState, budget: Budget) -> list[Tensor]:
        bases = hidden.layer_inputs(self.problem, state.Z)
        free = self.problem.depth - 1 if self.problem.interpolates else self.problem.depth
        V = [thin(base).solve(z) for base, z in zip(bases[:free], state.Z[:free], strict=True)]
        shapes = [v.shape for v in V]

        def representations(x: Tensor) -> list[Tensor]:
            parts = x.split([shape.numel() for shape in shapes])
            return self._with_targets(
                [b @ part.view(shape) for b, part, shape in zip(bases[:free], parts, shapes, strict=True)]
                + list(state.Z[free:])
            )

        def value(x: Tensor) -> tuple[float, Tensor]:
            projected = self._value(representations(x), state.stage)
            slopes = [(b.mT @ g).flatten() for b, g in zip(bases[:free], projected.gradient[:free], strict=True)]
            return projected.value / self.problem.lam, torch.cat(slopes) / self.problem.lam

        options = DescentOptions(memory=MEMORY, iterations=state.steps, slow=SLOW)
        x = descend(value, torch.cat([v.flatten() for v in V]), budget.pace(), options)
        return self._with_targets(hidden.project(self.problem, representations(x)))

    def _with_targets(self, Z: list[Tensor]) -> list[Tensor]:
        """Set Z_L = Y if the network has to interpolate."""
        return [*Z[:-1], self.problem.Y] if self.problem.interpolates else Z

    # -- starts -------------------------------------------------------------------------------------------------

    def _random_start(self, budget: Budget) -> list[Tensor]:
        """Return random hidden layers of the largest rank found, and random outputs."""
        N, layers = self.problem.samples, self.problem.depth - 1
        affordable = START_SHARE * RATE * budget.remaining() / (layers * N**2)
        pool = max(self.width, int(min(POOL * N, affordable)))
        Z, Zs = [], self.problem.Xt
        for layer in range(1, self.problem.depth):
            Z.append(self._spanning_layer(Zs, pool))
            Zs = self.problem.appended(Z[-1], layer)
        return [*Z, Zs @ self._gaussian(Zs.shape[1], self.problem.Y.shape[1]) / math.sqrt(Zs.shape[1])]

    def _spanning_layer(self, Zs: Float[Tensor, "N d"], pool: int) -> Float[Tensor, "N n"]:
        """Return the first of `pool` random neurons by pivoted QR; half kink between samples."""
        N, d = Zs.shape
        i, j = torch.randint(N, (2, pool), generator=self._generator, device=Zs.device)
        middle = torch.nn.functional.normalize(Zs[i] + Zs[j], dim=1)
        middle[::2] = 0.0
        w = self._gaussian(pool, d)
        w = w - (w * middle).sum(dim=1, keepdim=True) * middle
        Z = Zs @ w.mT * math.sqrt(2.0 / d)
        order = np.asarray(scipy.linalg.qr(self.problem.activation(Z).cpu().numpy(), mode="r", pivoting=True)[-1])
        return Z[:, torch.as_tensor(order[: self.width], device=Z.device, dtype=torch.int64)]

    def _gaussian(self, *shape: int) -> Tensor:
        X = self.problem.X
        return torch.randn(*shape, generator=self._generator, dtype=X.dtype, device=X.device)


class Descent(NamedTuple):
    """The best of several descents.

    Attributes:
        weights: W_1 ... W_L of the best.
        status: what ended them; CONVERGED only when every one converged.
        history: the best cost so far, over all of them.
        costs: what each start ended with, in order.
    """

    weights: list[Float[Tensor, "_ _"]]
    status: Status
    history: list[Progress]
    costs: list[float]


def descend_best(
    problem: Problem,
    budget: Budget,
    width: int | None = None,
    starts: int = 3,
    seed: int = 0,
    init: Sequence[Float[Tensor, "_ _"]] | None = None,
    callback: Callback | None = None,
    options: HiddenOptions | None = None,
) -> Descent:
    """Descend from `starts` starts in turn, each with its share of the remaining time.

    The first start is `init`, where it is given; the others are random, with seeds `seed`, `seed` + 1, ...

    Raises:
        ProblemError: fewer than one start, or as `HiddenSolver`.
    """
    if starts < 1 or (width is not None and width < 1):
        of_width = "" if width is None else f" of width {width}"
        raise ProblemError(f"There are {starts} starts{of_width}; give at least 1 of each.")
    best: HiddenState | None = None
    history: list[Progress] = []
    costs: list[float] = []
    status = Status.CONVERGED

    def report(line: Progress) -> None:
        if history and history[-1].cost <= line.cost:
            line = replace(line, cost=history[-1].cost, width=history[-1].width)
        history.append(replace(line, iteration=len(history)))
        if callback is not None:
            callback(history[-1])

    for number in range(starts):
        share = budget.seconds() + budget.remaining() / (starts - number)
        own = replace(budget, time_limit=share)
        solver = HiddenSolver(problem, width, seed + number, init if number == 0 else None, options)
        outcome = run(solver, own, report)
        costs.append(outcome.state.cost)
        if best is None or outcome.state.cost < best.cost:
            best = outcome.state
        if outcome.status is not Status.CONVERGED:
            status = outcome.status
        if outcome.status is Status.INTERRUPTED or budget.spent():
            break
    assert best is not None
    return Descent(best.weights, status, history, costs)
