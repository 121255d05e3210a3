"""The largest eigenvalue of the Gauss-Newton matrix of a loss.

By Lanczos' method, without forming any kernel. With V = df/dW, one row for each sample and output, the Gauss-Newton
matrix of C(f(W)) is V^T H V, H the second derivative of C in the outputs. With H = R R^T it has the non-zero
eigenvalues of R^T Theta R, Theta = V V^T the neural tangent kernel, and Theta v is one pass down and one pass up the
layers. mse has H = (2 / N) I; cross_entropy, for a sample with the probabilities p, H = (diag(p) - p p^T) / N and R =
(diag(sqrt p) - p sqrt(p)^T) / sqrt N; with weights the rows of R are those times w^(1/2).

Source: Lanczos' method with full reorthogonalisation: Golub, Van Loan, Matrix Computations, 10.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.model.jacobian import LOG_2, Passage
from covopt.model.problem import Problem
from covopt.model.weights import Weights

WORK = 5e8  # samples times weights, above which nothing is computed: one step takes about four operations for each


def is_little_work(problem: Problem, weights: Weights) -> bool:
    """Return True if `sharpness` computes anything for these numbers of samples and weights."""
    return problem.samples * sum(W.numel() for W in weights) <= WORK


def sharpness(problem: Problem, weights: Weights, passage: Passage) -> float | None:
    """Return the largest eigenvalue of the Gauss-Newton matrix of C in the weights, bias columns included.

    `interpolate` counts as mse, and `passage` is that of these weights at the problem's samples. It is an estimate from
    below, equal to the eigenvalue up to rounding once Lanczos' method has converged; None where float64 does not hold
    it, where the loss is none of covopt's, or where that would be too much work.
    """
    if problem.loss.name not in ("mse", "interpolate", "cross_entropy") or not is_little_work(problem, weights):
        return None
    theta, log_unit = _kernel_times(passage)
    if problem.loss.name == "cross_entropy":
        p = torch.softmax(passage.Z[-1].plain(), dim=1)
        root = p.sqrt()
        weighed = problem.weighted
        value = _largest(lambda v: weighed(_root_times(p, root, theta(_transposed_root_times(p, root, weighed(v))))), p)
        log_unit -= math.log(problem.samples)
    else:
        value = _largest(lambda v: problem.weighted(theta(problem.weighted(v))), passage.Z[-1].values)
        log_unit += math.log(2.0 / problem.samples)
    if log_unit == -math.inf:
        return 0.0
    logarithm = math.log(value) + log_unit if value > 0.0 else math.nan  # 0 is below float64's range
    return math.exp(logarithm) if -700.0 < logarithm < 700.0 else None


def _root_times(p: Tensor, root: Tensor, v: Tensor) -> Tensor:
    """Return R^T v, R = diag(root) - p root^T for each row."""
    return root * (v - (p * v).sum(dim=1, keepdim=True))


def _transposed_root_times(p: Tensor, root: Tensor, v: Tensor) -> Tensor:
    """Return R v."""
    return root * v - p * (root * v).sum(dim=1, keepdim=True)


def _kernel_times(passage: Passage) -> tuple[Callable[[Tensor], Tensor], float]:
    """Return the map v -> Theta v / unit for v (N, n_L), and log unit.

    The unit is a power of four; -inf where Theta = 0. Layer l enters Theta with the scales of Zs_{l-1} and of A_{l+1}
    ... A_L, if at all; the largest of them is the unit.
    """
    A = [W.values[:, :-1] for W in passage.W]
    above = [sum(W.exponent for W in passage.W[layer:]) for layer in range(1, len(A) + 1)]
    scales = [Zs.exponent + exponent for Zs, exponent in zip(passage.inputs, above, strict=True)]
    slopes = [passage.activation.derivative(Z.values) for Z in passage.Z[:-1]]

    def gradients(v: Float[Tensor, "N nL"]) -> list[Tensor]:
        """Return V^T v, layer by layer from the last one, without their scales."""
        moved, slopes_by_layer = v, []
        for layer in range(len(A) - 1, -1, -1):
            slopes_by_layer.append(moved.T @ passage.inputs[layer].values)
            if layer:
                moved = (moved @ A[layer]) * slopes[layer - 1]
        return slopes_by_layer

    acting = [bool(G.any()) for G in gradients(_start(passage.Z[-1].values))][::-1]
    unit = max((scale for scale, acts in zip(scales, acting, strict=True) if acts), default=0)
    parts = [2.0 ** (2 * (scale - unit)) if acts else 0.0 for scale, acts in zip(scales, acting, strict=True)]

    def times(v: Float[Tensor, "N nL"]) -> Float[Tensor, "N nL"]:
        changes = [part * G for part, G in zip(parts[::-1], gradients(v), strict=True)]
        moved = passage.inputs[0].values @ changes[-1].T
        for layer in range(1, len(A)):
            moved = (moved * slopes[layer - 1]) @ A[layer].T + passage.inputs[layer].values @ changes[-1 - layer].T
        return moved

    return times, 2.0 * LOG_2 * unit if any(acting) else -math.inf


def _start(like: Float[Tensor, "N nL"]) -> Float[Tensor, "N nL"]:
    """Return a vector of norm 1, the same in every call."""
    drawn = torch.randn(like.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (drawn / drawn.norm()).to(like.device)


def _largest(times: Callable[[Tensor], Tensor], like: Float[Tensor, "N nL"]) -> float:
    """Return the largest eigenvalue of a positive semi-definite map."""
    size, most, close = like.numel(), 100, 1e-7  # steps at most; the residual, relative, that ends them
    basis = [_start(like).flatten()]
    diagonal: list[float] = []
    beside: list[float] = []
    largest = 0.0
    while len(diagonal) < min(most, size):
        w = times(basis[-1].view(like.shape)).flatten()
        diagonal.append(float(basis[-1] @ w))
        Q = torch.stack(basis, dim=1)
        for _ in range(2):  # once leaves what rounding left of the first time
            w = w - Q @ (Q.T @ w)
        T = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
        if beside:
            T += torch.diag(side := torch.tensor(beside, dtype=torch.float64), 1) + torch.diag(side, -1)
        if not bool(T.isfinite().all()):
            return math.nan
        values, vectors = torch.linalg.eigh(T)
        largest, length = max(0.0, float(values[-1])), float(w.norm())
        if length * abs(float(vectors[-1, -1])) <= close * largest:
            return largest
        beside.append(length)
        basis.append(w / length)
    return largest
