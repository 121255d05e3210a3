"""The answer of `ranks` in words and as a table, from its summary alone: each sentence rests on one inequality."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from covopt.model.wording import STATUSES
from covopt.records.record import headline
from covopt.runtime.errors import counted, listed

Summary = Mapping[str, Any]
Pairs = list[tuple[str, str]]

SETTING = ("batch_size", "rate", "lam", "momentum", "nesterov")
HEADS = {"batch_size": "batch", "rate": "rate", "lam": "lam", "momentum": "momentum", "nesterov": "Nesterov"}
FORGOTTEN = 1e-3
"""A start of which no more is left than this hardly shows in a rank; above it, ranks of different settings compare at
equal decay only."""
MEASURED, UNMEASURED = 0.01, 1e-5
"""What is measured of the start agrees with what is computed to this part, and where both are this small, which
float32 weights do not resolve."""
BEHIND = 1e-3
"""The solver is behind where SGD's loss is lower by more than this part; it stops at a gap of a tenth of that."""
SAME_DECAY = 0.1
"""Settings are at equal decay where what is left of their starts differs by no more than this, relative."""
SAME_RANK = 0.1
"""A rank is the start's where what is left of the start alone gives as much, to this part of it."""


def title(s: Summary) -> str:
    """The question in a few words."""
    strengths = listed(f"{lam:g}" for lam in dict.fromkeys(cell["lam"] for cell in s["cells"]))
    return headline({**s, "lam": 0.0}).replace(", lam 0,", f", lam {strengths},")


def groups(s: Summary) -> list[list[Summary]]:
    """The cells of each setting, whatever their seeds, in the order of the grid."""
    found: dict[tuple[object, ...], list[Summary]] = {}
    for cell in s["cells"]:
        found.setdefault(tuple(cell[name] for name in SETTING), []).append(cell)
    return list(found.values())


def table(s: Summary) -> tuple[list[str], list[list[object]]]:
    """A row for each setting and layer, means over the seeds: columns and rows."""
    varied = [name for name in SETTING if len({cell[name] for cell in s["cells"]}) > 1]
    varied += [] if "batch_size" in varied or s["cells"][0]["batch_size"] is None else ["batch_size"]
    names = [f"{tolerance:g}" for tolerance in s["tolerance"]]
    several = len(names) > 1
    ranks = [f"rank {n}" for n in names] if several else ["rank"]
    starts = [f"from the start {n}" for n in names] if several else ["from the start"]
    columns = [*(HEADS[name] for name in SETTING if name in varied), "steps", "kept", "layer", "shape"]
    columns += [*ranks, *starts, "stable", "functional", "bound", "solver"]
    rows = []
    for cells in groups(s):
        own = [cells[0][name] for name in SETTING if name in varied]
        for layers in zip(*(cell["layers"] for cell in cells if cell["layers"]), strict=True):
            rows.append([*own, *_trained(cells), *_layer(s, cells[0], layers, names)])
    return columns, rows


def _trained(cells: Sequence[Summary]) -> list[object]:
    told = [cell for cell in cells if cell["layers"]]
    return [_mean([cell["steps"] for cell in told]), _short(_mean([cell["kept"] for cell in told]), 2)]


def _layer(s: Summary, cell: Summary, layers: Sequence[Summary], names: Sequence[str]) -> list[object]:
    first = layers[0]
    ranks = [_short(_mean([layer["rank"][n] for layer in layers])) for n in names]
    starts = [_short(_mean([(layer["predicted"] or {}).get(n) for layer in layers])) for n in names]
    found = [_short(_mean([layer[name] for layer in layers])) for name in ("stable_rank", "functional_rank")]
    return [
        first["layer"],
        " x ".join(str(n) for n in first["shape"]),
        *ranks,
        *starts,
        *found,
        _bound(layers),
        _solver(s, cell["lam"], first["layer"], names[0]),
    ]


def _bound(layers: Sequence[Summary]) -> object:
    """The largest of what is proved; a bound that is not below the width is called none."""
    windows = [layer["window"] for layer in layers]
    if any(window is None for window in windows):
        return None
    bounds = [window["bound"] for window in windows]
    return f"none below {min(layers[0]['shape'])}" if None in bounds else max(bounds)


def _solver(s: Summary, lam: float, layer: int, name: str) -> object:
    found = [each["layers"][layer - 1]["rank"][name] for each in s["references"] if each["lam"] == lam]
    return found[0] if found else None


