"""The shared part of the three faces: reading arguments, and the weights of a layer by its representations.

Leading dimensions of every array are a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from covopt.linalg.psd import RankRule
from covopt.model.activation import Activation
from covopt.model.biases import PENALISED, Biases, Free
from covopt.model.problem import Problem, make_problem
from covopt.model.reading import as_matrix, as_numbers
from covopt.model.scalars import as_number, read_beta
from covopt.model.wording import FREE
from covopt.runtime.errors import ProblemError, counted, shown

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
    biases: Biases
    beta: float
    activation: Activation
    tensors: bool

    @classmethod
    def read(cls, X: object, bias: object, activation: str | Activation, variables: object) -> Setting:
        """Check X and the options; dtype and device follow the first tensor among the variables, then X."""
        several = variables if isinstance(variables, Sequence) else [variables]
        like = next((value for value in (*several, X) if isinstance(value, Tensor)), None)
        inputs = as_matrix(X, "X", None if like is None else like.device)
        dtype = like.dtype if like is not None and like.dtype == torch.float32 else torch.float64
        biases, beta = (Free(), 1.0) if isinstance(bias, str) and bias == FREE else (PENALISED, read_beta(bias))
        return cls(inputs.to(dtype), biases, beta, Activation.parse(activation), like is not None)

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

    def outputs(self, S: Float[Tensor, "... N d"], W: Float[Tensor, "*b n k"]) -> Float[Tensor, "... N n"]:
        """Return Z = [S, beta 1] W^T."""
        return S @ W[..., :-1].mT + self.beta * W[..., -1:].mT

    def weights(
        self, Z: Sequence[Float[Tensor, "*b N _"]], rule: RankRule
    ) -> tuple[list[Float[Tensor, "*b _ _"]], list[Float[Tensor, "*b N _"]]]:
        """Return the lightest weights of each layer, and the error R_l = Z_l - Zs_{l-1} W_l^T."""
        W, R = [], []
        for S, z in zip([self.X, *(self.activation(z) for z in Z[:-1])], Z, strict=True):
            W.append(self.biases.lightest(S, z, self.beta, rule))
            R.append(z - self.outputs(S, W[-1]))
        return W, R

    def check_range(self, Z: Sequence[Float[Tensor, "*b N _"]], R: Sequence[Float[Tensor, "*b N _"]]) -> None:
        """Raise a ProblemError unless each Z_l lies in the range of Zs_{l-1}; R_l is the part outside."""
        for layer, (z, r) in enumerate(zip(Z, R, strict=True), start=1):
            sizes = z.detach().norm(dim=(-2, -1))
            outside = r.detach().norm(dim=(-2, -1)) / torch.where(sizes > 0.0, sizes, 1.0)
            worst = float(outside.max()) if outside.numel() else 0.0
            if worst > OUT_OF_RANGE[z.dtype]:
                below = "X" if layer == 1 else f"sigma(Z{layer - 1})"
                column = f", {self.beta:g}" if self.beta else ""
                raise ProblemError(
                    f"Z{layer} cannot be computed from the layer below: {worst:.2g} of its norm lies outside the range"
                    f" of [{below}{column}]; project it with covopt.project_to_range, or give a tikhonov above 0."
                )

    def result(self, value: Tensor) -> Tensor | NDArray[np.float64] | float:
        """Return a tensor where tensors came in, else an array, or a number of a single value."""
        if self.tensors:
            return value
        return float(value) if value.ndim == 0 else value.detach().numpy()


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
    def read(cls, X: object, Y: object, variables: object, **options: Any) -> Question:
        """Check the data and the options, those of `make_problem`, as `covopt.solve` does."""
        whole = Setting.read(X, options["bias"], options["activation"], variables)
        where, dtype = whole.X.device, whole.X.dtype
        problem = make_problem(X, Y, device=where, free=True, **options).to(dtype)
        if len(problem.X) == len(whole.X):
            return cls(whole, whole, problem, None)
        weight = as_matrix(options["sample_weight"], "sample_weight", where)[:, 0]
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
        return LossValue(*map(self.setting.result, (fit + self.problem.lam * norm, fit, norm, residual)))
