"""Stationarity of weights where neurons sit on kinks.

The gradient is a set there, and 0 may lie in it. At a kink z_ik = 0 the derivative of sigma_a may be any number in [a,
1] (Clarke's subdifferential), so W_l is stationary if some choice gives W_l^T = Zs_{l-1}^T M_l (MATH.md section 5).
Neuron by neuron, from the last layer down, the best choice is a least-squares problem with bounds. Below the last
hidden layer the choices above are held, so that what is found there is an upper bound on the distance to the
subdifferential.

Samples are taken in passes (passes.py), one for each layer: what is held of them are the entries on kinks.

Source: Clarke, Optimization and Nonsmooth Analysis (1983), chapter 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import scipy  # loads scipy.optimize when it is used: most solves need no slopes at kinks
import torch
from jaxtyping import Float, Int
from torch import Tensor

from covopt.linalg.psd import thin
from covopt.model.passes import all_outputs, parts_of
from covopt.model.problem import Problem, with_bias
from covopt.model.weights import Weights, carried, inputs_from, inputs_of, preactivations

# A neuron that more samples have on its kink keeps the slopes of `Activation.derivative` there.
MOST = 2048


def multiplier(problem: Problem, weights: Weights) -> Float[Tensor, "N nL"] | None:
    """Return M_L from the loss, or from W_L^T = Zs_{L-1}^T Lambda; None if rank(Zs) < N there."""
    if (Lambda := problem.multiplier_at(all_outputs(problem, weights))) is not None:
        return Lambda
    factor = thin(inputs_of(problem, weights, problem.depth))
    return factor.solve_transposed(problem.penalised(weights[-1]).T) if int(factor.rank) == problem.samples else None


def residuals(problem: Problem, weights: Weights, Lambda: Float[Tensor, "N nL"]) -> list[float]:
    """Return |W_l - M_l^T Zs_{l-1}|_F / |W_l|_F for l = 1 ... L, with Lambda = M_L as `multiplier` gives it.

    The slopes at kinks are the best ones. Free biases count as 0 in W_l.
    """
    sizes: list[float] = []
    kinks: dict[int, Kinks] = {}
    for layer in range(problem.depth, 0, -1):
        pulled = problem.penalised(weights[layer - 1])
        pull = _take_best_slopes(problem, weights, Lambda, layer, kinks)
        size, off = float(pulled.norm()), float((pulled - pull).norm())
        sizes.append(off / size if size > 0.0 else off)
    return sizes[::-1]


def multiplier_of_layer(
    problem: Problem, weights: Weights, Lambda: Float[Tensor, "N nL"], layer: int
) -> Float[Tensor, "N n"]:
    """Return M_l for l = `layer`, with the best slopes at the kinks of the layers l ... L - 1."""
    kinks: dict[int, Kinks] = {}
    for above in range(problem.depth - 1, layer - 1, -1):
        _take_best_slopes(problem, weights, Lambda, above, kinks)
    M = Lambda.new_zeros(problem.samples, len(weights[layer - 1]))
    for rows, part in parts_of(problem):
        Z = preactivations(part, weights)
        M[rows] = _multiplier_in(problem, weights, Z, Lambda[rows], layer, rows, kinks)
    return M


@dataclass(frozen=True)
class Kinks:
    """Entries of Z_l on the kink, in the order of their samples, by their places in rows and neurons.

    `above` is what M_{l+1} W_{l+1} is there, and `slopes` what sigma' is taken for there.
    """

    rows: Int[Tensor, " k"]
    neurons: Int[Tensor, " k"]
    above: Float[Tensor, " k"]
    slopes: Float[Tensor, " k"]

    def __getitem__(self, taken: Tensor | slice) -> Kinks:
        return Kinks(self.rows[taken], self.neurons[taken], self.above[taken], self.slopes[taken])

    def put(self, M: Float[Tensor, "N n"], rows: slice) -> None:
        """Write M_l = slope * above into the entries that lie in these rows, which M has."""
        ends = torch.searchsorted(self.rows, self.rows.new_tensor([rows.start, rows.stop])).tolist()
        own = self[slice(*ends)]
        M[own.rows - rows.start, own.neurons] = own.slopes * own.above


def _take_best_slopes(
    problem: Problem, weights: Weights, Lambda: Float[Tensor, "N nL"], layer: int, kinks: dict[int, Kinks]
) -> Float[Tensor, "n d"]:
    """Return M_l^T Zs_{l-1} for l = `layer` with the best slopes at its kinks, which are added to those above it."""
    pull, own = _pull(problem, weights, Lambda, layer, kinks)
    if own is not None:
        kinks[layer] = _with_best_slopes(problem, weights, layer, problem.penalised(weights[layer - 1]), pull, own)
    return pull


def _multiplier_in(
    problem: Problem,
    weights: Weights,
    Z: Sequence[Float[Tensor, "n _"]],
    M: Float[Tensor, "n nL"],
    layer: int,
    rows: slice,
    kinks: dict[int, Kinks],
) -> Float[Tensor, "n _"]:
    """Return M_l for l = `layer` in some rows, from M_L and Z_1 ... Z_L there."""
    for k in range(problem.depth - 1, layer - 1, -1):
        M = (M @ weights[k][:, : Z[k - 1].shape[1]]) * problem.activation.derivative(Z[k - 1])
        if k in kinks:
            kinks[k].put(M, rows)
    return M


def _pull(
    problem: Problem, weights: Weights, Lambda: Float[Tensor, "N nL"], layer: int, above: dict[int, Kinks]
) -> tuple[Float[Tensor, "n d"], Kinks | None]:
    """Return M_l^T Zs_{l-1} with the given slopes above layer l = `layer`, and its kinks."""
    kink = 1e-4  # z_ik is on the kink when it is at most this part of |Zs_i| |w_k|: solvers and trainings come so near
    W, parts_with_kinks = weights[layer - 1], []
    pull = torch.zeros_like(W)
    for rows, part in parts_of(problem):
        Z = preactivations(part, weights)
        inputs = inputs_from(part, Z)
        M = _multiplier_in(problem, weights, Z, Lambda[rows], min(layer + 1, problem.depth), rows, above)
        if layer < problem.depth:
            own = Z[layer - 1]
            over, slopes = M @ weights[layer][:, : own.shape[1]], problem.activation.derivative(own)
            M = slopes * over
            if not problem.activation.is_linear:
                on = own.abs() <= kink * torch.outer(inputs[layer - 1].norm(dim=1), W.norm(dim=1))
                places = on.nonzero(as_tuple=True)
                parts_with_kinks.append(Kinks(places[0] + rows.start, places[1], over[places], slopes[places]))
        pull += M.T @ inputs[layer - 1]
    return pull, _joined(parts_with_kinks) if parts_with_kinks else None


def _joined(parts: list[Kinks]) -> Kinks:
    """Return all kinks but those of neurons with too many samples on their kink."""
    fields = ([getattr(part, name) for part in parts] for name in ("rows", "neurons", "above", "slopes"))
    kinks = Kinks(*(torch.cat(values) for values in fields))
    return kinks if len(kinks.rows) <= MOST else kinks[kinks.neurons.bincount()[kinks.neurons] <= MOST]


def _with_best_slopes(
    problem: Problem, weights: Weights, layer: int, pulled: Tensor, pull: Tensor, kinks: Kinks
) -> Kinks:
    """Return the slopes at kinks that bring `pull`, changed in place, nearest to `pulled`."""
    order, slopes = kinks.neurons.argsort(stable=True), kinks.slopes.clone()
    for mine in order.split(kinks.neurons.bincount().tolist()):
        if not len(mine):
            continue
        k, own = int(kinks.neurons[mine[0]]), kinks[mine]
        Zs = carried(problem, weights[: layer - 1], with_bias(problem.X[own.rows], problem.beta))
        columns = Zs.T * own.above
        free = pull[k] - columns @ own.slopes
        target, bounds = pulled[k] - free, (problem.activation.slope, 1.0)
        best = scipy.optimize.lsq_linear(columns.cpu().numpy(), target.cpu().numpy(), bounds=bounds)
        slopes[mine] = torch.as_tensor(best.x, dtype=slopes.dtype, device=slopes.device)
        pull[k] = free + columns @ slopes[mine]
    return Kinks(kinks.rows, kinks.neurons, kinks.above, slopes)
