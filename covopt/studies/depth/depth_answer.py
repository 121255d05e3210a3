"""The answer of `depth`: the curve with its bounds, the families, the limit; storing it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
from torch import Tensor
from torch.linalg import svdvals

from covopt import __version__
from covopt.answer.result import Result
from covopt.certify.rank_one import RankOne
from covopt.data.data import Dataset
from covopt.linalg.psd import RANK_RULE
from covopt.model.bottleneck import LayerShape, bottleneck, layer_shapes
from covopt.model.weights import preactivations
from covopt.records import record
from covopt.records.answer import UNDRAWN, Drawn, Table, Words
from covopt.records.directories import Writer, spare
from covopt.records.numerals import row_of
from covopt.runtime.errors import ProblemError, listed, shown
from covopt.runtime.lazy import LazyModule, lazy
from covopt.runtime.loop import Status
from covopt.studies.depth import words as depth_words
from covopt.studies.depth.depth_limit import Expansion, Limit, expansions, limit_of
from covopt.studies.depth.depth_search import Member


@dataclass(frozen=True)
class Point:
    """One depth of the curve."""

    result: Result  # the network of lowest cost, with the bound and its certificate
    source: str  # the origin of the network
    slope: float | None  # the change of the cost per layer since the depth before; divided by lam with a penalty
    identity: float | None  # cost of the network one depth before with identity layers; the minimum here is no higher
    shapes: list[LayerShape]  # the shape of each hidden layer

    @property
    def depth(self) -> int:
        """The depth L."""
        return self.result.problem.depth

    @property
    def cost(self) -> float:
        """The cost of the network; NaN if none was found that fits."""
        return self.result.cost

    @property
    def layer(self) -> int:
        """The bottleneck, counted from 1."""
        return bottleneck(self.shapes)

    @property
    def narrowest(self) -> LayerShape:
        """The bottleneck's dimensions."""
        return self.shapes[self.layer - 1]

    def summary(self) -> dict[str, object]:
        """Return the entries for JSON."""
        has_cost = math.isfinite(self.cost)
        return {
            "depth": self.depth,
            "cost": record.known(self.cost),
            "lower": record.known(self.result.lower),
            "certificate": str(self.result.certificate),
            "per_layer": self.result.norm / self.depth if has_cost else None,
            "slope": self.slope,
            "identity": record.known(self.identity),
            "dimension": self.narrowest.dimension if has_cost else None,
            "affine_dimension": self.narrowest.affine_dimension if has_cost else None,
            "bottleneck": self.layer if has_cost else None,
            "nonlinearity": [shape.nonlinearity for shape in self.shapes] if has_cost else None,
            "source": self.source,
        }


@dataclass(frozen=True)
class Family:
    """The networks of lowest cost found with a hidden layer of at most `rank` neurons."""

    rank: int  # k
    members: dict[int, Member]  # the members by their depths

    @property
    def curve(self) -> list[tuple[int, float]]:
        """The pairs (L, lowest cost found)."""
        return [(depth, self.members[depth].cost) for depth in sorted(self.members)]

    def summary(self) -> dict[str, object]:
        """Return the entries for JSON."""
        return {"rank": self.rank, "curve": [{"depth": d, "cost": c} for d, c in self.curve]}


