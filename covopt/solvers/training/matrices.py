"""SOAP and Muon, whose steps treat weights as matrices, for a batch of independent functions, one in each row."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.solvers.training.descent import Adam, AdamOptions, Function

Views = Callable[[Tensor], list[Tensor]]


class SOAP(Adam):
    """Adam in the eigenbases of the means of G G^T and G^T G, of each matrix G of the gradient [Vyas et al. 2024].

    Entries whose gradient is exactly 0, as in the padding of a batch, stay. The rate rises over the first steps.
    `stacks` views rows (B, P) as stacks of matrices of one shape (B, g, n, k). The moments are kept in the eigenbases.
    """

    decay, warm_up = 0.95, 20  # of all means; steps
    every, largest = 10, 300  # steps between changes of the bases; entries of an axis that gets a basis

    def __init__(self, function: Function, start: Float[Tensor, "B P"], options: AdamOptions, stacks: Views) -> None:
        super().__init__(function, start, options, draws=None)
        self._stacks = stacks
        self._moments = [W.new_zeros(2, *W.flatten(0, 1).shape) for W in stacks(start)]  # the first and the second
        self._means: dict[tuple[int, int], Tensor] = {}  # of the axes 1 and 2 of each stack
        self._bases: dict[tuple[int, int], Tensor] = {}

    def _move(self, g: Float[Tensor, "B P"], rate: float, step: int) -> None:
        decay = self.decay
        rate *= min(1.0, step / self.warm_up) * math.sqrt(1.0 - decay**step) / (1.0 - decay**step)
        for k, (slopes, W) in enumerate(zip(self._stacks(g), self._stacks(self.x), strict=True)):
            G, (first, second) = slopes.flatten(0, 1), self._moments[k]
            self._follow(k, G, step)
            turned = self._turned(k, G)
            first.lerp_(turned, 1.0 - decay)
            second.mul_(decay).addcmul_(turned, turned, value=1.0 - decay)
            move = self._turned(k, first / (second.sqrt() + 1e-8), back=True)
            W.sub_(move.masked_fill_(G == 0.0, 0.0).view_as(W), alpha=rate)

    def _turned(self, stack: int, G: Float[Tensor, "b n k"], back: bool = False) -> Float[Tensor, "b n k"]:
        """Return G in the bases of its two axes, or from there."""
        P, Q = (self._bases.get((stack, axis)) for axis in (1, 2))
        G = G if P is None else (P if back else P.mT) @ G
        return G if Q is None else G @ (Q.mT if back else Q)

    def _follow(self, stack: int, G: Float[Tensor, "b n k"], step: int) -> None:
        """Add G to the means; turn the bases by a step of orthogonal iteration, in falling order, and the moments."""
        (first, second), turns = self._moments[stack], step % self.every == 0
        before = self._turned(stack, first, back=True) if turns else first
        for axis, own in ((1, G), (2, G.mT)):
            key = (stack, axis)
            if step == 1 and own.shape[1] <= self.largest:
                self._means[key] = (1.0 - self.decay) * (own @ own.mT)
                self._bases[key] = _eigenvectors(self._means[key].nan_to_num(0.0, 0.0, 0.0))
            elif key in self._means:
                self._means[key].baddbmm_(own, own.mT, beta=self.decay, alpha=1.0 - self.decay)
                if turns:
                    product = self._means[key] @ self._bases[key]
                    order = (self._bases[key] * product).sum(dim=1).argsort(dim=1, descending=True)
                    self._bases[key] = torch.linalg.qr(product.gather(2, order[:, None].expand_as(product)))[0]
                    order = order.unsqueeze(3 - axis).expand_as(second)
                    second.copy_(second.gather(axis, order))
        if turns:
            first.copy_(self._turned(stack, before))


class Muon(Adam):
    """Momentum with orthogonal steps, for each matrix of the gradient [Jordan et al. 2024].

    A step is about U V^T, of the momentum's singular vectors, scaled to entries of root mean square `size`: `turns` odd
    polynomials bring all but the smallest singular values near 1. Each matrix moves in proportion to its entries at the
    start. Entries whose gradient is exactly 0 stay, the rate rises over the first steps, and `stacks` is as for SOAP.
    """

    decay, warm_up, size, turns = 0.95, 20, 0.2, 3
    polynomial = (3.4445, -4.7750, 2.0315)  # a s + b s^3 + c s^5

    def __init__(self, function: Function, start: Float[Tensor, "B P"], options: AdamOptions, stacks: Views) -> None:
        super().__init__(function, start, options, draws=None)
        self._stacks = stacks
        self._moments = [torch.zeros_like(W.flatten(0, 1)) for W in stacks(start)]
        mean = start.square().mean(dim=1)[:, None, None, None].clamp_min(torch.finfo(start.dtype).tiny)
        self._shares = [(W.square().mean(dim=(2, 3), keepdim=True) / mean).sqrt() for W in stacks(start)]

    def _move(self, g: Float[Tensor, "B P"], rate: float, step: int) -> None:
        rate *= self.size * min(1.0, step / self.warm_up)
        stacks = zip(self._moments, self._shares, self._stacks(g), self._stacks(self.x), strict=True)
        for moment, share, slopes, W in stacks:
            G = slopes.flatten(0, 1)
            decay = self._decay(step)
            moment.lerp_(G, 1.0 - decay)
            move = self._orthogonal(torch.lerp(G, moment, decay)) * math.sqrt(max(G.shape[1:]))
            W.sub_(move.masked_fill_(G == 0.0, 0.0).view_as(W) * share, alpha=rate)

    def _decay(self, step: int) -> float:
        """Return the decay of the momentum."""
        return self.decay

    def _orthogonal(self, G: Float[Tensor, "b n k"]) -> Float[Tensor, "b n k"]:
        """Return about U V^T for G = U S V^T."""
        X = G / G.norm(dim=(1, 2), keepdim=True).clamp_min(torch.finfo(G.dtype).tiny)
        tall = X.shape[1] > X.shape[2]
        X = X.mT if tall else X
        A = X @ X.mT  # polynomials of this small matrix, in place of those of X
        Q = P = self._polynomial_of(A)
        for _ in range(self.turns - 1):
            A = P @ A @ P
            P = self._polynomial_of(A)
            Q = P @ Q
        X = Q @ X
        return X.mT if tall else X

    def _polynomial_of(self, A: Float[Tensor, "b n n"]) -> Float[Tensor, "b n n"]:
        """Return a 1 + b A + c A^2."""
        a, b, c = self.polynomial
        P = torch.baddbmm(A, A, A, beta=b, alpha=c)
        P.diagonal(dim1=1, dim2=2).add_(a)
        return P


class ScheduleFreeMuon(Muon):
    """Muon whose point can be used at any time: a mean of all its fast points so far [Defazio et al. 2024].

    A fast point z takes Muon's steps, and x is the mean of the fast points so far, step k with the weight k^power:

        g = f'(near x + (1 - near) z),   z <- z - rate U V^T / sqrt(1 + k / early).

    So the rate need not fall to 0. The decay of the momentum is k / (k + memory) at first, as the first gradients are
    soon out of date. docs/notes/2026-11-deep-batches.md has the measurements behind the settings.
    """

    decay, near, early, memory, power = 0.93, 0.7, 100, 10, 1.5

    def __init__(self, function: Function, start: Float[Tensor, "B P"], options: AdamOptions, stacks: Views) -> None:
        super().__init__(function, start, options, stacks)
        self._fast, self._weights = start.clone(), 0.0

    def _advance(self, step: int) -> None:
        _, g = self._function(self._fast.lerp(self.x, self.near))
        mean, self.x = self.x, self._fast
        self._move(g, self._options.rate / math.sqrt(1.0 + step / self.early), step)
        weight = step**self.power
        self._weights += weight
        self._fast, self.x = self.x, mean.lerp_(self.x, weight / self._weights)

    def _decay(self, step: int) -> float:
        return min(self.decay, step / (step + self.memory))


def steps_on_matrices(function: Function, start: Float[Tensor, "B P"], options: AdamOptions, stacks: Views) -> Adam:
    """Return SOAP, or Muon where an axis is too long for a basis, as that of 784 inputs.

    20,000 samples of 784 inputs, three layers, 10 s: 0.0184 by SOAP with a basis on one side, 0.0174 by Muon. On digits
    Muon ends between 0.2 % lower and 3 % higher (docs/notes/2026-11-deep-batches.md).
    """
    longest = max(max(W.shape[2:]) for W in stacks(start))
    return (Muon if longest > SOAP.largest else SOAP)(function, start, options, stacks)


def _eigenvectors(M: Float[Tensor, "b n n"]) -> Float[Tensor, "b n n"]:
    """Return the eigenvectors, largest eigenvalue first; the identity if the sizes of the entries differ too much."""
    try:
        return torch.linalg.eigh(M)[1].flip(-1)
    except RuntimeError:  # torch's LinAlgError
        return torch.eye(M.shape[1], dtype=M.dtype, device=M.device).expand_as(M).clone()
