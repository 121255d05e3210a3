"""The answer of `path`: its points, the bounds between them, and the picked lam."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from covopt import __version__
from covopt.answer.held_out import HeldOut
from covopt.answer.result import Result, measure
from covopt.certify import proofs
from covopt.data.data import Dataset
from covopt.model.problem import Problem
from covopt.records import record
from covopt.records.answer import UNDRAWN, Drawn, Table, Words
from covopt.records.directories import Writer, spare
from covopt.runtime.errors import ProblemError
from covopt.runtime.lazy import LazyModule, lazy
from covopt.runtime.loop import Certificate, Status
from covopt.studies.path import words as path_words
from covopt.studies.path.envelope import Envelope
from covopt.studies.path.lam_max import LamMax, beaten
from covopt.studies.path.path_search import Point, at, envelope


@dataclass(frozen=True, repr=False)
class Path(Drawn):
    """The minimum as a function of lam.

    Attributes:
        problem: its own lam is not used.
        points: from the largest lam down.
        known: the interval for lam_max from its oracle or its relaxation; `lam_max` adds the bounds of the points.
        end: the result of `interpolate`, the end of the path at lam = 0, if requested.
        tests: the mean loss on held-out data at each point, by the rule `scored_by`; empty without such data.
        scored_by: "test", or the number of folds; None without held-out data.
        held_out: the data of "test".
        status: converged if a turn along all points gained nothing; optimal if every point is.
        seconds, seed: of the whole search.
        origin: the description of the data set: data, scale, targets, shuffle.
    """

    file: ClassVar[str] = "path.json"
    words: ClassVar[Words] = path_words
    figures: ClassVar[LazyModule] = lazy("covopt.studies.path.figure")

    problem: Problem
    points: list[Point]
    known: LamMax
    end: Result | None = None
    tests: list[float] = field(default_factory=list)
    scored_by: str | int | None = None
    held_out: HeldOut | None = None
    status: Status = Status.CONVERGED
    seconds: float = math.nan
    seed: int = 0
    origin: dict[str, object] = field(default_factory=dict)

    @cached_property
    def envelope(self) -> Envelope:
        """The bounds at every lam, from above and from below (MATH.md section 10)."""
        return envelope(self.problem, self.points)

    @property
    def lams(self) -> list[float]:
        """The lam of the points."""
        return [point.lam for point in self.points]

    @cached_property
    def lam_max(self) -> tuple[float | None, float | None]:
        """The ends of an interval for lam_max; equal if exact.

        lam_max is the smallest lam at which no hidden neurons are needed. For three layers and more without a bias the
        lower end is the largest lam at which a network of the path costs less than the zero network.
        """
        low, high = self.known.lower, self.known.upper
        if self.problem.depth > 2 and not self.problem.beta:
            zero = float(self.problem.loss_at(0.0 * self.problem.Y))
            low = max(low or 0.0, beaten(zero, [point.cost for point in self.points]))
        elif self.problem.depth > 2:
            low = None
        return low, high if low is None or high is None else max(low, high)

    @cached_property
    def largest_gap(self) -> float | None:
        """The largest proved (upper - lower) / upper over the range; None without a bound."""
        if self.points and not any(point.cost.total for point in self.points):
            return 0.0  # no cost is below 0
        if len(self.envelope.lams) < 2 or not self.points:
            return None
        return self.envelope.gap(self.points[-1].lam, self.points[0].lam)[0]

    @property
    def picked(self) -> float | None:
        """The lam of the lowest loss on held-out data; None without such data."""
        return self.points[int(np.argmin(self.tests))].lam if self.tests else None

    def bounds(self, lam: float) -> tuple[float, float]:
        """Return (lower, upper) for the minimum at any lam of the range, between the points too.

        Raises:
            ProblemError: lam is outside the range.
        """
        if not self.points[-1].lam <= lam <= self.points[0].lam:
            raise ProblemError(f"lam is {lam:g}; give one from {self.points[-1].lam:g} to {self.points[0].lam:g}.")
        upper = self.envelope.upper(lam)
        return min(self.envelope.lower(lam), upper), upper

    def result(self, lam: float | None = None) -> Result:
        """Return the result at the point nearest to lam, in its logarithm; by default the picked.

        Raises:
            ProblemError: there is neither a given nor a picked lam.
        """
        wanted = self.picked if lam is None else lam
        if wanted is None or not wanted > 0.0:
            raise ProblemError("Without held-out data no lam is picked; give a lam above 0.")
        point = min(self.points, key=lambda p: abs(math.log(p.lam / wanted)))
        result = Result(at(self.problem, point.lam), "cone", "none", self.seed, weights=point.weights)
        measure(result, point.cost)
        result.status = point.status
        if point.lower is not None:
            result.lower, result.certificate, result.proof = point.lower, point.certificate, point.proof
        for name, value in self.origin.items():
            setattr(result, name, value)
        return result

    def proved(self, point: Point) -> tuple[float | None, Certificate]:
        """Return the best bound at a point (its own, or by its neighbours), and its kind."""
        around = self.envelope.lower(point.lam)
        own = point.lower or 0.0
        lower, kind = (own, point.certificate) if own >= around else (around, None)
        if not lower > 0.0:
            return None, Certificate.NONE
        kind = Certificate(self.envelope.kind(point.lam)) if kind is None else kind
        return proofs.agreed(at(self.problem, point.lam), point.weights, point.cost.total, lower), kind

    def summary(self) -> dict[str, object]:
        """Return the JSON of `covopt path`; unknown or unproved values are None."""
        p = self.problem
        points: list[dict[str, object]] = []
        for place, point in enumerate(self.points):
            lower, certificate = self.proved(point)
            cost, test = point.cost, record.known(self.tests[place]) if self.tests else None
            numbers = {"lam": point.lam, "cost": cost.total, "fit": cost.fit, "norm": cost.norm, "width": point.width}
            points.append({**numbers, "lower": lower, "certificate": str(certificate), "test": test})
        end = self.end
        return {
            "lam_max": [record.known(bound) for bound in self.lam_max],
            "points": points,
            "largest_gap": self.largest_gap,
            "picked": self.picked,
            "scored_by": self.scored_by,
            "end": None
            if end is None
            else {
                "cost": record.known(end.cost),
                "lower": end.lower,
                "certificate": str(end.certificate),
                "width": max(end.widths),
            },
            "status": str(self.status),
            **{name: option for name, option in p.stated().items() if name != "lam"},
            **{name: self.origin.get(name) for name in ("data", "scale", "targets", "shuffle")},
            "rows": p.samples,
            "seconds": self.seconds,
            "seed": self.seed,
            "version": __version__,
        }

    def describe_data(self, data: Dataset) -> None:
        """Take over the description of a data set: name, scale, targets, shuffled rows."""
        self.origin.update(data=data.name, scale=data.scale, targets=data.targets, shuffle=data.shuffle)
        if self.end is not None:
            self.end.describe_data(data)

    def overview(self) -> tuple[record.Pairs, Table]:
        """Return the answer in lines, and its points as a table."""
        return self.describe(), path_words.table(self.summary())

    def files(self) -> dict[str, Writer]:
        """Return the writers of the files beside path.json.

        They are curve.csv, networks.npz (p7_W1 is W_1 at the seventh lam from the top), certificates.npz (p7_Lambda,
        ...), problem.npz, test.npz, figure.png and, with `interpolate`, the run `end`.
        """
        test, end = self.held_out, self.end
        return {
            "curve.csv": record.table(lambda: curve_lines(self.summary())),
            "networks.npz": record.archive(self.networks),
            "certificates.npz": record.archive(self.certificates),
            record.PROBLEM: record.archive(replace(self.problem, lam=1.0).arrays),
            "test.npz": record.archive(lambda: {} if test is None else record.numpy_of(X=test.X, Y=test.Y)),
            "figure.png": spare(self.draw),
            **({} if end is None else {"end": partial(end.save, others=UNDRAWN)}),
        }

    def networks(self) -> dict[str, NDArray]:
        """Return the weights of all points: `p7_W1` is W_1 at the seventh lam from the top."""
        return record.layers_of({f"p{place}": point.weights for place, point in enumerate(self.points, start=1)})

    def certificates(self) -> dict[str, NDArray]:
        """Return the proofs of the points' own bounds: `p7_lower`, `p7_certificate`, `p7_Lambda`."""
        arrays: dict[str, NDArray] = {}
        for place, point in enumerate(self.points, start=1):
            if point.lower is None:
                continue
            own = {"lower": np.array(point.lower), "certificate": np.array(str(point.certificate))}
            own |= {} if point.proof is None else point.proof.arrays()
            arrays |= {f"p{place}_{name}": array for name, array in own.items()}
        return arrays


def curve_lines(summary: record.Summary) -> list[list[object]]:
    """Return the table of curve.csv."""
    points = summary["points"]
    return [list(points[0]), *(list(point.values()) for point in points)]
