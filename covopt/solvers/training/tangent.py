"""Exact fits made exact, then moved along F(W) = Y towards less |W|^2.

Good networks keep many samples at kinks, z = 0, and there the derivative of F jumps: a Newton step for F = Y alone
crosses kinks and gains nothing, however short it is. So pre-activations near a kink are held at it: the constraints are
F = Y and z_k(W) = 0, which are smooth near such a point. J (q, P) is the derivative of the constraints in all
weights, formed layer by layer: with B the derivative of a row in Z_l, its part for layer l is the product of B and
Zs_{l-1}.

* **Restoring.** Gauss-Newton steps of least norm, D = J^+ r with the error r, halved until the error shrinks.
* **Descending.** On the linearised constraints |W + D|^2 is minimal at D = J^+ (J W + r) - W: the step of sequential
  quadratic programming without the curvature of the constraints, which a line search replaces. Each trial is restored.

Source: Nocedal, Wright, Numerical Optimization, 18.1 and 18.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.weights import Weights, flattened, preactivations, shaped_like
from covopt.solvers.training.exact_fit import misfit

LARGEST = 2e7
"""The most entries of a J that is formed. With 1e7, 30 digits at depth 5 had no fit after 60 s."""
Kinks = list[Bool[Tensor, "N _"]]
"""For each hidden layer, the pre-activations that are held at zero."""


class Kept(NamedTuple):
    """The held equations: their derivative in W_1 ... W_L, one after another, and errors."""

    J: Float[Tensor, "q P"]
    off: Float[Tensor, " q"]


def exact_fit(problem: Problem, weights: Weights, stop: Callable[[], bool] = lambda: False) -> list[Tensor] | None:
    """Search near a network that nearly fits for the exact fit of least |W|^2, or None.

    Args:
        problem: its loss is `interpolate`.
        weights: W_1 ... W_L, at the end of a descent of the fit with a small penalty.
    """
    lightened_fits = 2  # number of the exact fits of lowest cost that are improved along the set of exact fits
    fits = sorted(
        (_size(fitted), rank, fitted, held) for rank, (fitted, held) in enumerate(_fitted(problem, weights, stop))
    )
    lighter = [lightened(problem, fitted, held, stop) for _, _, fitted, held in fits[:lightened_fits]]
    return min(lighter, key=_size, default=None)


def first_fit(problem: Problem, weights: Weights, stop: Callable[[], bool] = lambda: False) -> list[Tensor] | None:
    """Return the first exact fit found near this network, or None."""
    return next((fitted for fitted, _ in _fitted(problem, weights, stop)), None)


def _fitted(problem: Problem, weights: Weights, stop: Callable[[], bool]) -> Iterator[tuple[list[Tensor], Kinks]]:
    """Yield exact fits near this network and their held kinks, those with few kinks first: they take less time."""
    # Pre-activations below one of these parts of their layer's root mean square are held at their kink.
    for near in (1e-3, 3e-3, 1e-2, 3e-2, 0.0):
        kinks = near_kinks(problem, weights, near)
        rows = problem.Y.numel() + sum(int(mask.sum()) for mask in kinks)
        if rows * sum(W.numel() for W in weights) > LARGEST or stop():
            continue
        fitted, held = restored(problem, weights, kinks, stop)
        if _fits(problem, fitted):
            yield fitted, held


def most_entries(problem: Problem, widths: Sequence[int]) -> float:
    """Return the entries of J where half of the pre-activations are held, up to the most; 0 if no J is formed."""
    parameters, outputs = sum(n * d for n, d in problem.shapes(widths)), problem.Y.numel()
    rows = outputs + 0.5 * problem.samples * sum(widths)
    return min(LARGEST, rows * parameters) if outputs * parameters <= LARGEST else 0.0


def near_kinks(problem: Problem, weights: Weights, near: float) -> Kinks:
    """Mark the pre-activations of each layer below `near` of its root mean square."""
    Z = preactivations(problem, weights)[:-1]
    return [z.abs() <= near * z.square().mean().sqrt() if z.numel() else z > 0.0 for z in Z]


def kept(problem: Problem, weights: Weights, kinks: Kinks) -> Kept:
    """Return the derivatives of the outputs and of pre-activations at kinks, and their errors."""
    Z = preactivations(problem, weights)
    N, m = Z[-1].shape
    samples = torch.arange(N, device=Z[-1].device).repeat_interleave(m)
    J = [_rows(problem, weights, Z, problem.depth, samples, torch.eye(m).to(Z[-1]).repeat(N, 1))]
    off = [(problem.Y - Z[-1]).flatten()]
    for layer, mask in enumerate(kinks, start=1):
        samples, neurons = mask.nonzero(as_tuple=True)
        if len(samples):
            B = torch.nn.functional.one_hot(neurons, mask.shape[1]).to(Z[-1])
            J.append(_rows(problem, weights, Z, layer, samples, B))
            off.append(-Z[layer - 1][samples, neurons])
    return Kept(torch.cat(J), torch.cat(off))


def restored(
    problem: Problem, weights: Weights, kinks: Kinks, stop: Callable[[], bool] = lambda: False, steps: int = 30
) -> tuple[list[Tensor], Kinks]:
    """Take Gauss-Newton steps of least norm to an exact fit; return it and the held kinks.

    The fit is as near as the steps get. If even a thousandth of a step does not help, the step crosses kinks at once:
    these are then held, too.
    """
    current, rounded = list(weights), 1e-13 * float(problem.Y.abs().max())
    now = kept(problem, current, kinks)
    for _ in range(steps):
        misfit = float(now.off.abs().max())
        if misfit <= rounded or not math.isfinite(misfit) or stop():
            break
        step = shaped_like(_least(now.J, now.off), current)
        trial, then = _shortened(problem, current, step, kinks, float(now.off.norm()))
        if then is not None:
            current, now = trial, then
            continue
        crossed = _crossed(problem, current, trial)
        more = [held | new for held, new in zip(kinks, crossed, strict=True)]
        if all(torch.equal(held, new) for held, new in zip(kinks, more, strict=True)):
            break
        kinks, now = more, kept(problem, current, more)
    return current, kinks


def _shortened(
    problem: Problem, weights: Weights, step: Weights, kinks: Kinks, off: float
) -> tuple[list[Tensor], Kept | None]:
    """Take the largest fraction of a step that lowers the error; return the smallest, and None, if none does."""
    length = 1.0
    while True:
        trial = [W + length * D for W, D in zip(weights, step, strict=True)]
        then = kept(problem, trial, kinks)
        if float(then.off.norm()) < (1.0 - 0.1 * length) * off:
            return trial, then
        if length < 0.5**10:
            return trial, None
        length *= 0.5


def _crossed(problem: Problem, before: Weights, after: Weights) -> Kinks:
    """Mark the pre-activations whose sign changed."""
    Z = preactivations(problem, before)[:-1], preactivations(problem, after)[:-1]
    return [(old > 0.0) != (new > 0.0) for old, new in zip(*Z, strict=True)]


def lightened(
    problem: Problem, weights: Weights, kinks: Kinks, stop: Callable[[], bool] = lambda: False
) -> list[Tensor]:
    """Move along the exact fits to one of less |W|^2."""
    shortest, window, slow = 1e-4, 10, 1e-5  # it ends where `window` steps gain less than `slow`, relative
    current, sizes, length = list(weights), [_size(weights)], 1.0
    for _ in range(200):
        if stop():
            break
        now, flat = kept(problem, current, kinks), flattened(current)
        step = shaped_like(_least(now.J, now.J @ flat + now.off) - flat, current)
        while length >= shortest:
            moved = [W + length * D for W, D in zip(current, step, strict=True)]
            trial = restored(problem, moved, kinks, stop, steps=6)[0]
            if _size(trial) < sizes[-1] and _fits(problem, trial):
                break
            length *= 0.5
        else:
            break
        current, length = trial, min(1.0, 2.0 * length)
        sizes.append(_size(current))
        if len(sizes) > window and sizes[-1 - window] - sizes[-1] <= slow * sizes[-1]:
            break
    return current


def _rows(
    problem: Problem, weights: Weights, Z: list[Tensor], layer: int, samples: Int[Tensor, " q"], B: Float[Tensor, "q n"]
) -> Float[Tensor, "q P"]:
    """Return the derivatives of B . Z_l in W_1 ... W_L, each row at one sample."""
    pieces = [B.new_zeros(len(B), W.numel()) for W in weights]
    for below in range(layer, 0, -1):
        Zs = problem.Xt if below == 1 else problem.appended(Z[below - 2], below - 1)
        pieces[below - 1] = (B[:, :, None] * Zs[samples][:, None, :]).flatten(1)
        if below > 1:
            B = (B @ weights[below - 1][:, :-1]) * problem.activation.derivative(Z[below - 2][samples])
    return torch.cat(pieces, dim=1)


def _least(J: Float[Tensor, "q P"], r: Float[Tensor, " q"]) -> Float[Tensor, " P"]:
    """Return about J^+ r, by three steps x <- x + J^T (J J^T + shift)^-1 (r - J x); 0 if that overflows.

    An eigendecomposition of J J^T would take 20 times as long as the Cholesky factor (3,000 rows).
    """
    K, x = J @ J.T, torch.zeros_like(J[0])
    diagonal = K.diagonal().clone()
    for shift in (1e-13, 1e-11, 1e-9):
        K.diagonal().copy_(diagonal + shift * diagonal.sum())
        L, failed = torch.linalg.cholesky_ex(K)
        if not failed:
            for _ in range(3):
                x = x + J.T @ torch.cholesky_solve((r - J @ x)[:, None], L)[:, 0]
            return x
    return x


def _fits(problem: Problem, weights: Weights) -> bool:
    """Return True if the fit is exact enough to continue: far better than allowed."""
    return misfit(problem, weights) <= 1e-10 * float(problem.Y.abs().max())


def _size(weights: Weights) -> float:
    return sum(float(W.square().sum()) for W in weights)
