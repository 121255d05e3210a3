"""Audits in passes over the samples: what whole matrices would say, said of a few rows at a time."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from instances import gaussian

import covopt
from covopt.linalg.psd import triangle
from covopt.model import passes, subgradient
from covopt.model.noise import batch_noise
from covopt.model.problem import Problem, make_problem
from covopt.model.subgradient import multiplier, residuals
from covopt.model.weights import evaluate, gradient, inputs_of, preactivations, pulled_back
from covopt.runtime.loop import Budget, Certificate
from covopt.solvers.deep.further_training import train_on_batches
from covopt.solvers.deep.layers import report
from covopt.solvers.deep.missing_neuron import find_missing_neuron, find_missing_on_many
from covopt.studies.audit.examination import dead, inert_parts


def question(depth: int = 3, *, samples: int = 60, bias: float | str = 1.0) -> tuple[Problem, list[torch.Tensor]]:
    """Inputs of rank 3 in 4 columns, and a network of which one neuron of each hidden layer is dead."""
    X, Y = gaussian(samples, 4, seed=1), gaussian(samples, 2, seed=2)
    X[:, 3] = X[:, 1]
    weights = [0.5 * gaussian(n, below + 1, seed=10 + below + n) for below, n in pairwise([4, *[6] * (depth - 1), 2])]
    for W in weights[:-1]:
        W[0] = 0.0
    return make_problem(X, Y, lam=0.05, depth=depth, bias=bias, free=True), weights


@pytest.fixture(params=[4096, 7, 1])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(passes, "CHUNK", request.param)
    return request.param


@pytest.mark.parametrize("sizes", [(5,), (2, 2, 1), (1, 1, 1, 1, 1), (3, 9, 4)])
def test_a_triangle_has_the_rows_of_all_chunks(sizes: tuple[int, ...]) -> None:
    A = gaussian(sum(sizes), 4, seed=3)
    A[:, 2] = A[:, 0]
    R = triangle(A.split(list(sizes)))
    assert torch.allclose(R.T @ R, A.T @ A, atol=1e-12)
    assert len(R) <= max(4, sizes[0])


def test_residuals_by_chunks(chunk: int) -> None:
    """Without a sample on a kink |W_l - M_l^T Zs_{l-1}| / |W_l|, from whole matrices."""
    problem, weights = question(4)
    for W in weights[:-1]:
        W[0] = 0.3
    Lambda = multiplier(problem, weights)
    assert Lambda is not None
    expected = [
        float((W - M.T @ inputs_of(problem, weights, layer)).norm() / W.norm())
        for layer, (W, M) in enumerate(
            zip(weights, pulled_back(problem, weights, preactivations(problem, weights), Lambda), strict=True), start=1
        )
    ]
    assert residuals(problem, weights, Lambda) == pytest.approx(expected, rel=1e-12)


def test_slopes_at_kinks_by_chunks(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """w = (1, 1), x = -1 on the kink and x = 2 with the pull 2/3 (2, 1): the slope 1/3 makes up for what is left."""
    X, Y = torch.tensor([[-1.0], [2.0]], dtype=torch.float64), torch.zeros(2, 1, dtype=torch.float64)
    weights = [torch.tensor([[1.0, 1.0]], dtype=torch.float64), torch.tensor([[1.0, 0.0]], dtype=torch.float64)]
    Lambda = torch.tensor([[1.0], [2.0 / 3.0]], dtype=torch.float64)
    problem = make_problem(X, Y, lam=0.1)
    assert residuals(problem, weights, Lambda)[0] == pytest.approx(0.0, abs=1e-7)
    monkeypatch.setattr(subgradient, "MOST", 0)  # one kink is too many: the slope stays 0, an upper bound
    assert residuals(problem, weights, Lambda)[0] == pytest.approx(1.0 / 3.0, rel=1e-12)


@pytest.mark.parametrize("bias", [1.0, "free"])
def test_inert_parts_by_chunks(chunk: int, bias: float | str) -> None:
    """Columns 2 and 4 of the inputs agree: what W_1 makes of their difference acts on nothing."""
    problem, weights = question(bias=bias)
    W = weights[0] if bias == 1.0 else weights[0][:, :-1]
    lost = (W[:, 1] - W[:, 3]) / 2.0**0.5
    assert inert_parts(problem, weights)[0] == pytest.approx(float(lost.norm() / W.norm()), rel=1e-9)


def test_ranks_and_dead_neurons_by_chunks(chunk: int) -> None:
    problem, weights = question()
    for layer in (1, 2):
        Z = preactivations(problem, weights)[layer - 1]
        facts = report(problem, weights, layer, None, Certificate.NONE, None)
        assert facts.rank_K == torch.linalg.matrix_rank(Z)
        S = torch.cat([Z.relu(), torch.ones(len(Z), 1, dtype=Z.dtype)], dim=1)
        assert facts.rank_Ks == torch.linalg.matrix_rank(S)
        assert dead(problem, weights, layer) == int((Z.relu().amax(dim=0) == 0.0).sum()) >= 1


def test_batch_noise_by_chunks(chunk: int) -> None:
    """Against the gradients of all samples one by one: their mean, and their spread about it."""
    problem, weights = question()
    singles = [gradient(replace(problem, X=problem.X[i : i + 1], Y=problem.Y[i : i + 1]), weights) for i in range(60)]
    for layer, noise in enumerate(batch_noise(problem, weights, 8)):
        G = torch.stack([each[layer] for each in singles])
        mean = G.mean(dim=0)
        variance = float((G - mean).square().sum(dim=(1, 2)).mean())
        assert noise.gradient == pytest.approx(float(mean.norm()), rel=1e-10)
        assert noise.deviation**2 == pytest.approx(variance, rel=1e-9)
        assert noise.spread**2 == pytest.approx(variance * (60 - 8) / (8 * 59), rel=1e-9)
        assert 0.0 <= noise.floor <= noise.rms


@pytest.mark.parametrize("layer", [1, 2])
def test_the_neuron_found_on_many(chunk: int, layer: int) -> None:
    """On samples of which none is left out the search finds what the other one does; its value and losses are exact."""
    problem, weights = question()
    Lambda = multiplier(problem, weights)
    assert Lambda is not None
    known = find_missing_neuron(problem, weights, layer)
    found = find_missing_on_many(problem, weights, layer, Lambda)
    assert found.value == pytest.approx(known.value, rel=1e-3)
    M = pulled_back(problem, weights, preactivations(problem, weights), Lambda)[layer]
    pull = M.T @ (inputs_of(problem, weights, layer) @ found.direction).relu()
    assert found.value == pytest.approx(float(pull.norm()), rel=1e-10)
    assert found.size > 0.0
    assert found.cost == pytest.approx(evaluate(problem, found.network(problem, weights)).total, rel=1e-12)


def test_the_neuron_found_on_a_part_of_the_rows_is_judged_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covopt.solvers.deep.missing_neuron.ROWS", 50)
    problem, weights = question(2, samples=500)
    Lambda = multiplier(problem, weights)
    assert Lambda is not None
    found = find_missing_on_many(problem, weights, 1, Lambda)
    assert found.value == pytest.approx(find_missing_neuron(problem, weights, 1).value, rel=0.02)


def test_training_on_batches_costs_no_more() -> None:
    problem, weights = question(2, samples=600)
    before = [W.clone() for W in weights]
    trained, _ = train_on_batches(problem, weights, Budget(0.5))
    assert evaluate(problem, trained).total < evaluate(problem, weights).total
    assert all(torch.equal(*pair) for pair in zip(before, weights, strict=True))
    same, finished = train_on_batches(problem, weights, Budget(0.0))
    assert not finished
    assert all(torch.equal(*pair) for pair in zip(same, weights, strict=True))


@pytest.mark.parametrize(("scale", "part"), [(1.0, 1.0), (1.0, 0.0), (1e25, 1.0)])
def test_few_steps_faint_weights_and_far_scales_end_no_training(scale: float, part: float) -> None:
    """Cycles that begin with one step, a network of zeros, and inputs whose squares float32 does not hold."""
    problem, weights = question(2)
    problem = make_problem(scale * problem.X, problem.Y, lam=0.05 * scale, loss="mse")
    given = [part / scale**0.5 * W for W in weights]
    found, _ = train_on_batches(problem, given, Budget(0.7))
    assert evaluate(problem, found).total < 0.99 * evaluate(problem, given).total


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_an_audit_in_passes(loss: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What it says is what whole matrices say; what it cannot say is null; its files prove what they state."""
    problem, weights = question(3, samples=300)
    Y = problem.Y if loss == "mse" else problem.Y.softmax(dim=1)
    asked = {"lam": 0.05, "loss": loss, "time_limit": 1.0}
    other = covopt.validate(weights, problem.X, Y, **asked).summary()
    monkeypatch.setattr(passes, "MANY", 1.0)
    monkeypatch.setattr(passes, "CHUNK", 64)
    audit = covopt.validate(weights, problem.X, Y, **asked)
    told = audit.summary()
    assert told["in_passes"] is True
    assert other["in_passes"] is False
    for name in ("loss", "fit", "norm", "inert", "residuals"):
        assert told[name] == pytest.approx(other[name], rel=1e-9, abs=1e-12), name
    assert audit.descended_loss < audit.loss
    assert audit.hint == ""
    for layer in audit.layers:
        assert (layer.solved, layer.grown) == (None, None)
    audit.save(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "audit.json").read_text())["in_passes"] is True
    assert covopt.verify(tmp_path / "run").passed
