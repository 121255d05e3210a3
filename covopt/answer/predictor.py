"""Predictions, representations, forces and pictures of a solved network, from its problem and weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covopt.data.coding import Coding
from covopt.data.networks import as_sequential
from covopt.data.tables import order_of
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
from covopt.runtime.errors import ProblemError, counted, shown
from covopt.runtime.lazy import lazy
from covopt.runtime.loop import Progress
from covopt.runtime.options import checked
from covopt.runtime.threads import fitted

if TYPE_CHECKING:
    from matplotlib import pyplot
    from matplotlib.axes import Axes

    from covopt.answer import drawing as figures, forces as forces_figures, look as looks
else:
    figures, pyplot = lazy("covopt.answer.drawing"), lazy("matplotlib.pyplot")
    forces_figures, looks = lazy("covopt.answer.forces"), lazy("covopt.answer.look")


class Predictor(Answer):
    """A network with the problem that it was solved for."""

    problem: Problem  # the problem that was solved
    weights: list[Tensor]  # W_1 ... W_L
    history: list[Progress]  # cost, bound and width over time
    coding: Coding | None  # how the data were scaled and coded, where that is known

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Names of the inputs, where they are known."""
        return None if self.coding is None else self.coding.columns

    @property
    def widths(self) -> list[int]:
        """Hidden widths n_1 ... n_{L-1}."""
        return [int(W.shape[0]) for W in self.weights[:-1]]

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
                f" {counted(self.problem.X.shape[1], 'column')}; give those that it was solved with."
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
        if not 1 <= layer <= self.problem.depth:
            raise ProblemError(f"There is no layer {layer}; give one from 1 to {self.problem.depth}.")
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
        pair = forces.attraction, forces.feasible_repulsion
        return forces_figures.ForcesPicture(title, Z, *pair, labels, name == "class")

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
        axes = pyplot.subplots(layout="constrained")[1] if ax is None else ax
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
        weights = skip_as_neurons(self.problem, self._double())
        return as_sequential(weights, self.problem.beta, self.problem.activation.slope)

    def _double(self) -> list[Tensor]:
        return [W.double() for W in self.weights]


def _sample_labels(p: Problem) -> tuple[NDArray, str]:
    """Return each sample's class if targets are one-hot, else its first target, and its name."""
    Y = p.Y.double().cpu().numpy()
    one_hot = Y.shape[1] > 1 and bool(((Y == 0) | (Y == 1)).all() and (Y.sum(axis=1) == 1).all())
    return (Y.argmax(axis=1), "class") if one_hot else (Y[:, 0], "target")


@checked
@fitted
def forces(
    network: Predictor | Sequence[object],
    layer: int = 1,
    *,
    X: object = None,
    bias: float = 1.0,
    activation: str | Activation = "relu",
    tikhonov: float | None = None,
) -> Forces:
    """Return the forces on hidden layer l = `layer` of a Result, or of weights on inputs X [JGHG22, section 3].

    >>> answer = covopt.forces([[[1.0, 0.0]], [[1.0, 0.0]]], X=[[1.0], [2.0]])
    >>> answer.attraction.round(6).tolist(), answer.repulsion.round(6).tolist()
    ([[-2.0], [2.0]], [[2.0], [-2.0]])

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
    if isinstance(network, Predictor):
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
