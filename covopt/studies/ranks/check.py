"""Load a stored `ranks`, and check its files against what follows from them.

The networks and their starts are in networks.npz; every rank, bound and loss is recomputed from them. The solver's runs
are checked as solves are. The first and the last record follow from the networks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covopt.answer import check as runs, verify as checks
from covopt.answer.held_out import HeldOut
from covopt.answer.stored import load as load_run
from covopt.answer.verify import weights_of
from covopt.data.arrays import read_npz
from covopt.model.problem import Problem, make_problem
from covopt.records import record
from covopt.records.record import Summary
from covopt.runtime.loop import Status
from covopt.studies.ranks.architectures import architecture_of
from covopt.studies.ranks.rank_answer import COURSES, TABLE, Ranks, lines_of, name_of_start
from covopt.studies.ranks.rank_cells import RankCell, cell_of, reference_of
from covopt.studies.ranks.sgd import Course, Descended, Setting

UNCHECKED = (
    *("status", "seconds", "version", "data", "scale", "targets", "shuffle", "until", "seed", "refused"),
    "that the networks were trained as their settings say",
    "the records between the first and the last, and the distances of steps",
)
"""Entries that nothing in the files proves."""


def load(directory: Path) -> Ranks:
    """Load a stored `ranks`; no file in it is trusted."""
    stated = record.read_object(directory / Ranks.file)
    data = read_npz(directory / record.PROBLEM)
    X, Y = (torch.from_numpy(_numbers(data[name], 2)) for name in ("X", "Y"))
    options = {name: stated[name] for name in ("loss", "depth", "bias", "activation")}
    problem = make_problem(X, Y, lam=1.0, **options).double()
    tolerances, seed = [float(tolerance) for tolerance in stated["tolerance"]], int(stated["seed"])
    arrays, spectra = read_npz(directory / "networks.npz"), read_npz(directory / "spectra.npz")
    architecture = architecture_of(stated["architecture"])
    test = None if stated["test_rows"] is None else HeldOut.of((data["X_test"], data["Y_test"]), problem)
    audit = {"architecture": architecture, "test": test, "tolerances": tolerances, "seed": seed}
    references = {}
    for reference in stated["references"]:
        result = load_run(directory / _name_of_run(reference))
        references[float(reference["lam"])] = reference_of(problem, result, tolerances)
    cells = [_cell(problem, cell, place, arrays, spectra, audit) for place, cell in enumerate(stated["cells"], start=1)]
    return Ranks(
        problem=problem,
        cells=cells,
        references=references,
        tolerances=tolerances,
        until=None if stated["until"] is None else dict(stated["until"]),
        status=Status(stated["status"]),
        seconds=float(stated["seconds"]),
        seed=seed,
        **{name: stated.get(name) for name in ("data", "scale", "targets", "shuffle")},
        refused={float(refusal["lam"]): str(refusal["reason"]) for refusal in stated["refused"]},
        architecture=architecture,
        test=test,
    )


def verify(directory: Path, s: Summary, rounding: float) -> checks.Verification:
    """Check the solver's runs in it as solves, and the rest against the stored networks."""
    solves = runs.inside(directory, [_name_of_run(reference) for reference in s["references"]], rounding)
    again = "The ranks, bounds and losses are those of the stored networks"
    return checks.of_study(directory, Ranks.file, s, solves, _complaints(directory, s, rounding), UNCHECKED, again)


def _complaints(directory: Path, stated: Summary, rounding: float) -> Iterator[str]:
    """Yield a sentence for each statement in the files that the networks contradict."""
    answer = load(directory)
    yield from checks.differences(Ranks.file, stated, answer.summary(), rounding)
    yield from checks.arrays(directory / "networks.npz", answer.networks())
    for lam, reference in answer.references.items():
        question = replace(answer.problem, lam=lam)
        yield from checks.others({"the networks": question, f"for lam {lam:g}": reference.result.problem})
        costs = {f"network {k}": cell.cost.total for k, cell in enumerate(answer.cells, 1) if cell.setting.lam == lam}
        yield from checks.crossed(costs, {f"the solver for lam {lam:g}": reference.result.lower}, rounding)
    for place, cell in enumerate(answer.cells, start=1):
        if not _records_fit(cell):
            yield f"spectra.npz holds other singular values than network {place} has."
    yield from checks.table(directory / TABLE, lines_of(stated), Ranks.file)


