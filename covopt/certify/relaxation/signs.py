"""Branch and bound over pieces of the sphere for one fixed Lambda, with the relaxation at every node.

The relaxation (`certify.relaxation.lift`) is loose where several directions with h near 1 can be mixed. A split
separates them: at a sample, into z_i >= 0 and z_i < 0; at one with z_i >= 0, into z_i > 0 and z_i = 0; or, if no sample
divides the moment matrix, at a wall a^T w = 0 between the directions that it mixes (a from the top eigenvectors of
E[w w^T]). Negative samples and kinks shrink the space of a maximiser, and strictly positive samples tie it to one
eigenvector (`lift`, stationarity), so that the tree closes.

Every leaf has its own multipliers, and max h is at most the largest of the leaves' bounds. The search is best first, a
few batches of nodes at a time on several cores: the nodes with the largest bounds are split next, and their children
start from their multipliers. Far from the maximum it takes first-order steps. Near it the second stage begins
(`multipliers`), with stationarity and interior points, which bring a node nearly to its relaxed maximum; each later
stage halves the remaining distance.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.certify.relaxation.ground import Ground, rough_maximum
from covopt.certify.relaxation.interior import PAIRS
from covopt.certify.relaxation.lift import make_piece
from covopt.certify.relaxation.multipliers import LEAF, Multipliers, pack
from covopt.certify.relaxation.nodes import BranchOptions, Node, NodeWork, Split
from covopt.certify.relaxation.repair import prove
from covopt.linalg.rounding import UNIT_ROUNDOFF, to_unit_scale
from covopt.runtime.cores import cores
from covopt.runtime.loop import Budget


class SignBranch:
    """The tree for one Lambda; `grow` it, then read `maximum` and `multipliers`."""

    # No proof depends on these.
    closed: ClassVar[float] = 1e-5  # the tree is closed when its bound is at most this above the largest h found
    late: ClassVar[float] = 0.007  # stationarity and interior points begin when its bound is this near the floor

    def __init__(self, ground: Ground, Lambda: Float[Tensor, "N m"], options: BranchOptions | None = None) -> None:
        self.ground, self.options = ground, options or BranchOptions()
        # Scale h to about 1, by a power of two.
        attained, self._where = rough_maximum(ground, Lambda)
        self.scale = to_unit_scale(torch.tensor([attained], dtype=torch.float64))[1] if attained > 0.0 else 1.0
        self._found = attained / self.scale
        self.Lambda = Lambda / self.scale
        N, r = ground.P.shape
        self.heights = torch.zeros(1, dtype=torch.float64)
        piece = make_piece(ground)
        nothing = ground.P.new_zeros(len(piece.B), len(piece.B))
        self.root = Node(
            torch.zeros(N, dtype=torch.int64, device=ground.P.device),
            ground.P.new_zeros(0, r),
            prove(piece, self.Lambda, nothing),
            entries=pack(piece, nothing),
        )
        self.rho, self.nodes, self._proving = 30.0, 0, 0.0
        self._ties = itertools.count()
        self._open: list[tuple[float, int, Node]] = []

    @property
    def maximum(self) -> float:
        """Return the proved bound on h so far."""
        return self.scale * math.sqrt(max(self._largest(), float(self.heights[0]) ** 2)) * (1.0 + 4 * UNIT_ROUNDOFF)

    @property
    def attained(self) -> float:
        """Return the largest h found at a direction; no tree proves less."""
        return self.scale * self._found

    @property
    def direction(self) -> Float[Tensor, " d"]:
        """Return the unit direction that attains it, in input coordinates."""
        return self._where @ self.ground.basis

    @property
    def stage(self) -> int:
        """Return the stage in which nodes are made now."""
        return len(self.heights) - 1

    @property
    def price(self) -> float:
        """Return the expected seconds to prove it again from its multipliers, by the mean of the proofs so far."""
        last = len(self.heights)
        leaves = sum((node.stage if node.children else last) > node.made for node in self.root.walk())
        return leaves * self._proving / max(1, self.nodes - 1)

    def _largest(self) -> float:
        return max(node.bound for node in self.root.walk() if not node.children)

    def grow(
        self,
        target: float,
        budget: Budget,
        max_nodes: int | None = None,
        callback: Callable[[float, int], None] | None = None,
    ) -> None:
        """Split until the maximum is proved to be at most `target`, or the budget or `max_nodes` is spent."""
        with cores(self.ground.P.device) as team:
            if self.nodes == 0:
                self._plant(target, budget, thorough=max_nodes == 1)
            while self._open and not budget.spent():
                goal = max(target / self.scale, self._found * (1.0 + self.closed)) ** 2
                self._advance()
                lots = self._next(goal, max_nodes)
                if not lots:
                    break
                self._take(lots, team.map(self._work(goal, budget), lots))
                if callback is not None:
                    callback(self.maximum, self.nodes)

    def _plant(self, target: float, budget: Budget, thorough: bool) -> None:
        """Find multipliers for the root; the best ones if `thorough`."""
        self.nodes = 1
        goal = 0.0 if thorough else max(target / self.scale, self._found) ** 2
        self.rho = self._work(goal, budget).solve([self.root], self.options.root_checks, root=True)
        self._keep(self.root)
        if self.ground.slope == 0.0:
            floor = max(target / self.scale * (1.0 - 8 * UNIT_ROUNDOFF), self._found)
            self.heights[0] = min(floor, math.sqrt(self.root.bound))

    def _work(self, goal: float, budget: Budget) -> NodeWork:
        return NodeWork(self.ground, self.Lambda, self.heights, self.options, self.rho, goal, budget)

    def _next(self, goal: float, max_nodes: int | None) -> list[list[Node]]:
        """Return the open nodes with the largest bounds above the goal, in batches."""
        lot = self.options.batch
        if self.stage > 0:  # limit the entries of the Newton matrices of nodes that are split together
            lot = min(lot, max(1, 2**20 // (PAIRS * sum(self.ground.P.shape)) ** 2))
        count = 4 * lot  # whatever the number of cores, so that the tree is the same
        if max_nodes is not None:
            count = min(count, (max_nodes - self.nodes) // 2)
        chosen: list[Node] = []
        while len(chosen) < count and self._open and -self._open[0][0] > goal:
            chosen.append(heapq.heappop(self._open)[2])
        size = -(-len(chosen) // max(2, 2 * -(-len(chosen) // (2 * lot))))  # for an even number of lots
        return [chosen[start : start + size] for start in range(0, len(chosen), max(1, size))]

    def _take(self, lots: list[list[Node]], done: list[Split]) -> None:
        """Store the results of the nodes; those without a result stay open."""
        for nodes, split in zip(lots, done, strict=True):
            if split.value > self._found:
                self._found, self._where = split.value, split.where
            self._proving += split.proving
            for node, sides in zip(nodes, split.sides, strict=False):
                node.stage, (node.split, node.wall, node.children) = self.stage, sides
                self.nodes += len(node.children)
            for node in nodes:
                for child in node.children or [node]:
                    self._keep(child)
        self.rho = math.exp(sum(math.log(split.rho) for split in done) / len(done))

    def _advance(self) -> None:
        """Begin a new stage if the bound has halved its distance to the floor, or first comes near it."""
        # The height is a little above the bound that proves it, because multipliers are in float32.
        floor, height = float(self.heights[0]), math.sqrt(self._largest()) * (1.0 + 2.0**-22)
        near = self.late * floor if self.stage == 0 else 0.5 * (float(self.heights[-1]) - floor)
        if floor > 0.0 and floor * self.closed < height - floor < near:
            self.heights = torch.cat([self.heights, self.heights.new_tensor([height])])

    def _keep(self, node: Node) -> None:
        heapq.heappush(self._open, (-node.bound, next(self._ties), node))

    def multipliers(self) -> Multipliers:
        """Return the tree as arrays, its walls in input coordinates."""
        basis, last = self.ground.basis, len(self.heights)
        splits, stages, walls, values = [], [], [], []
        for node in self.root.walk():
            splits.append(node.split if node.children else LEAF)
            stages.append(node.stage if node.children else last)
            if stages[-1] > node.made:
                assert node.entries is not None
                values.append(node.entries)
            if node.children and node.wall is not None:
                walls.append(node.wall @ basis)
        stacked = torch.stack(walls) if walls else basis.new_zeros(0, basis.shape[1])
        kind = torch.float32 if all(v.dtype == torch.float32 for v in values) else torch.float64
        joined = torch.cat([v.to(kind) for v in values])
        return Multipliers(torch.tensor(splits), torch.tensor(stages), self.heights, stacked, joined).scaled(self.scale)
