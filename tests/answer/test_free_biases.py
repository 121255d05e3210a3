"""Biases that the penalty is not on: against a conic solver, closed forms, and the question with penalised biases."""

import math
from dataclasses import replace
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
import torch

import covopt
from covopt.certify import free
from covopt.certify.cones.branch import ConeTree, trees
from covopt.certify.dual import Exact, strongest
from covopt.certify.dual_space import widened
from covopt.certify.proof import Target
from covopt.model.biases import centred
from covopt.model.problem import make_problem
from covopt.model.weights import evaluate, gradient, objective
from covopt.oracles.neurons import best_breakpoints

SQUARE = {"lam": 1e-2}


def programme(x: np.ndarray, Y: np.ndarray, lam: float | None, skip: bool) -> float:
    """The minimum for one input, by a conic solver: at the minimum every kink may lie at a sample."""
    z = x.ravel()
    Phi = np.maximum(np.concatenate([z[:, None] - z[None], z[None] - z[:, None]], axis=1), 0.0)
    V, c = cp.Variable((Phi.shape[1], Y.shape[1])), cp.Variable((1, Y.shape[1]))
    F, norm = Phi @ V + np.ones((len(z), 1)) @ c, 2.0 * cp.sum(cp.norm(V, axis=1))
    if skip:
        F = F + (z - z.mean())[:, None] @ cp.Variable((1, Y.shape[1]))
    if lam is None:
        asked = cp.Problem(cp.Minimize(norm), [F == Y])
    else:
        asked = cp.Problem(cp.Minimize(cp.sum_squares(F - Y) / len(z) + lam * norm))
    return float(asked.solve(solver="CLARABEL", **dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-12)))


