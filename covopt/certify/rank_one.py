"""A lower bound on networks that pass one dimension: a shortest path through the targets, over the inputs' diameter.

**The bound.** Let a network of depth L have a hidden layer of one neuron, or some A_l of rank 1. There all samples are
on a line, at t_i, with |t_i - t_j| <= prod_{k <= l} |A_k|_op |x_i - x_j|, since |sigma(a) - sigma(b)| <= |a - b|; and
behind it outputs are prod_{k > l} |A_k|_op-Lipschitz in t. The outputs in the order of the t_i are a path through all
of them, whose length is at most prod |A_k|_op diam(x). With |A|_op <= |A|_F and the means,

    |W|^2 >= L (P(F) / diam(x))^(2/L),

P(F) the length of a shortest path through the outputs. An output may miss its target by e = eps n_L^(1/2), eps what
`interpolate` allows in an entry: a path through n targets is longer by at most 2 e (n - 1). Any subset of the samples
gives a bound, with its own path; so equal targets are merged, and others too where that charges less.

**The path from below** (Held and Karp). For any multipliers p, a path visits each point by two edges, its ends by one:
with the edges d_ij + p_i + p_j, its length is at least that of a minimum spanning tree, so

    P >= MST(d + p_i + p_j) - 2 sum p + the sum of the two smallest p.

p = 0 is the spanning tree itself. A subgradient ascent looks for good multipliers; whatever it finds is a proof.
**From above**: a path through all points, exact for up to EXACT of them, else nearest neighbours and 2-opt moves.

Source: Jacot, Implicit Bias of Large Depth Networks (2023), Theorem 2 and Prop. 10 (with the diameter, as here); Held,
Karp, The traveling-salesman problem and minimum spanning trees (1970).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from covopt.linalg.rounding import EPS, to_unit_scale
from covopt.model.problem import Problem

# Rows that are looked at, the first ones: a bound for some samples is one for all.
ROWS = 2048
# Points up to which the shortest path is found exactly.
EXACT = 12
EXACTLY = "donot_use_mm_for_euclid_dist"


@dataclass(frozen=True)
class RankOne:
    """Bounds on networks that pass one dimension."""

    multipliers: Float[np.ndarray, " n"]  # p of the different targets, in the order of their rows; for the lower end
    order: Int[np.ndarray, " n"]  # the order of a path through them
    lower: float  # a lower bound on the length of a shortest path through the targets
    upper: float | None  # an upper bound on it; None where not all rows were examined
    charged: float  # a lower end for outputs that may miss their targets by what is allowed
    diameter: float  # at least that of the inputs of these rows
    rows: int  # how many were looked at, the first ones

    def bound(self, depth: int) -> float:
        """L (P / diam)^(2/L) for L = `depth`; infinite where targets differ though all inputs agree, 0 for one target.

        No network of that depth fits for less, if it has a hidden layer of one neuron, or one of rank 1.
        """
        if not self.charged > 0.0:
            return 0.0
        ratio = self.charged / self.diameter if self.diameter > 0.0 else math.inf
        return depth * ratio ** (2.0 / depth) * (1.0 - 2.0**-30)


def rank_one(problem: Problem, ascend: bool = True) -> RankOne:
    """Bound the path through the targets from both sides; the problem's depth does not matter."""
    points, d = _points(problem)
    multipliers = _ascent(d) if ascend and len(points) > 2 else np.zeros(len(points))
    return measured(problem, multipliers, _path(d))


def measured(problem: Problem, multipliers: Float[np.ndarray, " n"], order: Int[np.ndarray, " n"]) -> RankOne:
    """Evaluate the bound of these multipliers and the length of the path in this order: all that `rank_one` states.

    Multipliers for another number of points, and an order that is none, raise a ValueError.
    """
    points, d = _points(problem)
    n = len(points)
    if multipliers.shape != (n,) or not np.isfinite(multipliers).all() or sorted(order.tolist()) != list(range(n)):
        raise ValueError("multipliers or an order of other targets")
    size = to_unit_scale(points)[1]
    missed = 2.0 * problem.allowed_misfit * math.sqrt(problem.Y.shape[1]) * (1.0 + 2.0**-40)
    lower = max(_held_karp(d), _held_karp(d, multipliers)) * size
    apart = _far_apart(d, 2.0 * missed / size)
    charged = max(lower - missed * (n - 1), _held_karp(d[np.ix_(apart, apart)]) * size - missed * (len(apart) - 1))
    length = float(d[order[:-1], order[1:]].sum()) * size * (1.0 + 2.0 * n * EPS)
    rows = min(len(problem.Y), ROWS)
    upper = length if rows == len(problem.Y) else None
    return RankOne(multipliers, order, min(lower, length), upper, charged, _diameter(problem.X), rows)


def _points(problem: Problem) -> tuple[Float[Tensor, "n m"], Float[np.ndarray, "n n"]]:
    """Return the different targets of the first rows, in their order, and their distances at unit scale."""
    rows = problem.Y[:ROWS].double().cpu() + 0.0  # -0 becomes 0
    _, classes = torch.unique(rows, dim=0, return_inverse=True)
    firsts = np.unique(classes.numpy(), return_index=True)[1]
    points = rows[torch.from_numpy(np.sort(firsts))]
    scaled = to_unit_scale(points)[0]
    return points, torch.cdist(scaled, scaled, compute_mode=EXACTLY).numpy()


def _diameter(X: Float[Tensor, "N n"]) -> float:
    """Return the largest distance of two rows, rounded up."""
    scaled, size = to_unit_scale(X[:ROWS].double().cpu())
    across = float(torch.cdist(scaled, scaled, compute_mode=EXACTLY).max())
    return across * size * (1.0 + (X.shape[1] + 8) * EPS)


