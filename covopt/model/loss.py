"""The losses C(F), each with its gradient and its convex conjugate (MATH.md sections 1 and 4).

The dual of the shallow problem needs three things from a loss: its value, its gradient (from which the dual
point Lambda = -grad C(F) / (2 lam) comes), and C*(G) = sup_F <G, F> - C(F).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.errors import ProblemError, shown

Targets = Float[Tensor, "N m"]
Outputs = Float[Tensor, "N m"]
ManyOutputs = Float[Tensor, "*networks N m"]
"""Outputs of one network (N, m), or of many at once."""


@runtime_checkable
class Loss(Protocol):
    """A convex loss of the outputs F (N, m) against the targets Y (N, m)."""

    @property
    def name(self) -> str:
        """The name that `parse_loss` reads back."""
        ...

    def value(self, F: ManyOutputs, Y: Targets) -> Float[Tensor, "*networks"]:
        """C(F), one number for each network."""
        ...

    def gradient(self, F: ManyOutputs, Y: Targets) -> ManyOutputs:
        """grad C(F), the shape of F."""
        ...

    def conjugate(self, G: Outputs, Y: Targets) -> Float[Tensor, ""]:
        """C*(G) = sup_F <G, F> - C(F); infinite outside its domain."""
        ...


@dataclass(frozen=True)
class MeanSquaredError:
    """C(F) = (1/N) |F - Y|_F^2;  C*(G) = <G, Y> + (N/4) |G|_F^2."""

    name: str = "mse"

    def value(self, F: ManyOutputs, Y: Targets) -> Float[Tensor, "*networks"]:
        return (F - Y).square().sum(dim=(-2, -1)) / len(Y)

    def gradient(self, F: ManyOutputs, Y: Targets) -> ManyOutputs:
        return (2.0 / len(Y)) * (F - Y)

    def conjugate(self, G: Outputs, Y: Targets) -> Float[Tensor, ""]:
        return (G * Y).sum() + len(Y) / 4.0 * G.square().sum()


@dataclass(frozen=True)
class CrossEntropy:
    """C(F) = (1/N) sum_i [ log sum_c exp F_ic - Y_i . F_i ] for rows of Y in the simplex.

    C*(G) = (1/N) sum_i p_i . log p_i with p = Y + N G, when every row of p lies in the simplex, else +infinity.
    Targets may be soft (any rows of the simplex); one-hot rows give the usual mean cross-entropy.
    """

    name: str = "cross_entropy"
    domain_tolerance: float = 1e-12

    def value(self, F: ManyOutputs, Y: Targets) -> Float[Tensor, "*networks"]:
        # log sum exp F - Y . F is the difference of large numbers where a class is certain.
        margins = F - (F * Y).sum(dim=-1, keepdim=True)
        top, winner = margins.max(dim=-1, keepdim=True)
        others = torch.exp(margins - top).scatter(-1, winner, 0.0)
        return (top[..., 0] + torch.log1p(others.sum(dim=-1))).mean(dim=-1)

    def gradient(self, F: ManyOutputs, Y: Targets) -> ManyOutputs:
        off = torch.softmax(F, dim=-1) - Y
        # The rows sum to 0: so p - 1 of a certain class keeps its digits.
        winner = F.argmax(dim=-1, keepdim=True)
        others = off.scatter(-1, winner, 0.0)
        return others.scatter(-1, winner, -others.sum(dim=-1, keepdim=True)) / len(Y)

    def conjugate(self, G: Outputs, Y: Targets) -> Float[Tensor, ""]:
        p = Y + len(Y) * G
        off = (p.sum(dim=1) - 1.0).abs().max()
        if p.min() < -self.domain_tolerance or off > self.domain_tolerance * p.shape[1]:
            return torch.full((), math.inf, dtype=G.dtype, device=G.device)
        return torch.special.xlogy(p.clamp_min(0.0), p.clamp_min(0.0)).sum() / len(Y)


@dataclass(frozen=True)
class Interpolation:
    """C(F) = 0 if F = Y, else +infinity: the representation cost itself.  C*(G) = <G, Y>.

    Equality is judged by nobody: `value` is 0, and the residual max |F - Y| is reported beside the cost.
    """

    name: str = "interpolate"

    def value(self, F: ManyOutputs, Y: Targets) -> Float[Tensor, "*networks"]:
        return F.new_zeros(F.shape[:-2])

    def gradient(self, F: ManyOutputs, Y: Targets) -> ManyOutputs:
        raise ProblemError("The loss 'interpolate' has no gradient; use its multiplier Lambda, or the loss mse.")

    def conjugate(self, G: Outputs, Y: Targets) -> Float[Tensor, ""]:
        return (G * Y).sum()


LOSSES: dict[str, Loss] = {loss.name: loss for loss in (MeanSquaredError(), CrossEntropy(), Interpolation())}


def parse_loss(name: str | Loss) -> Loss:
    """Read mse, cross_entropy or interpolate.

    Raises:
        ProblemError: for any other name.
    """
    if isinstance(name, Loss):
        return name
    if name not in LOSSES:
        raise ProblemError(f"The loss {shown(name)} is unknown; use one of {', '.join(LOSSES)}.")
    return LOSSES[name]
