"""Checks that the files of a stored run prove what it states, and lists of the unproved."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from covopt.answer import check as runs
from covopt.answer.stated import equal
from covopt.answer.stored import load
from covopt.data.arrays import read_npz
from covopt.records import directories, record
from covopt.records.record import CERTIFICATE, HISTORY, SUMMARY
from covopt.records.storing import FILES
from covopt.runtime.errors import ProblemError
from covopt.runtime.loop import Status

Summary = Mapping[str, Any]


@dataclass(frozen=True)
class Verification:
    """The verdict on a stored run's files.

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


def inside(directory: Path, names: Sequence[str], rounding: float) -> dict[str, Verification]:
    """Run `of_run` for the solves in a run of another kind."""
    return {name: of_run(directory / name, record.read_summary(directory / name), rounding) for name in names}


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

    Args:
        directory: of the run; kind: the name of its summary, which holds `stated`.
        runs: of the solves in it.
        complaints: sentences on what does not follow from the files.
        unchecked: names of what nothing in the files proves.
        verdict: the message of a study that passes.
    """
    cost = min((run.cost for run in runs.values()), default=math.nan)
    lower = max((run.lower for run in runs.values() if run.lower is not None), default=None)
    failed = (f"The run {name} in it does not pass: {run.message}" for name, run in runs.items() if not run.passed)
    for message in chain(failed, complaints, unbound(directory, kind, stated)):
        return Verification(False, message, cost, lower)
    unchecked_in_runs = (name for run in runs.values() for name in run.unchecked)
    named = list(dict.fromkeys([*unchecked, *unchecked_in_runs, *loose(directory, kind, stated)]))
    return Verification(True, f"{verdict}; not checked: {', '.join(named)}.", cost, lower, named)


def differences(kind: str, stated: Summary, recomputed: Summary) -> Iterator[str]:
    """Yield sentences on the entries of a summary that differ from those of its files."""
    if stated.keys() - {record.KIND, FILES} != recomputed.keys():
        yield f"{kind} does not hold what covopt stores in it."
        return
    for name in recomputed:
        if name != "version" and not equal(stated[name], recomputed[name]):
            yield f"{kind} states another {name} than its files give."


def of_run(directory: Path, stated: Summary, rounding: float) -> Verification:
    """Check what the files of a solve prove; `stated` is its summary."""
    result = load(directory)

    def refused(message: str, proved: float | None = None) -> Verification:
        return Verification(False, message, result.cost, proved)

    for message in chain(runs.numbers(result, stated, rounding), runs.question(result, stated)):
        return refused(message)
    try:
        proved = runs.proved_bound(result)
    except ProblemError as error:
        return refused(f"The bound is not proved: {error}")
    complaints = chain(
        runs.bound(result, proved, rounding),
        runs.copies(stated, read_npz(directory / CERTIFICATE)),
        runs.gap(stated),
        runs.history(result, stated),
        runs.layers(result, stated),
        runs.state_dict(result, directory),
        runs.uniqueness(result),
        unbound(directory, SUMMARY, stated),
    )
    for message in complaints:
        return refused(message, proved)
    unchecked = list(runs.NEVER)
    if result.problem.depth > 2:
        unchecked.append("stationarity and gap of the layers")
    if stated.get("unique") is None:
        unchecked.append("unique")
    if "skip" not in stated:  # of a run from before there was one
        unchecked.append("skip")
    if stated["status"] != Status.OPTIMAL:
        unchecked.append("why the search ended")
    unchecked += loose(directory, SUMMARY, stated)
    text = "The cost is what the stored network costs"
    if stated["cost"] is None:
        text = "The stored network does not answer the question, as is stated"
    text += ", and the stored certificate proves the bound" if proved is not None else ", and no bound is stated"
    return Verification(True, f"{text}; not checked: {', '.join(unchecked)}.", result.cost, proved, unchecked)


def unbound(directory: Path, kind: str, stated: Mapping[str, object]) -> list[str]:
    """Return sentences on the files that are not as the summary lists them."""
    bound = stated.get(FILES)
    if bound is None:
        return [f"{kind} lists no files, though it is of a version that does."] if "target" in stated else []
    if kind == SUMMARY and "target" not in stated:
        return [f"{kind} states no target, though it is of a version that does."]
    if not isinstance(bound, dict) or not bound:
        return [f"{kind} lists no files."]
    digests = directories.digests(directory)
    missing = [f"{name} is missing, which {kind} lists." for name in bound if name not in digests]
    return missing + [
        f"{name} is not the file that covopt stored: its content does not have the SHA-256 in {kind}."
        for name, digest in bound.items()
        if name in digests and digests[name] != digest
    ]


def loose(directory: Path, kind: str, stated: Mapping[str, object]) -> list[str]:
    """Return the names of files, and parts of them, that nothing binds to the run."""
    bound, files = stated.get(FILES), list(directories.digests(directory))
    if isinstance(bound, dict):
        return [name for name in files if name not in bound and name != kind]
    recomputed = {SUMMARY, record.NETWORK, record.PROBLEM, CERTIFICATE, runs.NETWORK_PT}
    unlisted = [f"{name} before its end" if name == HISTORY else name for name in files if name not in recomputed]
    return [*unlisted, "whether its files belong together (an earlier version of covopt stored it)"]
