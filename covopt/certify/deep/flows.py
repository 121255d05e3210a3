"""Bounds for three and more layers from edges between samples, and from flows on them (MATH.md section 5).

The edges alone bound exact fits, and mse by the ranks (ranks.py). Each flow on the edges gives a line below a loss C.

With rho = prod_l |W_l|_F, every network has |W|^2 >= L rho^(2/L). A flow W (E, m) on the edges gives the dual point
Lambda = B^T W, and |<Lambda, F>| = |<W, B F>| <= |W|_op |B F|_* <= |W|_op a rho, with the reach a of `Edges.reach`. So

    C(F) >= -C*(-Lambda) - <Lambda, F> >= b - g rho,   b = -C*(-Lambda),   g = |W|_op a,

a line for each flow, however it was found. The spectral bound has lines of the same kind (spectral.py), so the minimum
of max(lines) + lam L rho^(2/L) over rho >= 0 is the bound of all of them together.

    mse:            b = <W, B Y> - sum_i |(B^T W)_i|^2 / (4 q_i)
    cross_entropy:  b = sum_i q_i times the entropy of p_i = Y_i - (B^T W)_i / q_i, which must be points of the simplex

with the shares q_i of the samples, 1/N without weights.

For cross_entropy, B has N more rows, eta H (eta I without a bias); their flow moves p into the simplex, and the square
of their reach is added. The mean of each row of a flow is subtracted exactly, so that the rows of p add up to 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from covopt.certify import spectral
from covopt.certify.deep.edges import Edges
from covopt.certify.deep.ranks import RANKED, ranked_bound
from covopt.certify.deep.weighing import weigh
from covopt.certify.proof import DeepProof, Proved, Target
from covopt.linalg.rounding import to_unit_scale
from covopt.model.loss import CrossEntropy
from covopt.model.problem import Problem
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Certificate, Stop

Line = spectral.Line
Flow = Float[Tensor, "E m"]


@dataclass(frozen=True)
class Incidence:
    """The linear map B: the edges of a problem, and the added rows of cross_entropy."""

    problem: Problem
    edges: Edges
    spread: float = 0.0  # eta; 0 for mse

    @property
    def entropy(self) -> bool:
        """Return True for cross_entropy, False for mse."""
        return type(self.problem.loss) is CrossEntropy

    def _centred(self, A: Tensor) -> Tensor:
        return A - A.mean(dim=0) if self.problem.beta != 0.0 else A

    def rows(self, A: Float[Tensor, "N n"]) -> Float[Tensor, "E n"]:
        """Return B A."""
        rows = self.edges.rows(A)
        return torch.cat([rows, self.spread * self._centred(A)]) if self.spread else rows

    def scattered(self, flow: Flow) -> Float[Tensor, "N m"]:
        """Return B^T W."""
        count = len(self.edges.pairs)
        out = self.edges.scattered(flow[:count], self.problem.samples)
        return out + self.spread * self._centred(flow[count:]) if self.spread else out

    def fits(self, flows: Float[Tensor, "K E m"]) -> bool:
        """Return True if the arrays can be flows on B."""
        rows = len(self.edges.pairs) + (self.problem.samples if self.spread else 0)
        shaped = flows.shape[1:] == (rows, self.problem.Y.shape[1])
        return shaped and 0.0 <= self.spread < math.inf and bool(torch.isfinite(flows).all())

    def reach(self) -> float:
        """Return an upper bound on max_w |B sigma(Xt w)|."""
        own = self.edges.reach(self.problem)
        if not self.spread:
            return own
        return math.hypot(own, self.spread * _size(self.problem)) * (1.0 + 2.0**-50)

    def line(self, flow: Flow, reach: float) -> Line | None:
        """Return the line (b, g) that a flow proves, rounding included, or None."""
        flow, size = to_unit_scale(flow)
        if not bool(torch.isfinite(flow).all()):
            return None
        values = torch.linalg.svdvals(flow)
        steepness = size * (float(values[0]) + max(flow.shape) * spectral.CHARGED * float(flow.norm()))
        if self.entropy:
            flow = size * (flow - flow.mean(dim=1, keepdim=True))
            base = self._entropy(flow)
        else:
            base = self._parabola(size * flow)
        slope = steepness * reach * (1.0 + 2.0**-50)
        return None if base is None or not math.isfinite(slope) else (base, slope)

    def _parabola(self, flow: Flow) -> float | None:
        Y, size = to_unit_scale(self.problem.Y.double())
        flow = flow / size
        ends, point = self.rows(Y), self.scattered(flow)
        terms = self._absolute(flow)
        linear, square = flow * ends, point.square()
        lost = (flow.numel() + Y.numel() + 32) * 2.0**-52
        moved = float(linear.abs().sum() + (flow.abs() * self.edges.absolute_rows(Y)).sum())
        inverse = self.problem.inverse_shares
        moved += 0.5 * float(inverse @ (terms * (point.abs() + terms)).sum(dim=1))
        base = float(linear.sum()) - 0.25 * float(inverse @ square.sum(dim=1)) - lost * moved
        return size * size * base if math.isfinite(base) else None

    def _entropy(self, flow: Flow) -> float | None:
        Y, inverse = self.problem.Y.double(), self.problem.inverse_shares[:, None]
        p = Y - inverse * self.scattered(flow)
        # The rounding of each entry of p, by the sum of the absolute values of its terms.
        lost = 2.0**-46 * (1.0 + inverse * self._absolute(flow))
        # Rows of Y add up to 1 within rounding; p is off the simplex by as much.
        lost = lost + (Y.sum(dim=1, keepdim=True) - 1.0).abs()
        if not bool(torch.isfinite(p).all()) or bool((p < lost).any()):
            return None
        entropy = -torch.special.xlogy(p, p.clamp_min(0.0)).sum(dim=1)
        # |d p log p| <= |d p| (1 + |log |d p||), and the logarithm of a number above the rounding is below 40.
        return float(self.problem.shares @ (entropy - 40.0 * lost.sum(dim=1)))

    def _absolute(self, flow: Flow) -> Float[Tensor, "N m"]:
        """Return an upper bound on |B|^T |W|."""
        count = len(self.edges.pairs)
        out = self.edges.absolute_scattered(flow[:count], self.problem.samples)
        if not self.spread:
            return out
        added = flow[count:].abs()
        return out + self.spread * (added + added.mean(dim=0))


def incidence_of(problem: Problem, edges: Edges) -> Incidence:
    """Return the map of these edges, with the added rows if the loss is cross_entropy."""
    incidence = Incidence(problem, edges)
    if not incidence.entropy:
        return incidence
    # The added rows have about this part of the reach.
    added = _size(problem)
    return replace(incidence, spread=0.4 * max(edges.reach(problem) / added, 1e-3) if added > 0.0 else 0.4)


def _size(problem: Problem) -> float:
    """Return an upper bound on |H X|_op without sample weights, H = I without a bias."""
    return spectral.largest_singular_value(replace(problem, weight=None), problem.X.double(), problem.beta != 0.0)


def bound_of(problem: Problem, lines: list[Line]) -> float:
    """Return the minimum of max(lines) + lam L rho^(2/L) over rho >= 0, rounded down."""
    lower, _ = spectral.least_of_lines({k + 1.0: line for k, line in enumerate(lines)}, _penalty(problem))
    return max(0.0, lower * (1.0 - spectral.SLACK) - spectral.UNDERFLOW)


def _penalty(problem: Problem) -> Callable[[Tensor], Tensor]:
    """Return the function rho -> lam L rho^(2/L)."""
    return lambda rho: problem.lam * problem.depth * rho ** (2.0 / problem.depth)


@dataclass
class Family:
    """The map from theta to the line of the best flow with |W|_op <= theta that a first-order method finds."""

    incidence: Incidence  # B
    reach: float  # a
    flows: dict[float, tuple[Flow, Line]] = field(default_factory=dict)  # the flow and the line of each theta so far
    steps: ClassVar[int] = 120  # the number of steps for each flow
    _last: tuple[Tensor, Tensor] | None = None

    def steepest(self) -> float:
        """Return about the smallest theta whose flow can be B^T W = -grad C(constant): larger ones gain nothing."""
        problem, entropy = self.incidence.problem, self.incidence.entropy
        Y = problem.Y.double()
        pull = Y - problem.mean(Y) if problem.beta != 0.0 or entropy else Y
        pull = (1.0 if entropy else 2.0) * problem.shares[:, None] * pull
        flow = self._ascent(torch.zeros_like(self.incidence.rows(pull)), pull, math.inf)
        return float(torch.linalg.matrix_norm(flow, 2))

    def __call__(self, theta: float) -> Line:
        """Return the line; (0, 0) if the flow proves none."""
        flow = self._entropy(theta) if self.incidence.entropy else self._parabola(theta)
        line = self.incidence.line(flow, self.reach) or (0.0, 0.0)
        self.flows[theta] = (flow, line)
        return line

    @property
    def _ease(self) -> Float[Tensor, " N"]:
        """Return 1 / w."""
        return self.incidence.problem.inverse_shares / self.incidence.problem.samples

    def _norm(self, ease: Float[Tensor, " N"] | float = 1.0) -> float:
        """Return an upper bound on |B diag(ease)^(1/2)|_op^2."""
        edges = self.incidence.edges
        degrees = edges.absolute_scattered(edges.sizes.sum(dim=1, keepdim=True), self.incidence.problem.samples)[:, 0]
        return float((ease * (degrees + self.incidence.spread**2)).max())

    def _parabola(self, theta: float) -> Flow:
        """Return about the best flow of mse: it maximises <W, B Y> - sum_i |(B^T W)_i|^2 / (4 q_i)."""
        Y = self.incidence.problem.Y.double()
        start = torch.zeros_like(self.incidence.rows(Y)) if self._last is None else self._last[0]
        flow = self._ascent(start, 2.0 * self.incidence.problem.shares[:, None] * Y, theta)
        self._last = (flow, flow)
        return flow

    def _ascent(self, flow: Flow, pull: Float[Tensor, "N m"], theta: float) -> Flow:
        """Minimise sum_i |(B^T W - pull)_i|^2 / w_i, |W|_op <= theta, by accelerated projected gradient steps."""
        length, ease = 1.0 / self._norm(self._ease), self._ease[:, None]

        def step(flow: Flow) -> Flow:
            gradient = self.incidence.rows(ease * (pull - self.incidence.scattered(flow)))
            return _clipped(flow + length * gradient, theta)

        return spectral.accelerated(step, flow, self.steps)

    def _entropy(self, theta: float) -> Flow:
        """Take primal-dual steps (Condat, Vu) on C(F) + theta |B F|_*; return the flow with p in the simplex."""
        problem, incidence = self.incidence.problem, self.incidence
        Y, shares, norm = problem.Y.double(), problem.shares[:, None], self._norm()
        if self._last is None:
            F = torch.zeros_like(Y) + (problem.mean(Y) + 1e-3).log()
            W = torch.zeros_like(incidence.rows(F))
        else:
            F, W = self._last
        # Smaller steps than the sizes of B and F suggest.
        dual = 0.3 * theta / (math.sqrt(norm) * math.sqrt(problem.samples))
        primal = 1.0 / (0.25 * shares + dual * norm)
        for _ in range(2 * self.steps):
            slope = shares * (torch.softmax(F, dim=1) - Y) + incidence.scattered(W)
            new = F - primal * slope
            W = _clipped(W + dual * incidence.rows(2.0 * new - F), theta)
            F = new
        self._last = (F, W)
        p = torch.softmax(F, dim=1)
        mean = problem.mean(Y)[None]
        if problem.beta != 0.0:
            p = spectral.with_column_means(problem, p, mean)
        inside = 1e-9  # mix in this part of the constant distribution, so that p is inside the simplex
        p = (1.0 - inside) * p + inside * (mean if problem.beta != 0.0 else 1.0 / Y.shape[1])
        W = W - W.mean(dim=1, keepdim=True)
        count = len(incidence.edges.pairs)
        missing = shares * (Y - p) - incidence.scattered(W)
        return torch.cat([W[:count], W[count:] + missing / incidence.spread])


def _clipped(flow: Flow, most: float) -> Flow:
    """Return the nearest flow with singular values of at most `most`."""
    squares, V = torch.linalg.eigh(flow.T @ flow)
    values = squares.clamp_min(0.0).sqrt()
    factors = torch.where(values > most, most / values.clamp_min(1e-300), 1.0)
    return (flow @ V) * factors @ V.T


def best_flows(problem: Problem, edges: Edges, others: list[Line], stop: Stop) -> tuple[list[Flow], float]:
    """Find flows on these edges that raise the bound of the other lines; return the flows and eta."""
    incidence = incidence_of(problem, edges)
    family = Family(incidence, incidence.reach())
    spectral.least(family, family.steepest(), _penalty(problem), stop)
    flows = list(family.flows.values())
    best = bound_of(problem, others + [line for _, line in flows])
    for entry in list(flows):
        fewer = [other for other in flows if other is not entry]
        if bound_of(problem, others + [line for _, line in fewer]) >= best * (1.0 - 1e-7):
            flows = fewer
    return [flow for flow, _ in flows], incidence.spread


@dataclass(frozen=True)
class Laplacian(DeepProof):
    """A bound from edges between samples, for every network of the problem's depth."""

    edges: Edges  # the edges and their sizes
    flows: Float[Tensor, "_ _ _"] | None = None  # (K, E, m), each for a line below the loss; None if ranks prove more
    spread: Float[np.ndarray, " _"] | None = None  # eta, the size of the rows added for cross_entropy (1,)

    kind: ClassVar[Certificate] = Certificate.LAPLACIAN
    effort: ClassVar[int] = 1
    missing: ClassVar[str] = "The stored edges are missing or do not fit the data; solve again."

    losses: ClassVar[tuple[type, ...]] = spectral.LOSSES

    @classmethod
    def suits(cls, problem: Problem) -> bool:
        """Return True if there are two samples."""
        return problem.samples > 1

    @classmethod
    def prove(cls, problem: Problem, target: Target, last: Any = None) -> Proved | None:
        """Weigh the edges, find the flows that the loss needs, and return the best of these proofs."""
        Y, stop = problem.Y.double(), target.stop
        weighed = [edges for edges in weigh(problem, problem.contrasts(Y), stop) if edges.fits(problem)]
        proofs = [cls(0.0, edges) for edges in weighed if type(problem.loss) in RANKED]
        # Flows on edges with barely optimised weights prove very little.
        if weighed and not problem.interpolates and not stop():
            flows, spread = best_flows(problem, weighed[0], spectral.spectral_lines(problem, stop=stop)[1], stop)
            if flows:
                proofs.append(cls(0.0, weighed[0], torch.stack(flows), np.array([spread])))
        proved = [proof.proved(problem) for proof in proofs]
        return max(proved, key=lambda proved: proved.proof.lower, default=None)

    def bound(self, problem: Problem) -> float:
        """Return the bound from the reach of the edges and from the targets, or the flows, on them."""
        edges = self.edges
        if not edges.fits(problem):
            raise ProblemError(self.missing)
        edges = Edges(edges.pairs.long(), edges.sizes.double())
        if self.flows is None and type(problem.loss) in RANKED:
            return ranked_bound(problem, edges)
        spread, flows = self.spread, edges.sizes.new_zeros(0, 0, 0) if self.flows is None else self.flows.double()
        eta = float(spread[0]) if spread is not None and spread.shape == (1,) else math.nan
        incidence = Incidence(problem, edges, eta)
        if not incidence.fits(flows):
            raise ProblemError("The stored flows are missing or do not fit the data; solve again.")
        reach = incidence.reach()
        lines = [incidence.line(flow, reach) for flow in flows]
        return bound_of(problem, [*spectral.spectral_lines(problem)[1], *(line for line in lines if line is not None)])
