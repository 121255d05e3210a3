"""Runs on disk, one directory each: the content of their files, and their summaries for readers.

This module needs no torch, so that `covopt show` answers at once.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from covopt.data.arrays import check_readable
from covopt.model.wording import CERTIFICATES, STATUSES
from covopt.records.directories import Writer
from covopt.records.numerals import down
from covopt.records.packed import fits
from covopt.runtime.errors import CovoptError, DataError, RecordError, counted, printable
from covopt.runtime.files import starts_with
from covopt.runtime.loop import Progress

SUMMARY, NETWORK, PROBLEM = "result.json", "network.npz", "problem.npz"
CERTIFICATE, HISTORY = "certificate.npz", "history.csv"
COMPARISON, PLATEAU, AUDIT = "comparison.json", "plateau.json", "audit.json"
REPORT = "report.html"
PICTURES = ("figure.png", REPORT)
"""The files that take longest to write; `covopt show --report` can make the report later."""
KIND = "kind"
"""The first entry of a summary holds the file's name without .json, which marks a run of covopt."""
SOLUTION = "solution"
"""The directory of the solver's run inside a plateau or an audit."""
if TYPE_CHECKING:
    from torch import Tensor

Summary = Mapping[str, Any]
"""An answer as JSON has it."""
Pairs = list[tuple[str, str]]
"""An answer as a person reads it: labels and texts."""
COLUMNS = ("iteration", "seconds", "cost", "lower", "width")

DIGITS = 8
"""Significant digits of the numbers that people read."""


def broken(directory: str | os.PathLike[str], error: CovoptError) -> RecordError:
    """Return the error for a run that cannot be used, with the reason but not the remedy of `error`."""
    reason = str(error).partition(";")[0].rstrip(".")
    return RecordError(f"{directory} is not a complete run ({reason}); solve again with --out.")


def no_run(directory: str | os.PathLike[str]) -> RecordError:
    """Return the error for a directory that does not exist, or in which no run is stored."""
    path = Path(directory)
    what = "holds no run" if path.is_dir() else "is a file" if path.exists() else "does not exist"
    return RecordError(f"{directory} {what}; give a directory that --out wrote.")


