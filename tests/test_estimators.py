"""The estimators: scikit-learn's own checks, that they are `solve` in other words, and which lam some choose."""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import softmax
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import covopt
from covopt import CovoptClassifier, CovoptClassifierCV, CovoptRegressor, CovoptRegressorCV
from covopt.answer import held_out
from covopt.model.problem import make_problem
from covopt.studies.path.lam_max import lam_max

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SMALL = {"lams": (0.1, 0.01), "cv": 2, "max_iter": 1, "certify": "none", "activation": "linear"}
"""Each fit is five solves, and scikit-learn fits some hundred times: linear networks are solved at once."""


def data(rows: int = 12) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(3).standard_normal((rows, 2))
    return X, np.maximum(X[:, 0], 0.0) - X[:, 1]


@pytest.mark.slow
@parametrize_with_checks(
    [CovoptRegressor(), CovoptClassifier(), CovoptRegressorCV(**SMALL), CovoptClassifierCV(**SMALL)]
)
def test_scikit_learn_accepts_the_estimator(estimator: BaseEstimator, check: object) -> None:
    check(estimator)  # type: ignore[operator]


def test_the_regressor_is_solve_with_its_bounds() -> None:
    X, y = data()
    fitted = CovoptRegressor(lam=0.01, scale="none").fit(X, y)
    asked = covopt.solve(X, y, lam=0.01)
    assert (fitted.cost_, fitted.lower_, fitted.gap_) == (asked.cost, asked.lower, asked.gap)
    assert (fitted.certificate_, fitted.status_, fitted.widths_) == ("exact", "optimal", asked.widths)
    assert 0 <= fitted.gap_ <= 1e-4
    squared = np.mean((fitted.predict(X) - y) ** 2)
    weights = sum(float(W.square().sum()) for W in fitted.result_.weights)
    assert fitted.cost_ == pytest.approx(squared + 0.01 * weights, rel=1e-12)
    assert fitted.predict(X).shape == (12,)
    assert CovoptRegressor(lam=0.1, max_iter=2).fit(X, np.c_[y, -y]).predict(X).shape == (12, 2)


def test_without_lam_the_network_fits_exactly() -> None:
    X, y = data(6)
    assert CovoptRegressor(lam=None, time_limit=20).fit(X, y).score(X, y) == pytest.approx(1.0, abs=1e-9)


def test_probabilities_are_the_softmax_of_the_outputs() -> None:
    X, y = load_iris(return_X_y=True)
    chosen = slice(0, 150, 10)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    fitted = CovoptClassifier(lam=0.01, max_iter=3).fit(X[chosen], names[chosen])
    assert list(fitted.classes_) == ["setosa", "versicolor", "virginica"]
    np.testing.assert_allclose(fitted.predict_proba(X), softmax(fitted.decision_function(X), axis=1))
    assert fitted.score(X, names) > 0.9
    assert set(fitted.predict(X)) <= set(names)
    log_loss = -np.log(fitted.predict_proba(X[chosen])[np.arange(15), y[chosen]]).mean()
    assert fitted.result_.fit == pytest.approx(log_loss, rel=1e-9)
    squares = CovoptClassifier(lam=0.01, loss="mse", max_iter=2).fit(X[chosen], y[chosen])
    assert not hasattr(squares, "predict_proba")
    assert squares.predict(X).dtype == y.dtype


def test_it_works_in_a_pipeline_and_a_grid_search_and_survives_pickling() -> None:
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:30, :3], y[:30] / 100.0
    pipeline = make_pipeline(StandardScaler(), CovoptRegressor(max_iter=2))
    search = GridSearchCV(pipeline, {"covoptregressor__lam": [0.03, 1.0]}, cv=2).fit(X, y)
    assert search.best_params_["covoptregressor__lam"] in (0.03, 1.0)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(search)).predict(X), search.predict(X))
    best = search.best_estimator_[-1]
    assert pickle.loads(pickle.dumps(best)).result_.summary() == best.result_.summary()
    assert len(cross_val_score(clone(best), X, y, cv=2)) == 2


