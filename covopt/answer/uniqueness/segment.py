"""Networks on the line between two optima: the cost is convex over mixtures of neurons, so all of them are optima."""

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
    """The network whose outputs are (1 - t) times those of `one` and t times those of `other`, two layers each.

    The neurons of the two side by side, scaled by (1 - t)^(1/2) and t^(1/2) in both layers, the output biases mixed: it
    costs at most (1 - t) times what `one` costs and t times what `other` costs. Where t is 0 or 1, one of the two.
    """
    if t in (0.0, 1.0):
        return [W.clone() for W in (one, other)[int(t)]]
    parts = [((1.0 - t) ** 0.5, one), (t**0.5, other)]
    bias = sum(size * size * W[1][:, -1:] for size, W in parts)
    hidden = torch.cat([size * W[0] for size, W in parts])
    return [hidden, torch.cat([*(size * W[1][:, :-1] for size, W in parts), torch.as_tensor(bias)], dim=1)]


def inner(problem: Problem, weights: Weights) -> list[Float[Tensor, "_ _"]]:
    """An optimum inside the set of all optima; the network itself where it is the only one.

    Raises:
        ProblemError: it is not decided whether there are others.
    """
    found = examine(problem, weights)
    if found.uniqueness.verdict == UNDECIDED:
        raise ProblemError(
            f"Whether there are other optima is not decided ({found.uniqueness.reason.rstrip('.')}); give the other"
            " network."
        )
    if found.uniqueness.verdict == UNIQUE or found.directions is None or found.outputs is None or found.bias is None:
        return [W.clone() for W in weights]
    used = columns_used(problem)
    sizes = np.sqrt(np.linalg.norm(found.outputs, axis=1, keepdims=True))
    hidden = np.zeros((len(sizes), problem.Xt.shape[1]))
    hidden[:, used] = sizes * found.directions[:, : len(used)]
    outer = np.hstack([(found.outputs / sizes).T, found.bias[:, None]])
    return [torch.from_numpy(W).to(problem.X.device) for W in (hidden, outer)]


def segment(problem: Problem, weights: Weights, other: Weights | None, steps: int) -> list[list[Tensor]]:
    """`steps` networks from one to the other, or to an optimum inside the set of all.

    Raises:
        ProblemError: another depth than two, fewer than two steps, or weights that do not fit the question.
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
