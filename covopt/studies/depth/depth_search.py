"""The best network found at each depth: each depth is solved, and depths hand their networks up and down.

* **Upward**: a network of a smaller depth with identity layers inserted, balanced (solvers/deep/insertion.py): there at
  once, and what the deeper solve starts from.
* **Downward**: a network of a larger depth without one of its hidden layers; the same function where that layer is
  linear on the data, else what a descent starts from.

First every depth is solved, from the smallest up, the larger ones (from 5 on) after the families. Then the depths take
turns, downward and upward, until a turn in both
directions gains nothing or the time is over. At the end no depth costs more than what its neighbours' networks give it.
Networks whose narrowest hidden layer has at most k neurons are kept beside, for the families of rank k
(depth_families.py). Nothing is proved here but what the solves prove.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from covopt.answer.result import Result
from covopt.answer.solve import solve
from covopt.certify import proofs
from covopt.model.bottleneck import bottleneck, layer_shapes
from covopt.model.problem import Problem
from covopt.model.units import Units, at_depth
from covopt.model.weights import Weights, evaluate
from covopt.runtime.errors import InfeasibleError
from covopt.runtime.interrupts import interrupted
from covopt.runtime.loop import Budget, Callback, Progress, Status
from covopt.solvers.deep.exact_fits import ExactOptions, descend_exactly
from covopt.solvers.deep.insertion import at_place, deepened, shortened
from covopt.solvers.training.exact_fit import explored_problem
from covopt.solvers.training.homotopy import POLISHING, descend
from covopt.solvers.training.simple import simple_networks
from covopt.studies.width.width_search import cost_of

# What counts as a gain, relative; less is rounding.
GAIN = 1e-6
# Networks of a neighbour that descend, and only those that promise to cost at most so many times what is known.
TRIED, PROMISING = 2, 1.5
SIMPLE = "a constant or linear network"
# A solve gets at least so many seconds, or is left out.
SHORTEST = 0.05


@dataclass(frozen=True)
class Member:
    """The cheapest network found at one depth with a hidden layer of at most so many neurons.

    Attributes:
        cost: recomputed in float64; weights: W_1 ... W_L; source: where it came from.
    """

    cost: float
    weights: list[Tensor]
    source: str


class DepthSearch:
    """Networks of all depths.

    Args:
        problems: the question at each depth, ascending.
        asked: the keywords of `covopt.solve`, without the depth and the time limit.
        budget: for searching at all depths together; whole: until what is found is handed on, at most.
        callback: gets each solve's progress, with the time of all.
        known: results from before, at some of the depths.
    """

    def __init__(
        self,
        problems: Mapping[int, Problem],
        asked: Mapping[str, object],
        budget: Budget,
        whole: Budget,
        callback: Callback | None = None,
        known: Mapping[int, Result] | None = None,
    ) -> None:
        self.problems, self.budget, self._whole = dict(problems), budget, whole
        self.results: dict[int, Result] = {}
        self.sources: dict[int, str] = {}
        self.refused: dict[int, str] = {}
        self.families: dict[int, dict[int, Member]] = {}
        self._asked, self._callback = dict(asked), callback
        self._seed = int(str(asked.get("seed", 0)))
        # The network of one depth that another has been offered, and has descended from.
        self._offered: dict[tuple[int, int], list[Tensor]] = {}
        self._used: dict[tuple[int, int], list[Tensor]] = {}
        for depth, result in (known or {}).items():
            self.results[depth], self.sources[depth] = result, "an earlier run"

    @property
    def depths(self) -> list[int]:
        """Those that have an answer or may get one."""
        return [depth for depth in self.problems if depth not in self.refused]

    def run(self, depths: Sequence[int], part: float, init: Weights | None = None) -> None:
        """Solve these depths, from the smallest up, until so much of all the time is over.

        Args:
            depths: ascending; part: of the time limit.
            init: a network to start from at its own depth, and through insertion at larger ones.

        Raises:
            InfeasibleError: no depth has a network that fits.
        """
        share = Budget(part * self.budget.time_limit, started=self.budget.started)
        waiting = [depth for depth in depths if not self._is_done(depth)]
        for place, depth in enumerate(waiting):
            if interrupted() and self.results:
                break
            own = list(init) if init is not None and len(init) == depth else None
            self._first(depth, share.remaining() / (len(waiting) - place), own)
        if len(self.refused) == len(self.problems):
            raise InfeasibleError(next(iter(self.refused.values())))

    def share(self, until: Callable[[], bool]) -> Status:
        """Turns downward and upward, until both gain nothing or the time is over; at the end without descents."""
        gained = True
        while gained and not until():
            gained = self._turn(-1, until) | self._turn(1, until)
        for direction in (-1, 1):
            self._turn(direction, lambda: True)
        return Status.TIME_LIMIT if gained or until() else Status.CONVERGED

    def again(self) -> bool:
        """Solve the depth whose solve was cut short first, from its best network, in the time left; whether one was."""
        cut = [depth for depth in self.results if self.results[depth].status is Status.TIME_LIMIT]
        for place, depth in enumerate(cut):
            if self.budget.spent():
                break
            self._seed += 1
            seconds = self.budget.remaining() / (len(cut) - place)
            self._take(depth, self._solved(depth, seconds, self.results[depth].weights), "solve")
        return bool(cut)

    def offer(self, depth: int, weights: list[Tensor], source: str) -> bool:
        """Take a network where it is cheaper than what is known, on the curve and in the families; whether it gained.

        Args:
            depth: at which; weights: W_1 ... W_L in the user's units; source: where it came from.
        """
        cost = cost_of(self.problems[depth], weights)
        narrowest = min(len(W) for W in weights[:-1])
        gained = False
        for rank, members in self.families.items():
            known = members.get(depth)
            if narrowest <= rank and cost < (math.inf if known is None else known.cost * (1.0 - GAIN)):
                members[depth] = Member(cost, weights, source)
                gained = True
        result = self.results.get(depth)
        if result is not None and cost < _cost(result) * (1.0 - GAIN):
            self.results[depth] = improved(result, weights, self.budget.seconds())
            self.sources[depth] = source
            gained = True
        return gained

    def inserted(self, low: int, weights: Weights, high: int, place: int | None = None) -> list[list[Tensor]]:
        """Networks of depth `high` made of one of depth `low`, the cheapest first; at `place` alone, in no order."""
        below, above = Units.of(self.problems[low]), Units.of(self.problems[high])
        start = below.inward(weights)
        if place is not None:
            return [above.outward(each) for each in at_place(below.problem, start, above.problem, place)]
        return [above.outward(each) for each in deepened(below.problem, start, above.problem)]

    def removed(self, high: int, weights: Weights, low: int) -> list[list[Tensor]]:
        """Networks of depth `low` made of one of depth `high`, the most promising first."""
        units = Units.of(self.problems[high])
        networks, problem = [units.inward(weights)], units.problem
        for depth in range(high - 1, low - 1, -1):
            shallow = explored_problem(at_depth(problem, depth))
            networks = shortened(problem, networks[0], shallow)
            problem = at_depth(problem, depth)
            if not networks:
                return []
        return [Units.of(self.problems[low]).outward(each) for each in networks]

    def descended(self, depth: int, weights: Weights) -> list[Tensor]:
        """Where a descent ends: of the loss, or of a falling penalty to an exact fit."""
        units = Units.of(self.problems[depth])
        start = units.inward(weights)
        if units.problem.interpolates:
            generator = torch.Generator(device=units.problem.X.device).manual_seed(self._seed)
            ended = descend_exactly(units.problem, start, ExactOptions(POLISHING, generator), self.budget.pace())
        else:
            ended = descend(units.problem, [start], POLISHING, self.budget.pace())[0]
        return units.outward(ended)

    def promise(self, depth: int, weights: Weights) -> float:
        """What a network costs that need not fit exactly, infinite where that is unknown."""
        cost = evaluate(explored_problem(self.problems[depth]), weights).total
        return cost if math.isfinite(cost) else math.inf

    def report(self, phase: str) -> None:
        """Tell the callback what comes next."""
        if self._callback is not None and self.results:
            depth = max(self.results)
            result = self.results[depth]
            width = max(result.widths)
            self._callback(Progress(0, self.budget.seconds(), _cost(result), result.lower, width, phase))

    def _first(self, depth: int, seconds: float, init: Weights | None) -> None:
        """Solve one depth; with no time left, take what the shallower depths give."""
        known = self.results.get(depth)
        starts = [] if known is None else [(_cost(known), "an earlier run", known.weights)]
        if init is not None:
            starts.append((cost_of(self.problems[depth], init), "init", list(init)))
        below = max((d for d in self.results if d < depth), default=None)
        if below is not None and math.isfinite(_cost(self.results[below])):
            # With no time left, at the place that promises the most.
            low = self.results[below]
            place = bottleneck(layer_shapes(low.problem, low.weights)) if seconds < SHORTEST else None
            made = self.inserted(below, low.weights, depth, place)[:TRIED]
            starts += [(cost_of(self.problems[depth], each), f"inserted into depth {below}", each) for each in made]
        units = Units.of(self.problems[depth])
        simple = [units.outward(each) for each in simple_networks(units.problem)]
        starts += [(cost, SIMPLE, each) for each in simple if (cost := cost_of(self.problems[depth], each)) < math.inf]
        starts += [(m.cost, m.source, m.weights) for family in self.families.values() if (m := family.get(depth))]
        fitting = [start for start in starts if start[0] < math.inf]
        best = min(fitting, key=lambda start: start[0], default=None)
        if best is not None and (seconds < SHORTEST or interrupted()):
            self._take(depth, answered(self.problems[depth], best[2], self._asked, self.budget.seconds()), best[1])
            return
        try:
            begin = init if init is not None else None if best is None else best[2]
            solved = self._solved(depth, max(seconds, SHORTEST), begin)
        except InfeasibleError as error:
            self.refused[depth] = str(error)
            return
        self._take(depth, solved, "solve")
        for _, source, weights in starts:
            self.offer(depth, weights, source)

    def _solved(self, depth: int, seconds: float, init: Weights | None) -> Result:
        began, callback = self.budget.seconds(), self._callback

        def follow(line: Progress) -> None:
            if callback is not None:
                said = f"depth {depth} of {min(self.problems)} to {max(self.problems)}"
                phase = f"{said}: {line.phase}" if line.phase else said
                callback(replace(line, seconds=began + line.seconds, phase=phase))

        asked = {**self._asked, "seed": self._seed}
        p = self.problems[depth]
        asked |= {"depth": depth, "time_limit": seconds, "init": init, "callback": follow}
        return solve(p.X, p.Y, sample_weight=p.weight, **asked)  # type: ignore[arg-type]

    def _take(self, depth: int, result: Result, source: str) -> None:
        """A solve's answer; where another network is known that costs no more, with that one."""
        known = self.results.get(depth)
        if known is not None:
            better = _cost(result) < _cost(known) * (1.0 - GAIN)
            bound = max(
                (r for r in (known, result) if r.lower is not None), key=lambda r: r.lower or 0.0, default=known
            )
            kept = result if better else known
            if bound is not kept and bound.lower is not None:
                # The other's bound and proof, with this network.
                kept = improved(bound, kept.weights, self.budget.seconds())
            elif not better:
                kept = replace(known, status=result.status)
            self.results[depth] = kept
            self.sources[depth] = source if better else self.sources[depth]
        else:
            self.results[depth], self.sources[depth] = result, source
        self.results = dict(sorted(self.results.items()))
        for rank, members in self.families.items():
            kept = self.results[depth]
            old = members.get(depth)
            if min(kept.widths) <= rank and _cost(kept) < (math.inf if old is None else old.cost):
                members[depth] = Member(_cost(kept), kept.weights, self.sources[depth])

    def _is_done(self, depth: int) -> bool:
        known = self.results.get(depth)
        return known is not None and known.status in (Status.OPTIMAL, Status.CONVERGED)

    def _turn(self, direction: int, until: Callable[[], bool]) -> bool:
        """Each depth gets its neighbour's network, upward (1) or downward (-1); whether any gained."""
        pairs = pairwise(list(self.results)[::direction])
        gains = [self._given(*pair, until) for pair in pairs if not self._whole.spent()]
        return any(gains)

    def _given(self, giver: int, taker: int, until: Callable[[], bool]) -> bool:
        """What the network of one depth is worth at another; descents only until the time is over."""
        weights, known = self.results[giver].weights, self.results[taker]
        if not math.isfinite(_cost(self.results[giver])):
            return False
        fresh = self._used.get((giver, taker)) is not weights
        descends = fresh and not until() and taker > 2 and known.status is not Status.OPTIMAL
        if not descends and self._offered.get((giver, taker)) is weights:
            return False
        self._offered[giver, taker] = weights
        upward = giver < taker
        made = self.inserted(giver, weights, taker) if upward else self.removed(giver, weights, taker)
        source = f"inserted into depth {giver}" if upward else f"removed from depth {giver}"
        gains = [self.offer(taker, each, source) for each in made[:TRIED]]
        if not descends:
            return any(gains)
        self._used[giver, taker] = weights
        self.report(f"depth {taker}: from the network of depth {giver}")
        most = PROMISING * self.promise(taker, self.results[taker].weights)
        for start in made[:TRIED]:
            if not self.budget.spent() and self.promise(taker, start) <= most:
                gains.append(self.offer(taker, self.descended(taker, start), f"from depth {giver}"))
        return any(gains)


