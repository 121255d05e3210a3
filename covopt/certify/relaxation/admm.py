"""Alternating directions for the relaxation: eigenvalues on one side, signs of entries on the other.

The lifted moment matrix U = E[u u^T], u = (w, p_F) (`certify.lift`), is positive semi-definite, and E[y y^T] = B U B^T
is >= 0 entrywise and 0 at the complementary pairs. The two are kept apart, as U and as the large matrix Z over (w, y),
or (w, y, v) when the outgoing weights are lifted too:

    minimise g(Z)  over  Z = J U J^T,  U >= 0,

J an orthonormal basis of the range of (w, y) as a function of u. Then one step is

    U <- positive part of J^T (Z - T) J;   Z <- prox of g / rho at J U J^T (over-relaxed) + T;   T <- T + J U J^T - Z,

and after each step rho T is a subgradient of g at Z: it holds *exactly* admissible multipliers Pi and a dual point
Lambda, of which only S >= 0 is inexact, and that is what `lift.prove` repairs. So every iterate gives a true bound.

Two functions g. With Lambda fixed (`FixedLambda`, many pieces at once): -|Lambda^T sigma|^2 under tr U_ww = 1. With
Lambda free (`FreeLambda`, MATH.md section 4, "re-optimise Lambda"), all divided by lam:

    C(F) / lam + tr U_ww + tr U_vv + |b|^2,   F = G U_uv + beta 1 b^T.

In both, the proximal map is entrywise but for the fit, which is one linear or Newton solve over the N rows.

Source: Boyd, Parikh, Chu, Peleato, Eckstein, Distributed optimization and statistical learning via the alternating
direction method of multipliers (2011), 3.4; for doubly non-negative cones Wen, Goldfarb, Yin (2010).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from covopt.certify.relaxation.lift import Piece
from covopt.model.problem import Problem

# How the alternating directions are run; none of these touches the proof.
OVER_RELAXATION = 1.6  # in (0, 2)
FIXED_RHO, FREE_RHO = 30.0, 10.0  # the first rho, with Lambda fixed and with Lambda free
BALANCE = 25  # steps between looks at the residuals
IMBALANCE = 2.0  # rho moves when one relative residual is this many times the other
FACTOR = 2.0  # by which it moves, at most


@runtime_checkable
class Goal(Protocol):
    """g: what the large matrix Z is charged."""

    def prox(self, Z: Float[Tensor, "b n n"], rho: float) -> Float[Tensor, "b n n"]:
        """The minimiser of g + (rho / 2) |. - Z|^2; may overwrite Z."""
        ...


class State(NamedTuple):
    """Z, the scaled multiplier T, rho, and the relative residuals of the last step."""

    Z: Float[Tensor, "b n n"]
    T: Float[Tensor, "b n n"]
    rho: float
    primal: float = 1.0
    dual: float = 1.0


class Layout(NamedTuple):
    """Where the blocks of Z lie: w, y = (p, n), and v, if it is there."""

    w: slice
    y: slice
    v: slice


def make_layout(r: int, rows: int, outputs: int = 0) -> Layout:
    """The blocks of sizes r, K and m."""
    return Layout(slice(0, r), slice(r, r + rows), slice(r + rows, r + rows + outputs))


class AlternatingDirections:
    """The steps for a batch of pieces that share g; pieces with fewer free samples are padded."""

    def __init__(
        self,
        pieces: Sequence[Piece],
        goal: Goal,
        outputs: int = 0,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.goal = goal
        ground = pieces[0].ground
        r, y = ground.rank, max(len(piece.B) for piece in pieces)
        order = max(piece.B.shape[1] for piece in pieces)
        J = ground.P.new_zeros(len(pieces), r + y + outputs, order + outputs)
        for basis, piece in zip(J, pieces, strict=True):
            q = piece.B.shape[1]
            corner = torch.nn.functional.pad(piece.span.basis.T, (0, q - piece.rank))
            basis[: r + len(piece.B), :q] = torch.linalg.qr(torch.cat([corner, piece.B]))[0]
            basis[r + y :, order:] = torch.eye(outputs, dtype=J.dtype, device=J.device)
        self.J = J.to(dtype)

    def start(self, rho: float) -> State:
        """Z = T = 0."""
        n = self.J.shape[1]
        zero = self.J.new_zeros(len(self.J), n, n)
        return State(zero, zero.clone(), rho)

    def step(self, state: State) -> State:
        """One step of the module's text."""
        Z, T, rho = state.Z, state.T, state.rho
        small = self.J.mT @ (Z - T) @ self.J
        values, Q = torch.linalg.eigh(0.5 * (small + small.mT))
        half = self.J @ (Q * values.clamp_min(0.0).sqrt()[:, None, :])
        U = half @ half.mT
        mixed = OVER_RELAXATION * U + (1.0 - OVER_RELAXATION) * Z + T
        new = self.goal.prox(mixed.clone(), rho)
        T = mixed - new
        tiny = torch.finfo(Z.dtype).tiny
        primal = (U - new).norm() / U.norm().clamp_min(tiny)
        dual = (new - Z).norm() / T.norm().clamp_min(tiny)
        return State(new, T, rho, float(primal), float(dual))

    def run(self, state: State, steps: int, stop: Callable[[], bool] = lambda: False) -> State:
        """`steps` steps, rho balanced on the way; fewer, but at least one, where `stop` says so."""
        for k in range(1, steps + 1):
            state = self.step(state)
            if stop():
                break
            if k % BALANCE == 0:
                state = self._balanced(state)
        return state

    def _balanced(self, state: State) -> State:
        ratio = state.primal / max(state.dual, 1e-300)
        if 1.0 / IMBALANCE <= ratio <= IMBALANCE:
            return state
        factor = min(max(ratio**0.5, 1.0 / FACTOR), FACTOR)
        return state._replace(T=state.T / factor, rho=state.rho * factor)


