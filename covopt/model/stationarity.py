"""Stationarity, layer by layer.

The back-propagated duals, and the gain of one more neuron (MATH.md section 5). With M_L = -grad C / (2 lam) and M_l =
sigma'(Z_l) * (M_{l+1} W_{l+1} without its bias column), stationary weights are W_l^T = Zs_{l-1}^T M_l. A new neuron in
hidden layer l, of unit direction w (bias coordinate included), s = sigma(Zs_{l-1} w), with output along M_{l+1}^T s,
both scaled by sqrt(size), changes the loss by

    2 lam size (1 - |M_{l+1}^T s|)

to first order. So no neuron helps where h_l(w) = |M_{l+1}^T sigma(Zs_{l-1} w)| <= 1 for all unit w. That is exact for
the last hidden layer. Below it, zeros of Z_{l+1} make M_{l+1} set-valued, and h_l says only where to look.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.model.forces import check_layer
from covopt.model.problem import Problem
from covopt.model.weights import Weights, carried, preactivations, pulled_back
from covopt.runtime.errors import ProblemError


def duals(
    problem: Problem, weights: Weights, Lambda: Float[Tensor, "N nL"] | None = None
) -> list[Float[Tensor, "N _"]]:
    """Return [M_1, ..., M_L], shapes (N, n_l); sigma' at a kink is the slope a.

    Lambda is M_L where the loss does not give it: a ProblemError refuses `interpolate` without it.
    """
    Z = preactivations(problem, weights)
    if Lambda is None and (Lambda := problem.multiplier_at(Z[-1])) is None:
        raise ProblemError("The loss interpolate has no gradient; give its multiplier Lambda, or use mse.")
    return pulled_back(problem, weights, Z, Lambda)


def inputs_of(problem: Problem, weights: Weights, layer: int) -> Float[Tensor, "N _"]:
    """Return Zs_{layer-1} (N, n_{layer-1} + 1), the inputs of W_layer, for layer = 1 ... L."""
    return carried(problem, weights[: layer - 1], problem.Xt)


def add_neuron(
    problem: Problem,
    weights: Weights,
    layer: int,
    direction: Float[Tensor, " d"],
    output: Float[Tensor, " m"],
    size: float,
) -> list[Tensor]:
    """Return the network with one more neuron in hidden layer `layer`; size 0 changes nothing.

    It adds the row sqrt(size) w, and the column sqrt(size) v above it, for a direction w (n_{layer-1} + 1,) and an
    output v (n_{layer+1},), both of unit length.
    """
    check_layer(problem, layer)
    grown = [W.clone() for W in weights]
    scale = size**0.5
    grown[layer - 1] = torch.cat([grown[layer - 1], scale * direction[None]])
    above = grown[layer]
    grown[layer] = torch.cat([above[:, :-1], scale * output[:, None], above[:, -1:]], dim=1)
    return grown
