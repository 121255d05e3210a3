"""How much a network at rest moves because of its batches, exactly, without training (MATH.md section 9).

Layer by layer, g_i = delta_i h_i^T is the gradient of sample i's own loss (delta_i its derivative by z_i, h_i the input
of the layer, row i of Zs), G their mean, and batches of B are drawn uniformly without replacement. Then, with
c = (N - B) / (B (N - 1)) and L^lam = C + lam |W|^2,

    mean_S |grad L_S^lam|^2 = |grad L^lam|^2 + c tr Sigma,     tr Sigma = mean_i |delta_i|^2 |h_i|^2 - |G|^2.

No gradient of a single sample is formed. The floor holds for every W, whatever was trained and how:

    mean_S |grad L_S^lam|^2 >= c 4 lam^2 mean_i |W (I - h_i h_i^T / |h_i|^2)|^2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.errors import ProblemError
from covopt.model.problem import Problem
from covopt.model.ranks import frobenius, largest
from covopt.model.weights import Weights, inputs_from, preactivations, pulled_back


@dataclass(frozen=True)
class Noise:
    """The gradients of one layer over batches of one size; all of them Frobenius norms.

    Attributes:
        gradient: |grad L^lam|, of all samples.
        rms: (mean_S |grad L_S^lam|^2)^(1/2).
        spread: (mean_S |grad L_S^lam - grad L^lam|^2)^(1/2), what batches alone move; rms^2 = gradient^2 + spread^2.
        floor: what the rms cannot fall below at weights of this norm and these inputs.
        deviation: (tr Sigma)^(1/2), of the gradients of single samples.
        decay: 2 lam |W|, the part of a step that is weight decay, in which the others are told.
    """

    gradient: float
    rms: float
    spread: float
    floor: float
    deviation: float
    decay: float

    @property
    def residual(self) -> float | None:
        """|grad L^lam| / (2 lam |W|), 0 at stationary weights; None for lam = 0 or W = 0."""
        return self._relative(self.gradient)

    def summary(self) -> dict[str, float | None] | None:
        """For JSON, in units of 2 lam |W|; scale is tr Sigma / (2 lam |W|)^2, the batch at which both are as large."""
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
    """The noise of batches of `batch_size` in each layer, l = 1 ... L.

    Args:
        problem: the question; lam = 0 is allowed here, where the floor is 0.
        weights: W_1 ... W_L.
        batch_size: B, from 1 to N.

    Raises:
        ProblemError: B is out of range, or the loss is `interpolate`, which has no gradient.

    Source: P8 of MATH.md section 9, which is [GP22, Prop. 1 and 2] with numbers.
    """
    check_batch_size(problem, batch_size)
    N = problem.samples
    c = (N - batch_size) / (batch_size * (N - 1)) if N > 1 else 0.0
    return [
        _noise(problem, W, N * delta, Zs, c) for W, (delta, Zs) in zip(weights, factors(problem, weights), strict=True)
    ]


def factors(problem: Problem, weights: Weights) -> list[tuple[Float[Tensor, "N _"], Float[Tensor, "N _"]]]:
    """Of each layer (dC/dZ_l, Zs_{l-1}), shapes (N, n_l) and (N, n_{l-1} + 1): dC/dW_l is the first, transposed, times
    the second.

    Raises:
        ProblemError: for `interpolate`, which has no gradient, or where float64 does not hold it.
    """
    Z = preactivations(problem, weights)
    deltas = pulled_back(problem, weights, Z, problem.gradient_at(Z[-1]))
    found = list(zip(deltas, inputs_from(problem, Z), strict=True))
    if not all(bool(each.isfinite().all()) for pair in found for each in pair):
        raise ProblemError("The network's gradient on these data is not finite; check its weights and the scale of X.")
    return found


def check_batch_size(problem: Problem, batch_size: int) -> None:
    """Raise a ProblemError unless batches of this size can be drawn and have gradients."""
    if problem.interpolates:
        raise ProblemError("The loss interpolate has no batches; leave the batch size out, or give lam and a loss.")
    if not 1 <= batch_size <= problem.samples:
        raise ProblemError(
            f"The batch size is {batch_size}; give a number from 1 to the number of samples, {problem.samples}."
        )


def _noise(
    problem: Problem,
    W: Float[Tensor, "n d"],
    delta: Float[Tensor, "N n"],
    Zs: Float[Tensor, "N d"],
    c: float,
) -> Noise:
    """Of one layer, in numbers divided by the largest delta and h, so that float64 holds their squares."""
    d, h = (largest(each) or 1.0 for each in (delta, Zs))
    delta, H = delta / d, Zs / h
    squares = H.square().sum(dim=1)
    mean = delta.T @ H / len(H)
    variance = max(0.0, float((delta.square().sum(dim=1) * squares).mean() - mean.square().sum()))
    gradient = frobenius((d * h) * mean + 2.0 * problem.lam * W)
    deviation, decay = d * h * math.sqrt(variance), 2.0 * problem.lam * frobenius(W)
    floor = math.sqrt(c) * 2.0 * problem.lam * _outside(W, H)
    spread = math.sqrt(c) * deviation
    return Noise(gradient, math.hypot(gradient, spread), spread, floor, deviation, decay)


def _outside(W: Float[Tensor, "n d"], H: Float[Tensor, "N d"]) -> float:
    """(mean_i |W (I - h_i h_i^T / |h_i|^2)|^2)^(1/2); h_i = 0 takes nothing from W. It is rounded down, as a floor."""
    size = frobenius(W)
    if size == 0.0:
        return 0.0
    directions = torch.nn.functional.normalize(H, dim=1, eps=torch.finfo(H.dtype).tiny)
    inside = (directions @ (W / size).T).square().sum(dim=1).mean()
    terms = sum(W.shape) + len(H) + 8
    return size * math.sqrt(max(0.0, 1.0 - float(inside) - terms * torch.finfo(W.dtype).eps))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
