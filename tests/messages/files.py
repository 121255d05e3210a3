"""Messages about files: data, tables, tensors, MNIST, trained networks, stored runs."""

import gzip
import sys
from pathlib import Path
from unittest.mock import patch

import hostile
import numpy as np
import pyarrow as pa
import torch
from hostile import archive, stored
from pyarrow import parquet

import covopt
from covopt.data.networks import as_network
from messages import Given, npz, rows, table

X, Y = np.arange(8.0).reshape(4, 2), np.arange(4.0)[:, None]
SOLVE, TABLE = "solve HERE/a.npz", "solve HERE/a.csv --target y"
PARQUET, TENSORS = "solve HERE/a.parquet --target y", "solve HERE/a.pt"
MNIST, VERIFY = "solve mnist --data-dir HERE", "verify HERE/run"
NET, WEIGHTS = "validate HERE/a.npz --net HERE/net.pt --lam 1", "validate HERE/a.npz --net HERE/net.npz --lam 1"
Linear, ReLU = torch.nn.Linear, torch.nn.ReLU


class Squared(torch.nn.Module):
    """No network of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Linear(2, 3), Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x).square())


def columns(**values: object) -> dict[str, Given]:
    return {"a.parquet": lambda path: parquet.write_table(pa.table(values), path)}


def tensors(content: object) -> dict[str, Given]:
    return {"a.pt": stored(content)}


def net(state: object) -> dict[str, Given]:
    return {"net.pt": stored(state), **npz(X=X, Y=Y)}


def weights(**arrays: object) -> dict[str, Given]:
    return {"net.npz": archive(**arrays), **npz(X=X, Y=Y)}


def zeros(*shapes: tuple[int, ...]) -> dict[str, torch.Tensor]:
    """A state dict of weights."""
    return {f"{i}.weight": torch.zeros(shape) for i, shape in enumerate(shapes)}


def without_pyarrow(here: Path) -> object:
    with patch.dict(sys.modules, {"pyarrow.parquet": None}):
        return covopt.read_data(here / "a.parquet", target="y")


def without_openml(_: Path) -> object:
    with patch("covopt.data.mnist.datasets.fetch_openml", side_effect=OSError):
        return covopt.read_data("mnist")


ROWS = rows(vars(hostile) | globals())
