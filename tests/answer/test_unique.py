"""Whether an optimum is the only one: closed cases, convex programmes over the set of optima, and exact identities."""

import json
from itertools import combinations, product

import cvxpy as cp
import numpy as np
import pytest
import torch

import covopt
from covopt.answer.uniqueness.arcs import Circle
from covopt.answer.uniqueness.candidates import Candidate, Columns, Optimum, optimum
from covopt.answer.uniqueness.decide import _independent, decide
from covopt.answer.uniqueness.plane import BITS, Plane
from covopt.answer.uniqueness.polytope import no_fewer, polytope
from covopt.answer.uniqueness.uniqueness import SEVERAL, UNDECIDED, UNIQUE
from covopt.model.problem import make_problem
from covopt.model.weights import evaluate

TILT = 1e-5  # how much of a linear functional is added to the cost, as a part of it


def solved(X, Y, **options):
    """A quick exact solve."""
    return covopt.solve(X, Y, **{"certify": "fast", "gap": 1e-9, "time_limit": 5.0, **options})


def spread(result, seed, tilt=TILT):
    """How far a random linear functional of the neurons goes as the cost is tilted a little along it, both ways.

    Each direction is the normal of a sample, one of the result's own, or in the middle between two of these.
    """
    p = result.problem
    X, Y = p.Xt.numpy(), p.Y.numpy()
    X = X[:, X.any(axis=0)]
    X = np.hstack([X, np.zeros((len(X), 2 - X.shape[1]))])
    normals = np.stack([-X[:, 1], X[:, 0]], axis=1)
    own = result.weights[0].numpy()[:, p.Xt.numpy().any(axis=0)]
    W = np.concatenate([normals, -normals, own, -own])
    W = W[W.any(axis=1)] / np.linalg.norm(W[W.any(axis=1)], axis=1, keepdims=True)
    near = np.linalg.norm(W[:, None] - W[None], axis=2) < 2e-3
    W = W[near.argmax(axis=1) == np.arange(len(W))]  # the first of those that are one direction
    angles = np.sort(np.arctan2(W[:, 1], W[:, 0]))
    between = 0.5 * (angles + np.append(angles[1:], angles[0] + 2 * np.pi))
    W = np.concatenate([W, np.stack([np.cos(between), np.sin(between)], axis=1)])
    Z = X @ W.T
    phi = np.where(Z > 0, Z, p.activation.slope * Z)
    V, b = cp.Variable((len(W), Y.shape[1])), cp.Variable((1, Y.shape[1]))
    fit = cp.sum_squares(phi @ V + p.beta * np.ones((len(X), 1)) @ b - Y) / len(X)
    cost = fit + 2 * p.lam * cp.sum(cp.norm(V, axis=1)) + p.lam * cp.sum_squares(b)
    least = cp.Problem(cp.Minimize(cost)).solve(solver="CLARABEL")
    assert least == pytest.approx(result.cost, rel=1e-6)
    c = np.random.default_rng(seed).standard_normal(V.shape) / float(np.linalg.norm(V.value))
    ends = []
    for way in (tilt, -tilt):
        cp.Problem(cp.Minimize(cost / least + way * cp.sum(cp.multiply(c, V)))).solve(solver="CLARABEL")
        ends.append(float((c * V.value).sum()))
    return abs(ends[1] - ends[0])


def test_closed_cases():
    one = solved([[2.0]], [3.0], lam=0.1, bias=0.0).unique
    assert (one.verdict, one.most, one.dimension) == (UNIQUE, (1, 1), 0)
    opposite = solved([[1.0], [-1.0]], [1.0, 1.0], lam=0.1, bias=0.0).unique
    assert (opposite.verdict, opposite.fewest, opposite.most) == (UNIQUE, (2, 2), (2, 2))
    orthogonal = solved(np.eye(2), [1.0, -2.0], lam=0.1, bias=0.0).unique
    assert (orthogonal.verdict, orthogonal.most) == (UNIQUE, (2, 2))
    # Two positive targets on orthogonal samples: one neuron sees both.
    together = solved(np.eye(2), [1.0, 2.0], lam=0.1, bias=0.0).unique
    assert (together.verdict, together.most) == (UNIQUE, (1, 1))
    none = solved([[1.0], [2.0]], [1.0, 1.0], lam=50.0)
    assert none.widths == [0]
    assert (none.unique.verdict, none.unique.most) == (UNIQUE, (0, 0))
    nothing = solved([[0.0], [0.0]], [1.0, 2.0], lam=0.1, bias=0.0).unique
    assert (nothing.verdict, nothing.most) == (UNIQUE, (0, 0))


