"""Benchmark of the scikit-learn estimators at their defaults, on the data as scikit-learn ships them."""

import sys
import time

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from covopt import CovoptClassifier, CovoptRegressor
from tests.benchmarks.harness import Outcome, Settings, benchmark, rounded

LOADERS = (load_diabetes, load_breast_cancer, load_wine, load_iris, load_digits)
ROWS, WITHIN = 500, 0.02
"""Digits that are taken; how much worse than a linear model a score may be."""


def contenders(regression: bool) -> tuple[BaseEstimator, BaseEstimator, BaseEstimator]:
    """covopt's estimator, scikit-learn's network and its linear model, each at its defaults."""
    if regression:
        return CovoptRegressor(), MLPRegressor(random_state=0), Ridge()
    return CovoptClassifier(), MLPClassifier(random_state=0), make_pipeline(StandardScaler(), LogisticRegression())


@benchmark("estimators", "R^2 or accuracy of the estimators at their defaults, by cross-validation (2 min)")
def run_estimators(settings: Settings) -> Outcome:
    """Five folds, shuffled with the seed; the last column has the processor seconds of a fit of ours."""
    rows, good = [], 0
    for load in LOADERS:
        X, y = load(return_X_y=True)
        X, y = (X[:ROWS], y[:ROWS]) if load is load_digits else (X, y)
        regression = load is load_diabetes
        folds = (KFold if regression else StratifiedKFold)(5, shuffle=True, random_state=settings.seed)
        scores, seconds = [], []
        for estimator in contenders(regression):
            started = time.process_time()
            scores.append(float(np.mean(cross_val_score(estimator, X, y, cv=folds))))
            seconds.append((time.process_time() - started) / 5.0)
        good += scores[0] >= max(scores[1], scores[2] - WITHIN)
        name = load.__name__.removeprefix("load_").replace("_", " ")
        rows.append((name, *(round(score, 4) for score in scores), rounded(seconds[0])))
        print(f"  {rows[-1]}", file=sys.stderr, flush=True)
    return Outcome(
        target=f"at least the MLP at its defaults, and at most {WITHIN} below ridge or logistic regression, on each",
        reached=f"{good} of {len(rows)}",
        met=good == len(rows),
        columns=("data", "covopt", "MLP", "linear", "seconds of a fit"),
        rows=rows,
    )
