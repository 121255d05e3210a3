"""Huber, logistic and losses of one's own with two layers: bounds and costs against a conic solver."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.optimize
import torch
from numpy.typing import NDArray
from torch import Tensor

import covopt
from covopt.certify.dual import dual_bound
from covopt.certify.proofs import network_proof
from covopt.model.loss import Huber, Logistic, MeanSquaredError
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import evaluate

TARGET = 1e-6


def data(seed: int, inputs: int, rows: int, loss: str) -> tuple[NDArray, NDArray, NDArray]:
    """Inputs, targets (with outliers for huber) and weights."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, inputs))
    Y = np.sin(2.0 * X[:, :1]) + 0.3 * rng.standard_normal((rows, 1))
    Y[0] += 8.0
    return X, np.sign(Y) if loss == "logistic" else Y, rng.uniform(0.2, 3.0, rows)


def patterns(Xt: NDArray) -> NDArray:
    """All sign patterns of Xt w, one by one (rows), from the directions between and along the edges of the cells."""
    W = np.random.default_rng(0).standard_normal((200_000, Xt.shape[1]))
    return np.unique(Xt @ W.T > 0.0, axis=1).T


def by_all_patterns(problem: Problem) -> float:
    """The minimum by a convex programme (Pilanci, Ergen 2020): for each pattern D two cones of neurons, one output."""
    Xt, Y = problem.Xt.numpy(), problem.Y.numpy()[:, 0]
    shares, F, norm, cones = problem.shares.numpy(), 0.0, 0.0, []
    for D in patterns(Xt):
        u, v = cp.Variable(Xt.shape[1]), cp.Variable(Xt.shape[1])
        side = np.where(D, 1.0, -1.0)[:, None] * Xt
        cones += [side @ u >= 0.0, side @ v >= 0.0]
        F = F + (D[:, None] * Xt) @ (u - v)
        norm = norm + 2.0 * (cp.norm(u) + cp.norm(v))
    b = cp.Variable()
    F = F + problem.beta * b
    if isinstance(problem.loss, Logistic):
        fit = cp.sum(cp.multiply(shares, cp.logistic(cp.multiply(-Y, F))))
    else:
        assert isinstance(problem.loss, Huber)
        fit = 0.5 * cp.sum(cp.multiply(shares, cp.huber(F - Y, problem.loss.delta)))
    programme = cp.Problem(cp.Minimize(fit + problem.lam * (norm + cp.square(b))), cones)
    return float(programme.solve(solver=cp.CLARABEL))


@pytest.mark.parametrize("loss", ["huber", "huber:0.3", "logistic"])
@pytest.mark.parametrize("inputs", [1, 2])
def test_the_minimum_is_that_of_the_convex_programme(loss: str, inputs: int) -> None:
    X, Y, weight = data(inputs, inputs, 7, loss)
    asked = {"lam": 0.02, "loss": loss, "sample_weight": weight}
    found = covopt.solve(X, Y, gap=TARGET, time_limit=60.0, **asked)  # type: ignore[arg-type]
    assert (found.certificate, found.status) == (covopt.Certificate.EXACT, covopt.Status.OPTIMAL)
    least = by_all_patterns(make_problem(X, Y, **asked))  # type: ignore[arg-type]
    assert found.lower * (1.0 - 1e-7) <= least <= found.cost * (1.0 + 1e-7)


@pytest.mark.parametrize("loss", ["huber", "logistic"])
@pytest.mark.parametrize(("inputs", "rows"), [(1, 40), (2, 25)])
def test_certified_to_a_millionth(loss: str, inputs: int, rows: int) -> None:
    X, Y, _ = data(5, inputs, rows, loss)
    found = covopt.solve(X, Y, lam=0.01, loss=loss, gap=TARGET, time_limit=60.0)
    assert (found.certificate, found.status) == (covopt.Certificate.EXACT, covopt.Status.OPTIMAL)


