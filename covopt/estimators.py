"""scikit-learn's faces of `solve`: a regressor and a classifier that know what they cost, and what is proved of it.

lam |W|^2 has the gradient 2 lam W, and PyTorch's SGD with `weight_decay` wd adds wd W, so that lam = wd / 2 where the
loss is the same mean over samples; see docs/estimators.md.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from covopt.answer import solve
from covopt.loop import Status

_BETWEEN = ("covopt", "sklearn", "joblib")
_warned: set[tuple[str, int, str]] = set()
"""The lines that have been warned that their fits stop at a limit."""
LIMITS = (Status.TIME_LIMIT, Status.ITERATION_LIMIT)


class _Network(BaseEstimator):
    """What both estimators share: the options of `solve`, and its answer as attributes."""

    # Unannotated, as scikit-learn has it: any value is taken here, and `fit` says what is wrong with it.
    def __init__(
        self,
        lam=1e-2,
        *,
        loss=None,
        depth=2,
        bias=1.0,
        activation="relu",
        method="cone",
        certify="fast",
        gap=1e-4,
        tol=1e-3,
        time_limit=300.0,
        max_iter=None,
        width=None,
        max_width=None,
        starts=None,
        device=None,
        random_state=0,
    ) -> None:
        self.lam = lam
        self.loss = loss
        self.depth = depth
        self.bias = bias
        self.activation = activation
        self.method = method
        self.certify = certify
        self.gap = gap
        self.tol = tol
        self.time_limit = time_limit
        self.max_iter = max_iter
        self.width = width
        self.max_width = max_width
        self.starts = starts
        self.device = device
        self.random_state = random_state

    def to_torch(self) -> torch.nn.Sequential:
        """The network as a plain `torch.nn.Sequential`, in float64; a classifier's outputs are its scores."""
        check_is_fitted(self)
        return self.result_.to_torch()

    def _solve(self, X: NDArray, Y: NDArray, loss: str | None) -> None:
        """Solve, and take the answer apart into fitted attributes."""
        found = solve(
            X,
            Y,
            lam=self.lam,
            loss=loss,
            depth=self.depth,
            bias=self.bias,
            activation=self.activation,
            method=self.method,
            certify=self.certify,
            gap=self.gap,
            tol=self.tol if self.method == "cone" else None,
            time_limit=self.time_limit,
            max_iterations=self.max_iter,
            seed=self._seed(),
            device=self.device,
            width=self.width,
            max_width=self.max_width,
            starts=self.starts,
        )
        if found.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        if found.status in LIMITS:
            _warn_once(f"{type(self).__name__} stopped at its {found.status.replace('_', ' ')} with the best network")
        self.result_ = found
        self.cost_, self.lower_, self.gap_ = found.cost, found.lower, found.gap
        self.certificate_, self.status_ = str(found.certificate), str(found.status)
        self.widths_ = found.widths
        self.n_iter_ = max(1, found.history[-1].iteration - 1)  # the last line is the answer itself

    def _seed(self) -> int:
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _outputs(self, X: Any) -> NDArray[np.float64]:
        """The network's outputs (M, n_L)."""
        check_is_fitted(self)
        return self.result_.predict(validate_data(self, X, dtype=np.float64, reset=False))


