"""The arrangement against brute force: every sign pattern, a dense circle, and its own claims about local maxima."""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from instances import cases

from covopt.model.activation import Activation
from covopt.model.problem import make_problem
from covopt.oracles.arrangement import ArrangementOracle, prefix_sums, row_rank
from covopt.oracles.oracle import oracle_values
from covopt.runtime.errors import ProblemError

SLOPES = (0.0, 0.3, -0.6, 0.99, 1.0)
CASES = list(cases("shallow_exact").values())


def circle(count: int, basis: torch.Tensor) -> torch.Tensor:
    """`count` unit directions in the plane of the two rows of `basis`."""
    angle = torch.linspace(0.0, 2.0 * math.pi, count, dtype=torch.float64)
    return torch.stack([angle.cos(), angle.sin()], dim=1) @ basis


def plain_value(X: np.ndarray, slope: float, Lambda: np.ndarray, q: np.ndarray) -> float:
    z = X @ q
    return float(np.linalg.norm(Lambda.T @ np.where(z >= 0, z, slope * z)))


def by_enumeration(X: np.ndarray, slope: float, Lambda: np.ndarray) -> float:
    """max h over the circle in plain NumPy: all sign patterns that occur, an eigenproblem for each, and all kinks."""
    angles = np.concatenate([np.arctan2(X[:, 1], X[:, 0]) + turn for turn in (np.pi / 2, -np.pi / 2)])
    angles = np.unique(np.mod(angles, 2 * np.pi))
    middles = np.append((angles[1:] + angles[:-1]) / 2, (angles[-1] + angles[0]) / 2 + np.pi)

    h = partial(plain_value, X, slope, Lambda)
    best = max(h(np.array([np.cos(t), np.sin(t)])) for t in angles)
    for t in middles:
        pattern = np.where(X @ [np.cos(t), np.sin(t)] >= 0, 1.0, slope)
        _, _, Vh = np.linalg.svd(Lambda.T @ (pattern[:, None] * X))
        # h at the eigenvector is a value of h wherever it lies, so both signs are candidates.
        best = max(best, h(Vh[0]), h(-Vh[0]))
    return best


@st.composite
def planes(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, float]:
    """(Xt, Lambda, slope) with repeated, scaled, antipodal, axis-parallel and zero rows among the random ones."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    N, m = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    X = rng.standard_normal((N, 2))
    if draw(st.booleans()):
        X = np.round(X)
    if draw(st.booleans()):
        X[:, 1] = 0.5  # one input and a bias
    for i in range(1, N):
        kind = draw(st.sampled_from(["keep", "keep", "copy", "opposite", "scaled", "zero"]))
        factor = {"keep": None, "copy": 1.0, "opposite": -1.0, "scaled": 3.1, "zero": 0.0}[kind]
        if factor is not None:
            X[i] = factor * X[rng.integers(i)]
    Lambda = np.round(rng.standard_normal((N, m)), draw(st.integers(0, 3)))
    return torch.as_tensor(X), torch.as_tensor(Lambda), draw(st.sampled_from(SLOPES))


def values_hold(X: torch.Tensor, Lambda: torch.Tensor, activation: Activation, answer, apart: float) -> None:
    """What an answer says about its directions: values, order, unit length, and that none comes twice."""
    W = answer.directions
    torch.testing.assert_close(W.norm(dim=1), torch.ones(len(W), dtype=W.dtype))
    torch.testing.assert_close(answer.values, oracle_values(X, activation, Lambda, W))
    assert (answer.values.diff() <= 0).all()
    assert len(W) == 1 or float(torch.pdist(W).min()) > apart


def claims_hold(X: torch.Tensor, Lambda: torch.Tensor, slope: float, answer, basis: torch.Tensor) -> None:
    """Whatever an answer says about itself, the bound and being local maxima as well."""
    activation, W = Activation(slope), answer.directions
    values_hold(X, Lambda, activation, answer, 1e-10)
    assert answer.upper_bound >= float(oracle_values(X, activation, Lambda, circle(5000, basis)).max())
    scale = float((Lambda.norm(dim=1) * X.norm(dim=1)).sum())
    assert answer.upper_bound - float(answer.values[0]) <= 1e-12 * scale
    rotated = W @ basis.T @ torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=W.dtype) @ basis
    for turn in (1e-6, -1e-6, 1e-5, -1e-5):
        nearby = oracle_values(X, activation, Lambda, W * math.cos(turn) + rotated * math.sin(turn))
        assert (nearby <= answer.values + 1e-13 * scale).all()


@settings(max_examples=250, deadline=None)
@given(planes())
@example((torch.eye(2).double(), torch.ones(2, 1).double(), 0.0))
@example((torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).double(), torch.ones(2, 1).double(), -0.6))
def test_equals_the_enumeration_of_all_patterns(plane: tuple[torch.Tensor, torch.Tensor, float]) -> None:
    X, Lambda, slope = plane
    answer = ArrangementOracle(X, Activation(slope))(Lambda)
    exact = by_enumeration(X.numpy(), slope, Lambda.numpy())
    scale = float((Lambda.norm(dim=1) * X.norm(dim=1)).sum())
    assert abs(float(answer.values[0]) - exact) <= 1e-12 * scale
    assert answer.upper_bound >= exact
    claims_hold(X, Lambda, slope, answer, torch.eye(2).double())


def test_the_bound_pays_for_sums_that_cancel() -> None:
    """h at the oracle's own directions in fractions, of copies of samples whose large multipliers cancel."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = np.repeat(rng.standard_normal((12, 2)), 2, axis=0)
        large = 1e7 * rng.standard_normal(12)
        Lambda = np.stack([large + rng.standard_normal(12), -large], axis=1).reshape(-1, 1)
        answer = ArrangementOracle(torch.as_tensor(X), Activation(0.0))(torch.as_tensor(Lambda))
        for w in answer.directions.tolist():
            z = [sum(Fraction(x) * Fraction(v) for x, v in zip(row, w, strict=True)) for row in X.tolist()]
            h = abs(sum(Fraction(a) * max(s, Fraction(0)) for a, s in zip(Lambda[:, 0].tolist(), z, strict=True)))
            assert h**2 <= Fraction(answer.upper_bound) ** 2 * sum(Fraction(v) ** 2 for v in w)


