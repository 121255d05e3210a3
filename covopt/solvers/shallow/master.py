"""The master: the best mixture of the neurons found so far, accurate and sparse.

With features phi_k = sigma(Xt w_k) of unit directions, the group lasso min C(F) + lam (2 sum_k |v_k| + |b|^2),
F = sum_k phi_k v_k^T + beta 1 b^T, is solved in the covariance's own coordinates. 2 |v| = min_eta |v|^2 / eta + eta
turns it into a ridge regression whose outputs are eliminated; for a least-squares fit sum_i |F_i - T_i|^2 / mu_i this
leaves

    J(eta) = Tr[T^T A^{-1} T] + sum_k eta_k,  A = diag(mu) + beta^2 1 1^T + sum_k eta_k phi_k phi_k^T,  eta >= 0,

the second reformulation of the loss (MATH.md section 3) restricted to the cone of the atoms: convex, smooth, n
variables whatever the number of outputs, and sparse at its minimum because eta lies on bounds. With Lambda = A^{-1} T,

    dJ/deta_k = 1 - |Lambda^T phi_k|^2,   d2J/deta_k deta_l = 2 (phi_k^T A^{-1} phi_l) (phi_k^T Lambda Lambda^T phi_l),

so that Newton's method on the bounds converges in a few steps, and stationarity is the dual feasibility h(w_k) <= 1
with equality where eta_k > 0 (derived; tested against finite differences and against a conic solver). Nothing of size
(N, N) is formed: A^{-1} comes from the (n, n) side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.model.spread import ALONE, Alone
from covopt.runtime.loop import Stop
from covopt.solvers.shallow.quadratic import nonnegative_quadratic


@dataclass(frozen=True)
class Mixture:
    """The minimiser of J."""

    eta: Float[Tensor, " n"]  # the weights of the atoms (n,), many of them exactly 0
    outputs: Float[Tensor, "n m"]  # v_k = eta_k Lambda^T phi_k (n, m)
    # b = beta Lambda^T 1 (m,). Both are taken from the ridge regression's solution: where mu is small Lambda is a
    # difference of nearly equal numbers, and they cannot be computed from it
    bias: Float[Tensor, " m"]
    Lambda: Float[Tensor, "N m"]  # the dual point (N, m)
    value: float  # J(eta)


@dataclass(frozen=True)
class _Evaluation:
    """J at one eta, and the factorisation that it took."""

    value: float
    V: Float[Tensor, "s m"]
    residual: Float[Tensor, "N m"]
    support: Int[Tensor, " s"]
    root: Float[Tensor, " s"]
    factor: Float[Tensor, "s s"]


class Master:
    """J(eta) for one dictionary: features Phi, targets T and the mu_i > 0 of the samples are fixed.

    `spread` is of the processes that hold the rows of Phi and T.
    """

    newton_steps = 50  # at most
    halvings = 20  # of the step length in one line search, at most
    armijo = 1e-4  # the part of the predicted decrease that a step must reach
    rounding = 1e-15  # a step that changes J by less than this, relative, ends the search
    jitter = 1e-12  # added to the diagonal, relative, where rounding leaves no factorisation
    negligible = 1e-9  # atoms with less than this part of sum(eta) are dropped where that costs only rounding

    def __init__(
        self,
        Phi: Float[Tensor, "N n"],
        targets: Float[Tensor, "N m"],
        mu: Float[Tensor, " N"],
        beta: float,
        spread: Alone = ALONE,
    ) -> None:
        self._spread = spread
        self._scale = mu.rsqrt()[:, None]
        self._size, self._beta = Phi.shape[1], beta
        # The bias is one more column whose weight is fixed at 1.
        self._P = self._scale * torch.cat([Phi, Phi.new_full((len(Phi), 1), beta)], dim=1)
        self._T = self._scale * targets
        self._gram, self._moments = spread.sums(lambda P, T: (P.T @ P, P.T @ T), self._P, self._T)

    def solve(self, eta: Float[Tensor, " n"], tolerance: float, stop: Stop = lambda: False) -> Mixture:
        """Run Newton's method from `eta` >= 0 until h and the slack are within `tolerance`."""
        at = self._evaluate(eta)
        for _ in range(self.newton_steps):
            q = self._spread.sum(lambda P, R: P[:, :-1].T @ R, self._P, at.residual)  # phi_k^T residual
            gradient = 1.0 - q.square().sum(dim=1)
            slack = float((eta * gradient.abs()).sum())
            feasible = not len(eta) or float(-gradient.min()) <= tolerance
            if (feasible and slack <= tolerance * at.value) or not math.isfinite(slack) or stop():
                break
            moved, new = self._newton_step(eta, at, q, gradient, stop)
            if new is None:
                break
            done = at.value - new.value <= self.rounding * at.value
            eta, at = moved, new
            if done:
                break
        return self._mixture(*self._without_negligible(eta, at))

    def _newton_step(
        self, eta: Tensor, at: _Evaluation, q: Tensor, gradient: Tensor, stop: Stop
    ) -> tuple[Tensor, _Evaluation | None]:
        """Minimise the quadratic model on the bounds, then search along the line; None if stuck."""
        rows = ((eta > 0) | (gradient < 0)).nonzero()[:, 0]
        cross = torch.linalg.solve_triangular(
            at.factor, at.root[:, None] * self._gram[at.support][:, rows], upper=False
        )
        covariance = self._gram[rows][:, rows] - cross.T @ cross
        H = 2.0 * covariance * (q[rows] @ q[rows].T)
        step = nonnegative_quadratic(H, gradient[rows], eta[rows], stop) - eta[rows]
        slope, length = float(gradient[rows] @ step), 1.0
        for _ in range(self.halvings):
            trial = eta.clone()
            trial[rows] = (eta[rows] + length * step).clamp_min(0.0)
            new = self._evaluate(trial)
            if new.value <= at.value + self.armijo * length * min(slope, 0.0):
                return trial, new
            length /= 2.0
        return eta, None

    def _evaluate(self, eta: Tensor) -> _Evaluation:
        """Return J(eta) = <T, R> + sum(eta) with R = T - P V, from the support's Gram matrix."""
        support = torch.cat([(eta > 0).nonzero()[:, 0], torch.tensor([self._size], device=eta.device)])
        root = torch.cat([eta[support[:-1]].sqrt(), eta.new_ones(1)])
        gram = root[:, None] * self._gram[support][:, support] * root
        gram.diagonal().add_(1.0)
        factor, failed = torch.linalg.cholesky_ex(gram)
        if int(failed):  # to rounding the columns depend on each other
            gram.diagonal().mul_(1.0 + self.jitter)
            factor, _ = torch.linalg.cholesky_ex(gram)
        V = root[:, None] * torch.cholesky_solve(root[:, None] * self._moments[support], factor)
        return self._evaluation(eta, V, support, root, factor)

    def _evaluation(self, eta: Tensor, V: Tensor, support: Tensor, root: Tensor, factor: Tensor) -> _Evaluation:
        residual = self._T - self._P[:, support] @ V
        # <T, R> as a sum of squares: no digits are lost where the fit is close.
        ridge = (V / root[:, None]).square().sum()
        value = float(self._spread.sum(lambda R: R.square().sum(), residual) + ridge + eta.sum())
        return _Evaluation(value if math.isfinite(value) else math.inf, V, residual, support, root, factor)

    def _refined(self, eta: Tensor, at: _Evaluation) -> _Evaluation:
        """Refine V iteratively if that lowers J: normal equations lose half of the digits."""
        root = at.root[:, None]
        moments = self._spread.sum(lambda P, R: P[:, at.support].T @ R, self._P, at.residual)
        slope = root * moments - at.V / root
        step = root * torch.cholesky_solve(slope, at.factor)
        new = self._evaluation(eta, at.V + step, at.support, at.root, at.factor)
        return new if new.value < at.value else at

    def _without_negligible(self, eta: Tensor, at: _Evaluation) -> tuple[Tensor, _Evaluation]:
        small = (eta > 0) & (eta < self.negligible * eta.sum())
        if bool(small.any()):
            trial = torch.where(small, 0.0, eta)
            new = self._evaluate(trial)
            if new.value <= at.value * (1.0 + self.rounding):
                return trial, new
        return eta, at

    def _mixture(self, eta: Tensor, at: _Evaluation) -> Mixture:
        at = self._refined(eta, at)
        outputs = at.V.new_zeros(self._size, at.V.shape[1])
        outputs[at.support[:-1]] = at.V[:-1]
        bias = at.V[-1] * float(self._beta > 0.0)
        return Mixture(eta, outputs, bias, Lambda=self._scale * at.residual, value=at.value)
