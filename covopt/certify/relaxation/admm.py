"""Alternating directions for the relaxation: eigenvalues on one side, signs of entries on the other.

The lifted moment matrix U = E[u u^T], u = (w, p_F) (`lift`), is positive semi-definite, and E[y y^T] = B U B^T is >= 0
entrywise and 0 at the complementary pairs. The two conditions are imposed on separate matrices, U and the large matrix
Z over (w, y), or over (w, y, v) if the outgoing weights are lifted too:

    minimise g(Z)  over  Z = J U J^T,  U >= 0,

J an orthonormal basis of the range of (w, y) as a function of u. Then one step is

    U <- positive part of J^T (Z - T) J;   Z <- prox of g / rho at J U J^T (over-relaxed) + T;   T <- T + J U J^T - Z,

and after each step rho T is a subgradient of g at Z: it holds *exactly* admissible multipliers Pi and a dual point
Lambda. Only S >= 0 is inexact, which `repair.prove` repairs. So every iterate gives a proved bound.

Two functions g. With Lambda fixed (`FixedLambda`, many pieces at once): -|Lambda^T sigma|^2 under tr U_ww = 1. With
Lambda free (`FreeLambda`, MATH.md section 4, "re-optimise Lambda"), all divided by lam:

    C(F) / lam + tr U_ww + tr U_vv + |b|^2,   F = G U_uv + beta 1 b^T.

In both, the proximal map is entrywise except for the fit, which is one linear or Newton solve over the N rows.

Source: Boyd, Parikh, Chu, Peleato, Eckstein, Distributed optimization and statistical learning via the alternating
direction method of multipliers (2011), 3.4; for doubly non-negative cones Wen, Goldfarb, Yin (2010).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.certify.relaxation.lift import EQUAL, NONE, Piece
from covopt.model.problem import Problem
from covopt.runtime.loop import Stop

Prox = Callable[[Float[Tensor, "b n n"], Float[Tensor, " b"]], Float[Tensor, "b n n"]]
"""Returns the minimiser of g + (rho / 2) |. - Z|^2 for Z and rho; it may overwrite Z."""


class State(NamedTuple):
    """Z, the scaled multiplier T, and for each piece rho and the relative residuals of the last step."""

    Z: Float[Tensor, "b n n"]
    T: Float[Tensor, "b n n"]
    rho: Float[Tensor, " b"]
    primal: Float[Tensor, " b"]
    dual: Float[Tensor, " b"]

    def only(self, chosen: Int[Tensor, " c"]) -> State:
        """Select some of the pieces."""
        return State(*(part[chosen] for part in self))


class Layout(NamedTuple):
    """The places of the blocks w, y and v of Z; v may be empty."""

    w: slice
    y: slice
    v: slice


def make_layout(pieces: Sequence[Piece], outputs: int = 0) -> Layout:
    """Lay out blocks that are large enough for each of the pieces."""
    r, rows = max(piece.rank for piece in pieces), max(len(piece.B) for piece in pieces)
    return Layout(slice(0, r), slice(r, r + rows), slice(r + rows, r + rows + outputs))


class AlternatingDirections:
    """The steps for a batch of pieces that share g; smaller pieces are padded."""

    def __init__(
        self, pieces: Sequence[Piece], prox: Prox, outputs: int = 0, dtype: torch.dtype = torch.float64
    ) -> None:
        self.prox = prox
        _, y, v = make_layout(pieces, outputs)
        order = max(piece.B.shape[1] for piece in pieces)
        J = pieces[0].B.new_zeros(len(pieces), v.stop, order + outputs)
        for basis, piece in zip(J, pieces, strict=True):
            k, q = piece.rank, piece.B.shape[1]
            corner = torch.eye(k, q, dtype=J.dtype, device=J.device)
            stacked = torch.linalg.qr(torch.cat([corner, piece.gauge[:, None] * piece.B]))[0]
            basis[:k, :q], basis[y.start : y.start + len(piece.B), :q] = stacked[:k], stacked[k:]
            basis[v, order:] = torch.eye(outputs, dtype=J.dtype, device=J.device)
        self.J = J.to(dtype)

    def start(self, rho: float) -> State:
        """Return the state Z = T = 0."""
        b, n = self.J.shape[:2]
        zero, one = self.J.new_zeros(b, n, n), self.J.new_ones(b)
        return State(zero, zero.clone(), rho * one, one, one)

    def only(self, chosen: Int[Tensor, " c"], prox: Prox) -> AlternatingDirections:
        """Select some of the pieces, with a g for these."""
        part = copy.copy(self)
        part.J, part.prox = self.J[chosen], prox
        return part

    def step(self, state: State) -> State:
        """Take one step of the module's docstring."""
        Z, T, rho = state.Z, state.T, state.rho
        small = self.J.mT @ (Z - T) @ self.J
        values, Q = torch.linalg.eigh(0.5 * (small + small.mT))
        half = self.J @ (Q * values.clamp_min(0.0).sqrt()[:, None, :])
        U = half @ half.mT
        over = 1.6  # in (0, 2)
        mixed = over * U + (1.0 - over) * Z + T
        new = self.prox(mixed.clone(), rho)
        T = mixed - new
        tiny = torch.finfo(Z.dtype).tiny
        primal = _norms(U - new) / _norms(U).clamp_min(tiny)
        return State(new, T, rho, primal, _norms(new - Z) / _norms(T).clamp_min(tiny))

    def run(self, state: State, steps: int, stop: Stop = lambda: False) -> State:
        """Take `steps` steps, balancing rho; `stop`, asked after each step, ends them."""
        for k in range(1, steps + 1):
            state = self.step(state)
            if stop():
                break
            if k % 25 == 0:
                state = self._balanced(state)
        return state

    def _balanced(self, state: State) -> State:
        """Change rho by a factor of at most 2 if one relative residual is more than twice the other."""
        ratio = state.primal / state.dual.clamp_min(torch.finfo(state.dual.dtype).tiny)
        factor = torch.where((ratio >= 0.5) & (ratio <= 2.0), 1.0, ratio.sqrt().clamp(0.5, 2.0))
        return state._replace(T=state.T / factor[:, None, None], rho=state.rho * factor)


