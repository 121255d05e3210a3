"""Free biases: the methods of solve for networks whose biases the penalty is not on.

The minimum with an amount of bias beta falls to that with free biases as beta grows, since the squares of biases cost
nothing then. Two layers have rounds of their own (shallow/free.py). Where no exact oracle chooses the neurons, these
begin with those of the question with an amount of bias of the samples' size. Deeper networks, and trainings, are those
of that question, and then descend with no penalty on biases.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.attempt import Attempt, SolveOptions
from covopt.certify import free
from covopt.certify.dual import Proof
from covopt.errors import ProblemError
from covopt.loop import Budget, run
from covopt.methods.penalised import METHODS
from covopt.model.problem import Problem
from covopt.model.weights import Weights, evaluate, gradient, preactivations
from covopt.shallow.free import FreeSolver
from covopt.training.lbfgs import DescentOptions, lbfgs

FIRST_SHARE, PROOF_SHARE = 0.4, 0.2
"""Parts of the time limit: of the question with penalised biases, which comes first; of the proof."""
CHECKED = 0.4
"""The part of that time for the tree of a proof: as much goes into checking it."""
SLOW = 1e-7
"""A descent ends when ten steps gain less than this, relative."""


def solve_free(problem: Problem, options: SolveOptions) -> Attempt:
    """The method of `options`, with free biases.

    Raises:
        ProblemError: the method is `hidden`, whose loss is one of representations with penalised biases.
    """
    if options.method == "hidden":
        raise ProblemError("The method hidden penalises biases; with free biases use the method cone or train.")
    if problem.depth == 2 and options.method == "cone":
        return _rounds(problem, options)
    both = options.method == "cone" and not problem.interpolates
    share = 1.0 - FIRST_SHARE
    first = _penalised(problem, options, share / 2.0 if both else share)
    starts = [first.weights]
    if both:  # in a short time better than the search as often as not
        training = replace(options, method="train", starts=None, max_width=None, tol=None)
        starts.append(_penalised(problem, training, share).weights)
    found = []
    for left, weights in zip(range(len(starts), 0, -1), starts, strict=True):
        limit = options.budget.seconds() + options.budget.remaining() / left
        found.append(_descended(problem, weights, replace(options.budget, time_limit=limit)))
    costs = [evaluate(problem, weights).total for weights in found]
    weights = found[costs.index(min(costs))]
    history = [line for line in first.history if line.cost >= min(costs)]
    return replace(
        first, weights=weights, history=history, proof=_network_proof(problem, weights, options), starts=costs
    )


def _rounds(problem: Problem, options: SolveOptions) -> Attempt:
    """Rounds of two layers, and the best proof at the dual point that they end at."""
    budget, exact = options.budget, free.has_exact(problem)
    init = None if options.init is None else options.init[0]
    if init is None and not exact:
        init = _penalised(problem, options, FIRST_SHARE).weights[0]
    gap = options.gap if options.certify != "none" else 0.0
    solver = FreeSolver(problem, exact, gap, options.seed, options.tol, init)
    proves = options.certify != "none" and not exact
    within = replace(budget, time_limit=(1.0 - PROOF_SHARE) * budget.time_limit) if proves else budget
    outcome = run(solver, within, options.callback)
    state, proof = outcome.state, None
    if options.certify != "none":
        seconds = CHECKED * max(0.0, budget.remaining()) * float(options.certify != "fast")
        with budget.phase("proof"):
            found = state.proof or free.prove(problem, solver.dual(state), seconds, options.gap)
        proof = found if found.lower > 0.0 else None
    weights, cost = state.weights, state.cost
    if not math.isfinite(cost) and problem.interpolates:
        weights, cost = _fitted(problem, options, weights)
    return Attempt(weights, outcome.status, outcome.history, proof, [cost])


def _fitted(problem: Problem, options: SolveOptions, weights: list[Tensor]) -> tuple[list[Tensor], float]:
    """Where no round fitted exactly: the answer with penalised biases, if that does."""
    other = _penalised(problem, options, 1.0).weights
    cost = evaluate(problem, other)
    return (other, cost.total) if problem.allows(cost.residual) else (weights, math.inf)


def _penalised(problem: Problem, options: SolveOptions, share: float) -> Attempt:
    """The answer with an amount of bias of the samples' size, as a network with free biases."""
    mean = problem.X.mean(dim=0)
    beta = float((problem.X - mean).norm(dim=1).max()) or 1.0
    inner = replace(problem, X=problem.X - mean, beta=beta, free=False)
    init = None if options.init is None else [_shifted(W, 1.0 / beta) for W in options.init]
    if init is not None:
        init[0] = torch.cat([init[0][:, :-1], init[0][:, -1:] + (init[0][:, :-1] @ mean)[:, None] / beta], dim=1)
    budget = replace(options.budget, time_limit=share * options.budget.time_limit)
    found = METHODS[options.method](inner, replace(options, budget=budget, certify="none", init=init))
    weights = [_shifted(W, beta) for W in found.weights]
    first = weights[0]
    weights[0] = torch.cat([first[:, :-1], first[:, -1:] - (first[:, :-1] @ mean)[:, None]], dim=1)
    return replace(found, weights=weights, proof=None)


def _shifted(W: Float[Tensor, "n k"], factor: float) -> Float[Tensor, "n k"]:
    """The bias column times a factor."""
    return torch.cat([W[:, :-1], factor * W[:, -1:]], dim=1)


def _descended(problem: Problem, weights: Weights, budget: Budget) -> list[Tensor]:
    """Down from these weights, by L-BFGS, with no penalty on biases; exact fits stay where they are."""
    if problem.interpolates or min(len(W) for W in weights) == 0:
        return list(weights)
    shapes = [W.shape for W in weights]

    def parts(x: Tensor) -> list[Tensor]:
        return [part.view(shape) for part, shape in zip(x.split([s.numel() for s in shapes]), shapes, strict=True)]

    def value(x: Tensor) -> tuple[float, Tensor]:
        W = parts(x)
        return evaluate(problem, W).total, torch.cat([slope.flatten() for slope in gradient(problem, W)])

    x = torch.cat([W.flatten() for W in weights])
    ends = budget.pace()
    with budget.phase("descent"):
        for point in lbfgs(value, x, DescentOptions(slow=SLOW)):
            x = point
            if ends():
                break
    return parts(x)


def _network_proof(problem: Problem, weights: Weights, options: SolveOptions) -> Proof | None:
    """For two layers and a loss with a gradient the bound at the network's own dual point; None for more."""
    if problem.depth > 2 or problem.interpolates or options.certify == "none":
        return None
    Lambda = problem.gradient_at(preactivations(problem, weights)[-1]) / (-2.0 * problem.lam)
    with options.budget.phase("proof"):
        found = free.prove(problem, Lambda, max(0.0, options.budget.remaining()), options.gap)
    return found if found.lower > 0.0 else None
