"""The network as a function: Jacobians, kernels and bounds against autograd, closed forms and other networks."""

import json
import math
import shutil
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from editing import rewritten
from numpy.typing import NDArray
from runs import Run
from tampering import judge, tamperings
from test_statements import audit as looked_at, without_bias
from torch import Tensor, nn

import covopt
from covopt.model.activation import Activation
from covopt.model.jacobian import Passage
from covopt.model.problem import Problem, make_problem
from covopt.model.weights import evaluate
from covopt.studies.audit.function import function_of
from covopt.studies.audit.words import function_pairs, function_sentences

ACTIVATIONS = ("relu", "leaky:0.1", "leaky:-0.7", "linear")
Matrix = NDArray[np.float64]


def drawn(widths: list[int], seed: int, scale: float = 1.0) -> list[Matrix]:
    """Weights with entries of this size."""
    rng = np.random.default_rng(seed)
    return [scale * rng.standard_normal((n, m + 1)) for m, n in pairwise(widths)]


def asked(weights: list[Matrix], X: Matrix, **options: Any) -> Problem:
    """A regularised question that such a network answers, badly."""
    return make_problem(X, np.zeros((len(X), len(weights[-1]))), **{"lam": 0.1, "depth": len(weights)} | options)


def answer(weights: list[Tensor], x: Tensor, beta: float, sigma: Callable[[Tensor], Tensor]) -> Tensor:
    """The network's equations, written again."""
    for number, W in enumerate(weights):
        x = W @ torch.cat([sigma(x) if number else x, x.new_full((1,), beta)])
    return x


def by_autograd(weights: list[Matrix], X: Matrix, beta: float, name: str) -> tuple[Matrix, Matrix]:
    """df/dx and df/dW of each sample, (N, n_L, n_0) and (N, n_L, |W|)."""
    W, sigma = tuple(torch.from_numpy(each) for each in weights), Activation.parse(name)
    inputs, outer = [], []
    for x in torch.from_numpy(X):
        inputs.append(torch.autograd.functional.jacobian(lambda x: answer(list(W), x, beta, sigma), x))
        parts = torch.autograd.functional.jacobian(lambda *W, x=x: answer(list(W), x, beta, sigma), W)
        outer.append(torch.cat([part.flatten(1) for part in parts], dim=1))
    return torch.stack(inputs).numpy(), torch.stack(outer).numpy()


# ---- Jacobians, spectra, kernels
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("widths", [[4, 6, 3], [4, 5, 7, 2], [3, 5, 4, 6, 4, 5, 2]])
def test_jacobians_and_kernels_are_those_of_autograd(widths: list[int], name: str) -> None:
    weights, X = drawn(widths, 1), np.random.default_rng(2).standard_normal((7, widths[0]))
    J, V = by_autograd(weights, X, 0.8, name)
    options = {"bias": 0.8, "activation": name}
    assert np.allclose(covopt.jacobians(weights, X, **options), J, rtol=1e-10, atol=1e-12 * np.abs(J).max())
    theta = covopt.ntk(weights, X, **options)
    expected = np.einsum("iap,jbp->iajb", V, V)
    assert np.abs(theta - expected).max() <= 1e-10 * np.abs(expected).max()
    traces = np.square(V).sum(axis=(1, 2))
    assert np.allclose(np.einsum("iaia->i", theta), traces, rtol=1e-10)
    assert looked_at(weights, X, **options).ntk_trace == pytest.approx(traces.mean() / len(weights), rel=1e-10)


def test_on_a_kink_the_slope_is_that_of_negative_inputs() -> None:
    weights = without_bias([np.array([[1.0], [-1.0]]), np.array([[3.0, 5.0]])])
    for name, slope in (("relu", 0.0), ("leaky:0.25", 0.25)):
        assert covopt.jacobians(weights, [[0.0]], activation=name).tolist() == [[[slope * (3.0 - 5.0)]]]


