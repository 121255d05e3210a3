"""What every solver returns: the best network, its cost recomputed from it, and a bound with its proof."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covopt.errors import ProblemError
from covopt.loop import Certificate, Progress, Status
from covopt.model import weights as weight_form
from covopt.model.problem import Problem, with_bias


@dataclass(frozen=True)
class DualPoint:
    """What proves a lower bound of the shallow problem: Lambda, and M >= max_w |Lambda^T sigma(Xt w)|.

    The bound is D(t Lambda) with 0 <= t <= 1/M; `Lambda` here is already scaled by t, so M <= 1.
    """

    Lambda: NDArray[np.float64]
    maximum: float


@dataclass
class Result:
    """The answer of a solve; every number is NaN and the status `unsolved` until the solver sets them at its end.

    Attributes:
        problem: the question.
        weights: W_1 ... W_L, shape (n_l, n_{l-1} + 1), the bias column last.
        cost: the objective at `weights`, recomputed in float64.
        fit: C(F); norm: |W|^2; residual: max |F - Y|.
        lower: a proved lower bound on the minimum, or None.
        certificate: what proves it.
        history: cost, bound and width over time.
        dual: the dual point behind `lower`, where there is one.
    """

    problem: Problem
    method: str
    certify: str
    seed: int
    weights: list[Tensor] = field(default_factory=list)
    status: Status = Status.UNSOLVED
    certificate: Certificate = Certificate.NONE
    cost: float = math.nan
    fit: float = math.nan
    norm: float = math.nan
    residual: float = math.nan
    lower: float | None = None
    seconds: float = math.nan
    history: list[Progress] = field(default_factory=list)
    dual: DualPoint | None = None

    @property
    def gap(self) -> float | None:
        """(cost - lower) / cost, or None without a proved bound."""
        if self.lower is None or not math.isfinite(self.cost):
            return None
        return (self.cost - self.lower) / self.cost if self.cost > 0 else 0.0

    @property
    def widths(self) -> list[int]:
        """Hidden widths n_1 ... n_{L-1}."""
        return [int(W.shape[0]) for W in self.weights[:-1]]

    def predict(self, X: object) -> NDArray[np.float64]:
        """The network's outputs (M, n_L) at the rows of X (M, n_0).

        Raises:
            ProblemError: when X has another number of columns than the data.
        """
        inputs = torch.as_tensor(np.asarray(X, dtype=np.float64), device=self.problem.X.device)
        if inputs.ndim != 2 or inputs.shape[1] != self.problem.X.shape[1]:
            raise ProblemError(
                f"X has shape {tuple(inputs.shape)}, but the network takes {self.problem.X.shape[1]} columns."
            )
        return weight_form.outputs(self.problem, self._double(), inputs).cpu().numpy()

    def representations(self, layer: int) -> NDArray[np.float64]:
        """Z_l (N, n_l) for layer = 1 ... L."""
        self._check_layer(layer)
        return weight_form.preactivations(self._double_problem(), self._double())[layer - 1].cpu().numpy()

    def covariances(self, layer: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(K_l, Ks_l) = (Z_l Z_l^T, Zs_l Zs_l^T), both (N, N), for layer = 1 ... L."""
        Z = torch.as_tensor(self.representations(layer))
        Zs = with_bias(self.problem.activation(Z), self.problem.beta)
        return (Z @ Z.T).numpy(), (Zs @ Zs.T).numpy()

    def to_torch(self) -> torch.nn.Sequential:
        """A plain `torch.nn.Sequential` of Linear and ReLU / LeakyReLU / Identity; its bias is beta W[:, -1]."""
        modules: list[torch.nn.Module] = []
        for W in self._double():
            linear = torch.nn.Linear(W.shape[1] - 1, W.shape[0], dtype=torch.float64)
            with torch.no_grad():
                linear.weight.copy_(W[:, :-1])
                linear.bias.copy_(self.problem.beta * W[:, -1])
            modules += [linear, _torch_activation(self.problem.activation.slope)]
        return torch.nn.Sequential(*modules[:-1])

    def _double(self) -> list[Tensor]:
        return [W.double() for W in self.weights]

    def _double_problem(self) -> Problem:
        p = self.problem
        return Problem(p.X.double(), p.Y.double(), p.loss, p.lam, p.depth, p.beta, p.activation)

    def _check_layer(self, layer: int) -> None:
        if not 1 <= layer <= self.problem.depth:
            raise ProblemError(f"There is no layer {layer}; give one from 1 to {self.problem.depth}.")


def _torch_activation(slope: float) -> torch.nn.Module:
    if slope == 0.0:
        return torch.nn.ReLU()
    return torch.nn.Identity() if slope == 1.0 else torch.nn.LeakyReLU(slope)
