"""Regressor and classifier of scikit-learn by `solve`, with their cost and its bound.

lam |W|^2 has the gradient 2 lam W, and PyTorch's SGD with `weight_decay` wd adds wd W, so that lam = wd / 2 where the
loss is the same mean over samples; see docs/estimators.md.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from dataclasses import KW_ONLY, dataclass, field, fields
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from covopt.answer.solve import solve
from covopt.data.coding import Coding, labels_of, targets_in_words
from covopt.runtime.errors import ProblemError, shown
from covopt.runtime.loop import Status

_BETWEEN = ("covopt", "sklearn", "joblib")
_warned: set[tuple[str, int, str]] = set()
"""The lines that have been warned that their fits stop at a limit."""
LIMITS = {Status.TIME_LIMIT: "time_limit", Status.ITERATION_LIMIT: "max_iter"}
"""The parameters that end a fit early, by its status."""


@dataclass(eq=False, repr=False, kw_only=True)
class _Estimator(BaseEstimator):
    """The options of `solve` that all estimators have; as in scikit-learn, `fit` checks their values."""

    loss: Any = None
    depth: Any = 2
    bias: Any = 1.0
    skip: Any = False
    activation: Any = "relu"
    scale: Any = "standard"
    certify: Any = "fast"
    gap: Any = 1e-4
    time_limit: Any = 300.0
    max_iter: Any = None
    verbose: Any = False
    device: Any = None
    random_state: Any = 0


@dataclass(eq=False, repr=False)
class _Network(_Estimator):
    """The options of `solve`, and its result as attributes, for both estimators."""

    lam: Any = 1e-2
    _: KW_ONLY
    method: Any = "cone"
    tol: Any = 1e-3
    width: Any = None
    max_width: Any = None
    starts: Any = None

    def to_torch(self) -> torch.nn.Sequential:
        """Return a float64 `torch.nn.Sequential` of the data as they were given; a classifier's gives scores."""
        check_is_fitted(self)
        network, coding = self.result_.to_torch(), self._coded()
        first, last = (layer for layer in (network[0], network[-1]) if isinstance(layer, torch.nn.Linear))
        with torch.no_grad():
            first.weight.mul_(torch.from_numpy(coding.factor))
            first.bias.sub_(first.weight @ torch.from_numpy(coding.shift))
            if coding.mean is not None and coding.deviation is not None:
                last.weight.mul_(torch.from_numpy(coding.deviation)[:, None])
                last.bias.mul_(torch.from_numpy(coding.deviation))
                last.bias.add_(torch.from_numpy(coding.mean))
        return network

    def _coded(self) -> Coding:
        """Return how the data of the fit were scaled."""
        assert self.result_.coding is not None
        return self.result_.coding

    def _coding(self, X: NDArray, Y: NDArray, weight: NDArray | None = None) -> Coding:
        """Return how X and Y are scaled for the problem; weights that are all zero are left to `solve`."""
        names, classes = (
            None if values is None else tuple(map(str, values))
            for values in (getattr(self, name, None) for name in ("feature_names_in_", "classes_"))
        )
        return Coding.measured(X, Y, self.scale, None if weight is None or not weight.any() else weight, names, classes)

    def _solve(self, X: NDArray, Y: NDArray, loss: str | None, weight: NDArray | None) -> None:
        """Solve, and store the result in fitted attributes."""
        X, Y, weight = _counted(X, Y, weight)
        coding = self._coding(X, Y, weight)
        options: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(_Network)} | {"loss": loss}
        options["seed"], options["max_iterations"] = self._seed(), options.pop("max_iter")
        options["progress"] = bool(options.pop("verbose"))
        del options["random_state"], options["scale"]
        if self.method != "cone":
            options["tol"] = None
        result = solve(coding.inputs(X, "X"), coding.numbers(Y), sample_weight=weight, **options)
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        if result.status in LIMITS:
            limit, remedy = result.status.replace("_", " "), LIMITS[result.status]
            _warn_once(f"{type(self).__name__} stopped at its {limit} with the best network so far; raise {remedy}.")
        result.coding, result.scale = coding, self.scale
        result.targets = targets_in_words(Y, coding.classes)
        self.result_ = result
        self.cost_, self.lower_, self.gap_ = result.cost, result.lower, result.gap
        self.certificate_, self.status_ = str(result.certificate), str(result.status)
        self.widths_ = result.widths
        self.n_iter_ = max(1, result.history[-1].iteration - 1)  # the last line is the answer itself

    def _seed(self) -> int:
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        try:
            return int(check_random_state(self.random_state).randint(2**31 - 1))
        except ValueError as error:
            value = shown(self.random_state)
            raise ProblemError(f"random_state is {value}; give a whole number, a RandomState or none.") from error

    def _inputs(self, X: Any) -> NDArray[np.float64]:
        """Return the rows of X (M, n_0) as the network takes them."""
        check_is_fitted(self)
        inputs: Any = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        return self._coded().inputs(inputs, "X")


