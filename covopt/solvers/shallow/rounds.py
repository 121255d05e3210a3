"""Rounds of fully corrective Frank-Wolfe: what penalised and free biases share.

Each round asks a search for many distinct local maxima of h at the current dual point, hands them to the master as new
atoms, and keeps what the master uses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.oracles.oracle import Answer
from covopt.oracles.search import ENTRIES
from covopt.runtime.loop import Budget, Progress, Status
from covopt.solvers.shallow.datafits import Datafit
from covopt.solvers.shallow.master import Mixture
from covopt.solvers.shallow.networks import Network


@dataclass(frozen=True)
class ShallowOptions:
    """When the rounds end, and what they begin with.

    Attributes:
        gap: stop at this proved relative gap.
        stall_tolerance: without a proof, a round is stalled when the search finds no h above 1 + stall_tolerance * gap
            and the cost has stopped falling.
        patience: stalled rounds in a row after which the search ends.
        tol: rounds that lower the cost by less than this, relative, are slow; None: none are.
        entries: of the arrays of a search.
    """

    gap: float = 1e-4
    stall_tolerance: float = 1e-2
    patience: int = 3
    tol: float | None = None
    entries: int = ENTRIES


@dataclass
class State:
    """The state of the rounds.

    Attributes:
        directions: the atoms' unit directions in the row-space basis (n, r); with free biases rows (w, b), |w| = 1.
        mixture: the master's answer on them.
        answer: what the search found at the mixture's dual point.
        best: the best network so far.
        lower: the best proved bound so far, in the user's units.
        effort: place in the efforts of the search.
        stalled: rounds in a row without gain: no violating neuron was found, and the cost did not fall.
        slow: rounds in a row that gained less than the tolerance.
        smoothing_stage: how many of the roundest kinks descents leave out; for `interpolate` the first from the
            beginning, because copies of neurons come from it that are merged less often.
    """

    directions: Float[Tensor, "n r"]
    mixture: Mixture
    answer: Answer
    best: Network
    lower: float | None = None
    effort: int = 0
    stalled: int = 0
    slow: int = 0
    smoothing_stage: int = 0


class Rounds(ABC):
    """The rounds, for `loop.run`.

    Args:
        options: when they end.
        fit: the loss as the master sees it.
    """

    new_atoms = 400
    """Atoms added in a round, at most."""
    slow_rounds = 2
    """Rounds in a row that gain less than a given tolerance, after which the search ends: one alone may only be the
    last of an effort that is too small."""
    smallest_tolerance, largest_tolerance, relative_tolerance = 1e-12, 1e-3, 0.05
    """The bounds of the master's tolerance, and that relative to the last violation."""

    def __init__(self, options: ShallowOptions, fit: Datafit) -> None:
        self.options, self._fit = options, fit

    @abstractmethod
    def cost(self, state: State) -> float:
        """Return the cost of the best network so far, in the user's units."""

    @abstractmethod
    def _round(self, directions: Tensor, eta: Tensor, last: State | None, budget: Budget) -> State:
        """Solve the master on these atoms, from the weights eta, and search."""

    def step(self, state: State, budget: Budget) -> State:
        """Add the atoms that the search found, solve the master, search."""
        atoms = self._atoms(state)
        eta = torch.cat([state.mixture.eta, atoms.new_zeros(len(atoms))])
        return self._round(torch.cat([state.directions, atoms]), eta, state, budget)

    def finished(self, state: State) -> Status | None:
        """Return OPTIMAL at the gap, CONVERGED without new neurons, TOLERANCE if slow."""
        cost, lower = self.cost(state), state.lower
        if lower is not None and cost < torch.inf and cost - lower <= self.options.gap * cost:
            return Status.OPTIMAL
        if state.stalled >= self.options.patience:
            return Status.CONVERGED
        return Status.TOLERANCE if state.slow >= self.slow_rounds else None

    def progress(self, state: State, iteration: int, seconds: float) -> Progress:
        """Return cost, bound and width of the best network."""
        return Progress(iteration, seconds, self.cost(state), state.lower, len(state.best.U))

    def after_proof(self, state: State, refuting: Answer | None, lower: float | None) -> State:
        """Return the state after a certifier's turn: refuting neurons and the proved bound."""
        return replace(state, answer=refuting or state.answer, lower=lower, stalled=0, slow=0)

    def _atoms(self, state: State) -> Tensor:
        """Return the best of the distinct violators that the search found."""
        return state.answer.directions[state.answer.values > 1.0][: self.new_atoms]

    def _solved(
        self, directions: Tensor, Phi: Tensor, eta: Tensor, tolerance: float, budget: Budget
    ) -> tuple[Tensor, Tensor, Mixture]:
        """Solve the master; return the atoms that it uses, their features, and the mixture of them."""
        with budget.phase("master"):
            mixture = self._fit.solve(Phi, eta, tolerance, budget.pace())
        used = mixture.eta > 0
        return directions[used], Phi[:, used], replace(mixture, eta=mixture.eta[used], outputs=mixture.outputs[used])

    def _better_of(self, network: Network, last: State | None) -> Network:
        return network if last is None or network.cost < last.best.cost else last.best

    def _tolerance(self, last: State | None) -> float:
        violation = violation_of(last.answer) if last is not None else 1.0
        return min(self.largest_tolerance, max(self.smallest_tolerance, self.relative_tolerance * violation))


def largest_value(answer: Answer) -> float:
    """Return the largest h that a search found."""
    return float(answer.values.max()) if len(answer.values) else 0.0


def violation_of(answer: Answer) -> float:
    """Return by how much the largest h is above 1."""
    return max(0.0, largest_value(answer) - 1.0)
