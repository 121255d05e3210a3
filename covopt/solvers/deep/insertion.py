"""Deeper and shallower networks by identity layers, with all layers in balance.

**Identity layers.** Between layers l and l + 1 goes, of the representations S_l = sigma(Z_l) of the N samples, X for
l = 0 and the outputs for l = L,

* the projection V V^T on their row space, where no entry of S_l is negative: sigma leaves it as it is, it costs
  rank(S_l), and no sample moves;
* with a bias, u = V^T (s - c) + t >= 0, V the principal directions of the centred S_l, of which there are d, the affine
  dimension: further layers then cost d each, after what the change of coordinates costs once.

**Back.** A layer whose neurons are each active on all samples, or on none, is linear on the data: it and the layer
above it are one, and the network without it is the same function there. Of other layers what is left out is their kink.

**Balance.** A_l -> alpha_l A_l, b_l -> alpha_1 ... alpha_l b_l with prod alpha_l = 1 leaves the outputs as they are.
With c_l = alpha_1 ... alpha_l the squared norm sum_l |A_l|^2 (c_l / c_{l-1})^2 + |b_l|^2 c_l^2 is convex in log c_1 ...
log c_{L-1}: Newton's method in L - 1 numbers. Without biases every layer gets the geometric mean.

Source: Jacot, Implicit Bias of Large Depth Networks (2023), Theorem 1 (identity layers) and Prop. 12 (balance).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from covopt.linalg.psd import thin
from covopt.model.problem import Problem
from covopt.model.weights import Weights, evaluate, preactivations
from covopt.solvers.deep.pruning import balanced

Affine = tuple[Float[Tensor, "_ _"], Float[Tensor, " _"]]
"""A_l, and what the bias adds to Z_l: of this form, a layer does the same at any depth."""


def deepened(shallow: Problem, weights: Weights, deep: Problem) -> list[list[Tensor]]:
    """Return balanced networks with identity layers at each place, lowest cost first.

    Both problems have the same data, in units that may differ.
    """
    places = range(shallow.depth + 1)
    return _in_order(deep, [network for place in places for network in at_place(shallow, weights, deep, place)])


def at_place(shallow: Problem, weights: Weights, deep: Problem, place: int) -> list[list[Tensor]]:
    """Insert identity layers after hidden layer `place` (0: inputs, d: outputs) and balance."""
    layers, times = _affine(shallow, weights), deep.depth - shallow.depth
    if times == 0:
        return [in_balance(_charged(deep, layers))]
    Z = preactivations(shallow, weights)
    S = deep.X if place == 0 else Z[-1] if place == shallow.depth else deep.activation(Z[place - 1])
    changed = [*_linear(deep, layers, S, place, times), *_shifted(deep, layers, S, place, times)]
    return [in_balance(_charged(deep, changed_layers)) for changed_layers in changed]


def shortened(deep: Problem, weights: Weights, shallow: Problem) -> list[list[Tensor]]:
    """Return the networks without one hidden layer, balanced, lowest cost first.

    `deep` has depth 3 at least; both problems have the same data, in units that may differ.
    """
    layers, hidden = _affine(deep, weights), preactivations(deep, weights)[:-1]
    networks = []
    for place, Z in enumerate(hidden):
        (A, added), (B, over) = layers[place], layers[place + 1]
        # A neuron with both signs is taken for what most of it is.
        slopes = torch.where(Z.sum(dim=0) >= 0.0, 1.0, deep.activation.slope).to(Z)
        joined = (B * slopes) @ A, over + (B * slopes) @ added
        networks.append(in_balance(_charged(shallow, [*layers[:place], joined, *layers[place + 2 :]])))
    return _in_order(shallow, networks)


def _in_order(problem: Problem, networks: list[list[Tensor]]) -> list[list[Tensor]]:
    """Return the networks of finite cost, lowest cost first."""
    costs = [evaluate(problem, network).total for network in networks]
    order = sorted((cost, number) for number, cost in enumerate(costs) if math.isfinite(cost))
    return [networks[number] for _, number in order]


def in_balance(weights: Weights) -> list[Tensor]:
    """Rescale the layers, then the neurons, to the smallest |W|^2; the outputs stay."""
    A = np.array([float(W[:, :-1].double().square().sum()) for W in weights])
    b = np.array([float(W[:, -1].double().square().sum()) for W in weights])
    if not (A > 0.0).all() or not np.isfinite(A).all() or not np.isfinite(b).all():
        return balanced(weights)
    u = _log_factors(np.log(A), b)
    with np.errstate(over="ignore"):
        alpha, c = np.exp(np.diff(u)), np.exp(u[1:])
    factors = zip(weights, alpha, c, strict=True)
    return balanced([torch.cat([W[:, :-1] * a, W[:, -1:] * total], dim=1) for W, a, total in factors])


def _log_factors(log_A: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Minimise sum_l A_l (c_l / c_{l-1})^2 + b_l c_l^2 over c, c_0 = c_L = 1; return log c."""
    L = len(b)
    # Without biases: log A_l + 2 (u_l - u_{l-1}) are all equal.
    u = np.concatenate([[0.0], np.cumsum(log_A.mean() - log_A) / 2.0])
    u[-1] = 0.0
    if not b[:-1].any() or L == 1:
        return u

    def terms(u: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        with np.errstate(over="ignore", divide="ignore"):
            return np.exp(log_A + 2.0 * np.diff(u)), np.exp(np.log(b) + 2.0 * u[1:])

    close = 1e-12  # a step that changes no factor by more than this, relative, is the last
    far = 300.0  # factors are kept within e^far: of layers as different as that, digits are lost
    edges, nodes = terms(u)
    for _ in range(60):
        gradient = 2.0 * (edges[:-1] - edges[1:] + nodes[:-1])
        H = 4.0 * (np.diag(edges[:-1] + edges[1:] + nodes[:-1]) - np.diag(edges[1:-1], 1) - np.diag(edges[1:-1], -1))
        try:
            step = np.clip(np.linalg.solve(H, -gradient), -far, far)
        except np.linalg.LinAlgError:  # layers so different that rounding leaves H singular
            break
        now, t = edges.sum() + nodes.sum(), 1.0
        while t > close:
            trial = u.copy()
            trial[1:-1] += t * step
            edges, nodes = terms(trial)
            if edges.sum() + nodes.sum() <= now:
                break
            t *= 0.5
        else:
            break
        u = trial
        if np.abs(t * step).max() <= close:
            break
    return u


def _affine(problem: Problem, weights: Weights) -> list[Affine]:
    return [(W[:, :-1], problem.bias(layer) * W[:, -1]) for layer, W in enumerate(weights)]


def _charged(problem: Problem, layers: Sequence[Affine]) -> list[Tensor]:
    """Return the weights of these affine layers; the bias columns are divided by the bias."""
    weights = []
    for layer, (A, added) in enumerate(layers):
        bias = problem.bias(layer)
        column = added / bias if bias > 0.0 else torch.zeros_like(added)
        weights.append(torch.cat([A, column[:, None]], dim=1))
    return weights


def _linear(problem: Problem, layers: list[Affine], S: Tensor, place: int, times: int) -> Iterator[list[Affine]]:
    """Yield layers with projections onto the row space of S, which change no sample."""
    largest = 1e7  # entries of all projections together
    if not 0 < times * S.shape[1] ** 2 <= largest or not (problem.activation.is_linear or bool((S >= 0.0).all())):
        return
    factor = thin(S)
    V = factor.V[:, factor.significant > 0]
    yield [*layers[:place], *[(V @ V.T, S.new_zeros(len(V)))] * times, *layers[place:]]


def _shifted(problem: Problem, layers: list[Affine], S: Tensor, place: int, times: int) -> Iterator[list[Affine]]:
    """Yield layers with the coordinates u = V^T (s - c) + t >= 0 in place of S."""
    if problem.beta == 0.0 or not S.numel() or problem.activation.is_linear:
        return
    c = S.mean(dim=0)
    factor = thin(S - c)
    V = factor.V[:, factor.significant > 0]
    u = (S - c) @ V
    # Of a direction and its opposite the one that needs the smaller shift.
    signs = torch.where(u.amax(dim=0) > -u.amin(dim=0), 1.0, -1.0).to(u) if u.numel() else u.new_ones(u.shape[1])
    V, u = V * signs, u * signs
    t = -u.amin(dim=0) if u.numel() else u.new_zeros(u.shape[1])
    identities = [(torch.eye(len(t)).to(V), torch.zeros_like(t))] * (times - 1)
    into, out = (V.T, t - V.T @ c), (V, c - V @ t)
    if place < len(layers):
        A, added = layers[place]
        yield [*layers[:place], into, *identities, (A @ V, added + A @ out[1]), *layers[place + 1 :]]
    else:
        A, added = layers[-1]
        yield [*layers[:-1], (V.T @ A, V.T @ added + into[1]), *identities, out]
