"""The network that a user hands over, in any of the accepted forms."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch

from covopt.answer.result import Result
from covopt.data.networks import Network, as_network, read_network
from covopt.model.activation import Activation
from covopt.model.reading import as_matrix
from covopt.model.wording import FREE
from covopt.runtime.errors import ProblemError, shown


def weights_of(net: object, beta: float, X: object = None) -> tuple[float | None, Sequence[object], torch.dtype]:
    """Return the activation's slope (None if unknown), the weights, and their stored dtype.

    Args:
        net: a Result, a file, a module, a state dict, or arrays.
        beta: the amount of bias.
        X: inputs (N, n_0) at which a module must answer as its weights do.
    """
    if isinstance(net, Result):
        return net.problem.activation.slope, net.weights, net.weights[0].dtype if net.weights else torch.float64
    if isinstance(net, (str, os.PathLike)):
        network: Network = read_network(net, beta)
    else:
        is_module = isinstance(net, torch.nn.Module) and X is not None
        network = as_network(net, beta, as_matrix(X, "X", None) if is_module else None)
    return network.slope, network.weights, network.stored


def agreed_activation(activation: str | Activation | None, slope: float | None) -> Activation:
    """Return the requested activation, or the network's own.

    Raises:
        ProblemError: the network has another one.
    """
    if activation is None:
        return Activation(slope or 0.0)
    chosen = Activation.parse(activation)
    if slope is not None and slope != chosen.slope:
        own = Activation(slope).name
        raise ProblemError(f"The network's activation is {own}, not {chosen.name}; leave the activation out.")
    return chosen


def amount_of_bias(bias: float | str, decay: str) -> float | str:
    """Return the amount of bias on which both options agree.

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
