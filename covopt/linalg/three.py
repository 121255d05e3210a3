"""Symmetric (3, 3) matrices by the million.

Eigenvalues in closed form, eigenvectors by Jacobi rotations. Each step works on a whole batch at once; a library's
batched solver takes the matrices one by one and is ten times slower.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def largest_eigenvalue(
    diagonal: tuple[Tensor, Tensor, Tensor], off: tuple[Tensor, Tensor, Tensor]
) -> Float[Tensor, "*shape"]:
    """Return an upper bound on the largest eigenvalue of the positive semi-definite G.

    It is at most 2e-6 t above the eigenvalue, where 3 t = tr G. `diagonal` holds G_11, G_22, G_33 and `off` G_12, G_13,
    G_23, all of one shape. With 6 p^2 = |G - t I|_F^2 the eigenvalue is t + 2 p cos(phi / 3), where cos phi = r = det(G
    - t I) / (2 p^3). Rounding moves r by at most 100 u and so 2 p cos(phi / 3), p <= t, by at most the root of that,
    1.1e-7 t; 1e-6 t is added.

    Source: Smith, Eigenvalues of a symmetric 3 x 3 matrix, Comm. ACM 4 (1961).
    """
    (xx, yy, zz), (xy, xz, yz) = diagonal, off
    t = (xx + yy + zz) / 3.0
    a, b, c = xx - t, yy - t, zz - t
    p = ((a * a + b * b + c * c + 2.0 * (xy * xy + xz * xz + yz * yz)) / 6.0).sqrt()
    determinant = a * (b * c - yz * yz) - xy * (xy * c - yz * xz) + xz * (xy * yz - b * xz)
    cube = 2.0 * p * p * p
    r = torch.where(cube > 0, (determinant / cube).clamp(-1.0, 1.0), 1.0)
    return t * (1.0 + 1e-6) + 2.0 * p * (r.acos() / 3.0).cos()


def eigenvectors(G: Float[Tensor, "B 3 3"], sweeps: int = 8, small: float = 1e-16) -> Float[Tensor, "B 3 3"]:
    """Return V with orthonormal columns and V^T G V nearly diagonal, in no order.

    Cyclic Jacobi, at most `sweeps` sweeps. It stops when no off-diagonal entry is above `small` times the trace, and
    promises nothing: a proof has to look at V^T G V.

    Source: Golub, Van Loan, Matrix Computations, 8.5.
    """
    entries = {(i, j): G[:, i, j].clone() for i in range(3) for j in range(i, 3)}
    size = small * (entries[0, 0] + entries[1, 1] + entries[2, 2])
    columns = list(torch.eye(3, dtype=G.dtype, device=G.device)[:, :, None].expand(3, 3, len(G)).unbind(0))
    for _ in range(sweeps):
        largest = torch.stack([entries[0, 1], entries[0, 2], entries[1, 2]]).abs().amax(dim=0)
        if bool((largest <= size).all()):
            break
        for p, q, r in ((0, 1, 2), (0, 2, 1), (1, 2, 0)):
            _rotate(entries, columns, p, q, r)
    return torch.stack(columns, dim=1).permute(2, 0, 1)


def _rotate(entries: dict[tuple[int, int], Tensor], columns: list[Tensor], p: int, q: int, r: int) -> None:
    """Turn coordinates p < q so that entry (p, q) becomes 0; r is the third one."""
    across, pr, qr = entries[p, q], (min(p, r), max(p, r)), (min(q, r), max(q, r))
    difference = 0.5 * (entries[q, q] - entries[p, p])
    reach = difference.abs() + torch.hypot(difference, across)
    tangent = torch.where(reach > 0, across * torch.where(difference < 0, -1.0, 1.0).to(across.dtype) / reach, 0.0)
    cosine = torch.rsqrt(1.0 + tangent * tangent)
    sine = tangent * cosine
    entries[p, p], entries[q, q] = entries[p, p] - tangent * across, entries[q, q] + tangent * across
    entries[p, q] = torch.zeros_like(across)
    one, two = entries[pr], entries[qr]
    entries[pr], entries[qr] = cosine * one - sine * two, sine * one + cosine * two
    one, two = columns[p], columns[q]
    columns[p], columns[q] = cosine * one - sine * two, sine * one + cosine * two
