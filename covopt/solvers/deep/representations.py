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
from dataclasses import dataclass, replace

import numpy as np
import scipy
import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.lbfgs import DescentOptions, descend
from covopt.linalg.psd import RankRule, thin
from covopt.model import hidden
from covopt.model.problem import Problem
from covopt.model.weights import Weights, check_weights, evaluate, flattened, preactivations, shaped_like
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Budget, Progress, Status

NO_TIKHONOV = (0.0,)
"""`HiddenOptions.tikhonov` for `interpolate`: other eps gained nothing there, and made deep networks much worse."""
PATIENCE = 2
"""Base points without gain, in a row, that end the descent."""
POOL = 40
"""Candidates for a hidden layer of a start, for each sample, where there is time."""


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
        init: Weights | None = None,
        options: HiddenOptions | None = None,
    ) -> None:
        self.problem, self.options = problem, options or HiddenOptions()
        # The outputs that an exact fit holds, and what of Y may then lie outside Im Zs_{L-1}.
        self._held, self._allowed, self._stages, widest = list[Tensor](), math.inf, self.options.tikhonov, 100
        if problem.interpolates:
            self._held, self._allowed = [problem.Y], 1e-8 * float(problem.Y.abs().max())
            self._stages, widest = NO_TIKHONOV, problem.samples + 1
        self._free = problem.depth - len(self._held)
        self.width = width or min(problem.samples + 1, widest)
        self._start = None if init is None else [W.to(problem.X) for W in init]
        if self._start is not None:
            check_weights(problem, self._start)
        self._generator = torch.Generator(device=problem.X.device).manual_seed(seed)
        self._first = thin(problem.Xt)
        self._scale = 0.0

    # -- what loop.run asks for ---------------------------------------------------------------------------------

    def init(self, budget: Budget) -> HiddenState:
        """Return the projected start."""
        Z = self._random_start(budget) if self._start is None else preactivations(self.problem, self._start)
        Z = self._with_targets(hidden.project(self.problem, Z))
        self._scale = max(float(Zs.square().sum()) for Zs in hidden.layer_inputs(self.problem, Z)) / len(Z[0])
        loss = self._value(Z, 0).value
        if not math.isfinite(loss):
            raise ProblemError(
                f"The start's last hidden layer, of width {Z[-2].shape[1]}, does not span the targets; give a larger"
                " width, at least the number of samples, or a network that fits to start from."
            )
        cost, weights = self._network(Z, 0)
        return HiddenState(Z, loss, weights, cost, 0, self.options.steps[0])

    def step(self, state: HiddenState, budget: Budget) -> HiddenState:
        """Run L-BFGS around the base point that the last step reached."""
        with budget.phase("descent"):
            Z = self._descend(state, budget)
        loss, (cost, weights) = self._value(Z, state.stage).value, self._network(Z, state.stage)
        new = replace(state, Z=Z, loss=loss, steps=min(2 * state.steps, self.options.steps[1]))
        if cost < state.cost:
            new = replace(new, weights=weights, cost=cost)
        new.stalled = state.stalled + 1 if state.loss - loss <= 1e-7 * abs(loss) else 0
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
        return replace(loss, value=math.inf) if loss.missed > self._allowed else loss

    def _network(self, Z: hidden.Representations, stage: int) -> tuple[float, list[Tensor]]:
        """Return the better of the network that makes Z and the ridge network, with its cost."""
        rules = dict.fromkeys((RankRule(), self._rule(stage)))  # one at the last stage
        candidates = [hidden.to_weights(self.problem, Z, rule) for rule in rules]
        return min(((evaluate(self.problem, W).total, W) for W in candidates), key=lambda pair: pair[0])

    def _next_stage(self, state: HiddenState, weights: list[Tensor]) -> HiddenState:
        """Go on with the next eps, from the network of this one."""
        Z = self._with_targets(hidden.project(self.problem, preactivations(self.problem, weights)))
        loss = self._value(Z, state.stage + 1).value
        if not math.isfinite(loss):
            Z, loss = state.Z, self._value(state.Z, state.stage + 1).value
        return replace(state, Z=Z, loss=loss, stage=state.stage + 1, steps=self.options.steps[0], stalled=0)

    def _descend(self, state: HiddenState, budget: Budget) -> list[Tensor]:
        bases = hidden.layer_inputs(self.problem, state.Z)
        free = self._free
        V = [thin(base).solve(z) for base, z in zip(bases[:free], state.Z[:free], strict=True)]

        def representations(x: Tensor) -> list[Tensor]:
            moved = [base @ v for base, v in zip(bases[:free], shaped_like(x, V), strict=True)]
            return self._with_targets([*moved, *state.Z[free:]])

        def value(x: Tensor) -> tuple[float, Tensor]:
            projected = self._value(representations(x), state.stage)
            slopes = [base.mT @ g for base, g in zip(bases[:free], projected.gradient[:free], strict=True)]
            return projected.value / self.problem.lam, flattened(slopes) / self.problem.lam

        options = DescentOptions(memory=30, iterations=state.steps, slow=1e-8)
        x = descend(value, flattened(V), budget.pace(), options)
        return self._with_targets(hidden.project(self.problem, representations(x)))

    def _with_targets(self, Z: list[Tensor]) -> list[Tensor]:
        """Set Z_L = Y if the network has to interpolate."""
        return [*Z[: self._free], *self._held]

    # -- starts -------------------------------------------------------------------------------------------------

    def _random_start(self, budget: Budget) -> list[Tensor]:
        """Return random hidden layers of the largest rank found, and random outputs."""
        N, layers = self.problem.samples, self.problem.depth - 1
        rate = 5e8  # multiplications of QR in a second
        affordable = 0.3 * rate * budget.remaining() / (layers * N**2)  # in that share of the time
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
