"""The losses of one sample, each with its derivatives and its convex conjugate (MATH.md sections 1 and 4).

A loss knows nothing of the other samples: C(F) = sum_i q_i c(F_i, Y_i) with the shares q_i of the samples, 1/N or those
of their weights, is put together by `Problem` (problem.py) and, for some of the rows, by `mean_loss`. So nobody can
forget the weights. The dual needs c*(G) = sup_F <G, F> - c(F) as well: C*(G) = sum_i q_i c*(G_i / q_i).
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
Weight = Float[Tensor, " N"] | None
"""The weights of samples, of mean 1 over the whole set; None where all are equal."""


@runtime_checkable
class Loss(Protocol):
    """A convex loss c of the outputs of one sample against its targets, for the rows of F and Y (N, m)."""

    @property
    def name(self) -> str:
        """The name that `parse_loss` reads back."""
        ...

    def values(self, F: ManyOutputs, Y: Targets) -> Float[Tensor, "*networks N"]:
        """c(F_i), one number for each sample."""
        ...

    def gradients(self, F: ManyOutputs, Y: Targets) -> ManyOutputs:
        """grad c(F_i), the shape of F."""
        ...

    def curvatures(self, F: Outputs, Y: Targets) -> Outputs:
        """A diagonal matrix for each sample, at least as large as the second derivative of c at F_i."""
        ...

    def conjugates(self, G: Outputs, Y: Targets) -> Float[Tensor, " N"]:
        """c*(G_i) = sup_F <G_i, F> - c(F); infinite outside its domain."""
        ...


@dataclass(frozen=True)
class MeanSquaredError:
    """c(F) = |F - Y|^2;  c*(G) = <G, Y> + |G|^2 / 4."""

    name: str = "mse"

    def values(self, F: ManyOutputs, Y: Targets) -> Float[Tensor, "*networks N"]:
        return (F - Y).square().sum(dim=-1)

    def gradients(self, F: ManyOutputs, Y: Targets) -> ManyOutputs:
        return 2.0 * (F - Y)

    def curvatures(self, F: Outputs, Y: Targets) -> Outputs:
        return torch.full_like(F, 2.0)

    def conjugates(self, G: Outputs, Y: Targets) -> Float[Tensor, " N"]:
        return (G * Y).sum(dim=-1) + G.square().sum(dim=-1) / 4.0


@dataclass(frozen=True)
class CrossEntropy:
    """c(F) = log sum_c exp F_c - Y . F for a point Y of the simplex.

    c*(G) = p . log p with p = Y + G, when p lies in the simplex, else +infinity.
    Targets may be soft (any rows of the simplex); one-hot rows give the usual cross-entropy.
    """

    name: str = "cross_entropy"
    domain_tolerance: float = 1e-12

    def values(self, F: ManyOutputs, Y: Targets) -> Float[Tensor, "*networks N"]:
        # log sum exp F - Y . F is the difference of large numbers where a class is certain.
        margins = F - (F * Y).sum(dim=-1, keepdim=True)
        top, winner = margins.max(dim=-1, keepdim=True)
        others = torch.exp(margins - top).scatter(-1, winner, 0.0)
        return top[..., 0] + torch.log1p(others.sum(dim=-1))

    def gradients(self, F: ManyOutputs, Y: Targets) -> ManyOutputs:
        off = torch.softmax(F, dim=-1) - Y
        # The rows sum to 0: so p - 1 of a certain class keeps its digits.
        winner = F.argmax(dim=-1, keepdim=True)
        others = off.scatter(-1, winner, 0.0)
        return others.scatter(-1, winner, -others.sum(dim=-1, keepdim=True))

    def curvatures(self, F: Outputs, Y: Targets) -> Outputs:
        """2 p_c (1 - p_c): the row sums of the absolute values of diag(p) - p p^T (Gershgorin)."""
        p = torch.softmax(F, dim=-1)
        return 2.0 * p * (1.0 - p)

    def conjugates(self, G: Outputs, Y: Targets) -> Float[Tensor, " N"]:
        p = Y + G
        off = (p.sum(dim=1) - 1.0).abs()
        outside = (p.amin(dim=1) < -self.domain_tolerance) | (off > self.domain_tolerance * p.shape[1])
        entropy = torch.special.xlogy(p.clamp_min(0.0), p.clamp_min(0.0)).sum(dim=1)
        return torch.where(outside, math.inf, entropy)


@dataclass(frozen=True)
class Interpolation:
    """c(F) = 0 if F = Y, else +infinity: the representation cost itself.  c*(G) = <G, Y>.

    Equality is judged by nobody: `values` are 0, and the residual max |F - Y| is reported beside the cost.
    """

    name: str = "interpolate"

    def values(self, F: ManyOutputs, Y: Targets) -> Float[Tensor, "*networks N"]:
        return F.new_zeros(F.shape[:-1])

    def gradients(self, F: ManyOutputs, Y: Targets) -> ManyOutputs:
        raise ProblemError("The loss 'interpolate' has no gradient; use its multiplier Lambda, or the loss mse.")

    def curvatures(self, F: Outputs, Y: Targets) -> Outputs:
        raise ProblemError("The loss 'interpolate' has no curvature; use the loss mse.")

    def conjugates(self, G: Outputs, Y: Targets) -> Float[Tensor, " N"]:
        return (G * Y).sum(dim=-1)


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


def mean_loss(loss: Loss, F: ManyOutputs, Y: Targets, weight: Weight) -> Float[Tensor, "*networks"]:
    """(1/N) sum_i w_i c(F_i, Y_i) over these rows, one number for each network."""
    values = loss.values(F, Y)
    return (values if weight is None else weight * values).mean(dim=-1)


def mean_gradient(loss: Loss, F: ManyOutputs, Y: Targets, weight: Weight) -> ManyOutputs:
    """The gradient of `mean_loss`, the shape of F."""
    gradients = loss.gradients(F, Y)
    return gradients / len(Y) if weight is None else gradients * (weight / len(Y))[:, None]
