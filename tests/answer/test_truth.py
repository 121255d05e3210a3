"""A bound of an exact fit holds for every network whose misfit is allowed, whatever the data: no statement is false."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from adversary import attack
from hypothesis import given, settings, strategies as st

import covopt
from covopt.certify.proofs import agreed
from covopt.certify.spectral import spectral_bound
from covopt.model.problem import make_problem
from covopt.model.scalars import SMALLEST

ULP, FAINT = 2.0**-52, [[1.0, 0.0], [0.0, 1e-11]]
SIX = np.random.default_rng(0).standard_normal((6, 6))
SIX[1] = SIX[0] * (1.0 + ULP)
SIX_TARGETS = SIX[:, :1] * [[1.0], [1.0 + 3e-11], [1.0], [1.0], [1.0], [1.0]]

# (X, Y, options, the cost of a network that fits): with bias, constants cost |y|^2 in the last layer alone.
DEGENERATE = {
    "rows one ulp apart": ([[1.0], [1.0 + ULP]], [[1.0], [1.0 + 1e-10]], {"depth": 3}, 1.0 + 1e-9),
    "the same for two layers": ([[1.0], [1.0 + ULP]], [[1.0], [1.0 + 1e-10]], {}, 1.0 + 1e-9),
    "equal rows": ([[1.0], [1.0], [2.0]], [[1.0], [1.0 + 5e-10], [1.0]], {"depth": 3}, 1.0 + 1e-8),
    "a zero row": ([[0.0], [1.0]], [[1e-10], [1.0]], {"depth": 3, "bias": 0.0}, 3.0),
    "the same, two layers": ([[0.0], [1.0]], [[1e-10], [1.0]], {"bias": 0.0}, 2.0),
    "linear, small singular value": (FAINT, [[1.0], [5e-10]], {"bias": 0.0, "activation": "linear", "depth": 3}, 3.0),
    "linear, one within the misfit": (FAINT, [[1.0], [5e-11]], {"bias": 0.0, "activation": "linear"}, 2.0),
    # F = x_1: neurons of +x_1 and -x_1, two norms of 1 each for both layers.
    "two of six rows one ulp apart": (SIX, SIX_TARGETS, {"bias": 0.0}, 4.0),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_no_bound_is_above_a_network_that_fits(name: str) -> None:
    X, Y, options, known = DEGENERATE[name]
    result = covopt.solve(X, Y, time_limit=2, **options)  # type: ignore[arg-type]
    assert result.lower is None or 0.0 < result.lower <= known
    assert result.gap is None or result.gap >= 0.0
    assert not math.isfinite(result.cost) or result.residual <= result.problem.allowed_misfit


@pytest.mark.parametrize("depth", [2, 3])
def test_what_is_feasible_is_what_a_misfit_allows(depth: int) -> None:
    allowed = make_problem([[1.0], [1.0]], [[1.0], [1.0]], depth=depth).allowed_misfit
    for apart, fits in ((1.9, True), (2.1, False)):
        Y = [[1.0], [1.0 + apart * allowed]]
        if fits:  # half-way between them, both are missed by what is allowed
            result = covopt.solve([[1.0], [1.0]], Y, depth=depth, time_limit=2, max_iterations=20)
            assert result.lower is None or result.lower <= 1.0 + 1e-6
        else:
            with pytest.raises(covopt.InfeasibleError, match="Rows 0 and 1"):
                covopt.solve([[1.0], [1.0]], Y, depth=depth)
            assert spectral_bound(make_problem([[1.0], [1.0]], Y, depth=depth)) == math.inf


@pytest.mark.parametrize("scale", [1e-160, 1e-150, 1e-3, 1e70])
def test_distances_do_not_underflow(scale: float) -> None:
    # F = x_1 / scale: L (1 / scale)^(2/L) for one singular value, and the pair's bound is no more.
    for depth in (2, 3, 6):
        problem = make_problem(np.eye(2), [[1.0], [0.0]], bias=0.0, depth=depth)
        problem = replace(problem, X=scale * problem.X)  # data beyond 1e-75 and 1e75 are refused at the door
        assert 0.0 < spectral_bound(problem) <= depth * scale ** (-2.0 / depth)


def test_a_change_of_tiny_targets_is_no_rounding() -> None:
    problem = make_problem(np.eye(2), [[1.0], [1.0]], bias=0.0)
    problem = replace(problem, Y=1e-150 * problem.Y)
    assert not problem.fits_as_well(1e-150, 0.0)  # the zero network
    assert problem.fits_as_well(1e-163, 0.0)
    assert not problem.fits_as_well(1.5e-160, 1e-160)  # twice the misfit, but more than is allowed


def test_a_contradiction_is_an_error_and_rounding_is_not() -> None:
    problem = make_problem(np.eye(2), [[1.0], [0.0]], bias=0.0)
    weights = [torch.tensor([[1.0, 0.0, 0.0]]).double(), torch.tensor([[1.0, 0.0]]).double()]
    assert agreed(problem, weights, 2.0, 1.5) == 1.5
    assert agreed(problem, weights, 2.0, 2.0 * (1.0 + 2.0**-51)) == 2.0
    for lower in (2.001, math.inf, math.nan):
        with pytest.raises(covopt.InternalError, match="defect of covopt"):
            agreed(problem, weights, 2.0, lower)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_the_spectral_bound_under_attack(seed: int) -> None:
    found = attack(seed, plain=True)
    if found is not None and min(np.abs(found.X).max(), np.abs(found.Y).max()) >= SMALLEST:  # others are refused
        problem = make_problem(found.X, found.Y, **found.options)  # type: ignore[arg-type]
        bound = spectral_bound(problem)
        assert math.isfinite(bound)
        assert bound <= found.upper * (1.0 + 1e-9), found.says
