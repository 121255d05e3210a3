"""Tampering with stored runs: every entry, every file, and forgeries that keep the list of files true."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from editing import SUMMARIES, Change, certified, forged, states

import covopt
from covopt.model.wording import CERTIFICATES, STATUSES
from covopt.records import directories

ALIASES = {"status": "why the search ended", "layers": "stationarity and gap of the layers"}
"""What an entry is called where only a part of it is not checked."""
ROUNDING = 1e-9
"""Numbers and changes below this are what rounding left, and may be other ones elsewhere."""
WORDS = {
    "status": list(STATUSES),
    "certificate": list(CERTIFICATES),
    "loss": ["mse", "cross_entropy", "interpolate"],
    "activation": ["relu", "linear", "leaky:0.3"],
    "method": ["cone", "hidden", "train"],
}


@dataclass(frozen=True)
class Tampering:
    """A change of a run, what it is called, and the names of which one must be among the unchecked if it passes."""

    name: str
    change: Change
    names: tuple[str, ...]


def tamperings(run: Path) -> Iterator[Tampering]:
    """All changes of a run of any kind, those of the runs in it included."""
    for summary in sorted(path for kind in SUMMARIES for path in run.rglob(kind)):
        inside = summary.relative_to(run)
        for name, value in json.loads(summary.read_text()).items():
            for number, other in enumerate(_others(name, value)):
                if other is value or _text(other) == _text(value):
                    continue
                yield Tampering(
                    f"{inside}: {name} {number}", states(str(inside), **{name: other}), _names(name, value, other)
                )
    for file in sorted(path for path in run.rglob("*") if path.is_file() and path.name not in SUMMARIES):
        inside = file.relative_to(run)
        names = (inside.as_posix(), inside.name)
        yield Tampering(f"{inside}: deleted", lambda path, f=inside: (path / f).unlink(), names)
        yield Tampering(f"{inside}: a byte", lambda path, f=inside: _flip(path / f), names)
        yield Tampering(f"{inside}: emptied", lambda path, f=inside: (path / f).write_bytes(b""), names)
        if inside.suffix == ".npz":
            for array in np.load(file).files:
                for change in ("larger", "nan", "gone", "text", "flat", "twice"):
                    altered = lambda path, f=inside, a=array, c=change: _array(path / f, a, c)  # noqa: E731
                    yield Tampering(f"{inside}: {array} {change}", altered, names)


def forgeries(run: Path) -> Iterator[Tampering]:
    """Changes of a solve whose list of files is made true again, and whose other entries fit them."""
    if not (run / "result.json").is_file():
        return
    stated = json.loads((run / "result.json").read_text())
    yield Tampering("forged: state dict", forged(lambda path: _state(path / "network.pt")), ())
    if stated["widths"] != [0]:
        yield Tampering("forged: network scaled by 0.9", forged(_scaled), ())
    if stated["lower"] is not None:
        yield Tampering("forged: bound raised", forged(_raised), ())
        yield Tampering("forged: bound at the cost, exact", forged(_exact), ())
        yield Tampering("forged: bound above the cost", forged(lambda path: _raised(path, 1.5)), ())
    yield Tampering("forged: targets", forged(lambda path: _array(path / "problem.npz", "Y", "larger")), ())
    yield Tampering("forged: history", forged(lambda path: (path / "history.csv").write_text(HISTORY)), ())


HISTORY = "iteration,seconds,cost,lower,width\n0,0.1,1.0,2.0,1\n"


def judge(run: Path, scratch: Path, tampering: Tampering) -> str:
    """noticed, named, the same (nothing changed), MISSED, or how it fails."""
    if scratch.exists():
        shutil.rmtree(scratch)
    shutil.copytree(run, scratch)
    tampering.change(scratch)
    if _content(run) == _content(scratch):
        return "the same"
    try:
        checked = covopt.verify(scratch)
    except covopt.CovoptError:
        return "noticed"
    except Exception as error:
        return f"CRASHED: {type(error).__name__} {error}"
    if not checked.passed:
        return "noticed"
    return "named" if set(tampering.names) & set(checked.unchecked) else "MISSED"


def _content(directory: Path) -> dict[str, str]:
    return directories.digests(directory)


def _others(name: str, value: object) -> Iterator[object]:
    """Values that might stand in the place of this one; ... for none at all."""
    yield ...
    yield True
    yield {"a": [1]}
    if value is None:
        yield from (0.5, "text")
    elif isinstance(value, str):
        yield from [word for word in WORDS.get(name, ["text", "0"]) if word != value]
    elif isinstance(value, int):
        yield from (value + 1, -1, None)
    elif isinstance(value, float):
        yield from (value * 1.001 + 1e-3, 1e300, None, int(value) + 1)
        if abs(value) > ROUNDING:
            yield from (0.0, -value)
        if abs(value) > 1e3 * ROUNDING:
            yield value * 0.999
    elif isinstance(value, list):
        yield from ([], [*value, *value[:1]], ["text"])
        for place, entry in enumerate(value):
            for other in _others("", entry):
                yield [*value[:place], *([] if other is ... else [other]), *value[place + 1 :]]
    elif isinstance(value, dict):
        for key, entry in value.items():
            for other in _others(key, entry):
                changed = {k: v for k, v in value.items() if k != key}
                yield changed if other is ... else changed | {key: other}


def _text(value: object) -> str:
    return json.dumps(value, default=str, sort_keys=True)


def _names(name: str, value: object, other: object) -> tuple[str, ...]:
    """What must be named if it passes: the entry, or the entry of it that changed; of the list of files, the file that
    it no longer lists."""
    if name == "files" and isinstance(value, dict) and isinstance(other, dict):
        gone = [file for file in value if file not in other]
        return (*gone, *(Path(file).name for file in gone))
    return name, ALIASES.get(name, name), *(f"{name}.{key}" for key in _changed(value, other))


def _changed(value: object, other: object) -> set[str]:
    """Keys of a dict, or of those in a list, that differ."""
    if isinstance(value, list) and isinstance(other, list) and len(value) == len(other):
        return set().union(*(_changed(a, b) for a, b in zip(value, other, strict=True)))
    if isinstance(value, dict) and isinstance(other, dict):
        return {key for key in {*value, *other} if _text(value.get(key, ...)) != _text(other.get(key, ...))}
    return set()


def _flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    if content:
        content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))


def _array(file: Path, name: str, change: str) -> None:
    with np.load(file) as held:
        arrays = dict(held)
    array = arrays.pop(name)
    if change == "larger":
        arrays[name] = array * array.dtype.type(2) + array.dtype.type(1) if array.dtype.kind in "fiu" else array
    elif change == "nan":
        arrays[name] = np.full(array.shape, np.nan)
    elif change == "text":
        arrays[name] = array.astype(str)
    elif change == "flat":
        arrays[name] = array.ravel()[:-1]
    elif change == "twice":
        arrays[name] = np.concatenate([np.atleast_1d(array)] * 2)
    np.savez(file, **arrays)


def _state(file: Path) -> None:
    torch.save({name: 3.0 * W for name, W in torch.load(file).items()}, file)


def _scaled(path: Path) -> None:
    """A network that costs less, as is stated; its state dict and the end of its history with it."""
    with np.load(path / "network.npz") as held:
        np.savez(path / "network.npz", **{name: 0.9 * W for name, W in held.items()})
    result = covopt.load(path)
    torch.save(result.to_torch().state_dict(), path / "network.pt")
    numbers = {name: getattr(result, name) for name in ("cost", "fit", "norm", "residual")}
    if result.problem.loss.name != "interpolate":
        _raised(path, 1.01)
        numbers.pop("residual")
    states("result.json", **numbers)(path)
    _consistent(path)


def _raised(path: Path, part: float = 0.5) -> None:
    raised = lambda s: s["lower"] + part * max(s["cost"] - s["lower"], 1e-3 * s["cost"])  # noqa: E731
    states("result.json", lower=raised)(path)
    _consistent(path)


def _exact(path: Path) -> None:
    states("result.json", lower=lambda s: 0.999999 * s["cost"] + 2e-6 * s["cost"], certificate="exact")(path)
    _consistent(path)


def _consistent(path: Path) -> None:
    """Gap, status, certificate.npz and history.csv as cost and bound ask for."""
    told = json.loads((path / "result.json").read_text())
    if told["lower"] is not None:
        gap = (told["cost"] - told["lower"]) / told["cost"]
        kept = told["status"] if told["status"] != "optimal" else "converged"
        status = "optimal" if told["target"] is not None and gap <= told["target"] else kept
        states("result.json", gap=gap, status=status)(path)
        certified(path)
    lower = "" if told["lower"] is None else told["lower"]
    line = f"0,0.0,{told['cost']!r},{lower!r},{max(told['widths'])}\n".replace("''", "")
    (path / "history.csv").write_text("iteration,seconds,cost,lower,width\n" + line)
