"""Every proved maximum of a neuron's height against what directions attain, in exact arithmetic where it is exact.

The height is h(w) = |Lambda^T sigma(Xt w)| for unit w. A maximum that some direction exceeds proves a false bound.
"""

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from covopt.certify.cones.bounds import ConeBounds
from covopt.certify.cones.branch import branch_and_bound, replay
from covopt.certify.cones.tree import halves, roots
from covopt.certify.relaxation.bound import check_maximum, whole_maximum
from covopt.certify.relaxation.ground import FREE, NEGATIVE, POSITIVE, make_ground
from covopt.certify.relaxation.lift import make_piece
from covopt.certify.relaxation.multipliers import Multipliers
from covopt.certify.relaxation.repair import prove
from covopt.model.activation import Activation
from covopt.oracles.arrangement import ArrangementOracle
from covopt.oracles.exact import LinearOracle
from covopt.oracles.sphere import SphereOracle

Array = NDArray[np.float64]
SLOPES = (0.0, 0.4, -0.3)


def exact_height(Xt: Array, slope: float, Lambda: Array, w: Array) -> mpmath.mpf:
    """|Lambda^T sigma(Xt w)| / |w| for the numbers as they are."""
    direction = [Fraction(x) for x in w.tolist()]
    z = [sum(Fraction(x) * d for x, d in zip(row, direction, strict=True)) for row in Xt.tolist()]
    s = [t if t > 0 else Fraction(slope) * t for t in z]
    sums = [sum(Fraction(a) * t for a, t in zip(column, s, strict=True)) for column in Lambda.T.tolist()]
    square = sum(x * x for x in sums) / sum(d * d for d in direction)
    return mpmath.sqrt(mpmath.mpf(square.numerator) / square.denominator)


def climbed(Xt: Array, slope: float, Lambda: Array, starts: int = 200, steps: int = 40) -> float:
    """The largest |Lambda^T sigma(Xt w)| that power steps from many directions meet, kinks among them."""
    (N, d), rng, best = Xt.shape, np.random.default_rng(0), 0.0
    rows = np.argsort(rng.random((starts, N)), axis=1)[:, : d - 1]
    W = np.vstack([rng.standard_normal((starts, d)), np.linalg.svd(Xt[rows])[2][:, -1]])
    for _ in range(steps):
        lengths = np.linalg.norm(W, axis=1, keepdims=True)
        W = W / np.where(lengths > 0.0, lengths, 1.0)
        Z = W @ Xt.T
        slopes = np.where(Z > 0.0, 1.0, slope)
        outputs = (slopes * Z) @ Lambda
        best = max(best, float(np.linalg.norm(outputs, axis=1).max()))
        W = (slopes * (outputs @ Lambda.T)) @ Xt
    return best


@pytest.mark.parametrize(("columns", "slope"), [(2, 0.0), (2, 0.4), (2, -0.3), (3, 0.0), (3, 0.4), (3, -0.3), (4, 1.0)])
def test_exact_oracles_bound_what_their_directions_attain(columns: int, slope: float) -> None:
    """In exact arithmetic, and hardly more than that; climbing from many directions finds no more either."""
    with mpmath.workdps(40):
        for seed in range(25):
            rng = np.random.default_rng(seed)
            Xt, Lambda = rng.standard_normal((7, columns)), 3.0 * rng.standard_normal((7, 1 + seed % 3))
            kinds = {2: ArrangementOracle, 3: SphereOracle}
            X, sigma = torch.from_numpy(Xt), Activation(slope)
            oracle = LinearOracle(X) if slope == 1.0 else kinds[columns](X, sigma)
            answer = oracle(torch.from_numpy(Lambda), X[:0])
            for w in answer.directions.numpy()[:3]:
                assert exact_height(Xt, slope, Lambda, w) <= answer.upper_bound
            assert climbed(Xt, slope, Lambda) <= answer.upper_bound * (1.0 + 1e-12)
            attained = exact_height(Xt, slope, Lambda, answer.directions[0].numpy())
            assert answer.upper_bound <= attained * (1.0 + 1e-8)


