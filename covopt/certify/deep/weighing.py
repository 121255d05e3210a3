"""The best edges between samples: maximise |B T|_* / a(B), a concave over a convex function of the edges' weights.

|B T|_* = Tr (T^T Q T)^(1/2) is concave in Q = B^T B, and a^2 is convex. The p-norm of the eigenvalues of X^T Q X, p
growing, smooths the largest one, and L-BFGS runs over u, where u^2 are the weights, so that most weights fall to zero.
From there the bounds of ranks.py are maximised, whose inner minimum is held in each step. Without a bias, each sample
also has a row scale and a weight of its own: every symmetric M-matrix has that form. If an exact oracle gives
max_w |B sigma(Xt w)|, this replaces the largest eigenvalue, by a maximum over the neurons found so far, with new ones
in each round.

Nothing here is a proof: `Edges.reach`, `Edges.values` and `Edges.stretch` prove bounds for any weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from covopt.certify.deep.edges import MOST_CROSSINGS, Edges
from covopt.certify.deep.ranks import least_product, least_relative_loss, log_factor, relative_loss, sees_ranks
from covopt.linalg.psd import thin
from covopt.model.problem import Problem
from covopt.oracles.exact import exact_oracle
from covopt.runtime.loop import Stop

MOST_STRETCHED = 400
"""Up to this number of samples, each step may take all eigenvalues of Q and their gradient (16 ms at 400)."""


Aim = Callable[[Float[Tensor, "N N"], Float[Tensor, " m"], Tensor, int], Tensor]
"""The logarithm of what the edges are weighed for: a function of Q, of the singular values of B T in falling order, of
the logarithm of the reach in the same unit, and of the p of p-norms."""


def nuclear(Q: Float[Tensor, "N N"], values: Float[Tensor, " m"], log_reach: Tensor, norm: int) -> Tensor:
    """Return log (|B T|_* / a)."""
    return values.sum().log() - log_reach


def product(Q: Float[Tensor, "N N"], values: Float[Tensor, " m"], log_reach: Tensor, norm: int) -> Tensor:
    """Return log (g(f) / a)."""
    _, x = least_product(values.detach())
    return x.sum().log() + 0.5 * (values.square() / x).sum().log() - log_reach


@dataclass(frozen=True)
class Ridge:
    """The logarithm of the bound for mse."""

    depth: int
    lam: float
    log_unit: float  # the logarithm of the unit in which the singular values and the reach are given
    inverse_shares: Float[Tensor, " N"]  # 1 / q_i

    def __call__(self, Q: Float[Tensor, "N N"], values: Float[Tensor, " m"], log_reach: Tensor, norm: int) -> Tensor:
        """Return the logarithm of the bound at its u, which is held."""
        roots, squares = self.inverse_shares.sqrt(), values.square()
        log_stretch = 0.5 * _log_largest(torch.linalg.eigvalsh(roots[:, None] * Q * roots), norm)
        log_total = squares.sum().log() + 2.0 * (self.log_unit - log_stretch)
        log_c = log_factor(log_total, log_reach + self.log_unit - log_stretch, self.depth, self.lam)
        p, e = squares / squares.sum(), 2.0 / (self.depth - 1)
        _, u = least_relative_loss(p.detach(), float(log_c.detach()), e)
        return log_total + relative_loss(p, u, log_c, e).log()


def _log_largest(values: Float[Tensor, " n"], norm: int) -> Tensor:
    """Return the logarithm of the p-norm of positive values, which smooths their maximum."""
    values = values.clamp_min(1e-300)
    top = values.max().detach()
    return top.log() + (values / top).pow(norm).sum().log() / norm


@dataclass(frozen=True)
class _Task:
    """The optimisation as arrays, in coordinates in which inputs and targets have full rank and size 1."""

    X: Float[Tensor, "N d"]  # inputs (N, d) for the eigenvalues, or values of neurons (N, K)
    T: Float[Tensor, "N m"]  # targets
    pairs: Int[Tensor, "E 2"]  # the candidate edges
    scaled: bool  # True without a bias: row scales and weights of single samples are optimised as well
    log_size: float = 0.0  # the logarithm of the size of X in units of the targets'
    aim: Aim = nuclear  # the function that is maximised
    # True if X holds neurons, whose largest x^T Q x counts instead of the eigenvalues of X^T Q X
    one_by_one: bool = False
    norms: ClassVar[tuple[int, ...]] = (8, 32, 128, 512, 2048)  # p of p-norms; the last is within 0.02 % of the maximum

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

    def loss(self, u: Float[Tensor, " p"], norm: int) -> Tensor:
        """Return what is minimised: minus the aim, with a smoothed reach."""
        Q = self.form(u)
        ends = Q @ self.X
        reach = (self.X * ends).sum(dim=0) if self.one_by_one else torch.linalg.eigvalsh(self.X.T @ ends)
        values = torch.linalg.eigvalsh(self.T.T @ Q @ self.T).clamp_min(1e-14).sqrt().flip(0)
        return -self.aim(Q, values, 0.5 * _log_largest(reach, norm) + self.log_size, norm)

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


def weigh(problem: Problem, targets: Float[Tensor, "N m"], stop: Stop = lambda: False) -> list[Edges]:
    """Return edges with a large |B T|_* / a(B) for these targets, and those with a large bound by ranks.py, if any.

    T are the problem's targets or a network's outputs; of the problem, its inputs, bias, activation and loss are used.
    """
    # Only the first rows, because their pairs are dense matrices.
    rows, centred = min(2000, problem.samples), problem.beta != 0.0
    (X, log_X), (T, log_T) = (_coordinates(A[:rows], centred) for A in (problem.X, targets))
    if rows < 2 or X.shape[1] == 0 or T.shape[1] == 0 or stop():
        return []
    pairs, steepness = _candidates(X, T)
    if not len(pairs):
        return []
    u = steepness / steepness.max().clamp_min(1e-300) + 1e-3
    if not centred:
        u = torch.cat([u, torch.full((rows,), 0.1, dtype=u.dtype), u.new_zeros(rows)])
    task = _Task(X, T, pairs, not centred, log_X - log_T)
    start = torch.linalg.eigvalsh(X.T @ task.form(u) @ X)[-1]
    if not 0.0 < float(start) < math.inf:
        return []
    if not centred:
        u[: len(pairs) + rows] /= start.sqrt()
    else:
        u = u / start.sqrt()
    u = task.descend(u, task.norms, stop)
    edges = [_sharpened(problem, task, u, log_T, stop)]
    if T.shape[1] > 1 and sees_ranks(problem) and not stop():
        ridge = Ridge(problem.depth, problem.lam, log_T, problem.inverse_shares[:rows])
        task = replace(task, aim=ridge if problem.ridge and rows <= MOST_STRETCHED else product)
        u = task.descend(_lifted(u, len(pairs)), task.norms[1:], stop)
        edges.append(_sharpened(problem, task, u, log_T, stop))
    return edges


def _lifted(u: Float[Tensor, " p"], count: int) -> Float[Tensor, " p"]:
    """Return u without zeros among the edges' roots, which would stay there."""
    roots = u[:count].abs()
    return torch.cat([roots.clamp_min(1e-2 * float(roots.max())), u[count:]])


