"""Messages about rows that are spread over processes."""

from __future__ import annotations

import numpy as np
import torch

import covopt
from covopt.io.data import read_data
from covopt.model.spread import Alone, Together, check_alike
from messages import Row

X = np.arange(12.0).reshape(6, 2) % 5
Y = np.arange(6.0)[:, None] % 2


class Others(Alone):
    """Another process has one more of everything."""

    def largest(self, value: float) -> float:
        return value + 1.0


def spread(**options: object) -> object:
    return covopt.solve(X, Y, **({"lam": 0.1, "certify": "none", "spread": True} | options))  # type: ignore[arg-type]


ROWS = [
    Row(
        "There is no group of processes to spread the rows over; call torch.distributed.init_process_group first, or"
        " leave spread out.",
        lambda _: spread(),
    ),
    Row(
        "A bound is proved by a process that holds all rows; set certify to none where they are spread.",
        lambda _: spread(certify="fast"),
    ),
    Row(
        "Processes with rows of their own solve together for two layers by the method cone, with lam, a number as the"
        " bias, and ReLU or leaky ReLU; ask for these, or let one process solve.",
        lambda _: spread(depth=3),
    ),
    Row(
        "Rows that are spread over processes have no weights so far; leave the weights out.",
        lambda _: spread(sample_weight=Y + 1.0),
    ),
    Row(
        "The rows of one process have 1 column and those of another 3; give all processes rows of the same data.",
        lambda _: check_alike((2,), Others()),
    ),
    Row(
        "Another process of this solve has ended, and this one cannot go on without its rows; start all of them again.",
        lambda _: Together((0, 3, 6), 2, 0).sum(lambda A: A.sum(), torch.ones(3, 1)),
    ),
    Row(
        "6 rows of HERE/data.npz are fewer than the 7 processes; start fewer.",
        lambda here: read_data(here / "data.npz", share=(0, 7)),
        {"data.npz": lambda path: np.savez(path, X=X, Y=Y)},
    ),
]
