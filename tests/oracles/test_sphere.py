"""The arrangement on the sphere against brute force: all cells, all circles, sampled directions, and its own claims."""

import dataclasses
import itertools
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from test_arrangement import SLOPES, by_enumeration, plain_value, values_hold

from covopt.model.activation import Activation
from covopt.oracles.arrangement import ArrangementOracle, row_rank
from covopt.oracles.circles import Arcs, Circles, leaders
from covopt.oracles.exact import exact_oracle
from covopt.oracles.oracle import Answer, oracle_values
from covopt.oracles.sphere import SphereOracle
from covopt.runtime.errors import ProblemError


def gaussian(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def directions(count: int, d: int = 3, seed: int = 0) -> torch.Tensor:
    return torch.nn.functional.normalize(gaussian(count, d, seed=seed), dim=1)


def size(X: torch.Tensor, Lambda: torch.Tensor) -> float:
    return float(Lambda.norm(dim=1) @ X.norm(dim=1))


def all_patterns(X: np.ndarray) -> np.ndarray:
    """The sign patterns of the cells, from directions next to every vertex, and random ones."""
    rng = np.random.default_rng(0)
    points = [rng.standard_normal((4000, 3))]
    for i, j in itertools.combinations(range(len(X)), 2):
        vertex = np.cross(X[i], X[j])
        if np.linalg.norm(vertex) > 1e-9:
            vertex = vertex / np.linalg.norm(vertex)
            around = rng.standard_normal((60, 3)) * np.repeat([1e-2, 1e-4, 1e-6], 20)[:, None]
            points += [vertex + around, -vertex + around]
    return np.unique(np.concatenate(points) @ X.T >= 0, axis=0)


def brute_force(X: np.ndarray, slope: float, Lambda: np.ndarray) -> float:
    """max h over the sphere in plain NumPy: a singular vector for each cell, and each circle by itself."""
    h, best = partial(plain_value, X, slope, Lambda), 0.0
    for active in all_patterns(X):
        _, _, Vh = np.linalg.svd(Lambda.T @ (np.where(active, 1.0, slope)[:, None] * X))
        # h at the singular vector is a value of h wherever it lies, so both signs are candidates.
        best = max(best, h(Vh[0]), h(-Vh[0]))
    for row in X[np.linalg.norm(X, axis=1) > 0]:
        best = max(best, by_enumeration(X @ np.linalg.svd(row[None])[2][1:].T, slope, Lambda))
    return best


@st.composite
def spheres(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, float]:
    """(Xt, Lambda, slope), rank 3, with repeated, scaled, antipodal, coplanar, nearly equal and zero rows."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    N, m = draw(st.integers(3, 8)), draw(st.integers(1, 3))
    X = rng.standard_normal((N, 3))
    if draw(st.booleans()):
        X = np.round(2 * X)
    if draw(st.booleans()):
        X[:, 2] = 0.5  # two inputs and a bias
    if draw(st.booleans()):
        X[1:, 0] = X[1:, 1]  # all rows but one in a plane
    for i in range(2, N):
        kind = draw(st.sampled_from(["keep"] * 4 + ["copy", "opposite", "scaled", "zero", "near", "nearer", "sum"]))
        factor = {"copy": 1.0, "opposite": -1.0, "scaled": 3.1, "zero": 0.0}.get(kind)
        other = X[rng.integers(i)]
        if factor is not None:
            X[i] = factor * other
        elif kind in ("near", "nearer"):
            X[i] = other + rng.standard_normal(3) * {"near": 1e-5, "nearer": 1e-13}[kind]
        elif kind == "sum":
            X[i] = other + X[rng.integers(i)]
    Lambda = np.round(rng.standard_normal((N, m)), draw(st.integers(0, 3)))
    return torch.as_tensor(X), torch.as_tensor(Lambda), draw(st.sampled_from(SLOPES))


def claims_hold(X: torch.Tensor, Lambda: torch.Tensor, slope: float, answer: Answer) -> None:
    """Whatever an answer says about itself, the bound as well."""
    values_hold(X, Lambda, Activation(slope), answer, 1e-9)
    sampled = oracle_values(X, Activation(slope), Lambda, directions(3000, X.shape[1]))
    assert answer.upper_bound >= max(float(sampled.max()), float(answer.values[0]))


@settings(max_examples=100, deadline=None)
@given(spheres())
@example((torch.eye(3).double(), torch.ones(3, 1).double(), 0.0))
@example((torch.cat([torch.eye(3), -torch.eye(3)]).double(), torch.ones(6, 1).double(), 0.0))
@example((torch.cat([torch.eye(3), -torch.eye(3)]).double(), -torch.eye(6).double(), -0.6))
def test_equals_the_enumeration_of_all_cells(sphere: tuple[torch.Tensor, torch.Tensor, float]) -> None:
    X, Lambda, slope = sphere
    if row_rank(X) != 3:
        with pytest.raises(ProblemError, match="rank"):
            SphereOracle(X, Activation(slope))
        return
    answer = SphereOracle(X, Activation(slope))(Lambda)
    exact, scale = brute_force(X.numpy(), slope, Lambda.numpy()), size(X, Lambda)
    assert float(answer.values[0]) >= exact - 1e-11 * scale
    assert exact <= answer.upper_bound <= float(answer.values[0]) + 1e-9 * scale
    claims_hold(X, Lambda, slope, answer)


@pytest.mark.parametrize("bias", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("slope", SLOPES)
@pytest.mark.parametrize("N", [20, 70])
def test_the_bound_is_the_best_value_on_random_data(N: int, slope: float, bias: float) -> None:
    X, Lambda = gaussian(N, 3, seed=1), gaussian(N, 4, seed=2)
    if bias:
        X[:, 2] = bias
    answer = SphereOracle(X, Activation(slope))(Lambda)
    assert answer.upper_bound == pytest.approx(float(answer.values[0]), rel=1e-11)
    claims_hold(X, Lambda, slope, answer)
    # No direction near the best sampled ones climbs higher.
    W = directions(3000)
    for step in (0.1, 0.03, 0.01, 3e-3, 1e-3):
        W = W[oracle_values(X, Activation(slope), Lambda, W).topk(30).indices]
        W = torch.cat([W, torch.nn.functional.normalize(W.repeat(40, 1) + step * gaussian(1200, 3, seed=3), dim=1)])
    assert float(oracle_values(X, Activation(slope), Lambda, W).max()) <= answer.upper_bound


def is_local_maximum(X: torch.Tensor, Lambda: torch.Tensor, slope: float, w: torch.Tensor) -> bool:
    """By the values on two small circles around w."""
    turn = torch.linspace(0.0, 2.0 * np.pi, 1441, dtype=torch.float64)[:, None]
    a, b = torch.linalg.svd(w[None])[2][1:]
    around = torch.cat([w + step * (turn.cos() * a + turn.sin() * b) for step in (1e-6, 1e-5)])
    around = torch.nn.functional.normalize(around, dim=1)
    values = oracle_values(X, Activation(slope), Lambda, torch.cat([w[None], around]))
    return bool((values[1:] <= values[0] + 1e-13 * size(X, Lambda)).all())


def local_maxima(X: torch.Tensor, Lambda: torch.Tensor, slope: float) -> torch.Tensor:
    """Singular vectors inside their cells, and the maxima along each circle that are maxima across it, too."""
    found = []
    for active in torch.as_tensor(all_patterns(X.numpy())):
        D = torch.where(active, 1.0, torch.tensor(slope, dtype=torch.float64))
        top = torch.linalg.svd(Lambda.T @ (D[:, None] * X))[2][0]
        found += [w for w in (top, -top) if ((X @ w >= 0) == active).all()]
    for row in X:
        plane = torch.linalg.svd(row[None])[2][1:]
        along = ArrangementOracle(X @ plane.T, Activation(slope))(Lambda).directions @ plane
        found += [w for w in along if is_local_maximum(X, Lambda, slope, w)]
    return torch.stack(found)


@pytest.mark.parametrize("slope", [0.0, 0.3, -0.6])
@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_finds_every_local_maximum_and_nothing_else(slope: float, m: int, seed: int) -> None:
    X, Lambda = gaussian(8, 3, seed=seed), gaussian(8, m, seed=seed + 10)
    answer = SphereOracle(X, Activation(slope), keep=0.3)(Lambda)
    assert all(is_local_maximum(X, Lambda, slope, w) for w in answer.directions)
    expected = local_maxima(X, Lambda, slope)
    expected = expected[oracle_values(X, Activation(slope), Lambda, expected) > 0.3001 * answer.values[0]]
    distance = torch.cdist(expected, answer.directions)
    assert float(distance.amin(dim=1).max()) < 1e-6
    assert float(distance[:, answer.values > 0.3001 * answer.values[0]].amin(dim=0).max()) < 1e-6


def test_kinks_are_found() -> None:
    # All omega < 0: every maximum of h = |M q - sum |...|| that is worth finding sits on circles.
    X, Lambda = gaussian(12, 3, seed=5), -gaussian(12, 1, seed=6).abs()
    Lambda[0] = 12.0
    answer = SphereOracle(X, Activation(), keep=0.05)(Lambda)
    on_circles = ((answer.directions @ X.T).abs() < 1e-12).sum(dim=1)
    assert set(on_circles.tolist()) >= {0, 1}
    corner = SphereOracle(torch.eye(3).double(), Activation())(torch.diag(torch.tensor([3.0, 1.0, 1.0])).double())
    torch.testing.assert_close(corner.directions[:1], torch.eye(3).double()[:1])
    vertex = torch.cat([torch.tensor([[0.0, 0.0, 1.0]]), torch.eye(3)[:2], -torch.eye(3)[:2]]).double()
    inwards = torch.tensor([[3.0], [-1.0], [-1.0], [-1.0], [-1.0]]).double()  # 3 z_+ - |x| - |y|
    peak = SphereOracle(vertex, Activation())(inwards)
    torch.testing.assert_close(peak.directions[:1], vertex[:1])
    assert float(peak.values[0]) == 3.0


@pytest.mark.parametrize("seed", range(3))
def test_every_cell_is_shown(seed: int) -> None:
    """With and without the arcs that are left out, the same maxima; and a grid of points, where nothing is clear."""
    X = gaussian(15, 3, seed=seed)
    if seed == 2:
        X = torch.cartesian_prod(torch.arange(4), torch.arange(4), torch.ones(1, dtype=torch.int64)).double()
    oracle = SphereOracle(X, Activation(), keep=0.2)
    Lambda = gaussian(len(X), 2, seed=seed + 20)
    some = oracle(Lambda)
    circles = oracle._circles
    assert seed == 2 or float(circles.shown.double().mean()) < 0.5
    oracle._circles = dataclasses.replace(circles, shown=torch.ones_like(circles.shown))
    torch.testing.assert_close(oracle(Lambda).values, some.values)
    assert some.upper_bound >= brute_force(X.numpy(), 0.0, Lambda.numpy()) - 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_cells_are_kept_by_the_norms_of_their_matrices(seed: int) -> None:
    normal, even, odd = directions(7, seed=seed), gaussian(7, 3, seed=seed + 1), gaussian(3, 3, seed=seed + 2)
    arcs = Arcs(Circles.of(normal, 1e-14), slice(0, 7), odd, even)
    norms = torch.linalg.matrix_norm(arcs.cells(0.0).A, 2)
    for place in (len(norms) // 4, len(norms) // 2, len(norms) - 2):
        floor = 0.999 * float(norms.sort().values[place])  # the same cell is seen from several arcs
        kept = torch.linalg.matrix_norm(arcs.cells(floor).A, 2)
        torch.testing.assert_close(kept.sort().values, norms[norms >= floor].sort().values)


def test_cells_are_counted_right() -> None:
    """G circles in general position cut the sphere into G (G - 1) + 2 cells, each with its own matrix."""
    normal, even = directions(7), gaussian(7, 3, seed=1)
    cells = Arcs(Circles.of(normal, 1e-14), slice(0, 7), gaussian(3, 3, seed=2), even).cells(0.0)
    inner = (cells.A.mT @ cells.frame).flatten(1)
    assert len(torch.unique(inner.mul(1e6).round(), dim=0)) == 7 * 6 + 2


def test_leaders() -> None:
    rows = directions(6)
    rows = torch.cat([rows, -rows[:2], rows[2:3] + 1e-12])
    assert leaders(rows, 1e-10).tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2]


@pytest.mark.parametrize("slope", SLOPES)
def test_rank_three_in_many_dimensions_and_a_neglected_part(slope: float) -> None:
    Q = torch.linalg.qr(gaussian(6, 6, seed=1))[0][:3]
    P, Lambda = gaussian(20, 3, seed=2), gaussian(20, 3, seed=3)
    plain, lifted = SphereOracle(P, Activation(slope))(Lambda), SphereOracle(P @ Q, Activation(slope))(Lambda)
    torch.testing.assert_close(lifted.values, plain.values)
    torch.testing.assert_close(lifted.directions, plain.directions @ Q)
    claims_hold(P @ Q, Lambda, slope, lifted)
    bump = gaussian(20, 6, seed=4)
    bumped = SphereOracle(P @ Q + 1e-12 * bump, Activation(slope))(Lambda)
    assert bumped.upper_bound >= float(bumped.values[0]) + 1e-12 * float(Lambda.norm())
    with pytest.raises(ProblemError, match="rank"):
        SphereOracle(P @ Q + 1e-3 * bump, Activation(slope))


def test_exact_oracle_chooses_by_rank_and_size() -> None:
    flat = gaussian(10, 2, seed=0) @ gaussian(2, 3, seed=1)
    assert isinstance(exact_oracle(flat, Activation()), ArrangementOracle)
    with pytest.raises(ProblemError, match="ArrangementOracle"):
        SphereOracle(flat, Activation())
    assert isinstance(exact_oracle(gaussian(10, 3, seed=1), Activation()), SphereOracle)
    assert exact_oracle(gaussian(10, 3, seed=1), Activation(), most_circles=9) is None
    assert exact_oracle(gaussian(10, 4, seed=1), Activation()) is None


def test_goes_over_into_the_circle() -> None:
    """Data that are almost of rank two, on either side of the rank rule."""
    flat, Lambda = gaussian(15, 2, seed=0), gaussian(15, 2, seed=1)
    circle = ArrangementOracle(flat, Activation())(Lambda)
    sphere = SphereOracle(torch.cat([flat, 1e-8 * gaussian(15, 1, seed=2)], dim=1), Activation())(Lambda)
    assert sphere.upper_bound == pytest.approx(circle.upper_bound, rel=1e-7)
    assert sphere.upper_bound >= circle.upper_bound * (1 - 1e-14)


def test_nearly_parallel_rows_keep_a_true_bound() -> None:
    """Pairs of rows at every distance around the one at which they are made one circle."""
    base, Lambda = gaussian(6, 3, seed=0), gaussian(12, 2, seed=1)
    for exponent in range(-16, -3):
        X = torch.cat([base, base * (1.0 - 2.0 * (exponent % 2)) + 10.0**exponent * gaussian(6, 3, seed=2)])
        answer = SphereOracle(X, Activation())(Lambda)
        exact = brute_force(X.numpy(), 0.0, Lambda.numpy())
        assert float(answer.values[0]) >= exact - 1e-11 * size(X, Lambda)
        assert exact <= answer.upper_bound <= exact + 2e-9 * size(X, Lambda)


ORACLES = pytest.mark.parametrize(("oracle", "d"), [(ArrangementOracle, 2), (SphereOracle, 3)])


@ORACLES
def test_nothing_to_maximise(oracle: Callable, d: int) -> None:
    X = gaussian(5, d, seed=0)
    cases = [(X, torch.zeros(5, 2).double())] + [(torch.zeros(5, 3).double(), X)] * (oracle is ArrangementOracle)
    for inputs, multipliers in cases:
        answer = oracle(inputs, Activation())(multipliers)
        assert (answer.upper_bound, answer.values.tolist()) == (0.0, [0.0])
        assert float(answer.directions.norm()) == 1.0


@ORACLES
@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_scales_exactly(scale: float, oracle: Callable, d: int) -> None:
    X, Lambda = gaussian(7, d, seed=0), gaussian(7, 1, seed=1)
    plain = oracle(X, Activation())(Lambda).upper_bound
    for inputs, multipliers in ((X, scale * Lambda), (scale * X, Lambda)):
        answer = oracle(inputs, Activation())(multipliers)
        assert answer.upper_bound == pytest.approx(scale * plain, rel=1e-12)
        assert float(answer.values[0]) == pytest.approx(scale * plain, rel=1e-12)


@ORACLES
def test_single_precision_gives_a_bound_for_the_single_precision_data(oracle: Callable, d: int) -> None:
    X, Lambda = gaussian(30, d, seed=0).float(), gaussian(30, 2, seed=1).float()
    answer = oracle(X, Activation())(Lambda)
    assert answer.directions.dtype == torch.float32
    sampled = oracle_values(X.double(), Activation(), Lambda.double(), directions(5000, d))
    assert float(sampled.max()) <= answer.upper_bound <= float(answer.values[0]) * (1 + 1e-6)


def test_batches_of_circles_do_not_matter() -> None:
    X, Lambda = gaussian(30, 3, seed=0), gaussian(30, 2, seed=1)
    small = SphereOracle(X, Activation(), entries=1)(Lambda)
    large = SphereOracle(X, Activation())(Lambda)
    torch.testing.assert_close(small.values, large.values)
    assert small.upper_bound == pytest.approx(large.upper_bound, rel=1e-14)


def test_what_grouping_takes_from_h_is_paid_for() -> None:
    """Three rows within 3e-10 are one circle; h, their second difference, is 1.5e-10 between them and 0 elsewhere."""
    step = 1.5e-10
    X = torch.tensor([[1.0, 0, 0], [1, step, 0], [1, 2 * step, 0], [0, 1, 0], [0, 0, 1]], dtype=torch.float64)
    Lambda = torch.tensor([[1.0], [-2.0], [1.0], [0.0], [0.0]], dtype=torch.float64)
    between = torch.tensor([[-step, 1.0, 0.0]], dtype=torch.float64)
    value = float(oracle_values(X, Activation(), Lambda, between))
    assert value == pytest.approx(step)
    assert value <= SphereOracle(X, Activation())(Lambda).upper_bound
