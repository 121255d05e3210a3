"""What a figure of a paper consists of: its settings, its arrays, and what follows from the arrays alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from covopt.lazy import lazy
from covopt.loop import Budget, Callback, Progress, Status
from covopt.model.problem import Problem
from covopt.model.weights import Weights, evaluate

if TYPE_CHECKING:
    from covopt.figures import panels
else:
    panels = lazy("covopt.figures.panels")

__all__ = [
    "Arrays",
    "Asked",
    "Claim",
    "Design",
    "Made",
    "Numbers",
    "Setting",
    "applied",
    "ended",
    "network",
    "panels",
    "preactivations",
    "square",
    "stored",
    "worst",
]

Arrays = Mapping[str, Float[np.ndarray, "*shape"]]
Numbers = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """What a figure is made for.

    Attributes:
        paper: whether in the sizes that the paper prints.
        seed: of the data and of the training.
        device: where to compute.
        budget: the time for all of it.
        callback: gets a `Progress` after each round of a training.
    """

    paper: bool
    seed: int
    device: str
    budget: Budget
    callback: Callback | None = None

    def report(self, problem: Problem, weights: Weights, number: int = 0) -> None:
        """Tell the callback of a network that a descent ended at; number: of the networks before it."""
        if self.callback is not None:
            cost = evaluate(problem, weights).total
            self.callback(Progress(number, self.budget.seconds(), cost, None, max(len(W) for W in weights[:-1])))


@dataclass(frozen=True)
class Setting:
    """A setting of the experiment: its name, its value, and whether the paper states it (else it is chosen here)."""

    name: str
    value: str
    stated: bool


@dataclass(frozen=True)
class Made:
    """What was made: the settings, the arrays from which all else follows, and why the training ended."""

    settings: list[Setting]
    arrays: dict[str, Float[np.ndarray, "*shape"]]
    status: Status


@dataclass(frozen=True)
class Claim:
    """What a reader should see in the figure, and whether it is there."""

    text: str
    seen: bool


@dataclass(frozen=True)
class Design:
    """A figure.

    Attributes:
        title: what it shows, in a few words.
        source: paper and statement.
        question: a sentence.
        differs: where it differs from the paper, a sentence.
        make: the data and the networks.
        numbers: all numbers of the answer, from the arrays alone.
        claims: what a reader should see.
        columns, rows: of its table.
        panels: its pictures.
        trained: whether networks were trained for it, which may end elsewhere in another run.
        limit: seconds that it takes by default.
    """

    title: str
    source: str
    question: str
    differs: str
    make: Callable[[Asked], Made]
    numbers: Callable[[Arrays], Numbers]
    claims: Callable[[Numbers], list[Claim]]
    columns: Sequence[str]
    rows: Callable[[Numbers], list[list[object]]]
    panels: Callable[[Arrays, Numbers], list[panels.Panel]]
    trained: bool = True
    limit: float = 60.0


def worst(ended: Sequence[Status]) -> Status:
    """What ended several trainings: Ctrl-C if it ended one, else a limit if that did, else all came to a stand."""
    if Status.INTERRUPTED in ended:
        return Status.INTERRUPTED
    return next((status for status in ended if status is not Status.CONVERGED), Status.CONVERGED)


def ended(budget: Budget) -> Status:
    """What ended descents that stop by themselves: nothing else, or the end of their time, or Ctrl-C."""
    if not budget.spent():
        return Status.CONVERGED
    return Status.TIME_LIMIT if budget.seconds() >= budget.time_limit else Status.INTERRUPTED


def stored(name: str, weights: Weights) -> dict[str, Float[np.ndarray, "_ _"]]:
    """The layers of a network as arrays: name_W1, name_W2, ..."""
    return {f"{name}_W{layer}": W.detach().double().cpu().numpy() for layer, W in enumerate(weights, start=1)}


def network(arrays: Arrays, name: str) -> list[Float[np.ndarray, "_ _"]]:
    """The layers that `stored` named.

    Raises:
        ValueError: there are none, or they do not fit each other.
    """
    count = sum(key.startswith(f"{name}_W") for key in arrays)
    layers = [arrays[f"{name}_W{layer}"] for layer in range(1, count + 1)]
    fits = all(W.ndim == 2 for W in layers) and all(
        len(below) + 1 == above.shape[1] for below, above in pairwise(layers)
    )
    if not layers or not fits:
        raise ValueError(f"the layers of the network {name} do not fit each other")
    return layers


def preactivations(
    layers: Sequence[Float[np.ndarray, "_ _"]], X: Float[np.ndarray, "N n0"]
) -> list[Float[np.ndarray, "N _"]]:
    """Z_1 ... Z_L of a ReLU network, Z_l = sigma(Z_{l-1}) A_l^T + b_l."""
    Z: list[Float[np.ndarray, "N _"]] = []
    for W in layers:
        Z.append((np.maximum(Z[-1], 0.0) if Z else X) @ W[:, :-1].T + W[:, -1])
    return Z


def applied(layers: Sequence[Float[np.ndarray, "_ _"]], X: Float[np.ndarray, "N n0"]) -> Float[np.ndarray, "N nL"]:
    """The outputs of a ReLU network."""
    return preactivations(layers, X)[-1]


def square(weights: Sequence[Tensor] | Sequence[np.ndarray]) -> float:
    """|W|^2, bias columns included."""
    return float(sum((np.asarray(W) ** 2).sum() for W in weights))
