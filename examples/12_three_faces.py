"""
Three faces of one loss
=======================

The regularised loss of a network is a function of its weights W, of its hidden representations Z, or of the covariances
K of these. We start from one network and descend on each of the three.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

import covopt

rng = np.random.default_rng(0)
X = np.linspace(-1.0, 1.0, 9)[:, None]
Y = np.sin(3.0 * X) + 0.1 * rng.normal(size=X.shape)
problem = {"lam": 0.01, "bias": 1.0}

start = [torch.tensor(rng.normal(size=(10, 2))), torch.tensor(rng.normal(size=(1, 11)) / 3.0)]
Z = covopt.preactivations(X, start)
W = covopt.weights_of(X, Z)
K = [covopt.covariances_of(Z[0])]
print(f"from W {covopt.loss_of_weights(X, Y, W, **problem).total:.12f}")
print(f"from Z {covopt.loss_of_representations(X, Y, Z, **problem).total:.12f}")
print(f"from K {covopt.loss_of_covariances(X, Y, K, Z[-1], **problem).total:.12f}")

# %%
# The same gradient steps on each face. Weights need nothing else. Where neurons die, the rank of a layer falls and the
# other two losses jump; a Tikhonov term t > 0 makes them smooth, as in the paper's own experiments. Covariances stay in
# their cone as sums of c_k (z_k z_k^T, sigma(z_k) sigma(z_k)^T) with c_k >= 0: here over the network's own neurons and
# 200 others, which begin with almost no weight.

t = 1e-3


def descend(loss, variables, rate, steps=1500):
    """Run Adam with a rate that falls to zero; return the losses on the way and the last variables."""
    variables = [v.clone().requires_grad_() for v in variables]
    optimiser = torch.optim.Adam(variables, lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        value = loss(variables)
        value.backward()
        optimiser.step()
        schedule.step()
        losses.append(value.item())
    return losses, [v.detach() for v in variables]


def of_weights(W):
    return covopt.loss_of_weights(X, Y, W, **problem).total


def of_representations(Z):
    return covopt.loss_of_representations(X, Y, Z, tikhonov=t, **problem).total


directions = torch.tensor(rng.normal(size=(200, 2)))
others = covopt.preactivations(X, [directions / directions.norm(dim=1, keepdim=True)])[0]
atoms = torch.cat([Z[0], others], dim=1)
roots = torch.cat([torch.ones(10), torch.full((200,), 0.02)]).double()


def of_covariances(variables):
    roots_of_c, outputs = variables
    pair = covopt.covariances_of(atoms * roots_of_c)
    return covopt.loss_of_covariances(X, Y, [pair], outputs, tikhonov=t, **problem).total


curves = {}
curves["weights W"], _ = descend(of_weights, W, rate=0.02)
curves["representations Z"], end = descend(of_representations, Z, rate=0.01)
curves["covariances K"], _ = descend(of_covariances, [roots, Z[-1]], rate=0.1)
for name, losses in curves.items():
    print(f"{name:18} {losses[-1]:.5f}")
network = covopt.weights_of(X, end, tikhonov=t)
print(f"network of Z       {of_weights(network):.5f}")
best = covopt.solve(X, Y, time_limit=5, **problem)
print(f"covopt.solve       {best.cost:.5f}; no network costs less than {best.lower:.5f}")

# %%
# In covariances the two-layer problem is convex: with enough neurons to choose from, descent ends at the minimum. With
# t > 0 the losses of Z and K are a little too low, so that of Z is below the proved bound; its network is not.

figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
for name, losses in curves.items():
    axis.plot(losses, label=name)
axis.axhline(best.lower, color="black", linestyle="--", label="proved minimum")
axis.set(xlabel="step", ylabel="loss", yscale="log", title="One start, three faces")
axis.legend()
plt.show()
