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


ROWS = rows(
    globals(),
    """
    > path(loss="interpolate")
    A path is of the loss mse, with interpolate for its end, or of cross_entropy; use one of them.
    > path(Y=np.eye(2)[[0, 1, 0, 1, 0, 1]], loss="cross_entropy", interpolate=True)
    Exact fits are the end of the path of mse alone; leave interpolate out.
    > covopt.path([[1e-60]], [[1e-60]], bias=0.0)
    The path leads from lam = 1e-120 to 1e-124, which float64 cannot compute with; scale the data.
    > path(test=(X, Y), folds=2)  ->  Networks are scored on held-out data or by folds, not by both; leave one out.
    > path(folds=7)  ->  folds is 7; give a whole number from 2 to 6, the number of rows.
    > path(points=0)  ->  points is 0; give a whole number from 1 to 10000.
    > path(ratio=1.0)  ->  ratio is 1.0; give a number between 0 and 1.
    > path(lams=[0.1, 0.0])  ->  The values of lam are not all above 0, or there are none; give at least one above 0.
    > path(init=3)  ->  init is 3; give a Path, the answer of an earlier call.
    > path(init=path(bias=0.0))
    The earlier answer is one to another question (data, loss, depth, bias or activation); ask the same again.
    > path().bounds(0.5)  ->  lam is 0.5; give one from 0.1 to 0.1.
    > path().result()  ->  Without held-out data no lam is picked; give a lam above 0.
    > path(test=(X[:, :1], Y))
    The held-out inputs have 1 column and those of the data 2; give held-out data of the same kind.
    $ path HERE/w.npz  with {"w.npz": weighted}
    covopt path counts all rows the same; leave the weights out, or repeat rows instead.
    $ path iris --resume  ->  --resume goes on from the run in DIR of --out; give --out DIR, without --force.
    $ path iris --out HERE/run --resume
        with {"run": lambda file: covopt.solve(X, Y, lam=0.1, time_limit=1.0).save(file)}
    HERE/run holds no path to go on from; choose another directory.
    """,
)
