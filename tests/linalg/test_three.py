"""Batches of symmetric (3, 3) matrices against LAPACK, equal and zero eigenvalues included."""

import pytest
import torch

from covopt.linalg.three import eigenvectors, largest_eigenvalue


def batch(kind: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(400, 3, 3, generator=generator).double()
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
    G = batch(kind)
    G = 0.5 * (G + G.mT)
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
