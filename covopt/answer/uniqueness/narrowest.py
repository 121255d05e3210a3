"""The fewest neurons of a polytope of optima, by enumerating its possible ends.

Pair j of opposite neurons has the sizes (e_j + o_j) / 2 and (e_j - o_j) / 2, with sum_j o_j m_j = B of 2 m numbers; one
of the two is not there where |o_j| = e_j. A vertex of the polytope has at most 2 m pairs with |o_j| < e_j, so that
J + 2 m neurons are enough. Fewer would leave 2 m - 1 pairs or less: then for some 2 m - 1 pairs, a vector n that is
orthogonal to their m_j, and some signs s of all the others

    n^T (B - sum_j s_j e_j m_j) = 0 .
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from numpy.typing import NDArray


def no_fewer(M: NDArray[np.float64], B: NDArray[np.float64], e: NDArray[np.float64], tolerance: float) -> bool:
    """Return True if it is proved that no optimum has fewer than J + k neurons.

    No combination comes near 0.

    Args:
        M: m_j in columns (k, J), J > k = 2 m; B (k,); e (J,).
        tolerance: up to which n^T (B - sum_j s_j e_j m_j) is known for unit n.
    """
    k, J = M.shape
    remaining = J - k + 1
    if math.comb(J, k - 1) << min(remaining, 64) > 2_000_000:  # too many choices and signs to go through
        return False
    free = np.array(list(combinations(range(J), k - 1)), dtype=int).reshape(-1, k - 1)
    fixed = np.array([np.setdiff1d(np.arange(J), chosen) for chosen in free])
    # The last right singular vector is orthogonal to the m_j chosen, whatever their rank.
    n = np.linalg.svd(M.T[free], full_matrices=True)[2][:, -1]
    parts = np.take_along_axis(n @ (M * e), fixed, axis=1)
    signs = 1.0 - 2.0 * ((np.arange(1 << remaining)[:, None] >> np.arange(remaining)) & 1)
    return bool((np.abs((n @ B)[:, None] - parts @ signs.T) > tolerance).all())
