"""Rounds of fully corrective Frank-Wolfe, for penalised and unpenalised biases.

Each round searches for many distinct local maxima of h at the current dual point, adds them to the master problem as
new atoms, solves it, and removes the atoms of weight zero.
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
    """Stopping rules of the rounds, and the memory of a search."""

    gap: float = 1e-4  # stop at this proved relative gap
    # a round is stalled if the search finds no h above 1 + stall_tolerance * gap and the cost no longer falls
    stall_tolerance: float = 1e-2
    patience: int = 3  # stop after this number of stalled rounds in a row
    tol: float | None = None  # a round that lowers the cost by less than this, relative, is slow; None: none is
    entries: int = ENTRIES  # maximum number of entries of an array of the search


@dataclass
class State:
    """The state of the rounds."""

    # the atoms' unit directions in the row-space basis (n, r); with free biases rows (w, b), |w| = 1
    directions: Float[Tensor, "n r"]
    mixture: Mixture  # the solution of the master problem on these atoms
    answer: Answer  # the neurons that the search found at the dual point of the mixture
    best: Network  # the best network so far
    lower: float | None = None  # the best proved bound so far, in the user's units
    effort: int = 0  # index into the efforts of the search
    stalled: int = 0  # rounds in a row in which no violating neuron was found and the cost did not fall
    slow: int = 0  # rounds in a row that lowered the cost by less than `tol`
    # number of smoothed kinks, the roundest first, that descents skip. Exact fits always skip the first: it creates
    # copies of neurons, and few of these copies are merged
    smoothing_stage: int = 0
    misfit: float = torch.inf  # |F - Y|_F of the mixture in exact fits, where it is small


class Rounds(ABC):
    """Column generation as an iteration of `loop.run`, with the loss `fit` in the master problem."""

    new_atoms = 400  # maximum number of atoms that a round adds
    slow_rounds = 2
    """The search ends after this number of slow rounds in a row: a single one may only mean that the search effort was
    too small."""
    smallest_tolerance, largest_tolerance, relative_tolerance = 1e-12, 1e-3, 0.05
    """The tolerance of the master is a multiple of the last violation (relative_tolerance), within these limits."""

    def __init__(self, options: ShallowOptions, fit: Datafit) -> None:
        self.options, self._fit = options, fit

    def best(self, state: State) -> Network:
        """Return the best network so far."""
        return state.best

    @abstractmethod
    def cost(self, state: State) -> float:
        """Return the cost of the best network so far, in the user's units."""

    @abstractmethod
    def _round(self, directions: Tensor, eta: Tensor, last: State | None, budget: Budget) -> State:
        """Solve the master on these atoms, starting at the weights eta; then search for new neurons."""

    def step(self, state: State, budget: Budget) -> State:
        """Add the atoms that the last search found, solve the master, and search again."""
        atoms = self._atoms(state)
        eta = torch.cat([state.mixture.eta, atoms.new_zeros(len(atoms))])
        return self._round(torch.cat([state.directions, atoms]), eta, state, budget)

    def finished(self, state: State) -> Status | None:
        """Return OPTIMAL at the gap, CONVERGED if stalled, TOLERANCE if slow, else None."""
        cost, lower = self.cost(state), state.lower or 0.0  # no cost is below 0
        if cost < torch.inf and cost - lower <= self.options.gap * cost:
            return Status.OPTIMAL
        if state.stalled >= self.options.patience:
            return Status.CONVERGED
        return Status.TOLERANCE if state.slow >= self.slow_rounds else None

    def progress(self, state: State, iteration: int, seconds: float) -> Progress:
        """Return cost, bound and width of the best network."""
        return Progress(iteration, seconds, self.cost(state), state.lower, len(self.best(state).U))

    def after_proof(self, state: State, refuting: Answer | None, lower: float | None) -> State:
        """Return the state after a certifier ran, with its bound and refuting neurons."""
        return replace(state, answer=refuting or state.answer, lower=lower, stalled=0, slow=0)

    def _atoms(self, state: State) -> Tensor:
        """Return the best neurons with h > 1 that the search found, at most `new_atoms`."""
        return state.answer.directions[state.answer.values > 1.0][: self.new_atoms]

    def _solved(
        self, directions: Tensor, Phi: Tensor, eta: Tensor, tolerance: float, budget: Budget
    ) -> tuple[Tensor, Tensor, Mixture]:
        """Solve the master; return the atoms of positive weight, their features, and their mixture."""
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