@pytest.mark.parametrize("activation", ["relu", "leaky:0.3"])
@pytest.mark.parametrize(
    ("seed", "rows", "columns", "outputs", "bias", "lam"),
    [
        (0, 5, 1, 1, 1.0, 1e-2),
        (1, 10, 1, 1, 1.0, 1e-2),
        (2, 8, 1, 2, 0.5, 1e-3),
        (3, 9, 2, 2, 0.0, 1e-3),
        (4, 9, 2, 1, 0.0, 1e-1),
        (5, 7, 1, 1, 1.0, 1e-3),
        (5316, 2, 2, 3, 0.0, 2e-2),
        (14, 3, 1, 3, 1.0, 1e-2),
    ],
)
def test_the_verdict_is_that_of_a_convex_programme(seed, rows, columns, outputs, bias, lam, activation):
    """The set of optima is a point, or something of positive width; the programme knows nothing of the proof."""
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((rows, columns)), rng.standard_normal((rows, outputs))
    result = solved(X, Y, lam=lam, bias=bias, activation=activation)
    found = result.unique
    assert found.verdict in (UNIQUE, SEVERAL), found
    wide = spread(result, seed)
    assert wide < 1e-2 if found.verdict == UNIQUE else wide > 2e-2
    assert found.fewest[0] <= found.fewest[1]
    if found.verdict == UNIQUE:
        assert (found.dimension, found.most[1]) == (0, found.candidates)
        return
    assert found.most is None or (found.dimension >= 1 and found.most[0] > found.fewest[1])
    other = [torch.from_numpy(W) for W in result.optima(steps=2)[-1]]
    assert len(other[0]) != len(result.weights[0]) or not torch.allclose(other[0], result.weights[0])
    assert result.lower <= evaluate(result.problem, other).total <= result.cost * (1 + 1e-12)


def test_the_excess_is_what_a_network_costs_above_the_bound_of_its_dual_point():
    """Against the cost and D(Lambda) of the rest of covopt, for any network and any dual point, weights and a bias."""
    rng = np.random.default_rng(7)
    X, Y, weight = rng.standard_normal((6, 1)), rng.standard_normal((6, 2)), rng.uniform(0.5, 2.0, 6)
    problem = make_problem(4 * X, 3 * Y, lam=0.3, bias=0.7, activation="leaky:0.25", sample_weight=weight).double()
    plane = Plane.of(problem)
    W, V, Lambda = rng.standard_normal((3, 2)), rng.standard_normal((3, 2)), rng.standard_normal((6, 2))
    grid = np.vectorize(lambda x: int(np.ldexp(x, 50)), otypes=[object])
    outer = grid(V) << (BITS - 100)  # directions are 2^50 times as long
    bias, _ = plane.residuals(grid(W), outer)
    excess = float(plane.excess(grid(W), outer, grid(Lambda), 1 << 50))
    t = 2.0 ** np.floor(np.log2(np.abs(3 * Y).max()))
    s = float(plane.units) * t
    inner = np.sqrt(t / s) * np.sqrt(np.linalg.norm(V, axis=1) / np.linalg.norm(W, axis=1))[:, None]
    W2 = np.hstack([(t / s * V / inner).T, t * np.array([[float(b)] for b in bias])])
    cost = evaluate(problem, [torch.from_numpy(inner * W), torch.from_numpy(W2)]).total
    lower = float(problem.dual_value(torch.from_numpy(Lambda / s)))
    assert excess * t * t == pytest.approx(cost - lower, rel=1e-10)


def test_a_dual_point_is_made_feasible_and_not_smaller_than_it_must():
    """Against a fine grid of directions, and the normals of the samples."""
    rng = np.random.default_rng(8)
    for trial in range(6):
        X, Lambda = rng.standard_normal((4 + trial, 2)), rng.standard_normal((4 + trial, 1 + trial % 3))
        plane = Plane.of(make_problem(X, X, lam=1.0, bias=0.0, activation="leaky:-0.5" if trial % 2 else "relu"))
        scale = Circle(plane).feasible(np.vectorize(lambda x: int(np.ldexp(x, 60)), otypes=[object])(Lambda), 1)
        normals = np.arctan2(X[:, 0], -X[:, 1])
        angle = np.concatenate([np.linspace(0.0, 2.0 * np.pi, 200001), normals, normals + np.pi])
        Z = X / np.exp2(np.floor(np.log2(np.abs(X).max()))) @ np.stack([np.cos(angle), np.sin(angle)])
        h = np.linalg.norm(Lambda.T @ np.where(Z > 0, Z, plane.slope * Z), axis=0)
        assert h.max() <= scale / 2**60 * (1 + 1e-12)
        assert scale / 2**60 <= h.max() * (1 + 1e-8)