def test_it_takes_frames_and_remembers_their_columns() -> None:
    X, y = data()
    frame = pd.DataFrame(X, columns=["left", "right"])
    fitted = CovoptRegressor(max_iter=2).fit(frame, pd.Series(y))
    assert list(fitted.feature_names_in_) == ["left", "right"]
    assert (fitted.n_features_in_, fitted.result_.columns) == (2, ("left", "right"))
    assert CovoptRegressorCV(**SMALL).fit(frame, pd.Series(y)).result_.columns == ("left", "right")
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame[["right", "left"]])
    np.testing.assert_array_equal(CovoptRegressor(max_iter=2).fit(X, y).predict(X), fitted.predict(frame))


def test_units_of_the_data_do_not_matter(tmp_path: Path) -> None:
    """Standardised data are the same problem in all units, and what is stored predicts in those of the data."""
    X, y = data()
    moved, targets = X * [100.0, 0.01] + [7.0, -3.0], np.c_[y, y**2] * 50.0 + [9.0, 4.0]
    plain, fitted = CovoptRegressor(max_iter=3).fit(X, np.c_[y, y**2]), CovoptRegressor(max_iter=3).fit(moved, targets)
    assert fitted.cost_ == pytest.approx(plain.cost_, rel=1e-9)
    np.testing.assert_allclose(fitted.predict(moved), plain.predict(X) * 50.0 + [9.0, 4.0], rtol=1e-6, atol=1e-6)
    outputs = fitted.to_torch()(torch.from_numpy(moved)).detach().numpy()
    np.testing.assert_allclose(outputs, fitted.predict(moved), rtol=1e-12, atol=1e-9)
    residual = np.square(fitted.predict(moved) - targets).sum() / np.square(targets - targets.mean(axis=0)).sum()
    assert fitted.result_.fit == pytest.approx(residual, rel=1e-9)
    fitted.result_.save(tmp_path / "run")
    np.savez(tmp_path / "new.npz", X=moved, Y=targets)
    run = covopt.load(tmp_path / "run")
    further = held_out.further(run, tmp_path / "new.npz")
    np.testing.assert_array_equal(held_out.predictions(run, further.X).outputs, fitted.predict(moved))
    assert held_out.score(run, further)["loss"] == pytest.approx(residual, rel=1e-9)
    with pytest.raises(covopt.DataError, match="The scale 'unit' is unknown"):
        CovoptRegressor(scale="unit").fit(X, y)


