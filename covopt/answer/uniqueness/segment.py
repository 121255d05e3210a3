"""Optima on the line between two optima: the cost is convex over mixtures of neurons."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from covopt.answer.uniqueness.decide import examine
from covopt.answer.uniqueness.plane import columns_used
from covopt.answer.uniqueness.uniqueness import UNDECIDED, UNIQUE
from covopt.model.problem import Problem
from covopt.model.weights import Weights, check_network
from covopt.runtime.errors import ProblemError


def mixed(one: Weights, other: Weights, t: float) -> list[Float[Tensor, "_ _"]]:
    """Return a two-layer network with outputs (1 - t) times those of `one` plus t of `other`.

    It has the neurons of both, scaled by (1 - t)^(1/2) and t^(1/2) in both layers, and mixed output biases. It costs at
    most (1 - t) times the cost of `one` plus t times that of `other`. For t = 0 or 1 it is one of the two.
    """
    if t in (0.0, 1.0):
        return [W.clone() for W in (one, other)[int(t)]]
    parts = [((1.0 - t) ** 0.5, one), (t**0.5, other)]
    bias = sum(size * size * W[1][:, -1:] for size, W in parts)
    hidden = torch.cat([size * W[0] for size, W in parts])
    return [hidden, torch.cat([*(size * W[1][:, :-1] for size, W in parts), torch.as_tensor(bias)], dim=1)]


def inner(problem: Problem, weights: Weights) -> list[Float[Tensor, "_ _"]]:
    """Return an optimum inside the set of all optima, or the network if it is the only one.

    Raises:
        ProblemError: it is not decided whether there are others.
    """
    facts = examine(problem, weights)
    if facts.uniqueness.verdict == UNDECIDED:
        raise ProblemError(
            f"Whether there are other optima is not decided ({facts.uniqueness.reason.rstrip('.')}); give the other"
            " network."
        )
    if facts.uniqueness.verdict == UNIQUE or facts.directions is None or facts.outputs is None or facts.bias is None:
        return [W.clone() for W in weights]
    used = columns_used(problem)
    sizes = np.sqrt(np.linalg.norm(facts.outputs, axis=1, keepdims=True))
    hidden = np.zeros((len(sizes), problem.Xt.shape[1]))
    hidden[:, used] = sizes * facts.directions[:, : len(used)]
    outer = np.hstack([(facts.outputs / sizes).T, facts.bias[:, None]])
    return [torch.from_numpy(W).to(problem.X.device) for W in (hidden, outer)]


def segment(problem: Problem, weights: Weights, other: Weights | None, steps: int) -> list[list[Tensor]]:
    """Return `steps` networks from one to `other`, or to an optimum inside the set of all.

    Raises:
        ProblemError: another depth than two, fewer than two steps, or weights that do not fit the problem.
    """
    if problem.depth != 2:
        raise ProblemError(
            f"Mixtures are of networks of two layers, and these have {problem.depth}; ask this of depth 2."
        )
    if steps < 2:
        raise ProblemError(f"The number of steps is {steps}; give a whole number of at least 2.")
    if other is None:
        other = inner(problem, weights)
    check_network(problem, other)
    return [mixed(weights, other, float(t)) for t in np.linspace(0.0, 1.0, steps)]
