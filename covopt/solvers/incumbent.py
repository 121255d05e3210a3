"""The best network and the best bound of a solve so far, with their history."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from jaxtyping import Float
from torch import Tensor

from covopt.certify.proof import Proof
from covopt.model.problem import Problem
from covopt.model.weights import Weights, evaluate
from covopt.runtime.loop import Budget, Callback, Iteration, Progress, Status, run
from covopt.solvers.layer import Layer


@dataclass
class Attempt:
    """The result of one search."""

    weights: list[Tensor]  # the best network
    status: Status  # the reason why the search ended
    history: list[Progress]  # cost, bound and width over time
    proof: Proof | None = None  # the best bound; None without one
    starts: list[float] = field(default_factory=list)  # the lowest cost reached from each start
    Lambda: Float[Tensor, "N m"] | None = None  # the dual point that a search of two layers ended at (N, m)


class Incumbent:
    """The best network and the best bound so far, which the stages of a plan share, in the units of the data."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.weights: list[Tensor] = []  # the weights of the best network; empty before the first one
        self.cost = math.inf  # its loss, infinite while none fits
        self.proof: Proof | None = None  # the best bound
        self.history: list[Progress] = []  # cost, bound and width over time, the stages numbered on
        self.starts: list[float] = []  # the lowest cost reached from each start
        self.status = Status.UNSOLVED  # the reason why the last stage ended
        self.layers: list[Layer] = []  # each hidden layer on its own, for depth >= 3

    @property
    def rounds(self) -> int:
        """The number of rounds so far, the state before the first one not counted."""
        return self.history[-1].iteration if self.history else 0

    def offer(self, weights: Weights, cost: float | None = None) -> None:
        """Take a network that costs no more than the best one so far; at the same cost the later one is smaller."""
        cost = cost_of(self.problem, weights) if cost is None else cost
        if not self.weights or cost <= self.cost:
            self.weights, self.cost = list(weights), cost

    def closed(self, gap: float) -> bool:
        """Return True if the cost is proved to be the minimum up to this relative gap."""
        return self.proof is not None and self.proof.lower >= self.cost * (1.0 - gap)

    def bounded(self, line: Progress) -> Progress:
        """Return a line of progress with the best bound so far."""
        lower = -math.inf if self.proof is None else self.proof.lower
        return replace(line, lower=lower) if lower > (-math.inf if line.lower is None else line.lower) else line

    def prove(self, *proofs: Proof | None) -> None:
        """Take the highest of these bounds if it is above the one so far."""
        for proof in proofs:
            if proof is not None and (self.proof is None or proof.lower > self.proof.lower):
                self.proof = proof

    def record(self, lines: Iterable[Progress]) -> None:
        """Add the history of a stage."""
        done = self.history[-1].iteration + 1 if self.history else 0
        self.history += [replace(line, iteration=done + line.iteration) for line in lines]

    def take(self, attempt: Attempt) -> None:
        """Take the network, the bound, the history and the status of a search."""
        # In the units of a search, rounding differs: what fits exactly there may not fit here.
        self.offer(attempt.weights, None if self.problem.allowed_misfit else min(attempt.starts))
        self.prove(attempt.proof)
        self.record(attempt.history)
        self.starts, self.status = attempt.starts, attempt.status


def cost_of(problem: Problem, weights: Weights) -> float:
    """Return the cost in float64; infinite for `interpolate` if the network does not fit."""
    cost = evaluate(problem, [W.double() for W in weights])
    return cost.total if problem.allows(cost.residual) and math.isfinite(cost.total) else math.inf


def one_history(history: list[Progress], callback: Callback | None) -> Callback:
    """Return a callback that makes one history of several runs: the lowest cost of all so far."""

    def add(line: Progress) -> None:
        if history and history[-1].cost <= line.cost:
            line = replace(line, cost=history[-1].cost, width=history[-1].width)
        history.append(replace(line, iteration=len(history)))
        if callback is not None:
            callback(history[-1])

    return add


def best_of(turns: Iterable[tuple[Iteration[Any], Budget]], callback: Callback | None) -> Attempt:
    """Run one search after the other, each within its budget; return the best network.

    The status is CONVERGED only if every search converged.
    """
    ends: list[tuple[float, list[Tensor]]] = []
    history: list[Progress] = []
    status = Status.CONVERGED
    for search, budget in turns:
        if ends and budget.spent():
            status = Status.INTERRUPTED if budget.interrupted() else Status.TIME_LIMIT
            break
        outcome = run(search, budget, one_history(history, callback))
        ends.append((outcome.state.cost, outcome.state.weights))
        status = status if outcome.status is Status.CONVERGED else outcome.status
        if status is Status.INTERRUPTED:
            break
    _, best = min(ends, key=lambda end: end[0])
    return Attempt(best, status, history, starts=[cost for cost, _ in ends])
