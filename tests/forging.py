"""Forgeries of solves and cp-ranks: false runs whose files agree with each other, down to the digests.

Each is made from an honest run, and one of other data. They state a bound that a network refutes, the cost of another
question, or entries that are none.
"""

import json
import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from editing import SUMMARIES, Change, forged, holds, sealed, states
from numpy.typing import NDArray

import covopt
from covopt.answer.result import Result
from covopt.data.arrays import read_npz
from covopt.model.activation import Activation
from covopt.model.biases import PENALISED, Free
from covopt.model.loss import parse_loss
from covopt.model.problem import Problem
from covopt.model.weights import evaluate
from covopt.records import record
from covopt.runtime.loop import Certificate, Progress, Status

PLAIN = {"figure.png": lambda path: path.write_bytes(b"")}
UNUSED = ("figure.png", "origin.json", "report.html")


@dataclass(frozen=True)
class Forgery:
    """A forged run.

    Attributes:
        name: what is false in it.
        write: writes it into a new directory.
        cost_or_bound: what covopt-check proves is false: the cost, the bound, or what a cp-rank states.
    """

    name: str
    write: Change
    cost_or_bound: bool = True


def changed(run: Path, change: Change, seal: bool = True) -> Callable[[Path], None]:
    """Write a copy of a run with a change, and lists of files that are true, unless these are what is changed."""

    def write(target: Path) -> None:
        shutil.copytree(run, target)
        change(target)
        if seal:
            sealed(target)

    return write


def restated(result: Result, **changes: Any) -> Result:
    """State cost, gap, status and history as they follow from other weights, another problem, or another bound."""
    new = replace(result, layers=[], decided=None, test=None, **changes)
    cost = evaluate(new.problem.double(), [W.double() for W in new.weights])
    new = replace(new, cost=cost.total, fit=cost.fit, norm=cost.norm, residual=cost.residual)
    optimal = new.target is not None and new.gap is not None and new.gap <= new.target
    ends = Progress(0, 0.0, new.cost, new.lower, max(new.widths, default=0))
    return replace(new, status=Status.OPTIMAL if optimal else Status.CONVERGED, history=[ends])


def dearer(result: Result) -> Result:
    """The same function by unbalanced layers, which cost more."""
    first, second, *others = (W.clone() for W in result.weights)
    first *= 2.0
    second[:, : len(first)] /= 2.0
    return restated(result, weights=[first, second, *others], lower=None, certificate=Certificate.NONE, proof=None)


def false_bounds(run: Path, other: Path) -> Iterator[Forgery]:
    """Bounds between the cost of the honest network and that of a dearer one, with what might seem to prove them."""
    honest = covopt.load(run)
    if honest.lower is None:
        return
    above = dearer(honest)
    lower = 0.5 * (honest.cost + above.cost)

    def forged(name: str, arrays: dict[str, Any] | None = None, **changes: Any) -> Forgery:
        given = {"lower": lower, "certificate": honest.certificate, "proof": honest.proof}
        made = restated(above, **(given | changes))

        def write(path: Path) -> None:
            made.save(path, others=PLAIN)
            holds(record.CERTIFICATE, **(arrays or {}))(path)
            sealed(path)

        return Forgery(f"false bound, {name}", write)

    yield forged("as it was proved")
    yield forged("at the cost", lower=above.cost)
    yield forged("at the cost, without evidence", lower=above.cost, proof=None)
    for kind in Certificate:
        if kind not in (Certificate.NONE, honest.certificate):
            yield forged(f"called {kind}", certificate=kind)
    proof, second = read_npz(run / record.CERTIFICATE), read_npz(other / record.CERTIFICATE)
    for name in proof.keys() - {"lower", "certificate", "maximum"}:
        for how, altered in _altered(proof[name]).items():
            yield forged(f"{name} {how}", {name: altered})
        if name in second:
            yield forged(f"{name} of other data", {name: second[name]})
    if "maximum" in proof:
        for factor in (0.0, 0.5, 0.9, -1.0, 2.0):
            yield forged(f"maximum times {factor}", {"maximum": factor * proof["maximum"]})
    yield forged("the proof of other data", second | {"lower": np.array(lower)})


