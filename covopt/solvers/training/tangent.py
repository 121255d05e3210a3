"""Exact fits made exact, then moved along F(W) = Y towards less |W|^2.

Good networks keep many samples at kinks, z = 0, and there the derivative of F jumps: a Newton step for F = Y alone
crosses kinks and gains nothing, however short it is. So pre-activations near a kink are held at it: the constraints are
F = Y and z_k(W) = 0, which are smooth near such a point. Let J (q, P) be the derivative of the constraints in all
weights. It is not formed: the part of row i for layer l is b_il zs_il^T, with b_il its derivative in Z_l and zs_il the
row of Zs_{l-1} of its sample, so that with B_l and S_l of these rows

    J J^T = sum_l (B_l B_l^T) o (S_l S_l^T),    o entry by entry, in q^2 (n_l + n_{l-1}) multiplications.

* **Restoring.** Gauss-Newton steps of least norm, D = J^+ r with the error r, halved until the error shrinks.
* **Descending.** On the linearised constraints |W + D|^2 is minimal at D = J^+ (J W + r) - W: the step of sequential
  quadratic programming without the curvature of the constraints, which a line search replaces. Each trial is restored.

Source: Nocedal, Wright, Numerical Optimization, 18.1 and 18.3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.weights import Weights, evaluate, preactivations
from covopt.runtime.loop import Stop

LARGEST = 2e7  # the most entries of J J^T and B that are formed
Kinks = list[Bool[Tensor, "N _"]]  # for each hidden layer, the pre-activations that are held at zero


class Equations(NamedTuple):
    """The constraints and their derivative J in W_1 ... W_L: outputs first, then kinks from the last layer down."""

    samples: Int[Tensor, " q"]  # the sample of each equation
    # the derivatives in Z_l, for each layer l, of the first equations; the others do not depend on W_l
    B: list[Float[Tensor, "_ _"]]
    Zs: list[Float[Tensor, "N _"]]  # the inputs Zs_{l-1} of each layer
    errors: Float[Tensor, " q"]

    def gram(self) -> Float[Tensor, "q q"]:
        """Return J J^T."""
        K = self.errors.new_zeros(len(self.errors), len(self.errors))
        for B, Zs in zip(self.B, self.Zs, strict=True):
            rows = self.samples[: len(B)]
            K[: len(B), : len(B)].addcmul_(B @ B.T, (Zs @ Zs.T)[rows][:, rows])
        return K

    def rows(self) -> Float[Tensor, "q P"]:
        """Return J."""
        q, blocks = len(self.errors), list[Tensor]()
        for B, Zs in zip(self.B, self.Zs, strict=True):
            block = (B[:, :, None] * Zs[self.samples[: len(B)]][:, None]).flatten(1)
            blocks.append(torch.nn.functional.pad(block, (0, 0, 0, q - len(B))))
        return torch.cat(blocks, dim=1)

    def times(self, weights: Weights) -> Float[Tensor, " q"]:
        """Return J x, for x of the shapes of the weights."""
        product = torch.zeros_like(self.errors)
        for W, B, Zs in zip(weights, self.B, self.Zs, strict=True):
            product[: len(B)] += ((B @ W) * Zs[self.samples[: len(B)]]).sum(dim=1)
        return product

    def transposed_times(self, y: Float[Tensor, " q"]) -> list[Tensor]:
        """Return J^T y, in the shapes of the weights."""
        return [(y[: len(B), None] * B).T @ Zs[self.samples[: len(B)]] for B, Zs in zip(self.B, self.Zs, strict=True)]


class Step(NamedTuple):
    """The result of a line search."""

    weights: list[Tensor]  # the network after the step; before it, if no part of the step lowers the error
    equations: Equations  # the equations there
    refused: list[Tensor] | None  # the last network that was refused; None if more than an eighth was taken


def exact_fit(problem: Problem, weights: Weights, stop: Stop = lambda: False) -> list[Tensor] | None:
    """Search near a network that nearly fits for the exact fit of least |W|^2, or None.

    The network is at the end of a descent of the fit with a small penalty.
    """
    lightened_fits = 2  # number of the exact fits of lowest cost that are improved along the set of exact fits
    fits = []
    # Pre-activations below one of these parts of their layer's root mean square are held at their kink.
    for near in (0.0, 1e-3, 3e-3, 1e-2, 3e-2):
        kinks = near_kinks(problem, weights, near)
        rows = problem.Y.numel() + sum(int(mask.sum()) for mask in kinks)
        if _entries(rows, sum(map(len, weights[:-1]))) <= LARGEST and not stop():
            fits.append(restored(problem, weights, kinks, stop))
    fits = sorted((fit for fit in fits if _fits(problem, fit[0])), key=lambda fit: _size(fit[0]))
    lighter = [lightened(problem, fitted, held, stop) for fitted, held in fits[:lightened_fits]]
    return min(lighter, key=_size, default=None)


def gauss_newton(problem: Problem, weights: Weights, stop: Stop = lambda: False) -> list[Tensor]:
    """Lower C + lam |W|^2, C the mean squared error, by Gauss-Newton steps; it never rises.

    With F linearised at W the minimum is at J^T (J J^T + lam N)^-1 (J W + Y - F). If only a small part of a step lowers
    the cost, the next step holds the pre-activations whose signs change within that part; if no part does, it holds
    those held before as well.
    """
    most, window, slow = 60, 10, 3e-4  # it ends where `window` steps gain less than `slow`, relative
    large, least = 0.3, 1.0 / 32.0  # after a larger part of a step nothing is held; a smaller one counts as `least`
    none = [torch.zeros_like(mask) for mask in near_kinks(problem, weights, 0.0)]
    current, kinks, costs = list(weights), none, [evaluate(problem, weights).total]
    room = 0.6 * sum(W.numel() for W in current) - problem.Y.numel()  # for held pre-activations
    for _ in range(most):
        if stop() or (len(costs) > window and costs[-1 - window] - costs[-1] < slow * costs[-1]):
            break
        equations = linearised(problem, current, kinks)
        ridge = torch.zeros_like(equations.errors)
        ridge[: problem.Y.numel()] = problem.lam * problem.samples
        aim = _least(equations, equations.times(current) + equations.errors, ridge)
        step = [D - W for D, W in zip(aim, current, strict=True)]
        length, lower, cost = _lowering(problem, current, step, costs[-1])
        held = none
        if length < large:
            part = max(length, least)
            crossed = _crossed(problem, current, [W + part * D for W, D in zip(current, step, strict=True)])
            held = [old | new for old, new in zip(kinks, crossed, strict=True)] if lower is current else crossed
        kinks = held if sum(int(mask.sum()) for mask in held) <= room else none
        current = lower
        costs.append(cost)
    return current


def _lowering(problem: Problem, weights: list[Tensor], step: Weights, cost: float) -> tuple[float, list[Tensor], float]:
    """Return the first of the parts 1, 1/2, ... of a step that lowers the cost, and network and cost there."""
    length, shortest = 1.0, 0.01
    while length > shortest:
        moved = [W + length * D for W, D in zip(weights, step, strict=True)]
        lower = evaluate(problem, moved).total
        if lower < cost:
            return length, moved, lower
        length *= 0.5
    return length, weights, cost


def nearby_fit(problem: Problem, weights: Weights, stop: Stop = lambda: False) -> list[Tensor] | None:
    """Return an exact fit near this network, or None; only pre-activations that are 0 are held at first."""
    fitted, _ = restored(problem, weights, near_kinks(problem, weights, 0.0), stop)
    return fitted if _fits(problem, fitted) else None


def most_entries(problem: Problem, widths: Sequence[int]) -> float:
    """Return the entries of J J^T and B where half of the pre-activations are held, up to the most; 0 if none are."""
    outputs, neurons = problem.Y.numel(), sum(widths)
    rows = outputs + 0.5 * problem.samples * neurons
    return min(LARGEST, _entries(rows, neurons)) if _entries(outputs, neurons) <= LARGEST else 0.0


def _entries(rows: float, neurons: int) -> float:
    return rows * (rows + neurons)


def near_kinks(problem: Problem, weights: Weights, near: float) -> Kinks:
    """Mark the pre-activations of each layer below `near` of its root mean square."""
    Z = preactivations(problem, weights)[:-1]
    return [z.abs() <= near * z.square().mean().sqrt() if z.numel() else z > 0.0 for z in Z]


def linearised(
    problem: Problem, weights: Weights, kinks: Kinks, slopes: Sequence[Float[Tensor, "N _"]] | None = None
) -> Equations:
    """Return the equations for the outputs and for the pre-activations at kinks, linearised at the network.

    `slopes` are those of sigma at Z_1 ... Z_{L-1}, sigma'(Z_l) by default.
    """
    Z = preactivations(problem, weights)
    slopes = slopes or [problem.activation.derivative(z) for z in Z[:-1]]
    N, m = Z[-1].shape
    samples, B = torch.arange(N, device=Z[-1].device).repeat_interleave(m), torch.eye(m).to(Z[-1]).repeat(N, 1)
    derivatives, errors = [B], [(problem.Y - Z[-1]).flatten()]
    for layer in range(problem.depth - 1, 0, -1):
        z, (held, neurons) = Z[layer - 1], kinks[layer - 1].nonzero(as_tuple=True)
        B = (B @ weights[layer][:, :-1]) * slopes[layer - 1][samples]
        B = torch.cat([B, torch.eye(z.shape[1]).to(z)[neurons]])
        samples = torch.cat([samples, held])
        derivatives.append(B)
        errors.append(-z[held, neurons])
    Zs = [problem.Xt, *(problem.appended(z, layer) for layer, z in enumerate(Z[:-1], start=1))]
    return Equations(samples, derivatives[::-1], Zs, torch.cat(errors))


def restored(
    problem: Problem, weights: Weights, kinks: Kinks, stop: Stop = lambda: False, steps: int = 30
) -> tuple[list[Tensor], Kinks]:
    """Take Gauss-Newton steps of least norm to an exact fit; return it and the held kinks.

    The fit is as near as the steps get. A step of which only an eighth or less lowers the error crosses kinks; these
    are held from the next step on, too.
    """
    current, rounded = list(weights), 1e-13 * float(problem.Y.abs().max())
    equations = linearised(problem, current, kinks)
    for _ in range(steps):
        error = float(equations.errors.abs().max())
        if error <= rounded or not math.isfinite(error) or stop():
            break
        step = _shortened(problem, current, _least(equations, equations.errors), kinks, equations)
        crossed = [] if step.refused is None else _crossed(problem, current, step.refused)
        if any(bool((new & ~held).any()) for new, held in zip(crossed, kinks, strict=False)):
            kinks = [held | new for held, new in zip(kinks, crossed, strict=True)]
            current, equations = step.weights, linearised(problem, step.weights, kinks)
            if len(equations.errors) > sum(W.numel() for W in current):  # so many mostly have no solution
                break
        elif step.weights is current:
            break
        else:
            current, equations = step.weights, step.equations
    return current, kinks


def _shortened(problem: Problem, weights: list[Tensor], step: Weights, kinks: Kinks, equations: Equations) -> Step:
    """Take the largest part of a step that lowers the error."""
    short, shortest = 0.125, 0.0625  # parts of the step
    length, refused, error = 1.0, None, float(equations.errors.norm())
    while True:
        trial = [W + length * D for W, D in zip(weights, step, strict=True)]
        there = linearised(problem, trial, kinks)
        if float(there.errors.norm()) < (1.0 - 0.1 * length) * error:
            return Step(trial, there, refused if length <= short else None)
        if length < shortest:
            return Step(weights, equations, trial)
        length, refused = 0.5 * length, trial


def _crossed(problem: Problem, before: Weights, after: Weights) -> Kinks:
    """Mark the pre-activations whose sign changed."""
    Z = preactivations(problem, before)[:-1], preactivations(problem, after)[:-1]
    return [(old > 0.0) != (new > 0.0) for old, new in zip(*Z, strict=True)]


def lightened(problem: Problem, weights: Weights, kinks: Kinks, stop: Stop = lambda: False) -> list[Tensor]:
    """Move along the exact fits to one of less |W|^2."""
    shortest, window, slow = 1e-4, 10, 1e-5  # it ends where `window` steps gain less than `slow`, relative
    current, sizes, length = list(weights), [_size(weights)], 1.0
    for _ in range(200):
        if stop():
            break
        equations = linearised(problem, current, kinks)
        lightest = _least(equations, equations.times(current) + equations.errors)
        step = [D - W for D, W in zip(lightest, current, strict=True)]
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


def _least(equations: Equations, r: Float[Tensor, " q"], ridge: Float[Tensor, " q"] | None = None) -> list[Tensor]:
    """Return about J^+ r, by three steps x <- x + J^T (J J^T + shift)^-1 (r - J x); 0 if that overflows.

    With a ridge D it is J^T (J J^T + D)^-1 r, in one step.

    The rows of J are scaled to length 1. Kinks of small neurons have short rows, which would vanish beside a shift that
    fits the longest ones. An eigendecomposition of J J^T would take 20 times as long as the Cholesky factor (3,000
    rows).
    """
    K, x = equations.gram(), equations.transposed_times(torch.zeros_like(r))
    if ridge is not None:
        K.diagonal().add_(ridge)
    squares = K.diagonal().clone()
    scale = torch.where(squares > 0.0, squares.rsqrt(), 0.0)
    K *= scale[:, None] * scale
    for shift in (1e-14, 1e-12, 1e-10, 1e-8):
        K.diagonal().fill_(1.0 + shift)
        L, failed = torch.linalg.cholesky_ex(K)
        if not failed:
            for _ in range(3 if ridge is None else 1):
                y = torch.cholesky_solve((scale * (r - equations.times(x)))[:, None], L)[:, 0]
                x = [D + E for D, E in zip(x, equations.transposed_times(scale * y), strict=True)]
            return x
    return x


def misfit(problem: Problem, weights: Weights) -> float:
    """Return max |F - Y|."""
    return float((problem.Y - preactivations(problem, weights)[-1]).abs().max())


def _fits(problem: Problem, weights: Weights) -> bool:
    """Return True if the fit is exact enough to continue: far better than allowed."""
    return misfit(problem, weights) <= 1e-10 * float(problem.Y.abs().max())


def _size(weights: Weights) -> float:
    return sum(float(W.square().sum()) for W in weights)
