"""The grid of a sweep: a TOML file with lists to vary, and the data of its cells."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from covopt.answer.held_out import score, tested
from covopt.answer.solve import solve
from covopt.data.coding import SCALES, TASKS
from covopt.data.data import Dataset, read_data
from covopt.data.further import Further
from covopt.model.loss import parse_loss
from covopt.runtime.errors import CovoptError, DataError, ProblemError, close_match, meant_or, shown
from covopt.solvers.options import CERTIFY, METHODS
from covopt.studies.ranks.architectures import ARCHITECTURES
from covopt.studies.ranks.ranks import ranks
from covopt.studies.sweep.store import FAILED, Options

SOLVE, RANKS = "solve", "ranks"
"""The tasks of a sweep. `task` names one, or, as an option of the data, the kind of targets."""
SOURCE = ("data", "target", "task", "rows", "shuffle", "scale", "data_dir")
"""The options of a cell's data."""
_COUNTS = "rows shuffle depth max_iterations width max_width starts seed batch_size steps".split()
_NUMBERS = "lam bias gap tol time_limit rate momentum kept epochs tolerance reference".split()
_TYPES = {**dict.fromkeys(_COUNTS, int), **dict.fromkeys(_NUMBERS, float), "nesterov": bool}
"""The types of options that are no texts."""
_WORDS = {"scale": SCALES, "task": TASKS, "method": METHODS, "certify": CERTIFY, "architecture": tuple(ARCHITECTURES)}
_KINDS = {str: "text in quotes", int: "a whole number", float: "a number", bool: "true or false"}


@dataclass(frozen=True)
class Grid:
    """The cells of a sweep, and their data; held-out data by the source of their data set and their own."""

    cells: dict[str, Options]  # the options of each cell by its key, a digest of them and of the data
    datasets: dict[str, Dataset]  # the data sets by their source (`source_of`)
    varied: tuple[str, ...]  # the options that differ between cells
    task: str = SOLVE  # solve or ranks
    tests: dict[tuple[str, object], Further | None] = field(default_factory=dict)

    def problem(self, options: Options) -> tuple[np.ndarray, np.ndarray, Options]:
        """Return X, Y and the options of the task for a cell."""
        source = source_of(options)
        dataset, arguments = self.datasets[source], {k: v for k, v in options.items() if k in WORK[self.task].options}
        if "test" in arguments:
            arguments["test"] = self.tests[source, arguments["test"]]
        return dataset.X, dataset.Y, arguments


def read_grid(path: str | os.PathLike[str]) -> Grid:
    """Read a grid with its data: all combinations of values, the last key varying fastest."""
    try:
        with Path(path).open("rb") as stream:
            spec = tomllib.load(stream)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}); give a TOML file that describes a sweep."
        ) from error
    except RecursionError as error:
        raise DataError(f"{path} is not TOML of options (it nests too deep); give each a value or a list.") from error
    except ValueError as error:  # bad TOML, bytes that are no UTF-8, a number of thousands of digits
        raise DataError(f"{path} is not TOML ({str(error).rstrip('.')}); correct it there.") from error
    return make_grid(spec)


def make_grid(spec: dict[str, object]) -> Grid:
    """Make the grid of a table of options, each a value or a list of values to vary."""
    named = spec.get("task")
    task, own = (named, {"task"}) if isinstance(named, str) and named in WORK else (SOLVE, set())
    names = SOURCE + WORK[task].options
    for name in spec:
        if name not in names:
            hint = meant_or(close_match(name, names), f"use some of {', '.join(names)}")
            raise ProblemError(f"{shown(name)} is no option of a sweep{hint}.")
    if "data" not in spec:
        raise ProblemError('The sweep names no data; give data = "digits", or another name or file.')
    axes = [[v if name in own else _checked(name, v) for v in _listed(name, value)] for name, value in spec.items()]
    most = 1_000_000
    if math.prod(len(axis) for axis in axes) > most:
        raise ProblemError(f"The grid has more than {most:,} cells; give shorter lists, or several sweeps.")
    cells, datasets, prints, tests = {}, {}, {}, {}
    for values in itertools.product(*axes):
        options: Options = dict(zip(spec, values, strict=True))
        reading = _of_data(options)
        source, reading["source"] = source_of(options), reading.pop("data")
        if source not in datasets:
            datasets[source] = read_data(**reading)  # type: ignore[arg-type]
            if datasets[source].weights is not None:
                raise ProblemError(
                    "covopt sweep counts all rows the same; leave the weights out, or repeat rows instead."
                )
            prints[source] = _fingerprint(datasets[source].X, datasets[source].Y)
        identity = json.dumps(options, sort_keys=True) + prints[source]
        if (name := options.get("test")) is not None:
            if (source, name) not in tests:
                tests[source, name] = tested(str(name), datasets[source], partial(read_data, **reading, rest=True))
            identity += _fingerprint(tests[source, name].X, tests[source, name].Y)
        cells[hashlib.sha256(identity.encode()).hexdigest()] = options
    varied = tuple(name for name, axis in zip(spec, axes, strict=True) if len(axis) > 1)
    return Grid(cells, datasets, varied, task, tests)


