"""Lower bounds for every depth and loss, from singular values and from pairs of samples (MATH.md section 5).

**The singular values.** Let A_l be W_l without its bias column and H = I - 11^T/N, or H = I when beta = 0. Bias columns
are multiples of 1, so H Z_l = H sigma(Z_{l-1}) A_l^T, and H X A_1^T for l = 1. sigma is 1-Lipschitz (|a| <= 1) and
|H S|_F^2 is the sum of |s_i - s_j|^2 over the pairs, over N, so that |H sigma(Z)|_F <= |H Z|_F; for H = I, sigma(0) = 0
does the same. With |A B|_* <= |A|_F |B|_F at the output, |A B|_F <= |A|_F |B|_F between and |A B|_F <= |A|_op |B|_F at
the input,

    |H F|_* <= |H X|_op prod_l |A_l|_F   and   sum_l |W_l|_F^2 >= L (prod_l |A_l|_F)^(2/L),

the latter by the inequality of the means. So with a = |H X|_op and tau = |H F|_*, every network has

    |W|^2 >= L (tau / a)^(2/L)   and   C(F) >= phi(tau) = min { C(F) : |H F|_* <= tau }.

**The weights** w of samples: with D = diag(w)^(1/2), D Z for Z, D X for X and H = I - d d^T / |d|^2, d = D 1, all of
this holds as it stands, since D sigma(Z) = sigma(D Z), the bias columns are multiples of d now, and |H D S|_F^2 is the
sum of w_i w_j |s_i - s_j|^2 over the pairs, over the sum of w. C(F) is a function of D F. So X, Y, F and G are below
what D makes of them; for `interpolate` w = 1.

`interpolate` gives L (|H Y|_* / a)^(2/L) itself; else the smallest phi(tau) + lam L (tau / a)^(2/L) is the bound.

**The scalar problem.** phi is convex, and any G = H G gives a line below it: C(F) >= <G, F> - C*(G), which is at least
-C*(G) - tau |G|_op.
The power of tau is concave (L >= 2), so line plus power is concave and over an interval least at one of its ends. Cut
tau >= 0 at the crossings of the lines and take on each interval the line whose lower end is highest: the smallest of
these is a true bound wherever the cuts are. Lines are added where it sits. They come from one parameter theta >= 0:
* mse: G = -(2/N) U min(s, theta) V^T, H Y = U diag(s) V^T: exactly the tangents of phi.
* cross_entropy: G = D (p - Y)/N, p = softmax(F) for a rough minimiser F of C(F) + theta |H F|_*, p corrected so that
  d^T G = 0. Whatever the accuracy of F, -C*(G) is the weighted mean entropy of p, and the line is true.

**The rank.** With n neurons in the last hidden layer, H F = H sigma(Z) A^T has rank at most n, so that its singular
values t have t_k = 0 for k > n, and C(F) >= (1/N) sum_k (s_k - t_k)^2 for mse (von Neumann): the tail of s is a
constant, and its head gives the lines. `interpolate` is then out of reach where H Y has a larger rank. With n = 0, F is
constant.

**The pairs** (`interpolate` only: one pair says little about a mean over samples). |f(x) - f(x')| is at most
prod_l |A_l|_op |x - x'|, so R >= L (|y_i - y_j| / |x_i - x_j|)^(2/L); with beta = 0 also f(0) = 0.

**The misfit.** `interpolate` is bounded over all networks whose misfit is allowed, eps in each entry: |F - Y|_F is at
most eps (N n_L)^(1/2), which each singular value of H Y loses, and |y_i - y_j| loses 2 eps n_L^(1/2) (eps at f(0)).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.certify.proof import Proof, Proved, Target
from covopt.linalg.rounding import unit_scale
from covopt.model.loss import CrossEntropy, Interpolation, MeanSquaredError
from covopt.model.problem import Problem
from covopt.runtime.loop import Certificate, Stop

Line = tuple[float, float]  # (b, g): C(F) >= b - g tau for every F with |H F|_* = tau; g >= 0

PAIRS = 2048  # rows that are compared with each other, the first ones (memory and time grow as the square)
# What rounding may cost:
CHARGED = 2.0**-48  # to each singular value, as max(N, n) of these times the largest one
SLACK = 2.0**-40  # off the final value, relative
UNDERFLOW = 2.0**-1000  # the same, absolute, for squares below float64's range

LINES, SMALLEST = 24, 1e-6
"""Lines below phi at the start, theta falling geometrically from its largest value by the second in all."""
REFINEMENTS = 60  # lines that are added, at most
ASCENTS = 60  # proximal steps for each of cross_entropy's lines

LOSSES = (MeanSquaredError, CrossEntropy, Interpolation)  # the losses of which bounds from the data alone are known


@dataclass(frozen=True)
class Spectral(Proof):
    """A bound from the singular values and distances of the data, for networks of every depth."""

    kind: ClassVar[Certificate] = Certificate.SPECTRAL
    losses: ClassVar[tuple[type, ...]] = LOSSES
    depths: ClassVar[range] = range(2, 1001)

    @classmethod
    def prove(cls, problem: Problem, target: Target, last: Any = None) -> Proved:
        return Proved(cls(spectral_bound(problem, stop=target.stop)))

    def bound(self, problem: Problem) -> float:
        return spectral_bound(problem)


def spectral_bound(problem: Problem, rank: int | None = None, stop: Stop = lambda: False) -> float:
    """Return the best of the bounds above: no network of the problem's depth has a lower cost.

    It is at least 0, and 0 for a loss without a known bound.
    Infinite when `interpolate` is asked of targets that differ by more than is allowed where the inputs agree: no
    network fits them.

    Args:
        rank: bound only networks with at most this number of neurons in the last hidden layer; None: all.
        stop: asked between two lines of cross_entropy, whose lines take long, and between the pairs of samples of
            exact fits; once it says so, none is added.
    """
    return spectral_lines(problem, rank, stop)[0]


def spectral_lines(problem: Problem, rank: int | None = None, stop: Stop = lambda: False) -> tuple[float, list[Line]]:
    """`spectral_bound`, and its lines in rho: C(F) >= b - g rho where prod_l |W_l|_F = rho; none for `interpolate`."""
    if type(problem.loss) not in LOSSES:
        return 0.0, []
    values, lines = [0.0], []
    for centred in (True, False) if problem.beta == 0.0 else (True,):
        value, more = _nuclear_bound(problem, centred, rank, stop)
        values.append(value)
        lines += more
    return max(0.0, max(values) * (1.0 - SLACK) - UNDERFLOW), lines


def weighted_rows(problem: Problem, A: Float[Tensor, "N n"], centred: bool) -> Float[Tensor, "N n"]:
    """D A, or H D A: the rows of A less their mean, times the roots of the weights."""
    return problem.weighted(A - problem.mean(A) if centred else A)


def _singular_values(A: Tensor) -> tuple[Float[Tensor, " r"], float]:
    """Return the singular values of A, and a bound on their rounding with that of centring A."""
    return torch.linalg.svdvals(A), max(A.shape) * CHARGED * float(A.norm())


def largest_singular_value(problem: Problem, X: Float[Tensor, "N n"], centred: bool, chunk: int = 2048) -> float:
    """Return an upper bound on |H D X|_op, for X in float64.

    X is scaled by a power of two, so that no square underflows. Tall X, of which there is no second copy, go through
    their Gram matrix, whose largest eigenvalue loses no digits.
    """
    size, N = unit_scale(X), len(X)
    if chunk >= N:
        scaled = X / size
        values, moved = _singular_values(weighted_rows(problem, scaled, centred))
        top, total = float(values[0]) + moved, float(problem.weighted(scaled).norm())
    else:
        mean = problem.mean(X) / size if centred else X.new_zeros(X.shape[1])
        gram, squares, squares_moved = X.new_zeros(X.shape[1], X.shape[1]), 0.0, 0.0
        for start in range(0, N, chunk):
            rows = torch.arange(start, min(start + chunk, N), device=X.device)
            scaled = X[start : start + chunk] / size
            squares += float(problem.weighted(scaled, rows).square().sum())
            moved_rows = problem.weighted(scaled - mean, rows)
            gram.addmm_(moved_rows.T, moved_rows)
            squares_moved += float(moved_rows.square().sum())
        # Each entry of the Gram matrix is off by at most N roundings of the product of two columns' norms.
        top = math.sqrt(float(torch.linalg.eigvalsh(gram)[-1]) + max(X.shape) * CHARGED * squares_moved)
        total = math.sqrt(squares)
    # Centring loses digits relative to X, not to what is left.
    return size * (top + N * CHARGED * total)


def _nuclear_bound(problem: Problem, centred: bool, rank: int | None, stop: Stop) -> tuple[float, list[Line]]:
    Y = problem.Y.double()
    largest = largest_singular_value(problem, problem.X.double(), centred)
    targets, moved = _singular_values(weighted_rows(problem, Y, centred))
    # The largest |F - Y|_F that is allowed, 0 but for `interpolate`.
    misfit = problem.allowed_misfit * math.sqrt(problem.Y.numel()) * (1.0 + SLACK)
    targets = targets - moved - len(Y) * CHARGED * float(problem.weighted(Y).norm()) - misfit
    targets = targets.clamp_min(0.0)
    head, tail = (targets, targets[:0]) if rank is None else (targets[:rank], targets[rank:])
    if problem.interpolates:
        if bool((tail > 0.0).any()):
            return math.inf, []
        total = float(targets.sum())
        ratio = (total / largest if largest > 0 else math.inf) if total else 0.0
        steepest = _steepest_pair(problem, problem.X.double(), Y, stop) if centred else 0.0
        return problem.depth * max(steepest, ratio) ** (2.0 / problem.depth), []
    if type(problem.loss) is CrossEntropy:  # no tail: its lines know nothing of the rank
        missed, family = 0.0, _EntropyLines(problem, centred)
        steepest = family.steepest
        if rank == 0:  # tau = 0: the first line is the tangent there
            return max(0.0, family(steepest)[0]), []
    else:
        missed = float(tail.square().sum()) / len(Y)
        family, steepest = _quadratic_lines(head, len(Y)), float(head.max()) if len(head) else 0.0

    def penalty(tau: Tensor) -> Tensor:
        # Inputs of zero: so are the outputs, and tau > 0 is out of reach.
        return problem.lam * problem.depth * torch.where(tau > 0.0, tau / largest, 0.0) ** (2.0 / problem.depth)

    bound, lines = least(family, steepest, penalty, stop)
    return missed + bound, [(missed + b, g * largest * (1.0 + SLACK)) for b, g in lines]


def _quadratic_lines(s: Float[Tensor, " r"], samples: int) -> Callable[[float], Line]:
    """theta -> the tangent of phi(tau) = (1/N) sum_k min(s_k, theta)^2 at tau = sum_k (s_k - theta)_+."""

    def line(theta: float) -> Line:
        m = s.clamp_max(theta)
        return float((2.0 * s * m - m.square()).sum()) / samples, 2.0 * theta / samples

    return line


class _EntropyLines:
    """theta -> the line of p = softmax(F), F near the minimiser of C(F) + theta |H F|_*; F starts from the last one."""

    def __init__(self, problem: Problem, centred: bool) -> None:
        self.problem, self.centred = problem, centred
        Y = problem.Y.double()
        # A class without samples has p = 0: centred, nothing else gives d^T G = 0.
        self.Y = Y[:, Y.sum(dim=0) > 0] if centred else Y
        self.root = problem.weighted(self.Y.new_ones(len(Y), 1))
        self.mean = problem.mean(self.Y)[None]
        # D F, in which the steps are made.
        self.F = self.root * (torch.zeros_like(self.Y) + (self.mean.log() if centred else 0.0))
        gap = self._probabilities(self.F) - self.Y
        self.steepest = float(torch.linalg.matrix_norm(self.root * gap, 2)) / len(Y)

    def _probabilities(self, F: Float[Tensor, "N m"]) -> Float[Tensor, "N m"]:
        return torch.softmax(F / self.root, dim=1)

    def __call__(self, theta: float) -> Line:
        """Accelerated proximal gradient steps of length 2N (the gradient is 1/(2N)-Lipschitz), then the line."""

        def step(F: Tensor) -> Tensor:
            stepped = F - 2.0 * self.root * (self._probabilities(F) - self.Y)
            return self._shrink(stepped, 2.0 * len(self.Y) * theta)

        self.F = accelerated(step, self.F, ASCENTS)
        return self._line(self._probabilities(self.F))

    def _line(self, p: Float[Tensor, "N m"]) -> Line:
        samples, classes = p.shape
        moved = classes * CHARGED
        if self.centred:
            p = with_column_means(self.problem, p, self.mean)
            # A p with exactly the right sums is this near: as `_with_column_means` would make it.
            off = float((self.mean - self.problem.mean(p)).abs().max()) + samples * CHARGED
            moved += 2.0 * off / float(self.mean.min())
        gap = self.root * (p - self.Y)
        entropy = -float(self.problem.shares @ torch.special.xlogy(p, p).sum(dim=1))
        steepness = float(torch.linalg.matrix_norm(gap, 2)) + max(p.shape) * CHARGED * float(gap.norm())
        steepness += moved * math.sqrt(classes) * float(self.root.norm())
        # |d p log p| <= |d p| (1 + |log |d p||), and the logarithm of what is no smaller than a rounding is below 40.
        return entropy - 40.0 * classes * moved * float(self.problem.shares.sum()), steepness / samples

    def _shrink(self, F: Float[Tensor, "N m"], threshold: float) -> Float[Tensor, "N m"]:
        """Apply the proximal map of threshold |H F|_*: it lowers the singular values of H F alone."""
        means = self.root * self.problem.mean(F / self.root) if self.centred else torch.zeros_like(F[:1])
        centred = F - means
        squares, V = torch.linalg.eigh(centred.T @ centred)
        s = squares.clamp_min(0.0).sqrt()
        shrinkage = torch.where(s > threshold, 1.0 - threshold / s.clamp_min(threshold), torch.zeros_like(s))
        return means + (centred @ V) * shrinkage @ V.T


def with_column_means(problem: Problem, p: Float[Tensor, "N m"], mean: Float[Tensor, "1 m"]) -> Float[Tensor, "N m"]:
    """p moved to these column means, those of Y, and non-negative with enough of the constant p = mean in it."""
    p = p + (mean - problem.mean(p))
    short = (-p).clamp_min(0.0)
    share = min(1.0, float((short / (mean + short)).max()))
    p = ((1.0 - share) * p + share * mean).clamp_min(0.0)
    return p / p.sum(dim=1, keepdim=True)


def accelerated(step: Callable[[Tensor], Tensor], start: Tensor, steps: int) -> Tensor:
    """Return the last point of these steps with Nesterov's momentum."""
    ahead, last, momentum = start, start, 1.0
    for _ in range(steps):
        new, following = step(ahead), 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum**2))
        ahead = new + (momentum - 1.0) / following * (new - last)
        last, momentum = new, following
    return last


