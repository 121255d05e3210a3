"""Messages of path."""

from pathlib import Path

import numpy as np

import covopt
from covopt.model.problem import make_problem
from messages import rows

X = np.arange(12.0).reshape(6, 2) % 5
Y = np.arange(6.0)[:, None] % 2
PROBLEM = make_problem(X, Y, lam=0.1)


def path(X: object = X, Y: object = Y, **options: object) -> covopt.Path:
    return covopt.path(X, Y, **({"lams": [0.1], "time_limit": 1.0} | options))  # type: ignore[arg-type]


def weighted(file: Path) -> None:
    np.savez(file, X=X, Y=Y, weights=np.arange(1.0, 7.0))


ROWS = rows(globals())
