"""Random instances and finite differences that the tests of the model share."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from covopt.linalg.psd import thin
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import inputs_from, preactivations

ACTIVATIONS = ("relu", "leaky:0.1", "leaky:-0.3", "linear")


@dataclass
class Instance:
    """A problem, the weights of a network for it, and the seed that made them."""

    problem: Problem
    weights: list[Tensor]
    seed: int

    @property
    def Z(self) -> list[Tensor]:
        """Its representations."""
        return preactivations(self.problem, self.weights)


def cases(name: str) -> dict[str, dict[str, Any]]:
    """The problems of a file in tests/cases whose answers are known, by their names."""
    stored = json.loads((Path(__file__).parent / "cases" / f"{name}.json").read_text())["cases"]
    return {case["name"]: case for case in stored}


def gaussian(*shape: int, seed: int) -> Tensor:
    """Standard normal float64 entries."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def forever() -> float:
    """A moment by which no search is cut short, on the clock of `time.perf_counter`."""
    return time.perf_counter() + 600.0


def never() -> bool:
    """A stop test that never stops a run."""
    return False


@st.composite
def instances(
    draw: st.DrawFn,
    activations: tuple[str, ...] = ACTIVATIONS,
    losses: tuple[str, ...] = ("mse", "cross_entropy"),
    depths: tuple[int, ...] = (2, 3, 4),
    deficient: bool = True,
) -> Instance:
    """Networks of depth 2 to 4; with `deficient` also duplicated samples, dead neurons and zero weights."""
    seed = draw(st.integers(0, 10**6))
    samples, inputs, classes = draw(st.integers(3, 9)), draw(st.integers(1, 4)), draw(st.integers(2, 3))
    depth = draw(st.sampled_from(depths))
    widths = [inputs, *(draw(st.integers(1, 5)) for _ in range(depth - 1)), classes]
    X = gaussian(samples, inputs, seed=seed)
    loss = draw(st.sampled_from(losses))
    Y = gaussian(samples, classes, seed=seed + 1)
    Y = torch.softmax(Y, dim=1) if loss == "cross_entropy" else Y
    weights = [gaussian(n, m + 1, seed=seed + 2 + k) for k, (m, n) in enumerate(pairwise(widths))]
    if deficient and draw(st.booleans()):
        X[-1] = X[0]
    if deficient and draw(st.booleans()):
        weights[0][0] = 0.0
    if deficient and draw(st.booleans()):
        weights[-1][0] = 0.0
    lam, bias = draw(st.sampled_from((0.1, 2.0))), draw(st.sampled_from((0.0, 1.0, 0.4)))
    activation = draw(st.sampled_from(activations))
    problem = make_problem(X, Y, lam=lam, loss=loss, depth=depth, bias=bias, activation=activation)
    return Instance(problem, weights, seed)


def condition(problem: Problem, Z: list[Tensor]) -> float:
    """The largest condition number, on their ranges, of Zs_0 ... Zs_{L-1}: what digits are lost by."""
    worst = 1.0
    for Zs in inputs_from(problem, Z):
        factor = thin(Zs)
        kept = factor.s[factor.significant > 0]
        worst = max(worst, float(kept.max() / kept.min()) if len(kept) else 1.0)
    return worst


def distance_to_kinks(Z: list[Tensor]) -> float:
    """The smallest |Z_l| of the hidden layers; finite differences need it above their step."""
    return min(float(z.abs().min()) for z in Z[:-1])


def slope(f: Callable[[float], Tensor], step: float = 1e-5) -> float:
    """f'(0) by the central difference of fourth order."""
    with torch.no_grad():
        near, far = f(step) - f(-step), f(2 * step) - f(-2 * step)
    return float((8.0 * near - far) / (12.0 * step))


DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")],
    ),
]
"""For `parametrize`: the same contract on every device that is there."""