def test_a_network_is_taken_in_every_form(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 3), nn.LeakyReLU(0.5), nn.Linear(3, 2)).double()
    X = np.random.default_rng(0).standard_normal((4, 2))
    expected = torch.stack([torch.autograd.functional.jacobian(net, x) for x in torch.from_numpy(X)]).numpy()
    torch.save(net.state_dict(), tmp_path / "net.pt")
    for form in (net, net.state_dict(), tmp_path / "net.pt"):
        activation = None if form is net else "leaky:0.5"
        for bias in (None, 2.0):
            found = covopt.jacobians(form, X, bias=bias, activation=activation)
            assert np.allclose(found, expected, rtol=1e-12)
    result = covopt.solve(X, X[:, :1], lam=0.1, bias=0.5, time_limit=2)
    V = by_autograd([W.numpy() for W in result.weights], X, 0.5, "relu")[1]
    assert np.allclose(covopt.ntk(result, X)[:, 0, :, 0], V[:, 0] @ V[:, 0].T, rtol=1e-10)


def test_spectra_are_singular_values() -> None:
    weights, X = drawn([4, 6, 5, 3], 3), np.random.default_rng(4).standard_normal((9, 4))
    found = covopt.spectra(weights, X, bias=0.5)
    J = covopt.jacobians(weights, X, bias=0.5)
    assert np.allclose(found.jacobians, [np.linalg.svd(each, compute_uv=False) for each in J], rtol=1e-12)
    Z = X
    for number, W in enumerate(weights):
        assert np.allclose(found.weights[number], np.linalg.svd(W[:, :-1], compute_uv=False), rtol=1e-12)
        Z = (np.maximum(Z, 0.0) if number else Z) @ W[:, :-1].T + 0.5 * W[:, -1]
        assert np.allclose(found.representations[number], np.linalg.svd(Z / 3.0, compute_uv=False), rtol=1e-12)


def test_chunks_of_samples_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, X = drawn([4, 6, 5, 3], 3), np.random.default_rng(4).standard_normal((9, 4))
    whole = covopt.jacobians(weights, X), covopt.ntk(weights, X), looked_at(weights, X).summary()
    monkeypatch.setattr("covopt.model.jacobian.CHUNK", 50)
    assert np.allclose(covopt.jacobians(weights, X), whole[0], rtol=1e-13)
    assert np.allclose(covopt.ntk(weights, X), whole[1], rtol=1e-12)
    assert looked_at(weights, X).lower == pytest.approx(whole[2]["lower"], rel=1e-12)


# ---- known functions
def ridge(X: Matrix) -> Matrix:
    """f(x, y, z) = (x, y, z + (x - y)_+) of [J23b, D.1]."""
    return np.column_stack([X[:, :2], X[:, 2] + np.maximum(X[:, 0] - X[:, 1], 0.0)])


def ridge_network(depth: int, e: float) -> list[Matrix]:
    """The network of [J23b, D.1] for it, on [0, 1]^3: x and y grow and z shrinks until the ridge is cheap."""
    half, one = (depth - 2) // 2, np.eye(3)
    up, down = np.diag(np.exp([e, e, -2 * e])), np.diag(np.exp([-e, -e, 2 * e]))
    kink = np.vstack([one, math.exp(-e * half) * np.array([[1.0, -1.0, 0.0]])])
    added = np.column_stack([one, [0.0, 0.0, math.exp(-2 * e * half)]])
    return without_bias([*[up] * half, kink, added, *[down] * half])


@pytest.mark.parametrize(
    ("depth", "e", "norm", "lower"),
    [(4, 0.1155, 2.5420, 0.4375), (20, 0.0488, 1.5191, 0.0868), (50, 0.0278, 1.0415, 0.0347)],
)
def test_the_counterexample_of_the_expansion(depth: int, e: float, norm: float, lower: float) -> None:
    """Both numbers beyond 3 L; for x > y the Jacobian is [[1, 0, 0], [0, 1, 0], [1, -1, 1]]."""
    X, weights = np.random.default_rng(0).random((40, 3)), ridge_network(depth, e)
    problem, W = asked(weights, X), [torch.from_numpy(each) for each in weights]
    found = function_of(problem, W)
    s = np.linalg.svd([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, -1.0, 1.0]], compute_uv=False)
    assert evaluate(problem, W).norm - 3 * depth == pytest.approx(norm, abs=6e-5)
    assert found.lower == pytest.approx(depth * (s ** (2.0 / depth)).sum(), rel=1e-9)
    assert found.lower - 3 * depth == pytest.approx(lower, abs=6e-5)
    assert found.jacobian_rank == {3: 40}
    assert found.pseudo_determinant == pytest.approx((1.0, 1.0, 1.0), rel=1e-12)
    assert found.R1_lower == pytest.approx(0.0, abs=1e-7)
    assert found.bottleneck.at_most == pytest.approx(norm, abs=6e-5)


