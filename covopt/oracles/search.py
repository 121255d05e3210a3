"""The convex-concave ascent of h(w) = |Lambda^T sigma(Xt w)| on the sphere (MATH.md section 4).

All starts are one batch. At w_t let u be the unit vector along Lambda^T sigma(Xt w_t) and a =
Lambda u, so that h(w_t) = sum_i a_i sigma(x_i^T w_t) and h(w) >= sum_i a_i sigma(x_i^T w) for every w. The terms with
a_i > 0 are convex in w and are replaced by their tangents, g = sum_{a_i > 0} a_i sigma'(x_i^T w_t) x_i; the others are
concave and stay as they are. The minorant

    g^T w - sum_{a_i < 0} |a_i| sigma(x_i^T w),  |w| <= 1,

is maximised exactly: with sigma(x) = max_{slope <= s <= 1} s x its dual is the box-constrained least squares
min { |g - sum_i alpha_i x_i| : slope |a_i| <= alpha_i <= |a_i| where a_i < 0, alpha_i = 0 elsewhere }, and w_{t+1} is
the normalised residual. So h never decreases, and a sample with alpha_i strictly inside its box lies on the kink
x_i^T w = 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.linalg.rounding import to_unit_scale
from covopt.model.activation import Activation
from covopt.model.spread import ALONE, Alone
from covopt.oracles.oracle import Answer
from covopt.runtime.loop import Stop

ENTRIES = 2**22  # maximum number of entries of a (starts, N) array: starts are taken in chunks


@dataclass(frozen=True)
class AscentOptions:
    """Limits of the search."""

    steps: int = 20  # the maximum number of convex-concave steps from each start
    # the maximum number of accelerated projected-gradient steps on each box-constrained least squares
    box_steps: int = 100
    check: int = 10  # the number of these steps between two tests for convergence
    gain: float = 1e-7  # an ascent stops when a step raises h by less than this, relative
    finishing: int = 4  # the last of the `steps`, taken in the dtype of the data; the others are in float32


@dataclass
class _Ascents:
    """Points W (B, d) of ascents, their values h (B,), and their multipliers alpha (B, N)."""

    W: Tensor
    h: Tensor
    alpha: Tensor

    def take(self, which: Tensor) -> _Ascents:
        """Return the ascents that a mask or indices select."""
        return _Ascents(self.W[which], self.h[which], self.alpha[which])

    def put(self, places: Tensor, other: _Ascents) -> None:
        """Overwrite the ascents at these indices."""
        self.W[places], self.h[places], self.alpha[places] = other.W, other.h, other.alpha


class ConvexConcaveOracle:
    """A search for many distinct local maxima of h; it proves no bound."""

    still = 0.3
    """A box-constrained least squares ends when no multiplier moves by more than this times sqrt(gain), relative to the
    largest: at a maximum the value is flat. With 1e-9 instead, solves of 8 to 30 rows take 1.3 to 2 times as long; with
    ten times as much in float32, 1,200 rows end 0.1 % higher."""

    def __init__(
        self,
        Xt: Float[Tensor, "N d"],
        activation: Activation,
        options: AscentOptions | None = None,
        spread: Alone = ALONE,
        entries: int = ENTRIES,
    ) -> None:
        self.Xt, self._size = to_unit_scale(Xt, spread.largest)  # other scales can overflow float32
        self.activation, self.spread = activation, spread
        self.options, self._entries = options or AscentOptions(), entries
        self._single = self.Xt.float() if Xt.dtype == torch.float64 else None
        self._curvature = float(torch.linalg.matrix_norm(*spread.condensed(self.Xt), 2)) ** 2

    def __call__(
        self,
        Lambda: Float[Tensor, "N m"],
        starts: Float[Tensor, "S d"],
        *,
        options: AscentOptions | None = None,
        stop: Stop = lambda: False,
    ) -> Answer:
        """Return distinct local maxima reached from `starts`, best first.

        `stop` is asked between steps. `options` hold for this call alone.
        """
        if options is not None:
            trying = copy(self)
            trying.options = options
            return trying(Lambda, starts, stop=stop)
        if self._curvature == 0.0 or not self.spread.largest(float(Lambda.any())):
            return Answer(starts[:0], starts.new_zeros(0))
        size = max(1, self._entries // int(self.spread.largest(len(self.Xt))))
        parts = [self.ascend(Lambda, chunk, stop) for chunk in starts.split(size)]
        directions, values = torch.cat([w for w, _ in parts]), torch.cat([h for _, h in parts])
        selected = distinct(directions, values, cosine=1e-6)
        return Answer(directions[selected], values[selected])

    def ascend(
        self, Lambda: Float[Tensor, "N m"], starts: Float[Tensor, "S d"], stop: Stop = lambda: False
    ) -> tuple[Float[Tensor, "S d"], Float[Tensor, " S"]]:
        """Ascend from every start; return the unit directions and their values, in order.

        The search runs in float32, then every ascent is finished, and its value computed, in the dtype of Xt.
        """
        Lambda, scale = to_unit_scale(Lambda, self.spread.largest)
        W = torch.nn.functional.normalize(starts, dim=1)
        h = self._values(self.Xt, Lambda, W)
        alpha = W.new_zeros(len(W), len(self.Xt))
        finishing = self.options.steps
        if self._single is not None and finishing > self.options.finishing:
            finishing = self.options.finishing
            low = _Ascents(W.float(), h.float(), alpha.float())
            roughly = 1e-5  # `gain` in float32
            self._climb(self._single, Lambda.float(), low, self.options.steps - finishing, roughly, stop)
            # Rounding may have lowered what float32 took for a rise.
            value = self._values(self.Xt, Lambda, directions := _unit(low.W.to(W)))
            up = value > h
            W, h = torch.where(up[:, None], directions, W), torch.where(up, value, h)
            alpha = low.alpha.to(W)
        ascents = _Ascents(W, h, alpha)
        self._climb(self.Xt, Lambda, ascents, finishing, self.options.gain, stop)
        return ascents.W, scale * self._size * ascents.h

    def _climb(self, Xt: Tensor, Lambda: Tensor, ascents: _Ascents, steps: int, gain: float, stop: Stop) -> None:
        """Take at most `steps` steps of all ascents, without those that have converged.

        On a GPU, convergence is tested every 10 steps, because the test waits for the device.
        """
        live, going = torch.arange(len(ascents.h), device=Xt.device), ascents.h > 0
        every = 10 if Xt.is_cuda else 1
        moving = ascents
        for step in range(steps):
            if step % every == 0:
                live, moving = live[going], moving.take(going)
                if not len(live) or stop():
                    return
            new, moving.alpha = self._step(Xt, Lambda, moving.W, moving.alpha, gain, stop)
            value = self._values(Xt, Lambda, new)
            # The box-constrained solve is inexact: an ascent stays at its point unless h rose.
            up, going = value > moving.h, value - moving.h > gain * moving.h
            moving.W, moving.h = torch.where(up[:, None], new, moving.W), torch.where(up, value, moving.h)
            ascents.put(live, moving)

    def _values(self, Xt: Tensor, Lambda: Tensor, W: Float[Tensor, "B d"]) -> Float[Tensor, " B"]:
        """Return h(w) for each row w."""
        return self._sum((self.activation(W @ Xt.T)), Lambda).norm(dim=1)

    def _sum(self, A: Float[Tensor, "B N"], rows: Float[Tensor, "N k"]) -> Float[Tensor, "B k"]:
        """Return A times `rows`, summed over the rows of all processes."""
        return self.spread.sum(lambda A, rows: A.T @ rows, A.T, rows)

    def _step(
        self,
        Xt: Tensor,
        Lambda: Float[Tensor, "N m"],
        W: Float[Tensor, "B d"],
        alpha: Float[Tensor, "B N"],
        gain: float,
        stop: Stop,
    ) -> tuple[Float[Tensor, "B d"], Float[Tensor, "B N"]]:
        """Take one convex-concave step from each row of W, with multipliers starting at `alpha`."""
        Z = W @ Xt.T
        a = _unit(self._sum(self.activation(Z), Lambda)) @ Lambda.T
        g = self._sum(torch.where(a > 0, a * self.activation.derivative(Z), 0.0), Xt)
        upper = (-a).clamp_min(0.0)
        alpha, residual = self._box_least_squares(Xt, g, upper, alpha, self.still * math.sqrt(gain), stop)
        return _unit(residual), alpha

    def _box_least_squares(
        self,
        Xt: Float[Tensor, "N d"],
        g: Float[Tensor, "B d"],
        upper: Float[Tensor, "B N"],
        alpha: Float[Tensor, "B N"],
        still: float,
        stop: Stop,
    ) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B d"]]:
        """Minimise |g - alpha Xt|^2 / 2 over slope upper <= alpha <= upper, row by row, by FISTA with restarts.

        It ends when no multiplier moves by more than `still`, relative to the largest.

        Source: Beck, Teboulle (2009); O'Donoghue, Candes, Adaptive restart (2015), gradient scheme.
        """
        lower = self.activation.slope * upper
        alpha = torch.clamp(alpha, lower, upper)
        ahead, t = alpha, 1.0
        step_from = self._gradient_step(Xt, g)
        for step in range(1, self.options.box_steps + 1):
            new = torch.clamp(step_from(ahead), lower, upper)
            move = new - alpha
            is_check = not Xt.is_cuda and step % self.options.check == 0
            if is_check and (stop() or self._largest(move) <= still * self._largest(upper)):
                alpha = new
                break
            following = (1.0 + (1.0 + 4.0 * t * t) ** 0.5) / 2.0
            # torch.where of Python numbers would have torch's default dtype, which users can change.
            onward = self._products(ahead - new, move) <= 0
            momentum = torch.where(onward, move.new_full((), (t - 1.0) / following), move.new_zeros(()))
            ahead = torch.addcmul(new, momentum[:, None], move)
            alpha, t = new, following
        return alpha, self._residual(g, alpha, Xt)

    def _gradient_step(self, Xt: Float[Tensor, "N d"], g: Float[Tensor, "B d"]) -> Callable[[Tensor], Tensor]:
        """Return the function that takes alpha to alpha + (g - alpha Xt) Xt^T / curvature."""
        rate, (N, d) = 1.0 / self._curvature, Xt.shape
        # One product of B N^2 numbers takes the place of two of B N d.
        if self.spread is ALONE and min(2 * d, 10 * len(g), math.isqrt(self._entries)) >= N:
            identity = torch.eye(N, dtype=Xt.dtype, device=Xt.device)
            constant, matrix = rate * (g @ Xt.T), torch.addmm(identity, Xt, Xt.T, alpha=-rate)
            return lambda alpha: torch.addmm(constant, alpha, matrix)
        return lambda alpha: torch.add(alpha, self._residual(g, alpha, Xt) @ Xt.T, alpha=rate)

    def _residual(self, g: Tensor, alpha: Tensor, Xt: Tensor) -> Float[Tensor, "B d"]:
        """Return g - alpha Xt."""
        return torch.addmm(g, alpha, Xt, alpha=-1.0) if self.spread is ALONE else g - self._sum(alpha, Xt)

    def _products(self, A: Float[Tensor, "B N"], C: Float[Tensor, "B N"]) -> Float[Tensor, " B"]:
        """Return the scalar products of the rows."""
        if self.spread is ALONE:
            return torch.linalg.vecdot(A, C)
        return self.spread.sum(lambda A, C: torch.linalg.vecdot(A.T, C.T), A.T, C.T)

    def _largest(self, A: Float[Tensor, "B N"]) -> float:
        """Return the largest entry, without its sign, over the rows of all processes."""
        return self.spread.largest(float(A.abs().max()))


def distinct(
    directions: Float[Tensor, "B d"], values: Float[Tensor, " B"], cosine: float, chunk: int = 2048
) -> Int[Tensor, " K"]:
    """Return indices of distinct rows with positive values, best first; rows close to a better one are left out."""
    order = values.argsort(descending=True)
    order = order[values[order] > 0]
    selected = order[:0]
    for part in order.split(chunk):
        rows = directions[part]
        alone = (rows @ directions[selected].T < 1.0 - cosine).all(dim=1)
        part, rows = part[alone], rows[alone]
        better = ((rows @ rows.T) >= 1.0 - cosine).tril(-1)
        # A row depends on better rows alone: after k rounds the first k are final; few rounds are needed.
        mine, before = torch.ones_like(part, dtype=torch.bool), None
        while before is None or not torch.equal(mine, before):
            mine, before = ~(better & mine).any(dim=1), mine
        selected = torch.cat([selected, part[mine]])
    return selected


def _unit(rows: Float[Tensor, "B d"]) -> Float[Tensor, "B d"]:
    return torch.nn.functional.normalize(rows, dim=1)