def read_summary(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """Read `result.json` of a run; raise a RecordError if there is none, or if its entries are not of their types."""
    file = Path(directory) / SUMMARY
    if not file.is_file():
        raise no_run(directory)
    summary = read_object(file)
    wrong = next((name for name, form in ENTRIES.items() if not has_form(summary.get(name, ...), form)), None)
    if wrong is not None:
        raise RecordError(f"{file} is not a summary of covopt (its {wrong} is wrong); solve again with --out.")
    return summary


def kind_of(directory: Path) -> str | None:
    """Return the file name of a run's summary, which begins with the kind that this name states; None without one."""
    for path in sorted(directory.glob("*.json")):
        if path.is_file() and starts_with(path, b'"%s": "%s"' % (KIND.encode(), os.fsencode(path.stem))):
            return path.name
    return None


def has_form(value: object, form: Any) -> bool:
    """Return True if an entry of JSON has a form.

    A form is a type; a set of words; a dictionary or a list, with the form of each entry, or with one form and ... for
    any number of entries; or a tuple of alternatives.
    """
    if isinstance(form, tuple):
        return any(has_form(value, alternative) for alternative in form)
    if isinstance(form, set):
        return isinstance(value, str) and value in form
    if isinstance(form, dict):
        forms = dict.fromkeys(value, form[...]) if isinstance(value, dict) and ... in form else form
        return (
            isinstance(value, dict)
            and value.keys() == forms.keys()
            and all(has_form(value[k], forms[k]) for k in forms)
        )
    if isinstance(form, list):
        forms = form[:1] * len(value) if isinstance(value, list) and form[1:] == [...] else form
        return isinstance(value, list) and len(value) == len(forms) and all(map(has_form, value, forms))
    return fits(value, form)


def known(value: float | None) -> float | None:
    """Return `value`, or None where it is not a finite number: JSON has no NaN."""
    return value if value is not None and math.isfinite(value) else None


def plain(value: object) -> Any:
    """Return a value as JSON has it: dataclasses by their `summary()` or their fields, None for NaN and infinity."""
    if isinstance(value, float):
        return known(value)
    if isinstance(value, Enum):
        return str(value)
    if isinstance(value, Mapping):
        return {f"{key:g}" if isinstance(key, float) else str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if hasattr(value, "summary"):
        return value.summary()  # type: ignore[attr-defined]
    return plain(vars(value)) if is_dataclass(value) else value


def as_json(summary: Mapping[str, object], indent: int | None = None) -> str:
    """Return one JSON object; raise a ValueError for NaN and infinity."""
    return json.dumps(summary, allow_nan=False, indent=indent)


VERDICTS = ("unique", "not unique", "undecided")
"""The verdicts on the set of all optima."""
NUMBER = float | None
LAYER = {
    **dict.fromkeys(("layer", "width", "rank_K", "rank_Ks", "mergeable"), int),
    **dict.fromkeys(("stationarity", "gap"), NUMBER),
    "gap_certificate": set(CERTIFICATES),
}
TEST = {"data": str, "rows": int, **dict.fromkeys(("loss", "accuracy", "r2"), NUMBER)}
VERDICT = {
    **{"verdict": set(VERDICTS), "reason": str, "independence": NUMBER},
    **dict.fromkeys(("candidates", "dimension"), int | None),
    **dict.fromkeys(("fewest", "most"), (NoneType, [int, int])),
}
ENTRIES: dict[str, Any] = {
    **dict.fromkeys(("cost", "fit", "norm", "residual", "lower", "gap", "seconds", "lam", "target"), NUMBER),
    **dict.fromkeys(("loss", "activation", "method", "certify", "version"), str),
    **dict.fromkeys(("data", "scale", "targets"), str | None),
    **dict.fromkeys(("rows", "depth", "seed"), int),
    **dict.fromkeys(("weighted", "skip"), bool),
    **{"certificate": set(CERTIFICATES), "attainable": set(CERTIFICATES), "status": set(STATUSES)},
    **{"bias": float | str, "shuffle": int | None},
    **{"widths": [int, ...], "starts": [NUMBER, ...], "layers": [LAYER, ...], "timing": {...: float}},
    **{"test": (NoneType, TEST), "unique": (NoneType, VERDICT)},
}
"""The forms of the entries of `result.json` that covopt reads again."""


def data_of(s: Summary) -> str:
    """Return the data of a run in a few words."""
    rows = counted(s["rows"], "row")
    drawn = "" if s.get("shuffle") is None else f" drawn with seed {s['shuffle']}"
    targets = "" if s.get("targets") is None else f", {s['targets']}"
    scale = f", scale {s['scale']}" if s["scale"] not in (None, "none") else ""
    weighted = ", weighted" if s.get("weighted") else ""
    return printable(f"{s['data'] or 'data'}, {rows}{drawn}{weighted}{targets}{scale}")


def headline(s: Summary) -> str:
    """Return the problem of a run in a few words."""
    question = "representation cost" if s["loss"] == "interpolate" else f"{s['loss']}, lam {number(s['lam'])}"
    bias = s["bias"] if isinstance(s["bias"], str) else number(s["bias"])
    skip = ", a free skip" if s.get("skip") else ""
    return f"{data_of(s)}: {question}, depth {s['depth']}, bias {bias}{skip}, {s['activation']}"


def ignores_inputs(s: Summary) -> str:
    """Return a note if the network is constant and not proved to be the best; else ""."""
    if 0 not in s.get("widths", ()) or s["status"] == "optimal" or not s.get("cost"):  # a plateau has neither
        return ""
    smaller = "" if s["loss"] == "interpolate" else ", or a smaller lam,"
    return (
        "This network ignores its inputs. The search found no lower cost, but this is no proof: a longer"
        f" search{smaller} may find a network that uses them."
    )


def ended(s: Summary) -> str:
    """Return why a run ended; it mentions a network only if one was found."""
    sentence = STATUSES[s["status"]][0]
    if s["cost"] is None:
        return f"{sentence.partition(';')[0]}; no network was found"
    return "optimal: no cost is below 0" if s["status"] == "optimal" and s["cost"] == 0.0 else sentence


def bound_of(s: Summary, digits: int) -> str:
    """Return the lower bound of a solve; no cost is below 0, also where nothing else is proved."""
    if s["lower"] is None:
        return "0 (no cost is below 0)" if s["cost"] == 0.0 else "none proved"
    return down(s["lower"], digits)


def ended_of_several(s: Summary, optimal: str, converged: str) -> str:
    """Return why a search for several networks ended; what two of its statuses mean depends on the search."""
    sentences = {"optimal": optimal, "converged": converged}
    default = STATUSES[s["status"]][0].replace("the best network so far", "the best networks so far")
    return sentences.get(s["status"], default)


def number(value: object, digits: int = DIGITS) -> str:
    """Return a number with `digits` digits; a text, which is a range, as it is."""
    if isinstance(value, str):
        return value
    return f"{value:.{digits}g}" if isinstance(value, (int, float)) else "unknown"


def read_object(file: Path) -> dict[str, Any]:
    """Read the JSON object in a file; raise a RecordError if there is none."""
    try:
        summary = json.loads(file.read_text(encoding="utf-8"), parse_constant=_refuse, parse_int=_integer)
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{file} is damaged and cannot be read; solve again with --out.") from error
    if not isinstance(summary, dict):
        raise RecordError(f"{file} is not a summary of covopt; solve again with --out.")
    return summary


def archive(arrays: Callable[[], Mapping[str, NDArray]]) -> Writer:
    """Return the writer of an .npz file, which computes its arrays when it runs."""
    return lambda path: np.savez(path, allow_pickle=False, **arrays())


def numpy_of(**tensors: Tensor) -> dict[str, NDArray]:
    """Return tensors by name as arrays for a file."""
    return {name: tensor.cpu().numpy() for name, tensor in tensors.items()}


def layers_of(networks: Mapping[str, Iterable[Tensor]]) -> dict[str, NDArray]:
    """Return the weights of networks by name as arrays for a file: `p7_W1` is W_1 of network p7."""
    return {
        f"{name}_W{layer}": W.double().cpu().numpy()
        for name, weights in networks.items()
        for layer, W in enumerate(weights, start=1)
    }


def table(lines: Callable[[], Iterable[Iterable[object]]]) -> Writer:
    """Return the writer of a .csv file, which computes its lines when it runs; None is an empty field."""

    def write(path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows(as_text(lines()))

    return write


def as_text(lines: Iterable[Iterable[object]]) -> list[list[str]]:
    """Return the fields of a table as its file holds them."""
    return [["" if value is None else str(value) for value in line] for line in lines]


def read_table(file: Path) -> list[list[str]]:
    """Return the lines of a .csv file, the header first."""
    with file.open(newline="", encoding="utf-8") as stream:
        return list(csv.reader(stream))


def write_summary(path: Path, summary: Mapping[str, object]) -> None:
    """Write a summary as JSON, its kind first."""
    mark = {KIND: path.stem} if path.suffix == ".json" else {}  # a draft (.part) copies a summary with its mark
    path.write_text(as_json(mark | dict(summary), indent=2) + "\n", encoding="utf-8")


def _refuse(constant: str) -> float:
    """Refuse NaN and Infinity, which Python reads although JSON does not have them."""
    raise ValueError(constant)


def _integer(digits: str) -> int:
    """Return an integer; refuse one beyond the range of float64."""
    number = int(digits)
    if not math.isfinite(float(digits)):
        raise ValueError(digits)
    return number


def history_lines(history: list[Progress]) -> list[list[object]]:
    """Return the table of a run's history; the gaps of layers have columns where there are any."""
    layers = max((len(line.gaps) for line in history), default=0)
    table: list[list[object]] = [[*COLUMNS, *(f"gap_{layer}" for layer in range(1, layers + 1))]]
    for line in history:
        unknown = [None] * (layers - len(line.gaps))
        table.append([line.iteration, line.seconds, line.cost, line.lower, line.width, *line.gaps, *unknown])
    return table


def read_history(file: Path) -> list[Progress]:
    """Read the history of a run; raise a DataError if it is missing or damaged."""
    check_readable(file)
    try:
        with file.open(newline="", encoding="utf-8") as stream:
            table = csv.DictReader(stream)
            names = table.fieldnames or ()
            gaps = [f"gap_{layer}" for layer in range(1, len(names) - len(COLUMNS) + 1)]
            if sorted(names) != sorted([*COLUMNS, *gaps]):
                raise KeyError(str(names))
            lines = [
                Progress(
                    iteration=int(row["iteration"]),
                    seconds=float(row["seconds"]),
                    cost=float(row["cost"]),
                    lower=float(row["lower"]) if row["lower"] else None,
                    width=int(row["width"]),
                    gaps=tuple(float(row[name]) for name in gaps if row[name]),
                )
                for row in table
            ]
        if not all(0.0 <= gap < math.inf for line in lines for gap in line.gaps):
            raise ValueError("a gap is negative or not finite")
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise DataError(f"{file} is damaged; solve again.") from error
    return lines