def test_units_and_repeated_rows_do_not_change_the_verdict():
    rng = np.random.default_rng(3)
    X, Y = rng.standard_normal((7, 2)), rng.standard_normal((7, 2))
    base = solved(X, Y, lam=2.0**-8, bias=0.0).unique
    assert base.verdict in (UNIQUE, SEVERAL)
    for size in (2.0**-200, 2.0**-3, 2.0**200):
        # lam / (s t) stays.
        other = solved(X * 2.0**-20, Y * size * 2.0**20, lam=size * 2.0**-8, bias=0.0)
        assert base.summary() == other.unique.summary() | {"independence": base.independence}
    weight = np.array([2.0, 1, 1, 1, 1, 1, 1])
    twice = solved(np.vstack([X, X[:1]]), np.vstack([Y, Y[:1]]), lam=2.0**-8, bias=0.0).unique
    once = solved(X, Y, lam=2.0**-8, bias=0.0, sample_weight=weight).unique
    assert (twice.verdict, twice.candidates, twice.most) == (once.verdict, once.candidates, once.most)


def test_what_is_not_decided_says_why():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((5, 1)), rng.standard_normal(5)
    for options, word in (
        ({"lam": 0.1, "depth": 3}, "two layers"),
        ({"lam": 0.1, "bias": "free"}, "free biases"),
        ({}, "mean squared error"),
        ({"lam": 0.1, "activation": "linear"}, "linear"),
    ):
        found = covopt.solve(X, y, certify="none", time_limit=0.5, **options).unique
        assert found.verdict == UNDECIDED
        assert word in found.reason
    assert "columns" in solved(rng.standard_normal((5, 2)), y, lam=0.1).unique.reason


def test_a_cone_of_neurons_on_orthogonal_samples():
    """X = I and Y symmetric, positive definite and entrywise positive: F = Y - lam N I and Lambda = I, by hand.

    h = |w| on the quadrant, and F is a sum of w w^T of it in many ways. With a negative entry off the diagonal, no
    neuron sees both samples.
    """
    Y = np.array([[2.0, 1.0], [1.0, 2.0]])
    result = solved(np.eye(2), Y, lam=0.1, bias=0.0)
    assert result.cost == pytest.approx(2 * 0.1 * (3.0 + 1.0) - 2 * 0.1**2 * 2, rel=1e-8)
    found = result.unique
    assert (found.verdict, found.fewest, found.most, found.dimension) == (SEVERAL, (2, 2), None, None)
    for W in result.optima(steps=4):
        assert evaluate(result.problem, [torch.from_numpy(A) for A in W]).total == pytest.approx(result.cost, rel=1e-9)
    assert len(result.optima(steps=3)[-1][0]) == 4
    apart = solved(np.eye(2), Y * [[1.0, -1.0], [-1.0, 1.0]], lam=0.1, bias=0.0).unique
    assert (apart.verdict, apart.most) == (UNIQUE, (2, 2))
    # One class: a matrix of rank 1, and one neuron.
    one = solved(np.eye(2), np.ones((2, 2)), lam=0.1, bias=0.0).unique
    assert (one.verdict, one.most) == (UNIQUE, (1, 1))


def test_a_cone_of_neurons_has_one_optimum_where_the_outputs_do_not_overlap():
    """X = I and Y diagonal: Lambda = I and h = |w| as above, but a diagonal F is such a sum in one way only."""
    problem = make_problem(np.eye(2), np.diag([2.0, 3.0]), lam=0.1, bias=0.0)
    weights = [torch.tensor(W).double() for W in ([[1, 0, 0], [0, 1, 0]], [[1.8, 0, 0], [0, 2.8, 0]])]
    # The outputs; the weights of a layer are balanced by `decide`, which looks at products only.
    assert decide(problem, weights).verdict != SEVERAL


def test_a_network_that_is_no_optimum_gets_no_verdict():
    """Two orthogonal samples need two neurons; Newton's method cannot bring back the one that is missing."""
    problem = make_problem(np.eye(2), [1.0, -2.0], lam=0.1, bias=0.0)
    found = decide(problem, [torch.tensor([[1.0, 0.0, 0.0]]).double(), torch.tensor([[0.8, 0.0]]).double()])
    assert found.verdict == UNDECIDED
    assert "close enough to an optimum" in found.reason


