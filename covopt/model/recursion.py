"""The retained fraction of the start after T steps of gradient descent with weight decay.

See MATH.md section 9. SGD with coupled decay (PyTorch's weight_decay is 2 lam), momentum beta and a gradient G_t of the
batch:

    v_{t+1} = beta v_t + G_t + 2 lam W_t,        W_{t+1} = W_t - mu v_{t+1},
    Nesterov:                                    W_{t+1} = W_t - mu (G_t + 2 lam W_t + beta v_{t+1}).

It is linear in (W, mu v) with coefficients that are numbers, not matrices: (W, mu v)_{t+1} = A (W, mu v)_t + c mu G_t,

    A = [[1 - x, -beta], [x, beta]],  Nesterov: A = [[1 - x (1 + beta), -beta^2], [x, beta]],  x = 2 mu lam.

So after T steps from v_0 = 0 the start has the factor kept = (A^T)_11, whatever the gradients were. That fails for
methods that divide entry by entry (Adam, AdamW, RMSprop): they have no `Decay`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext

from covopt.runtime.errors import ProblemError

Matrix = tuple[Decimal, Decimal, Decimal, Decimal]

EXACT = Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Powers of A lose a digit in ten squarings, and pass float64's range."""
LONGEST, WALKED = 10**12, 10**7
"""The most steps, and the most where momentum close to 1 makes the start swing."""


@dataclass(frozen=True)
class Decay:
    """SGD at a constant rate, with weight decay 2 lam.

    Attributes:
        rate: mu > 0.
        lam: the strength of the penalty lam |W|^2, >= 0.
        momentum: beta, 0 <= beta < 1 (PyTorch's, without dampening).
        nesterov: whether momentum is Nesterov's.

    Raises:
        ProblemError: one of them is out of range.
    """

    rate: float
    lam: float
    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rate) and self.rate > 0.0):
            raise ProblemError(f"The rate is {self.rate:g}; give a number above 0.")
        if not (math.isfinite(self.lam) and self.lam >= 0.0):
            raise ProblemError(f"lam is {self.lam:g}; give 0 or more.")
        if not 0.0 <= self.momentum < 1.0:
            raise ProblemError(f"The momentum is {self.momentum:g}; give a number from 0 to below 1.")

    def kept(self, steps: int) -> float:
        """Return (A^T)_11, the factor of the start W_0 after T = `steps` steps.

        Without momentum it is (1 - 2 mu lam)^T.

        Raises:
            ProblemError: steps < 0.
        """
        return float(self._power(steps)[0])

    def memory(self, k: int) -> tuple[float, float]:
        """Return (a_k, b_k): the part a_k W + b_k v of W and its velocity v remains after k steps.

        Raises:
            ProblemError: k < 0.
        """
        a, b, _, _ = self._power(k)
        with localcontext(EXACT):
            return float(a), float(b * Decimal(self.rate))

    def steps_to(self, retained: float) -> int:
        """Return the least T >= 0 with |kept(T)| <= retained.

        With momentum and strong decay, x > (1 - beta^(1/2))^2, the start swings and comes back after that, smaller.

        Raises:
            ProblemError: retained is not above 0, or the start never fades that far (lam = 0, or 2 mu lam too large).
        """
        if not retained > 0.0:
            raise ProblemError(f"The part of the start to keep is {retained:g}; give a number above 0.")
        if retained >= 1.0:
            return 0
        trace, determinant = self._invariants()
        swings = trace**2 < 4.0 * determinant or trace < 0.0 or determinant < 0.0
        if not self._fades():
            raise ProblemError(
                "With this rate, lam and momentum the start never fades; give lam > 0, or a smaller rate."
            )
        return self._walk(retained) if swings else self._bisect(retained)

    def _bisect(self, retained: float) -> int:
        """Find the least T by bisection: kept(T) falls if both roots of A are real and positive."""
        high = 1
        while abs(self.kept(high)) > retained:
            high *= 2
            _check_length(high, LONGEST)
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if abs(self.kept(middle)) > retained else (low, middle)
        return high

    def _walk(self, retained: float) -> int:
        """Find the least T step by step: if kept changes its sign, it fades like (beta^(1/2))^T."""
        trace, determinant = self._invariants()
        steps, before, now = 1, 1.0, self.kept(1)
        while abs(now) > retained:
            steps, before, now = steps + 1, now, trace * now - determinant * before
            _check_length(steps, WALKED)
        return steps

    def _invariants(self) -> tuple[float, float]:
        """Return trace and determinant of A."""
        a, b, c, d = self._matrix()
        with localcontext(EXACT):
            return float(a + d), float(a * d - b * c)

    def _fades(self) -> bool:
        """Return True if A^T -> 0: |determinant| < 1 and |trace| < 1 + determinant (Jury)."""
        a, b, c, d = self._matrix()
        with localcontext(EXACT):
            return abs(a * d - b * c) < 1 and abs(a + d) < 1 + a * d - b * c

    def _matrix(self) -> Matrix:
        """Return A, row by row."""
        with localcontext(EXACT):
            x, beta = 2 * Decimal(self.rate) * Decimal(self.lam), Decimal(self.momentum)
            if self.nesterov:
                return 1 - x * (1 + beta), -beta * beta, x, beta
            return 1 - x, -beta, x, beta

    def _power(self, steps: int) -> Matrix:
        """Return A^T by squaring, in decimal numbers of 60 digits and any exponent."""
        if steps < 0:
            raise ProblemError(f"The number of steps is {steps}; give 0 or more.")
        power: Matrix = (Decimal(1), Decimal(0), Decimal(0), Decimal(1))
        square = self._matrix()
        with localcontext(EXACT):
            while steps:
                if steps & 1:
                    power = _times(power, square)
                steps >>= 1
                square = _times(square, square) if steps else square
        return power