@pytest.mark.parametrize("depth", [2, 3, 6, 20, 50])
def test_a_linear_network_at_its_minimum_has_the_whole_share(depth: int) -> None:
    """R = L sum_i s_i^(2/L), attained by equal layers; R_1 = 2 log |f|_+ [J23a, J23b]."""
    rng, s = np.random.default_rng(depth), np.array([3.0, 0.5, 1e-3])
    U, V = (np.linalg.qr(rng.standard_normal((n, 3)))[0] for n in (4, 5))
    D = np.diag(s ** (1.0 / depth))
    weights = without_bias([D @ V.T, *[D] * (depth - 2), U @ D])
    found = looked_at(weights, rng.standard_normal((9, 5)), activation="linear", bias=0.0)
    assert found.share == pytest.approx(1.0, abs=1e-9)
    assert found.R1_lower == pytest.approx(2.0 * np.log(s).sum(), abs=1e-7)
    assert (found.jacobian_values, found.jacobian_rank) == (pytest.approx([*s, 0.0], abs=1e-12), {3: 9})
    assert found.layers[0].singular_values == pytest.approx(s ** (1.0 / depth), rel=1e-12)


def test_example_1_has_rank_1() -> None:
    """(sign(x0) m, sign(x1) m), m = min(|x0|, |x1|), of [J23a, Example 1] with its cases the right way round."""
    signs = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])  # the positive parts of x0, -x0, x1, -x1
    value, size = (np.array(row) for row in ([[1, -1, 0, 0], [0, 0, 1, -1]], [[1, 1, 0, 0], [0, 0, 1, 1]]))
    ends = [value[0] + size[1], value[0] - size[1], value[1] + size[0], value[1] - size[0]]
    inner = np.array([sign * end for end in ends for sign in (1.0, -1.0)])
    outer = 0.5 * np.array([[1, 1, -1, -1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, -1, -1]])
    weights, X = without_bias([signs, inner, outer]), np.random.default_rng(1).standard_normal((500, 2))
    m = np.abs(X).min(axis=1)
    outputs = np.maximum(np.maximum(X @ signs.T, 0.0) @ inner.T, 0.0) @ outer.T
    assert np.allclose(outputs, np.sign(X) * m[:, None], atol=1e-15)
    found = looked_at(weights, X)
    assert found.jacobian_rank == {1: 500}
    assert found.lower == pytest.approx(3.0 * math.sqrt(2.0) ** (2.0 / 3.0), rel=1e-9)


def test_what_each_layer_does_in_closed_form() -> None:
    """|x| behind two layers: the orbits {x, -x} collapse in the second, which is linear on the data."""
    weights = without_bias([np.array([[1.0], [-1.0]]), np.array([[2.0, 2.0]]), np.array([[0.25]])])
    X = np.array([[1.0], [-2.0], [3.0], [-4.0]])
    problem, W = asked(weights, X, bias=0.0), [torch.from_numpy(each) for each in weights]
    found = function_of(problem, W, orbits=-torch.from_numpy(X))
    first, second, last = found.layers
    assert first.singular_values == pytest.approx([math.sqrt(2.0)])
    assert first.activation_values == pytest.approx([math.sqrt(15.0), 0.0], abs=1e-12)  # |X|^2 = 30 of two columns / 4
    assert (first.affine_dimension, second.affine_dimension, last.affine_dimension) == (2, 1, None)
    assert first.nonlinearity == pytest.approx(math.sqrt(0.5))
    assert (second.nonlinearity, last.nonlinearity) == (0.0, None)
    # Strangers: distances of (1, 0), (0, 2), (3, 0), (0, 4), on average over the six pairs.
    pairs = [math.sqrt(5.0), 2.0, math.sqrt(17.0), math.sqrt(13.0), 2.0, 5.0]
    assert first.orbit_collapse == pytest.approx(math.sqrt(2.0) * 2.5 / (sum(pairs) / 6.0))
    assert (second.orbit_collapse, last.orbit_collapse) == (0.0, 0.0)
    # Balanced, |A_l|_op: sqrt 2, 2 sqrt 2 and 1/4, whose product is 1.
    assert [layer.dimension for layer in found.layers] == [1, 1, 1]
    assert function_of(problem, W).layers[0].orbit_collapse is None


