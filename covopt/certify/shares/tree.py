"""Branch and bound over cells of shares, best first (MATH.md section 5).

A cell is cut where the neurons of the first layer disagree most on the shares: in the network that the programme's
multipliers describe, each of them has shares of its own, by its paths. The cut is at their mean. Of the few cuts with
the largest disagreement the one is taken whose halves' bounds rise the most, with the disagreement as a weight.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float, Int

from covopt.certify.shares.cells import INTERVAL, SCALE, Cell, Cut
from covopt.certify.shares.prices import Instance, Prices
from covopt.certify.shares.programme import EITHER, ON, Held, Paths, Programme
from covopt.runtime.loop import Stop

CUTS, LIKELY, ENOUGH = 4, 0.3, 0.5
"""Cuts that are tried at most; with this part of the largest disagreement; none after one that gains this part."""


@dataclass
class Node:
    """A cell, the best prices that are known for it, and its halves if it was cut."""

    cell: Cell
    bound: float  # the bound that its prices prove, at least that of its parent
    prices: Prices  # its own, or those of the cell it came from
    paths: Paths | None = None  # the network of its programme; None if that was not solved, or the cell is cut
    held: Held | None = None  # the rows of its programme that its halves begin with; None like `paths`
    cut: Cut | None = None  # where it was cut
    halves: tuple[Node, ...] = ()

    def preorder(self) -> Iterator[Node]:
        """Yield this node, then those below it."""
        yield self
        for half in self.halves:
            yield from half.preorder()


@dataclass
class Search:
    """The search for a proof."""

    instance: Instance
    precision: float  # the relative accuracy of a cell's prices
    worth: float  # end where twice the nodes would take less than this part off what the bound lacks; 0: never
    most: int  # nodes at most
    # takes the network of the lowest bound, at the start, and again after four times the nodes and at least `between`
    # rows of programmes for each sample and each of its calls, as long as a call takes with 2 to 5 samples (1 to 2 s);
    # returns the goal
    meet: Callable[[Paths], float] = lambda _: math.inf
    stop: Stop = lambda: False  # end where it returns True
    splits: int = 6  # the maximum number of splits of a cell
    # neurons of the dictionary that programmes held so far
    neurons: Int[np.ndarray, " _"] = field(default_factory=lambda: np.zeros(0, dtype=int))
    rows: int = 0  # the rows of all programmes that were solved so far
    between: int = 20_000

    def __post_init__(self) -> None:
        values = self.instance.atoms.values
        largest = np.argmax(values / np.maximum(values.max(axis=0), 1e-300), axis=1)
        spread = np.arange(0, values.shape[1], max(1, values.shape[1] // 8))
        self.neurons = np.unique(np.concatenate([largest, spread]))

    def run(self, goal: float) -> Node:
        """Return the tree: its least bound is at least `goal` unless it ends before."""
        N, P = len(self.instance.targets), len(self.instance.kinds.signs)
        root, before = self._node(Cell(), Prices(self.instance.targets[:, 0], np.zeros((P, N))), goal), -1.0
        while root.bound > before and not self.stop():  # L often has the signs of Y; where one is wrong, L_i ends at 0
            root, before = self._node(Cell(), root.prices, goal), root.bound * (1.0 + self.precision)
        queue, count, lacks, due, met, calls = [(root.bound, 0, root)], 1, math.inf, 256, 0, 0
        while queue[0][0] < goal and not self.stop():
            node = queue[0][2]
            if count >= 4 * met and self.rows >= calls * N * self.between and node.paths is not None:
                goal, met, calls = min(goal, self.meet(node.paths)), count, calls + 1
                continue
            if count >= self.most:
                break
            if count >= due:
                if goal - queue[0][0] > (1.0 - self.worth) * lacks and self.worth:
                    break
                lacks, due = goal - queue[0][0], 2 * due
            if not self._halve(node, goal):
                break
            heapq.heappop(queue)
            for half in node.halves:
                heapq.heappush(queue, (half.bound, count, half))
                count += 1
        return root

    def _halve(self, node: Node, goal: float) -> bool:
        """Cut a node where its halves' bounds rise and neurons disagree the most; return False if it has no cut."""
        most, room = 0.0, goal - node.bound
        for score, cut in self._cuts(node, goal):
            cells = node.cell.halves(cut)
            if cells is None or (most and self.stop()):
                continue
            halves = tuple(self._node(cell, node.prices, goal, node.held) for cell in cells)
            gains = [min(max((half.bound - node.bound) / room, 1e-4), 1.0) for half in halves]
            gain = float(gains[0] * gains[1] * score)
            if gain > most:
                most, node.cut, node.halves = gain, cut, halves
            if gain > ENOUGH**2:
                break
        if most:
            node.paths = node.held = None
        return most > 0.0

    # -- the prices of a cell -----------------------------------------------------------------------------------

    def _scale(self, cell: Cell) -> float:
        low, high = cell.scale
        return 1.0 if math.isinf(high) else math.sqrt(low * high) if low > 0.0 else high

    def _node(self, cell: Cell, prices: Prices, goal: float, held: Held | None = None) -> Node:
        """Return a cell with the best prices of its own, or those of the cell that it came from."""
        node = Node(cell, self.instance.value(cell, prices), prices)
        if node.bound >= goal:
            return node
        programme = Programme(self.instance, cell, prices, self._scale(cell), 0.1 * self.precision)
        if held is None:
            programme.steep[:, :, [*self.neurons, -1]] = programme.cones[:, [*self.neurons, -1]] = True
        else:
            programme.inherit(held, self.neurons)
        for _ in range(12):
            own = programme.solve()
            self.rows += int(programme.steep.sum())
            if own is None:
                break
            bound = self.instance.value(cell, own)
            unproved = math.isinf(cell.scale[1]) and not self.instance.is_homogeneous  # by any prices
            if bound > node.bound or unproved:
                node.bound, node.prices = bound, own
            lacks = 0.0 if math.isinf(goal) else min(0.1, 1.0 - node.bound / goal)  # where it is large, a cut follows
            if node.bound >= goal or not programme.extend(max(self.precision, 0.1 * lacks)) or self.stop():
                break
        node.paths, node.held = Paths(programme.merged, programme.weights), programme.tight()
        self.neurons = np.union1d(self.neurons, np.flatnonzero(programme.cones[:, :-1].any(axis=0)))
        return node

    # -- where a cell is cut ------------------------------------------------------------------------------------

    def _cuts(self, node: Node, goal: float) -> list[tuple[float, Cut]]:
        """Return the cuts that settle the largest disagreements, with their parts of the largest, which comes first."""
        cell, (low, high) = node.cell, node.cell.scale
        if not self.instance.is_homogeneous:
            if math.isinf(high):
                return [(1.0, Cut(0, SCALE, goal))]
            middle = self._scale(cell)
            near = replace(cell, scale=(middle * (1.0 - 1e-9), middle * (1.0 + 1e-9)))
            if low == 0.0 or self.instance.value(near, node.prices) - node.bound > 0.3 * (goal - node.bound):
                return [(1.0, Cut(0, SCALE, 0.25 * high if low == 0.0 else middle))]
        if node.paths is not None:
            cuts = [*self._interval_cuts(cell, node.paths), *self._new_splits(cell, node.paths)]
            cuts = sorted(cuts, key=lambda scored: -scored[0])[:CUTS]
            likely = [(score / cuts[0][0], cut) for score, cut in cuts if score > LIKELY * cuts[0][0]]
            if likely:
                return likely
        widest = max(cell.splits, key=lambda split: split.high - split.low, default=None)
        if widest is None or widest.high - widest.low < 1e-6:
            return []
        return [(1.0, Cut(cell.splits.index(widest), INTERVAL, 0.5 * (widest.low + widest.high)))]

    def _interval_cuts(self, cell: Cell, paths: Paths) -> Iterator[tuple[float, Cut]]:
        """Yield cuts of the intervals so far, with the disagreement on them."""
        labels, weights = paths.merged.labels, np.abs(paths.weights)
        for k, split in enumerate(cell.splits):
            if split.high - split.low < 1e-3:
                continue
            new, both = cell.below(k)
            parts, shares = _parts(weights, np.isin(labels, new), np.isin(labels, both))
            mean, spread = _mean_and_spread(np.clip(parts, split.low, split.high), shares)
            margin = 0.15 * (split.high - split.low)
            yield spread, Cut(k, INTERVAL, float(np.clip(mean, split.low + margin, split.high - margin)))

    def _new_splits(self, cell: Cell, paths: Paths) -> Iterator[tuple[float, Cut]]:
        """Yield divisions of the classes so far, with the disagreement on the new ones' shares."""
        if len(cell.splits) >= self.splits:
            return
        merged, weights = paths.merged, np.abs(paths.weights)
        S = self.instance.atoms.values
        values = paths.weights @ np.vstack([S.T, np.full(len(S), self.instance.hidden_bias)])
        states = np.where(merged.states == EITHER, values > 0.0, merged.states == ON)
        features = np.vstack([merged.signs > 0.0, states.T])
        border = np.abs(values) < 1e-3 * np.abs(values).max(axis=1, keepdims=True)
        for place, feature in itertools.product(range(cell.classes), range(len(features))):
            own, has = merged.labels == place, features[feature]
            if not (own & has).any() or not (own & ~has).any():
                continue
            mean, spread = _mean_and_spread(*_parts(weights, own & has, own))
            # Neurons on the border of the feature may change sides at no cost.
            loose = weights[own & border[:, feature - 1]].sum() / (weights[own].sum() + 1e-12) if feature else 0.0
            # 0.7: a split has one more class, whose programmes take longer.
            yield 0.7 * spread * (1.0 - loose), Cut(place, feature, float(np.clip(mean, 0.2, 0.8)))


def _parts(weights: Float[np.ndarray, "R J"], new: np.ndarray, both: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the part of each first-layer neuron's paths that some kinds have, and the weight of the neuron in it."""
    total, paths = weights.sum(axis=0) + 1e-12, weights[both].sum(axis=0)
    return weights[new].sum(axis=0) / (paths + 1e-12), paths / total.sum()


def _mean_and_spread(parts: np.ndarray, shares: np.ndarray) -> tuple[float, float]:
    mean = float((shares * parts).sum() / (shares.sum() + 1e-12))
    return mean, float((shares * np.abs(parts - mean)).sum())
