"""The dimension of a network on the data in each hidden layer, and its linearity there.

Of hidden layer l with S_l = sigma(Z_l), both (N, n_l), and A_l = W_l without its bias column,

    dimension            the singular values of A_l above 1/2: in a long network each costs about 1 a layer,
    affine dimension     the rank of S_l centred, singular values below 1/100 of the largest not counted,
    nonlinearity         |Z_l - sigma(Z_l)|_F / |Z_l|_F, 0 where the layer passes its inputs on as they are.

These describe a network that is at hand; they prove nothing about others.

Source: Jacot, Bottleneck Structure in Learned Features (2023), Figure 1 (which counts singular values above 0.1);
Implicit Bias of Large Depth Networks (2023), Figure 1, for the nonlinearity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.weights import Weights, preactivations


@dataclass(frozen=True)
class LayerShape:
    """One hidden layer on the data: its dimension, its affine dimension, its nonlinearity."""

    dimension: int
    affine_dimension: int
    nonlinearity: float


def layer_shapes(problem: Problem, weights: Weights) -> list[LayerShape]:
    """Return the shape of each hidden layer 1 ... L - 1 of a network whose layers are in balance."""
    hidden = preactivations(problem, weights)[:-1]
    return [_shape(W[:, :-1], Z, problem.activation(Z)) for W, Z in zip(weights[:-1], hidden, strict=True)]


def bottleneck(shapes: Sequence[LayerShape]) -> int:
    """Return the hidden layer, from 1, of least affine dimension; of several the most linear."""
    order = [(shape.affine_dimension, shape.nonlinearity, layer) for layer, shape in enumerate(shapes, start=1)]
    return min(order)[2]


def _shape(A: Float[Tensor, "n m"], Z: Float[Tensor, "N n"], S: Float[Tensor, "N n"]) -> LayerShape:
    size = float(Z.norm())
    spread = torch.linalg.svdvals(S - S.mean(dim=0))
    # A constant layer after centring is rounding of its entries.
    counts = (spread > 0.01 * spread.max()) & (spread > 1e-10 * S.norm()) if len(spread) else spread > 0.0
    return LayerShape(
        dimension=int((torch.linalg.svdvals(A) > 0.5).sum()),
        affine_dimension=int(counts.sum()),
        nonlinearity=float((Z - S).norm()) / size if size > 0.0 else 0.0,
    )