def _mean(values: Sequence[float | None]) -> float | int | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    return known[0] if len(set(known)) == 1 else sum(known) / len(known)


def _short(value: float | None, digits: int = 3) -> object:
    return None if value is None else f"{value:.{digits}g}"


def answer(s: Summary) -> str:
    """What was found, in a few sentences."""
    return " ".join(findings(s))


def findings(s: Summary) -> list[str]:
    """What the grid shows, each sentence from one inequality between its numbers."""
    if s["until"] is None:
        verdicts = enumerate(s["cells"][0]["verdict"], start=1)
        return [*_otherwise(s["cells"][0]), *(f"W{layer}: {said}" for layer, said in verdicts if said), *_behind(s)]
    done = ([c for c in cells if c["layers"] and c["finished"]] for cells in groups(s))
    told = [cells for cells in done if cells]
    return [*(said for said in [_starts(s, told), _batches(s, told)] if said), *_incomplete(s), *_behind(s)]


def _otherwise(cell: Summary) -> list[str]:
    """Where the weights of a given network show that it was trained otherwise than is said."""
    kept, measured = cell["kept"], cell["kept_measured"]
    if kept is None or measured is None or abs(measured - kept) <= MEASURED * abs(kept) + UNMEASURED:
        return []
    return [
        f"The first layer has {measured:.3g} of the given start where this training leaves {kept:.3g}: the network was"
        " trained otherwise, or from another start."
    ]


def _starts(s: Summary, told: Sequence[Sequence[Summary]]) -> str:
    """Which settings still have their start's rank."""
    found = []
    for cells in told:
        layers = [
            int(layers[0]["layer"])
            for layers in zip(*(c["layers"] for c in cells), strict=True)
            if _is_starts(s, layers)
        ]
        if layers and (cells[0]["kept"] or 0.0) > FORGOTTEN:
            names = listed(f"W{layer}" for layer in layers)
            left = f"{_name(s, cells[0])} have kept {_part(cells[0]['kept'])} of their start"
            found.append(f"{left}, and the rank of {names} is the start's")
    if not found:
        return ""
    advice = (
        "" if "kept" in s["until"] else " Ranks compare at equal decay: say how much of the start to keep, --kept 1e-4."
    )
    return f"{'. '.join(found)}.{advice}"


def _is_starts(s: Summary, layers: Sequence[Summary]) -> bool:
    """Whether the decayed start alone gives the rank, in every network."""
    name = f"{s['tolerance'][0]:g}"
    return all(
        layer["predicted"] is not None
        and abs(layer["predicted"][name] - layer["rank"][name]) <= SAME_RANK * layer["rank"][name]
        for layer in layers
    )


def _batches(s: Summary, told: Sequence[Sequence[Summary]]) -> str:
    """Whether the rank of the widest square layer falls with the batch size, where all else is equal."""
    ones = [cells for cells in told if cells[0]["batch_size"] is not None]
    others = {tuple(cells[0][name] for name in SETTING[1:]) for cells in ones}
    if len(ones) < 2 or len(others) > 1:
        return ""
    left = [cells[0]["kept"] for cells in ones]
    equal = max(left) - min(left) <= SAME_DECAY * max(left)
    layer, name = max(1, s["depth"] - 1), f"{s['tolerance'][0]:g}"
    ones = sorted(ones, key=lambda cells: cells[0]["batch_size"])
    ranks = [_mean([c["layers"][layer - 1]["rank"][name] for c in cells]) or 0 for cells in ones]
    values, sizes = listed(f"{rank:.3g}" for rank in ranks), listed(str(cells[0]["batch_size"]) for cells in ones)
    said = f"the rank of W{layer} is {values} for batches of {sizes}"
    if not equal:
        parts = listed(_part(part) for part in (cells[0]["kept"] for cells in ones))
        return f"After these steps {said}, which have kept {parts} of their starts."
    falls = (
        "smaller batches have the smaller rank"
        if ranks[0] < ranks[-1]
        else "smaller batches do not have a smaller rank"
    )
    return f"At equal decay {said}: {falls}."


