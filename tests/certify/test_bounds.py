"""Dual bounds: below every network's loss, equal to the known optima, and honest about rounding."""

import math

import cvxpy as cp
import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from instances import cases, gaussian

import covopt
from covopt.certify.dual import DualBound, dual_bound
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import evaluate, objective, preactivations
from covopt.oracles.arrangement import ArrangementOracle
from covopt.oracles.oracle import oracle_values

CASES = list(cases("shallow_exact").values())


def exact_maximum(problem: Problem, Lambda: torch.Tensor) -> float:
    return ArrangementOracle(problem.Xt, problem.activation)(Lambda).upper_bound


def trained(problem: Problem, width: int, steps: int, seed: int = 0) -> list[torch.Tensor]:
    """A network from a short Adam run: its loss is one that no lower bound may exceed."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((width, problem.X.shape[1] + 1), (problem.Y.shape[1], width + 1))
    weights = [(0.5 * torch.randn(*shape, generator=generator)).double().requires_grad_() for shape in shapes]
    optimiser = torch.optim.Adam(weights, lr=0.03)
    for _ in range(steps):
        optimiser.zero_grad()
        objective(problem, weights).backward()
        optimiser.step()
    return [W.detach() for W in weights]


def dual_of(problem: Problem, weights: list[torch.Tensor]) -> torch.Tensor:
    """Lambda = -grad C(F) / (2 lam)."""
    return -problem.gradient_at(preactivations(problem, weights)[-1]) / (2.0 * problem.lam)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    N, m, loss = draw(st.integers(1, 8)), draw(st.integers(1, 3)), draw(st.sampled_from(["mse", "cross_entropy"]))
    Y = np.eye(m)[rng.integers(m, size=N)] if loss == "cross_entropy" else rng.standard_normal((N, m))
    bias, lam = draw(st.sampled_from([0.0, 0.5, 1.0])), draw(st.sampled_from([1e-3, 0.03, 0.5]))
    activation = draw(st.sampled_from(["relu", "leaky:-0.4", "linear"]))
    return make_problem(rng.standard_normal((N, 1)), Y, lam=lam, loss=loss, bias=bias, activation=activation)


@given(problems(), st.integers(0, 10**6))
def test_never_above_a_network(problem: Problem, seed: int) -> None:
    weights = trained(problem, width=6, steps=30, seed=seed)
    cost = evaluate(problem, weights).total
    generator = torch.Generator().manual_seed(seed)
    points = [dual_of(problem, weights), torch.randn(problem.Y.shape, generator=generator).double(), problem.Y]
    for Lambda in points:
        bound = dual_bound(problem, Lambda, exact_maximum(problem, Lambda))
        assert 0.0 <= bound.lower <= cost
        # What it hands back proves the bound: dual feasible, and worth as much.
        assert bound.maximum <= 1.0
        directions = torch.nn.functional.normalize(torch.randn(200, 2, generator=generator).double(), dim=1)
        sampled = oracle_values(problem.Xt, problem.activation, bound.Lambda, directions)
        assert float(sampled.max()) <= bound.maximum + 1e-12
        assert bound.lower <= max(0.0, float(problem.dual_value(bound.Lambda)))


@given(problems(), st.integers(0, 10**6))
def test_the_scale_is_the_best_one(problem: Problem, seed: int) -> None:
    Lambda = dual_of(problem, trained(problem, width=4, steps=20, seed=seed))
    M = exact_maximum(problem, Lambda)
    bound = dual_bound(problem, Lambda, M)
    grid = torch.linspace(0.0, 1.0, 101, dtype=torch.float64) / max(M, 1e-300)
    grid = grid[: 101 if M > 1e-9 else 1]
    best = max(float(problem.dual_value(float(t) * Lambda)) for t in grid)
    assert bound.lower >= best - 1e-9 * max(1.0, best)


def sampled_dual(problem: Problem, directions: torch.Tensor) -> torch.Tensor:
    """The best Lambda under h(w) <= 1 at these directions only, by cvxpy."""
    atoms = problem.activation(problem.Xt @ directions.T).T.numpy()
    Y, lam, N = problem.Y.numpy(), problem.lam, problem.samples
    Lambda = cp.Variable(Y.shape)
    value = -lam * problem.beta**2 * cp.sum_squares(cp.sum(Lambda, axis=0))
    constraints = [cp.norm(atoms @ Lambda, axis=1) <= 1.0]
    if problem.loss.name == "cross_entropy":
        value += cp.sum(cp.entr(Y - 2 * lam * N * Lambda)) / N
        constraints.append(cp.sum(Lambda, axis=1) == 0)
    else:
        value += 2 * lam * cp.sum(cp.multiply(Lambda, Y))
        value -= 0 if problem.interpolates else N * lam**2 * cp.sum_squares(Lambda)
    cp.Problem(cp.Maximize(value), constraints).solve(solver=cp.CLARABEL)
    return torch.as_tensor(Lambda.value)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_meets_the_certified_optimum_and_never_passes_it(case: dict) -> None:
    """Cutting planes: the oracle's local maxima become constraints until the bound meets the certified value."""
    problem = make_problem(case["X"], case["Y"], lam=case["lam"], loss=case["loss"], bias=case["beta"])
    oracle = ArrangementOracle(problem.Xt, problem.activation)
    angle = torch.linspace(0.0, 2.0 * math.pi, 100, dtype=torch.float64)
    circle = torch.stack([angle.cos(), angle.sin()], dim=1)
    plane = problem.Xt.abs().sum(dim=0).nonzero()[:, 0]
    directions = torch.zeros(100, problem.Xt.shape[1]).double().index_copy(1, plane, circle)
    best = 0.0
    for _ in range(12):
        Lambda = sampled_dual(problem, directions)
        answer = oracle(Lambda)
        best = max(best, dual_bound(problem, Lambda, answer.upper_bound).lower)
        directions = torch.cat([directions, answer.directions])
    assert (1 - 1e-5) * case["lower"] <= best <= case["upper"]


