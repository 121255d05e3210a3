"""`covopt solve`: a network, its cost and a proved bound."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from covopt.answer import words
from covopt.answer.kind import Kind, Summary
from covopt.records import record
from covopt.records.page import Page, Section, Table
from covopt.runtime.lazy import lazy

if TYPE_CHECKING:
    from covopt.answer import parts, stored
    from covopt.answer import verify as checks
    from covopt.records import provenance
else:
    checks = lazy("covopt.answer.verify")
    parts = lazy("covopt.answer.parts")
    provenance = lazy("covopt.records.provenance")
    stored = lazy("covopt.answer.stored")


def _page(directory: Path, name: str, s: Summary) -> Page:
    result, origin = stored.load(directory), provenance.read_origin(directory)
    starts = [[k, cost] for k, cost in enumerate(sorted(result.starts), start=1)]
    sections = [
        parts.search(result, origin),
        parts.layers(result),
        parts.forces(result, origin),
        Section("Starts", tables=[Table("The lowest cost reached from each start", ["start", "cost"], starts)])
        if len(starts) > 1
        else Section("Starts"),
        parts.timing(result),
    ]
    return Page(
        kind="solve",
        data=parts.title(s),
        question=words.question(s),
        answer=words.answer(s),
        notes=parts.notes(s),
        facts=parts.facts(s),
        asked=parts.asked(s, origin),
        proof=parts.proof(s),
        check=parts.check(name),
        sections=sections,
        command=origin.quoted,
        python=parts.in_python(s, name),
        origin=parts.origin_pairs(origin, s),
        finished=origin.finished,
    )


def _verify(directory: Path, s: Summary, rounding: float) -> checks.Verification:
    return checks.of_run(directory, s, rounding)


KIND = Kind("solve", record.SUMMARY, words.solve_pairs, _page, _verify, read=record.read_checked)