def _altered(array: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Scaled, of the other sign, shuffled, with a part too little or twice, and of other kinds."""
    if array.size == 0:
        return {"nan": np.full(1, np.nan)}
    scaled = {f"times {t}": (array * t).astype(array.dtype) for t in (0.0, 0.5, 2.0, -1.0)}
    rows = np.atleast_1d(array)
    cut = {"cut": rows[:-1], "last one twice": np.concatenate([rows, rows[-1:]]), "turned": rows[::-1].copy()}
    kinds = {"text": array.astype(str), "nan": np.full(array.shape, np.nan), "none": np.empty(0), "flat": array.ravel()}
    nearly = {"times 1.01": array * 1.01} if array.dtype.kind == "f" else {"plus one": array + 1}
    return scaled | cut | nearly | kinds


def other_questions(run: Path) -> Iterator[Forgery]:
    """The stored network for another question, at what it costs there, with the old proof of a bound just below."""
    honest = covopt.load(run)
    p = honest.problem
    questions: dict[str, Callable[[], Problem]] = {
        "lam halved": lambda: replace(p, lam=0.5 * p.lam),
        "lam doubled": lambda: replace(p, lam=2.0 * p.lam),
        "another bias": lambda: replace(p, beta=0.5 if p.beta else 1.0),
        "free biases": lambda: replace(p, biases=PENALISED if p.free else Free(), beta=1.0),
        "another activation": lambda: replace(p, activation=Activation(0.25)),
        "another loss": lambda: replace(p, loss=parse_loss("huber:0.3")),
        "targets of 0.9": lambda: replace(p, Y=0.9 * p.Y),
        "inputs of 1.1": lambda: replace(p, X=1.1 * p.X),
        "rows in another order": lambda: replace(p, Y=p.Y.roll(1, 0)),
    }
    for name, ask in questions.items():
        with suppress(covopt.CovoptError, TypeError, ValueError):  # not every question can be asked so
            asked = ask()
            now = evaluate(asked.double(), [W.double() for W in honest.weights])
            if not asked.allows(now.residual):
                continue
            changes: dict[str, Any] = {"problem": asked}
            if honest.lower is None:
                changes |= {"lower": 0.9999 * now.total, "certificate": Certificate.EXACT}
            made = restated(honest, **({"lower": 0.9999 * now.total} | changes))
            yield Forgery(f"other question, {name}", lambda path, made=made: made.save(path, others=PLAIN))


ENTRIES: dict[str, list[Any]] = {
    "cost": [True, "0.5", None, 10**400, lambda s: 0.9 * s["cost"], lambda s: -s["cost"], [1.0]],
    "fit": ["0.5", lambda s: s["norm"], True],
    "norm": ["0.5", lambda s: 0.5 * s["norm"], None],
    "residual": ["0.5", True, -1.0],
    "lower": [True, "0.1", -1.0, [0.0], lambda s: 2.0 * s["cost"], 10**400],
    "gap": [True, "0", -0.1, lambda s: 0.5 if s["gap"] is None else 0.5 * s["gap"] + 0.1],
    "status": ["done", 1, None, "unsolved"],
    "certificate": ["act", "", "EXACT", None, 1],
    "widths": [lambda s: [n + 1 for n in s["widths"]], [], "2", lambda s: [*s["widths"], 1]],
    "depth": [lambda s: s["depth"] + 1, lambda s: str(s["depth"]), True],
    "lam": ["0.01", lambda s: 1.0 if s["lam"] is None else 2.0 * s["lam"], True],
    "bias": ["1.0", 7.0, True, None],
    "loss": ["MSE", "huber:2", None],
    "activation": ["ReLU", "leaky:0.7", None],
    "rows": [lambda s: s["rows"] + 1, "6", True],
    "weighted": [lambda s: not s.get("weighted", False), 1],
    "skip": [lambda s: not s.get("skip", False), 1],
    "files": [{}, [], "all"],
}
"""Entries of result.json that follow from its files, and what may stand there instead."""
UNKNOWN_TO_CHECK: dict[str, list[Any]] = {
    "method": ["magic", None],
    "layers": [[{"layer": 1, "gap": 0.0}]],
    "unique": [{"verdict": "unique", "reason": None}],
}
"""Entries of which only `verify` says something."""
ARRAYS: dict[str, dict[str, list[Any]]] = {
    "problem.npz": {
        "X": [None, lambda X: X + math.nan, lambda X: X.astype(str), lambda X: X.ravel(), lambda X: 1.5 * X + 0.1],
        "Y": [None, lambda Y: Y + math.nan, lambda Y: Y.astype(str), lambda Y: Y[:-1], lambda Y: 0.5 * Y],
        "lam": [None, lambda a: np.array(str(a)), lambda a: -a - 1.0, lambda a: a * 1j, lambda a: np.array([a, a])],
        "bias": [None, lambda a: np.array("0.5"), np.array("3/5"), np.array(-1.0), np.array(True)],
        "loss": [None, np.array(b"mse"), np.array("huber:-1"), np.array("MSE"), np.array(0)],
        "depth": [None, np.array(2.5), np.array("2"), np.array(1), np.array(True)],
        "activation": [None, np.array("sine"), np.array("leaky:nan"), np.array("leaky:"), np.array(0.0)],
        "weights": [np.array([-1.0]), np.array("text"), np.zeros(3)],
    },
    "network.npz": {
        "W1": [None, lambda W: W + math.nan, lambda W: 0.9 * W, lambda W: W.astype(str), lambda W: W[:, :-1]],
        "W2": [None, lambda W: W + math.inf, lambda W: 1.1 * W, lambda W: W.ravel(), lambda W: -W],
    },
    "certificate.npz": {
        "lower": [np.array("0.1"), np.array(True), np.array(1e9), np.array([0.1, 0.2]), np.array(math.nan)],
        "certificate": [np.array("act"), np.array(""), np.array(1)],
    },
}
"""Arrays of a solve, and what may stand there instead."""


def wrong_entries(run: Path) -> Iterator[Forgery]:
    """Entries of another type, that are unknown, or that contradict each other."""
    told = json.loads((run / record.SUMMARY).read_text())
    for table, claimed in ((ENTRIES, True), (UNKNOWN_TO_CHECK, False)):
        for name, values in table.items():
            for number, value in enumerate(values):
                with suppress(TypeError):  # of half of what is None
                    if json.dumps(value(told) if callable(value) else value) != json.dumps(told.get(name)):
                        write = changed(run, states(record.SUMMARY, **{name: value}), seal=name != "files")
                        yield Forgery(f"entry {name} {number}", write, claimed)
    for file, arrays in ARRAYS.items():
        there = read_npz(run / file)
        for name, values in arrays.items():
            for number, value in enumerate(values):
                if name in there or (name == "weights" and value is not None):
                    yield Forgery(f"{file}: {name} {number}", changed(run, holds(file, **{name: value})))


def swapped_files(run: Path, other: Path) -> Iterator[Forgery]:
    """Each file of a run that differs, from the run of other data."""
    for file in sorted(path.relative_to(run) for path in run.rglob("*") if path.is_file()):
        if file.name in UNUSED or file.name in SUMMARIES or not (other / file).is_file():
            continue
        if (other / file).read_bytes() != (run / file).read_bytes():
            move = lambda target, file=file: shutil.copy(other / file, target / file)  # noqa: E731
            yield Forgery(f"{file} of other data", changed(run, move), file.suffix == ".npz")


def of_solve(run: Path, other: Path) -> Iterator[Forgery]:
    """All forgeries of a solve."""
    yield from false_bounds(run, other)
    yield from other_questions(run)
    yield from wrong_entries(run)
    yield from swapped_files(run, other)


def of_cp_rank(run: Path, other: Path) -> Iterator[Forgery]:
    """All forgeries of what `cprank` stores: false entries, alone and with each array changed, and arrays of no use."""
    told = json.loads((run / "cprank.json").read_text())
    arrays = [(file, name, array) for file in CP_FILES for name, array in read_npz(run / file).items()]
    for name, values in CP_ENTRIES.items():
        for number, value in enumerate(values):
            with suppress(TypeError):  # of one more than None
                entry = value(told) if callable(value) else value
                if json.dumps(entry) != json.dumps(told[name]):
                    claimed = name not in ("exact", "witness") and entry not in (None, 0)
                    yield Forgery(
                        f"entry {name} {number}", changed(run, states("cprank.json", **{name: entry})), claimed
                    )
    for end, step in (("lower", 1), ("upper", -1)):
        for file, name, array in arrays if told[end] is not None else ():
            for how, altered in _altered(array).items():
                both = forged(states("cprank.json", **{end: told[end] + step}), holds(file, **{name: altered}))
                yield Forgery(f"{end} off by 1, {name} {how}", changed(run, both))
    for file, name, array in arrays:
        for how, altered in _altered(array).items():
            if how in ("text", "nan", "none", "flat") or (
                "part" not in name and how in ("cut", "times 0.0", "times -1.0")
            ):
                yield Forgery(f"{name} {how}", changed(run, holds(file, **{name: altered})), "part" not in name)
    yield from swapped_files(run, other)


CP_FILES = ("matrix.npz", "proof.npz")
CP_ENTRIES: dict[str, list[Any]] = {
    "verdict": ["completely positive", "not completely positive", "undecided", "yes", None, True],
    "exact": [False, True, 1, None],
    "lower": [lambda s: s["lower"] + 1, lambda s: float(s["lower"]), "2", True, -1, None, 0],
    "upper": [lambda s: s["upper"] - 1, lambda s: float(s["upper"]), "2", True, None, 0],
    "atoms": [lambda s: s["atoms"] + 1, "3", True, None, 0],
    "residual": [lambda s: s["residual"] + 1e-6, "0", True, None, -1.0],
    "separation": [lambda s: 2.0 * s["separation"], "0", True, None],
    "order": [lambda s: s["order"] + 1, "3", None],
    "witness": ["enumeration", "signs", None],
}
"""Entries of cprank.json that follow from its files, and what may stand there instead."""
