"""What is said of the ranks of a network, held against brute force, autograd and every batch that there is."""

import json
from dataclasses import replace
from itertools import combinations, pairwise

import pytest
import torch
from instances import gaussian
from torch import Tensor, nn

from covopt.linalg.psd import RANK_RULE
from covopt.model.batch_bound import batch_bound, total_ranks
from covopt.model.noise import batch_noise
from covopt.model.problem import Problem, make_problem
from covopt.model.ranks import functional_ranks, predicted_rank, stable_rank, tail, threshold_rank
from covopt.model.recursion import Decay
from covopt.model.weights import evaluate, objective
from covopt.records.record import as_json
from covopt.studies.ranks import words
from covopt.studies.ranks.rank_audit import audit_ranks


def network(seed: int, samples: int = 8, lam: float | None = None) -> tuple[Problem, list[Tensor]]:
    """A random question and a random network for it, of depth 2 to 4 and any of the losses and activations."""
    torch.manual_seed(seed)
    depth, classes = 2 + seed % 3, 2 + seed % 4
    widths = [int(w) for w in torch.randint(3, 12, (depth,))] + [classes]
    X = torch.randn(samples, widths[0], dtype=torch.float64)
    Y = torch.randn(samples, classes, dtype=torch.float64)
    loss = ("mse", "cross_entropy")[seed % 2]
    Y = nn.functional.one_hot(Y.argmax(dim=1), classes).double() if loss == "cross_entropy" else Y
    lam = 10.0 ** (2.0 - 5.0 * torch.rand(()).item()) if lam is None else lam
    activation = ("relu", "leaky:0.3", "linear")[seed % 5 % 3]
    bias = (1.0, 0.0, 0.3)[seed % 7 % 3]
    problem = make_problem(X, Y, lam=lam, loss=loss, depth=depth, bias=bias, activation=activation)
    return problem, [torch.randn(m, n + 1, dtype=torch.float64) / n**0.5 for n, m in pairwise(widths)]


def batch_gradients(problem: Problem, weights: list[Tensor], rows: Tensor | tuple[int, ...]) -> list[Tensor]:
    """grad L_S^lam of each layer by autograd."""
    rows = torch.as_tensor(rows)
    batch = replace(problem, X=problem.X[rows], Y=problem.Y[rows])
    leaves = [W.clone().requires_grad_() for W in weights]
    return list(torch.autograd.grad(objective(batch, leaves), leaves))


def test_the_chain_of_bounds_and_the_ranks_of_gradients() -> None:
    """tail <= projection <= angle <= theorem, and rank G <= B, in the last layer of cross-entropy <= classes - 1."""
    for seed in range(50):
        problem, weights = network(seed)
        for batch in (1, 2, 3, 5, 8):
            rows = torch.randperm(8)[:batch]
            gradients = batch_gradients(problem, weights, rows)
            for W, whole, found in zip(weights, gradients, batch_bound(problem, weights, rows), strict=True):
                chain = [found.tail, found.projection, found.angle, found.theorem]
                assert all(a <= b + 1e-12 for a, b in pairwise(chain))
                s = torch.linalg.svdvals(W)
                assert found.tail == pytest.approx(float(s[batch:].norm() / s.norm()), abs=1e-14)
                expected = float(whole.norm() / (2.0 * problem.lam * W.norm()))
                assert found.theorem == pytest.approx(expected, rel=1e-9)
                values = torch.linalg.svdvals(whole - 2.0 * problem.lam * W)
                kept = int((values > 1e-9 * (values[0] + problem.lam * s[0])).sum())
                assert kept <= found.gradient_rank <= found.rank_bound <= batch
            if problem.loss.name == "cross_entropy":
                assert found.rank_bound <= problem.Y.shape[1] - 1


def test_batch_normalisation_raises_no_rank() -> None:
    """[GP22, Lemma 2]: at most B with detached statistics, B - 1 without, and the bound by the penalised gradient."""
    for seed in range(20):
        torch.manual_seed(seed)
        batch, lam, detached = 2 + seed % 4, 10.0 ** (seed % 3 - 2), seed % 2 == 0
        X, layers = torch.randn(batch, 9).double(), [nn.Linear(n, m).double() for n, m in ((9, 12), (12, 10), (10, 3))]
        for layer in layers[:-1]:
            X_next = layer(X)
            statistics = X_next.detach() if detached else X_next
            X = torch.relu((X_next - statistics.mean(dim=0)) / (statistics.var(dim=0) + 1e-3).sqrt())
        loss = (layers[-1](X) - torch.randn(batch, 3).double()).square().sum() / batch
        for layer, G in zip(layers, torch.autograd.grad(loss, [layer.weight for layer in layers]), strict=True):
            W, normalised = layer.weight.detach(), layer is not layers[-1]
            assert int((torch.linalg.svdvals(G) > 1e-10).sum()) <= batch - (normalised and not detached)
            assert (
                float(torch.linalg.svdvals(W)[batch:].norm()) <= float((G + 2.0 * lam * W).norm()) / (2.0 * lam) + 1e-12
            )


