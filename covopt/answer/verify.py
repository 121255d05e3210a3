"""The verdict on a stored run: what its files prove, and what nothing in them proves."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from covopt.answer.stated import alike
from covopt.records import directories, record
from covopt.records.record import Summary
from covopt.records.storing import FILES


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
    besides = f"; not checked: {', '.join(named)}" if named else ""
    return Verification(True, f"{verdict}{besides}.", cost, lower, named)


def differences(kind: str, stated: Summary, recomputed: Summary, rounding: float = 0.0) -> Iterator[str]:
    """Yield sentences on the entries of a summary that differ from those of its files, up to the rounding."""
    if stated.keys() - {record.KIND, FILES} != recomputed.keys():
        yield f"{kind} does not hold what covopt stores in it."
        return
    recomputed = json.loads(record.as_json(recomputed))
    for name in recomputed:
        if name != "version" and not alike(stated[name], recomputed[name], rounding):
            yield f"{kind} states another {name} than its files give."


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
