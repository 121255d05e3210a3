"""Can a network of this kind, however wide, interpolate the data?  [derived]

Let x_i be the rows of Xt = [X, beta 1]. Two rows are on one *ray* if x_j = c x_i with c > 0, on one *line* if c may be
negative.

**Linear networks**: Y is representable iff it lies in the range of Xt.

**Necessary at any depth** (sigma is positively homogeneous, so with beta = 0 the network is): equal rows have equal
targets; with beta = 0, x_j = c x_i, c > 0, forces y_j = c y_i, and x_i = 0 forces y_i = 0. With beta > 0 two rows on
one ray are equal.

**Depth 2, (leaky) ReLU.** Y is representable iff its columns lie in the span of the atoms sigma(Xt w) (and 1, if beta
> 0). Let c in R^N be orthogonal to all atoms. sigma_a(t) = ((1 + a) t + (1 - a) |t|) / 2 with a != 1, -1; the even and
the odd part of w -> sum_i c_i sigma_a(x_i . w) vanish separately: sum_i c_i x_i = 0 and sum_i c_i |x_i . w| = 0 for
all w. Group the non-zero rows by lines, |x_i . w| = |x_i| |u . w|: functions |u . w| of pairwise non-parallel u are
linearly independent, since the kink of each on u . w = 0 is smooth for the others near a generic point of that
hyperplane. So sum_{i on the line} c_i |x_i| = 0 for each line, and

    Y representable  iff  Y in range([Xt, E]),  E[i, line of i] = |x_i|.

A line of one row makes that row free, so only rows that share a line, and zero rows, need a range check, after the
component along E is removed line by line: O(N n) memory. With beta > 0 lines are classes of equal rows and the first
check decides.

**Depth >= 3, (leaky) ReLU**: the necessary conditions suffice. A first hidden layer of neurons w and -w for enough w
sends row x_i to (sigma(t), sigma(-t), ...), t = x_i . w: one ray stays one ray, and different rays, opposite ones
included, get non-parallel images (t > 0: (t, -a t), its opposite (-a t, t), parallel only if a = 1 or -1). In the
second layer every line is then a ray, so E spans all targets that are consistent along rays; further layers repeat
this.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from covopt.errors import InfeasibleError
from covopt.linalg.psd import RANK_RULE, RankRule, thin
from covopt.model.problem import Problem


@dataclass(frozen=True)
class FeasibilityRule:
    """When rows count as parallel and targets as different.

    Attributes:
        parallel: unit rows are equal when no entry differs by more than `parallel` times the rounding unit of the
            data.
        targets: targets differ when an entry does by more than `targets` times the largest target (each over |x_i| on
            rays), in float64; in float32, `targets_single`.
        rank: the rank rule behind the ranges.
    """

    parallel: float = 64.0
    targets: float = 1e-9
    targets_single: float = 1e-4
    rank: RankRule = RANK_RULE

    def target_tolerance(self, dtype: torch.dtype) -> float:
        """`targets` for this type of data."""
        return self.targets_single if dtype == torch.float32 else self.targets


FEASIBILITY_RULE = FeasibilityRule()


def check_interpolation(problem: Problem, rule: FeasibilityRule = FEASIBILITY_RULE) -> None:
    """Raise unless some network of the problem's depth, bias and activation fits its targets exactly (any widths).

    The answer is exact up to the tolerances of `rule`. Takes O(N n min(N, n)) operations and forms no (N, N) matrix.

    Raises:
        InfeasibleError: one sentence that names the rows (counted from 0), or says that Y is outside the span of the
            atoms.
    """
    X, Y = problem.X.double(), problem.Y.double()
    tolerance = rule.target_tolerance(problem.X.dtype)
    _check_equal_rows(X, Y, tolerance)
    apart = rule.parallel * torch.finfo(problem.X.dtype).eps
    if problem.beta == 0.0:
        _check_rays(X, Y, apart, tolerance)
    if problem.activation.is_linear:
        _check_linear(problem, tolerance, rule.rank)
    elif problem.beta == 0.0 and problem.depth == 2:
        # The rows are in float64 here, but their rounding is that of the data.
        rank = replace(rule.rank, double=rule.rank.relative(problem.X.dtype))
        _check_span(X, Y, apart, tolerance, rank)


def _check_equal_rows(X: Float[Tensor, "N n"], Y: Float[Tensor, "N m"], tolerance: float) -> None:
    scale = X.abs().max()
    found = _conflict(_classes(X / torch.where(scale > 0, scale, 1.0), 0.0), Y, tolerance)
    if found is not None:
        raise InfeasibleError(
            f"Rows {found[0]} and {found[1]} of X are equal but their targets differ, so no network fits them; drop or"
            " average such rows, or give lam and a loss."
        )


def _check_linear(problem: Problem, tolerance: float, rank: RankRule) -> None:
    # The factor keeps the type of the data: its rounding decides which singular values are noise.
    outside = thin(problem.Xt, rank).reject(problem.Y)
    if bool(outside.abs().max() > tolerance * problem.Y.abs().max()):
        raise InfeasibleError(
            "Y is outside the range of [X, beta 1], so no linear network fits it; use relu, or give lam and a loss."
        )


def _check_rays(X: Float[Tensor, "N n"], Y: Float[Tensor, "N m"], apart: float, tolerance: float) -> None:
    """Without bias: zero rows have zero targets, and targets scale along rays."""
    zero = ((X == 0).all(dim=1) & (Y.abs().amax(dim=1) > tolerance * Y.abs().max())).nonzero()
    if len(zero):
        raise InfeasibleError(
            f"Row {int(zero[0, 0])} of X is zero but its target is not, and without bias every network is zero there;"
            " give a bias, or lam and a loss."
        )
    rows, size, units = _directions(X)
    found = _conflict(_classes(units, apart), Y[rows] / size, tolerance)
    if found is not None:
        first, second = found
        i, j, ratio = int(rows[first]), int(rows[second]), float(size[second] / size[first])
        raise InfeasibleError(
            f"Rows {i} and {j} of X lie on one ray (x_{j} = {ratio:.6g} x_{i}) but their targets do not scale alike, as"
            " they must without bias; give a bias, or lam and a loss."
        )


def _check_span(
    X: Float[Tensor, "N n"], Y: Float[Tensor, "N m"], apart: float, tolerance: float, rank: RankRule
) -> None:
    """Y in range([X, E]), on the rows that share a line with another."""
    rows, size, units = _directions(X)
    lines = _classes(units * torch.sign(_along_random_direction(units))[:, None], apart)
    shared = torch.bincount(lines)[lines] > 1
    rows, size, units, lines = rows[shared], size[shared], units[shared], lines[shared]
    if len(rows) == 0:
        return
    # Divided by |x_i|, E becomes the indicator of the lines.
    targets = Y[rows] / size
    odd = _off_lines(units, lines)
    outside = thin(odd, rank).reject(_off_lines(targets, lines))
    if bool(outside.abs().max() > tolerance * targets.abs().max()):
        raise InfeasibleError(
            "Y is outside the span of the atoms: on opposite rows of X (x_j = -c x_i, c > 0) the odd part of the"
            " targets is not linear in X, so no network of depth 2 without bias fits; give a bias, depth 3, or lam and"
            " a loss."
        )


def _directions(
    X: Float[Tensor, "N n"],
) -> tuple[Int[Tensor, " M"], Float[Tensor, "M 1"], Float[Tensor, "M n"]]:
    """The non-zero rows: their indices, lengths |x_i| and directions x_i / |x_i|."""
    rows = (X != 0).any(dim=1).nonzero()[:, 0]
    # Scaled first, so that no square underflows or overflows.
    largest = X[rows].abs().amax(dim=1, keepdim=True)
    scaled = X[rows] / largest
    length = scaled.norm(dim=1, keepdim=True)
    return rows, largest * length, scaled / length


def _off_lines(A: Float[Tensor, "M n"], lines: Int[Tensor, " M"]) -> Float[Tensor, "M n"]:
    """A minus its mean over each line: the projection away from the lines' indicators."""
    count = int(lines.max()) + 1
    members = torch.bincount(lines, minlength=count).clamp_min(1).to(A.dtype)
    mean = A.new_zeros((count, A.shape[1])).index_add_(0, lines, A) / members[:, None]
    return A - mean[lines]


