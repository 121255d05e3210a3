"""The nodes of a tree over signs: how they are split, and how their multipliers are improved.

`NodeWork` changes only nodes that it makes, so that other processes can do it (`runtime.cores`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.certify.relaxation.admm import AlternatingDirections, FixedLambda, State
from covopt.certify.relaxation.ground import FREE, POSITIVE, Ground, climb, dividing_wall
from covopt.certify.relaxation.interior import polish
from covopt.certify.relaxation.lift import ALPHA, BETA, G, P, Piece, Stationarity, make_piece
from covopt.certify.relaxation.multipliers import LEAF, WALL, make_stationarity, pack, side, unpack
from covopt.certify.relaxation.repair import prove
from covopt.runtime.loop import Budget


@dataclass(frozen=True)
class BranchOptions:
    """The effort at a node; no proof depends on it."""

    check: int = 25  # first-order steps between two proofs at a node
    root_checks: int = 120  # the maximum number of proofs at the root
    node_checks: int = 8  # the maximum number of proofs at any other node
    batch: int = 4  # nodes that are split together, as one piece of work


@dataclass
class Node:
    """A piece, its bound on h^2, and the state of its solver; or, once it is split, its children."""

    states: Int[Tensor, " N"]  # those of the samples
    walls: Float[Tensor, "k r"]  # the normals of the walls
    bound: float  # a proved bound on h^2
    made: int = 0  # the stage in which it was made
    entries: Tensor | None = None  # its multipliers, packed
    moments: Tensor | None = None  # E[(w, p) (w, p)^T], w in the coordinates of the ground and p of all samples
    split: int = LEAF  # the sample at which it was split, or WALL
    wall: Tensor | None = None  # the normal of the wall, if it is one
    stage: int = 0  # in which it was split
    children: list[Node] = field(default_factory=list)

    def walk(self) -> Iterator[Node]:
        """Yield this node and all below it, each before its children."""
        pending = [self]
        while pending:
            node = pending.pop()
            yield node
            pending += node.children[::-1]


Sides = tuple[int, Tensor | None, list[Node]]
"""The sample at which a node is split (or WALL), the wall if there is one, and the children."""


class Split(NamedTuple):
    """The result of splitting nodes."""

    sides: list[Sides]
    value: float  # the largest h found
    where: Tensor  # its direction
    rho: float  # the last one
    proving: float  # the seconds of one proof for each child


@dataclass(frozen=True)
class NodeWork:
    """The work on the nodes of a round."""

    ground: Ground
    Lambda: Float[Tensor, "N m"]  # the dual point, scaled so that h is about 1
    heights: Float[Tensor, " S"]  # sqrt(f0), and sqrt(f1) of each stage so far
    options: BranchOptions
    rho: float  # the first rho
    goal: float  # a bound on h^2 that is good enough
    budget: Budget

    def __call__(self, nodes: list[Node]) -> Split:
        """Split as many of the nodes as there is time for, and improve the multipliers of all children together."""
        sides: list[Sides] = []
        value, where, proving = 0.0, self.ground.P[0], 0.0
        for node in nodes:
            if self.budget.spent():
                break
            attained, direction = self._touched(node)
            if attained > value:
                value, where = attained, direction
            split, seconds = self._split(node)
            sides.append(split)
            proving += seconds
        children = [child for *_, both in sides for child in both]
        rho = self.solve(children, self.options.node_checks) if children else self.rho
        return Split(sides, value, where, rho, proving)

    @property
    def stage(self) -> int:
        """Return the stage in which nodes are made."""
        return len(self.heights) - 1

    @property
    def weight(self) -> Float[Tensor, " N"]:
        """Return |lambda_i| |x_i|."""
        return self.Lambda.norm(dim=1) * self.ground.length

    def _stationarity(self, stage: int) -> Stationarity | None:
        """Return the stationarity of the nodes that were made in a stage."""
        return make_stationarity(self.Lambda, self.heights, stage)

    def _piece(self, node: Node) -> Piece:
        return make_piece(self.ground, node.states, node.walls, self._stationarity(node.made))

    def solve(self, nodes: list[Node], checks: int, root: bool = False) -> float:
        """Improve the multipliers of these nodes, all together; return the last rho."""
        pieces = [self._piece(node) for node in nodes]
        if self.stage == 0:
            return self._descend(nodes, pieces, checks, root)
        multipliers = [self._multipliers(node, piece) for node, piece in zip(nodes, pieces, strict=True)]
        moments = [self._gathered(node, piece) for node, piece in zip(nodes, pieces, strict=True)]
        better = polish(pieces, self.Lambda, multipliers, moments, self.goal, self.budget.spent)
        for node, piece, polished in zip(nodes, pieces, better, strict=True):
            if polished is not None:
                self._improve(node, piece, polished.Pi, torch.float32)
                node.moments = self._spread(piece, polished.moments, piece.B)
        return self.rho

    def _descend(self, nodes: list[Node], pieces: list[Piece], checks: int, root: bool) -> float:
        """Take first-order steps until each node is below the goal or slow; with goal 0, until they converge."""
        # Nodes below the root use float32; proofs are always in float64.
        kind = torch.float64 if root else torch.float32
        sides = FixedLambda(pieces, self.Lambda, kind)
        method = AlternatingDirections(pieces, sides.prox, dtype=kind)
        state = self._warm(method, sides, nodes, pieces)
        y = torch.eye(state.Z.shape[1], dtype=kind, device=state.Z.device)[sides.layout.y]
        rho, histories = self.rho, [[node.bound] for node in nodes]
        active, remaining = list(range(len(nodes))), list(range(len(nodes)))
        for _ in range(checks):
            state = method.run(state, self.options.check, self.budget.spent)
            multipliers, remaining = sides.multipliers(state), []
            for row, k in enumerate(active):
                size = len(pieces[k].B)
                self._improve(nodes[k], pieces[k], multipliers[row, :size, :size].double(), kind)
                histories[k].append(nodes[k].bound)
                nodes[k].moments = self._spread(pieces[k], state.Z[row], y)
                settled = max(float(state.primal[row]), float(state.dual[row])) < 1e-6
                if not settled and (self.goal == 0.0 or not _done(histories[k], self.goal, root)):
                    remaining.append(row)
            rho = min(max(float(state.rho.log().mean().exp()), 5.0), 500.0)  # from node to node
            if not remaining or self.budget.spent():
                break
            if len(remaining) < len(active):
                active, chosen = [active[row] for row in remaining], torch.tensor(remaining, device=state.Z.device)
                sides = sides.only(chosen)
                state, method = state.only(chosen), method.only(chosen, sides.prox)
        return rho

    def _warm(self, method: AlternatingDirections, sides: FixedLambda, nodes: list[Node], pieces: list[Piece]) -> State:
        """Return a state with Z from the moments of the parent, and T from its multipliers."""
        state, start = method.start(self.rho), sides.layout.y.start
        for row, (node, piece) in enumerate(zip(nodes, pieces, strict=True)):
            if node.moments is None or node.entries is None:
                continue
            U, size, k = self._gathered(node, piece), len(piece.B), piece.rank
            rows = torch.cat([torch.eye(k, len(U), dtype=U.dtype, device=U.device), piece.B])
            place = torch.cat([torch.arange(k), start + torch.arange(size)]).to(state.Z.device)
            state.Z[row, place[:, None], place] = (rows @ U @ rows.T).to(state.Z)
            Pi, block = self._multipliers(node, piece).to(state.T), slice(start, start + size)
            state.T[row, block, block] = -(Pi + sides.gain[row, :size, :size]) / self.rho
        return state

    def _multipliers(self, node: Node, piece: Piece) -> Tensor:
        assert node.entries is not None
        return unpack(piece, node.entries)

    def _gathered(self, node: Node, piece: Piece) -> Tensor:
        """Return the moments of u from those of w and p."""
        assert node.moments is not None
        lift = self._lift(piece)
        return lift @ node.moments.to(lift) @ lift.T

    def _lift(self, piece: Piece) -> Float[Tensor, "q c"]:
        """Return the matrix that maps (w, p), w in coordinates of the ground and p of all samples, to u."""
        (N, r), k = self.ground.P.shape, piece.rank
        lift = piece.B.new_zeros(k + len(piece.undecided), r + N)
        lift[:k, :r] = piece.span.basis
        lift[k:, r:][torch.arange(len(piece.undecided)), piece.undecided] = 1.0
        return lift

    def _improve(self, node: Node, piece: Piece, Pi: Tensor, kind: torch.dtype) -> None:
        """Give the node this Pi, rounded to `kind` as it is stored, if it proves a better bound."""
        entries = pack(piece, Pi.to(kind))
        bound = prove(piece, self.Lambda, unpack(piece, entries))
        if node.entries is None or bound < node.bound:
            node.bound, node.entries = bound, entries

    def _spread(self, piece: Piece, U: Tensor, y: Tensor) -> Tensor:
        """Return the moments of w and p from moments that begin with w; the rows `y` map the others to y."""
        N, r = self.ground.P.shape
        lift = U.new_zeros(r + N, len(U))
        lift[:r, : piece.rank] = piece.span.basis.T.to(U)
        rows = (piece.kind == P).nonzero()[:, 0]
        lift[r + piece.sample[rows]] = y[rows]
        return (lift @ U @ lift.T).float()

    def _touched(self, node: Node) -> tuple[float, Tensor]:
        """Return the largest h, and its direction, that a climb reaches from the directions that a node mixes."""
        assert node.moments is not None
        r = self.ground.rank
        top = torch.linalg.eigh(node.moments.double()[:r, :r])[1][:, -3:].T
        return climb(self.ground, self.Lambda, torch.cat([top, -top]), steps=5)

    def _split(self, node: Node) -> tuple[Sides, float]:
        """Return the sides of a node, with its moments, bound and multipliers, and the time of their proofs."""
        assert node.moments is not None
        r, moments = self.ground.rank, node.moments.double()
        piece = self._piece(node)
        score = self._score(node, piece, moments)
        best = int(score.argmax())
        split = best if float(score[best]) > 1e-5 else WALL
        wall = dividing_wall(self._rows() @ moments[:, :r], self.weight) if split == WALL else None
        children, started = [], time.perf_counter()
        for second in (False, True):
            states, walls = side(node.states, node.walls, split, wall, second)
            child = Node(states, walls, node.bound, self.stage, moments=node.moments)
            child_piece = self._piece(child)
            self._improve(child, child_piece, self._handed(node, piece, child_piece), torch.float64)
            children.append(child)
        return (split, wall, children), time.perf_counter() - started

    def _handed(self, node: Node, piece: Piece, child: Piece) -> Float[Tensor, "K K"]:
        """Convert the multipliers of a node to its child, whose ceiling may be lower; they prove as much there.

        The old beta is the new one + drop g, so the products alpha beta and g beta add drop alpha g and drop g^2.
        """
        Pi = self._multipliers(node, piece)
        before, now = self._stationarity(node.made), self._stationarity(self.stage)
        mine, theirs = piece.identity(), child.identity()
        at = mine.new_full((1 + int(torch.cat([mine, theirs]).max()),), -1)
        if bool((piece.kind == BETA).any()):
            assert before is not None
            assert now is not None
            drop = (before.ceiling - now.ceiling) / before.floor
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
        """Return the matrix that maps (w, p) to (w, p, n)."""
        N, r = self.ground.P.shape
        whole = torch.eye(r + N, dtype=self.ground.P.dtype, device=self.ground.P.device)
        xh = self.ground.P / self.ground.length[:, None]
        return torch.cat([whole, torch.cat([-xh, whole[r:, r:]], dim=1)])

    def _score(self, node: Node, piece: Piece, moments: Float[Tensor, "c c"]) -> Float[Tensor, " N"]:
        """Return how much of the moments a split at each sample removes, on the side where it removes less.

        NEGATIVE and KINK remove E[p^2], POSITIVE removes E[n^2], and STRICT counts as 0.01 E[alpha^2].
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
        lost = torch.where(free, n, 0.01 * alpha)
        open_ = (free | (positive & (alpha > 0.0))) & ~self.ground.zero
        return torch.where(open_, torch.minimum(p, lost) * self.weight, -1.0)


def _done(history: list[float], goal: float, root: bool) -> bool:
    """Return True if the bound has reached the goal, or fell by less than 15 % of its distance in the last checks."""
    window, now = 4 if root else 1, history[-1]
    if now <= goal:
        return True
    # As long as the bound is the parent's, the steps have not converged enough to judge.
    return len(history) > window + 1 and now < history[0] and history[-1 - window] - now < 0.15 * (now - goal)