def test_noise_is_that_of_all_batches() -> None:
    for seed in range(12):
        problem, weights = network(seed)
        for batch in (1, 3, 8):
            every = [batch_gradients(problem, weights, rows) for rows in combinations(range(8), batch)]
            mean = batch_gradients(problem, weights, tuple(range(8)))
            for layer, found in enumerate(batch_noise(problem, weights, batch)):
                squares = torch.stack([each[layer].square().sum() for each in every])
                assert found.rms == pytest.approx(float(squares.mean().sqrt()), rel=1e-12)
                assert found.gradient == pytest.approx(float(mean[layer].norm()), rel=1e-11)
                assert found.spread == pytest.approx(max(0.0, found.rms**2 - found.gradient**2) ** 0.5, abs=1e-6)
                assert 0.0 <= found.floor <= found.rms
                assert batch < 8 or found.floor == found.spread == 0.0


@pytest.mark.quick
def test_the_floor_is_reached_and_vanishes() -> None:
    """Inputs that are orthogonal leave all of W but its part along them; inputs on one line leave nothing."""
    X, Y = torch.eye(4, dtype=torch.float64), torch.zeros(4, 2, dtype=torch.float64)
    W, V = gaussian(3, 5, seed=0), gaussian(2, 4, seed=1)
    W[:, -1] = 0.0
    problem = make_problem(X, Y, lam=0.5, loss="mse", bias=0.0)
    assert batch_noise(problem, [W, V], 1)[0].floor == pytest.approx(float(W.norm()) * 0.75**0.5, rel=1e-12)
    line = make_problem(gaussian(6, 1, seed=2), Y[:1].expand(6, 2), lam=0.5, loss="mse", bias=0.0)
    assert batch_noise(line, [gaussian(3, 2, seed=3) * torch.tensor([1.0, 0.0]), V], 1)[0].floor == 0.0
    assert batch_noise(make_problem(X[:1], Y[:1], lam=0.5, loss="mse", bias=0.0), [W, V], 1)[0].spread == 0.0


@pytest.mark.quick
@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_measures_of_rank(scale: float) -> None:
    s = scale * torch.tensor([4.0, 2.0, 0.004, 0.0], dtype=torch.float64)
    assert [threshold_rank(s, tolerance) for tolerance in (0.9, 0.8, 1e-3, 1e-4)] == [0, 1, 2, 3]
    assert stable_rank(s) == pytest.approx(20.000016 / 16.0)
    assert [tail(s, r) / scale for r in (0, 1, 2, 3, 4)] == pytest.approx([20.000016**0.5, 4.000016**0.5, 0.004, 0, 0])
    assert [predicted_rank(s, kept, 4.0 * scale, 1e-3) for kept in (1.0, -0.01, 1e-3)] == [2, 2, 0]


@pytest.mark.quick
def test_zero_has_rank_0() -> None:
    s = torch.zeros(3, dtype=torch.float64)
    assert threshold_rank(s, 1e-3) == predicted_rank(torch.ones(3), 1.0, 0.0, 1e-3) == 0
    assert stable_rank(s) == tail(s, 0) == 0.0
    problem, weights = network(3)
    for layer in audit_ranks(problem, [0.0 * W for W in weights], batch_size=2, decay=Decay(0.1, problem.lam)):
        told = json.loads(as_json(layer.summary()))
        assert (told["rank"], told["stable_rank"], told["functional_rank"]) == ({"0.001": 0}, 0.0, 0)
        assert told["noise"] is told["residual"] is told["window"] is None


@pytest.mark.quick
def test_functional_ranks_by_brute_force() -> None:
    for seed in range(30):
        problem, weights = network(seed)
        fit = evaluate(problem, weights).fit
        for layer, found in enumerate(functional_ranks(problem, weights, rise=0.2)):
            U, s, Vt = torch.linalg.svd(weights[layer], full_matrices=False)
            enough = []
            for r in range(len(s) + 1):
                changed = [*weights[:layer], U[:, :r] @ torch.diag(s[:r]) @ Vt[:r], *weights[layer + 1 :]]
                if evaluate(problem, changed).fit <= 1.2 * fit * (1.0 + 1e-12):
                    enough.append(r)
            assert found == enough[0]


@pytest.mark.quick
def test_functional_ranks_of_exact_fits() -> None:
    """Where C = 0 a replacement must fit as exactly; for interpolate its misfit is what is allowed."""
    X = gaussian(6, 3, seed=0)
    W = [torch.diag(torch.tensor([3.0, 2.0, 1e-13], dtype=torch.float64)), torch.eye(3, dtype=torch.float64)]
    W = [torch.cat([each, torch.zeros(3, 1)], dim=1) for each in W]
    Y = X @ W[0][:, :3].T
    for loss, lam in (("mse", 0.1), ("interpolate", None)):
        problem = make_problem(X, Y, lam=lam, loss=loss, activation="linear")
        assert functional_ranks(problem, W) == ([2, 2] if lam is None else [2, 3])


