"""`compare`: every method on one problem, each with the same time, side by side."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from covopt.answer.result import Result
from covopt.answer.solve import solve
from covopt.records import record
from covopt.records.answer import Answer, Words
from covopt.records.directories import Writer, spare
from covopt.runtime.errors import ProblemError, listed, shown
from covopt.runtime.interrupts import gently, interrupted
from covopt.runtime.lazy import lazy
from covopt.runtime.loop import Progress, Status, Whole
from covopt.runtime.options import checked
from covopt.runtime.threads import fitted
from covopt.solvers.options import METHODS, WIDEST, as_count
from covopt.studies.compare import words

if TYPE_CHECKING:
    from covopt.answer import drawing as figures
else:
    figures = lazy("covopt.answer.drawing")

SIZED = {"hidden", "train"}
"""Methods that take a width and a number of starts; the others find their own."""
COLUMNS = ("method", "cost", "median cost", "lower bound", "width", "seconds", "status")


@dataclass(frozen=True)
class Contender:
    """The answer of one method to the problem."""

    method: str  # its name
    result: Result | None  # its best network; None if the method cannot solve a problem of this kind
    reason: str | None = None  # why it cannot

    @property
    def starts(self) -> list[float]:
        """The costs of all its starts; of its one network where it makes no starts."""
        return [] if self.result is None else self.result.starts or [self.result.cost]

    def summary(self) -> dict[str, object]:
        """Return the result's JSON with `median` and `starts`, or the reason why there is none."""
        if self.result is None:
            return {"method": self.method, "reason": self.reason}
        return entry_of(self.result.summary())


def entry_of(run: record.Summary) -> dict[str, object]:
    """Return the JSON of a method: that of its run, with the costs of all starts and their median."""
    starts = run["starts"] or [run["cost"]]
    median = statistics.median(math.nan if cost is None else cost for cost in starts)
    return {**run, "median": record.known(median), "starts": starts}


@dataclass(frozen=True, repr=False)
class Comparison(Answer):
    """Every method's answer to one problem.

    Attributes:
        contenders: one for each method, in the order in which they ran.
    """

    file: ClassVar[str] = record.COMPARISON
    words: ClassVar[Words] = words

    contenders: list[Contender]

    @property
    def results(self) -> dict[str, Result]:
        """The results by method, without the methods that could not solve the problem."""
        return {c.method: c.result for c in self.contenders if c.result is not None}

    @property
    def best(self) -> Result:
        """The result with the lowest cost."""
        return min(self.results.values(), key=lambda result: math.inf if math.isnan(result.cost) else result.cost)

    @property
    def lower(self) -> float | None:
        """The highest bound that a method proved; it holds for all of them."""
        return max((r.lower for r in self.results.values() if r.lower is not None), default=None)

    @property
    def status(self) -> Status:
        """The status of the last method; after Ctrl-C the later ones did not run."""
        return [*self.results.values()][-1].status

    def rows(self) -> list[tuple[object, ...]]:
        """Return the table, one row for each method; see COLUMNS."""
        return [words.row(contender.summary()) for contender in self.contenders]

    def summary(self) -> dict[str, object]:
        """Return the JSON of `covopt compare`; unknown or unproved values are None."""
        best = self.best
        methods = [contender.summary() for contender in self.contenders]
        cost, lower = record.known(best.cost), record.known(self.lower)
        return {"best": cost, "method": best.method, "lower": lower, "methods": methods}

    def files(self) -> dict[str, Writer]:
        """Return the writers of history.csv and figure.png, and of each method's run in a directory of its own."""
        return {
            record.HISTORY: record.table(self._history_lines),
            "figure.png": spare(self.draw),
            **{method: result.save for method, result in self.results.items() if result.weights},
        }

    def draw(self, path: Path) -> None:
        """Draw the cost of each method against time, as a PNG at `path`."""
        curves = [figures.Curve(c.method, c.result.history, c.starts) for c in self.contenders if c.result is not None]
        figures.draw_curves(record.headline(self.best.summary()), curves, self.lower, path)

    def _history_lines(self) -> list[list[object]]:
        histories = {method: record.history_lines(result.history) for method, result in self.results.items()}
        count = len(record.COLUMNS)  # the gaps of layers stay with the run
        lines = [[method, *line[:count]] for method, (_, *history) in histories.items() for line in history]
        return [["method", *record.COLUMNS], *lines]


@checked
@gently()
@fitted
def compare(
    X: object,
    Y: object = None,
    *,
    methods: Sequence[str] | None = None,
    width: object = None,
    starts: Whole | None = None,
    certify: str = "auto",
    sample_weight: object = None,
    callback: Callable[[str, Progress], None] | None = None,
    **options: object,
) -> Comparison:
    """Solve one problem by every method, one after another, each with its own time limit.

    >>> answer = covopt.compare([[0.0], [1.0]], [0.0, 1.0], methods=["cone", "train"], lam=0.1, time_limit=1)
    >>> {method: round(result.cost, 3) for method, result in answer.results.items()}
    {'cone': 0.162, 'train': 0.162}

    Args:
        X, Y: inputs (N, n_0) and targets (N, n_L), or labels (N,); or as X a `Dataset` or `TensorDataset`.
        methods: the methods to run; None takes all of them.
        width: hidden neurons for the methods hidden and train; the others find their own.
        starts: random starts for the methods hidden and train.
        certify: as for `covopt.solve`. With auto, hidden and train take fast: they have no proofs of their own, and the
            whole time goes into their search.
        options, sample_weight: as for `covopt.solve`; `time_limit` is for each method.
        callback: gets the method and a `Progress` after each round.

    Returns:
        Each method's result, or why it cannot solve a problem of this kind.

    Raises:
        ProblemError: a method is unknown, or every method refuses the problem.
    """
    methods = METHODS if methods is None else methods
    if not isinstance(methods, Sequence) or isinstance(methods, str):
        raise ProblemError(f"The methods to compare are {shown(methods)}; give a list of some of {', '.join(METHODS)}.")
    width, starts = as_count(width, "width", WIDEST), as_count(starts, "starts")
    unknown = [method for method in methods if method not in METHODS]
    if unknown or not methods:
        raise ProblemError(f"The methods to compare are {listed(methods)}; use some of {', '.join(METHODS)}.")
    sizes = {name: value for name, value in (("width", width), ("starts", starts)) if value is not None}
    if sizes and not SIZED.intersection(methods):
        own = " and ".join(sizes)
        raise ProblemError(f"{listed(methods)} has no use for {own} here; leave it out, or compare hidden or train.")
    contenders: list[Contender] = []
    refused: list[ProblemError] = []
    for method in methods:
        follow = None if callback is None else partial(callback, method)
        own = sizes if method in SIZED else {}
        level = "fast" if method in SIZED and certify == "auto" else certify
        try:
            question = {"sample_weight": sample_weight, **own, **options}
            result = solve(X, Y, method=method, certify=level, callback=follow, **question)  # type: ignore[arg-type]
        except ProblemError as error:
            refused.append(error)
            contenders.append(Contender(method, None, str(error)))
            continue
        contenders.append(Contender(method, result))
        if result.status is Status.INTERRUPTED or interrupted():
            break
    if len(refused) == len(methods):
        raise refused[0]
    return Comparison(contenders)
