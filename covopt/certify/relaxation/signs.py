"""Branch and bound over pieces of the sphere, the relaxation at every node, for one fixed Lambda.

The relaxation (`certify.lift`) is loose where several directions with h near 1 can be mixed. A split takes them apart:
at a sample, into z_i >= 0 and z_i <= 0, which also makes sigma linear there; or, where no sample divides the moment
matrix any more, at a wall a^T w = 0 between the directions that it mixes (a from the top eigenvectors of E[w w^T]).
Even with all signs fixed the relaxation is not tight, so that without walls the tree ends above the maximum. Negative
samples shrink the space that a maximiser can lie in (`certify.lift`, "whose span").

Every leaf has its own multipliers, and max h is at most the largest of the leaves' bounds, since the pieces cover the
sphere by construction: a maximiser belongs to the leaf that it reaches by z_i >= 0 or z_i < 0, and by either side of a
wall. Best first: the node with the largest bound is split next, its children start from its state.

The tree and the leaves' multipliers (`Multipliers`) prove the bound without any solver: `proved_maximum`.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from covopt.certify.relaxation.admm import FIXED_RHO, AlternatingDirections, FixedLambda, State
from covopt.certify.relaxation.lift import Ground, Piece, make_piece, prove
from covopt.errors import ProblemError
from covopt.linalg.rounding import UNIT_ROUNDOFF, to_unit_scale
from covopt.loop import Budget

LEAF, WALL = -1, -2
# The names of the multipliers in a file.
ARRAYS = ("splits", "walls", "values")

# How the tree is grown; none of these touches the proof.
SLOW = 0.15  # a node whose bound falls by less than this part of its distance to the target, per check, is split
ROOT_WINDOW = 4  # at the root, the same over so many checks
ACCURACY = 1e-6  # where nothing is to be split, the root runs until both residuals are below this
DIVIDED = 1e-5  # a sample divides a node if min(E[p_i^2], E[n_i^2]), times |lambda_i| |x_i|, is above this
SMALLEST_RHO, LARGEST_RHO = 5.0, 500.0  # rho is kept between them from node to node
STARTS, ASCENTS = 64, 30  # of the rough search that gives h its scale
TOUCHES = 5  # of the same steps from the directions that a node mixes, when it is split
CLOSED = 1e-5  # the tree is closed when its bound is above what a direction attains by no more than this, relative


@dataclass(frozen=True)
class BranchOptions:
    """How long a node is worked on; none of these touches the proof.

    Attributes:
        check: steps between two proofs at a node.
        root_checks: proofs at the root, at most.
        node_checks: proofs at any other node, at most.
    """

    check: int = 25
    root_checks: int = 120
    node_checks: int = 8


@dataclass(frozen=True)
class Multipliers:
    """What proves a maximum: a tree of splits in preorder (node, its >= side, its <= side), and Pi at its leaves.

    Attributes:
        splits: for each node the sample it is split at, -1 for a leaf, -2 for a wall.
        walls: normals a of the walls, in input coordinates, in the order of their nodes (W, d).
        values: for each leaf the upper triangle of Pi (2N + its walls, squared), row by row, one after the other;
            y = (p, n) in units of |x_i|, then a^T w for the walls from the root down.
    """

    splits: Int[Tensor, " nodes"]
    walls: Float[Tensor, "W d"]
    values: Float[Tensor, " entries"]

    @classmethod
    def of(cls, evidence: Mapping[str, NDArray]) -> Multipliers:
        """From their arrays, as `arrays` made them; KeyError where one is missing."""
        return cls(*(torch.from_numpy(np.asarray(evidence[name])) for name in ARRAYS))

    @property
    def arrays(self) -> dict[str, NDArray]:
        """For a file."""
        return {name: getattr(self, name).detach().cpu().numpy() for name in ARRAYS}

    @property
    def leaves(self) -> int:
        """How many pieces the sphere is cut into."""
        return int((self.splits == LEAF).sum())

    def scaled(self, factor: float) -> Multipliers:
        """Those of factor * Lambda; in single precision they prove it up to about 1e-8, relative."""
        return Multipliers(self.splits, self.walls, factor**2 * self.values)


@dataclass
class Node:
    """A piece, its bound on h^2, and how to go on from it; a node that was split keeps its children only."""

    signs: Int[Tensor, " N"]
    walls: Float[Tensor, "k r"]
    bound: float
    Pi: Tensor | None
    Z: Tensor | None = None
    T: Tensor | None = None
    split: int = LEAF
    wall: Tensor | None = None
    children: list[Node] = field(default_factory=list)


def proved_maximum(ground: Ground, Lambda: Float[Tensor, "N m"], multipliers: Multipliers) -> float:
    """A proved bound on max |Lambda^T sigma(P w)| over |w| <= 1 from stored multipliers, in units of `ground`.

    Raises:
        ProblemError: when the arrays do not describe a tree of splits with multipliers at its leaves.
    """
    N, r = ground.P.shape
    pending = [(torch.zeros(N, dtype=torch.int64), ground.P.new_zeros(0, r))]
    walls, taken, worst = iter(multipliers.walls.double() @ ground.basis.T), 0, 0.0
    for split in multipliers.splits.tolist():
        if not pending or not WALL <= split < N:
            raise ProblemError("The stored multipliers do not form a tree of splits; certify the run again.")
        signs, cuts = pending.pop()
        if split == LEAF:
            size = 2 * N + len(cuts)
            entries = multipliers.values[taken : taken + size * (size + 1) // 2]
            taken += size * (size + 1) // 2
            worst = max(worst, prove(make_piece(ground, signs, cuts), Lambda, _unpack(entries, size)))
        else:
            wall = next(walls, None) if split == WALL else None
            if split == WALL and wall is None:
                raise ProblemError("The stored multipliers lack a wall; certify the run again.")
            pending += [_side(signs, cuts, split, wall, sign) for sign in (-1, 1)]
    if pending or taken != len(multipliers.values) or next(walls, None) is not None:
        raise ProblemError("The stored multipliers do not fit their tree of splits; certify the run again.")
    return math.sqrt(worst) * (1.0 + 2 * UNIT_ROUNDOFF)


def _side(signs: Tensor, walls: Tensor, split: int, wall: Tensor | None, sign: int) -> tuple[Tensor, Tensor]:
    """Signs and walls of one side of a split."""
    if wall is not None:
        return signs, torch.cat([walls, sign * wall[None]])
    changed = signs.clone()
    changed[split] = sign
    return changed, walls


def _pack(Pi: Float[Tensor, "K K"]) -> Float[Tensor, " entries"]:
    rows, columns = torch.triu_indices(len(Pi), len(Pi), device=Pi.device)
    return Pi[rows, columns]


def _unpack(entries: Float[Tensor, " entries"], size: int) -> Float[Tensor, "K K"]:
    if len(entries) != size * (size + 1) // 2:
        raise ProblemError("The stored multipliers are incomplete; certify the run again.")
    upper = entries.new_zeros(size, size, dtype=torch.float64)
    rows, columns = torch.triu_indices(size, size, device=entries.device)
    upper[rows, columns] = entries.double()
    return upper + upper.T - torch.diag(upper.diagonal())


def climb(
    ground: Ground, Lambda: Float[Tensor, "N m"], w: Float[Tensor, "S r"], steps: int
) -> tuple[float, Float[Tensor, " r"]]:
    """The largest h that power steps w <- P^T (sigma' * Lambda Lambda^T sigma) meet, and the unit w that attains it."""
    best, where = 0.0, torch.nn.functional.normalize(w[0], dim=0)
    for _ in range(steps + 1):
        w = torch.nn.functional.normalize(w, dim=1)
        z = w @ ground.P.T
        slope = torch.where(z > 0, 1.0, torch.full((), ground.slope, dtype=z.dtype, device=z.device))
        outputs = (slope * z) @ Lambda
        value, place = outputs.norm(dim=1).max(dim=0)
        if float(value) > best:
            best, where = float(value), w[place]
        w = (slope * (outputs @ Lambda.T)) @ ground.P
    return best, where


def rough_maximum(ground: Ground, Lambda: Float[Tensor, "N m"]) -> tuple[float, Float[Tensor, " r"]]:
    """`climb` from random directions."""
    starts = torch.randn(STARTS, ground.rank, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return climb(ground, Lambda, starts.to(ground.P), ASCENTS)


class SignBranch:
    """The tree for one Lambda; `grow` it, then read `maximum` and `multipliers`."""

    def __init__(self, ground: Ground, Lambda: Float[Tensor, "N m"], options: BranchOptions = BranchOptions()) -> None:
        self.ground, self.options = ground, options
        # h at the scale 1, by a power of two.
        found, self._where = rough_maximum(ground, Lambda)
        self.scale = to_unit_scale(torch.tensor([found], dtype=torch.float64))[1] if found > 0.0 else 1.0
        self._found = found / self.scale
        self.Lambda = Lambda / self.scale
        self.weight = self.Lambda.norm(dim=1) * ground.length
        N, r = ground.P.shape
        nothing = ground.P.new_zeros(N * (2 * N + 1))
        bound = prove(make_piece(ground), self.Lambda, _unpack(nothing, 2 * N))
        self.root = Node(torch.zeros(N, dtype=torch.int64), ground.P.new_zeros(0, r), bound, nothing)
        self.rho, self.nodes = FIXED_RHO, 0
        self._ties = itertools.count()
        self._open: list[tuple[float, int, Node]] = []

    @property
    def maximum(self) -> float:
        """The proved bound on h so far."""
        return self.scale * math.sqrt(self._largest()) * (1.0 + 4 * UNIT_ROUNDOFF)

    @property
    def attained(self) -> float:
        """The largest h that a direction was seen to attain; no tree gets below it."""
        return self.scale * self._found

    @property
    def direction(self) -> Float[Tensor, " d"]:
        """The unit direction that attains it, in input coordinates."""
        return self._where @ self.ground.basis

    def _largest(self) -> float:
        leaves, largest = [self.root], 0.0
        while leaves:
            node = leaves.pop()
            leaves += node.children
            largest = largest if node.children else max(largest, node.bound)
        return largest

    def grow(
        self,
        target: float,
        budget: Budget,
        max_nodes: int | None = None,
        callback: Callable[[float, int], None] | None = None,
    ) -> None:
        """Split until the maximum is proved to be at most `target`, or the budget or `max_nodes` is spent."""
        if self.nodes == 0:
            goal = max(target / self.scale, self._found) ** 2
            self._solve([self.root], goal, budget, self.options.root_checks, thorough=max_nodes == 1)
            self._keep(self.root)
        while self._open and not budget.spent():
            goal = max(target / self.scale, self._found * (1.0 + CLOSED)) ** 2
            if -self._open[0][0] <= goal or (max_nodes is not None and self.nodes + 2 > max_nodes):
                break
            node = heapq.heappop(self._open)[2]
            children = self._split(node)
            self._solve(children, goal, budget, self.options.node_checks)
            node.children, node.Pi, node.Z, node.T = children, None, None, None
            for child in children:
                self._keep(child)
            if callback is not None:
                callback(self.scale * math.sqrt(-self._open[0][0]), self.nodes)

    def _keep(self, node: Node) -> None:
        heapq.heappush(self._open, (-node.bound, next(self._ties), node))

    def _solve(self, nodes: list[Node], goal: float, budget: Budget, checks: int, thorough: bool = False) -> None:
        """Steps on these nodes together, until each is below the goal or slow; their best multipliers are kept."""
        self.nodes += len(nodes)
        pieces = [make_piece(self.ground, node.signs, node.walls) for node in nodes]
        # Single precision below the root; the proofs never are.
        kind = torch.float64 if nodes[0] is self.root else torch.float32
        sides = FixedLambda(pieces, self.Lambda, kind)
        method = AlternatingDirections(pieces, sides, dtype=kind)
        state = self._warm(method, nodes)
        for node, piece in zip(nodes, pieces, strict=True):
            if node.Pi is not None:
                node.bound = prove(piece, self.Lambda, _unpack(node.Pi, len(piece.B)))
        history = [[node.bound for node in nodes]]
        for _ in range(checks):
            state = method.run(state, self.options.check, budget.spent)
            for node, piece, Pi in zip(nodes, pieces, sides.multipliers(state), strict=True):
                self._improve(node, piece, Pi[: len(piece.B), : len(piece.B)], kind)
            history.append([node.bound for node in nodes])
            settled = max(state.primal, state.dual) < ACCURACY
            if settled or budget.spent() or (not thorough and self._done(history, goal, nodes[0] is self.root)):
                break
        self.rho = min(max(state.rho, SMALLEST_RHO), LARGEST_RHO)
        for k, node in enumerate(nodes):
            node.Z, node.T = state.Z[k].float(), (state.rho * state.T[k]).float()

    def _done(self, history: list[list[float]], goal: float, root: bool) -> bool:
        """Whether each of these nodes has met the goal or has become slow."""
        window = ROOT_WINDOW if root else 1
        if len(history) <= window + 1:
            return max(history[-1]) <= goal
        # A bound that is still the parent's says nothing yet: the steps have to settle first.
        return all(
            now <= goal or (now < first and old - now < SLOW * (now - goal))
            for now, old, first in zip(history[-1], history[-1 - window], history[0], strict=True)
        )

    def _improve(self, node: Node, piece: Piece, Pi: Tensor, kind: torch.dtype) -> None:
        """Take Pi, as it would be stored, if it proves more."""
        packed = _pack(Pi.to(kind))
        bound = prove(piece, self.Lambda, _unpack(packed, len(piece.B)))
        if node.Pi is None or bound < node.bound:
            node.bound, node.Pi = bound, packed

    def _warm(self, method: AlternatingDirections, nodes: list[Node]) -> State:
        state = method.start(self.rho)
        for k, node in enumerate(nodes):
            if node.Z is not None and node.T is not None:
                n = len(node.Z)
                state.Z[k, :n, :n] = node.Z
                state.T[k, :n, :n] = node.T / self.rho
        return state

    def _split(self, node: Node) -> list[Node]:
        """Its two children, which start from its state, bound and multipliers; its directions are tried as well."""
        assert node.Z is not None
        assert node.T is not None
        assert node.Pi is not None
        N, r = self.ground.P.shape
        top = torch.linalg.eigh(node.Z[:r, :r].double())[1][:, -3:].T
        value, where = climb(self.ground, self.Lambda, torch.cat([top, -top]), TOUCHES)
        if value > self._found:
            self._found, self._where = value, where
        moments = node.Z.diagonal()[r : r + 2 * N].to(self.weight).clamp_min(0.0)
        free = (node.signs == 0).to(self.weight.device) & ~self.ground.zero
        score = torch.where(free, torch.minimum(moments[:N], moments[N:]) * self.weight, -1.0)
        best = int(score.argmax())
        node.split = best if float(score[best]) > DIVIDED else WALL
        node.wall = None
        if node.split == WALL:
            node.wall = _dividing_wall(node.Z[: r + 2 * N, :r].double(), self.weight)
        children = []
        for sign in (1, -1):
            signs, walls = _side(node.signs, node.walls, node.split, node.wall, sign)
            Pi = _unpack(node.Pi, 2 * N + len(node.walls))
            size = 2 * N + len(walls)
            grown = torch.nn.functional.pad(Pi, (0, size - len(Pi), 0, size - len(Pi)))
            child = Node(signs, walls, node.bound, _pack(grown.to(node.Pi.dtype)), node.Z, node.T)
            if node.wall is not None:
                child.Z, child.T = _with_wall(node.Z, node.T, sign * node.wall, r)
            children.append(child)
        return children

    def multipliers(self) -> Multipliers:
        """The tree as arrays, its walls in input coordinates."""
        basis = self.ground.basis
        splits, walls, values, pending = [], [], [], [self.root]
        while pending:
            node = pending.pop()
            splits.append(node.split if node.children else LEAF)
            if node.children:
                pending += node.children[::-1]
                if node.wall is not None:
                    walls.append(node.wall @ basis)
            else:
                assert node.Pi is not None
                values.append(node.Pi)
        stacked = torch.stack(walls) if walls else basis.new_zeros(0, basis.shape[1])
        kind = torch.float32 if all(v.dtype == torch.float32 for v in values) else torch.float64
        joined = torch.cat([v.to(kind) for v in values])
        return Multipliers(torch.tensor(splits), stacked, joined).scaled(self.scale)


def _dividing_wall(moments: Float[Tensor, "n r"], weight: Float[Tensor, " N"]) -> Float[Tensor, " r"]:
    """The normal a, among a few combinations of the three top eigenvectors of E[w w^T], that divides best.

    `moments` are the columns w of Z, rows (w, p, n). Where a^T w has one sign on everything that the node mixes, so has
    every entry of E[(p, n) a^T w]; so the smaller of the norms of their positive and negative parts is what counts.
    """
    r = moments.shape[1]
    top = torch.linalg.eigh(moments[:r])[1][:, -3:]
    k = top.shape[1]
    pairs = [(i, j, sign) for i in range(k) for j in range(i) for sign in (1.0, -1.0)]
    normals = torch.stack(list(top.T) + [(top[:, i] + sign * top[:, j]) / math.sqrt(2.0) for i, j, sign in pairs])
    sides = weight.repeat(2)[:, None] * (moments[r:] @ normals.T)
    divided = torch.minimum(sides.clamp_min(0.0).norm(dim=0), sides.clamp_max(0.0).norm(dim=0))
    return normals[int(divided.argmax())]


def _with_wall(Z: Tensor, T: Tensor, wall: Tensor, r: int) -> tuple[Tensor, Tensor]:
    """Z with the moments of a^T w in a last row and column, T with zeros there."""
    n = len(Z)
    grown, padded = Z.new_zeros(n + 1, n + 1), Z.new_zeros(n + 1, n + 1)
    a = wall.to(Z)
    row = a @ Z[:r]
    grown[:n, :n], padded[:n, :n] = Z, T
    grown[n, :n] = grown[:n, n] = row.clamp_min(0.0)
    grown[n, n] = row[:r] @ a
    return grown, padded