@pytest.mark.parametrize("name", ["huber", "huber:0.3", "logistic"])
def test_fenchel_young(name: str) -> None:
    X, Y, weight = data(1, 1, 9, name)
    problem = make_problem(X, Y, lam=0.05, loss=name, sample_weight=weight)
    generator = torch.Generator().manual_seed(0)
    for size in (1e-3, 1.0, 30.0):
        F, other = size * torch.randn(2, 9, 1, generator=generator, dtype=torch.float64)
        G = problem.gradient_at(F)
        assert float(problem.loss_at(F) + problem.conjugate_at(G)) == pytest.approx(float((G * F).sum()), abs=1e-12)
        assert float(problem.loss_at(other) + problem.conjugate_at(G)) >= float((G * other).sum()) - 1e-12
        assert float(problem.conjugate_at(1e3 * problem.gradient_at(50.0 + 0.0 * F))) == np.inf


@pytest.mark.parametrize("name", ["huber", "huber:0.3", "logistic"])
def test_no_network_is_below_the_bound_of_any_dual_point(name: str) -> None:
    X, Y, weight = data(7, 1, 9, name)
    problem = make_problem(X, Y, lam=0.05, loss=name, sample_weight=weight)
    found = covopt.solve(X, Y, lam=0.05, loss=name, sample_weight=weight)
    generator = torch.Generator().manual_seed(0)
    for size in (1e-3, 0.1, 1.0, 10.0, 1e150):
        W = [size * torch.randn(n, k, generator=generator, dtype=torch.float64) for n, k in ((5, 2), (1, 6))]
        assert 0.0 <= network_proof(problem, W).lower <= found.cost
        random = size * torch.randn(9, 1, generator=generator, dtype=torch.float64)
        assert 0.0 <= dual_bound(problem, random, 1e-3 * size).lower < np.inf


class Derived(MeanSquaredError):
    """No loss of covopt's, though it is one."""


def test_a_loss_of_ones_own_is_bounded_as_the_built_in_one() -> None:
    """What is derived from mse takes the general way: the same minimum, certified, and the same bound."""
    X, Y, weight = data(3, 1, 12, "mse")
    own = Derived("own")
    asked = {"lam": 0.02, "sample_weight": weight, "gap": TARGET, "time_limit": 30.0}
    mine, theirs = (covopt.solve(X, Y, loss=loss, **asked) for loss in (own, "mse"))  # type: ignore[arg-type]
    assert mine.status is theirs.status is covopt.Status.OPTIMAL
    assert mine.cost == pytest.approx(theirs.cost, rel=2e-6)
    problems = [make_problem(X, Y, lam=0.02, loss=loss, sample_weight=weight) for loss in (own, "mse")]
    bounds = [proof.lower for p in problems if (proof := network_proof(p, theirs.weights)) is not None]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-12)


class Quiet:
    """Pseudo-Huber, which does not say how its conjugate is rounded."""

    name = "quiet"

    def values(self, F: Tensor, Y: Tensor) -> Tensor:
        return ((1.0 + (F - Y).square()).sqrt() - 1.0).sum(dim=-1)

    def gradients(self, F: Tensor, Y: Tensor) -> Tensor:
        return (F - Y) / (1.0 + (F - Y).square()).sqrt()

    def curvatures(self, F: Tensor, Y: Tensor) -> Tensor:
        return (1.0 + (F - Y).square()) ** -0.5

    def conjugates(self, G: Tensor, Y: Tensor) -> Tensor:
        root = (1.0 - G.square()).clamp_min(0.0).sqrt()
        return torch.where(G.abs() > 1.0, torch.inf, G * Y + 1.0 - root).sum(dim=-1)


class Loud(Quiet):
    """The same, and says so: the square root is steep at |G| = 1, and off by the root of a rounding at most."""

    name = "loud"

    def conjugate_rounding(self, G: Tensor, Y: Tensor) -> Tensor:
        return (1e-7 * 2.0**0.5 + 1e-15 * (G * Y).abs()).sum(dim=-1)


