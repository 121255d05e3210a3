"""Interpolation: named rows, and the span of the atoms against brute force over random neurons."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from instances import gaussian

from covopt.linalg.psd import thin
from covopt.model.feasible import check_interpolation
from covopt.model.problem import Problem, make_problem, with_bias
from covopt.runtime.errors import InfeasibleError


def feasible(problem: Problem) -> bool:
    try:
        check_interpolation(problem)
    except InfeasibleError:
        return False
    return True


def brute_force(problem: Problem, seed: int) -> bool:
    """Whether Y lies in the span of 400 random neurons of the last hidden layer, which is then the span of all."""
    Zs = problem.Xt
    for layer in range(problem.depth - 1):
        Zs = with_bias(problem.activation(Zs @ gaussian(Zs.shape[1], 400, seed=seed + layer) / 10.0), problem.beta)
    return bool(thin(Zs).reject(problem.Y).abs().max() < 1e-7)


@st.composite
def lattice_problems(draw: st.DrawFn) -> Problem:
    """Small whole numbers: many equal, parallel, opposite and zero rows; targets arbitrary, or a network's."""
    samples, inputs = draw(st.integers(2, 8)), draw(st.integers(1, 3))
    entries = st.lists(st.integers(-2, 2), min_size=inputs, max_size=inputs)
    X = torch.tensor(draw(st.lists(entries, min_size=samples, max_size=samples)), dtype=torch.float64)
    beta, depth = draw(st.sampled_from((0.0, 0.0, 1.0))), draw(st.sampled_from((2, 2, 3)))
    sigma = draw(st.sampled_from(("relu", "leaky:0.1", "leaky:-0.5", "linear")))
    seed = draw(st.integers(0, 10**6))
    problem = make_problem(X, torch.zeros(samples, 2), depth=depth, bias=beta, activation=sigma)
    kind, size = draw(st.sampled_from(("random", "positive", "odd", "network"))), X.norm(dim=1)
    if kind == "random":
        Y = gaussian(samples, 2, seed=seed)
    elif kind == "positive":  # homogeneous, consistent along rays, far from linear
        Y = torch.stack([size, X.abs().sum(dim=1)], dim=1)
    elif kind == "odd":  # consistent along rays, odd, not linear
        Y = torch.stack([X[:, 0] * X[:, -1].abs() / (size + 1e-300), size * torch.sign(X[:, 0])], dim=1)
    else:
        hidden = with_bias(problem.activation(problem.Xt @ gaussian(inputs + 1, 6, seed=seed)), beta)
        Y = hidden @ gaussian(7, 2, seed=seed + 1)
    return make_problem(X, Y, depth=depth, bias=beta, activation=sigma)


@settings(max_examples=300)
@given(lattice_problems(), st.integers(0, 10**6))
def test_the_verdict_is_brute_force_s(problem: Problem, seed: int) -> None:
    assert feasible(problem) == brute_force(problem, seed)


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(2, 7), st.sampled_from((0.0, 0.1, -0.5)))
def test_the_span_of_the_atoms_has_the_derived_form(seed: int, samples: int, slope: float) -> None:
    # rank [sigma(X w) for many w] = rank [X, E], and the two ranges are equal.
    X = torch.randint(-2, 3, (samples, 2), generator=torch.Generator().manual_seed(seed)).double()
    problem = make_problem(X, X, bias=0.0, activation=f"leaky:{slope}")
    atoms = thin(problem.activation(X @ gaussian(2, 300, seed=seed)))
    lines: dict[tuple[int, int], list[int]] = {}
    for i, (a, b) in enumerate(X.int().tolist()):
        if (a, b) != (0, 0):
            key = next((k for k in lines if k[0] * b == k[1] * a), (a, b))
            lines.setdefault(key, []).append(i)
    E = torch.zeros(samples, len(lines), dtype=torch.float64)
    for column, rows in enumerate(lines.values()):
        E[rows, column] = X[rows].norm(dim=1)
    form = thin(torch.cat([X, E], dim=1))
    assert int(atoms.rank) == int(form.rank)
    basis = form.U[:, form.significant > 0]
    torch.testing.assert_close(atoms.project(basis), basis, rtol=1e-8, atol=1e-8)


def message_of(X: object, Y: object, **options: object) -> str:
    with pytest.raises(InfeasibleError) as caught:
        check_interpolation(make_problem(X, Y, **options))  # type: ignore[arg-type]
    message = str(caught.value)
    assert ("\n" in message, message.count(". "), message[-1]) == (False, 0, ".")
    return message


