"""Branch and bound over the signs of a neuron's pre-activations (MATH.md section 5).

For lambda in R^N and a pre-activation h = h+ - h- of the second layer, both parts at least 0, <lambda, sigma(h)> is
to be bounded. Where lambda_i <= 0, lambda_i sigma(h_i) <= c_i h_i for every c_i in [lambda_i, 0]. Where lambda_i > 0
a node has decided that h_i >= 0, and any c_i >= lambda_i will do; or that h_i <= 0, and any c_i <= 0 will do; or
nothing, and lambda_i sigma(h_i) <= lambda_i h+_i. So <lambda, sigma(h)> <= <c+, h+> - <c-, h->, with c+ = c- = c but
c+_i = lambda_i and c-_i = 0 where nothing is decided. The leaves of a tree that decides one sign after the other hold
every h.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.certify.paths.body import Body
from covopt.certify.paths.boxes import TINY, Boxes, Settled, settle
from covopt.certify.shares.dictionary import CHARGED
from covopt.runtime.loop import Stop

LEAF = -1


@dataclass(frozen=True)
class Tree:
    """Trees of the signs, one for each direction, one after the other."""

    cuts: Int[np.ndarray, " n"]  # the sample whose sign a node decides, or LEAF, in preorder; h_i >= 0 first
    prices: Float[np.ndarray, "l N"]  # c of each leaf

    def leaves(self, directions: int, samples: int) -> tuple[Int[np.ndarray, " l"], Int[np.ndarray, "l N"]] | None:
        """Return the direction of each leaf and the signs that it decided; None if the cuts are no such trees."""
        of, signs, ahead = [], [], [(k, np.zeros(samples, dtype=np.int8)) for k in reversed(range(directions))]
        for cut in self.cuts.tolist():
            if not ahead or not LEAF <= cut < samples:
                return None
            k, decided = ahead.pop()
            if cut == LEAF:
                of.append(k)
                signs.append(decided)
                continue
            halves = decided.copy(), decided.copy()
            halves[0][cut], halves[1][cut] = 1, -1
            ahead += [(k, halves[1]), (k, halves[0])]
        whole = not ahead and self.prices.shape == (len(of), samples)
        return (np.array(of), np.array(signs)) if whole else None

    def parts(self, count: int, directions: int, samples: int) -> list[Tree] | None:
        """Return this number of trees with this number of directions each; None if the cuts are none."""
        if (leaves := self.leaves(count * directions, samples)) is None:
            return None
        ends = np.cumsum(self.cuts == LEAF)
        of = leaves[0] // directions
        parts, first = [], 0
        for k in range(count):
            last = int(np.searchsorted(ends, (of <= k).sum())) + 1
            parts.append(Tree(self.cuts[first:last], self.prices[of == k]))
            first = last
        return parts

    def most(
        self, body: Body, multipliers: Float[np.ndarray, "N m"], directions: Float[np.ndarray, "K m"]
    ) -> tuple[float, Int[np.ndarray, " _"]]:
        """Return an upper bound on <lambda, sigma(h)> over all h of the body and all directions, rounding included.

        It is infinite where the cuts are no trees of the signs. The second array holds neurons of the dictionary of the
        leaves with the largest bounds, the largest first.
        """
        leaves = self.leaves(len(directions), len(multipliers))
        if leaves is None:
            return math.inf, np.zeros(0, dtype=int)
        of, signs = leaves
        lam, c = (directions @ multipliers.T)[of], self.prices.astype(np.float64)
        charged = CHARGED * np.abs(multipliers).sum(axis=1)
        plus, minus = _sides(lam, signs, c)
        above, at = body.reaches(plus, charged)
        below, at_below = body.reaches(minus, charged)
        most, at = np.concatenate([above, below]), np.concatenate([at, at_below])
        return float(most.max(initial=0.0)), at[np.argsort(-most)]


@dataclass(frozen=True)
class Neurons:
    """Neurons of the second layer that a search met."""

    values: Float[np.ndarray, "C N"]  # sigma(h)
    weights: Float[np.ndarray, " C"]  # |m|_1
    biases: Float[np.ndarray, " C"]  # |b|

    def __getitem__(self, rows: np.ndarray) -> Neurons:
        return Neurons(self.values[rows], self.weights[rows], self.biases[rows])

    def with_more(self, other: Neurons) -> Neurons:
        """Return both."""
        pairs = ((getattr(self, name), getattr(other, name)) for name in ("values", "weights", "biases"))
        return Neurons(*(np.concatenate(pair) for pair in pairs))


@dataclass
class Branching:
    """Trees over the signs that bound |Lambda^T sigma(h)| over all neurons, for one Lambda after the other.

    Nodes keep their prices from one Lambda to the next. Only leaves whose prices prove too little get better ones, and
    are halved where these prove too little as well.
    """

    directions: Float[np.ndarray, "K m"]  # of the outputs, a tree for each
    of: Int[np.ndarray, " n"]  # the direction of each node; the root of a tree is its first node
    signs: Int[np.ndarray, "n N"]  # the signs that it decided
    cuts: Int[np.ndarray, " n"]  # the sample whose sign it decides next, or LEAF
    halves: Int[np.ndarray, " n"]  # the first of its two halves, which follow each other; any number for a leaf
    prices: Float[np.ndarray, "n N"]  # c
    batch: int = 256  # leaves that are looked at together

    @staticmethod
    def roots(directions: Float[np.ndarray, "K m"], samples: int) -> Branching:
        """Return trees that have decided nothing."""
        of, signs = np.arange(len(directions)), np.zeros((len(directions), samples), dtype=np.int8)
        return Branching(directions, of, signs, np.full(len(of), LEAF), np.zeros_like(of), np.zeros(signs.shape))

    def refined(self, directions: Float[np.ndarray, "L m"]) -> Branching:
        """Return trees for other directions, each a copy of that of the nearest direction."""
        trees = [np.flatnonzero(self.of == k) for k in (directions @ self.directions.T).argmax(axis=1)]
        sizes, at = np.array([len(nodes) for nodes in trees]), np.concatenate(trees)
        firsts = np.cumsum(sizes) - sizes
        copies = zip(firsts, trees, strict=True)
        halves = [first + np.searchsorted(nodes, self.halves[nodes]) for first, nodes in copies]
        of = np.repeat(np.arange(len(trees)), sizes)
        return Branching(directions, of, self.signs[at], self.cuts[at], np.concatenate(halves), self.prices[at])

    def search(
        self,
        body: Body,
        multipliers: Float[np.ndarray, "N m"],
        goal: float,
        precision: float,
        stop: Stop = lambda: False,
        most: int = 1_000_000,
    ) -> tuple[bool, Neurons]:
        """Improve the trees until they prove the goal, or the largest value that is met, up to the relative precision.

        Return True if they do, and the neurons with the largest values that were met. The goal is the value that no
        neuron should exceed. The search ends earlier where `stop`, called between batches, returns True, and with more
        than `most` nodes.
        """
        slopes, leaves = self.directions @ multipliers.T, np.flatnonzero(self.cuts == LEAF)
        above, best = np.full(len(self.of), -math.inf), 0.0
        largest = Neurons(np.zeros((0, len(multipliers))), np.zeros(0), np.zeros(0))
        above[leaves] = self._above(body, slopes, leaves)
        is_open, is_complete = np.ones(len(above), dtype=bool), False
        while not stop() and len(self.of) <= most:
            ahead = np.flatnonzero(is_open & (above > max(goal, best) * (1.0 + precision)))
            if is_complete := not len(ahead):
                break
            now = ahead[np.argsort(-above[ahead])[: self.batch]]
            lam, signs = torch.from_numpy(slopes[self.of[now]]), torch.from_numpy(self.signs[now])
            # Prices that prove a little more than is enough often do for the next Lambda.
            enough = max(goal, best) * (1.0 + 0.5 * precision)
            settled = _settled(body, lam, signs, enough, max(goal, best) * (1.0 + precision))
            neurons, value = _described(body, lam, settled, 40)
            largest, best = largest.with_more(neurons), max(best, value)
            bounds = settled.above.numpy()
            better = bounds < above[now]
            above[now[better]], self.prices[now[better]] = bounds[better], settled.prices.numpy()[better]
            # What it costs that a sign is undecided; -1 where it is decided or does not matter.
            sides = settled.plus @ body.corners.T, settled.minus @ body.corners.T
            lost = torch.where((lam > 0.0) & (signs == 0), lam * torch.minimum(*sides), -1.0)
            lost, sample = (tensor.numpy() for tensor in lost.max(dim=1))
            halved = (above[now] > max(goal, best) * (1.0 + precision)) & (lost >= 0.0)
            halves = self._halved(now[halved], sample[halved])
            is_open[now], above[now[halved]] = False, -math.inf
            above = np.append(above, self._above(body, slopes, halves))
            is_open = np.append(is_open, np.ones(len(halves), dtype=bool))
        return is_complete, largest

    def _above(self, body: Body, slopes: Float[np.ndarray, "K N"], nodes: Int[np.ndarray, " b"]) -> np.ndarray:
        """Return what the prices of nodes prove, but for rounding (b,)."""
        plus, minus = _sides(slopes[self.of[nodes]], self.signs[nodes], self.prices[nodes])
        return np.maximum(plus @ body.corners.numpy(), minus @ body.corners.numpy()).max(axis=1, initial=0.0)

    def _halved(self, nodes: Int[np.ndarray, " b"], samples: Int[np.ndarray, " b"]) -> Int[np.ndarray, " _"]:
        """Decide the sign of a sample at each of these leaves; return their halves, which begin with its prices."""
        first, twice = len(self.of), np.repeat(nodes, 2)
        new = first + np.arange(len(twice))
        self.cuts[nodes], self.halves[nodes] = samples, new[::2]
        self.of, self.prices = np.append(self.of, self.of[twice]), np.vstack([self.prices, self.prices[twice]])
        self.cuts = np.append(self.cuts, np.full(len(twice), LEAF))
        self.halves = np.append(self.halves, np.zeros(len(twice), dtype=int))
        self.signs = np.vstack([self.signs, self.signs[twice]])
        self.signs[new[::2], samples], self.signs[new[1::2], samples] = 1, -1
        return new

    def tree(self) -> Tree:
        """Return the trees as a file holds them."""
        order, ahead = [], np.unique(self.of, return_index=True)[1][::-1].tolist()
        while ahead:
            node = ahead.pop()
            order.append(node)
            if self.cuts[node] != LEAF:
                ahead += [self.halves[node] + 1, self.halves[node]]
        nodes = np.array(order)
        cuts = self.cuts[nodes]
        return Tree(cuts, self.prices[nodes[cuts == LEAF]].astype(np.float32))


def best_with_signs(body: Body, multipliers: Float[np.ndarray, "N m"], neurons: Neurons) -> Neurons:
    """Return neurons with the largest values among all that have the signs and the direction of one of these."""
    outputs = neurons.values @ multipliers
    outputs /= np.maximum(np.linalg.norm(outputs, axis=1, keepdims=True), TINY)
    lam = torch.from_numpy(outputs @ multipliers.T)
    active = neurons.values > 1e-7 * neurons.values.max(axis=1, keepdims=True, initial=0.0)
    signs = torch.from_numpy(np.where(active, 1, -1).astype(np.int8))
    return _described(body, lam, _settled(body, lam, signs, -math.inf, math.inf, 1e-3), len(lam))[0]


def _sides(
    lam: Float[np.ndarray, "B N"], signs: Int[np.ndarray, "B N"], prices: Float[np.ndarray, "B N"]
) -> tuple[Float[np.ndarray, "B N"], Float[np.ndarray, "B N"]]:
    """Return c+ and -c- of nodes, whose prices are moved to where they prove a bound."""
    rising = lam > 0.0
    undecided, active = rising & (signs == 0), rising & (signs > 0)
    inside = np.where(active, np.maximum(prices, lam), np.clip(prices, np.where(rising, -np.inf, lam), 0.0))
    return np.where(undecided, lam, inside), np.where(undecided, 0.0, -inside)


def _settled(
    body: Body, lam: Float[Tensor, "B N"], signs: Int[Tensor, "B N"], enough: float, limit: float, least: float = 1e-5
) -> Settled:
    """Return the best prices of nodes, unless they prove enough, or a node with undecided signs exceeds the limit."""
    rising = lam > 0.0
    undecided = rising & (signs == 0)
    low = torch.where(rising & (signs > 0), lam, torch.where(rising, -math.inf, lam))
    high = torch.where(rising & (signs > 0), math.inf, 0.0)
    offsets = torch.where(undecided, lam, 0.0) @ body.corners
    hopeless = torch.where(undecided.any(dim=1), limit, math.inf)
    return settle(body.corners, Boxes(low, high, ~undecided, offsets), enough, hopeless, least)


def _described(body: Body, lam: Float[Tensor, "B N"], settled: Settled, most: int) -> tuple[Neurons, float]:
    """Return the neurons with the largest values among those that the multipliers of nodes describe, and that value."""
    combined = settled.plus - settled.minus
    h = combined @ body.corners.T
    value, side = torch.stack([(lam * h.relu()).sum(dim=1), (lam * (-h).relu()).sum(dim=1)]).max(dim=0)
    top = value.argsort(descending=True)[:most]
    total = combined[top].abs()
    biased = bool(body.bias)
    neurons = Neurons(
        torch.where(side[top, None] > 0, -h[top], h[top]).relu().numpy(),
        (total[:, :-1] if biased else total).sum(dim=1).numpy(),
        (total[:, -1] / body.price).numpy() if biased else np.zeros(len(top)),
    )
    return neurons, float(value.max())
