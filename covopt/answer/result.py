"""The result of a solver: the best network, its recomputed cost, a bound and its proof.

A `Result` also stores and shows itself, so the packages for files (record.py) and pictures (drawing.py), which take
plain arrays, lie below this one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covopt import __version__
from covopt.answer import words
from covopt.answer.uniqueness.uniqueness import Uniqueness
from covopt.certify.proof import Proof
from covopt.data.coding import Coding
from covopt.data.data import Dataset
from covopt.data.networks import as_sequential, named
from covopt.data.tables import order_of
from covopt.data.tensors import write_torch
from covopt.model import weights as weight_form
from covopt.model.activation import Activation
from covopt.model.affine import skip_as_neurons
from covopt.model.biases import check_penalised
from covopt.model.forces import Forces, forces_on
from covopt.model.loss import Likelihood
from covopt.model.problem import Problem, make_problem, with_bias
from covopt.model.reading import as_matrix, as_numbers
from covopt.records import record
from covopt.records.answer import Answer
from covopt.records.directories import Writer, spare
from covopt.records.provenance import ORIGIN, write_origin
from covopt.runtime.errors import ProblemError, RecordError, counted, shown
from covopt.runtime.lazy import lazy
from covopt.runtime.loop import Certificate, Progress, Status
from covopt.runtime.options import checked
from covopt.runtime.threads import fitted
from covopt.solvers.deep.layer import Layer

if TYPE_CHECKING:
    from matplotlib import pyplot
    from matplotlib.axes import Axes

    from covopt.answer import drawing as figures
    from covopt.answer import forces as forces_figures
    from covopt.answer import look as looks
    from covopt.answer.uniqueness import decide
    from covopt.answer.uniqueness import segment as segments
else:
    figures, pyplot = lazy("covopt.answer.drawing"), lazy("matplotlib.pyplot")
    forces_figures, looks = lazy("covopt.answer.forces"), lazy("covopt.answer.look")
    decide = lazy("covopt.answer.uniqueness.decide")
    segments = lazy("covopt.answer.uniqueness.segment")


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
        if "Lambda" not in arrays:
            return None
        return cls(arrays.pop("Lambda"), float(arrays.pop("maximum")), arrays)


@dataclass(repr=False)
class Result(Answer):
    """The result of a solve; numbers are NaN and the status `unsolved` until the solver ends.

    Attributes:
        problem: the problem that was solved.
        method, certify, seed: the options that it was asked with; target: the proved gap that it was to stop at.
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
        targets: what its targets were taken for; shuffle: the seed that drew its rows; columns: names of its inputs.
        coding: how its data were scaled and coded, where that is known.
        test: the network on held-out data: `data`, `rows`, `loss`, and `accuracy` or `r2`; it bounds nothing.
        decided: what `unique` found, once it has been asked for.
    """

    file: ClassVar[str] = record.SUMMARY

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
    columns: tuple[str, ...] | None = None
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
            raise ProblemError(f"other is {shown(other)}; give a Result of the same question.")
        ends = None if other is None else [W.double() for W in other.weights]
        networks = segments.segment(self.problem.double(), self._double(), ends, steps)
        return [[W.cpu().numpy() for W in weights] for weights in networks]

    @property
    def gap(self) -> float | None:
        """(cost - lower) / cost, or None without a proved bound."""
        if self.lower is None or not math.isfinite(self.cost):
            return None
        return (self.cost - self.lower) / self.cost if self.cost > 0 else 0.0

    @property
    def widths(self) -> list[int]:
        """Hidden widths n_1 ... n_{L-1}."""
        return [int(W.shape[0]) for W in self.weights[:-1]]

    def describe_data(self, data: Dataset) -> None:
        """Take over a data set's name, scale, targets, and how its rows were drawn."""
        self.data, self.scale, self.targets = data.name, data.scale, data.targets
        self.shuffle, self.columns, self.coding = data.shuffle, data.columns, data.coding

    @fitted
    def predict(self, X: object) -> NDArray[np.float64]:
        """Return the network's outputs (M, n_L) at the rows of X (M, n_0).

        If the data had names of columns, the columns of a data frame are taken by their names, in any order.

        Raises:
            ProblemError: X is no array of numbers, or its columns are not those of the data.
        """
        order = order_of(X, self.columns)
        inputs = as_numbers(X, "X").to(self.problem.X.device, torch.float64)
        if inputs.ndim != 2 or inputs.shape[1] != self.problem.X.shape[1]:
            raise ProblemError(
                f"X has shape {tuple(inputs.shape)}, but the network takes"
                f" {counted(self.problem.X.shape[1], 'column')}."
            )
        inputs = inputs if order is None else inputs[:, order]
        return weight_form.outputs(self.problem, self._double(), inputs).cpu().numpy()

    def predict_proba(self, X: object) -> NDArray[np.float64]:
        """Return probabilities (M, classes) at the rows of X (M, n_0): the softmax of the outputs.

        The one output of logistic is that of the second class, and that of the first is 0.

        Raises:
            ProblemError: outputs are no log-odds for this loss; or as `predict`.
        """
        if not isinstance(self.problem.loss, Likelihood):
            raise ProblemError(
                "Outputs are log-odds for the losses cross_entropy and logistic, not for"
                f" {self.problem.loss.name}; use predict."
            )
        return torch.softmax(torch.as_tensor(self.scores(X)), dim=1).numpy()

    def scores(self, X: object) -> NDArray[np.float64]:
        """Return the outputs at the rows of X, one for each class.

        For logistic, the first class gets a column of zeros.

        Raises:
            ProblemError: as `predict`.
        """
        F, loss = self.predict(X), self.problem.loss
        return loss.log_odds(torch.from_numpy(F)).numpy() if isinstance(loss, Likelihood) else F

    @checked
    @fitted
    def representations(self, layer: int) -> NDArray[np.float64]:
        """Return Z_l (N, n_l) for layer = 1 ... L.

        Raises:
            ProblemError: there is no such layer.
        """
        self._check_layer(layer)
        return weight_form.preactivations(self.problem.double(), self._double())[layer - 1].cpu().numpy()

    @checked
    @fitted
    def covariances(self, layer: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return K_l = Z_l Z_l^T and Ks_l = Zs_l Zs_l^T, both (N, N), for layer = 1 ... L.

        Raises:
            ProblemError: there is no such layer.
        """
        Z = torch.as_tensor(self.representations(layer))
        Zs = with_bias(self.problem.activation(Z), self.problem.beta)
        return (Z @ Z.T).numpy(), (Zs @ Zs.T).numpy()

    @checked
    @fitted
    def forces(self, layer: int, tikhonov: float | None = None) -> Forces:
        """Return attraction and repulsion on hidden layer `layer`; tikhonov as in `covopt.forces`.

        Raises:
            ProblemError: there is no such hidden layer, t is negative, or the biases are free.
        """
        check_penalised(self.problem.stated_bias)
        return forces_on(self.problem.double(), self._double(), layer, tikhonov)

    def forces_picture(self, layer: int, tikhonov: float | None = None) -> forces_figures.ForcesPicture:
        """Return what `draw_forces` (answer/forces.py) draws of `layer`; tikhonov as in `forces`."""
        forces = self.forces(layer, tikhonov)
        labels, name = _sample_labels(self.problem)
        inverse = f", Tikhonov {forces.tikhonov:.2g}" if forces.tikhonov > 0.0 else ""
        title = f"{record.headline(self.summary())}: layer {layer}, imbalance {forces.imbalance:.2g}{inverse}"
        Z = self.representations(layer)
        return forces_figures.ForcesPicture(
            title, Z, forces.attraction, forces.feasible_repulsion, labels, name == "class"
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw a network of one or two inputs as a function, others as cost and bound over time.

        One input: the outputs with their kinks, found exactly, the samples, and of a single output what each neuron of
        the last hidden layer adds to it. Two inputs: a map of the first output with the lines where neurons switch.
        Classes: the regions of the largest output. The colours suit the ground of the axes, light or dark.

        Args:
            ax: matplotlib's axes to draw in; None makes new ones, which a notebook shows.

        Returns:
            The axes.

        Raises:
            ProblemError: there is no network to draw yet.
        """
        if not self.weights:
            raise ProblemError("This result holds no network yet; solve before drawing it.")
        axes = pyplot.subplots()[1] if ax is None else ax
        shown = looks.look_at(self.problem, self.weights, self.columns, self.coding and self.coding.classes)
        if shown is None:
            figures.draw_convergence(axes, self.history)
        else:
            looks.draw_look(axes, shown)
        return axes

    def run_picture(self) -> figures.RunPicture:
        """Return what `figures.draw_run` draws: last-layer neurons, and samples in sorted order."""
        p = self.problem
        incoming, outgoing = self.weights[-2].double(), self.weights[-1].double()[:, : self.widths[-1]]
        Z = torch.as_tensor(self.representations(p.depth - 1))
        key, name = _sample_labels(p)
        return figures.RunPicture(
            title=record.headline(self.summary()),
            history=self.history,
            norms=(incoming.square().sum(dim=1) + outgoing.square().sum(dim=0)).cpu().numpy(),
            activations=p.activation(Z).cpu().numpy(),
            order=np.argsort(key, kind="stable"),
            order_name=name,
        )

    def to_torch(self) -> torch.nn.Sequential:
        """Return a `torch.nn.Sequential` of Linear and ReLU / LeakyReLU / Identity.

        Its biases are beta W[:, -1]. A free linear skip becomes two more neurons for each input in every hidden layer.
        """
        return as_sequential(
            skip_as_neurons(self.problem, self._double()), self.problem.beta, self.problem.activation.slope
        )

    def summary(self) -> dict[str, object]:
        """Return the JSON of `covopt solve`; the unknown or unproved is None, nothing is NaN."""
        p = self.problem
        return {
            "cost": record.known(self.cost),
            "fit": record.known(self.fit),
            "norm": record.known(self.norm),
            "residual": record.known(p.misfit(self.residual)),
            "lower": record.known(self.lower),
            "gap": record.known(self.gap),
            "certificate": str(self.certificate),
            "attainable": str(self.attainable),
            "status": str(self.status),
            "widths": self.widths,
            **p.stated(),
            "layers": [layer.summary() for layer in self.layers],
            "starts": [record.known(cost) for cost in self.starts],
            "unique": None if self.decided is None else self.decided.summary(),
            "method": self.method,
            "certify": self.certify,
            "target": record.known(self.target),
            "data": self.data,
            "scale": self.scale,
            "rows": p.samples,
            "weighted": p.weight is not None,
            "targets": self.targets,
            "shuffle": self.shuffle,
            "test": self.test,
            "seconds": record.known(self.seconds),
            "timing": {phase: round(seconds, 6) for phase, seconds in self.timing.items()},
            "seed": self.seed,
            "version": __version__,
        }

    def sentence(self) -> str:
        """Return the network's cost, and how much lower the minimum can be."""
        return words.answer(self.summary())

    def describe(self) -> record.Pairs:
        """Return the result as a person reads it: pairs of a label and its text."""
        return words.pairs(self.summary())

    def files(self) -> dict[str, Writer]:
        """Return the writers of the files beside result.json.

        They are network.npz, network.pt, problem.npz, certificate.npz, history.csv, figure.png and origin.json.

        Raises:
            RecordError: there is no network to store.
        """
        if not self.weights:
            raise RecordError("This result holds no network yet; solve before saving.")
        return {
            record.NETWORK: record.archive(lambda: named(self._double())),
            record.PROBLEM: record.archive(lambda: _question_arrays(self)),
            record.CERTIFICATE: record.archive(lambda: _certificate_arrays(self)),
            record.HISTORY: record.table(lambda: record.history_lines(self.history)),
            "network.pt": lambda path: write_torch(path, self.to_torch().state_dict()),
            "figure.png": spare(lambda path: figures.draw_run(self.run_picture(), path)),
            ORIGIN: write_origin(columns=self.columns),
        }

    def __repr__(self) -> str:
        """Return five lines: problem, cost, bound with its proof, width and status."""
        return words.short(self.summary())

    def _double(self) -> list[Tensor]:
        return [W.double() for W in self.weights]

    def _check_layer(self, layer: int) -> None:
        if not 1 <= layer <= self.problem.depth:
            raise ProblemError(f"There is no layer {layer}; give one from 1 to {self.problem.depth}.")


def _question_arrays(result: Result) -> dict[str, NDArray]:
    """Return the content of problem.npz."""
    p = result.problem
    weights = {} if p.weight is None else {"weights": p.weight}
    columns = None if result.columns is None else Coding.unscaled(p.X.shape[1], result.columns)
    coding = result.coding or columns
    return {
        **record.numpy_of(X=p.X, Y=p.Y, **weights),
        **{name: np.array(value) for name, value in (p.stated() | {"lam": p.lam}).items()},
        **({} if coding is None else coding.arrays()),
    }


def _certificate_arrays(result: Result) -> dict[str, NDArray]:
    """Return the content of certificate.npz, nothing without a proof."""
    arrays = {} if result.proof is None else result.proof.arrays()
    if result.lower is None or not arrays:
        return {}
    return {"lower": np.array(result.lower), "certificate": np.array(str(result.certificate)), **arrays}


def _sample_labels(p: Problem) -> tuple[NDArray, str]:
    """Return each sample's class if targets are one-hot, else its first target, and its name."""
    Y = p.Y.double().cpu().numpy()
    one_hot = Y.shape[1] > 1 and bool(((Y == 0) | (Y == 1)).all() and (Y.sum(axis=1) == 1).all())
    return (Y.argmax(axis=1), "class") if one_hot else (Y[:, 0], "target")


@checked
@fitted
def forces(
    network: Result | Sequence[object],
    layer: int = 1,
    *,
    X: object = None,
    bias: float = 1.0,
    activation: str | Activation = "relu",
    tikhonov: float | None = None,
) -> Forces:
    """Return the forces on hidden layer l = `layer` of a Result, or of weights on inputs X.

    Source: [JGHG22, section 3].

    Args:
        network: a Result, or weights [W_1, ..., W_L] of shapes (n_l, n_{l-1} + 1), the bias column last.
        layer: from 1 to L - 1.
        X: inputs (N, n_0) for weights.
        bias, activation: of the network, for weights; a Result has its own.
        tikhonov: t >= 0; above 0, (Ks + t I)^{-1} is used in place of Ks^+. None chooses t: 0 if all nonzero singular
            values of Zs_{l-1} and Zs_l are above 1e-3 of the largest, else 1e-4 times the largest eigenvalue of Ks_l.
            Layers of trained networks have smaller singular values, and their forces are noise at t = 0.

    Returns:
        Attraction and repulsion, (N, n_l) each, how far they are from balance, and the t that was taken.

    Raises:
        ProblemError: no such hidden layer, no X, weights that do not fit it, or a negative t.
    """
    if isinstance(network, Result):
        return network.forces(layer, tikhonov)
    if X is None:
        raise ProblemError("Weights alone do not say on which inputs; give X.")
    if not isinstance(network, Sequence) or isinstance(network, str):
        raise ProblemError(f"The network is {shown(network)}; give a Result, or W_1 ... W_L.")
    weights = [as_matrix(W, f"W_{i}", None).double() for i, W in enumerate(network, start=1)]
    if len(weights) < 2:
        raise ProblemError(
            f"The network has {counted(len(weights), 'layer')} of weights; give W_1 ... W_L, at least two."
        )
    inputs = as_matrix(X, "X", None)
    Y = np.zeros((len(inputs), len(weights[-1])))
    problem = make_problem(inputs, Y, lam=1.0, depth=len(weights), bias=bias, activation=activation, device="cpu")
    return forces_on(problem.double(), weights, layer, tikhonov)