@pytest.mark.parametrize("slope", SLOPES)
@pytest.mark.parametrize("seed", range(4))
def test_finds_every_local_maximum(slope: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(9, 2, generator=generator).double()
    Lambda = torch.randn(9, 2, generator=generator).double()
    answer = ArrangementOracle(X, Activation(slope))(Lambda)
    values = oracle_values(X, Activation(slope), Lambda, circle(200_001, torch.eye(2).double())[:-1])
    peaks = values[(values > values.roll(1)) & (values >= values.roll(-1))].sort(descending=True).values
    assert len(peaks) == len(answer.values)
    torch.testing.assert_close(answer.values, peaks, rtol=1e-4, atol=1e-4)


def test_a_maximum_exactly_on_a_kink_is_found_once() -> None:
    answer = ArrangementOracle(torch.eye(2).double(), Activation())(torch.eye(2).double())
    # h = |(w_1)_+, (w_2)_+| is 1 on the whole first quadrant: the two ends of the plateau.
    assert sorted(map(tuple, answer.directions.abs().round(decimals=12).tolist())) == [(0.0, 1.0), (1.0, 0.0)]
    opposite = ArrangementOracle(torch.eye(2).double(), Activation())(torch.diag(torch.tensor([2.0, 1.0])).double())
    torch.testing.assert_close(opposite.directions[:1], torch.tensor([[1.0, 0.0]]).double())
    assert float(opposite.values[0]) == 2.0


@pytest.mark.parametrize("slope", SLOPES)
@pytest.mark.parametrize("rank", [1, 2])
def test_low_rank_in_many_dimensions(slope: float, rank: int) -> None:
    generator = torch.Generator().manual_seed(rank)
    X = (torch.randn(20, rank, generator=generator) @ torch.randn(rank, 6, generator=generator)).double()
    X = X[:, :1] @ X[:1] if rank == 1 else X[:, :2] @ torch.randn(2, 6, generator=generator).double()
    Lambda = torch.randn(20, 3, generator=generator).double()
    answer = ArrangementOracle(X, Activation(slope))(Lambda)
    assert row_rank(X) == rank
    W = torch.nn.functional.normalize(torch.randn(20_000, 6, generator=generator).double(), dim=1)
    assert answer.upper_bound >= float(oracle_values(X, Activation(slope), Lambda, W).max())
    if rank == 2:
        claims_hold(X, Lambda, slope, answer, torch.linalg.svd(X).Vh[:2])
    else:
        line = torch.linalg.svd(X).Vh[:1]
        both = oracle_values(X, Activation(slope), Lambda, torch.cat([line, -line]))
        torch.testing.assert_close(answer.values, both.sort(descending=True).values)


def test_one_column() -> None:
    X, Lambda = torch.tensor([[2.0], [-1.0], [0.0]]).double(), torch.tensor([[1.0], [-3.0], [5.0]]).double()
    answer = ArrangementOracle(X, Activation())(Lambda)
    assert answer.values.tolist() == [3.0, 2.0]
    assert answer.directions.flatten().tolist() == [-1.0, 1.0]


def test_rank_three_is_refused_and_a_neglected_part_is_paid_for() -> None:
    generator = torch.Generator().manual_seed(0)
    flat = torch.randn(30, 2, generator=generator).double() @ torch.randn(2, 5, generator=generator).double()
    bump = torch.randn(30, 5, generator=generator).double()
    Lambda = torch.randn(30, 2, generator=generator).double()
    for size in (1e-6, 1.0):
        with pytest.raises(ProblemError, match="rank"):
            ArrangementOracle(flat + size * bump, Activation())
    X = flat + 1e-12 * bump
    answer = ArrangementOracle(X, Activation())(Lambda)
    assert answer.upper_bound >= float(answer.values[0]) + 1e-12 * float(Lambda.norm())
    ascent = torch.nn.functional.normalize(answer.directions + 1e-12 * bump[:1], dim=1)
    assert answer.upper_bound >= float(oracle_values(X, Activation(), Lambda, ascent).max())


@pytest.mark.parametrize("case", [c for c in CASES if len(c["X"][0]) + (c["beta"] > 0) <= 2], ids=lambda c: c["name"])
def test_covers_the_certified_cases(case: dict) -> None:
    problem = make_problem(case["X"], case["Y"], lam=case["lam"], loss=case["loss"], bias=case["beta"])
    answer = ArrangementOracle(problem.Xt, problem.activation)(problem.Y)
    planar = problem.Xt[:, problem.Xt.abs().sum(dim=0) > 0]  # without constant-zero columns
    exact = by_enumeration(planar.numpy(), problem.activation.slope, problem.Y.numpy())
    assert exact <= answer.upper_bound <= exact * (1 + 1e-10)


@given(st.integers(1, 40))
@settings(max_examples=40, deadline=None)
def test_prefix_sums(count: int) -> None:
    terms = torch.randn(count, 2, 3, generator=torch.Generator().manual_seed(count)).double()
    torch.testing.assert_close(prefix_sums(terms), terms.cumsum(0))
