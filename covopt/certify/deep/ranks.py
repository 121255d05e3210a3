"""Bounds that see the ranks of the layers (MATH.md section 5, "Ranks"; derived).

Let f_1 >= f_2 >= ... be the singular values of B Y, B as in edges.py, a its reach, and slopes in [0, 1]. Then
|B Z|_* >= |B sigma(Z)|_F^2 / |B sigma(Z)|_op. So if B Z^sigma_{L-1} has the squared singular values w_1 >= w_2 >= ...,

    prod_{l<L} |W_l| >= sum_i w_i / (a w_1^(1/2)),    |W_L|^2 >= sum_i f_i^2 / w_i    for exact fits,

and with x_i = w_i / w_1 the product of all layers is at least g(f) / a,

    g(f) = min (sum_i x_i) (sum_i f_i^2 / x_i)^(1/2)    over 0 < x_i <= 1 = x_1,

between sum_i f_i, which it is for one output, and 2 sum_i f_i. For mse, with b = |B diag(q)^(-1/2)|_op, the last layer
is a ridge regression:

    C(F) + lam |W_L|^2 >= sum_i lam f_i^2 / (w_i + lam b^2),

and with w = lam b^2 u, p_i = f_i^2 / sum f^2 and e = 2 / (L - 1) the whole loss is at least

    (sum f^2 / b^2) min over 0 <= u_i <= u_1 of  sum_i p_i / (1 + u_i) + c (sum_i u_i / u_1^(1/2))^e,
    c = (L - 1) lam^(L / (L - 1)) (a / b)^(-e) / (sum f^2 / b^2).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.certify.deep.edges import Edges, power
from covopt.certify.deep.planes import Plane
from covopt.certify.spectral import SLACK
from covopt.model.loss import Interpolation, MeanSquaredError
from covopt.model.problem import Problem

LEAST_U, MOST_U = 1e-9, 1e30  # between these u_1 is searched; what is below and above is bounded at once
NEAR = 1e-4
"""The relative accuracy of the minimum. At rank 8 and depths 3, 4, 9 it takes 1, 6, 3 ms; at 1e-5 2, 90, 25 ms."""
ROUNDS, MOST_ENTRIES = 16, 4_000_000
"""The most times that cells are halved, and the most numbers that they take together."""
CELLS, SUMS = 200, 8
"""The first cells of u_1, and of T / u_1^(1/2), which lies between 1 and r, where T counts by a power e below 1."""


def _of_exact_fits(problem: Problem, edges: Edges, reach: float) -> float:
    """Return L (g(f) / a)^(2/L), or more by planes.py; with the sum of f for g where a slope is negative."""
    F, missed, size = edges.targets(problem)
    f = _from_below(F, missed)
    least = least_product(f)[0] if sees_ranks(problem) and len(f) else float(f.sum())
    plane = Plane.of(F, missed) if sees_ranks(problem) else None
    if plane is not None and plane.ceiling > least:
        least = max(least, plane.least_product())
    return power(math.exp(min(math.log(size) - math.log(reach), 690.0)) * least * (1.0 - SLACK), problem.depth)


def _of_squared_error(problem: Problem, edges: Edges, reach: float) -> float:
    """Return the bound of a ridge regression after layers of these ranks; 0 where a slope is negative."""
    F, missed, size = edges.targets(problem)
    f = _from_below(F, missed)
    if not len(f):
        return 0.0
    stretch = edges.stretch(problem) if sees_ranks(problem) else math.inf
    if not 0.0 < stretch < math.inf:
        return 0.0
    squares, log_stretch = f.square(), math.log(stretch)
    log_total = squares.sum().log() + 2.0 * (math.log(size) - log_stretch)
    log_c = log_factor(log_total, log_total.new_tensor(math.log(reach) - log_stretch), problem.depth, problem.lam)
    least, _ = least_relative_loss(squares / squares.sum(), float(log_c), 2.0 / (problem.depth - 1))
    return least * math.exp(min(float(log_total), 700.0))


RANKED = {Interpolation: _of_exact_fits, MeanSquaredError: _of_squared_error}
"""The bounds of edges without flows, by the loss."""


def sees_ranks(problem: Problem) -> bool:
    """Return True if the ranks of the layers count."""
    return type(problem.loss) in RANKED and 0.0 <= problem.activation.slope <= 1.0


def ranked_bound(problem: Problem, edges: Edges) -> float:
    """Return the bound of these edges for a loss in RANKED, rounding included."""
    reach = edges.reach(problem)
    return RANKED[type(problem.loss)](problem, edges, reach) * (1.0 - SLACK) if 0.0 < reach < math.inf else 0.0


def _from_below(F: Float[Tensor, "E m"], missed: float) -> Float[Tensor, " r"]:
    """Return lower bounds on the singular values of all matrices within `missed` of F, falling and positive."""
    values = torch.linalg.svdvals(F) * (1.0 - 2.0**-40) - missed
    return values[values > 0.0]


def least_product(f: Float[Tensor, " r"]) -> tuple[float, Float[Tensor, " r"]]:
    """Return g(f) and its x, for positive f in falling order.

    x_i = min(1, kappa f_i) but for x_1 = 1. If the first k of them are 1, the product is that of k + kappa T and
    (S + T / kappa)^(1/2), with S the sum of the first k squares and T the sum of the other f; its derivative in kappa
    has the sign of 2 S kappa^2 + T kappa - k.
    """
    k = torch.arange(1, len(f) + 1, dtype=f.dtype)
    S, T = f.square().cumsum(0), f.flip(0).cumsum(0).flip(0) - f
    least, most = torch.cat([f.new_zeros(1), 1.0 / f[1:]]), torch.cat([1.0 / f[1:], f.new_full((1,), math.inf)])
    kappa = (((T.square() + 8.0 * S * k).sqrt() - T) / (4.0 * S)).clamp(least, most)
    products = (k + kappa * T) * (S + T / kappa).sqrt()
    best = int(products.argmin())
    x = kappa[best] * f
    x[: best + 1] = 1.0
    return float(products[best]), x


def log_factor(log_total: Tensor, log_ratio: Tensor, depth: int, lam: float) -> Tensor:
    """Return log c, from the logarithms of sum f^2 / b^2 and of a / b."""
    e = 2.0 / (depth - 1)
    return math.log(depth - 1) + depth / (depth - 1) * math.log(lam) - e * log_ratio - log_total


def relative_loss(p: Float[Tensor, " r"], u: Float[Tensor, " r"], log_c: Tensor, e: float) -> Tensor:
    """Return sum_i p_i / (1 + u_i) + c (sum_i u_i / u_1^(1/2))^e."""
    return (p / (1.0 + u)).sum() + log_c.exp() * (u.sum() / u[0].sqrt()) ** e


def least_relative_loss(
    p: Float[Tensor, " r"], log_c: float, e: float, rounds: int = ROUNDS
) -> tuple[float, Float[Tensor, " r"]]:
    """Return a lower bound on the minimum over u, and about where it is, for p in falling order with the sum 1.

    On a cell of u_1 and of T = sum_i u_i / u_1^(1/2) the concave T^e is at least its chord, which leaves a minimum for
    each u_i alone. Cells that might hold less than the smallest value so far are halved, in a limited number of rounds.
    """
    c = math.exp(min(log_c, 600.0))
    at, best = p.new_full((len(p),), LEAST_U), 1.0
    outside = min(1.0 / (1.0 + LEAST_U), c * MOST_U ** (0.5 * e))
    sums = SUMS if e < 1.0 and len(p) > 1 else 1
    u_ends = torch.linspace(math.log(LEAST_U), math.log(MOST_U), CELLS + 1, dtype=p.dtype)
    T_ends = torch.linspace(0.0, math.log(len(p)), sums + 1, dtype=p.dtype)
    first, last = torch.cartesian_prod(u_ends[:-1], T_ends[:-1]), torch.cartesian_prod(u_ends[1:], T_ends[1:])
    cells = torch.cat([first, last], dim=1)
    lows = p.new_zeros(1)
    for _ in range(rounds):
        lows, values, u = _bounded(cells, p, c, e)
        place = int(values.argmin())
        if float(values[place]) < best:
            best, at = float(values[place]), u[place]
        cells = cells[lows < best * (1.0 - NEAR)]
        if not len(cells) or len(cells) * len(p) * 4 > MOST_ENTRIES:
            break
        cells = _halved(cells, 0)
        cells = _halved(cells, 1) if sums > 1 else cells
    return min(outside, best * (1.0 - NEAR), max(0.0, float(lows.min()))) * (1.0 - SLACK), at


def _bounded(
    cells: Float[Tensor, "K 4"], p: Float[Tensor, " r"], c: float, e: float
) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"], Float[Tensor, "K r"]]:
    """Return a bound on each cell, a value near it, and the u of this value."""
    roots = (0.5 * cells[:, [0, 2]]).exp()  # of u_1 at both ends
    (first, last), (low, high) = roots.T, (cells[:, [1, 3]].exp() * roots).T
    # A line through the lower end that is less steep than the chord is below T^e as well.
    slope = (high**e - low**e) / (high - low) * (1.0 - 2.0**-30)
    price = c * slope / last
    free = ((p[1:] / price[:, None]).sqrt() - 1.0).clamp_min(0.0).minimum(last.square()[:, None])
    u = torch.cat([last.square()[:, None], free], dim=1)
    fits = (p / (1.0 + u)).sum(dim=1)
    lows = fits + c * (low**e - slope * low) + c * slope * first + price * free.sum(dim=1)
    return lows, fits + c * (u.sum(dim=1) / last) ** e, u


def _halved(cells: Float[Tensor, "K 4"], side: int) -> Float[Tensor, "M 4"]:
    """Return the halves of each cell along u_1 (0) or T (1)."""
    lower, upper = cells.clone(), cells.clone()
    lower[:, side + 2] = upper[:, side] = cells[:, [side, side + 2]].mean(dim=1)
    return torch.cat([lower, upper])
