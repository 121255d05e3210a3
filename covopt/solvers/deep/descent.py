"""Let the networks of a deep search descend: on a penalised loss, or to an exact fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from covopt.linalg.psd import thin
from covopt.model.problem import Problem
from covopt.model.weights import Weights, evaluate, inputs_of
from covopt.runtime.loop import Budget, Stop
from covopt.solvers.deep.corrective import CorrectiveRounds
from covopt.solvers.deep.exploration import Exploration, Report
from covopt.solvers.deep.pruning import balanced, reduced, widened
from covopt.solvers.training.batch import KERNELS, work
from covopt.solvers.training.exact_fit import explored_problem, fit_exactly, nearest_fit
from covopt.solvers.training.homotopy import POLISHING, SHIFTING, HomotopyOptions, descend
from covopt.solvers.training.kinks import NewtonAtKinks, suits
from covopt.solvers.training.tangent import exact_fit, gauss_newton, nearby_fit

Networks = list[list[Tensor]]

PASS = HomotopyOptions(factors=(0.0,), slow=1e-6, window=100, memory=20)
"""A pass: L-BFGS until 100 turns gain less than 1e-6 of the loss."""
SHORT = HomotopyOptions(factors=(0.0,), slow=1e-4, window=30, memory=20, iterations=1000)  # a short descent


class Descent:
    """Descents of a penalised loss; no hidden layer gets wider than `widest`."""

    deepened_first = False  # True if deepened networks descend before random starts are drawn
    widens = True  # True if copies with more neurons descend besides
    moves_in_turn = True  # True if the layers of the best network move in turn
    rounds = CorrectiveRounds()  # from small networks
    promising = 1e-3  # no rounds from networks that cost more than the best by this part
    # the maximum time of the rounds after a descent, relative to the time before; 0.3: teachers take twice as long
    rounds_share = 1.0
    # the maximum number of multiplications of a Newton step: for each second of the time limit, and at any time limit
    work_per_second, most_work = 1e7, 3e9

    def __init__(self, problem: Problem, seed: int, widest: int | None = None) -> None:
        self.problem, self._widest, self._seed = problem, widest, seed
        self.generator = torch.Generator(device=problem.X.device).manual_seed(seed)
        self.on_network: Callable[[list[Tensor]], None] = lambda _: None  # receives networks of an unfinished descent

    @cached_property
    def smooth(self) -> Problem:
        """Return the problem whose loss random starts descend."""
        return explored_problem(self.problem)

    def descend(self, networks: Networks, options: HomotopyOptions, budget: Budget) -> Networks:
        """Descend from these networks, down to the kinks."""
        return descend(self.problem, networks, options, budget.pace(), self.on_network)

    def at_fixed_widths(self, weights: list[Tensor], stop: Stop) -> list[Tensor]:
        """Descend from a network that gets no neurons besides."""
        return self._settled(descend(self.problem, [weights], POLISHING, stop)[0], stop)

    def briefly(self, starts: Networks, generator: torch.Generator, stop: Stop) -> Networks:
        """Return what short descents make of these and of a few random networks; nothing for large ones."""
        problem, widest = self.problem, min(10, self._widest or 10)
        widths = [widest] * (problem.depth - 1)
        if work(problem, widths) > 1e5:  # multiplications for one gradient
            return []
        draws = [
            [size * torch.randn(shape, generator=generator, dtype=torch.float64) for shape in problem.shapes(widths)]
            for size in (0.3, 1.0, 0.1, 2.0, 0.5, 1.0)  # standard deviations
        ]
        return descend(problem, [*([W.to(problem.X) for W in draw] for draw in draws), *starts], SHORT, stop)

    def further(
        self, networks: Sequence[Weights], stop: Stop, options: HomotopyOptions = PASS, passes: int = 10
    ) -> tuple[Networks, bool]:
        """Fine-tune all these networks together; their widths stay, and for `interpolate` they have to fit.

        Training ends near kinks, z_i = 0 for some samples, about which Adam hovers: the gradient there is large, and
        yet little is to be gained. So what is left is measured and not read off the gradient: L-BFGS on the loss
        itself, kinks and all, begun again without its memory until that gains nothing; then, on small networks, Newton
        steps that stay on kinks. Descents through rounded kinks (homotopy.py) would end lower, but elsewhere: they
        leave local minima, which training does not.

        Return networks, each at no higher cost than its start (without a gain the start itself, bit for bit), and
        whether the descent stalled before it was stopped.
        """
        problem, current = self.problem, [list(weights) for weights in networks]
        costs = [evaluate(problem, weights).total for weights in current]
        going, stalled = [*range(len(current))], False
        for _ in range(passes):
            if stop() or not going:
                break
            starts = [min(current[k], balanced(current[k]), key=self._total) for k in going]
            descended = descend(problem, starts, options, stop)
            falling = []
            for k, weights in zip(going, descended, strict=True):
                cost = evaluate(problem, weights).total
                if cost < costs[k]:
                    falling += [k] if costs[k] - cost > 1e-4 * costs[k] else []
                    current[k], costs[k] = weights, cost
            going = falling
            stalled = not going
        return [self._settled(weights, stop) for weights in current], stalled and not stop()

    def with_wider(self, weights: list[Tensor], widening: Sequence[tuple[float, float]]) -> Networks:
        """Return the network, and a copy for each part of its widths and strength; exact fits widen by themselves."""
        networks = [weights]
        for part, strength in widening if self.widens else ():
            more = [math.ceil(part * len(W)) for W in weights[:-1]]
            networks.append(widened(weights, more, strength, self.generator, self._widest))
        return networks

    def wide_enough(self, weights: list[Tensor], widening: Sequence[tuple[float, float]]) -> list[Tensor]:
        """Return the network, or a wider copy if it has fewer weights than targets and more loss than penalty.

        After 6 s, noise in ten outputs costs 81 % less with 579 samples, and 66 % less with 789.
        """
        cost = evaluate(self.smooth, weights)
        short = sum(W.numel() for W in weights) < self.problem.Y.numel() and 2.0 * cost.fit > cost.total
        return self.with_wider(weights, widening if short else ())[-1]

    def fine_tuned(
        self, exploration: Exploration, networks: Networks, budget: Budget, report: Report | None = None
    ) -> Networks:
        """Return what Adam makes of these networks, where L-BFGS stops at kinks."""
        return exploration.fine_tune(self.problem, networks, budget, report)

    def corrected(self, networks: Networks, cost: float, budget: Budget) -> Iterator[list[Tensor]]:
        """Yield these networks, and what corrective rounds make of the small ones that cost about `cost` or less."""
        limit = min(budget.time_limit, (1.0 + self.rounds_share) * budget.seconds())
        within, work = replace(budget, time_limit=limit), min(self.work_per_second * budget.time_limit, self.most_work)
        for weights in networks:
            yield weights
            own = self.cost(weights)
            if within.spent() or not own < (1.0 + self.promising) * cost:
                continue
            cost, smaller = min(cost, own), reduced(self.problem, weights, within.pace())
            if suits(self.problem, smaller, work):
                yield from self.rounds.lowered(self.problem, smaller, self._widest, self._seed, within.pace())

    def completed(self, weights: list[Tensor]) -> list[Tensor]:
        """Return an explored network as one of the problem."""
        return weights

    def nearest(self, weights: list[Tensor], stop: Stop) -> list[Tensor]:
        """Return the nearest network that the problem admits."""
        return weights

    def cost(self, weights: Weights) -> float:
        """Return the cost; infinity where it is not finite."""
        cost = evaluate(self.problem, weights).total
        return cost if math.isfinite(cost) else math.inf

    def refitted(self, weights: list[Tensor]) -> list[Tensor]:
        """Return a network that got a neuron, with outputs for it."""
        return weights

    def _settled(self, weights: list[Tensor], stop: Stop) -> list[Tensor]:
        """Return the network after Newton steps that hold neurons on kinks, if these take little time."""
        work = 1e9  # multiplications of a step, at most: a tenth of a second
        if stop() or not suits(self.problem, weights, work):
            return weights
        settled = NewtonAtKinks().settled(self.problem, weights, stop)
        return settled.weights if settled.cost < self.cost(weights) else weights

    def _total(self, weights: Weights) -> float:
        return evaluate(self.problem, weights).total


class ExactDescent(Descent):
    """Descents with a falling penalty, which end in an exact fit and widen the network by themselves.

    A start that fits exactly is a corner: descents along the exact fits barely move from it. Wider by some random
    neurons and with a penalty, it moves far; as the penalty falls, tenfold each time, it comes back to a fit that is
    exact but for a little, which Newton steps (tangent.py) remove. A penalty leaves no more neurons than it needs, too
    few for a closer fit: before each descent the network is widened again (docs/notes/2026-11-depth.md). The method of
    multipliers takes eight times as long, and the squared norms are the same within 3e-5.
    """

    deepened_first, widens, moves_in_turn = True, False, False
    # Penalties of the Gauss-Newton descents, relative to the explored problem's. With them there is an exact fit of 60
    # points by four layers after 7 s, without them after 15 s (docs/notes/2026-11-exact-fits.md).
    penalties = (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4)
    most_targets = 500  # numbers in Y, at most, for these descents; with them 100 digits end 28 % higher after 20 s

    def descend(self, networks: Networks, options: HomotopyOptions, budget: Budget) -> Networks:
        """Descend from these networks, as many at a time as take little longer than one."""
        size = max(1, int(KERNELS / max(work(self.problem, [len(W) for W in weights[:-1]]) for weights in networks)))
        parts = [networks[k : k + size] for k in range(0, len(networks), size)]
        return [fitted for part in parts for fitted in self._descended(part, options, budget.pace())]

    def at_fixed_widths(self, weights: list[Tensor], stop: Stop) -> list[Tensor]:
        """Descend with a falling penalty, each time followed by an exact fit."""
        best: list[Tensor] | None = None
        for part in (1.0, 0.1, 1e-2, 1e-3):
            eased = replace(self.smooth, lam=part * self.smooth.lam)
            weights = descend(eased, [weights], POLISHING if part == 1.0 else SHIFTING, stop)[0]
            fitted = exact_fit(self.problem, weights, stop)
            if fitted is not None:
                best = self._lighter(fitted, best)
            if stop():
                break
        return nearest_fit(self.problem, weights, stop) if best is None else best

    def briefly(self, starts: Networks, generator: torch.Generator, stop: Stop) -> Networks:
        """Return nothing: short descents of a loss end at no exact fit."""
        return []

    def further(
        self, networks: Sequence[Weights], stop: Stop, options: HomotopyOptions = PASS, passes: int = 10
    ) -> tuple[Networks, bool]:
        """Return exact fits of less |W|^2 by falling penalties, or the given ones."""
        return [self._shorter(list(weights), stop) for weights in networks], not stop()

    def fine_tuned(
        self, exploration: Exploration, networks: Sequence[Weights], budget: Budget, report: Report | None = None
    ) -> Networks:
        """Return nothing: Adam leaves the exact fits."""
        return []

    def completed(self, weights: list[Tensor]) -> list[Tensor]:
        """Return the exact fit with these hidden layers."""
        return fit_exactly(self.problem, weights)

    def nearest(self, weights: list[Tensor], stop: Stop) -> list[Tensor]:
        """Change all layers as little as possible for F = Y."""
        return nearest_fit(self.problem, weights, stop)

    def cost(self, weights: Weights) -> float:
        """Return the squared norm, with a charge for the misfit, infinite where it is too large."""
        cost = evaluate(self.problem, weights)
        misfit = cost.residual / max(1e-300, float(self.problem.Y.abs().max()))
        # A generous multiple, so that of two exact fits the looser one never wins by its looseness.
        return cost.total * (1.0 + 10.0 * misfit) if self.problem.allows(cost.residual) else math.inf

    def refitted(self, weights: list[Tensor]) -> list[Tensor]:
        """Return the network with the smallest W_L for which Z_L = Y."""
        return [*weights[:-1], thin(inputs_of(self.problem, weights, self.problem.depth)).solve(self.problem.Y).T]

    def _descended(self, networks: Networks, first: HomotopyOptions, stop: Stop) -> Networks:
        """Return for each network the exact fit of lowest cost found, or the last network brought nearest to a fit."""
        current, best, going = list(networks), dict[int, list[Tensor]](), [*range(len(networks))]
        # The penalties, relative to the explored problem's; the neurons that each layer gets before the descent with
        # each, and their relative strength; and what makes a fit after it, at first just to have one in time.
        for part, more, strength, fit in (
            (1.0, 12, 0.3, self._fit_by_gauss_newton),
            (0.1, 6, 0.1, nearby_fit),
            (1e-2, 6, 0.1, exact_fit),
            (1e-3, 6, 0.1, exact_fit),
        ):
            eased, numbers = replace(self.smooth, lam=part * self.smooth.lam), [more] * (self.problem.depth - 1)
            wider = [widened(current[k], numbers, strength, self.generator, self._widest) for k in going]
            descended = descend(eased, wider, first if part == 1.0 else SHIFTING, stop)
            for k, weights in zip(going, descended, strict=True):
                current[k] = reduced(eased, weights)
                fitted = fit(self.problem, current[k], stop)
                if fitted is not None:
                    best[k] = self._lighter(reduced(self.problem, fitted), best.get(k))
                    self.on_network(best[k])
            going = [k for k in going if k not in best or part > 1e-2]
            if stop() or not going:
                break
        ended = range(len(networks))
        return [best[k] if k in best else nearest_fit(self.problem, self.completed(current[k]), stop) for k in ended]

    def _fit_by_gauss_newton(self, problem: Problem, weights: list[Tensor], stop: Stop) -> list[Tensor] | None:
        """Lower the penalty in Gauss-Newton descents; return the exact fit of least |W|^2 near one of their ends.

        Return None if there is none, or if `problem` has more than `most_targets` numbers in Y.
        """
        best: list[Tensor] | None = None
        for part in self.penalties if problem.Y.numel() <= self.most_targets else ():
            eased = replace(self.smooth, lam=part * self.smooth.lam)
            wider = widened(weights, [6] * (problem.depth - 1), 0.1, self.generator, self._widest)
            weights = reduced(eased, gauss_newton(eased, wider, stop))
            fitted = nearby_fit(problem, weights, stop)
            if fitted is not None:
                best = self._lighter(fitted, best)
                self.on_network(best)
            if stop():
                break
        return best

    def _lighter(self, weights: list[Tensor], best: list[Tensor] | None) -> list[Tensor]:
        """Return the exact fit of less |W|^2."""
        return weights if best is None or self._total(weights) < self._total(best) else best

    def _shorter(self, weights: list[Tensor], stop: Stop) -> list[Tensor]:
        problem, shortest = self.problem, weights
        for fitted in (self.completed(balanced(weights)), self.at_fixed_widths(weights, stop)):
            if problem.allows(evaluate(problem, fitted).residual):
                shortest = self._lighter(fitted, shortest)
        return shortest


def descent_for(problem: Problem, seed: int = 0, widest: int | None = None) -> Descent:
    """Return the descents that suit the loss."""
    return (ExactDescent if problem.interpolates else Descent)(problem, seed, widest)
