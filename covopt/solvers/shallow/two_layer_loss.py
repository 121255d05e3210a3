"""The loss of a two-layer network over samples, evaluated chunk by chunk."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.cholesky import lower_gram, solve_lower
from covopt.linalg.narrow import times_narrow
from covopt.model.loss import Weight, mean_gradient, mean_loss
from covopt.model.passes import Samples
from covopt.model.problem import Problem
from covopt.solvers.shallow.datafits import mixture_outputs
from covopt.solvers.shallow.sliding import Parts


class TwoLayerLoss:
    """L(U, V, b) = C(F) + lam (|U|^2 + |V|^2 + |b|^2) over samples (not those of the problem), and its gradient.

    Where Xt has more columns than U, one for each neuron, the others are added to Xt U^T. Products with Xt are taken in
    its precision, all else in that of the weights.
    """

    # The largest relative change of the loss that inputs in bfloat16 may make; without a large mean it is 1e-5 to 2e-4.
    rounding = 1e-3

    # The length of new neurons, relative to the others. With 0.3 costs are 4 to 8 % higher in the first second.
    small = 0.1

    def __init__(self, problem: Problem, samples: Samples) -> None:
        self.problem, self.samples, self.count = problem, samples, samples.count()
        # Sums in float32 hold no more than 1e30: of a larger lam the network is all but zero as well.
        self.lam = problem.lam if samples.precision == torch.float64 else min(problem.lam, 1e30)

    def value(self, U: Tensor, V: Tensor, b: Tensor) -> Float[Tensor, ""]:
        """Return L, by one pass forward."""

        def part(Xt: Tensor, Y: Tensor, weight: Weight) -> tuple[Tensor]:
            F = mixture_outputs(self.problem.activation(_preactivations(Xt, U)), V, b, self.problem.bias(1))
            return ((len(Y) / self.count) * mean_loss(self.problem.loss, F, Y, weight),)

        return self.samples.total(part)[0] + self._penalty(U, V, b)

    def gradient(self, U: Tensor, V: Tensor, b: Tensor) -> tuple[Float[Tensor, ""], Parts]:
        """Return L and its gradient in U, V and b, by one pass forward and one back."""
        problem = self.problem

        def part(Xt: Tensor, Y: Tensor, weight: Weight) -> tuple[Tensor, ...]:
            Z = _preactivations(Xt, U)
            Phi = problem.activation(Z)
            arguments = problem.loss, mixture_outputs(Phi, V, b, problem.bias(1)), Y, weight
            share = len(Y) / self.count
            G = (share * mean_gradient(*arguments)).to(Phi)
            by_Z = problem.activation.pull_back(G @ V.T, Z)
            by_U = (by_Z.to(Xt).T @ Xt[:, : U.shape[1]]).to(U)
            return share * mean_loss(*arguments), by_U, times_narrow(Phi.T, G), problem.bias(1) * G.sum(dim=0)

        fit, *slopes = self.samples.total(part)
        for slope, x in zip(slopes, (U, V, b), strict=True):
            slope.add_(x, alpha=2.0 * self.lam)
        return fit + self._penalty(U, V, b), (slopes[0], slopes[1], slopes[2])

    def new_neurons(
        self, network: Parts, directions: Float[Tensor, "_ d"], most: int
    ) -> tuple[Float[Tensor, "k d"], Float[Tensor, "k outputs"]]:
        """Return (U, V) of small neurons along at most `most` of the directions w, those that lower the loss fastest.

        A small neuron along w lowers it if |sum_i sigma(w^T x_i) C'(f_i)| > 2 lam |w|.
        """
        (U, V, b), D = network, torch.nn.functional.normalize(directions, dim=1)
        slopes = self.gradient(torch.cat([U, D]), torch.cat([V, V.new_zeros(len(D), len(b))]), b)[1][1][len(U) :]
        falls = slopes.norm(dim=1)
        best = falls.argsort(descending=True)[: min(int((falls > 2.0 * self.lam).sum()), most)]
        size = self.small * float(U.square().sum(dim=1).mean().sqrt())
        return size * D[best], -(size / falls[best])[:, None] * slopes[best]

    def shortest_dtype(self, U: Tensor, V: Tensor, b: Tensor) -> torch.dtype:
        """Return bfloat16 if inputs in it change the loss of this network by little, else float32."""
        inputs = (replace(self.samples, dtype=dtype) for dtype in (torch.float32, torch.bfloat16))
        single, half = (float(TwoLayerLoss(self.problem, samples).value(U, V, b)) for samples in inputs)
        return torch.bfloat16 if abs(half - single) <= self.rounding * single else torch.float32

    def best_outputs(self, U: Tensor) -> tuple[Float[Tensor, "n m"], Float[Tensor, " m"]]:
        """Return V and b of least L for mse, or NaN if rounding prevents it.

        They are (P^T Q P + N lam I)^-1 P^T Q Y with P = [Phi, beta 1] and the diagonal matrix Q of sample weights.
        """
        problem = self.problem

        def part(Xt: Tensor, Y: Tensor, weight: Weight) -> tuple[Tensor, Tensor]:
            P = torch.cat(
                [problem.activation(_preactivations(Xt, U)), Xt.new_full((len(Xt), 1), problem.bias(1))], dim=1
            )
            if weight is not None:
                root = weight.sqrt()[:, None]
                P, Y = root * P, root * Y
            return lower_gram(P.T), times_narrow(P.T, Y)

        gram, moments = self.samples.total(part)
        gram.diagonal().add_(self.count * self.lam)
        both = solve_lower(gram, moments)
        return both[:-1], both[-1]

    def _penalty(self, U: Tensor, V: Tensor, b: Tensor) -> Tensor:
        return self.lam * (U.square().sum() + V.square().sum() + b.square().sum())


def multiplies_bfloat16(device: torch.device) -> bool:
    """Return True if this is a CPU with instructions for bfloat16, which multiply twice as fast as those of float32."""
    return device.type == "cpu" and bool(getattr(torch.cpu, "get_capabilities", dict)().get("avx512_bf16"))


def _preactivations(Xt: Float[Tensor, "N _"], U: Float[Tensor, "n k"]) -> Float[Tensor, "N n"]:
    k = U.shape[1]
    Z = (Xt[:, :k] @ U.T.to(Xt)).to(U)
    return Z if Xt.shape[1] == k else Z.add_(Xt[:, k:])
