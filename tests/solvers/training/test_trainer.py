"""The ordinary training: its gradients, its batches, its descent, and what it reaches."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from instances import Instance, cases, distance_to_kinks, gaussian, instances
from scipy.optimize import minimize_scalar

from covopt.model.problem import Problem, make_problem
from covopt.model.weights import evaluate, gradient as gradient_of, objective, preactivations
from covopt.runtime.loop import Budget, Progress, Status
from covopt.solvers.training import trainer
from covopt.solvers.training.batch import Batch, buckets, work
from covopt.solvers.training.descent import Adam, AdamOptions, BatchedLBFGS
from covopt.solvers.training.matrices import SOAP, Muon, ScheduleFreeMuon, steps_on_matrices
from covopt.solvers.training.trainer import TrainerOptions, initial, train, train_best

QUICK = TrainerOptions(adam=AdamOptions(steps=60), iterations=100)


def small(seed: int = 0, **options: object) -> Problem:
    """12 points in 3 dimensions, 2 outputs."""
    chosen = {"lam": 0.01, "bias": 1.0} | options
    return make_problem(gaussian(12, 3, seed=seed), gaussian(12, 2, seed=seed + 1), **chosen)  # type: ignore[arg-type]


@given(instances(), st.integers(0, 3), st.integers(0, 10**6))
def test_the_batch_has_the_cost_and_the_gradient_of_each_network(case: Instance, more: int, seed: int) -> None:
    """Against autograd, and at kinks the weights' own gradient, with other networks beside it in the batch."""
    problem, width = case.problem, [len(W) for W in case.weights[:-1]]
    others = [[n + more for n in width], [1] * len(width)]
    networks = [case.weights, *(initial(problem, each, seed) for each in others)]
    batch = Batch(problem, [width, *others])
    costs, gradient = batch.evaluate(batch.pack(networks))
    for i, weights in enumerate(networks):
        leaves = [W.clone().requires_grad_() for W in weights]
        value = objective(problem, leaves)
        torch.testing.assert_close(costs[i], value.detach(), rtol=1e-12, atol=1e-12)
        known = list(gradient_of(problem, weights))
        if distance_to_kinks(preactivations(problem, weights)) > 0.0:
            known = list(torch.autograd.grad(value, leaves))
        found = batch.unpack(gradient[i], [len(W) for W in weights[:-1]])
        scale = 1.0 + max(float(G.abs().max()) for G in known)
        for ours, theirs in zip(found, known, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12 * scale)
        assert torch.equal(batch.pack([found])[0], gradient[i])  # nothing but zeros in the padding


def test_weights_come_back_from_the_padding() -> None:
    problem = small(depth=3)
    networks = [initial(problem, widths, seed=4) for widths in ([2, 5], [4, 1], [3, 3])]
    batch = Batch(problem, [[2, 5], [4, 1], [3, 3]])
    rows = batch.pack(networks)
    assert rows.shape == (3, 4 * 4 + 5 * 5 + 2 * 6)
    for row, weights in zip(rows, networks, strict=True):
        for W, V in zip(batch.unpack(row, [len(W) for W in weights[:-1]]), weights, strict=True):
            assert torch.equal(W, V)


@pytest.mark.parametrize("activation", ["relu", "leaky:-0.3"])
@pytest.mark.parametrize("depth", [2, 3])
def test_a_batch_trains_as_its_networks_do_alone(depth: int, activation: str) -> None:
    """Adam's whole course agrees to rounding, and the padding stays exactly zero in all methods."""
    problem, widths = small(depth=depth, activation=activation), [[n] * (depth - 1) for n in (1, 4, 9)]
    starts = [initial(problem, each, seed=2) for each in widths]
    batch = Batch(problem, widths)
    together = Adam(batch.evaluate, batch.pack(starts), AdamOptions(steps=100))
    for _ in range(100):
        together.iterate()
    descent = BatchedLBFGS(batch.evaluate, together.best)
    soap = SOAP(batch.evaluate, batch.pack(starts), AdamOptions(steps=100), batch.stacks)
    for _ in range(30):
        descent.iterate()
        soap.iterate()
    for i, each in enumerate(widths):
        single = Batch(problem, [each])
        alone = Adam(single.evaluate, single.pack([starts[i]]), AdamOptions(steps=100))
        for _ in range(100):
            alone.iterate()
        assert float(together.lowest[i]) == pytest.approx(float(alone.lowest[0]), rel=1e-10)
        for W, V in zip(batch.unpack(together.best[i], each), single.unpack(alone.best[0], each), strict=True):
            torch.testing.assert_close(W, V, rtol=1e-8, atol=1e-9)
        for rows in (together.best, descent.x, soap.x):
            assert torch.equal(batch.pack([batch.unpack(rows[i], each)])[0], rows[i])