def _counted(X: NDArray, Y: NDArray, weight: NDArray | None) -> tuple[NDArray, NDArray, NDArray | None]:
    """Return each distinct row once, in a fixed order, with its total weight.

    Distinct rows of equal weight stay as they are. So a row of weight 2 and a row given twice are the same fit to
    the last digit, not to the gap of a search.
    """
    rows, weights = np.hstack([X, Y]) + 0.0, np.ones(len(X)) if weight is None else weight  # + 0.0: -0 is 0
    positive = np.flatnonzero(weights)
    keys = rows[positive].view(np.dtype((np.void, rows[0].nbytes)))[:, 0]  # the bytes of each row
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    if len(first) in (0, len(X)) and (weights == weights[0]).all():
        return X, Y, None if len(first) else weight
    order = positive[first]
    return X[order], Y[order], np.bincount(inverse, weights[positive])


@dataclass(eq=False, repr=False, kw_only=True)
class CovoptRegressor(RegressorMixin, _Network):
    """The network of depth L that minimises (1/N) |F - Y|^2 + lam |W|^2, by `covopt.solve`.

    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> network = covopt.CovoptRegressor(lam=0.1).fit(X, y)
    >>> network.status_, network.widths_[0] < 20
    ('tolerance', True)
    >>> round(network.score(X, y), 1)
    0.5

    By default inputs and targets are standardised, so that one lam means the same for all data.

    Args:
        lam: strength of the penalty on all weights, biases included; None asks for the network of least norm that
            fits exactly, the representation cost. Half of PyTorch's weight_decay.
        loss: mse, huber, huber:D (D in the units of the scaled targets) or interpolate; None means interpolate
            without lam and mse with it.
        depth: L >= 2, layers of weights.
        bias: beta >= 0; a neuron sees [x, beta], and PyTorch's bias is beta times the last column of W. "free":
            unpenalised biases.
        skip: with free biases, also an unpenalised linear function of the inputs; mse and exact fits.
        activation: relu, leaky:A or linear.
        scale: standard, inputs of mean 0 and deviation 1 each, targets of mean 0 and total variance 1; max, inputs
            divided by max|X|; none. `predict` and `to_torch` take and give the data's own units, and lam, `cost_`,
            `lower_` and `result_` are of the scaled problem; `result_.coding` has the numbers.
        method, certify, gap, time_limit, width, max_width, starts, device: as for `covopt.solve`, but certify is fast
            by default, so that a search over parameters does not wait for the proof of each fit.
        tol: the method cone ends once its rounds lower the cost by less than this part of it, as `covopt.solve` says;
            where an exact oracle knows the gap, at `gap` instead. None: when nothing more is found, which takes
            minutes. The other methods do not use it.
        max_iter: rounds of the method; None sets no limit. Unlike time_limit it leaves the answer repeatable.
        verbose: show a line with cost, bound and time on standard error during the fit.
        random_state: seed of the search; the same seed gives the same network unless time stopped it.

    Attributes:
        cost_: the objective at the network found, an upper bound on the minimum.
        lower_: a proved lower bound on the minimum; None where nothing is proved.
        gap_: (cost_ - lower_) / cost_; None without a bound.
        certificate_: what proves the bound, the name of a `Certificate`.
        status_: what ended the solve; widths_: hidden neurons of each layer; n_iter_: rounds.
        result_: the whole `Result`; it predicts, saves and shows itself.
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CovoptRegressor:
        """Solve for X (N, n_0) and y (N,) or (N, n_L), with sample_weight (N,) >= 0 of the rows.

        Weight 2 is a row given twice and weight 0 a row left out; the scale of the weights does not matter.
        `result_` has each different row once.

        Raises:
            ProblemError: an option out of range; InfeasibleError: no network fits exactly (lam=None).
            ValueError: data that scikit-learn refuses.
        """
        checked: Any = validate_data(self, X, y, dtype=np.float64, order="C", multi_output=True, y_numeric=True)
        inputs, targets = checked[0], np.asarray(checked[1], dtype=np.float64)
        self._flat = targets.ndim == 1
        self._solve(inputs, targets.reshape(len(targets), -1), self.loss, _checked(sample_weight, inputs))
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the outputs at the rows of X (M, n_0): (M,) or (M, n_L) as the targets were."""
        inputs = self._inputs(X)
        outputs = self._coded().outputs(self.result_.predict(inputs))
        return outputs[:, 0] if self._flat else outputs

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = True
        tags.target_tags.multi_output = True
        return tags


