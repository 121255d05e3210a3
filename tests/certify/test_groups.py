"""Multipliers that groups share: never below the true maximum, what the dense proof says, and true bounds."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from instances import gaussian

import covopt
from covopt.certify.dual import dual_bound
from covopt.certify.proof import Target
from covopt.certify.proofs import attainable
from covopt.certify.relaxation.ground import make_ground
from covopt.certify.relaxation.grouping import Grouped, _Search, check_groups, halved
from covopt.certify.relaxation.groups import Groups, _least, prove_groups
from covopt.certify.relaxation.lift import make_piece
from covopt.certify.relaxation.repair import _with_rounding, prove
from covopt.certify.spectral import spectral_bound
from covopt.linalg.rounding import to_unit_scale
from covopt.model.activation import Activation
from covopt.model.problem import make_problem
from covopt.oracles.arrangement import ArrangementOracle
from covopt.runtime.loop import Budget, Certificate

SLOPES = (0.0, 0.3, -0.5)


def data(N: int, d: int, m: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets, or dual points."""
    return gaussian(N, d, seed=seed), gaussian(N, m, seed=seed + 1)


def some(N: int, k: int, Lambda: torch.Tensor, seed: int) -> Groups:
    """Random multipliers for Lambda at unit scale; c is large enough for some, and not for all of them."""
    generator = torch.Generator().manual_seed(seed)
    unit = float(torch.linalg.matrix_norm(to_unit_scale(Lambda)[0], 2)) ** 2
    diagonal = unit * (3.0 + 2.0 * torch.rand(N, generator=generator, dtype=torch.float64))
    shared = unit / N * torch.rand(3, k, k, generator=generator, dtype=torch.float64)
    return Groups(diagonal, torch.arange(N) % k, shared)


def spelt_out(groups: Groups, length: torch.Tensor) -> torch.Tensor:
    """Pi of `lift`, (2N, 2N), in units of |x_i|."""
    A = torch.eye(groups.shared.shape[1], dtype=torch.float64)[groups.labels]
    pp, nn, pn = (A @ M @ A.T for M in groups.shared)
    pn = pn - 0.5 * torch.diag(groups.diagonal)
    Pi = torch.cat([torch.cat([0.5 * (pp + pp.T), pn], 1), torch.cat([pn.T, 0.5 * (nn + nn.T)], 1)])
    twice = torch.cat([length, length])
    return twice[:, None] * Pi * twice


@given(st.integers(0, 10**6), st.sampled_from(SLOPES), st.integers(1, 9))
@settings(max_examples=12)
def test_the_small_matrices_prove_what_the_large_one_does(seed: int, slope: float, k: int) -> None:
    X, Lambda = data(12, 4, 2, seed=seed)
    ground, groups = make_ground(X, Activation(slope)), some(12, k, Lambda, seed)
    Lambda, size = to_unit_scale(Lambda)
    dense = math.sqrt(prove(make_piece(ground), Lambda, spelt_out(groups, ground.length)))
    found = prove_groups(ground, size * Lambda, groups) / size
    # The dense proof may add to c what it lacks, and has nothing else to choose.
    assert found == math.inf or dense <= found * (1.0 + 1e-8)
    assert found == math.inf or dense >= 0.9 * found


@pytest.mark.parametrize("slope", SLOPES)
def test_negative_shared_multipliers_count_as_none(slope: float) -> None:
    X, Lambda = data(12, 4, 2, seed=3)
    ground, groups = make_ground(X, Activation(slope)), some(12, 3, Lambda, 3)
    without = prove_groups(ground, Lambda, Groups(groups.diagonal, groups.labels, 0.0 * groups.shared))
    assert prove_groups(ground, Lambda, Groups(groups.diagonal, groups.labels, -0.1 * groups.shared)) == without
    assert math.isfinite(without)


@given(st.integers(0, 10**6), st.sampled_from(SLOPES), st.sampled_from((1e-70, 1.0, 1e70)), st.booleans())
@settings(max_examples=12)
def test_no_multipliers_prove_less_than_the_maximum(seed: int, slope: float, scale: float, spoilt: bool) -> None:
    X, Lambda = data(15, 2, 2, seed=seed)
    X[:4] = X[0]
    X[5] = 0.0
    X, groups = scale * X, some(15, 4, Lambda, seed)
    if spoilt:
        groups = Groups(groups.diagonal - 3.0 * groups.diagonal.min(), groups.labels, -groups.shared)
    problem = make_problem(X, Lambda, lam=0.1, bias=0.0, activation="relu")
    problem = dataclasses.replace(problem, activation=Activation(slope))
    true = float(ArrangementOracle(problem.Xt, problem.activation)(Lambda).values[0])
    proved = check_groups(problem, Lambda, groups)
    assert proved >= true * (1.0 - 1e-12)
    assert not spoilt or proved == math.inf


