"""The fraction of the initial weights that T steps of SGD with weight decay retain.

See MATH.md section 9. SGD has coupled decay (PyTorch's weight_decay is 2 lam) and momentum beta. With the gradient G_t
of batch t, it is

    v_{t+1} = beta v_t + G_t + 2 lam W_t,        W_{t+1} = W_t - mu v_{t+1},
    Nesterov:                                    W_{t+1} = W_t - mu (G_t + 2 lam W_t + beta v_{t+1}).

This recursion is linear with scalar coefficients: (W, mu v)_{t+1} = A (W, mu v)_t + c mu G_t,

    A = [[1 - x, -beta], [x, beta]],  Nesterov: A = [[1 - x (1 + beta), -beta^2], [x, beta]],  x = 2 mu lam.

So W_T contains W_0 with the factor kept(T) = (A^T)_11 if v_0 = 0, for all gradients. This is false for methods that
divide entry by entry (Adam, AdamW, RMSprop); `Decay` does not describe them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from itertools import pairwise

import numpy as np
from jaxtyping import Shaped

from covopt.runtime.errors import ProblemError

Matrix = Shaped[np.ndarray, "2 2"]  # its entries are decimals

EXACT = Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Arithmetic for powers of A: ten squarings lose about one digit, and entries leave the range of float64."""
LONGEST, WALKED = 10**12, 10**7
"""Maximum T of `steps_to`; WALKED: if the retained fraction oscillates, because T is then found step by step."""


@dataclass(frozen=True)
class Decay:
    """SGD at a constant rate, with weight decay 2 lam; numbers out of range raise a ProblemError."""

    rate: float  # mu > 0
    lam: float  # the strength of the penalty lam |W|^2, >= 0
    momentum: float = 0.0  # beta, 0 <= beta < 1 (PyTorch's, without dampening)
    nesterov: bool = False  # True for Nesterov momentum

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rate) and self.rate > 0.0):
            raise ProblemError(f"The rate is {self.rate:g}; give a number above 0.")
        if not (math.isfinite(self.lam) and self.lam >= 0.0):
            raise ProblemError(f"lam is {self.lam:g}; give 0 or more.")
        if not 0.0 <= self.momentum < 1.0:
            raise ProblemError(f"The momentum is {self.momentum:g}; give a number from 0 to below 1.")

    def kept(self, steps: int) -> float:
        """Return (A^T)_11, the factor of W_0 in W_T after T = `steps`: (1 - 2 mu lam)^T without momentum."""
        return float(self.power(steps)[0, 0])

    def memory(self, k: int) -> tuple[float, float]:
        """Return (a_k, b_k): after k steps, weights W with velocity v contribute a_k W + b_k v."""
        a, b = self.power(k)[0]
        with localcontext(EXACT):
            return float(a), float(b * Decimal(self.rate))

    def steps_to(self, retained: float) -> int:
        """Return the smallest T >= 0 with |kept(T)| <= retained; raise a ProblemError if kept(T) never falls to it.

        With momentum and strong decay, x > (1 - beta^(1/2))^2, kept(T) oscillates: it may exceed `retained` later, with
        a smaller amplitude.
        """
        if not retained > 0.0:
            raise ProblemError(f"The retained fraction, kept, is {retained:g}; give a number above 0.")
        if retained >= 1.0:
            return 0
        trace, determinant = self._invariants()
        oscillates = trace**2 < 4.0 * determinant or trace < 0.0 or determinant < 0.0
        if not self._fades():
            raise ProblemError(
                "With this rate, lam and momentum the initial weights never fade; give lam > 0, or a smaller rate."
            )
        if oscillates:
            return self._walk(retained)
        # kept(T) decreases if both eigenvalues of A are real and positive.
        steps = bisect_left(range(LONGEST + 1), True, key=lambda T: abs(self.kept(T)) <= retained)
        _check_length(steps, LONGEST)
        return steps

    def _walk(self, retained: float) -> int:
        """Find T step by step: if kept(T) changes its sign, it decays like beta^(T/2)."""
        trace, determinant = self._invariants()
        steps, previous, current = 1, 1.0, self.kept(1)
        while abs(current) > retained:
            # kept(T + 1) = trace kept(T) - determinant kept(T - 1), by Cayley and Hamilton.
            steps, previous, current = steps + 1, current, trace * current - determinant * previous
            _check_length(steps, WALKED)
        return steps

    def _invariants(self) -> tuple[float, float]:
        """Return the trace and the determinant of A."""
        (a, b), (c, d) = self._matrix()
        with localcontext(EXACT):
            return float(a + d), float(a * d - b * c)

    def _fades(self) -> bool:
        """Return True if A^T -> 0: |determinant| < 1 and |trace| < 1 + determinant (Jury's criterion)."""
        (a, b), (c, d) = self._matrix()
        with localcontext(EXACT):
            return abs(a * d - b * c) < 1 and abs(a + d) < 1 + a * d - b * c

    def _matrix(self) -> Matrix:
        """Return A."""
        with localcontext(EXACT):
            x, beta = 2 * Decimal(self.rate) * Decimal(self.lam), Decimal(self.momentum)
            first = [1 - x * (1 + beta), -beta * beta] if self.nesterov else [1 - x, -beta]
            return np.array([first, [x, beta]])

    def power(self, steps: int) -> Matrix:
        """Return A^T in the arithmetic of EXACT."""
        if steps < 0:
            raise ProblemError(f"The number of steps is {steps}; give 0 or more.")
        with localcontext(EXACT):
            return np.linalg.matrix_power(self._matrix(), steps)


