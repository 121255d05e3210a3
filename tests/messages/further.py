"""Messages about data for a network that was solved on others: predictions and held-out data."""

from pathlib import Path

import numpy as np
from hostile import archive

import covopt
from covopt.answer import held_out
from covopt.data.coding import Coding
from covopt.data.data import Dataset
from covopt.data.further import read_further
from messages import Given, rows

TRAINING = b"a,b,kind,y\n1,2,u,yes\n3,1,v,no\n2,5,u,no\n"
SOLVE = "solve HERE/a.csv --target y --one-hot kind --lam 1 --certify none --tol 0.5 --test HERE/t.csv"


def table(text: str) -> dict[str, Given]:
    return {"a.csv": TRAINING, "t.csv": text.encode()}


def data(here: Path) -> Dataset:
    return covopt.read_data(here / "a.csv", target="y", one_hot=["kind"])


def run(path: Path) -> None:
    """A run as earlier versions stored it, which kept no scale."""
    result = covopt.solve(np.eye(2), np.eye(2), lam=1.0, certify="none", max_iterations=1)
    result.scale = "standard"
    result.save(path)


def miscoded(path: Path) -> None:
    """A run with the scale of more inputs than it has."""
    result = covopt.solve(np.eye(2), np.eye(2), lam=1.0, certify="none", max_iterations=1)
    result.coding = Coding(np.zeros(3), np.ones(3))
    result.save(path)


def empty(here: Path) -> object:
    found = covopt.solve(np.eye(2), np.eye(2), lam=1.0, certify="none", max_iterations=1)
    found.cost = float("nan")
    return held_out.predictions(found, np.eye(2))


ROWS = rows(
    globals(),
    r"""
    $ solve HERE/a.csv --target y --one-hot kind --lam 1 --certify none --tol 0.5 --test HERE/t.csv
        with table("a,kind,y\n1,u,yes\n")
    HERE/t.csv has no column b, which the network's data had; give a table with all of them.
    $ solve HERE/a.csv --target y --one-hot kind --lam 1 --certify none --tol 0.5 --test HERE/t.csv
        with table("a,b,kind\n1,2,u\n")
    HERE/t.csv has no column y, which the network's data had; give a table with all of them.
    $ solve HERE/a.csv --target y --one-hot kind --lam 1 --certify none --tol 0.5 --test HERE/t.csv
        with table("kind,b,a,y\nw,2,1,yes\n")
    Column 'kind' of HERE/t.csv holds 'w', which the network's data did not; remove those rows.
    $ solve HERE/a.csv --target y --one-hot kind --lam 1 --certify none --tol 0.5 --test HERE/t.csv
        with table("a,b,kind,y\n1,2,u,maybe\n")
    HERE/t.csv has the class 'maybe', which the network does not know; its classes are no, yes: remove those rows.
    > held_out.tested(here / "t.npz", data(here), lambda: data(here))
        with {"a.csv": TRAINING, "t.npz": archive(X=np.eye(3), Y=np.eye(3))}
    HERE/t.npz has 3 inputs and the network takes 4; give the columns that it was solved with.
    > held_out.tested(here / "t.npz", data(here), lambda: data(here))
        with {"a.csv": TRAINING, "t.npz": archive(X=np.eye(4), Y=np.eye(2))}
    In HERE/t.npz X has 4 rows and Y has 2; give one row of targets for each input.
    > held_out.tested(here / "t.npz", data(here), lambda: data(here))
        with {"a.csv": TRAINING, "t.npz": archive(X=np.eye(4), Y=np.eye(4))}
    HERE/t.npz has 4 targets in each row and the network 2 outputs; give targets like those that it was solved with.
    > held_out.tested("iris", data(here), lambda: data(here))  with {"a.csv": TRAINING}
    The inputs of iris are sepal length (cm), sepal width (cm), petal length (cm), and those of the network's data a, b, kind=u; give data with the same columns.
    > read_further(here / "t.csv", covopt.read_data("digits", rows=10).coding, 10)
        with {"t.csv": ",".join(f"p{i}" for i in range(64)).encode() + b"\n" + b",".join([b"0"] * 64)}
    HERE/t.csv does not say which column holds the targets; give X and Y in a .npz file.
    $ predict HERE/run HERE/t.npz --out HERE/p.csv  with {"run": run, "t.npz": archive(X=np.eye(2))}
    The run does not say how its data were scaled (standard), because an earlier version of covopt stored it; solve again with --out.
    $ predict HERE/run HERE/t.npz --out HERE/p.csv  with {"run": miscoded, "t.npz": archive(X=np.eye(2))}
    HERE/run is not a complete run (problem.npz does not say how its data were coded); solve again with --out.
    > empty(here)  ->  The run holds no network that answers its question; solve again.
    $ predict HERE/run HERE/t.npz --out HERE/p.txt  with {"run": run, "t.npz": archive(X=np.eye(2))}
    HERE/p.txt is of no format that predictions have; choose a name that ends in .csv or .npz.
    > covopt.solve(np.eye(2), np.eye(2), lam=1.0, certify="none", max_iterations=1).predict_proba(np.eye(2))
    Outputs are log-odds for the losses cross_entropy and logistic, not for mse; use predict.
    """,
)
