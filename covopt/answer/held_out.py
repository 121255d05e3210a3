"""Predictions of a network on new data, and their scores; they bound no cost."""

from __future__ import annotations

import hashlib
import os
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Float64, Shaped
from numpy.typing import NDArray
from torch import Tensor

from covopt.answer.result import Result
from covopt.data.coding import Coding
from covopt.data.data import Dataset
from covopt.data.further import Further, read_further
from covopt.model.loss import Likelihood, mean_loss
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import Weights, outputs
from covopt.records.record import known, table
from covopt.runtime.errors import CovoptError, CovoptWarning, DataError, ProblemError, RecordError, counted, shown
from covopt.runtime.lazy import lazy

if TYPE_CHECKING:
    from sklearn import metrics
else:
    metrics = lazy("sklearn.metrics")

FORMATS = (".csv", ".npz")
REST = "rest"  # names the rows that a data set leaves, in the place of a file
_FIRST = "outputs.npy"


def further(
    result: Result, source: str | os.PathLike[str], *, targets: bool = True, data_dir: Path | None = None
) -> Further:
    """Read data, scaled and coded as those that a network was solved with; `source` is as for `read_data`.

    A network that was solved in Python takes inputs as they are. A run that does not say how its data were scaled
    raises a RecordError; other errors are those of `read_further`.
    """
    p, coding = result.problem, result.coding
    if coding is None and result.scale not in (None, "none"):
        raise RecordError(
            f"The run does not say how its data were scaled ({result.scale}), because an earlier version of covopt"
            " stored it; solve again with --out."
        )
    coding = coding or Coding.unscaled(p.X.shape[1], None)
    outputs = p.Y.shape[1] if coding.classes is None else len(coding.classes)
    return read_further(source, coding, outputs, targets=targets, data_dir=data_dir)


def tested(source: str | os.PathLike[str] | None, data: Dataset, read_rest: Callable[[], Dataset]) -> Further | None:
    """Read held-out data with targets, scaled and coded as the network's own; None without a source.

    The source `rest` is the rows that are not in the data, which `read_rest` reads. Other sources and errors are those
    of `read_further`; there is a CovoptWarning if some rows equal rows of the data, inputs and targets.
    """
    if source is None:
        return None
    if source == REST:
        remaining = read_rest()
        return Further(remaining.X, f"the rest of {remaining.name}", remaining.Y, remaining.classes)
    if data.coding is None:
        raise ValueError("a data set that was read says how")
    test = read_further(source, data.coding, data.Y.shape[1])
    if test.Y is not None:
        training = set(_digests(data.X, data.Y))
        repeated = sum(digest in training for digest in _digests(test.X, test.Y))
        if repeated:
            warnings.warn(
                f"The network is trained on {repeated} of the {counted(len(test.X), 'row')} of {test.name};"
                " leave them out of --test.",
                CovoptWarning,
                stacklevel=2,
            )
    return test


def _digests(X: NDArray[np.float64], Y: NDArray[np.float64]) -> Iterator[bytes]:
    """Yield a digest of each row; adding 0.0 makes 0.0 of -0.0, so equal rows are equal."""
    return (hashlib.sha256((x + 0.0).tobytes() + (y + 0.0).tobytes()).digest() for x, y in zip(X, Y, strict=True))


def score(result: Result, data: Further) -> dict[str, object]:
    """Return `test` of a summary: the loss without penalty, and the accuracy or R^2.

    R^2 = 1 - sum (F - Y)^2 / sum (Y - mean Y)^2, the mean over outputs; None of fewer than two rows. The loss of an
    exact fit is mse. A result without a network has None in all of them.
    """
    p, X, Y = result.problem, data.X, data.Y
    scores: dict[str, object] = {"data": data.name, "rows": len(X), "loss": None, "accuracy": None, "r2": None}
    if Y is None or not np.isfinite(result.cost):
        return scores
    F = result.predict(X)
    question = make_problem(X, Y, lam=1.0, loss=p.smooth_loss, device="cpu")
    scores["loss"] = known(float(question.loss_at(torch.as_tensor(F))))
    if data.classes is not None:
        scores["accuracy"] = float((result.scores(X).argmax(axis=1) == Y.argmax(axis=1)).mean())
    elif len(X) > 1:
        scores["r2"] = known(float(metrics.r2_score(Y, F)))
    return scores


