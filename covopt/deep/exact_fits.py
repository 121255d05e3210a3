"""Exact fits at depth: a penalised fit whose penalty falls, from a wider network, then made exact (tangent.py).

A start that fits exactly is a corner: descents along the exact fits hardly move from it, and the method of multipliers
(training/exact_fit.py) needs many long descents beyond two layers. Wider by a few random neurons and with a penalty, it
moves far; as the penalty falls, tenfold each time, it comes back to a fit that is exact but for a little, which Newton
steps remove (docs/notes/2026-11-depth.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from covopt.deep.pruning import reduced
from covopt.model.problem import Problem
from covopt.model.weights import Weights, evaluate
from covopt.training.exact_fit import explored_problem
from covopt.training.homotopy import SHIFTING, HomotopyOptions, descend
from covopt.training.tangent import exact_fit

# The penalties, relative to the explored problem's; from the second on, the network may be near an exact fit.
FALLING = (1.0, 0.1, 1e-2, 1e-3)
# The one at which it is over, if an exact fit was found.
ENOUGH = 1e-2


def descend_exactly(
    problem: Problem, weights: Weights, options: HomotopyOptions, stop: Callable[[], bool] = lambda: False
) -> list[Tensor]:
    """The cheapest exact fit that a descent with a falling penalty leads to; where it finds none, its last network.

    Args:
        problem: its loss is `interpolate`.
        weights: W_1 ... W_L.
        options: of the first descent; the others start near their ends.
        stop: asked before each turn.
    """
    smooth, current = explored_problem(problem), list(weights)
    best: list[Tensor] | None = None
    for part in FALLING:
        eased = replace(smooth, lam=part * smooth.lam)
        current = reduced(eased, descend(eased, [current], options if part == FALLING[0] else SHIFTING, stop)[0])
        found = exact_fit(problem, current, stop) if part < FALLING[0] or stop() else None
        if found is not None:
            found = reduced(problem, found)
            if best is None or evaluate(problem, found).norm < evaluate(problem, best).norm:
                best = found
        if stop() or (best is not None and part <= ENOUGH):
            break
    return current if best is None else best