@dataclass(frozen=True)
class StepwiseDecay:
    """SGD of T steps whose rate falls by a factor at milestones, as PyTorch's `MultiStepLR`; the velocity stays."""

    first: Decay  # the recursion before the first milestone
    milestones: tuple[int, ...]  # the steps after which the rate is multiplied by gamma, ascending
    gamma: float  # the factor, 0 < gamma <= 1
    steps: int  # T

    def __post_init__(self) -> None:
        if not 0.0 < self.gamma <= 1.0:
            raise ProblemError(f"gamma is {self.gamma:g}; give a factor of the rate, above 0 and at most 1.")
        if any(after <= before for before, after in pairwise((0, *self.milestones))):
            raise ProblemError("The milestones must ascend, from the first step on and a step or more apart.")

    def kept(self, steps: int) -> float:
        """Return the factor of W_0 in W after the first `steps` steps."""
        return float(self._between(0, steps)[0, 0])

    def memory(self, k: int) -> tuple[float, float]:
        """Return (a, b): weights W with velocity v before the last k <= T steps contribute a W + b v to W_T."""
        a, b = self._between(self.steps - k, self.steps)[0]
        return float(a), float(b)

    def steps_to(self, retained: float) -> int:
        """Return a number k of last steps whose memory has |a| <= retained, or T if all steps retain more.

        It is the smallest one if |a| falls with k.
        """
        return bisect_left(range(self.steps), True, key=lambda k: abs(self.memory(k)[0]) <= retained)

    def _between(self, begin: int, end: int) -> Matrix:
        """Return the matrix by which (W, v) before step `begin` enters (W, v) after step `end` - 1."""
        product, places = np.eye(2, dtype=object), (0, *self.milestones, end)
        for number, (start, stop) in enumerate(pairwise(places)):
            steps = min(stop, end) - max(start, begin)
            if steps > 0:
                decay = replace(self.first, rate=self.first.rate * self.gamma**number)
                with localcontext(EXACT):
                    rate = Decimal(decay.rate)
                    product = (decay.power(steps) * np.array([[1, rate], [1 / rate, 1]])) @ product
        return product


def _check_length(steps: int, most: int) -> None:
    if steps > most:
        raise ProblemError(
            f"The initial weights fade in more than {most:g} steps; give a larger rate or lam, or a larger `kept`."
        )


@dataclass(frozen=True)
class Past:
    """Largest singular values of the weights and of the velocity, `ago` steps before the last."""

    ago: int
    weights: float
    velocity: float = 0.0


@dataclass(frozen=True)
class Window:
    """The number of steps k that still affect the weights, and the bound on their rank that follows.

    All that W_T retains from before the last k steps is below the tolerance. The bound is rank_tau(W_T) <= min(k r, R),
    where r bounds the rank of a gradient and R that of a sum of gradients; None if it is not proved, or trivial because
    it is not below the width.
    """

    steps: int
    bound: int | None


def window(
    decay: Decay | StepwiseDecay,
    *,
    tolerance: float,
    norm: float,
    rank: int,
    width: int,
    total: int | None = None,
    past: Sequence[Past] = (),
) -> Window | None:
    """Bound the rank of W_T by the gradients of the last k steps.

    With (a_k, b_k) = `decay.memory(k)`:

        |a_k| |W_{T-k}|_2 + |b_k| |v_{T-k}|_2 <= tau |W_T|_F   implies   rank_tau(W_T) <= min(k r, R).

    Proof: W_T is a_k W_{T-k} + b_k v_{T-k} plus a sum U of k gradients of rank <= r, and by Weyl's inequality
    s_{i + rank U}(B + U) <= s_i(B) for every matrix B.

    Args:
        norm: |W_T|_F.
        rank: r, at most the batch size.
        width: the smaller side of W.
        total: R, if it is below the full rank: rank [X, beta 1] in the first layer, classes - 1 in the last layer with
            cross-entropy. None: full rank.
        past: recorded sizes of earlier weights, initial weights included.

    Returns:
        The smallest recorded k whose sizes satisfy the inequality; else the smallest k with |a_k| <= tau, without a
        bound; None if |a_k| never falls to tau, or if W_T = 0.

    Source: P3, P4 and P7 of MATH.md section 9.
    """
    if not norm > 0.0:
        return None
    for earlier in sorted(past, key=lambda earlier: earlier.ago):
        a, b = decay.memory(earlier.ago)
        if abs(a) * earlier.weights + abs(b) * earlier.velocity <= tolerance * norm:
            bound = min(earlier.ago * rank, width if total is None else total)
            return Window(earlier.ago, bound if bound < width else None)
    try:
        return Window(decay.steps_to(tolerance), None)
    except ProblemError:
        return None