@pytest.mark.parametrize(
    ("loss", "activation", "bias"),
    [
        ("mse", "relu", 1.0),
        ("mse", "leaky:0.3", 0.0),
        ("mse", "leaky:-0.5", 0.0),
        ("cross_entropy", "relu", 0.0),
        ("huber", "relu", 1.0),
        ("logistic", "relu", 1.0),
        ("interpolate", "relu", 0.0),
    ],
)
def test_bounds_lie_between_the_spectral_bound_and_certified_optima(loss: str, activation: str, bias: float) -> None:
    X, Y = data(30, 1 if bias else 2, 3, seed=1)
    X[7] = 0.0
    Y = Y[:, :1].sign() if loss == "logistic" else Y
    if loss == "cross_entropy":
        Y = torch.eye(3, dtype=torch.float64)[Y.argmax(dim=1)]
    if loss == "interpolate":
        Y = X.clamp_min(0.0) @ Y[:2]
    lam = None if loss == "interpolate" else 1e-2
    result = covopt.solve(X, Y, lam=lam, loss=loss, activation=activation, bias=bias, certify="fast", time_limit=20.0)
    assert result.gap < 1e-3
    found = _Search(result.problem).run(8, Target(), Budget(5.0)).proof
    assert found.kind is Certificate.GROUPS
    assert spectral_bound(result.problem) < found.lower <= result.cost
    again = dual_bound(result.problem, found.Lambda, check_groups(result.problem, found.Lambda, found.groups))
    assert again.lower == pytest.approx(found.lower, rel=1e-4)


def test_scales_of_the_data_do_not_matter() -> None:
    X, Y = data(24, 4, 2, seed=2)
    bounds = []
    for x, y in ((1.0, 1.0), (1e-40, 1.0), (1e40, 1e30)):
        problem = make_problem(x * X, y * Y, lam=1e-2 * x * y, bias=0.0)
        bounds.append(_Search(problem).run(8, Target(), Budget(60.0)).proof.lower / y**2)
    assert bounds == pytest.approx([bounds[0]] * 3, rel=0.02)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_few_samples_and_inputs_of_zero(rows: int) -> None:
    Y = torch.ones(rows, 1, dtype=torch.float64)
    alike = Grouped.prove(make_problem(0.0 * Y, Y, lam=1e-2), Target(time_limit=2.0)).proof
    assert 0.0 <= alike.lower <= 1e-2 / 1.01 * (1.0 + 1e-9)  # the minimum of (1 - b)^2 + lam b^2
    assert Grouped.prove(make_problem(0.0 * Y, 0.0 * Y, lam=1e-2), Target(time_limit=2.0)).proof.lower == 0.0


def test_halves_are_halves() -> None:
    rows = gaussian(21, 3, seed=3)
    labels = torch.zeros(21, dtype=torch.int64)
    for k in (1, 2, 4):
        labels = halved(rows, labels, k)
        sizes = torch.bincount(labels, minlength=2 * k)
        assert int(sizes.max()) - int(sizes.min()) <= 1


def test_many_samples_get_a_stored_and_checked_bound(tmp_path: Path) -> None:
    X, Y = data(620, 8, 1, seed=4)
    result = covopt.solve(X, Y, lam=0.05, certify="full", time_limit=6.0, gap=1e-3)
    assert result.certificate == Certificate.GROUPS
    assert attainable(result.problem) is Certificate.GROUPS
    assert result.lower > 1.5 * spectral_bound(result.problem)
    result.save(tmp_path / "run")
    assert covopt.verify(tmp_path / "run").passed
    stored = dict(np.load(tmp_path / "run" / "certificate.npz"))
    assert stored["shared"].size + stored["diagonal"].size < 620 * 40


def test_no_number_is_proved_that_leaves_the_matrix_indefinite() -> None:
    """[[tau - 1, 1/2], [1/2, 1]] is positive semi-definite from tau = 5/4 on; with -1 for the 1, for no tau."""
    S = torch.tensor([[-1.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    assert 1.25 <= _least(S, 1, 1.2, 0.0) <= 1.3
    assert 1.25 <= _with_rounding(S, 1, 1.2, 0.0) <= 1.3
    S[1, 1] = -1.0
    assert _least(S, 1, 1.0, 0.0) == math.inf
