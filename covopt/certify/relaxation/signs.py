"""Branch and bound over pieces of the sphere, the relaxation at every node, for one fixed Lambda.

The relaxation (`certify.relaxation.lift`) is loose where several directions with h near 1 can be mixed. A split takes
them apart: at a sample, into z_i >= 0 and z_i < 0; at one with z_i >= 0, into z_i > 0 and z_i = 0; or, where no sample
divides the moment matrix any more, at a wall a^T w = 0 between the directions that it mixes (a from the top
eigenvectors of E[w w^T]). Negative samples and kinks shrink the space of a maximiser, and strictly positive
ones tie it to one eigenvector (`lift`, stationarity): this is what closes the tree.

Every leaf has its own multipliers, and max h is at most the largest of the leaves' bounds. Best first, a batch of nodes
at a time: those with the largest bounds are split next, and their children start from their multipliers. Far from the
maximum first-order steps do the work. Near it the second stage begins (`multipliers`), with stationarity and interior
points, which close a node nearly to its relaxed maximum; each later stage halves what is left.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.certify.relaxation.admm import FIXED_RHO, AlternatingDirections, FixedLambda, State
from covopt.certify.relaxation.directions import climb, dividing_wall, rough_maximum
from covopt.certify.relaxation.ground import FREE, POSITIVE, Ground
from covopt.certify.relaxation.interior import PAIRS, polish
from covopt.certify.relaxation.lift import ALPHA, BETA, G, P, Piece, Stationarity, make_piece
from covopt.certify.relaxation.multipliers import LEAF, WALL, Multipliers, make_stationarity, pack, side, unpack
from covopt.certify.relaxation.repair import prove
from covopt.linalg.rounding import UNIT_ROUNDOFF, to_unit_scale
from covopt.loop import Budget

# How the tree is grown; none of these touches the proof.
DIVIDED = 1e-5  # a sample divides a node if its score is above this
SMALLEST_RHO, LARGEST_RHO = 5.0, 500.0  # rho is kept between them from node to node
SLOW = 0.15  # a node whose bound falls by less than this part of its distance to the target, per check, is split
ROOT_WINDOW = 4  # at the root, the same over so many checks
ACCURACY = 1e-6  # nodes run until both residuals are below this, at most
TOUCHES = 5  # of the same steps from the directions that a node mixes, when it is split
CLOSED = 1e-5  # the tree is closed when its bound is above what a direction attains by no more than this, relative
KINKED = 0.01  # what E[alpha^2] counts beside E[n^2] in the score of a split
LATE = 0.007  # stationarity and interior points begin when the bound is within this of the floor, relative
STAGE = 0.5  # a stage begins when the bound has come this part of its distance to the floor nearer
ROOM = 2**20  # entries of the Newton matrices of the nodes that are split together
SLACK = 2.0**-22  # what a height is above the bound that proves it, relative: multipliers are in single precision


@dataclass(frozen=True)
class BranchOptions:
    """How long a node is worked on; none of these touches the proof.

    Attributes:
        check: first-order steps between two proofs at a node.
        root_checks: proofs at the root, at most.
        node_checks: proofs at any other node, at most.
        batch: nodes that are split together.
    """

    check: int = 25
    root_checks: int = 120
    node_checks: int = 8
    batch: int = 8


@dataclass
class Node:
    """A piece, its bound on h^2, and how to go on from it; a node that was split keeps its children only.

    Attributes:
        states, walls: of the piece.
        bound: a proved bound on h^2.
        made: the stage in which it was made.
        entries: its multipliers, packed.
        moments: E[(w, p) (w, p)^T], w in the coordinates of the ground and p of all samples.
        split, wall: where it was split, and in which stage.
    """

    states: Int[Tensor, " N"]
    walls: Float[Tensor, "k r"]
    bound: float
    made: int = 0
    entries: Tensor | None = None
    moments: Tensor | None = None
    split: int = LEAF
    wall: Tensor | None = None
    stage: int = 0
    children: list[Node] = field(default_factory=list)


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
        self.heights = torch.zeros(1, dtype=torch.float64)
        piece = make_piece(ground)
        nothing = ground.P.new_zeros(len(piece.B), len(piece.B))
        self.root = Node(
            torch.zeros(N, dtype=torch.int64, device=ground.P.device),
            ground.P.new_zeros(0, r),
            prove(piece, self.Lambda, nothing),
            entries=pack(piece, nothing),
        )
        self.rho, self.nodes = FIXED_RHO, 0
        self._ties = itertools.count()
        self._open: list[tuple[float, int, Node]] = []

    @property
    def maximum(self) -> float:
        """The proved bound on h so far."""
        return self.scale * math.sqrt(max(self._largest(), float(self.heights[0]) ** 2)) * (1.0 + 4 * UNIT_ROUNDOFF)

    @property
    def attained(self) -> float:
        """The largest h that a direction was seen to attain; no tree gets below it."""
        return self.scale * self._found

    @property
    def direction(self) -> Float[Tensor, " d"]:
        """The unit direction that attains it, in input coordinates."""
        return self._where @ self.ground.basis

    @property
    def stage(self) -> int:
        """The stage that nodes are made in now."""
        return len(self.heights) - 1

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
            if self.ground.slope == 0.0:
                floor = max(target / self.scale * (1.0 - 8 * UNIT_ROUNDOFF), self._found)
                self.heights[0] = min(floor, math.sqrt(self.root.bound))
        while self._open and not budget.spent():
            goal = max(target / self.scale, self._found * (1.0 + CLOSED)) ** 2
            self._advance()
            chosen = self._next(goal, max_nodes)
            if not chosen:
                break
            children = [child for node in chosen for child in self._split(node)]
            self._solve(children, goal, budget, self.options.node_checks)
            for child in children:
                self._keep(child)
            if callback is not None:
                callback(self.maximum, self.nodes)

    def _next(self, goal: float, max_nodes: int | None) -> list[Node]:
        """The open nodes with the largest bounds, if they are above the goal."""
        batch = self.options.batch
        if self.stage > 0:  # the Newton matrices of a batch are that large
            batch = min(batch, max(1, ROOM // (PAIRS * sum(self.ground.P.shape)) ** 2))
        if max_nodes is not None:
            batch = min(batch, (max_nodes - self.nodes) // 2)
        chosen: list[Node] = []
        while len(chosen) < batch and self._open and -self._open[0][0] > goal:
            chosen.append(heapq.heappop(self._open)[2])
        return chosen

    def _advance(self) -> None:
        """A new stage, if the bound is worth it."""
        floor, height = float(self.heights[0]), math.sqrt(self._largest()) * (1.0 + SLACK)
        near = LATE * floor if self.stage == 0 else STAGE * (float(self.heights[-1]) - floor)
        if floor > 0.0 and floor * CLOSED < height - floor < near:
            self.heights = torch.cat([self.heights, self.heights.new_tensor([height])])

    def _keep(self, node: Node) -> None:
        heapq.heappush(self._open, (-node.bound, next(self._ties), node))

    def _known(self, stage: int) -> Stationarity | None:
        """What the nodes that were made in a stage know."""
        return make_stationarity(self.Lambda, self.heights, stage)

    def _piece(self, node: Node) -> Piece:
        return make_piece(self.ground, node.states, node.walls, self._known(node.made))

    def _solve(self, nodes: list[Node], goal: float, budget: Budget, checks: int, thorough: bool = False) -> None:
        """Better multipliers for these nodes, all together."""
        self.nodes += len(nodes)
        pieces = [self._piece(node) for node in nodes]
        if self.stage == 0:
            self._descend(nodes, pieces, 0.0 if thorough else goal, budget, checks)
            return
        found = [self._multipliers(node, piece) for node, piece in zip(nodes, pieces, strict=True)]
        moments = [self._gathered(node, piece) for node, piece in zip(nodes, pieces, strict=True)]
        better = polish(pieces, self.Lambda, found, moments, goal, budget.spent)
        for node, piece, polished in zip(nodes, pieces, better, strict=True):
            if polished is not None:
                self._improve(node, piece, polished.Pi, torch.float32)
                node.moments = self._spread(piece, polished.moments)

    def _descend(self, nodes: list[Node], pieces: list[Piece], goal: float, budget: Budget, checks: int) -> None:
        """First-order steps until each node is below the goal or slow; until they settle, if the goal is 0."""
        # Single precision below the root; the proofs never are.
        root = nodes[0] is self.root
        kind = torch.float64 if root else torch.float32
        sides = FixedLambda(pieces, self.Lambda, kind)
        method: AlternatingDirections = AlternatingDirections(pieces, sides, dtype=kind)
        state, start = self._warm(method, sides, nodes, pieces), sides.layout.y.start
        histories = [[node.bound] for node in nodes]
        active, left = list(range(len(nodes))), list(range(len(nodes)))
        for _ in range(checks):
            state = method.run(state, self.options.check, budget.spent)
            found, left = sides.multipliers(state), []
            for row, k in enumerate(active):
                size = len(pieces[k].B)
                self._improve(nodes[k], pieces[k], found[row, :size, :size].double(), kind)
                histories[k].append(nodes[k].bound)
                nodes[k].moments = self._moments(pieces[k], state.Z[row], start)
                settled = max(float(state.primal[row]), float(state.dual[row])) < ACCURACY
                if not settled and (goal == 0.0 or not _done(histories[k], goal, root)):
                    left.append(row)
            self.rho = min(max(float(state.rho.log().mean().exp()), SMALLEST_RHO), LARGEST_RHO)
            if not left or budget.spent():
                break
            if len(left) < len(active):
                active, chosen = [active[row] for row in left], torch.tensor(left, device=state.Z.device)
                state, method, sides = state.only(chosen), method.only(chosen), sides.only(chosen)

    def _warm(self, method: AlternatingDirections, sides: FixedLambda, nodes: list[Node], pieces: list[Piece]) -> State:
        """Z from the moments of the parent, T from its multipliers."""
        state, start = method.start(self.rho), sides.layout.y.start
        for row, (node, piece) in enumerate(zip(nodes, pieces, strict=True)):
            if node.moments is None or node.entries is None:
                continue
            U, size, k = self._gathered(node, piece), len(piece.B), piece.rank
            rows = torch.cat([torch.eye(k, len(U), dtype=U.dtype, device=U.device), piece.B])
            place = torch.cat([torch.arange(k), start + torch.arange(size)]).to(state.Z.device)
            state.Z[row, place[:, None], place] = (rows @ U @ rows.T).to(state.Z)
            Pi, inner = self._multipliers(node, piece).to(state.T), slice(start, start + size)
            state.T[row, inner, inner] = -(Pi + sides.gain[row, :size, :size]) / self.rho
        return state

    def _multipliers(self, node: Node, piece: Piece) -> Tensor:
        assert node.entries is not None
        return unpack(piece, node.entries)

    def _gathered(self, node: Node, piece: Piece) -> Tensor:
        """The moments of u from those of w and p."""
        assert node.moments is not None
        lift = self._lift(piece)
        return lift @ node.moments.to(lift) @ lift.T

    def _lift(self, piece: Piece) -> Float[Tensor, "q c"]:
        """u from (w, p), w in the coordinates of the ground and p of all samples."""
        (N, r), k = self.ground.P.shape, piece.rank
        lift = piece.B.new_zeros(k + len(piece.free), r + N)
        lift[:k, :r] = piece.span.basis
        lift[k:, r:][torch.arange(len(piece.free)), piece.free] = 1.0
        return lift

    def _improve(self, node: Node, piece: Piece, Pi: Tensor, kind: torch.dtype) -> None:
        """Take Pi, as it would be stored, if it proves more."""
        entries = pack(piece, Pi.to(kind))
        bound = prove(piece, self.Lambda, unpack(piece, entries))
        if node.entries is None or bound < node.bound:
            node.bound, node.entries = bound, entries

    def _moments(self, piece: Piece, Z: Tensor, start: int) -> Tensor:
        """Those of w and p from the state of the alternating directions."""
        N, r = self.ground.P.shape
        lift = Z.new_zeros(r + N, len(Z))
        lift[:r, : piece.rank] = piece.span.basis.T.to(Z)
        rows = (piece.kind == P).nonzero()[:, 0]
        lift[r + piece.sample[rows], start + rows] = 1.0
        return (lift @ Z @ lift.T).float()

    def _spread(self, piece: Piece, U: Tensor) -> Tensor:
        """Those of w and p from the moments of u."""
        N, r = self.ground.P.shape
        lift = U.new_zeros(r + N, len(U))
        lift[:r, : piece.rank] = piece.span.basis.T
        rows = (piece.kind == P).nonzero()[:, 0]
        lift[r + piece.sample[rows]] = piece.B[rows]
        return (lift @ U @ lift.T).float()

    def _split(self, node: Node) -> list[Node]:
        """Its sides, which start from its state, bound and multipliers; its directions are tried as well."""
        assert node.moments is not None
        r, moments = self.ground.rank, node.moments.double()
        top = torch.linalg.eigh(moments[:r, :r])[1][:, -3:].T
        value, where = climb(self.ground, self.Lambda, torch.cat([top, -top]), TOUCHES)
        if value > self._found:
            self._found, self._where = value, where
        piece = self._piece(node)
        score = self._score(node, piece, moments)
        best = int(score.argmax())
        split = best if float(score[best]) > DIVIDED else WALL
        wall = dividing_wall(self._rows() @ moments[:, :r], self.weight) if split == WALL else None
        return self._sides(node, piece, split, wall)

    def _sides(self, node: Node, piece: Piece, split: int, wall: Tensor | None) -> list[Node]:
        """Its children, with its multipliers."""
        children = []
        for second in (False, True):
            states, walls = side(node.states, node.walls, split, wall, second)
            child = Node(states, walls, node.bound, self.stage, moments=node.moments)
            inner = self._piece(child)
            self._improve(child, inner, self._handed(node, piece, inner), torch.float64)
            children.append(child)
        node.split, node.wall, node.stage, node.children = split, wall, self.stage, children
        return children

    def _handed(self, node: Node, piece: Piece, child: Piece) -> Float[Tensor, "K K"]:
        """The multipliers of a node as those of its child, whose ceiling may be lower; they prove as much there.

        The old beta is the new one + drop g, so that alpha beta and g beta leave drop alpha g and drop g^2 behind.
        """
        Pi, known, now = self._multipliers(node, piece), self._known(node.made), self._known(self.stage)
        mine, theirs = piece.identity(), child.identity()
        at = mine.new_full((1 + int(torch.cat([mine, theirs]).max()),), -1)
        if bool((piece.kind == BETA).any()):
            assert known is not None
            assert now is not None
            drop = (known.ceiling - now.ceiling) / known.floor
            at[mine] = torch.arange(len(mine), device=at.device)
            beta = (piece.kind == BETA).nonzero()[:, 0]
            alpha, g = (at[kind * len(piece.states) + piece.sample[beta]] for kind in (ALPHA, G))
            Pi[alpha, g] += drop * Pi[alpha, beta]
            Pi[g, alpha] = Pi[alpha, g]
            Pi[g, g] += 2.0 * drop * Pi[g, beta]
        at[mine] = torch.arange(len(mine), device=at.device)
        rows = at[theirs]
        sign = torch.where(rows >= 0, child.sign * piece.sign[rows], 0.0)
        return sign[:, None] * Pi[rows][:, rows] * sign

    def _rows(self) -> Float[Tensor, "n c"]:
        """(w, p, n) from (w, p)."""
        N, r = self.ground.P.shape
        whole = torch.eye(r + N, dtype=self.ground.P.dtype, device=self.ground.P.device)
        xh = self.ground.P / self.ground.length[:, None]
        return torch.cat([whole, torch.cat([-xh, whole[r:, r:]], dim=1)])

    def _score(self, node: Node, piece: Piece, moments: Float[Tensor, "c c"]) -> Float[Tensor, " N"]:
        """How much of the moments a split at a sample takes away on the side that keeps most.

        NEGATIVE and KINK lose E[p^2]; STRICT loses E[n^2], and E[alpha^2] if its parent knows stationarity.
        """
        N, r = self.ground.P.shape
        squares = ((self._rows() @ moments) * self._rows()).sum(dim=1).clamp_min(0.0)
        p, n = squares[r : r + N], squares[r + N :]
        alpha = torch.zeros_like(p)
        rows = ((piece.kind == ALPHA) & (piece.sign > 0.0)).nonzero()[:, 0]
        if len(rows) and self.stage > 0:
            B = piece.B[rows] @ self._lift(piece)
            alpha[piece.sample[rows]] = ((B @ moments) * B).sum(dim=1).clamp_min(0.0)
        free, positive = node.states == FREE, node.states == POSITIVE
        lost = torch.where(free, n, KINKED * alpha)
        open_ = (free | (positive & (alpha > 0.0))) & ~self.ground.zero
        return torch.where(open_, torch.minimum(p, lost) * self.weight, -1.0)

    def multipliers(self) -> Multipliers:
        """The tree as arrays, its walls in input coordinates."""
        basis, last = self.ground.basis, len(self.heights)
        splits, stages, walls, values, pending = [], [], [], [], [self.root]
        while pending:
            node = pending.pop()
            splits.append(node.split if node.children else LEAF)
            stages.append(node.stage if node.children else last)
            if stages[-1] > node.made:
                assert node.entries is not None
                values.append(node.entries)
            pending += node.children[::-1]
            if node.children and node.wall is not None:
                walls.append(node.wall @ basis)
        stacked = torch.stack(walls) if walls else basis.new_zeros(0, basis.shape[1])
        kind = torch.float32 if all(v.dtype == torch.float32 for v in values) else torch.float64
        joined = torch.cat([v.to(kind) for v in values])
        return Multipliers(torch.tensor(splits), torch.tensor(stages), self.heights, stacked, joined).scaled(self.scale)


def _done(history: list[float], goal: float, root: bool) -> bool:
    """Whether a node has met the goal or has become slow."""
    window, now = ROOT_WINDOW if root else 1, history[-1]
    if now <= goal:
        return True
    # A bound that is still the parent's says nothing yet: the steps have to settle first.
    return len(history) > window + 1 and now < history[0] and history[-1 - window] - now < SLOW * (now - goal)
