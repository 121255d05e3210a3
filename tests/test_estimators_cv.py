"""The estimators that choose lam: scikit-learn's own checks, and that what they choose is what held-out rows say."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import KFold
from sklearn.utils.estimator_checks import parametrize_with_checks

from covopt import CovoptClassifierCV, CovoptRegressor, CovoptRegressorCV, ProblemError
from covopt.model.problem import make_problem
from covopt.studies.path.lam_max import lam_max

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SMALL = {"lams": (0.1, 0.01), "cv": 2, "max_iter": 1, "certify": "none", "activation": "linear"}
"""Each fit is five solves, and scikit-learn fits some hundred times: linear networks are solved at once."""


def data(rows: int = 24) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((rows, 1))
    return X, np.maximum(X[:, 0], 0.0) + 0.3 * rng.standard_normal(rows)


@pytest.mark.slow
@parametrize_with_checks([CovoptRegressorCV(**SMALL), CovoptClassifierCV(**SMALL)])
def test_scikit_learn_accepts_the_estimator(estimator: BaseEstimator, check: object) -> None:
    check(estimator)  # type: ignore[operator]


def test_the_lam_that_is_chosen_has_the_least_error_on_held_out_rows() -> None:
    X, y = data()
    lams = [0.3, 0.01]
    folds = KFold(2, shuffle=True, random_state=0)
    found = CovoptRegressorCV(lams, cv=folds, time_limit=30).fit(X, y)
    assert found.lams_.tolist() == lams
    errors = np.empty((2, 2))
    for place, (kept, out) in enumerate(folds.split(X)):
        for row, lam in enumerate(lams):
            errors[row, place] = np.mean((CovoptRegressor(lam).fit(X[kept], y[kept]).predict(X[out]) - y[out]) ** 2)
    np.testing.assert_allclose(found.mse_path_, errors, rtol=0.05)
    assert found.lam_ == lams[int(errors.mean(axis=1).argmin())]
    again = CovoptRegressor(found.lam_).fit(X, y)
    np.testing.assert_allclose(found.predict(X), again.predict(X), atol=1e-8)
    assert found.cost_ == again.cost_


def test_without_values_they_begin_at_lam_max() -> None:
    X, y = data()
    found = CovoptRegressorCV(n_lams=3, eps=1e-2, cv=2, max_iter=2, time_limit=10).fit(X, y)
    top = lam_max(make_problem(X, y, lam=1.0), 0.0).upper
    np.testing.assert_allclose(found.lams_, [top, 0.1 * top, 0.01 * top], rtol=1e-9)
    assert clone(found).get_params() == found.get_params()


def test_the_classifier_knows_its_classes() -> None:
    X, y = data()
    labels = np.where(y > 0.4, "high", "low")
    found = CovoptClassifierCV([0.1, 0.01], cv=2, max_iter=2, time_limit=10).fit(X, labels)
    assert found.score_path_.shape == (2, 2)
    assert found.lam_ == found.lams_[found.score_path_.mean(axis=1).argmax()]
    assert set(found.predict(X)) <= {"high", "low"}
    np.testing.assert_allclose(found.predict_proba(X).sum(axis=1), 1.0)
    with pytest.raises(ProblemError, match="lam"):
        CovoptClassifierCV([-1.0]).fit(X, labels)
