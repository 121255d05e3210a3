"""The solver and the certifiers take turns: what `solve` does for a problem of two layers."""

from __future__ import annotations

import math
from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from covopt.certify import proofs
from covopt.certify.proofs import Proof
from covopt.certify.relaxation import RelaxedBound
from covopt.cone.oracle import Answer
from covopt.loop import Budget, Callback, Outcome, Status, run
from covopt.model.problem import Problem
from covopt.solvers.shallow import ShallowOptions, ShallowSolver, State

LOOSE = 0.1
"""The part of the gap that the solver may leave where the relaxation does the proof."""


class Turns:
    """The solver and the certifiers, one after the other, and the best bound that came of it.

    Where an oracle is exact, each round of the solver brings its bound along. Elsewhere `full` lets the solver
    converge (or use half of the time left), proves a bound at its dual point, and hands the directions that refute the
    dual point back to the solver as new neurons, until the gap or the time limit is reached. Branch and bound over
    cones does so, and the relaxation, which goes on from what it proved before.
    """

    def __init__(
        self,
        problem: Problem,
        budget: Budget,
        certify: str,
        gap: float,
        seed: int,
        init: Tensor | None,
        callback: Callback | None,
    ) -> None:
        self.problem, self.budget, self.certify, self.gap, self.callback = problem, budget, certify, gap, callback
        self.best: Proof | None = None
        self._relaxed: RelaxedBound | None = None
        self._oracle = proofs.oracle_of(problem) if certify != "none" or problem.activation.is_linear else None
        self.solver = ShallowSolver(
            problem, budget, self._exact_bound, self._oracle, ShallowOptions(gap=gap), seed=seed, init=init
        )

    def take(self) -> Outcome[State]:
        """Solve, and prove what the level of certification asks for."""
        full = self.certify == "full" and self._oracle is None
        branching = full and proofs.can_branch(self.problem)
        relaxing = full and not branching and proofs.can_relax(self.problem)
        if self.certify != "none" and self._oracle is None:
            self._keep(proofs.spectral_proof(self.problem))
        if not (branching or relaxing):
            return run(self.solver, self.budget, self.callback)
        prove = self._branch if branching else self._relax
        if relaxing:  # what it proves falls short of the last digits that the solver would look for
            self.solver.options = replace(self.solver.options, quiet=LOOSE, patience=1)
        outcome = run(self.solver, self._half(), self.callback)
        while outcome.status is not Status.INTERRUPTED and not self.budget.spent():
            try:
                found = prove(outcome.state)
            except KeyboardInterrupt:
                return replace(outcome, status=Status.INTERRUPTED)
            refuted = bool((found.values > 1.0).any())
            if outcome.status is Status.ITERATION_LIMIT:
                break
            if self._reached(self.solver.cost(outcome.state)) or not (refuted or outcome.status is Status.TIME_LIMIT):
                break
            answer = found if refuted else outcome.state.answer
            state = replace(outcome.state, answer=answer, lower=self._lower(), calm=0)
            outcome = run(self.solver, self._half(), self.callback, resume=replace(outcome, state=state))
        return outcome

    def _half(self) -> Budget:
        """A budget that ends when half of the remaining time is gone."""
        budget = replace(self.budget, time_limit=self.budget.seconds() + 0.5 * self.budget.remaining())
        self.solver.budget = budget
        return budget

    def _branch(self, state: State) -> Answer:
        """Branch and bound at the solver's dual point; what refutes it comes back in the solver's coordinates."""
        proof, found = proofs.branching_proof(
            self.problem,
            self.solver.dual(state),
            gap=self.gap,
            time_limit=max(1e-3, self.budget.remaining()),
            starts=self.solver.outward(state.directions),
        )
        self._keep(proof)
        return Answer(self.solver.inward(found.directions), found.values)

    def _relax(self, state: State) -> Answer:
        """The relaxation at the solver's dual point, until the gap or the time is reached or a direction refutes it."""
        proof, self._relaxed = proofs.relaxation_proof(
            self.problem,
            self.solver.dual(state),
            target=self.solver.cost(state) * (1.0 - self.gap),
            refuted=1.0 + LOOSE * self.gap,
            time_limit=max(1e-3, self.budget.remaining()),
            start=self._relaxed,
        )
        self._keep(proof)
        if self._relaxed.interrupted:
            raise KeyboardInterrupt
        value = state.best.U.new_tensor([self._relaxed.value])
        met = value > 1.0 + LOOSE * self.gap
        return Answer(self.solver.inward(self._relaxed.direction[None])[met], value[met])

    def _exact_bound(self, Lambda: Float[Tensor, "N m"], maximum: float) -> float | None:
        """What the solver calls with each dual point and the maximum that its oracle proves there, or infinity."""
        if self.certify != "none" and math.isfinite(maximum):
            self._keep(proofs.exact_proof(self.problem, Lambda, maximum))
        return self._lower()

    def _keep(self, proof: Proof) -> None:
        if math.isfinite(proof.lower) and (self.best is None or proof.lower > self.best.lower):
            self.best = proof

    def _lower(self) -> float | None:
        return self.best.lower if self.best is not None else None

    def _reached(self, cost: float) -> bool:
        return self.best is not None and cost - self.best.lower <= self.gap * cost
