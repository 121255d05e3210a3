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


ROWS = rows(globals())
