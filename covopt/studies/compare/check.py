"""Load a stored comparison, and check its summary against the runs of the methods in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from covopt.answer import check as runs, verify as checks
from covopt.answer.stored import load as load_run
from covopt.answer.verify import equal
from covopt.records import record
from covopt.records.record import KIND, Summary
from covopt.records.storing import FILES
from covopt.solvers.options import METHODS
from covopt.studies.compare.compare import Comparison, Contender, entry_of

UNCHECKED = ("why a method cannot solve the problem",)


def load(directory: Path) -> Comparison:
    """Load a stored comparison; no file in it is trusted."""
    methods = record.read_object(directory / Comparison.file)["methods"]
    if unknown := {entry["method"] for entry in methods} - set(METHODS):
        raise ValueError(f"the methods {unknown}")
    return Comparison(
        [
            Contender(entry["method"], load_run(directory / entry["method"]))
            if "cost" in entry
            else Contender(entry["method"], None, str(entry["reason"]))
            for entry in methods
        ]
    )


def verify(directory: Path, s: Summary, rounding: float) -> checks.Verification:
    """Check each method's run in it as a solve, and the summary against them."""
    names = [name for name in METHODS if (directory / name).is_dir()]
    solves = runs.inside(directory, names, rounding)
    return checks.of_study(directory, Comparison.file, s, solves, complaints(directory, s, names, rounding), UNCHECKED)


def complaints(directory: Path, s: Summary, names: Sequence[str], rounding: float) -> Iterator[str]:
    """Check each method's entry against its run, the best of them, and the highest bound."""
    yield from checks.others(checks.asked(directory, names))
    summaries = {name: record.read_summary(directory / name) for name in names}
    costs = {name: run["cost"] for name, run in summaries.items() if run["cost"] is not None}
    bounds = {name: run["lower"] for name, run in summaries.items()}
    yield from checks.crossed(costs, bounds, rounding)
    entries = {m["method"]: m for m in s["methods"] if m.keys() != {"method", "reason"}}
    if entries.keys() != summaries.keys() or len({m["method"] for m in s["methods"]}) < len(s["methods"]):
        yield "comparison.json and its directories hold different methods."
        return
    for name, run in summaries.items():
        expected = entry_of({key: value for key, value in run.items() if key not in (KIND, FILES)})
        different = [key for key, value in expected.items() if not equal(entries[name].get(key, ...), value)]
        if different:
            yield f"comparison.json and the run {name} state different values of {different[0]}."
    tables = {name: record.read_table(directory / name / record.HISTORY)[1:] for name in entries}
    lines = [[name, *row[: len(record.COLUMNS)]] for name, rows in tables.items() for row in rows]  # without the gaps
    if record.read_table(directory / record.HISTORY)[1:] != lines:
        yield "history.csv of the comparison holds other lines than those of its runs."
    if s["best"] != min(costs.values(), default=None) or (costs and costs.get(s["method"]) != s["best"]):
        yield "comparison.json names another best network than its runs."
    if s["lower"] != max((lower for lower in bounds.values() if lower is not None), default=None):
        yield "comparison.json states another bound than the highest of its runs."