def test_orthogonal_rows_and_scalar_targets() -> None:
    r, y = torch.tensor([2.0, 0.5]).double(), torch.tensor([3.0, -1.0]).double()
    problem = make_problem(torch.diag(r), y, bias=0.0)
    Lambda = (y / r**2 / (y / r).abs())[:, None]
    bound = dual_bound(problem, Lambda, exact_maximum(problem, Lambda))
    value = 2.0 * float((y / r).clamp_min(0).norm() + (y / r).clamp_max(0).norm())
    assert value * (1 - 1e-12) <= bound.lower + saved(problem, bound) <= value * (1 + 1e-12)


def saved(problem: Problem, bound: DualBound) -> float:
    """What networks may save by missing the targets by as much as is allowed: 2 eps |Lambda|_1."""
    return 2.0 * problem.allowed_misfit * float(bound.Lambda.abs().sum())


def test_identity_inputs_and_one_hot_targets() -> None:
    problem = make_problem(np.eye(2), np.ones((2, 1)), bias=0.0)
    bound = dual_bound(problem, problem.Y, exact_maximum(problem, problem.Y))
    assert bound.lower + saved(problem, bound) == pytest.approx(2.0 * math.sqrt(2.0), rel=1e-12)
    assert bound.lower <= 2.0 * math.sqrt(2.0)


def test_proposition_19() -> None:
    lam = 0.3
    inputs, targets = np.array([[1.0], [-1.0]]), np.ones((2, 1))
    # The paper's loss is the sum of squares: N times covopt's, so lam is divided by N as well.
    problem = make_problem(inputs, targets, lam=lam / 2, loss="mse", bias=0.0)
    Lambda = torch.full((2, 1), 5.0).double()
    bound = dual_bound(problem, Lambda, exact_maximum(problem, Lambda))
    assert 2.0 * bound.lower == pytest.approx(4 * lam - 2 * lam**2, rel=1e-12)
    interpolating = make_problem(inputs, targets, bias=0.0)
    bound = dual_bound(interpolating, Lambda, exact_maximum(interpolating, Lambda))
    assert bound.lower + saved(interpolating, bound) == pytest.approx(4.0, rel=1e-12)