def _coordinates(A: Float[Tensor, "N n"], centred: bool) -> tuple[Float[Tensor, "N r"], float]:
    """Return coordinates of size 1 in which the rows of A, centred or not, have the same differences; and log size."""
    A = A.double()
    size = float(A.abs().max().clamp_min(1e-300))
    A = A / size
    A = A - A.mean(dim=0) if centred else A
    factor = thin(A)
    regular, largest = factor.significant > 0, float(factor.s.max().clamp_min(1e-300))
    return factor.U[:, regular] * (factor.s[regular] / largest), math.log(size) + math.log(largest)


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


def _sharpened(problem: Problem, task: _Task, u: Float[Tensor, " p"], log_T: float, stop: Stop) -> Edges:
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
        # With inputs of 1e-150 and a bias, what rounding may hide is far above all that the oracle sees.
        if not 0.0 < answer.upper_bound < 2.0 * max(answer.values.tolist(), default=0.0):
            break
        B, log_reach = edges.dense(problem.samples), T.new_tensor(math.log(answer.upper_bound) - log_T)
        values = torch.linalg.svdvals(edges.rows(T)).clamp_min(1e-7)
        value = float(task.aim(B.T @ B, values, log_reach, task.norms[-1]))
        idle = 0 if value > best + 1e-5 else idle + 1
        best, best_edges = (value, edges) if value > best else (best, best_edges)
        if idle == 3 or stop():
            break
        neurons = torch.cat([neurons, problem.activation(Xt @ answer.directions.T)], dim=1)
        size = float(neurons.abs().max())
        scaled = replace(task, X=neurons / size, log_size=math.log(size) - log_T, one_by_one=True)
        u = scaled.descend(_lifted(u, len(task.pairs)), task.norms[1:], stop)
        edges = task.edges(u)
    return best_edges
