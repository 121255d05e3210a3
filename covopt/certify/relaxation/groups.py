"""The relaxation with multipliers that groups of samples share: its memory grows with N, not with N^2.

Let z = P w, p = z_+, n = (-z)_+ (`lift`), and q = (p + n) / 2, so that

    p = q + z / 2,   n = q - z / 2,   p_i n_i = q_i^2 - z_i^2 / 4 = 0,   sigma_a(z) = (1 - a) q + (1 + a) z / 2.

For groups of samples, the columns of A (0 or 1, one 1 in each row), A^T p >= 0 and A^T n >= 0. So for every c and all
non-negative matrices M_pp, M_nn (symmetric) and M_pn, and for every unit w,

    h(w)^2 <= |Lambda^T sigma(z)|^2 + p^T A M_pp A^T p + n^T A M_nn A^T n + 2 p^T A M_pn A^T n - sum_i c_i p_i n_i.

The right side is quadratic in (w, q), and its maximum over *all* q is a form in few variables: with C = diag(c) > 0,

    even = M_pp + M_nn + M_pn + M_pn^T,  odd = M_pp + M_nn - M_pn - M_pn^T,  mixed = M_pp - M_nn - M_pn + M_pn^T,
    L = [(1 - a) Lambda, A],   D = diag(I, even),   J = [(1 + a) Lambda^T P; mixed A^T P] / 2,   W = L^T C^{-1} L,
    T0 = (P^T C P + (1 + a)^2 P^T Lambda Lambda^T P + P^T A odd A^T P) / 4,

it is w^T (T0 + J^T (W^{-1} - D)^{-1} J) w, provided that W^{-1} - D > 0. So with any R^T R >= W,

    [[tau I - T0, -J^T R^T], [-R J, I - R D R^T]] >= 0   proves   h <= tau^(1/2).

Its order is rank + outputs + groups. One group, c constant and M_pn = c / (2N) give |H sigma(z)| <= |H z|, the spectral
bound; as many groups as samples give the doubly non-negative relaxation. (Derived; tested against both.)

**Rounding.** The columns of L are scaled to unit diagonal of W by powers of two, R is the Cholesky factor of W plus
what rounding can have changed W by and what the factorisation can lose, and the last matrix is proved positive as in
`lift`, less the norm of what the sums in it can have lost: (number of terms) u times the same sums of absolute values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.certify.relaxation.ground import Ground
from covopt.certify.relaxation.repair import least_positive
from covopt.linalg.rounding import UNIT_ROUNDOFF, to_unit_scale
from covopt.runtime.errors import ProblemError

UNDERFLOW = 2.0**-960  # a bound on the sum of all underflows, at unit scale


@dataclass(frozen=True)
class Groups:
    """The multipliers, for Lambda at unit scale (`to_unit_scale`); any numbers give a valid bound."""

    diagonal: Float[Tensor, " _"]  # c (N,)
    labels: Int[Tensor, " _"]  # the group of each sample, 0 ... k - 1 (N,)
    shared: Float[Tensor, "_ _ _"]  # M_pp, M_nn and M_pn (3, k, k)

    def checked(self, samples: int) -> Groups:
        """Return the same in float64; raise a ProblemError unless they fit each other and the samples."""
        c, labels, M = self.diagonal, self.labels, self.shared
        k = M.shape[-1]
        if c.shape != (samples,) or labels.shape != (samples,) or M.shape != (3, k, k) or not k:
            raise ProblemError("The stored multipliers of groups do not fit the samples; solve again.")
        if not bool(((labels >= 0) & (labels < k)).all()):
            raise ProblemError("The stored multipliers name a group that is not there; solve again.")
        return Groups(c.double(), labels.long(), M.double())

    def scaled(self, factor: float) -> Groups:
        """Return the multipliers for factor times the Lambda at unit scale."""
        return Groups(factor**2 * self.diagonal, self.labels, factor**2 * self.shared)


class Quadratic(NamedTuple):
    """W, D, J and T0 of the module's docstring."""

    W: Float[Tensor, "n n"]
    D: Float[Tensor, "n n"]
    J: Float[Tensor, "n r"]
    T0: Float[Tensor, "r r"]


def sum_groups(rows: Float[Tensor, "N j"], labels: Int[Tensor, " N"], k: int) -> Float[Tensor, "k j"]:
    """Return A^T rows."""
    return rows.new_zeros(k, rows.shape[1]).index_add(0, labels, rows)


def make_quadratic(P: Float[Tensor, "N r"], slope: float, Lambda: Float[Tensor, "N m"], groups: Groups) -> Quadratic:
    """Return W, D, J and T0 for admissible multipliers."""
    pp, nn = (0.5 * (M + M.T) for M in groups.shared[:2])
    pn = groups.shared[2]
    mixes = pp + nn + pn + pn.T, pp + nn - pn - pn.T, pp - nn - pn + pn.T
    return _assemble(P, Lambda, groups, (1.0 - slope, 1.0 + slope), mixes)


def _absolute(P: Float[Tensor, "N r"], slope: float, Lambda: Float[Tensor, "N m"], groups: Groups) -> Quadratic:
    """Return upper bounds on the same sums of the absolute values of their terms."""
    pp, nn, pn = groups.shared
    total, factor = 0.5 * (pp + pp.T + nn + nn.T) + pn + pn.T, 1.0 + abs(slope)
    return _assemble(P.abs(), Lambda.abs(), groups, (factor, factor), (total, total, total))


