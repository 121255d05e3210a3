"""Draw the pictures of the pages on audits, width and lam, from the problems on these pages."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

import covopt

HERE = Path(__file__).parent
LAM = 1e-3

x = np.linspace(-1.0, 1.0, 16)[:, None]
y = np.sin(2.0 * np.pi * x)
torch.manual_seed(2)
inputs, targets = torch.from_numpy(x), torch.from_numpy(y)
net = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).double()
for rate, steps in ((1e-2, 3000), (1e-3, 2000), (1e-4, 1000)):
    optimizer = torch.optim.Adam(net.parameters(), lr=rate, weight_decay=2.0 * LAM)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(net(inputs), targets).backward()
        optimizer.step()
audit = covopt.validate(net, x, y, lam=LAM, time_limit=10)
better = audit.escape.to_torch().double()

line = torch.linspace(-1.1, 1.1, 600, dtype=torch.float64)[:, None]
figure, (axes, bars) = plt.subplots(1, 2, figsize=(8.6, 3.0), width_ratios=(3, 2), layout="constrained")
axes.plot(x, y, "o", color="black", ms=5, label="data")
for place, (name, network, color) in enumerate((("better.pt", better, "#0072b2"), ("trained", net, "#d55e00"))):
    with torch.no_grad():
        axes.plot(line, network(line), color=color, lw=2, label=name)
        fit = torch.nn.functional.mse_loss(network(inputs), targets).item()
        penalty = LAM * sum(parameter.square().sum().item() for parameter in network.parameters())
    bars.barh(place, penalty, color=color)
    bars.barh(place, fit, left=penalty, color=color, alpha=0.4)
    bars.text(fit + penalty, place, f" {fit + penalty:.4f}", va="center")
bars.set(xlabel="lam norm, and fit (pale)", yticks=(0, 1), yticklabels=("better.pt", "trained"), xlim=(0.0, 0.13))
axes.set(xlabel="input x", ylabel="output")
axes.legend(frameon=False)
for panel in (axes, bars):
    panel.spines[["top", "right"]].set_visible(False)
figure.savefig(HERE / "stuck.png", dpi=100)

plateau = covopt.plateau(x, y, lam=LAM, time_limit=60)
figure, axes = plt.subplots(figsize=(8.6, 3.0), layout="constrained")
widths, costs = zip(*plateau.curve, strict=True)
axes.semilogy(widths, costs, "o-", color="#0072b2", label="lowest cost found")
axes.axhline(plateau.lower, color="black", ls="--", lw=1, label="proved: no network gets below")
axes.set(xlabel="hidden neurons", ylabel="cost", yticks=(0.1, 0.2, 0.4), yticklabels=("0.1", "0.2", "0.4"))
axes.minorticks_off()
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)
figure.savefig(HERE / "widths.png", dpi=100)

path = covopt.path(
    np.linspace(-1, 1, 20)[:, None], np.sin(4 * np.linspace(-1, 1, 20)), points=8, ratio=1e-2, time_limit=20
)
figure, axes = plt.subplots(figsize=(8.6, 3.0), layout="constrained")
path.plot(axes)
figure.savefig(HERE / "along_lam.png", dpi=100)
