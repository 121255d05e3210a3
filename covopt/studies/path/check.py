"""Load a stored path, and check its files against what follows from them.

Each point's dual point is in certificates.npz, with the proof of its maximum. The bounds at every lam follow from
these, between the points too, and the costs from the networks. Nothing in the summary is trusted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path as File
from types import NoneType

from numpy.typing import NDArray

from covopt.answer import check as runs, verify as checks
from covopt.answer.held_out import HeldOut
from covopt.answer.stored import load as load_run, problem_of
from covopt.answer.verify import different, weights_of
from covopt.certify.proofs import read_proof
from covopt.data.arrays import read_npz
from covopt.model.problem import Problem
from covopt.model.weights import check_network, evaluate
from covopt.records import record
from covopt.records.record import Summary
from covopt.runtime.loop import Certificate, Status
from covopt.studies.path.lam_max import LamMax
from covopt.studies.path.path_answer import Path, curve_lines
from covopt.studies.path.path_search import Point, at

# Entries of the summary that nothing in the files proves.
NEVER = ("lam_max", "status", "seconds", "seed", "version", "data", "scale", "targets", "shuffle")


def load(directory: File) -> Path:
    """Load a stored path; no file in it is trusted."""
    stated = record.read_object(directory / Path.file)
    problem = replace(problem_of(read_npz(directory / record.PROBLEM)).double(), lam=1.0)
    networks, proved = read_npz(directory / "networks.npz"), read_npz(directory / "certificates.npz")
    lams = [float(p["lam"]) for p in stated["points"]]
    if not lams or sorted(set(lams), reverse=True) != lams or not all(0.0 < lam < math.inf for lam in lams):
        raise ValueError("values of lam that do not fall")
    points = [_point(problem, lam, place, networks, proved) for place, lam in enumerate(lams, start=1)]
    if not record.has_form(stated["scored_by"], (NoneType, int, {"test"})):
        raise ValueError("scores of another kind")
    held = read_npz(directory / "test.npz")
    tests = [p["test"] for p in stated["points"]]
    low, high = stated["lam_max"]
    end = load_run(directory / "end") if stated["end"] is not None else None
    if end is not None and not end.problem.allows(end.residual):
        end.cost = math.nan
    return Path(
        problem=problem,
        points=points,
        known=LamMax(None if low is None else float(low), None if high is None else float(high)),
        end=end,
        tests=[] if None in tests else [float(test) for test in tests],
        scored_by=stated["scored_by"],
        held_out=HeldOut.of((held["X"], held["Y"]), problem) if held else None,
        status=Status(stated["status"]),
        seconds=float(stated["seconds"]),
        seed=int(stated["seed"]),
        origin={name: stated[name] for name in ("data", "scale", "targets", "shuffle")},
    )


def verify(directory: File, s: Summary, rounding: float) -> checks.Verification:
    """Check the run `end` in it as a solve, and the rest from the stored points."""
    solves = runs.inside(directory, ["end"], rounding) if s["end"] is not None else {}
    folds = ("points.test", "picked", "scored_by") if isinstance(s["scored_by"], int) else ()
    return checks.of_study(directory, Path.file, s, solves, _complaints(directory, s, rounding), (*NEVER, *folds))


def _complaints(directory: File, stated: Summary, rounding: float) -> Iterator[str]:
    """Yield a sentence for each statement in the files that networks and proofs contradict."""
    answer = load(directory)
    for place, point in enumerate(answer.points, start=1):
        if point.lower is not None and not _is_proved(answer.problem, point, rounding):
            yield f"The stored certificate of point {place} does not prove the bound {point.lower:.12g} that it states."
            return
    if answer.end is not None:
        of_end = {"the path": answer.problem, "end": answer.end.problem}
        yield from checks.others(of_end, {"loss", "lam"})
    yield from checks.differences(Path.file, stated, answer.summary(), rounding)
    low, high = stated["lam_max"]
    if low is not None and high is not None and not 0.0 <= low <= high:
        yield f"{Path.file} states ends of lam_max that are the wrong way round."
    if answer.held_out is not None:
        scores = [answer.held_out.score(at(answer.problem, p.lam), p.weights) for p in answer.points]
        losses = [p["test"] for p in stated["points"]]
        if stated["scored_by"] != "test" or different(losses, scores, rounding) is not None:
            yield f"{Path.file} states other losses on the held-out data than its networks have."
    elif stated["scored_by"] == "test":
        yield f"{Path.file} states losses on held-out data, which are not there."
    yield from checks.table(directory / "curve.csv", curve_lines(stated), Path.file)


def _is_proved(problem: Problem, point: Point, rounding: float) -> bool:
    """Return True if the stored proof holds for the point's bound and the maximum of h."""
    lower = point.lower or 0.0
    if point.proof is None or not (math.isfinite(lower) and lower > 0.0):
        return False
    return point.proof.holds(at(problem, point.lam), lower, rounding)


def _point(
    problem: Problem, lam: float, place: int, networks: Mapping[str, NDArray], proved: Mapping[str, NDArray]
) -> Point:
    question, prefix = at(problem, lam), f"p{place}_"
    weights = weights_of(networks, prefix)
    check_network(question, weights)
    certificate = {key.removeprefix(prefix): array for key, array in proved.items() if key.startswith(prefix)}
    point = Point(lam, weights, evaluate(question, weights), None, Certificate.NONE)
    if not certificate:
        return point
    kind = Certificate(certificate["certificate"].item())
    lower = float(certificate["lower"].item())
    return replace(point, lower=lower, certificate=kind, proof=read_proof(kind, problem, lower, certificate))
