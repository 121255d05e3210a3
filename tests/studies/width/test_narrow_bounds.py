"""What is proved of narrow networks: against brute force, random networks, closed forms, and long training."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from instances import gaussian

import covopt
from covopt.answer.result import DualPoint
from covopt.certify.pieces import least_squares
from covopt.model.problem import make_problem
from covopt.model.weights import evaluate, outputs
from covopt.solvers.training.exact_fit import fit_exactly
from covopt.solvers.training.trainer import initial
from covopt.studies.width.width_bounds import narrow_bounds

WAVE = np.linspace(-1.0, 1.0, 16)[:, None], np.sin(2.0 * np.pi * np.linspace(-1.0, 1.0, 16)[:, None])
# The least costs of 3, 4 and 5 neurons on the wave at lam 1e-3, of 150, 400 and 150 starts of SciPy's L-BFGS.
TRAINED = {3: 0.1846894, 4: 0.0904313, 5: 0.0882864}


def affine_residual(x: np.ndarray, T: np.ndarray) -> float:
    A = np.stack([x, np.ones_like(x)], axis=1)
    return float(np.sum((A @ np.linalg.lstsq(A, T, rcond=None)[0] - T) ** 2))


@pytest.mark.parametrize(("pieces", "columns"), [(1, 1), (2, 1), (3, 2), (4, 2)])
def test_runs_are_the_best_of_all(pieces: int, columns: int) -> None:
    rng = np.random.default_rng(pieces)
    x, T = rng.standard_normal(8), rng.standard_normal((8, columns))
    order = np.argsort(x)
    runs = ([0, *cut, 8] for cut in itertools.combinations(range(1, 8), pieces - 1))
    best = min(sum(affine_residual(x[order][a:b], T[order][a:b]) for a, b in itertools.pairwise(run)) for run in runs)
    found = least_squares(x, T, pieces)[-1]
    assert found == pytest.approx(best, rel=1e-9)
    assert found <= best * (1.0 + 1e-12)


@pytest.mark.parametrize("kink", [500.0, 501.0, 502.0])
def test_runs_that_meet_within_a_block_prove_nothing_of_it(kink: float) -> None:
    x = np.arange(1000.0)  # more samples than blocks
    one, two = least_squares(x, np.abs(x - kink)[:, None], 2)
    assert one > 1.0
    assert two == 0.0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(0, 4), st.sampled_from([1.0, 1e-150, 1e150]))
@example(seed=0, samples=900, kinks=2, scale=1.0)  # more samples than blocks
def test_no_function_of_few_kinks_is_nearer(seed: int, samples: int, kinks: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    x = np.round(rng.standard_normal(samples), int(rng.integers(0, 4))) * scale
    T = rng.standard_normal((samples, 1))
    places = rng.choice(x, kinks)
    A = np.stack([np.ones_like(x), x / scale, *(np.maximum(x - t, 0.0) / scale for t in places)], axis=1)
    if rng.random() < 0.5:
        T = A @ rng.standard_normal((A.shape[1], 1)) + 1e-9 * T
    nearest = float(np.sum((A @ np.linalg.lstsq(A, T, rcond=None)[0] - T) ** 2))
    rounding = 1e-14 * float(np.linalg.norm(T))  # of the residual that this reference squares
    assert least_squares(x, T, kinks + 1)[-1] <= (nearest**0.5 + rounding) ** 2 * (1.0 + 1e-9)


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([2, 3]),
    st.integers(1, 3),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from(["relu", "leaky:0.3"]),
    st.floats(0.05, 3.0),
)
def test_no_narrow_network_of_one_input_is_below(
    seed: int, depth: int, width: int, bias: float, activation: str, scale: float
) -> None:
    X, Y = gaussian(9, 1, seed=seed), gaussian(9, 2, seed=seed + 1)
    problem = make_problem(X, Y, lam=0.01, depth=depth, bias=bias, activation=activation)
    dual = None
    if depth == 2:
        dual = covopt.solve(X, Y, lam=0.01, bias=bias, activation=activation, time_limit=0.3).dual
    bounds = [bound.lower for bound in narrow_bounds(problem, dual=dual, most=4)]
    bounds += [0.0] * (4 - len(bounds))
    assert bounds == sorted(bounds, reverse=True)
    weights = [gaussian(*W.shape, seed=seed) * scale for W in initial(problem, [width] * (depth - 1), seed)]
    for network in (weights, fit_exactly(problem, weights)):
        assert evaluate(problem, network).total >= bounds[width]


def test_three_neurons_are_proved_too_few_for_the_wave() -> None:
    result = covopt.solve(*WAVE, lam=1e-3, time_limit=20.0)
    found = narrow_bounds(result.problem, dual=result.dual, most=6)
    assert len(found) == 4  # of 4 neurons nothing is proved that does not hold for all widths
    assert 1.5 * result.cost < found[3].lower <= TRAINED[3]
    assert "4 linear pieces" in found[3].reason


def test_the_rank_counts_from_the_proved_level() -> None:
    # Prop. 14 with a penalty: X = I, Y = diag(s), no bias: each neuron is one s, so that
    # L_n = sum over the n largest of the least (1/N) (s - t)^2 + 2 lam t, and s^2 / N for the others.
    s, lam, N = np.array([4.0, 3.0, 2.0, 1.0]), 0.05, 4
    kept, lost = 2.0 * lam * s - N * lam**2, s**2 / N
    problem = make_problem(np.eye(4), np.diag(s), lam=lam, bias=0.0)
    # |sigma(w)| <= 1 for unit w, so that Lambda = I is feasible, and D(I) is the minimum over all widths.
    found = narrow_bounds(problem, dual=DualPoint(np.eye(4), 1.0), most=5)
    known = [kept[:n].sum() + lost[n:].sum() for n in range(4)]
    assert [bound.lower for bound in found] == pytest.approx(known, rel=1e-6)
    assert all(bound.lower <= cost for bound, cost in zip(found, known, strict=True))


def test_one_neuron_draws_a_path_through_all_targets() -> None:
    # A grid of m x m points: the shortest path has m^2 - 1 steps of length 1, and the inputs are sqrt(2) (m - 1) apart.
    grid = np.stack(np.meshgrid(np.arange(6.0), np.arange(6.0)), axis=-1).reshape(-1, 2)
    problem = make_problem(grid, grid, depth=8)
    known = 8.0 * (35.0 / (5.0 * math.sqrt(2.0))) ** (2.0 / 8.0)
    assert narrow_bounds(problem, layer=3, most=3)[1].lower == pytest.approx(known, rel=1e-5)
    twice = make_problem(np.repeat(grid, 2, axis=0), np.repeat(grid, 2, axis=0), depth=8)
    assert narrow_bounds(twice, layer=3, most=3)[1].lower == pytest.approx(known, rel=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 5), st.sampled_from([0.0, 1.0]), st.floats(0.1, 3.0))
def test_no_network_with_a_layer_of_one_neuron_is_below(seed: int, depth: int, bias: float, scale: float) -> None:
    X = gaussian(12, 2, seed=seed)
    narrow = 1 + seed % (depth - 2)
    widths = [1 if layer == narrow else 4 for layer in range(1, depth)]
    drawn = make_problem(X, torch.zeros(12, 2), lam=1.0, depth=depth, bias=bias)
    weights = [gaussian(*W.shape, seed=seed) * scale for W in initial(drawn, widths, seed)]
    problem = make_problem(X, outputs(drawn, weights, drawn.X), depth=depth, bias=bias)
    norm = sum(float(W.square().sum()) for W in weights)
    assert all(bound.lower <= norm for bound in narrow_bounds(problem, layer=narrow, most=2)[1:])


def test_a_rank_that_the_allowed_misfit_hides_is_not_asked_for() -> None:
    rng = np.random.default_rng(8)
    B, E = rng.random((2, 7)), rng.random((14, 7))
    problem = make_problem(np.eye(7), B.T @ B + 1e-11 * E.T @ E, bias=0.0)
    assert [bound.lower for bound in narrow_bounds(problem, most=8)] == [math.inf, math.inf]


def test_kinks_that_an_exact_fit_needs() -> None:
    x = np.linspace(0.0, 1.0, 9)[:, None]
    zigzag = (np.arange(9) % 2)[:, None]
    # Each run of an affine function holds two samples at most: 5 runs, 4 kinks.
    assert [bound.lower for bound in narrow_bounds(make_problem(x, zigzag), most=9)] == [math.inf] * 4
    # Two layers of n neurons make (n + 1)^2 pieces.
    assert [bound.lower for bound in narrow_bounds(make_problem(x, zigzag, depth=3), most=9)] == [math.inf] * 2


def test_nothing_is_said_of_narrow_networks_with_a_free_linear_skip() -> None:
    """Without any neuron their outputs are affine, of any rank: they may cost nothing."""
    X = gaussian(6, 2, seed=0)
    problem = make_problem(X, X @ gaussian(2, 2, seed=1), lam=0.1, bias="free", free=True, skip=True)
    assert narrow_bounds(problem, most=3) == []
    assert narrow_bounds(make_problem(X, problem.Y, lam=0.1, bias="free", free=True), most=3)[0].lower > 0.0