@pytest.mark.parametrize("shape", [(3, 5, 9), (3, 9, 5)])
def test_steps_of_muon_are_nearly_orthogonal(shape: tuple[int, int, int]) -> None:
    """The singular vectors are those of the momentum, and all singular values are near 1."""
    G = gaussian(*shape, seed=3)
    muon = Muon(lambda x: (x.sum(dim=1), x), G.flatten()[None], AdamOptions(), lambda x: [x.view(1, *shape)])
    U, _, Vt = torch.linalg.svd(G, full_matrices=False)
    rotated = U.mT @ muon._orthogonal(G) @ Vt.mT
    sizes = rotated.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(rotated, torch.diag_embed(sizes), rtol=0.0, atol=1e-12)
    assert 0.5 < float(sizes.min()) < float(sizes.max()) < 1.3


def test_muon_leaves_what_has_no_gradient_and_descends() -> None:
    """|A - B|^2 of three columns of the matrices; the first one has no gradient."""
    A, B = gaussian(1, 24, seed=4), gaussian(1, 24, seed=5)
    has_slope = torch.arange(24) % 4 > 0

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        off = (x - B) * has_slope
        return off.square().sum(dim=1), 2.0 * off

    muon = Muon(function, A, AdamOptions(steps=300, rate=0.3), lambda x: [x.view(1, 1, 6, 4)])
    for _ in range(300):
        muon.iterate()
    assert torch.equal(muon.x[:, ~has_slope], A[:, ~has_slope])
    assert float(function(muon.x)[0]) < 1e-3 * float(function(A)[0])


@pytest.mark.parametrize("method", [Muon, ScheduleFreeMuon])
def test_matrices_move_in_proportion_to_their_entries(method: type[Muon]) -> None:
    """Of two matrices with equal gradients, the larger one moves further, by as much as it is larger."""
    A, G = gaussian(1, 12, seed=4), gaussian(12, seed=6)
    start = torch.cat([A, 5.0 * A], dim=1)
    both = torch.cat([G, G])[None]
    descent = method(lambda x: (x.sum(dim=1), both), start, AdamOptions(rate=0.1), lambda x: [x.view(1, 2, 3, 4)])
    descent.iterate()
    first, second = (descent.x - start).split(12, dim=1)
    torch.testing.assert_close(second, 5.0 * first)
    assert float(first.abs().min()) > 0.0


def test_schedule_free_muon_is_the_mean_of_its_fast_points() -> None:
    """|A - B|^2: the points z are followed by hand, and their mean is near B although the rate never ends."""
    A, B, points = gaussian(1, 24, seed=4), gaussian(1, 24, seed=5), []

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x - B).square().sum(dim=1), 2.0 * (x - B)

    muon = ScheduleFreeMuon(function, A, AdamOptions(rate=0.3), lambda x: [x.view(1, 1, 6, 4)])
    for _ in range(300):
        muon.iterate()
        points.append(muon._fast.clone())
    weights = torch.arange(1.0, 301.0, dtype=A.dtype) ** muon.power
    mean = (weights[:, None] * torch.cat(points)).sum(dim=0) / weights.sum()
    torch.testing.assert_close(muon.x[0], mean)
    assert float(function(muon.x)[0]) < 1e-3 * float(function(A)[0])
    assert float(function(muon.x)[0]) < 0.5 * float(function(points[-1])[0])


@pytest.mark.parametrize(("inputs", "kind"), [(SOAP.largest, SOAP), (SOAP.largest + 1, Muon)])
def test_wide_inputs_have_steps_without_bases(inputs: int, kind: type[Adam]) -> None:
    start = gaussian(1, 2 * inputs, seed=0)
    method = steps_on_matrices(lambda x: (x.sum(dim=1), x), start, AdamOptions(), lambda x: [x.view(1, 1, 2, inputs)])
    assert type(method) is kind


