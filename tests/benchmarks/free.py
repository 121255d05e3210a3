"""Free biases against PyTorch with a parameter group of its own for them."""

import itertools
import sys
import time

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine

import covopt
from tests.benchmarks.harness import Outcome, Settings, benchmark

LAM, WIDTH, STEPS, RATE, TRAININGS = 1e-3, 60, 3000, 3e-3, 20
PART = 0.1
"""Of the trainings' time, which covopt gets."""


def _sets() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Five data sets, standardised; 200 rows at most."""
    made = {}
    for load in (load_iris, load_wine, load_breast_cancer, load_diabetes, load_digits):
        X, y = load(return_X_y=True)
        rows = np.random.default_rng(0).permutation(len(X))[:200]
        X, y = np.asarray(X, dtype=float)[rows], np.asarray(y)[rows]
        scale = X.std(axis=0)
        X = (X - X.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
        regression = load is load_diabetes
        Y = ((y - y.mean()) / y.std())[:, None] if regression else np.eye(int(y.max()) + 1)[y.astype(int)]
        made[load.__name__.removeprefix("load_")] = X, Y
    return made


def _training(X: np.ndarray, Y: np.ndarray, depth: int, seed: int, steps: int) -> float:
    """Adam with a cosine of rates; the penalty on weights, none on biases."""
    torch.manual_seed(seed)
    inputs, targets = torch.tensor(X), torch.tensor(Y)
    sizes = [X.shape[1], *[WIDTH] * (depth - 1), Y.shape[1]]
    parts: list[torch.nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        parts += [torch.nn.Linear(a, b).double(), torch.nn.ReLU()]
    net = torch.nn.Sequential(*parts[:-1])
    weights = [p for name, p in net.named_parameters() if name.endswith("weight")]
    biases = [p for name, p in net.named_parameters() if name.endswith("bias")]
    optimizer = torch.optim.Adam([{"params": weights}, {"params": biases}], lr=RATE)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    cost = torch.zeros(())
    for _ in range(steps):
        optimizer.zero_grad()
        fit = (net(inputs) - targets).square().sum() / len(X)
        cost = fit + LAM * torch.stack([W.square().sum() for W in weights]).sum()
        cost.backward()
        optimizer.step()
        rates.step()
    return float(cost.detach())


@benchmark("free-biases", "free biases against 20 trainings with a group of parameters")
def run_free_biases(settings: Settings) -> Outcome:
    """Depth 2 and 3, one after the other in this process."""
    rows = []
    for depth in (2, 3):
        for name, (X, Y) in _sets().items():
            begun = time.perf_counter()
            steps, trainings = (50, 1) if settings.quick else (STEPS, TRAININGS)
            theirs = [_training(X, Y, depth, seed, steps) for seed in range(trainings)]
            middle = time.perf_counter()
            limit = PART * (middle - begun)
            found = covopt.solve(X, Y, lam=LAM, depth=depth, bias="free", time_limit=limit)
            ours = time.perf_counter() - middle
            rows.append((name, depth, found.cost, min(theirs), found.cost <= min(theirs), ours, middle - begun))
            print(f"  {name}, L = {depth}: {found.cost:.6g} against {min(theirs):.6g}", file=sys.stderr, flush=True)
    won = sum(row[4] for row in rows)
    return Outcome(
        target="at or below the best of 20 trainings in a tenth of their time",
        reached=f"{won} of {len(rows)}",
        met=won == len(rows),
        columns=("data", "depth", "cost", "best training", "won", "seconds", "of the trainings"),
        rows=rows,
    )
