"""Tr[K B^+] with its adjoint, and the Cholesky path to it: against dense pseudo-inverses and finite differences."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from instances import DEVICES, gaussian, slope
from references.hidden_loss import trace_gradients, trace_quotient
from torch import Tensor

from covopt.linalg.cholesky import FullRankFactor, factorize, lower_gram, reciprocal_condition
from covopt.linalg.psd import Factor, RankRule, thin
from covopt.linalg.pseudo_inverse import trace_value

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
    assert difference == pytest.approx(predicted(Z, Zs, D, Dp @ Q.T + P @ Dq.T, RankRule()), rel=1e-7, abs=1e-8)


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
    assert value.dtype == Z.grad.dtype == torch.float32
    assert float(value.detach()) == pytest.approx(float(trace_quotient(Z.detach().double(), Zs.double())), rel=1e-5)


# ---- the Cholesky path against singular values and pinv, on every device; and when it is not taken
shapes = st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(0, 10**6))


def spread(N: int, n: int, seed: int, condition: float = 30.0, rank: int | None = None) -> Tensor:
    """(N, n) of the given rank with singular values from 1 down to 1 / condition."""
    k = min(N, n) if rank is None else rank
    U, V = torch.linalg.qr(gaussian(N, N, seed=seed)).Q, torch.linalg.qr(gaussian(n, n, seed=seed + 1)).Q
    return (U[:, :k] * torch.logspace(0.0, -np.log10(condition), k, dtype=torch.float64)) @ V[:, :k].T


@pytest.mark.parametrize("rule", [RankRule(), TIKHONOV], ids=["pseudo-inverse", "tikhonov"])
@given(size=shapes)
def test_it_answers_what_the_singular_values_answer(rule: RankRule, size: tuple[int, int, int]) -> None:
    N, n, seed = size
    Z, A, C = spread(N, n, seed), gaussian(N, 3, seed=seed + 2), gaussian(n, 2, seed=seed + 3)
    one, other = factorize(Z, rule), thin(Z, rule)
    assert isinstance(one, FullRankFactor)
    assert int(one.rank) == int(other.rank)
    for name, argument in (("project", A), ("reject", A), ("solve", A), ("solve_transposed", C), ("solve_gram", A)):
        found, expected = getattr(one, name)(argument), getattr(other, name)(argument)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10 * float(argument.abs().max()))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("shape", [(40, 60), (60, 40), (50, 50)])
@pytest.mark.parametrize("rank", [None, 7])
def test_trace_and_gradients_in_batches(
    shape: tuple[int, int], rank: int | None, dtype: torch.dtype, device: str
) -> None:
    (N, d), accurate = shape, 1e-9 if dtype == torch.float64 else 5e-3
    Zs = torch.stack([spread(N, d, seed, rank=rank) for seed in (0, 5)])
    Z = Zs @ gaussian(2, d, 4, seed=9)
    inverse = [np.linalg.pinv((B @ B.T).numpy(), rcond=1e-9) for B in Zs]
    value = [np.trace(P @ (z @ z.T).numpy()) for z, P in zip(Z, inverse, strict=True)]
    by_Z = np.stack([2.0 * P @ z.numpy() for z, P in zip(Z, inverse, strict=True)])
    by_Zs = np.stack([-2.0 * P @ (z @ z.T).numpy() @ P @ B.numpy() for z, B, P in zip(Z, Zs, inverse, strict=True)])
    for alone in (False, True):
        leaves = [A.to(device, dtype)[0] if alone else A.to(device, dtype) for A in (Z, Zs)]
        leaves = [leaf.clone().requires_grad_() for leaf in leaves]
        f = trace_quotient(*leaves)
        f.sum().backward()
        assert (f.dtype, f.device.type) == (dtype, device)
        np.testing.assert_allclose(f.detach().cpu().double(), value[0] if alone else value, rtol=accurate)
        for leaf, expected in zip(leaves, (by_Z, by_Zs), strict=True):
            expected = expected[0] if alone else expected
            np.testing.assert_allclose(leaf.grad.cpu().double(), expected, atol=accurate * np.abs(expected).max())


@given(st.integers(0, 10**6), st.sampled_from([(8, 12), (12, 8), (9, 9)]))
def test_ill_conditioned_factors_lose_nothing(seed: int, shape: tuple[int, int]) -> None:
    # At condition 5,000 the Gram matrix holds 8 digits; refined solves are as good as those by singular values.
    Z = spread(*shape, seed, condition=5e3)
    exact = np.linalg.pinv(Z.numpy())
    A = gaussian(shape[0], 2, seed=seed + 4)
    found = factorize(Z)
    assert isinstance(found, FullRankFactor)
    expected = torch.from_numpy(exact) @ A
    assert float((found.solve(A) - expected).norm() / expected.norm()) < 5e-12
    assert float((found.project(A) - thin(Z).project(A)).norm()) < 1e-10 * float(A.norm())


@pytest.mark.parametrize("shape", [(30, 30), (30, 50), (50, 30)])
@pytest.mark.parametrize("least", [0.0, 1e-15, 1e-9, 1e-6])
def test_where_the_rank_is_in_doubt_the_singular_values_decide(shape: tuple[int, int], least: float) -> None:
    U, _, Vh = torch.linalg.svd(gaussian(*shape, seed=0), full_matrices=False)
    s = torch.ones(30, dtype=torch.float64)
    s[-1] = least
    Z = (U * s) @ Vh
    found = factorize(Z)
    assert isinstance(found, Factor)
    assert int(found.rank) == int(thin(Z).rank) == (30 if least > 1e-10 else 29)
    assert isinstance(factorize(torch.stack([Z, U @ Vh])), Factor)


def test_the_callers_rank_rule_decides() -> None:
    Z = torch.diag(torch.tensor([1.0, 1e-2, 1e-2], dtype=torch.float64))
    assert isinstance(factorize(Z), FullRankFactor)
    found = factorize(Z, RankRule(double=5e-2))
    assert isinstance(found, Factor)
    assert int(found.rank) == 1


@pytest.mark.parametrize("scale", [0.0, 1e-200, 1e200])
def test_zero_and_extreme_scales(scale: float) -> None:
    assert int(factorize(scale * gaussian(6, 4, seed=0)).rank) == (4 if scale else 0)
    assert factorize(torch.zeros(3, 0, dtype=torch.float64)).project(torch.ones(3, 1, dtype=torch.float64)).norm() == 0


def test_the_lower_gram_matrix() -> None:
    A = gaussian(2, 23, 11, seed=0)
    torch.testing.assert_close(lower_gram(A, block=5).tril(), (A @ A.mT).tril())


@pytest.mark.parametrize("condition", [1.0, 10.0, 1e3, 1e6])
def test_the_condition_estimate(condition: float) -> None:
    for seed in range(3):
        B = spread(200, 200, seed, condition) + 0.0
        L = torch.linalg.cholesky(B @ B.T)
        true = 1.0 / np.linalg.cond(L.numpy()) ** 2
        assert 0.99 * true <= float(reciprocal_condition(L)) <= 10.0 * true


def test_gradients_take_both_paths_to_the_same_place() -> None:
    for d in (5, 12):
        Z, Zs = gaussian(8, 3, seed=0), spread(8, d, 1)
        for one, other in zip(trace_gradients(Z, Zs, factorize(Zs)), trace_gradients(Z, Zs, thin(Zs)), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-9)
