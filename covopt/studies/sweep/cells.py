"""The tasks of a sweep: the options that a cell takes, and the results that it stores."""

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

DEFAULTS: Options = {"certify": "fast", "progress": False}
"""Defaults that differ from those of `solve`: a cell spends no time on slow proofs unless an option requests them."""

TESTED = ("test_loss", "test_accuracy", "test_r2")
"""Additional results of a cell of `solve` with held-out data."""


@dataclass(frozen=True)
class Task:
    """A kind of cell.

    Attributes:
        results: the names of its results, columns of the table.
        done: computes these from X, Y and the options.
    """

    results: tuple[str, ...]
    done: Callable[[np.ndarray, np.ndarray, Options], Options]


def _solved(X: np.ndarray, Y: np.ndarray, options: Options) -> Options:
    held_out = options.get("test")
    result = solve(X, Y, **DEFAULTS | {k: v for k, v in options.items() if k != "test"})  # type: ignore[arg-type]
    summary, tested = result.summary(), score(result, held_out) if isinstance(held_out, Further) else {}
    widths = " x ".join(str(n) for n in summary["widths"])  # type: ignore[union-attr]
    scores = {f"test_{name}": value for name, value in tested.items() if f"test_{name}" in TESTED}
    return {name: summary.get(name) for name in TASKS[SOLVE].results} | {"widths": widths} | scores


def _ranked(X: np.ndarray, Y: np.ndarray, options: Options) -> Options:
    """Train one network of `ranks`; numbers in one column are those of its layers in order."""
    answer = ranks(X, Y, seeds=1, **{"reference": 0.0, "progress": False} | options)  # type: ignore[arg-type]
    (cell,), tolerance = answer.cells, answer.tolerances[0]
    summary = cell.summary(None)
    solver = [layer.rank[tolerance] for reference in answer.references.values() for layer in reference.layers]
    predicted = [layer.predicted[tolerance] for layer in cell.layers if layer.predicted is not None]
    return {
        **{name: summary[name] for name in ("fit", "accuracy")},
        "status": str(answer.status),
        "cost": summary["loss"],  # names of options, such as loss and epochs, are taken
        "taken": summary["steps"],
        "passes": summary["epochs"],
        "left": summary["kept"],
        "ranks": _numbers([layer.rank[tolerance] for layer in cell.layers]),
        "from_start": _numbers(predicted),
        "stable_ranks": _numbers([float(f"{layer.stable_rank:.6g}") for layer in cell.layers]),
        "functional_ranks": _numbers([layer.functional_rank for layer in cell.layers]),
        "solver": _numbers(solver) or None,
        "seconds": answer.seconds,
        "version": answer.summary()["version"],
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
    """Compute one cell in a worker; return its key and its result."""
    try:
        return key, TASKS[task].done(X, Y, options)
    except CovoptError as error:
        status, reason = "refused", str(error)
    except Exception as error:  # a bug, or no memory: the other cells continue, and --resume tries again
        status, reason = FAILED, f"{type(error).__name__}: {error}"
    return key, {**dict.fromkeys(TASKS[task].results), "status": status, "error": reason}
