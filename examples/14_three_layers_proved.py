"""
The minimum of a three-layer network, proved
============================================

Trainings of three-layer networks end at many different costs, and no convex problem says which of them is the lowest,
or whether another network costs less. For a few samples covopt proves it by a tree of cases.
"""

import matplotlib.pyplot as plt
import numpy as np

import covopt

# %%
# Five random points of the plane, with one output.

rng = np.random.default_rng(0)
X, Y = rng.standard_normal((5, 2)), rng.standard_normal((5, 1))
problem = {"depth": 3, "bias": 0.0, "lam": 0.003}

# %%
# Twelve trainings from random weights, by Adam and then L-BFGS, of networks with 4 or 8 neurons in each hidden layer.

trainings = [
    covopt.solve(X, Y, **problem, method="train", width=width, starts=1, seed=seed, certify="none", time_limit=5)
    for width in (4, 8)
    for seed in range(6)
]
ends = sorted(training.cost for training in trainings)
print("trainings end at", *(f"{cost:.4f}" for cost in ends))

# %%
# No network of three layers, of any width, costs less than the lower bound. The certificate divides all networks into
# cases, by the parts of the output weights that neurons of each kind have: a kind is the sign of a neuron's output and
# the samples on which it is active. Each case has a bound of its own, and the smallest of them holds for all networks.

best = covopt.solve(X, Y, **problem, gap=0.01)
print(best)
print(len(best.evidence["prices"]), "cases")

# %%
# The tree also finds the network: the bound of a case is the optimum of a cone programme, whose multipliers are the
# weights of a network, and a descent from the first of these networks ends at the minimum. Without biases a network is
# homogeneous, so a function of the plane is drawn by its values on the circle.

angles = np.linspace(-np.pi, np.pi, 721)
circle = np.column_stack([np.cos(angles), np.sin(angles)])
radii = np.linalg.norm(X, axis=1)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
worst = max(trainings, key=lambda training: training.cost)
for network, label, style in ((best, "the minimum", "-"), (worst, "a training's end", "--")):
    left.plot(angles, network.predict(circle), style, label=f"{label}: {network.cost:.4f}")
left.plot(np.arctan2(X[:, 1], X[:, 0]), Y[:, 0] / radii, "ko", label="samples, each divided by |x|")
left.set(xlabel="angle of x (radians)", ylabel="f(x) for |x| = 1", ylim=(-4.0, 2.2))
left.legend(fontsize=8, loc="upper left")
right.plot(range(1, len(ends) + 1), ends, "o", label="twelve trainings, sorted")
right.axhline(best.cost, color="C0", label="the best network")
right.axhspan(0.0, best.lower, color="0.85", label="proved: no network costs this")
right.set(xlabel="training", ylabel="cost", ylim=(0.0, None))
right.legend(fontsize=8, loc="upper left")
plt.show()
