"""What SGD forgets, and training by SGD: the closed recursion and the steps, held against PyTorch's own."""

import copy
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from instances import gaussian
from torch import Tensor, nn

from covopt.data.networks import as_sequential
from covopt.model.problem import Problem, make_problem
from covopt.model.ranks import frobenius, threshold_rank
from covopt.model.recursion import Decay, Past, window
from covopt.model.weights import evaluate
from covopt.runtime.loop import Budget, Status
from covopt.studies.ranks.sgd import Setting, epochs, he_start, recorded_steps, train_sgd

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
            broken += int(torch.linalg.matrix_rank(W - (1.0 - 0.01 * 0.1) ** 5 * start)) > 5
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
    assert vars(window(decay, **asked)) == {"steps": 6905, "bound": None}  # 27,620 of 100
    assert window(decay, **asked, total=9).bound is None  # nobody knows how large the weights were
    assert window(Decay(0.1, 0.0), **asked) is None
    assert window(decay, **(asked | {"norm": 0.0})) is None
    fast = Decay(0.1, 2.0, momentum=0.1)
    steps = next(k for k in range(1, 100) if abs(fast.memory(k)[0]) + 2.0 * abs(fast.memory(k)[1]) / 0.1 <= 5e-4)
    past = [Past(steps, weights=16.0, velocity=320.0)]  # twice the norm, and what that allows of velocity
    assert vars(window(fast, **asked, past=past)) == {"steps": steps, "bound": 4 * steps}
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


# ---- training by SGD: what the steps leave of the start, and what is recorded
LAM_MAX = Path(__file__).parents[2] / "cases" / "lam_max.npz"
SGD_METHODS = {"plain": (0.0, False), "momentum": (0.9, False), "Nesterov": (0.8, True)}


