"""The answer of `ranks` in words and as a table, each sentence from one inequality.

**Verdicts** on the ranks of one network: each sentence follows from one inequality between numbers of the summary. A
bound is stated only if it is below the width, and a rank is attributed to the initialisation or to learning only if the
numbers show it.
"""

from __future__ import annotations

from collections.abc import Sequence

from covopt.model.wording import STATUSES
from covopt.records.numerals import down, up
from covopt.records.record import Pairs, Summary, headline
from covopt.runtime.errors import counted, listed

SETTING = ("batch_size", "rate", "lam", "momentum", "nesterov")
KINDS = {"plain": "", "batch_norm": "batch-normalised ", "residual": "residual "}
HEADS = {"batch_size": "batch", "rate": "rate", "lam": "lam", "momentum": "momentum", "nesterov": "Nesterov"}


def title(s: Summary) -> str:
    """Return the problem in a few words."""
    return headline({**s, "lam": listed(f"{lam:g}" for lam in dict.fromkeys(cell["lam"] for cell in s["cells"]))})


def groups(s: Summary) -> list[list[Summary]]:
    """Return the cells of each setting, over all seeds, in the order of the grid."""
    by_setting: dict[tuple[object, ...], list[Summary]] = {}
    for cell in s["cells"]:
        by_setting.setdefault(tuple(cell[name] for name in SETTING), []).append(cell)
    return list(by_setting.values())


def table(s: Summary) -> tuple[list[str], list[list[object]]]:
    """Return columns and rows of the table: settings and layers, means over the seeds."""
    varied = _varied(s)
    varied += [] if "batch_size" in varied or s["cells"][0]["batch_size"] is None else ["batch_size"]
    names = [f"{tolerance:g}" for tolerance in s["tolerance"]]
    several = len(names) > 1
    ranks = [f"rank {n}" for n in names] if several else ["rank"]
    starts = [f"of the initialisation {n}" for n in names] if several else ["of the initialisation"]
    columns = [*(HEADS[name] for name in SETTING if name in varied), "steps", "retained", "layer", "shape"]
    columns += [*ranks, *starts, "stable", "functional", "bound", "solver"]
    columns += ["test accuracy"] * (s["test_rows"] is not None)
    rows = []
    for cells in groups(s):
        audited = [cell for cell in cells if cell["layers"]]
        training = [cells[0][name] for name in SETTING if name in varied]
        training += [_mean([cell["steps"] for cell in audited]), _short(_mean([cell["kept"] for cell in audited]), 2)]
        right = [] if s["test_rows"] is None else [_short(_mean([cell["test_accuracy"] for cell in audited]))]
        for layers in zip(*(cell["layers"] for cell in audited), strict=True):
            rows.append([*training, *_layer(s, cells[0], layers, names), *right])
    return columns, rows


def _layer(s: Summary, cell: Summary, layers: Sequence[Summary], names: Sequence[str]) -> list[object]:
    number, shape = layers[0]["layer"], layers[0]["shape"]
    references = [reference for reference in s["references"] if reference["lam"] == cell["lam"]]
    return [
        number,
        " x ".join(str(n) for n in shape),
        *(_short(_mean([layer["rank"][n] for layer in layers])) for n in names),
        *(_short(_mean([(layer["predicted"] or {}).get(n) for layer in layers])) for n in names),
        *(_short(_mean([layer[name] for layer in layers])) for name in ("stable_rank", "functional_rank")),
        _bound(layers),
        references[0]["layers"][number - 1]["rank"][names[0]] if references else None,
    ]


def _bound(layers: Sequence[Summary]) -> object:
    """Return the largest proved bound; one that is not below the width counts as none."""
    windows = [layer["window"] for layer in layers]
    if any(window is None for window in windows):
        return None
    bounds = [window["bound"] for window in windows]
    return f"none below {min(layers[0]['shape'])}" if None in bounds else max(bounds)


def _mean(values: Sequence[float | None]) -> float | int | None:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return None
    return numbers[0] if len(set(numbers)) == 1 else sum(numbers) / len(numbers)


def _short(value: float | None, digits: int = 3) -> object:
    return None if value is None else f"{value:.{digits}g}"


def answer(s: Summary) -> str:
    """Return the answer in a few sentences."""
    return " ".join(findings(s))


