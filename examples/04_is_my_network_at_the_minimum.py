"""
Is my trained network at the minimum?
=====================================

A network is trained the usual way, with weight decay. Has training found the minimum of what it minimises, or is it
stuck? ``covopt.validate`` compares with the solver's answer, looks at every layer, names the neuron that is missing,
and finds a better network from the trained one.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

import covopt

torch.manual_seed(2)
x = torch.linspace(-1.0, 1.0, 16, dtype=torch.float64)[:, None]
y = torch.sin(2.0 * torch.pi * x)
decay = 2e-3

net = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).double()
for rate, steps in ((1e-2, 3000), (1e-3, 2000), (1e-4, 1000)):
    optimizer = torch.optim.Adam(net.parameters(), lr=rate, weight_decay=decay)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()

# %%
# The penalty of covopt is lam times the sum of squares, whose gradient is 2 lam W. PyTorch adds decay times W to the
# gradient: lam is half of the decay. Biases are penalised by both.

audit = covopt.validate(net, x, y, lam=decay / 2.0, time_limit=60)
print(f"cost of the trained network  {audit.loss:.6f}")
print(f"lowest cost known            {audit.best:.6f}")
print(f"lower bound (proved)         {audit.reference.lower:.6f} ({audit.reference.certificate})")
print(audit.verdict)

# %%
# The hidden layer says what is wrong: the largest ``|M^T sigma(Zs w)|`` over unit directions w is above 1, so a
# neuron in this direction lowers the cost.

layer = audit.layers[0]
print(layer.verdict)
print("direction", layer.escape.direction.numpy().round(3), "lowers the cost to", round(layer.escape.cost, 6))

# %%
# From there ``validate`` continues to a better network, ``audit.escape``. What the trained network does, and what the
# minimum does:

grid = np.linspace(-1.1, 1.1, 400)[:, None]
with torch.no_grad():
    trained = net(torch.from_numpy(grid)).numpy()
figure, axis = plt.subplots(figsize=(6, 3.2), layout="constrained")
axis.plot(grid, trained, label=f"trained: {audit.loss:.4f}")
axis.plot(grid, audit.reference.predict(grid), label=f"minimum: {audit.reference.cost:.4f}")
axis.plot(x, y, "k.")
axis.set(xlabel="input x", ylabel="output")
axis.legend()
plt.show()