def test_dimensions_are_those_of_the_balanced_network() -> None:
    found = looked_at(without_bias([np.diag([1.0, 1e-3]) * 100.0, np.diag([1.0, 1e-3]) / 100.0]), np.eye(2), bias=0.0)
    assert [layer.dimension for layer in found.layers] == [1, 1]
    assert found.layers[1].singular_values == pytest.approx([1e-2, 1e-5])


def test_a_constant_representation_has_dimension_0() -> None:
    weights = [np.array([[0.0, 0.1], [0.0, 0.7]]), np.array([[1.0, 1.0, 0.0]])]
    found = looked_at(weights, np.linspace(0.0, 1.0, 9)[:, None])
    assert (found.layers[0].affine_dimension, found.jacobian_rank) == (0, {0: 9})
    assert (found.lower, found.share, found.R1_lower, found.pseudo_determinant) == (0.0, 0.0, None, None)


# ---- bounds
def random_network(seed: int) -> tuple[list[Matrix], Matrix, dict[str, Any]]:
    """Any depth, activation and bias; some with dead neurons, whole numbers, or samples on kinks."""
    rng = np.random.default_rng(seed)
    widths = [int(n) for n in rng.integers(1, 8, int(rng.integers(3, 9)))]
    weights = drawn(widths, seed)
    weights = [W * rng.uniform(0.1, 1.5) / math.sqrt(W.shape[1]) for W in weights]
    if seed % 3 == 0:
        for W in weights[:-1]:
            W[rng.random(len(W)) < 0.3] = 0.0
    X = rng.standard_normal((6, widths[0]))
    if seed % 4 == 0:
        weights, X = [(3.0 * W).round() for W in weights], X.round() + (seed % 8 == 0)
    return weights, X, {"bias": float(rng.choice([0.0, 0.3, 1.0])), "activation": str(rng.choice(ACTIVATIONS))}


def test_no_random_network_violates_a_bound() -> None:
    shares, parts = [], []
    for seed in range(80):
        weights, X, options = random_network(seed)
        if not X.any():
            continue
        found, norm = looked_at(weights, X, **options), sum(float(np.square(W).sum()) for W in weights)
        assert found.lower is None or found.lower <= norm
        low = found.bottleneck
        assert low.sum <= low.at_most
        assert low.sum == pytest.approx(sum(float(layer.distance or 0.0) for layer in found.layers))
        shares.append(found.lower / norm if found.lower and norm else 0.0)
        parts.append(low.sum / low.at_most if low.k else 0.0)
    assert max(shares) > 0.5  # they are not all far from it
    assert max(parts) > 0.5


@pytest.mark.parametrize("seed", range(8))
def test_the_bound_is_one_of_the_function(seed: int) -> None:
    """Other networks of the same function and depth have the same bound, and cost more."""
    rng, weights = np.random.default_rng(seed), drawn([3, 5, 4, 2], seed, 0.5)
    X = rng.standard_normal((6, 3))
    found = looked_at(weights, X).lower
    order, factors = rng.permutation(5), rng.uniform(0.5, 2.0, 5)
    changed = [W.copy() for W in weights]
    changed[0] = (weights[0] * factors[:, None])[order]
    changed[1][:, :-1] = (weights[1][:, :-1] / factors)[:, order]
    dead = [np.vstack([changed[0], np.ones(4) * -1e3]), np.insert(changed[1], 5, 0.0, axis=1), changed[2]]
    twice = [np.vstack([weights[0], weights[0]]), np.hstack([weights[1][:, :-1] / 2] * 2 + [weights[1][:, -1:]])]
    for other in (changed, dead, [*twice, weights[2]]):
        assert np.allclose(covopt.jacobians(other, X), covopt.jacobians(weights, X))
        again = looked_at(other, X)
        assert again.lower == pytest.approx(found, rel=1e-6)  # a dead neuron of norm 2000 is charged for
        assert found <= sum(float(np.square(W).sum()) for W in other)


