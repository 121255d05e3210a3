"""The tables in docs/benchmarks.md, regenerated from the result files."""

import json

from tests.benchmarks import machine
from tests.benchmarks.harness import RESULTS, benchmarks

PAGE = machine.ROOT / "docs" / "benchmarks.md"


def regenerate() -> str:
    """Put each table between its two marks on the page; the tables."""
    tables = {"benchmarks": _table(), "costs": _costs()}
    page = PAGE.read_text(encoding="utf-8")
    for name, text in tables.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        head, _, rest = page.partition(begin)
        _, _, tail = rest.partition(end)
        if not tail:
            raise SystemExit(f"{PAGE.name} lacks the lines '{begin}' and '{end}'; put them where the table belongs.")
        page = f"{head}{begin}\n{text}\n{end}{tail}"
    PAGE.write_text(page, encoding="utf-8")
    return "\n\n".join(tables.values())


def _costs() -> str:
    """The laws of `costs`, and what they predict."""
    path = RESULTS / "costs.json"
    if not path.exists():
        return "Not measured yet."
    told = json.loads(path.read_text())
    lines = [f"| {' | '.join(told['columns'])} |", "|---" * len(told["columns"]) + "|"]
    for row in told["rows"]:
        if row[-1] is not None:  # the others are measurements
            lines.append(f"| {' | '.join(cell if isinstance(cell, str) else f'{cell:.3g}' for cell in row)} |")
    return "\n".join(lines)


def _table() -> str:
    """One row for each benchmark; the machines stand below the table, by their letters."""
    lines = ["| benchmark | to reach | reached | met | date, commit, machine |", "|---|---|---|---|---|"]
    machines: dict[str, str] = {}
    for name in benchmarks():
        path = RESULTS / f"{name}.json"
        if not path.exists():
            lines.append(f"| `{name}` | | not run yet | | |")
            continue
        stored = json.loads(path.read_text())
        seen = stored["machine"]
        met = {True: "yes", False: "no", None: "-"}[stored["met"]]
        where = f"{seen['processor']}, {seen['threads']} of {seen['cores']} cores, torch {seen['torch']}"
        letter = machines.setdefault(where, chr(ord("a") + len(machines)))
        commit = stored["commit"] or "no commit"
        when = f"{seen['date'][:10]}, {commit[:10]}{'+' * commit.endswith('+')}, {letter}"
        repeats = f" (median of {stored['repeats']})" if stored["repeats"] > 1 else ""
        lines.append(f"| `{name}` | {stored['target']} | {stored['reached']}{repeats} | {met} | {when} |")
    footnotes = "; ".join(f"({letter}) {where}" for where, letter in machines.items())
    return "\n".join([*lines, "", f"Machines: {footnotes}."])
