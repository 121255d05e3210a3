"""The unpenalised part of a function: constants, or affine functions with a free skip."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.model.biases import with_bias
from covopt.model.loss import Weight
from covopt.model.problem import Problem
from covopt.model.weights import Weights


class Affine:
    """Functions F = X S^T + 1 c^T on the samples, and least squares with their `weight`.

    X (N, k) is what is free beside constants, centred and of size 1: the inputs with a skip, else nothing.
    """

    def __init__(self, X: Float[Tensor, "N k"], weight: Weight) -> None:
        E = with_bias(X, 1.0)
        self._root = None if weight is None else weight.to(E).sqrt()[:, None]
        U, s, Vh = torch.linalg.svd(self._rooted(E), full_matrices=False)
        significant = s > 1e-12 * s[0]
        self._basis, self._back = U[:, significant], Vh[significant].T / s[significant]

    def coefficients(self, F: Float[Tensor, "N m"]) -> Float[Tensor, "k m"]:
        """Return [S, c]^T (k, m) of the nearest function, of least norm."""
        return self._back @ (self._basis.T @ self._rooted(F))

    def off(self, F: Float[Tensor, "N m"]) -> Float[Tensor, "N m"]:
        """Return P F, F less the nearest function; W P = P^T W for the weights W = diag(w)."""
        near = self._basis @ (self._basis.T @ self._rooted(F))
        return F - (near if self._root is None else near / self._root)

    def transposed(self, G: Float[Tensor, "N m"]) -> Float[Tensor, "N m"]:
        """Return P^T G, which is orthogonal to all these functions, without weights."""
        return G - self._rooted(self._basis @ (self._basis.T @ (G if self._root is None else G / self._root)))

    def rest(self, F: Float[Tensor, "N m"]) -> Float[Tensor, "N m"]:
        """Return `off`, and 0 where that is noise."""
        remainder, noise = self.off(F), 1e-13 * float(F.abs().max())
        return remainder if float(remainder.abs().max()) > noise else torch.zeros_like(remainder)

    def _rooted(self, F: Tensor) -> Tensor:
        return F if self._root is None else self._root * F


def skip_as_neurons(problem: Problem, weights: Weights) -> list[Tensor]:
    """Return the same function without a skip, by x = (sigma_a(x) - sigma_a(-x)) / (1 + a)."""
    if not problem.skip:
        return list(weights)
    n, plain_weights = problem.X.shape[1], []
    read = torch.eye(n).to(problem.X)  # x from what a layer passes on
    for layer, W in enumerate(weights, start=1):
        if layer == problem.depth:
            hidden = W.shape[1] - 1 - n
            A, S, b = W[:, :hidden], W[:, hidden:-1], W[:, -1:]
            plain_weights.append(torch.cat([A, S @ read, b], dim=1))
        else:
            both = torch.cat([read, -read])
            first = W.shape[1] - 1
            A, b = torch.cat([W[:, :-1], W.new_zeros(2 * n, first)]), torch.cat([W[:, -1:], W.new_zeros(2 * n, 1)])
            carried = torch.cat([W.new_zeros(len(W), both.shape[1]), both])
            # In layer 1 the inputs carry x; in later layers the pairs come after the layer's own inputs.
            plain_weights.append(torch.cat([A + carried, b] if layer == 1 else [A, carried, b], dim=1))
            read = torch.cat([torch.eye(n), -torch.eye(n)], dim=1).to(W) / (1.0 + problem.activation.slope)
    return plain_weights
