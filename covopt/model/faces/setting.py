"""The shared part of the three faces: reading arguments, and the inputs of a layer.

**The two kinds of biases** change the inputs, targets and weights of a layer.

Weights W = [A, b] (n, d + 1) map the values S (N, d) of the layer below to Z = S A^T + beta 1 b^T. The lightest weights
that do so are a least-squares problem, whose two sides depend on the kind of bias:

* penalised: |A|^2 + |b|^2 counts, so W^T = [S, beta 1]^+ Z;
* free: |A|^2 counts alone. With H = I - 11^T / N, A^T = (H S)^+ H Z, and b is the mean of Z - S A^T.

Leading dimensions of every array are a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from covopt.linalg.psd import RankRule
from covopt.linalg.pseudo_inverse import least_squares
from covopt.model.activation import Activation
from covopt.model.loss import Loss
from covopt.model.problem import Problem, make_problem, with_bias
from covopt.model.reading import as_matrix, as_numbers
from covopt.model.scalars import as_number, read_beta
from covopt.model.wording import FREE
from covopt.runtime.errors import ProblemError, counted, shown


@dataclass(frozen=True)
class Bias:
    """Biases that the penalty counts like every weight, with a column of `amount` = beta >= 0."""

    amount: float

    @property
    def column(self) -> str:
        """Return the bias column as a message names it, after a comma; empty without one."""
        return f", {self.amount:g}" if self.amount else ""

    def reduce(self, A: Float[Tensor, "... N n"]) -> Float[Tensor, "... N n"]:
        """Return the part of a layer's outputs that penalised weights must produce."""
        return A

    def inputs(self, S: Float[Tensor, "... N d"]) -> Float[Tensor, "... N k"]:
        """Return the inputs on which the penalised weights act."""
        return with_bias(S, self.amount)

    def reduce_covariance(self, K: Float[Tensor, "*b N N"]) -> Float[Tensor, "*b N N"]:
        """Return the covariance of `reduce(Z)` for K = Z Z^T, and of `inputs(S)` for K = Ks."""
        return K

    def penalised(self, W: Float[Tensor, "*b n k"]) -> Float[Tensor, "*b n k2"]:
        """Return the columns of W that the penalty counts."""
        return W

    def weights(
        self, S: Float[Tensor, "... N d"], Z: Float[Tensor, "... N n"], rule: RankRule
    ) -> Float[Tensor, "... n k"]:
        """Return the lightest W that maps S to Z, or to the nearest outputs where no W gives Z."""
        return least_squares(self.inputs(S), Z, rule).mT


@dataclass(frozen=True)
class FreeBias(Bias):
    """Biases that the penalty does not count; the column holds ones."""

    amount: float = 1.0

    def reduce(self, A: Float[Tensor, "... N n"]) -> Float[Tensor, "... N n"]:
        """Return H A; columns that are constant up to rounding become 0."""
        centred = A - A.mean(dim=-2, keepdim=True)
        rounding = 4.0 * torch.finfo(A.dtype).eps * A.detach().abs().amax(dim=-2, keepdim=True)
        return torch.where(centred.detach().abs().amax(dim=-2, keepdim=True) > rounding, centred, 0.0)

    def inputs(self, S: Float[Tensor, "... N d"]) -> Float[Tensor, "... N k"]:
        return self.reduce(S)

    def reduce_covariance(self, K: Float[Tensor, "*b N N"]) -> Float[Tensor, "*b N N"]:
        """Return H K H."""
        half = K - K.mean(dim=-2, keepdim=True)
        return half - half.mean(dim=-1, keepdim=True)

    def penalised(self, W: Float[Tensor, "*b n k"]) -> Float[Tensor, "*b n k2"]:
        return W[..., :-1]

    def weights(
        self, S: Float[Tensor, "... N d"], Z: Float[Tensor, "... N n"], rule: RankRule
    ) -> Float[Tensor, "... n k"]:
        V = least_squares(self.inputs(S), self.reduce(Z), rule)
        return torch.cat([V, (Z - S @ V).mean(dim=-2, keepdim=True)], dim=-2).mT


OUT_OF_RANGE = {torch.float64: 1e-6, torch.float32: 1e-3}
"""Part of the norm of Z_l that may lie outside the range of Zs_{l-1}: rounding, and steps of finite differences."""

Matrix = Float[Tensor, "*b _ _"]


