"""`covopt solve`: a network, its cost and a proved bound."""

from __future__ import annotations

from pathlib import Path

from covopt.answer import parts, stored, words
from covopt.records import provenance
from covopt.records.page import Page, Section, Table
from covopt.records.record import Summary


def page(directory: Path, name: str, s: Summary) -> Page:
    """Return the report of a stored run."""
    result, origin = stored.load(directory), provenance.read_origin(directory)
    starts = [[k, cost] for k, cost in enumerate(sorted(result.starts), start=1)]
    table = Table("The lowest cost reached from each start", ["start", "cost"], starts)
    sections = [
        parts.search(result, origin),
        parts.layers(result),
        parts.forces(result, origin),
        Section("Starts", tables=[table] if len(starts) > 1 else []),
        parts.timing(result),
    ]
    return Page(
        kind="solve",
        question=words.question(s),
        answer=words.answer(s),
        notes=parts.notes(s),
        facts=parts.facts(s),
        asked=parts.asked(s, origin),
        proof=parts.proof(s),
        sections=sections,
        python=parts.in_python(s, name),
        **parts.made(name, s, origin),
    )