def by_cones(X: torch.Tensor, sigma: Activation, Lambda: torch.Tensor) -> float:
    found = branch_and_bound(X, sigma, Lambda, target=0.0, time_limit=0.2)
    return replay(X, sigma, Lambda, found.tree, claimed=1e-9)


@pytest.mark.parametrize(
    ("proved", "columns", "slope"),
    [
        (lambda X, sigma, Lambda: ArrangementOracle(X, sigma)(Lambda).upper_bound, 2, 0.0),
        (lambda X, sigma, Lambda: SphereOracle(X, sigma)(Lambda).upper_bound, 3, 0.0),
        (by_cones, 3, 1.0),
        (lambda X, sigma, Lambda: whole_maximum(make_ground(X, sigma), Lambda, 0.0), 4, 1.0),
    ],
    ids=["arrangement", "sphere", "cones", "relaxation"],
)
def test_what_the_row_space_leaves_out_is_paid_for(
    proved: Callable[[torch.Tensor, Activation, torch.Tensor], float], columns: int, slope: float
) -> None:
    """Pairs of rows that differ in a direction below the rank rule, and multipliers that see nothing else."""
    rng, tiny = np.random.default_rng(columns), 1e-11
    rows = np.vstack([rng.standard_normal((3, columns))] * 2)
    signs = np.repeat([1.0, -1.0], 3)
    X = np.hstack([rows, rows[:, :1] + tiny * signs[:, None]])
    Lambda = (signs * np.tile([1.0, 0.5, 0.7], 2))[:, None]
    across = np.append(np.eye(columns)[0], -1.0)  # X sees nothing else in this direction
    moved = 1e-9 * rng.standard_normal((20, columns + 1))
    attained = max(float(exact_height(X, slope, Lambda, across + each)) for each in moved)
    assert attained > 0.5 * tiny
    bound = proved(torch.from_numpy(X), Activation(slope), torch.from_numpy(Lambda))
    assert attained <= bound <= 10.0 * attained


def test_a_sample_that_the_row_space_does_not_see_is_paid_for() -> None:
    """Rank 3 by the rank rule, and Lambda on the fourth sample alone: 1e-11 along it is all that there is."""
    turn = 0.5 * torch.tensor([[1.0, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]], dtype=torch.float64)
    X, Lambda = torch.diag(torch.tensor([1.0, 1.0, 1.0, 1e-11]).double()) @ turn, torch.eye(4).double()[:, 3:]
    answer, ground = branch_and_bound(X, Activation(), Lambda, target=0.0, time_limit=0.0), make_ground(X, Activation())
    assert 1e-11 <= answer.upper_bound <= 1.01e-11
    assert replay(X, Activation(), Lambda, answer.tree, claimed=answer.upper_bound) >= 1e-11
    assert whole_maximum(ground, Lambda, 0.0) >= 1e-11
    assert check_maximum(X, Activation(), Lambda, Multipliers.root(ground)) >= 1e-11


# -- cones of directions ----------------------------------------------------------------------------------------------
def cones(rng: np.random.Generator, count: int, rank: int) -> Array:
    """Generators of cones of all sizes, each inside an orthant."""
    middle = rng.uniform(0.2, 1.0, (count, 1, rank))
    V = middle + 10.0 ** rng.uniform(-2.0, 0.0, (count, 1, 1)) * np.eye(rank) * rng.uniform(0.5, 1.0, (count, rank, 1))
    V *= rng.choice([-1.0, 1.0], (count, 1, rank))
    return V / np.linalg.norm(V, axis=2, keepdims=True)


