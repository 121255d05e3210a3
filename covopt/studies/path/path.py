"""`path`: the minimum as a function of lam, with bounds between the solved values.

The search is in path_search.py, the answer in path_answer.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Unpack

import numpy as np
import torch

from covopt.answer.held_out import HeldOut, folds_of
from covopt.answer.result import Result
from covopt.answer.solve import Keywords, study
from covopt.answer.verify import first_difference
from covopt.data.arrays import LARGEST
from covopt.model.activation import Activation
from covopt.model.biases import PENALISED
from covopt.model.feasible import check_interpolation
from covopt.model.loss import Loss, parse_loss
from covopt.model.problem import Problem, make_problem
from covopt.model.scalars import SMALLEST, as_number, read_strengths
from covopt.model.units import check_strength
from covopt.runtime.errors import ProblemError, shown
from covopt.runtime.interrupts import interrupted
from covopt.runtime.loop import Budget, Callback, Status
from covopt.solvers.options import SolveOptions
from covopt.studies.path.lam_max import LamMax, lam_max
from covopt.studies.path.path_answer import Path
from covopt.studies.path.path_search import COARSE, PathSearch, at, spread

# The share of the time limit for the proof of lam_max, its maximum seconds, and the share for `interpolate`.
MAXIMUM, LONGEST, END = 0.1, 60.0, 0.15
# The shares of the time until which values are solved first, and solved again: without slow proofs, and with them.
SOLVING, PROVING = (0.6, 1.0), (0.2, 0.4)
# Maximum number of values of lam.
MOST = 10_000
POINTS, RATIO = 50, 1e-4  # the values of lam and the smallest of them over lam_max, where neither is chosen


class Solving(Keywords, total=False):
    """Options of the solve of each value, with their defaults."""

    depth: Annotated[int, 2]
    bias: Annotated[float | str, 1.0]
    skip: Annotated[bool, False]
    activation: Annotated[str | Activation, "relu"]
    max_iterations: Annotated[int | None, None]


@study(Solving)
def path(
    X: object,
    Y: object = None,
    *,
    lams: Sequence[float] | None = None,
    ratio: float | None = None,
    points: int | None = None,
    interpolate: bool = False,
    test: tuple[object, object] | None = None,
    folds: int | None = None,
    loss: str | Loss = "mse",
    time_limit: float = 300.0,
    init: Path | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    **keywords: Unpack[Solving],
) -> Path:
    """Compute the minimum L*(lam) = min C + lam |W|^2 as a function of lam on a range.

    >>> answer = covopt.path([[0.0], [1.0]], [0.0, 1.0], points=4, time_limit=3)
    >>> lower, upper = answer.bounds(0.1)
    >>> round(lower, 2), round(upper, 2), answer.result(0.1).widths
    (0.16, 0.16, [1])

    L* is concave and does not fall. So networks and proved bounds at some lam bound it at every lam, and for two layers
    their mixtures bound it closely, without further proofs. Source: derived; MATH.md section 10.

    Args:
        X, Y: inputs (N, n_0) and targets (N, n_L), or labels (N,); or as X a `Dataset` or `TensorDataset`.
        lams, points, ratio: the values of lam; None: `points` of them (50) from lam_max down to `ratio` (1e-4) times
            it, the first ones even in log lam, the others where the bounds are widest.
        interpolate: also solve for the representation cost, the limit of L*(lam) / lam for lam -> 0 (mse).
        test: held-out inputs and targets, on which each network is scored.
        folds: score by this number of folds of the data instead; the time limit is for all of them together.
        loss: mse or cross_entropy.
        gap: stop proving when the proved relative gap is at most this at every lam.
        time_limit: seconds for all together.
        max_iterations: rounds of the solve of each value, which is then solved once; None: with an exact oracle until
            the value is proved, else a few, and again while its neighbours help it.
        init: an earlier answer to the same problem, to continue.
        depth, bias, skip, activation, certify, seed, device, callback, progress, task: as for `covopt.solve`.

    Returns:
        The points from the largest lam down, the interval for lam_max, and the largest proved gap of the whole range.

    Raises:
        ProblemError: an option is out of range, data have the wrong shape, or `init` belongs to another problem.
        InfeasibleError: `interpolate` on data that no network fits.
    """
    chosen = _values(lams, ratio, points)
    if parse_loss(loss).name not in ("mse", "cross_entropy"):
        raise ProblemError(
            "A path is of the loss mse, with interpolate for its end, or of cross_entropy; use one of them."
        )
    options: dict[str, Any] = {**keywords, "loss": loss}
    data = {name: options.pop(name) for name in ("device", "task")}
    effort = {name: options[name] for name in ("certify", "gap", "seed")}
    question = {name: options[name] for name in ("loss", "depth", "bias", "skip", "activation")}
    problem = make_problem(X, Y, lam=1.0, free=True, **question, **data).double()
    budget, rounds, seed = Budget(time_limit), options["max_iterations"], options["seed"]
    limited = budget if rounds is None else replace(budget, max_iterations=rounds)
    SolveOptions(limited, **effort).check(problem.depth)
    earlier = _known(init, problem)
    held = HeldOut.of(test, problem)
    parts = _parts(problem, test, folds, seed)
    if interpolate:
        _check_end(problem)
    proved = options["certify"] in ("auto", "full")
    main = replace(budget, time_limit=time_limit / (1 + len(parts)))
    limit = min(LONGEST, MAXIMUM * main.time_limit) if proved else 0.0
    largest = earlier.known if earlier is not None else lam_max(problem, limit, seed)
    search = PathSearch(problem, options, main, callback, [] if earlier is None else earlier.points)
    proving = proved and search.provable
    solving, again = PROVING if proving else SOLVING
    until = 1.0 - END if interpolate else 1.0
    _fill(search, chosen, _top(problem, largest), ratio or RATIO, points or POINTS, solving)
    # With a number of rounds each value is solved only once.
    ended = search.improve(main.part(again * until)) if rounds is None else None
    if proving:
        search.prove(until)
    end = _end(search, None if earlier is None else earlier.end) if interpolate else None
    tests, scored_by = _tests(search, held, parts, budget)
    if ended is None:
        ended = Status.TIME_LIMIT if main.spent() else Status.ITERATION_LIMIT
    return Path(
        problem=problem,
        points=search.ordered,
        known=largest,
        end=end,
        tests=tests,
        scored_by=scored_by,
        held_out=held,
        status=search.status(ended),
        seconds=budget.seconds(),
        seed=seed,
    )


def _fill(
    search: PathSearch, chosen: list[float] | None, top: float, ratio: float, points: int, until: float
) -> None:  # fmt: skip
    """Solve every lam once, within this share of the time."""
    if chosen is not None:
        _check_range(search.problem, min(chosen), max(chosen))
        search.descend(chosen, until)
        return
    _check_range(search.problem, ratio * top, top)
    first = spread(top, ratio, max(min(points, 2), math.ceil(COARSE * points)))
    if search.best:  # of an earlier run: its values, and the ends of this range
        first = [lam for lam in (first[0], first[-1]) if not min(search.best) <= lam <= max(search.best)]
    search.descend(first, COARSE * until)
    search.refine(points, until)


def _tests(
    search: PathSearch, held: HeldOut | None, parts: list[tuple[torch.Tensor, torch.Tensor]], budget: Budget
) -> tuple[list[float], str | int | None]:
    """Return held-out losses at each point (empty after Ctrl-C), and the kind of the data."""
    problem, ordered = search.problem, search.ordered
    if held is not None:
        return [held.score(at(problem, point.lam), point.weights) for point in ordered], "test"
    totals = np.zeros(len(ordered))
    for (rows, out), turn in budget.turns(parts):
        fold = problem.on(rows)
        own = PathSearch(fold, search.options, turn, search.callback)
        own.descend([point.lam for point in ordered], 1.0)
        if interrupted() or len(own.best) < len(ordered):
            return [], None
        test = HeldOut(problem.X[out], problem.Y[out])
        scores = [test.score(at(fold, point.lam), point.weights) for point in own.ordered]
        totals += len(out) / problem.samples * np.array(scores)
    return (totals.tolist(), len(parts)) if parts else ([], None)


def _end(search: PathSearch, earlier: Result | None) -> Result:
    """Solve for the representation cost, from the network of the smallest lam."""
    last, budget = search.ordered[-1].weights, search.budget
    start = earlier if earlier is not None else last if len(last[0]) else None
    seconds = max(budget.remaining(), END * budget.time_limit)
    return search.solve(search.problem, loss="interpolate", max_iterations=None, time_limit=seconds, init=start)


def _check_end(problem: Problem) -> None:
    end = replace(problem, loss=parse_loss("interpolate"), lam=1.0)
    if end.smooth_loss != problem.loss:
        raise ProblemError("Exact fits are the end of the path of mse alone; leave interpolate out.")
    check_interpolation(end)


def _top(problem: Problem, largest: LamMax) -> float:
    """Return the lam at which the path begins: an estimate of lam_max, or 1 if that is 0."""
    if problem.depth == 2:
        top = largest.lower
    else:  # with a bias: from where the zero network would be optimal without one
        Y = problem.Y - problem.Y.mean(dim=0) * bool(problem.beta)
        without = replace(problem, beta=0.0, biases=PENALISED, X=problem.Xt, Y=Y)
        top = largest.upper if largest.upper is not None else lam_max(without, 0.0).upper
    return top or 1.0


def _check_range(problem: Problem, low: float, high: float) -> None:
    """Refuse values of lam that float64 cannot compute with on these data."""
    for lam in (low, high):
        if not SMALLEST <= lam <= LARGEST:
            raise ProblemError(
                f"The path leads from lam = {high:g} to {low:g}, which float64 cannot compute with; scale the data."
            )
    check_strength(at(problem, low))


def _parts(
    problem: Problem, test: tuple[object, object] | None, folds: int | None, seed: int
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    if folds is None:
        return []
    if test is not None:
        raise ProblemError("Networks are scored on held-out data or by folds, not by both; leave one out.")
    return folds_of(problem.samples, folds, seed)


def _values(lams: Sequence[float] | None, ratio: float | None, points: int | None) -> list[float] | None:
    """Return the given values, each once, from the largest down; None if none are given."""
    if points is not None and not 1 <= points <= MOST:
        raise ProblemError(f"points is {points}; give a whole number from 1 to {MOST}.")
    if ratio is not None and not 0.0 < as_number(ratio, "ratio") < 1.0:
        raise ProblemError(f"ratio is {shown(ratio)}; give a number between 0 and 1.")
    if lams is not None and (ratio, points) != (None, None):
        raise ProblemError("ratio and points choose values of lam where none are given; leave them out, or the values.")
    return None if lams is None else read_strengths(lams)


def _known(init: Path | None, problem: Problem) -> Path | None:
    """Return an earlier answer, checked to be one to the same problem."""
    if init is None:
        return None
    if not isinstance(init, Path):
        raise ProblemError(f"init is {shown(init)}; give a Path, the answer of an earlier call.")
    if first_difference(problem, init.problem, {"lam"}) is not None:
        raise ProblemError(
            "The earlier answer is one to another problem (data, loss, depth, bias or activation); give the same"
            " problem."
        )
    return init