@dataclass(frozen=True)
class LossValue:
    """The regularised loss at one point, or at each point of a batch.

    >>> loss = covopt.loss_of_weights([[1.0], [2.0]], [[1.0], [2.0]], [[[1.0, 0.0]], [[1.0, 0.0]]], lam=0.1)
    >>> loss.total, loss.fit, loss.norm
    (0.2, 0.0, 2.0)

    Attributes:
        total: C(Z_L) + lam |W|^2; |W|^2 alone for the loss `interpolate`.
        fit: C(Z_L); 0 for `interpolate`, where Z_L = Y is the caller's constraint.
        norm: |W|^2, the sum of the squares of the penalised weights, or what stands in its place.
        residual: max |Z_L - Y|.

    Each is a float (an array (B,) for a batch of B), or a tensor that gradients pass through where tensors came in.
    """

    total: float | NDArray[np.float64] | Tensor
    fit: float | NDArray[np.float64] | Tensor
    norm: float | NDArray[np.float64] | Tensor
    residual: float | NDArray[np.float64] | Tensor


@dataclass(frozen=True)
class Setting:
    """Inputs X (N, n_0), biases and activation: what computes representations from weights and back.

    `tensors` is True if tensors came in, so that tensors go out.
    """

    X: Float[Tensor, "N n0"]
    bias: Bias
    activation: Activation
    tensors: bool

    @classmethod
    def read(cls, X: object, bias: object, activation: str | Activation, variables: object) -> Setting:
        """Check X and the options; dtype and device follow the first tensor among the variables, then X."""
        several = variables if isinstance(variables, Sequence) else [variables]
        like = next((value for value in (*several, X) if isinstance(value, Tensor)), None)
        inputs = as_matrix(X, "X", None if like is None else like.device)
        dtype = like.dtype if like is not None and like.dtype == torch.float32 else torch.float64
        return cls(inputs.to(dtype), read_bias(bias), Activation.parse(activation), like is not None)

    def matrices(self, values: object, name: str) -> list[Matrix]:
        """Read matrices `name`1, `name`2, ..., each (rows, columns) or a batch (B, rows, columns)."""
        if isinstance(values, (Tensor, np.ndarray)) or not isinstance(values, Sequence):
            raise ProblemError(f"{name} is {shown(values)}; give a list of matrices, one for each layer.")
        read = [self.matrix(value, f"{name}{layer}") for layer, value in enumerate(values, start=1)]
        if len({A.shape[:-2] for A in read}) > 1:
            raise ProblemError(f"The layers of {name} are batches of different sizes; give one size for all.")
        return read

    def matrix(self, value: object, name: str) -> Matrix:
        """Read one matrix or batch; tensors keep their gradients."""
        array = value if isinstance(value, Tensor) else as_numbers(value, name)
        if array.is_complex() or array.layout != torch.strided:
            raise ProblemError(f"{name} is complex or sparse; give a dense matrix of real numbers.")
        array = array.to(self.X)
        if array.ndim not in (2, 3):
            raise ProblemError(
                f"{name} has {array.ndim} dimensions; give a matrix, or a batch of matrices with three dimensions."
            )
        if not torch.isfinite(array).all():
            raise ProblemError(f"{name} has NaN or infinite entries; remove them.")
        return array

    def representations(self, Z: object) -> list[Float[Tensor, "*b N _"]]:
        """Read Z_1, ..., Z_L, each (N, n_l) or a batch (B, N, n_l)."""
        read = self.matrices(Z, "Z")
        if not read:
            raise ProblemError("Z is empty; give one matrix of representations for each layer.")
        for layer, z in enumerate(read, start=1):
            if z.shape[-2] != len(self.X):
                raise ProblemError(
                    f"Z{layer} has {counted(z.shape[-2], 'row')}, but X has {len(self.X)}; give a row for each sample."
                )
        return read

    def weights(
        self, Z: Sequence[Float[Tensor, "*b N _"]], rule: RankRule
    ) -> tuple[list[Float[Tensor, "*b _ _"]], list[Float[Tensor, "*b N _"]]]:
        """Return the lightest weights of each layer, and the error R_l = Z_l - Zs_{l-1} W_l^T."""
        W, R = [], []
        values = [self.X, *(self.activation(z) for z in Z[:-1])]
        for S, z in zip(values, Z, strict=True):
            W.append(self.bias.weights(S, z, rule))
            R.append(z - with_weights(self.bias, S, W[-1]))
        return W, R

    def check_range(self, Z: Sequence[Float[Tensor, "*b N _"]], R: Sequence[Float[Tensor, "*b N _"]]) -> None:
        """Raise a ProblemError unless each Z_l lies in the range of Zs_{l-1}; R_l is the part outside."""
        for layer, (z, r) in enumerate(zip(Z, R, strict=True), start=1):
            sizes = z.detach().norm(dim=(-2, -1))
            outside = r.detach().norm(dim=(-2, -1)) / torch.where(sizes > 0.0, sizes, 1.0)
            worst = float(outside.max()) if outside.numel() else 0.0
            if worst > OUT_OF_RANGE[z.dtype]:
                below = "X" if layer == 1 else f"sigma(Z{layer - 1})"
                raise ProblemError(
                    f"Z{layer} cannot be computed from the layer below: {worst:.2g} of its norm lies outside the range"
                    f" of [{below}{self.bias.column}]; project it with covopt.project_to_range, or give a tikhonov"
                    " above 0."
                )

    def result(self, value: Tensor) -> Tensor | NDArray[np.float64]:
        """Return a tensor where tensors came in, else an array."""
        return value if self.tensors else value.detach().numpy()