THREE = np.stack([np.cos([0.0, 2.0, 4.0]), np.sin([0.0, 2.0, 4.0])], axis=1)


def pairs_of_neurons(directions, c):
    """What `polytope` proves of neurons w_j and -w_j with the output 1, all of the w_j first, of the sizes c."""
    X = np.random.default_rng(4).standard_normal((7, 2))
    W = np.concatenate([directions, -directions])
    phi = np.maximum(X @ W.T, 0.0)
    found = [Candidate(w, np.ones(1), column, 0.0, 0.0) for w, column in zip(W, phi.T, strict=True)]
    plane = Plane.of(make_problem(X / 2.0 ** np.floor(np.log2(np.abs(X).max())), X[:, :1], lam=0.1, bias=0.0))
    return polytope(plane, found, c, Optimum(0.0, phi @ c, 0.0))


def test_pairs_share_the_linear_part_where_there_are_more_of_them_than_numbers_in_it():
    """M o = B of one output has two rows: its solution is one point for two pairs, and a line for three."""
    W = THREE.copy()
    assert pairs_of_neurons(W, np.ones(6)).uniqueness.most == (6, 6)
    assert pairs_of_neurons(W[:2], np.ones(4)) is None
    # The line of solutions through the corner o = e, with a direction of both signs: it touches the box there only.
    W[2] = -W[2]
    assert pairs_of_neurons(W, np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0])) is None


def test_the_distance_holds_for_every_matrix_and_right_side_within_the_bounds():
    rng = np.random.default_rng(6)
    for _ in range(20):
        T, x = rng.standard_normal((6, 3)), rng.standard_normal(3)
        moved, more = rng.standard_normal(T.shape), rng.standard_normal(6)
        other = T + 0.1 * moved / np.linalg.norm(moved)
        right = T @ x
        exact = np.linalg.lstsq(other, right + 0.1 * more / np.linalg.norm(more), rcond=None)[0]
        off = float(np.linalg.norm(other @ exact - right))
        assert np.linalg.norm(exact - x) <= Columns(T, 0.1).distance(x, right, off) < 10.0


def test_the_line_to_the_widest_optimum_costs_nothing():
    """Each network is evaluated by itself; the widest has as many neurons as the verdict says."""
    rng = np.random.default_rng(2)
    result = solved(3 * rng.standard_normal((8, 1)), 5 * rng.standard_normal((8, 2)), lam=1e-3, bias=0.5, gap=1e-10)
    assert result.unique.verdict == SEVERAL
    line = result.optima(steps=5)
    assert len(line[-1][0]) == result.unique.most[0] > result.widths[0]
    assert np.linalg.norm(line[-1][0], axis=1).min() > 1e-3
    for W in line:
        cost = evaluate(result.problem, [torch.from_numpy(A) for A in W]).total
        assert cost == pytest.approx(result.cost, rel=1e-9)
        assert cost >= result.lower
    only = solved([[1.0], [-1.0]], [1.0, 1.0], lam=0.1, bias=0.0)
    assert all(np.array_equal(A, B) for A, B in zip(only.optima()[0], only.optima()[-1], strict=True))
    with pytest.raises(covopt.ProblemError, match="at least 2"):
        result.optima(steps=1)
    with pytest.raises(covopt.ProblemError, match="not decided"):
        solved([[1.0], [-1.0]], [1.0, 1.0], bias=0.0).optima()


def test_the_narrowest_optimum_by_going_through_all_choices():
    """Against vertices of the polytope {o : M o = B, |o| <= e}, all of them found by solving for each basis."""
    rng = np.random.default_rng(5)
    for k, J, planted in ((2, 4, False), (2, 5, True), (4, 6, False), (4, 6, True)):
        M, e = rng.standard_normal((k, J)), rng.uniform(1.0, 2.0, J)
        o = e * rng.uniform(-0.3, 0.3, J)
        if planted:  # one pair fewer than a vertex has is inside
            o[k - 1 :] = e[k - 1 :] * rng.choice([-1.0, 1.0], J - k + 1)
        fewest = J + k
        for free in combinations(range(J), k):
            rest = [j for j in range(J) if j not in free]
            for signs in product([-1.0, 1.0], repeat=J - k):
                ends = np.linalg.solve(M[:, free], M @ o - M[:, rest] @ (signs * e[rest]))
                inside = np.abs(ends) < e[list(free)] * (1 - 1e-9)
                if (np.abs(ends) <= e[list(free)] * (1 + 1e-9)).all():
                    fewest = min(fewest, J + int(inside.sum()))
        assert fewest == (J + k - 1 if planted else J + k)
        assert no_fewer(M, M @ o, e, 1e-9) is not planted


