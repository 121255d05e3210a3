"""The kinds of biases of a problem: penalised, free of the penalty, and free beside a free linear skip.

A kind says which weights the penalty counts and what the last layer sees, and, for two layers, where dual points lie
and on which inputs a neuron has no bias (MATH.md section 4): with a free output bias D(Lambda) is finite only where
Lambda^T 1 = 0, and with a free skip only where Lambda^T X = 0 too. A neuron with a free bias b is then strongest at a
breakpoint b = -x_j^T w, where its inputs are X - 1 x_j^T.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.rounding import EPS
from covopt.model.loss import Loss
from covopt.model.scalars import read_beta
from covopt.model.wording import FREE
from covopt.runtime.errors import ProblemError
from covopt.runtime.options import flag


def with_bias(Z: Float[Tensor, "*b N n"], beta: float) -> Float[Tensor, "*b N n+1"]:
    """Return [Z, beta 1]: the columns of Z and the bias column."""
    return torch.cat([Z, Z.new_full((*Z.shape[:-1], 1), beta)], dim=-1)


def centred(values: Float[Tensor, "N k"]) -> Float[Tensor, "N k"]:
    """Return H V, the columns with their means removed."""
    return values - values.mean(dim=0)


@dataclass(frozen=True)
class View:
    """The inputs (N, k) as neurons without a bias see them.

    `origin` is the input from where they are seen (n_0,); None for inputs with their bias column.
    """

    inputs: Float[Tensor, "N k"]
    origin: Float[Tensor, " n0"] | None = None

    @property
    def rounding(self) -> float:
        """Return the maximum error of |inputs|: each difference of two inputs is rounded once."""
        return 0.0 if self.origin is None else EPS * float(self.inputs.norm())

    def rows(self, V: Float[Tensor, "B k"]) -> Float[Tensor, "B d"]:
        """Return neurons of these directions as rows of hidden weights."""
        return V if self.origin is None else torch.cat([V, -(V @ self.origin)[:, None]], dim=1)


@dataclass(frozen=True)
class Penalised:
    """Biases that the penalty counts like every weight, with a column of beta >= 0."""

    def stated(self, beta: float) -> float | str:
        """Return the amount of bias as a user states it."""
        return beta

    def price(self, beta: float) -> float:
        """Return the amount that D(Lambda) pays for: its square times lam |Lambda^T 1|^2."""
        return beta

    def decayed(self, weights: Sequence[Float[Tensor, "_ _"]], inputs: int) -> list[Float[Tensor, "_ _"]]:
        """Return the part of each layer's weights that the penalty counts, as views."""
        return list(weights)

    def penalised(self, W: Float[Tensor, "*b n d"]) -> Float[Tensor, "*b n d"]:
        """Return weights (the last layer's without a skip), with 0 where they are unpenalised."""
        return W

    def skipped(self, X: Float[Tensor, "N n0"]) -> Float[Tensor, "N _"]:
        """Return the inputs that the last layer sees besides the last hidden one."""
        return X[:, :0]

    def free_columns(self, X: Float[Tensor, "N n0"]) -> Float[Tensor, "N k"]:
        """E: a normalised basis of the outputs that cost nothing; dual points are orthogonal to it."""
        return X[:, :0]

    def bent_part(self, slope: float) -> float:
        """Return the part of a neuron's norm that counts after unpenalised functions took theirs."""
        return 1.0

    def spanned(self, X: Float[Tensor, "N n0"], beta: float) -> Float[Tensor, "N d"]:
        """Return inputs whose rank is that of each view."""
        return with_bias(X, beta)

    def number_of_views(self, samples: int) -> int:
        """Return how many views there are."""
        return 1

    def views(self, X: Float[Tensor, "N n0"], beta: float) -> Iterator[View]:
        """Yield views such that each neuron attains its maximum on one of them."""
        yield View(with_bias(X, beta))


@dataclass(frozen=True)
class Free:
    """Biases that the penalty does not count."""

    def stated(self, beta: float) -> float | str:
        return FREE

    def price(self, beta: float) -> float:
        return 0.0

    def decayed(self, weights: Sequence[Float[Tensor, "_ _"]], inputs: int) -> list[Float[Tensor, "_ _"]]:
        return [W[:, :-1] for W in weights]

    def penalised(self, W: Float[Tensor, "*b n d"]) -> Float[Tensor, "*b n d"]:
        return torch.cat([W[..., :-1], torch.zeros_like(W[..., -1:])], dim=-1)

    def skipped(self, X: Float[Tensor, "N n0"]) -> Float[Tensor, "N _"]:
        return X[:, :0]

    def free_columns(self, X: Float[Tensor, "N n0"]) -> Float[Tensor, "N k"]:
        E = X.new_ones(len(X), 1)
        return E / E.norm(dim=0)

    def bent_part(self, slope: float) -> float:
        return 1.0

    def spanned(self, X: Float[Tensor, "N n0"], beta: float) -> Float[Tensor, "N d"]:
        return centred(X)

    def number_of_views(self, samples: int) -> int:
        return samples

    def views(self, X: Float[Tensor, "N n0"], beta: float) -> Iterator[View]:
        return (View(X - row, row) for row in X)


@dataclass(frozen=True)
class FreeWithSkip(Free):
    """Free biases beside a linear function of the inputs, which the penalty does not count either."""

    def decayed(self, weights: Sequence[Float[Tensor, "_ _"]], inputs: int) -> list[Float[Tensor, "_ _"]]:
        *below, last = super().decayed(weights, inputs)
        return [*below, last[:, : last.shape[1] - inputs]]

    def skipped(self, X: Float[Tensor, "N n0"]) -> Float[Tensor, "N _"]:
        return X

    def free_columns(self, X: Float[Tensor, "N n0"]) -> Float[Tensor, "N k"]:
        """Return the constant 1 and the centred inputs that are not constant, normalised."""
        varying = centred(X[:, (X - X[0]).any(dim=0)])
        E = torch.cat([X.new_ones(len(X), 1), varying / varying.abs().amax(dim=0)], dim=1)
        return E / E.norm(dim=0)

    def bent_part(self, slope: float) -> float:
        return 0.5 * (1.0 - slope)  # the linear half of sigma_a(t) = ((1 + a) t + (1 - a) |t|) / 2 is the skip's


Biases = Penalised | Free
PENALISED = Penalised()


def check_penalised(bias: object) -> None:
    """Raise a ProblemError for free biases, in a problem that does not support them."""
    if isinstance(bias, str) and bias == FREE:
        raise ProblemError("Free biases are not supported for this problem; give the amount of bias as a number.")


def read_biases(bias: object, skip: object, loss: Loss) -> Biases:
    """Check the amount of bias or "free", and whether a linear function is free too."""
    flag(skip, "skip")
    free = isinstance(bias, str) and bias == FREE
    if skip and not free:
        raise ProblemError("A free linear skip comes with free biases; set the bias to 'free', or leave the skip out.")
    if skip and loss.name not in ("mse", "interpolate"):
        raise ProblemError(f"A free linear skip is for mse and exact fits, not for the loss {loss.name}; leave it out.")
    return FreeWithSkip() if skip else Free() if free else PENALISED


def read_amount(bias: object) -> float:
    """Check an amount of bias, a number >= 0."""
    check_penalised(bias)
    return read_beta(bias)