def findings(s: Summary) -> list[str]:
    """Return the findings of the grid, each from one inequality between its numbers."""
    if s["until"] is None:
        verdicts = enumerate(s["cells"][0]["verdict"], start=1)
        return [*_otherwise(s["cells"][0]), *(f"W{layer}: {text}" for layer, text in verdicts if text), *_behind(s)]
    done = ([c for c in cells if c["layers"] and c["finished"]] for cells in groups(s))
    complete = [cells for cells in done if cells]
    return [*(text for text in [_starts(s, complete), _batches(s, complete)] if text), *_incomplete(s), *_behind(s)]


def _otherwise(cell: Summary) -> list[str]:
    """Warn if the weights of a given network contradict the reported training."""
    retained, measured = cell["kept"], cell["kept_measured"]
    # Weights in float32 do not resolve a smaller difference.
    if retained is None or measured is None or abs(measured - retained) <= 0.01 * abs(retained) + 1e-5:
        return []
    return [
        f"The first layer retains {measured:.3g} of the given initial weights, but this training retains"
        f" {retained:.3g}: the network was trained differently, or from other initial weights."
    ]


def _starts(s: Summary, settings: Sequence[Sequence[Summary]]) -> str:
    """Name the settings whose networks all have the rank of their initialisation."""
    sentences = []
    for cells in settings:
        if layers := _initial_layers(s, cells):
            names = listed(f"W{layer}" for layer in layers)
            clause = f"{_name(s, cells[0])} retain {_part(cells[0]['kept'])} of their initial weights"
            sentences.append(f"{clause}, which alone give the rank of {names}")
    if not sentences:
        return ""
    advice = "" if "kept" in s["until"] else " To compare ranks at equal decay, train until --kept 1e-4 remains."
    return f"{'. '.join(sentences)}.{advice}"


def _initial_layers(s: Summary, cells: Sequence[Summary]) -> list[int]:
    """Return the layers whose rank is that of their initialisation in all these networks, which retain over 0.1 %."""
    columns, tolerance = zip(*(cell["layers"] for cell in cells), strict=True), f"{s['tolerance'][0]:g}"
    layers = [column[0]["layer"] for column in columns if all(is_of_start(layer, tolerance) for layer in column)]
    return layers if (cells[0]["kept"] or 0.0) > 1e-3 else []


def _batches(s: Summary, settings: Sequence[Sequence[Summary]]) -> str:
    """Compare the ranks of the widest square layer by batch size, all else being equal."""
    ones = [cells for cells in settings if cells[0]["batch_size"] is not None]
    other_options = {tuple(cells[0][name] for name in SETTING[1:]) for cells in ones}
    if len(ones) < 2 or len(other_options) > 1:
        return ""
    shares = [cells[0]["kept"] for cells in ones]
    layer, name = max(1, s["depth"] - 1), f"{s['tolerance'][0]:g}"
    # Where the initial weights have hardly decayed, or still give the rank, their ranks say nothing about the batches.
    decayed = max(shares) <= 0.5 and not any(layer in _initial_layers(s, cells) for cells in ones)
    equal = decayed and max(shares) - min(shares) <= 0.1 * max(shares)
    ones = sorted(ones, key=lambda cells: cells[0]["batch_size"])
    ranks = [_mean([c["layers"][layer - 1]["rank"][name] for c in cells]) or 0 for cells in ones]
    values, sizes = listed(f"{rank:.3g}" for rank in ranks), listed(str(cells[0]["batch_size"]) for cells in ones)
    clause = f"the rank of W{layer} is {values} for batches of {sizes}"
    if not equal:
        parts = listed(_part(part) for part in (cells[0]["kept"] for cells in ones))
        return f"After these steps {clause}, which retain {parts} of their initial weights."
    falls = "smaller batches have lower rank" if ranks[0] < ranks[-1] else "smaller batches do not have lower rank"
    return f"At equal decay {clause}: {falls}."


def _incomplete(s: Summary) -> list[str]:
    """Report networks that diverged, or that the time limit or Ctrl-C left unfinished."""
    gone = [cell for cell in s["cells"] if cell["diverged"]]
    unfinished = [cell for cell in s["cells"] if not (cell["finished"] or cell["diverged"])]
    sentences = []
    if gone:
        rates = listed(f"{rate:g}" for rate in dict.fromkeys(cell["rate"] for cell in gone))
        sentences.append(f"{counted(len(gone), 'network')} diverged at the rate {rates}; use a smaller rate.")
    if unfinished:
        sizes = listed(str(size) for size in dict.fromkeys(cell["batch_size"] for cell in unfinished))
        end = "the training was interrupted" if s["status"] == "interrupted" else "a longer --time-limit finishes them"
        taken = f"{counted(len(unfinished), 'network')}, with batches of {sizes}, did not take all steps"
        sentences.append(f"{taken} and are reported as they are; {end}.")
    return sentences