@dataclass(frozen=True)
class Predictions:
    """The predictions of a network for M inputs."""

    outputs: Float64[np.ndarray, "M nL"]  # (M, n_L)
    classes: tuple[str, ...] | None = None  # the class of each output; None where the targets are numbers
    labels: Shaped[np.ndarray, " M"] | None = None  # the class with the largest output for each row; None as before
    probabilities: Float64[np.ndarray, "M nL"] | None = None  # the softmax of the outputs; None but for cross_entropy

    def write(self, path: Path, suffix: str) -> None:
        """Write them as `.csv` or `.npz`."""
        if suffix == ".npz":
            arrays = {"outputs": self.outputs, "label": self.labels, "probabilities": self.probabilities}
            with path.open("wb") as stream:
                np.savez(stream, allow_pickle=False, **{name: a for name, a in arrays.items() if a is not None})
            return
        names = range(1, self.outputs.shape[1] + 1) if self.classes is None else self.classes
        heads, columns = [f"output {name}" for name in names], [*self.outputs.T.tolist()]
        if self.labels is not None:
            heads, columns = [*heads, "label"], [*columns, self.labels.tolist()]
        if self.probabilities is not None:
            heads = [*heads, *(f"probability {name}" for name in names)]
            columns = [*columns, *self.probabilities.T.tolist()]
        table(lambda: [heads, *zip(*columns, strict=True)])(path)


def predictions(result: Result, X: Float64[np.ndarray, "M n0"]) -> Predictions:
    """Return the outputs at X and the classes that they predict; raise a RecordError if no network is solved."""
    if not np.isfinite(result.cost):
        raise RecordError("The run holds no network that fits exactly; solve again.")
    F, is_likelihood = result.scores(X), isinstance(result.problem.loss, Likelihood)
    named = None if result.coding is None else result.coding.classes
    if named is None and not is_likelihood:
        return Predictions(F if result.coding is None else result.coding.outputs(F))
    classes = named or tuple(map(str, range(F.shape[1])))
    probabilities = result.predict_proba(X) if is_likelihood else None
    return Predictions(F, classes, np.array(classes)[F.argmax(axis=1)], probabilities)


def format_of(path: Path) -> str:
    """Return `.csv` or `.npz`; raise a DataError for another format."""
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise DataError(f"{path} is of no format that predictions have; choose a name that ends in .csv or .npz.")
    return suffix


def is_predictions(path: Path) -> bool:
    """Return True if a file was written by `Predictions.write`."""
    try:
        if path.suffix.lower() == ".npz":
            with zipfile.ZipFile(path) as archive:
                return _FIRST in archive.namelist()
        with path.open("rb") as stream:
            return stream.read(7) == b"output "
    except (OSError, CovoptError, zipfile.BadZipFile):
        return False


@dataclass(frozen=True)
class HeldOut:
    """Inputs (M, n_0) and targets (M, n_L) that no network sees during its training."""

    X: Float[Tensor, "M n0"]
    Y: Float[Tensor, "M nL"]

    @staticmethod
    def of(test: object, problem: Problem) -> HeldOut | None:
        """Check a pair of held-out inputs and targets against the data of a problem; None stays None."""
        if test is None:
            return None
        if not (isinstance(test, (tuple, list)) and len(test) == 2):
            raise ProblemError(f"test is {shown(test)}; give a pair of held-out inputs and targets.")
        task = "regression" if problem.classes is None else None
        checked = make_problem(
            *test, lam=problem.stated_lam, loss=problem.loss, depth=problem.depth, device=problem.X.device, task=task,
            classes=problem.classes,
        ).double()  # fmt: skip
        for name, mine, theirs in (("inputs", checked.X, problem.X), ("targets", checked.Y, problem.Y)):
            if mine.shape[1] != theirs.shape[1]:
                raise ProblemError(
                    f"The held-out {name} have {counted(mine.shape[1], 'column')} and those of the data"
                    f" {theirs.shape[1]}; give held-out data of the same kind."
                )
        return HeldOut(checked.X, checked.Y)

    def score(self, problem: Problem, weights: Weights) -> float:
        """Return C(F) on these data, without the penalty."""
        return float(mean_loss(problem.loss, outputs(problem, weights, self.X), self.Y, None))


def folds_of(samples: int, folds: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Return (rows to solve on, rows held out) of 2 to `samples` random folds that differ by at most one row."""
    if not 2 <= folds <= samples:
        raise ProblemError(f"folds is {shown(folds)}; give a whole number from 2 to {samples}, the number of rows.")
    parts = torch.randperm(samples, generator=torch.Generator().manual_seed(seed)).tensor_split(folds)
    training = [torch.cat([part for part in parts if part is not held]) for held in parts]
    return [(rows.sort().values, held.sort().values) for rows, held in zip(training, parts, strict=True)]
