"""Messages of validate, compare, plateau and sweep."""

import sqlite3
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from hostile import swept, with_spec
from joblib.externals.loky.process_executor import TerminatedWorkerError

import covopt
from covopt.studies.sweep import sweep
from covopt.studies.sweep.store import Counts
from covopt.studies.width import plateau
from messages import X, Y, rows

torch.manual_seed(0)
NET = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.LeakyReLU(0.5), torch.nn.Linear(3, 1))
HUGE = [np.full((4, 3), 1e80), np.full((1, 5), 1e80)]
DATA = {"data": "iris", "rows": 6, "lam": 0.1}
FULL = OSError(28, "No space left on device")


def validate(net: object = NET, **options: object) -> object:
    return covopt.validate(net, X, Y, **({"lam": 0.1, "time_limit": 1.0} | options))  # type: ignore[arg-type]


def monitored(depth: int = 2, **options: object) -> object:
    """A Monitor beside the solver's answer for so many layers, and a look at NET."""
    known = covopt.solve(X, Y, lam=0.1, depth=depth, activation="leaky:0.5", time_limit=1.0, certify="none")
    return covopt.Monitor(X, Y, **({"lam": 0.1, "known": known} | options))(NET)  # type: ignore[arg-type]


def spec(text: str) -> dict:
    return {"s.toml": text.encode()}


def swept_with(target: str, error: object, here: Path, **options: object) -> object:
    with patch(f"covopt.studies.sweep.sweep.{target}", **({"side_effect": error} if error else {"new": None})):
        return sweep.sweep(DATA, here / "s.sqlite", **options)  # type: ignore[arg-type]


def table(here: Path, name: str = "t.csv") -> sweep.Sweep:
    return sweep.Sweep(here / "s.sqlite", Counts(0, 0, 0, 0), [])


def without_parquet(here: Path) -> object:
    with patch("covopt.studies.sweep.sweep.parquet", None):
        return table(here).to_parquet(here / "t.parquet")


def full_disk(here: Path) -> object:
    with patch("covopt.studies.sweep.sweep.os.replace", side_effect=FULL):
        return table(here).to_csv(here / "t.csv")


def without_workers(here: Path) -> object:
    with patch("covopt.studies.sweep.sweep._backend", return_value=nullcontext()):
        return swept_with("_round", TimeoutError(), here, scheduler="tcp://10.0.0.1:8786")


def without_dask(here: Path) -> object:
    with patch("covopt.studies.sweep.sweep.find_spec", return_value=None):
        return sweep.sweep(DATA, here / "s.sqlite", scheduler="tcp://10.0.0.1:8786")


def no_scheduler(here: Path) -> object:
    return swept_with("joblib.parallel_config", OSError(), here, scheduler="tcp://10.0.0.1:8786")


def full_file(here: Path) -> object:
    full = sqlite3.OperationalError("database or disk is full")
    with patch("covopt.studies.sweep.store.sqlite3.connect", side_effect=full):
        return sweep.sweep(DATA, here / "s.sqlite")


def busy(here: Path) -> object:
    """Another process holds the file, longer than we are ready to wait."""
    with patch("covopt.studies.sweep.store.PATIENCE", 0.1):
        connection = sqlite3.connect(here / "s.sqlite", isolation_level=None)
        connection.execute("BEGIN EXCLUSIVE")
        try:
            return sweep.sweep(DATA, here / "s.sqlite", resume=True)
        finally:
            connection.close()


def found(here: Path) -> plateau.Plateau:
    return covopt.plateau(X, Y, lam=0.1, widths=[2], starts=1, time_limit=1.0)


def deep() -> covopt.Depths:
    return covopt.depth(X, Y, lam=0.1, depths=[2], ranks=[], time_limit=0.5)


def misplaced(here: Path) -> object:
    """A run in the place of another depth's."""
    covopt.depth(X, Y, lam=0.1, depths=[2, 3], ranks=[], time_limit=1.0).save(here / "run")
    (here / "run" / "depths" / "2").rename(here / "run" / "depths" / "4")
    return covopt.load(here / "run")


ROWS = rows(globals())