def _behind(s: Summary) -> list[str]:
    """Warn if SGD found a network of lower cost than the solver, whose ranks are then not those of the minimum."""
    sentences = []
    for reference in s["references"]:
        losses = [cell["loss"] for cell in s["cells"] if cell["lam"] == reference["lam"] and cell["loss"] is not None]
        if losses and min(losses) < (1.0 - 1e-3) * reference["cost"]:  # ten times the gap at which it stops
            sentences.append(
                f"SGD reached {min(losses):.7g} for lam {reference['lam']:g}, below the solver's"
                f" {reference['cost']:.7g}: give the solver more time (--reference) before you compare ranks with"
                " those of its network."
            )
    return sentences


def _name(s: Summary, cell: Summary) -> str:
    """Name a setting, as the first words of a sentence."""
    more = "".join(f", {HEADS[name]} {cell[name]:g}" for name in _varied(s) if name != "batch_size")
    return f"Networks with batches of {cell['batch_size']}{more}"


def _varied(s: Summary) -> list[str]:
    """Return the options in which the settings differ."""
    return [name for name in SETTING if len({cell[name] for cell in s["cells"]}) > 1]


def _part(value: float) -> str:
    """Return a share in per cent, or in powers of ten if it is small."""
    if value < 1e-3:
        return f"{value:.1e}"
    return f"{100.0 * value:.0f} %" if value >= 0.1 else f"{100.0 * value:.2g} %"


def pairs(s: Summary, settings: bool = True) -> Pairs:
    """Return labels and texts of a `ranks`; `settings`: with a line for each setting."""
    lines = [("problem", title(s)), ("trained", trained(s))]
    for cells in groups(s) if settings else []:
        size = cells[0]["batch_size"]
        lines.append(("network" if size is None else f"batch {size}", _ranks(s, cells)))
    lines += [("solver", _reference(reference, f"{s['tolerance'][0]:g}")) for reference in s["references"]]
    lines += [("no solver", f"lam {refusal['lam']:g}: {refusal['reason']}") for refusal in s["refused"]]
    lines += [("finding", sentence) for sentence in findings(s)]
    return [*lines, ("status", ended(s)), ("time", f"{s['seconds']:.3g} s")]


def trained(s: Summary) -> str:
    """Describe the length of the training, and the number of networks."""
    if s["until"] is None:
        return "elsewhere"
    ((name, value),) = s["until"].items()
    until = {
        "kept": f"until {value:g} of the initial weights remains",
        "epochs": f"for {value:g} epochs",
        "steps": f"for {value} steps",
    }[name]
    tolerances = listed(f"{tolerance:g}" for tolerance in s["tolerance"])
    kind = KINDS[s["architecture"]]
    falls = len(s["cells"][0]["milestones"])
    schedule = f", the rate times {s['cells'][0]['gamma']:g} at {counted(falls, 'milestone')}" if falls else ""
    return f"{counted(len(s['cells']), f'{kind}network')} by SGD, {until}{schedule}; ranks at tolerance {tolerances}"


def ended(s: Summary) -> str:
    """Describe the end of the training."""
    if s["status"] == "converged":
        return "all steps are done"
    return STATUSES[s["status"]][0].partition(";")[0]


def _ranks(s: Summary, cells: Sequence[Summary]) -> str:
    audited, name = [cell for cell in cells if cell["layers"]], f"{s['tolerance'][0]:g}"
    if not audited:
        return "diverged"
    ranks = []
    for layers in zip(*(cell["layers"] for cell in audited), strict=True):
        start = _mean([(layer["predicted"] or {}).get(name) for layer in layers])
        rank = f"W{layers[0]['layer']} {_short(_mean([layer['rank'][name] for layer in layers]))}"
        ranks.append(rank if start is None else f"{rank} ({_short(start)} of the initialisation)")
    first, retained = cells[0], audited[0]["kept"]
    more = "".join(f"{HEADS[name]} {first[name]:g}, " for name in _varied(s) if name != "batch_size")
    share = "" if retained is None else f"retained {retained:.2g}: "
    return f"{more}{share}rank {', '.join(ranks)}"


