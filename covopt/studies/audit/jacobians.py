"""A network's Jacobians, spectra and neural tangent kernel at given inputs, as arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from covopt.answer.result import Result
from covopt.model.activation import Activation
from covopt.model.jacobian import Passage, Scaled, kernel
from covopt.model.problem import make_problem
from covopt.model.reading import as_matrix
from covopt.model.weights import check_network
from covopt.runtime.errors import ProblemError
from covopt.runtime.threads import fitted
from covopt.studies.audit.given import network_of


@dataclass(frozen=True)
class Spectra:
    """The singular values of a network by layer and as a function, in descending order.

    Attributes:
        jacobians: of the Jacobian at each of N inputs, (N, min(n_L, n_0)).
        weights: of A_1 ... A_L, the weights without their bias columns.
        representations: of Z_1 / sqrt N ... Z_L / sqrt N, the pre-activations at the N inputs.
    """

    jacobians: Float[np.ndarray, "N r"]
    weights: list[Float[np.ndarray, " _"]]
    representations: list[Float[np.ndarray, " _"]]


@fitted
def jacobians(
    net: object, X: object, *, bias: float | None = None, activation: str | Activation | None = None
) -> Float[np.ndarray, "N nL n0"]:
    """Return the Jacobian of a network at each input.

    >>> covopt.jacobians([[[1.0, 0.0]], [[2.0, 0.0]]], [[1.0], [-1.0]]).tolist()
    [[[2.0]], [[0.0]]]

    It is Jf(x) = A_L D_{L-1} A_{L-1} ... D_1 A_1 with D_l = diag(sigma'(Z_l(x))). On a kink, where an entry of Z_l is
    0, sigma' is the activation's slope for negative inputs (0 for ReLU).

    Args:
        net: a network as `validate` takes it: a module, a state dict, [W_1, ..., W_L], a file, or a Result.
        X: inputs (N, n_0).
        bias: beta, by which PyTorch's biases are divided; None: that of a Result, else 1.
        activation: relu, leaky:A or linear; None takes the network's own, relu if that is unknown.

    Returns:
        The Jacobians (N, n_L, n_0).

    Raises:
        DataError: the network cannot be read.
        ProblemError: the inputs do not fit the network, or float64 cannot hold the Jacobians.
    """
    return _array(torch.cat([J.plain() for J in _passage(net, X, bias, activation).jacobians()]))


@fitted
def spectra(
    net: object, X: object, *, bias: float | None = None, activation: str | Activation | None = None
) -> Spectra:
    """Return the singular values of a network's Jacobians, weights and representations, as in [J23a, Fig. 1].

    >>> answer = covopt.spectra([[[1.0, 0.0]], [[2.0, 0.0]]], [[1.0], [-1.0]])
    >>> answer.jacobians.tolist(), [layer.tolist() for layer in answer.weights]
    ([[2.0], [0.0]], [[1.0], [2.0]])

    Args:
        net, bias, activation: as for `jacobians`.
        X: inputs (N, n_0).

    Returns:
        All of them, not only those that count for a rank.

    Raises:
        DataError: the network cannot be read.
        ProblemError: the inputs do not fit the network, or float64 cannot hold the singular values.
    """
    passage = _passage(net, X, bias, activation)
    singular_values = [torch.exp(J.logarithms(J.singular_values()[0])) for J in passage.jacobians()]
    root = math.sqrt(passage.samples)
    return Spectra(
        jacobians=_array(torch.cat(singular_values)),
        weights=[_array(_singular_values(Scaled(W.values[:, :-1], W.exponent))) for W in passage.W],
        representations=[_array(_singular_values(Z) / root) for Z in passage.Z],
    )


@fitted
def ntk(
    net: object, X: object, *, bias: float | None = None, activation: str | Activation | None = None
) -> Float[np.ndarray, "N nL N nL"]:
    """Return the neural tangent kernel at all pairs of inputs, bias columns included.

    >>> covopt.ntk([[[1.0, 0.0]], [[2.0, 0.0]]], [[1.0]]).tolist()
    [[[[10.0]]]]

    Theta(x, y) = df/dW(x) df/dW(y)^T
        = sum_l (<S_{l-1}(x), S_{l-1}(y)> + beta^2) J(Z_l -> f)(x) J(Z_l -> f)(y)^T, S_0 = X.

    Args:
        net, bias, activation: as for `jacobians`; derivatives are by covopt's W_l, PyTorch's bias is beta W_l[:, -1].
        X: inputs (N, n_0).

    Returns:
        The kernel (N, n_L, N, n_L): entry [i, a, j, b] is <d f_a(x_i) / dW, d f_b(x_j) / dW>.

    Raises:
        DataError: the network cannot be read.
        ProblemError: the inputs do not fit the network, the kernel is too large, or float64 cannot hold it.

    Source: [J23b, Thm. 7], where the beta^2 of the bias columns is missing.
    """
    passage = _passage(net, X, bias, activation)
    size = passage.samples * passage.outputs
    most = 2**14  # rows; this kernel takes 2 GB
    if size > most:
        raise ProblemError(f"The kernel would have {size} rows; give at most {most // passage.outputs} inputs.")
    shape = (passage.samples, passage.outputs, passage.samples, passage.outputs)
    return _array(kernel(passage)).reshape(shape)


def _passage(net: object, X: object, bias: float | None, activation: str | Activation | None) -> Passage:
    beta = bias if bias is not None else net.problem.beta if isinstance(net, Result) else 1.0
    given = network_of(net, beta, X)
    inputs = as_matrix(X, "X", None).double()
    weights = [W.to(inputs.device) for W in given.weights]
    like = inputs.new_zeros(len(inputs), len(weights[-1]))
    problem = make_problem(inputs, like, depth=len(weights), bias=beta, activation=given.agreed(activation))
    check_network(problem, weights)
    return Passage(weights, inputs, problem.beta, problem.activation)


def _singular_values(A: Scaled) -> Tensor:
    return Scaled(torch.linalg.svdvals(A.values), A.exponent).plain()


def _array(values: Tensor) -> np.ndarray:
    if not bool(values.isfinite().all()):
        raise ProblemError(
            "What is asked of the network is beyond what float64 holds; divide its weights or X by a number."
        )
    return values.cpu().numpy()
