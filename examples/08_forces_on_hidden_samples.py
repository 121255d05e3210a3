"""
What holds the hidden representations in place?
===============================================

The loss of a network is a function of its hidden representations alone. On every hidden sample two forces act: one
pulls the samples together, the other, from the layer behind, pushes them apart. At a minimum they balance, except for
samples on the kink of a neuron.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import covopt

digits = covopt.read_data("digits", rows=20, scale="max")
result = covopt.solve(digits.X, digits.Y, lam=1e-2, bias=0.0, certify="fast", time_limit=6)
forces = result.forces(1)
print(f"cost {result.cost:.6f}, {result.widths[0]} neurons for 20 digits")
print(
    f"|attraction| {np.linalg.norm(forces.attraction):.4f}, |repulsion| {np.linalg.norm(forces.feasible_repulsion):.4f}"
)
print(f"imbalance {forces.imbalance:.2g}, full row rank: {forces.full_rank}")

# %%
# The forces are equally strong. The imbalance that remains is due to the kinks: about a fifth of the entries of Z_1 are
# zero, and there the loss has no derivative.

print(f"zeros in Z_1: {(abs(result.representations(1)) < 1e-6).mean():.0%}")

# %%
# The samples in their principal plane, each with its digit. Arrows show where each force would move them.

Z = result.representations(1)
plane = np.linalg.svd(Z, full_matrices=False)[2][:2].T
points, digit = Z @ plane, digits.Y.argmax(axis=1)
moves = {"attraction": -forces.attraction @ plane, "repulsion": -forces.feasible_repulsion @ plane}
scale = 0.2 * np.ptp(points, axis=0).max() / max(np.linalg.norm(move, axis=1).max() for move in moves.values())

figure, axis = plt.subplots(figsize=(6, 4.5), layout="constrained")
axis.scatter(*points.T, color="0.35", s=110)
for (name, move), color in zip(moves.items(), ("#0072b2", "#d55e00"), strict=True):
    arrows = scale * move
    axis.quiver(*points.T, *arrows.T, color=color, angles="xy", scale_units="xy", scale=1, width=0.004, label=name)
    axis.update_datalim(points + arrows)
for (x, y), number in zip(points, digit, strict=True):
    axis.text(x, y, str(number), color="white", ha="center", va="center_baseline", fontsize=8)
axis.set(xlabel="first principal direction", ylabel="second principal direction")
axis.autoscale_view()
axis.legend()
plt.show()

# %%
# A sweep stores every cell as it is done. How does the balance of fit and norm move with lam?

with tempfile.TemporaryDirectory() as place:
    grid = {"data": "digits", "rows": 20, "scale": "max", "bias": 0.0, "lam": [1e-3, 1e-2, 1e-1], "max_iterations": 4}
    swept = covopt.sweep(grid, Path(place) / "lam.sqlite")
for row in swept.rows:
    print(
        f"lam {row['lam']:<6g} cost {row['cost']:.5f} = {row['fit']:.5f} + lam {row['norm']:.3f}",
        row["widths"],
        "neurons",
    )
