"""Answers made by hand, for the tests of what happens to an answer once there is one."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from covopt.answer.result import Result
from covopt.certify.dual import Exact
from covopt.model.problem import make_problem
from covopt.model.weights import evaluate
from covopt.runtime.loop import Certificate, Progress, Status

Run = Callable[..., tuple[int, str, str]]
"""A command line to its exit code, standard output and standard error: the fixture `run`."""


def covopt_process(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """A command line in a process of its own, with options of `subprocess.run`."""
    usual = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "timeout": 300, "check": False}
    return subprocess.run([sys.executable, "-m", "covopt", *map(str, words)], **usual | options)


def printed(code: str, **options: Any) -> str:
    """What Python prints that runs this code in a process of its own; it must end well and complain of nothing."""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, **options)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


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
    proof = Exact(0.9 * cost.total, torch.from_numpy(rng.standard_normal(Y.shape)), 1.0) if proved else None
    proved_facts = {"lower": 0.9 * cost.total, "certificate": Certificate.EXACT, "proof": proof} if proved else {}
    values = {"cost": cost.total, "fit": cost.fit, "norm": cost.norm, "residual": cost.residual, **proved_facts}
    result = Result(problem, "cone", "fast", 3, weights=weights, status=status, history=history, seconds=0.5, **values)
    return replace(result, data="toy", scale="none")
