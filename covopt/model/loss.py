"""The losses of one sample, with their derivatives and convex conjugates.

See MATH.md sections 1 and 4. A loss knows nothing of the other samples: C(F) = sum_i q_i c(F_i, Y_i) with the shares
q_i of the samples, 1/N or those of their weights, is put together by `Problem` (problem.py) and, for some of the rows,
by `mean_loss`. So no caller can forget the weights. The dual needs c*(G) = sup_F <G, F> - c(F) as well: C*(G) = sum_i
q_i c*(G_i / q_i).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.rounding import UNIT_ROUNDOFF
from covopt.model.scalars import read_loss
from covopt.runtime.errors import ProblemError, shown

Targets = Float[Tensor, "N m"]
Outputs = Float[Tensor, "N m"]
ManyOutputs = Float[Tensor, "*networks N m"]  # outputs of one network (N, m), or of many at once
Weight = Float[Tensor, " N"] | None  # the weights of samples, of mean 1 over the whole set; None where all are equal


@runtime_checkable
class Loss(Protocol):
    """A convex loss c of one sample's outputs and targets, for the rows of F and Y (N, m)."""

    @property
    def name(self) -> str:
        """Return the name that `parse_loss` reads back."""
        ...

    def values(self, F: ManyOutputs, Y: Targets) -> Float[Tensor, "*networks N"]:
        """Return c(F_i), one number for each sample."""
        ...

    def gradients(self, F: ManyOutputs, Y: Targets) -> ManyOutputs:
        """Return grad c(F_i), in the shape of F."""
        ...

    def curvatures(self, F: Outputs, Y: Targets) -> Outputs:
        """Return a diagonal matrix for each sample, at least the second derivative of c at F_i.

        The method cone takes the fewer rounds, the nearer to c the quadratic with it is, and the more often above c.
        """
        ...

    def conjugates(self, G: Outputs, Y: Targets) -> Float[Tensor, " N"]:
        """Return c*(G_i) = sup_F <G_i, F> - c(F); infinite outside its domain."""
        ...


@runtime_checkable
class Provable(Loss, Protocol):
    """A loss that bounds the rounding of its conjugate, which bounds from dual points need."""

    def conjugate_rounding(self, G: Outputs, Y: Targets) -> Float[Tensor, " N"]:
        """Return by how much the computed c*(G_i) may be too small, for G and Y as stored."""
        ...


@runtime_checkable
class Scalable(Loss, Protocol):
    """A loss of targets with a unit: c(t F; t Y) = t^2 c'(F; Y), c' another loss of its kind."""

    def scaled(self, t: float) -> Loss:
        """Return c'."""
        ...


@runtime_checkable
class Likelihood(Loss, Protocol):
    """A loss of classes, with targets of its own, whose outputs are log-odds."""

    def coded(self, Y: Targets) -> Float[Tensor, "N _"]:
        """Return targets as the loss takes them; raise a ProblemError for others."""
        ...

    def log_odds(self, F: ManyOutputs) -> Float[Tensor, "*networks N classes"]:
        """Return an output for each class, whose softmax are the probabilities."""
        ...


ENTROPY = 40 * 2.0**-49
"""The error of one term p log p, absolute: p is known up to 4 u, u = 2^-53, and |log u| + 1 < 40."""


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

    def conjugate_rounding(self, G: Outputs, Y: Targets) -> Float[Tensor, " N"]:
        return (2 * G.shape[1] + 16) * UNIT_ROUNDOFF * ((G * Y).abs() + G.square() / 4.0).sum(dim=-1)

    def scaled(self, t: float) -> Loss:
        return self


