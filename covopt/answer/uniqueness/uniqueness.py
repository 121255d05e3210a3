"""The verdict on the set of all optimal networks of one problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covopt.records.record import VERDICTS, Summary, plain
from covopt.runtime.errors import counted

UNIQUE, SEVERAL, UNDECIDED = VERDICTS
SENTENCES = {
    UNIQUE: "the optimal network is unique (proved)",
    SEVERAL: "there are infinitely many optimal networks (proved)",
    UNDECIDED: "not decided",
}


@dataclass(frozen=True)
class Uniqueness:
    """The verdict on whether an optimal two-layer network is the only one.

    Neurons whose incoming weights are positive multiples of each other count as one, since they can be merged at no
    cost; an optimal network is balanced.

    Attributes:
        verdict: unique, not unique or undecided; the first two are proved.
        reason: why, in a sentence.
        candidates: how many directions the neurons of an optimum can have at most; None where that is not known.
        fewest: proved ends for the fewest neurons that an optimum has; most: the same for the most.
        dimension: of the polytope of all optima, 0 where there is only one.
        independence: the smallest singular value of a matrix whose columns the proof needs to be independent.
    """

    verdict: str
    reason: str
    candidates: int | None = None
    fewest: tuple[int, int] | None = None
    most: tuple[int, int] | None = None
    dimension: int | None = None
    independence: float | None = None

    def summary(self) -> dict[str, object]:
        """Return the verdict for JSON."""
        return plain(vars(self))

    @classmethod
    def from_summary(cls, summary: Summary) -> Uniqueness:
        """Return the verdict with these facts, the inverse of `summary`."""
        pairs = {name: None if summary[name] is None else tuple(summary[name]) for name in ("fewest", "most")}
        facts: dict[str, Any] = {**summary, **pairs}
        return cls(**facts)

    def sentence(self) -> str:
        """Say if the optimum is the only one, why, and how many neurons optima have."""
        text = f"{SENTENCES[self.verdict]}: {self.reason[:1].lower()}{self.reason[1:]}"
        return f"{text} {self._counts()}" if self.fewest is not None else text

    def _counts(self) -> str:
        """Say how many neurons an optimum has, at least and at most."""
        assert self.fewest is not None
        if self.most is None:
            return f"The narrowest has {_between(self.fewest)}, and there is no widest."
        if self.verdict == UNIQUE:
            return f"It has {_between(self.fewest)}."
        return f"The narrowest has {_between(self.fewest)}, the widest {_between(self.most)}."


def _between(ends: Sequence[int]) -> str:
    low, high = ends
    return counted(high, "neuron") if low == high else f"between {low} and {counted(high, 'neuron')}"


@dataclass(frozen=True)
class Examined:
    """A verdict, and where there are several optima, one that is inside the set of them."""

    uniqueness: Uniqueness
    directions: NDArray[np.float64] | None = None  # unit w_k (K, 2), in the coordinates of `two_columns`
    outputs: NDArray[np.float64] | None = None  # |w_k| v_k for them, in the units of the problem (K, m)
    bias: NDArray[np.float64] | None = None  # the bias of the output (m,)


def undecided(reason: str, **facts: Any) -> Examined:
    """Return the verdict that nothing is proved, with the reason."""
    return Examined(Uniqueness(UNDECIDED, reason, **facts))
