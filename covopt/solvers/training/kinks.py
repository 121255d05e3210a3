"""Newton's method for networks with neurons on kinks, z = 0 for some samples.

At most minima some pre-activations are exactly 0. The gradient jumps there, so that L-BFGS and Adam slow down about
1e-5 above the minimum, relative. Between kinks the loss is smooth. Give each entry z of Z_1 ... Z_{L-1} a slope D:
sigma'(z) where z is not near 0, any number in [a, 1] elsewhere. With D z in place of sigma(z) the loss has a gradient g
and a Hessian H in all weights (for Huber's loss, H is that of a quadratic above it), and the loss at W + d is about

    g . d + d . H d / 2 + sum_p c_p [relu(z_p + b_p . d) - e_p (z_p + b_p . d)],    D_p = a + (1 - a) e_p,

up to a constant. Here p counts the entries near 0, b_p is the derivative of z_p in the weights, and c_p that of the
loss in sigma(z_p), times 1 - a. Entries with c_p <= 0 are left out, because no minimum lies on their kinks. The minimum
over d has a dual in t_p in [0, 1],

    max_t  sum_p c_p (t_p - e_p) z_p - |g + sum_p c_p (t_p - e_p) b_p|^2 / 2,    |.| the norm of H^-1,

a quadratic programme with bounds. The network stays on the kinks with 0 < t_p < 1, and t_p gives their slopes D_p in
the next step. Once these kinks no longer change, the steps are those of Newton's method for the weights and multipliers
of an equality-constrained problem, which converge quadratically. A multiple of I is added to H where it is not positive
definite or where no step lowers the loss. With three layers and more z_p is not linear in the weights: a step that does
not lower the loss is repeated with the values of z_p at its end (second-order correction), and then shortened.

Sources: Fletcher, A model algorithm for composite nondifferentiable optimization problems (1982); Nocedal, Wright,
Numerical Optimization, 18.3.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.spread import ALONE
from covopt.model.weights import Weights, evaluate, flattened, inputs_from, preactivations, shaped_like
from covopt.runtime.loop import Stop
from covopt.solvers.training.tangent import Kinks, linearised


class Settled(NamedTuple):
    """A network after Newton steps."""

    weights: list[Tensor]
    cost: float
    # M_1 ... M_L (N, n_l), M_l = D_l * [M_{l+1} W_{l+1} without its bias column], with the slopes D_l at kinks;
    # M_L = -grad C / (2 lam)
    multipliers: list[Tensor]


@dataclass(frozen=True)
class NewtonAtKinks:
    """The steps and their limits.

    On trained networks of teachers (100 samples, 170 to 370 weights) 60 steps take 0.2 to 0.6 s and lower the cost by
    3e-5 to 4e-5, relative.
    """

    near: float = 0.05  # |z| below which an entry is near 0, relative to the root mean square of its neuron
    most: int = 300  # the maximum number of entries near 0 in a step, those with the smallest |z|
    steps: int = 40  # the maximum number of steps
    slow: float = 1e-13  # a step that lowers the cost by less than this, relative, is the last

    def settled(self, problem: Problem, weights: Weights, stop: Stop) -> Settled:
        """Descend from a network of a problem that `suits`; the cost never rises, and empty layers stay empty."""
        point = last = _Point.of(problem, list(weights), None)
        cost, damping = evaluate(problem, weights).total, 0.0
        for _ in range(self.steps if min(map(len, weights)) else 0):
            if stop():
                break
            before = cost
            step = _Step.of(point, self)
            lower = step.lower(point, cost, damping)
            if lower is None and point is not last:
                break
            if lower is None:  # where the kinks of two layers meet, slopes between a and 1 may point upwards
                point = _Point.of(problem, last.weights, None)
                continue
            weights, cost, shares, damping = lower
            point = last = _Point.of(problem, weights, (step.places, shares))
            if before - cost <= self.slow * cost:
                break
        return Settled(last.weights, cost, [M / (-2.0 * problem.lam) for M in last.gradients])


def suits(problem: Problem, weights: Weights, work: float) -> bool:
    """Return True if all weights are penalised, no layer is empty, and a step takes at most `work` multiplications."""
    P = sum(W.numel() for W in weights)
    penalised = problem.least_decay > 0.0 and not problem.activation.is_linear
    alone = problem.spread is ALONE and problem.X.dtype == torch.float64
    return penalised and alone and min(map(len, weights)) > 0 and problem.Y.numel() * P**2 + P**3 <= work


@dataclass(frozen=True)
class _Point:
    """A network, with slopes D of sigma."""

    problem: Problem
    weights: list[Tensor]
    Z: list[Float[Tensor, "N _"]]  # Z_1 ... Z_{L-1}
    slopes: list[Float[Tensor, "N _"]]  # D_1 ... D_{L-1}
    Zs: list[Float[Tensor, "N _"]]  # the inputs Zs_0 ... Zs_{L-1} of the layers
    outputs: Float[Tensor, "N m"]
    gradients: list[Float[Tensor, "N _"]]  # the derivatives of C in Z_1 ... Z_L
    jumps: list[Float[Tensor, "N _"]]  # the derivatives of C in sigma(Z_1) ... sigma(Z_{L-1})

    @classmethod
    def of(cls, problem: Problem, weights: list[Tensor], held: tuple[Tensor, Tensor] | None) -> _Point:
        """Return the point at these weights; `held` has the places of entries near 0, and the e_p there."""
        Z, sigma = preactivations(problem, weights), problem.activation
        hidden = Z[:-1]
        D = _entries([sigma.derivative(z) for z in hidden])
        if held is not None:
            D[held[0]] = sigma.slope + (1.0 - sigma.slope) * held[1]
        slopes = _by_layer(D, hidden)
        gradients, jumps = [problem.gradient_at(Z[-1])], list[Tensor]()
        for W, slope in zip(weights[:0:-1], slopes[::-1], strict=True):
            jumps.insert(0, gradients[0] @ W[:, : slope.shape[1]])
            gradients.insert(0, jumps[0] * slope)
        return cls(problem, weights, hidden, slopes, inputs_from(problem, Z), Z[-1], gradients, jumps)

    def into(self, layer: int) -> Float[Tensor, "m n"]:
        """Return the weights of `layer`, counted from 0, that multiply the neurons below."""
        return self.weights[layer][:, : self.Z[layer - 1].shape[1]]

    def derivatives(self, near: Kinks) -> tuple[Float[Tensor, " P"], Float[Tensor, "P P"], Float[Tensor, "p P"]]:
        """Return g, H, and the derivatives b_p of the entries near 0."""
        penalty, F = 2.0 * self.problem.lam, self.outputs
        rows = linearised(self.problem, self.weights, near, self.slopes).rows()
        J, b = rows[: F.numel()].unflatten(0, F.shape), rows[F.numel() :]
        H = J.flatten(0, 1).T @ (self.problem.hessians_at(F) @ J).flatten(0, 1)
        H.diagonal().add_(penalty)
        self._add_products(H)
        products = [(M.T @ S).flatten() for M, S in zip(self.gradients, self.Zs, strict=True)]
        return torch.cat(products) + penalty * flattened(self.weights), H, b

    def _add_products(self, H: Float[Tensor, "P P"]) -> None:
        """Add the part of H in which F has second derivatives, between the weights of two layers."""
        starts = [0, *itertools.accumulate(W.numel() for W in self.weights)]
        for low, (S, slope) in enumerate(zip(self.Zs[:-1], self.slopes, strict=True)):
            passed = torch.diag_embed(slope)  # the derivative of sigma(Z) below layer `high` in the Z of layer `low`
            for high in range(low + 1, len(self.weights)):
                if high > low + 1:
                    passed = self.slopes[high - 1][:, :, None] * (self.into(high - 1) @ passed)
                columns = slice(starts[low], starts[low + 1])
                for row, pulled in enumerate(self.gradients[high].T):
                    block = ((pulled[:, None, None] * passed).flatten(1).T @ S).view(passed.shape[1], -1)
                    first = starts[high] + row * self.weights[high].shape[1]
                    rows = slice(first, first + len(block))
                    H[rows, columns] += block
                    H[columns, rows] += block.T


class _Step(NamedTuple):
    """The model of the loss around a point, in the letters of the text above."""

    g: Float[Tensor, " P"]
    H: Float[Tensor, "P P"]
    b: Float[Tensor, "p P"]
    places: Int[Tensor, " p"]  # of the entries near 0 among those of Z_{L-1} ... Z_1, in ascending order
    z: Float[Tensor, " p"]
    c: Float[Tensor, " p"]
    e: Float[Tensor, " p"]

    @classmethod
    def of(cls, point: _Point, options: NewtonAtKinks) -> _Step:
        """Return the model at a point."""
        a = point.problem.activation.slope
        z, c = _entries(point.Z), (1.0 - a) * _entries(point.jumps)
        sizes = _entries([Z.square().mean(dim=0).sqrt().expand_as(Z) for Z in point.Z])
        rounding = 1e-14  # of c, relative to the largest
        near = ((z.abs() < options.near * sizes) & (c > rounding * c.abs().max())).nonzero()[:, 0]
        near = near[(z[near].abs() / sizes[near]).argsort()[: options.most]].sort().values
        e = (_entries(point.slopes)[near] - a) / (1.0 - a)
        mask = torch.zeros_like(z, dtype=torch.bool)
        mask[near] = True
        return cls(*point.derivatives(_by_layer(mask, point.Z)), near, z[near], c[near], e)

    def lower(
        self, point: _Point, cost: float, damping: float
    ) -> tuple[list[Tensor], float, Float[Tensor, " p"], float] | None:
        """Return weights of lower cost, their cost, the t_p, and the damping of the next step; None if no step gains.

        `damping` is the first multiple of I that is added to H.
        """
        scale = float(self.H.diagonal().mean())
        least, attempts = 1e-6 * scale, 14
        for _ in range(attempts):
            raised = self.H.clone()
            raised.diagonal().add_(damping)
            factor, failed = torch.linalg.cholesky_ex(raised)
            lower = None if int(failed) else self._along(point, cost, factor)
            if lower is not None:
                weights, total, t, is_whole = lower
                relaxed = 0.1 * damping if is_whole else damping
                return weights, total, t, relaxed if relaxed > 1e-3 * least else 0.0
            damping = max(10.0 * damping, least)
        return None

    def _along(
        self, point: _Point, cost: float, factor: Float[Tensor, "P P"]
    ) -> tuple[list[Tensor], float, Float[Tensor, " p"], bool] | None:
        """Return weights of lower cost, their cost, the t_p, and True if the step is whole; None if none gains.

        `factor` is the Cholesky factor of H.
        """
        parts = (1.0 / 3.0, 1.0 / 9.0, 1.0 / 27.0)
        problem, start = point.problem, flattened(point.weights)
        corrections = 3 if problem.depth > 2 else 0  # with two layers z_p is linear in the weights
        bent = torch.linalg.solve_triangular(factor, (self.b * self.c[:, None]).T, upper=False)
        straight = torch.linalg.solve_triangular(factor, self.g[:, None], upper=False)[:, 0]
        Q, z, d, t = bent.T @ bent, self.z, start, self.e
        for correction in range(corrections + 1):
            change = bounded_quadratic(Q, self.c * z - bent.T @ straight, -self.e, 1.0 - self.e)
            t = self.e + change
            d = -torch.linalg.solve_triangular(factor.T, (straight + bent @ change)[:, None], upper=True)[:, 0]
            weights = shaped_like(start + d, point.weights)
            total = evaluate(problem, weights).total
            if total < cost:
                return weights, total, t, True
            if correction < corrections:
                z = _entries(preactivations(problem, weights)[:-1])[self.places] - self.b @ d
        for part in parts:
            weights = shaped_like(start + part * d, point.weights)
            total = evaluate(problem, weights).total
            if total < cost:
                return weights, total, t, False
        return None


def bounded_quadratic(
    Q: Float[Tensor, "p p"], q: Float[Tensor, " p"], low: Float[Tensor, " p"], high: Float[Tensor, " p"]
) -> Float[Tensor, " p"]:
    """Minimise e . Q e / 2 - q . e over low <= e <= high, with low <= 0 <= high, by projected Newton steps.

    Source: Bertsekas, Projected Newton methods for optimization problems with simple constraints (1982).
    """
    steps, close, shortest = 40, 1e-13, 1e-9
    e, value = torch.zeros_like(q), 0.0
    ridge = 1e-12 * Q.diagonal().mean()
    for _ in range(steps):
        slope = Q @ e - q
        rows = (~(((e <= low) & (slope > 0.0)) | ((e >= high) & (slope < 0.0)))).nonzero()[:, 0]
        if not len(rows) or float(slope[rows].abs().max()) <= close * float(q.abs().max()):
            break
        face = Q[rows][:, rows]
        face.diagonal().add_(ridge)
        step, part = torch.linalg.solve_ex(face, -slope[rows]).result, 1.0
        while True:
            trial = e.index_put((rows,), torch.clamp(e[rows] + part * step, low[rows], high[rows]))
            lower = float(trial @ (0.5 * (Q @ trial) - q))
            if lower < value - 1e-16 * abs(value):
                break
            part /= 2.0
            if part < shortest:
                return e
        e, value = trial, lower
    return e


def _entries(layers: Sequence[Tensor]) -> Float[Tensor, " entries"]:
    """Return the entries of all hidden layers, from the last layer down."""
    return torch.cat([layer.flatten() for layer in layers[::-1]])


def _by_layer(entries: Float[Tensor, " entries"] | Bool[Tensor, " entries"], Z: Sequence[Tensor]) -> list[Tensor]:
    """Return entries in the shapes of Z_1 ... Z_{L-1}, the inverse of `_entries`."""
    pieces = entries.split([z.numel() for z in Z[::-1]])
    return [piece.view_as(z) for piece, z in zip(pieces, Z[::-1], strict=True)][::-1]
