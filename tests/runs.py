"""Answers made by hand, for the tests of what happens to an answer once there is one."""

from collections.abc import Callable

import numpy as np
import torch

from covopt.answer.result import Result
from covopt.certify.dual import Exact
from covopt.model.problem import make_problem
from covopt.model.weights import evaluate
from covopt.runtime.loop import Certificate, Progress, Status

Run = Callable[..., tuple[int, str, str]]
"""A command line to its exit code, standard output and standard error: the fixture `run`."""


def toy_result(
    *,
    width: int = 4,
    lam: float | None = 0.1,
    loss: str | None = None,
    bias: float = 1.0,
    activation: str = "relu",
    proved: bool = True,
    status: Status = Status.OPTIMAL,
    X: object = None,
    Y: object = None,
) -> Result:
    """A network that nobody has optimised, with its true cost and a made-up bound."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((9, 3)) if X is None else np.asarray(X)
    Y = np.eye(3)[np.arange(9) % 3] if Y is None else np.asarray(Y)
    problem = make_problem(X, Y, lam=lam, loss=loss, bias=bias, activation=activation)
    shapes = (width, problem.X.shape[1] + 1), (problem.Y.shape[1], width + 1)
    weights = [torch.from_numpy(rng.standard_normal(shape)) for shape in shapes]
    cost = evaluate(problem, weights)
    history = [
        Progress(i, 0.1 * i, cost.total * (1 + 2.0**-i), cost.total * (1 - 2.0**-i) if proved and i else None, i)
        for i in range(6)
    ]
    return Result(
        problem=problem,
        method="cone",
        certify="fast",
        seed=3,
        weights=weights,
        status=status,
        certificate=Certificate.EXACT if proved else Certificate.NONE,
        cost=cost.total,
        fit=cost.fit,
        norm=cost.norm,
        residual=cost.residual,
        lower=0.9 * cost.total if proved else None,
        seconds=0.5,
        history=history,
        proof=Exact(0.9 * cost.total, torch.from_numpy(rng.standard_normal(Y.shape)), 1.0) if proved else None,
        data="toy",
        scale="none",
    )