def test_cross_entropy_with_saturated_probabilities() -> None:
    """Entries of Lambda at rounding level where Y is 0 must not force t = 0."""
    problem = make_problem(np.array([[1.0], [-1.0]]), np.eye(2), lam=1e-3, loss="cross_entropy", bias=1.0)
    Lambda = dual_of(problem, trained(problem, width=8, steps=400))
    clean = dual_bound(problem, Lambda, exact_maximum(problem, Lambda)).lower
    noisy = Lambda.clone()
    noisy[0] = torch.tensor([0.0, 1e-17])
    noisy[1] = Lambda[1] + 1e-15
    assert clean > 0.0
    assert dual_bound(problem, noisy, exact_maximum(problem, noisy)).lower > 0.0
    shifted = Lambda + 1e-9 * torch.ones(2, 1).double()
    assert dual_bound(problem, shifted, exact_maximum(problem, shifted)).lower == pytest.approx(clean, rel=1e-4)


@pytest.mark.parametrize("inputs", [1, 4])
@pytest.mark.parametrize("classes", [2, 3])
def test_uniform_probabilities_are_proved_to_cost_their_entropy(inputs: int, classes: int) -> None:
    """Without a network every output is uniform, and the multiplier is 0."""
    Y = np.full((6, classes), 1.0 / classes)
    result = covopt.solve(gaussian(6, inputs, seed=1), Y, loss="cross_entropy", lam=0.01, time_limit=5.0)
    assert result.cost == pytest.approx(math.log(classes), rel=1e-12)
    assert math.log(classes) * (1.0 - 1e-9) <= result.lower <= math.log(classes)


def test_soft_targets_give_at_least_their_entropy_at_large_lam() -> None:
    Y = np.array([[0.5, 0.5], [0.25, 0.75]])
    problem = make_problem(np.array([[1.0], [-1.0]]), Y, lam=100.0, loss="cross_entropy", bias=0.0)
    Lambda = dual_of(problem, [torch.zeros(1, 2).double(), torch.zeros(2, 2).double()])
    bound = dual_bound(problem, Lambda, exact_maximum(problem, Lambda))
    # With weights 0 the loss is log 2, and that is the minimum for so strong a penalty.
    assert bound.lower == pytest.approx(math.log(2.0), rel=1e-9)
    assert bound.lower <= math.log(2.0)


@pytest.mark.parametrize("loss", ["mse", "interpolate", "cross_entropy"])
def test_nothing_is_proved_without_a_maximum(loss: str) -> None:
    problem = make_problem(np.eye(2), np.eye(2), lam=None if loss == "interpolate" else 0.1, loss=loss)
    bound = dual_bound(problem, problem.Y, math.inf)
    assert (bound.lower, bound.scale, float(bound.Lambda.abs().sum())) == (0.0, 0.0, 0.0)


# ---- a dual bound of two layers is the dual value of the point that it returns: here with 60 digits
LOSSES = ("mse", "interpolate", "cross_entropy", "huber:0.7", "logistic")


def drawn(seed: int, loss: str, samples: int = 6) -> Problem:
    """Random data with random weights and bias."""
    rng = np.random.default_rng(seed)
    m = 1 if loss == "logistic" else 3
    Y = rng.standard_normal((samples, m))
    if loss == "cross_entropy":
        Y = rng.dirichlet(np.ones(m), samples) if seed % 2 else np.eye(m)[rng.integers(0, m, samples)]
    if loss == "logistic":
        Y = np.sign(Y)
    options = {} if loss == "interpolate" else {"lam": float(rng.choice([1e-3, 0.03, 0.4])), "loss": loss}
    if seed % 3 and loss != "interpolate":
        options["sample_weight"] = rng.uniform(0.2, 2.0, samples)
    return make_problem(rng.standard_normal((samples, 2)), Y, bias=float(seed % 3) / 2.0, **options)  # type: ignore[arg-type]