def least(
    family: Callable[[float], Line], steepest: float, penalty: Callable[[Tensor], Tensor], stop: Stop = lambda: False
) -> tuple[float, list[Line]]:
    """Bound min over tau >= 0 of phi(tau) + penalty(tau) from below, line by line; return the lines.

    A line may depend on those before it. Where `stop` ends them, they are the first of those without it, so that a
    check, which is not stopped, never proves less.
    """
    if not steepest > 0.0:
        line = family(0.0)
        return max(0.0, line[0]), [line]
    ratio = SMALLEST ** (1.0 / max(1, LINES - 1))
    lines = {steepest: family(steepest)}
    for k in range(1, LINES):
        if stop():
            break
        lines[steepest * ratio**k] = family(steepest * ratio**k)
    bound, where = least_of_lines(lines, penalty)
    for _ in range(REFINEMENTS // 2):
        thetas = sorted(lines)
        place = thetas.index(where)
        near = [t for t in (place - 1, place + 1) if 0 <= t < len(thetas)]
        for theta in [math.sqrt(where * thetas[t]) for t in near]:
            if not stop():
                lines[theta] = family(theta)
        better, where = least_of_lines(lines, penalty)
        done = better <= bound * (1.0 + 1e-6)
        bound = max(bound, better)
        if done or stop():
            break
    return bound, list(lines.values())


def least_of_lines(lines: dict[float, Line], penalty: Callable[[Tensor], Tensor]) -> tuple[float, float]:
    """Return the bound that the module's text describes, and the theta of the line at it."""
    thetas = [0.0, *sorted(lines)]
    b, g = torch.tensor([(0.0, 0.0), *(lines[t] for t in thetas[1:])], dtype=torch.float64).T
    crossings = (b[:, None] - b) / (g[:, None] - g)
    cuts = crossings[torch.isfinite(crossings) & (crossings > 0)].unique()
    cuts = torch.cat([cuts.new_zeros(1), cuts])
    heights = b[:, None] - g[:, None] * cuts + penalty(cuts)
    # After the last cut only the line 0 counts: the penalty does not fall.
    interior = torch.minimum(heights[:, :-1], heights[:, 1:])
    best, line = torch.cat([interior, torch.where(g[:, None] == 0.0, heights[:, -1:], -math.inf)], dim=1).max(dim=0)
    interval = int(best.argmin())
    # Where the line 0 begins to count, a line between it and the one before raises the bound.
    places = line[: interval + 1][line[: interval + 1] > 0]
    return float(best[interval]), thetas[int(places[-1]) if len(places) else 1]


def _steepest_pair(problem: Problem, X: Tensor, Y: Tensor, stop: Stop) -> float:
    """max |y_i - y_j| / |x_i - x_j| over the first rows, and the origin if beta = 0; infinite where only x agrees.

    A maximum over fewer pairs, where `stop` ended it, is a bound too. Two misfits may shorten the targets' distances.
    """
    X, Y = X[:PAIRS], Y[:PAIRS]
    if problem.beta == 0.0:
        X, Y = torch.cat([X, X.new_zeros(1, X.shape[1])]), torch.cat([Y, Y.new_zeros(1, Y.shape[1])])
    missed = 2.0 * problem.allowed_misfit * math.sqrt(Y.shape[1])
    best = 0.0
    for i in range(len(X) - 1):
        if i and stop():
            break
        near = _lengths(X[i + 1 :] - X[i])
        # The slack pays for the rounding of both lengths.
        far = (_lengths(Y[i + 1 :] - Y[i]) * (1.0 - SLACK) - missed).clamp_min(0.0)
        best = max(best, float(torch.where(far > 0, far / near, 0.0).max()))
    return best


def _lengths(rows: Float[Tensor, "M n"]) -> Float[Tensor, " M"]:
    """Return the lengths of rows, whose squares may be beyond float64."""
    largest = rows.abs().amax(dim=1, keepdim=True)
    return largest[:, 0] * (rows / torch.where(largest > 0, largest, 1.0)).norm(dim=1)
