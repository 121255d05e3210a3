"""Damped Newton descents of many two-layer networks, for squared errors and exact fits.

The unknowns theta of a small network, U (n, d), V (n, m) and b (m,), are so few that the Hessian of

    f(theta) = sum_i q_i |F_i - T_i|^2 + lam |theta|^2,   F = s_mu(Xt U^T) V + beta 1 b^T,

costs little more than the gradient. A step solves (H + t I) p = -g for several dampings t and takes the best point, so
that H need not be definite. The kink of sigma_a is rounded, s_mu(z) = a z + (1 - a) (z + (z^2 + mu^2)^(1/2) - mu) / 2.
From stage to stage mu falls to almost 0, and lam to its value in the problem.

An exact fit is the limit lam = 0. At a small lam, the method of multipliers [Hestenes 1969] shifts the targets,
T <- T + Y - F; at the end, Gauss-Newton steps of least norm make the fit exact.

Measured on six points of one input with four neurons: 200 starts take 3 s, and 20 of them fit; none of 64 descents by
L-BFGS in 10 s fits (docs/notes/2026-11-plateau.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.spread import ALONE
from covopt.model.weights import Weights
from covopt.runtime.loop import Stop
from covopt.solvers.training.exact_fit import usual_penalty
from covopt.solvers.training.homotopy import size_of_preactivations


@dataclass(frozen=True)
class NewtonOptions:
    """Settings of the stages of a descent."""

    round: float  # mu of the first stage, relative to the size of the pre-activations
    light: float  # lam of the first stage, as a multiple of `usual_penalty`
    lightest: float  # lam of the last stage of an exact fit, in the same unit
    stages: int  # number of stages
    steps: int  # maximum number of steps of a stage
    slow: float  # a network ends its stage if a step lowers f by less than this fraction of its penalty
    # for some stages, the fraction of networks that continue after it (at least FEWEST networks)
    pruned: Mapping[int, float] = field(default_factory=dict)


# Exploring with 20 stages instead of 6 does not raise the number of networks that fit after polishing.
KINKS_EXPLORING = NewtonOptions(0.1, 0.1, 1e-3, stages=6, steps=20, slow=1e-4, pruned={2: 0.5, 4: 0.3})
KINKS_POLISHING = NewtonOptions(0.05, 0.01, 0.01, stages=16, steps=40, slow=1e-6)
KINKS_REFINING = NewtonOptions(0.01, 0.01, 0.01, stages=16, steps=40, slow=1e-6)
FEWEST = 8


def has_newton(problem: Problem, width: int) -> bool:
    """Return True if Newton descents suit this problem with networks of this width."""
    inputs, outputs = problem.X.shape[1], problem.Y.shape[1]
    # A Hessian is cheap up to 100 parameters of a network and 400 entries of its outputs.
    small = width * (inputs + 1 + outputs) + outputs <= 100 and problem.Y.numel() <= 400
    plain = problem.depth == 2 and not problem.skip and problem.spread is ALONE and not problem.activation.is_linear
    return small and plain and problem.ridge is not None and problem.X.dtype == torch.float64


def descend_by_newton(
    problem: Problem, networks: Sequence[Weights], width: int, options: NewtonOptions, stop: Stop = lambda: False
) -> list[tuple[int, list[Tensor]]]:
    """Descend from these networks, of at most this width; return index and weights of those not pruned.

    `has_newton` holds for the problem.
    """
    batch, exact = _Batch(problem, width), problem.interpolates
    theta = batch.pack(networks)
    rows = torch.arange(len(theta), device=theta.device)
    mu, explored = options.round * size_of_preactivations(problem, networks), usual_penalty(problem)
    last = options.lightest * explored if exact else problem.lam
    lam = max(options.light * explored, last)
    targets, damping = problem.Y.expand(len(theta), -1, -1), theta.new_full((len(theta),), lam)
    for stage in range(options.stages):
        theta, damping = batch.descend(theta, targets, lam, mu, damping, options, stop)
        if lam == last and exact:
            targets = targets - batch.residual(theta, problem.Y, mu)
        if stage in options.pruned:
            costs = batch.values(theta, targets, lam, mu)
            best = costs.argsort()[: max(FEWEST, int(options.pruned[stage] * len(costs)))]
            theta, rows, targets, damping = theta[best], rows[best], targets[best], damping[best]
        lam_decay, mu_decay = 0.3, 0.5
        lam, mu = max(last, lam_decay * lam), mu_decay * mu
    if exact:
        theta = batch.fitted(theta)
    return list(zip(rows.tolist(), batch.unpack(theta), strict=True))


class _Batch:
    """B networks of one width: the rows theta = (U, V, b) of a matrix (B, P)."""

    def __init__(self, problem: Problem, width: int) -> None:
        self._problem, self._n = problem, width
        self._Xt, self._Y = problem.Xt, problem.Y
        self._d, self._m = self._Xt.shape[1], self._Y.shape[1]
        self._squares = (self._Xt[:, :, None] * self._Xt[:, None]).flatten(1)
        self._unit = torch.eye(self._m, dtype=torch.float64, device=self._Y.device)
        self._root = problem.shares.sqrt()[:, None]
        penalised = [self._Y.new_zeros(shape) for shape in problem.shapes([width])]
        for A in problem.decayed(penalised):
            A.fill_(1.0)
        self._penalised = self.pack([penalised])[0]

    def pack(self, networks: Sequence[Weights]) -> Float[Tensor, "B P"]:
        """Return these networks as rows; missing neurons are zero."""
        rows = []
        for W1, W2 in networks:
            missing = self._n - len(W1)
            U = torch.nn.functional.pad(W1, (0, 0, 0, missing))
            V = torch.nn.functional.pad(W2[:, :-1].T, (0, 0, 0, missing))
            rows.append(torch.cat([U.flatten(), V.flatten(), W2[:, -1]]))
        return torch.stack(rows)

    def unpack(self, theta: Float[Tensor, "B P"]) -> list[list[Tensor]]:
        """Return W_1 and W_2 of each row."""
        U, V, b = self._parts(theta)
        return [[u, torch.cat([v.T, c[:, None]], dim=1)] for u, v, c in zip(U, V, b, strict=True)]

    def values(
        self, theta: Float[Tensor, "B P"], T: Float[Tensor, "B N m"], lam: float, mu: float
    ) -> Float[Tensor, " B"]:
        """Return f at each row, for the targets T."""
        fit = (self._root * self.residual(theta, T, mu)).square().sum(dim=(1, 2))
        return fit + lam * (self._penalised * theta.square()).sum(dim=1)

    def residual(self, theta: Float[Tensor, "B P"], T: Tensor, mu: float) -> Float[Tensor, "B N m"]:
        """Return F - T for each row."""
        U, V, b = self._parts(theta)
        return self._activation(self._Xt @ U.mT, mu)[0] @ V + self._problem.bias(1) * b[:, None] - T

    def descend(
        self, theta: Tensor, T: Tensor, lam: float, mu: float, damping: Tensor, options: NewtonOptions, stop: Stop
    ) -> tuple[Float[Tensor, "B P"], Float[Tensor, " B"]]:
        """Take the steps of a stage; return the rows and their dampings for the next step."""
        dampings = 0.05, 1.0, 20.0  # candidates of a step, relative to the best damping of the last step
        theta, damping = theta.clone(), damping.clamp(max=lam)
        going = torch.arange(len(theta), device=theta.device)
        for _ in range(options.steps):
            if stop() or not len(going):
                break
            x, targets = theta[going], T[going]
            f, g, H = self._expansion(x, targets, lam, mu)
            candidates = damping[going][:, None] * x.new_tensor(dampings)
            points, values = self._trials(x, targets, lam, mu, (g, H, candidates))
            lowest, best = values.min(dim=1)
            better, rows = lowest < f, torch.arange(len(x), device=x.device)
            theta[going] = torch.where(better[:, None], points[rows, best], x)
            # If no candidate lowers f, the next ones are all larger.
            next_damping = torch.where(better, candidates[rows, best], dampings[-1] * candidates[:, -1])
            damping[going] = next_damping.clamp(1e-2 * lam, 1e12 * lam)
            going = going[~better | (f - lowest > options.slow * lam * x.square().sum(dim=1))]
        return theta, damping

    def fitted(self, theta: Float[Tensor, "B P"]) -> Float[Tensor, "B P"]:
        """Return the rows after 4 Gauss-Newton steps of least norm towards F = Y at mu = 0."""
        for _ in range(4):
            R, J, *_ = self._derivatives(theta, self._Y, 0.0)
            theta = theta - (torch.linalg.pinv(J, rtol=1e-9) @ R.flatten(1)[..., None])[..., 0]
        return theta

    def _trials(
        self, x: Tensor, T: Tensor, lam: float, mu: float, expansion: tuple[Tensor, Tensor, Tensor]
    ) -> tuple[Float[Tensor, "B k P"], Float[Tensor, "B k"]]:
        """Return the points of all damped steps, and f there: infinite if H + t I is not definite."""
        g, H, dampings = expansion
        count = dampings.shape[1]
        damped = H[:, None].repeat(1, count, 1, 1)
        damped.diagonal(dim1=2, dim2=3).add_(dampings[..., None])
        factor, failed = torch.linalg.cholesky_ex(damped)
        factor[failed > 0] = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        points = x[:, None] - torch.cholesky_solve(g[:, None, :, None].expand(-1, count, -1, -1), factor)[..., 0]
        values = self.values(points.flatten(0, 1), T.repeat_interleave(count, dim=0), lam, mu).view(-1, count)
        return points, torch.where((failed == 0) & values.isfinite(), values, torch.inf)

    def _expansion(self, theta: Tensor, T: Tensor, lam: float, mu: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return f, half its gradient and half its Hessian, for each row."""
        n, d, m = self._n, self._d, self._m
        R, J, inputs, curvatures = self._derivatives(theta, T, mu)
        f = R.square().sum(dim=(1, 2)) + lam * (self._penalised * theta.square()).sum(dim=1)
        g = (J.mT @ R.flatten(1)[..., None])[..., 0] + lam * self._penalised * theta
        H = J.mT @ J
        pulled, V = self._root * R, self._parts(theta)[1]
        bent = ((pulled @ V.mT) * curvatures).mT @ self._squares
        mixed = inputs.mT @ pulled
        hidden, outgoing = slice(0, n * d), slice(n * d, n * (d + m))
        # Second derivatives of F couple only weights of the same neuron: they add to diagonals of blocks.
        own = H[:, hidden, hidden].unflatten(2, (n, d)).unflatten(1, (n, d)).diagonal(dim1=1, dim2=3)
        own.add_(bent.view(-1, n, d, d).permute(0, 2, 3, 1))
        mixed = mixed.view(-1, n, d, m).permute(0, 2, 3, 1)
        H[:, hidden, outgoing].unflatten(2, (n, m)).unflatten(1, (n, d)).diagonal(dim1=1, dim2=3).add_(mixed)
        mixed = mixed.transpose(1, 2)
        H[:, outgoing, hidden].unflatten(2, (n, d)).unflatten(1, (n, m)).diagonal(dim1=1, dim2=3).add_(mixed)
        H.diagonal(dim1=1, dim2=2).add_(lam * self._penalised)
        return f, g, H

    def _derivatives(self, theta: Tensor, T: Tensor, mu: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the weighted residual q^(1/2) (F - T), and what its derivatives consist of.

        These are its Jacobian (B, N m, P), s_mu'(z_ik) x_i (B, N, n d), and s_mu''(z_ik) (B, N, n).
        """
        B, N, m = len(theta), len(self._Y), self._m
        U, V, b = self._parts(theta)
        values, slopes, curvatures = self._activation(self._Xt @ U.mT, mu)
        R = self._root * (values @ V + self._problem.bias(1) * b[:, None] - T)
        inputs = (slopes[..., None] * self._Xt[:, None]).flatten(2)
        hidden = inputs[:, :, None] * V.repeat_interleave(self._d, dim=1).mT[:, None]
        outgoing = (values[:, :, None, :, None] * self._unit[:, None]).flatten(3)
        J = torch.cat([hidden, outgoing, (self._problem.bias(1) * self._unit).expand(B, N, m, m)], dim=3)
        return R, (self._root[:, None] * J).reshape(B, N * m, -1), inputs, curvatures

    def _activation(self, z: Tensor, mu: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return s_mu and its first two derivatives."""
        a = self._problem.activation.slope
        length = (z.square() + mu * mu).sqrt().clamp_min(1e-100)  # no division by 0 at z = mu = 0
        value = a * z + (1.0 - a) * 0.5 * (z + length - mu)
        slope = a + (1.0 - a) * 0.5 * (1.0 + z / length)
        return value, slope, (1.0 - a) * 0.5 * mu * mu / length**3

    def _parts(self, theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        n, d, m = self._n, self._d, self._m
        U, V, b = theta.split([n * d, n * m, m], dim=1)
        return U.view(-1, n, d), V.view(-1, n, m), b
