"""What a sweep does in each of its cells, by the name of its task: which options it takes, and what it stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from covopt.answer.held_out import score
from covopt.answer.solve import solve
from covopt.data.further import Further
from covopt.runtime.errors import CovoptError
from covopt.studies.ranks.ranks import ranks
from covopt.studies.sweep.grid import RANKS, SOLVE
from covopt.studies.sweep.store import FAILED, Options

DEFAULTS: Options = {"certify": "fast"}
"""Where a sweep differs from `solve`: its cells do not each use their time up for a proof, unless they are asked to."""

TESTED = ("test_loss", "test_accuracy", "test_r2")
"""What a cell of `solve` with held-out data stores besides."""


@dataclass(frozen=True)
class Task:
    """A kind of cell.

    Attributes:
        results: the names of what it stores, columns of the table.
        done: from X, Y and the options to these.
    """

    results: tuple[str, ...]
    done: Callable[[np.ndarray, np.ndarray, Options], Options]


def _solved(X: np.ndarray, Y: np.ndarray, options: Options) -> Options:
    held_out = options.get("test")
    found = solve(X, Y, **DEFAULTS | {k: v for k, v in options.items() if k != "test"})  # type: ignore[arg-type]
    told, tested = found.summary(), score(found, held_out) if isinstance(held_out, Further) else {}
    widths = " x ".join(str(n) for n in told["widths"])  # type: ignore[union-attr]
    rest = {f"test_{name}": value for name, value in tested.items() if f"test_{name}" in TESTED}
    return {name: told.get(name) for name in TASKS[SOLVE].results} | {"widths": widths} | rest


def _ranked(X: np.ndarray, Y: np.ndarray, options: Options) -> Options:
    """One network of `ranks`; a list of numbers in one column is that of its layers, from the first."""
    found = ranks(X, Y, seeds=1, **{"reference": 0.0} | options)  # type: ignore[arg-type]
    (cell,), tolerance = found.cells, found.tolerances[0]
    told = cell.summary(None)
    solver = [layer.rank[tolerance] for each in found.references.values() for layer in each.layers]
    predicted = [layer.predicted[tolerance] for layer in cell.layers if layer.predicted is not None]
    return {
        **{name: told[name] for name in ("fit", "accuracy")},
        "status": str(found.status),
        "cost": told["loss"],  # names of options, such as loss and epochs, are taken
        "taken": told["steps"],
        "passes": told["epochs"],
        "left": told["kept"],
        "ranks": _numbers([layer.rank[tolerance] for layer in cell.layers]),
        "from_start": _numbers(predicted),
        "stable_ranks": _numbers([float(f"{layer.stable_rank:.6g}") for layer in cell.layers]),
        "functional_ranks": _numbers([layer.functional_rank for layer in cell.layers]),
        "solver": _numbers(solver) or None,
        "seconds": found.seconds,
        "version": found.summary()["version"],
        "error": None,
    }


def _numbers(values: list[int] | list[float]) -> str:
    return " ".join(f"{value:g}" for value in values)


TASKS = {
    SOLVE: Task(
        (
            *("status", "cost", "lower", "gap", "certificate", "fit", "norm", "residual", "widths"),
            *("seconds", "version", "error"),
        ),
        _solved,
    ),
    RANKS: Task(
        (
            *("status", "cost", "fit", "accuracy", "taken", "passes", "left", "ranks", "from_start"),
            *("stable_ranks", "functional_ranks", "solver", "seconds", "version", "error"),
        ),
        _ranked,
    ),
}
"""Every task of a sweep."""


def do_cell(task: str, key: str, X: np.ndarray, Y: np.ndarray, options: Options) -> tuple[str, Options]:
    """What a worker does: the cell's key, and its result as it is stored."""
    try:
        return key, TASKS[task].done(X, Y, options)
    except CovoptError as error:
        return key, _undone(task, "refused", str(error))
    except Exception as error:  # a defect, or no memory: the other cells go on, and --resume tries again
        return key, _undone(task, FAILED, f"{type(error).__name__}: {error}")


def _undone(task: str, status: str, error: str) -> Options:
    return {**dict.fromkeys(TASKS[task].results), "status": status, "error": error}
