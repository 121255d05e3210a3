"""Search the best network of each depth: solve each depth, and exchange networks.

* **Upward**: identity layers are inserted into a network of a smaller depth and balanced (solvers/deep/insertion.py).
  It exists at once, and the deeper solve starts from it.
* **Downward**: one hidden layer of a deeper network is removed. The function is the same if that layer is linear on the
  data; else a descent starts from the network.

First every depth is solved, from the smallest up, the larger ones (from 5 on) after the families. Then networks are
exchanged downward and upward in turn, until a turn in both directions gains nothing or the time is over. At the end no
depth costs more than its neighbours' networks with a layer inserted or removed. Networks whose narrowest hidden layer
has at most k neurons are stored for the families of rank k (depth_families.py). All proofs are those of the solves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from torch import Tensor

from covopt.answer.result import Result, measure
from covopt.certify import proofs
from covopt.model.bottleneck import bottleneck, layer_shapes
from covopt.model.problem import Problem
from covopt.model.units import Units, at_depth
from covopt.model.weights import Weights, evaluate
from covopt.runtime.errors import InfeasibleError
from covopt.runtime.interrupts import interrupted
from covopt.runtime.loop import Budget, Callback, Progress, Status
from covopt.solvers.deep.descent import descent_for
from covopt.solvers.deep.insertion import at_place, deepened, shortened
from covopt.solvers.incumbent import cost_of
from covopt.solvers.training.exact_fit import explored_problem
from covopt.solvers.training.homotopy import POLISHING
from covopt.solvers.training.simple import simple_networks
from covopt.studies.continuation import Continuation

# Smallest relative gain that counts; less is rounding.
GAIN = 1e-6
# Number of a neighbour's networks that descend; they must promise at most this multiple of the known cost.
TRIED, PROMISING = 2, 1.5
SIMPLE = "a constant or linear network"
# Minimum seconds of a solve; with less it is left out.
SHORTEST = 0.05


@dataclass(frozen=True)
class Member:
    """The network of lowest cost found at one depth within a family."""

    cost: float  # recomputed in float64
    weights: list[Tensor]  # W_1 ... W_L
    source: str  # the origin of the network


class DepthSearch(Continuation[int, Result]):
    """The search for networks of all depths, ascending; `whole` includes the last exchange of networks.

    Attributes:
        sources: the origin of each network in `best`; refused: why a depth has none.
        families: by rank and depth, the networks with a hidden layer of at most this number of neurons.
    """

    def __init__(
        self,
        problems: Mapping[int, Problem],
        options: Mapping[str, object],
        budget: Budget,
        whole: Budget,
        callback: Callback | None = None,
        earlier: Mapping[int, Result] | None = None,
    ) -> None:
        super().__init__(budget, callback, options, earlier)
        self.problems, self._whole = dict(problems), whole
        self.sources: dict[int, str] = dict.fromkeys(self.best, "an earlier run")
        self.refused: dict[int, str] = {}
        self.families: dict[int, dict[int, Member]] = {}
        self._seed = int(str(options.get("seed", 0)))

    @property
    def depths(self) -> list[int]:
        """The depths that have a solution or may get one."""
        return [depth for depth in self.problems if depth not in self.refused]

    def run(self, depths: Sequence[int], part: float, init: Weights | None = None) -> None:
        """Solve these depths, from the smallest up, until a part of the time limit is over.

        A network `init` is a start at its own depth, and through insertion at larger ones.
        """
        done = [depth for depth, result in self.best.items() if result.status in (Status.OPTIMAL, Status.CONVERGED)]
        for depth, turn in self.budget.part(part).turns([depth for depth in depths if depth not in done]):
            if interrupted() and self.best:
                break
            self._first(depth, turn.remaining(), list(init) if init is not None and len(init) == depth else None)
        if len(self.refused) == len(self.problems):
            raise InfeasibleError(next(iter(self.refused.values())))

    def share(self) -> Status:
        """Exchange networks both ways until nothing gains or time is over, last without descents."""
        ended = self.improve(self.budget)
        for direction in (-1, 1):
            self._turn(direction, descending=False)
        return ended

    def round(self, budget: Budget) -> bool:
        """Hand networks on downward, then upward; return True if any depth gained."""
        return self._turn(-1) | self._turn(1)

    def again(self) -> bool:
        """Solve depths that time cut short again, from their best networks; return True if any."""
        cut = [depth for depth, result in self.best.items() if result.status is Status.TIME_LIMIT]
        for depth, turn in self.budget.turns(cut):
            if self.budget.spent():
                break
            self._seed += 1
            self._take(depth, self._solved(depth, turn.remaining(), self.best[depth].weights), "solve")
        return bool(cut)

    def offer(self, depth: int, weights: list[Tensor], source: str) -> bool:
        """Take a network, in the user's units, if it lowers the curve or a family; return True if it does."""
        network = Member(cost_of(self.problems[depth], weights), weights, source)
        gained = self._offer_to_families(depth, network)
        result = self.best.get(depth)
        if result is not None and network.cost < _cost(result) * (1.0 - GAIN):
            self.best[depth], self.sources[depth] = improved(result, weights, self.budget.seconds()), source
            gained = True
        return gained

    def inserted(self, low: int, weights: Weights, high: int, place: int | None = None) -> list[list[Tensor]]:
        """Return deeper networks by insertion, in order of their cost; at `place` alone, unsorted."""
        below, above = Units.of(self.problems[low]), Units.of(self.problems[high])
        start = below.inward(weights)
        if place is not None:
            return [above.outward(network) for network in at_place(below.problem, start, above.problem, place)]
        return [above.outward(network) for network in deepened(below.problem, start, above.problem)]

    def removed(self, high: int, weights: Weights, low: int) -> list[list[Tensor]]:
        """Return networks of depth `low` made from one of depth `high`, the most promising first."""
        units = Units.of(self.problems[high])
        networks, problem = [units.inward(weights)], units.problem
        for depth in range(high - 1, low - 1, -1):
            networks = shortened(problem, networks[0], explored_problem(at_depth(problem, depth)))
            problem = at_depth(problem, depth)
            if not networks:
                return []
        return [Units.of(self.problems[low]).outward(network) for network in networks]

    def descended(self, depth: int, weights: Weights) -> list[Tensor]:
        """Return the end of a descent: of the loss, or of a falling penalty to an exact fit."""
        units = Units.of(self.problems[depth])
        descents = descent_for(units.problem, self._seed)
        return units.outward(descents.descend([units.inward(weights)], POLISHING, self.budget)[0])

    def announce(self, phase: str) -> None:
        """Report the next phase to the callback."""
        if self.best:
            result = self.best[max(self.best)]
            self.report(Progress(0, self.budget.seconds(), _cost(result), result.lower, max(result.widths), phase))

    def _first(self, depth: int, seconds: float, init: Weights | None) -> None:
        """Solve one depth; without time left, take the best network of the shallower depths."""
        problem, earlier = self.problems[depth], self.best.get(depth)
        candidates = [] if earlier is None else [("an earlier run", earlier.weights)]
        candidates += [] if init is None else [("init", list(init))]
        below, _ = self.neighbours(depth)
        if below is not None and math.isfinite(_cost(self.best[below])):
            # Without time left, insert only at the most promising place.
            low = self.best[below]
            place = bottleneck(layer_shapes(low.problem, low.weights)) if seconds < SHORTEST else None
            made = self.inserted(below, low.weights, depth, place)[:TRIED]
            candidates += [(f"inserted into depth {below}", net) for net in made]
        units = Units.of(problem)
        candidates += [(SIMPLE, units.outward(net)) for net in simple_networks(units.problem)]
        starts = [Member(cost_of(problem, net), net, source) for source, net in candidates]
        starts += [members[depth] for members in self.families.values() if depth in members]
        best = min((start for start in starts if start.cost < math.inf), key=lambda start: start.cost, default=None)
        if best is not None and (seconds < SHORTEST or interrupted()):
            self._take(depth, answered(problem, best.weights, self.options, self.budget.seconds()), best.source)
            return
        begin = init if init is not None else None if best is None else best.weights
        try:
            solved = self._solved(depth, max(seconds, SHORTEST), begin)
        except InfeasibleError as error:
            self.refused[depth] = str(error)
            return
        self._take(depth, solved, "solve")
        for start in starts:
            self.offer(depth, start.weights, start.source)

    def _solved(self, depth: int, seconds: float, init: Weights | None) -> Result:
        label = f"depth {depth} of {min(self.problems)} to {max(self.problems)}"
        options = {"depth": depth, "time_limit": seconds, "init": init, "seed": self._seed}
        return self.solve(self.problems[depth], label, **options)

    def _take(self, depth: int, result: Result, source: str) -> None:
        """Store the result of a solve; a known network that costs no more stays, and so does a higher bound."""
        current, best = self.best.get(depth), result
        if current is not None:
            if not _cost(result) < _cost(current) * (1.0 - GAIN):
                best, source = current, self.sources[depth]
            proved = [r for r in (current, result) if r.lower is not None]
            bound = max(proved, key=lambda r: r.lower or 0.0, default=best)
            if bound is not best:  # the other's bound and proof, with this network
                best = improved(bound, best.weights, self.budget.seconds())
            elif best is current:
                best = replace(current, status=result.status)
        self.best[depth], self.sources[depth] = best, source
        self.best = dict(sorted(self.best.items()))
        self._offer_to_families(depth, Member(_cost(best), best.weights, source), gain=0.0)

    def _offer_to_families(self, depth: int, network: Member, gain: float = GAIN) -> bool:
        """Put a network into the families that it lowers by more than the relative gain; return True if any."""
        gained = False
        narrowest = min(len(W) for W in network.weights[:-1])
        for rank, members in self.families.items():
            limit = members[depth].cost * (1.0 - gain) if depth in members else math.inf
            if narrowest <= rank and network.cost < limit:
                members[depth], gained = network, True
        return gained

    def _turn(self, direction: int, descending: bool = True) -> bool:
        """Hand networks on, upward (1) or downward (-1); return True if any depth gained."""
        pairs = pairwise(list(self.best)[::direction])
        gains = [self._hand_over(*pair, descending) for pair in pairs if not self._whole.spent()]
        return any(gains)

    def _hand_over(self, giver: int, taker: int, descending: bool) -> bool:
        """Offer the network of one depth to another, and descend from it before the time is over."""
        weights = self.best[giver].weights
        if not math.isfinite(_cost(self.best[giver])):
            return False
        descending = descending and not self.budget.spent() and taker > 2
        descends = descending and self.best[taker].status is not Status.OPTIMAL
        descends = descends and self.is_new(weights, giver, taker, "descent")
        if not self.is_new(weights, giver, taker, "offer") and not descends:
            return False
        upward = giver < taker
        made = self.inserted(giver, weights, taker) if upward else self.removed(giver, weights, taker)
        source = f"inserted into depth {giver}" if upward else f"removed from depth {giver}"
        gains = [self.offer(taker, network, source) for network in made[:TRIED]]
        if not descends:
            return any(gains)
        self.announce(f"depth {taker}: from the network of depth {giver}")
        problem = explored_problem(self.problems[taker])
        most = PROMISING * cost_of(problem, self.best[taker].weights)
        for start in made[:TRIED]:
            if not self.budget.spent() and cost_of(problem, start) <= most:
                gains.append(self.offer(taker, self.descended(taker, start), f"from depth {giver}"))
        return any(gains)