def small(loss: str = "mse", depth: int = 3, **options: object) -> Problem:
    """14 points in 5 dimensions, one of them always 0; 3 outputs or classes."""
    X = gaussian(14, 5, seed=1)
    X[:, 2] = 0.0
    Y = gaussian(14, 3, seed=2) if loss == "mse" else torch.eye(3, dtype=torch.float64)[torch.arange(14) % 3]
    return make_problem(X, Y, lam=1.0, loss=loss, depth=depth, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_each_network_takes_the_steps_of_pytorch(loss: str) -> None:
    """Networks of several widths, rates and penalties in one batch, with all methods side by side."""
    problem = small(loss)
    options = [
        Setting(4, rate, lam, 30, *SGD_METHODS[name])
        for name in SGD_METHODS
        for rate, lam in ((0.05, 0.01), (0.02, 0.0), (0.03, 0.1))
    ]
    widths = [[3 + i % 3, 6 - i % 2] for i in range(len(options))]
    starts = [he_start(problem, each, seed) for seed, each in enumerate(widths)]
    found, status = train_sgd(problem, starts, options, seed=7)
    assert status is Status.CONVERGED
    measure = torch.nn.CrossEntropyLoss() if loss == "cross_entropy" else lambda F, Y: (F - Y).square().sum() / len(Y)
    for network, start, o in zip(found, starts, options, strict=True):
        module, batches = as_sequential(start, 1.0, 0.0), epochs(14, 4, 7)
        theirs = torch.optim.SGD(
            module.parameters(), o.rate, momentum=o.momentum, nesterov=o.nesterov, weight_decay=2.0 * o.lam
        )
        for _ in range(o.steps):
            rows = next(batches)
            theirs.zero_grad()
            measure(module(problem.X[rows]), problem.Y[rows]).backward()
            theirs.step()
        linear = [layer for layer in module if isinstance(layer, torch.nn.Linear)]
        for W, layer in zip(network.weights, linear, strict=True):
            expected = torch.cat([layer.weight, layer.bias[:, None]], dim=1).detach()
            torch.testing.assert_close(W, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", SGD_METHODS)
def test_what_no_sample_reaches_is_the_start_times_what_decay_leaves(method: str) -> None:
    """First layer: the part outside the span of the inputs. Last layer, cross-entropy: the sum of its rows."""
    problem, (momentum, nesterov) = small("cross_entropy"), SGD_METHODS[method]
    rate, lam, steps = 0.03, 0.02, 1500
    start = he_start(problem, [6, 5], 0)
    weights = train_sgd(problem, [start], [Setting(3, rate, lam, steps, momentum, nesterov)])[0][0].weights
    ahead = rate * (1.0 + momentum * nesterov)
    A = [[1.0 - 2.0 * ahead * lam, -rate * momentum * (momentum if nesterov else 1.0)], [2.0 * lam, momentum]]
    kept = float(np.linalg.matrix_power(np.array(A), steps)[0, 0])
    assert 1e-40 < abs(kept) < 0.2
    torch.testing.assert_close(weights[0][:, 2], kept * start[0][:, 2], rtol=1e-12, atol=0.0)
    size = float(start[2].sum(dim=0).abs().max())
    left = weights[2].sum(dim=0) - kept * start[2].sum(dim=0)
    assert float(left.abs().max()) <= 1e-12 * size


def test_with_nothing_left_of_the_past_one_sample_gives_rank_one() -> None:
    """rate 2 lam = 1: each step replaces the weights by a multiple of the gradient of one sample, exactly."""
    problem = small("cross_entropy")
    starts = [he_start(problem, [6, 5], seed) for seed in range(3)]
    for steps in (1, 2, 3):
        for network in train_sgd(problem, starts, [Setting(1, 0.5, 1.0, steps)] * 3)[0]:
            for values in network.course.spectra[-1]:
                assert int((values > 1e-14 * values[0]).sum()) <= 1


def test_above_the_largest_useful_penalty_all_weights_go_to_zero() -> None:
    """One sample at a time; two layers, no biases, mse: lam_max is 0.356132891 (test_ranks has both sides of it)."""
    case = np.load(LAM_MAX)
    problem = make_problem(case["X"], case["Y"], lam=1.0, bias=0.0)
    (above,), _ = train_sgd(problem, [he_start(problem, [30], 0)], [Setting(1, 0.05, 0.445166, 4000)])
    assert max(float(W.norm()) for W in above.weights) < 1e-6


def test_a_network_that_diverges_leaves_the_others_alone() -> None:
    problem = small(depth=2)
    starts = [he_start(problem, [4], seed) for seed in (0, 1, 2)]
    options = [Setting(5, rate, 0.01, 300) for rate in (0.02, 1e6, 0.03)]
    found, status = train_sgd(problem, copy.deepcopy(starts), options)
    assert status is Status.CONVERGED
    assert [network.diverged for network in found] == [False, True, False]
    assert found[1].steps < 300
    assert all(bool(torch.isfinite(W).all()) for W in found[1].weights)
    for i in (0, 2):
        for W, V in zip(found[i].weights, train_sgd(problem, [starts[i]], [options[i]])[0][0].weights, strict=True):
            torch.testing.assert_close(W, V, rtol=1e-10, atol=1e-12)


def test_the_records_are_those_of_the_weights() -> None:
    """The last one against the weights themselves; networks of one batch may take different numbers of steps."""
    problem = small("cross_entropy")
    options = [Setting(4, 0.1, 0.01, 50), Setting(4, 0.1, 0.02, 90), Setting(14, 0.1, 0.01, 0)]
    starts = [he_start(problem, widths, 0) for widths in ([3, 4], [5, 2], [4, 4])]
    for network, start, option in zip(train_sgd(problem, starts, options)[0], starts, options, strict=True):
        course, cost = network.course, evaluate(problem, network.weights)
        assert course.steps[-1] == network.steps == option.steps
        assert course.steps == sorted({0, *course.steps})
        assert set(course.steps) <= {0} | recorded_steps({50, 90})
        assert course.fits[-1] == pytest.approx(cost.fit, rel=1e-12)
        assert course.norms[-1] == pytest.approx(cost.norm, rel=1e-12)
        F = as_sequential(network.weights, 1.0, 0.0)(problem.X)  # PyTorch's own network
        assert course.accuracies[-1] == float((F.argmax(dim=1) == problem.Y.argmax(dim=1)).double().mean())
        for k, weights in ((0, start), (-1, network.weights)):
            for W, values in zip(weights, course.spectra[k], strict=True):
                torch.testing.assert_close(values, torch.linalg.svdvals(W), rtol=1e-12, atol=1e-12)


def test_what_time_ends_comes_back_unfinished() -> None:
    problem = small()
    options = [Setting(4, 0.01, 0.01, 10**7), Setting(2, 0.01, 0.01, 3)]
    (long, short), status = train_sgd(problem, [he_start(problem, [4, 4], 0)] * 2, options, budget=Budget(0.3))
    assert status is Status.TIME_LIMIT
    assert short.steps == 3
    assert long.steps is not None
    assert 0 < long.steps < 10**7
    assert long.course.steps[-1] <= long.steps