def test_a_sample_on_a_kink_does_not_break_the_bound_of_the_function() -> None:
    """2 ((x + 10)_+ - 10) - x_+ + (-x)_+ is x near 0, which costs 2 + 2 e^2; its formal derivative at 0 is 2."""
    weights = [np.array([[1.0, 10.0], [1.0, 0.0], [-1.0, 0.0]]), np.array([[2.0, -1.0, 1.0, -20.0]])]
    assert covopt.jacobians(weights, [[0.0]]).item() == 2.0
    found = looked_at(weights, np.zeros((1, 1)))
    assert (found.kinks, found.lower) == (1, pytest.approx(2.0, rel=1e-9))
    assert found.lower <= 2.0


def test_where_rounding_hides_the_side_of_a_kink_nothing_is_claimed() -> None:
    """Two equal neurons less each other: 0, of which rounding may make any sign, at every sample."""
    weights = [np.array([[0.1, 0.3], [0.1, 0.3]]), np.array([[3.0, -3.0, 0.0], [1.0, 0.0, 0.0]]), np.eye(2, 3)]
    found = looked_at(weights, np.array([[1.0], [2.0]]))
    assert found.kinks == 2
    assert (found.lower, found.share, found.R1_lower) == (None, None, None)
    assert found.bottleneck is not None
    assert found.jacobian_rank == {1: 2}


def test_a_neuron_that_gets_nothing_is_on_no_kink() -> None:
    weights = [np.array([[1.0, 0.5], [-1.0, -9.0]]), np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), np.eye(2, 3)]
    found = looked_at(weights, np.array([[1.0], [2.0]]))
    assert (found.kinks, found.lower) == (0, pytest.approx(3.0, rel=1e-9))


def test_the_noise_of_a_rank_does_not_count() -> None:
    """Of rank 1 in other coordinates in each of 50 layers: 10^-17 to the power 2/50 is 0.2."""
    rng, depth = np.random.default_rng(0), 50
    u = [np.abs(v) / np.linalg.norm(v) for v in rng.standard_normal((depth + 1, 6))]
    found = looked_at(without_bias([np.outer(b, a) for a, b in pairwise(u)]), np.abs(rng.standard_normal((5, 6))))
    assert (found.lower, found.share) == (pytest.approx(depth, rel=1e-9), pytest.approx(1.0, rel=1e-9))
    assert found.share <= 1.0
    assert (found.jacobian_rank, found.bottleneck.k) == ({1: 5}, 1)


def exactly(
    weights: list[Matrix], x: Matrix, beta: float, slope: float
) -> tuple[list[list[bool]], list[list[Fraction]]]:
    """In rational arithmetic: which neurons are on, layer by layer, and the Jacobian."""
    S, J = [Fraction(v) for v in x.tolist()], [[Fraction(int(i == k)) for k in range(len(x))] for i in range(len(x))]
    on: list[list[bool]] = []
    for layer, W in enumerate(weights, start=1):
        rows = [[Fraction(v) for v in row] for row in W.tolist()]
        z = [sum(a * b for a, b in zip(row, S, strict=False)) + row[-1] * Fraction(beta) for row in rows]
        J = [[sum(row[j] * J[j][k] for j in range(len(J))) for k in range(len(x))] for row in rows]  # type: ignore[misc]
        if layer < len(weights):
            on.append([v > 0 for v in z])
            d = [Fraction(1) if v > 0 else Fraction(slope) for v in z]
            S = [a * v for a, v in zip(d, z, strict=True)]
            J = [[a * v for v in row] for a, row in zip(d, J, strict=True)]
    return on, J


def test_rounding_is_charged_in_full() -> None:
    """Against exact arithmetic, with samples within 10^-13 of kinks: the activation patterns, and the Jacobian."""
    near, wrong = 0, 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        widths = [int(n) for n in rng.integers(1, 5, int(rng.integers(3, 8)))]
        slope = float(rng.choice([0.0, 0.25, -0.5]))
        weights, X = drawn(widths, seed, float(rng.choice([0.3, 1.0, 5.0]))), rng.standard_normal((4, widths[0]))
        for x in X[:3]:
            row = weights[0][rng.integers(widths[1])]
            row[-1] = -(row[:-1] @ x) * (1.0 + rng.choice([0.0, 1e-16, 3e-16, 1e-15, 1e-13]))
        passage = Passage([torch.from_numpy(W) for W in weights], torch.from_numpy(X), 1.0, Activation(slope))
        found = next(passage.jacobians())
        moved = found.moved * torch.exp2(found.exponents.double())
        for i, regular in enumerate(passage.regular().tolist()):
            on, J = exactly(weights, X[i], 1.0, slope)
            same = on == [(Z.values[i] > 0.0).tolist() for Z in passage.Z[:-1]]
            near, wrong = near + (not regular), wrong + (not same)
            if regular:
                rows = zip(J, found.plain()[i].tolist(), strict=True)
                off = [float(e - Fraction(v)) for pair in rows for e, v in zip(*pair, strict=True)]
                assert same
                assert math.hypot(*off) <= float(moved[i])
    assert near > wrong > 0  # rounding does put neurons on the wrong side


