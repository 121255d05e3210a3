"""Trees of the relaxation where samples are few: a maximiser lies in the span of the samples it does not switch off."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from instances import gaussian
from references.relaxed import relaxed_maximum

from covopt.certify.relaxation import signs
from covopt.certify.relaxation.bound import check_maximum
from covopt.certify.relaxation.ground import FREE, KINK, NEGATIVE, POSITIVE, STRICT, make_ground, make_span
from covopt.certify.relaxation.lift import EQUAL, SIGNED, Stationarity, make_piece
from covopt.certify.relaxation.repair import prove
from covopt.model.activation import Activation

RELU = Activation(0.0)


def faces_maximum(X: torch.Tensor, Lambda: torch.Tensor) -> tuple[float, torch.Tensor]:
    """max |Lambda^T relu(X w)| over unit w, and a maximiser, by all 3^N faces of the arrangement.

    On a face, a part of a linear space, h^2 is a quadratic form; a maximum in its interior is a top eigenvector there.
    """
    best, where = 0.0, X[0]
    for pattern in itertools.product((1, 0, -1), repeat=len(X)):
        s = torch.tensor(pattern)
        zero = X[s == 0]
        basis = torch.linalg.svd(zero)[2][torch.linalg.matrix_rank(zero) :] if len(zero) else torch.eye(X.shape[1])
        if not len(basis) or not bool((s > 0).any()):
            continue
        _, values, Vt = torch.linalg.svd(Lambda[s > 0].T @ X[s > 0] @ basis.to(X).T)
        for w in (Vt[0] @ basis.to(X), -Vt[0] @ basis.to(X)):
            z = X @ w
            if float(values[0]) > best and bool((z[s > 0] > 0).all()) and bool((z[s < 0] < 0).all()):
                best, where = float(values[0]), w
    return best, where


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 5), st.integers(0, 3), st.integers(1, 3), st.integers(0, 10**6))
def test_the_maximiser_lies_in_the_span(N: int, extra: int, m: int, seed: int) -> None:
    X, Lambda = gaussian(N, N + extra, seed=seed), gaussian(N, m, seed=seed + 1)
    value, w = faces_maximum(X, Lambda)
    assert value > 0.0
    on = X[X @ w > -1e-9]
    assert float((w - torch.linalg.pinv(on) @ on @ w).norm()) < 1e-6


@settings(deadline=None, max_examples=6)
@given(st.integers(2, 5), st.integers(0, 2), st.integers(1, 3), st.integers(0, 10**6))
def test_trees_close_above_the_exact_maximum(N: int, extra: int, m: int, seed: int) -> None:
    X, Lambda = gaussian(N, N + extra, seed=seed), gaussian(N, m, seed=seed + 1)
    value, _ = faces_maximum(X, Lambda)
    for nodes in (1, 5, 41):
        found = relaxed_maximum(X, RELU, Lambda, max_nodes=nodes)
        assert value * (1 - 1e-12) <= found.maximum
        assert value * (1 - 1e-12) <= check_maximum(X, RELU, Lambda, found.multipliers)
    assert found.maximum <= value * (1 + 1e-2)


@pytest.mark.parametrize("seed", range(4))
def test_correlated_samples_with_few_neurons_on(seed: int) -> None:
    """Most samples off at the maximum: the case in which the span matters most."""
    X = gaussian(6, 8, seed=seed) + 2.0 * gaussian(1, 8, seed=seed + 100)
    Lambda = gaussian(6, 2, seed=seed + 200) - torch.tensor([0.5, 0.0])
    value, _ = faces_maximum(X, Lambda)
    assert value * (1 - 1e-12) <= relaxed_maximum(X, RELU, Lambda, max_nodes=61).maximum <= value * (1 + 1e-2)


def test_the_span_of_a_piece() -> None:
    X = gaussian(4, 4, seed=3)
    ground = make_ground(X, RELU)
    states = torch.tensor([1, -1, 0, -1])
    span = make_span(ground, states)
    assert span.basis.shape == (2, 4)
    rows = ground.P[[0, 2]]
    assert float((rows - rows @ span.basis.T @ span.basis).norm()) <= span.error * float(rows.norm()) * 10
    assert 0.0 < span.error < 1e-12
    assert make_piece(ground, states).B.shape == (2 + 3, 2 + 1)
    assert make_span(ground, torch.tensor([2, -1, 0, 3])).basis.shape == (2, 4)
    # Dependent samples, a leaky activation, and samples that all are off: the whole space.
    twice = make_ground(torch.cat([X[:1], X[:1], X[1:]]), RELU)
    assert len(make_span(twice, torch.tensor([0, 0, -1, -1, -1])).basis) == 4
    assert len(make_span(make_ground(X, Activation(0.1)), states).basis) == 4
    assert len(make_span(ground, torch.full((4,), -1)).basis) == 4


def known(z: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """States that are true of z, each as exact as it happens."""
    exact = torch.where(z > 1e-9, STRICT, torch.where(z < -1e-9, NEGATIVE, KINK))
    rough = torch.where(z < -1e-9, FREE, torch.where(torch.rand(len(z), generator=rng) < 0.5, POSITIVE, FREE))
    return torch.where(torch.rand(len(z), generator=rng) < 0.5, exact, rough)


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 5), st.integers(0, 3), st.integers(1, 3), st.booleans(), st.integers(0, 10**6))
def test_a_maximiser_satisfies_every_row_and_no_multipliers_prove_less(
    N: int, extra: int, m: int, correlated: bool, seed: int
) -> None:
    """Brute force over the faces of the arrangement gives the maximiser; kinks come with correlated samples."""
    rng = torch.Generator().manual_seed(seed)
    X, Lambda = gaussian(N, N + extra, seed=seed), gaussian(N, m, seed=seed + 1)
    if correlated:
        X, Lambda = X + 2.0 * gaussian(1, N + extra, seed=seed + 2), Lambda - 0.5
    value, w = faces_maximum(X, Lambda)
    if value == 0.0:
        return
    ground = make_ground(X, RELU)
    z, inside = X @ w, value / ground.size
    given_ = Stationarity(Lambda, (inside * 0.99) ** 2, (inside * (1.0 + float(torch.rand((), generator=rng)))) ** 2)
    for _ in range(3):
        piece = make_piece(ground, known(z, rng), None, given_)
        p = (z.clamp_min(0.0) / ground.size / ground.length)[piece.undecided]
        y = piece.B @ torch.cat([piece.span.basis @ (ground.basis @ w), p])
        products, size = y[:, None] * y, piece.reach[:, None] * piece.reach
        assert bool((y.abs() <= piece.reach * (1.0 + 1e-6)).all())
        assert bool(((products / size)[piece.rule == EQUAL].abs() < 1e-7).all())
        assert bool(((products / size)[piece.rule == SIGNED] > -1e-7).all())
        for scale in (1e-3, 1.0, 1e3):
            Pi = scale * gaussian(len(y), len(y), seed=seed)
            assert prove(piece, Lambda, Pi) >= inside**2 * (1.0 - 1e-12)


@pytest.mark.parametrize("seed", range(48))
def test_trees_with_stationarity_from_the_root_on_degenerate_samples(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Correlated, repeated, nearly repeated, badly scaled and whole-numbered samples, at scales from 1e-100 to 1e50."""
    monkeypatch.setattr(signs.SignBranch, "late", math.inf)
    N, kind = 2 + seed % 4, seed % 6
    X, Lambda = gaussian(N, N + seed % 3, seed=seed), gaussian(N, 1 + seed % 3, seed=seed + 9999)
    if kind == 1:
        X, Lambda = X + 2.0 * gaussian(1, X.shape[1], seed=seed + 5), Lambda - 0.5
    elif kind == 2:
        X[0] = X[-1]
    elif kind == 3:
        X[0] = X[-1] + 10.0 ** (-2 - seed % 7) * X[0]
    elif kind == 4:
        X *= 10.0 ** torch.linspace(-4.0, 4.0, N).double()[:, None]
    elif kind == 5:
        X, Lambda = X.round(), Lambda.round()
    value, _ = faces_maximum(X, Lambda)
    if value == 0.0:
        return
    scale = (1.0, 1e-100, 1e50)[seed % 3]
    found = relaxed_maximum(scale * X, RELU, Lambda, target=0.999 * value * scale if seed % 2 else 0.0, max_nodes=41)
    assert check_maximum(scale * X, RELU, Lambda, found.multipliers) >= value * scale * (1.0 - 1e-9)
