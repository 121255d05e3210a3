"""The network that a user hands over, in any of the accepted forms."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from torch import Tensor

from covopt.answer.result import Result
from covopt.data.networks import Network, as_network, read_network
from covopt.model.activation import Activation
from covopt.model.reading import as_matrix
from covopt.model.wording import FREE
from covopt.runtime.errors import ProblemError, shown


@dataclass(frozen=True)
class Given:
    """A network that a user hands over."""

    weights: list[Tensor]  # W_1 ... W_L in float64, the bias column last
    slope: float | None = None  # the slope of the activation; None if it is unknown
    stored: torch.dtype = torch.float64  # the coarsest dtype in which the weights came

    def agreed(self, activation: str | Activation | None) -> Activation:
        """Return the requested activation, or the network's own; relu if that is unknown."""
        if activation is None:
            return Activation(self.slope or 0.0)
        chosen = Activation.parse(activation)
        if self.slope is not None and self.slope != chosen.slope:
            own = Activation(self.slope).name
            raise ProblemError(f"The network's activation is {own}, not {chosen.name}; leave the activation out.")
        return chosen


def network_of(net: object, beta: float, X: object = None) -> Given:
    """Read a Result, a file, a module, a state dict, or arrays; at X (N, n_0) a module must answer as they do."""
    if isinstance(net, Result):
        stored = net.weights[0].dtype if net.weights else torch.float64
        return Given([W.double() for W in net.weights], net.problem.activation.slope, stored)
    if isinstance(net, (str, os.PathLike)):
        network: Network = read_network(net, beta)
    else:
        is_module = isinstance(net, torch.nn.Module) and X is not None
        network = as_network(net, beta, as_matrix(X, "X", None) if is_module else None)
    return Given([torch.as_tensor(W, dtype=torch.float64) for W in network.weights], network.slope, network.stored)


def amount_of_bias(bias: float | str, decay: str) -> float | str:
    """Return the amount of bias on which both options agree."""
    if decay not in ("all", "weights"):
        raise ProblemError(f"The decay is {shown(decay)}; use all, or weights for unpenalised biases.")
    if decay == "all":
        return bias
    if bias not in (1.0, FREE):
        raise ProblemError("With the decay weights biases are free, and have no amount; leave the bias out.")
    return FREE
