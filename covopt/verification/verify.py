"""`verify`: whether the files of a stored run prove what it says, and what in them nothing proves."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from covopt.errors import DataError, ProblemError, RecordError
from covopt.io import directories, record
from covopt.io.arrays import read_npz
from covopt.io.record import AUDIT, CERTIFICATE, COMPARISON, HISTORY, PLATEAU, SUMMARY
from covopt.io.storing import FILES
from covopt.loop import Status
from covopt.methods import METHODS
from covopt.verification import audits, runs, studies
from covopt.verification.stored import load


@dataclass(frozen=True)
class Verification:
    """What a stored run's files prove.

    Attributes:
        passed: whether they prove what the run says, as far as that is checked.
        message: one sentence.
        cost: recomputed from the stored weights.
        lower: the bound that the stored certificate proves; None where none is stated, or it is not proved.
        unchecked: what the run says besides, entries and files, which nothing in its files proves.
    """

    passed: bool
    message: str
    cost: float
    lower: float | None
    unchecked: list[str] = field(default_factory=list)


def verify(directory: str | os.PathLike[str], rounding: float = 1e-9) -> Verification:
    """Check what a stored run says from its files alone; the solver is not run.

    Of a solve: the cost and its parts from the stored weights, the bound from the dual point and its evidence, and all
    that follows from these and from the problem; that the files are those that `result.json` lists. Of a plateau, a
    comparison or an audit: the same of the runs in it, and that the summary agrees with them.

    Args:
        directory: of the run.
        rounding: by how much a cost or bound may differ from what is stated, relative.

    Returns:
        Whether the files prove what is stated, why not, what they prove, and what is not checked.

    Raises:
        RecordError: no run there, or a damaged one.
    """
    path = Path(directory)
    kind = record.kind_of(path)
    if kind in (None, SUMMARY):
        return _verify_run(path, rounding)
    _, stated = record.read_kind(path)
    try:
        return _verify_study(path, str(kind), stated, rounding)
    except (DataError, ProblemError) as error:
        raise record.broken(directory, error) from error
    except (OSError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise RecordError(f"{directory} is not a complete run ({error}); run the command again with --out.") from error


def _verify_study(directory: Path, kind: str, stated: Mapping[str, Any], rounding: float) -> Verification:
    """`verify` for a plateau, a comparison or an audit: the runs in it, then what its summary says of them."""
    names = [record.SOLUTION]
    if kind == COMPARISON:
        names = [name for name in METHODS if (directory / name).is_dir()]
    elif "panel" in stated:
        names = []
    inner = {name: _verify_run(directory / name, rounding) for name in names}
    cost = min((run.cost for run in inner.values()), default=math.nan)
    lower = max((run.lower for run in inner.values() if run.lower is not None), default=None)
    for name, run in inner.items():
        if not run.passed:
            return Verification(False, f"The run {name} in it does not pass: {run.message}", cost, lower)
    for message in chain(_of_study(directory, kind, stated, rounding), unbound(directory, kind, stated)):
        return Verification(False, message, cost, lower)
    own: Sequence[str] = studies.COMPARISON
    if kind == AUDIT:
        own = audits.unchecked(stated)
    elif kind == PLATEAU:
        own = studies.PLATEAU if inner else studies.FIGURE2
    unchecked = [*own, *(name for run in inner.values() for name in run.unchecked), *loose(directory, kind, stated)]
    unchecked = list(dict.fromkeys(unchecked))
    said = "The runs in it pass, and the summary agrees with them and with its networks"
    if not inner:
        said = "The summary agrees with the trials"
    return Verification(True, f"{said}; not checked: {', '.join(unchecked)}.", cost, lower, unchecked)


def _of_study(directory: Path, kind: str, stated: Mapping[str, Any], rounding: float) -> Iterator[str]:
    if kind == COMPARISON:
        names = [name for name in METHODS if (directory / name).is_dir()]
        found = {name: record.read_summary(directory / name) for name in names}
        return studies.comparison(stated, found)
    if kind == PLATEAU and "panel" in stated:
        return studies.figure2(stated, directory)
    inner = directory / record.SOLUTION
    check = studies.plateau if kind == PLATEAU else audits.audit
    return check(stated, directory, record.read_summary(inner), load(inner), rounding)


def _verify_run(directory: Path, rounding: float) -> Verification:
    """`verify` for a solve."""
    result, stated = load(directory), record.read_summary(directory)

    def refused(message: str, proved: float | None = None) -> Verification:
        return Verification(False, message, result.cost, proved)

    for message in chain(runs.numbers(result, stated, rounding), runs.question(result, stated)):
        return refused(message)
    try:
        proved = runs.proved_bound(result)
    except ProblemError as error:
        return refused(f"The bound is not proved: {error}")
    others = chain(
        runs.bound(result, proved, rounding),
        runs.copies(stated, read_npz(directory / CERTIFICATE)),
        runs.gap(stated),
        runs.history(result, stated),
        runs.layers(result, stated),
        runs.state_dict(result, directory),
        unbound(directory, SUMMARY, stated),
    )
    for message in others:
        return refused(message, proved)
    unchecked = list(runs.NEVER)
    if result.problem.depth > 2:
        unchecked.append("stationarity and gap of the layers")
    if stated["status"] != Status.OPTIMAL:
        unchecked.append("why the search ended")
    unchecked += loose(directory, SUMMARY, stated)
    said = "The cost is what the stored network costs"
    if stated["cost"] is None:
        said = "The stored network does not answer the question, as is stated"
    said += ", and the stored certificate proves the bound" if proved is not None else ", and no bound is stated"
    return Verification(True, f"{said}; not checked: {', '.join(unchecked)}.", result.cost, proved, unchecked)


def unbound(directory: Path, kind: str, stated: Mapping[str, object]) -> list[str]:
    """Sentences on the files that are not as the summary lists them."""
    bound = stated.get(FILES)
    if bound is None:
        return [f"{kind} lists no files, though it is of a version that does."] if "target" in stated else []
    if kind == SUMMARY and "target" not in stated:
        return [f"{kind} states no target, though it is of a version that does."]
    if not isinstance(bound, dict):
        return [f"{kind} lists no files."]
    found = directories.digests(directory)
    missing = [f"{name} is missing, which {kind} lists." for name in bound if name not in found]
    return missing + [
        f"{name} is not the file that covopt stored: its content does not have the SHA-256 in {kind}."
        for name, digest in bound.items()
        if name in found and found[name] != digest
    ]


def loose(directory: Path, kind: str, stated: Mapping[str, object]) -> list[str]:
    """Files, and parts of them, that nothing binds to the run."""
    bound, found = stated.get(FILES), list(directories.digests(directory))
    if isinstance(bound, dict):
        return [name for name in found if name not in bound and name != kind]
    recomputed = {SUMMARY, record.NETWORK, record.PROBLEM, CERTIFICATE, runs.NETWORK_PT}
    rest = [f"{name} before its end" if name == HISTORY else name for name in found if name not in recomputed]
    return [*rest, "whether its files belong together (an earlier version of covopt stored it)"]
