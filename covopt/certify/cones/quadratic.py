"""A second bound over simplicial cones for one output: it subtracts the gaps of chords, by copositive forms.

In the letters of `bounds.py`: samples with a_i > 0 that change sign within the cone make f = u^T G smaller than its
chords by sum a_i gap_i, which the vertex values leave out. With s = sum_j theta_j,

    s gap_i(theta) = s min(sum_j theta_j x_ij^+, sum_j theta_j x_ij^-) >= sum_jl theta_j theta_l min(x_ij^+, x_il^-),

since sum_l theta_l min(x_ij^+, x_il^-) is at most s x_ij^+, and the same with the roles exchanged. So

    s f(q) <= theta^T ((d 1^T + 1 d^T) / 2 - E) theta,    E_jl = sum_i (a_i)_+ (min(x_ij^+, x_il^-) + ...) / 2 >= 0,

where E_jl is the gap at the midpoint of the edge v_j + v_l. And |q|^2 = s^2 - theta^T (1 1^T - Gram)
theta; the square root is concave, so with s <= S |q| on the cone and k = S / (S + 1) in [1/2, 1),

    s |q| >= theta^T K theta,    K_jl = 1 - k (1 - v_j^T v_l) >= 0.

Hence f(q) <= M |q| on the cone if C = M K - (d 1^T + 1 d^T) / 2 + E is copositive. The smaller the cone, the less is
lost: where E_jl >= M |v_j - v_l|^2 / 4 on all edges, M is as small as the largest vertex value.

**Copositive.** Eliminate theta_1: for c the rest of the first row, p > 0 the pivot and any c' <= c,

    theta^T C theta >= p theta_1^2 + 2 theta_1 c'^T theta' + ... >= theta'^T (C' - c' c'^T / p) theta',    theta >= 0.

With c' = c this is Cholesky's factorization, which lowers the diagonal for positive entries too; c' = min(c, 0) ignores
them. In between, c'_l <= 0.4 sqrt(p C_ll), and with the costliest row first, M is mostly within 1 % of the smallest
(rank 6 to 8, beside a test of all 2^r - 1 principal submatrices).

**Rounding.** u = 2^-53: an entry of C is off by at most 2 (4 N + 4 r + 60) u S for d and E together (`bounds.py`) and
by (r + 8) u M for K, also that generators are unit vectors up to (r + 2) u; an elimination by (2 r + 3) u max |C|, as a
pivot's row obeys sum_k c'_kj^2 / p_k <= C_jj. Three times the rounding of the vertex values and 64 r u M are charged.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from covopt.linalg.rounding import UNIT_ROUNDOFF


def edge_gaps(X: Float[Tensor, "B r N"], weight: Float[Tensor, "B N"]) -> Float[Tensor, "B e"]:
    """Return sum_i weight_i (min(x_ij^+, x_il^-) + min(x_ij^-, x_il^+)) / 2 of each edge, as in `triu_indices`.

    Edges are computed one by one: together they would be the largest array of the search.
    """
    r = X.shape[1]
    plus, minus = X.clamp_min(0.0), (-X).clamp_min(0.0)
    pairs = torch.triu_indices(r, r, 1).T.tolist()
    both = [torch.minimum(plus[:, j], minus[:, k]) + torch.minimum(minus[:, j], plus[:, k]) for j, k in pairs]
    return torch.stack([0.5 * (gap * weight).sum(dim=1) for gap in both], dim=1)


def least_multiple(
    Gram: Float[Tensor, "B r r"],
    stretch: Float[Tensor, " B"],
    d: Float[Tensor, "B r"],
    gaps: Float[Tensor, "B e"],
    rounding: float,
    enough: float,
    upper: Float[Tensor, " B"],
) -> Float[Tensor, " B"]:
    """Return an upper bound, at most `upper`, on the smallest M that makes C copositive; try `enough` first.

    S = `stretch` is proved, with sum_j theta_j <= S |q| on the cone. The vertex values d are off by `rounding`, and
    `gaps` are E_jl of the edges. `upper` is a proved bound on f over the cone and the ball.
    """
    r = d.shape[1]
    first, second = torch.triu_indices(r, r, 1, device=d.device)
    means = 0.5 * (d[:, :, None] + d[:, None])
    means[:, first, second] -= gaps
    means[:, second, first] -= gaps
    K = 1.0 - (stretch / (stretch + 1.0))[:, None, None] * (1.0 - Gram)
    low = d.amax(dim=1).clamp_min(0.0)
    high, M = upper, torch.maximum(low, torch.full_like(low, enough))
    for _ in range(5):  # try `enough`, then halve the interval that contains the smallest M
        charge = 3.0 * rounding + 64 * r * UNIT_ROUNDOFF * M
        C = M[:, None, None] * K - means - charge[:, None, None]
        proved = is_copositive(C)
        high = torch.where(proved, torch.minimum(M, high), high)
        low = torch.where(proved, low, M)
        M = 0.5 * (low + high)
    return high


def is_copositive(C: Float[Tensor, "B r r"]) -> Bool[Tensor, " B"]:
    """Return True if elimination proves theta^T C theta >= 0 for theta >= 0, without its rounding.

    If rounding makes C_jl and C_lj different, the one whose row is eliminated first counts.
    """
    proved = torch.ones_like(C[:, 0, 0], dtype=torch.bool)
    for _ in range(C.shape[1]):
        diagonal = C.diagonal(dim1=1, dim2=2)
        cost = (C.clamp_max(0.0).square().sum(dim=2) - diagonal.clamp_max(0.0).square()) / diagonal
        C = _to_the_front(C, cost.argmax(dim=1))
        pivot, diagonal = C[:, 0, :1], C.diagonal(dim1=1, dim2=2)[:, 1:]
        proved = proved & (pivot[:, 0] > 0.0)
        row = torch.minimum(C[:, 0, 1:], 0.4 * (pivot * diagonal).clamp_min(0.0).sqrt())
        C = C[:, 1:, 1:] - row[:, :, None] * (row / pivot)[:, None]
    return proved


def _to_the_front(C: Float[Tensor, "B k k"], place: Int[Tensor, " B"]) -> Float[Tensor, "B k k"]:
    """Exchange the rows and columns `place` and 0 of each form."""
    order = torch.arange(C.shape[1], device=C.device).repeat(len(C), 1)
    order = order.scatter(1, place[:, None], 0)
    order[:, 0] = place
    return C.gather(1, order[:, :, None].expand_as(C)).gather(2, order[:, None].expand_as(C))
