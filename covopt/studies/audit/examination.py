"""Examine the weights, and each hidden layer at the end of further training."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.psd import thin
from covopt.model.passes import all_outputs, has_many, inputs_triangle, layer_at, parts_of
from covopt.model.problem import Problem
from covopt.model.subgradient import multiplier, residuals
from covopt.model.weights import Weights, evaluate
from covopt.runtime.loop import Budget, Certificate
from covopt.solvers.attempt import SolveOptions
from covopt.solvers.deep.blocks import solve_block
from covopt.solvers.deep.further_training import train_further
from covopt.solvers.deep.layers import relative_gap
from covopt.solvers.deep.missing_neuron import MissingNeuron, find_missing_neuron, find_missing_on_many
from covopt.solvers.deep.pruning import parts

LEAST = 0.4
"""Minimum seconds of the search for missing neurons, also if the budget is spent."""


@dataclass(frozen=True)
class Examined:
    """One hidden layer at the end of further training.

    Attributes:
        gap, certificate: of the layer's block, relative to the loss; None and none if nothing is proved.
        escape: the best neuron that a search found; None if the multiplier is not determined.
        grown: the network with it, after further training (not on many samples); None if no size of it lowers the loss.
        solved: the loss after the layer's block was solved; None if it was not.
    """

    gap: float | None
    certificate: Certificate
    escape: MissingNeuron | None
    grown: list[Tensor] | None
    solved: float | None


def examine(
    problem: Problem,
    weights: Weights,
    proved: tuple[float | None, Certificate],
    options: SolveOptions,
) -> list[Examined]:
    """Find each hidden layer's missing neuron, and its block's gain (not on many samples).

    Args:
        problem: data, loss and penalty.
        weights: the network at the end of further training.
        proved: the solver's bound and its kind, which hold for the only block at depth 2.
        options: of the blocks' solves, which are left out once the budget is spent.
    """
    budget, seed, many = options.budget, options.seed, has_many(problem, weights)
    Lambda, layers = multiplier(problem, weights), range(1, problem.depth)
    if Lambda is not None and not bool(Lambda.isfinite().all()):
        Lambda = None
    if Lambda is None:
        escapes: list[MissingNeuron | None] = [None for _ in layers]
    elif many:
        escapes = [find_missing_on_many(problem, weights, layer, Lambda=Lambda, seed=seed) for layer in layers]
    else:
        escapes = _searched(problem, weights, Lambda, budget, seed)
    if many:
        grown = [e.network(problem, weights) if e is not None and e.size > 0.0 else None for e in escapes]
    else:
        grown = _grown(problem, weights, escapes, budget.pace())
    examined: list[Examined] = []
    for layer in reversed(layers):
        escape, (lower, certificate), solved = escapes[layer - 1], proved, None
        if problem.depth > 2:
            lower, certificate = None, Certificate.NONE
            if not (budget.spent() or problem.free or many):
                share = replace(budget, time_limit=budget.seconds() + budget.remaining() / layer)
                block = solve_block(problem, weights, layer, replace(options, budget=share))
                solved = evaluate(problem, block.weights).total
                if block.proof is not None:
                    lower, certificate = block.proof.lower, block.proof.kind
        gap = relative_gap(problem, weights, layer, lower)
        certificate = Certificate.NONE if gap is None else certificate
        examined.append(Examined(gap, certificate, escape, grown[layer - 1], solved))
    return examined[::-1]


def _searched(
    problem: Problem, weights: Weights, Lambda: Float[Tensor, "N nL"], budget: Budget, seed: int
) -> list[MissingNeuron | None]:
    """Search for the best neuron of each hidden layer, in equal shares of the remaining time."""
    neurons: list[MissingNeuron | None] = []
    end = max(budget.time_limit, budget.seconds() + LEAST)
    for layer in range(1, problem.depth):
        share = budget.seconds() + (end - budget.seconds()) / (problem.depth - layer)
        stop = replace(budget, time_limit=share).spent
        neurons.append(find_missing_neuron(problem, weights, layer, Lambda=Lambda, seed=seed, stop=stop))
    return neurons


def _grown(
    problem: Problem, weights: Weights, escapes: Sequence[MissingNeuron | None], stop: Callable[[], bool]
) -> list[list[Tensor] | None]:
    """Train the networks that have one more neuron; None if no size of it lowers the loss."""
    paying = [k for k, escape in enumerate(escapes) if escape is not None and escape.size > 0.0]
    starts = [escape.network(problem, weights) for escape in escapes if escape is not None and escape.size > 0.0]
    ended = train_further(problem, starts, stop, passes=1)[0]
    grown: list[list[Tensor] | None] = [None] * len(escapes)
    for k, network in zip(paying, ended, strict=True):
        grown[k] = network
    return grown


def inert_parts(problem: Problem, weights: Weights) -> list[float]:
    """Return the share of each weight matrix that acts on nothing in the data.

    It is |W_l - Z_l^T (Zs_{l-1}^T)^+| / |W_l|: as Z_l = Zs_{l-1} W_l^T, the part of W_l outside the row space of
    Zs_{l-1}. With free biases it is that of A_l, W_l without its bias column, which acts on centred inputs.
    """
    ratios = []
    for layer, W in enumerate(weights, start=1):
        factor = thin(inputs_triangle(problem, weights, layer))
        whole = W[:, :-1] if problem.free else W  # the biases take the means
        rows = factor.V.T[factor.significant > 0]
        ratios.append(_relative(whole - (whole @ rows.T) @ rows, whole))
    return ratios


def residuals_of(problem: Problem, weights: Weights) -> list[float] | None:
    """Return |W_l - M_l^T Zs_{l-1}| / |W_l| for each l; None if undetermined or not finite."""
    Lambda = multiplier(problem, weights)
    if Lambda is None or not bool(Lambda.isfinite().all()):
        return None
    try:
        ratios = residuals(problem, weights, Lambda)
    except ValueError:  # a number overflows float64 on the way back through the layers
        return None
    return ratios if all(math.isfinite(ratio) for ratio in ratios) else None


def is_constant(problem: Problem, weights: Weights) -> bool:
    """Return True if all samples have the same outputs although their targets differ."""
    F, Y = all_outputs(problem, weights), problem.Y
    return bool((F[:1] == F).all()) and not bool((Y[:1] == Y).all())


def dead(problem: Problem, weights: Weights, layer: int) -> int:
    """Count hidden neurons with activation 0 on all samples, or without outgoing weights."""
    alive = torch.zeros(len(weights[layer - 1]), dtype=torch.bool, device=problem.X.device)
    for _, part in parts_of(problem):
        alive |= part.activation(layer_at(part, weights, layer)[1]).ne(0.0).any(dim=0)
    return int((~(alive & parts(weights, layer)[1].ne(0.0).any(dim=1))).sum())


def unbalanced(problem: Problem, weights: Weights, layer: int) -> tuple[float, float]:
    """Return how far incoming and outgoing norms differ, for the layer and its worst neuron.

    At a minimum they are equal ([J23a, Prop. 12]). Free biases do not count.
    """
    incoming, outgoing = parts(weights, layer)
    incoming, outgoing = (part.square().sum(dim=1) for part in (problem.penalised(incoming), outgoing))
    total, largest = float((incoming + outgoing).sum()), float((incoming + outgoing).max()) if len(incoming) else 0.0
    if total == 0.0:
        return 0.0, 0.0
    return abs(float((incoming - outgoing).sum())) / total, float((incoming - outgoing).abs().max()) / largest


def _relative(off: Tensor, whole: Tensor) -> float:
    """Return |off| / |whole| for matrices whose squares may overflow float64."""
    largest = float(whole.abs().max()) if whole.numel() else 0.0
    return float((off / largest).norm() / (whole / largest).norm()) if largest > 0.0 else 0.0
