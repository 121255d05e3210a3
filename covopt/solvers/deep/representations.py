"""Descent on the representations Z, with Tikhonov parameters that fall (MATH.md 2; [JGHG22, Prop. 1]).

    minimise  C(Z_L) + lam (Tr[K_1 (Ks_0)^+] + sum_{l>1} Tr[K_l (Ks_{l-1} + eps_{l-1} I)^{-1}])    over Z_1 ... Z_L.

With eps = 0 each Z_l has to lie in Im Zs_{l-1}: where Zs_{l-1} has few neurons, no layer moves alone, and descents end
3 to 330 % above the method cone. With eps > 0 every Z_l is admissible, and the loss is smooth but for the kinks of
sigma, because

    Tr[K_l (Ks_{l-1} + eps I)^{-1}] = min_W |W|^2 + |Zs_{l-1} W^T - Z_l|^2 / eps.

The kinks z = 0 are rounded, and L-BFGS moves all Z_l together while eps and the roundness fall.

**Outputs.** For mse the best Z_L is known, and min_{Z_L} leaves lam Tr[Y Y^T (Ks_{L-1} + N lam I)^{-1}]: kernel ridge
regression, eps_{L-1} = N lam (with weights w_i of the samples, N lam / w_i). For `interpolate` Z_L = Y is held and
eps_{L-1} falls like the others. For other losses Z_L descends with the other layers.

**The metric.** The Hessian of the penalty in Z_l is 2 (Ks_{l-1} + eps I)^{-1}, which is enormous along weak directions
of Ks_{l-1}. So L-BFGS moves V_l with Z_l = R_l V_l and R_l R_l^T = Ks_{l-1} + eps I, held from the beginning of each
descent: |V_l|^2 is the layer's share of the penalty there.

**Missing neurons.** A neuron z = R_l v of hidden layer l, |v| = 1, lowers the loss at first order if |A^T sigma(z)| > 1
with A = (Ks_l + eps I)^{-1} Z_{l+1}. Descents end where many neurons have died; the search of the shallow solver finds
neurons that are missing, they take the places of dead ones, and all descend again.

What counts is the cost of a network: ridge weights for each Z_l, from the first layer up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.cholesky import factorize
from covopt.linalg.lbfgs import DescentOptions, descend
from covopt.linalg.psd import RankRule, thin
from covopt.model.activation import Smoothed
from covopt.model.problem import Problem
from covopt.model.weights import Weights, check_weights, flattened, preactivations, shaped_like
from covopt.oracles.search import AscentOptions, ConvexConcaveOracle
from covopt.runtime.loop import Budget, Progress, Status
from covopt.solvers.incumbent import cost_of
from covopt.solvers.shallow.starts import Starts
from covopt.solvers.training.exact_fit import fit_exactly, nearest_fit


@dataclass(frozen=True)
class HiddenState:
    """The state of the descent."""

    Z: list[Float[Tensor, "N _"]]  # Z_1 ... Z_{L-1}, and Z_L where it descends with them
    weights: list[Float[Tensor, "_ _"]]  # the best network so far
    cost: float  # its cost
    stage: int = 0  # place in the schedule of the next descent
    before: float = math.inf  # the cost when neurons were last added
    stalled: int = 0  # rounds in a row without gain


class TikhonovLoss:
    """The loss over lam with Tikhonov parameters and rounded kinks, in the coordinates V_l of Z_l = R_l V_l.

    R_1 is `first`, with R_1 R_1^T = Ks_0; biases are penalised, and the descent begins at Z. `eps` is relative to the
    mean eigenvalue of Ks_l, and `kink`, the roundness of the kinks, to the smallest root mean square of a Z_l. `own`
    holds eps_1 ... eps_{L-1}, a number for each sample (N, 1), and `bases` R_1 ... R_L.
    """

    def __init__(
        self, problem: Problem, first: Float[Tensor, "N r"], Z: list[Float[Tensor, "N _"]], eps: float, kink: float
    ) -> None:
        hidden = Z[: problem.depth - 1]
        size = kink * min(float(z.square().mean().sqrt()) if z.numel() else 0.0 for z in hidden)
        rounded = size > 0.0 and not problem.activation.is_linear
        sigma = Smoothed(slope=problem.activation.slope, mu=size) if rounded else problem.activation
        self.problem, self.bases, self.own = replace(problem, activation=sigma), [first], list[Tensor]()
        for layer, z in enumerate(hidden, start=1):
            Zs = problem.appended(z, layer)
            mean = float(Zs.square().sum()) / problem.samples
            own = torch.full_like(problem.Y[:, :1], max(torch.finfo(Zs.dtype).tiny, eps * mean))
            if layer == problem.depth - 1 and problem.ridge is not None:
                own = torch.maximum(own, problem.lam * problem.inverse_shares[:, None] * bool(problem.ridge))
            self.own.append(own)
            self.bases.append(torch.linalg.cholesky(Zs @ Zs.mT + torch.diag(own[:, 0])))
        self._like = [base.new_empty(base.shape[1], z.shape[1]) for base, z in zip(self.bases, Z, strict=False)]

    def coordinates(self, Z: list[Float[Tensor, "N _"]]) -> list[Float[Tensor, "_ _"]]:
        """Return V_l with Z_l = R_l V_l."""
        upper = zip(self.bases[1:], Z[1:], strict=False)
        return [thin(self.bases[0]).solve(Z[0]), *(torch.linalg.solve_triangular(R, z, upper=False) for R, z in upper)]

    def representations(self, x: Float[Tensor, " p"]) -> list[Float[Tensor, "N _"]]:
        """Return Z_l = R_l V_l."""
        return [R @ v for R, v in zip(self.bases, shaped_like(x, self._like), strict=False)]

    def targets(self, Z: list[Float[Tensor, "N _"]]) -> list[Float[Tensor, "N _"]]:
        """Return what each hidden layer has to lead to: Z_2 ... Z_{L-1}, and Z_L or Y."""
        return [*Z, self.problem.Y][1 : self.problem.depth]

    def __call__(self, x: Float[Tensor, " p"]) -> tuple[float, Float[Tensor, " p"]]:
        """Return the value and the gradient; infinite where rounding makes a matrix indefinite."""
        problem, first, Z = self.problem, shaped_like(x, self._like)[0], self.representations(x)
        value, slopes = first.square().sum(), [torch.zeros_like(z) for z in Z]
        for layer, (target, own) in enumerate(zip(self.targets(Z), self.own, strict=True), start=1):
            z, below = Z[layer - 1], slopes[layer - 1]
            Zs = problem.appended(z, layer)
            L, failed = torch.linalg.cholesky_ex(Zs @ Zs.mT + torch.diag(own[:, 0]))
            if failed:
                return math.inf, x
            A = torch.cholesky_solve(target, L)
            value = value + (target * A).sum()
            below -= 2.0 * problem.activation.derivative(z) * (A @ (A.mT @ Zs[:, :-1]))
            if layer < len(Z):
                slopes[layer] += 2.0 * A
        if len(Z) == problem.depth:
            value = value + problem.loss_at(Z[-1]) / problem.lam
            slopes[-1] += problem.gradient_at(Z[-1]) / problem.lam
        gradients = [R.mT @ slope for R, slope in zip(self.bases, slopes, strict=False)]
        gradients[0] += 2.0 * first
        return float(value), flattened(gradients)


class HiddenSolver:
    """The descents from one start, for `loop.run`, in float64.

    Percentages are costs above the method cone on 30 normal rows at depth 3, one start, 5 to 7 s, lam 1e-3 unless
    stated (docs/notes/2026-11-hidden.md). Biases are penalised. Without a maximum `width` of every hidden layer, it
    begins with twice as many neurons as samples, at most 100, and adds what is missing.
    """

    schedule = ((1e-2, 1.0), (1e-2, 0.3), (1e-2, 0.1), (1e-3, 0.03), (1e-4, 0.01), (1e-5, 3e-3), (1e-6, 3e-4))
    """eps, relative to the mean eigenvalue of Ks_l, and the roundness of the kinks, relative to the smallest root mean
    square of a Z_l; one descent each. From eps = 1e-1 on: 2.9 % instead of 2.0 %."""
    exactly = ((1e-8, 3e-4), (1e-10, 3e-4))
    """What follows for exact fits, which a larger eps misses where Ks_l is nearly singular."""
    again = 3
    """The place in the schedule from which neurons are added before each descent (0.35 %; only before this place:
    2.0 %), and at which the next round begins. From the first descent on: 2.5 %."""
    descent = DescentOptions(memory=20, slow=3e-5)  # until 1e-5: 0.17 %, and until 1e-4: 0.35 %, from smaller starts
    scale = 0.1
    """The size of a random start, the product over its hidden layers. Neurons of small ones grow where they are needed
    (lam 1e-2, no neurons added: 4.7 % at 0.1, 7.5 % at 1)."""
    widest = 100  # neurons of each hidden layer of a random start, at most
    neurons = 15  # neurons that are added to a layer at a time, at most. With 8, also at eps = 1e-2: 2.4 %
    strength = 0.3  # their |v|^2, relative to the mean over the neurons of their layer
    dead = 1e-4
    """Neurons whose |v|^2 is below this, relative to the largest in their layer, give their place. 1e-3: 0.51 %."""
    faint = 1e-6  # neurons whose squared norms are below this part of all weights are zero in a second network
    starts, ascent = 60, AscentOptions(steps=5, box_steps=30, finishing=2)
    """Ascents of the search for missing neurons, besides those from the layer's own."""
    gain, patience = 1e-4, 2
    """The search ends when `patience` rounds in a row lower the cost by less than `gain`, relative."""

    def __init__(self, problem: Problem, width: int | None = None, seed: int = 0, init: Weights | None = None) -> None:
        self.problem, self._width = problem.double(), width
        self._start = None if init is None else [W.to(self.problem.X) for W in init]
        if self._start is not None:
            check_weights(self.problem, self._start)
        self._generator = torch.Generator(device=problem.X.device).manual_seed(seed)
        self._schedule = self.schedule + self.exactly * (problem.ridge == 0.0)
        first = thin(self.problem.Xt)
        self._first = (first.U * first.s)[:, first.significant > 0.0]

    @classmethod
    def first_width(cls, problem: Problem) -> int:
        """Return the neurons of each hidden layer of a random start."""
        return min(2 * problem.samples, cls.widest)

    # -- what loop.run asks for

    def init(self, budget: Budget) -> HiddenState:
        """Return the start with its network."""
        weights = self._random_start() if self._start is None else self._start
        Z = preactivations(self.problem, weights)
        Z = Z if self.problem.ridge is None else Z[:-1]
        cost = cost_of(self.problem, weights) if self._start is not None else math.inf
        return self._with_network(HiddenState(Z, weights, cost), self._loss(Z, 0), budget)

    def step(self, state: HiddenState, budget: Budget) -> HiddenState:
        """Descend once, read off the network, and add neurons for the next descent."""
        loss = self._loss(state.Z, state.stage)
        with budget.phase("descent"):
            x = descend(loss, flattened(loss.coordinates(state.Z)), budget.pace(), self.descent)
        new = self._with_network(replace(state, Z=loss.representations(x), stage=state.stage + 1), loss, budget)
        if new.stage == len(self._schedule):
            gains = new.before - new.cost > self.gain * abs(new.cost)
            new = replace(new, stage=self.again, before=new.cost, stalled=0 if gains else new.stalled + 1)
        if new.stage < self.again or budget.spent():
            return new
        with budget.phase("search"):
            return replace(new, Z=self._grown(new, budget))

    def finished(self, state: HiddenState) -> Status | None:
        """Return CONVERGED after `patience` rounds without gain."""
        return Status.CONVERGED if state.stalled >= self.patience else None

    def progress(self, state: HiddenState, iteration: int, seconds: float) -> Progress:
        """Return the cost and the largest hidden width; this method has no bound."""
        return Progress(iteration, seconds, state.cost, None, max(len(W) for W in state.weights[:-1]))

    # -- the parts of a step

    def _loss(self, Z: list[Float[Tensor, "N _"]], stage: int) -> TikhonovLoss:
        return TikhonovLoss(self.problem, self._first, Z, *self._schedule[stage])

    def _with_network(self, state: HiddenState, loss: TikhonovLoss, budget: Budget) -> HiddenState:
        """Return the state with the network of its Z where that costs less than the best one before."""
        for weights in self._networks(state.Z, loss, budget):
            cost = cost_of(self.problem, weights)
            if cost < state.cost:
                state = replace(state, weights=weights, cost=cost)
        return state

    def _networks(self, Z: list[Float[Tensor, "N _"]], loss: TikhonovLoss, budget: Budget) -> list[list[Tensor]]:
        """Return the network of ridge weights, with and without faint neurons; for exact fits, the nearest that fit."""
        problem, weights, Zs = self.problem, list[Tensor](), self.problem.Xt
        rules = [RankRule(), *(RankRule(tikhonov=float(own.min())) for own in loss.own)]
        for layer, (target, rule) in enumerate(zip([Z[0], *loss.targets(Z)], rules, strict=True), start=1):
            if layer == problem.depth and problem.ridge:
                rule, Zs, target = RankRule(tikhonov=problem.ridge), problem.weighted(Zs), problem.weighted(target)
            weights.append(factorize(Zs, rule).solve(target).mT)
            if layer < problem.depth:
                Zs = problem.appended(Zs @ weights[-1].mT, layer)
        if problem.ridge != 0.0:
            least = self.faint * flattened(weights).square().sum()
            strong = [torch.where(W.square().sum(dim=1, keepdim=True) > least, W, 0.0) for W in weights[:-1]]
            return [weights, [*strong, weights[-1]]]
        stop = budget.pace()
        return [nearest_fit(problem, start, stop) for start in (weights, fit_exactly(problem, weights))]

    def _grown(self, state: HiddenState, budget: Budget) -> list[Float[Tensor, "N _"]]:
        """Return Z with missing neurons in place of dead ones."""
        Z, loss = state.Z, self._loss(state.Z, state.stage)
        V, grown = loss.coordinates(Z), list(Z)
        for layer, (target, own) in enumerate(zip(loss.targets(Z), loss.own, strict=True), start=1):
            base, sizes = loss.bases[layer - 1], V[layer - 1].square().sum(dim=0)
            alive = sizes > self.dead * torch.cat([sizes, sizes.new_zeros(1)]).max()
            room = self.neurons if self._width is None else min(self.neurons, self._width - int(alive.sum()))
            if room <= 0 or not target.shape[1]:
                continue
            Zs = self.problem.appended(Z[layer - 1], layer)
            A = torch.linalg.solve(Zs @ Zs.mT + torch.diag(own[:, 0]), target)
            search = ConvexConcaveOracle(base, self.problem.activation, self.ascent)
            seed = int(torch.randint(2**31, (), generator=self._generator, device=self.problem.X.device))
            starts = Starts(base, seed).around(V[layer - 1][:, alive].mT, A, self.starts)
            answer = search(A, starts, stop=budget.pace())
            directions = answer.directions[answer.values > 1.0][:room]
            size = math.sqrt(self.strength * float(sizes[alive].mean())) if bool(alive.any()) else 1.0
            places = int(alive.sum()) + len(directions)
            dead = Z[layer - 1][:, ~alive][:, : max(0, (self._width or 0) - places)]
            grown[layer - 1] = torch.cat([Z[layer - 1][:, alive], base @ (size * directions.mT), dead], dim=1)
        return grown

    def _random_start(self) -> list[Tensor]:
        """Return a network of small Gaussian weights."""
        problem = self.problem
        width, X = self._width or self.first_width(problem), problem.X
        scale = math.sqrt(2.0) * self.scale ** (1.0 / (problem.depth - 1))
        drawn = partial(torch.randn, generator=self._generator, dtype=X.dtype, device=X.device)
        return [scale / math.sqrt(d) * drawn(n, d) for n, d in problem.shapes([width] * (problem.depth - 1))]
