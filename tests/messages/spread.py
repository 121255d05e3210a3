"""Messages about rows that are spread over processes, and about the states of solves that are kept."""

import os
import warnings
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

import covopt
from covopt.app.cli import check_shared
from covopt.app.processes import joined
from covopt.data.data import read_data
from covopt.model.spread import Alone, Together, check_alike
from covopt.solvers.checkpoint import Checkpoint
from messages import rows

X = np.arange(12.0).reshape(6, 2) % 5
Y = np.arange(6.0)[:, None] % 2


class Others(Alone):
    """Another process has one more of everything."""

    def largest(self, value: float) -> float:
        return value + 1.0


def spread(**options: object) -> object:
    return covopt.solve(X, Y, **({"lam": 0.1, "certify": "none", "spread": True} | options))  # type: ignore[arg-type]


def other_question(here: Path) -> object:
    """Of a state the lam."""
    covopt.solve(X, Y, lam=0.1, max_iterations=1, checkpoint=here / "state.npz")
    return covopt.solve(X, Y, lam=0.2, checkpoint=here / "state.npz", resume=True)


def no_directory(here: Path) -> object:
    """What a solve is warned of that goes on without its states."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        Checkpoint(here / "gone" / "state.npz").keep("rounds", 1.0, {}, {})
    return told[0].message


def alone_in_a_group(device: str = "cpu") -> object:
    """A process with what torchrun names its groups by, and nothing else of theirs."""
    with patch.dict(os.environ, {"TORCHELASTIC_RUN_ID": "none", "LOCAL_RANK": "99"}), joined(device):
        return "joined"


def one_of_two(command: str) -> object:
    with patch.dict(os.environ, {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2"}):
        return check_shared(command)


ROWS = rows(
    globals(),
    """
    > one_of_two("plateau")  ->  covopt plateau is not shared by processes; start it without torchrun.
    > covopt.solve(X, list("aabbab"), lam=0.1, certify="none", spread=True)
    Each process would know the labels of its own rows alone; give one-hot rows as Y.
    > alone_in_a_group()
    This process does not find the others that torchrun started; start all of them by one torchrun, or unset TORCHELASTIC_RUN_ID.
    > alone_in_a_group("cuda")  ->  There is no CUDA device (cuda:99) here that torch can use; use cpu.
    > spread()
    There is no group of processes to spread the rows over; call torch.distributed.init_process_group first, or leave spread out.
    > spread(certify="fast")
    A bound is proved by a process that holds all rows; set certify to none where they are spread.
    > spread(method="train")
    Processes with rows of their own solve together by the method cone, with lam, a number as the bias, and ReLU or leaky ReLU; ask for these, or let one process solve.
    > spread(sample_weight=Y + 1.0)
    Rows that are spread over processes have no weights so far; leave the weights out.
    > check_alike((2,), Others())
    The rows of one process have 1 column and those of another 3; give all processes rows of the same data.
    > Together((0, 3, 6), 2, 0).sum(lambda A: A.sum(), torch.ones(3, 1))
    Another process of this solve has ended, and this one cannot go on without its rows; start all of them again.
    > read_data(here / "data.npz", share=(0, 7))  with {"data.npz": lambda path: np.savez(path, X=X, Y=Y)}
    6 rows of HERE/data.npz are fewer than the 7 processes; start fewer.
    > covopt.solve(X, Y, lam=0.1, checkpoint="state.npz", checkpoint_every=-1)
    checkpoint_every is -1; give seconds above 0.
    > covopt.solve(X, Y, lam=0.1, resume=True)
    There is nothing to go on from without a checkpoint; give its file, or leave resume out.
    > covopt.solve(X, Y, lam=0.1, depth=3, checkpoint="state.npz")
    The state of a solve is kept for two layers by the method cone with a number as the bias; leave the checkpoint out.
    > covopt.solve(X, Y, lam=0.1, checkpoint=here / "state.npz", resume=True)  with {"state.npz": b"nothing"}
    HERE/state.npz holds no state of a solve to go on from; leave resume out.
    > other_question(here)
    HERE/state.npz is the state of a solve with another lam; ask the same, or give another file.
    > [covopt.solve(X, Y, lam=0.1, max_iterations=1, checkpoint=here / "state.npz") for _ in "ab"]
    HERE/state.npz is the state of an earlier solve; go on from it with resume, or remove it.
    $ solve data.npz --lam 0.1 --checkpoint 5  with {"data.npz": lambda path: np.savez(path, X=X, Y=Y)}
    The state of a solve is kept beside the run; say with --out where that is to be.
    > no_directory(here)  ->  HERE/gone/state.npz cannot be written, because there is no directory HERE/gone; make it.
    """,
)