def test_a_stored_verdict_is_checked(tmp_path):
    rng = np.random.default_rng(1)
    result = solved(rng.standard_normal((6, 1)), rng.standard_normal(6), lam=0.01)
    assert result.summary()["unique"] is None
    assert result.unique.verdict in (UNIQUE, SEVERAL)
    result.save(tmp_path / "run")
    assert covopt.load(tmp_path / "run").unique == result.unique
    assert covopt.verify(tmp_path / "run").passed
    file = tmp_path / "run" / "result.json"
    told = json.loads(file.read_text())
    for change in ({"verdict": UNIQUE if result.unique.verdict == SEVERAL else SEVERAL}, {"fewest": [1, 1]}):
        file.write_text(json.dumps(told | {"unique": told["unique"] | change}))
        checked = covopt.verify(tmp_path / "run")
        assert not checked.passed
        assert "set of all optima" in checked.message
    file.write_text(json.dumps(told | {"unique": {"verdict": UNIQUE}}))
    with pytest.raises(covopt.RecordError):
        covopt.verify(tmp_path / "run")


def test_the_fewest_neurons_are_stated_only_where_no_fewer_are_proved():
    """A line of solutions that ends at the edge of the box, |o_1| = |o_2| = e, has a network with two neurons less."""
    assert pairs_of_neurons(THREE, np.array([1.0, 0.8, 0.6, 0.5, 0.4, 0.7])).uniqueness.fewest[0] == 5
    assert pairs_of_neurons(THREE, np.array([1.0, 1.0, 0.75, 0.0, 0.0, 0.25])).uniqueness.fewest[0] == 3


def test_a_neuron_that_may_be_missing_is_not_counted_as_certain():
    known = Optimum(0.0, np.array([1.0, 0.5, 0.0]), 1e-6)
    only = _independent(Columns(np.eye(3), 0.0), np.array([1.0, 0.5, 0.0]), known)
    assert (only.fewest, only.most) == ((2, 3), (2, 3))


CONE = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
"""Three neurons of the quadrant; with X = I and outputs alike, F = [[2, 1], [1, 2]] is what they give."""


def test_the_outputs_of_an_optimum_are_located_by_every_dual_point():
    """X = I and Y = F + lam N I: Lambda = I is the optimum, and a dual point s I is off by lam N (1 - s) in F."""
    F, lam = np.array([[2.0, 1.0], [1.0, 2.0]]), 0.125
    plane = Plane.of(make_problem(np.eye(2), F + 2 * lam * np.eye(2), lam=lam, bias=0.0))
    directions = CONE.astype(int).astype(object)
    size = int(plane.size)
    outer = directions * ((1 << BITS) // size)
    for sixteenths in (15, 12, 4):
        Lambda = np.array([[sixteenths, 0], [0, sixteenths]], dtype=object)
        located = optimum(plane, Lambda, 16, float(plane.excess(directions, outer, Lambda, 16)))
        distance = np.linalg.norm(located.outputs - F.ravel() / size)
        assert distance * size == pytest.approx(2 * lam * (1 - sixteenths / 16) * np.sqrt(2.0))
        assert distance <= located.off


@pytest.mark.parametrize(("size", "fewest"), [(0.0, (2, 3)), (0.5, (3, 3))])
def test_a_neuron_beside_a_cone_is_certain_only_where_it_gives_something(size, fewest):
    """The third sample alone sees the direction (-1, 0), whose neuron gives -size: h is 1 there for every size >= 0."""
    lam = 0.125
    F = np.array([[2.0, 1.0], [1.0, 2.0], [0.0, -size]])
    Lambda = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    problem = make_problem([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], F + 3 * lam * Lambda, lam=lam, bias=0.0)
    W, V = np.vstack([CONE, [[-1.0, 0.0]]]), np.vstack([CONE, [[0.0, -size]]])
    verdict = decide(problem, [torch.from_numpy(np.pad(A, ((0, 0), (0, 1)))) for A in (W, V.T)])
    assert (verdict.verdict, verdict.fewest) == (SEVERAL, fewest)
