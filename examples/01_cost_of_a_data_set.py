"""
What does a data set cost?
==========================

The representation cost of data is the smallest sum of squared weights of a network that fits them exactly. Here are
twelve points on a line. With one input and a bias, covopt goes through every activation pattern, so that the answer is
exact.
"""

import matplotlib.pyplot as plt
import numpy as np

import covopt

x = np.linspace(-1.0, 1.0, 12)[:, None]
curves = {"line": x, "hat": 1.0 - np.abs(x), "two waves": np.sin(2.0 * np.pi * x)}
results = {name: covopt.solve(x, y, gap=1e-6, time_limit=10) for name, y in curves.items()}
for name, result in results.items():
    print(
        f"{name:10} R = {result.cost:.6f}, proved >= {result.lower:.6f} ({result.certificate}), {result.widths} neurons"
    )

# %%
# The cost grows with the turns that the network has to take, not with the number of points. This is what the three
# networks of least norm do between the points.

grid = np.linspace(-1.2, 1.2, 400)[:, None]
figure, axes = plt.subplots(1, 3, figsize=(9, 3), sharey=True, layout="constrained")
for axis, (name, result) in zip(axes, results.items(), strict=True):
    axis.plot(grid, result.predict(grid))
    axis.plot(x, curves[name], "k.")
    axis.set(title=f"{name}: R = {result.cost:.3f}", xlabel="input x")
axes[0].set_ylabel("output")
plt.show()
