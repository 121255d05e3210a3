"""The network that a question is about, as somebody gives it."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch

from covopt.answer.result import Result
from covopt.data.networks import Network, as_network, read_network
from covopt.model.activation import Activation
from covopt.model.problem import as_matrix
from covopt.model.wording import FREE
from covopt.runtime.errors import ProblemError, shown


def weights_of(net: object, beta: float, X: object = None) -> tuple[float | None, Sequence[object], torch.dtype]:
    """The activation's slope where the source tells it, the weights, and the numbers that they came in.

    Args:
        net: a Result, a file, a module, a state dict, or arrays.
        beta: the amount of bias.
        X: inputs (N, n_0) at which a module must answer as its weights do.
    """
    if isinstance(net, Result):
        return net.problem.activation.slope, net.weights, net.weights[0].dtype if net.weights else torch.float64
    if isinstance(net, (str, os.PathLike)):
        found: Network = read_network(net, beta)
    else:
        asked = isinstance(net, torch.nn.Module) and X is not None
        found = as_network(net, beta, as_matrix(X, "X", None) if asked else None)
    return found.slope, found.weights, found.stored


def agreed_activation(asked: str | Activation | None, slope: float | None) -> Activation:
    """The activation that is asked for, or the network's own.

    Raises:
        ProblemError: the network has another one.
    """
    if asked is None:
        return Activation(slope or 0.0)
    chosen = Activation.parse(asked)
    if slope is not None and slope != chosen.slope:
        own = Activation(slope).name
        raise ProblemError(f"The network's activation is {own}, not {chosen.name}; leave the activation out.")
    return chosen


def amount_of_bias(bias: float | str, decay: str) -> float | str:
    """The amount of bias that both options say.

    Raises:
        ProblemError: they contradict each other, or the decay is unknown.
    """
    if decay not in ("all", "weights"):
        raise ProblemError(f"The decay is {shown(decay)}; use all, or weights for biases that the penalty is not on.")
    if decay == "all":
        return bias
    if bias not in (1.0, FREE):
        raise ProblemError("With the decay weights biases are free, and have no amount; leave the bias out.")
    return FREE
