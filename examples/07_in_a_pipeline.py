"""
How does covopt work in a scikit-learn pipeline?
================================================

``CovoptClassifier`` and ``CovoptRegressor`` are ordinary estimators. Here cross-validation chooses lam for a classifier
of irises, and the winner still carries its bound.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline

import covopt

X, y = load_iris(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0, stratify=y)
network = make_pipeline(PCA(3), covopt.CovoptClassifier(loss="mse"))
lams = [1e-3, 1e-2, 1e-1]
search = GridSearchCV(network, {"covoptclassifier__lam": lams}, cv=3).fit(X_train, y_train)
best = search.best_estimator_[-1]
print(f"best lam {best.lam:g}, accuracy on held-out flowers {search.score(X_test, y_test):.3f}")
print(f"cost {best.cost_:.5f}, proved >= {best.lower_:.5f} ({best.certificate_}), {best.widths_} neurons")

# %%
# The estimator's network is a plain ``torch.nn.Sequential``:

print(best.to_torch())

# %%
# What lam does to the accuracy.

scores = search.cv_results_
figure, axis = plt.subplots(figsize=(5, 3), layout="constrained")
axis.errorbar(lams, scores["mean_test_score"], yerr=scores["std_test_score"], marker="o", capsize=4)
axis.set(xscale="log", xlabel="lam", ylabel="accuracy, 3 folds")
plt.show()
