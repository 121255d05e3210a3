"""The effect of each layer on the function: spectra, dimensions, bottleneck, orbits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.psd import RANK_RULE
from covopt.model.jacobian import Passage, Scaled
from covopt.model.problem import Problem
from covopt.model.weights import Weights
from covopt.records import record
from covopt.solvers.deep.insertion import in_balance

SHOWN = 10
"""Number of singular values that are stored for each layer."""


@dataclass(frozen=True)
class FunctionLayer:
    """One layer of weights, and the representation behind it."""

    layer: int  # l, from 1 to L
    singular_values: list[float] | None  # the largest ones of A_l, W_l without its bias column
    dimension: int | None  # the number of them above 1/2 once the layers are rescaled to the minimal |W|^2
    distance: float | None  # the layer's part of `Bottleneck.sum`
    activation_values: list[float] | None  # the largest singular values of Z_l / sqrt N
    affine_dimension: int | None  # the rank of S_l - its mean over the samples; None for the outputs
    nonlinearity: float | None  # |Z_l - sigma(Z_l)| / |Z_l|; None for the outputs
    orbit_collapse: float | None  # distance of a sample to its transform over that to others, mean; None without orbits


def layers_of(
    problem: Problem, weights: Weights, passage: Passage, k: int | None, orbits: Float[Tensor, "N n0"] | None
) -> list[FunctionLayer]:
    """Measure each layer of a network at N samples; the bottleneck has k ones, `orbits` are the transformed samples."""
    balanced = in_balance(weights)
    transformed = None if orbits is None else Passage(weights, orbits, problem.beta, problem.activation)
    layers = []
    for layer, (W, Z) in enumerate(zip(weights, passage.Z, strict=True), start=1):
        hidden = layer < len(weights)
        S = _answers(passage, layer)
        other = None if transformed is None else _answers(transformed, layer)
        A = balanced[layer - 1][:, :-1]
        layers.append(
            FunctionLayer(
                layer=layer,
                singular_values=_largest(Scaled.of(W[:, :-1].double())),
                dimension=int((torch.linalg.svdvals(A) > 0.5).sum()) if bool(A.isfinite().all()) else None,
                distance=None if k is None else record.known(distance_of(W, k)),
                activation_values=_largest(Z, math.sqrt(len(Z.values))),
                affine_dimension=_affine_dimension(S.values) if hidden else None,
                nonlinearity=_nonlinearity(Z.values, passage) if hidden else None,
                orbit_collapse=None if other is None else _collapse(S, other),
            )
        )
    return layers


def distance_of(W: Float[Tensor, "n d"], k: int) -> float:
    """Return the squared distance of W = [A, b] from a layer with k ones and zeros.

    It is sum_{i<=k} (s_i(A) - 1)^2 + sum_{i>k} s_i(A)^2 + |b|^2; a missing singular value is 0.
    """
    A, b = W[:, :-1].double(), W[:, -1].double()
    s = torch.linalg.svdvals(A)
    ones = (torch.arange(len(s), device=s.device) < k).to(s)
    return float((s - ones).square().sum() + b.square().sum()) + max(0, k - len(s))


def _answers(passage: Passage, layer: int) -> Scaled:
    """Return S_l, or the outputs for l = L."""
    if layer == len(passage.Z):
        return passage.Z[-1]
    inputs = passage.inputs[layer]
    return Scaled(inputs.values[:, :-1], inputs.exponent)


def _largest(A: Scaled, over: float = 1.0) -> list[float] | None:
    """Return the largest singular values divided by `over`; None if float64 cannot hold them."""
    s = Scaled(torch.linalg.svdvals(A.values)[:SHOWN] / over, A.exponent).plain()
    return s.tolist() if bool(s.isfinite().all()) else None


def _affine_dimension(S: Float[Tensor, "N n"]) -> int:
    """Return the numerical rank of the centred S, relative to S: centring leaves rounding."""
    if not S.numel():
        return 0
    tolerance = RANK_RULE.relative(S.dtype) * float(torch.linalg.matrix_norm(S, 2))
    return int((torch.linalg.svdvals(S - S.mean(dim=0)) > tolerance).sum())


def _nonlinearity(Z: Float[Tensor, "N n"], passage: Passage) -> float | None:
    size = float(Z.norm())
    return float((Z - passage.activation(Z)).norm()) / size if size > 0.0 else None


def _collapse(S: Scaled, transformed: Scaled) -> float | None:
    """Return mean_i |S(x_i) - S(x_i')| / mean_{i<j} |S(x_i) - S(x_j)|; None for x / 0."""
    unit = max(S.exponent, transformed.exponent)
    original = Scaled(S.values, S.exponent - unit).plain()
    image = Scaled(transformed.values, transformed.exponent - unit).plain()
    strangers = min(1024, len(original))  # evenly spaced samples, between which all distances are taken
    some = original[torch.arange(strangers) * len(original) // strangers]
    apart = torch.cdist(some, some, compute_mode="donot_use_mm_for_euclid_dist")
    between = float(apart.sum()) / max(1, len(some) * (len(some) - 1))
    return record.known(float((original - image).norm(dim=1).mean()) / between) if between > 0.0 else None