def _name_of_run(reference: Summary) -> str:
    name = str(reference["run"])
    folder, _, number = name.partition("/")
    if folder != "references" or not (number.isascii() and number.isdigit()):
        raise ValueError("a solver's run elsewhere")
    return name


def _cell(
    problem: Problem,
    stated: Summary,
    place: int,
    arrays: Mapping[str, NDArray],
    spectra: Mapping[str, NDArray],
    audit: dict[str, Any],
) -> RankCell:
    setting = Setting(
        lam=float(stated["lam"]),
        batch_size=stated["batch_size"],
        rate=stated["rate"],
        momentum=float(stated["momentum"]),
        nesterov=stated["nesterov"],
        steps=stated["asked"],
        seed=stated["seed"],
        milestones=tuple(int(step) for step in stated["milestones"]),
        gamma=float(stated["gamma"]),
    )
    if setting.nesterov and setting.momentum == 0.0:
        raise ValueError("Nesterov's momentum without a momentum")
    if setting.gamma != 1.0 and not setting.milestones:
        raise ValueError("a factor of the rate without milestones")
    weights, start = _network(arrays, f"c{place}"), _network(arrays, name_of_start(setting))
    network = Descended(weights, setting.steps)
    if f"c{place}_steps" in spectra:
        course = _course(spectra, place, len(weights), audit["test"] is not None)
        network = Descended(weights, int(stated["steps"]), stated["diverged"] is True, course)
    return cell_of(problem, setting, network, start or None, **audit)


def _network(arrays: Mapping[str, NDArray], name: str) -> list[Tensor]:
    """Return W_1 ... W_L of a network, such as `c1`."""
    weights = weights_of(arrays, f"{name}_")
    if not all(bool(torch.isfinite(W).all()) for W in weights):
        raise ValueError("a network in networks.npz that is not finite")
    return weights


def _course(spectra: Mapping[str, NDArray], place: int, layers: int, tested: bool) -> Course:
    """Return the records of a network."""
    steps = spectra[f"c{place}_steps"]
    if steps.dtype.kind != "i" or steps.ndim != 1 or not len(steps) or (np.diff(steps) <= 0).any():
        raise ValueError("steps in spectra.npz that are none")
    values = [_numbers(spectra[f"c{place}_W{layer}"], 2) for layer in range(1, layers + 1)]
    columns = [_numbers(spectra[f"c{place}_{name}"], 1) for name in COURSES[: None if tested else -1]]
    if any(len(column) != len(steps) for column in (*values, *columns)):
        raise ValueError("a record in spectra.npz without a step")
    rows = [[torch.from_numpy(column[k]) for column in values] for k in range(len(steps))]
    return Course(steps.tolist(), *(column.tolist() for column in columns), spectra=rows)


def _numbers(array: NDArray, dimensions: int) -> NDArray:
    if array.dtype.kind != "f" or array.ndim != dimensions:
        raise ValueError("an array of another kind")
    return array


def _records_fit(cell: RankCell) -> bool:
    """Return True if the first record is of the start, and the last of the network."""
    course = cell.course
    if course is None:
        return True
    pairs = [] if cell.start is None else [(course.spectra[0], cell.start)]
    if cell.steps == course.steps[-1]:
        pairs.append((course.spectra[-1], cell.weights))
    for spectra, weights in pairs:
        for values, W in zip(spectra, weights, strict=True):
            exact = torch.linalg.svdvals(W.cpu())
            if values.shape != exact.shape or not torch.allclose(values, exact, rtol=1e-9, atol=1e-9 * float(W.norm())):
                return False
    return course.steps[0] == 0