def improved(result: Result, weights: Sequence[Tensor], seconds: float) -> Result:
    """Return the result with another network, after these seconds of the search; its bound and proof stay."""
    updated = replace(result, weights=[W.double() for W in weights], layers=[])
    cost = evaluate(updated.problem, updated.weights)
    if not updated.problem.allows(cost.residual):
        return result
    measure(updated, cost)
    if updated.lower is not None:
        updated.lower = proofs.agreed(updated.problem, updated.weights, updated.cost, updated.lower)
    times = [line.seconds for line in updated.history]
    updated.seconds = max([seconds, result.seconds if math.isfinite(result.seconds) else 0.0, *times])
    count = updated.history[-1].iteration + 1 if updated.history else 0
    lines = [line for line in updated.history if line.lower is None or line.lower <= (updated.lower or -math.inf)]
    updated.history = [*lines, Progress(count, updated.seconds, updated.cost, updated.lower, max(updated.widths))]
    proved = updated.gap is not None and updated.target is not None and updated.gap <= updated.target
    if proved and updated.status is not Status.INTERRUPTED:
        updated.status = Status.OPTIMAL
    elif updated.status in (Status.OPTIMAL, Status.UNSOLVED):
        updated.status = Status.TIME_LIMIT
    return updated


def answered(problem: Problem, weights: Weights, options: Mapping[str, object], seconds: float) -> Result:
    """Return a network as the result at its depth after these seconds, with the bound that needs no time."""
    result = Result(
        problem=problem,
        method="cone",
        certify=str(options["certify"]),
        seed=int(str(options["seed"])),
        target=float(str(options["gap"])),
        status=Status.INTERRUPTED if interrupted() else Status.TIME_LIMIT,
    )
    if result.certify != "none":
        proof = proofs.spectral_proof(problem, 0.0)
        if proof.lower > 0.0:
            result.lower, result.certificate, result.proof = proof.lower, proof.kind, proof
    result.attainable = proofs.attainable(problem)
    return improved(result, list(weights), seconds)


def _cost(result: Result) -> float:
    return result.cost if math.isfinite(result.cost) else math.inf