def test_only_a_loss_that_tells_its_rounding_gets_a_bound() -> None:
    X, Y, _ = data(4, 1, 12, "huber")
    quiet = covopt.solve(X, Y, lam=0.02, loss=Quiet(), time_limit=10.0)
    loud = covopt.solve(X, Y, lam=0.02, loss=Loud(), time_limit=10.0)
    assert (quiet.lower, quiet.certificate, quiet.attainable) == (None, "none", "none")
    assert (loud.certificate, loud.status) == ("exact", "optimal")
    assert quiet.cost == pytest.approx(loud.cost, rel=1e-3)


@pytest.mark.parametrize("size", [1e-60, 1e60])
def test_huber_in_other_units(size: float) -> None:
    """Targets and threshold times t, and lam times t, cost t^2: for two layers |W|^2 is of the size of F."""
    X, Y, _ = data(2, 1, 9, "huber")
    plain = covopt.solve(X, Y, lam=0.02, loss="huber:0.5", gap=TARGET, bias=0.0)
    other = covopt.solve(X, size * Y, lam=0.02 * size, loss=f"huber:{0.5 * size}", gap=TARGET, bias=0.0)
    assert other.status is covopt.Status.OPTIMAL
    assert other.cost == pytest.approx(size * size * plain.cost, rel=2 * TARGET)


def test_logistic_takes_classes_in_every_form() -> None:
    X, Y, _ = data(6, 1, 10, "logistic")
    forms = [Y, (Y + 1.0) / 2.0, np.c_[Y < 0, Y > 0].astype(float), Y[:, 0] > 0]
    problems = [make_problem(X, form, lam=0.1, loss="logistic") for form in forms]
    assert all(torch.equal(problem.Y, problems[0].Y) for problem in problems)
    found = covopt.CovoptClassifier(lam=0.01, loss="logistic").fit(X, np.where(Y[:, 0] > 0, "yes", "no"))
    assert found.certificate_ == "exact"
    p = found.predict_proba(X)
    np.testing.assert_allclose(np.log(p[:, 1] / p[:, 0]), found.decision_function(X), rtol=1e-9, atol=1e-9)
    assert list(found.predict(X)) == ["yes" if each > 0.5 else "no" for each in p[:, 1]]
    assert found.result_.fit == pytest.approx(-np.log(np.where(Y[:, 0] > 0, p[:, 1], p[:, 0])).mean(), rel=1e-9)


@pytest.mark.parametrize("name", ["huber:0.7", "logistic"])
def test_deep_networks_descend_and_no_bound_is_claimed(name: str) -> None:
    X, Y, weight = data(8, 2, 12, name)
    problem = make_problem(X, Y, lam=0.01, loss=name, depth=3, sample_weight=weight)
    asked = {"lam": 0.01, "loss": name, "depth": 3, "sample_weight": weight, "time_limit": 3.0}
    found = covopt.solve(X, Y, **asked, starts=4, certify="fast")
    assert (found.lower, found.certificate, found.attainable) == (None, "none", "none")
    assert found.cost <= 1.05 * covopt.solve(X, Y, **asked, method="train", certify="none").cost
    assert found.cost < 0.8 * float(problem.loss_at(torch.zeros_like(problem.Y)))
    assert found.cost == pytest.approx(evaluate(problem, found.weights).total, rel=1e-14)


@pytest.mark.parametrize("bias", [30.0, 1e3, 1e5])
def test_the_best_constant_is_never_missed(bias: float) -> None:
    """Its outputs are far from the mean of the targets: one class is absent, and large biases cost little."""
    draw = np.random.default_rng(0)
    X, members = draw.normal(size=(12, 2)), draw.integers(0, 2, 12)
    Y = np.eye(3)[members]

    def constant(c: np.ndarray) -> float:
        return float(np.logaddexp.reduce(c) - Y.mean(axis=0) @ c + c @ c / bias**2)

    best = min(
        scipy.optimize.minimize(constant, start, method="BFGS", options={"gtol": 1e-12}).fun
        for start in (np.zeros(3), np.array([0.0, 0.0, -20.0]))
    )
    result = covopt.solve(X, Y, lam=1.0, loss="cross_entropy", bias=bias, certify="none", time_limit=1.0)
    assert result.cost <= best * (1.0 + 1e-9)
