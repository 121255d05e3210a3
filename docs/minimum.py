"""Draw docs/minimum.png and docs/minimum-dark.png: where training ended, and the minimum, for 16 points on a line."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

import covopt

LAM, NEURONS = 1e-3, 8

x = np.linspace(-1.0, 1.0, 16)
y = np.sin(2.0 * np.pi * x) * (1.0 - x / 2.0)
best = covopt.solve(x[:, None], y, lam=LAM)

torch.manual_seed(0)
X, Y = torch.tensor(x)[:, None], torch.tensor(y)[:, None]
net = torch.nn.Sequential(torch.nn.Linear(1, NEURONS), torch.nn.ReLU(), torch.nn.Linear(NEURONS, 1)).double()
for rate in (1e-2, 1e-3, 1e-4):
    optimizer = torch.optim.Adam(net.parameters(), lr=rate, weight_decay=2.0 * LAM)
    for _ in range(5000):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(net(X), Y).backward()
        optimizer.step()
with torch.no_grad():
    squares = sum(float((parameter**2).sum()) for parameter in net.parameters())
    reached = float(((net(X) - Y) ** 2).mean()) + LAM * squares

line = np.linspace(-1.1, 1.1, 600)
with torch.no_grad():
    trained = net(torch.tensor(line)[:, None]).numpy()
print(f"training {reached:.6f}, best {best.cost:.6f} with {best.widths} neurons, proved {best.lower:.6f}")


def draw(file: str, ink: str, orange: str, blue: str) -> None:
    """Draw the data and both networks in these colours, on a background that the page shows through if it is dark."""
    style = dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), ink)
    with plt.rc_context(style):
        figure, axes = plt.subplots(figsize=(8.6, 3.0), layout="constrained")
        axes.plot(x, y, "o", color=ink, ms=5, label="data: 16 points")
        axes.plot(line, trained, color=orange, lw=2, label=f"training ends here: {reached:.4f}")
        axes.plot(line, best.predict(line[:, None]), color=blue, lw=2, label=f"the minimum: {best.cost:.4f}")
        axes.plot([], [], " ", label=f"proved: no network\ngets below {np.floor(best.lower * 1e4) / 1e4:.4f}")
        axes.set(xlabel="input x", ylabel="output")
        figure.legend(loc="outside right center", frameon=False, title=f"loss with weight decay, {NEURONS} neurons")
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(Path(__file__).with_name(file), dpi=100, transparent=ink != "black")


draw("minimum.png", "black", "#d55e00", "#0072b2")
draw("minimum-dark.png", "#e6edf3", "#e69f00", "#56b4e9")