def _assemble(
    P: Tensor, Lambda: Tensor, groups: Groups, factors: tuple[float, float], mixes: tuple[Tensor, Tensor, Tensor]
) -> Quadratic:
    (bend, lean), (even, odd, mixed), c, k = factors, mixes, groups.diagonal, len(mixes[0])
    over, B = Lambda / c[:, None], sum_groups(P, groups.labels, k)
    across = bend * sum_groups(over, groups.labels, k)
    sizes = torch.diag(sum_groups(1.0 / c[:, None], groups.labels, k)[:, 0])
    W = torch.cat([torch.cat([bend**2 * (Lambda.T @ over), across.T], 1), torch.cat([across, sizes], 1)])
    D = torch.block_diag(torch.eye(Lambda.shape[1], dtype=P.dtype, device=P.device), even)
    outputs = lean * (Lambda.T @ P)
    J = 0.5 * torch.cat([outputs, mixed @ B])
    return Quadratic(W, D, J, 0.25 * ((P.T * c) @ P + outputs.T @ outputs + B.T @ odd @ B))


def scales(q: Quadratic) -> Float[Tensor, " n"]:
    """Return powers of two that bring the diagonal of W between 1/2 and 2."""
    return torch.exp2(-torch.round(0.5 * torch.log2(q.W.detach().diagonal().clamp_min(UNDERFLOW))))


def scaled(q: Quadratic, by: Float[Tensor, " n"]) -> Quadratic:
    """Scale the columns of L by `by`."""
    return Quadratic(by[:, None] * q.W * by, q.D / by / by[:, None], q.J / by[:, None], q.T0)


def prove_groups(ground: Ground, Lambda: Float[Tensor, "N m"], groups: Groups) -> float:
    """Bound max |Lambda^T sigma(P w)| over unit w, in units of `ground`, by any multipliers; infinity if they fail."""
    Lambda, size = to_unit_scale(Lambda)  # the scale of all rows, for which `Groups` are made
    Lambda = torch.where(ground.zero[:, None], 0.0, Lambda)
    admissible = Groups(groups.diagonal, groups.labels, groups.shared.clamp_min(0.0))
    good = bool((admissible.diagonal > UNDERFLOW).all()) and bool(torch.isfinite(admissible.shared).all())
    if not good or not bool(torch.isfinite(admissible.diagonal).all()):
        return math.inf
    q = make_quadratic(ground.P, ground.slope, Lambda, admissible)
    by = scales(q)
    sums = scaled(_absolute(ground.P, ground.slope, Lambda, admissible), by)
    return size * math.sqrt(_prove(scaled(q, by), sums, len(Lambda))) * (1.0 + 4 * UNIT_ROUNDOFF)


def _prove(q: Quadratic, sums: Quadratic, samples: int) -> float:
    """Return the smallest proved tau, rounding included; `sums` are the sums of absolute values of all terms."""
    n, r = q.J.shape
    unit = 2.0 * (samples + 4 * n + r + 40) * UNIT_ROUNDOFF
    eye = torch.eye(n, dtype=q.W.dtype, device=q.W.device)
    factorised = 2.0 * (n + 2) * UNIT_ROUNDOFF
    raised = (unit + 2.0 * factorised) * float(sums.W.diagonal().sum()) + UNDERFLOW
    lower, failed = torch.linalg.cholesky_ex(0.5 * (q.W + q.W.T) + raised * eye)
    if int(failed) or not bool(torch.isfinite(lower).all()):
        return math.inf
    R, size = lower.T, lower.T.abs()
    core, coupling = eye - R @ q.D @ R.T, R @ q.J
    middle, failed = torch.linalg.cholesky_ex(0.5 * (core + core.T))
    if int(failed) or not bool(torch.isfinite(coupling).all() and torch.isfinite(q.T0).all()):
        return math.inf
    half = torch.linalg.solve_triangular(middle, coupling, upper=False)
    tau = max(float(torch.linalg.eigvalsh(q.T0 + half.T @ half)[-1]), UNDERFLOW)
    # Scale w such that tau is about 1: then one number bounds the rounding of all entries.
    to = 2.0 ** -round(0.5 * math.log2(tau))
    lost = unit * float((size @ sums.D @ size.T).norm() + 2.0 * (size @ sums.J * to).norm() + 1.0)
    lost += unit * float((sums.T0 * to**2).norm())
    S = torch.cat([torch.cat([-q.T0 * to**2, -coupling.T * to], 1), torch.cat([-coupling * to, core], 1)])
    return _least(0.5 * (S + S.T), r, tau * to**2, lost + UNDERFLOW) / to**2


def _least(S: Float[Tensor, "q q"], r: int, tau: float, lost: float) -> float:
    """Return a tau' near tau with S + tau' E proved above `lost`; E is 1 in the first r entries."""

    def added(T: Tensor) -> float:
        rounding = 2.0 * (len(S) + 4) * UNIT_ROUNDOFF * float(T.diagonal().abs().sum() + len(S))
        return -2.0 * (lost + rounding)

    return least_positive(S, r, tau, max(tau, lost, float(S.diagonal()[:r].abs().max())), added)[0]
