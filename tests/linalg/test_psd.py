"""The rank rule and thin factors, against numpy's pinv; and batches of symmetric (3, 3) matrices, against LAPACK."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from instances import gaussian
from mpmath import mp
from torch import Tensor

from covopt.linalg.psd import RankRule, thin
from covopt.linalg.three import eigenvectors, largest_eigenvalue

shapes = st.tuples(st.integers(1, 7), st.integers(1, 7), st.integers(0, 7), st.integers(0, 10**6))


def low_rank(N: int, n: int, r: int, seed: int) -> Tensor:
    """(N, n) of rank min(r, N, n) with singular values 1 to 2."""
    U = torch.linalg.qr(gaussian(N, N, seed=seed)).Q
    V = torch.linalg.qr(gaussian(n, n, seed=seed + 1)).Q
    k = min(r, N, n)
    return (U[:, :k] * torch.linspace(1.0, 2.0, k, dtype=torch.float64)) @ V[:, :k].T


@given(shapes)
def test_against_dense_pseudo_inverses(shape: tuple[int, int, int, int]) -> None:
    N, n, r, seed = shape
    Z, A, C = low_rank(*shape), gaussian(N, 3, seed=seed + 2), gaussian(n, 2, seed=seed + 3)
    factor = thin(Z)
    inverse = torch.from_numpy(np.linalg.pinv(Z.numpy(), rcond=1e-10))
    assert int(factor.rank) == min(r, N, n)
    exact = {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(factor.solve(A), inverse @ A, **exact)
    torch.testing.assert_close(factor.solve_transposed(C), inverse.T @ C, **exact)
    torch.testing.assert_close(factor.solve_gram(A), inverse.T @ inverse @ A, **exact)
    torch.testing.assert_close(factor.project(A), Z @ inverse @ A, **exact)
    torch.testing.assert_close(factor.reject(A), A - Z @ inverse @ A, **exact)
    basis = factor.U[:, factor.significant > 0]
    torch.testing.assert_close(basis @ basis.T @ A, factor.project(A), **exact)
    torch.testing.assert_close(basis.T @ basis, torch.eye(len(basis.T), dtype=torch.float64), **exact)


@given(shapes, st.sampled_from((1e-6, 1e-2, 3.0)))
def test_tikhonov_against_dense_inverses(shape: tuple[int, int, int, int], t: float) -> None:
    N, n, _, seed = shape
    Z, A, C = low_rank(*shape), gaussian(N, 3, seed=seed + 2), gaussian(n, 2, seed=seed + 3)
    factor = thin(Z, RankRule(tikhonov=t))
    exact = mp.matrix(Z.tolist())  # of 40 digits: in double precision the dense inverse would be the worse one
    with mp.workdps(40):
        inverse = torch.tensor(((exact * exact.T + t * mp.eye(N)) ** -1).tolist(), dtype=torch.float64)
    scaled = {"rtol": 1e-9, "atol": 1e-13 / t}
    torch.testing.assert_close(factor.solve_gram(A), inverse @ A, **scaled)
    torch.testing.assert_close(factor.solve(A), Z.T @ inverse @ A, **scaled)
    torch.testing.assert_close(factor.solve_transposed(C), inverse @ Z @ C, **scaled)


def test_batches_are_their_members() -> None:
    Z = torch.stack([low_rank(5, 4, r, r) for r in range(5)])
    A = gaussian(5, 5, 3, seed=9)
    batch = thin(Z)
    assert batch.rank.tolist() == [0, 1, 2, 3, 4]
    for k in range(5):
        one = thin(Z[k])
        torch.testing.assert_close(batch.project(A)[k], one.project(A[k]), rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(batch.solve_gram(A)[k], one.solve_gram(A[k]), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(("dtype", "above", "below"), [(torch.float64, 2e-10, 5e-11), (torch.float32, 2e-5, 5e-6)])
def test_the_rule_is_relative_to_the_largest(dtype: torch.dtype, above: float, below: float) -> None:
    for scale in (1e-12, 1.0, 1e12):
        kept = scale * torch.diag(torch.tensor([1.0, above, below], dtype=dtype))
        assert int(thin(kept).rank) == 2
        assert thin(kept).solve(kept).dtype == dtype
    Z = torch.diag(torch.tensor([1.0, 1e-3], dtype=torch.float64))
    assert (int(thin(Z).rank), int(thin(Z, RankRule(double=1e-2)).rank)) == (2, 1)


def test_zero_and_empty_factors() -> None:
    A = gaussian(4, 2, seed=0)
    for Z in (torch.zeros(4, 3, dtype=torch.float64), torch.zeros(4, 0, dtype=torch.float64)):
        factor = thin(Z)
        assert int(factor.rank) == 0
        assert torch.equal(factor.project(A), torch.zeros_like(A))
        assert torch.equal(factor.solve_gram(A), torch.zeros_like(A))
        assert factor.solve(A).shape == (Z.shape[1], 2)


def test_tall_factors_form_no_square_matrix() -> None:
    # (200,000)^2 entries would be 320 GB.
    Z = gaussian(200_000, 3, seed=0)
    A = Z @ gaussian(3, 2, seed=1)
    factor = thin(Z)
    torch.testing.assert_close(factor.project(A), A, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(Z.T @ factor.solve_gram(A), factor.solve(A), rtol=1e-9, atol=1e-12)


# ---- batches of symmetric (3, 3) matrices, equal and zero eigenvalues included
def batch(kind: str) -> torch.Tensor:
    A = torch.randn(400, 3, 3, generator=torch.Generator().manual_seed(0)).double()
    V = torch.linalg.qr(A)[0]
    spectrum = {
        "random": A.square().sum(dim=2),
        "equal": torch.ones(400, 3).double(),
        "two on top": torch.tensor([[1.0, 1.0, 1e-3]]).double().expand(400, 3),
        "nearly two on top": torch.tensor([[1.0, 1.0 - 1e-9, 0.5]]).double().expand(400, 3),
        "rank one": torch.tensor([[1e-3, 0.0, 0.0]]).double().expand(400, 3),
        "zero": torch.zeros(400, 3).double(),
        "diagonal": torch.tensor([[1.0, 2.0, 3.0]]).double().expand(400, 3),
    }[kind]
    if kind == "diagonal":
        return torch.diag_embed(spectrum)
    return V @ torch.diag_embed(spectrum) @ V.mT


@pytest.mark.parametrize("kind", ["random", "equal", "two on top", "nearly two on top", "rank one", "zero", "diagonal"])
def test_eigenvalues_and_eigenvectors(kind: str) -> None:
    G = 0.5 * (batch(kind) + batch(kind).mT)
    exact = torch.linalg.eigvalsh(G)
    bound = largest_eigenvalue((G[:, 0, 0], G[:, 1, 1], G[:, 2, 2]), (G[:, 0, 1], G[:, 0, 2], G[:, 1, 2]))
    assert (bound >= exact[:, 2]).all()
    assert (bound <= exact[:, 2] * (1 + 3e-6)).all()
    V = eigenvectors(G)
    torch.testing.assert_close(V.mT @ V, torch.eye(3).double().expand(400, 3, 3), rtol=0, atol=1e-14)
    T = V.mT @ G @ V
    scale = exact[:, 2].max()
    assert float((T - torch.diag_embed(T.diagonal(dim1=1, dim2=2))).abs().max()) <= 1e-14 * float(scale)
    torch.testing.assert_close(T.diagonal(dim1=1, dim2=2).sort(dim=1).values, exact, rtol=0, atol=1e-13 * float(scale))
