"""The best edges between samples: maximise |B T|_* / a(B), a concave over a convex function of the edges' weights.

|B T|_* = Tr (T^T Q T)^(1/2) is concave in Q = B^T B, and a^2 is convex. The p-norm of the eigenvalues of X^T Q X, p
growing, smooths the largest one, and L-BFGS runs over u, where u^2 are the weights, so that most weights fall to zero.
Without a bias, each sample also has a row scale and a weight of its own: every symmetric M-matrix has that form. If an
exact oracle gives max_w |B sigma(Xt w)|, this replaces the largest eigenvalue, by a maximum over the neurons found so
far, with new ones in each round.

Nothing here is a proof: `Edges.reach` and `Edges.nuclear` prove bounds for any weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from covopt.certify.deep.edges import MOST_CROSSINGS, Edges
from covopt.linalg.psd import thin
from covopt.model.problem import Problem
from covopt.oracles.exact import exact_oracle

Stop = Callable[[], bool]


@dataclass(frozen=True)
class _Task:
    """The optimisation as arrays, in coordinates in which inputs and targets have full rank and size 1.

    Attributes:
        X: inputs (N, d) for the eigenvalues, or values of neurons (N, K).
        T: targets (N, m).
        pairs: the candidate edges (E, 2).
        scaled: True without a bias: row scales and weights of single samples are optimised as well.
        one_by_one: True if X holds neurons, whose largest x^T Q x counts instead of the eigenvalues of X^T Q X.
        norms: the p of the p-norms, in order; the last one is within 0.02 % of the maximum.
    """

    X: Float[Tensor, "N d"]
    T: Float[Tensor, "N m"]
    pairs: Int[Tensor, "E 2"]
    scaled: bool
    one_by_one: bool = False
    norms: ClassVar[tuple[int, ...]] = (8, 32, 128, 512, 2048)

    def form(self, u: Float[Tensor, " p"]) -> Float[Tensor, "N N"]:
        """Return Q for u: roots of the edges' weights, then of the samples' weights, and logarithms of row scales."""
        count, samples = len(self.pairs), len(self.X)
        weights = torch.zeros(samples, samples, dtype=u.dtype).index_put(tuple(self.pairs.T), u[:count].square())
        weights = weights + weights.T
        Q = torch.diag(weights.sum(dim=1)) - weights
        if not self.scaled:
            return Q
        scales = u[count + samples :].exp()
        return scales[:, None] * (Q + torch.diag(u[count : count + samples].square())) * scales

    def loss(self, u: Float[Tensor, " p"], norm: int) -> Float[Tensor, ""]:
        """Return the logarithm of the smoothed reach over |B T|_*."""
        Q = self.form(u)
        if self.one_by_one:
            reach = (self.X * (Q @ self.X)).sum(dim=0).clamp_min(1e-300)
        else:
            reach = torch.linalg.eigvalsh(self.X.T @ Q @ self.X).clamp_min(1e-300)
        top = reach.max().detach()
        smoothed = top.log() + (reach / top).pow(norm).sum().log() / norm
        roots = torch.linalg.eigvalsh(self.T.T @ Q @ self.T).clamp_min(1e-14).sqrt()
        return 0.5 * smoothed - roots.sum().log()

    def descend(self, u: Float[Tensor, " p"], norms: tuple[int, ...], stop: Stop) -> Float[Tensor, " p"]:
        """Run L-BFGS for one norm after the other."""

        def halt(_: NDArray) -> None:
            if stop():
                raise StopIteration

        for norm in norms:
            if stop():
                break
            options = {"maxiter": 300, "maxcor": 20, "maxfun": 600}
            outcome = scipy.optimize.minimize(
                self._evaluated, u.numpy(), args=(norm,), jac=True, method="L-BFGS-B", callback=halt, options=options
            )
            if not np.isfinite(outcome.x).all():
                break
            u = torch.from_numpy(outcome.x)
        return u

    def _evaluated(self, at: NDArray, norm: int) -> tuple[float, NDArray]:
        parameters = torch.from_numpy(at.copy()).requires_grad_()
        try:
            loss = self.loss(parameters, norm)
            (gradient,) = torch.autograd.grad(loss, parameters)
        except RuntimeError:  # torch's LinAlgError: the eigendecomposition fails for such weights
            return math.inf, np.zeros_like(at)
        return loss.item(), gradient.numpy()

    def edges(self, u: Float[Tensor, " p"]) -> Edges:
        """Return the edges whose weights are not negligible, with sizes of at most 1."""
        count, samples = len(self.pairs), len(self.X)
        sizes = u[:count].abs()[:, None].expand(-1, 2)
        pairs = self.pairs
        if self.scaled:
            scales = u[count + samples :].exp()
            single = torch.arange(samples)[:, None].expand(-1, 2)
            own = torch.stack([u[count : count + samples].abs() * scales, u.new_zeros(samples)], dim=1)
            sizes, pairs = torch.cat([sizes * scales[pairs], own]), torch.cat([pairs, single])
        largest = float(sizes.max())
        heavy = sizes.amax(dim=1) > math.sqrt(1e-7) * largest
        return Edges(pairs[heavy], (sizes[heavy] / largest).clamp_max(1.0))


def weigh(problem: Problem, targets: Float[Tensor, "N m"], stop: Stop = lambda: False) -> Edges | None:
    """Return edges with a large |B T|_* / a(B) for these targets; None if there are none.

    Args:
        problem: its inputs, bias and activation are used.
        targets: T, the problem's targets or a network's outputs.
        stop: called after each step; True ends the search with the weights so far.
    """
    # Only the first rows, because their pairs are dense matrices.
    rows, centred = min(2000, problem.samples), problem.beta != 0.0
    X, T = _coordinates(problem.X[:rows], centred), _coordinates(targets[:rows], centred)
    if rows < 2 or X.shape[1] == 0 or T.shape[1] == 0 or stop():
        return None
    pairs, steepness = _candidates(X, T)
    if not len(pairs):
        return None
    u = steepness / steepness.max().clamp_min(1e-300) + 1e-3
    if not centred:
        u = torch.cat([u, torch.full((rows,), 0.1, dtype=u.dtype), u.new_zeros(rows)])
    task = _Task(X, T, pairs, not centred)
    start = torch.linalg.eigvalsh(X.T @ task.form(u) @ X)[-1]
    if not 0.0 < float(start) < math.inf:
        return None
    if not centred:
        u[: len(pairs) + rows] /= start.sqrt()
    else:
        u = u / start.sqrt()
    u = task.descend(u, task.norms, stop)
    return _sharpened(problem, task, u, stop)


def _coordinates(A: Float[Tensor, "N n"], centred: bool) -> Float[Tensor, "N r"]:
    """Return coordinates in which the rows of A, centred or not, have the same differences, of size about 1."""
    A = A.double()
    A = A / A.abs().max().clamp_min(1e-300)
    A = A - A.mean(dim=0) if centred else A
    factor = thin(A)
    regular = factor.significant > 0
    return factor.U[:, regular] * (factor.s[regular] / factor.s.max().clamp_min(1e-300))


def _candidates(X: Tensor, T: Tensor) -> tuple[Int[Tensor, "E 2"], Float[Tensor, " E"]]:
    """Return pairs of samples, of many the steepest, and |t_i - t_j| / |x_i - x_j|^2."""
    near, far = torch.cdist(X, X), torch.cdist(T, T)
    i, j = torch.triu_indices(len(X), len(X), 1)
    apart = near[i, j] > 1e-6  # relative to the inputs' size: targets of nearer pairs may differ by misfits alone
    i, j = i[apart], j[apart]
    distance = near[i, j]
    steepness = far[i, j] / distance
    if len(i) > (most := 40_000):
        steepest = steepness.topk(most).indices
        i, j, distance, steepness = i[steepest], j[steepest], distance[steepest], steepness[steepest]
    return torch.stack([i, j], dim=1), steepness / distance


def _sharpened(problem: Problem, task: _Task, u: Float[Tensor, " p"], stop: Stop) -> Edges:
    """Optimise the weights again against the neurons that an exact oracle finds, if there is one."""
    edges = task.edges(u)
    small = problem.samples * len(edges.pairs) <= MOST_CROSSINGS // 4
    oracle = exact_oracle(problem.Xt.double(), problem.activation) if small else None
    if oracle is None or problem.activation.is_linear or stop():
        return edges
    Xt, T = problem.Xt.double(), task.T
    best, idle, neurons, best_edges = -math.inf, 0, Xt[:, :0], edges
    for _ in range(15):
        answer = oracle(edges.dense(problem.samples).T, Xt[:0])
        if not answer.upper_bound > 0.0:
            break
        ratio = float(torch.linalg.svdvals(edges.rows(T)).sum()) / answer.upper_bound
        idle = 0 if ratio > best * (1.0 + 1e-5) else idle + 1
        best, best_edges = (ratio, edges) if ratio > best else (best, best_edges)
        if idle == 3 or stop():
            break
        neurons = torch.cat([neurons, problem.activation(Xt @ answer.directions.T)], dim=1)
        scaled = _Task(neurons / neurons.abs().max(), T, task.pairs, task.scaled, one_by_one=True)
        roots = u[: len(task.pairs)].abs()
        # A root at zero would stay there.
        u = torch.cat([roots.clamp_min(1e-2 * float(roots.max())), u[len(task.pairs) :]])
        u = scaled.descend(u, task.norms[1:], stop)
        edges = task.edges(u)
    return best_edges
