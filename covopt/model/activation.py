"""Positively homogeneous activations: sigma_a(x) = x for x >= 0 and a x otherwise.

Their degree is one. a = 0 is ReLU, a in (-1, 1) leaky ReLU, a = 1 the identity of a linear network (MATH.md section 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.model.scalars import read_slope
from covopt.runtime.errors import ProblemError


@dataclass(frozen=True)
class Activation:
    """sigma_a; `slope` is a."""

    slope: float = 0.0

    def __post_init__(self) -> None:
        if not -1.0 < self.slope <= 1.0:
            raise ProblemError(
                f"The activation's slope is {self.slope:g}; give leaky:A with -1 < A < 1, relu or linear."
            )

    def __call__(self, z: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return sigma_a(z), entrywise."""
        if self.slope == 0.0:
            return torch.relu(z)
        return z if self.is_linear else torch.where(z >= 0, z, self.slope * z)

    def derivative(self, z: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return sigma_a'(z), entrywise; at the kink z = 0 the slope a, as PyTorch's ReLU."""
        # Two Python numbers would go through float32 first: 0.1 would come back as 0.10000000149.
        return torch.where(z > 0, z.new_ones(()), z.new_full((), self.slope))

    def pull_back(self, upstream: Float[Tensor, "*shape"], z: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return upstream * sigma'(z), entrywise, in one pass; may overwrite `upstream`."""
        if self.slope == 0.0:
            # The function that autograd calls for ReLU: several times faster than a mask.
            return torch.ops.aten.threshold_backward.grad_input(upstream, z, 0.0, grad_input=upstream)
        return upstream if self.is_linear else torch.where(z > 0, upstream, self.slope * upstream)

    @property
    def overwrites(self) -> bool:
        """Return True if sigma(z) may overwrite z, because sigma'(z) can be read from sigma(z)."""
        return self.slope == 0.0

    @property
    def is_linear(self) -> bool:
        """Return True if this is the identity."""
        return self.slope == 1.0

    @property
    def name(self) -> str:
        """Return the name that `parse` reads back: relu, leaky:A or linear."""
        if self.is_linear:
            return "linear"
        return "relu" if self.slope == 0.0 else f"leaky:{self.slope!r}"

    @classmethod
    def parse(cls, name: str | Activation) -> Activation:
        """Read relu, leaky:A (or leaky, A = 0.01) or linear; raise a ProblemError for any other name."""
        return name if isinstance(name, Activation) else cls(read_slope(name))


@dataclass(frozen=True)
class Smoothed(Activation):
    """The activation with its kink rounded over |z| < mu, for descents that kinks would stop.

    mu > 0. s_mu(z) = a z + (1 - a) [ z^2 / (4 mu) + z / 2 for |z| < mu; relu(z) - mu / 4 else ]; s_mu(0) = 0.
    """

    mu: float = 0.0

    def __call__(self, z: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        # (z + Huber's function of z) / 2, one pass over memory of which is the loss that torch has.
        huber = torch.nn.functional.huber_loss(z, z.new_zeros(()).expand_as(z), reduction="none", delta=self.mu)
        rounded = huber.mul_(0.5 / self.mu).add_(z, alpha=0.5)
        return rounded if self.slope == 0.0 else (1.0 - self.slope) * rounded + self.slope * z

    def derivative(self, z: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return s_mu'(z), entrywise, from a to 1."""
        step = z.clamp(-self.mu, self.mu).add_(self.mu).mul_(0.5 / self.mu)
        return step if self.slope == 0.0 else (1.0 - self.slope) * step + self.slope

    def pull_back(self, upstream: Float[Tensor, "*shape"], z: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return self.derivative(z).mul_(upstream)

    @property
    def overwrites(self) -> bool:
        """Return False: s_mu' is read from z."""
        return False
