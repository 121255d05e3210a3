"""
What does depth change?
=======================

The representation cost of a linear network has a closed form, L times the sum of the singular values to the power 2/L.
The deeper the network, the more a small singular value costs compared with a large one, so with a penalty fewer
of them remain: the representations collapse to few directions.
"""

import matplotlib.pyplot as plt
import numpy as np

import covopt

rng = np.random.default_rng(1)
X = np.eye(6)
Y = rng.standard_normal((6, 2)) @ np.diag([2.0, 0.4]) @ np.linalg.qr(rng.standard_normal((2, 2)))[0]
s = np.linalg.svd(Y, compute_uv=False)

# %%
# Linear networks: the solver against the closed form.

for depth in (2, 3, 4):
    result = covopt.solve(X, Y, depth=depth, bias=0.0, activation="linear", time_limit=3)
    print(f"L = {depth}: cost {result.cost:.8f}, closed form {depth * (s ** (2.0 / depth)).sum():.8f}")

# %%
# ReLU networks with a penalty. From three layers on, certificates of the global minimum are known for a few samples
# only; ``lower`` is a bound from the data alone, which holds for every network, and each layer has a gap of its own.

results = {}
for depth in (2, 3, 4):
    result = covopt.solve(X, Y, depth=depth, lam=2e-2, bias=0.0, time_limit=4)
    results[depth] = result
    print(f"L = {depth}: cost {result.cost:.6f}, proved >= {result.lower:.6f}, widths {result.widths}")

# %%
# The singular values of the outputs, against those of the targets: what each depth keeps.

figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
for depth, result in results.items():
    values = np.linalg.svd(result.predict(X), compute_uv=False)
    axes[0].semilogy(range(1, len(values) + 1), np.maximum(values, 1e-6), "o-", label=f"L = {depth}")
axes[0].semilogy(range(1, len(s) + 1), s, "k.--", label="targets")
axes[0].set(title="singular values of the outputs", xlabel="place", ylabel="singular value", xticks=[1, 2])
axes[0].legend()
deepest = results[4]
for layer in (1, 2, 3):
    values = np.linalg.svd(deepest.representations(layer), compute_uv=False)
    axes[1].semilogy(range(1, len(values) + 1), np.maximum(values, 1e-6), "o-", label=f"$Z_{layer}$")
axes[1].set(title="singular values of $Z_l$, L = 4", xlabel="place", ylim=(1e-3, None))
axes[1].legend()
plt.show()
