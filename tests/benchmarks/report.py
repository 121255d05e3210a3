"""The table in docs/performance.md, made anew from the result files."""

from __future__ import annotations

import json

from tests.benchmarks import machine
from tests.benchmarks.harness import RESULTS
from tests.benchmarks.suites import BENCHMARKS

PAGE = machine.ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"


def regenerate() -> str:
    """Put the table between the page's two marks; the table."""
    text = _table()
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, tail = rest.partition(END)
    if not tail:
        raise SystemExit(f"{PAGE.name} lacks the lines '{BEGIN}' and '{END}'; put them where the table belongs.")
    PAGE.write_text(f"{head}{BEGIN}\n{text}\n{END}{tail}", encoding="utf-8")
    return text


def _table() -> str:
    lines = ["| benchmark | to reach | reached | met | machine | date, commit |", "|---|---|---|---|---|---|"]
    for name in BENCHMARKS:
        path = RESULTS / f"{name}.json"
        if not path.exists():
            lines.append(f"| `{name}` | | not run yet | | | |")
            continue
        told = json.loads(path.read_text())
        seen = told["machine"]
        met = {True: "yes", False: "no", None: "-"}[told["met"]]
        where = f"{seen['processor']}, {seen['threads']} of {seen['cores']} cores, torch {seen['torch']}"
        when = f"{seen['date'][:10]}, {(told['commit'] or 'no commit')[:10]}{'+' * str(told['commit']).endswith('+')}"
        repeats = f" (median of {told['repeats']})" if told["repeats"] > 1 else ""
        lines.append(f"| `{name}` | {told['target']} | {told['reached']}{repeats} | {met} | {where} | {when} |")
    return "\n".join(lines)
