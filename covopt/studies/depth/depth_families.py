"""Search the network of lowest cost at each depth with a hidden layer of at most k neurons.

Each rank has a curve of its own, which for large depths grows by k a layer; the lowest of them is the curve of all
networks, whose slope therefore falls in steps [J23b, Figure 1]. The networks come from the search of the curve
(depth_search.py), and from two constructions:

* **outer layers first**: random networks of depth 4 with widths (n, k, n) descend and get identity layers at the k
  neurons (solvers/deep/starts.py); at two and three layers, random networks with k neurons in one of them;
* **one neuron**: the inputs on a line, t = w . x, the solution of two layers for t, and identity layers between. With a
  bias it fits all data that can be fitted.

Source: Jacot, Implicit Bias of Large Depth Networks (2023), Theorem 1: the upper bound is this construction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.units import Units, at_depth
from covopt.runtime.loop import Budget
from covopt.solvers.deep.descent import descent_for
from covopt.solvers.deep.exploration import usual_width
from covopt.solvers.deep.insertion import at_place, in_balance
from covopt.solvers.deep.pruning import balanced
from covopt.solvers.deep.starts import ENDS, MIDDLE, ends_first
from covopt.solvers.incumbent import cost_of
from covopt.solvers.options import SolveOptions
from covopt.solvers.shallow.alternation import Alternation
from covopt.solvers.training.exact_fit import explored_problem
from covopt.solvers.training.homotopy import REFINING, descend
from covopt.solvers.training.trainer import initial
from covopt.studies.depth.depth_search import DepthSearch

# Random starts at two and three layers; networks that descend at one depth.
DRAWN, TRIED = 4, 2
# Rounds of two layers for the inputs on a line.
ROUNDS = 20
# Maximum number of samples on a line that are joined by straight lines, one neuron each.
JOINED = 300
ON_LINE = "the inputs on a line"


class FamilySearch:
    """The families of a search, each with its share of the time; they share the networks of the curve."""

    def __init__(self, search: DepthSearch, seed: int) -> None:
        self._search, self._seed = search, seed

    def begin(self, ranks: Sequence[int]) -> None:
        """Take the narrow networks of the curve, and those that join targets along a line."""
        search = self._search
        for rank in ranks:
            search.families.setdefault(rank, {})
        for depth, result in search.best.items():
            search.offer(depth, result.weights, search.sources[depth])
        for line, w in self._lined():
            if any(search.families.values()) and search.budget.spent():
                return
            if (joined := _joined(line)) is not None:
                for depth, weights in self._on_line(line, joined, w):
                    search.offer(depth, weights, ON_LINE)
        self._pass_on()

    def run(self, ranks: Sequence[int], budget: Budget) -> None:
        """Fill the families that `begin` made, from the lowest rank up, within the budget of all of them."""
        search = self._search
        for rank, own in budget.turns(ranks):
            if budget.spent():
                break
            search.announce(f"networks with a hidden layer of {rank}")
            self._descend(rank, own)
            for depth, weights in self._lines(own) if rank == 1 else ():
                search.offer(depth, weights, ON_LINE)
        self._pass_on()

    def _descend(self, rank: int, budget: Budget) -> None:
        """Descend at every depth from networks built outer layers first, and from the best ones."""
        search = self._search
        shorts = self._ends(rank, budget) if max(search.depths) >= ENDS else []
        starts: dict[int, list[list[Tensor]]] = {}
        for depth in search.depths:
            units = Units.of(search.problems[depth])
            short = at_depth(units.problem, ENDS)
            built = [deep for net in shorts if depth >= ENDS for deep in at_place(short, net, units.problem, MIDDLE)]
            starts[depth] = [net for net in built if min(len(W) for W in net[:-1]) <= rank]
            for net in starts[depth]:
                search.offer(depth, units.outward(net), f"rank {rank}")
        for depth in search.depths:
            if budget.spent():
                return
            units = Units.of(search.problems[depth])
            smooth = explored_problem(units.problem)
            member = search.families[rank].get(depth)
            begun = starts[depth] + (self._drawn(rank, smooth, budget) if depth < ENDS else [])
            begun += [] if member is None else [units.inward(member.weights)]
            for start in sorted(begun, key=lambda net: cost_of(smooth, net))[:TRIED]:
                if not budget.spent():
                    ended = descent_for(units.problem, self._seed).at_fixed_widths(start, budget.pace())
                    search.offer(depth, units.outward(ended), f"rank {rank}")
            self._pass_on()

    def _ends(self, rank: int, budget: Budget) -> list[list[Tensor]]:
        """Return networks of depth 4 with `rank` neurons in the middle, in their own units."""
        search = self._search
        units = Units.of(next(p for d, p in search.problems.items() if d >= ENDS and d in search.depths))
        width = usual_width(units.problem.samples, units.problem.Y.shape[1])
        built = ends_first(at_depth(units.problem, ENDS), [rank], width, self._seed, budget.pace())
        return [start.weights for start in built[:TRIED]]

    def _drawn(self, rank: int, smooth: Problem, budget: Budget) -> list[list[Tensor]]:
        """Return random networks of two or three layers after a descent."""
        width = usual_width(smooth.samples, smooth.Y.shape[1])
        shapes = [[rank]] if smooth.depth == 2 else [[rank, width], [width, rank]]
        draws = [initial(smooth, shapes[k % len(shapes)], self._seed + k, 1.0) for k in range(DRAWN)]
        networks = []
        for shape in shapes:
            same = [net for net in draws if [len(W) for W in net[:-1]] == shape]
            networks += descend(smooth, same, REFINING, budget.pace()) if same else []
        return networks

    def _lines(self, budget: Budget) -> Iterator[tuple[int, list[Tensor]]]:
        """Yield (depth, W_1 ... W_L in the user's units) of solutions for the inputs on a line."""
        for line, w in self._lined():
            if budget.spent():
                return
            options = SolveOptions(replace(budget, max_iterations=ROUNDS), certify="none", seed=self._seed)
            yield from self._on_line(line, Alternation(line, options).solve().weights, w)

    def _lined(self) -> Iterator[tuple[Problem, Float[Tensor, " n"]]]:
        """Yield the two-layer problem in t = w . x, and w; none without bias, which shifts t."""
        some = self._search.problems[max(self._search.depths)]
        if some.beta == 0.0 or some.activation.is_linear:
            return
        two = at_depth(Units.of(some).problem, 2)
        for w in _directions(two, self._seed):
            yield replace(two, X=(two.X @ w)[:, None]), w

    def _on_line(
        self, line: Problem, shallow: list[Tensor], w: Float[Tensor, " n"]
    ) -> Iterator[tuple[int, list[Tensor]]]:
        """Yield a network of two layers in t = w . x at each larger depth."""
        for depth in [depth for depth in self._search.depths if depth > 2]:
            units = Units.of(self._search.problems[depth])
            deep = replace(units.problem, X=line.X)
            for net in at_place(replace(line, fits=deep.fits), shallow, deep, 0):
                first = torch.cat([net[0][:, :1] * w, net[0][:, 1:]], dim=1)
                yield depth, units.outward(in_balance([first, *net[1:]]))

    def _pass_on(self) -> None:
        """Pass each family's networks to the larger depths, through the narrow layer."""
        search = self._search
        for members in list(search.families.values()):
            for low, high in zip(search.depths, search.depths[1:], strict=False):
                if low in members and not search.budget.spent():
                    for net in search.inserted(low, members[low].weights, high):
                        search.offer(high, net, f"inserted into depth {low}")


def _joined(line: Problem) -> list[Tensor] | None:
    """Join few targets along t by straight lines of ReLU; None for other activations."""
    t, firsts = np.unique(line.X[:, 0].cpu().numpy(), return_index=True)
    if not 2 <= len(t) <= JOINED or line.activation.slope != 0.0:
        return None
    Y = line.Y[torch.from_numpy(firsts)]
    slopes = (Y[1:] - Y[:-1]) / torch.from_numpy(np.diff(t)).to(Y)[:, None]
    bends = torch.cat([slopes[:1], slopes[1:] - slopes[:-1]])
    starts = torch.from_numpy(t[:-1]).to(Y)[:, None]
    into = torch.cat([torch.ones_like(starts), -starts / line.bias(0)], dim=1)
    out = torch.cat([bends.T, Y[:1].T / line.bias(1)], dim=1)
    return balanced([into, out]) if bool(torch.isfinite(out).all()) else None


def _directions(problem: Problem, seed: int) -> list[Float[Tensor, " n"]]:
    """Return unit vectors that project the inputs onto lines.

    They are a random one, which separates all inputs, the best linear fit of the targets, and the widest direction of
    the inputs, if these exist.
    """
    X, Y = (values - values.mean(dim=0) for values in (problem.X, problem.Y))
    directions = [torch.randn(X.shape[1], generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(X)]
    if bool(X.any()) and bool(Y.any()):
        first = torch.linalg.svd(Y, full_matrices=False)
        # On a GPU there is no driver for matrices of deficient rank.
        linear = torch.linalg.lstsq(X.cpu(), first.U[:, :1].cpu(), driver="gelsd").solution[:, 0].to(X)
        directions += [linear, torch.linalg.svd(X).Vh[0]]
    return [w / w.norm() for w in directions if bool(torch.isfinite(w).all()) and float(w.norm()) > 0.0]