def _norms(V: Float[Tensor, "b k k"]) -> Float[Tensor, " b"]:
    return V.flatten(1).norm(dim=1)


def _limits(pieces: Sequence[Piece], rows: int) -> tuple[Float[Tensor, "b k k"], Float[Tensor, "b k k"]]:
    """Return lower and upper limits of the entries of E[y y^T], by the rules of the pieces; 0 for padded entries."""
    low = pieces[0].B.new_zeros(len(pieces), rows, rows)
    high = low.clone()
    for lower, upper, piece in zip(low, high, pieces, strict=True):
        K = len(piece.B)
        lower[:K, :K] = torch.where(piece.rule == NONE, -math.inf, 0.0)
        upper[:K, :K] = torch.where(piece.rule == EQUAL, 0.0, math.inf)
    return low, high


class FixedLambda:
    """g = -<Lambda Lambda^T, E[s s^T]> under tr U_ww = 1, one piece per batch entry; Z over (w, y)."""

    def __init__(
        self, pieces: Sequence[Piece], Lambda: Float[Tensor, "N m"], dtype: torch.dtype = torch.float64
    ) -> None:
        self.layout = make_layout(pieces)
        w, y, _ = self.layout
        K = y.stop - y.start
        rows, gauge = Lambda.new_zeros(len(pieces), K, Lambda.shape[1]), Lambda.new_ones(len(pieces), K)
        self.inside = Lambda.new_zeros(len(pieces), w.stop, dtype=dtype)
        for place, piece in enumerate(pieces):
            rows[place, : len(piece.B)], gauge[place, : len(piece.B)] = piece.weigh(Lambda), piece.gauge
            self.inside[place, : piece.rank] = 1.0 / max(1, piece.rank)
        self.gain, self.gauge = (rows @ rows.mT).to(dtype), gauge.to(dtype)
        low, high = _limits(pieces, K)
        self.low, self.high = low.to(dtype), high.to(dtype)

    def only(self, chosen: Int[Tensor, " c"]) -> FixedLambda:
        """Select some of the pieces."""
        part = copy.copy(self)
        part.inside, part.gain, part.gauge = self.inside[chosen], self.gain[chosen], self.gauge[chosen]
        part.low, part.high = self.low[chosen], self.high[chosen]
        return part

    def prox(self, Z: Float[Tensor, "b n n"], rho: Float[Tensor, " b"]) -> Float[Tensor, "b n n"]:
        w, y = self.layout.w, self.layout.y
        Z[:, y, y] = (Z[:, y, y] + self.gain / rho[:, None, None]).clamp(self.low, self.high)
        diagonal = Z[:, w, w].diagonal(dim1=1, dim2=2)
        diagonal += (1.0 - (diagonal * (self.inside > 0.0)).sum(dim=1))[:, None] * self.inside
        return Z

    def multipliers(self, state: State) -> Float[Tensor, "b k k"]:
        """Return Pi of each piece, in units of |x_i|."""
        y = self.layout.y
        scaled = -state.rho[:, None, None] * state.T[:, y, y] - self.gain
        return self.gauge[:, :, None] * scaled * self.gauge[:, None, :]


