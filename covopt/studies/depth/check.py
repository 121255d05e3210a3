"""Load a stored `depth`, and check its files against what follows from them.

The networks of the curve and their bounds are the runs in it, which are checked as solves are; the families' networks
are in networks.npz. Everything else follows from these: dimensions and slopes, the limit, the fit, and the cost of
networks with a layer of one neuron, from the multipliers and the path in rank_one.npz.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from numpy.typing import NDArray

from covopt.answer import check as runs, verify as checks
from covopt.answer.result import Result
from covopt.answer.stored import load as load_run
from covopt.answer.verify import weights_of
from covopt.certify.rank_one import measured
from covopt.data.arrays import read_npz
from covopt.model.weights import check_network
from covopt.records import record
from covopt.records.record import Summary
from covopt.runtime.errors import RecordError
from covopt.runtime.loop import Status
from covopt.solvers.incumbent import cost_of
from covopt.studies.depth.depth_answer import Depths, Family, curve_lines
from covopt.studies.depth.depth_search import Member

UNCHECKED = "status seconds version seed data scale targets shuffle refused starts curve.source".split()
"""Entries that nothing in the files proves."""


def directories_of(directory: Path) -> dict[int, str]:
    """Return the directory of the run of each depth, ascending."""
    names = {int(str(record.read_summary(directory / record.SOLUTION)["depth"])): record.SOLUTION}
    subdirectory = directory / "depths"
    for path in sorted(subdirectory.iterdir()) if subdirectory.is_dir() else []:
        names[int(path.name)] = f"depths/{path.name}"
    return dict(sorted(names.items()))


def load(directory: Path) -> Depths:
    """Load a stored `depth`; no file in it is trusted."""
    stated = record.read_object(directory / Depths.file)
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
    if results[last].problem.stated_lam is None:
        path = measured(results[last].problem.double(), evidence["multipliers"], evidence["order"])
    return Depths(
        results=results,
        sources={int(p["depth"]): str(p["source"]) for p in stated["curve"]},
        families=[_family(family, arrays, results) for family in stated["families"]],
        refused={int(r["depth"]): str(r["reason"]) for r in stated["refused"]},
        path=path,
        status=Status(stated["status"]),
        seconds=float(stated["seconds"]),
    )


def verify(directory: Path, s: Summary, rounding: float) -> checks.Verification:
    """Check the runs in it as solves, and the rest against them."""
    solves = runs.inside(directory, list(directories_of(directory).values()), rounding)
    return checks.of_study(directory, Depths.file, s, solves, _complaints(directory, s, rounding), UNCHECKED)


def _complaints(directory: Path, stated: Summary, rounding: float) -> Iterator[str]:
    """Yield a sentence for each statement in the files that networks and proofs contradict."""
    answer = load(directory)
    yield from checks.others({f"of depth {L}": answer.results[L].problem for L in answer.results}, {"depth"})
    for L, result in answer.results.items():
        costs = {f"the network of rank {f.rank}": f.members[L].cost for f in answer.families if L in f.members}
        yield from checks.crossed(costs, {f"depth {L}": result.lower}, rounding)
    yield from checks.differences(Depths.file, stated, answer.summary(), rounding)
    yield from checks.arrays(directory / "networks.npz", answer.networks())
    ranks = [family.rank for family in answer.families]
    lines = [[line["depth"] for line in family["curve"]] for family in stated["families"]]
    if ranks != sorted(set(ranks)) or not all(depths == sorted(set(depths)) for depths in lines):
        yield f"{Depths.file} lists a family or a depth twice."
    yield from checks.arrays(directory / "spectra.npz", answer.spectra(), 1e-9)
    yield from checks.table(directory / "curve.csv", curve_lines(stated), Depths.file)


def _family(stated: Summary, arrays: Mapping[str, NDArray], results: Mapping[int, Result]) -> Family:
    rank, members = int(stated["rank"]), {}
    for line in stated["curve"]:
        depth = int(line["depth"])
        problem = results[depth].problem.double()
        weights = weights_of(arrays, f"k{rank}_d{depth}_")
        check_network(problem, weights)
        if min(len(W) for W in weights[:-1]) > rank:
            raise ValueError(f"no network of rank {rank}")
        members[depth] = Member(cost_of(problem, weights), weights, "an earlier run")
    return Family(rank, members)
