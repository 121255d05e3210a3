"""Messages about rows that are spread over processes, and about the states of solves that are kept."""

import os
import warnings
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

import covopt
from covopt.app.cli import check_shared
from covopt.app.solve import joined
from covopt.data.data import read_data
from covopt.model.spread import Alone, Together, check_alike
from covopt.solvers.checkpoint import Checkpoint
from messages import X, Y, rows


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


ROWS = rows(globals())