class FreeLambda:
    """g = C(F) / lam + tr U_ww + tr U_vv + |b|^2 on the whole sphere; Z over (w, y, v)."""

    def __init__(self, problem: Problem, piece: Piece, newton: int) -> None:
        ground = piece.ground
        self.problem, self.newton, (self.low, self.high) = problem, newton, _limits([piece], len(piece.B))
        self.Y = problem.Y.double()
        self.layout, self.size = make_layout([piece], self.Y.shape[1]), ground.size
        rows = (ground.size * (~ground.zero).to(ground.P))[:, None]
        self.rows, self.sample = piece.weigh(torch.ones_like(ground.P[:, :1])) * rows[piece.sample], piece.sample
        self.reach = torch.zeros_like(ground.length).index_add(0, self.sample, self.rows[:, 0].square())
        self.Lambda = torch.zeros_like(self.Y)
        self.F = torch.zeros_like(self.Y)

    def prox(self, Z: Float[Tensor, "b n n"], rho: Float[Tensor, " b"]) -> Float[Tensor, "b n n"]:
        w, y, v = self.layout
        Z[:, y, y] = Z[:, y, y].clamp(self.low, self.high)
        for block in (w, v):
            Z[:, block, block].diagonal(dim1=1, dim2=2).sub_(1.0 / rho)
        pushed = torch.zeros_like(self.Y).index_add(0, self.sample, self.rows * Z[0, y, v])
        self.Lambda = self._fit(pushed, self.reach / rho)
        Z[0, y, v] += self.rows * self.Lambda[self.sample] / rho
        Z[0, v, y] = Z[0, y, v].T
        return Z

    def multipliers(self, state: State) -> Float[Tensor, "k k"]:
        """Return Pi for the Lambda of the last step, in units of |x_i| and of the ground."""
        y = self.layout.y
        return -state.rho / self.size**2 * state.T[0, y, y]

    def _fit(self, F: Float[Tensor, "N m"], reach: Float[Tensor, " N"]) -> Float[Tensor, "N m"]:
        """Return Lambda = -grad C(F') / (2 lam) at F' = F + reach Lambda + beta^2 1 1^T Lambda."""
        if self.problem.ridge is None:  # cross-entropy
            return self._fit_entropy(F, reach)
        # A row of zeros that must be interpolated: nothing reaches it, and no Lambda is wanted there.
        d = (self.problem.lam * self.problem.dual_curvature + reach)[:, None]
        inverse = torch.where(d > 0.0, 1.0 / d, 0.0)
        e, bias = inverse * (self.Y - F), self.problem.beta**2
        total = e.sum(dim=0) / (1.0 + bias * inverse.sum())
        return e - bias * inverse * total

    def _fit_entropy(self, F0: Float[Tensor, "N m"], reach: Float[Tensor, " N"]) -> Float[Tensor, "N m"]:
        """Solve F' = F0 + reach Lambda + beta^2 1 1^T Lambda, Lambda = q (Y - softmax F') / (2 lam), by Newton."""
        N, m = F0.shape
        strength, bias = 2.0 * self.problem.lam * self.problem.inverse_shares[:, None], self.problem.beta**2
        eye = torch.eye(m, dtype=F0.dtype, device=F0.device)
        F, t = self.F, self.Lambda.sum(dim=0)
        for _ in range(self.newton):  # a few steps: F starts from the last one
            p = torch.softmax(F, dim=1)
            Lambda = (self.Y - p) / strength
            slope = (torch.diag_embed(p) - p[:, :, None] * p[:, None, :]) / strength[:, :, None]
            off = F - F0 - reach[:, None] * Lambda - bias * t
            right = torch.cat([off[:, :, None], eye.expand(N, m, m)], dim=2)
            solved = softmax_solve(p, reach / strength[:, 0], right)
            by_off, by_t = solved[:, :, 0], solved[:, :, 1:]
            right = Lambda.sum(dim=0) - t + (slope @ by_off[:, :, None])[:, :, 0].sum(dim=0)
            curved, V = torch.linalg.eigh((slope @ by_t).sum(dim=0))
            change = V @ ((V.T @ right) / (1.0 + bias * curved.clamp_min(0.0)))
            F, t = F - by_off + bias * (by_t @ change), t + change
        self.F = F
        return (self.Y - torch.softmax(F, dim=1)) / strength


def softmax_solve(
    p: Float[Tensor, "N m"], c: Float[Tensor, " N"], right: Float[Tensor, "N m k"]
) -> Float[Tensor, "N m k"]:
    """Solve (I + c_i (diag(p_i) - p_i p_i^T)) x = right_i, p_i in the simplex, by Sherman and Morrison's formula.

    No terms cancel, because 1 - c p^T D^{-1} p = sum p / D for D = 1 + c p; so c may be large.
    """
    D = (1.0 + c[:, None] * p)[:, :, None]
    p = p[:, :, None]
    shared = (p * right / D).sum(dim=1, keepdim=True) / (p / D).sum(dim=1, keepdim=True)
    return (right + c[:, None, None] * p * shared) / D
