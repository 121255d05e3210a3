"""The minimum cost of three layers on a few samples, by a tree over the shares of hidden neurons (MATH.md section 5).

The neurons of the second hidden layer are of finitely many kinds (`cells`), and prices of their outputs bound what
every network costs whose kinds have shares of |W_3|^2 in one cell (`prices`). A tree cuts the set of all shares into
cells (`tree`), and the smallest bound of its leaves is that of all networks. It closes: with a class for each kind and
a single point of shares the bound is the minimum over the networks of these shares.

The evidence is the tree, the prices of its leaves, and the step of the first layer's dictionary, which is made again
from the inputs. The check asks no solver: it takes the cuts one after the other, so that the cells cover all networks
whatever the arrays hold, and moves the prices to where they are valid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int

from covopt.certify.proof import DeepProof, Proved, Target
from covopt.certify.shares.cells import LEAF, Cell, Cut
from covopt.certify.shares.dictionary import has_dictionary
from covopt.certify.shares.prices import Instance, Prices
from covopt.certify.shares.programme import Paths
from covopt.certify.shares.tree import Node, Search
from covopt.model.loss import Interpolation, MeanSquaredError
from covopt.model.problem import Problem
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Certificate

# Samples at most: there are 510 kinds of neurons on 8, and the prices of a case take 32 kB.
FEW = 8


@dataclass(frozen=True)
class Shares(DeepProof):
    """A bound from a tree over the shares of the hidden neurons."""

    step: float  # the largest angle between neighbours in the dictionary of the first layer
    # of the tree's nodes in preorder: the class or the split that is cut, and the feature, or what else is cut
    # (`cells.Cut`) (n, 2)
    cuts: Int[np.ndarray, "_ _"]
    places: Float[np.ndarray, " _"]  # the places of the cuts (n,)
    multipliers: Float[np.ndarray, "_ _"]  # L of each leaf (l, N)
    prices: Float[np.ndarray, "_ _ _"]  # Z of each leaf, a row for each kind of neuron (l, P, N)

    kind: ClassVar[Certificate] = Certificate.SHARES
    effort: ClassVar[int] = 3
    losses: ClassVar[tuple[type, ...]] = (Interpolation, MeanSquaredError)
    depths: ClassVar[range] = range(3, 4)
    missing: ClassVar[str] = "The stored tree is missing or does not fit the data; solve again."

    @classmethod
    def suits(cls, problem: Problem) -> bool:
        """Return True for ReLU networks with one output on few samples of rank 3 at most."""
        few = problem.samples <= FEW and problem.Y.shape[1] == 1 and problem.activation.slope == 0.0
        return few and has_dictionary(problem.Xt if problem.beta else problem.X)

    @classmethod
    def prove(cls, problem: Problem, target: Target, last: Any = None) -> Proved | None:
        """Search for a tree whose bound is within the gap of the cost; the networks that it meets lower the cost."""
        gap = max(target.gap or 1e-4, 1e-6)
        step = min(0.1, max(0.01, math.sqrt(3.0 * gap)))  # the dictionary costs step^2 / 12 of an exact fit's bound
        instance = Instance.of(problem, step)
        directions = np.pad(instance.atoms.directions, ((0, 0), (0, 0 if problem.beta else 1)))

        def meet(paths: Paths) -> float:
            network = [torch.from_numpy(instance.weights * W) for W in paths.network(directions)]
            return aim(target.meet(network) if len(network[0]) else math.inf)

        def aim(cost: float) -> float:
            return cost * (1.0 - 0.99 * gap) / instance.unit

        search = Search(instance, min(1e-3, 0.1 * gap), target.worth, target.steps, meet, target.stop)
        return cls._of(search.run(aim(target.cost)), step).proved(problem)

    @classmethod
    def _of(cls, root: Node, step: float) -> Shares:
        nodes = list(root.preorder())
        cuts = [node.cut or Cut(0, LEAF, 0.0) for node in nodes]
        leaves = [node.prices for node in nodes if node.cut is None]
        return cls(
            0.0,
            step,
            np.array([[cut.place, cut.feature] for cut in cuts]),
            np.array([cut.at for cut in cuts]),
            np.array([leaf.multipliers for leaf in leaves]),
            np.array([leaf.prices for leaf in leaves]),
        )

    def bound(self, problem: Problem) -> float:
        """Return the smallest bound of the tree's leaves."""
        samples, cells = problem.samples, self._leaves(problem.samples)
        shapes = None if cells is None else ((len(cells), samples), (len(cells), 2 * (2**samples - 1), samples))
        if cells is None or (self.multipliers.shape, self.prices.shape) != shapes or not 1e-3 <= self.step <= 1.0:
            raise ProblemError(self.missing)
        if not self.applies(problem):
            return 0.0
        instance = Instance.of(problem, self.step)
        if not math.isfinite(instance.atoms.neglected):
            return 0.0
        leaves = map(Prices, self.multipliers, self.prices)
        least = min(instance.value(cell, leaf) for cell, leaf in zip(cells, leaves, strict=True))
        lower = float(instance.unit * least)
        return lower if math.isfinite(lower) else 0.0

    def _leaves(self, samples: int) -> list[Cell] | None:
        """Return the cells of the leaves, which hold all networks; None if the arrays are no tree."""
        if self.cuts.shape != (len(self.places), 2):
            return None
        leaves, ahead = [], [Cell()]
        for (place, feature), at in zip(self.cuts.tolist(), self.places.tolist(), strict=True):
            halves = ahead[-1].halves(Cut(place, feature, at)) if ahead and feature <= samples else None
            if not ahead or (halves is None and feature != LEAF):
                return None
            cell = ahead.pop()
            if halves is None:
                leaves.append(cell)
            else:
                ahead += halves[::-1]
        return None if ahead else leaves
