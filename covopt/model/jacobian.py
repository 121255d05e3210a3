"""Jacobians of a network at its samples, and its neural tangent kernel.

Their numbers neither overflow nor underflow.

    Jf(x) = A_L D_{L-1} A_{L-1} ... D_1 A_1,   D_l = diag(sigma'(Z_l(x))),

A_l = W_l without its bias column. On a kink, where an entry of Z_l is 0, sigma' is the slope a of `Activation`, as
everywhere in covopt.

**Scales.** Fifty layers may multiply to 10^3000. Every matrix is kept as values * 2^exponent: one exponent for each
layer of weights and of representations, and one for each sample of a Jacobian. Powers of two lose no digits, and
singular values come back as logarithms.

**What rounding may have moved.** An inner product of n terms is off by at most n u of its absolute terms, u = 2^-53.
With |sigma(z) - sigma(z')| <= |z - z'|, the representations of one sample are off by at most e_l, and its J by e_J:

    e_l = |A_l|_op e_{l-1} + n u |W_l|_F |Zs_{l-1}|,      e_J = sum_l n u |J(Z_l -> f)|_F |A_l|_F prod_{j<l} |A_j|_op.

A sample at which every neuron is farther from its kink than that is `regular`: the computed D_l are the true ones in a
neighbourhood, so that J is the Jacobian of the function there, and of every network that computes the same function.

Source: Higham, Accuracy and Stability of Numerical Algorithms, 3.1 and 3.5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from covopt.linalg.rounding import UNIT_ROUNDOFF, largest
from covopt.model.activation import Activation
from covopt.model.problem import with_bias
from covopt.model.weights import Weights

CHUNK = 2**22  # entries of the largest matrix of a chunk of samples: 32 MB in float64
DECOMPOSED = 2.0**-48  # the rounding of a singular value decomposition, as in certify/spectral.py
LOG_2 = math.log(2.0)


@dataclass(frozen=True)
class Scaled:
    """values * 2^exponent."""

    values: Float[Tensor, "*shape"]
    exponent: int

    @staticmethod
    def of(values: Float[Tensor, "*shape"], exponent: int = 0) -> Scaled:
        """Return the same numbers with the largest entry in [1/2, 1); zeros as they are."""
        shift = math.frexp(largest(values))[1]
        return Scaled(times_power(values, -shift), exponent + shift)

    def plain(self) -> Float[Tensor, "*shape"]:
        """Return the numbers themselves, infinite where float64 does not hold them."""
        return times_power(self.values, self.exponent)


def times_power(values: Float[Tensor, "*shape"], exponent: int | Int[Tensor, "..."]) -> Float[Tensor, "*shape"]:
    """Return values * 2^exponent, for exponents beyond those of float64 too."""
    power = exponent.cpu().numpy() if isinstance(exponent, Tensor) else exponent
    with np.errstate(over="ignore", under="ignore"):
        return torch.as_tensor(np.ldexp(values.cpu().numpy(), power), device=values.device)


@dataclass(frozen=True)
class Jacobians:
    """J(x) = values * 2^exponents of some samples, with what rounding may have moved it by."""

    values: Float[Tensor, "B nL n0"]  # (B, n_L, n_0), the largest entry of each in [1/2, 1)
    exponents: Int[Tensor, " B"]  # (B,)
    moved: Float[Tensor, " B"]  # |J - computed J|_F is at most moved * 2^exponents, (B,)

    def singular_values(self) -> tuple[Float[Tensor, "B r"], Float[Tensor, " B"]]:
        """Return the singular values of `values`, descending, and a bound on their rounding."""
        s = torch.linalg.svdvals(self.values)
        return s, self.moved + max(1, *self.values.shape[1:]) * DECOMPOSED * self.values.norm(dim=(1, 2))

    def logarithms(self, s: Float[Tensor, "B r"]) -> Float[Tensor, "B r"]:
        """Return the logarithms of singular values of J, from those of `values`; -inf for 0."""
        return s.clamp_min(0.0).log() + self.log_scale[:, None]

    @property
    def log_scale(self) -> Float[Tensor, " B"]:
        """Return log 2^exponents; without `double`, torch would compute it in float32."""
        return LOG_2 * self.exponents.double()

    def plain(self) -> Float[Tensor, "B nL n0"]:
        """Return the numbers themselves, infinite where float64 does not hold them."""
        return times_power(self.values, self.exponents[:, None, None])


class Passage:
    """A network at samples: representations, Jacobians and the kernel's trace.

    The weights W_1 ... W_L and the inputs X (N, n_0) are finite; beta is the amount of bias.
    """

    def __init__(self, weights: Weights, X: Float[Tensor, "N n0"], beta: float, activation: Activation) -> None:
        self.W = [Scaled.of(W.double()) for W in weights]
        self.beta, self.activation = beta, activation
        self.inputs = [_appended(Scaled(X.double(), 0), beta)]  # Zs_0 ... Zs_{L-1}, the bias column last
        self.Z: list[Scaled] = []  # Z_1 ... Z_L
        for layer, W in enumerate(self.W, start=1):
            Zs = self.inputs[-1]
            self.Z.append(Scaled.of(Zs.values @ W.values.T, Zs.exponent + W.exponent))
            if layer < len(self.W):
                self.inputs.append(_appended(Scaled(activation(self.Z[-1].values), self.Z[-1].exponent), beta))

    @property
    def samples(self) -> int:
        """Return N."""
        return len(self.inputs[0].values)

    @property
    def outputs(self) -> int:
        """Return n_L."""
        return len(self.W[-1].values)

    def jacobians(self) -> Iterator[Jacobians]:
        """Yield J(x) of all samples, a chunk at a time."""
        for rows in self._chunks():
            *_, last = self._behind(rows)
            yield last

    def backward(self) -> list[Float[Tensor, "N nL _"]]:
        """Return J(x -> f), J(Z_1 -> f), ..., J(Z_L -> f) of all samples, infinite where float64 does not hold them."""
        chunks = [list(self._behind(rows))[::-1] for rows in self._chunks()]
        return [torch.cat([J.plain() for J in layer]) for layer in zip(*chunks, strict=True)]

    @cached_property
    def kernel_trace(self) -> Float[Tensor, " N"]:
        """Return log Tr Theta(x, x), -inf where the trace is 0.

        Tr Theta(x, x) = sum_l |Zs_{l-1}(x)|^2 |J(Z_l -> f)(x)|_F^2. It is |df/dW|_F^2, with the bias columns of W;
        [J23b] prints it without their beta^2.
        """
        sizes = [Zs.values.norm(dim=1).log() + LOG_2 * Zs.exponent for Zs in self.inputs]
        terms = []
        for rows in self._chunks():
            behind = zip(reversed(sizes), self._behind(rows), strict=False)  # J(x -> f) is not needed
            logs = [size[rows] + (J.values.norm(dim=(1, 2)).log() + J.log_scale) for size, J in behind]
            terms.append(2.0 * torch.stack(logs[::-1]))
        return torch.logsumexp(torch.cat(terms, dim=1), dim=0)

    def regular(self) -> Bool[Tensor, " N"]:
        """Return True at samples where every neuron is farther from its kink than its rounding."""
        fine = torch.ones(self.samples, dtype=torch.bool, device=self.inputs[0].values.device)
        if self.activation.is_linear:
            return fine
        log_off = torch.full((self.samples,), -math.inf, dtype=torch.float64, device=fine.device)
        underflow = 2.0**-1000  # a neuron as near to its kink may be there as a product fell below float64's range
        for layer, (W, Zs, Z) in enumerate(zip(self.W[:-1], self.inputs[:-1], self.Z[:-1], strict=True), start=1):
            rows = W.values.norm(dim=1)
            size = Zs.values.norm(dim=1)
            carried = torch.exp(log_off - LOG_2 * Zs.exponent)  # e_{l-1}, in units of Zs
            off = (carried + _charge(W.values.shape[1]) * size)[:, None] * rows
            # Not `<=`: what overflowed is near as well.
            near = ~(Z.values.abs() * 2.0 ** (Z.exponent - Zs.exponent - W.exponent) > off + underflow)
            if layer == 1:
                near &= W.values[:, :-1].ne(0.0).any(dim=1)
            elif bool(near.any()):
                # Neurons without any input are locally constant 0.
                near &= Zs.values.ne(0.0).double() @ W.values.ne(0.0).double().T > 0.0
            fine &= ~near.any(dim=1)
            grown = self._operator_norms[layer - 1] * carried + rows.norm() * _charge(W.values.shape[1]) * size
            if self.activation.slope == 0.0:  # neurons that are off contribute exactly 0
                grown = torch.where((Z.values > 0.0).any(dim=1), grown, 0.0)
            log_off = grown.log() + LOG_2 * (Zs.exponent + W.exponent)
        return fine

    def _chunks(self) -> Iterator[slice]:
        widest = max(W.values.shape[1] for W in self.W)
        rows = max(1, CHUNK // max(1, self.outputs * widest))
        for start in range(0, self.samples, rows):
            yield slice(start, min(start + rows, self.samples))

    @cached_property
    def _operator_norms(self) -> list[float]:
        """Return upper bounds on |A_l|_op in the units of W_l."""
        norms = [(A, torch.linalg.matrix_norm(A, 2) if A.numel() else 0.0) for A in (W.values[:, :-1] for W in self.W)]
        return [float(norm) * (1.0 + max(A.shape) * DECOMPOSED) for A, norm in norms]

    def _behind(self, rows: slice) -> Iterator[Jacobians]:
        """Yield J(Z_L -> f), ..., J(Z_1 -> f), J(x -> f) of these samples."""
        below = [0.0]  # log of prod_{j<l} |A_j|_op
        for W, norm in zip(self.W, self._operator_norms, strict=True):
            below.append(below[-1] + (math.log(norm) + LOG_2 * W.exponent if norm > 0.0 else -math.inf))
        count = rows.stop - rows.start
        like = self.W[-1].values
        J = torch.eye(self.outputs, dtype=like.dtype, device=like.device).expand(count, -1, -1)
        exponents = torch.zeros(count, dtype=torch.int64, device=like.device)
        log_off = torch.full((count,), -math.inf, dtype=like.dtype, device=like.device)
        yield Jacobians(J, exponents, torch.zeros_like(log_off))
        for layer in range(len(self.W), 0, -1):
            W = self.W[layer - 1]
            A = W.values[:, :-1]
            lost = _charge(len(A)) * J.norm(dim=(1, 2)) * A.norm()
            log_lost = lost.log() + LOG_2 * (exponents + W.exponent).double() + below[layer - 1]
            log_off = torch.logaddexp(log_off, log_lost)
            J, exponents = _normalised(J @ A, exponents + W.exponent)
            if layer > 1:
                J = J * self.activation.derivative(self.Z[layer - 2].values[rows])[:, None, :]
                J, exponents = _normalised(J, exponents)
            # Between layers `log_off` is what reaches x; what is passed on there is not used with it.
            yield Jacobians(J, exponents, torch.exp(log_off - LOG_2 * exponents.double()))


def _appended(S: Scaled, beta: float) -> Scaled:
    """Return [S, beta 1], scaled."""
    exponent = math.frexp(beta)[1] if beta > 0.0 else -(10**9)
    if (size := largest(S.values)) > 0.0:
        exponent = max(exponent, S.exponent + math.frexp(size)[1])
    elif beta == 0.0:
        exponent = S.exponent
    b = float(times_power(torch.tensor(beta, dtype=torch.float64), -exponent))
    return Scaled(with_bias(times_power(S.values, S.exponent - exponent), b), exponent)


def _normalised(J: Float[Tensor, "B m n"], exponents: Int[Tensor, " B"]) -> tuple[Tensor, Tensor]:
    """Return J over powers of two, largest entries in [1/2, 1), and exponents that undo it."""
    if not J.numel():
        return J, exponents
    shift = torch.frexp(J.abs().amax(dim=(1, 2))).exponent.to(torch.int64)
    return times_power(J, -shift[:, None, None]), exponents + shift


def _charge(terms: int) -> float:
    """Return 8 times the bounds in the text: for terms of second order and the rounding of the charges themselves."""
    return 8.0 * (terms + 2) * UNIT_ROUNDOFF


def kernel(passage: Passage) -> Float[Tensor, "k k"]:
    """Return the neural tangent kernel at the samples, (N n_L, N n_L).

    The outputs of one sample are neighbours. Theta(x, y) = df/dW(x) df/dW(y)^T = sum_l <Zs_{l-1}(x), Zs_{l-1}(y)> J(Z_l
    -> f)(x) J(Z_l -> f)(y)^T.
    """
    count = passage.samples * passage.outputs
    total = passage.W[0].values.new_zeros(count, count)
    for J, Zs in zip(passage.backward()[1:], passage.inputs, strict=True):
        covariance = Zs.plain() @ Zs.plain().T
        outer = (flat := J.flatten(0, 1)) @ flat.T
        total += covariance.repeat_interleave(passage.outputs, 0).repeat_interleave(passage.outputs, 1) * outer
    return total
