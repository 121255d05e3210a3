"""The relaxation: never below the true maximum whatever made its multipliers, and never above a certified optimum."""

import dataclasses
import itertools
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings, strategies as st
from instances import cases, gaussian
from references.relaxed import relaxed_maximum

from covopt.certify.dual import dual_bound
from covopt.certify.proof import Target
from covopt.certify.relaxation.admm import softmax_solve
from covopt.certify.relaxation.bound import Relaxation, _Work, check_maximum
from covopt.certify.relaxation.ground import FREE, KINK, NEGATIVE, POSITIVE, STRICT, make_ground, make_span
from covopt.certify.relaxation.lift import NONE, make_piece
from covopt.certify.relaxation.multipliers import WALL, Multipliers, make_stationarity, pack, side
from covopt.certify.relaxation.nodes import BranchOptions
from covopt.certify.relaxation.repair import clip, prove
from covopt.model.activation import Activation
from covopt.model.problem import make_problem
from covopt.oracles.arrangement import ArrangementOracle
from covopt.oracles.oracle import oracle_values
from covopt.runtime.errors import ProblemError
from covopt.runtime.interrupts import gently, interrupted
from covopt.runtime.loop import Certificate

CASES = list(cases("shallow_exact").values())
SLOPES = (0.0, 0.1, -0.4, 1.0)
QUICK = BranchOptions(root_checks=5)
HASTY = BranchOptions(check=3, root_checks=1, node_checks=1)


def attained(Xt: torch.Tensor, activation: Activation, Lambda: torch.Tensor, seed: int) -> float:
    """The largest h among many directions, polished by power steps: a value that no bound may be below."""
    w = gaussian(400, Xt.shape[1], seed=seed)
    for _ in range(60):
        w = torch.nn.functional.normalize(w, dim=1)
        z = w @ Xt.T
        w = (activation.derivative(z) * (activation(z) @ Lambda @ Lambda.T)) @ Xt + 1e-3 * w
    return float(oracle_values(Xt, activation, Lambda, torch.nn.functional.normalize(w, dim=1)).max())


def exact(Xt: torch.Tensor, activation: Activation, Lambda: torch.Tensor) -> float:
    """The exact maximum for rank 2, from inside."""
    return float(ArrangementOracle(Xt, activation)(Lambda).values[0])


