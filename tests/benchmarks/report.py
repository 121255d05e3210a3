"""The tables of results on the pages of the documentation, regenerated from the result files."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from covopt.records.numerals import percent
from tests.benchmarks import machine
from tests.benchmarks.harness import RESULTS, benchmarks
from tests.benchmarks.rivals import EQUAL

PAGES = [machine.ROOT / "docs" / f"{name}.md" for name in ("benchmarks", "rivals", "results")]
GAP = re.compile(r"\b(gap(?: <=)?|aim) (\d[\d.]*(?:e-\d+)?)")
LONG = re.compile(r"\d+\.\d{4,}(?![\d.]*e)")


def tidy(text: str) -> str:
    """A result in words, with gaps in percent and at most four digits of a number."""
    text = GAP.sub(lambda gap: f"{gap[1]} {percent(float(gap[2]))}", text)
    return LONG.sub(lambda number: f"{float(number[0]):.4g}", text).replace("<=", "at most")


def _target(stored: dict) -> tuple[str, ...]:
    """What was to be reached, and what was."""
    return tidy(stored["target"]), f"{'**missed:** ' if stored['met'] is False else ''}{_reached(stored)}"


def _reached(stored: dict) -> str:
    return tidy(stored["reached"]) + (f" (median of {stored['repeats']})" if stored["repeats"] > 1 else "")


def _race(stored: dict) -> tuple[str, ...]:
    """When covopt is lowest, and how far it is from the best rival at the end."""
    place = stored["columns"].index("cost")
    costs = [(row[place], row[0]) for row in stored["rows"] if row[place] is not None]
    ours = max(cost for cost, name in costs if name == "covopt")
    best, rival = min((cost, name) for cost, name in costs if name != "covopt")
    far = abs(ours - best) / best
    side = "equal to" if far <= EQUAL else f"{percent(far)} {'below' if ours < best else 'above'}"
    return _reached(stored), f"{side} {rival}"


@dataclass(frozen=True)
class Table:
    """One row for each benchmark of a theme.

    Attributes:
        names: of the benchmarks; * stands for any characters.
        columns: those beside the first, which has the name, the date, the commit and the machine.
        cells: what stands in these columns for a stored result.
        directory: where the results are.
    """

    names: str
    columns: tuple[str, ...] = ("to reach", "reached")
    cells: Callable[[dict], tuple[str, ...]] = _target
    directory: Path = RESULTS

    @property
    def members(self) -> list[str]:
        """The benchmarks, in the order of the patterns."""
        return [name for pattern in self.names.split() for name in benchmarks() if fnmatch(name, pattern)]

    def lines(self, machines: dict[str, str]) -> list[str]:
        """The table in Markdown; machines get letters as they appear."""
        columns = ("benchmark", *self.columns)
        lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
        for name in self.members:
            path = self.directory / f"{name}.json"
            if path.exists():
                stored = json.loads(path.read_text())
                lines.append(f"| {' | '.join([f'`{name}`<br>{_when(stored, machines)}', *self.cells(stored)])} |")
        return lines


RACE = "covopt is", "at the end"
TABLES = {
    "growth": Table("growth soon many spread memory time-limits start-limits threads kernels"),
    "gpu": Table("kernels soon growth sign-trees-*", directory=RESULTS / "cuda"),
    "races": Table(
        "rivals-digits-200 rivals-digits-200-small-lam rivals-digits-500-classes rivals-teacher rivals-diabetes"
        " rivals-diabetes-huber rivals-wine rivals-breast-cancer rivals-20000 rivals-20000-classes",
        RACE,
        _race,
    ),
    "deep-races": Table("rivals-*-depth-* rivals-training", RACE, _race),
    "drawn": Table("rivals-drawn"),
    "proofs": Table("proof-* random-sets sign-trees-*"),
    "deep": Table("deep-*"),
    "studies": Table("plateau-one-input path-* audit-many estimators reformulations"),
    "attacks": Table(
        "truth scales hostile-matrices copositivity modules mutants forgeries tampering signals sweep-kills resume"
        " two-programs"
    ),
}
"""The tables by the marks between which they stand; `costs` has another one."""


def regenerate() -> str:
    """Put each table between its two marks, on the page that has them; the tables."""
    machines: dict[str, str] = {}
    texts = {mark: "\n".join(table.lines(machines)) for mark, table in TABLES.items()}
    texts |= {
        "costs": _costs(),
        "drawn-problems": _drawn_problems(),
        "machines": "\n".join([f"* {letter}: {where}" for where, letter in machines.items()]),
    }
    texts["not-run"] = _not_run()
    pages = {page: page.read_text(encoding="utf-8") for page in PAGES}
    for mark, text in texts.items():
        begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
        page = next((page for page, words in pages.items() if begin in words and end in words), None)
        if page is None:
            raise SystemExit(f"No page has the lines '{begin}' and '{end}'; put them where the table belongs.")
        head, tail = pages[page].partition(begin)[0], pages[page].partition(end)[2]
        pages[page] = f"{head}{begin}\n{text}\n{end}{tail}"
    for page, words in pages.items():
        page.write_text(words, encoding="utf-8")
    return "\n\n".join(texts.values())


def _when(stored: dict, machines: dict[str, str]) -> str:
    seen = stored["machine"]
    device = f", {seen['gpu']}" if "gpu" in seen else ""
    where = f"{seen['processor']}, {seen['threads']} of {seen['cores']} cores{device}, torch {seen['torch']}"
    letter = machines.setdefault(where, chr(ord("a") + len(machines)))
    commit = stored["commit"] or "no commit"
    return f"{seen['date'][:10]}, {commit[:10]}{'+' * commit.endswith('+')}, {letter}"


def _not_run() -> str:
    """The benchmarks without a result of a processor; every one must stand in one table beside that of the GPU."""
    shown = ["costs", *(name for mark, table in TABLES.items() if mark != "gpu" for name in table.members)]
    wrong = [name for name in benchmarks() if shown.count(name) != 1]
    if wrong:
        raise SystemExit(f"{', '.join(wrong)} must stand in one table of {Path(__file__).name}; add it there.")
    names = (f"`{name}`" for name in benchmarks() if not (RESULTS / f"{name}.json").exists())
    return f"Not run yet on a processor: {', '.join(names)}."


def _drawn_problems() -> str:
    """Each problem of `rivals-drawn`, and by how many percent covopt is above the best rival at each time."""
    path = RESULTS / "rivals-drawn.json"
    if not path.exists():
        return "Not measured yet."
    told = json.loads(path.read_text())
    times = [name.removeprefix("% above ") for name in told["columns"] if name.startswith("%")]
    columns = ("targets", "rows, inputs, outputs", "layers", "loss", "lam", *times, "best rival at the end")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name, rows, inputs, outputs, layers, loss, lam, *above, rival, _ in told["rows"]:
        cells = [f"`{name}`", f"{rows}, {inputs}, {outputs}", layers, loss.replace("_", "-"), f"{lam:g}"]
        cells += ["-" if part is None else f"{part + 0.0:+.3g}" for part in above]
        lines.append(f"| {' | '.join(map(str, (*cells, rival)))} |")
    return "\n".join(lines)


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