@dataclass(frozen=True)
class CrossEntropy:
    """c(F) = log sum_c exp F_c - Y . F for a point Y of the simplex.

    c*(G) = p . log p with p = Y + G, when p lies in the simplex, else +infinity.
    Targets may be soft (any rows of the simplex); one-hot rows give the usual cross-entropy.
    """

    name: str = "cross_entropy"
    domain_tolerance: float = 1e-12

    def coded(self, Y: Targets) -> Targets:
        off = (Y.sum(dim=1) - 1.0).abs() > 1e-9
        bad = (off | (Y < 0).any(dim=1)).nonzero()
        if len(bad):
            raise ProblemError(
                f"The loss cross_entropy needs classes or rows of probabilities, but row {int(bad[0, 0])} of Y,"
                " counted from 0, is neither; give labels (N,) or one-hot rows, or use the loss mse."
            )
        return Y / Y.sum(dim=1, keepdim=True)

    def log_odds(self, F: ManyOutputs) -> Float[Tensor, "*networks N classes"]:
        return F

    def values(self, F: ManyOutputs, Y: Targets) -> Float[Tensor, "*networks N"]:
        # log sum exp F - Y . F is the difference of large numbers where a class is certain.
        margins = F - (F * Y).sum(dim=-1, keepdim=True)
        top, winner = margins.max(dim=-1, keepdim=True)
        return top[..., 0] + torch.log1p(torch.exp(margins - top).scatter(-1, winner, 0.0).sum(dim=-1))

    def gradients(self, F: ManyOutputs, Y: Targets) -> ManyOutputs:
        off = torch.softmax(F, dim=-1) - Y
        # The rows sum to 0: so p - 1 of a certain class keeps its digits.
        winner = F.argmax(dim=-1, keepdim=True)
        losers = off.scatter(-1, winner, 0.0)
        return losers.scatter(-1, winner, -losers.sum(dim=-1, keepdim=True))

    def curvatures(self, F: Outputs, Y: Targets) -> Outputs:
        """Return 2 p_c (1 - p_c), the absolute row sums of diag(p) - p p^T (Gershgorin)."""
        p = torch.softmax(F, dim=-1)
        return 2.0 * p * (1.0 - p)

    def conjugates(self, G: Outputs, Y: Targets) -> Float[Tensor, " N"]:
        p = Y + G
        off = (p.sum(dim=1) - 1.0).abs()
        outside = (p.amin(dim=1) < -self.domain_tolerance) | (off > self.domain_tolerance * p.shape[1])
        entropy = torch.special.xlogy(p.clamp_min(0.0), p.clamp_min(0.0)).sum(dim=1)
        return torch.where(outside, math.inf, entropy)

    def conjugate_rounding(self, G: Outputs, Y: Targets) -> Float[Tensor, " N"]:
        """Return infinity: p adds up to 1 within rounding only, which dual.py repairs on its own."""
        return torch.full_like(G[:, 0], math.inf)


@dataclass(frozen=True)
class Huber:
    """c(F) = sum_c H(F_c - Y_c), H(r) = r^2 / 2 or delta (|r| - delta / 2), |r| > delta.

    c*(G) = <G, Y> + |G|^2 / 2 where no |G_c| is above delta, else +infinity. As torch.nn.HuberLoss, but the sum over
    the columns, not their mean.

    Source: Huber, Robust estimation of a location parameter (1964).
    """

    delta: float = 1.0

    @property
    def name(self) -> str:
        return "huber" if self.delta == 1.0 else f"huber:{self.delta!r}"

    def values(self, F: ManyOutputs, Y: Targets) -> Float[Tensor, "*networks N"]:
        distance = (F - Y).abs()
        inside = distance.clamp_max(self.delta)
        return (inside * (distance - 0.5 * inside)).sum(dim=-1)

    def gradients(self, F: ManyOutputs, Y: Targets) -> ManyOutputs:
        return (F - Y).clamp(-self.delta, self.delta)

    def curvatures(self, F: Outputs, Y: Targets) -> Outputs:
        """Return min(1, delta / |r|): the quadratic with it that touches H at r lies above H."""
        return self.delta / (F - Y).abs().clamp_min(self.delta)

    def conjugates(self, G: Outputs, Y: Targets) -> Float[Tensor, " N"]:
        outside = G.abs().amax(dim=-1) > self.delta
        return torch.where(outside, math.inf, (G * Y).sum(dim=-1) + 0.5 * G.square().sum(dim=-1))

    def conjugate_rounding(self, G: Outputs, Y: Targets) -> Float[Tensor, " N"]:
        return (2 * G.shape[1] + 16) * UNIT_ROUNDOFF * ((G * Y).abs() + G.square()).sum(dim=-1)

    def scaled(self, t: float) -> Loss:
        return Huber(self.delta / t)