def garbage(samples: int, seed: int) -> Multipliers:
    """Random multipliers of a small random tree: a split at sample 0, a wall on its first side."""
    walls = gaussian(1, 3, seed=seed)
    sizes = [2 * samples, 2 * samples, 2 * samples - 1]
    values = [gaussian(size * (size + 1) // 2, seed=seed + k).flatten() for k, size in enumerate(sizes)]
    stages, heights = torch.tensor([0, 0, 1, 1, 1]), torch.zeros(1, dtype=torch.float64)
    return Multipliers(torch.tensor([0, -2, -1, -1, -1]), stages, heights, walls, torch.cat(values))


@given(st.integers(0, 10**6), st.integers(2, 8), st.sampled_from(SLOPES), st.sampled_from((0.0, 1.0)))
@settings(max_examples=8)
def test_never_below_the_exact_maximum(seed: int, samples: int, slope: float, bias: float) -> None:
    activation = Activation(slope)
    Xt = torch.cat([gaussian(samples, 1, seed=seed), torch.full((samples, 1), bias, dtype=torch.float64)], dim=1)
    Lambda = gaussian(samples, 2, seed=seed + 1)
    found = relaxed_maximum(Xt, activation, Lambda, options=QUICK)
    true = exact(Xt, activation, Lambda)
    assert true <= found.maximum * (1 + 1e-13)
    assert check_maximum(Xt, activation, Lambda, found.multipliers) == pytest.approx(found.maximum, rel=1e-12)
    # Solved badly on purpose, and any numbers at all.
    assert relaxed_maximum(Xt, activation, Lambda, options=HASTY).maximum >= true * (1 - 1e-13)


@given(st.integers(0, 10**6), st.integers(1, 6), st.sampled_from(SLOPES), st.sampled_from((1e-6, 1.0, 1e5)))
@settings(max_examples=8)
def test_any_multipliers_prove_a_true_bound(seed: int, samples: int, slope: float, size: float) -> None:
    activation, Xt = Activation(slope), size * gaussian(samples, 3, seed=seed)
    Lambda = gaussian(samples, 2, seed=seed + 1)
    if seed % 3 == 0:
        Xt[0] = 0.0
    true = attained(Xt, activation, Lambda, seed)
    for factor in (0.0, 0.05, 1.0, 1e6):
        for extreme in (1.0, math.nan):
            proof = garbage(samples, seed)
            proof.values[0] *= extreme
            assert check_maximum(Xt, activation, Lambda, proof.scaled(factor)) >= true * (1 - 1e-12)


@pytest.mark.parametrize("samples", [1, 2, 3])
def test_negative_multipliers_prove_nothing(samples: int) -> None:
    activation, Xt, Lambda = Activation(0.0), gaussian(samples, 3, seed=samples), gaussian(samples, 2, seed=9)
    true, proof = attained(Xt, activation, Lambda, 0), garbage(samples, 0)
    proof.values[:] = -proof.values.abs()
    for factor in (0.01, 0.1, 0.3, 1.0, 3.0):
        assert check_maximum(Xt, activation, Lambda, proof.scaled(factor)) >= true * (1 - 1e-12)


@pytest.mark.parametrize("slope", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(10))
def test_a_split_never_proves_less(seed: int, slope: float) -> None:
    """On either side of a split the same multipliers prove at least as much, for the best shift repairs them."""
    ground = make_ground(gaussian(12, 3, seed=seed), Activation(slope))
    Lambda = gaussian(12, 2, seed=100 + seed)
    multipliers = 10.0 ** (seed % 5 - 2) * gaussian(24, 24, seed=200 + seed)

    def proved(signs: torch.Tensor) -> float:
        piece = make_piece(ground, signs)
        rows = piece.kind * 12 + piece.sample
        return prove(piece, Lambda, multipliers[rows][:, rows])

    signs = torch.zeros(12, dtype=torch.int64)
    for i in range(11):
        before = proved(signs)
        for sign in (1, -1):
            signs[i] = sign
            assert proved(signs) <= before * (1.0 + 2e-6)


@pytest.mark.parametrize("solver", ["clarabel", "scs"])
@pytest.mark.parametrize("slope", [0.0, 0.2])
def test_agrees_with_conic_solvers(solver: str, slope: float) -> None:
    Xt, Lambda, activation = gaussian(7, 4, seed=3), gaussian(7, 3, seed=4), Activation(slope)
    own = relaxed_maximum(Xt, activation, Lambda)
    theirs = relaxed_maximum(Xt, activation, Lambda, solver=solver)
    assert theirs.maximum == pytest.approx(own.maximum, rel=1e-5 if solver == "clarabel" else 1e-3)
    assert min(own.maximum, theirs.maximum) >= attained(Xt, activation, Lambda, 0) * (1 - 1e-12)


def test_no_time_still_gives_a_bound() -> None:
    Xt, Lambda, activation = gaussian(7, 4, seed=3), gaussian(7, 3, seed=4), Activation(0.0)
    true = attained(Xt, activation, Lambda, 0)
    for solver in ("own", "clarabel", "scs"):
        found = relaxed_maximum(Xt, activation, Lambda, solver=solver, time_limit=0.0).maximum
        assert math.isfinite(found)
        assert found >= true


def test_inputs_or_duals_of_zero() -> None:
    zero, some = torch.zeros(4, 3).double(), gaussian(4, 2, seed=0)
    assert relaxed_maximum(zero, Activation(0.0), some).maximum <= 1e-100
    assert relaxed_maximum(gaussian(4, 3, seed=0), Activation(0.0), 0.0 * some).maximum <= 1e-100
    problem = make_problem(zero, some, lam=0.1, bias=0.0)
    fit = float(some.square().sum()) / 4
    assert Relaxation.prove(problem, Target(some, time_limit=1.0)).proof.lower == pytest.approx(fit, rel=1e-3)


def test_the_linear_network_is_exact() -> None:
    Xt, Lambda = gaussian(9, 4, seed=0), gaussian(9, 3, seed=1)
    found = relaxed_maximum(Xt, Activation(1.0), Lambda).maximum
    assert found == pytest.approx(float(torch.linalg.matrix_norm(Xt.T @ Lambda, 2)), rel=1e-5)


def all_patterns(Xt: torch.Tensor, Lambda: torch.Tensor) -> float:
    """An upper bound on h by brute force: over all sign patterns, the norm of Lambda^T D Xt."""
    best = 0.0
    for pattern in itertools.product((0.0, 1.0), repeat=len(Xt)):
        D = torch.tensor(pattern, dtype=torch.float64)
        best = max(best, float(torch.linalg.matrix_norm((Lambda * D[:, None]).T @ Xt, 2)))
    return best


def test_positive_coefficients_meet_brute_force() -> None:
    """Orthogonal inputs, Lambda >= 0: the best pattern is "all active", it is attained, and the relaxation is tight."""
    Xt, Lambda = torch.diag(torch.tensor([2.0, 0.5, 1.0]).double()), torch.tensor([[1.0], [3.0], [0.7]]).double()
    assert relaxed_maximum(Xt, Activation(0.0), Lambda).maximum == pytest.approx(all_patterns(Xt, Lambda), rel=1e-6)


def test_branching_tightens_and_is_proved_by_its_tree() -> None:
    """At a dual point that is optimal for the relaxation, where the relaxation is loose."""
    X, Y = gaussian(8, 8, seed=5).abs(), torch.eye(4).double()[[0, 1, 2, 3, 0, 1, 2, 3]]
    problem = make_problem(X, Y, lam=0.01, bias=0.0)
    Lambda = Relaxation.prove(problem, Target(time_limit=1.0)).proof.Lambda
    root = relaxed_maximum(problem.Xt, problem.activation, Lambda, options=BranchOptions(root_checks=20))
    tree = relaxed_maximum(problem.Xt, problem.activation, Lambda, max_nodes=13, time_limit=20)
    true = attained(problem.Xt, problem.activation, Lambda, 0)
    assert true * (1 - 1e-12) <= tree.maximum
    assert tree.maximum - true <= 0.95 * (root.maximum - true)
    assert tree.multipliers.leaves > 1
    again = check_maximum(problem.Xt, problem.activation, Lambda, tree.multipliers)
    assert again == pytest.approx(tree.maximum, rel=1e-9)


def test_invariance_of_the_proof() -> None:
    """The stored proof is in the coordinates of the inputs: scaling Lambda scales it."""
    Xt, Lambda, activation = gaussian(6, 3, seed=1), gaussian(6, 2, seed=2), Activation(0.0)
    found = relaxed_maximum(Xt, activation, Lambda)
    again = check_maximum(Xt, activation, 0.3 * Lambda, found.multipliers.scaled(0.3))
    assert again == pytest.approx(0.3 * found.maximum, rel=1e-9)


def test_damaged_trees_are_refused() -> None:
    Xt, Lambda, activation = gaussian(4, 3, seed=1), gaussian(4, 2, seed=2), Activation(0.0)
    good = garbage(4, 0)
    damaged = [dataclasses.replace(good, values=good.values[:-1]), dataclasses.replace(good, walls=good.walls[:0])]
    for splits in ([0, -1], [-1, -1], [9, -1, -1], [-3, -1, -1], [0, -1, -1], []):
        stages = torch.tensor([int(split == -1) for split in splits]).long()
        damaged.append(dataclasses.replace(good, splits=torch.tensor(splits).long(), stages=stages))
    for tree in damaged:
        with pytest.raises(ProblemError, match="solve again"):
            check_maximum(Xt, activation, Lambda, tree)
    with pytest.raises(ProblemError, match="NaN"):
        check_maximum(Xt, activation, Lambda / 0.0, good)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_never_above_the_certified_optimum(case: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(case["X"], case["Y"], lam=case["lam"], loss=case["loss"], bias=case["beta"])
    for limit, patience in ((0.5, 3), (0.05, 1)):
        monkeypatch.setattr(_Work, "patience", patience)
        found = Relaxation.prove(problem, Target(time_limit=limit)).proof
        assert 0.0 <= found.lower <= case["upper"] * (1 + 1e-12)
        again = check_maximum(problem.Xt, problem.activation, found.Lambda, found.multipliers)
        assert dual_bound(problem, found.Lambda, again).lower == pytest.approx(found.lower, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("loss", ["mse", "cross_entropy", "interpolate"])
@pytest.mark.parametrize("bias", [0.0, 1.0])
@pytest.mark.parametrize("activation", ["relu", "leaky:0.2"])
def test_every_loss_has_a_bound_that_reaches_a_network(loss: str, bias: float, activation: str) -> None:
    """Orthogonal inputs without bias: the relaxation is nearly tight; with one it is below some network's cost."""
    Y = torch.eye(3, dtype=torch.float64)[[0, 1, 2, 0, 1]]
    lam = None if loss == "interpolate" else 0.05
    problem = make_problem(torch.eye(5).double(), Y, lam=lam, loss=loss, bias=bias, activation=activation)
    found = Relaxation.prove(problem, Target(time_limit=1.0)).proof
    assert found.kind == Certificate.RELAXATION
    assert found.lower > 0.0
    if loss == "interpolate" and bias == 0.0 and activation == "relu":
        # The closed form R = 2 sum_c sqrt(m_c) of MATH.md section 7.
        assert found.lower == pytest.approx(2 * (2 * math.sqrt(2) + 1), rel=1e-4)
        assert found.lower <= 2 * (2 * math.sqrt(2) + 1)
    null = {"mse": 3 / 5 * 5 / 3, "cross_entropy": math.log(3), "interpolate": 2 * 5.0}[loss]
    assert found.lower <= null


def test_a_dual_point_improves_the_bound_and_stops_at_the_target() -> None:
    case = cases("shallow_exact")["reg-1d-onehot"]
    problem = make_problem(case["X"], case["Y"], lam=case["lam"], loss=case["loss"], bias=case["beta"])
    free = Relaxation.prove(problem, Target(time_limit=2.0)).proof
    calls: list[float] = []
    target = Target(0.98 * free.Lambda, time_limit=20.0, on_bound=lambda _, lower: calls.append(lower))
    assert 0.8 * free.lower <= Relaxation.prove(problem, target).proof.lower <= case["upper"]
    assert all(later >= sooner * (1 - 1e-9) for sooner, later in itertools.pairwise(calls))
    early = Relaxation.prove(problem, Target(time_limit=100.0, cost=0.5 * free.lower))
    assert 0.5 * free.lower <= early.proof.lower
    assert early.seconds < 50.0


@pytest.mark.parametrize("size", [0.01, 1.0, 3.0, 100.0])
def test_the_size_of_the_inputs_does_not_matter(size: float) -> None:
    """Without bias R(c X, Y) = R(X, Y) / c; and at the Lambda found, the multipliers prove what others prove."""
    X, Y = gaussian(6, 7, seed=0), gaussian(6, 2, seed=1)
    unit = Relaxation.prove(make_problem(X, Y, lam=0.01, bias=0.0), Target(time_limit=5.0)).proof
    problem = make_problem(size * X, Y, lam=0.01 * size, bias=0.0)
    found = Relaxation.prove(problem, Target(time_limit=5.0)).proof
    assert found.lower == pytest.approx(unit.lower, rel=1e-3)
    other = relaxed_maximum(problem.Xt, problem.activation, found.Lambda, solver="clarabel").maximum
    assert other == pytest.approx(found.maximum, rel=1e-3)


def test_a_direction_that_refutes_the_dual_point_ends_the_search_and_a_start_is_kept() -> None:
    problem = make_problem(gaussian(8, 9, seed=0), gaussian(8, 2, seed=1), lam=0.005, bias=0.0)
    free = Relaxation.prove(problem, Target(time_limit=2.0))
    found = Relaxation.prove(problem, Target(2.0 * free.proof.Lambda, time_limit=60.0, refuted=1.5), free)
    assert found.seconds < 30.0
    assert found.proof.lower >= free.proof.lower
    assert torch.equal(found.relaxed, free.relaxed)
    assert float(found.violators.values[0]) > 1.5
    assert float(found.violators.directions[0].norm()) == pytest.approx(1.0, rel=1e-12)
    value = oracle_values(problem.Xt, problem.activation, 2.0 * free.proof.Lambda, found.violators.directions)
    assert float(value[0]) == pytest.approx(float(found.violators.values[0]), rel=1e-9)


def test_ctrl_c_keeps_the_best_bound() -> None:
    problem = make_problem(gaussian(6, 3, seed=0), gaussian(6, 2, seed=1), lam=0.01, bias=0.0)

    def interrupt(seconds: float, lower: float) -> None:
        raise KeyboardInterrupt

    with gently():
        found = Relaxation.prove(problem, Target(time_limit=5.0, on_bound=interrupt))
        assert interrupted()
    assert found.proof.lower > 0.0


def test_newton_steps_of_cross_entropy_where_nothing_else_is_left_of_the_identity() -> None:
    """I + c (diag(p) - p p^T) is singular in float64 for large c, which inputs of 1e9 and a lam of 1e-10 bring."""
    p, right = torch.softmax(torch.randn(4, 3).double(), dim=1), torch.randn(4, 3, 2).double()
    c = torch.tensor([0.0, 0.3, 1.0, 1e3]).double()
    J = torch.eye(3).double() + c[:, None, None] * (torch.diag_embed(p) - p[:, :, None] * p[:, None, :])
    torch.testing.assert_close(softmax_solve(p, c, right), torch.linalg.solve(J, right))
    assert bool(softmax_solve(p, 1e40 + c, right).isfinite().all())
    X = 1e9 * torch.randn(5, 3).double()
    problem = make_problem(X, torch.eye(2).double()[[0, 1, 0, 0, 1]], lam=1e-10, loss="cross_entropy", bias=1e3)
    assert 0.0 <= Relaxation.prove(problem, Target(time_limit=0.5)).proof.lower <= 0.7


@pytest.mark.parametrize("power", [140, 240, -140, -240])
def test_inputs_beyond_single_precision_have_a_bound(power: int) -> None:
    """As `claims.of_relaxation` asks for; a solve brings them to ordinary sizes first."""
    X, Y = gaussian(8, 5, seed=1), gaussian(8, 1, seed=2)
    problem = make_problem(2.0**power * X, Y, lam=0.05 * 2.0**power, bias=0.0)
    lower = Relaxation.prove(problem, Target(time_limit=2.0)).proof.lower
    assert 0.0 <= lower <= float(problem.loss_at(torch.zeros_like(problem.Y)))


def test_pairs_that_say_nothing_have_no_multipliers() -> None:
    ground, Lambda = make_ground(gaussian(3, 3, seed=1), Activation(0.0)), gaussian(3, 2, seed=2)
    heights = torch.tensor([0.5, 2.0], dtype=torch.float64)
    states = torch.full((3,), POSITIVE)
    piece = make_piece(ground, states, ground.P.new_zeros(0, 3), make_stationarity(Lambda, heights, 1))
    nothing = piece.rule == NONE
    assert bool(nothing.any())
    assert not bool(clip(piece, torch.ones_like(piece.rule).double())[nothing].any())


def test_a_height_that_its_stage_does_not_prove_is_refused() -> None:
    """The root is split in the first stage, whose bound, of no multipliers at all, is far above the stated height."""
    Xt, Lambda = gaussian(4, 3, seed=1), gaussian(4, 2, seed=2)
    splits, stages = torch.tensor([0, -1, -1]), torch.tensor([1, 2, 2])
    heights = torch.tensor([0.0, 1e-6], dtype=torch.float64)
    forged = Multipliers(splits, stages, heights, gaussian(0, 3, seed=0), torch.zeros(1000, dtype=torch.float64))
    with pytest.raises(ProblemError, match="does not prove its height"):
        check_maximum(Xt, Activation(0.0), Lambda, forged)


def test_the_sides_of_a_split() -> None:
    """Of a wall, opposite; of a free sample, positive and negative; of a positive one, strictly so and its kink."""
    none, wall = gaussian(0, 3, seed=0), gaussian(1, 3, seed=1)[0]
    first, second = (side(torch.zeros(2).long(), none, WALL, wall, other)[1] for other in (False, True))
    assert torch.equal(first, -second)
    for state, sides in ((FREE, (POSITIVE, NEGATIVE)), (POSITIVE, (STRICT, KINK))):
        states = torch.full((3,), state)
        assert tuple(int(side(states, none, 1, None, other)[0][1]) for other in (False, True)) == sides
        assert int(states[1]) == state


def test_dependent_samples_span_nothing_that_is_known() -> None:
    """Two equal samples that are not negative have no dual coordinates of their own; two different ones have."""
    X = torch.tensor([[1.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=torch.float64)
    ground = make_ground(X, Activation(0.0))
    for other, members in ((1, None), (2, [0, 2])):
        states = torch.full((4,), NEGATIVE)
        states[0] = states[other] = POSITIVE
        found = make_span(ground, states).members
        assert members == (None if found is None else found.tolist())


def test_what_a_computed_span_misses_is_paid_for() -> None:
    """A kink leaves one w in the plane; the other sample's z is 1e-4 of its length there, and in fractions exactly."""
    for seed in range(12):
        kink = gaussian(2, seed=seed)
        w = torch.stack([-kink[1], kink[0]])
        # Two samples that are off at w turn the coordinates of the row space away from those of the others.
        X = torch.stack([kink, kink + 1e-4 * w, 3.0 * kink - 10.0 * w, -5.0 * kink - 1.5 * w])
        ground = make_ground(X, Activation(0.0))
        piece = make_piece(ground, torch.tensor([KINK, POSITIVE, NEGATIVE, NEGATIVE]))
        (a, b), (c, d), *_ = [[Fraction(entry) for entry in row] for row in ground.P.tolist()]
        square = (a * d - b * c) ** 2 / (a * a + b * b)
        Lambda = torch.tensor([[0.0], [1.0], [0.0], [0.0]], dtype=torch.float64)
        proved = prove(piece, Lambda, torch.zeros_like(piece.rule).double())
        assert square <= Fraction(proved) <= square * (1 + Fraction(1, 10**4))


@pytest.mark.parametrize(
    ("splits", "stages", "message"),
    [
        pytest.param([], [], "do not fit their tree", id="no tree"),
        pytest.param([0, -1], [0, 1], "do not fit their tree", id="one of two sides"),
        pytest.param([-1], [0], "out of order", id="a leaf that ends before the last stage"),
        pytest.param([0, -1, -1], [0, 0, 0], "out of order", id="two such leaves"),
        pytest.param([0, -1, -1], [1, 1, 1], "out of order", id="a split after the last stage"),
    ],
)
def test_trees_whose_leaves_do_not_cover_the_sphere_prove_nothing(
    splits: list[int], stages: list[int], message: str
) -> None:
    """The maximum is 1. No tree, or leaves that no stage looks at, would prove 0; one side is half of the sphere."""
    Xt, Lambda = torch.eye(2, dtype=torch.float64)[:1], torch.ones(1, 1, dtype=torch.float64)
    first = make_piece(make_ground(Xt, Activation(0.0)), torch.tensor([POSITIVE]))
    values = pack(first, torch.zeros_like(first.rule).double()) if len(splits) == 2 else torch.zeros(0).double()
    heights = torch.zeros(1, dtype=torch.float64)
    tree = Multipliers(
        torch.tensor(splits).long(), torch.tensor(stages).long(), heights, gaussian(0, 2, seed=0), values
    )
    with pytest.raises(ProblemError, match=message):
        check_maximum(Xt, Activation(0.0), Lambda, tree)
