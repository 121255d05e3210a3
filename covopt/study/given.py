"""The network that a question is about, as somebody gives it."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch

from covopt.errors import ProblemError, shown
from covopt.io.networks import Network, as_network, read_network
from covopt.io.wording import FREE
from covopt.model.activation import Activation
from covopt.result import Result


def weights_of(net: object, beta: float) -> tuple[float | None, Sequence[object], torch.dtype]:
    """The activation's slope where the source tells it, the weights, and the numbers that they came in."""
    if isinstance(net, Result):
        return net.problem.activation.slope, net.weights, net.weights[0].dtype if net.weights else torch.float64
    found: Network = read_network(net, beta) if isinstance(net, (str, os.PathLike)) else as_network(net, beta)
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
