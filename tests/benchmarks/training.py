"""How many steps of training a batch makes against the same networks one after another, in processor seconds.

Both are timed in slices that take turns, so that a busy machine treats them alike.
"""

import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from covopt.model.problem import Problem, make_problem
from covopt.solvers.training.batch import Batch, buckets
from covopt.solvers.training.descent import Adam, AdamOptions, BatchedLBFGS
from covopt.solvers.training.trainer import LARGEST, initial
from tests.benchmarks.harness import Outcome, Settings, benchmark

SEEDS = 3
Step = Callable[[], None]


@benchmark("batched-training", "60 networks trained at once (2 min)")
def run_batched_training(settings: Settings) -> Outcome:
    """60 networks at once against one after another."""
    torch.set_num_threads(settings.threads)
    rows, wins = [], []
    for name, inputs, widths in (
        ("5 inputs, widths 1 to 20", 5, range(1, 21)),
        ("64 inputs, widths 5 to 100", 64, range(5, 101, 5)),
    ):
        problem, hidden = _teacher(inputs), [n for n in widths for _ in range(SEEDS)]
        for method in ("Adam", "L-BFGS"):
            row = _compare(problem, hidden, method, slices=2 if settings.quick else 7)
            rows.append((name, method, *row))
            if inputs == 5:
                wins.append(min(row[-2:]))
    return Outcome(
        target="5 inputs, 200 samples, 60 networks: 8 times the throughput of one after another, by the same code and "
        "by torch.optim",
        reached="; ".join(f"{row[0]}, {row[1]}: {row[-2]:.1f} and {row[-1]:.1f} times" for row in rows),
        met=None if settings.quick else min(wins) >= 8.0,
        columns=(
            "networks",
            "method",
            "batches",
            "ms a step",
            "one batch",
            "one by one",
            "torch.optim",
            "gain",
            "gain on torch",
        ),
        rows=rows,
    )


def _compare(problem: Problem, hidden: Sequence[int], method: str, slices: int) -> tuple[object, ...]:
    """Batches, ms for a step of all networks (these batches, one batch, one by one, torch.optim), and the two gains."""
    chosen = buckets(problem, [[n] for n in hidden], LARGEST)
    contenders = {
        "chosen": [_ours(problem, hidden, members, method) for members in chosen],
        "one batch": [_ours(problem, hidden, list(range(len(hidden))), method)],
        "one by one": [_ours(problem, hidden, [i], method) for i in range(len(hidden))],
        "torch": [_torch(problem, n, i % SEEDS, method) for i, n in enumerate(hidden)],
    }
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(slices + 1):
        for name, steps in contenders.items():
            repeats = 2 if len(steps) > len(chosen) else 20
            begun = time.process_time()
            for step in steps:
                for _ in range(repeats):
                    step()
            if turn:  # the first warms up
                times[name].append(1e3 * (time.process_time() - begun) / repeats)
    ms = {name: statistics.median(values) for name, values in times.items()}
    gains = ms["one by one"] / ms["chosen"], ms["torch"] / ms["chosen"]
    return len(chosen), *(round(value, 2) for value in ms.values()), *(round(gain, 1) for gain in gains)


def _ours(problem: Problem, hidden: Sequence[int], members: Sequence[int], method: str) -> Step:
    """A step of the package's trainer for these networks together."""
    batch = Batch(problem, [[hidden[i]] for i in members])
    start = batch.pack([initial(problem, [hidden[i]], i % SEEDS) for i in members])
    adam = Adam(batch.evaluate, start, AdamOptions(steps=10_000))
    if method == "Adam":
        return adam.iterate
    for _ in range(20):
        adam.iterate()
    return _filled(BatchedLBFGS(batch.evaluate, adam.best).iterate)


def _torch(problem: Problem, width: int, seed: int, method: str) -> Step:
    """The same with torch.nn and torch.optim; for L-BFGS one iteration, whose line search may evaluate more often."""
    W1, W2 = initial(problem, [width], seed)
    layers = [torch.nn.Linear(W.shape[1] - 1, W.shape[0], dtype=torch.float64) for W in (W1, W2)]
    with torch.no_grad():
        for layer, W in zip(layers, (W1, W2), strict=True):
            layer.weight.copy_(W[:, :-1])
            layer.bias.copy_(problem.beta * W[:, -1])
    model = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1])
    parameters = list(model.parameters())

    def closure() -> Tensor:
        optimiser.zero_grad()
        norm = torch.stack([parameter.square().sum() for parameter in parameters]).sum()
        cost = (model(problem.X) - problem.Y).square().sum() / problem.samples + problem.lam * norm
        cost.backward()
        return cost

    if method == "Adam":
        optimiser = torch.optim.Adam(parameters, lr=3e-3, foreach=False)
    else:
        optimiser = torch.optim.LBFGS(parameters, max_iter=1, history_size=20, line_search_fn="strong_wolfe")

    def step() -> None:
        optimiser.step(closure)

    return step if method == "Adam" else _filled(step)


def _filled(step: Step, turns: int = 25) -> Step:
    """After so many turns the memory of L-BFGS is full."""
    for _ in range(turns):
        step()
    return step


def _teacher(inputs: int) -> Problem:
    """200 standard normal points, the sum of 5 random ReLU neurons as target, bias 1."""
    rng = np.random.default_rng(0)
    X, W, v = rng.standard_normal((200, inputs)), rng.standard_normal((5, inputs)), rng.standard_normal((5, 1))
    return make_problem(X, np.maximum(X @ W.T, 0.0) @ v / np.sqrt(inputs), lam=1e-2)