@pytest.mark.quick
def test_an_audit_of_one_network() -> None:
    problem, weights = network(4, samples=20)
    start = [W + 1e-4 * gaussian(*W.shape, seed=9) for W in weights]
    decay = Decay(0.01, problem.lam)
    layers = audit_ranks(problem, weights, tolerances=(1e-2, 1e-6), batch_size=2, decay=decay, steps=0, start=start)
    told = [json.loads(as_json(layer.summary())) for layer in layers]
    for W, layer, each in zip(weights, layers, told, strict=True):
        assert each["shape"] == list(W.shape)
        assert each["predicted"] == each["rank"]  # no step was made: the network is its start
        assert each["tail"][0] == pytest.approx(1.0)
        assert len(each["tail"]) == min(W.shape) + 1
        assert each["tail"][2] == pytest.approx(each["batch_bound"]["tail"], abs=1e-14)
        assert each["noise"]["rms"] >= each["noise"]["spread"] >= 0.0
        assert each["gradient_rank"] <= layer.gradient_bound
    again = audit_ranks(problem, weights, batch_size=2, decay=None)
    assert all(layer.window is None and layer.predicted is None for layer in again)  # Adam, AdamW
    bare = audit_ranks(problem, weights)
    assert all(each.noise is each.batch_bound is each.gradient_rank is None for each in bare)
    assert [each.residual for each in bare] == pytest.approx([each.residual for each in layers], rel=1e-12)
    for layer in audit_ranks(replace(problem, lam=0.0), weights, batch_size=2, decay=Decay(0.1, 0.0)):
        assert layer.window is layer.summary()["noise"] is layer.residual is None
        assert layer.noise.rms > layer.noise.floor == 0.0


@pytest.mark.quick
def test_sums_of_gradients_have_the_rank_of_what_they_share() -> None:
    """In the first layer that of the inputs with their bias, in the last of cross-entropy the classes less one."""
    X = torch.cat([gaussian(9, 2, seed=0), torch.zeros(9, 3, dtype=torch.float64)], dim=1)
    problem = make_problem(X, torch.eye(3, dtype=torch.float64)[torch.arange(9) % 3], lam=0.1, loss="cross_entropy")
    weights = [gaussian(7, 6, seed=1), gaussian(3, 8, seed=2)]
    assert total_ranks(problem, weights) == [3, 2]
    whole = [G - 0.2 * W for G, W in zip(batch_gradients(problem, weights, tuple(range(9))), weights, strict=True)]
    assert [int(RANK_RULE.keeps(torch.linalg.svdvals(G)).sum()) for G in whole] == [3, 2]
    # Of a start that has faded the bound is theirs, but not where training in float32 would have rounded.
    for tolerance, bounds in ((1e-3, [3, 2]), (1e-6, [None, None])):
        faded = {"tolerances": (tolerance,), "decay": Decay(4.5, 0.1), "steps": 100, "start": weights}
        windows = [layer.window for layer in audit_ranks(problem, weights, batch_size=9, **faded)]
        assert [None if each is None else each.bound for each in windows] == bounds


@pytest.mark.quick
def test_sentences_from_numbers() -> None:
    layer = {
        "shape": [100, 101],
        "rank": {"0.001": 80},
        "predicted": {"0.001": 79},
        "window": {"steps": 6905, "bound": None},
        "noise": {"rms": 9.2, "floor": 0.475},
        "batch_bound": {"tail": 0.56, "theorem": 1.23},
        "dead": 4,
    }
    said = words.of_layer(layer, "0.001", batch_size=4, retained=0.01, reference=11)
    assert said == (
        "Rank 80, from the initialisation: what remains of it alone has rank 79. No bound on the rank below 100: the"
        " last 6905 steps still count. SGD noise keeps it moving: a batch of 4 changes it 9.2 times as much as the"
        " decay does (root mean square; proved: at least 0.47 times). Bound (10) of [GP22] is void here: 1.23 |W|. The"
        " solver's network has rank 11. 4 of 100 neurons are dead."
    )
    learned = {**layer, "predicted": {"0.001": 3}, "window": {"steps": 5, "bound": 20}, "dead": 0, "noise": None}
    said = words.of_layer(learned, "0.001", batch_size=4, reference=80)
    assert said.startswith(
        "Rank 80, learned: what remains of the initialisation alone has rank 3. Proved: the rank is at"
    )
    assert "The solver's network has the same rank." in said
    near = {**layer, "batch_bound": {"tail": 0.561, "theorem": 0.9601}}
    assert "within 0.961 |W| of rank 4; the true distance is 0.561 |W|." in words.of_theorem(near, 4)
    vanished = words.of_start({**layer, "rank": {"0.001": 0}}, "0.001", 0.0)
    assert vanished == "The weights have vanished: the rank is 0."
    assert words.of_start(layer, "0.001", 1.0) == "Rank 80. Without decay the initial weights never fade."
    assert "in part from the initialisation" in words.of_start({**layer, "predicted": {"0.001": 50}}, "0.001", 0.1)
    assert "below that of what remains" in words.of_start({**layer, "predicted": {"0.001": 99}}, "0.001", 0.1)
    assert words.of_start({**layer, "predicted": None}, "0.001", None) == ""
    assert "not Adam" in words.of_window({**layer, "window": None}, 4)
