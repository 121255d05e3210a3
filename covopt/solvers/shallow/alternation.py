"""The solver and the certifiers take turns: what `solve` does for a problem of two layers."""

from __future__ import annotations

import math
from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from covopt.certify.cones.branch import ConeTree
from covopt.certify.dual import Exact, dual_bound, oracle_of
from covopt.certify.proof import REFUTATION_SLACK, Proof, Proved, Target
from covopt.certify.proofs import PROOFS, spectral_proof
from covopt.model.problem import Problem
from covopt.oracles.oracle import Answer, Wrap
from covopt.runtime.interrupts import interrupted
from covopt.runtime.loop import Budget, Outcome, Status, run
from covopt.solvers.checkpoint import Saved
from covopt.solvers.incumbent import Attempt
from covopt.solvers.options import SolveOptions
from covopt.solvers.shallow.networks import Network
from covopt.solvers.shallow.rounds import ShallowOptions, State
from covopt.solvers.shallow.saved import going_on, keeping_rounds, rounds_from
from covopt.solvers.shallow.solver import ShallowSolver

ENDED = (Status.CONVERGED, Status.TOLERANCE)  # a search that is complete, within its tolerance


class Alternation:
    """The search and the certifiers take turns; the best network and the best bound found.

    Where an oracle is exact, each round of the search also gives a bound. Elsewhere `full` and `auto` let the search
    find what matters for the gap (or use half of the time left), prove a bound at its dual point, and pass the
    directions that refute the dual point back to the search as new neurons, until the gap or the time limit is reached;
    later searches converge. Branch and bound over cones and the relaxation work in this way; the relaxation continues
    its earlier proofs.

    `auto` spends less on a proof than `full`. It searches as long as `fast` does, and beyond half of the time while the
    cost still falls fast. A refuted dual point ends a proof only if that matters for the gap. And `auto` ends before
    the time limit when both have stalled: no better network is found, and the proof would close less than a tenth of
    the gap in the same time again.

    Args:
        init: hidden weights (n, n_0 + 1) of a network to start from.
        wrap: what to put around the search's oracles.
        stage: what the checkpoints call these rounds.
        search: what the rounds do.
    """

    worthwhile_gain = 0.1
    """`auto` continues a proof while as much time again can be expected to take this part off the open gap."""
    fast_descent = 1e-2
    """With `auto` the solver may use more than half of the time while the second half of its turn lowers the cost by at
    least this part."""
    spectral_share = 0.1  # the part of the time that the spectral bound may take before the first round
    hopeless = 10.0  # times the gap asked for: an open gap that no more accurate dual point closes
    reported_gap = 0.99
    """A bound is reported as soon as the gap that it leaves open is at most this times the one reported last."""

    def __init__(
        self,
        problem: Problem,
        options: SolveOptions,
        init: Float[Tensor, "n d"] | None = None,
        wrap: Wrap = lambda oracle: oracle,
        stage: str = "rounds",
        saved: Saved | None = None,
        search: type[ShallowSolver] = ShallowSolver,
    ) -> None:
        self.problem, self.options, self.budget, self.gap = problem, options, options.budget, options.gap
        certify, activation = options.certify, problem.activation
        self.best: Proof | None = None
        self._oracle = oracle_of(problem.Xt, activation) if certify != "none" or activation.is_linear else None
        proving = certify in ("full", "auto") and self._oracle is None
        self._prover = prover_for(problem, certify) if proving else None
        tol = options.tol if self._oracle is None else None  # an exact oracle bounds the possible gain
        round_options = ShallowOptions(gap=options.gap, tol=tol, entries=options.thrift.entries)
        hasty = replace(round_options, stall_tolerance=REFUTATION_SLACK, patience=1)
        first, self._thorough = round_options if self._prover is None else hasty, round_options
        self.solver = search(problem, self._exact_bound, self._oracle, first, options.seed, init, wrap)
        self._worthwhile_gain = self.worthwhile_gain if certify == "auto" else 0.0
        self._stop_when_refuted = True
        self._last: Proved | None = None
        self._reduced: tuple[Network, Network] | None = None
        checkpoint = options.checkpoint
        self._after = None if checkpoint is None else keeping_rounds(checkpoint, stage, self.solver, self.budget)
        self._saved = None if saved is None else rounds_from(saved, self.solver)

    def solve(self) -> Attempt:
        """Search, prove what `certify` asks for, and remove neurons that are not needed."""
        if self.options.certify != "none" and self._oracle is None:
            with self.budget.phase("proof"):
                self._keep(spectral_proof(self.problem, self.spectral_share * self.budget.remaining()))
        if self._prover is None:
            outcome = going_on(self.solver, self.budget, self.options.callback, self._saved, self._after)
        else:
            outcome = self._alternate(self._prover)
        network, status = self._network(outcome), outcome.status
        is_cut_short = status in ENDED and not self._searched(outcome)
        is_late = self.options.certify == "full" and self.budget.spent()
        if is_cut_short or (is_late and status is not Status.INTERRUPTED):
            status = Status.TIME_LIMIT
        dual = self.solver.dual(outcome.state)
        return Attempt(network.weights(), status, outcome.history, self.best, [network.cost], dual)

    def _alternate(self, prover: type[Proof]) -> Outcome[State]:
        outcome, ended = self._search(self._saved), False
        while not (ended or outcome.status is Status.INTERRUPTED or self.budget.spent() or self._gap_reached(outcome)):
            before = self._open_gap(outcome)
            self._network(outcome)  # now, while time remains to remove neurons
            refutation = self._prove(prover, outcome)
            if interrupted():
                return replace(outcome, status=Status.INTERRUPTED)
            refuted, searched = bool((refutation.values > 1.0).any()), self._searched(outcome)
            missed = bool((refutation.values > 1.0 + self.solver.options.stall_tolerance * self.gap).any())
            if outcome.status is Status.ITERATION_LIMIT or self._gap_reached(outcome) or (searched and not refuted):
                break
            if self.budget.spent():
                return replace(outcome, status=Status.TIME_LIMIT if missed else outcome.status)
            pays = self._open_gap(outcome) <= (1.0 - self._worthwhile_gain) * before
            # An interrupted proof is tried once more, without interruption, before the alternation gives it up. A proof
            # that ended far from the gap by itself gains nothing from a better search.
            far = not refuted and self._open_gap(outcome) > self.hopeless * self.gap * self.solver.cost(outcome.state)
            ended, self._stop_when_refuted = far or (searched and not (pays or self._stop_when_refuted)), pays
            state = self.solver.after_proof(outcome.state, refutation if refuted else None, self._lower())
            self.solver.options = self._thorough
            outcome = self._search(replace(outcome, state=state))
        return outcome

    def _searched(self, outcome: Outcome[State]) -> bool:
        """Return True if the search ended because nothing was left, not to let an early first proof begin."""
        return outcome.status in ENDED and self.solver.options is self._thorough

    def _network(self, outcome: Outcome[State]) -> Network:
        """Return the best network with fewer neurons, at no higher cost."""
        state = outcome.state
        best = self.solver.best(state)
        if self._reduced is None or self._reduced[0] is not best:
            self._reduced = best, self.solver.reduced(state, self.budget)
        return self._reduced[1]

    def _search(self, last: Outcome[State] | None) -> Outcome[State]:
        """Run the solver from its last state until it ends or half of the remaining time is gone."""
        started, callback = self.budget.seconds(), self.options.callback
        outcome = run(self.solver, self._half_budget(last), callback, resume=last, after=self._after)
        while outcome.status is Status.TIME_LIMIT and not self.budget.spent() and self._falls_fast(outcome, started):
            started = self.budget.seconds()
            outcome = run(self.solver, self._half_budget(outcome), callback, resume=outcome, after=self._after)
        return outcome

    def _half_budget(self, last: Outcome[State] | None) -> Budget:
        """Return a budget with half of the remaining time and all remaining rounds."""
        return self.budget.rest(0.5).after(0 if last is None else last.history[-1].iteration + 1)

    def _falls_fast(self, outcome: Outcome[State], started: float) -> bool:
        """Return True if the turn's second half lowered the cost so much that proofs can wait."""
        middle = 0.5 * (started + self.budget.seconds())
        before = [line.cost for line in outcome.history if line.seconds <= middle]
        now = self.solver.cost(outcome.state)
        return self.options.certify == "auto" and (
            not before or not now < math.inf or before[-1] - now > self.fast_descent * now
        )

    def _prove(self, prover: type[Proof], outcome: Outcome[State]) -> Answer:
        """Prove a bound at the solver's dual point; return refuting neurons, in its coordinates."""
        state, cost = outcome.state, self.solver.cost(outcome.state)
        # A neuron that violates the dual point by v lowers the bound by about 2 v, relative.
        matters = self.gap
        if self.options.certify != "full" and cost > 0.0:  # a cost that underflowed has no gap
            matters = max(self.gap, self._open_gap(outcome) / cost)
        target = Target(
            self.solver.dual(state),
            cost,
            self.gap,
            max(1e-3, self.budget.remaining()),
            self.solver.outward(state.directions),
            refuted=1.0 + REFUTATION_SLACK * matters if self._stop_when_refuted else math.inf,
            worth=self._worthwhile_gain,
            on_bound=lambda _, lower: self._report_bound(outcome, lower),
        )
        with self.budget.phase("proof"):
            proved = self._last = prover.prove(self.problem, target, self._last)
        assert proved is not None
        self._keep(proved.proof)
        # Bounds reported earlier may exceed what the stored arrays prove, by rounding.
        for place, line in enumerate(outcome.history):
            if line.lower is not None and line.lower > (self._lower() or 0.0):
                outcome.history[place] = replace(line, lower=self._lower())
        self._report_bound(outcome, proved.proof.lower)
        refutation = proved.violators or Answer(self.problem.Xt[:0], self.problem.Xt.new_zeros(0))
        return Answer(self.solver.inward(refutation.directions), refutation.values)

    def _report_bound(self, outcome: Outcome[State], lower: float) -> None:
        """Add a line to the history if the certifiers closed enough of the gap."""
        last = outcome.history[-1]
        if last.cost < math.inf and last.cost - lower <= self.reported_gap * (last.cost - (last.lower or 0.0)):
            line = replace(last, seconds=self.budget.seconds(), lower=lower)
            outcome.history.append(line)
            if self.options.callback is not None:
                self.options.callback(line)

    def _exact_bound(self, Lambda: Float[Tensor, "N m"], maximum: float) -> float | None:
        """Return the proved bound after a dual point and its oracle's maximum (or infinity)."""
        if self.options.certify != "none" and math.isfinite(maximum):
            self._keep(Exact(*dual_bound(self.problem, Lambda, maximum)[:3]))
        return self._lower()

    def _keep(self, proof: Proof) -> None:
        if math.isfinite(proof.lower) and (self.best is None or proof.lower > self.best.lower):
            self.best = proof

    def _lower(self) -> float | None:
        return self.best.lower if self.best is not None else None

    def _open_gap(self, outcome: Outcome[State]) -> float:
        """Return the cost minus the proved bound."""
        return self.solver.cost(outcome.state) - (self._lower() or 0.0)

    def _gap_reached(self, outcome: Outcome[State]) -> bool:
        return self._open_gap(outcome) <= self.gap * self.solver.cost(outcome.state)


def prover_for(problem: Problem, certify: str) -> type[Proof] | None:
    """Return the kind of proof that alternates with the search, with `full` or `auto`; None where none applies."""
    # `auto` leaves branch and bound out beyond 5000 samples: 100 MB and more for each array over 512 cones.
    few = certify == "full" or problem.samples <= 5000
    kinds = (kind for kind in PROOFS if kind.alternates and (few or kind is not ConeTree))
    return next((kind for kind in kinds if kind.applies(problem)), None)