def test_equal_rows_are_named() -> None:
    X, Y = [[1, 2], [3, 4], [5, 6], [3, 4]], [0, 1, 2, 3]
    for depth in (2, 4):
        for activation in ("relu", "linear"):
            assert message_of(X, Y, depth=depth, activation=activation).startswith("Rows 1 and 3 of X are equal")
    check_interpolation(make_problem(X, [0, 1, 2, 1]))


@pytest.mark.parametrize("activation", ["relu", "leaky:0.3", "linear"])
@pytest.mark.parametrize("depth", [2, 3])
def test_rays_are_named(depth: int, activation: str) -> None:
    X = [[1.0, 2.0], [0.1, 0.7], [2.5, 5.0]]
    message = message_of(X, [1.0, 0.0, 3.0], bias=0.0, depth=depth, activation=activation)
    assert message.startswith("Rows 0 and 2 of X lie on one ray (x_2 = 2.5 x_0)")
    if activation != "linear":
        check_interpolation(make_problem(X, [1.0, 0.0, 2.5], bias=0.0, depth=depth, activation=activation))
        check_interpolation(make_problem(X, [1.0, 0.0, 3.0], depth=depth, activation=activation))


def test_zero_rows_are_named() -> None:
    X = [[1.0, 2.0], [0.0, 0.0]]
    assert message_of(X, [1.0, 0.5], bias=0.0).startswith("Row 1 of X is zero")
    check_interpolation(make_problem(X, [1.0, 0.0], bias=0.0))
    check_interpolation(make_problem(X, [1.0, 0.5], bias=0.1))


def test_linear_networks_need_targets_in_the_range() -> None:
    X = [[0.0], [1.0], [2.0]]
    assert "outside the range of [X, beta 1]" in message_of(X, [1.0, 2.0, 4.0], activation="linear", depth=3)
    check_interpolation(make_problem(X, [1.0, 2.0, 3.0], activation="linear", depth=3))
    assert "range" in message_of([[1.0], [-1.0]], [1.0, 1.0], activation="linear", bias=0.0)


def test_the_span_needs_more_than_pairs() -> None:
    # Three lines in the plane, odd targets: two lines are free, the third must follow linearly. Depth 3 is free.
    lines = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]], dtype=torch.float64)
    X = torch.cat([lines, -lines])
    odd = torch.tensor([1.0, 5.0, 2.0], dtype=torch.float64)
    Y = torch.cat([odd, -odd])
    assert message_of(X, Y, bias=0.0).startswith("Y is outside the span of the atoms")
    check_interpolation(make_problem(X, Y, bias=0.0, depth=3))
    check_interpolation(make_problem(X, Y))
    check_interpolation(make_problem(X, X @ torch.tensor([1.0, 2.0], dtype=torch.float64) + X.norm(dim=1), bias=0.0))
    check_interpolation(make_problem(X[[0, 1, 3, 4]], Y[[0, 1, 3, 4]], bias=0.0))


def test_rays_are_found_through_rounding() -> None:
    base = gaussian(30, 5, seed=0)
    c = gaussian(30, seed=1).abs() + 0.1
    X = torch.cat([base, base * c[:, None]])
    right = torch.cat([base.norm(dim=1), c * base.norm(dim=1)])
    check_interpolation(make_problem(X, right, bias=0.0))
    wrong = right.clone()
    wrong[41] *= 1.01
    assert message_of(X, wrong, bias=0.0).startswith("Rows 11 and 41 of X lie on one ray")


def test_lengths_far_apart_keep_their_direction() -> None:
    base = gaussian(6, 3, seed=0)
    X = torch.cat([base * 1e-70, base * 1e70])
    Y = torch.cat([torch.zeros(6, dtype=torch.float64), torch.ones(6, dtype=torch.float64)])
    check_interpolation(make_problem(base * 1e-70, Y[6:], bias=0.0))
    assert feasible(make_problem(X, 0.0 * Y, bias=0.0))


def test_many_rows_form_no_square_matrix() -> None:
    # 20,000 rows that all share a line: the (N, N) matrix would take 3.2 GB, and so would E.
    X, Y = gaussian(20_000, 64, seed=0), gaussian(20_000, 2, seed=1)
    X[10_000:] = -2.0 * X[:10_000]
    assert "span of the atoms" in message_of(X, Y, bias=0.0)
    check_interpolation(make_problem(X, X @ gaussian(64, 2, seed=2) + X.norm(dim=1, keepdim=True), bias=0.0))
    Y[15_000] = Y[3]
    X[15_000] = X[3]
    Y[15_000, 0] += 1.0
    assert message_of(X, Y).startswith("Rows 3 and 15000 of X are equal")
