"""
What does the network do?
=========================

A network of one or two inputs can be looked at: ``Result.plot`` draws it as a function, with its kinks, the data, and
what each neuron does. A report shows the same.
"""

import matplotlib.pyplot as plt
import numpy as np

import covopt

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(-2, 2, 40))
y = np.sin(3 * x) + 0.1 * rng.standard_normal(40)

# %%
# One input. Circles are the kinks, found exactly: the network is linear between them. The thin lines are what each
# neuron adds. A larger lam leaves fewer kinks.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
for axis, lam in zip(axes, (1e-3, 3e-2), strict=True):
    result = covopt.solve(x[:, None], y, lam=lam, tol=1e-3, time_limit=20)
    result.plot(axis)
    axis.set_title(f"lam {lam:g}: {result.widths[0]} neurons, gap {result.gap:.1e}")
plt.show()

# %%
# Two inputs and three classes: the regions of the largest output. On each side of a thin line a neuron is active, on
# the other it is not.

X = rng.uniform(-1, 1, (60, 2))
classes = np.digitize(np.hypot(X[:, 0], X[:, 1]), [0.5, 0.9])
result = covopt.solve(X, np.eye(3)[classes], lam=2e-3, loss="cross_entropy", certify="none", tol=1e-3, time_limit=20)
result.plot()
plt.show()

# %%
# Probabilities of the classes at further points, and a map of a network with one output.

print(result.predict_proba([[0.0, 0.0], [0.7, 0.7]]).round(3))
heights = covopt.solve(X, np.abs(X[:, 0]) - X[:, 1], lam=1e-3, certify="none", tol=1e-3, time_limit=20)
heights.plot()
plt.show()