def improved(result: Result, weights: Sequence[Tensor], seconds: float) -> Result:
    """The result with another network, its bound and what proves it kept.

    Args:
        result: of a solve; weights: W_1 ... W_L; seconds: since the start of all.

    Raises:
        InternalError: the network costs less than the bound that is said to be proved.
    """
    found = replace(result, weights=[W.double() for W in weights], layers=[])
    cost = evaluate(found.problem, found.weights)
    if not found.problem.allows(cost.residual):
        return result
    found.cost, found.fit, found.norm, found.residual = cost.total, cost.fit, cost.norm, cost.residual
    if found.lower is not None:
        found.lower = proofs.agreed(found.problem, found.weights, found.cost, found.lower)
    times = [line.seconds for line in found.history]
    found.seconds = max([seconds, result.seconds if math.isfinite(result.seconds) else 0.0, *times])
    count = found.history[-1].iteration + 1 if found.history else 0
    lines = [line for line in found.history if line.lower is None or line.lower <= (found.lower or -math.inf)]
    found.history = [*lines, Progress(count, found.seconds, found.cost, found.lower, max(found.widths))]
    proved = found.gap is not None and found.target is not None and found.gap <= found.target
    if proved and found.status is not Status.INTERRUPTED:
        found.status = Status.OPTIMAL
    elif found.status in (Status.OPTIMAL, Status.UNSOLVED):
        found.status = Status.TIME_LIMIT
    return found


def answered(problem: Problem, weights: Weights, asked: Mapping[str, object], seconds: float) -> Result:
    """A network at hand as the answer at its depth, with the bound that needs no time.

    Args:
        problem: the question; weights: W_1 ... W_L; asked: keywords of `covopt.solve`; seconds: since the start of all.
    """
    status = Status.INTERRUPTED if interrupted() else Status.TIME_LIMIT
    result = Result(
        problem=problem,
        method="cone",
        certify=str(asked["certify"]),
        seed=int(str(asked["seed"])),
        target=float(str(asked["gap"])),
        status=status,
    )
    if result.certify != "none":
        proof = proofs.spectral_proof(problem, 0.0)
        if proof.lower > 0.0:
            result.lower, result.certificate, result.proof = proof.lower, proof.kind, proof
    result.attainable = proofs.attainable(problem)
    return improved(result, list(weights), seconds)


def _cost(result: Result) -> float:
    return result.cost if math.isfinite(result.cost) else math.inf
