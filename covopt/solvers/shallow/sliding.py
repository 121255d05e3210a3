"""Moving all active neurons at once between master solves (sliding Frank-Wolfe).

Frank-Wolfe's atoms stand still; their neurons need not. In weights the objective of the mixture is

    S(F) + |U|_F^2 + |V|_F^2 + |b|^2,  F = sigma(X U^T) V + beta 1 b^T,

in units of lam (S is the fit's smooth loss), and L-BFGS lowers it along all neurons together. Three things make it
fast:

* Where S is least squares, sum_i |F_i - T_i|^2 / mu_i, the outputs are eliminated (variable projection). What is left
  is the second reformulation of the loss (MATH.md section 3) along U,

      J(U) = Tr[T^T A^-1 T] + |U|_F^2,  A = diag(mu) + beta^2 1 1^T + Phi Phi^T,  Phi = sigma(X U^T),
      dJ/dPhi = -2 Lambda V^T,  Lambda = A^-1 T,  V = Phi^T Lambda,  b = beta Lambda^T 1.

  The fit is stiffer than the penalty by 1 / lam, and V follows the stiff directions of itself.
* L-BFGS starts from the Hessian's diagonal, roughly. With S of curvature 2 c, all but one factor fixed, half of it is

      1 + c |v_k|^2 (X^T D_k X)_jj along u_kj,  1 + c |phi_k|^2 along v_k,  1 + c N beta^2 along b,

  (derived; tested against finite differences), where D_k marks neuron k's active samples. X^T X is diagonal in the
  row-space basis; half of it stands for X^T D_k X, and the mean of |v_k|^2 for each. Where the outputs are eliminated,
  they take up a part of the curvature: 0.3 c is better, and so is computing this again on the way. Both together take
  1,797 digits to 1 % in 75 iterations instead of 100.
* Kinks stop L-BFGS short (MATH.md section 4). They are rounded over |z| < kink first, and sharpen step by step; the
  oracle's ascents, which continue from the moved neurons, put them exactly on their kinks afterwards. With small lam
  most of the cost can be the error of rounding, e = J(x) - J_kink(x); kinks sharpen as soon as J_kink falls slowly
  beside e.

Sources: Denoyelle, Duval, Peyre, Soubies, The sliding Frank-Wolfe algorithm (2019); Golub, Pereyra, The
differentiation of pseudo-inverses and nonlinear least squares problems whose variables separate (1973).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.cholesky import lower_gram, solve_lower
from covopt.linalg.lbfgs import DescentOptions, lbfgs
from covopt.linalg.narrow import times_narrow
from covopt.model.activation import Activation, Smoothed
from covopt.model.loss import Weight
from covopt.model.problem import LARGEST_SINGLE_BIAS
from covopt.model.spread import ALONE, Alone
from covopt.oracles.neurons import balance
from covopt.runtime.loop import Stop

Smooth = Callable[[Float[Tensor, "N m"]], tuple[Float[Tensor, ""], Float[Tensor, "N m"]]]
Parts = tuple[Float[Tensor, "n r"], Float[Tensor, "n m"], Float[Tensor, " m"]]
"""U (n, r), V (n, m) and b (m,): F = sigma(X U^T) V + beta 1 b^T."""

LOOK = 25  # iterations from one look at a descent's cost to the next, at first


@dataclass(frozen=True)
class SlideOptions:
    """The descents and their limits."""

    # |z| / rms(z) over which kinks are rounded, one descent each; after them comes the objective itself
    kinks: tuple[float, ...] = (0.1, 0.01, 1e-3)
    # a descent ends when a window of it gains less than this, relative; roundings of kinks below it are left out
    slow: float = 1e-5
    # kinks sharpen when 25 iterations gain less than this share of the error of rounding. 281 rows, Huber, lam 3e-5:
    # 0.0010 after 2 s instead of 0.0026; 40 sets: 4 % lower after 0.5 s, 2 % after 1 s; 0.03 and 0.3 are alike
    sharpen: float = 0.1
    entries: int = 2**12  # entries of X above which descents in float32 come first; below, arithmetic takes little time


@dataclass(frozen=True)
class Joint:
    """S(F) + |U|^2 + |V|^2 + |b|^2 over x = (U, V, b)."""

    X: Float[Tensor, "N r"]  # inputs in the row-space basis
    activation: Activation
    beta: float
    smooth: Smooth  # S and its gradient
    curvature: Callable[[Float[Tensor, "N m"]], float]  # half of the mean diagonal of S's Hessian
    outputs: int  # m
    dtype: torch.dtype  # in which S is evaluated
    spread: Alone = ALONE  # the processes that hold the rows of X
    renews: ClassVar[bool] = False  # True if descents compute the curvature again on the way

    def at(self, U: Tensor, V: Tensor, b: Tensor) -> Float[Tensor, " P"]:
        """Return the x of a balanced network."""
        return torch.cat([U.flatten(), V.flatten(), b])

    def value(self, x: Float[Tensor, " P"]) -> tuple[float, Float[Tensor, " P"]]:
        """Return the objective and its gradient."""
        U, V, b = self.parts(x)
        Z = self.X @ U.T
        Phi = self.activation(Z)
        S, G = self.smooth((times_narrow(Phi, V) + self.beta * b).to(self.dtype))

        def slopes(X: Tensor, Z: Tensor, Phi: Tensor, G: Tensor) -> Tensor:
            by_U = self.activation.pull_back(G @ V.T, Z).T @ X
            return torch.cat([by_U.flatten(), times_narrow(Phi.T, G).flatten(), self.beta * G.sum(dim=0)])

        gradient = self.spread.sum(slopes, self.X, Z, Phi, G.to(Phi))
        return float(S) + float(x @ x), gradient.add_(x, alpha=2.0)

    def inverse_curvature(self, x: Float[Tensor, " P"]) -> Float[Tensor, " P"]:
        """About the diagonal of the inverse Hessian, times 2."""
        U, V, b = self.parts(x)
        Phi = self.activation(self.X @ U.T)
        c = self.curvature((times_narrow(Phi, V) + self.beta * b).to(self.dtype))
        sizes, squares = (self.spread.sum(_squares, rows) for rows in (self.X, Phi))
        along_V = (1.0 + c * squares).reciprocal()[:, None].expand_as(V)
        along_b = torch.full_like(b, 1.0 / (1.0 + c * self.spread.samples(len(Phi)) * self.beta**2))
        return torch.cat([_along_directions(sizes, V, c).expand_as(U).flatten(), along_V.flatten(), along_b])

    def network(self, x: Float[Tensor, " P"]) -> tuple[float, Parts]:
        """Return the objective of the balanced network of x, and that network."""
        U, V, b = self.parts(x)
        S, _ = self.smooth((times_narrow(self.activation(self.X @ U.T), V) + self.beta * b).to(self.dtype))
        U, V = balance(U, V)
        return float(S + U.square().sum() + V.square().sum() + b.square().sum()), (U, V, b)

    def hidden(self, x: Float[Tensor, " P"]) -> Float[Tensor, "n r"]:
        """Return U."""
        return self.parts(x)[0]

    def parts(self, x: Float[Tensor, " P"]) -> Parts:
        """Return the network of x."""
        r, m = self.X.shape[1], self.outputs
        n = (len(x) - m) // (r + m)
        return x[: n * r].view(n, r), x[n * r : n * (r + m)].view(n, m), x[n * (r + m) :]


@dataclass(frozen=True)
class Eliminated:
    """J(U), the outputs and the bias at their best for U; its methods are those of `Joint`."""

    X: Float[Tensor, "N r"]  # inputs in the row-space basis
    activation: Activation
    beta: float
    targets: Float[Tensor, "N m"]  # T
    mu: float  # > 0
    weight: Weight = None  # w_i, mu_i = mu / w_i (N,); None for 1
    spread: Alone = ALONE  # the processes that hold the rows of X and T
    renews: ClassVar[bool] = True
    curvature_share: ClassVar[float] = 0.3  # of the curvature along U that remains where V follows

    def at(self, U: Tensor, V: Tensor, b: Tensor) -> Float[Tensor, " P"]:
        return U.flatten()

    def value(self, x: Float[Tensor, " P"]) -> tuple[float, Float[Tensor, " P"]]:
        """Return the objective and its gradient; infinite if rounding prevents a factorisation."""
        Z = self.X @ self.hidden(x).T
        V, b, Lambda = self._best(self.activation(Z))
        slope = self.spread.sum(
            lambda X, Z, Lambda: self.activation.pull_back(Lambda @ V.T, Z).T @ X, self.X, Z, Lambda
        )
        fit = self._fit(Lambda)
        f = float(fit + V.square().sum() + b.square().sum() + x @ x)
        return f if math.isfinite(f) else math.inf, torch.add(x, slope.flatten(), alpha=-1.0).mul_(2.0)

    def inverse_curvature(self, x: Float[Tensor, " P"]) -> Float[Tensor, " P"]:
        U, V, _ = self.parts(x)
        sizes = self.spread.sum(_squares, self.X)
        return _along_directions(sizes, V, self.curvature_share / self.mu).expand_as(U).flatten()

    def network(self, x: Float[Tensor, " P"]) -> tuple[float, Parts]:
        U = self.hidden(x)
        V, b, Lambda = self._best(self.activation(self.X @ U.T))
        U, V = balance(U, V)
        value = float(self._fit(Lambda) + U.square().sum() + V.square().sum() + b.square().sum())
        return value if math.isfinite(value) else math.inf, (U, V, b)

    def hidden(self, x: Float[Tensor, " P"]) -> Float[Tensor, "n r"]:
        return x.view(-1, self.X.shape[1])

    def parts(self, x: Float[Tensor, " P"]) -> Parts:
        U = self.hidden(x)
        V, b, _ = self._best(self.activation(self.X @ U.T))
        return U, V, b

    def _fit(self, Lambda: Float[Tensor, "N m"]) -> Float[Tensor, ""]:
        """Return sum_i mu_i |Lambda_i|^2."""
        squares = Lambda.square()
        squares = squares if self.weight is None else squares / self.weight.to(Lambda)[:, None]
        return self.mu * self.spread.sum(lambda rows: rows.sum(), squares)

    def _best(self, Phi: Float[Tensor, "N n"]) -> tuple[Tensor, Tensor, Tensor]:
        """Return V, b and Lambda, from the smaller side of A; NaN if rounding prevents it."""
        (N, n), targets = Phi.shape, self.targets.to(Phi)
        weight = None if self.weight is None else self.weight.to(Phi)
        if n >= N and self.spread is ALONE:
            A = lower_gram(Phi).add_(self.beta**2)
            A.diagonal().add_(self.mu if weight is None else self.mu / weight)
            Lambda = solve_lower(A, targets)
            return times_narrow(Phi.T, Lambda), self.beta * Lambda.sum(dim=0), Lambda
        # The rows times w^(1/2); the other factors of Lambda = w (T - F) / mu come afterwards.
        ones, rows, aims = Phi.new_full((1, N), self.beta), Phi, targets
        if weight is not None:
            root = weight.sqrt()
            ones, rows, aims = ones * root, root[:, None] * Phi, root[:, None] * targets

        def products(rows: Tensor, ones: Tensor, aims: Tensor) -> tuple[Tensor, Tensor]:
            gram = torch.nn.functional.pad(lower_gram(rows.T), (0, 1, 0, 1))
            gram[n:, :n] = ones.T @ rows
            gram[n, n] = len(rows) * self.beta**2 if weight is None else float(ones.square().sum())
            return gram, torch.cat([times_narrow(rows.T, aims), ones.T @ aims])

        gram, moments = self.spread.sums(products, rows, ones.T, aims)
        gram.diagonal().add_(self.mu)
        V = solve_lower(gram, moments)
        Lambda = (targets - times_narrow(Phi, V[:-1])).sub_(self.beta * V[-1]).div_(self.mu)
        return V[:-1], V[-1], Lambda if weight is None else Lambda.mul_(weight[:, None])


def slide(
    objective: Joint | Eliminated,
    directions: Float[Tensor, "n r"],
    outputs: Float[Tensor, "n m"],
    bias: Float[Tensor, " m"],
    stop: Stop,
    options: SlideOptions | None = None,
) -> Iterator[Parts]:
    """Yield the balanced network (directions, outputs, bias), and lower ones below it.

    Drops descents through rounded kinks or in float32 that do not end lower.
    """
    options = options or SlideOptions()
    best = objective.at(*balance(directions, outputs), bias)
    lowest, network = objective.network(best)
    yield network
    (N, r), spread = objective.X.shape, objective.spread
    many = spread.samples(N) * r >= options.entries
    single = objective.X.dtype == torch.float64 and many and objective.beta < LARGEST_SINGLE_BIAS
    rough = replace(objective, X=objective.X.float()) if single else objective
    roughly = 3e-5  # where the descents in float32 that go before end
    slow = max(options.slow, roughly) if single else options.slow
    stages = [(rough, kink, slow) for kink in (*options.kinks, 0.0) if kink > slow or kink == 0.0]
    if single and options.slow < roughly:
        stages.append((objective, 0.0, options.slow))
    x = best
    for where, kink, slow in stages:
        start = best if where is objective else x
        Z = objective.X @ objective.hidden(start).T
        size = kink * float(spread.sum(lambda Z: Z.square().mean() * (len(Z) / spread.samples(N)), Z).sqrt())
        rounded = replace(where, activation=Smoothed(objective.activation.slope, size)) if size else where
        start = start.to(where.X)
        path = lbfgs(rounded.value, start, DescentOptions(slow=slow, renews=where.renews), rounded.inverse_curvature)
        rounded_cost, looked = math.inf, 0
        for count, point in _looks(path, start, stop):
            x = point.to(best)
            value, network = objective.network(x)
            if value < lowest:
                best, lowest = x, value
                yield network
            if size:
                before, rounded_cost = rounded_cost, rounded.network(point)[0]
                share = options.sharpen * (count - looked) / LOOK
                if before - rounded_cost < share * (value - rounded_cost):
                    break
                looked = count


def _looks(
    path: Iterator[Float[Tensor, " P"]], x: Float[Tensor, " P"], stop: Stop
) -> Iterator[tuple[int, Float[Tensor, " P"]]]:
    """Yield points of a path that begins in x, `LOOK` iterations apart at first, and its last, with their numbers."""
    due, count = LOOK, 0
    for count, point in enumerate(path, 1):
        x = point
        if stop():
            break
        if count == due:
            yield count, x
            due += max(LOOK, count // 8)
    yield count, x


def _squares(rows: Float[Tensor, "N r"]) -> Float[Tensor, " r"]:
    """Return the sum of squares of each column."""
    return rows.square().sum(dim=0)


def _along_directions(sizes: Float[Tensor, " r"], V: Tensor, c: float) -> Float[Tensor, " r"]:
    """Return 1 / (1 + c |v|^2 sizes / 2), |v|^2 the mean; `sizes` are X's squared columns."""
    return (1.0 + 0.5 * c * V.square().sum() / len(V) * sizes).reciprocal()