def _check_length(steps: int, most: int) -> None:
    if steps > most:
        raise ProblemError(
            f"The start fades in more than {most:g} steps; give a larger rate or lam, or let more of the start be kept."
        )


def _times(A: Matrix, B: Matrix) -> Matrix:
    a, b, c, d = A
    e, f, g, h = B
    return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h


@dataclass(frozen=True)
class Past:
    """Weights of k = `ago` steps ago: their largest singular value, and the velocity's."""

    ago: int
    weights: float
    velocity: float = 0.0


@dataclass(frozen=True)
class Window:
    """The number of steps that the weights remember, and the bound on their rank from these.

    Attributes:
        steps: k; the part of the weights from before the last k steps is below the tolerance.
        bound: rank_tau(W_T) <= min(k r, R), r the largest rank of one step's gradient and R that of any sum of them;
            None where it is not proved, or is not below the width, so that it says nothing.
    """

    steps: int
    bound: int | None

    def summary(self) -> dict[str, int | None]:
        """Return the window for JSON."""
        return {"steps": self.steps, "bound": self.bound}


def window(
    decay: Decay,
    *,
    tolerance: float,
    norm: float,
    rank: int,
    width: int,
    total: int | None = None,
    past: Sequence[Past] = (),
) -> Window | None:
    """Bound the rank of W_T by the last k steps.

    With (a_k, b_k) = `decay.memory(k)`:

        |a_k| |W_{T-k}|_2 + |b_k| |v_{T-k}|_2 <= tau |W_T|_F   implies   rank_tau(W_T) <= min(k r, R).

    W_T is a_k W_{T-k} + b_k v_{T-k} plus a sum U of k gradients of rank <= r, and s_{i + rank U}(A + U) <= s_i(A)
    (Weyl).

    Args:
        decay: the recursion.
        tolerance: tau > 0.
        norm: |W_T|_F.
        rank: r, at most the batch size.
        width: the smaller side of W: a bound that is not below it is None.
        total: R, where sums of gradients have less than full rank however many they are: rank [X, beta 1] in the first
            layer, classes - 1 in the last of cross-entropy.
        past: sizes of earlier weights, those of the start included where they are available.

    Returns:
        The recorded k with the least bound, else, without a bound, the least k with |a_k| <= tau; None where the start
        never fades that far, or W_T = 0.

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
