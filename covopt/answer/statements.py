"""Statements of the papers, evaluated: inequalities of two numbers, with the sentences that say what the numbers are.

Each is proved in MATH.md section 8, in the form in which it is evaluated. So there are three verdicts: `holds`; `void`
with a reason, where a hypothesis fails, the bound says nothing, or rounding outweighs it; and `number`, where the paper
states no more than an order of magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from covopt.records.record import Summary

# Relative to the larger side: what the rounding of sums, logarithms and singular values may have moved.
SLACK = 1e-9

SENTENCES = {
    "J23a Prop. 4": "some hidden layer has s_2 / s_1 of {smaller:.3g} (of Z, less its mean where there is a bias), by"
    " the norm at most {larger:.3g}",
    "J23a Prop. 4, as printed": "L^(1/4) times the smallest s_2 / s_1 of Z in the hidden layers is {smaller:.3g}",
    "J23b Thm. 7": "the squared sizes of the inputs of the layers sum to {smaller:.4g} (mean over samples), by the"
    " trace of the kernel at most {larger:.4g}",
    "J23b Cor. 8": "the next singular value of Z / sqrt N beyond the k of the bottleneck is {smaller:.3g} (mean over"
    " layers), at most {larger:.3g}",
    "J23b Prop. 9": "the mixed second derivative of the kernel is at least {larger:.4g} s^(2 - 2/L), s the largest"
    " singular value of the Jacobian; its proof gives {smaller:g}, and the paper prints twice that",
    "J23b Prop. 13": "two samples with different Jacobians bound the norm of this network by {smaller:.6g} from below;"
    " it is {larger:.6g} without biases",
    "J23b composition": "cut in any hidden layer, the Jacobian bounds of the two parts sum to at least {larger:.6g},"
    " and that of the whole is {smaller:.6g}",
}
"""By source, with the names of the numbers in them."""


class Void(Exception):
    """A statement says nothing here; the message is the reason."""


@dataclass(frozen=True)
class Statement:
    """An inequality smaller <= larger, or a number.

    Attributes:
        source: paper and number, a key of SENTENCES.
        smaller, larger: the two sides; `larger` is None for a number, both may be None where the verdict is void.
        reason: why it is void; else empty.
    """

    source: str
    smaller: float | None = None
    larger: float | None = None
    reason: str = ""

    @property
    def verdict(self) -> str:
        """Return holds, void or number."""
        return "void" if self.reason else "number" if self.larger is None else "holds"

    def summary(self) -> dict[str, object]:
        """Return the entries for JSON."""
        return {"source": self.source, "verdict": self.verdict, **vars(self)}


def evaluated(source: str, sides: Callable[[], tuple[float, float | None]]) -> Statement:
    """Evaluate a statement: void if `sides` raises Void, or if its numbers do not bear it out."""
    try:
        smaller, larger = sides()
    except Void as reason:
        return Statement(source, reason=str(reason))
    if not all(math.isfinite(side) for side in (smaller, larger) if side is not None):
        return Statement(source, reason="float64 cannot hold its numbers")
    borne_out = larger is None or smaller <= larger + SLACK * abs(larger)
    return Statement(source, smaller, larger, "" if borne_out else "rounding outweighs it")


def line_of(s: Summary) -> str:
    """Return a statement as a text: its verdict, then its numbers or the reason."""
    if s["reason"]:
        return f"void: {s['reason']}"
    sentence = SENTENCES[s["source"]].format(**s)
    return f"holds: {sentence}" if s["verdict"] == "holds" else sentence
