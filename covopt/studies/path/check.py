"""A stored path as the answer that it is, and what its files say held against what follows from them.

Each point's dual point, with what proves its maximum, is in certificates.npz: from these the bounds at every lam
follow, between the points too, and from the networks the costs. Nothing in the summary is believed.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path as File
from typing import Any

from numpy.typing import NDArray

from covopt.answer import questions
from covopt.answer.stated import alike, weights_of
from covopt.answer.stored import load as load_run
from covopt.certify.proofs import read_proof
from covopt.data.arrays import read_npz
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import check_network, evaluate
from covopt.records import record
from covopt.runtime.loop import Certificate, Status
from covopt.studies.path.folds import HeldOut
from covopt.studies.path.lam_max import LamMax
from covopt.studies.path.path_answer import FILE, Path
from covopt.studies.path.path_search import Point, at

Summary = Mapping[str, Any]

# Entries of the summary that nothing in the files tells.
NEVER = ("lam_max", "status", "seconds", "seed", "version", "data", "scale", "targets", "shuffle")
OPTIONS = {"loss": "U", "depth": "iu", "bias": "fiuU", "activation": "U"}


def unchecked(s: Summary) -> tuple[str, ...]:
    """What nothing in the files of this run tells."""
    folds = ("points.test", "picked", "scored_by") if isinstance(s["scored_by"], int) else ()
    return (*NEVER, *folds)


def load(directory: File) -> Path:
    """A path as it was stored; no file in it is trusted.

    Raises:
        RecordError: a run in it is missing or damaged.
        ValueError: other files are.
    """
    told = record.read_object(directory / FILE)
    problem = _problem(read_npz(directory / record.PROBLEM))
    networks, proved = read_npz(directory / "networks.npz"), read_npz(directory / "certificates.npz")
    lams = [float(p["lam"]) for p in told["points"]]  # type: ignore[attr-defined]
    if not lams or sorted(set(lams), reverse=True) != lams or not all(0.0 < lam < math.inf for lam in lams):
        raise ValueError("values of lam that do not fall")
    points = [_point(problem, lam, place, networks, proved) for place, lam in enumerate(lams, start=1)]
    held = read_npz(directory / "test.npz")
    tests = [p["test"] for p in told["points"]]  # type: ignore[attr-defined]
    low, high = told["lam_max"]  # type: ignore[misc]
    return Path(
        problem=problem,
        points=points,
        known=LamMax(None if low is None else float(low), None if high is None else float(high)),
        end=load_run(directory / "end") if told["end"] is not None else None,
        tests=[] if None in tests else [float(test) for test in tests],
        scored_by=_scored(told["scored_by"]),
        held_out=HeldOut.of(held["X"], held["Y"], problem) if held else None,
        status=Status(told["status"]),
        seconds=float(str(told["seconds"])),
        seed=int(str(told["seed"])),
        origin={name: told[name] for name in ("data", "scale", "targets", "shuffle")},
    )


def complaints(directory: File, stated: Summary, rounding: float) -> Iterator[str]:
    """Sentences on what path.json and the other files say that does not follow from the networks and the proofs."""
    found = load(directory)
    for place, point in enumerate(found.points, start=1):
        if point.lower is not None and not _is_proved(found.problem, point, rounding):
            yield f"The stored certificate of point {place} does not prove the bound {point.lower:.12g} that it states."
            return
    if found.end is not None:
        of_end = {"the path": found.problem, "end": found.end.problem}
        yield from questions.others(of_end, {"loss", "lam"})
    summary = found.summary()
    if stated.keys() - {record.KIND, "files"} != summary.keys():
        yield f"{FILE} does not hold what covopt stores in it."
        return
    for name in ("points", "end", "depth", "bias", "skip", "loss", "activation", "rows", "picked"):
        if not alike(stated[name], summary[name], rounding):
            yield f"{FILE} states other {name} than its networks and proofs give."
    gap, proved = stated["largest_gap"], found.largest_gap
    if (gap is None) != (proved is None) or (gap is not None and proved is not None and not proved <= gap + rounding):
        yield f"{FILE} states a largest gap that its networks and proofs do not prove."
    elif gap is not None and proved is not None and not abs(gap - proved) <= rounding:
        yield f"{FILE} states another largest gap than its networks and proofs give."
    low, high = stated["lam_max"]
    if low is not None and high is not None and not 0.0 <= low <= high:
        yield f"{FILE} states ends of lam_max that are the wrong way round."
    if found.held_out is not None:
        scores = [found.held_out.score(at(found.problem, p.lam), p.weights) for p in found.points]
        if stated["scored_by"] != "test" or not alike([p["test"] for p in stated["points"]], scores, rounding):
            yield f"{FILE} states other losses on the held-out data than its networks have."
    elif stated["scored_by"] == "test":
        yield f"{FILE} states losses on held-out data, which are not there."
    yield from _curve(directory, stated)


def _curve(directory: File, stated: Summary) -> Iterator[str]:
    with (directory / "curve.csv").open(newline="", encoding="utf-8") as stream:
        lines = list(csv.DictReader(stream))
    told = [{name: "" if value is None else str(value) for name, value in p.items()} for p in stated["points"]]
    if lines != told:
        yield f"curve.csv and {FILE} state different points."


def _is_proved(problem: Problem, point: Point, rounding: float) -> bool:
    """True if the point's stored arrays prove its bound, and the maximum of h at its dual point, or better ones."""
    lower = point.lower or 0.0
    if point.proof is None or not (math.isfinite(lower) and lower > 0.0):
        return False
    return point.proof.holds(at(problem, point.lam), lower, rounding)


def _point(
    problem: Problem, lam: float, place: int, networks: Mapping[str, NDArray], proved: Mapping[str, NDArray]
) -> Point:
    own = {name: array for key, array in networks.items() if (name := _of(key, place))}
    weights = weights_of(own)
    question = at(problem, lam)
    check_network(question, weights)
    certificate = {name: array for key, array in proved.items() if (name := _of(key, place))}
    point = Point(lam, weights, evaluate(question, weights), None, Certificate.NONE)
    if not certificate:
        return point
    kind = Certificate(certificate["certificate"].item())
    lower = float(certificate["lower"].item())
    return replace(point, lower=lower, certificate=kind, proof=read_proof(kind, problem.free, lower, certificate))


def _of(key: str, place: int) -> str:
    """The name of an array behind `p7_`; empty where it is another point's."""
    found = re.fullmatch(rf"p{place}_(\w+)", key)
    return found[1] if found else ""


def _problem(arrays: Mapping[str, NDArray]) -> Problem:
    for name, kind in OPTIONS.items():
        if arrays[name].size != 1 or arrays[name].dtype.kind not in kind:
            raise ValueError(f"problem.npz holds no {name}")
    options = {name: arrays[name].item() for name in OPTIONS}
    options["skip"] = "skip" in arrays and arrays["skip"].item() is True
    return make_problem(arrays["X"], arrays["Y"], lam=1.0, **options, free=True).double()


def _scored(value: object) -> str | int | None:
    if value is None or value == "test" or (isinstance(value, int) and not isinstance(value, bool)):
        return value  # type: ignore[return-value]
    raise ValueError("scores of another kind")
