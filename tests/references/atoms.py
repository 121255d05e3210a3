"""AtomSet: a point of the cone S written by its atoms, which proves that it lies in S and leads back to a network.

An atom is one neuron: (z, sigma(z)), z in R^N its pre-activations. With weights c_k >= 0,

    K = sum_k c_k z_k z_k^T,    Ks = sum_k c_k sigma(z_k) sigma(z_k)^T + beta^2 11^T

(MATH.md section 3; [JGHG22, Prop. 3]).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.model.activation import Activation
from covopt.model.problem import with_bias
from covopt.runtime.errors import ProblemError


@dataclass(frozen=True, eq=False)
class AtomSet:
    """Rows of atoms z_k and their weights c_k >= 0.

    Attributes:
        z: pre-activations (m, N), one atom in each row.
        weights: c (m,).
        activation: sigma_a.
        beta: the amount of bias in Ks.

    Raises:
        ProblemError: when a weight is negative or NaN.
    """

    z: Float[Tensor, "m N"]
    weights: Float[Tensor, " m"]
    activation: Activation
    beta: float

    def __post_init__(self) -> None:
        if not bool((self.weights >= 0).all()):
            raise ProblemError("The weights of atoms must be numbers >= 0; a cone holds no others.")

    def __len__(self) -> int:
        return self.z.shape[0]

    @cached_property
    def s(self) -> Float[Tensor, "m N"]:
        """sigma(z), one atom in each row."""
        return self.activation(self.z)

    @property
    def K(self) -> Float[Tensor, "N N"]:
        """sum_k c_k z_k z_k^T, dense."""
        return (self.z.mT * self.weights) @ self.z

    @property
    def Ks(self) -> Float[Tensor, "N N"]:
        """sum_k c_k sigma(z_k) sigma(z_k)^T + beta^2 11^T, dense."""
        return (self.s.mT * self.weights) @ self.s + self.beta**2

    def to_representation(self) -> Float[Tensor, "N m"]:
        """Z with columns sqrt(c_k) z_k, so that K = Z Z^T and, sigma being homogeneous, Ks = Zs Zs^T."""
        return self.z.mT * self.weights.sqrt()

    def to_inputs(self) -> Float[Tensor, "N d"]:
        """Zs = [sigma(Z), beta 1], the thin factor of Ks, d = m + 1."""
        return with_bias(self.s.mT * self.weights.sqrt(), self.beta)

    def nonzero(self) -> AtomSet:
        """The same point of S without the atoms of weight or vector zero."""
        kept = (self.weights > 0) & (self.z != 0).any(dim=1)
        return AtomSet(self.z[kept], self.weights[kept], self.activation, self.beta)

    @classmethod
    def from_representation(cls, Z: Float[Tensor, "N m"], activation: Activation, beta: float) -> AtomSet:
        """The atoms of a layer: z_k = Z_k / |Z_k| with weight |Z_k|^2 (a zero column: weight 0)."""
        size = Z.norm(dim=0)
        z = (Z / torch.where(size > 0, size, torch.ones_like(size))).mT
        return cls(z.contiguous(), size.square(), activation, beta)

    @classmethod
    def from_directions(
        cls,
        Xt: Float[Tensor, "N d"],
        directions: Float[Tensor, "m d"],
        weights: Float[Tensor, " m"],
        activation: Activation,
        beta: float,
    ) -> AtomSet:
        """The atoms z_k = Xt w_k of directions w_k; Tr[K (Xt Xt^T)^+] <= sum_k c_k |w_k|^2."""
        return cls(directions @ Xt.mT, weights, activation, beta)