def test_a_default_fit_ends_by_what_rounds_gain_near_the_minimum() -> None:
    """Teacher data of 6 inputs: the rounds that are not made would have gained little, and the answer is repeatable."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((40, 4))
    y = np.maximum(X @ rng.standard_normal((4, 3)), 0.0).sum(axis=1) + 0.3 * rng.standard_normal(40)
    fitted, again = (CovoptRegressor(scale="none", time_limit=limit).fit(X, y) for limit in (300.0, 250.0))
    assert (fitted.status_, fitted.cost_) == ("tolerance", again.cost_)
    further = covopt.solve(X, y, lam=1e-2, certify="none", max_iterations=2 * fitted.n_iter_)
    rounds = [line.iteration for line in fitted.result_.history]
    assert rounds[-1] < further.history[-1].iteration
    assert further.cost <= fitted.cost_ <= 1.01 * further.cost
    deep = CovoptRegressor(depth=3, certify="none", tol=0.01).fit(X[:8], y[:8])
    assert deep.status_ == "tolerance"
    assert len(deep.result_.starts) < 48  # of the random starts, which are not all drawn


def test_a_limit_is_told() -> None:
    X, y = data()
    with pytest.warns(ConvergenceWarning, match="iteration limit with the best network so far; raise max_iter."):
        fitted = CovoptRegressor(lam=1e-4, max_iter=1).fit(X, y)
    assert (fitted.status_, fitted.n_iter_) == ("iteration_limit", 1)


def test_lam_is_half_of_the_weight_decay_of_pytorch() -> None:
    """At the solver's minimum one step of SGD with weight_decay = 2 lam on the same mean loss moves nothing.

    beta = 1, so that PyTorch's biases are the bias columns of W, and are decayed like them.
    """
    lam, X = 0.01, 1.0 + np.abs(data()[0])
    y = X @ [1.0, 2.0]  # one neuron, active everywhere: no sample on a kink
    fitted = CovoptRegressor(lam=lam, scale="none", gap=1e-12, time_limit=20).fit(X, y)
    network, inputs = fitted.to_torch(), torch.from_numpy(X)
    assert [type(module).__name__ for module in network] == ["Linear", "ReLU", "Linear"]
    np.testing.assert_allclose(network(inputs).detach().numpy()[:, 0], fitted.predict(X), atol=1e-12)
    moved = {decay: _moved_by_sgd(network, inputs, torch.from_numpy(y)[:, None], decay) for decay in (2 * lam, lam)}
    assert moved[2 * lam] < 1e-6
    assert moved[lam] > 1e-3


def _moved_by_sgd(network: torch.nn.Sequential, X: torch.Tensor, Y: torch.Tensor, decay: float) -> float:
    """The longest move of a parameter in one step of length 1, back to the start afterwards."""
    before = [p.detach().clone() for p in network.parameters()]
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0, weight_decay=decay)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(network(X), Y).backward()
    optimizer.step()
    moved = max(float((p.detach() - b).abs().max()) for p, b in zip(network.parameters(), before, strict=True))
    with torch.no_grad():
        for p, b in zip(network.parameters(), before, strict=True):
            p.copy_(b)
    return moved


@pytest.mark.filterwarnings("always::sklearn.exceptions.ConvergenceWarning")
def test_a_search_is_told_once_that_its_fits_stop_at_a_limit() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((24, 2)), rng.standard_normal(24)
    search = GridSearchCV(CovoptRegressor(certify="none", max_iter=1), {"lam": [0.01, 0.02]}, cv=3)
    with pytest.warns(ConvergenceWarning) as told:
        search.fit(X, y)
    assert len(told) == 1
    assert told[0].filename == __file__
    for _ in range(2):  # a fit of one's own is told every time
        with pytest.warns(ConvergenceWarning, match="iteration limit"):
            CovoptRegressor(certify="none", max_iter=1).fit(X, y)


# ---- those that choose lam
def noisy(rows: int = 24) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((rows, 1))
    return X, np.maximum(X[:, 0], 0.0) + 0.3 * rng.standard_normal(rows)


def test_the_lam_that_is_chosen_has_the_least_error_on_held_out_rows() -> None:
    X, y = noisy()
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
    twice = CovoptRegressorCV(lams, cv=folds, time_limit=30).fit(X, np.c_[y, y])
    np.testing.assert_allclose(twice.mse_path_, errors, rtol=0.05)  # the mean over outputs
    assert "_Chosen" not in CovoptRegressorCV.__init__.__qualname__  # messages about parameters begin with it


def test_without_values_they_begin_at_lam_max() -> None:
    X, y = noisy()
    found = CovoptRegressorCV(n_lams=3, eps=1e-2, cv=2, max_iter=2, time_limit=10, scale="none").fit(X, y)
    top = lam_max(make_problem(X, y, lam=1.0), 0.0).upper
    np.testing.assert_allclose(found.lams_, [top, 0.1 * top, 0.01 * top], rtol=1e-9)
    assert clone(found).get_params() == found.get_params()


def test_the_classifier_knows_its_classes() -> None:
    X, y = noisy()
    found = CovoptClassifierCV([0.1, 0.01], cv=2, max_iter=2, time_limit=10).fit(X, np.where(y > 0.4, "high", "low"))
    assert found.score_path_.shape == (2, 2)
    assert found.lam_ == found.lams_[found.score_path_.mean(axis=1).argmax()]
    assert set(found.predict(X)) <= {"high", "low"}
    np.testing.assert_allclose(found.predict_proba(X).sum(axis=1), 1.0)


def test_an_audit_says_what_of_an_estimator_it_takes() -> None:
    X, y = load_diabetes(return_X_y=True)
    model = CovoptRegressor(lam=0.1, time_limit=5).fit(X[:30, :2], y[:30])
    with pytest.raises(covopt.DataError, match=r"is a CovoptRegressor; give its result_, and as the data"):
        covopt.validate(model, X[:30, :2], y[:30], lam=0.1)
    problem = model.result_.problem
    audit = covopt.validate(model.result_, problem.X, problem.Y, lam=0.1, time_limit=2)
    assert audit.loss == pytest.approx(model.cost_, rel=1e-9)