def _signs_of_entries(V: Float[Tensor, "b k k"], zero: Bool[Tensor, "b k k"]) -> Float[Tensor, "b k k"]:
    return torch.where(zero, 0.0, V.clamp_min(0.0))


class FixedLambda:
    """g = -<Lambda Lambda^T, E[s s^T]> under tr U_ww = 1, one piece per batch entry; Z over (w, y)."""

    def __init__(
        self, pieces: Sequence[Piece], Lambda: Float[Tensor, "N m"], dtype: torch.dtype = torch.float64
    ) -> None:
        ground = pieces[0].ground
        K = max(len(piece.B) for piece in pieces)
        self.layout = make_layout(ground.rank, K)
        weighted = ground.length[:, None] * Lambda
        rows = weighted.new_zeros(K, Lambda.shape[1])
        rows[: 2 * ground.samples] = torch.cat([weighted, -ground.slope * weighted])
        self.gain = (rows @ rows.T).to(dtype)
        self.free = torch.ones(len(pieces), K, K, dtype=torch.bool, device=rows.device)
        for free, piece in zip(self.free, pieces, strict=True):
            free[: len(piece.B), : len(piece.B)] = piece.free

    def prox(self, Z: Float[Tensor, "b n n"], rho: float) -> Float[Tensor, "b n n"]:
        w, y = self.layout.w, self.layout.y
        Z[:, y, y] = _signs_of_entries(Z[:, y, y] + self.gain / rho, self.free)
        diagonal = Z[:, w, w].diagonal(dim1=1, dim2=2)
        diagonal += ((1.0 - diagonal.sum(dim=1)) / diagonal.shape[1])[:, None]
        return Z

    def multipliers(self, state: State) -> Float[Tensor, "b k k"]:
        """Pi of each piece, in units of |x_i|."""
        y = self.layout.y
        return -state.rho * state.T[:, y, y] - self.gain

    def value(self, state: State) -> Float[Tensor, " b"]:
        """<Lambda Lambda^T, E[s s^T]> of Z, which tends to the relaxed maximum of h^2."""
        return (self.gain * state.Z[:, self.layout.y, self.layout.y]).sum(dim=(1, 2))