def _checked(sample_weight: Any, X: NDArray) -> NDArray | None:
    """Weights of at least 0, one for each row."""
    if sample_weight is None:
        return None
    return _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)


def _warn_once(message: str) -> None:
    """Give a ConvergenceWarning at the user's line; in a search over fits, once for that line."""
    frames = [frame for frame, _ in traceback.walk_stack(sys._getframe(1))]
    modules = [str(frame.f_globals.get("__name__")) for frame in frames]
    level = max((i for i, module in enumerate(modules) if module.partition(".")[0] in _BETWEEN), default=0) + 1
    caller = frames[min(level, len(frames) - 1)]
    place = (caller.f_code.co_filename, caller.f_lineno, message)
    if place in _warned and any(module.startswith("sklearn.model_selection") for module in modules):
        return
    _warned.add(place)
    warnings.warn(message, ConvergenceWarning, stacklevel=level + 2)


@dataclass(eq=False, repr=False, kw_only=True)
class CovoptClassifier(ClassifierMixin, _Network):
    """The network of depth L that minimises mean cross-entropy + lam |W|^2, by `covopt.solve`.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> network = covopt.CovoptClassifier().fit(X, y)
    >>> network.predict(X[:2]), network.decision_function(X).shape, network.score(X, y) > 0.95
    (array([0, 0]), (150, 3), True)

    By default inputs are standardised.

    Args:
        lam: strength of the penalty, by default 0.003, below that of `CovoptRegressor`, as cross-entropy has less
            curvature than squared errors.
        loss: cross_entropy, for two classes also logistic (one output), or mse, huber or interpolate on one-hot
            targets; None means cross_entropy with lam and interpolate without it. The other parameters are those of
            `CovoptRegressor`.
        class_weight: how much the rows of each class count, a dictionary from labels to numbers; "balanced": all
            classes the same together; None: as much as their rows.

    Attributes:
        classes_: the labels, in the order of the network's outputs. The others are those of `CovoptRegressor`.
    """

    lam: Any = field(default=3e-3, kw_only=False)
    class_weight: Any = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CovoptClassifier:
        """Solve for X (N, n_0) and labels y (N,), with sample_weight (N,) as `CovoptRegressor`.

        Raises:
            ProblemError: an option out of range; InfeasibleError: no network fits exactly (lam=None).
            ValueError: data that scikit-learn refuses.
        """
        checked: Any = validate_data(self, X, y, dtype=np.float64, order="C")
        inputs, labels = checked
        check_classification_targets(labels)
        one_hot = self._one_hot(labels)
        weight = self._weights(one_hot.argmax(axis=1), _checked(sample_weight, inputs))
        self._solve(inputs, one_hot, self._loss(), weight)
        return self

    def _one_hot(self, labels: NDArray) -> NDArray[np.float64]:
        """Return the one-hot targets, and set `classes_` to their labels."""
        self.classes_, coded = np.unique(labels), labels_of(labels, "y", "classification")
        if coded is None:
            raise ValueError("scikit-learn passed targets that are no labels")
        return coded.one_hot

    def _weights(self, codes: NDArray, weight: NDArray | None) -> NDArray | None:
        """Return the weights of the rows times those of their classes."""
        if self.class_weight is None:
            return weight
        weights = np.ones(len(codes)) if weight is None else weight
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            totals = np.bincount(codes, weights)  # the same for a row given twice as for weight 2
            return weights / np.where(totals > 0.0, totals, 1.0)[codes]
        return weights * compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_)[codes]

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the outputs at X, (M, classes); for two classes (M,), second minus first."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X: Any) -> NDArray:
        """Return the label with the largest output for each row of X."""
        scores = self._scores(X)
        return self.classes_[scores.argmax(axis=1)]

    @available_if(lambda estimator: estimator._loss() in ("cross_entropy", "logistic"))
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the softmax of the outputs at X, (M, classes); for logistic, of 0 and log-odds."""
        inputs = self._inputs(X)
        return self.result_.predict_proba(inputs)

    def _scores(self, X: Any) -> NDArray[np.float64]:
        """Return an output for each class at X, (M, classes); for logistic 0 and the log-odds."""
        inputs = self._inputs(X)
        return self.result_.scores(inputs)

    def _loss(self) -> str:
        return self.loss or ("interpolate" if self.lam is None else "cross_entropy")
