"""A stored `depth` as the answer that it is, and what its files say held against what follows from them.

The networks of the curve and their bounds are the runs in it, which are checked as solves are; the families' networks
are in networks.npz. All else follows: dimensions and slopes, the limit, the fit, and what networks of one neuron cost,
from the multipliers and the path in rank_one.npz.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from covopt.answer import questions
from covopt.answer.result import Result
from covopt.answer.stated import alike
from covopt.answer.stored import load as load_run
from covopt.certify.rank_one import measured
from covopt.data.arrays import read_npz
from covopt.model.weights import check_network
from covopt.records import record
from covopt.runtime.errors import RecordError
from covopt.runtime.loop import Status
from covopt.studies.depth.depth_answer import FILE, Depths, Family
from covopt.studies.depth.depth_search import Member
from covopt.studies.width.width_search import cost_of

Summary = Mapping[str, Any]

UNCHECKED = (
    *("status", "seconds", "version", "seed", "data", "scale", "refused", "starts"),
    "curve.source",
)
"""What nothing in the files tells."""


def directories_of(directory: Path) -> dict[int, str]:
    """Where the run of each depth lies, ascending.

    Raises:
        ValueError: a directory that is none of a depth.
    """
    told = record.read_summary(directory / record.SOLUTION)
    found = {int(str(told["depth"])): record.SOLUTION}
    others = directory / "depths"
    for path in sorted(others.iterdir()) if others.is_dir() else []:
        found[int(path.name)] = f"depths/{path.name}"
    return dict(sorted(found.items()))


def load(directory: Path) -> Depths:
    """A `depth` as it was stored; no file in it is trusted.

    Raises:
        RecordError: a run in it is missing or damaged.
        ValueError: other files are.
    """
    told = record.read_object(directory / FILE)
    results = {depth: load_run(directory / name) for depth, name in directories_of(directory).items()}
    for depth, result in results.items():
        if result.problem.depth != depth:
            raise RecordError(f"{directory} holds a run of another depth than it says; solve again with --out.")
        if not result.problem.allows(result.residual):
            result.cost = math.nan
    arrays = read_npz(directory / "networks.npz")
    evidence = read_npz(directory / "rank_one.npz")
    last = max(results)
    path = None
    if results[last].problem.interpolates:
        path = measured(results[last].problem.double(), evidence["multipliers"], evidence["order"])
    return Depths(
        results=results,
        sources={int(p["depth"]): str(p["source"]) for p in told["curve"]},  # type: ignore[attr-defined]
        families=[_family(family, arrays, results) for family in told["families"]],  # type: ignore[attr-defined]
        refused={int(r["depth"]): str(r["reason"]) for r in told["refused"]},  # type: ignore[attr-defined]
        path=path,
        status=Status(told["status"]),
        seconds=float(str(told["seconds"])),
    )


def complaints(directory: Path, stated: Summary, rounding: float) -> Iterator[str]:
    """Sentences on what depth.json and the other files say that does not follow from the networks and the proofs."""
    found = load(directory)
    yield from questions.others({f"of depth {L}": found.results[L].problem for L in found.results}, {"depth"})
    for L, result in found.results.items():
        costs = {f"the network of rank {f.rank}": f.members[L].cost for f in found.families if L in f.members}
        yield from questions.crossed(costs, {f"depth {L}": result.lower}, rounding)
    summary = json.loads(record.as_json(found.summary()))
    for name in summary:
        if name != "version" and not alike(stated.get(name, ...), summary[name], rounding):
            yield f"{FILE} states another {name} than its networks and proofs give."
    if stated.keys() - {record.KIND, "files"} != summary.keys():
        yield f"{FILE} does not hold what covopt stores in it."
    arrays, networks = read_npz(directory / "networks.npz"), found.networks()
    if arrays.keys() != networks.keys() or not all(np.array_equal(arrays[name], networks[name]) for name in networks):
        yield f"networks.npz holds other networks than the runs, or than {FILE} lists."
    ranks = [family.rank for family in found.families]
    lines = [[line["depth"] for line in family["curve"]] for family in stated["families"]]
    if ranks != sorted(set(ranks)) or not all(depths == sorted(set(depths)) for depths in lines):
        yield f"{FILE} lists a family or a depth twice."
    spectra, stored = found.spectra(), read_npz(directory / "spectra.npz")
    if spectra.keys() != stored.keys() or not all(_near(stored[n], spectra[n]) for n in spectra):
        yield "spectra.npz holds other singular values than the networks have."
    with (directory / "curve.csv").open(newline="", encoding="utf-8") as stream:
        lines = list(csv.DictReader(stream))
    told = [{k: "" if v is None else str(v) for k, v in p.items() if k != "nonlinearity"} for p in stated["curve"]]
    if lines != told:
        yield f"curve.csv and {FILE} state different curves."


def _family(told: Summary, arrays: Mapping[str, NDArray], results: Mapping[int, Result]) -> Family:
    rank, members = int(told["rank"]), {}
    for line in told["curve"]:
        depth = int(line["depth"])
        problem = results[depth].problem.double()
        pattern = re.compile(rf"k{rank}_d{depth}_W(\d+)")
        own = {int(match[1]): array for name, array in arrays.items() if (match := pattern.fullmatch(name))}
        if any(array.dtype != np.float64 or array.ndim != 2 for array in own.values()):
            raise ValueError("a network in networks.npz that is none")
        weights = [torch.from_numpy(own[layer]) for layer in sorted(own)]
        check_network(problem, weights)
        if min(len(W) for W in weights[:-1]) > rank:
            raise ValueError(f"no network of rank {rank}")
        members[depth] = Member(cost_of(problem, weights), weights, "an earlier run")
    return Family(rank, members)


def _near(stored: NDArray, found: NDArray) -> bool:
    if stored.dtype.kind != "f" or stored.shape != found.shape:
        return False
    return bool(np.allclose(stored, found, rtol=1e-9, atol=1e-9 * float(found.max(initial=1.0))))
