"""Training by SGD: its steps against PyTorch's, what they leave of the start exactly, and what is recorded."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from instances import gaussian

from covopt.data.networks import as_sequential
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import evaluate
from covopt.runtime.loop import Budget, Status
from covopt.studies.ranks.sgd import SGDOptions, epochs, he_start, recorded_steps, train_sgd

LAM_MAX = Path(__file__).parents[2] / "cases" / "lam_max.npz"
METHODS = {"plain": (0.0, False), "momentum": (0.9, False), "Nesterov": (0.8, True)}


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
        SGDOptions(4, rate, lam, 30, *METHODS[name])
        for name in METHODS
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


@pytest.mark.parametrize("method", METHODS)
def test_what_no_sample_reaches_is_the_start_times_what_decay_leaves(method: str) -> None:
    """First layer: the part outside the span of the inputs. Last layer, cross-entropy: the sum of its rows."""
    problem, (momentum, nesterov) = small("cross_entropy"), METHODS[method]
    rate, lam, steps = 0.03, 0.02, 1500
    start = he_start(problem, [6, 5], 0)
    options = SGDOptions(3, rate, lam, steps, momentum, nesterov)
    weights = train_sgd(problem, [start], [options])[0][0].weights
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
        for network in train_sgd(problem, starts, [SGDOptions(1, 0.5, 1.0, steps)] * 3)[0]:
            for values in network.course.spectra[-1]:
                assert int((values > 1e-14 * values[0]).sum()) <= 1


def test_above_the_largest_useful_penalty_all_weights_go_to_zero() -> None:
    """One sample at a time; two layers, no biases, mse: lam_max is 0.356132891 (test_ranks has both sides of it)."""
    case = np.load(LAM_MAX)
    problem = make_problem(case["X"], case["Y"], lam=1.0, bias=0.0)
    (above,), _ = train_sgd(problem, [he_start(problem, [30], 0)], [SGDOptions(1, 0.05, 0.445166, 4000)])
    assert max(float(W.norm()) for W in above.weights) < 1e-6


def test_a_network_that_diverges_leaves_the_others_alone() -> None:
    problem = small(depth=2)
    starts = [he_start(problem, [4], seed) for seed in (0, 1, 2)]
    options = [SGDOptions(5, rate, 0.01, 300) for rate in (0.02, 1e6, 0.03)]
    found, status = train_sgd(problem, copy.deepcopy(starts), options)
    assert status is Status.CONVERGED
    assert [network.diverged for network in found] == [False, True, False]
    assert found[1].steps < 300
    assert all(bool(torch.isfinite(W).all()) for W in found[1].weights)
    for i in (0, 2):
        alone = train_sgd(problem, [starts[i]], [options[i]])[0][0]
        for W, V in zip(found[i].weights, alone.weights, strict=True):
            torch.testing.assert_close(W, V, rtol=1e-10, atol=1e-12)


def test_the_records_are_those_of_the_weights() -> None:
    """The last one against the weights themselves; networks of one batch may take different numbers of steps."""
    problem = small("cross_entropy")
    options = [SGDOptions(4, 0.1, 0.01, 50), SGDOptions(4, 0.1, 0.02, 90), SGDOptions(14, 0.1, 0.01, 0)]
    starts = [he_start(problem, widths, 0) for widths in ([3, 4], [5, 2], [4, 4])]
    for network, start, option in zip(train_sgd(problem, starts, options)[0], starts, options, strict=True):
        course, cost = network.course, evaluate(problem, network.weights)
        assert course.steps[-1] == network.steps == option.steps
        assert course.steps == sorted({0, *course.steps})
        assert set(course.steps) <= {0} | recorded_steps({50, 90})
        assert course.fits[-1] == pytest.approx(cost.fit, rel=1e-12)
        assert course.norms[-1] == pytest.approx(cost.norm, rel=1e-12)
        assert course.accuracies[-1] == found_accuracy(problem, network.weights)
        for k, weights in ((0, start), (-1, network.weights)):
            for W, values in zip(weights, course.spectra[k], strict=True):
                torch.testing.assert_close(values, torch.linalg.svdvals(W), rtol=1e-12, atol=1e-12)


def found_accuracy(problem: Problem, weights: list[torch.Tensor]) -> float:
    """By PyTorch's own network."""
    F = as_sequential(weights, 1.0, 0.0)(problem.X)
    return float((F.argmax(dim=1) == problem.Y.argmax(dim=1)).double().mean())


def test_what_time_ends_comes_back_unfinished() -> None:
    problem = small()
    options = [SGDOptions(4, 0.01, 0.01, 10**7), SGDOptions(2, 0.01, 0.01, 3)]
    starts = [he_start(problem, [4, 4], 0)] * 2
    (long, short), status = train_sgd(problem, starts, options, budget=Budget(0.3))
    assert status is Status.TIME_LIMIT
    assert short.steps == 3
    assert long.steps is not None
    assert long.steps < 10**7
    assert 0 < long.steps < 10**7
    assert long.course.steps[-1] <= long.steps
