"""`depth`: what depth changes for a data set: the least cost found at each depth, and what is proved of it.

* `curve`: at each depth the cheapest network found, the proved bound, and how many dimensions pass its narrowest layer;
* `families`: the same for networks with a hidden layer of at most k neurons;
* `limit`: what the cost becomes at large depth, by a theorem; `fit`: what the curve suggests, which proves nothing;
* `rank_one`: what networks that pass one dimension cost at least.

The search is in depth_search.py and depth_families.py.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from covopt import __version__
from covopt.certify.rank_one import RankOne, rank_one
from covopt.deep.starts import ENDS
from covopt.errors import ProblemError, listed, shown
from covopt.interrupts import gently, interrupted
from covopt.io import record, storing
from covopt.io.data import Dataset
from covopt.io.directories import Writer, spare
from covopt.io.numerals import Lower
from covopt.io.provenance import ORIGIN, write_origin
from covopt.lazy import lazy
from covopt.loop import Budget, Callback, Status
from covopt.model.activation import Activation
from covopt.model.bottleneck import LayerShape, bottleneck, layer_shapes, spectrum
from covopt.model.loss import Loss
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import check_network, preactivations
from covopt.result import Result
from covopt.study.depth_families import FamilySearch
from covopt.study.depth_limit import Limit, limit_of
from covopt.study.depth_search import DepthSearch, Member
from covopt.study.expansion import Expansion, expansions
from covopt.text import depth_words, markup

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from covopt.figures import depths as depth_figures
else:
    depth_figures = lazy("covopt.figures.depths")

FILE = "depth.json"
COLUMNS = ("depth", "cost", "at least", "proved by", "per layer", "slope", "dimension", "affine", "layer", "from")
# Of the time, the end of: the search; the solves of up to four layers; the families; the deeper solves. Without deeper
# ones the families end with these, and the shallow solves where else the families do.
SEARCHING, SHALLOW, BUILT, FAMILIES = 0.92, 0.2, 0.5, 0.7
# Families of these ranks where nobody says which, beside those that the answers of two and three layers show.
RANKS, SHOWING = (1, 2, 3), 2
MOST_SHOWN = 8


@dataclass(frozen=True)
class Point:
    """One depth of the curve.

    Attributes:
        result: the cheapest network found, with the bound and its certificate.
        source: where the network came from.
        slope: the change of the cost for a layer more, since the depth before; over lam with a penalty.
        shapes: of each hidden layer.
    """

    result: Result
    source: str
    slope: float | None
    shapes: list[LayerShape]

    @property
    def depth(self) -> int:
        """L."""
        return self.result.problem.depth

    @property
    def cost(self) -> float:
        """Of the network; NaN where none was found that fits."""
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
        """For JSON."""
        known = math.isfinite(self.cost)
        return {
            "depth": self.depth,
            "cost": record.known(self.cost),
            "lower": record.known(self.result.lower),
            "certificate": str(self.result.certificate),
            "per_layer": self.result.norm / self.depth if known else None,
            "slope": self.slope,
            "dimension": self.narrowest.dimension if known else None,
            "affine_dimension": self.narrowest.affine_dimension if known else None,
            "bottleneck": self.layer if known else None,
            "nonlinearity": [shape.nonlinearity for shape in self.shapes] if known else None,
            "source": self.source,
        }


@dataclass(frozen=True)
class Family:
    """The cheapest networks found with a hidden layer of at most `rank` neurons.

    Attributes:
        rank: k.
        members: by depth.
    """

    rank: int
    members: dict[int, Member]

    @property
    def curve(self) -> list[tuple[int, float]]:
        """(L, the lowest cost found)."""
        return [(depth, self.members[depth].cost) for depth in sorted(self.members)]

    def summary(self) -> dict[str, object]:
        """For JSON."""
        lines = [{"depth": d, "cost": c} for d, c in self.curve]
        return {"rank": self.rank, "curve": lines}


@dataclass(frozen=True)
class Depths:
    """What depth changes.

    Attributes:
        results: by depth, ascending: the cheapest network found with the bound.
        sources: where each came from.
        families: by rank, ascending.
        refused: depths at which no network fits, and why.
        path: the evidence on networks that pass one dimension; None with a penalty.
        status: why the search ended.
        seconds: in all.
    """

    results: dict[int, Result]
    sources: dict[int, str]
    families: list[Family]
    refused: dict[int, str]
    path: RankOne | None
    status: Status
    seconds: float

    @property
    def depths(self) -> list[int]:
        """Those that have a network."""
        return list(self.results)

    @cached_property
    def curve(self) -> list[Point]:
        """A point for each depth."""
        found: list[Point] = []
        for depth, result in self.results.items():
            before = found[-1].result if found else None
            slope = None
            if before is not None and math.isfinite(before.cost) and math.isfinite(result.cost):
                slope = (result.cost - before.cost) / (depth - before.problem.depth) / result.problem.lam
            shapes = layer_shapes(result.problem.double(), [W.double() for W in result.weights])
            found.append(Point(result, self.sources[depth], slope, shapes))
        return found

    @cached_property
    def limit(self) -> Limit | None:
        """What is proved of large depths; None with a penalty."""
        problems = {depth: result.problem.double() for depth, result in self.results.items()}
        networks = [(problems[d], r.weights) for d, r in self.results.items()]
        networks += [(problems[d], m.weights) for f in self.families for d, m in f.members.items()]
        return limit_of(problems[max(problems)], networks)

    @cached_property
    def fit(self) -> list[Expansion]:
        """R(L) = R0 L + R1 + R2 / L + ... on each range of one dimension; empty with a penalty: unproved."""
        if self.limit is None:
            return []
        points = [point for point in self.curve if math.isfinite(point.cost)]
        proved = (self.limit.low, self.limit.high)
        depths, costs = [p.depth for p in points], [p.cost for p in points]
        dimensions = [p.narrowest.dimension for p in points]
        return expansions(depths, costs, dimensions, [_spread(p.result) for p in points], proved)

    @property
    def from_depth(self) -> int | None:
        """The first depth from which on rank 1 is not proved to cost more than the best known; None if it always is.

        Of the depths of the curve alone.
        """
        if self.path is None:
            return None
        excluded = [L for L, r in self.results.items() if self.path.bound(L) > r.cost]
        later = [L for L in self.results if not excluded or max(excluded) < L]
        return min(later, default=None)

    def network(self, depth: int) -> list[Tensor]:
        """W_1 ... W_L of the cheapest network found at this depth.

        Raises:
            ProblemError: there is none.
        """
        if depth not in self.results or not math.isfinite(self.results[depth].cost):
            raise ProblemError(f"No network of depth {shown(depth)} was found; ask for one of {listed(self.depths)}.")
        return self.results[depth].weights

    def summary(self) -> dict[str, object]:
        """The JSON of `covopt depth`; what is unknown or unproved is None."""
        question = next(iter(self.results.values())).summary()
        kept = ("bias", "loss", "lam", "activation", "data", "scale", "rows")
        return {
            "curve": [point.summary() for point in self.curve],
            "families": [family.summary() for family in self.families],
            "limit": None if self.limit is None else self.limit.summary(),
            "fit": [each.summary() for each in self.fit],
            "rank_one": self._rank_one(),
            "refused": [{"depth": depth, "reason": reason} for depth, reason in self.refused.items()],
            "status": str(self.status),
            "seconds": self.seconds,
            **{key: question[key] for key in kept},
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
            "from_depth": self.from_depth,
        }

    def describe_data(self, data: Dataset) -> None:
        """Take over what a data set tells of itself."""
        for result in self.results.values():
            result.describe_data(data)

    def describe(self, *, curve: bool = True) -> list[tuple[str, str]]:
        """The answer as a person reads it: pairs of a label and its text.

        Args:
            curve: with a line for each depth; else `rows` is the table of them.
        """
        return depth_words.pairs(self.summary(), curve)

    def rows(self) -> list[tuple[object, ...]]:
        """The curve as a table; see COLUMNS."""
        return [
            (
                s["depth"],
                s["cost"],
                None if p.result.lower is None else Lower(p.result.lower),
                s["certificate"],
                s["per_layer"],
                s["slope"],
                s["dimension"],
                s["affine_dimension"],
                s["bottleneck"],
                s["source"],
            )
            for p in self.curve
            for s in [p.summary()]
        ]

    def __repr__(self) -> str:
        """The answer in a few lines."""
        return "\n".join(f"{label:<13}{text}" for label, text in self.describe())

    def _repr_html_(self) -> str:
        s = self.summary()
        return markup.summary(depth_words.answer(s), depth_words.pairs(s))

    def save(
        self,
        directory: str | os.PathLike[str],
        *,
        force: bool = False,
        others: Mapping[str, Writer] | None = None,
    ) -> None:
        """Write depth.json, curve.csv, networks.npz (d5_W1 is W_1 at depth 5, k1_d5_W1 the same of the family of rank
        1), spectra.npz, rank_one.npz, figure.png, origin.json, the last depth's run, `solution`, and those of the other
        depths, `depths/5` say; force and others as for `Result.save`.

        Args:
            directory: a new one.
            force: replace an earlier run there.

        Raises:
            RecordError: the directory exists, or cannot be written.
        """
        last = max(self.results)
        plain: Mapping[str, Writer] = {"figure.png": lambda path: None}
        runs: dict[str, Writer] = {
            f"depths/{depth}": lambda path, result=result: result.save(path, others=plain)
            for depth, result in self.results.items()
            if depth != last
        }
        path = self.path
        evidence = {} if path is None else {"multipliers": path.multipliers, "order": path.order}
        storing.put(
            directory,
            FILE,
            {
                FILE: lambda path: record.write_summary(path, self.summary()),
                "curve.csv": self._write_curve,
                "networks.npz": lambda path: np.savez(path, allow_pickle=False, **self.networks()),
                "spectra.npz": lambda path: np.savez(path, allow_pickle=False, **self.spectra()),
                "rank_one.npz": lambda path: np.savez(path, allow_pickle=False, **evidence),
                "figure.png": spare(self.draw),
                **runs,
                record.SOLUTION: self.results[last].save,
                ORIGIN: write_origin(),
                **(others or {}),
            },
            force=force,
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw cost and proved bound against the depth.

        Args:
            ax: matplotlib axes; None makes a figure by pyplot, so that a notebook shows it.

        Returns:
            The axes.
        """
        return depth_figures.plot_curve(depth_figures.picture_of(self.summary()), ax)

    def draw(self, path: Path) -> None:
        """What `plot` shows, as a PNG at `path`."""
        depth_figures.draw_curve(depth_figures.picture_of(self.summary()), path)

    def spectra(self) -> dict[str, np.ndarray]:
        """The singular values of each A_l and Z_l: `d5_A1`, `d5_Z1`."""
        found: dict[str, np.ndarray] = {}
        for depth, result in self.results.items():
            weights, problem = [W.double() for W in result.weights], result.problem.double()
            for layer, (W, Z) in enumerate(zip(weights, preactivations(problem, weights), strict=True), start=1):
                found[f"d{depth}_A{layer}"] = spectrum(W[:, :-1]).cpu().numpy()
                found[f"d{depth}_Z{layer}"] = spectrum(Z).cpu().numpy()
        return found

    def networks(self) -> dict[str, np.ndarray]:
        """The weights of all networks: `d5_W1` is W_1 at depth 5, `k1_d5_W1` that of the family of rank 1."""
        networks = {f"d{depth}": result.weights for depth, result in self.results.items()}
        for family in self.families:
            networks |= {f"k{family.rank}_d{depth}": m.weights for depth, m in family.members.items()}
        return {
            f"{name}_W{layer}": W.double().cpu().numpy()
            for name, weights in networks.items()
            for layer, W in enumerate(weights, start=1)
        }

    def _write_curve(self, path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as stream:
            table = csv.writer(stream)
            lines = [point.summary() for point in self.curve]
            names = [name for name in lines[0] if name != "nonlinearity"]
            table.writerow(names)
            table.writerows(["" if line[name] is None else line[name] for name in names] for line in lines)


@gently()
def depth(
    X: object,
    Y: object,
    *,
    depths: Sequence[int] = range(2, 9),
    ranks: Sequence[int] | None = None,
    lam: float | None = None,
    loss: str | Loss | None = None,
    bias: float = 1.0,
    activation: str | Activation = "relu",
    certify: str = "auto",
    gap: float = 1e-4,
    time_limit: float = 300.0,
    seed: int = 0,
    device: str | torch.device | None = None,
    init: Depths | Result | Sequence[object] | None = None,
    callback: Callback | None = None,
) -> Depths:
    """What depth changes: the least cost found at each depth, what is proved of it, and what passes its layers.

    Every depth is solved, from the smallest up, and the depths hand their networks to each other, with an identity
    layer inserted or a layer removed. So no depth costs more than what its neighbours' networks give it.

    Args:
        X: inputs (N, n_0).
        Y: targets (N, n_L) or (N,).
        depths: numbers of weight matrices, each at least 2.
        ranks: families of networks with a hidden layer of at most so many neurons; None: 1, 2, 3 and what the answers
            of two and three layers show; an empty one: none.
        lam: strength of the penalty; None asks for the representation cost.
        time_limit: seconds for all depths together.
        init: a `Depths` of the same question to go on from; or a Result, or weights, to start from.
        loss, bias, activation, certify, gap, seed, device, callback: as for `covopt.solve`.

    Returns:
        The curve with its bounds, the families, and what is proved, or fitted, of large depths.

    Raises:
        ProblemError: an option out of range, data of the wrong shape, or an `init` of another question.
        InfeasibleError: `interpolate` on data that no network of these depths fits.

    Source: [J23a, Theorem 1 and 2], [J23b, section 2 and Figure 1].
    """
    chosen, asked_ranks = _chosen(depths, time_limit), _ranks(ranks)
    budget = Budget(time_limit=time_limit)
    asked = {"lam": lam, "loss": loss, "bias": bias, "activation": activation}
    first = make_problem(X, Y, depth=chosen[0], device=device, **asked).double()  # type: ignore[arg-type]
    problems = {L: make_problem(first.X, first.Y, depth=L, **asked).double() for L in chosen}  # type: ignore[arg-type]
    known = _known(init, problems)
    within = replace(budget, time_limit=SEARCHING * time_limit)
    options = {**asked, "certify": certify, "gap": gap, "seed": seed}
    search = DepthSearch(problems, options, within, budget, callback, {} if known is None else known.results)
    for family in [] if known is None else known.families:
        search.families[family.rank] = {d: m for d, m in family.members.items() if d in problems}
    shallow = [L for L in chosen if L <= ENDS] or chosen[:1]
    first_part, last_part = (SHALLOW, BUILT) if len(shallow) < len(chosen) else (BUILT, FAMILIES)
    search.run(shallow, first_part, _weights(init, problems))
    wanted = _shown_ranks(search.results) if asked_ranks is None else asked_ranks
    families = FamilySearch(search, seed)
    families.begin(wanted)
    families.run(wanted, replace(budget, time_limit=last_part * time_limit))
    search.run([L for L in chosen if L not in shallow], FAMILIES, _weights(init, problems))
    status = search.share(within.spent)
    while not within.spent() and search.again():
        status = search.share(within.spent)
    return Depths(
        results=search.results,
        sources={L: search.sources[L] for L in search.results},
        families=[Family(rank, _known_members(search, rank)) for rank in sorted(search.families)],
        refused=search.refused,
        path=rank_one(problems[max(search.results)]) if first.interpolates else None,
        status=_status(search.results, status),
        seconds=budget.seconds(),
    )


def _known_members(search: DepthSearch, rank: int) -> dict[int, Member]:
    """Of the depths that have an answer."""
    return {L: member for L, member in sorted(search.families[rank].items()) if L in search.results}


def _status(results: Mapping[int, Result], ended: Status) -> Status:
    """OPTIMAL where every depth is; CONVERGED only where no solve was cut short either."""
    if interrupted():
        return Status.INTERRUPTED
    if all(result.status is Status.OPTIMAL for result in results.values()):
        return Status.OPTIMAL
    cut = any(result.status not in (Status.OPTIMAL, Status.CONVERGED) for result in results.values())
    return Status.TIME_LIMIT if cut else ended


def _spread(result: Result) -> float:
    """By how much the cost of the best start is below that of the next; 0 for what is proved to be the minimum."""
    starts = sorted(cost for cost in result.starts if math.isfinite(cost))
    if result.status is Status.OPTIMAL or len(starts) < 2:
        return 0.0
    return starts[1] - starts[0]


def _shown_ranks(results: Mapping[int, Result]) -> list[int]:
    """RANKS, and the dimensions that the narrowest layers of the answers of two and three layers have."""
    shown_there = set()
    for result in list(results.values())[:SHOWING]:
        if math.isfinite(result.cost) and result.problem.depth <= 1 + SHOWING:
            shapes = layer_shapes(result.problem, result.weights)
            shown_there.add(shapes[bottleneck(shapes) - 1].dimension)
    return sorted({*RANKS, *(rank for rank in shown_there if 1 <= rank <= MOST_SHOWN)})


def _chosen(depths: Sequence[int], time_limit: float) -> list[int]:
    if not (isinstance(time_limit, int | float) and time_limit > 0.0):
        raise ProblemError(f"The time limit is {shown(time_limit)}; give seconds above 0.")
    given = _whole(depths, 2)
    if not given:
        said = shown(depths) if given is None else "none"
        raise ProblemError(f"The depths are {said}; give whole numbers of at least 2.")
    return given


def _ranks(ranks: Sequence[int] | None) -> list[int] | None:
    if ranks is None:
        return None
    given = _whole(ranks, 1)
    if given is None:
        raise ProblemError(f"The ranks are {shown(ranks)}; give whole numbers of at least 1.")
    return given


def _whole(numbers: object, least: int) -> list[int] | None:
    """Whole numbers of at least so much, each once, ascending; None where something else is among them."""
    if not isinstance(numbers, Iterable):
        return None
    given = list(numbers)
    good = all(isinstance(n, int | np.integer) and not isinstance(n, bool) and n >= least for n in given)
    return sorted({int(n) for n in given}) if good else None


def _known(init: object, problems: Mapping[int, Problem]) -> Depths | None:
    """An earlier answer to the same question."""
    if not isinstance(init, Depths):
        return None
    p, q = next(iter(problems.values())), next(iter(init.results.values())).problem.double()
    same = (p.loss.name, p.lam, p.beta, p.activation) == (q.loss.name, q.lam, q.beta, q.activation)
    if not same or not (torch.equal(p.X.cpu(), q.X.cpu()) and torch.equal(p.Y.cpu(), q.Y.cpu())):
        raise ProblemError(
            "The earlier answer is one to another question (data, loss, lam, bias or activation); ask the same again."
        )
    results = {L: replace(result, problem=problems[L]) for L, result in init.results.items() if L in problems}
    return replace(init, results=results)


def _weights(init: object, problems: Mapping[int, Problem]) -> list[Tensor] | None:
    """A network to start from."""
    if init is None or isinstance(init, Depths):
        return None
    source = init.weights if isinstance(init, Result) else init
    try:
        weights = [torch.as_tensor(W, dtype=torch.float64) for W in source]  # type: ignore[union-attr]
    except (TypeError, ValueError, RuntimeError) as error:
        raise ProblemError(f"init is {shown(init)}; give a Depths, a Result, or arrays W_1 ... W_L.") from error
    if len(weights) not in problems:
        raise ProblemError(f"init has depth {len(weights)}, which is none of {listed(problems)}; ask for it too.")
    check_network(problems[len(weights)], weights)
    return weights
