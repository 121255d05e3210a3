"""The result of a solver: the best network, its recomputed cost, a bound and its proof.

A `Result` also stores and shows itself, so the packages for files (record.py) and pictures (drawing.py), which take
plain arrays, lie below this one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from covopt import __version__
from covopt.answer import words
from covopt.answer.predictor import Predictor
from covopt.answer.uniqueness.uniqueness import Uniqueness
from covopt.certify.proof import Proof
from covopt.data.coding import Coding
from covopt.data.data import Dataset
from covopt.data.networks import named
from covopt.data.tensors import write_torch
from covopt.model.problem import Problem
from covopt.model.weights import Cost
from covopt.records import record
from covopt.records.answer import Words
from covopt.records.directories import Writer, spare
from covopt.records.provenance import ORIGIN, write_origin
from covopt.runtime.errors import ProblemError, RecordError, shown
from covopt.runtime.lazy import lazy
from covopt.runtime.loop import Certificate, Progress, Status
from covopt.runtime.options import checked
from covopt.runtime.threads import fitted
from covopt.solvers.layer import Layer

if TYPE_CHECKING:
    from covopt.answer import drawing as figures
    from covopt.answer.uniqueness import decide
else:
    figures, decide = lazy("covopt.answer.drawing"), lazy("covopt.answer.uniqueness.decide")


@dataclass(frozen=True)
class DualPoint:
    """The proof of a shallow lower bound: Lambda, and M >= max_w |Lambda^T sigma(Xt w)|.

    The bound is D(t Lambda) with 0 <= t <= 1/M; `Lambda` here is already scaled by t, so M <= 1. `evidence` proves M
    where no exact oracle does.
    """

    Lambda: NDArray[np.float64]
    maximum: float
    evidence: dict[str, NDArray] = field(default_factory=dict)

    @classmethod
    def of(cls, proof: Proof | None) -> DualPoint | None:
        """Return the dual point of a proof, None where it has none."""
        arrays = {} if proof is None else proof.arrays()
        return None if "Lambda" not in arrays else cls(arrays.pop("Lambda"), float(arrays.pop("maximum")), arrays)


@dataclass(repr=False)
class Result(Predictor):
    """The result of a solve; numbers are NaN and the status `unsolved` until the solver ends.

    >>> result = covopt.solve([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.0], lam=0.01)
    >>> result.status, result.certificate, str(result.unique.verdict)
    (<Status.OPTIMAL: 'optimal'>, <Certificate.EXACT: 'exact'>, 'unique')
    >>> network, Z, (K, Ks) = result.to_torch(), result.representations(1), result.covariances(1)
    >>> optima = result.optima(result)  # here there is one only
    >>> result.save("run", force=True)

    Attributes:
        problem: the problem that was solved.
        method, certify, seed: the options of the call; target: the proved gap at which a solve ends.
        weights: W_1 ... W_L, shape (n_l, n_{l-1} + 1), the bias column last; a free linear skip has n_0 columns of W_L
            before that.
        cost: the objective at `weights`, recomputed in float64.
        fit: C(F); norm: |W|^2; residual: max |F - Y|.
        lower: a proved lower bound on the minimum, or None.
        certificate: what proves it; status: what ended the solve; seconds: how long it took.
        timing: seconds of each phase (search, master, descent, merging, proof, ...), without those of phases within it.
        attainable: the tightest kind of proof that applies to data of this rank and size.
        history: cost, bound and width over time.
        proof: what proves `lower`; None without a bound.
        layers: each hidden layer on its own, for depth >= 3.
        starts: the lowest cost reached from each start.
        data, scale: the name of the data set and how it was scaled, where they are known.
        targets: how its targets were read; shuffle: the seed that drew its rows.
        coding: how its data were scaled and coded, with the names of inputs and classes, where that is known.
        test: the network on held-out data: `data`, `rows`, `loss`, and `accuracy` or `r2`; no bound on the minimum.
        decided: the value of `unique`, once computed.
    """

    file: ClassVar[str] = record.SUMMARY
    words: ClassVar[Words] = words

    problem: Problem
    method: str
    certify: str
    seed: int
    weights: list[Tensor] = field(default_factory=list)
    status: Status = Status.UNSOLVED
    certificate: Certificate = Certificate.NONE
    attainable: Certificate = Certificate.NONE
    cost: float = math.nan
    fit: float = math.nan
    norm: float = math.nan
    residual: float = math.nan
    lower: float | None = None
    target: float | None = None
    seconds: float = math.nan
    timing: dict[str, float] = field(default_factory=dict)
    history: list[Progress] = field(default_factory=list)
    proof: Proof | None = None
    layers: list[Layer] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    data: str | None = None
    scale: str | None = None
    targets: str | None = None
    shuffle: int | None = None
    coding: Coding | None = None
    test: dict[str, object] | None = None
    decided: Uniqueness | None = None

    @property
    def dual(self) -> DualPoint | None:
        """The dual point behind `lower`; None where there is none."""
        return DualPoint.of(self.proof)

    @property
    def evidence(self) -> dict[str, NDArray]:
        """The arrays that prove `lower` where no dual point does, as the certificate's kind has them."""
        return {} if self.proof is None or self.dual is not None else self.proof.arrays()

    @property
    @fitted
    def unique(self) -> Uniqueness:
        """Return whether the optimum is the only one (MATH.md section 4); computed when asked for.

        Raises:
            ProblemError: there is no network yet.
        """
        if not self.weights:
            raise ProblemError("This result holds no network yet; solve before asking for the set of optima.")
        if self.decided is None:
            self.decided = decide.decide(self.problem.double(), self._double())
        return self.decided

    @checked
    @fitted
    def optima(self, other: Result | None = None, steps: int = 11) -> list[list[NDArray[np.float64]]]:
        """Return networks [W_1, W_2] on the line from this one to another.

        Their outputs and hidden neurons are mixtures of those of the ends, and their costs at most the mixture of the
        costs: on the line between two optima all are optima (MATH.md section 4).

        Args:
            other: a result of the same problem; None: an optimum inside the set of all, where `unique` has a verdict.
            steps: the number of networks, both ends included.

        Raises:
            ProblemError: no verdict, no two layers, or a network of another problem.
        """
        if other is not None and not isinstance(other, Result):
            raise ProblemError(f"other is {shown(other)}; give a Result of the same problem.")
        ends = None if other is None else [W.double() for W in other.weights]
        networks = decide.segment(self.problem.double(), self._double(), ends, steps)
        return [[W.cpu().numpy() for W in weights] for weights in networks]

    @property
    def gap(self) -> float | None:
        """(cost - lower) / cost, or None without a proved bound."""
        if self.lower is None or not math.isfinite(self.cost):
            return None
        return (self.cost - self.lower) / self.cost if self.cost > 0 else 0.0

    def describe_data(self, data: Dataset) -> None:
        """Take over a data set's name, scale, targets, and how its rows were drawn."""
        self.data, self.scale, self.targets = data.name, data.scale, data.targets
        self.shuffle, self.coding = data.shuffle, data.coding

    def summary(self) -> dict[str, object]:
        """Return the JSON of `covopt solve`; the unknown or unproved is None, nothing is NaN."""
        p = self.problem
        facts = {
            **self._named("cost", "fit", "norm"),
            "residual": p.misfit(self.residual),
            **self._named("lower", "gap", "certificate", "attainable", "status", "widths"),
            **p.stated(),
            **self._named("layers", "starts"),
            "unique": self.decided,
            **self._named("method", "certify", "target", "data", "scale"),
            "rows": p.samples,
            "weighted": p.weight is not None,
            **self._named("targets", "shuffle", "test", "seconds"),
            "timing": {phase: round(seconds, 6) for phase, seconds in self.timing.items()},
            "seed": self.seed,
            "version": __version__,
        }
        return record.plain(facts)

    def _named(self, *names: str) -> dict[str, object]:
        """Return these attributes by their names."""
        return {name: getattr(self, name) for name in names}

    def files(self) -> dict[str, Writer]:
        """Return the writers of the files beside result.json.

        They are network.npz, network.pt, problem.npz, certificate.npz, history.csv, figure.png and origin.json.

        Raises:
            RecordError: there is no network to store.
        """
        if not self.weights:
            raise RecordError("This result holds no network yet; solve before saving.")
        coded = {} if self.coding is None else self.coding.arrays()  # how the data were coded
        return {
            record.NETWORK: record.archive(lambda: named(self._double())),
            record.PROBLEM: record.archive(lambda: self.problem.arrays() | coded),
            record.CERTIFICATE: record.archive(lambda: _certificate_arrays(self)),
            record.HISTORY: record.table(lambda: record.history_lines(self.history)),
            "network.pt": lambda path: write_torch(path, self.to_torch().state_dict()),
            "figure.png": spare(lambda path: figures.draw_run(self.run_picture(), path)),
            ORIGIN: write_origin(columns=self.columns),
        }

    def __repr__(self) -> str:
        """Return five lines: problem, cost, bound with its proof, width and status."""
        return words.short(self.summary())


def measure(result: Result, cost: Cost) -> None:
    """Set the numbers of a result from the cost of its network; none if it has to fit exactly and does not."""
    if not result.problem.allows(cost.residual):
        return
    result.cost, result.fit, result.norm, result.residual = cost.total, cost.fit, cost.norm, cost.residual


def _certificate_arrays(result: Result) -> dict[str, NDArray]:
    """Return the content of certificate.npz, nothing without a proof."""
    arrays = {} if result.proof is None else result.proof.arrays()
    if result.lower is None or not arrays:
        return {}
    return {"lower": np.array(result.lower), "certificate": np.array(str(result.certificate)), **arrays}