class CovoptRegressor(RegressorMixin, _Network):
    """The network of depth L with the least (1/N) |F - Y|^2 + lam |W|^2, as far as `covopt.solve` finds it.

    Y is used as it is: lam weighs against the squared error in the units of Y, and scaled inputs help.

    Args:
        lam: strength of the penalty on all weights, biases included; None asks for the network of least norm that
            fits exactly, the representation cost. Half of PyTorch's weight_decay.
        loss: mse or interpolate; None means interpolate without lam and mse with it.
        depth: L >= 2, layers of weights.
        bias: beta >= 0; a neuron sees [x, beta], and PyTorch's bias is beta times the last column of W.
        activation: relu, leaky:A or linear.
        method, certify, gap, time_limit, width, max_width, starts, device: as for `covopt.solve`, but certify is fast
            unless you say otherwise: a search over parameters should not wait for the proof of each fit.
        tol: the method cone ends once its rounds lower the cost by less than this part of it, as `covopt.solve` says;
            where an exact oracle knows the gap, at `gap` instead. None: only when nothing more is found, which takes
            minutes. The other methods have no use for it.
        max_iter: rounds of the method; None sets no limit. Unlike time_limit it leaves the answer repeatable.
        random_state: seed of the search; the same seed gives the same network unless time stopped it.

    Attributes:
        cost_: the objective at the network found, an upper bound on the minimum.
        lower_: a proved lower bound on the minimum; None where nothing is proved.
        gap_: (cost_ - lower_) / cost_; None without a bound.
        certificate_: what proves the bound: exact, branch-and-bound, relaxation, sign-branching, spectral
            or none.
        status_: what ended the solve; widths_: hidden neurons of each layer; n_iter_: rounds.
        result_: the whole `Result`; it predicts, saves and shows itself.
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.
    """

    def fit(self, X: Any, y: Any) -> CovoptRegressor:
        """Solve for inputs X (N, n_0) and targets y (N,) or (N, n_L).

        Raises:
            ProblemError: an option out of range; InfeasibleError: no network fits exactly (lam=None).
            ValueError: data that scikit-learn refuses.
        """
        checked: Any = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        inputs, targets = checked[0], np.asarray(checked[1], dtype=np.float64)
        self._flat = targets.ndim == 1
        self._solve(inputs, targets.reshape(len(targets), -1), self.loss)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The network's outputs at the rows of X (M, n_0): (M,) or (M, n_L) as the targets were."""
        found = self._outputs(X)
        return found[:, 0] if self._flat else found

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = True
        tags.target_tags.multi_output = True
        return tags


def _warn_once(message: str) -> None:
    """A ConvergenceWarning that points to the user's line; a search over many fits gives it once for that line."""
    frames = [frame for frame, _ in traceback.walk_stack(sys._getframe(1))]
    modules = [str(frame.f_globals.get("__name__")) for frame in frames]
    level = max((i for i, module in enumerate(modules) if module.partition(".")[0] in _BETWEEN), default=0) + 1
    caller = frames[min(level, len(frames) - 1)]
    place = (caller.f_code.co_filename, caller.f_lineno, message)
    if place in _warned and any(module.startswith("sklearn.model_selection") for module in modules):
        return
    _warned.add(place)
    warnings.warn(f"{message} so far; raise time_limit or max_iter.", ConvergenceWarning, stacklevel=level + 2)


def _has_probabilities(estimator: CovoptClassifier) -> bool:
    return estimator._loss() == "cross_entropy"


class CovoptClassifier(ClassifierMixin, _Network):
    """The network of depth L with the least mean cross-entropy + lam |W|^2, as far as `covopt.solve` finds it.

    Args:
        loss: cross_entropy, or mse or interpolate on one-hot targets; None means cross_entropy with lam and interpolate
            without it. The other parameters are those of `CovoptRegressor`.

    Attributes:
        classes_: the labels, in the order of the network's outputs. The others are those of `CovoptRegressor`.
    """

    def fit(self, X: Any, y: Any) -> CovoptClassifier:
        """Solve for inputs X (N, n_0) and labels y (N,).

        Raises:
            ProblemError: an option out of range; InfeasibleError: no network fits exactly (lam=None).
            ValueError: data that scikit-learn refuses.
        """
        checked: Any = validate_data(self, X, y, dtype=np.float64)
        inputs, labels = checked
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        self._solve(inputs, np.eye(len(self.classes_))[codes], self._loss())
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The network's outputs (M, classes) at X (M, n_0); for two classes their difference (M,)."""
        scores = self._outputs(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X: Any) -> NDArray:
        """The label with the largest output for each row of X."""
        chosen = self._outputs(X).argmax(axis=1)
        return self.classes_[chosen]

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The softmax of the outputs (M, classes); only for the loss cross_entropy, which makes them log-odds."""
        return softmax(self._outputs(X), axis=1)

    def _loss(self) -> str:
        return self.loss or ("interpolate" if self.lam is None else "cross_entropy")
