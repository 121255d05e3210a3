"""Exact fits at depth: a falling penalty, slight widening, then an exact fit (tangent.py).

A start that fits exactly is a corner: descents along the exact fits hardly move from it, and the method of multipliers
(solvers/training/exact_fit.py) needs many long descents beyond two layers. Wider by some random neurons and with a
penalty, it moves far; as the penalty falls, tenfold each time, it comes back to a fit that is exact but for a little,
which Newton steps remove. A penalty leaves no more neurons than it needs, too few for a closer fit: before each descent
the network is widened again (docs/notes/2026-11-depth.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from covopt.model.problem import Problem
from covopt.model.weights import Weights, evaluate
from covopt.solvers.deep.pruning import reduced, widened
from covopt.solvers.training.exact_fit import explored_problem, fit_exactly, nearest_fit
from covopt.solvers.training.homotopy import SHIFTING, HomotopyOptions, descend
from covopt.solvers.training.tangent import exact_fit


def descend_exactly(
    problem: Problem,
    weights: Weights,
    first: HomotopyOptions,
    generator: torch.Generator,
    stop: Callable[[], bool] = lambda: False,
    widest: int | None = None,
) -> list[Tensor]:
    """Return the exact fit of lowest cost found by descents with a falling penalty.

    If they find none, or the network is too large for Newton steps that hold kinks, their last network is brought
    nearest to a fit: by its last layer, then by the least change of all layers.

    Args:
        problem: its loss is `interpolate`.
        weights: W_1 ... W_L.
        first: the descent with the first penalty; the others start near their ends.
        generator: of the random neurons.
        stop: asked before each turn.
        widest: no hidden layer gets wider than this.
    """
    smooth, current = explored_problem(problem), list(weights)
    best: list[Tensor] | None = None
    # The penalties, relative to the explored problem's; and the neurons that each layer gets before the descent with
    # each, with their relative strength.
    for part, more, strength in ((1.0, 12, 0.3), (0.1, 6, 0.1), (1e-2, 6, 0.1), (1e-3, 6, 0.1)):
        eased = replace(smooth, lam=part * smooth.lam)
        wider = widened(current, [more] * (problem.depth - 1), strength, generator, widest)
        descent = first if part == 1.0 else SHIFTING
        current = reduced(eased, descend(eased, [wider], descent, stop)[0])
        fitted = exact_fit(problem, current, stop) if part < 1.0 else None
        if fitted is not None:
            fitted = reduced(problem, fitted)
            if best is None or evaluate(problem, fitted).norm < evaluate(problem, best).norm:
                best = fitted
        if stop() or (best is not None and part <= 1e-2):
            break
    return nearest_fit(problem, fit_exactly(problem, current), stop) if best is None else best