def test_fewer_samples_give_a_weaker_bound() -> None:
    weights, X = drawn([3, 5, 2], 0), np.random.default_rng(0).standard_normal((40, 3))
    whole = looked_at(weights, X)
    part = function_of(asked(weights, X), [torch.from_numpy(W) for W in weights], work=2000.0)
    assert 1 < part.rows < whole.rows == 40
    assert 0.0 < part.lower <= whole.lower
    assert sum(part.jacobian_rank.values()) == part.rows


# ---- curvature
@pytest.mark.parametrize("name", ["relu", "leaky:-0.7", "linear"])
@pytest.mark.parametrize("loss", ["mse", "cross_entropy", "interpolate"])
def test_the_sharpness_is_the_largest_eigenvalue(loss: str, name: str) -> None:
    weights, X = drawn([4, 6, 5, 3], 5), np.random.default_rng(6).standard_normal((8, 4))
    V = by_autograd(weights, X, 0.5, name)[1].reshape(24, -1)
    Y = np.eye(3)[np.arange(8) % 3]
    lam = None if loss == "interpolate" else 0.1
    problem = make_problem(X, Y, loss=loss, lam=lam, depth=3, bias=0.5, activation=name)
    W = [torch.from_numpy(each) for each in weights]
    F = torch.stack([answer(W, x, 0.5, problem.activation) for x in torch.from_numpy(X)])
    H = torch.autograd.functional.hessian(lambda F: problem.loss_at(F), F) if lam else None
    curved = 2.0 / 8 * np.eye(24) if H is None else H.reshape(24, 24).numpy()
    expected = np.linalg.eigvals(curved @ V @ V.T).real.max()
    found = function_of(problem, W)
    assert found.sharpness == pytest.approx(expected, rel=1e-9)
    assert found.stable_step == pytest.approx(2.0 / (expected + 2.0 * (lam or 0.0)), rel=1e-9)


def test_gradient_descent_is_stable_up_to_the_step() -> None:
    """At an exact fit the Gauss-Newton matrix is the Hessian of C; with a small lam, of the loss but for that."""
    weights, X = drawn([3, 4, 1], 7), np.random.default_rng(8).standard_normal((5, 3))
    W = [torch.from_numpy(each) for each in weights]
    Y = torch.stack([answer(W, x, 1.0, torch.relu) for x in torch.from_numpy(X)])
    problem = make_problem(X, Y, lam=1e-12)
    step = function_of(problem, W).stable_step
    for part, grows in ((0.9, False), (1.1, True)):
        moved = [V + 1e-7 * torch.from_numpy(V0) for V, V0 in zip(W, drawn([3, 4, 1], 9), strict=True)]
        moved = [V.requires_grad_() for V in moved]
        fits = []
        for _ in range(60):
            F = torch.stack([answer(moved, x, 1.0, torch.relu) for x in problem.X])
            fit = (F - Y).square().sum() / 5
            fits.append(fit.item())
            gradients = torch.autograd.grad(fit, moved)
            moved = [(V - part * step * g).detach().requires_grad_() for V, g in zip(moved, gradients, strict=True)]
        assert (fits[-1] > 10.0 * fits[0]) is grows


def test_no_sharpness_where_it_would_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, X = drawn([3, 5, 2], 0), np.ones((4, 3))
    assert looked_at(weights, X).sharpness is not None
    monkeypatch.setattr("covopt.model.sharpness.WORK", 100.0)
    assert looked_at(weights, X).sharpness is None


# ---- extreme numbers
def numbers(told: object) -> list[float]:
    """All numbers of a summary."""
    if isinstance(told, dict):
        return [each for value in told.values() for each in numbers(value)]
    if isinstance(told, list):
        return [each for value in told for each in numbers(value)]
    return [float(told)] if isinstance(told, int | float) else []


