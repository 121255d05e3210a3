"""Trees of pieces, and the multipliers that prove a bound on h over the whole sphere without a solver.

Each node of the tree is a piece (`certify.relaxation.lift`). A split at a FREE sample has the sides POSITIVE and
NEGATIVE, one at a POSITIVE sample the sides STRICT and KINK, a wall a^T w = 0 its two sides; a maximiser belongs to
exactly one leaf (to either side of a wall).

**Stages.** The strict pieces use a bound f1 on h^2 that was proved before them. A node is split in stage 0, 1, ...; the
leaves of stage s are the nodes that were made in a stage up to s and were split in a later one, or never. Together they
cover the sphere, so the largest of their bounds is a bound on max h, and it is the f1 of the nodes that are made in
stage s + 1; those of stage 0 do not use stationarity. Nodes that are a leaf of no stage need no multipliers. A tree
of one stage is an ordinary tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.certify.relaxation.ground import FREE, KINK, NEGATIVE, POSITIVE, STRICT, Ground, make_ground, whole_maximum
from covopt.certify.relaxation.lift import NONE, Piece, Stationarity, make_piece
from covopt.certify.relaxation.repair import prove
from covopt.linalg.rounding import UNIT_ROUNDOFF
from covopt.model.activation import Activation
from covopt.runtime.errors import ProblemError

LEAF, WALL = -1, -2


@dataclass(frozen=True)
class Multipliers:
    """A proof of a bound on h: a tree of splits in preorder (node, first side, second side), and Pi at its leaves."""

    splits: Int[Tensor, " _"]  # for each node, the sample it is split at, -1 for a leaf, -2 for a wall
    stages: Int[Tensor, " _"]  # for each node, the stage in which it was split; for a leaf, the last stage plus 1
    heights: Float[Tensor, " _"]  # sqrt(f0), and sqrt(f1) of each later stage (S,), which the stage before must prove
    walls: Float[Tensor, "_ _"]  # normals a of the walls, in input coordinates, in the order of their nodes (W, d)
    # for each leaf of any stage, in the order of the nodes, Pi at the pairs of rows of its piece that may have
    # multipliers, the upper triangle row by row
    values: Float[Tensor, " _"]

    @classmethod
    def root(cls, ground: Ground, Pi: Float[Tensor, "K K"] | None = None) -> Multipliers:
        """Return the multipliers Pi, by default zero, of a tree that is one leaf without stationarity."""
        piece = make_piece(ground)
        values = pack(piece, torch.zeros_like(piece.rule).double() if Pi is None else Pi.double())
        return cls(torch.tensor([LEAF]), torch.tensor([1]), values.new_zeros(1), ground.basis[:0], values)

    @property
    def leaves(self) -> int:
        """Return the number of pieces that the sphere is cut into."""
        return int((self.splits == LEAF).sum())

    def scaled(self, factor: float) -> Multipliers:
        """Return multipliers for factor * Lambda; float32 entries lose about 1e-8 of the bound, relative."""
        return Multipliers(self.splits, self.stages, factor * self.heights, self.walls, factor**2 * self.values)


def pack(piece: Piece, Pi: Float[Tensor, "K K"]) -> Float[Tensor, " entries"]:
    """Return the entries of Pi that may differ from 0."""
    return Pi[_nonzero(piece)]


def unpack(piece: Piece, entries: Float[Tensor, " entries"]) -> Float[Tensor, "K K"]:
    """Return Pi from its entries."""
    upper = piece.B.new_zeros(len(piece.B), len(piece.B))
    upper[_nonzero(piece)] = entries.to(piece.B)
    return upper + upper.T - torch.diag(upper.diagonal())


def _nonzero(piece: Piece) -> Tensor:
    return (piece.rule != NONE).triu()


def side(states: Tensor, walls: Tensor, split: int, wall: Tensor | None, second: bool) -> tuple[Tensor, Tensor]:
    """Return the states and walls of one side of a split."""
    if wall is not None:
        return states, torch.cat([walls, (-wall if second else wall)[None]])
    changed = states.clone()
    if int(states[split]) == FREE:
        changed[split] = NEGATIVE if second else POSITIVE
    else:
        changed[split] = KINK if second else STRICT
    return changed, walls


def make_stationarity(Lambda: Float[Tensor, "N m"], heights: Float[Tensor, " S"], stage: int) -> Stationarity | None:
    """Return the stationarity that nodes of a stage may use; None in the first."""
    if stage == 0:
        return None
    floor, ceiling = float(heights[0]), float(heights[stage])
    return Stationarity(Lambda, floor**2 * (1.0 - 4 * UNIT_ROUNDOFF), ceiling**2 * (1.0 + 4 * UNIT_ROUNDOFF))


def proved_maximum(ground: Ground, Lambda: Float[Tensor, "N m"], multipliers: Multipliers) -> float:
    """Return a proved bound on max |Lambda^T sigma(P w)| over |w| <= 1, in units of `ground`.

    Arrays that are not a tree of splits with multipliers at its leaves, and a stage that does not prove the height that
    the next one uses, raise a ProblemError.
    """
    heights = multipliers.heights.double()
    if not _are_bounds(heights):
        raise ProblemError("The stored multipliers have heights that are no bounds; solve again.")
    taken, worst = 0, float(heights[0])
    for states, walls, made, split in _leaves(ground, multipliers):
        piece = make_piece(ground, states, walls, make_stationarity(Lambda, heights, made))
        size = int(_nonzero(piece).sum())
        entries = multipliers.values[taken : taken + size]
        taken += size
        if len(entries) != size:
            raise ProblemError("The stored multipliers are incomplete; solve again.")
        bound = math.sqrt(prove(piece, Lambda, unpack(piece, entries))) * (1.0 + 2 * UNIT_ROUNDOFF)
        if split < len(heights) and bound > float(heights[split]):
            raise ProblemError("A stage of the stored multipliers does not prove its height; solve again.")
        if split == len(heights):
            worst = max(worst, bound)
    if taken != len(multipliers.values):
        raise ProblemError("The stored multipliers do not fit their tree of splits; solve again.")
    return worst


def check_maximum(
    Xt: Float[Tensor, "N d"], activation: Activation, Lambda: Float[Tensor, "N m"], multipliers: Multipliers
) -> float:
    """Return a proved M >= max_w |Lambda^T sigma(Xt w)| over unit w, with errors as in `enter` and `proved_maximum`."""
    ground, Lambda = enter(Xt, activation, Lambda)
    return whole_maximum(ground, Lambda, proved_maximum(ground, Lambda, multipliers))


def enter(
    Xt: Float[Tensor, "N d"], activation: Activation, Lambda: Float[Tensor, "N m"]
) -> tuple[Ground, Float[Tensor, "N m"]]:
    """Return the inputs in their row space, and Lambda in float64; raise a ProblemError unless Lambda fits."""
    if Lambda.ndim != 2 or len(Lambda) != len(Xt):
        raise ProblemError(f"Lambda has shape {tuple(Lambda.shape)}; give one row for each of the {len(Xt)} samples.")
    if not bool(torch.isfinite(Lambda).all()):
        raise ProblemError("Lambda has NaN or infinite entries, and nothing can be proved with it.")
    return make_ground(Xt, activation), Lambda.double()


def _are_bounds(heights: Tensor) -> bool:
    """Return True if these are a floor and ceilings that do not rise."""
    if heights.ndim != 1 or len(heights) == 0 or not bool((torch.isfinite(heights) & (heights >= 0.0)).all()):
        return False
    return bool((heights[2:] <= heights[1:-1]).all())


def _leaves(ground: Ground, multipliers: Multipliers) -> Iterator[tuple[Tensor, Tensor, int, int]]:
    """Yield states and walls of each leaf of any stage, and the stages in which it was made and split."""
    (N, r), last = ground.P.shape, len(multipliers.heights)
    pending = [(torch.zeros(N, dtype=torch.int64), ground.P.new_zeros(0, r), 0)]
    walls = iter(multipliers.walls.double() @ ground.basis.T)
    for split, stage in zip(multipliers.splits.tolist(), multipliers.stages.tolist(), strict=False):
        if not pending or not WALL <= split < N:
            raise ProblemError("The stored multipliers do not form a tree of splits; solve again.")
        states, cuts, made = pending.pop()
        if not (stage == last if split == LEAF else made <= stage < last):
            raise ProblemError("The stages of the stored multipliers are out of order; solve again.")
        if stage > made:
            yield states, cuts, made, stage
        if split == LEAF:
            continue
        wall = next(walls, None) if split == WALL else None
        if split == WALL and wall is None:
            raise ProblemError("The stored multipliers lack a wall; solve again.")
        if split >= 0 and int(states[split]) not in (FREE, POSITIVE):
            raise ProblemError("The stored multipliers split a sample twice; solve again.")
        pending += [(*side(states, cuts, split, wall, second), stage) for second in (True, False)]
    if pending or next(walls, None) is not None or len(multipliers.stages) != len(multipliers.splits):
        raise ProblemError("The stored multipliers do not fit their tree; solve again.")
