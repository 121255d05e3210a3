"""Decide whether a network of this kind, however wide, can interpolate the data (derived).

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

import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.linalg.psd import thin
from covopt.model.problem import Problem
from covopt.runtime.errors import InfeasibleError


def check_interpolation(problem: Problem) -> None:
    """Raise an InfeasibleError unless some network of this depth, bias and activation fits the targets exactly.

    Its widths may be any. To fit is to miss no target by more than `Problem.allowed_misfit`. What counts as one ray,
    line or range is exact up to 64 roundings and to the rank rule. Takes O(N n min(N, n)) operations and forms no (N,
    N) matrix. The sentence names the rows, counted from 0, or says that Y is outside the span of the atoms.
    """
    if not problem.interpolates:
        return
    X, Y = problem.X.double(), problem.Y.double()
    allowed = problem.allowed_misfit
    _check_equal_rows(X, Y, allowed)
    if problem.beta == 0.0:
        _check_rays(X, Y, allowed)
    if problem.activation.is_linear:
        _check_linear(problem, allowed)
    elif problem.beta == 0.0 and problem.depth == 2:
        _check_span(X, Y, allowed)


def _check_equal_rows(X: Float[Tensor, "N n"], Y: Float[Tensor, "N m"], allowed: float) -> None:
    labels = torch.unique(X + 0.0, dim=0, return_inverse=True)[1]  # -0 becomes 0
    conflict = _conflict(labels, Y, torch.full_like(Y[:, :1], allowed))
    if conflict is not None:
        raise InfeasibleError(
            f"Rows {conflict[0]} and {conflict[1]} of X are equal but their targets differ, so no network fits them"
            " (rows are counted from 0); drop or average such rows, or give lam and a loss."
        )


def _check_linear(problem: Problem, allowed: float) -> None:
    outside = thin(_equilibrated(problem.Xt.double())).reject(problem.Y.double())
    if _beyond(outside, torch.full_like(outside[:, :1], allowed)):
        raise InfeasibleError(
            "Y is outside the range of [X, beta 1], so no linear network fits it; use relu, or give lam and a loss."
        )


def _check_rays(X: Float[Tensor, "N n"], Y: Float[Tensor, "N m"], allowed: float) -> None:
    """Check that zero rows have zero targets and targets scale along rays; without bias."""
    zero = ((X == 0).all(dim=1) & (Y.abs().amax(dim=1) > allowed)).nonzero()
    if len(zero):
        raise InfeasibleError(
            f"Row {int(zero[0, 0])} of X is zero but its target is not, and without bias every network is zero there"
            " (rows are counted from 0); give a bias, or lam and a loss."
        )
    rows, size, units = _directions(X)
    conflict = _conflict(_classes(units), Y[rows] / size, allowed / size)
    if conflict is not None:
        first, second = conflict
        i, j, ratio = int(rows[first]), int(rows[second]), float(size[second] / size[first])
        raise InfeasibleError(
            f"Rows {i} and {j} of X lie on one ray (x_{j} = {ratio:.6g} x_{i}) but their targets do not scale alike, as"
            " they must without bias (rows are counted from 0); give a bias, or lam and a loss."
        )


def _check_span(X: Float[Tensor, "N n"], Y: Float[Tensor, "N m"], allowed: float) -> None:
    """Check that Y is in range([X, E]), on the rows that share a line with another."""
    rows, size, units = _directions(X)
    lines = _classes(units * torch.sign(_along_random_direction(units))[:, None])
    shared = torch.bincount(lines)[lines] > 1
    rows, size, units, lines = rows[shared], size[shared], units[shared], lines[shared]
    if len(rows) == 0:
        return
    # Divided by |x_i|, E becomes the indicator of the lines.
    outside = thin(_equilibrated(_off_lines(units, lines))).reject(_off_lines(Y[rows] / size, lines))
    if _beyond(outside, allowed / size):
        raise InfeasibleError(
            "Y is outside the span of the atoms: on opposite rows of X (x_j = -c x_i, c > 0) the odd part of the"
            " targets is not linear in X, so no network of depth 2 without bias fits; give a bias, depth 3, or lam and"
            " a loss."
        )


def _equilibrated(A: Float[Tensor, "M n"]) -> Float[Tensor, "M n"]:
    """Return the columns scaled to largest entry 1, so that no column is too small to count."""
    largest = A.abs().amax(dim=0)
    return A / torch.where(largest > 0, largest, 1.0)


def _beyond(outside: Float[Tensor, "M m"], allowed: Float[Tensor, "M 1"]) -> bool:
    """Return True if no point of a range is within `allowed` of the targets, entry by entry.

    `outside` is the part of the targets outside of the range. A column r of it is orthogonal to the range, so |r|^2 =
    <r, T - F> <= sum_i |r_i| allowed_i if one did.
    """
    rows = outside.abs()
    largest = rows.amax(dim=0).clamp_min(torch.finfo(rows.dtype).tiny)
    return bool(((rows * (rows / largest)).sum(dim=0) > (allowed * (rows / largest)).sum(dim=0)).any())


def _directions(X: Float[Tensor, "N n"]) -> tuple[Int[Tensor, " M"], Float[Tensor, "M 1"], Float[Tensor, "M n"]]:
    """Return the non-zero rows: their indices, lengths |x_i| and directions x_i / |x_i|."""
    rows = (X != 0).any(dim=1).nonzero()[:, 0]
    # Scaled first, so that no square underflows or overflows.
    largest = X[rows].abs().amax(dim=1, keepdim=True)
    scaled = X[rows] / largest
    length = scaled.norm(dim=1, keepdim=True)
    return rows, largest * length, scaled / length


def _off_lines(A: Float[Tensor, "M n"], lines: Int[Tensor, " M"]) -> Float[Tensor, "M n"]:
    """Return A minus its mean over each line: the projection away from the lines' indicators."""
    count = int(lines.max()) + 1
    members = torch.bincount(lines, minlength=count).clamp_min(1).to(A.dtype)
    mean = A.new_zeros((count, A.shape[1])).index_add_(0, lines, A) / members[:, None]
    return A - mean[lines]


