"""`solve`: the solver and the certifiers take turns here, and the answer is put together from what they return."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.certify.bounds import DualBound, dual_bound
from covopt.cone.exact import exact_oracle
from covopt.cone.linear import LinearOracle
from covopt.errors import ProblemError
from covopt.loop import Budget, Callback, Certificate, run
from covopt.model.activation import Activation
from covopt.model.feasible import check_interpolation
from covopt.model.loss import Loss
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import check_weights, evaluate
from covopt.result import DualPoint, Result
from covopt.solvers.shallow import ExactOracle, Network, ShallowOptions, ShallowSolver

METHODS = ("cone",)
CERTIFY = ("none", "fast")


def solve(
    X: object,
    Y: object,
    *,
    lam: float | None = None,
    loss: str | Loss | None = None,
    depth: int = 2,
    bias: float = 1.0,
    activation: str | Activation = "relu",
    method: str = "cone",
    certify: str = "fast",
    gap: float = 1e-4,
    time_limit: float = 300.0,
    seed: int = 0,
    device: str | torch.device | None = None,
    init: Result | Sequence[object] | None = None,
    callback: Callback | None = None,
) -> Result:
    """What the data cost a two-layer network: min C + lam |W|^2, or R(X, Y) = min |W|^2 with F = Y.

    Args:
        X: inputs (N, n_0).
        Y: targets (N, n_L) or (N,).
        lam: strength of the penalty; None asks for the representation cost.
        loss: mse, cross_entropy or interpolate; None means interpolate without lam and mse with it.
        depth: 2.
        bias: beta >= 0.
        activation: relu, leaky:A or linear.
        method: cone, the fully corrective Frank-Wolfe method over S.
        certify: none, or fast: a lower bound where the oracle knows the maximum (rank(Xt) <= 3, linear networks).
        gap: stop at this proved relative gap.
        time_limit: seconds.
        seed: of the search.
        device: where to compute; None follows X.
        init: a Result, or weights [W_1, W_2], to start from.
        callback: gets a `Progress` after each round.

    Returns:
        The best network with its cost recomputed from it in float64, and the bound with the kind of its proof.

    Raises:
        ProblemError: an option out of range, or data of the wrong shape.
        InfeasibleError: `interpolate` on data that no network of that kind fits; the rows are named.
    """
    problem = make_problem(X, Y, lam=lam, loss=loss, depth=depth, bias=bias, activation=activation, device=device)
    _check_options(problem, method, certify, gap, time_limit, seed)
    budget = Budget(time_limit=time_limit)
    problem = in_double(problem)
    if problem.interpolates:
        check_interpolation(problem)
    start = _initial(problem, init)
    ledger = _Ledger(problem)
    solver = ShallowSolver(
        problem,
        budget,
        ledger.record,
        exact=_exact_oracle(problem) if certify != "none" or problem.activation.is_linear else None,
        options=ShallowOptions(gap=gap),
        seed=seed,
        init=start,
    )
    outcome = run(solver, budget, callback)
    network = solver.reduced(outcome.state.best)
    result = Result(problem=problem, method=method, certify=certify, seed=seed, history=outcome.history)
    _fill(result, network, ledger.best if certify != "none" else None)
    result.status = outcome.status
    result.seconds = budget.seconds()
    return result


def in_double(problem: Problem) -> Problem:
    """The same problem in float64."""
    return Problem(
        problem.X.double(),
        problem.Y.double(),
        problem.loss,
        problem.lam,
        problem.depth,
        problem.beta,
        problem.activation,
    )


def _exact_oracle(problem: Problem) -> ExactOracle | None:
    """An oracle that knows max h: linear networks, and data of rank at most 3."""
    if problem.activation.is_linear:
        return LinearOracle(problem.Xt)
    return exact_oracle(problem.Xt, problem.activation)


class _Ledger:
    """Keeps the best proved bound; `record` is what the solver calls with each dual point."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.best: DualBound | None = None

    def record(self, Lambda: Float[Tensor, "N m"], maximum: float) -> float | None:
        """The best lower bound so far."""
        if math.isfinite(maximum):
            bound = dual_bound(self._problem, Lambda, maximum)
            if self.best is None or bound.lower > self.best.lower:
                self.best = bound
        return self.best.lower if self.best is not None else None


def _fill(result: Result, network: Network, bound: DualBound | None) -> None:
    """Set the numbers of the result, once, from the weights that it returns."""
    result.weights = network.weights()
    if math.isfinite(network.cost):
        cost = evaluate(result.problem, result.weights)
        result.cost, result.fit, result.norm, result.residual = cost.total, cost.fit, cost.norm, cost.residual
    if bound is not None:
        result.lower, result.certificate = max(0.0, bound.lower), Certificate.EXACT
        result.dual = DualPoint(bound.Lambda.cpu().numpy(), bound.maximum)


def _check_options(problem: Problem, method: str, certify: str, gap: float, time_limit: float, seed: int) -> None:
    if problem.depth != 2:
        raise ProblemError(f"Depth {problem.depth} cannot be solved yet; give depth 2.")
    if method not in METHODS:
        raise ProblemError(f"The method '{method}' is unknown; use {' or '.join(METHODS)}.")
    if certify not in CERTIFY:
        raise ProblemError(f"'{certify}' is no level of certification; use {' or '.join(CERTIFY)}.")
    if not (isinstance(gap, (int, float)) and 0 <= gap < 1):
        raise ProblemError(f"The gap is {gap!r}; give a number from 0 to below 1.")
    if not (isinstance(time_limit, (int, float)) and time_limit > 0):
        raise ProblemError(f"The time limit is {time_limit!r}; give seconds above 0.")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise ProblemError(f"The seed is {seed!r}; give a whole number from 0 to 2^63 - 1.")


def _initial(problem: Problem, init: Result | Sequence[object] | None) -> Tensor | None:
    """Hidden weights to start from."""
    if init is None:
        return None
    source = init.weights if isinstance(init, Result) else init
    weights = [torch.as_tensor(W, dtype=torch.float64, device=problem.X.device) for W in source]
    check_weights(problem, weights)
    return weights[0]
