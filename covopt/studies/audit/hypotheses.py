"""Guess whether the network was trained on another problem; report the likeliest one.

Further training lowers the cost of a trained network little on its own problem, and much on another one. So each
possibility is measured in the same way: a short descent of its loss from the network's weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from covopt.model.biases import PENALISED
from covopt.model.loss import parse_loss
from covopt.model.problem import Problem
from covopt.model.weights import Weights, evaluate, gradient
from covopt.runtime.loop import Stop
from covopt.solvers.deep.descent import descent_for
from covopt.solvers.training.homotopy import HomotopyOptions
from covopt.studies.audit.verdicts import part

FREE = 100.0
"""Biases enter this many times larger, so that their penalty is 1e-4 of what it was."""
SQUARES, ENTROPY = parse_loss("mse"), parse_loss("cross_entropy")
# A descent on which the possibilities are compared.
SHORT = HomotopyOptions(factors=(0.0,), slow=1e-5, window=50, memory=20, iterations=300)

Scalings = Callable[[], Mapping[str, object]]
"""Returns X under other ways to scale it (none, max, standard)."""


@dataclass(frozen=True)
class Possibility:
    """Another problem that the network may solve."""

    words: str  # the difference, for "... with WORDS"
    problem: Problem  # the problem
    weights: list[Tensor]  # the same function in the weights of that problem


def hint(problem: Problem, weights: Weights, gain: float, scalings: Scalings, stop: Stop) -> str:
    """Name the problem that the network may have been trained for; empty if none stands out.

    The loss of the audited problem has a penalty; further training lowers it by `gain`, relative to the cost.
    """
    if gain <= 0.01:  # by further training: too little for suspicion
        return ""
    measured: list[tuple[float, Possibility]] = []
    for other in _possibilities(problem, list(weights), scalings):
        if stop():
            break
        measured.append((_gain(other, stop), other))
    # Further training gains at most 2 % on a likely problem, and a tenth of what it gains on the given one.
    likely = [candidate for candidate in measured if candidate[0] <= min(0.02, 0.1 * gain)]
    if not likely or stop():
        return ""
    least, other = min(likely, key=lambda candidate: candidate[0])
    return (
        f"Possibly the network was trained on another problem: with {other.words} its cost is"
        f" {evaluate(other.problem, other.weights).total:.6g}, and further training lowers that by {part(least)} only."
    )


def _gain(other: Possibility, stop: Stop) -> float:
    before = evaluate(other.problem, other.weights).total
    if not 0.0 < before < torch.inf:
        return torch.inf
    (weights,), _ = descent_for(other.problem).further([other.weights], stop, SHORT, passes=1)
    return (before - evaluate(other.problem, weights).total) / before


def _possibilities(problem: Problem, weights: list[Tensor], scalings: Scalings) -> Iterator[Possibility]:
    """Yield problems that differ in one thing, or in the scales of both inputs and targets."""
    Y, mse = problem.Y, problem.loss == SQUARES
    simplex = bool((Y >= 0.0).all()) and bool(((Y.sum(dim=1) - 1.0).abs() <= 1e-9).all()) and Y.shape[1] > 1
    if not mse or simplex:
        other = ENTROPY if mse else SQUARES
        yield Possibility(f"--loss {other.name}", replace(problem, loss=other), weights)
    targets = _standard(Y)
    if mse and not simplex:
        yield Possibility("targets of mean 0 and deviation 1", replace(problem, Y=targets), weights)
    for name, scaled in scalings().items():
        X = torch.as_tensor(scaled, dtype=problem.X.dtype, device=problem.X.device)
        if X.shape != problem.X.shape or bool(torch.isclose(X, problem.X, rtol=1e-6).all()):
            continue
        yield Possibility(f"--scale {name}", replace(problem, X=X), weights)
        if mse and not simplex:
            both = replace(problem, X=X, Y=targets)
            yield Possibility(f"--scale {name} and targets of mean 0 and deviation 1", both, weights)
    yield from _other_penalties(problem, weights)


def _other_penalties(problem: Problem, weights: list[Tensor]) -> Iterator[Possibility]:
    """Yield the lam with <grad C, W> + 2 lam |W|^2 = 0, and other penalties on biases."""
    decayed, slopes = problem.decayed(weights), problem.decayed(gradient(problem, weights))
    norm = float(sum(A.square().sum() for A in decayed))
    slope = sum(float((G * A).sum()) for G, A in zip(slopes, decayed, strict=True))
    factor = 1.0 - slope / (2.0 * problem.lam * norm) if norm > 0.0 else 1.0
    none = 1e-3  # a multiple of lam that is as good as no penalty
    if factor <= none:
        words = f"almost no penalty (--lam {none * problem.lam:.3g} or less)"
        yield Possibility(words, replace(problem, lam=none * problem.lam), weights)
    elif not _is_near(factor, 1.0):
        words = f"--lam {factor * problem.lam:.3g} ({_reason(factor, problem.Y.shape[1])})"
        yield Possibility(words, replace(problem, lam=factor * problem.lam), weights)
    if problem.biases != PENALISED:
        yield Possibility("penalised biases (--decay all)", replace(problem, biases=PENALISED), weights)
    elif problem.beta > 0.0 and any(bool(W[:, -1].any()) for W in weights):
        free = [torch.cat([W[:, :-1], W[:, -1:] / FREE], dim=1) for W in weights]
        words = f"biases that are almost unpenalised (--bias {FREE * problem.beta:g})"
        yield Possibility(words, replace(problem, beta=FREE * problem.beta), free)
    elif problem.beta > 0.0:
        yield Possibility("no biases (--bias 0)", replace(problem, beta=0.0), weights)


def _reason(factor: float, outputs: int) -> str:
    """Explain where a multiple of lam may come from."""
    reasons = {
        0.5: "half of --lam: a weight decay of d is lam = d / 2",
        2.0: "twice --lam: a weight decay of d is lam = d / 2 where the loss is not halved",
        float(outputs): "--lam times the number of outputs, over which nn.MSELoss takes the mean",
        outputs / 2.0: "a weight decay of d beside nn.MSELoss is lam = d / 2 times the number of outputs",
    }
    for multiple, reason in reasons.items():
        if multiple != 1.0 and _is_near(factor, multiple):
            return reason
    return f"{factor:.3g} times --lam"


def _is_near(factor: float, multiple: float) -> bool:
    """Return True if two multiples of lam count as the same."""
    return abs(factor / multiple - 1.0) <= 0.05


def scalings_of(X: Tensor) -> dict[str, Tensor]:
    """Return X over its largest entry, and X with columns of mean 0 and deviation 1."""
    largest = float(X.abs().max())
    return {"max": X / largest if largest > 0.0 else X, "standard": _standard(X)}


def _standard(A: Tensor) -> Tensor:
    """Return columns of mean 0 and standard deviation 1; constant ones become 0."""
    spread = A.std(dim=0, correction=0)
    return (A - A.mean(dim=0)) / torch.where(spread > 0.0, spread, torch.inf)