def _incomplete(s: Summary) -> list[str]:
    """Networks that diverged, or that the time limit left unfinished."""
    gone = [cell for cell in s["cells"] if cell["diverged"]]
    left = [cell for cell in s["cells"] if not (cell["finished"] or cell["diverged"])]
    said = []
    if gone:
        rates = listed(f"{rate:g}" for rate in dict.fromkeys(cell["rate"] for cell in gone))
        said.append(f"{counted(len(gone), 'network')} diverged, at the rate {rates}; a smaller rate trains them.")
    if left:
        sizes = listed(str(size) for size in dict.fromkeys(cell["batch_size"] for cell in left))
        said.append(
            f"{counted(len(left), 'network')}, with batches of {sizes}, did not take all steps and are told as they"
            " were; a longer --time-limit finishes them."
        )
    return said


def _behind(s: Summary) -> list[str]:
    """Where SGD found a cheaper network than the solver, whose ranks are then not those of the minimum."""
    said = []
    for each in s["references"]:
        losses = [cell["loss"] for cell in s["cells"] if cell["lam"] == each["lam"] and cell["loss"] is not None]
        if losses and min(losses) < (1.0 - BEHIND) * each["cost"]:
            said.append(
                f"SGD reached {min(losses):.7g} for lam {each['lam']:g}, below the solver's {each['cost']:.7g}: give"
                " the solver more time, --reference, before you compare ranks with its network's."
            )
    return said


def _name(s: Summary, cell: Summary) -> str:
    """What distinguishes a setting, first word of a sentence."""
    varied = [name for name in SETTING[1:] if len({c[name] for c in s["cells"]}) > 1]
    more = "".join(f", {HEADS[name]} {cell[name]:g}" for name in varied)
    return f"Networks with batches of {cell['batch_size']}{more}"


def _part(value: float) -> str:
    """A part as a percentage, or in powers of ten where it is small."""
    if value < 1e-3:
        return f"{value:.1e}"
    return f"{100.0 * value:.0f} %" if value >= 0.1 else f"{100.0 * value:.2g} %"


def pairs(s: Summary, settings: bool = True) -> Pairs:
    """A `ranks` as a person reads it, labels and texts; `settings`: with a line for each."""
    found = [("question", title(s)), ("trained", trained(s))]
    found += [(_label(cells[0]), _ranks(s, cells)) for cells in groups(s)] if settings else []
    found += [("solver", _reference(each, f"{s['tolerance'][0]:g}")) for each in s["references"]]
    found += [("no solver", f"lam {each['lam']:g}: {each['reason']}") for each in s["refused"]]
    found += [("finding", said) for said in findings(s)]
    return [*found, ("status", ended(s)), ("time", f"{s['seconds']:.3g} s")]


def trained(s: Summary) -> str:
    """How long the networks were trained, and how many there are."""
    if s["until"] is None:
        return "elsewhere"
    ((name, value),) = s["until"].items()
    until = {
        "kept": f"until {value:g} of the start is left",
        "epochs": f"for {value:g} epochs",
        "steps": f"for {value} steps",
    }[name]
    tolerances = listed(f"{tolerance:g}" for tolerance in s["tolerance"])
    return f"{counted(len(s['cells']), 'network')} by SGD, {until}; ranks at tolerance {tolerances}"


def ended(s: Summary) -> str:
    """What ended the training."""
    if s["status"] == "converged":
        return "all steps are done"
    return STATUSES[s["status"]][0].partition(";")[0]


def _label(cell: Summary) -> str:
    return "network" if cell["batch_size"] is None else f"batch {cell['batch_size']}"


def _ranks(s: Summary, cells: Sequence[Summary]) -> str:
    told, name = [cell for cell in cells if cell["layers"]], f"{s['tolerance'][0]:g}"
    if not told:
        return "diverged"
    ranks = []
    for layers in zip(*(cell["layers"] for cell in told), strict=True):
        start = _mean([(layer["predicted"] or {}).get(name) for layer in layers])
        rank = f"W{layers[0]['layer']} {_short(_mean([layer['rank'][name] for layer in layers]))}"
        ranks.append(rank if start is None else f"{rank} ({_short(start)} from the start)")
    first, kept = cells[0], told[0]["kept"]
    varied = [n for n in SETTING[1:] if len({c[n] for c in s["cells"]}) > 1]
    more = "".join(f"{HEADS[n]} {first[n]:g}, " for n in varied)
    left = "" if kept is None else f"kept {kept:.2g}: "
    return f"{more}{left}rank {', '.join(ranks)}"


def _reference(each: Summary, name: str) -> str:
    ranks = ", ".join(f"W{layer['layer']} {layer['rank'][name]}" for layer in each["layers"])
    return f"a network of cost {each['cost']:.7g} for lam {each['lam']:g}: rank {ranks}"
