"""Interior points for multipliers: a nearly exact bound of a piece from rough multipliers of a first-order method.

First-order steps soon find the pairs of rows that have multipliers, and the relaxed maximum, but the bound that they
prove converges slowly. With a few hundred of the pairs, A_j = b_a b_c^T + b_c b_a^T, it is a small problem,

    minimise tau  over  tau and x,   S = tau E + S0 - sum_j x_j A_j  positive definite,   x_j >= 0 where it must be,

S0 = -H H^T, the other multipliers 0. Newton steps on tau / mu - log det S - sum log x_j, mu falling, are
cheap: with W = B S^-1 B^T the Hessian is

    tr S^-1 A_(ab) S^-1 A_(cd) = 2 (W_ac W_bd + W_ad W_bc),

and mu S^-1 are the moments that the relaxation mixes (dual scaling; Benson, Ye, Zhang, Solving large-scale sparse
semidefinite programs for combinatorial optimization, 2000). All pieces of a batch are solved together. Nothing here is
trusted: `repair.prove` treats the multipliers like any others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from covopt.certify.relaxation.lift import EQUAL, SIGNED, N, P, Piece
from covopt.certify.relaxation.repair import cheapest_shift, clip
from covopt.runtime.loop import Stop

PAIRS = 6  # the number of SIGNED pairs per unknown


@dataclass
class Barrier:
    """The problems of a batch; smaller ones are padded."""

    B: Float[Tensor, "b K q"]  # rows of y, a row of zeros last
    inside: Float[Tensor, "b q"]  # the diagonal of E
    fixed: Float[Tensor, "b q q"]  # S0, 1 on the padded diagonal
    rows: Int[Tensor, "b n"]  # the first rows of the pairs; padded pairs have the last row
    columns: Int[Tensor, "b n"]  # the second rows
    weight: Float[Tensor, "b n"]  # 1/2 for pairs of a row with itself, else 1
    signed: Bool[Tensor, "b n"]  # True for each x that must be >= 0
    order: Float[Tensor, " b"]  # q + the number of these
    tau: Float[Tensor, " b"]  # the current point, with x and mu
    x: Float[Tensor, "b n"]
    mu: Float[Tensor, " b"]

    def only(self, chosen: Int[Tensor, " c"]) -> Barrier:
        return Barrier(*(getattr(self, field.name)[chosen] for field in fields(self)))

    def combination(self, x: Float[Tensor, "b n"]) -> Float[Tensor, "b q q"]:
        """Return sum_j x_j A_j."""
        b, K, _ = self.B.shape
        Pi = self.B.new_zeros(b, K * K)
        Pi.scatter_add_(1, self.rows * K + self.columns, self.weight * x)
        Pi = Pi.view(b, K, K)
        return self.B.mT @ (Pi + Pi.mT) @ self.B

    def slack(self) -> Float[Tensor, "b q q"]:
        return torch.diag_embed(self.tau[:, None] * self.inside) + self.fixed - self.combination(self.x)

    def newton(self, inverse: Float[Tensor, "b q q"]) -> tuple[Float[Tensor, "b n1"], Float[Tensor, " b"]]:
        """Return the step in (tau, x) and the Newton decrement."""
        b, n = self.x.shape
        batch = torch.arange(b, device=self.x.device)[:, None]
        W, first, second = self.B @ inverse @ self.B.mT, self.rows, self.columns
        M = self.x.new_empty(b, n + 1, n + 1)
        S, T = W[batch, first], W[batch, second]
        row, column = (pair[:, None, :].expand(b, n, n) for pair in (first, second))
        products = S.gather(2, row) * T.gather(2, column) + S.gather(2, column) * T.gather(2, row)
        M[:, 1:, 1:] = 2.0 * self.weight[:, :, None] * products * self.weight[:, None, :]
        M[:, 0, 0] = (inverse.square() * self.inside[:, :, None] * self.inside[:, None, :]).sum(dim=(1, 2))
        V = self.B @ inverse
        between = ((V[batch, first] * V[batch, second]) * self.inside[:, None, :]).sum(dim=2)
        M[:, 0, 1:] = M[:, 1:, 0] = -2.0 * self.weight * between
        barrier = torch.where(self.signed, 1.0 / self.x, 0.0)
        M.diagonal(dim1=1, dim2=2)[:, 1:] += barrier.square() + (self.rows == W.shape[1] - 1).to(M)
        slope = torch.cat(
            [
                (1.0 / self.mu - (inverse.diagonal(dim1=1, dim2=2) * self.inside).sum(dim=1))[:, None],
                2.0 * self.weight * W[batch, first, second] - barrier,
            ],
            dim=1,
        )
        unit = M.diagonal(dim1=1, dim2=2).clamp_min(1e-300).rsqrt()
        scaled = unit[:, :, None] * M * unit[:, None, :]
        scaled.diagonal(dim1=1, dim2=2).add_(1e-11)
        factor, info = torch.linalg.cholesky_ex(scaled)
        step = -unit * torch.cholesky_solve((unit * slope)[:, :, None], factor)[:, :, 0]
        step = torch.where((info == 0)[:, None], step, 0.0)
        return step, (-(slope * step).sum(dim=1)).clamp_min(0.0).sqrt()

    def reach(self, factor: Float[Tensor, "b q q"], step: Float[Tensor, "b n1"]) -> Float[Tensor, " b"]:
        """Return the fraction of a step, at most 1, that stays well inside; `factor` is the Cholesky factor of S."""
        moved = torch.diag_embed(step[:, :1] * self.inside) - self.combination(step[:, 1:])
        scaled = torch.linalg.solve_triangular(factor, moved, upper=False)
        scaled = torch.linalg.solve_triangular(factor, scaled.mT, upper=False)
        lowest = torch.linalg.eigvalsh(0.5 * (scaled + scaled.mT))[:, 0]
        ratio = torch.where(self.signed, step[:, 1:] / self.x, 0.0).amin(dim=1)
        return (0.95 / (-torch.minimum(lowest, ratio)).clamp_min(1e-300)).clamp_max(1.0)


@dataclass(frozen=True)
class Polished:
    """Multipliers of a piece, the moments E[u u^T] at the end, and about the bound tau that they prove."""

    Pi: Float[Tensor, "K K"]
    moments: Float[Tensor, "q q"]
    tau: float


def polish(
    pieces: Sequence[Piece],
    Lambda: Float[Tensor, "N m"],
    Pis: Sequence[Tensor],
    moments: Sequence[Tensor],
    goal: float,
    stop: Stop = lambda: False,
) -> list[Polished | None]:
    """Return better multipliers than `Pis` (K, K) for each piece, or None if there is no feasible start.

    `moments` E[u u^T] (q, q) are a first guess. The pairs that are optimised have the largest multipliers or the most
    negative moments E[y_i y_j]; they are chosen twice. A problem ends when tau <= `goal`, or when its duality gap is
    small relative to tau - goal; all end when `stop` returns True.
    """
    polished: list[Polished | None] = [None] * len(pieces)
    inputs = list(zip(pieces, Pis, moments, strict=True))
    pending = list(range(len(pieces)))
    for _ in range(2):
        made = {k: _Start.of(*inputs[k], Lambda) for k in pending}
        starts = {k: start for k, start in made.items() if start is not None}
        able = list(starts)
        if not able or stop():
            break
        able, problems = _feasible(able, _stacked([starts[k] for k in able], goal))
        pending = []
        for k, (tau, x, inverse) in zip(able, _minimised(problems, goal, stop), strict=True):
            before, better = polished[k], starts[k].polished(x, inverse, tau)
            best = better if before is None or tau < before.tau else before
            polished[k], inputs[k] = best, (pieces[k], best.Pi, better.moments)
            if tau > goal:
                pending.append(k)
    return polished


@dataclass(frozen=True)
class _Start:
    """One problem, before it is padded."""

    gap: ClassVar[float] = 1e-4  # the duality gap, relative to tau, of the first multipliers of new pairs
    piece: Piece
    B: Tensor
    fixed: Tensor
    rows: Tensor
    columns: Tensor
    signs: int
    x: Tensor
    tau: float

    @classmethod
    def of(cls, piece: Piece, multipliers: Tensor, moments: Tensor, Lambda: Tensor) -> _Start | None:
        """Return the start from rough multipliers, repaired by a shift."""
        if piece.rank == 0:
            return None
        gauge, Pi = piece.gauge, clip(piece, multipliers)
        scale = gauge[:, None] * gauge
        tau = cheapest_shift(piece, Lambda, Pi)[1]
        if not tau < float("inf"):
            return None
        upper = torch.ones_like(piece.rule, dtype=torch.bool).triu()
        equal = ((piece.rule == EQUAL) & upper).nonzero()
        signed = ((piece.rule == SIGNED) & upper).nonzero()
        i, j = signed.T
        B = gauge[:, None] * piece.B
        V = (B @ moments.to(B) @ B.T)[i, j]
        here, missing = (Pi / scale)[i, j], (-V).clamp_min(0.0)
        values = here / here.max().clamp_min(1e-300) + missing / missing.max().clamp_min(1e-300)
        best = values.topk(min(len(values), PAIRS * piece.B.shape[1]))[1]
        chosen, signs = signed[best], len(best)
        rows, columns = torch.cat([chosen, equal]).T
        # The barrier with parameter mu puts a new multiplier at mu over its moment.
        started = cls.gap * tau / (signs + B.shape[1]) / V[best].clamp_min(1e-3)
        a, c = chosen.T
        raised = torch.maximum(Pi[a, c], started * scale[a, c])
        Pi = torch.where(piece.rule == EQUAL, Pi, 0.0)
        Pi[a, c] = Pi[c, a] = raised
        shift, tau = cheapest_shift(piece, Lambda, Pi)
        if not tau < float("inf"):
            return None
        # The shift c sum p_i n_i is a multiplier of -c / 2 on each of these pairs.
        a, c = equal.T
        pairs = equal[(piece.kind[a] == P) & (piece.kind[c] == N)]
        Pi[pairs[:, 0], pairs[:, 1]] -= 0.5 * max(1.01 * shift, 1e-3 * tau)
        Pi = Pi / scale
        x = Pi[rows, columns]
        H = piece.outputs(Lambda)
        return cls(piece, B, -(H @ H.T), rows, columns, signs, x, tau)

    def polished(self, x: Tensor, inverse: Tensor, tau: float) -> Polished:
        """Return the multipliers at the end of the steps."""
        n, (K, q) = len(self.rows), self.B.shape
        Pi = self.B.new_zeros(K, K)
        Pi[self.rows, self.columns] = Pi[self.columns, self.rows] = x[:n]
        U = inverse[:q, :q]
        gauge = self.piece.gauge
        return Polished(gauge[:, None] * Pi * gauge, U / U.diagonal()[: self.piece.rank].sum(), tau)


def _stacked(starts: list[_Start], goal: float) -> Barrier:
    b, like = len(starts), starts[0].B
    K, q = 1 + max(len(s.B) for s in starts), max(s.B.shape[1] for s in starts)
    n = max(len(s.x) for s in starts)
    B, inside, weight, x = (like.new_zeros(b, *shape) for shape in ((K, q), (q,), (n,), (n,)))
    fixed = torch.eye(q, dtype=like.dtype, device=like.device).repeat(b, 1, 1)
    rows = torch.full((b, n), K - 1, device=like.device)
    columns, signed = rows.clone(), torch.zeros_like(rows, dtype=torch.bool)
    for k, s in enumerate(starts):
        size, order = s.B.shape
        B[k, :size, :order], inside[k, : s.piece.rank], fixed[k, :order, :order] = s.B, 1.0, s.fixed
        rows[k, : len(s.x)], columns[k, : len(s.x)], x[k, : len(s.x)] = s.rows, s.columns, s.x
        weight[k, : len(s.x)] = torch.where(s.rows == s.columns, 0.5, 1.0).to(like)
        signed[k, : s.signs] = True
    tau = like.new_tensor([s.tau for s in starts])
    order = like.new_tensor([s.B.shape[1] + s.signs for s in starts])
    mu = (0.5 * (tau - goal).clamp_min(0.0) + _Start.gap * tau) / order
    return Barrier(B, inside, fixed, rows, columns, weight, signed, order, tau, x, mu)


def _feasible(able: list[int], problems: Barrier) -> tuple[list[int], Barrier]:
    """Return the problems whose S becomes positive definite for a larger tau, with twice that rise."""
    rise, least = 1e-3 * problems.tau.abs().clamp_min(1e-300), problems.tau
    good = torch.zeros_like(least, dtype=torch.bool)
    for _ in range(30):
        problems.tau = torch.where(good, problems.tau, least + rise)
        good = good | (torch.linalg.cholesky_ex(problems.slack())[1] == 0)
        if bool(good.all()):
            break
        rise = torch.where(good, rise, 2.0 * rise)
    problems.tau = least + 2.0 * rise
    chosen = good.nonzero()[:, 0]
    return [able[k] for k in chosen.tolist()], problems.only(chosen)


def _minimised(problems: Barrier, goal: float, stop: Stop) -> list[tuple[float, Tensor, Tensor]]:
    """Return the last tau, x and S^-1 of each problem."""
    best: list[tuple[float, Tensor, Tensor]] = [(0.0, x, x) for x in problems.x]
    active = torch.arange(len(problems.tau), device=problems.tau.device)
    for step in range(most := 30):
        if not len(active):
            break
        factor, info = torch.linalg.cholesky_ex(problems.slack())
        # Rounding can lead out of the cone: such a problem ends at its last point.
        whole = (info == 0).nonzero()[:, 0]
        problems, active, factor = problems.only(whole), active[whole], factor[whole]
        if not len(active):
            break
        inverse = torch.cholesky_inverse(factor)
        for k, place in enumerate(active.tolist()):
            best[place] = (float(problems.tau[k]), problems.x[k], inverse[k])
        move, decrement = problems.newton(inverse)
        gap = problems.mu * problems.order
        # A duality gap that is small enough, relative to tau and to tau - goal.
        enough = torch.maximum(2e-5 * problems.tau, 0.1 * (problems.tau - goal))
        done = (problems.tau <= goal) | ((gap <= enough) & (decrement < 1.0)) | (decrement == 0.0)
        if step == most - 1 or stop():
            done = torch.ones_like(done)
        length = problems.reach(factor, move)
        problems.tau = problems.tau + length * move[:, 0]
        problems.x = problems.x + length[:, None] * move[:, 1:]
        lowest = 0.3 * enough.clamp_min(1e-300) / problems.order
        problems.mu = torch.where(length > 0.4, torch.maximum(0.15 * problems.mu, lowest), problems.mu)
        left = (~done).nonzero()[:, 0]
        problems, active = problems.only(left), active[left]
    return best
