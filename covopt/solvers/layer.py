"""The report of one hidden layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from covopt.runtime.loop import Certificate
from covopt.solvers.checkpoint import Facts


@dataclass(frozen=True)
class Layer:
    """The report of one hidden layer on its own (MATH.md sections 3 and 5)."""

    layer: int  # 1 ... L - 1
    width: int  # the number of its neurons
    # the largest |M_{l+1}^T sigma(Zs_{l-1} w)| over unit w that a search found; above 1 a neuron is missing (first
    # order; certain for the last hidden layer only). None where the dual is unknown
    stationarity: float | None
    gap: float | None  # the block's cost above its proved bound, relative to the network's cost; None without a bound
    gap_certificate: Certificate  # the kind of this bound
    rank_K: int  # numerical rank of K_l
    rank_Ks: int  # numerical rank of Ks_l
    mergeable: int  # groups of neurons that could be one each

    @classmethod
    def from_summary(cls, summary: Facts) -> Layer:
        """Return the layer with these facts."""
        facts: dict[str, Any] = {**summary, "gap_certificate": Certificate(summary["gap_certificate"])}
        return cls(**facts)
