"""Messages of path; about ranks, about training by SGD, and about what `validate` is told of it."""

from pathlib import Path

import numpy as np
import torch

import covopt
from covopt.model.problem import make_problem
from covopt.model.ranks import functional_ranks
from covopt.model.recursion import Decay
from covopt.studies.ranks.architectures import ARCHITECTURES
from covopt.studies.ranks.rank_audit import audit_ranks
from messages import X, Y, rows

PROBLEM = make_problem(X, Y, lam=0.1)
W = [torch.ones(4, 3, dtype=torch.float64), torch.ones(1, 5, dtype=torch.float64)]
BATCHES = {"batch_size": 2, "rate": 0.1, "steps": 9}


def validate(net: object = W, **options: object) -> object:
    return covopt.validate(net, X, Y, **({"lam": 0.1, "time_limit": 1.0} | options))  # type: ignore[arg-type]


def ranks(**options: object) -> object:
    chosen = {"lam": 0.1, "reference": 0, "width": 2, "seeds": 1, "time_limit": 5.0} | options
    return covopt.ranks(X, Y, **chosen)  # type: ignore[arg-type]


def audited(**options: object) -> object:
    return ranks(net=W, width=None, seeds=None, **options)


def path(X: object = X, Y: object = Y, **options: object) -> covopt.Path:
    return covopt.path(X, Y, **({"lams": [0.1], "time_limit": 1.0} | options))  # type: ignore[arg-type]


def weighted(file: Path) -> None:
    np.savez(file, X=X, Y=Y, weights=np.arange(1.0, 7.0))


ROWS = rows(globals())