def exact_dual(problem: Problem, point: torch.Tensor) -> mpmath.mpf:
    """D(Lambda), with 60 digits."""
    q, lam, beta = (
        (mpmath.mpf(1) / mpmath.mpf(inverse) for inverse in problem.inverse_shares.tolist()),
        problem.lam,
        problem.beta,
    )
    rows, total = [[mpmath.mpf(x) for x in row] for row in point.tolist()], mpmath.mpf(0)
    for share, row, y in zip(q, rows, problem.Y.tolist(), strict=True):
        G = [-2 * mpmath.mpf(lam) * x / share for x in row]
        total -= share * conjugate(problem, G, [mpmath.mpf(t) for t in y])
    for column in zip(*rows, strict=True):
        total -= mpmath.mpf(lam) * (mpmath.mpf(beta) * sum(column)) ** 2
    if problem.interpolates:
        total -= 2 * mpmath.mpf(problem.allowed_misfit) * sum(abs(x) for row in rows for x in row)
    return total


def conjugate(problem: Problem, G: list, y: list) -> mpmath.mpf:
    """c*(G) of one sample, rounding of p taken for none."""
    linear, square = sum(g * t for g, t in zip(G, y, strict=True)), sum(g * g for g in G)
    name = problem.loss.name
    if name == "mse":
        return linear + square / 4
    if name == "interpolate":
        return linear
    if name.startswith("huber"):
        assert all(abs(g) <= mpmath.mpf(0.7) * (1 + mpmath.mpf(10) ** -15) for g in G)
        return linear + square / 2
    p = [t + g for g, t in zip(G, y, strict=True)] if name == "cross_entropy" else [-y[0] * G[0], 1 + y[0] * G[0]]
    assert all(x > -(mpmath.mpf(10) ** -15) for x in p)
    return sum((x * mpmath.log(x) for x in p if x > 0), mpmath.mpf(0))


@pytest.mark.parametrize("loss", LOSSES)
def test_a_dual_bound_is_the_dual_value_rounded_down(loss: str) -> None:
    """Of the point that it returns; at most 1 / M times the one given, and no multiple of it is worth much more."""
    proved = 0
    with mpmath.workdps(60):
        for seed in range(40):
            problem, rng = drawn(seed, loss), np.random.default_rng(seed)
            Lambda = torch.from_numpy(0.3 * rng.standard_normal(problem.Y.shape) * 10.0 ** rng.uniform(-1, 1))
            Lambda = Lambda + problem.Y.double() * (loss != "cross_entropy")
            if loss == "cross_entropy":
                Lambda = problem.shares[:, None] * (problem.Y - torch.softmax(Lambda, dim=1)) / (2 * problem.lam)
            M = float(rng.choice([0.3, 1.0, 4.0]))
            found = dual_bound(problem, Lambda, M)
            if found.lower == 0.0:
                continue
            value = exact_dual(problem, found.Lambda)
            assert found.lower <= value
            assert found.lower >= value * (1 - 1e-9) - 1e-11
            assert found.scale * M <= found.maximum * (1.0 + 1e-15)
            assert found.maximum <= 1.0
            for part in (0.5, 0.9, 0.99):
                assert exact_dual(problem, part * found.Lambda) <= value * (1 + mpmath.mpf(10) ** -8)
            proved += 1
    assert proved > 12


def test_the_maximum_pays_for_a_point_that_is_moved() -> None:
    """Cross-entropy asks for rows of sum 0: what is moved is bounded by |Delta|_F |Xt|_F, exactly so for one neuron."""
    problem = make_problem([[1.0]], [[1.0, 0.0]], lam=0.5, loss="cross_entropy", bias=0.0)
    found = dual_bound(problem, torch.tensor([[0.05, -0.1]]).double(), 0.2)
    assert found.maximum >= found.scale * 0.25 * (1.0 - 1e-12)
