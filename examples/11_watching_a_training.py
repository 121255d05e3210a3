"""
Watching a training
===================

``covopt.Monitor`` looks at a network from within its training loop. Each look is one pass over the samples: the loss
with its penalty, how far each layer is from rest, its rank, and how far the loss is above the best that is known. The
network, its gradients and the random numbers stay as they are.
"""

import matplotlib.pyplot as plt
import torch

import covopt

torch.manual_seed(0)
x = torch.linspace(-1.0, 1.0, 64)[:, None]
y = torch.sin(4.0 * x) + 0.5 * x
decay = 2e-3

# %%
# The problem is that of the training: nn.MSELoss takes the mean over samples and outputs, of which there is one here,
# and PyTorch's decay is twice covopt's lam. The solver's answer has the lowest known cost and the lower bound.

known = covopt.solve(x, y, lam=decay / 2.0, time_limit=4)
monitor = covopt.Monitor(x, y, lam=decay / 2.0, known=known, every=100)

net = torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2, weight_decay=decay)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2000)
for epoch in range(2001):
    reading = monitor(net, epoch)
    if reading is not None and epoch % 500 == 0:
        print(reading)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(net(x), y).backward()
    optimizer.step()
    schedule.step()

# %%
# The history is a list of rows: ``pandas.DataFrame(monitor.history)`` is a table of them, ``monitor.to_csv`` writes
# one. The loss is within 2 % of the minimum after 500 epochs; the layers come to rest as the rate falls.

steps = [row["step"] for row in monitor.history]
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
left.semilogy(steps, [row["loss"] for row in monitor.history], label="training")
left.axhline(known.lower, color="k", linestyle=":", label="proved lower bound")
left.set(xlabel="epoch", ylabel="loss")
left.legend()
for layer in (1, 2):
    right.semilogy(steps, [row[f"residual_{layer}"] for row in monitor.history], label=f"layer {layer}")
right.set(xlabel="epoch", ylabel="residual of stationarity")
right.legend()
plt.show()

# %%
# On many samples a look takes about as long as an epoch: ``rows`` takes a fixed part of them, ``every`` looks less
# often. Where the training ends, ``covopt.validate`` says what the network still lacks.

watching = covopt.Monitor(x, y, lam=decay / 2.0, rows=16, every=5)
print(watching(net, 0))