def _far_apart(d: NDArray[np.float64], least: float) -> NDArray[np.int64]:
    """Points of which no two are nearer than `least`: each that is far enough from those before."""
    apart: list[int] = []
    for i in range(len(d)):
        if not apart or float(d[i, apart].min()) > least:
            apart.append(i)
    return np.array(apart)


def _held_karp(d: NDArray[np.float64], p: NDArray[np.float64] | None = None) -> float:
    """Return the bound at these multipliers, rounded down; 0 if it is negative."""
    n = len(d)
    if n < 2:
        return 0.0
    p = np.zeros(n) if p is None else p
    length, _ = _tree(d, p)
    # Each edge is off by a few roundings, the distances by one for each coordinate (scaled, at most 2 m^(1/2) long),
    # and a sum of n terms by n of them.
    charge = (n + 2 * 64) * n * EPS * (float(d.max()) + 4.0 * float(np.abs(p).max()))
    return max(0.0, length - 2.0 * float(p.sum()) + float(np.partition(p, 1)[:2].sum()) - charge)


def _tree(d: NDArray[np.float64], p: NDArray[np.float64]) -> tuple[float, NDArray[np.int64]]:
    """Find a minimum spanning tree for d_ij + p_i + p_j (Prim): its length and its degrees."""
    n = len(d)
    near, parent = d[0] + p[0] + p, np.zeros(n, dtype=np.int64)
    near[0] = math.inf
    degrees, total = np.zeros(n, dtype=np.int64), 0.0
    inside = np.zeros(n, dtype=bool)
    inside[0] = True
    for _ in range(n - 1):
        place = int(near.argmin())
        total += float(near[place])
        degrees[place] += 1
        degrees[parent[place]] += 1
        inside[place], near[place] = True, math.inf
        trial = d[place] + p[place] + p
        closer = ~inside & (trial < near)
        near[closer], parent[closer] = trial[closer], place
    return total, degrees


def _ascent(d: NDArray[np.float64]) -> NDArray[np.float64]:
    """Multipliers along the degrees of the spanning trees less 2, with steps that shrink."""
    n = len(d)
    p, best = np.zeros(n), np.zeros(n)
    value, degrees = _tree(d, p)
    highest, step = value, 0.5 * value / n
    for _ in range(min(300, int(1.5e7 / n**2))):  # about this number of operations in all
        direction = degrees - 2.0
        direction[np.argsort(p, kind="stable")[:2]] += 1.0  # the two ends
        if not direction.any() or not step > 1e-6 * highest / n:
            break
        p = p + step * direction
        length, degrees = _tree(d, p)
        value = length - 2.0 * float(p.sum()) + float(np.partition(p, 1)[:2].sum())
        if value > highest:
            highest, best = value, p
        else:
            step *= 0.95
    return best


def _path(d: NDArray[np.float64]) -> NDArray[np.int64]:
    """Find a short path through all points; the shortest one if there are few."""
    n = len(d)
    if n <= 2:
        return np.arange(n)
    if n <= EXACT:
        return _shortest(d)
    ends = [int(i) for i in np.unravel_index(int(d.argmax()), d.shape)]
    paths = [_untangled(d, _greedy(d, start)) for start in ends]
    return min(paths, key=lambda order: float(d[order[:-1], order[1:]].sum()))


def _shortest(d: NDArray[np.float64]) -> NDArray[np.int64]:
    """Find the shortest path by dynamic programming over subsets and their last points."""
    n = len(d)
    cost = np.full((1 << n, n), math.inf)
    last = np.zeros((1 << n, n), dtype=np.int64)
    cost[1 << np.arange(n), np.arange(n)] = 0.0
    for subset in range(1, 1 << n):
        inside = [i for i in range(n) if subset >> i & 1]
        for end in inside if len(inside) > 1 else []:
            before = cost[subset ^ (1 << end)] + d[:, end]
            last[subset, end] = int(before.argmin())
            cost[subset, end] = before[last[subset, end]]
    subset, end = (1 << n) - 1, int(cost[-1].argmin())
    order = [end]
    while len(order) < n:
        subset, end = subset ^ (1 << end), int(last[subset, end])
        order.append(end)
    return np.array(order)


def _greedy(d: NDArray[np.float64], start: int) -> NDArray[np.int64]:
    """Return the order that always moves to the nearest remaining point."""
    unvisited, order = np.ones(len(d), dtype=bool), [start]
    unvisited[start] = False
    while len(order) < len(d):
        order.append(int(np.where(unvisited, d[order[-1]], math.inf).argmin()))
        unvisited[order[-1]] = False
    return np.array(order)


def _untangled(d: NDArray[np.float64], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pieces of the path turned round (2-opt), the best one each time, while that shortens it."""
    n = len(d)
    for _ in range(min(20 * n, int(1e7 / n**2))):  # about this number of operations in all
        # Turning the piece i ... j round replaces the edges before i and after j; at the ends there is none.
        cut = np.concatenate([[0.0], d[order[:-1], order[1:]], [0.0]])
        before = np.vstack([np.zeros(n), d[order[:-1]][:, order]])
        after = np.hstack([d[order][:, order[1:]], np.zeros((n, 1))])
        gain = cut[:-1, None] + cut[None, 1:] - before - after
        gain[np.tril_indices(n)] = 0.0
        i, j = np.unravel_index(int(gain.argmax()), gain.shape)
        if not gain[i, j] > 1e-12 * float(d.max()):
            break
        order = np.concatenate([order[:i], order[i : j + 1][::-1], order[j + 1 :]])
    return order
