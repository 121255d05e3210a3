"""
What rank does SGD end with?
============================

Smaller batches are said to give weights of lower rank. Compare them after the same number of epochs, and it looks so:
small batches take more steps, and each step of SGD with weight decay multiplies what remains of the full-rank
initialisation by 1 - 2 rate lam. Compared at equal retained fractions, the batch size makes almost no difference.
"""

import matplotlib.pyplot as plt

import covopt

data = covopt.read_data("digits", rows=200, scale="max")
options = {"lam": 0.01, "loss": "cross_entropy", "rate": 0.1, "batch_size": [4, 20], "width": 40, "seeds": 1}

# %%
# After 40 epochs: batches of 4 have taken 2,000 steps, batches of 20 only 400. ``kept`` is the retained fraction of the
# initial weights, and ``predicted`` the rank that this part alone has.

epochs = covopt.ranks(data.X, data.Y, epochs=40, reference=0, **options)
for size in (4, 20):
    cell = next(cell for cell in epochs.cells if cell.setting.batch_size == size)
    layer = cell.layers[1]
    print(f"batches of {size}: kept {cell.kept:.2g}, rank of W_2 {layer.rank}, predicted {layer.predicted}")

# %%
# The same settings until 1e-4 of the initial weights remains, and the network of the solver, which has no such part.

equal = covopt.ranks(data.X, data.Y, kept=1e-4, reference=10, time_limit=60, **options)
for size in (4, 20):
    print(f"batches of {size}: mean rank of W_2 {equal.rank(2, batch_size=size)}")
print("solver:", equal.references[0.01].layers[1].rank)
print(equal)

# %%
# Rank against epochs, and against the retained fraction, where the curves meet.

figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
for ax, panel in zip(axes, equal.panels(), strict=False):
    for line in panel.lines:
        ax.semilogx(line.x, line.y, line.style, color=f"C{line.color}", label=line.name or None)
    ax.set(title=panel.title, xlabel=panel.across, ylabel=panel.up)
axes[1].legend()
plt.show()