@pytest.mark.parametrize("skip", [False, True])
def test_of_one_input_the_minimum_is_exact(skip: bool) -> None:
    """20 sets: exact fits and mse, one output and two, at several scales and far from the origin."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        size, height, far = 10.0 ** rng.uniform(-3, 3), 10.0 ** rng.uniform(-3, 3), 10.0 * (seed % 3)
        x = size * (np.sort(rng.uniform(-1, 1, 4 + seed % 5))[:, None] + far)
        Y = height * rng.standard_normal((len(x), 1 + seed % 2))
        for lam in (None, 0.03 * size * height):
            found = covopt.solve(x, Y, lam=lam, bias="free", skip=skip, gap=1e-8, time_limit=60)
            assert found.certificate == "exact"
            known = programme(x / size, Y / height, None if lam is None else 0.03, skip)
            known *= height / size if lam is None else height**2
            assert found.cost == pytest.approx(known, rel=1e-8)
            assert found.lower is not None
            assert found.lower == pytest.approx(known, rel=2e-8)


@pytest.mark.parametrize(
    ("y", "cost"),
    [
        ([0, 1], 2.0),  # one neuron of slope 1
        ([0, 1, 0], 4.0),  # the slope turns by 2 between flanks of slope 1 and -1
        ([0, 1, 1], 2.0),
        ([0, 1, 3], 4.0),  # flanks of slope 0 and 2: it turns by 2; the line to the left costs its slope besides
        ([0, 1, 2], 2.0),
        ([3, 3, 3], 0.0),
    ],
)
def test_closed_forms(y: list[float], cost: float) -> None:
    """2 max(total variation of f', |f'(-inf) + f'(inf)|), the least over the slopes of the two flanks.

    Source: Savarese, Evron, Soudry, Srebro (2019), Theorem 3.1, with the norms of two layers here.
    """
    x = np.arange(len(y))[:, None] + 7.0
    found = covopt.solve(x, np.array(y)[:, None], bias="free", time_limit=20)
    assert found.cost == pytest.approx(cost, abs=1e-9)


def test_two_inputs_close_to_the_minimum_and_below_what_penalised_biases_cost(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    X, Y = rng.standard_normal((12, 2)) + 3.0, rng.standard_normal((12, 2))
    found = covopt.solve(X, Y, **SQUARE, bias="free", gap=1e-7, time_limit=60)
    assert found.certificate == "exact"
    assert found.gap <= 1e-6
    moved = covopt.solve(X + 100.0, Y - 5.0, **SQUARE, bias="free", gap=1e-7, time_limit=60)
    assert moved.cost == pytest.approx(found.cost, rel=1e-6)
    assert found.cost < covopt.solve(X, Y, **SQUARE, bias=3.0, certify="none", time_limit=3).cost
    found.save(tmp_path / "run")
    assert covopt.verify(tmp_path / "run").passed
    back = covopt.load(tmp_path / "run")
    assert back.summary()["bias"] == "free"
    np.testing.assert_allclose(back.to_torch()(torch.tensor(X)).detach(), found.predict(X), atol=1e-12)


def test_bounds_are_below_random_networks_and_proved_again() -> None:
    """Whatever dual point is stored: exact, by branch and bound, and spectral."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        N, d, m = rng.integers(2, 7), rng.integers(1, 5), rng.integers(1, 3)
        X = 10.0 ** rng.uniform(-2, 2) * (rng.standard_normal((N, d)) + rng.choice([0.0, 5.0]))
        net = [torch.tensor(rng.standard_normal(shape)) for shape in ((3, d + 1), (m, 4))]
        p = make_problem(X, np.zeros((N, m)), lam=0.1, bias="free", free=True)
        F = torch.relu(p.Xt @ net[0].T) @ net[1][:, :-1].T + net[1][:, -1]
        Y = F + 0.1 * torch.tensor(rng.standard_normal((N, m)))
        for lam, targets in ((None, F), (float(rng.choice([1e-3, 0.1, 10.0])), Y)):
            p = make_problem(X, targets, lam=lam, bias="free", free=True, skip=bool(seed % 2))
            S = torch.tensor(rng.standard_normal((m, d)))
            if p.skip:
                p = replace(p, Y=p.Y + p.X @ S.T)
            cost = evaluate(p, [net[0], torch.cat([net[1][:, :-1], S, net[1][:, -1:]], dim=1)] if p.skip else net).total
            point = torch.tensor(rng.standard_normal((N, m))) + targets
            assert free.prove(p, point, 0.2, 1e-3).proof.lower <= cost * (1.0 + 1e-9)
            for kind in (Exact, free.FreeNorms):
                if kind.applies(p):
                    assert 0.0 <= kind(0.0, point, 1.0).bound(p) <= cost * (1.0 + 1e-9)


def test_the_largest_value_lies_at_a_breakpoint() -> None:
    """The anchored maximum against a fine grid of (w, b), and the sums from above against their definition."""
    rng = np.random.default_rng(2)
    p = make_problem(rng.standard_normal((7, 2)), rng.standard_normal((7, 2)), lam=1.0, bias="free", free=True)
    Lambda = centred(torch.tensor(rng.standard_normal((7, 2))))
    angles = torch.linspace(0.0, 6.2832, 721).double()
    W = torch.stack([angles.cos(), angles.sin()], dim=1)
    b = torch.linspace(-4.0, 4.0, 801).double()
    h = torch.einsum("nwb,nm->wbm", torch.relu((p.X @ W.T)[:, :, None] + b), Lambda).norm(dim=2)
    answer = strongest(p, Lambda)
    assert float(h.max()) <= answer.upper_bound
    assert float(h.max()) == pytest.approx(answer.upper_bound, rel=1e-3)
    assert answer.upper_bound <= free.spectral_maximum(p, Lambda)
    torch.testing.assert_close((torch.relu(p.Xt @ answer.directions.T).T @ Lambda).norm(dim=1), answer.values)
    at, best = best_breakpoints(p.X, p.activation, Lambda, W)
    torch.testing.assert_close((torch.relu(p.X @ W.T + at).T @ Lambda).norm(dim=1), best)
    assert bool((best >= h.amax(dim=1) - 1e-12).all())


@pytest.mark.parametrize("skip", [False, True])
def test_the_gradient_leaves_biases_alone(skip: bool) -> None:
    rng = np.random.default_rng(3)
    X, Y = rng.standard_normal((5, 2)), rng.standard_normal((5, 1))
    p = make_problem(X, Y, lam=0.3, depth=3, bias="free", free=True, skip=skip)
    shapes = ((4, 3), (3, 5), (1, 6 if skip else 4))
    W = [torch.tensor(rng.standard_normal(shape)).requires_grad_() for shape in shapes]
    penalised = [float(w.detach()[:, :n].square().sum()) for w, n in zip(W, (2, 4, 3), strict=True)]
    assert evaluate(p, [w.detach() for w in W]).norm == pytest.approx(sum(penalised))
    objective(p, W).backward()
    for found, each in zip(gradient(p, [w.detach() for w in W]), W, strict=True):
        torch.testing.assert_close(found, each.grad)


@pytest.mark.parametrize("options", [{"depth": 3}, {"loss": "cross_entropy"}, {"method": "train", "width": 10}])
def test_below_penalised_biases_where_nothing_is_exact(options: dict) -> None:
    rng = np.random.default_rng(4)
    X, Y = rng.standard_normal((20, 4)), np.eye(2)[rng.integers(0, 2, 20)]
    free_cost = covopt.solve(X, Y, lam=1e-2, bias="free", time_limit=2, **options).cost
    assert free_cost < covopt.solve(X, Y, lam=1e-2, bias=3.0, certify="none", time_limit=1, **options).cost


@pytest.mark.parametrize("depth", [2, 3])
def test_a_free_linear_function_costs_nothing(depth: int, tmp_path: Path) -> None:
    """The cost of Y + X S + c is that of Y, by the bound too; affine targets cost nothing; stored, drawn, a module."""
    rng = np.random.default_rng(6)
    X, Y = rng.standard_normal((12, 2)) + 3.0, rng.standard_normal((12, 1))
    asked = {"lam": 1e-2, "depth": depth, "bias": "free", "skip": True, "time_limit": 20 if depth == 2 else 1}
    tilted = covopt.solve(X, Y + X @ [[5.0], [-7.0]] + 2.0, gap=1e-6, **asked)
    if depth == 2:
        found = covopt.solve(X, Y, gap=1e-6, **asked)
        assert found.certificate == tilted.certificate == "exact"
        assert tilted.cost == pytest.approx(found.cost, rel=1e-5)
    assert covopt.solve(X, X @ [[5.0], [-7.0]], **asked).cost < 1e-20
    tilted.save(tmp_path / "run")
    assert covopt.verify(tmp_path / "run").passed
    back = covopt.load(tmp_path / "run")
    assert back.summary()["skip"] is True
    np.testing.assert_allclose(back.to_torch()(torch.tensor(X)).detach(), tilted.predict(X), atol=1e-11)
    tilted.plot()


@pytest.mark.parametrize("depth", [2, 3])
def test_an_audit_knows_what_was_decayed(depth: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    X, Y = rng.standard_normal((9, 1)) + 2.0, rng.standard_normal((9, 1))
    asked = {"lam": 1e-2, "time_limit": 6 if depth == 2 else 1}
    found = covopt.solve(X, Y, depth=depth, bias="free", gap=1e-7, **asked)
    audit = covopt.validate(found.to_torch(), X, Y, decay="weights", **asked)
    assert audit.loss == pytest.approx(found.cost, rel=1e-9)
    if depth == 2:
        assert audit.finding == "minimum"
        assert max(audit.residuals) < 1e-2
        assert max(audit.inert) < 1e-6
        assert audit.layers[0].facts.stationarity == pytest.approx(1.0, abs=1e-3)
    assert covopt.validate(found.to_torch(), X, Y, **asked).finding not in ("minimum", "best")
    audit.save(tmp_path / "audit")
    assert covopt.verify(tmp_path / "audit").passed


def test_branch_and_bound_beyond_three_inputs(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    X, Y = rng.standard_normal((9, 4)), rng.standard_normal((9, 1))
    found = covopt.solve(X, Y, lam=0.1, bias="free", certify="full", time_limit=30)  # ends at its gap
    assert found.certificate == "branch-and-bound"
    found.save(tmp_path / "run")
    assert covopt.verify(tmp_path / "run").passed


def test_deep_networks_of_inputs_that_float32_cannot_square() -> None:
    """Draws descend in float32 first, where such inputs were infinite."""
    X, y = 1e62 * np.array([[-7.0], [-6.0], [-3.0], [1.0], [2.0]]), np.array([-1.0, -1.0, 1.0, 1.0, -1.0])
    found = covopt.solve(X, y, lam=1e-3, loss="logistic", depth=3, bias="free", time_limit=1)
    share = 2.0 / 5.0
    constant = -share * math.log(share) - (1.0 - share) * math.log(1.0 - share)
    assert found.cost <= constant * (1.0 + 1e-9)


def test_what_two_samples_attain_and_pay() -> None:
    """x = 0, 1 and Lambda = -+1/2: the neuron x_+ has h = 1/2 = |Lambda| |H x|, without a skip by all of sigma.

    Of d = (1, 1) / 10, which is not orthogonal to constants, it sees 1/10, so that h is off by as much.
    """
    p = make_problem([[0.0], [1.0]], [[0.0], [1.0]], lam=0.1, bias="free", free=True)
    Lambda = torch.tensor([[-0.5], [0.5]], dtype=torch.float64)
    assert 0.5 <= free.spectral_maximum(p, Lambda) <= 0.5 * (1 + 1e-9)
    assert widened(p, 0.1 * math.sqrt(2.0), 0.5) >= 0.6


def test_trees_bound_the_largest_of_all_breakpoints() -> None:
    """h of (1, -2, 1) at -1, 0, 1 is 1 at the kink 0, which is not the last one, and 0 at the others."""
    p = make_problem([[0.0], [-1.0], [1.0]], [[0.0], [0.0], [1.0]], lam=0.1, bias="free", free=True)
    point = torch.tensor([[-2.0], [1.0], [1.0]], dtype=torch.float64)
    grown = trees(p, point, Target(time_limit=60.0), 1e-3)
    proof = ConeTree(0.0, point, grown.upper_bound, grown.tree, grown.counts)
    assert 1.0 <= proof.proved_maximum(p) <= 1.001