class FreeLambda:
    """g = C(F) / lam + tr U_ww + tr U_vv + |b|^2 on the whole sphere; Z over (w, y, v).

    `newton` is how many Newton steps cross_entropy's proximal map takes.
    """

    def __init__(self, problem: Problem, piece: Piece, newton: int) -> None:
        ground = piece.ground
        self.problem, self.newton, self.free = problem, newton, piece.free[None]
        self.Y = problem.Y.double()
        self.layout, self.size = make_layout(ground.rank, len(piece.B), self.Y.shape[1]), ground.size
        rows = torch.where(ground.zero, 0.0, ground.size * ground.length)
        self.rows = torch.cat([rows, -ground.slope * rows])[:, None]
        self.reach = (1.0 + ground.slope**2) * rows.square()
        self.Lambda = torch.zeros_like(self.Y)
        self.F = torch.zeros_like(self.Y)

    def prox(self, Z: Float[Tensor, "b n n"], rho: float) -> Float[Tensor, "b n n"]:
        w, y, v = self.layout
        Z[:, y, y] = _signs_of_entries(Z[:, y, y], self.free)
        for block in (w, v):
            Z[:, block, block].diagonal(dim1=1, dim2=2).sub_(1.0 / rho)
        N = len(self.Y)
        pushed = self.rows * Z[0, y, v]
        self.Lambda = self._fit(pushed[:N] + pushed[N:], self.reach / rho)
        Z[0, y, v] += self.rows * self.Lambda.repeat(2, 1) / rho
        Z[0, v, y] = Z[0, y, v].T
        return Z

    def multipliers(self, state: State) -> Float[Tensor, "k k"]:
        """Pi for the Lambda of the last step, in units of |x_i| and of the ground."""
        y = self.layout.y
        return -state.rho / self.size**2 * state.T[0, y, y]

    def _fit(self, F: Float[Tensor, "N m"], reach: Float[Tensor, " N"]) -> Float[Tensor, "N m"]:
        """Lambda = -grad C(F') / (2 lam) at F' = F + reach Lambda + beta^2 1 1^T Lambda."""
        if self.problem.loss.name == "cross_entropy":
            return self._fit_entropy(F, reach)
        curvature = 0.0 if self.problem.interpolates else self.problem.lam * self.problem.inverse_shares
        # A row of zeros that must be interpolated: nothing reaches it, and no Lambda is wanted there.
        d = (curvature + reach)[:, None]
        inverse = torch.where(d > 0.0, 1.0 / d, 0.0)
        e, bias = inverse * (self.Y - F), self.problem.beta**2
        total = e.sum(dim=0) / (1.0 + bias * inverse.sum())
        return e - bias * inverse * total

    def _fit_entropy(self, F0: Float[Tensor, "N m"], reach: Float[Tensor, " N"]) -> Float[Tensor, "N m"]:
        """Newton on F' = F0 + reach Lambda + beta^2 1 t^T, t = Lambda^T 1, Lambda = q (Y - softmax F') / (2 lam)."""
        N, m = F0.shape
        strength, bias = 2.0 * self.problem.lam * self.problem.inverse_shares[:, None], self.problem.beta**2
        eye = torch.eye(m, dtype=F0.dtype, device=F0.device)
        F, t = self.F, self.Lambda.sum(dim=0)
        for _ in range(self.newton):
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
    """x of (I + c_i (diag(p_i) - p_i p_i^T)) x = right_i, p_i in the simplex, by Sherman and Morrison's formula.

    No terms cancel, as 1 - c p^T D^{-1} p = sum p / D for D = 1 + c p: however large c is, nothing is singular.
    """
    D = (1.0 + c[:, None] * p)[:, :, None]
    p = p[:, :, None]
    shared = (p * right / D).sum(dim=1, keepdim=True) / (p / D).sum(dim=1, keepdim=True)
    return (right + c[:, None, None] * p * shared) / D
