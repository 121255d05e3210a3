"""Messages of path."""

from pathlib import Path

import numpy as np

import covopt
from covopt.model.problem import make_problem
from messages import X, Y, rows

PROBLEM = make_problem(X, Y, lam=0.1)


def path(X: object = X, Y: object = Y, **options: object) -> covopt.Path:
    return covopt.path(X, Y, **({"lams": [0.1], "time_limit": 1.0} | options))  # type: ignore[arg-type]


def weighted(file: Path) -> None:
    np.savez(file, X=X, Y=Y, weights=np.arange(1.0, 7.0))


ROWS = rows(globals())
