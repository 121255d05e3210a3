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
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.certify.paths.body import Body
from covopt.certify.paths.boxes import Boxes, Settled, settle
from covopt.certify.shares.dictionary import CHARGED

LEAF = -1


@dataclass(frozen=True)
class Tree:
    """Trees of the signs, one for each direction, one after the other.

    Attributes:
        cuts: the sample whose sign a node decides, or LEAF, in preorder; the half with h_i >= 0 comes first (n,).
        prices: c of each leaf (l, N).
    """

    cuts: Int[np.ndarray, " n"]
    prices: Float[np.ndarray, "l N"]

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
        rising = lam > 0.0
        undecided, active = rising & (signs == 0), rising & (signs > 0)
        inside = np.where(active, np.maximum(c, lam), np.clip(c, np.where(rising, -np.inf, lam), 0.0))
        above, at = body.reaches(np.where(undecided, lam, inside), charged)
        below, at_below = body.reaches(np.where(undecided, 0.0, -inside), charged)
        most, at = np.concatenate([above, below]), np.concatenate([at, at_below])
        return float(most.max(initial=0.0)), at[np.argsort(-most)]


@dataclass(frozen=True)
class Neurons:
    """Neurons of the second layer that a search met.

    Attributes:
        values: sigma(h) (C, N).
        weights: |m|_1 (C,).
        biases: |b| (C,).
    """

    values: Float[np.ndarray, "C N"]
    weights: Float[np.ndarray, " C"]
    biases: Float[np.ndarray, " C"]

    def __getitem__(self, rows: np.ndarray) -> Neurons:
        return Neurons(self.values[rows], self.weights[rows], self.biases[rows])

    def with_more(self, other: Neurons) -> Neurons:
        """Return both."""
        pairs = ((getattr(self, name), getattr(other, name)) for name in ("values", "weights", "biases"))
        return Neurons(*(np.concatenate(pair) for pair in pairs))


@dataclass
class Branching:
    """A search for the largest |Lambda^T sigma(h)| over all neurons of the body.

    Attributes:
        body: the neurons.
        multipliers: Lambda (N, m).
        directions: of the outputs (K, m).
        goal: nodes are settled once they are proved to be at most this.
        precision: or at most this part above the largest that was met.
        batch: nodes at a time.
        best: the largest <lambda, sigma(h)> that was met.
        count: nodes so far.
        neurons: those with the largest values, of each batch.
    """

    body: Body
    multipliers: Float[np.ndarray, "N m"]
    directions: Float[np.ndarray, "K m"]
    goal: float
    precision: float
    batch: int = 256
    best: float = 0.0
    count: int = 0
    neurons: list[Neurons] = field(default_factory=list)

    def run(self, most: int, stop: Callable[[], bool]) -> Tree | None:
        """Return the trees; None where they would take more nodes than `most`, or the search was stopped."""
        slopes = torch.from_numpy(self.directions @ self.multipliers.T)
        K, N = slopes.shape
        of, signs, above = torch.arange(K), torch.zeros(K, N, dtype=torch.int8), torch.full((K,), math.inf)
        where, self.count = np.arange(K), K
        cuts, prices, halves = np.full(K, LEAF), np.zeros((K, N), dtype=np.float32), np.zeros(K, dtype=int)
        while len(where):
            if self.count > most or stop():
                return None
            order = above.argsort(descending=True)
            now, later = order[: self.batch], order[self.batch :]
            settled = self._settled(slopes[of[now]], signs[now])
            prices[where[now.numpy()]] = settled.prices.float().numpy()
            limit = self._limit()
            lam, decided = slopes[of[now]], signs[now]
            lost = torch.where((lam > 0.0) & (decided == 0), lam * torch.minimum(*self._parts(settled)), -1.0)
            score, sample = lost.max(dim=1)
            unsettled = ((settled.above > limit) & (score >= 0.0)).nonzero()[:, 0]
            cut, twice = where[now.numpy()][unsettled.numpy()], unsettled.repeat_interleave(2)
            cuts[cut], halves[cut] = sample[unsettled].numpy(), self.count + 2 * np.arange(len(cut))
            children = decided[twice]
            children[0::2].scatter_(1, sample[unsettled, None], 1)
            children[1::2].scatter_(1, sample[unsettled, None], -1)
            of, signs = torch.cat([of[later], of[now][twice]]), torch.cat([signs[later], children])
            above = torch.cat([above[later], settled.above[twice]])
            where = np.concatenate([where[later.numpy()], self.count + np.arange(len(twice))])
            self.count += len(twice)
            cuts, halves = (np.append(a, np.full(len(twice), empty)) for a, empty in ((cuts, LEAF), (halves, 0)))
            prices = np.vstack([prices, np.zeros((len(twice), N), dtype=np.float32)])
        return _in_preorder(cuts, prices, halves, K)

    def _limit(self) -> float:
        return max(self.goal, self.best * (1.0 + self.precision))

    def _parts(self, settled: Settled) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B N"]]:
        A = self.body.corners
        return settled.plus @ A.T, settled.minus @ A.T

    def _settled(self, lam: Float[Tensor, "B N"], signs: Int[Tensor, "B N"]) -> Settled:
        """Settle nodes, and remember the neurons that their multipliers describe."""
        rising = lam > 0.0
        undecided = rising & (signs == 0)
        low = torch.where(rising & (signs > 0), lam, torch.where(rising, -math.inf, lam))
        high = torch.where(rising & (signs > 0), math.inf, 0.0)
        offsets = torch.where(undecided, lam, 0.0) @ self.body.corners
        # A node without an undecided sign is a leaf, whose prices count.
        hopeless = torch.where(undecided.any(dim=1), self._limit(), math.inf)
        settled = settle(self.body.corners, Boxes(low, high, ~undecided, offsets), self._limit(), hopeless)
        plus, minus = self._parts(settled)
        h = plus - minus
        values = torch.stack([(lam * h.relu()).sum(dim=1), (lam * (-h).relu()).sum(dim=1)])
        value, side = values.max(dim=0)
        self.best = max(self.best, float(value.max()))
        top = value.argsort(descending=True)[:10]
        total = (settled.plus - settled.minus)[top].abs()
        biased = bool(self.body.bias)
        self.neurons.append(
            Neurons(
                torch.where(side[top, None] > 0, -h[top], h[top]).relu().numpy(),
                (total[:, :-1] if biased else total).sum(dim=1).numpy(),
                (total[:, -1] / self.body.price).numpy() if biased else np.zeros(len(top)),
            )
        )
        return settled


def _in_preorder(cuts: np.ndarray, prices: np.ndarray, halves: np.ndarray, directions: int) -> Tree:
    """Return the trees, whose nodes were numbered as they were met."""
    order, ahead = [], list(reversed(range(directions)))
    while ahead:
        node = ahead.pop()
        order.append(node)
        if cuts[node] != LEAF:
            ahead += [halves[node] + 1, halves[node]]
    order = np.array(order)
    return Tree(cuts[order], prices[order[cuts[order] == LEAF]])
