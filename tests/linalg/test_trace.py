"""Tr[K B^+] and its adjoint: values against dense pseudo-inverses, gradients against finite differences."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from instances import gaussian, slope
from references.hidden_loss import trace_quotient
from torch import Tensor

from covopt.linalg.psd import RankRule, thin
from covopt.linalg.pseudo_inverse import trace_gradients, trace_value

sizes = st.tuples(st.integers(2, 7), st.integers(1, 4), st.integers(1, 7), st.integers(0, 10**6))
TIKHONOV = RankRule(tikhonov=0.3)


def conditioned(N: int, d: int, seed: int) -> Tensor:
    """(N, d) of full rank with singular values 1 to 2, so that differences are accurate."""
    k = min(N, d)
    U, V = torch.linalg.qr(gaussian(N, k, seed=seed)).Q, torch.linalg.qr(gaussian(d, k, seed=seed + 1)).Q
    return (U * torch.linspace(1.0, 2.0, k, dtype=torch.float64)) @ V.T


def measured(Z: Tensor, Zs: Tensor, D: Tensor, Ds: Tensor, rule: RankRule) -> float:
    return slope(lambda t: trace_quotient(Z + t * D, Zs + t * Ds, rule), step=1e-3)


def predicted(Z: Tensor, Zs: Tensor, D: Tensor, Ds: Tensor, rule: RankRule) -> float:
    by_Z, by_Zs = trace_gradients(Z, Zs, thin(Zs, rule))
    return float((by_Z * D).sum() + (by_Zs * Ds).sum())


@given(sizes)
def test_value_against_dense(size: tuple[int, int, int, int]) -> None:
    N, n, d, seed = size
    Z, Zs = gaussian(N, n, seed=seed), conditioned(N, d, seed + 1)
    dense = np.trace(Z.numpy() @ Z.numpy().T @ np.linalg.pinv(Zs.numpy() @ Zs.numpy().T, rcond=1e-8))
    assert float(trace_quotient(Z, Zs)) == pytest.approx(dense, rel=1e-12)
    network = Z.numpy().T @ np.linalg.pinv(Zs.numpy().T)
    assert float(trace_value(Z, thin(Zs))) == pytest.approx((network**2).sum(), rel=1e-12)
    shifted = np.trace(Z.numpy().T @ np.linalg.inv(Zs.numpy() @ Zs.numpy().T + 0.3 * np.eye(N)) @ Z.numpy())
    assert float(trace_quotient(Z, Zs, TIKHONOV)) == pytest.approx(shifted, rel=1e-12)


@pytest.mark.parametrize("rule", [RankRule(), TIKHONOV], ids=["pseudo-inverse", "tikhonov"])
@pytest.mark.parametrize("feasible", [True, False])
@given(size=sizes)
def test_gradients_at_full_rank(feasible: bool, rule: RankRule, size: tuple[int, int, int, int]) -> None:
    N, n, d, seed = size
    Zs = conditioned(N, d, seed)
    Z = gaussian(N, n, seed=seed + 2)
    Z = Zs @ gaussian(d, n, seed=seed + 2) if feasible else Z
    D, Ds = gaussian(N, n, seed=seed + 3), gaussian(N, d, seed=seed + 4)
    D, Ds = D / D.norm(), Ds / Ds.norm()
    scale = float(Z.square().sum())
    assert measured(Z, Zs, D, Ds, rule) == pytest.approx(predicted(Z, Zs, D, Ds, rule), rel=1e-7, abs=1e-9 * scale)


@given(st.integers(0, 10**6), st.booleans())
def test_gradients_along_directions_that_keep_a_deficient_rank(seed: int, feasible: bool) -> None:
    # Zs = P Q^T with both factors moving: rank 3 of a possible 5 all along, and the range turns.
    P, Q = conditioned(7, 3, seed), conditioned(5, 3, seed + 1)
    Zs = P @ Q.T
    Z = P @ gaussian(3, 2, seed=seed + 2) if feasible else gaussian(7, 2, seed=seed + 2)
    Dp, Dq, D = gaussian(7, 3, seed=seed + 3), gaussian(5, 3, seed=seed + 4), gaussian(7, 2, seed=seed + 5)
    difference = slope(lambda t: trace_quotient(Z + t * D, (P + t * Dp) @ (Q + t * Dq).T), step=1e-4)
    expected = predicted(Z, Zs, D, Dp @ Q.T + P @ Dq.T, RankRule())
    assert difference == pytest.approx(expected, rel=1e-7, abs=1e-8)


def test_the_range_term_vanishes_on_the_feasible_set_and_only_there() -> None:
    Zs = conditioned(6, 3, 0)
    inside, outside = Zs @ gaussian(3, 2, seed=1), gaussian(6, 2, seed=1)
    for Z, vanishes in ((inside, True), (outside, False)):
        factor = thin(Zs)
        A = factor.solve_gram(Z)
        without = -2.0 * A @ factor.solve(Z).T
        difference = float((trace_gradients(Z, Zs, factor)[1] - without).abs().max())
        assert (difference < 1e-13) == vanishes


def test_the_value_jumps_up_when_the_rank_rises() -> None:
    # Two copies of one sample; moving them apart makes W meet a second condition, W (1, -1)^T = 0 here.
    Zs = torch.tensor([[1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    Z = torch.ones(2, 1, dtype=torch.float64)
    apart = Zs + 1e-6 * torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    assert float(trace_quotient(Z, Zs)) == pytest.approx(1.0, rel=1e-12)
    assert float(trace_quotient(Z, apart)) == pytest.approx(2.0, rel=1e-5)


@given(st.integers(0, 10**6))
def test_derivatives_in_the_covariances(seed: int) -> None:
    # d Tr[K B^+] = Tr[B^+ dK] - |A^T dB^(1/2)|^2 on a curve B + t C C^T of constant rank, Im C in Im B.
    Zs = conditioned(6, 4, seed)
    Z, C, E = (Zs @ gaussian(4, 2, seed=seed + k) for k in (1, 2, 3))
    factor = thin(Zs)

    def along(t: float) -> Tensor:
        K, B = Z @ Z.T + t * E @ E.T, Zs @ Zs.T + t * C @ C.T
        return (K * torch.from_numpy(np.linalg.pinv(B.numpy(), rcond=1e-9))).sum()

    expected = (E * factor.solve_gram(E)).sum() - (factor.solve_gram(Z).T @ C).square().sum()
    assert slope(along, step=1e-4) == pytest.approx(float(expected), rel=1e-7, abs=1e-8)


@pytest.mark.parametrize("rule", [RankRule(), TIKHONOV], ids=["pseudo-inverse", "tikhonov"])
@pytest.mark.parametrize("d", [3, 5, 8])
def test_gradcheck(rule: RankRule, d: int) -> None:
    Z = gaussian(2, 5, 2, seed=0).requires_grad_()
    Zs = torch.stack([conditioned(5, d, 1), conditioned(5, d, 2)]).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: trace_quotient(a, b, rule), (Z, Zs), atol=1e-8, rtol=1e-6)


def test_single_precision_stays_single() -> None:
    Z, Zs = gaussian(5, 2, seed=0).float().requires_grad_(), conditioned(5, 3, 1).float()
    value = trace_quotient(Z, Zs)
    value.backward()
    assert value.dtype == torch.float32
    assert Z.grad.dtype == torch.float32
    assert float(value.detach()) == pytest.approx(float(trace_quotient(Z.detach().double(), Zs.double())), rel=1e-5)
