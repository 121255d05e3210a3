"""Estimators that choose lam by cross-validation along a path, as scikit-learn's LassoCV."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import check_cv
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from covopt.estimators import CovoptClassifier, CovoptRegressor, _Estimator
from covopt.model.problem import make_problem
from covopt.model.scalars import as_number, read_strengths
from covopt.runtime.errors import ProblemError
from covopt.runtime.interrupts import interrupted
from covopt.runtime.loop import Status
from covopt.runtime.options import by_rule
from covopt.studies.path.lam_max import lam_max
from covopt.studies.path.path import path

# The part of the time limit for the folds; the rest is for the fit on all rows.
FOLDS = 0.7


@dataclass(eq=False, repr=False)
class _Chosen(_Estimator):
    """The parameters, and the path of each fold, for both estimators."""

    lams: Any = None
    _: KW_ONLY
    n_lams: Any = 20
    eps: Any = 1e-3
    cv: Any = None
    _default_loss: ClassVar[str]

    def _losses(self, X: NDArray, Y: NDArray, labels: NDArray, seed: int) -> NDArray[np.float64]:
        """Return the mean held-out losses (n_lams, n_folds); set `lam_` and, falling, `lams_`."""
        estimator: Any = self
        by_rule({name: getattr(self, name) for name in ("n_lams", "time_limit", "skip")}, {})
        if not 0.0 < as_number(self.eps, "eps") < 1.0 or self.n_lams < 1:
            raise ProblemError(
                f"n_lams is {self.n_lams} and eps {self.eps:g}; give at least 1, and eps between 0 and 1."
            )
        loss: Any = self.loss or self._default_loss
        question = {"loss": loss} | {name: getattr(self, name) for name in ("depth", "bias", "skip", "activation")}
        cv: Any = self.cv
        splitter: Any = check_cv(cv, labels, classifier=isinstance(self, CovoptClassifier))
        folds = list(splitter.split(X, labels))
        lams, options = self.lams, {**question, "seed": seed, "device": self.device, "max_iterations": self.max_iter}
        if lams is None:
            coding = estimator._coding(X, Y)
            scaled = make_problem(coding.inputs(X, "X"), coding.numbers(Y), lam=1.0, free=True, **question)
            top = lam_max(scaled.double(), 0.0, seed).lower or 1.0
            lams = np.geomspace(top, self.eps * top, self.n_lams)
        self.lams_ = np.array(read_strengths(lams))
        losses_of_folds = []
        for training, held_out in folds:
            coding = estimator._coding(X[training], Y[training])
            inputs, targets = coding.inputs(X, "X"), coding.numbers(Y)
            along = path(
                inputs[training],
                targets[training],
                lams=self.lams_.tolist(),
                test=(inputs[held_out], targets[held_out]),
                certify="none",
                progress=bool(self.verbose),
                time_limit=FOLDS * self.time_limit / len(folds),
                **options,
            )
            if along.status is Status.INTERRUPTED or interrupted():
                raise KeyboardInterrupt
            loss_at = dict(zip(along.lams, along.tests, strict=True))
            unit = 1.0 if coding.deviation is None else float(coding.deviation[0]) ** 2
            losses_of_folds.append([unit * loss_at.get(lam, np.inf) for lam in self.lams_.tolist()])
        losses = np.array(losses_of_folds).T
        self.lam_ = float(self.lams_[int(np.argmin(losses.mean(axis=1)))])
        return losses

    def _refit(self, made: Any, X: Any, y: Any) -> None:
        """Fit on all rows at `lam_`, with the parameters that both have, and take over what that sets."""
        shared = {field.name: getattr(self, field.name) for field in fields(_Chosen)}
        shared = {name: value for name, value in shared.items() if name in made.get_params()}
        made.set_params(**shared | {"lam": self.lam_, "time_limit": (1.0 - FOLDS) * self.time_limit})
        made.fit(X, y)
        vars(self).update({name: value for name, value in vars(made).items() if name not in made.get_params()})


# Python's message about an unknown parameter names the constructor, which both share.
_Chosen.__init__.__qualname__ = "CovoptRegressorCV and CovoptClassifierCV"


class CovoptRegressorCV(_Chosen, CovoptRegressor):
    """`CovoptRegressor` with lam of least held-out mean squared error, refitted on all rows.

    >>> x = np.linspace(-1.0, 1.0, 12)
    >>> chosen = covopt.CovoptRegressorCV([0.1, 0.001], cv=3, max_iter=2).fit(x[:, None], np.abs(x))
    >>> chosen.lam_
    0.001

    Each fold solves all values of lam as one path, from the largest down, each from its neighbours' neurons.

    Args:
        lams, n_lams, eps: the values; None: `n_lams` of them from lam_max, the smallest lam at which no hidden neurons
            are needed, down to `eps` times it.
        cv: folds, a splitter of scikit-learn, or pairs of row numbers; None: 5.
        time_limit: seconds, seven tenths of them for the folds.
        max_iter: rounds of each solve.
        verbose: show a line of each solve on standard error.
        loss, depth, bias, skip, activation, scale, certify, gap, device, random_state: as for `CovoptRegressor`.

    Attributes:
        lam_: the value that is chosen; lams_: all of them, from the largest down.
        mse_path_: (n_lams, n_folds), the mean squared error on the rows held out, averaged over outputs.
        cost_, result_ and the others: those of `CovoptRegressor` fitted on all rows.
    """

    _default_loss = "mse"

    def fit(self, X: Any, y: Any) -> CovoptRegressorCV:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Choose lam, and solve for inputs X (N, n_0) and targets y (N,) or (N, n_L).

        Raises:
            ProblemError: an option out of range; ValueError: data that scikit-learn refuses.
        """
        checked: Any = validate_data(self, X, y, dtype=np.float64, order="C", multi_output=True, y_numeric=True)
        inputs, targets = checked[0], np.asarray(checked[1], dtype=np.float64)
        outputs = targets.reshape(len(targets), -1)
        self.mse_path_ = self._losses(inputs, outputs, targets, self._seed()) / outputs.shape[1]
        self._refit(CovoptRegressor(), X, y)
        return self


class CovoptClassifierCV(_Chosen, CovoptClassifier):
    """`CovoptClassifier` with lam of least held-out loss, refitted on all rows.

    >>> x = np.linspace(-1.0, 1.0, 12)
    >>> chosen = covopt.CovoptClassifierCV([0.1, 0.001], cv=3, max_iter=2).fit(x[:, None], np.abs(x) > 0.5)
    >>> chosen.predict([[0.0], [1.0]])
    array([False,  True])

    Args:
        loss: cross_entropy, the default, or mse on one-hot targets. The others are those of `CovoptRegressorCV`.

    Attributes:
        score_path_: (n_lams, n_folds), minus the mean loss on the rows held out.
        classes_: the labels. The others are those of `CovoptRegressorCV` and `CovoptClassifier`.
    """

    _default_loss = "cross_entropy"

    def fit(self, X: Any, y: Any) -> CovoptClassifierCV:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Choose lam, and solve for inputs X (N, n_0) and labels y (N,).

        Raises:
            ProblemError: an option out of range; ValueError: data that scikit-learn refuses.
        """
        checked: Any = validate_data(self, X, y, dtype=np.float64, order="C")
        inputs, labels = checked
        check_classification_targets(labels)
        self.score_path_ = -self._losses(inputs, self._one_hot(labels), labels, self._seed())
        self._refit(CovoptClassifier(), X, y)
        return self

    def _loss(self) -> str:
        return self.loss or self._default_loss