@pytest.mark.parametrize("depth", [2, 5, 50])
@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e-30, 1e30, 1e150, 1e155, 1e300])
def test_extreme_weights_give_finite_numbers_or_none(depth: int, scale: float) -> None:
    weights = [scale * np.abs(W) for W in drawn([3, *[4] * (depth - 1), 2], depth)]
    found = looked_at(weights, np.random.default_rng(0).random((5, 3)) + 0.1)
    told = found.summary()
    lines = dict(function_pairs({"function": told, "norm": 1.0}))
    assert ("its function" in lines) is (found.lower is not None)
    assert ("R_1" in lines) is (found.R1_lower is not None)
    assert len(function_sentences({"function": told, "norm": 1.0})) >= 2
    assert all(math.isfinite(number) for number in numbers(told))
    json.dumps(told, allow_nan=False)
    assert (found.lower is None) is (scale > 1e154)  # the bound of each is about scale^2, as is the norm
    if found.lower is not None:
        assert found.lower <= sum(float(np.square(W).sum()) for W in weights)
        assert found.share is None or 0.1 < found.share < 1.0
    if depth == 50 and scale > 1e10:
        assert (found.ntk_trace, found.sharpness, found.pseudo_determinant) == (None, None, None)


@pytest.mark.parametrize("size", [1e-70, 1e70])
def test_extreme_inputs_change_no_jacobian(size: float) -> None:
    weights = without_bias([W[:, :-1] for W in drawn([3, 5, 2], 1)])
    X = np.random.default_rng(0).standard_normal((5, 3))
    near, far = looked_at(weights, X, bias=0.0), looked_at(weights, size * X, bias=0.0)
    assert (far.jacobian_rank, far.lower) == (near.jacobian_rank, pytest.approx(near.lower, rel=1e-12))
    assert far.layers[0].affine_dimension == near.layers[0].affine_dimension


@pytest.mark.parametrize("widths", [[3, 4, 2], [3, 0, 2], [3, *[4] * 49, 2]])
def test_zero_networks_and_single_samples(widths: list[int]) -> None:
    found = looked_at([0.0 * W for W in drawn(widths, 0)], np.ones((1, 3)))
    assert found.jacobian_rank == {0: 1}
    assert (found.lower, found.share, found.pseudo_determinant) == (0.0, None, None)
    assert (found.bottleneck.k, found.bottleneck.sum) == (0, 0.0)
    assert found.ntk_trace == pytest.approx(2.0 / (len(widths) - 1))  # the biases of the outputs
    assert found.sharpness == pytest.approx(2.0)


# ---- validate
X = np.random.default_rng(0).random((12, 3))
D1 = ridge_network(4, 0.1155)


@pytest.fixture(scope="module")
def audit() -> covopt.Audit:
    return covopt.validate(D1, X, ridge(X), time_limit=1.0, at=X[:7] + 0.5, orbits=X[:7, [1, 0, 2]] + 0.5)


