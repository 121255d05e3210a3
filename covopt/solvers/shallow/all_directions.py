"""A descent of a two-layer network in all directions of its inputs, after training in the few leading ones.

L-BFGS minimises L(U, V, b) (two_layer_loss.py) in the variables U A, B V and a b, with

    A^2 = 2 lam I + (c / 2) |v|^2 (1/N) sum_i x_i x_i^T,  B^2 = 2 lam I + c (1/N) Phi^T Phi,  a^2 = 2 lam + c beta^2.

In these variables the diagonal blocks of the Hessian are near identity matrices, so L-BFGS needs few passes over the
samples. |v|^2 is the mean over neurons, c the mean second derivative of the loss; c / 2 says that a neuron is active at
half of the samples. Outside of the leading directions, A is a multiple of I, from the mean square of the inputs there.

Nine tenths of the time are products with the inputs. A CPU that multiplies numbers in bfloat16 takes half of the time
for them, and descents end as low (2026-11-many-samples.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.lbfgs import lbfgs
from covopt.model.loss import Weight
from covopt.solvers.shallow.datafits import mixture_outputs
from covopt.solvers.shallow.leading import Basis
from covopt.solvers.shallow.sliding import Parts
from covopt.solvers.shallow.two_layer_loss import TwoLayerLoss

FEWEST = 3  # iterations of L-BFGS, before which it does not end
LITTLE_GAIN = 0.3  # it ends when an iteration gains less than this part of the mean one (2026-11-many-samples.md)


@dataclass(frozen=True)
class Metric:
    """The inverses of A, B and a."""

    basis: Basis  # Q, the leading directions
    beyond: float  # the factor outside of them
    within: Float[Tensor, "k d"]  # (Q A^-1 Q^T - beyond I) Q
    of_outputs: Float[Tensor, "n n"]  # B^-1
    of_bias: float  # 1 / a

    @staticmethod
    def of(loss: TwoLayerLoss, network: Parts, basis: Basis) -> Metric:
        """Return the metric at a network, by the loss on some of the samples."""
        problem, samples, (k, d) = loss.problem, loss.samples, basis.shape
        U, V, b = network

        def part(Xt: Tensor, Y: Tensor, weight: Weight) -> tuple[Tensor, ...]:
            Z, Phi = Xt @ basis.T, problem.activation(Xt @ U.T)
            F = mixture_outputs(Phi, V, b, problem.bias(1))
            return Z.T @ Z, Xt.square().sum(), Phi.T @ Phi, problem.loss.curvatures(F, Y).mean(dim=1).sum()

        gram, squares, features, curvature = (total.double() / loss.count for total in samples.total(part))
        c, size = float(curvature), float(curvature) * float(V.square().sum()) / (2.0 * len(V))
        least = 2.0 * loss.lam
        beyond = (least + size * max(0.0, float(squares - gram.trace())) / max(1, d - k)) ** -0.5
        within = _inverse_root(gram, size, least)
        within.diagonal().sub_(beyond)
        of_outputs, of_bias = _inverse_root(features, c, least), (least + c * problem.bias(1) ** 2) ** -0.5
        return Metric(basis, beyond, within.to(basis) @ basis, of_outputs.to(basis), of_bias)

    def times(self, parts: Parts) -> Parts:
        """Return U A^-1, B^-1 V and b / a."""
        U, V, b = parts
        return torch.addmm(U, U @ self.basis.T, self.within, beta=self.beyond), self.of_outputs @ V, self.of_bias * b


def points_of_descent(loss: TwoLayerLoss, metric: Metric, network: Parts) -> Iterator[tuple[Parts, bool]]:
    """Yield the network at the start and after each iteration of L-BFGS, and True if that iteration gained little."""
    lowest = before = first = math.inf

    def at(x: Float[Tensor, " p"]) -> Parts:
        U, V, b = (start + step for start, step in zip(network, metric.times(unpacked(x, network)), strict=True))
        return U, V, b

    def value(x: Float[Tensor, " p"]) -> tuple[float, Float[Tensor, " p"]]:
        nonlocal lowest
        f, slopes = loss.gradient(*at(x))
        lowest = min(lowest, f := float(f.nan_to_num(torch.inf)))
        return f, packed(metric.times(slopes))

    for count, x in enumerate(lbfgs(value, torch.zeros_like(packed(network)))):
        first = first if count else lowest
        ends = count >= FEWEST and before - lowest <= LITTLE_GAIN * (first - lowest) / count
        yield at(x), ends
        if ends:
            return
        before = lowest


def packed(parts: Parts) -> Float[Tensor, " p"]:
    """Return the entries of U, V and b in one vector."""
    return torch.cat([part.flatten() for part in parts])


def unpacked(x: Float[Tensor, " p"], like: Parts) -> Parts:
    """Return the network of these entries, in the shapes of another one."""
    U, V, b = (part.view_as(old) for part, old in zip(x.split([old.numel() for old in like]), like, strict=True))
    return U, V, b


def _inverse_root(gram: Float[Tensor, "k k"], factor: float, least: float) -> Float[Tensor, "k k"]:
    """Return (least I + factor gram)^(-1/2)."""
    values, vectors = torch.linalg.eigh(gram)
    return (vectors * (least + factor * values.clamp_min(0.0)).rsqrt()) @ vectors.T
