"""What the arrays of a deep proof are worth, by its formula in NumPy, fractions and grids: never more, hardly less.

The formulas are those of MATH.md section 5. A slip of a few per cent in a bound is above its formula or far below it.
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

from covopt.certify.deep import angle, convexity, linear, loop, ranks
from covopt.certify.deep.convexity import growth
from covopt.certify.deep.edges import Edges, power
from covopt.certify.deep.flows import Incidence, Laplacian, bound_of
from covopt.certify.deep.planes import Plane
from covopt.certify.deep.ranks import least_product, least_relative_loss
from covopt.model.activation import Activation
from covopt.model.problem import Problem, make_problem
from covopt.runtime.errors import ProblemError

Array = NDArray[np.float64]
NEAR = 1e-9  # what a bound may lack of its formula where only rounding is charged
FITTED = 1e-5  # the same of exact fits, which lose what networks may miss: 1e-7 of the targets in each entry


def drawn(seed: int, samples: int = 5, inputs: int = 2, outputs: int = 2, **options: object) -> Problem:
    """A problem of three layers with random data, with cross-entropy for one-hot rows."""
    rng = np.random.default_rng(seed)
    Y = rng.standard_normal((samples, outputs))
    if options.get("loss") == "cross_entropy":
        Y = rng.dirichlet(np.ones(outputs), samples)
    return make_problem(rng.standard_normal((samples, inputs)), Y, **{"depth": 3, **options})  # type: ignore[arg-type]


def some_edges(problem: Problem, seed: int) -> Edges:
    """Random edges between samples, balanced where there is a bias."""
    rng, N = np.random.default_rng(seed), problem.samples
    first = rng.integers(0, N, N + 2)
    sizes = rng.random((N + 2, 2))
    sizes[:, 1] = sizes[:, 0] if problem.beta else sizes[:, 1]
    pairs = np.column_stack([first, (first + rng.integers(1, N, N + 2)) % N])
    return Edges(torch.from_numpy(pairs), torch.from_numpy(sizes))


def dense(edges: Edges, samples: int) -> Array:
    """B, entry by entry."""
    B = np.zeros((len(edges.pairs), samples))
    for row, (i, j), (s, t) in zip(B, edges.pairs.tolist(), edges.sizes.tolist(), strict=True):
        row[i] += s
        row[j] -= t
    return B


def product(A: Array) -> float:
    """min (x_1 + x_2) (f_1^2 / x_1 + f_2^2 / x_2)^(1/2) with max x = 1, of two singular values on a grid."""
    x = np.concatenate([[1.0], np.geomspace(1e-6, 1.0, 200_001)])
    first, second = np.linalg.svd(A, compute_uv=False)
    return float(((1.0 + x) * np.sqrt(first**2 + second**2 / x)).min())


def weighed_product(A: Array) -> float:
    """min over G of max over T of Phi (sum_i f_i^2 (G^-1)_ii)^(1/2), on a grid of G with seven T for each."""
    P, f, _ = np.linalg.svd(A, full_matrices=False)
    least = math.inf
    for gamma in np.linspace(0.02, 1.0, 30):
        for turn in np.linspace(0.0, math.pi, 40, endpoint=False):
            U = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
            along, across = (P @ U).T
            values = []
            for share in (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7):
                t = 1.0 - share * (1.0 - gamma) * (along**2 - across**2) / (along**2 + across**2)
                root = t[:, None] * (P @ U) * np.sqrt([1.0, gamma])
                tau, kappa, top = (
                    float((root**2 / t[:, None]).sum()),
                    np.linalg.norm(root, 2) ** 2,
                    1.0 + share * (1.0 - gamma),
                )
                r = max(0.0, top * tau - 2.0 * kappa)
                values.append((tau + r / top) / math.sqrt(kappa + r))
            least = min(least, max(values) * math.sqrt(float((f**2 * (U**2 @ [1.0, 1.0 / gamma])).sum())))
    return least


def is_tight(lower: float, value: float, missing: float) -> bool:
    """Whether a bound is not above a value, rounding of the value apart, and lacks no more than this of it."""
    return value * (1.0 - missing) <= lower <= value * (1.0 + 1e-12)


def missed(problem: Problem, F: Array, direction: Array) -> Array:
    """Outputs that miss as much as an exact fit may, in the direction that a bound minds most."""
    return F - problem.allowed_misfit * np.sign(direction)


def ratio_bound(ratio: float, depth: int) -> float:
    return depth * ratio ** (2.0 / depth)


# -- edges and flows ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_edges_of_exact_fits(seed: int, bias: float) -> None:
    problem = drawn(seed, bias=bias, depth=3 + seed % 3, inputs=8)
    edges = some_edges(problem, seed)
    X = problem.X.numpy() if bias else problem.Xt.numpy()
    B, Y = dense(edges, problem.samples), problem.Y.numpy()
    U, _, Vt = np.linalg.svd(B @ Y, full_matrices=False)
    nearest = missed(problem, Y, B.T @ U @ Vt)
    reach = float(np.linalg.norm(B @ X, 2))
    lower = Laplacian(0.0, edges).bound(problem)
    by_ranks, by_directions = (ratio_bound(g(B @ nearest) / reach, problem.depth) for g in (product, weighed_product))
    assert is_tight(lower, by_ranks, FITTED) or is_tight(lower, by_directions, 8e-3)
    assert lower >= by_ranks * (1.0 - FITTED)
    bent = replace(problem, activation=Activation(-0.5))
    ratio = float(np.linalg.norm(B @ nearest, "nuc")) / reach
    assert is_tight(Laplacian(0.0, edges).bound(bent), ratio_bound(ratio, problem.depth), FITTED)
    W = np.random.default_rng(seed).standard_normal((problem.samples, 2))
    assert np.allclose(edges.scattered(edges.rows(torch.from_numpy(W)), problem.samples), B.T @ (B @ W))


@pytest.mark.parametrize("seed", range(6))
def test_the_least_product_of_layers_with_these_ranks(seed: int) -> None:
    """Against SciPy over all x, each of which may be the largest; for equal values in closed form."""
    f = np.sort(np.random.default_rng(seed).lognormal(size=5))[::-1].copy()

    def at(logs: Array, place: int) -> float:
        x = np.exp(np.insert(logs, place, 0.0))
        return float(np.log(x.sum()) + 0.5 * np.log((f**2 / x).sum()))

    ends, start = [(-20.0, 0.0)] * 4, -np.ones(4)
    best = min(math.exp(minimize(at, start, args=place, bounds=ends, tol=1e-12).fun) for place in range(5))
    value, x = least_product(torch.from_numpy(f))
    assert value == pytest.approx(best, rel=1e-6)
    assert value == pytest.approx(float(x.sum() * (torch.from_numpy(f**2) / x).sum().sqrt()), rel=1e-12)
    assert f.sum() <= value <= 2.0 * f.sum()
    assert least_product(torch.full((2,), 3.0).double())[0] == pytest.approx(6.0 * math.sqrt(27.0 / 16.0), rel=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_edges_that_count_by_their_direction(seed: int) -> None:
    """Against a grid, and below what random layers need for their own outputs, of one direction and of all edges."""
    rng = np.random.default_rng(seed)
    F = rng.standard_normal((int(rng.integers(2, 9)), 2)) * [1.0, rng.uniform(0.1, 1.0)]
    plane = Plane.of(torch.from_numpy(F), 1e-6)
    assert plane is not None
    assert is_tight(plane.least_product(), weighed_product(F), 8e-3)
    B = some_edges(problem := drawn(seed), seed).dense(problem.samples).numpy()
    for _ in range(40):
        Z = rng.standard_normal((problem.samples, int(rng.integers(2, 7)))) + rng.exponential()
        S = B @ np.maximum(Z, 0.0)
        image = S @ rng.standard_normal((S.shape[1], 2))
        plane = Plane.of(torch.from_numpy(image), 0.0)
        last = float(np.trace(image.T @ np.linalg.pinv(S @ S.T, rcond=1e-12) @ image))
        nuclear = float(np.linalg.norm(B @ Z, "nuc"))
        assert plane is None or plane.least_product() <= nuclear * math.sqrt(last) * (1.0 + 1e-9)


@pytest.mark.parametrize("depth", [3, 4, 9])
@pytest.mark.parametrize("log_c", [-9.0, -4.0, -1.5, 0.5, 3.0])
def test_the_least_relative_loss(depth: int, log_c: float) -> None:
    """Against SciPy over all u_1 and u_i / u_1, from many starts."""
    rng = np.random.default_rng(depth)
    p, e = np.sort(rng.dirichlet(np.ones(4)))[::-1].copy(), 2.0 / (depth - 1)

    def at(v: Array) -> float:
        u = math.exp(min(v[0], 200.0)) * np.concatenate([[1.0], v[1:]])
        return float((p / (1.0 + u)).sum() + math.exp(log_c) * (u.sum() / math.sqrt(u[0])) ** e)

    ends = [(-60.0, 200.0), *[(0.0, 1.0)] * 3]
    starts = (np.concatenate([[rng.normal(scale=6.0)], rng.random(3)]) for _ in range(30))
    best = min(1.0, *(float(minimize(at, start, bounds=ends).fun) for start in starts))
    lower, u = least_relative_loss(torch.from_numpy(p), log_c, e)
    assert is_tight(lower, best, 2e-4)
    assert bool((u[1:] <= u[0]).all())
    for rounds in (1, 2, 3):
        assert least_relative_loss(torch.from_numpy(p), log_c, e, rounds)[0] <= best * (1.0 + 1e-12)
    if best < 0.999:
        assert at(np.concatenate([[math.log(u[0])], u[1:] / u[0]])) <= best * (1.0 + 1e-3)


@pytest.mark.parametrize("e", [2.0 / 3.0, 0.25])
def test_a_cell_is_below_its_points(e: float) -> None:
    """A cell of one u_1 and of all sums: where the largest u are the best, the power of the sum is far from linear."""
    rng = np.random.default_rng(0)
    for log_c in np.linspace(-8.0, 0.0, 9):
        p, u_1 = np.sort(rng.dirichlet(np.ones(4)))[::-1].copy(), float(np.exp(rng.normal()))
        u = u_1 * np.column_stack([np.ones(5000), rng.random((5000, 3))])
        u[0] = u_1
        values = (p / (1.0 + u)).sum(axis=1) + math.exp(log_c) * (u.sum(axis=1) / math.sqrt(u_1)) ** e
        cell = torch.tensor([[math.log(u_1) - 1e-9, 0.0, math.log(u_1) + 1e-9, math.log(4.0)]], dtype=torch.float64)
        lows, _, _ = ranks._bounded(cell, torch.from_numpy(p), math.exp(log_c), e)
        assert float(lows) <= values.min() * (1.0 + 1e-12)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_edges_of_the_squared_error(seed: int, bias: float) -> None:
    """min of sum lam f^2 / (w + lam b^2) + (L - 1) lam (sum w / (a w_1^(1/2)))^(2 / (L - 1)) on a grid, w_1 >= w_2."""
    depth, lam = 3 + seed % 3, [0.3, 0.01, 1e-4][seed % 3]
    weight = None if seed % 2 else [1.0, 2.0, 1.0, 0.5, 0.25]
    problem = drawn(seed, bias=bias, depth=depth, lam=lam, loss="mse", inputs=8, sample_weight=weight)
    edges = some_edges(problem, seed)
    X = problem.X.numpy() if bias else problem.Xt.numpy()
    B = dense(edges, problem.samples)
    a, b = (float(np.linalg.norm(A, 2)) for A in (B @ X, B @ np.diag(problem.inverse_shares.numpy() ** 0.5)))
    f = np.linalg.svd(B @ problem.Y.numpy(), compute_uv=False)
    w = np.geomspace(1e-8, 1e8, 4001)[:, None]
    part = np.concatenate([[0.0], np.geomspace(1e-4, 1.0, 400)])
    costs = lam * f[0] ** 2 / (w + lam * b**2) + lam * f[1] ** 2 / (part * w + lam * b**2)
    costs = costs + (depth - 1) * lam * (w**0.5 * (1.0 + part) / a) ** (2.0 / (depth - 1))
    value = min(float(costs.min()), float((f**2).sum()) / b**2)
    lower = Laplacian(0.0, edges).bound(problem)
    assert value * (1.0 - 1e-3) <= lower <= value * (1.0 + 1e-9)
    torch.set_default_dtype(torch.float16)
    try:
        assert Laplacian(0.0, edges).bound(problem) == lower
    finally:
        torch.set_default_dtype(torch.float32)
    assert Laplacian(0.0, edges).bound(replace(problem, activation=Activation(-0.5))) == 0.0


@pytest.mark.parametrize(
    ("pairs", "sizes", "bias"),
    [
        ([[0, 1]], [[1.0, 0.5]], 1.0),
        ([[0, 1]], [[-0.5, -0.5]], 0.0),
        ([[0, 1]], [[0.5, -0.5]], 0.0),
        ([[0, 1]], [[2.0, 2.0]], 0.0),
        ([[0, 0]], [[1.0, 0.5]], 0.0),
        ([[0, 5]], [[1.0, 1.0]], 0.0),
        ([[-1, 0]], [[1.0, 1.0]], 0.0),
        ([[0, 1]], [[math.nan, 1.0]], 0.0),
    ],
)
def test_what_is_no_edge_is_refused(pairs: list, sizes: list, bias: float) -> None:
    """Unbalanced with a bias, of a negative or a large size, from a sample to itself, or to none."""
    edges = Edges(torch.tensor(pairs), torch.tensor(sizes, dtype=torch.float64))
    with pytest.raises(ProblemError, match="edges"):
        Laplacian(0.0, edges).bound(drawn(0, bias=bias))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_a_line_is_what_its_flow_proves(seed: int, loss: str) -> None:
    """C(F) >= b - g rho with b = -C*(-B^T W), here in fractions; none where that is not finite."""
    bias = float(seed % 2)
    problem = drawn(seed, loss=loss, lam=0.1, bias=bias, sample_weight=[1.0, 2.0, 1.0, 0.5, 0.25])
    edges, rng = some_edges(problem, seed), np.random.default_rng(seed)
    incidence = Incidence(problem, edges, 0.3 if loss == "cross_entropy" else 0.0)
    N, B = problem.samples, dense(edges, problem.samples)
    if incidence.spread:
        H = np.eye(N) - (np.full((N, N), 1.0 / N) if bias else 0.0)
        B = np.vstack([B, incidence.spread * H])
    for size in (0.003, 0.03, 0.3):
        W = size * rng.standard_normal((len(B), 2))
        line = incidence.line(torch.from_numpy(W), 2.0)
        steep = 2.0 * float(np.linalg.norm(W, 2))
        assert line is None or steep * (1.0 - 1e-14) <= line[1] <= steep * (1.0 + NEAR)
        base = mse_base(problem, B, W) if loss == "mse" else entropy_base(problem, B, W)
        if base is None:
            assert line is None
        else:
            assert base - 1e-9 <= line[0] <= base


def mse_base(problem: Problem, B: Array, W: Array) -> Fraction:
    """<B^T W, Y> - sum_i |(B^T W)_i|^2 / (4 q_i), exactly."""
    point = [
        [sum(Fraction(b) * Fraction(w) for b, w in zip(row, column, strict=True)) for column in W.T] for row in B.T
    ]
    total = Fraction(0)
    for row, y, inverse in zip(point, problem.Y.tolist(), problem.inverse_shares.tolist(), strict=True):
        total += sum(p * Fraction(t) - p * p * Fraction(inverse) / 4 for p, t in zip(row, y, strict=True))
    return total


def entropy_base(problem: Problem, B: Array, W: Array) -> float | None:
    """sum_i q_i H(p_i); None outside of the simplex."""
    q = problem.shares.numpy()[:, None]
    p = problem.Y.numpy() - B.T @ (W - W.mean(axis=1, keepdims=True)) / q
    return None if (p < 0.0).any() else float(-(q * p * np.log(p)).sum())


def test_the_height_of_a_line_is_rounded_down() -> None:
    """Targets and flows that cancel: what float64 adds up is above the exact height half of the time."""
    for seed in range(60):
        problem = drawn(seed, samples=6, loss="mse", lam=0.1, bias=0.0)
        edges = some_edges(problem, seed)
        W = np.random.default_rng(seed).standard_normal((len(edges.pairs), 2))
        line = Incidence(problem, edges).line(torch.from_numpy(W), 1.0)
        assert Fraction(line[0]) <= mse_base(problem, dense(edges, 6), W)


def test_the_reach_of_added_rows() -> None:
    """One input and the identity as the activation: |(B; eta H) X| for both kinds of rows together."""
    problem = drawn(1, inputs=1, loss="cross_entropy", lam=0.1, bias=1.0, activation="linear")
    edges, X = some_edges(problem, 1), problem.X.numpy()
    B = np.vstack([dense(edges, 5), 0.7 * (np.eye(5) - 0.2)])
    assert Incidence(problem, edges, 0.7).reach() == pytest.approx(float(np.linalg.norm(B @ X)), rel=NEAR)


@pytest.mark.parametrize("depth", [3, 5])
def test_the_lowest_point_of_lines_and_penalty(depth: int) -> None:
    """min over rho of max(0, b - g rho) + lam L rho^(2/L), on a grid."""
    problem, rho = drawn(0, loss="mse", lam=0.05, depth=depth), np.geomspace(1e-6, 1e3, 200_001)
    for lines in ([(1.0, 0.4)], [(1.0, 2.0), (0.7, 0.3)], [(0.1, 0.01), (0.05, 0.001)]):
        heights = np.max([b - g * rho for b, g in lines] + [0.0 * rho], axis=0)
        least = min(float((heights + 0.05 * ratio_bound(1.0, depth) * rho ** (2.0 / depth)).min()), max(lines)[0])
        assert is_tight(bound_of(problem, lines), least, 1e-3)


# -- multipliers of one sign ------------------------------------------------------------------------------------------
def steepest(problem: Problem, Lambda: Array) -> float:
    """max over the circle of |Lambda^T sigma(Xt w)|, on a fine grid."""
    angles = np.linspace(0.0, 2.0 * np.pi, 40_001)
    Z = problem.Xt[:, :2].numpy() @ np.stack([np.cos(angles), np.sin(angles)])
    return float(np.linalg.norm(Lambda.T @ np.where(Z > 0.0, Z, 0.0), axis=0).max())


def cases_of_convexity(**options: object) -> list[tuple[Problem, Array]]:
    """Inputs in the plane without a bias, or on a line with one; multipliers with a positive product."""
    found = []
    for seed in range(40):
        bias = float(seed % 2)
        problem = drawn(seed, bias=bias, inputs=1 if bias else 2, depth=3 + seed % 2, **options)
        signs = np.where(problem.Y.numpy().sum(axis=0) < 0.0, -1.0, 1.0)
        Lambda = np.random.default_rng(seed).random(problem.Y.shape) * signs
        if float((Lambda * problem.Y.numpy()).sum()) > 0.5:
            found.append((problem, Lambda))
    return found


@pytest.mark.parametrize("lam", [None, 0.02])
def test_multipliers_of_one_sign(lam: float | None) -> None:
    cases = cases_of_convexity(**({} if lam is None else {"lam": lam, "loss": "mse"}))
    assert len(cases) > 10
    positive = 0
    for problem, Lambda in cases:
        M = steepest(problem, Lambda)
        added = (problem.beta * float(np.linalg.norm(Lambda.sum(axis=0))) / M) ** 2
        signal = float((Lambda * missed(problem, problem.Y.numpy(), Lambda)).sum()) / M
        if lam is None:
            value, missing = budget(problem.depth, added, signal**2), 1e-4
        else:
            size = M**2 / float(problem.inverse_shares.numpy() @ (Lambda**2).sum(axis=1))
            value, missing = regularised(problem, added, signal, size), 5e-3
        lower = convexity.Convexity(0.0, torch.from_numpy(Lambda)).bound(problem)
        assert is_tight(lower, value * (1.0 + 2e-7), missing)
        positive += lower > 0.0
        turned = Lambda * np.where(np.arange(5)[:, None] == 0, -1.0, 1.0)
        assert convexity.Convexity(0.0, torch.from_numpy(turned)).bound(problem) == 0.0
    assert positive > 10


GRID = 1501


def budgets(depth: int, added: float, squares: Array, first: float = 1.0) -> Array:
    """The least p_1 + ... + p_L with t_1 = first p_1, t_{l+1} = p_{l+1} (t_l + q), t_L = square, on a grid."""
    if added == 0.0:
        return depth * squares ** (1.0 / depth)
    if depth == 1:
        return squares / first
    before = np.geomspace(1e-4 * squares.min(), 1e2 * squares.max(), GRID)
    least = (budgets(depth - 1, added, before, first) + squares[:, None] / (before + added)).min(axis=1)
    return np.minimum(least, squares / added)


def budget(depth: int, added: float, square: float, first: float = 1.0) -> float:
    return float(budgets(depth, added, np.array([square]), first)[0])


def regularised(problem: Problem, added: float, signal: float, size: float) -> float:
    """min over t of size (signal - t^(1/2))_+^2 + lam (the budget of t), on a grid."""
    roots = signal * np.linspace(0.002, 1.0, 500)
    found = size * (signal - roots) ** 2 + problem.lam * budgets(problem.depth, added, roots**2)
    return min(size * signal**2, float(found.min()))


@pytest.mark.parametrize("depth", [2, 3, 4, 5])
@pytest.mark.parametrize("added", [0.05, 0.4, 2.0])
def test_the_budget_of_a_signal_with_biases(depth: int, added: float) -> None:
    for square, first in ((0.3, 1.0), (2.0, 1.0), (40.0, 1.0), (7.0, 1.3)):
        lower = growth(depth, first, added, square).least(square)
        assert is_tight(lower, budget(depth, added, square, first), 1e-4)


# -- angles, loops, linear networks -----------------------------------------------------------------------------------
def area(u: Array, v: Array) -> float:
    """Phi(u, v): the area of the parallelogram, or the product of the lengths where the angle is obtuse."""
    lengths, product = float(np.linalg.norm(u) * np.linalg.norm(v)), float(u @ v)
    return lengths if product <= 0.0 else math.sqrt(max(0.0, lengths**2 - product**2))


def test_angles_of_two_samples() -> None:
    kinds = set()
    for seed in range(40):
        problem = drawn(seed, samples=2, bias=0.0, depth=3 + seed % 4)
        X, Y = problem.X.numpy(), problem.Y.numpy()
        ratio = area(*Y) / area(*X)
        lower = angle.Angle(0.0, np.array([0, 1])).bound(problem)
        assert is_tight(lower, 2.0 * problem.depth * ratio ** (1.0 / problem.depth), 1e-4)
        kinds.add((bool(X[0] @ X[1] > 0.0), bool(Y[0] @ Y[1] > 0.0)))
    assert len(kinds) == 4


@pytest.mark.parametrize("options", [{"bias": 1.0}, {"activation": "leaky:0.1"}, {"lam": 0.1, "loss": "mse"}])
def test_angles_say_nothing_of_other_networks(options: dict) -> None:
    assert angle.Angle(0.0, np.array([0, 1])).bound(drawn(0, **{"bias": 0.0, **options})) == 0.0


@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_linear_networks_have_a_closed_form(bias: float) -> None:
    for seed in range(10):
        problem = drawn(seed, samples=7, inputs=4, outputs=3, bias=bias, activation="linear", depth=3 + seed % 3)
        X, A = problem.X.numpy(), np.random.default_rng(seed).standard_normal((4, 3))
        problem = replace(problem, Y=torch.from_numpy(X @ A + bias))
        # The least singular values that outputs within the misfit allow, to first order.
        H = np.eye(7) - (1.0 / 7.0 if bias else 0.0)
        U, s, Vt = np.linalg.svd(A)
        P = np.linalg.pinv(H @ X)
        worst = missed(problem, problem.Y.numpy(), P.T @ U[:, :3] @ np.diag(s ** (2.0 / problem.depth - 1.0)) @ Vt)
        values = np.linalg.svd(P @ worst, compute_uv=False)
        closed = problem.depth * float((values ** (2.0 / problem.depth)).sum())
        assert is_tight(linear.Linear(0.0).bound(problem), closed, 1e-5)
        assert linear.Linear(0.0).bound(replace(problem, activation=drawn(0).activation)) == 0.0


def polygon(seed: int, corners: int) -> Array:
    """A convex polygon, counterclockwise."""
    angles = np.sort(np.random.default_rng(seed).uniform(0.0, 2.0 * np.pi, corners))
    angles = 2.0 * np.pi * np.arange(corners) / corners + 0.2 * (angles - angles.mean()) / (2.0 * np.pi)
    return np.column_stack([1.3 * np.cos(angles), np.sin(angles)])


def clipped_area(points: Array, off: Array) -> float:
    """The area of the points farther inside than off_i from side i, by cutting the polygon side by side."""
    kept = [*points]
    for i, distance in enumerate(off):
        side = points[(i + 1) % len(points)] - points[i]
        normal = np.array([-side[1], side[0]]) / np.linalg.norm(side)
        heights = [float(normal @ (p - points[i])) - distance for p in kept]
        cut: list[Array] = []
        for k, p in enumerate(kept):
            before, low, high = kept[k - 1], heights[k - 1], heights[k]
            if low * high < 0.0:
                cut.append(before + low / (low - high) * (p - before))
            cut += [p] if high >= 0.0 else []
        kept = cut
        if not kept:
            return 0.0
    x, y = np.array(kept).T
    return 0.5 * float(x @ np.roll(y, -1) - y @ np.roll(x, -1))


def loop_value(X: Array, Y: Array, depth: int) -> float:
    """min over lam of L (lam^(2/L) + (V(lam) / (A lam))^(2/L)), on a grid."""
    steps, rises = (np.linalg.norm(A - np.roll(A, -1, axis=0), axis=1) for A in (X, Y))
    spokes = X - X.mean(axis=0)
    fan = 0.5 * float(np.linalg.norm(np.cross(spokes, np.roll(spokes, -1, axis=0)), axis=1).sum())
    low, found = float((rises / steps).max()), []
    for lam in np.linspace(low, 8.0 * low, 3000):
        inner = clipped_area(Y, 0.5 * np.sqrt(np.maximum(0.0, (lam * steps) ** 2 - rises**2)))
        found.append(ratio_bound(lam, depth) + ratio_bound(inner / (fan * lam), depth))
        if inner == 0.0:
            break
    return min(found)


@pytest.mark.parametrize(("corners", "depth"), [(8, 3), (12, 4), (12, 6), (24, 4), (24, 8)])
def test_loops_against_polygons_cut_side_by_side(corners: int, depth: int) -> None:
    Y = polygon(corners, corners)
    X = Y @ np.array([[0.8, 0.3, 0.1], [-0.2, 0.9, 0.4]])
    problem = make_problem(X, Y, depth=depth, bias=1.0)
    lower = loop.Loop(0.0, torch.arange(corners), torch.eye(2).double()).bound(problem)
    assert is_tight(lower, loop_value(X, Y, depth) * (1.0 + 1e-5), 2e-3)


def test_a_cell_of_a_loop_is_bounded_at_its_upper_end_too() -> None:
    """The bound of a range of lam is at most the value at its end; below the steepest side no area is lost."""
    Y = polygon(8, 8)
    figure = loop._Figure.of(make_problem(Y / 3.0, Y, depth=6), loop.Loop(0.0, torch.arange(8), torch.eye(2).double()))
    for low in np.linspace(0.1, 0.6, 6) * figure.steepest:
        high = 1.5 * low
        at_the_end = float(figure._sum(high, figure._inside(high, high)))
        assert figure._value(low, high) <= at_the_end * (1.0 + 1e-12)


def test_loops_that_are_not_convex_prove_nothing() -> None:
    Y = polygon(0, 12)
    star = np.arange(12).reshape(3, 4).T.ravel()
    dented = np.where(np.arange(12)[:, None] == 4, 0.4, 1.0) * Y
    plane = torch.eye(2).double()
    for order, targets in ((star, Y), (np.arange(12)[::-1].copy(), Y), (np.arange(12), dented)):
        problem = make_problem(targets, targets, depth=4)
        assert loop.Loop(0.0, torch.from_numpy(order), plane).bound(problem) == 0.0


def test_the_power_of_a_ratio() -> None:
    for depth in (2, 3, 7):
        assert power(1.7, depth) == pytest.approx(ratio_bound(1.7, depth), rel=1e-15)