@pytest.fixture(scope="module")
def stored(audit: covopt.Audit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("audits") / "audit"
    audit.save(here)
    return here


def test_validate_says_what_the_network_is_as_a_function() -> None:
    audit = covopt.validate(ridge_network(50, 0.1), X, ridge(X), certify="none", time_limit=0.5, function=True)
    assert f"{audit.cost.norm:.5f}" == "155.83441"
    assert f"{audit.function.lower:.4f}" == "150.0347"
    assert f"{audit.function.share:.4f}" == "0.9628"
    assert audit.summary()["function"] == audit.function.summary()
    lines = dict(audit.describe())
    assert lines["Jacobian"].startswith("rank 3 at all 12 samples")
    assert "networks that fit the data by another function" in lines["its function"]
    assert "at least 150.03468," in lines["its function"]
    assert "orbits" not in lines


def test_the_function_is_described_only_if_asked_for_and_elsewhere_too(tmp_path: Path, run: Run) -> None:
    data, net = tmp_path / "data.npz", tmp_path / "net.npz"
    np.savez(data, X=X, Y=ridge(X))
    np.savez(net, **{f"W{i}": W for i, W in enumerate(D1, start=1)})
    command = ["validate", data, "--net", net, "--time-limit", 0.3, "--certify", "none"]
    plain, described = run(*command)[1], run(*command, "--function")[1]
    labels = ["\nJacobian ", "\nbottleneck ", "\nNTK ", "\nJ23b Thm. 7 "]
    assert [label in described for label in labels] == [True] * 4
    assert [label in plain for label in labels] == [False] * 4
    told, asked_for = (json.loads(run(*command, "--json", *option)[1]) for option in ([], ["--function"]))
    assert told.keys() == asked_for.keys()
    assert told["function"] is None
    assert asked_for["function"]["jacobian_rank"] == {"3": 12}
    np.savez(tmp_path / "at.npz", X=X[:5], Y=X[:5])
    np.save(tmp_path / "orbits.npy", X[:5])
    code, out, _ = run(*command, "--json", "--at", tmp_path / "at.npz", "--orbits", tmp_path / "orbits.npy")
    there = json.loads(out)["function"]
    assert (code, there["rows"], there["elsewhere"]) == (0, 5, True)
    assert [layer["orbit_collapse"] for layer in there["layers"]] == [0.0] * 4
    np.savez(tmp_path / "points.npz", W1=X[:5])  # it looks like a network that covopt wrote
    code, _, err = run(*command, "--escape", tmp_path / "points.npz", "--force", "--at", tmp_path / "points.npz")
    assert (code, "is what is read" in err) == (2, True)


def test_a_run_without_the_function_passes_and_says_what_is_unchecked(tmp_path: Path) -> None:
    covopt.validate(D1, X, ridge(X), certify="none", time_limit=0.5).save(tmp_path / "audit")
    checked = covopt.verify(tmp_path / "audit")
    assert checked.passed
    assert " function" in checked.message
    assert "As a function" not in covopt.write_report(tmp_path / "audit").read_text(encoding="utf-8")


def test_the_function_is_looked_at_elsewhere(audit: covopt.Audit, stored: Path) -> None:
    assert (audit.function.rows, audit.function.elsewhere) == (7, True)
    problem, W = asked(D1, X[:7] + 0.5), [torch.from_numpy(each) for each in D1]
    there = function_of(problem, W, orbits=torch.from_numpy(X[:7, [1, 0, 2]] + 0.5))
    assert [layer.orbit_collapse for layer in audit.function.layers] == pytest.approx(
        [layer.orbit_collapse for layer in there.layers]
    )
    here = function_of(make_problem(X, ridge(X), depth=4), W)
    assert audit.function.ntk_trace == pytest.approx(there.ntk_trace)
    assert audit.function.sharpness == pytest.approx(here.sharpness)  # of the data, wherever else it is looked at
    assert "orbits" in dict(audit.describe())
    page = covopt.write_report(stored, stored.parent / "report.html").read_text(encoding="utf-8")
    assert "As a function" in page
    assert "J23b Thm. 7" in page
    assert "networks that fit the data by another function" in page
    assert "collapse of orbits" in page
    assert "The ten largest singular values of the weights" in page


def forged(stored: Path, change: Callable[[dict[str, Any]], object], here: Path) -> Path:
    shutil.copytree(stored, here)
    rewritten("audit.json", change)(here)
    return here


def test_a_stored_function_is_checked_again(stored: Path, tmp_path: Path) -> None:
    assert covopt.verify(stored).passed
    told = json.loads((stored / "audit.json").read_text())["function"]
    for number, name in enumerate(told):
        other: Any = {"9": 7} if name == "jacobian_rank" else [1.0, 2.0, 3.0] if isinstance(told[name], list) else 0.5
        here = forged(stored, lambda s, n=name, o=other: s["function"].update({n: o}), tmp_path / str(number))
        checked = covopt.verify(here)
        assert not checked.passed
        assert name in checked.message
    layer = forged(stored, lambda s: s["function"]["layers"][0].update(distance=1.0), tmp_path / "layer")
    assert "layers" in covopt.verify(layer).message
    assert not covopt.verify(forged(stored, lambda s: s.update(function=7), tmp_path / "none")).passed


def test_tampering_with_the_function_is_noticed(stored: Path, tmp_path: Path) -> None:
    found = [each for each in tamperings(stored) if each.name.startswith("audit.json: function ")]
    found += [each for each in tamperings(stored) if each.name.startswith(("at.npz", "orbits.npz"))]
    assert len(found) > 300
    told = {each.name: judge(stored, tmp_path / "run", each) for each in (found[0], *found[1::8], *found[-6:])}
    assert set(told.values()) == {"noticed"}, told
