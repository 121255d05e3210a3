"""Spectral and pairwise bounds: below every network of any depth, exact where the value is known."""

import math
from unittest.mock import patch

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import covopt
from covopt.certify import spectral
from covopt.certify.spectral import _EntropyLines, _steepest_pair, spectral_bound, weighted_rows
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import evaluate, objective, preactivations

ACTIVATIONS = ("relu", "leaky:0.4", "leaky:-0.9", "linear")


@st.composite
def networks(draw: st.DrawFn) -> tuple[np.ndarray, list[torch.Tensor], float, str, int]:
    """(X, weights, bias, activation, classes): the targets of the tests are what such a network gives, or near."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    N, d, m, depth = (draw(st.integers(*ends)) for ends in ((2, 8), (1, 3), (1, 3), (2, 5)))
    widths = [d, *(draw(st.integers(1, 4)) for _ in range(depth - 1)), m]
    shapes = zip(widths[1:], widths[:-1], strict=True)
    weights = [torch.as_tensor(rng.standard_normal((n, k + 1)) * rng.exponential()) for n, k in shapes]
    bias = draw(st.sampled_from([0.0, 1.0]))
    return (
        rng.standard_normal((N, d)) + 3.0 * rng.standard_normal(d),
        weights,
        bias,
        draw(st.sampled_from(ACTIVATIONS)),
        m,
    )


def balanced(weights: list[torch.Tensor], bias: float) -> list[torch.Tensor]:
    """The same network with as little norm as scaling each layer, without bias, can give it."""
    if bias:
        return weights
    weights = [torch.cat([W[:, :-1], torch.zeros(len(W), 1).double()], dim=1) for W in weights]
    sizes = [float(W.norm()) for W in weights]
    mean = math.prod(sizes) ** (1 / len(sizes))
    return [W * (mean / size) for W, size in zip(weights, sizes, strict=True)]


@given(networks())
def test_below_the_norm_of_networks_that_fit(network) -> None:
    X, weights, bias, activation, m = network
    depth = len(weights)
    blank = make_problem(X, np.zeros((len(X), m)), depth=depth, bias=bias, activation=activation)
    weights = balanced(weights, bias)
    problem = make_problem(X, preactivations(blank, weights)[-1], depth=depth, bias=bias, activation=activation)
    assert 0.0 <= spectral_bound(problem) <= evaluate(problem, weights).norm * (1 + 1e-9)


def descended(problem: Problem, weights: list[torch.Tensor], steps: int) -> float:
    """The lowest loss on the way of a short Adam run."""
    weights = [W.clone().requires_grad_() for W in weights]
    optimiser = torch.optim.Adam(weights, lr=0.03)
    lowest = math.inf
    for _ in range(steps):
        optimiser.zero_grad()
        loss = objective(problem, weights)
        loss.backward()
        lowest = min(lowest, float(loss.detach()))
        optimiser.step()
    return lowest


@given(networks(), st.sampled_from(["mse", "cross_entropy"]), st.sampled_from([1e-3, 0.05]), st.booleans())
def test_below_the_loss_of_trained_networks(network, loss: str, lam: float, hard: bool) -> None:
    X, weights, bias, activation, m = network
    depth = len(weights)
    blank = make_problem(X, np.zeros((len(X), m)), depth=depth, bias=bias, activation=activation)
    F = preactivations(blank, weights)[-1]
    Y = F
    if loss == "cross_entropy":
        Y = torch.nn.functional.one_hot(F.argmax(dim=1), m).double() if hard else torch.softmax(F, dim=1)
    problem = make_problem(X, Y, lam=lam, loss=loss, depth=depth, bias=bias, activation=activation)
    bound = patch.multiple(spectral, LINES=8, REFINEMENTS=6, ASCENTS=15)(spectral_bound)(problem)
    assert 0.0 <= bound <= descended(problem, balanced(weights, bias), 25)
    assert bound <= evaluate(problem, [torch.zeros_like(W) for W in weights]).total


@pytest.mark.parametrize("depth", [2, 3, 6])
def test_identity_inputs_and_one_positive_target(depth: int) -> None:
    problem = make_problem(np.eye(4), np.array([0.0, 3.0, 1.0, 2.0]), depth=depth, bias=0.0)
    # Networks may miss each of the four targets by eps, so that |F| is at least |Y| - 2 eps.
    value = depth * (math.sqrt(14.0) - 2.0 * problem.allowed_misfit) ** (2 / depth)
    assert spectral_bound(problem) == pytest.approx(value, rel=1e-11)
    assert spectral_bound(problem) <= value


@pytest.mark.parametrize("depth", [2, 5])
def test_linear_networks_with_one_singular_value(depth: int) -> None:
    U, s, Vh = np.linalg.svd(np.random.default_rng(depth).standard_normal((6, 3)), full_matrices=False)
    # X^+ Y = 2 v_1 c^T along the top singular direction of X.
    Y = (U * s) @ Vh @ np.outer(Vh[0], [2.0, 0.0])
    problem = make_problem((U * s) @ Vh, Y, depth=depth, bias=0.0, activation="linear")
    # |F - Y|_F is at most eps (N n_L)^(1/2), and the largest singular value of X is s_1.
    value = depth * (2.0 - math.sqrt(12.0) * problem.allowed_misfit / s[0]) ** (2 / depth)
    assert spectral_bound(problem) == pytest.approx(value, rel=1e-11)


@pytest.mark.parametrize("depth", [2, 3])
def test_homogeneity(depth: int) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((7, 3)), rng.standard_normal((7, 2))
    value = spectral_bound(make_problem(X, Y, depth=depth, bias=0.0))
    assert spectral_bound(make_problem(X, 5 * Y, depth=depth, bias=0.0)) == pytest.approx(5 ** (2 / depth) * value)
    assert spectral_bound(make_problem(5 * X, Y, depth=depth, bias=0.0)) == pytest.approx(5 ** (-2 / depth) * value)


def test_a_steep_pair_and_the_origin() -> None:
    X, Y = np.array([[0.0], [1.0], [1.01], [2.0]]), np.array([[0.0], [0.0], [1.0], [1.0]])
    for bias in (0.0, 1.0):
        # Either end of the pair may be missed by eps = 1e-7.
        assert spectral_bound(make_problem(X, Y, depth=3, bias=bias)) >= 3 * (100 * (1 - 2e-7)) ** (2 / 3) * (1 - 1e-9)
    no_bias, with_bias = (make_problem([[1e-3], [1.0]], [[1.0], [1.0]], bias=bias) for bias in (0.0, 1.0))
    assert spectral_bound(no_bias) >= 2e3 * (1 - 1e-9)
    assert spectral_bound(with_bias) == 0.0


def test_data_that_no_network_fits() -> None:
    assert spectral_bound(make_problem(np.ones((2, 1)), np.array([0.0, 1.0]))) == math.inf
    # Regularised, the best constant is left: the variance of the targets.
    problem = make_problem(np.ones((2, 1)), np.array([0.0, 1.0]), lam=0.1)
    assert spectral_bound(problem) == pytest.approx(0.25, rel=1e-6)
    assert spectral_bound(problem) <= 0.25


@pytest.mark.parametrize("lam", [1e-3, 0.02, 0.2, 5.0])
@pytest.mark.parametrize("rank", [None, 0, 1, 2])
def test_mse_of_linear_shallow_networks_on_the_identity_is_soft_thresholding(lam: float, rank: int | None) -> None:
    """With so many hidden neurons at most, the other singular values of the targets are missed as they are."""
    Y = np.random.default_rng(1).standard_normal((5, 3))
    s = np.linalg.svd(Y, compute_uv=False)
    f = np.maximum(s - 5 * lam, 0.0)
    f[rank if rank is not None else len(f) :] = 0.0
    value = ((s - f) ** 2).sum() / 5 + 2 * lam * f.sum()
    bound = spectral_bound(make_problem(np.eye(5), Y, lam=lam, bias=0.0, activation="linear"), rank=rank)
    assert bound == pytest.approx(value, rel=1e-5)
    assert bound <= value


@pytest.mark.parametrize("depth", [3, 4, 7])
@pytest.mark.parametrize("lam", [1e-3, 0.03, 0.3])
def test_mse_of_one_direction_is_a_scalar_problem(depth: int, lam: float) -> None:
    y = np.array([1.0, 2.0, 0.5])
    size = np.linalg.norm(y)
    f = np.linspace(0.0, size, 400_001)
    value = ((size - f) ** 2 / 3 + lam * depth * f ** (2 / depth)).min()
    bound = spectral_bound(make_problem(np.eye(3), y, lam=lam, depth=depth, bias=0.0))
    assert bound == pytest.approx(value, rel=1e-5)
    assert bound <= value


@pytest.mark.parametrize("lam", [0.002, 0.02, 0.05])
@pytest.mark.parametrize("soft", [False, True])
def test_cross_entropy_of_linear_shallow_networks_on_the_identity(lam: float, soft: bool) -> None:
    rng = np.random.default_rng(2)
    Y = np.eye(3)[[0, 1, 2, 0, 1, 0]]
    if soft:
        Y = rng.dirichlet(np.ones(3), size=6)
    F = cp.Variable((6, 3))
    fit = cp.sum([cp.log_sum_exp(F[i]) - Y[i] @ F[i] for i in range(6)]) / 6
    value = cp.Problem(cp.Minimize(fit + 2 * lam * cp.normNuc(F))).solve(solver=cp.CLARABEL)
    problem = make_problem(np.eye(6), Y, lam=lam, loss="cross_entropy", bias=0.0, activation="linear")
    bound = patch.multiple(spectral, LINES=12, SMALLEST=1e-2, REFINEMENTS=12, ASCENTS=200)(spectral_bound)(problem)
    assert (1 - 1e-3) * value <= bound <= value * (1 + 1e-9)


def test_centred_cross_entropy_of_constant_inputs_is_the_entropy_of_the_classes() -> None:
    Y = np.eye(4)[[0, 1, 1, 2, 2, 2]]  # one class has no sample
    problem = make_problem(np.ones((6, 2)), Y, lam=0.1, loss="cross_entropy")
    p = np.array([1, 2, 3]) / 6
    assert spectral_bound(problem) == pytest.approx(-(p * np.log(p)).sum(), rel=1e-5)
    assert spectral_bound(problem) <= -(p * np.log(p)).sum()


def test_a_line_of_cross_entropy_is_below_the_loss_for_any_probabilities() -> None:
    """Their means need not be those of the targets, as with uniform ones, whose entropy no line may have as height."""
    generator = torch.Generator().manual_seed(0)
    Y = torch.eye(3).double()[[0, 0, 1, 0, 2, 1]]
    problem = make_problem(Y, Y, lam=0.1, loss="cross_entropy", sample_weight=[1.0, 2.0, 1.0, 0.5, 0.5, 1.0])
    lines = _EntropyLines(problem, centred=True)
    constant = problem.mean(Y).log().expand(6, 3)  # of all constants it costs least
    spread = 3.0 * torch.randn(20, 6, 3, generator=generator).double()
    for probabilities in (torch.full((6, 3), 1 / 3).double(), torch.softmax(spread[0], dim=1), Y):
        height, steepness = lines._line(probabilities)
        for F in (constant, *(constant + t * noise for noise in spread for t in (0.01, 1.0))):
            size = float(torch.linalg.matrix_norm(weighted_rows(problem, F, centred=True), "nuc"))
            assert height - steepness * size <= float(problem.loss_at(F))
    height, _ = lines._line(torch.full((6, 3), 1 / 3).double())
    assert height == pytest.approx(float(problem.loss_at(constant)), rel=1e-6)


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_more_work_never_hurts(loss: str) -> None:
    rng = np.random.default_rng(3)
    X, Y = rng.standard_normal((20, 4)), np.eye(3)[rng.integers(3, size=20)]
    problem = make_problem(X, Y, lam=0.01, loss=loss, depth=3)
    little = patch.multiple(spectral, LINES=3, REFINEMENTS=0, ASCENTS=10)(spectral_bound)(problem)
    assert 0.0 < little <= spectral_bound(problem)


def test_a_bound_that_is_cut_short_is_one() -> None:
    rng = np.random.default_rng(3)
    Y = np.eye(3)[rng.integers(0, 3, 12)]
    X = rng.standard_normal((12, 4))
    problem = make_problem(X, Y, lam=1e-4, loss="cross_entropy")
    known = covopt.solve(X, Y, lam=1e-4, loss="cross_entropy", certify="none", max_iterations=5).cost
    whole, calls = spectral_bound(problem), [0]
    assert 0.0 < whole <= known

    def stop(after: int) -> bool:
        calls[0] += 1
        return calls[0] > after

    found = []
    for after in (0, 5, 15, 30):
        calls[0] = 0
        found.append(spectral_bound(problem, stop=lambda after=after: stop(after)))
    assert all(0.0 <= bound <= known for bound in found)
    assert found[0] < whole


def test_a_bound_that_ran_out_of_time_is_proved_again() -> None:
    """The lines of cross entropy start from one another; a check, which has the time, must not prove less."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((40, 5))
    members = np.argmax(X[:, :3] + 0.5 * rng.standard_normal((40, 3)), axis=1)
    problem = make_problem(X, np.eye(3)[members], lam=0.01, loss="cross_entropy")
    bounds = []
    for allowed in range(0, 40, 2):
        asked = iter(range(10**6))
        bounds.append(spectral_bound(problem, stop=lambda asked=asked, allowed=allowed: next(asked) >= allowed))
    assert bounds == sorted(bounds)
    assert bounds[-1] > bounds[0] > 0.0
    assert spectral_bound(problem) >= bounds[-1]


def test_the_steepest_pair_is_charged_for_outputs_that_miss_their_targets() -> None:
    """Two outputs at a distance of 1 may each be nearer by what is allowed."""
    problem = make_problem([[0.0], [1.0]], [[0.0], [1.0]], depth=3)
    assert problem.allowed_misfit > 0.0
    slope = _steepest_pair(problem, problem.X, problem.Y, lambda: False)
    assert 0.0 < slope <= 1.0 - 2.0 * problem.allowed_misfit