@dataclass(frozen=True)
class Logistic:
    """c(F) = log(1 + exp(-y F)) for one output and y = -1 or 1.

    c*(G) = p log p + (1 - p) log(1 - p) with p = -y G in [0, 1], else +infinity.
    """

    name: str = "logistic"

    def coded(self, Y: Targets) -> Float[Tensor, "N _"]:
        """Return -1 and 1 for classes 0 and 1, -1 and 1, or one-hot rows (1: second column)."""
        ones, zeros = Y == 1.0, Y == 0.0
        if Y.shape[1] == 1 and bool((ones | zeros).all()):
            return 2.0 * Y - 1.0
        if Y.shape[1] == 2 and bool((ones | zeros).all()) and bool((ones.sum(dim=1) == 1).all()):
            return Y[:, 1:] - Y[:, :1]
        if Y.shape[1] == 1 and bool((ones | (Y == -1.0)).all()):
            return Y
        raise ProblemError(
            "The loss logistic needs two classes: labels, one column of 0 and 1 or of -1 and 1, or one-hot rows of two;"
            " give such targets, or use the loss cross_entropy."
        )

    def log_odds(self, F: ManyOutputs) -> Float[Tensor, "*networks N classes"]:
        return torch.cat([torch.zeros_like(F), F], dim=-1)

    def values(self, F: ManyOutputs, Y: Targets) -> Float[Tensor, "*networks N"]:
        return torch.nn.functional.softplus(-Y * F, threshold=1e3).sum(dim=-1)

    def gradients(self, F: ManyOutputs, Y: Targets) -> ManyOutputs:
        return -Y * torch.sigmoid(-Y * F)

    def curvatures(self, F: Outputs, Y: Targets) -> Outputs:
        return torch.sigmoid(F) * torch.sigmoid(-F)

    def conjugates(self, G: Outputs, Y: Targets) -> Float[Tensor, " N"]:
        p = (-Y * G)[:, 0]
        inside = p.clamp(0.0, 1.0)
        entropy = torch.special.xlogy(inside, inside) + torch.special.xlog1py(1.0 - inside, -inside)
        return torch.where(p == inside, entropy, math.inf)

    def conjugate_rounding(self, G: Outputs, Y: Targets) -> Float[Tensor, " N"]:
        return torch.full_like(G[:, 0], 2.0 * ENTROPY)


@dataclass(frozen=True)
class Interpolation:
    """c(F) = 0 if F = Y, else +infinity: the representation cost itself.  c*(G) = <G, Y>.

    Equality is not checked here: `values` are 0, and the residual max |F - Y| is reported beside the cost.
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

    def conjugate_rounding(self, G: Outputs, Y: Targets) -> Float[Tensor, " N"]:
        return (2 * G.shape[1] + 16) * UNIT_ROUNDOFF * (G * Y).abs().sum(dim=-1)

    def scaled(self, t: float) -> Loss:
        return self


LOSSES: dict[str, Loss] = {
    loss.name: loss for loss in (MeanSquaredError(), CrossEntropy(), Interpolation(), Huber(), Logistic())
}


def parse_loss(name: str | Loss) -> Loss:
    """Read mse, cross_entropy, interpolate, huber, huber:D with the threshold D > 0, or logistic.

    A ProblemError refuses any other name, and a loss of one's own that is called like one of these.
    """
    if isinstance(name, Loss):
        own = name.name not in LOSSES and not name.name.startswith("huber:")
        if own or type(name) in map(type, LOSSES.values()):
            return name
        raise ProblemError(f"A loss of one's own is called {shown(name.name)}, like one of covopt's; rename it.")
    kind, threshold = read_loss(name)
    return LOSSES[kind] if threshold is None else Huber(threshold)


def mean_loss(loss: Loss, F: ManyOutputs, Y: Targets, weight: Weight) -> Float[Tensor, "*networks"]:
    """Return (1/N) sum_i w_i c(F_i, Y_i) over these rows, one number for each network."""
    values = loss.values(F, Y)
    return (values if weight is None else weight * values).mean(dim=-1)


def mean_gradient(loss: Loss, F: ManyOutputs, Y: Targets, weight: Weight) -> ManyOutputs:
    """Return the gradient of `mean_loss`, of the shape of F."""
    gradients = loss.gradients(F, Y)
    return gradients / len(Y) if weight is None else gradients * (weight / len(Y))[:, None]


def hessians(loss: Loss, F: Outputs, Y: Targets) -> Float[Tensor, "N m m"]:
    """Return the second derivatives of c in the outputs of each sample; diagonal if the loss is separable."""
    if type(loss) is not CrossEntropy:
        return torch.diag_embed(loss.curvatures(F, Y))
    p = torch.softmax(F, dim=1)
    # 1 - p is the sum over the other classes: the subtraction would cancel if p is close to 1.
    complement = p @ (1.0 - torch.eye(p.shape[1], dtype=p.dtype, device=p.device))
    curvature = -p[:, :, None] * p[:, None, :]
    curvature.diagonal(dim1=1, dim2=2).copy_(p * complement)
    return curvature
