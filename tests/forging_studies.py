"""Forgeries of studies: parts of other data in them, false bounds in their solves, and numbers of their own.

The summary is stated again from the parts, as far as covopt makes one from them.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from editing import moved, sealed
from forging import Forgery, changed, false_bounds, swapped_files

import covopt
from covopt.records import record
from covopt.studies import runs


def other_numbers(run: Path) -> Iterator[Forgery]:
    """Each number of a study's summary that is said to be checked, a tenth less and more, there and in its tables."""
    file = record.kind_of(run)
    unchecked = {part for name in covopt.verify(run).unchecked for part in (name, name.rpartition(".")[2])}
    for place, value in _numbers(json.loads((run / file).read_text())):
        if not unchecked & set(place):
            for factor in (0.9, 1.1):
                name = f"{'.'.join(place)} times {factor}"
                yield Forgery(name, changed(run, _everywhere(value, factor * value)), False)


def _numbers(told: object, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    if isinstance(told, dict):
        for name, entry in told.items():
            yield from _numbers(entry, (*place, name))
    elif isinstance(told, list):
        for number, entry in enumerate(told):
            yield from _numbers(entry, (*place, str(number)))
    elif isinstance(told, float) and abs(told) > TINY:
        yield place, told


TINY = 1e-9  # numbers below are what rounding left


def _everywhere(value: float, other: float) -> Callable[[Path], None]:
    """Write another number wherever a study and its tables hold this one; the runs in it stay as they are."""

    def change(run: Path) -> None:
        for file in run.iterdir():
            if file.suffix in (".json", ".csv"):
                file.write_text(file.read_text().replace(repr(value), repr(other)))

    return change


def inner_runs(run: Path) -> list[Path]:
    """The solves in a study, by their paths from there."""
    return sorted(path.parent.relative_to(run) for path in run.rglob(record.SUMMARY) if path.parent != run)


def of_study(run: Path, other: Path) -> Iterator[Forgery]:
    """All forgeries of a study: other numbers, parts of other data, and false bounds in its solves."""
    yield from swapped_files(run, other)
    yield from other_numbers(run)
    for inner in inner_runs(run):
        swaps = {"of other data": lambda target, inner=inner: moved(other / inner, target / inner)}
        for forgery in false_bounds(run / inner, other / inner) if (other / inner).is_dir() else ():
            if forgery.name.endswith(("as it was proved", "at the cost", "without evidence")):
                swaps[f"with a {forgery.name}"] = lambda target, inner=inner, forgery=forgery: _written(
                    forgery, target / inner
                )
        for name, swap in swaps.items():
            if name == "of other data" and not (other / inner).is_dir():
                continue
            yield Forgery(f"{inner} {name}", changed(run, swap), False)
            yield Forgery(f"{inner} {name}, stated again", _stated_again(run, swap), False)


def _written(forgery: Forgery, target: Path) -> None:
    shutil.rmtree(target)
    forgery.write(target)


def _stated_again(run: Path, swap: Callable[[Path], object]) -> Callable[[Path], None]:
    """A study with another part, whose summary, tables and arrays follow from its parts as far as covopt makes them."""

    def write(target: Path) -> None:
        draft = target.with_suffix(".draft")
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(run, draft)
        swap(draft)
        sealed(draft)
        try:
            runs.load(draft).save(target)
        except (covopt.CovoptError, AttributeError):  # kinds that do not come back from their files
            shutil.move(draft, target)
            _summed_up(target)
            sealed(target)
        shutil.rmtree(draft, ignore_errors=True)

    return write


def _summed_up(study: Path) -> None:
    """Take what a plateau, an audit or a comparison says of its solves from these."""
    file = record.kind_of(study)
    told = json.loads((study / file).read_text())
    solves = {
        str(inner): json.loads((study / inner / record.SUMMARY).read_text()) | {"files": ...}
        for inner in inner_runs(study)
    }
    for one in solves.values():
        del one["files"], one["kind"]
    if "solver" in told:
        told |= {"solver": solves[record.SOLUTION]}
    if "methods" in told:
        told["methods"] = [
            {**entry, **{k: v for k, v in solves[entry["method"]].items() if k != "starts"}}
            if entry["method"] in solves
            else entry
            for entry in told["methods"]
        ]
        best = min((s for s in solves.values() if s["cost"] is not None), key=lambda s: s["cost"])
        told |= {"best": best["cost"], "method": best["method"]}
        told |= {"lower": max((s["lower"] for s in solves.values() if s["lower"] is not None), default=None)}
    elif record.SOLUTION in solves:
        one = solves[record.SOLUTION]
        told |= {name: one[name] for name in ("lower", "certificate", "lam", "loss", "bias", "depth") if name in told}
        if told.get("level") is not None and one["lower"] is not None:
            told |= {"gap": (told["level"] - one["lower"]) / told["level"]}
    (study / file).write_text(json.dumps(told))