def _classes(V: Float[Tensor, "N n"], apart: float) -> Int[Tensor, " N"]:
    """Labels 0, 1, ... of rows that are equal up to `apart` in every entry.

    Rows are sorted along one random direction, where equal rows are neighbours; neighbours are then compared entry by
    entry. A class is missed only if a third row falls between two equal ones within rounding, about 1e-14 a triple.
    """
    order = torch.argsort(_along_random_direction(V), stable=True)
    new = ((V[order][1:] - V[order][:-1]).abs() > apart).any(dim=1)
    labels = torch.zeros_like(order)
    labels[order[1:]] = new.cumsum(dim=0)
    return labels


def _along_random_direction(V: Float[Tensor, "N n"]) -> Float[Tensor, " N"]:
    """V g for one fixed random unit vector g: different rows differ in it, opposite rows differ in sign."""
    direction = torch.randn(V.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return V @ (direction / direction.norm()).to(V)


def _conflict(labels: Int[Tensor, " N"], T: Float[Tensor, "N m"], tolerance: float) -> tuple[int, int] | None:
    """(i, j), j the first row whose T differs from that of i, the first row of its class; or None."""
    if len(labels) == 0:
        return None
    rows = torch.arange(len(labels), device=labels.device)
    first = torch.full_like(labels, len(labels)).scatter_reduce(0, labels, rows, "amin")[labels]
    differs: Bool[Tensor, " N"] = (T - T[first]).abs().amax(dim=1) > tolerance * T.abs().max()
    bad = differs.nonzero()[:, 0]
    return (int(first[bad[0]]), int(bad[0])) if len(bad) else None
