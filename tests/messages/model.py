"""Messages about the question: data in memory, options, weights, representations, solvers."""

import math
from dataclasses import replace

import numpy as np
import torch

import covopt
from covopt.certify.dual import Exact
from covopt.certify.proofs import read_proof
from covopt.linalg.psd import RankRule
from covopt.model import forces, loss, weights
from covopt.model.activation import Activation
from covopt.model.problem import make_problem
from covopt.runtime.loop import Budget, Certificate
from covopt.solvers.deep import missing_neuron, representations as projected_gradient
from covopt.solvers.training import trainer
from messages import X, Y, rows

SHALLOW, DEEP = make_problem(X, Y, lam=0.1), make_problem(X, Y, lam=0.1, depth=3)
COST = make_problem(X, Y)
W = [torch.ones(4, 3, dtype=torch.float64), torch.ones(1, 5, dtype=torch.float64)]
Z = [torch.ones(6, 4, dtype=torch.float64), torch.ones(6, 1, dtype=torch.float64)]
RELU = Activation(0.0)

LOSS = loss.parse_loss("interpolate")


class Own:
    """A loss of one's own, no descendant of covopt's."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values = self.gradients = self.curvatures = self.conjugates = torch.add


def solve(X: object = X, Y: object = Y, **options: object) -> object:
    return covopt.solve(X, Y, **({"lam": 0.1, "time_limit": 1.0} | options))  # type: ignore[arg-type]


def exact(X: object, Y: object, **options: object) -> object:
    return covopt.solve(np.array(X, dtype=float), np.array(Y, dtype=float), **options)  # type: ignore[arg-type]


FREE = make_problem(X, Y, lam=0.1, bias="free", free=True)
LARGE = np.broadcast_to(np.ones(1000), (250_000, 1000))  # 2 GB, were it copied
FOUR = np.random.default_rng(0).standard_normal((6, 4))


def proved(kind: str, rank: int, **evidence: object) -> object:
    """What a stored dual point of free biases proves."""
    p = make_problem(FOUR[:, :rank], Y, lam=0.1, bias="free", free=True)
    arrays = {"Lambda": p.Y.numpy(), "maximum": np.ones(1), **evidence}
    return read_proof(Certificate(kind), p, 0.0, arrays).bound(p)  # type: ignore[arg-type]


ROWS = rows(globals())