def _classes(V: Float[Tensor, "N n"]) -> Int[Tensor, " N"]:
    """Return labels 0, 1, ... of unit rows that are equal up to 64 roundings of float64 in every entry.

    Rows are sorted along one random direction, where equal rows are neighbours; neighbours are then compared entry by
    entry. A class is missed only if a third row falls between two equal ones within rounding, about 1e-14 a triple.
    """
    order = torch.argsort(_along_random_direction(V), stable=True)
    apart = 64.0 * torch.finfo(torch.float64).eps
    new = ((V[order][1:] - V[order][:-1]).abs() > apart).any(dim=1)
    labels = torch.zeros_like(order)
    labels[order[1:]] = new.cumsum(dim=0)
    return labels


def _along_random_direction(V: Float[Tensor, "N n"]) -> Float[Tensor, " N"]:
    """Return V g, g a fixed random unit vector, which tells rows apart and opposites by sign."""
    direction = torch.randn(V.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return V @ (direction / direction.norm()).to(V)


def _conflict(
    labels: Int[Tensor, " N"], T: Float[Tensor, "N m"], allowed: Float[Tensor, "N 1"]
) -> tuple[int, int] | None:
    """Return two rows of a class with targets that no t fits, |T_i - t| <= allowed_i; or None."""
    for column in T.T:
        low, high = column - allowed[:, 0], column + allowed[:, 0]
        highest = torch.full_like(low, -torch.inf).scatter_reduce(0, labels, low, "amax")[labels]
        bad = (high < highest).nonzero()[:, 0]
        if len(bad):
            second = int(bad[0])
            first = int(((labels == labels[second]) & (low == highest[second])).nonzero()[0, 0])
            return min(first, second), max(first, second)
    return None
