"""The kinds of biases of a problem: penalised, free of the penalty, and free beside a free linear skip.

A kind says which weights the penalty counts and what the last layer sees, and, for two layers, where dual points lie
and on which inputs a neuron has no bias (MATH.md section 4): with a free output bias D(Lambda) is finite only where
Lambda^T 1 = 0, and with a free skip only where Lambda^T X = 0 too. A neuron with a free bias b is then strongest at a
breakpoint b = -x_j^T w, where its inputs are X - 1 x_j^T.

Weights W = [A, b] (n, d + 1) map the values S (N, d) of the layer below to Z = S A^T + beta 1 b^T. The lightest weights
that do so are a least-squares problem, whose two sides depend on the kind of bias:

* penalised: |A|^2 + |b|^2 counts, so W^T = [S, beta 1]^+ Z;
* free: |A|^2 counts alone. With H = I - 11^T / N, A^T = (H S)^+ H Z, and b is the mean of Z - S A^T.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.psd import RankRule
from covopt.linalg.pseudo_inverse import least_squares
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

    def reduced(self, Z: Float[Tensor, "... N n"]) -> Float[Tensor, "... N n"]:
        """Return the part of a layer's outputs that penalised weights must produce."""
        return Z

    def reduced_inputs(self, S: Float[Tensor, "... N d"], beta: float) -> Float[Tensor, "... N k"]:
        """Return the inputs on which the penalised weights act."""
        return with_bias(S, beta)

    def reduced_covariance(self, K: Float[Tensor, "*b N N"]) -> Float[Tensor, "*b N N"]:
        """Return the covariance of `reduced(Z)` for K = Z Z^T, and of `reduced_inputs(S)` for K = Ks."""
        return K

    def lightest(
        self, S: Float[Tensor, "... N d"], Z: Float[Tensor, "... N n"], beta: float, rule: RankRule
    ) -> Float[Tensor, "... n k"]:
        """Return the lightest W that maps S to Z, or to the nearest outputs where no W gives Z."""
        return least_squares(with_bias(S, beta), Z, rule).mT


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

    def reduced(self, Z: Float[Tensor, "... N n"]) -> Float[Tensor, "... N n"]:
        """Return H Z; columns that are constant up to rounding become 0."""
        moved = Z - Z.mean(dim=-2, keepdim=True)
        rounding = 4.0 * torch.finfo(Z.dtype).eps * Z.detach().abs().amax(dim=-2, keepdim=True)
        return torch.where(moved.detach().abs().amax(dim=-2, keepdim=True) > rounding, moved, 0.0)

    def reduced_inputs(self, S: Float[Tensor, "... N d"], beta: float) -> Float[Tensor, "... N k"]:
        return self.reduced(S)

    def reduced_covariance(self, K: Float[Tensor, "*b N N"]) -> Float[Tensor, "*b N N"]:
        """Return H K H."""
        half = K - K.mean(dim=-2, keepdim=True)
        return half - half.mean(dim=-1, keepdim=True)

    def lightest(
        self, S: Float[Tensor, "... N d"], Z: Float[Tensor, "... N n"], beta: float, rule: RankRule
    ) -> Float[Tensor, "... n k"]:
        V = least_squares(self.reduced(S), self.reduced(Z), rule)
        return torch.cat([V, (Z - S @ V).mean(dim=-2, keepdim=True)], dim=-2).mT


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