def source_of(options: Options) -> str:
    """Return the options that identify the data of a cell, as a key."""
    return json.dumps({name: _of_data(options).get(name) for name in SOURCE})


def _of_data(options: Options) -> Options:
    """Return the options of the data; a `task` of sweeps is not one of them."""
    return {k: v for k, v in options.items() if k in SOURCE and (k != "task" or v in TASKS)}


def _listed(name: str, value: object) -> list[object]:
    if not isinstance(value, list):
        return [value]
    if not value:
        raise ProblemError(f"The list of {name} is empty, and so is the grid; give at least one value.")
    if any(other == item for i, item in enumerate(value) for other in value[:i]):
        raise ProblemError(f"The list of {name} names a value twice; name each once.")
    return value


def _checked(name: str, value: object) -> object:
    kind = _TYPES.get(name, str)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ProblemError(f"{name} is {shown(value)}; give {_KINDS[kind]}, or a list of them.")
    if isinstance(value, float) and not math.isfinite(value):
        raise ProblemError(f"{name} is {value}; give finite numbers.")
    if name == "loss":
        parse_loss(str(value))
    if name in _WORDS and value not in _WORDS[name]:
        raise ProblemError(f"{name} is {shown(value)}; use {' or '.join(_WORDS[name])}.")
    return value


def _fingerprint(*arrays: np.ndarray | None) -> str:
    digest = hashlib.sha256()
    for array in (array for array in arrays if array is not None):
        digest.update(str(array.shape).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


DEFAULTS: Options = {"certify": "fast", "progress": False}
"""Defaults that differ from those of `solve`: a cell spends no time on slow proofs unless an option requests them."""

TESTED = ("test_loss", "test_accuracy", "test_r2")
"""Additional results of a cell of `solve` with held-out data."""


@dataclass(frozen=True)
class Task:
    """A kind of cell."""

    options: tuple[str, ...]  # the names of its options
    results: tuple[str, ...]  # the names of its results, columns of the table
    done: Callable[[np.ndarray, np.ndarray, Options], Options]  # computes these from X, Y and the options


def _solved(X: np.ndarray, Y: np.ndarray, options: Options) -> Options:
    held_out = options.get("test")
    result = solve(X, Y, **DEFAULTS | {k: v for k, v in options.items() if k != "test"})  # type: ignore[arg-type]
    summary, tested = result.summary(), score(result, held_out) if isinstance(held_out, Further) else {}
    widths = " x ".join(str(n) for n in summary["widths"])  # type: ignore[union-attr]
    scores = {f"test_{name}": value for name, value in tested.items() if f"test_{name}" in TESTED}
    return {name: summary.get(name) for name in WORK[SOLVE].results} | {"widths": widths} | scores


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


WORK = {
    SOLVE: Task(
        (
            *("lam", "loss", "depth", "bias", "activation", "method", "certify", "gap", "tol", "time_limit"),
            *("max_iterations", "width", "max_width", "starts", "device", "seed", "test"),
        ),
        (
            *("status", "cost", "lower", "gap", "certificate", "fit", "norm", "residual", "widths"),
            *("seconds", "version", "error"),
        ),
        _solved,
    ),
    RANKS: Task(
        (
            *("batch_size", "rate", "lam", "momentum", "nesterov", "kept", "epochs", "steps", "loss", "depth", "width"),
            *("bias", "activation", "architecture", "tolerance", "reference", "time_limit", "device", "seed"),
        ),
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
        return key, WORK[task].done(X, Y, options)
    except CovoptError as error:
        status, reason = "refused", str(error)
    except Exception as error:  # a bug, or no memory: the other cells continue, and --resume tries again
        status, reason = FAILED, f"{type(error).__name__}: {error}"
    return key, {**dict.fromkeys(WORK[task].results), "status": status, "error": reason}
