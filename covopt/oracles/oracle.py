"""The contract of the oracles of the cone S: atoms, their values, and a bound.

For a dual point Lambda (N, m) an oracle maximises h(w) = |Lambda^T sigma(Xt w)| over unit directions w
(MATH.md section 4). One convention: we maximise, and values are >= 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from covopt.model.activation import Activation


@dataclass(frozen=True)
class Answer:
    """The maxima that an oracle found, and its bound."""

    directions: Float[Tensor, "B d"]  # unit rows w, distinct local maxima, best first
    values: Float[Tensor, " B"]  # h at them
    upper_bound: float = math.inf  # proved, on max_w h(w); of `exact` oracles the maximum plus the rounding they state

    @staticmethod
    def like(Xt: Tensor, directions: Float[Tensor, "B d"], values: Float[Tensor, " B"], bound: float) -> Answer:
        """Return the answer in the dtype of the inputs."""
        return Answer(directions.to(Xt.dtype), values.to(Xt.dtype), bound)

    @property
    def proved(self) -> bool:
        """Return True if `upper_bound` is finite, so that it bounds h."""
        return math.isfinite(self.upper_bound)


@runtime_checkable
class Oracle(Protocol):
    """Maximises h(w) = |Lambda^T sigma(Xt w)| over the unit sphere.

    An oracle needs nothing but this call, so it can be wrapped. A search also takes keywords for its effort and for
    when to stop; a wrapper must pass them on.
    """

    def __call__(self, Lambda: Float[Tensor, "N m"], starts: Float[Tensor, "S d"]) -> Answer:
        """Return local maxima of h; a search ascends from `starts`."""
        ...


Wrap = Callable[[Callable[..., Answer]], Callable[..., Answer]]
"""Wraps an oracle, for instance to count its calls or to store its results."""


def oracle_values(
    Xt: Float[Tensor, "N d"], activation: Activation, Lambda: Float[Tensor, "N m"], directions: Float[Tensor, "B d"]
) -> Float[Tensor, " B"]:
    """Return h(w) = |Lambda^T sigma(Xt w)| for each row w of `directions` (any length)."""
    return (activation(directions @ Xt.T) @ Lambda).norm(dim=1)
