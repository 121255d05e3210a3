"""What SGD forgets: the closed recursion held against torch.optim.SGD itself, and what it says of ranks."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from covopt.model.ranks import frobenius, threshold_rank
from covopt.model.recursion import Decay, Past, window

METHODS = {"sgd": {}, "momentum": {"momentum": 0.9}, "nesterov": {"momentum": 0.9, "nesterov": True}}


def sgd(parameters: Any, decay: Decay) -> torch.optim.SGD:
    momentum = {"momentum": decay.momentum, "nesterov": decay.nesterov} if decay.momentum else {}
    return torch.optim.SGD(parameters, lr=decay.rate, weight_decay=2.0 * decay.lam, **momentum)


@pytest.mark.quick
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("rate", "lam"), [(0.1, 5e-3), (0.3, 0.2), (0.01, 1e-4)])
def test_the_memory_is_that_of_the_optimiser_without_gradients(method: str, rate: float, lam: float) -> None:
    """Without gradients W_{t+k} = a_k W_t + b_k v_t, whatever W and v were; from v = 0, W_T = kept W_0."""
    decay = Decay(rate, lam, **METHODS[method])
    W = nn.Parameter(torch.tensor([1.0, 0.0], dtype=torch.float64))
    optimiser, path = sgd([W], decay), []
    for step in range(60):
        buffer = optimiser.state[W].get("momentum_buffer") if step else None
        path.append((W.detach().clone(), torch.zeros(2) if buffer is None else buffer.clone()))
        W.grad = torch.tensor([0.0, 1.0 if step == 0 else 0.0], dtype=torch.float64)
        optimiser.step()
    for k in (1, 7, 59):
        a, b = decay.memory(60 - k)
        earlier, velocity = path[k]
        assert W.detach().tolist() == pytest.approx((a * earlier + b * velocity).tolist(), rel=1e-12, abs=1e-15)
    assert W.tolist()[0] == pytest.approx(decay.kept(60), rel=1e-12)


@pytest.mark.quick
def test_kept_in_closed_form() -> None:
    assert Decay(0.1, 5e-3).kept(12032) == pytest.approx(math.exp(12032 * math.log1p(-1e-3)), rel=1e-12)
    assert Decay(0.1, 5e-3).kept(10**9) == 0.0
    assert Decay(1.0, 2.0).kept(10**6) == math.inf
    for method in METHODS.values():
        assert Decay(0.1, 0.0, **method).kept(10**6) == 1.0
        assert Decay(0.1, 5e-3, **method).kept(0) == 1.0
    assert [Decay(0.25, 2.0).kept(steps) for steps in (0, 1, 2)] == [1.0, 0.0, 0.0]


@pytest.mark.quick
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("x", [1e-4, 2e-3, 0.3, 1.0, 1.3])
def test_steps_to_are_the_least(method: str, x: float) -> None:
    decay = Decay(0.5, x, **METHODS[method])
    steps = decay.steps_to(1e-3)
    assert abs(decay.kept(steps)) <= 1e-3
    assert all(abs(decay.kept(before)) > 1e-3 for before in range(max(0, steps - 300), steps))
    assert decay.steps_to(1.0) == 0


@pytest.mark.parametrize("method", METHODS)
def test_no_run_violates_the_window(method: str) -> None:
    """s_{kB + i}(W_T) <= s_i(a_k W_{T-k} + b_k v_{T-k}) for every layer, k and i, and the bound on the rank from it."""
    told = 0
    for seed in range(100):
        torch.manual_seed(seed)
        batch, steps = 1 + seed % 3, 1 + seed % 12
        decay = Decay(0.1, 5.0 * 10.0 ** (-3.0 * torch.rand(()).item()), **METHODS[method])
        net, path, velocities = run(lambda p, decay=decay: sgd(p, decay), batch, steps, seed)
        for layer, W in enumerate(net):
            s = torch.linalg.svdvals(W)
            past = []
            for k in range(1, steps + 1):
                a, b = decay.memory(k)
                before, v = path[steps - k][layer], velocities[steps - k][layer]
                left = torch.linalg.svdvals(a * before + b * v)
                beyond = s[k * batch :]
                assert bool((beyond <= left[: len(beyond)] + 1e-12 * s[0]).all())
                past.append(Past(k, largest(before), largest(v)))
            asked = {"norm": frobenius(s), "rank": batch, "width": min(W.shape), "past": past}
            for tolerance in (0.3, 0.03):
                found = window(decay, tolerance=tolerance, **asked)
                if found is not None and found.bound is not None:
                    told += 1
                    assert threshold_rank(s, tolerance) <= found.bound
    assert told > 10


@pytest.mark.quick
def test_adamw_breaks_the_window() -> None:
    """Its decay is one of numbers too, but its steps are not of low rank: so nobody may give it a `Decay`."""
    broken = 0
    for seed in range(10):
        net, path, _ = run(lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1), 1, 5, seed)
        for W, start in zip(net[:-1], path[0], strict=False):
            step = W - (1.0 - 0.01 * 0.1) ** 5 * start
            broken += int(torch.linalg.matrix_rank(step)) > 5
    assert broken == 20


@pytest.mark.quick
@pytest.mark.parametrize("method", METHODS)
def test_what_no_input_reaches_decays_by_kept(method: str) -> None:
    """A pixel that is always 0, and for cross-entropy the sum over the classes in the last layer."""
    decay = Decay(0.01, 0.05, **METHODS[method])
    net, path, _ = run(lambda p: sgd(p, decay), 2, 300, seed=1, silent=True)
    kept, first, last = decay.kept(300), path[0][0], path[0][-1]
    assert net[0][:, 0].tolist() == pytest.approx((kept * first[:, 0]).tolist(), rel=1e-12)
    assert net[-1].sum(dim=0).tolist() == pytest.approx((kept * last.sum(dim=0)).tolist(), abs=1e-13)


@pytest.mark.quick
def test_a_window_is_told_only_where_it_says_something() -> None:
    decay, asked = Decay(0.1, 5e-3), {"tolerance": 1e-3, "norm": 8.0, "rank": 4, "width": 100}
    assert window(decay, **asked).summary() == {"steps": 6905, "bound": None}  # 27,620 of 100
    assert window(decay, **asked, total=9).bound is None  # nobody knows how large the weights were
    assert window(Decay(0.1, 0.0), **asked) is None
    assert window(decay, **(asked | {"norm": 0.0})) is None
    fast = Decay(0.1, 2.0, momentum=0.1)
    steps = next(k for k in range(1, 100) if abs(fast.memory(k)[0]) + 2.0 * abs(fast.memory(k)[1]) / 0.1 <= 5e-4)
    past = [Past(steps, weights=16.0, velocity=320.0)]  # twice the norm, and what that allows of velocity
    assert window(fast, **asked, past=past).summary() == {"steps": steps, "bound": 4 * steps}
    assert window(fast, **asked, past=past, total=9).bound == 9
    assert window(fast, **(asked | {"width": 9}), past=past).bound is None


def largest(W: Tensor) -> float:
    return float(torch.linalg.matrix_norm(W, 2))


def run(
    optimiser_of: Callable[[Any], torch.optim.Optimizer], batch: int, steps: int, seed: int, silent: bool = False
) -> tuple[list[Tensor], list[list[Tensor]], list[list[Tensor]]]:
    """Train a small network in covopt's matrices: where it ends, and its weights and velocities before each step."""
    torch.manual_seed(seed)
    widths = [int(w) for w in torch.randint(13, 20, (3,))] + [4]
    X = torch.randn(24, widths[0], dtype=torch.float64)
    X[:, 0] *= not silent
    classes = torch.randint(0, 4, (24,))
    net = [
        nn.Parameter((2.0 / n) ** 0.5 * torch.randn(m, n + 1, dtype=torch.float64))
        for n, m in itertools.pairwise(widths)
    ]
    optimiser, path, velocities = optimiser_of(net), [], []
    for _ in range(steps):
        path.append([W.detach().clone() for W in net])
        buffers = [optimiser.state[W].get("momentum_buffer") for W in net]
        velocities.append([torch.zeros_like(W) if b is None else b.clone() for W, b in zip(net, buffers, strict=True)])
        rows = torch.randint(0, 24, (batch,))
        Z = X[rows]
        for layer, W in enumerate(net):
            Z = (Z if layer == 0 else Z.relu()) @ W[:, :-1].T + W[:, -1]
        optimiser.zero_grad()
        nn.functional.cross_entropy(Z, classes[rows]).backward()
        optimiser.step()
    return [W.detach() for W in net], path, velocities
