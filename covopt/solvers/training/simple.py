"""Networks without a search: constant ones, and a linear one.

With a penalty the cone answers with no more than the first two cost. The linear map is that of ridge regression. A
constant comes from one neuron in each of the last k layers: from the value z_{l-1} and the bias beta_{l-1} layer l
makes z_l at a cost of z_l^2 / (z_{l-1}^2 + beta_{l-1}^2), and the values between, from z_{L-k} = 0 to z_L = |y|, are
those of the smallest sum. A linear map P S Q^T is a ReLU network with two neurons for each singular value, x and -x, in
every hidden layer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.lbfgs import DescentOptions, descend
from covopt.linalg.psd import RankRule, thin, triangle
from covopt.linalg.rounding import unit_scale
from covopt.model.passes import parts_of
from covopt.model.problem import Problem, with_bias
from covopt.model.spread import ALONE
from covopt.model.units import Units, has_many_inputs
from covopt.model.weights import evaluate

FULL = 1e-12  # minimum ridge of the linear map, relative to the largest eigenvalue


def simple_networks(problem: Problem, linear: bool = True) -> Iterator[list[Tensor]]:
    """Yield constant networks, by the bias of lowest cost in each layer, and a linear one in O(N d^2)."""
    constant = _best_constant(problem)
    size = float(constant.norm())
    longest = 12  # layers that a constant is handed through
    for chain in range(1, min(problem.depth, longest) + 1):
        biases = [problem.bias(layer) for layer in range(problem.depth - chain, problem.depth)]
        if size > 0.0 and biases[0] > 0.0:
            yield _constant(problem, constant / size, _levels(size, biases), biases)
    if not linear:
        return
    A = _linear_map(problem)
    if bool(A.any()) and bool(A.isfinite().all()):
        yield _linear(problem, A)


def cheapest_simple(problem: Problem, linear: bool = True, units: Units | None = None) -> list[Tensor] | None:
    """Return the constant, linear or zero network of lowest cost, in the units of the data; None if none is a fit."""
    units, zero = units or Units.of(problem), [0] * (problem.depth - 1)
    networks = [units.outward(weights) for weights in simple_networks(units.problem, linear)]
    networks.append([problem.X.new_zeros(shape) for shape in problem.shapes(zero)])
    costs = [evaluate(problem, weights) for weights in networks]
    allowed = [number for number, cost in enumerate(costs) if problem.allows(cost.residual)]
    return networks[min(allowed, key=lambda number: costs[number].total)] if allowed else None


def _best_constant(problem: Problem) -> Float[Tensor, " m"]:
    """Minimise C(1 c^T) + lam |c|^2 / beta^2 over c; the mean of Y for mse and exact fits.

    The price of a bias is |c|^2 / beta^2; what neurons add is linear in c. For cross entropy the mean of Y does not
    even have the units of c.
    """
    mean, beta = problem.mean(problem.Y), problem.bias(problem.depth - 1)
    many = problem.samples * len(mean) > 1_000_000  # targets, for which the search would take too long
    if problem.ridge is not None or not beta > 0.0 or many:
        return mean

    def cost(c: Float[Tensor, " m"]) -> tuple[float, Float[Tensor, " m"]]:
        F = c.to(mean).expand_as(problem.Y)
        slope = problem.spread.sum(lambda G: G.sum(dim=0), problem.gradient_at(F))
        price = problem.lam / beta**2
        return float(problem.loss_at(F)) + price * float(c @ c), slope.double() + 2.0 * price * c

    start, options = torch.zeros_like(mean, dtype=torch.float64), DescentOptions(iterations=300, slow=0.0)
    return descend(cost, start, lambda: False, options).to(mean)


def _levels(size: float, biases: Sequence[float]) -> list[float]:
    """Return z_0 = 0, ..., z_k = size of least sum_l z_l^2 / (z_{l-1}^2 + biases_{l-1}^2).

    Where it is stationary, z_{l+1} = (z_l^2 + biases_l^2) / (z_{l-1}^2 + biases_{l-1}^2)^(1/2): z_1 determines the
    others. If the biases are equal, or a geometric sequence, z_k grows with z_1, which is found by bisection.
    """

    def levels(first: float) -> list[float]:
        z = [0.0, first]
        for below, bias in itertools.pairwise(biases):
            z.append(math.hypot(z[-1], bias) * (math.hypot(z[-1], bias) / math.hypot(z[-2], below)))
        return z

    low, high = 0.0, max(size, *biases)
    for _ in range(300):  # the ratio of z_1 to the largest may be tiny
        middle = 0.5 * (low + high)
        low, high = (middle, high) if levels(middle)[-1] <= size else (low, middle)
    return [*levels(low)[:-1], size]


def _constant(problem: Problem, direction: Tensor, levels: Sequence[float], biases: Sequence[float]) -> list[Tensor]:
    """Make the constant levels[-1] times `direction`, by one neuron per layer with a level."""
    X, L, chain = problem.X, problem.depth, len(biases)
    weights, below = [], X.shape[1]
    for layer in range(1, L + 1):
        place = layer - (L - chain)
        n = len(direction) if layer == L else int(place > 0)
        W = X.new_zeros(n, below + 1)
        if place > 0:
            z, beta = levels[place - 1], biases[place - 1]
            made = levels[place] / (z * z + beta * beta) * (direction if layer == L else direction.new_ones(1))
            W[:, -1] = beta * made
            if place > 1:
                W[:, 0] = z * made
        weights.append(W)
        below = n
    return weights


def _linear_map(problem: Problem) -> Float[Tensor, "d m"]:
    """Return (Xt^T Xt + mu I)^-1 Xt^T Y by a triangle of [Xt, Y], or by these if samples are few."""
    d = problem.X.shape[1] + 1
    if problem.spread is ALONE:
        both = triangle(_weighted_rows(part) for _, part in parts_of(problem))
    else:

        def rows(X: Tensor, Y: Tensor) -> tuple[Tensor]:
            return (_weighted_rows(replace(problem, X=X, Y=Y)),)

        both = problem.spread.condensed(problem.X, problem.Y, made=rows)[0]
    Xt, Y = both[:, :d], both[:, d:]
    size = float(torch.linalg.matrix_norm(Xt, 2)) ** 2
    ridge = problem.ridge or 0.0
    if has_many_inputs(problem):  # which may be larger than 1, the size that the ridge suits
        ridge *= max(1.0, unit_scale(problem.X, problem.spread.largest))
    return thin(Xt, RankRule(tikhonov=max(ridge, FULL * size) if size > 0.0 else 1.0)).solve(Y)


def _weighted_rows(problem: Problem) -> Float[Tensor, "N k"]:
    """Return [Xt, Y]; rows of classes minus their mean, which cross-entropy ignores."""
    return problem.weighted(torch.cat([with_bias(problem.X, problem.beta), problem.contrasts(problem.Y)], dim=1))


def _linear(problem: Problem, A: Float[Tensor, "d m"]) -> list[Tensor]:
    """Make x -> A^T x, bias included, by neurons of the singular directions and opposites."""
    L, a = problem.depth, problem.activation.slope
    P, s, Qt = torch.linalg.svd(A, full_matrices=False)
    significant = s > FULL * float(s.max())
    P, s, Qt = P[:, significant], s[significant], Qt[significant]
    root = s[:, None] ** (1.0 / L)
    first, last = root * P.T, root * Qt
    middle = torch.diag(root[:, 0])
    if not problem.activation.is_linear:
        # sigma(x) - sigma(-x) = (1 + a) x, where the neurons of every layer keep the signs of the first.
        gain = (1.0 + a) ** (-1.0 / L)
        first, last = gain * torch.cat([first, -first]), gain * torch.cat([last, -last])
        back = gain * torch.diag(root[:, 0])
        middle = torch.cat([torch.cat([back, -back], dim=1), torch.cat([-back, back], dim=1)]) / (1.0 + a)
    middle, above = (torch.nn.functional.pad(W, (0, 1)) for W in (middle, last.T))  # no biases above the first layer
    return [first, *[middle] * (L - 2), above]
