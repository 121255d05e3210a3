"""The exact motion of a network at rest because of its batches, without training.

See MATH.md section 9. Layer by layer, g_i = delta_i h_i^T is the gradient of sample i's own loss (delta_i its
derivative by z_i, h_i the input of the layer, row i of Zs), G their mean, and batches of B are drawn uniformly without
replacement. Then, with c = (N - B) / (B (N - 1)) and L^lam = C + lam |W|^2,

    mean_S |grad L_S^lam|^2 = |grad L^lam|^2 + c tr Sigma,     tr Sigma = mean_i |delta_i|^2 |h_i|^2 - |G|^2.

No gradient of a single sample is formed. The floor holds for every W, whatever was trained and how:

    mean_S |grad L_S^lam|^2 >= c 4 lam^2 mean_i |W (I - h_i h_i^T / |h_i|^2)|^2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.rounding import largest
from covopt.model.passes import CHUNK, parts_of
from covopt.model.problem import Problem
from covopt.model.ranks import frobenius
from covopt.model.weights import Weights, inputs_from, preactivations, pulled_back
from covopt.runtime.errors import ProblemError


@dataclass(frozen=True)
class Noise:
    """The gradients of one layer over batches of one size; all of them Frobenius norms."""

    gradient: float  # |grad L^lam|, of all samples
    rms: float  # (mean_S |grad L_S^lam|^2)^(1/2)
    spread: float  # (mean_S |grad L_S^lam - grad L^lam|^2)^(1/2), what batches move: rms^2 = gradient^2 + spread^2
    floor: float  # a lower bound on the rms at weights of this norm and these inputs
    deviation: float  # (tr Sigma)^(1/2), of the gradients of single samples
    decay: float  # 2 lam |W|, the part of a step that is weight decay, the unit in which the others are reported

    @property
    def residual(self) -> float | None:
        """Return |grad L^lam| / (2 lam |W|), 0 at stationary weights; None for lam = 0 or W = 0."""
        return self._relative(self.gradient)

    def summary(self) -> dict[str, float | None] | None:
        """Return the noise for JSON, in units of 2 lam |W|.

        scale is tr Sigma / (2 lam |W|)^2, the batch size at which noise and decay are equally large.
        """
        if self._relative(0.0) is None:
            return None
        deviation = self._relative(self.deviation)
        return {
            "rms": self._relative(self.rms),
            "spread": self._relative(self.spread),
            "floor": self._relative(self.floor),
            "scale": None if deviation is None else _finite(deviation * deviation),
        }

    def _relative(self, value: float) -> float | None:
        return _finite(value / self.decay) if self.decay > 0.0 else None


def batch_noise(problem: Problem, weights: Weights, batch_size: int) -> list[Noise]:
    """Return the noise of batches of `batch_size` in each layer, l = 1 ... L; for lam = 0 the floor is 0.

    Source: P8 of MATH.md section 9, which is [GP22, Prop. 1 and 2] with numbers.
    """
    check_batch_size(problem, batch_size)
    N = problem.samples
    c = (N - batch_size) / (batch_size * (N - 1)) if N > 1 else 0.0
    parts = [*_parts(problem, weights)] if N <= CHUNK else None  # for many samples they are recomputed
    largests = [[(largest(delta), largest(Zs)) for delta, Zs in part] for part in parts or _parts(problem, weights)]
    scales = [tuple(max(sizes) or 1.0 for sizes in zip(*layer, strict=True)) for layer in zip(*largests, strict=True)]
    totals: list[_Sums] = []
    for part in parts or _parts(problem, weights):
        sums = [_sums(W, delta / d, Zs / h) for W, (delta, Zs), (d, h) in zip(weights, part, scales, strict=True)]
        before = totals or [(torch.zeros_like(W), 0.0, 0.0) for W in weights]
        totals = [(A + B, a + b, c + d) for (A, a, c), (B, b, d) in zip(before, sums, strict=True)]
    return [_noise(problem, W, sums, d * h, c) for W, sums, (d, h) in zip(weights, totals, scales, strict=True)]


def _parts(problem: Problem, weights: Weights) -> Iterator[list[tuple[Float[Tensor, "n _"], Float[Tensor, "n _"]]]]:
    """Yield (delta_i, h_i) of each layer, for the rows of one chunk of samples at a time."""
    for _, part in parts_of(problem):
        yield [(part.samples * delta, Zs) for delta, Zs in factors(part, weights)]


def factors(problem: Problem, weights: Weights) -> list[tuple[Float[Tensor, "N _"], Float[Tensor, "N _"]]]:
    """Return (dC/dZ_l, Zs_{l-1}) of each layer, shapes (N, n_l) and (N, n_{l-1} + 1).

    dC/dW_l is the first, transposed, times the second. A ProblemError refuses `interpolate`, which has no gradient, and
    gradients that float64 does not hold.
    """
    Z = preactivations(problem, weights)
    deltas = pulled_back(problem, weights, Z, problem.gradient_at(Z[-1]))
    pairs = list(zip(deltas, inputs_from(problem, Z), strict=True))
    if not all(bool(A.isfinite().all()) for pair in pairs for A in pair):
        raise ProblemError("The network's gradient on these data is not finite; check its weights and the scale of X.")
    return pairs


def check_batch_size(problem: Problem, batch_size: int) -> None:
    """Raise a ProblemError unless batches of this size can be drawn and have gradients."""
    if problem.interpolates:
        raise ProblemError("The loss interpolate has no batches; leave the batch size out, or give lam and a loss.")
    if problem.free:
        raise ProblemError(
            "What batches do is known of penalised biases; leave batch_size, rate and steps out, or ask with the decay"
            " all."
        )
    if not 1 <= batch_size <= problem.samples:
        raise ProblemError(
            f"The batch size is {batch_size}; give a number from 1 to the number of samples, {problem.samples}."
        )


_Sums = tuple[Float[Tensor, "n d"], float, float]
"""Sums over the samples of one layer, delta and h divided by the largest: of delta_i h_i^T, of |delta_i|^2 |h_i|^2, and
of |W h_i|^2 / |h_i|^2 for W / |W|."""


def _sums(W: Float[Tensor, "n d"], delta: Float[Tensor, "N n"], H: Float[Tensor, "N d"]) -> _Sums:
    """Return the sums over these samples; h_i = 0 takes nothing from W."""
    squares, size = H.square().sum(dim=1), frobenius(W)
    directions = torch.nn.functional.normalize(H, dim=1, eps=torch.finfo(H.dtype).tiny)
    inside = float((directions @ (W / size).T).square().sum()) if size > 0.0 else 0.0
    return delta.T @ H, float((delta.square().sum(dim=1) * squares).sum()), inside


def _noise(problem: Problem, W: Float[Tensor, "n d"], sums: _Sums, unit: float, c: float) -> Noise:
    """Return the noise of one layer, from sums scaled so that float64 holds their squares."""
    N, (pull, squares, inside) = problem.samples, sums
    mean = pull / N
    variance = max(0.0, squares / N - float(mean.square().sum()))
    gradient = frobenius(unit * mean + 2.0 * problem.lam * W)
    size, deviation = frobenius(W), unit * math.sqrt(variance)
    decay = 2.0 * problem.lam * size
    # (mean_i |W (I - h_i h_i^T / |h_i|^2)|^2)^(1/2), rounded down, as a floor.
    outside = size * math.sqrt(max(0.0, 1.0 - inside / N - (sum(W.shape) + N + 8) * torch.finfo(W.dtype).eps))
    floor = math.sqrt(c) * 2.0 * problem.lam * outside
    spread = math.sqrt(c) * deviation
    return Noise(gradient, math.hypot(gradient, spread), spread, floor, deviation, decay)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
