"""The certifiers of every depth: how each finds a proof from the data alone, and how its arrays are checked.

Each bound holds for every network of the problem's depth, of any width, because what it measures passes through all the
layers (MATH.md section 5); bounds of single blocks, with their neighbours held, would bound nothing but those blocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Protocol

import numpy as np
import torch

from covopt.certify.deep import angle, convexity, linear, loop
from covopt.certify.deep.edges import Edges, power
from covopt.certify.deep.flows import Incidence, best_flows, bound_of
from covopt.certify.deep.weighing import Stop, weigh
from covopt.certify.dual import Proof
from covopt.certify.spectral import LOSSES, spectral_lines
from covopt.model.problem import Problem
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Certificate


class DeepCertifier(Protocol):
    """A certifier that needs the data alone."""

    evidence: ClassVar[Mapping[str, tuple[str, int]]]

    def applies(self, problem: Problem) -> bool:
        """Whether it can prove a bound of this problem."""
        ...

    def find(self, problem: Problem, stop: Stop) -> Proof | None:
        """A proof; a worse one, or None, where `stop` says that time is up."""
        ...

    def check(self, problem: Problem, proof: Proof) -> float:
        """The bound that the stored arrays prove."""
        ...


class Laplacian:
    """Edges between samples, and for a regularised loss flows on them."""

    evidence: ClassVar[Mapping[str, tuple[str, int]]] = {
        "pairs": ("i", 2),
        "sizes": ("f", 2),
        "flows": ("f", 3),
        "spread": ("f", 1),
    }

    def applies(self, problem: Problem) -> bool:
        """Whether the bounds of the loss from the data alone are known, and there are two samples."""
        return problem.depth > 2 and problem.loss.name in LOSSES and problem.samples > 1

    def find(self, problem: Problem, stop: Stop) -> Proof | None:
        """The edges with the largest |B Y|_* / a, and the flows that the bound needs."""
        Y = problem.Y.double()
        # The rows of the outputs count up to a constant there.
        targets = Y - Y.mean(dim=1, keepdim=True) if problem.loss.name == "cross_entropy" else Y
        edges = weigh(problem, targets, stop)
        if edges is None or not len(edges.pairs) or not edges.fits(problem):
            return None
        evidence = edges.evidence()
        if not problem.interpolates:
            if stop():  # flows on edges that were hardly weighed prove next to nothing
                return None
            flows, spread = best_flows(problem, edges, spectral_lines(problem, stop=stop)[1], stop)
            if not flows:
                return None
            evidence |= {"flows": torch.stack(flows).numpy(), "spread": np.array([spread])}
        proof = Proof(0.0, Certificate.LAPLACIAN, evidence=evidence)
        return Proof(self.check(problem, proof), Certificate.LAPLACIAN, evidence=evidence)

    def check(self, problem: Problem, proof: Proof) -> float:
        """The reach of the edges and what the targets, or the flows, have on them."""
        edges = Edges.of(proof.evidence, problem)
        if problem.interpolates:
            reach = edges.reach(problem)
            return power(edges.nuclear(problem) / reach, problem.depth) * (1.0 - 2.0**-40) if reach > 0.0 else 0.0
        spread = proof.evidence.get("spread", np.empty(0))
        flows = torch.from_numpy(proof.evidence.get("flows", np.empty((0, 0, 0)))).double()
        incidence = Incidence(problem, edges, float(spread[0]) if spread.shape == (1,) else math.nan)
        if not incidence.fits(flows):
            raise ProblemError("The stored flows are missing or do not fit the data; certify the run again.")
        reach = incidence.reach()
        lines = [incidence.line(flow, reach) for flow in flows]
        return bound_of(problem, [*spectral_lines(problem)[1], *(line for line in lines if line is not None)])


class Convexity:
    """Multipliers of one sign in each column."""

    evidence: ClassVar[Mapping[str, tuple[str, int]]] = {"multipliers": ("f", 2)}

    def applies(self, problem: Problem) -> bool:
        """Few samples, an oracle, a ReLU."""
        return problem.depth > 2 and convexity.applies(problem)

    def find(self, problem: Problem, stop: Stop) -> Proof | None:
        """By cutting planes."""
        Lambda = convexity.multipliers(problem, stop)
        if Lambda is None:
            return None
        return Proof(convexity.bound(problem, Lambda), Certificate.CONVEXITY, evidence={"multipliers": Lambda.numpy()})

    def check(self, problem: Problem, proof: Proof) -> float:
        """The oracle at the stored multipliers."""
        Lambda = proof.evidence.get("multipliers", np.empty(0))
        if Lambda.shape != tuple(problem.Y.shape):
            raise ProblemError("The stored multipliers are missing or do not fit the data; certify the run again.")
        return convexity.bound(problem, torch.from_numpy(Lambda).double())


class Angle:
    """The angle between two samples."""

    evidence: ClassVar[Mapping[str, tuple[str, int]]] = {"pair": ("i", 1)}

    def applies(self, problem: Problem) -> bool:
        """Exact fits without biases."""
        return problem.depth > 2 and angle.applies(problem)

    def find(self, problem: Problem, stop: Stop) -> Proof | None:
        """The best pair."""
        pair = angle.best_pair(problem)
        return Proof(angle.bound(problem, pair), Certificate.ANGLE, evidence={"pair": np.array(pair)})

    def check(self, problem: Problem, proof: Proof) -> float:
        """The stored pair."""
        pair = proof.evidence.get("pair", np.empty(0, dtype=np.int64)).tolist()
        if len(pair) != 2 or not all(0 <= k < problem.samples for k in pair):
            raise ProblemError("The stored pair is missing or does not fit the data; certify the run again.")
        return angle.bound(problem, (pair[0], pair[1])) if angle.applies(problem) else 0.0


class Loops:
    """Winding numbers."""

    evidence: ClassVar[Mapping[str, tuple[str, int]]] = {"loop": ("i", 1), "plane": ("f", 2)}

    def applies(self, problem: Problem) -> bool:
        """Exact fits with two inputs and outputs at least."""
        return problem.depth > 2 and loop.applies(problem)

    def find(self, problem: Problem, stop: Stop) -> Proof | None:
        """The best of a few hulls."""
        found = loop.best_loop(problem, stop)
        if found is None:
            return None
        return Proof(loop.bound(problem, found), Certificate.LOOP, evidence=found.evidence())

    def check(self, problem: Problem, proof: Proof) -> float:
        """The stored loop."""
        found = loop.Loop.of(proof.evidence, problem)
        return loop.bound(problem, found) if loop.applies(problem) else 0.0


class Linear:
    """Singular values of the least linear map."""

    evidence: ClassVar[Mapping[str, tuple[str, int]]] = {}

    def applies(self, problem: Problem) -> bool:
        """Exact fits by linear networks."""
        return problem.depth > 2 and linear.applies(problem)

    def find(self, problem: Problem, stop: Stop) -> Proof | None:
        """The closed form."""
        return Proof(linear.bound(problem), Certificate.LINEAR)

    def check(self, problem: Problem, proof: Proof) -> float:
        """The closed form."""
        return linear.bound(problem) if linear.applies(problem) else 0.0


DEEP: dict[Certificate, DeepCertifier] = {
    Certificate.LINEAR: Linear(),
    Certificate.ANGLE: Angle(),
    Certificate.LOOP: Loops(),
    Certificate.LAPLACIAN: Laplacian(),
    Certificate.CONVEXITY: Convexity(),
}
"""The cheapest first."""


def deep_proof(problem: Problem, first: Proof, stop: Stop) -> Proof:
    """The best proof of a problem of three layers or more.

    Args:
        problem: the question.
        first: the spectral proof.
        stop: asked between proofs and within the long ones.
    """
    problem = problem.to(torch.device("cpu"))  # small dense work, and a convex solver
    best = first
    for certifier in DEEP.values():
        if stop():
            break
        found = certifier.find(problem, stop) if certifier.applies(problem) else None
        # A later kind has to prove more than rounding more.
        if found is not None and found.lower > best.lower * (1.0 + 1e-9):
            best = found
    return best
