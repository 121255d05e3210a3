"""
How wide must a network be?
===========================

The lowest cost falls with the width and then stays the same. Where does this plateau begin? The answer depends on what
difference counts, and is an interval, because each end has to be proved.
"""

import matplotlib.pyplot as plt
import numpy as np

import covopt

X = np.linspace(-1.0, 1.0, 16)[:, None]
Y = np.sin(2.0 * np.pi * X)
answer = covopt.plateau(X, Y, lam=1e-3, starts=2, time_limit=60)
print(f"lowest cost {answer.level:.6f}, lower bound {answer.lower:.6f} ({answer.certificate})")
for start in answer.starts:
    print(f"within {100 * start.eps:g} %: {start.lower.width} to {start.upper.width} neurons")
    print(f"    at least: {start.lower.reason}")
    print(f"    at most:  {start.upper.reason}")

# %%
# The curve, and the networks behind it. Each added neuron adds a kink.

widths, costs = zip(*answer.curve, strict=True)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
left.plot(widths, costs, "o-")
left.axhline(answer.lower, color="grey", linestyle="--", label="proved bound")
left.set(xlabel="width", ylabel="lowest cost")
left.legend()
grid = np.linspace(-1.1, 1.1, 400)
for width in (1, 2, 4):
    W1, W2 = (W.numpy() for W in answer.network(width))
    hidden = np.maximum(grid[:, None] * W1[:, 0] + W1[:, 1], 0.0)
    right.plot(grid, hidden @ W2[0, :-1] + W2[0, -1], label=f"width {len(W1)}")
right.plot(X, Y, "k.")
right.set(xlabel="input x", ylabel="output")
right.legend()
plt.show()