@pytest.mark.parametrize("slope", [*SLOPES, 1.0])
@pytest.mark.parametrize("outputs", [1, 3])
def test_a_cone_bounds_every_direction_inside(outputs: int, slope: float) -> None:
    tight = math.inf
    for seed in range(20):
        rng = np.random.default_rng(seed)
        P, Lambda, V = rng.standard_normal((8, 3)), rng.standard_normal((8, outputs)), cones(rng, 30, 3)
        bounds = ConeBounds(torch.from_numpy(P), Activation(slope), torch.from_numpy(Lambda))
        side = rng.choice([-1.0, 1.0], 30)
        theta = np.vstack([np.eye(3), rng.dirichlet(np.full(3, 0.4), 300), rng.dirichlet(np.ones(3), 300)])
        q = np.einsum("kj,bjr->bkr", theta, V)
        Z = q / np.linalg.norm(q, axis=2, keepdims=True) @ P.T
        outer = np.where(Z > 0.0, Z, slope * Z) @ Lambda
        attained = (side[:, None] * outer[:, :, 0] if outputs == 1 else np.linalg.norm(outer, axis=2)).max(axis=1)
        for enough in (0.0, math.inf):
            upper = bounds(torch.from_numpy(V), torch.from_numpy(side), enough).upper.numpy()
            assert (attained <= upper + 1e-12).all()
            tight = min(tight, float((upper / np.maximum(attained, 1e-3)).min()))
        halved = halves(torch.from_numpy(V), torch.from_numpy(rng.integers(0, 3, 30))).numpy()
        coordinates = np.linalg.solve(halved.transpose(0, 2, 1), np.concatenate([q, q]).transpose(0, 2, 1))
        inside = (coordinates >= -1e-9).all(axis=1)
        assert (inside[:30] | inside[30:]).all()
    assert tight < 1.001


def test_the_roots_are_all_directions_of_both_signs() -> None:
    V, side = roots(torch.zeros(1, 2), one_sided=True)
    kinds = {(*map(float, np.sign(cone.sum(axis=0))), float(s)) for cone, s in zip(V.numpy(), side, strict=True)}
    assert kinds == {(a, b, c) for a in (1.0, -1.0) for b in (1.0, -1.0) for c in (1.0, -1.0)}


def test_a_cone_s_bound_is_rounded_up() -> None:
    """The whole orthants of a linear network whose sums cancel: |Lambda^T P| in exact arithmetic."""
    with mpmath.workdps(40):
        for seed in range(25):
            rng = np.random.default_rng(seed)
            P, Lambda = rng.standard_normal((40, 2)), 1e6 * rng.standard_normal((40, 1))
            Lambda = Lambda - P @ np.linalg.lstsq(P, Lambda)[0] + P @ rng.standard_normal((2, 1)) * 1e-9
            bounds = ConeBounds(torch.from_numpy(P), Activation(1.0), torch.from_numpy(Lambda))
            V, side = roots(bounds.P, one_sided=True)
            sums = [sum(Fraction(a) * Fraction(x) for a, x in zip(Lambda[:, 0], column, strict=True)) for column in P.T]
            assert float(bounds(V, side, 0.0).upper.max()) >= float(mpmath.hypot(*map(float, sums)))


# -- the relaxation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slope", SLOPES)
def test_pieces_of_the_sphere_bound_their_maximisers(slope: float) -> None:
    """The states and a wall of the best direction, which an exact oracle knows, with any admissible multipliers."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X, Lambda = rng.standard_normal((5, 3)), rng.standard_normal((5, 1 + seed % 2))
        inputs, multipliers = torch.from_numpy(X), torch.from_numpy(Lambda)
        answer = SphereOracle(inputs, Activation(slope))(multipliers)
        w, ground = answer.directions[0], make_ground(inputs, Activation(slope))
        z = X @ w.numpy()
        known = np.where(np.abs(z) < 1e-9, FREE, np.where(z > 0.0, POSITIVE, NEGATIVE))
        states = torch.from_numpy(np.where(rng.random(5) < 0.3, FREE, known))
        wall = torch.from_numpy(rng.standard_normal((1, 3)))
        piece = make_piece(ground, states, wall * torch.sign(wall @ (ground.basis @ w)))
        for size in (0.0, 0.3):
            Pi = torch.from_numpy(size * rng.standard_normal((len(piece.B), len(piece.B))))
            bound = math.sqrt(prove(piece, multipliers, Pi)) * ground.size
            assert float(answer.values[0]) <= bound * (1.0 + 1e-9)
