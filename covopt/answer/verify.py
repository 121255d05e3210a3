"""The verdict on a stored run: what its files prove, and what nothing in them proves."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covopt.answer.stored import load
from covopt.data.arrays import read_npz
from covopt.model.problem import Problem
from covopt.model.weights import Cost, check_network, evaluate
from covopt.records import directories, record
from covopt.records.record import Summary
from covopt.records.storing import FILES
from covopt.runtime.errors import shown


def weights_of(arrays: Mapping[str, NDArray], prefix: str = "") -> list[Tensor]:
    """Return the arrays W1 ... WL of a file, or p7_W1 ... p7_WL by their prefix, as tensors in this order."""
    named = re.compile(rf"{re.escape(prefix)}W(\d+)")
    matrices = {int(match[1]): array for name, array in arrays.items() if (match := named.fullmatch(name))}
    if any(array.dtype.kind != "f" or array.ndim != 2 for array in matrices.values()):
        raise ValueError("weights that are no matrices of numbers")
    return [torch.from_numpy(matrices[number]).double() for number in sorted(matrices)]


def evaluated(problem: Problem, weights: list[Tensor]) -> Cost:
    """Check the shapes of stored weights, and return their cost."""
    check_network(problem, weights)
    return evaluate(problem, weights)


def equal(a: object, b: object) -> bool:
    """Return True if two JSON entries are equal, types included (true is not 1)."""
    # Callers give `...` for an entry that is missing.
    return a is not ... and json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def same(a: float, b: float, rounding: float) -> bool:
    """Return True if b equals a up to a relative error of `rounding`."""
    return abs(a - b) <= rounding * abs(a)


Difference = tuple[str, object, object]
"""The place of an entry in JSON, such as layers.1.width, what is stated there, and what is recomputed."""


def different(stated: object, recomputed: object, rounding: float, place: str = "") -> Difference | None:
    """Return the first difference of two JSON entries; None if they are equal up to the rounding of their floats."""
    if isinstance(recomputed, float) and isinstance(stated, float):
        # Numbers below 1e-3 are compared absolutely: their relative rounding errors can be larger.
        close = math.isclose(stated, recomputed, rel_tol=rounding, abs_tol=rounding * 1e-3)
        return None if close else (place, stated, recomputed)
    if type(stated) is not type(recomputed):
        return place, stated, recomputed
    if isinstance(stated, list) and isinstance(recomputed, list) and len(stated) == len(recomputed):
        stated, recomputed = (dict(enumerate(entries, start=1)) for entries in (stated, recomputed))
    if isinstance(stated, dict) and isinstance(recomputed, dict) and stated.keys() == recomputed.keys():
        parts = (different(stated[key], value, rounding, f"{place}.{key}") for key, value in recomputed.items())
        return next((part for part in parts if part is not None), None)
    return None if stated == recomputed else (place, stated, recomputed)


@dataclass(frozen=True)
class Verification:
    """The verdict on a stored run's files.

    Attributes:
        passed: whether they prove what the run states and what is checked.
        message: one sentence.
        cost: recomputed from the stored weights.
        lower: the bound that the stored certificate proves; None where none is stated, or it is not proved.
        unchecked: entries and files of the run that nothing in its files proves.
    """

    passed: bool
    message: str
    cost: float
    lower: float | None
    unchecked: list[str] = field(default_factory=list)


def of_study(
    directory: Path,
    kind: str,
    stated: Summary,
    runs: Mapping[str, Verification],
    complaints: Iterable[str],
    unchecked: Iterable[str],
    verdict: str = "The runs in it pass, and the summary agrees with them and with its networks",
) -> Verification:
    """Check a study: the solves in it pass, and the summary agrees with them.

    The summary is named after its `kind` and holds what is `stated`. The `complaints` are sentences on what does not
    follow from the files, `unchecked` names what nothing in them proves, and `verdict` is the message of a study that
    passes.
    """
    cost = min((run.cost for run in runs.values()), default=math.nan)
    lower = max((run.lower for run in runs.values() if run.lower is not None), default=None)
    failed = (f"The run {name} in it does not pass: {run.message}" for name, run in runs.items() if not run.passed)
    for message in chain(failed, complaints, unbound(directory, kind, stated)):
        return Verification(False, message, cost, lower)
    unchecked_in_runs = (name for run in runs.values() for name in run.unchecked)
    named = list(dict.fromkeys([*unchecked, *unchecked_in_runs, *loose(directory, kind, stated)]))
    besides = f"; not checked: {', '.join(named)}" if named else ""
    return Verification(True, f"{verdict}{besides}.", cost, lower, named)


def differences(kind: str, stated: Summary, recomputed: Summary, rounding: float = 0.0) -> Iterator[str]:
    """Yield sentences on the entries of a summary that differ from those of its files, up to the rounding."""
    if stated.keys() - {record.KIND, FILES} != recomputed.keys():
        yield f"{kind} does not hold what covopt stores in it."
        return
    for name, value in json.loads(record.as_json(recomputed)).items():
        if name != "version" and (difference := different(stated[name], value, rounding, name)) is not None:
            place, wrong, right = difference
            yield f"{kind} states {shown(wrong)} for {place}, but its files give {shown(right)}."


def arrays(file: Path, computed: Mapping[str, NDArray], rounding: float = 0.0) -> Iterator[str]:
    """Yield a sentence if a file does not hold these arrays, up to the rounding relative to their largest entries."""
    stored = read_npz(file)
    if stored.keys() != computed.keys():
        yield f"{file.name} holds other arrays than the run has."
        return
    for name, array in computed.items():
        near = stored[name].dtype.kind == "f" and stored[name].shape == array.shape
        size = float(np.abs(array).max(initial=1.0))
        if not (near and np.allclose(stored[name], array, rtol=rounding, atol=rounding * size)):
            yield f"{file.name} holds another {name} than the run gives."


def table(file: Path, lines: Iterable[Iterable[object]], kind: str) -> Iterator[str]:
    """Yield a sentence if a table does not hold the lines that follow from the summary."""
    if record.read_table(file) != record.as_text(lines):
        yield f"{file.name} and {kind} state different things."


def unbound(directory: Path, kind: str, stated: Summary) -> list[str]:
    """Return sentences on the files that are not as the summary lists them."""
    bound = stated.get(FILES)
    if stated.get(record.KIND) != Path(kind).stem:
        return [f"{kind} states another kind than its name."]
    if not isinstance(bound, dict) or not bound:
        return [f"{kind} lists no files."]
    digests = directories.digests(directory)
    missing = [f"{name} is missing, which {kind} lists." for name in bound if name not in digests]
    return missing + [
        f"{name} is not the file that covopt stored: its content does not have the SHA-256 in {kind}."
        for name, digest in bound.items()
        if name in digests and digests[name] != digest
    ]


def loose(directory: Path, kind: str, stated: Summary) -> list[str]:
    """Return the names of files that nothing binds to the run."""
    return [name for name in directories.digests(directory) if name not in stated[FILES] and name != kind]


def first_difference(one: Problem, other: Problem, varying: Collection[str] = ()) -> str | None:
    """Name the first difference of two problems, but for what may be `varying`, or None if they are the same."""
    data = {"X": (one.X, other.X), "Y": (one.Y, other.Y), "sample weights": (one.shares, other.shares)}
    same = {name: torch.equal(*(part.cpu().double() for part in pair)) for name, pair in data.items()}
    stated = other.stated()
    same |= {name: option == stated[name] for name, option in one.stated().items()}
    return next((name for name in same if not same[name] and name not in varying), None)


def others(questions: Mapping[str, Problem], varying: Collection[str] = ()) -> Iterator[str]:
    """Yield a sentence for each problem, by its name, that differs from the first one."""
    names = list(questions)
    for name in names[1:]:
        if (differing := first_difference(questions[names[0]], questions[name], varying)) is not None:
            yield f"The run {name} in it solves another problem than {names[0]}: they differ in {differing}."


def asked(directory: Path, names: Sequence[str]) -> dict[str, Problem]:
    """Return the problems of the stored solves in a study, by their directories."""
    return {name: load(directory / name).problem for name in names}


def crossed(costs: Mapping[str, float], bounds: Mapping[str, float | None], rounding: float) -> Iterator[str]:
    """Yield a sentence if a lower bound of one problem is above the cost of its network."""
    for by, lower in bounds.items():
        for name, cost in costs.items():
            if lower is not None and lower > cost * (1.0 + rounding):
                yield f"The bound {lower:.12g} of {by} is above {cost:.12g}, which {name} costs."