@pytest.mark.parametrize("memory", [0, 3, 20])
def test_every_row_of_lbfgs_descends_by_itself_to_its_minimum(memory: int) -> None:
    """Strongly convex quadratics of different scale: monotone, no row sees another, and all arrive."""
    A = gaussian(5, 8, 8, seed=3)
    sizes = torch.tensor([1e-3, 1.0, 30.0, 1e4, 1.0], dtype=torch.float64)
    H = (A @ A.mT / 8 + torch.eye(8, dtype=torch.float64)) * sizes[:, None, None]
    centre = gaussian(5, 8, seed=4)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        which = x[:, 0].long()  # the number of the row's quadratic, an entry that is never moved
        y = x[:, 1:] - centre[which]
        g = torch.einsum("bij,bj->bi", H[which], y)
        return 0.5 * (y * g).sum(dim=1), torch.cat([torch.zeros_like(g[:, :1]), g], dim=1)

    start = torch.cat([torch.arange(5.0, dtype=torch.float64)[:, None], gaussian(5, 8, seed=5)], dim=1)
    descent = BatchedLBFGS(function, start, memory)
    alone = [BatchedLBFGS(function, start[i : i + 1], memory) for i in range(5)]
    for _ in range(60):
        before = descent.f
        descent.iterate()
        assert bool((descent.f <= before).all())
    for i, single in enumerate(alone):
        for _ in range(60):
            single.iterate()
        torch.testing.assert_close(single.x[0], descent.x[i], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(descent.x[:, 1:], centre, rtol=1e-5, atol=1e-5)


def test_the_cost_never_rises_and_every_network_improves() -> None:
    problem = small(depth=3)
    found = train(problem, [3, (5, 2)], seeds=2, options=QUICK)
    assert [network.widths for network in found.networks] == [[3, 3], [3, 3], [5, 2], [5, 2]]
    for network in found.networks:
        assert bool((np.diff(network.history, axis=0) <= [np.inf, 0.0]).all())
        start = evaluate(problem, initial(problem, network.widths, network.seed or 0)).total
        assert network.history[0, 1] == pytest.approx(start, rel=1e-12)
        assert network.cost.total < start
        assert network.cost == evaluate(problem, network.weights)
        assert network.history[-1, 1] == pytest.approx(network.cost.total, rel=1e-12)
    assert found.best.cost.total == min(found.costs) == pytest.approx(found.history[-1].cost, rel=1e-12)


@pytest.mark.parametrize("depth", [2, 3])
def test_a_linear_network_reaches_its_minimum(depth: int) -> None:
    """X = I, beta = 0: each singular value y of Y costs min_s (s - y)^2 / N + lam L s^(2/L) [JGHG22, 3.1]."""
    Y, lam = 2.0 * gaussian(6, 3, seed=8), 0.02
    problem = make_problem(torch.eye(6, dtype=torch.float64), Y, lam=lam, depth=depth, bias=0.0, activation="linear")

    def least(y: float) -> float:
        def cost(s: float) -> float:
            return (s - y) ** 2 / 6 + lam * depth * s ** (2 / depth)

        return min(cost(0.0), *(float(minimize_scalar(cost, (a, y)).fun) for a in (0.5 * y, 0.9 * y)))

    exact = sum(least(float(s)) for s in torch.linalg.svdvals(Y))
    found = train(problem, [8], seeds=3, budget=Budget(20.0))
    assert found.best.cost.total == pytest.approx(exact, rel=1e-7)
    assert min(found.costs) >= exact * (1 - 1e-9)


@pytest.mark.parametrize("name", ["reg-1d-smooth", "reg-1d-onehot", "reg-plane-gauss"])
def test_training_comes_near_certified_optima(name: str) -> None:
    case = cases("shallow_exact")[name]
    problem = make_problem(np.array(case["X"]), np.array(case["Y"]), lam=case["lam"], bias=case["beta"])
    found = train(problem, [40], seeds=2, options=TrainerOptions(adam=AdamOptions(steps=500), iterations=150))
    assert case["lower"] * (1 - 1e-9) <= found.best.cost.total <= 1.02 * case["upper"]


def test_cross_entropy_trains() -> None:
    labels = torch.eye(2, dtype=torch.float64)[torch.arange(12) % 2]
    problem = make_problem(gaussian(12, 3, seed=1), labels, lam=1e-3, loss="cross_entropy", depth=3)
    assert train(problem, [10], seeds=3, options=QUICK).best.cost.total < 0.5 * np.log(2.0)


def test_the_same_seed_gives_the_same_network_whatever_trains_beside_it() -> None:
    problem = small()
    one, two = (train(problem, [4], seeds=[7], options=QUICK) for _ in range(2))
    assert one.costs == two.costs
    assert all(torch.equal(W, V) for W, V in zip(one.best.weights, two.best.weights, strict=True))
    company = train(problem, [4, 4, 6], seeds=[7], options=TrainerOptions(adam=AdamOptions(steps=60), iterations=5))
    short = train(problem, [4], seeds=[7], options=TrainerOptions(adam=AdamOptions(steps=60), iterations=5))
    assert company.costs[0] == pytest.approx(short.costs[0], rel=1e-9)


def test_single_precision_stays_single() -> None:
    problem = make_problem(gaussian(12, 3, seed=0).float(), gaussian(12, 2, seed=1).float(), lam=0.01)
    found = train(problem, [5], seeds=2, options=QUICK)
    assert all(W.dtype == torch.float32 for W in found.best.weights)
    double = train(small(), [5], seeds=2, options=QUICK)
    assert found.best.cost.total == pytest.approx(double.best.cost.total, rel=0.05)


def test_buckets_hold_every_network_once_and_little_padding() -> None:
    problem = make_problem(gaussian(200, 64, seed=0), gaussian(200, 1, seed=1), lam=0.1)
    widths = [[n] for n in range(1, 101) for _ in range(3)]
    found = buckets(problem, widths, largest=10**9)
    assert sorted(i for bucket in found for i in bucket) == list(range(300))
    assert 1 < len(found) < 100
    needed = sum(work(problem, each) for each in widths)
    padded = sum(len(bucket) * max(work(problem, widths[i]) for i in bucket) for bucket in found)
    assert padded < 1.25 * needed
    assert len(buckets(problem, [[7]] * 20, largest=10**9)) == 1
    limited = buckets(problem, [[7]] * 20, largest=200 * 7 * 5)
    assert len(limited) == 4
    assert {len(bucket) for bucket in limited} == {5}
    assert buckets(problem, [[7]], largest=1) == [[0]]


def test_an_interrupt_and_the_clock_keep_the_best_so_far() -> None:
    problem, seen = small(), []

    def interrupt(line: Progress) -> None:
        seen.append(line.cost)
        if len(seen) == 4:
            raise KeyboardInterrupt

    found = train(problem, [6], seeds=2, callback=interrupt)
    assert found.status is Status.INTERRUPTED
    assert found.best.cost.total <= seen[-1] * (1 + 1e-12) < seen[0]
    assert not found.best.converged
    late = train(problem, [6], budget=Budget(1e-6))
    assert late.status is Status.TIME_LIMIT
    assert late.best.cost.total == pytest.approx(evaluate(problem, initial(problem, [6], 0)).total)


def test_the_best_of_several_starts_and_a_given_one() -> None:
    problem = small()
    found = train_best(problem, Budget(1.5), width=6, starts=3, seed=5)
    assert len(found.starts) == 3
    assert evaluate(problem, found.weights).total == min(found.starts)
    assert found.status in (Status.CONVERGED, Status.TIME_LIMIT)
    assert found.history[-1].width == 6
    again = train_best(problem, Budget(1.5), width=4, starts=2, seed=5, init=found.weights)
    assert len(again.starts) == 2
    assert evaluate(problem, again.weights).total <= min(found.starts) * (1 + 1e-12)
    assert len(train_best(problem, Budget(0.5)).weights[0]) == 40


def test_starts_come_in_batches_that_fit_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, seen = small(), []
    monkeypatch.setattr(trainer, "fitting", lambda *_: 2)
    best = train_best(problem, Budget(1e4), width=2, starts=3, seed=3, callback=seen.append)
    assert best.starts == [cost for seeds in ([3, 4], [5]) for cost in train(problem, [2], seeds=seeds).costs]
    assert evaluate(problem, best.weights).total == min(best.starts)
    assert best.status is Status.CONVERGED
    assert best.history == seen
    assert [line.iteration for line in best.history] == list(range(len(best.history)))
    assert all(after.cost <= before.cost for before, after in pairwise(best.history))
    monkeypatch.setattr(Budget, "spent", lambda self: True)
    assert len(train_best(problem, Budget(1e4), width=2, starts=10**6).starts) == 2


def test_fewer_trainings_fit_into_less_time_and_at_least_one() -> None:
    problem = small()
    several = [trainer.fitting(problem, [50], Budget(seconds)) for seconds in (1e-6, 1.0, 10.0, 100.0)]
    assert (several, several[0]) == (sorted(several), 1)
    assert 10 < several[1] <= 500
    assert trainer.fitting(problem, [5000], Budget(100.0)) < several[-1]


def test_a_batch_that_is_interrupted_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(line: Progress) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "fitting", lambda *_: 2)
    found = train_best(small(), Budget(1e4), width=6, starts=100, callback=interrupt)
    assert (found.status, len(found.starts)) == (Status.INTERRUPTED, 2)
