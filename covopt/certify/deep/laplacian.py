"""Proofs of three layers and more from edges between samples, and for a regularised loss from flows on them.

See `edges` and `flows` for the mathematics (MATH.md section 5).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from covopt.certify.deep.edges import Edges, power
from covopt.certify.deep.flows import Incidence, best_flows, bound_of
from covopt.certify.deep.weighing import weigh
from covopt.certify.proof import Proof, Proved, Target
from covopt.certify.spectral import is_bounded, spectral_lines
from covopt.model.loss import CrossEntropy
from covopt.model.problem import Problem
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Certificate


@dataclass(frozen=True)
class Laplacian(Proof):
    """A bound from edges between samples, for every network of the problem's depth.

    Attributes:
        edges: the edges and their sizes.
        flows: flows on them (K, E, m), each of which gives a line below the loss; None for exact fits.
        spread: the size of the rows that are added for cross-entropy (1,); None for exact fits.
    """

    edges: Edges
    flows: Float[Tensor, "_ _ _"] | None = None
    spread: Float[np.ndarray, " _"] | None = None

    kind: ClassVar[Certificate] = Certificate.LAPLACIAN
    effort: ClassVar[int] = 1
    missing: ClassVar[str] = "The stored edges are missing or do not fit the data; certify the run again."

    @classmethod
    def applies(cls, problem: Problem) -> bool:
        """Return True if there are two samples, and the loss has bounds from the data alone."""
        return problem.depth > 2 and is_bounded(problem) and problem.samples > 1

    @classmethod
    def prove(cls, problem: Problem, target: Target, last: Any = None) -> Proved | None:
        """Weigh the edges for the largest |B Y|_* / a, and find the flows that the bound needs."""
        Y, stop = problem.Y.double(), target.stop
        # The rows of the outputs count up to a constant there.
        targets = Y - Y.mean(dim=1, keepdim=True) if type(problem.loss) is CrossEntropy else Y
        edges = weigh(problem, targets, stop)
        if edges is None or not edges.fits(problem):
            return None
        proof = cls(0.0, edges)
        if not problem.interpolates:
            if stop():  # flows on edges that were hardly weighed prove next to nothing
                return None
            flows, spread = best_flows(problem, edges, spectral_lines(problem, stop=stop)[1], stop)
            if not flows:
                return None
            proof = cls(0.0, edges, torch.stack(flows), np.array([spread]))
        return proof.proved(problem)

    def bound(self, problem: Problem) -> float:
        """Return the bound from the reach of the edges and from what the targets, or the flows, have on them."""
        edges = self.edges
        if not edges.fits(problem):
            raise ProblemError(self.missing)
        edges = Edges(edges.pairs.long(), edges.sizes.double())
        if problem.interpolates:
            reach = edges.reach(problem)
            return power(edges.nuclear(problem) / reach, problem.depth) * (1.0 - 2.0**-40) if reach > 0.0 else 0.0
        spread, flows = self.spread, edges.sizes.new_zeros(0, 0, 0) if self.flows is None else self.flows.double()
        eta = float(spread[0]) if spread is not None and spread.shape == (1,) else math.nan
        incidence = Incidence(problem, edges, eta)
        if not incidence.fits(flows):
            raise ProblemError("The stored flows are missing or do not fit the data; certify the run again.")
        reach = incidence.reach()
        lines = [incidence.line(flow, reach) for flow in flows]
        return bound_of(problem, [*spectral_lines(problem)[1], *(line for line in lines if line is not None)])
