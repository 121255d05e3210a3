"""`plateau`: the lowest cost against the width, and the width at which it stops falling.

n(eps) = min { n : L_n <= (1 + eps) L* }, with L_n the minimum over networks of width n and L* over all widths. Neither
is known exactly, so n(eps) gets an interval whose ends are proved:

* at most n, if a network of width n costs at most (1 + eps) times the proved lower bound on L*, or if a theorem says so
  (width_bounds.py);
* more than n, if every network of width n is proved to cost more than (1 + eps) times the best known cost.

The width of the best known networks is given as well, as the estimate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Unpack

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from covopt import __version__
from covopt.answer.result import Result
from covopt.answer.solve import Question, solve, study
from covopt.completely_positive.answer import CPRank
from covopt.model.activation import Activation
from covopt.records import record
from covopt.records.answer import Drawn, Table, Words
from covopt.records.directories import Writer, spare
from covopt.runtime.errors import ProblemError, shown
from covopt.runtime.interrupts import interrupted
from covopt.runtime.lazy import LazyModule, lazy
from covopt.runtime.loop import Budget, Callback, Certificate, Status
from covopt.runtime.options import whole_numbers
from covopt.studies.width import width_bounds, words
from covopt.studies.width.width_bounds import NarrowBound, WidthBound, narrow_bounds, needed
from covopt.studies.width.width_search import EPS, Point, WidthSearch, widths_at

MOST_STARTS = 1_000_000
# Share of the time limit for the level; share of the remaining time for theorems on the exact start.
SOLVING, PROVING = 0.4, 0.2


@dataclass(frozen=True)
class Start:
    """The start of the plateau for one eps."""

    eps: float  # relative distance to the level that counts as 0; 0: the minimum itself
    lower: WidthBound  # the proved lower end of n(eps), with its reason
    upper: WidthBound  # the upper end
    estimate: int | None  # the width of the best known networks, unproved; None for eps = 0


@dataclass(frozen=True, repr=False)
class Plateau(Drawn):
    """The cost against the width.

    Attributes:
        result: the solver's result, of any width.
        layer: the hidden layer whose width varies; None: all of them, equally wide.
        points: one for each width, ascending.
        exact: the start of the plateau for eps = 0.
        starts: the same for each eps of EPS.
        bounds: widths that are proved to suffice.
        status: the end of the search.
        seconds: the time of everything.
    """

    file: ClassVar[str] = record.PLATEAU
    words: ClassVar[Words] = words
    figures: ClassVar[LazyModule] = lazy("covopt.studies.width.figure")

    result: Result
    layer: int | None
    points: list[Point]
    exact: Start
    starts: list[Start]
    bounds: list[WidthBound]
    status: Status
    seconds: float

    @property
    def level(self) -> float:
        """The lowest known cost of any width."""
        return min(point.cost for point in self.points)

    @property
    def lower(self) -> float | None:
        """The proved lower bound on the minimum over all widths."""
        return self.result.lower

    @property
    def certificate(self) -> Certificate:
        """The kind of the proof of `lower`."""
        return self.result.certificate

    @property
    def gap(self) -> float | None:
        """(level - lower) / level."""
        return None if self.lower is None or not self.level > 0.0 else (self.level - self.lower) / self.level

    @property
    def curve(self) -> list[tuple[int, float]]:
        """The pairs (n, lowest known cost of a network of width at most n); it never rises."""
        costs = np.minimum.accumulate([point.cost for point in self.points])
        return [(point.width, float(cost)) for point, cost in zip(self.points, costs, strict=True)]

    def network(self, width: int) -> list[Tensor]:
        """Return the known network of lowest cost of at most this width.

        Raises:
            ProblemError: there is no such network.
        """
        narrow = [point for point in self.points if point.width <= width and math.isfinite(point.cost)]
        if not narrow:
            raise ProblemError(f"No network of width {width} was found; ask for a larger width.")
        return min(narrow, key=lambda point: point.cost).weights

    def summary(self) -> dict[str, object]:
        """Return the JSON of `covopt plateau`; unknown or unproved values are None."""
        question = self.result.summary()
        keys = "depth bias loss lam activation data scale targets shuffle rows weighted seed".split()
        return {
            "level": record.known(self.level),
            "lower": record.known(self.lower),
            "gap": record.known(self.gap),
            "certificate": str(self.certificate),
            "curve": [{"width": self._width(n), "cost": record.known(cost)} for n, cost in self.curve],
            "start": {f"{s.eps:g}": [s.lower.width, s.upper.width] for s in self.starts},
            "estimate": {f"{s.eps:g}": s.estimate for s in self.starts},
            "reasons": {f"{s.eps:g}": [s.lower.reason, s.upper.reason] for s in [*self.starts, self.exact]},
            "exact_start": [self.exact.lower.width, self.exact.upper.width],
            "bounds": [{"width": bound.width, "reason": bound.reason} for bound in self.bounds],
            "layer": self.layer,
            "status": str(self.status),
            "seconds": self.seconds,
            **{key: question[key] for key in keys},
            "version": __version__,
        }

    def rows(self) -> list[tuple[object, ...]]:
        """Return the curve as a table: width, cost, and relative distance to the level."""
        level = self.level
        return [(self._width(n), c, (c - level) / level if level > 0.0 else 0.0) for n, c in self.curve]

    def overview(self) -> tuple[record.Pairs, Table]:
        """Return the answer in lines, and the curve as a table."""
        return self.describe(), (("width", "cost", "above the lowest cost"), self.rows())

    def files(self) -> dict[str, Writer]:
        """Return the writers of the files beside plateau.json.

        They are curve.csv, networks.npz (n5_W1 is W_1 at width 5), figure.png and the solver's run, `solution`.
        """
        return {
            "curve.csv": record.table(self._curve_lines),
            "networks.npz": record.archive(self.networks),
            "figure.png": spare(self.draw),
            record.SOLUTION: self.result.save,
        }

    def networks(self) -> dict[str, NDArray]:
        """Return the weights of all points: `n5_W1` is W_1 at width 5."""
        return record.layers_of({f"n{point.width}": point.weights for point in self.points})

    def _width(self, n: int) -> int | list[int]:
        return n if self.layer is None else widths_at(self.result.widths, self.layer, n)

    def _curve_lines(self) -> list[tuple[object, ...]]:
        lines = [(p.width, p.cost, lowest, p.source) for p, (_, lowest) in zip(self.points, self.curve, strict=True)]
        return [("width", "cost", "lowest", "source"), *lines]


@study(Question)
def plateau(
    X: object,
    Y: object = None,
    *,
    depth: int = 2,
    bias: float | str = 1.0,
    activation: str | Activation = "relu",
    layer: int | None = None,
    widths: Sequence[int] | None = None,
    starts: int = 16,
    time_limit: float = 300.0,
    init: Result | Sequence[object] | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    **question: Unpack[Question],
) -> Plateau:
    """Find the lowest cost for each width, and the width at which it stops falling.

    >>> answer = covopt.plateau([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.0], lam=0.01, time_limit=3)
    >>> [round(point.cost, 3) for point in answer.points], len(answer.network(2)[0])
    ([0.182, 0.061, 0.061], 2)

    `solve` gives the level. Then each width is searched, round after round: from the networks of the next wider and the
    next narrower width, from its own with a neuron exchanged, and from random starts, more in each round. The search
    ends with the time, when three rounds in a row gain nothing at any width (`converged`), or when every network is
    proved to be the best of its width (`optimal`). Source: [JGHG22, Prop. 6, 7, 14 and 15].

    Args:
        X, Y: inputs (N, n_0) and targets (N, n_L), or labels (N,); or as X a `Dataset` or `TensorDataset`.
        layer: vary the width of this hidden layer only, 1 ... L - 1; None: of all of them together.
        widths: the widths to search; None chooses, from 1 to the width of the solver's network.
        starts: random starts for each width in the first round; four times as many at width 1.
        time_limit: seconds for everything; the solver takes at most two fifths of them.
        lam, loss, depth, bias, activation, certify, gap, seed, device, init: as for `covopt.solve`.
        callback, progress, sample_weight, task: as for `covopt.solve`.

    Returns:
        The curve, its level with the proved bound, and the intervals for n(eps).

    Raises:
        ProblemError: an option is out of range, or data have the wrong shape.
        InfeasibleError: `interpolate` on data that no network fits.
    """
    _check(depth, layer, starts)
    budget, starts = Budget(time_limit=time_limit), int(starts)
    widths = None if widths is None else whole_numbers(widths, "widths", 1)
    result = solve(
        X, Y, depth=depth, bias=bias, activation=activation, time_limit=SOLVING * time_limit, init=init,
        callback=callback, **question,
    )  # fmt: skip
    narrow: list[NarrowBound] = []
    if result.status is not Status.INTERRUPTED:
        narrow = narrow_bounds(result.problem, layer, result.dual, most=1 + max(result.widths))
    search = WidthSearch(result, layer, budget, starts, [bound.lower for bound in narrow], callback)
    chain: CPRank | None = None
    status = result.status
    if status is not Status.INTERRUPTED:
        chain = width_bounds.covariance_rank(result.problem, max(1.0, PROVING * budget.remaining()), result.seed)
        status = search.run(widths)
    if interrupted():
        status = Status.INTERRUPTED
    points = [search.points[n] for n in sorted(search.points)]
    exact = result.certificate is Certificate.EXACT and status is not Status.INTERRUPTED
    fewest, narrowest = width_bounds.of_optima(result.unique) if exact else ([], [])
    least_rank, most_rank = width_bounds.of_rank(chain)
    bounds = width_bounds.upper_bounds(result.problem, layer) + narrowest
    upper = min([*bounds, *most_rank], key=lambda bound: bound.width)
    lower = max([needed(narrow, search.level), *fewest, *least_rank], key=lambda bound: bound.width)
    return Plateau(
        result=result,
        layer=layer,
        points=points,
        exact=Start(0.0, _with_reason(lower, narrow, upper), upper, None),
        starts=[_start(eps, points, narrow, upper, result.lower) for eps in EPS],
        bounds=bounds,
        status=status,
        seconds=budget.seconds(),
    )


def _start(
    eps: float, points: list[Point], narrow: list[NarrowBound], upper: WidthBound, proved: float | None
) -> Start:
    """Return the start of the plateau for one eps: networks may be narrower than what suffices for the minimum."""
    if proved is not None:
        near = [point.width for point in points if point.cost <= (1.0 + eps) * proved]
        if near and min(near) <= upper.width:
            upper = WidthBound(min(near), f"a network found is within {100.0 * eps:g} % of the lower bound")
    limit = (1.0 + eps) * min(point.cost for point in points)
    estimate = min((point.width for point in points if point.cost <= limit < math.inf), default=None)
    return Start(eps, _with_reason(needed(narrow, limit), narrow, upper), upper, estimate)


def _with_reason(lower: WidthBound, narrow: list[NarrowBound], upper: WidthBound) -> WidthBound:
    """Return the lower end; its reason names its own width if no proof excludes that."""
    if lower.width < upper.width and lower.width == len(narrow):
        return WidthBound(lower.width, f"{lower.reason}; nothing known excludes a width of {lower.width}")
    return lower


def _check(depth: int, layer: int | None, starts: int) -> None:
    if layer is not None and not 1 <= layer < depth:
        raise ProblemError(f"There is no hidden layer {shown(layer)}; give one from 1 to {depth - 1}.")
    if isinstance(starts, bool) or not isinstance(starts, int | np.integer) or not 0 <= starts <= MOST_STARTS:
        raise ProblemError(f"starts is {shown(starts)}; give a whole number from 0 to {MOST_STARTS:,}.")