def with_weights(bias: Bias, S: Float[Tensor, "... N d"], W: Float[Tensor, "*b n k"]) -> Float[Tensor, "... N n"]:
    """Return Z = [S, beta 1] W^T."""
    return S @ W[..., :-1].mT + bias.amount * W[..., -1:].mT


def read_bias(bias: object) -> Bias:
    """Read an amount of bias >= 0, or "free"."""
    return FreeBias() if isinstance(bias, str) and bias == FREE else Bias(read_beta(bias))


def read_tikhonov(tikhonov: object) -> RankRule:
    """Read t >= 0 as the rank rule with it."""
    return RankRule(tikhonov=as_number(tikhonov, "tikhonov"))


@dataclass(frozen=True)
class Question:
    """The regularised loss of one data set: setting, fit C, lam, rows of positive weight."""

    whole: Setting  # inputs, biases and activation, of all rows
    setting: Setting  # the same of the rows that count
    problem: Problem  # data, loss and lam, which evaluate the fit
    rows: Tensor | None  # True at rows of positive weight (N,); None where all are

    @classmethod
    def read(
        cls,
        X: object,
        Y: object,
        variables: object,
        *,
        lam: float | None,
        loss: str | Loss | None,
        bias: float | str,
        activation: str | Activation,
        sample_weight: object,
    ) -> Question:
        """Check the data and the options, as `covopt.solve` does."""
        whole = Setting.read(X, bias, activation, variables)
        where, dtype = whole.X.device, whole.X.dtype
        options = {"lam": lam, "loss": loss, "activation": activation, "bias": bias, "sample_weight": sample_weight}
        problem = make_problem(X, Y, device=where, free=True, **options).to(dtype)
        if len(problem.X) == len(whole.X):
            return cls(whole, whole, problem, None)
        weight = as_matrix(sample_weight, "sample_weight", where)[:, 0]
        return cls(whole, replace(whole, X=problem.X), problem, weight > 0.0)

    def rows_of(self, Z: Sequence[Float[Tensor, "*b N _"]]) -> list[Float[Tensor, "*b M _"]]:
        """Return the rows of Z_1, ..., Z_L that count."""
        return list(Z) if self.rows is None else [z[..., self.rows, :] for z in Z]

    def value(self, ZL: Float[Tensor, "*b N nL"], norm: Float[Tensor, "*b"]) -> LossValue:
        """Return the loss of outputs Z_L and a penalty; raise a ProblemError if Z_L has other columns than Y."""
        Y = self.problem.Y
        if ZL.shape[-1] != Y.shape[1]:
            raise ProblemError(
                f"The outputs have {counted(ZL.shape[-1], 'column')}, but Y has {Y.shape[1]}; they must agree."
            )
        fit = self.problem.loss_at(ZL)
        residual = (ZL - Y).abs().amax(dim=(-2, -1))
        return LossValue(*(self._number(v) for v in (fit + self.problem.lam * norm, fit, norm, residual)))

    def _number(self, value: Tensor) -> Tensor | float | NDArray[np.float64]:
        if self.setting.tensors:
            return value
        return float(value) if value.ndim == 0 else value.numpy()
