"""The row space of the inputs, and the error of computing in its coordinates.

With orthonormal rows Q (k, d) that span the directions of the row space of X that the rank rule keeps, P = X Q^T, every
x_i^T w is p_i^T (Q w) up to what Q does not span. Two numbers bound that error, whatever Q is:

    neglected >= |X - P Q|_F     and     stretch >= |Q|_2,

the latter by |Q Q^T - I|_1. sigma is 1-Lipschitz, so for unit w h(w) = |Lambda^T sigma(X w)| changes by at most
|Lambda|_F neglected, and |Q w| <= stretch.

**Rounding.** An entry of P Q is a sum of k terms, so |X - P Q|_F is off by at most (k + 2) k^(1/2) u |X|_F, since
|Q|_F is k^(1/2); the norm of N d squares costs N d u, relative. An entry of Q Q^T is a sum of d terms, so |Q Q^T - I|_2
is off by at most k (d + 2) u. For small k the code uses a factor of 8 instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from covopt.linalg.psd import row_space
from covopt.linalg.rounding import UNIT_ROUNDOFF, to_unit_scale


@dataclass(frozen=True)
class RowSpace:
    """X in the coordinates of its row space."""

    X: Float[Tensor, "N d"]  # the inputs (N, d), divided by `size`
    size: float  # a power of two
    Q: Float[Tensor, "k d"]  # orthonormal rows (k, d), and rows of zeros up to the requested number of coordinates
    P: Float[Tensor, "N k"]  # X Q^T (N, k)
    rank: int  # the rank of X, by the rank rule; at most k
    neglected: float  # a bound on |X - P Q|_F
    stretch: float  # a bound on the norm of Q

    @staticmethod
    def of(Xt: Float[Tensor, "N d"], *, least: int = 0, whole: int = 0) -> RowSpace:
        """Return the row space, computed in float64, with at least `least` coordinates; added ones are 0.

        With at most `whole` columns, Q is the identity and nothing is lost.
        """
        X, size = to_unit_scale(Xt.double())
        d = X.shape[1]
        basis = row_space(X)
        if d <= whole:
            Q = torch.eye(max(d, least), d, dtype=X.dtype, device=X.device)
            return RowSpace(X, size, Q, X @ Q.T, len(basis), 0.0, 1.0)
        Q = torch.cat([basis, basis.new_zeros(max(0, least - len(basis)), d)])
        P = X @ Q.T
        return RowSpace(X, size, Q, P, len(basis), neglected(X, P, Q), _stretch(basis))


def neglected(X: Float[Tensor, "N d"], P: Float[Tensor, "N k"], Q: Float[Tensor, "k d"]) -> float:
    """Return a bound on |X - P Q|_F for any P, rounding included."""
    missing = float((X - P @ Q).norm()) * (1 + X.numel() * UNIT_ROUNDOFF)
    k, d = Q.shape
    return missing + max(8.0, k**0.5) * (d + 3) * UNIT_ROUNDOFF * float(X.norm())


def _stretch(basis: Float[Tensor, "r d"]) -> float:
    defect = basis @ basis.T - torch.eye(len(basis), dtype=basis.dtype, device=basis.device)
    r, d = basis.shape
    return 1.0 + float(defect.abs().sum()) + max(8, r) * (d + 3) * UNIT_ROUNDOFF