def _reference(reference: Summary, name: str) -> str:
    ranks = ", ".join(f"W{layer['layer']} {layer['rank'][name]}" for layer in reference["layers"])
    return f"cost {reference['cost']:.7g} for lam {reference['lam']:g}: rank {ranks}"


def of_layer(
    layer: Summary,
    tolerance: str,
    *,
    batch_size: int | None = None,
    retained: float | None = None,
    reference: int | None = None,
) -> str:
    """Return the verdict on one weight matrix, from `LayerRanks.summary()` and a key of its rank.

    The batch size, the retained fraction of the initial weights and the rank of the same matrix in the solver's network
    are None if they are unknown.
    """
    sentences = [
        of_start(layer, tolerance, retained),
        "" if retained == 1.0 else of_window(layer, batch_size),
        of_noise(layer, batch_size),
        of_theorem(layer, batch_size),
        against(layer["rank"][tolerance], reference),
        f"{layer['dead']} of {counted(layer['shape'][0], 'neuron')} are dead." if layer["dead"] else "",
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def is_of_start(layer: Summary, tolerance: str) -> bool:
    """Return True if the decayed initial weights alone have this rank, up to a tenth of it."""
    rank = layer["rank"][tolerance]
    return layer["predicted"] is not None and abs(layer["predicted"][tolerance] - rank) <= 0.1 * rank


def of_start(layer: Summary, tolerance: str, retained: float | None) -> str:
    """Describe whether the rank comes from what remains of the initial weights."""
    rank = layer["rank"][tolerance]
    if rank == 0:
        return "The weights have vanished: the rank is 0."
    if retained == 1.0:
        return f"Rank {rank}. Without decay the initial weights never fade."
    if layer["predicted"] is None:
        return ""
    start = layer["predicted"][tolerance]
    if is_of_start(layer, tolerance):
        return f"Rank {rank}, from the initialisation: what remains of it alone has rank {start}."
    if start < 0.5 * rank:
        return f"Rank {rank}, learned: what remains of the initialisation alone has rank {start}."
    if start < rank:
        return f"Rank {rank}, in part from the initialisation: what remains of it alone has rank {start}."
    return f"Rank {rank}, below that of what remains of the initialisation alone, {start}."


def of_window(layer: Summary, batch_size: int | None) -> str:
    """Describe the proved bound on the rank."""
    if batch_size is None:
        return ""
    width = min(layer["shape"])
    if layer["window"] is None:
        return "No bound on the rank: it needs SGD with weight decay (not Adam, AdamW or lam = 0)."
    steps, bound = layer["window"]["steps"], layer["window"]["bound"]
    if bound is None:
        return f"No bound on the rank below {width}: the last {counted(steps, 'step')} still count."
    return f"Proved: the rank is at most {bound}, as steps before the last {steps} have faded."


def of_noise(layer: Summary, batch_size: int | None) -> str:
    """Describe whether the layer can be at rest."""
    noise = layer["noise"]
    if noise is None or batch_size is None or not (noise["floor"] or 0.0) > 0.0 or noise["rms"] is None:
        return ""
    return (
        f"SGD noise keeps it moving: a batch of {batch_size} changes it {noise['rms']:.2g} times as much as the decay"
        f" does (root mean square; proved: at least {down(noise['floor'], 2)} times)."
    )


def of_theorem(layer: Summary, batch_size: int | None) -> str:
    """Describe the bound from one batch, if it is below |W|: others hold for every matrix."""
    chain = layer["batch_bound"]
    if chain is None or chain["theorem"] is None or batch_size is None:
        return ""
    theorem = up(chain["theorem"], 3)
    if chain["theorem"] >= 1.0:
        return f"Bound (10) of [GP22] is void here: {theorem} |W|."
    return (
        f"By [GP22, (10)] it is within {theorem} |W| of rank {batch_size}; the true distance is {chain['tail']:.3g}"
        " |W|."
    )


def against(rank: int, reference: int | None) -> str:
    """Compare the rank with that of the solver's network."""
    if reference is None:
        return ""
    if rank == reference:
        return "The solver's network has the same rank."
    return f"The solver's network has rank {reference}."
