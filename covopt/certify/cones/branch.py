"""Branch and bound for max_w h(w) = |Lambda^T sigma(Xt w)| over cones of directions (MATH.md section 4, way 3).

For few inputs and many samples: r = rank(Xt) up to about 6, with one output 8. Let Q (r, d) be a basis of the row
space, P = Xt Q^T. The ball |q| <= 1 is cut into the 2^r orthants of R^r, cones with r generators, and a cone is cut in
two at the midpoint of one of its edges. `bounds.py` bounds h over hundreds of cones at once; the worst are cut first,
and those whose bound is at most the target are closed. A tree that time stopped is a proof too: its bound is the
largest of its leaves.

**Rounding**, besides that of each cone's bound (u = 2^-53, S = sum_i |lambda_i| |p_i|):
* A computed midpoint differs from a point of the edge by at most 3 u, component by component and sign by sign. So cones
  stay in their orthant, where the coefficient of a unit generator is at most |q|: a direction of the exact cone lies
  within 3 u of one of the computed halves, and h is S-Lipschitz. DEEPEST cuts cost at most 6 DEEPEST u (S + M).
* The part of Xt that Q does not span, E = Xt - P Q, changes h by at most |Lambda|_F |E|_F, and |Q w| <= |Q|_2, as in
  `covopt.oracles.arrangement`.

**The proof in a file.** The codes of a tree, a byte for each cone, say which cones were cut where; `replay` cuts them
again, recomputes their bounds and returns the bound that they prove, whatever is written in the file.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from covopt.certify.cones.bounds import Bounded, ConeBounds
from covopt.certify.cones.tree import Log, OpenCones, halves, roots
from covopt.certify.dual import DualProof, dual_bound, is_provable
from covopt.certify.dual_space import orthogonal
from covopt.certify.proof import Proved, Target
from covopt.linalg.rounding import UNIT_ROUNDOFF, to_unit_scale
from covopt.linalg.row_space import RowSpace
from covopt.model.activation import Activation
from covopt.model.biases import Free, Penalised
from covopt.model.problem import Problem
from covopt.oracles.exact import inputs_have_rank_at_most
from covopt.oracles.oracle import Answer, oracle_values
from covopt.runtime.cores import Cores, cores
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Budget, Certificate
from covopt.runtime.pace import FAIR, Pace

LARGEST_RANK = 12  # 2^r orthants to start from, and r (r - 1) / 2 < 255 edges
DEEPEST = 2000  # the maximum number of cuts above a cone; bounds include the rounding of all of them
# At the scaled dual point, which is stored, the tree may prove a maximum that is larger by this, relative, because the
# interior-point steps in a cone round differently. 1e-11 was measured on 40 random trees. The stated bound is proved
# again.
AGAIN = 2.0**-23


@dataclass(frozen=True)
class BranchOptions:
    """The shape of the search."""

    batch: int = 512  # cones cut in one round at most, for any number of cores, so that the tree is the same
    slack: float = 1e-4  # if a direction has a value above the target, the aim is (1 + slack) times that value
    most_cones: int = 20_000_000  # the maximum size of the tree
    # stop if doubling the time is expected to close less than this part of the distance between the bound and the
    # target (`runtime.pace`); 0: never
    worth: float = 0.0


@dataclass(frozen=True)
class BranchAnswer(Answer):
    """The result of branch and bound; the solver can start from its directions."""

    tree: UInt8[np.ndarray, " n"] = field(kw_only=True)  # a code for each cone that was bounded, for `replay`
    counts: Int[np.ndarray, " V"] | None = None  # the number of codes of each view of the inputs, if there are several


def branch_and_bound(
    Xt: Float[Tensor, "N d"],
    activation: Activation,
    Lambda: Float[Tensor, "N m"],
    *,
    target: float,
    time_limit: float,
    starts: Float[Tensor, "S d"] | None = None,
    options: BranchOptions | None = None,
) -> BranchAnswer:
    """Lower a proved bound on max_w h(w), worst cone first, until it reaches `target` or the time is over.

    Beyond rank 6, or 8 with one output, expect no tight bound. `starts` are good directions of any length; they only
    show early that `target` cannot be reached. A rank above `LARGEST_RANK`, a target that is negative or NaN, and a
    Lambda that is not finite raise a ProblemError.
    """
    if not target >= 0.0:
        raise ProblemError(f"The target of branch and bound is {target}; give a number >= 0.")
    if not bool(torch.isfinite(Lambda).all()):
        raise ProblemError("The dual point has NaN or infinite entries; branch and bound needs finite ones.")
    with cores(Xt.device) as team:
        search = _Search(Xt, activation, Lambda, target, Budget(time_limit), options or BranchOptions(), team)
        if starts is not None and len(starts):
            search.meet(starts.double() @ search.frame.Q.T)
        search.plant()
        while search.unfinished():
            search.cut()
    return search.answer()


def replay(
    Xt: Float[Tensor, "N d"],
    activation: Activation,
    Lambda: Float[Tensor, "N m"],
    tree: UInt8[np.ndarray, " n"],
    *,
    claimed: float,
) -> float:
    """Return the bound on max_w h(w) that the leaves of a stored tree prove, from its codes alone.

    The cones between root and leaf are bounded too, because a leaf inherits its parent's bound. `claimed` decides for
    which cones the first, cheap bound is enough; it cannot make the result wrong. Codes that are not those of a tree
    over these roots raise a ProblemError.
    """
    frame = _Frame(Xt, Lambda)
    bounds = ConeBounds(frame.P, activation, frame.Lambda)
    V, side = roots(frame.P, bounds.one_sided)
    inherited = torch.full_like(side, math.inf)
    codes, largest, depth = torch.from_numpy(tree.astype(np.int64)).to(V.device), -math.inf, 0
    edges = V.shape[1] * (V.shape[1] - 1) // 2
    with cores(V.device) as team:
        while len(V):
            level, codes = codes[: len(V)], codes[len(V) :]
            if len(level) < len(V) or int(level.max()) > edges or depth > DEEPEST:
                raise ProblemError("The stored tree does not fit this problem; solve again.")
            bounded = _bounded(team, bounds, V, side, claimed / frame.scale)
            upper = torch.minimum(inherited, bounded.upper)
            leaf = level == 0
            largest = max(largest, float(upper[leaf].max()) if bool(leaf.any()) else -math.inf)
            V, side, inherited = halves(V[~leaf], level[~leaf] - 1), side[~leaf].repeat(2), upper[~leaf].repeat(2)
            depth += 1
    if len(codes):
        raise ProblemError("The stored tree does not fit this problem; solve again.")
    return frame.to_bound(largest, bounds)


def _bounded(
    team: Cores, bounds: ConeBounds, V: Float[Tensor, "B r r"], side: Float[Tensor, " B"], enough: float
) -> Bounded:
    """Bound many cones, piece by piece."""
    size = _at_once(bounds)
    parts = team.map(partial(_piece, bounds, enough), zip(V.split(size), side.split(size), strict=True))
    return Bounded(*(torch.cat(fields) for fields in zip(*parts, strict=True)))


def _at_once(bounds: ConeBounds) -> int:
    """Return the number of cones in a piece of work, 16 to 256: about 2^18 pairs of a cone and a sample."""
    return max(16, min(256, 2**18 // max(1, len(bounds.P))))


def _piece(bounds: ConeBounds, enough: float, piece: tuple[Tensor, Tensor]) -> Bounded:
    return bounds(*piece, enough)


class _Frame:
    """Xt and Lambda at unit scale in coordinates of the row space, and the error of this in a bound."""

    def __init__(self, Xt: Float[Tensor, "N d"], Lambda: Float[Tensor, "N m"]) -> None:
        self.Lambda, scale = to_unit_scale(Lambda.double())
        # A cone needs an edge to be cut: rank 1 gets a second coordinate.
        space = RowSpace.of(Xt, least=2)
        if space.rank > LARGEST_RANK:
            raise ProblemError(
                f"The inputs and their bias column have rank {space.rank}, and branch and bound over cones of"
                f" directions covers rank {LARGEST_RANK} at most; use the relaxation."
            )
        self.scale, self.Q, self.P, self.stretch = space.size * scale, space.Q, space.P, space.stretch
        self.rest = float(self.Lambda.norm()) * space.neglected * (1.0 + 2.0**-40)

    def to_bound(self, largest: float, bounds: ConeBounds) -> float:
        """Return the bound on h over unit w from the largest bound of the leaves."""
        bound = largest + self._cuts(largest, bounds)
        return self.scale * (bound * self.stretch + self.rest) * (1.0 + 16 * UNIT_ROUNDOFF)

    def to_leaf(self, bound: float, bounds: ConeBounds) -> float:
        """Return a bound of the leaves from which `to_bound` makes at most `bound`; below 0 there is none."""
        bound = bound / self.scale
        price = self._cuts(bound, bounds) + bound * (self.stretch - 1.0) + self.rest
        return bound * (1.0 - 64 * UNIT_ROUNDOFF) - price

    def _cuts(self, largest: float, bounds: ConeBounds) -> float:
        return 6 * DEEPEST * UNIT_ROUNDOFF * (bounds.mass + abs(largest))


class _Search:
    """The open cones, the tree so far and the best directions."""

    def __init__(
        self,
        Xt: Tensor,
        activation: Activation,
        Lambda: Tensor,
        target: float,
        budget: Budget,
        options: BranchOptions,
        team: Cores,
    ) -> None:
        self.Xt, self.activation, self.target, self.options, self.team = Xt, activation, target, options, team
        self.budget, self.pace, self._ends = budget, Pace(), budget.pace()
        self.frame = _Frame(Xt, Lambda)
        self.bounds = ConeBounds(self.frame.P, activation, self.frame.Lambda)
        self.best, self.closed = 0.0, -math.inf
        self.q = self.frame.P.new_zeros(0, self.frame.P.shape[1])
        self.value = self.q[:, 0]
        self.log = Log()

    @property
    def enough(self) -> float:
        """Cones with a bound of at most this are closed."""
        aim = self.best * (1.0 + self.options.slack) if self.best > self.target else self.target
        floor = 4 * math.sqrt(self.frame.P.shape[1]) * self.bounds.rounding  # what cutting cannot improve
        return max(floor, self.frame.to_leaf(aim, self.bounds))

    def meet(self, q: Float[Tensor, "B r"]) -> None:
        """Store the best 64 directions whose h is near the largest and whose angles are not too small."""
        most, near, apart = 64, 1e-2, 1e-3
        q = torch.nn.functional.normalize(q, dim=1)
        value = (self.activation(q @ self.frame.P.T) @ self.frame.Lambda).norm(dim=1)
        q, value = torch.cat([self.q, q]), torch.cat([self.value, value])
        value, order = value.sort(descending=True)
        q = q[order]
        self.best = float(value[0]) * self.frame.scale
        good = value >= (1.0 - near) * value[0]
        q, value = q[good][: 4 * most], value[good][: 4 * most]
        closer = ((q @ q.T) > math.cos(apart)).tril(-1).any(dim=1)
        self.q, self.value = q[~closer][:most], value[~closer][:most]

    def plant(self) -> None:
        """Bound the roots."""
        V, side = roots(self.frame.P, self.bounds.one_sided)
        self.open = OpenCones(V, side)
        names = self.log.roots(len(V)).to(V.device)
        self._bound(names[:0], V, side, torch.full_like(side, math.inf), names, 0 * names)

    def unfinished(self) -> bool:
        """Return True if a cone above the aim is open, time and cones remain, and cutting pays."""
        if self.log.count > self.options.most_cones or self._ends():
            return False
        largest, enough, seconds = self.open.largest(), self.enough, self.budget.seconds()
        if largest <= enough:
            return False
        self.pace.add(seconds, -largest)
        return seconds < FAIR or self.pace.again >= self.options.worth * (largest - enough)

    def cut(self) -> None:
        """Cut the worst cones, bound the halves, and keep those above the aim."""
        slots = self.open.worst(min(self.options.batch, 2 * _at_once(self.bounds)), self.enough)
        V, side, upper, edge, name, depth = self.open.read(slots)
        children = self.log.cut(name, edge)
        self._bound(slots, halves(V, edge), side.repeat(2), upper.repeat(2), children, (depth + 1).repeat(2))

    def _bound(self, slots: Tensor, V: Tensor, side: Tensor, inherited: Tensor, name: Tensor, depth: Tensor) -> None:
        """Bound new cones, and store those above the aim in `slots`, whose cones were cut."""
        bounded = _bounded(self.team, self.bounds, V, side, self.enough)
        self.meet((bounded.theta[:, None] @ V)[:, 0])
        upper = torch.minimum(bounded.upper, inherited)
        done = (upper <= self.enough) | (depth >= DEEPEST)
        if bool(done.any()):
            self.closed = max(self.closed, float(upper[done].max()))
        active = (~done).nonzero()[:, 0]
        edge = self.bounds.edge_to_split(V[active], Bounded(*(part[active] for part in bounded)))
        self.open.replace(slots, (V[active], side[active], upper[active], edge, name[active], depth[active]))

    def answer(self) -> BranchAnswer:
        """Return the current proof and the best directions, evaluated in the coordinates of the data."""
        upper = self.frame.to_bound(max(self.closed, self.open.largest(), 0.0), self.bounds)
        directions = torch.nn.functional.normalize(self.q @ self.frame.Q, dim=1)
        values = oracle_values(self.Xt.double(), self.activation, self.frame.Lambda, directions)
        values, order = values.sort(descending=True)
        values = values * (self.frame.scale / to_unit_scale(self.Xt.double())[1])
        return BranchAnswer(directions[order], values, upper, tree=self.log.tree())


def trees(problem: Problem, Lambda: Float[Tensor, "N m"], target: Target, aim: float) -> BranchAnswer:
    """Grow a tree on each view of the inputs until it proves that h is at most `aim`; the neurons are rows of weights.

    Lambda is orthogonal to what is free, and the target has the time for all trees.
    """
    deadline, options = time.perf_counter() + target.time_limit, BranchOptions(worth=target.worth)
    X, count = problem.X.double(), problem.biases.number_of_views(problem.samples)
    codes, rows, values, bounds = [np.zeros(0, np.uint8)], [problem.Xt[:0].double()], [Lambda[:0, 0]], [0.0]
    for unplanted, view in zip(range(count, 0, -1), problem.biases.views(X, problem.beta), strict=True):
        remaining = deadline - time.perf_counter()
        if remaining <= 0.0 and count > 1:  # the roots alone take long where there are many samples
            bounds, codes = [math.inf], codes[:1]
            break
        share = min(remaining, 4.0 * remaining / unplanted)  # most trees need less than theirs
        answer = branch_and_bound(
            view.inputs, problem.activation, Lambda, target=aim, time_limit=share, starts=target.starts, options=options
        )
        codes.append(answer.tree)
        rows.append(view.rows(answer.directions))
        values.append(answer.values)
        bounds.append(answer.upper_bound + view.rounding * float(Lambda.norm()))
    counts = None if count == 1 else np.array([*map(len, codes[1:])], dtype=np.int64)
    bound = float(np.max(bounds))
    return BranchAnswer(torch.cat(rows), torch.cat(values), bound, tree=np.concatenate(codes), counts=counts)


@dataclass(frozen=True)
class ConeTree(DualProof):
    """A bound from a dual point, and trees over cones of directions, one for each view of the inputs, that bound h."""

    tree: UInt8[np.ndarray, " _"]  # the codes of `cones.tree`, one tree after the other
    counts: Int[np.ndarray, " _"] | None = None  # how many codes each tree has; None where there is one

    kind: ClassVar[Certificate] = Certificate.BRANCH_AND_BOUND
    biases: ClassVar[tuple[type, ...]] = (Penalised, Free)
    alternates: ClassVar[bool] = True

    @classmethod
    def suits(cls, problem: Problem) -> bool:
        """Return True if branch and bound is affordable: rank at most 6, or 8 with one output."""
        # Trees close in seconds up to rank 5. With one output, where gaps of chords count, they prove a few per cent in
        # minutes at rank 7 and 8; with several, no tree was closed at rank 7.
        single = problem.Y.shape[1] == 1 and problem.biases.number_of_views(problem.samples) == 1
        return is_provable(problem) and inputs_have_rank_at_most(problem, 8 if single else 6)

    @classmethod
    def memory(cls, problem: Problem) -> float:
        """Return about the bytes of 512 cones and of the samples."""
        return 100e6 * min(1.0, problem.samples / 500) + 12e3 * problem.samples

    @classmethod
    def prove(cls, problem: Problem, target: Target, last: Any = None) -> Proved:
        """Grow new trees at the dual point, until they prove the gap."""
        Lambda = orthogonal(problem, target.point)
        answer = trees(problem, Lambda, target, _enough(problem, Lambda, target))
        bound = dual_bound(problem, Lambda, answer.upper_bound * (1.0 + AGAIN))
        return Proved(cls(*bound[:3], tree=answer.tree, counts=answer.counts), answer)

    def proved_maximum(self, problem: Problem) -> float:
        count = problem.biases.number_of_views(problem.samples)
        counts = np.array([len(self.tree)]) if self.counts is None else self.counts
        if counts.shape != (count,) or bool((counts < 0).any()) or int(counts.sum()) != len(self.tree):
            raise ProblemError(self.missing.format(kind=self.kind))
        Lambda, bounds = orthogonal(problem, self.Lambda), [0.0]
        views = problem.biases.views(problem.X.double(), problem.beta)
        for view, tree in zip(views, np.split(self.tree, counts.cumsum()[:-1]), strict=True):
            upper = replay(view.inputs, problem.activation, Lambda, tree, claimed=self.maximum)
            bounds.append(upper + view.rounding * float(Lambda.norm()))
        return float(np.max(bounds))


def _enough(problem: Problem, Lambda: Float[Tensor, "N m"], target: Target) -> float:
    """Return a bound on h that is low enough to prove the gap at this dual point; one near 1 if none seems to.

    D falls about as fast as the bound grows, relative: at most twice, often half as fast. The dual point adds its gap.
    """
    maxima = [1.0 + room * target.gap for room in (2.0, 1.4, 1.0, 0.7, 0.5, 0.35, 0.25)]
    least = target.cost * (1.0 - target.gap)
    return next((M for M in maxima if dual_bound(problem, Lambda, M * (1.0 + AGAIN)).lower > least), maxima[-1])