@dataclass(frozen=True, repr=False)
class Depths(Drawn):
    """The effect of depth on cost, bounds and dimensions.

    Attributes:
        results: by depth, ascending: the network of lowest cost found, with the bound.
        sources: the origin of each network.
        families: by rank, ascending.
        refused: depths at which no network fits, with the reason.
        path: the evidence on networks that pass one dimension; None with a penalty.
        status: the end of the search.
        seconds: the time of everything.
    """

    file: ClassVar[str] = "depth.json"
    words: ClassVar[Words] = depth_words
    figures: ClassVar[LazyModule] = lazy("covopt.studies.depth.figure")

    results: dict[int, Result]
    sources: dict[int, str]
    families: list[Family]
    refused: dict[int, str]
    path: RankOne | None
    status: Status
    seconds: float

    @property
    def depths(self) -> list[int]:
        """The depths that have a network."""
        return list(self.results)

    @cached_property
    def curve(self) -> list[Point]:
        """The points of the curve, one for each depth."""
        points: list[Point] = []
        for depth, result in self.results.items():
            before = points[-1].result if points else None
            slope = identity = None
            if before is not None and math.isfinite(before.cost) and math.isfinite(result.cost):
                layers, lam = depth - before.problem.depth, result.problem.lam
                slope = (result.cost - before.cost) / layers / lam
                identity = before.cost + layers * lam * _least_rank(before)
            shapes = layer_shapes(result.problem.double(), [W.double() for W in result.weights])
            points.append(Point(result, self.sources[depth], slope, identity, shapes))
        return points

    @cached_property
    def limit(self) -> Limit | None:
        """The proved limits at large depth; None with a penalty."""
        problems = {depth: result.problem.double() for depth, result in self.results.items()}
        networks = [(problems[d], r.weights) for d, r in self.results.items()]
        networks += [(problems[d], m.weights) for f in self.families for d, m in f.members.items()]
        return limit_of(problems[max(problems)], networks)

    @cached_property
    def fit(self) -> list[Expansion]:
        """R(L) = R0 L + R1 + R2 / L + ... on ranges of one dimension; empty with a penalty."""
        if self.limit is None:
            return []
        points = [point for point in self.curve if math.isfinite(point.cost)]
        proved = (self.limit.low, self.limit.high)
        depths, costs = [p.depth for p in points], [p.cost for p in points]
        dimensions = [p.narrowest.dimension for p in points]
        return expansions(depths, costs, dimensions, [_spread(p.result) for p in points], proved)

    @property
    def from_depth(self) -> int | None:
        """The first depth above all those that exclude rank 1; None if the last depth excludes it.

        A depth excludes rank 1 if its proved cost there exceeds the best known one. Only depths of the curve count.
        """
        if self.path is None:
            return None
        excluded = [L for L, r in self.results.items() if self.path.bound(L) > r.cost]
        return min((L for L in self.results if not excluded or max(excluded) < L), default=None)

    def network(self, depth: int) -> list[Tensor]:
        """Return W_1 ... W_L of the network of lowest cost found at this depth.

        Raises:
            ProblemError: there is no such network.
        """
        if depth not in self.results or not math.isfinite(self.results[depth].cost):
            raise ProblemError(f"No network of depth {shown(depth)} was found; ask for one of {listed(self.depths)}.")
        return self.results[depth].weights

    def summary(self) -> dict[str, object]:
        """Return the JSON of `covopt depth`; unknown or unproved values are None."""
        question = next(iter(self.results.values())).summary()
        keys = ("bias", "loss", "lam", "activation", "data", "scale", "targets", "shuffle", "rows", "weighted")
        return {
            "curve": [point.summary() for point in self.curve],
            "families": [family.summary() for family in self.families],
            "limit": None if self.limit is None else self.limit.summary(),
            "fit": [expansion.summary() for expansion in self.fit],
            "rank_one": self._rank_one(),
            "refused": [{"depth": depth, "reason": reason} for depth, reason in self.refused.items()],
            "status": str(self.status),
            "seconds": self.seconds,
            **{key: question[key] for key in keys},
            "seed": min(result.seed for result in self.results.values()),  # later solves of a depth take the next ones
            "version": __version__,
        }

    def _rank_one(self) -> dict[str, object] | None:
        path = self.path
        if path is None:
            return None
        return {
            "tsp": [path.lower, path.upper],
            "diameter": path.diameter,
            "rows": path.rows,
            "lower": {str(L): record.known(path.bound(L)) for L in self.results},
            "kernel": {str(L): self._curvature(path.bound(L) / L, L) for L in self.results},
            "from_depth": self.from_depth,
        }

    def _curvature(self, root: float, depth: int) -> float | None:
        """Return L r^(2 - 2/L) for root = r^(2/L); None for leaky ReLU, and beyond float64 (MATH.md section 8)."""
        if not 0.0 < root < math.inf or self.results[depth].problem.activation.slope not in (0.0, 1.0):
            return None
        log = math.log(depth) + (depth - 1) * math.log(root)
        return math.exp(log) if log < 700.0 else None

    def describe_data(self, data: Dataset) -> None:
        """Take over the description of a data set: name, scale, targets, shuffled rows."""
        for result in self.results.values():
            result.describe_data(data)

    def overview(self) -> tuple[record.Pairs, Table]:
        """Return the answer without a line for each depth, and the curve as a table."""
        return depth_words.pairs(self.summary(), curve=False), (depth_words.COLUMNS, self.rows())

    def rows(self) -> list[tuple[object, ...]]:
        """Return the curve as a table; see `words.COLUMNS`."""
        return [row_of(point.summary(), depth_words.KEYS) for point in self.curve]

    def files(self) -> dict[str, Writer]:
        """Return the writers of the files beside depth.json.

        They are curve.csv, networks.npz (d5_W1 is W_1 at depth 5, k1_d5_W1 the same for the family of rank 1),
        spectra.npz, rank_one.npz, figure.png, the last depth's run, `solution`, and the runs of the other depths, such
        as `depths/5`.
        """
        *earlier, last = self.results
        path = self.path
        evidence = {} if path is None else {"multipliers": path.multipliers, "order": path.order}
        return {
            "curve.csv": record.table(lambda: curve_lines(self.summary())),
            "networks.npz": record.archive(self.networks),
            "spectra.npz": record.archive(self.spectra),
            "rank_one.npz": record.archive(lambda: evidence),
            "figure.png": spare(self.draw),
            record.SOLUTION: self.results[last].save,
            **{f"depths/{depth}": partial(self.results[depth].save, others=UNDRAWN) for depth in earlier},
        }

    def spectra(self) -> dict[str, np.ndarray]:
        """Return the singular values of each A_l and Z_l: `d5_A1`, `d5_Z1`."""
        arrays: dict[str, np.ndarray] = {}
        for depth, result in self.results.items():
            weights, problem = [W.double() for W in result.weights], result.problem.double()
            for layer, (W, Z) in enumerate(zip(weights, preactivations(problem, weights), strict=True), start=1):
                arrays[f"d{depth}_A{layer}"] = svdvals(W[:, :-1]).cpu().numpy()
                arrays[f"d{depth}_Z{layer}"] = svdvals(Z).cpu().numpy()
        return arrays

    def networks(self) -> dict[str, np.ndarray]:
        """Return all weights: `d5_W1` is W_1 at depth 5, `k1_d5_W1` that of the family of rank 1."""
        networks = {f"d{depth}": result.weights for depth, result in self.results.items()}
        for family in self.families:
            networks |= {f"k{family.rank}_d{depth}": m.weights for depth, m in family.members.items()}
        return record.layers_of(networks)


def curve_lines(summary: record.Summary) -> list[list[object]]:
    """Return the table of curve.csv."""
    names = [name for name in summary["curve"][0] if name not in ("nonlinearity", "identity")]
    return [list(names), *([point[name] for name in names] for point in summary["curve"])]


def _least_rank(result: Result) -> float:
    """Return the smallest rank of a representation that the activation leaves as it is; infinite if it changes all."""
    problem, weights = result.problem.double(), [W.double() for W in result.weights]
    *hidden, outputs = preactivations(problem, weights)
    representations = [problem.X, *(problem.activation(Z) for Z in hidden), outputs]
    unchanged = [S for S in representations if problem.activation.is_linear or bool((S >= 0.0).all())]
    return min((float(RANK_RULE.keeps(svdvals(S)).sum()) for S in unchanged), default=math.inf)


def _spread(result: Result) -> float:
    """Return how far the best start lies below the second best; 0 at a proved minimum."""
    starts = sorted(cost for cost in result.starts if math.isfinite(cost))
    return 0.0 if result.status is Status.OPTIMAL or len(starts) < 2 else starts[1] - starts[0]
