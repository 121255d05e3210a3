"""
How much of an answer is proved?
================================

Every answer of covopt is an interval: the cost of a network that was found, and a lower bound that no network can beat.
The certificate says what proves the bound. Here three data sets get three different proofs.
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np

import covopt

rng = np.random.default_rng(0)
line = np.linspace(-1.0, 1.0, 15)[:, None]
few = rng.standard_normal((30, 4))
many = covopt.read_data("digits", rows=10, scale="max")

problems = {
    "one input": (line, np.sin(3.0 * line), {"lam": 1e-3}),
    "four inputs": (few, np.tanh(few[:, :1] - few[:, 1:2]), {"lam": 1e-2, "bias": 0.0, "gap": 1e-3}),
    "64 inputs": (many.X, many.Y, {"lam": 1e-2, "bias": 0.0, "gap": 2e-2}),
}
results = {name: covopt.solve(X, Y, certify="full", time_limit=6, **how) for name, (X, Y, how) in problems.items()}
for name, result in results.items():
    print(
        f"{name:12} cost {result.cost:.6f}  lower {result.lower:.6f}  gap {result.gap:.1e}"
        f"  {result.certificate}, {result.status}"
    )

# %%
# * ``exact``: every activation pattern was evaluated. That is possible for one or two inputs and a bias.
# * ``branch-and-bound``: every direction that a neuron can have lies in a cone whose bound is proved.
# * ``relaxation``: a semidefinite programme over all neurons at once, repaired so that its rounding does not matter.
# * ``sign-branching``, where more time is given: such a programme in each of many cases, the signs of some samples.
#
# With ``certify="fast"`` the last two skip this work, and their bounds are loose:

for name, (X, Y, how) in list(problems.items())[1:]:
    quick = covopt.solve(X, Y, **how, certify="fast", time_limit=2)
    print(f"{name:12} cost {quick.cost:.6f}  lower {quick.lower:.6f}  gap {quick.gap:.1e}  {quick.certificate}")

# %%
# A run that is stored can be checked from its files alone. The solver is not run again: the network's cost is
# recomputed, and the stored dual point and its evidence must prove the bound.

with tempfile.TemporaryDirectory() as place:
    results["four inputs"].save(f"{place}/run")
    print(covopt.verify(f"{place}/run").message)

# %%
# Cost and bound against time: the network is nearly always good long before that is proved.

figure, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
for axis, (name, result) in zip(axes, results.items(), strict=True):
    history = result.history
    seconds = [point.seconds for point in history]
    axis.plot(seconds, [point.cost for point in history], label="cost")
    bounds = [np.nan if point.lower is None else point.lower for point in history]
    axis.plot(seconds, bounds, label="lower bound")
    axis.set(title=f"{name}: {result.certificate}", xlabel="seconds", ylim=(0.0, 1.5 * result.cost))
axes[0].set_ylabel("loss with weight decay")
axes[0].legend()
plt.show()
