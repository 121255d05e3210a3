"""The best prices of one cell, by a cone programme over a few neurons of the dictionary (Clarabel).

Where the sign of L_i is known, e_k L_i <= 0 allows Z_ki in [e_k L_i, 0] whether k is active on sample i or not, and one
such price serves both kinds if they are in the same class. That loses nothing, because L . sigma is concave in that
entry, and leaves 2^n + 2^(N - n) kinds of 2 (2^N - 1), n the number of positive entries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from jaxtyping import Float, Int

from covopt.certify.shares.cells import Cell
from covopt.certify.shares.prices import Instance, Prices
from covopt.runtime.lazy import lazy

clarabel: Any = lazy("clarabel")

OFF, ON, EITHER = 0, 1, 2
"""On one sample: not active, active, and a price for both."""
NO_WEIGHT = 1e-6
"""Paths below this part of the largest are 0, which a solver reaches only approximately."""


@dataclass(frozen=True)
class Merged:
    """Kinds with one price vector each.

    Attributes:
        signs: of their output weights (R,).
        states: OFF, ON or EITHER on each sample (R, N).
        labels: their classes (R,).
        members: the merged kind of each kind (P,).
    """

    signs: Float[np.ndarray, " R"]
    states: Int[np.ndarray, "R N"]
    labels: Int[np.ndarray, " R"]
    members: Int[np.ndarray, " P"]

    @staticmethod
    def of(instance: Instance, cell: Cell, signs: Float[np.ndarray, " N"]) -> Merged:
        """Return the kinds of a cell, merged where the signs of L allow it; `signs` is 0 where none is known."""
        kinds = instance.kinds
        labels, states = cell.labels(kinds.features), kinds.active.astype(int)
        for i in np.flatnonzero(signs):
            flipped = kinds.features.copy()
            flipped[i + 1] = ~flipped[i + 1]
            free = (kinds.signs * signs[i] < 0.0) & (cell.labels(flipped) == labels)
            states[free, i] = EITHER
        keys = np.column_stack([labels, kinds.signs, states])
        rows, members = np.unique(keys, axis=0, return_inverse=True)
        return Merged(rows[:, 1], rows[:, 2:].astype(int), rows[:, 0].astype(int), members.ravel())


@dataclass(frozen=True)
class Paths:
    """The network that the multipliers of a programme describe.

    Attributes:
        merged: the kinds of its hidden neurons.
        weights: m, from all neurons of the dictionary and the bias to each kind (R, J + 1).
    """

    merged: Merged
    weights: Float[np.ndarray, "R _"]

    def network(self, directions: Float[np.ndarray, "J d"]) -> list[Float[np.ndarray, "_ _"]]:
        """Return W_1, W_2 and W_3, without neurons of no weight, for these directions of the dictionary."""
        size = np.abs(self.weights)
        paths = np.where(size > NO_WEIGHT * size.max(initial=0.0), self.weights, 0.0)
        above, below = np.flatnonzero(paths.any(axis=1)), np.flatnonzero(paths[:, :-1].any(axis=0))
        W_2 = paths[above][:, [*below, -1]]
        outputs = np.sqrt(np.linalg.norm(W_2, axis=1))
        W_3 = np.append(self.merged.signs[above] * outputs, 0.0)
        return [directions[below], W_2 / outputs[:, None], W_3[None]]


def solve(
    instance: Instance,
    cell: Cell,
    signs: Float[np.ndarray, " N"],
    neurons: Int[np.ndarray, " n"],
    scale: float,
    tolerance: float,
) -> tuple[Prices, Paths] | None:
    """Return the best prices for these neurons of the dictionary, and their network; None if the solver fails.

    Args:
        instance: the problem.
        cell: the classes and their shares.
        signs: of L, 0 where none is known.
        neurons: of the dictionary.
        scale: the value of s at which the prices are the best; it does not matter where the problem is homogeneous.
        tolerance: relative, of the solver.
    """
    merged = Merged.of(instance, cell, signs)
    S = np.column_stack([instance.atoms.values[:, neurons], np.full(len(signs), instance.hidden_bias)])
    layout = Layout(len(S), S.shape[1], len(merged.signs), cell.classes)
    below = scipy.sparse.vstack([layout.signs(signs), layout.bounds(merged), layout.steepness(merged, S)], format="csr")
    count = below.shape[0]
    corners, offsets, sizes = layout.corners(cell.corners)
    linear, square, curved = np.zeros(layout.root + 1), np.zeros(layout.root + 1), np.zeros((layout.N, layout.N))
    linear[: layout.N] = -instance.targets[:, 0]
    if not instance.is_homogeneous:
        linear[: layout.N] *= 2.0 / math.sqrt(scale)
        curved = 2.0 / scale * (instance.output_bias**2 + np.diag(instance.curvature))
        square[layout.root] = 2.0
    quadratic = scipy.sparse.block_diag([np.triu(curved), scipy.sparse.diags(square[layout.N :])], format="csc")
    matrix = scipy.sparse.vstack([below, corners]).tocsc()
    cones = [clarabel.NonnegativeConeT(count), *map(clarabel.SecondOrderConeT, sizes)]
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    settings.tol_gap_rel = settings.tol_gap_abs = settings.tol_feas = tolerance
    offsets = np.concatenate([np.zeros(count), offsets])
    answer = clarabel.DefaultSolver(quadratic, linear, matrix, offsets, cones, settings).solve()
    x, z = np.array(answer.x), np.array(answer.z)
    if not np.isfinite(x).all() or not np.isfinite(z).all():
        return None
    up, down = z[:count][-2 * layout.R * layout.J :].reshape(2, layout.R, layout.J)
    weights = np.zeros((layout.R, instance.atoms.values.shape[1] + 1))
    weights[:, [*neurons, -1]] = up - down
    Z = x[layout.N : layout.first_pi].reshape(layout.R, layout.N)
    return Prices(x[: layout.N], Z[merged.members]), Paths(merged, weights)


@dataclass(frozen=True)
class Layout:
    """The variables of a programme, one after the other: L (N,), Z (R, N), pi (K, J), and omega.

    The last column of pi is that of the bias. Its rows A x <= 0 come first, then its cones.
    """

    N: int
    J: int
    R: int
    K: int

    @property
    def first_pi(self) -> int:
        """Return the place of pi."""
        return self.N + self.R * self.N

    @property
    def root(self) -> int:
        """Return the place of omega."""
        return self.first_pi + self.K * self.J

    def signs(self, signs: Float[np.ndarray, " N"]) -> scipy.sparse.csr_array:
        """Return the rows of the signs of L."""
        samples = np.flatnonzero(signs)
        return self._rows(len(samples), (np.arange(len(samples)), samples, -signs[samples]))

    def bounds(self, merged: Merged) -> scipy.sparse.csr_array:
        """Return the rows of Z_ri <= 0 where r may be off, and of e_r L_i <= Z_ri where it may be on."""
        (off, i), (on, j) = np.nonzero(merged.states != ON), np.nonzero(merged.states != OFF)
        low, high = len(off), len(off) + len(on)
        above, below = np.arange(low), np.arange(low, high)
        return self._rows(
            high,
            (above, self.N + off * self.N + i, np.array(1.0)),
            (below, j, merged.signs[on]),
            (below, self.N + on * self.N + j, np.array(-1.0)),
        )

    def steepness(self, merged: Merged, S: Float[np.ndarray, "N J"]) -> scipy.sparse.csr_array:
        """Return the rows of Z_r . s_j <= pi_Aj, then of -Z_r . s_j <= pi_Aj."""
        r, j, i = np.ogrid[: self.R, : self.J, : self.N]
        row, price = r * self.J + j, self.N + r * self.N + i
        pi = self.first_pi + merged.labels[:, None, None] * self.J + j
        half, minus = self.R * self.J, np.array(-1.0)
        products = S.T[None, :, :]
        return self._rows(
            2 * half, (row, price, products), (half + row, price, -products), (row, pi, minus), (half + row, pi, minus)
        )

    def corners(self, corners: Float[np.ndarray, "V K"]) -> tuple[scipy.sparse.csr_array, np.ndarray, list[int]]:
        """Return the cones |(tau_A^(1/2) pi_Aj)_A| <= 1, for the bias <= omega: their rows, offsets and sizes."""
        entries, offsets, sizes = [], [], []
        start, neurons = 0, np.arange(self.J)[:, None]
        for shares in corners:
            held = np.flatnonzero(shares > 1e-12)
            size = len(held) + 1
            first = start + size * neurons
            pi = self.first_pi + held * self.J + neurons
            entries.append((first + 1 + np.arange(len(held)), pi, -np.sqrt(shares[held])))
            entries.append((first[-1], np.array(self.root), np.array(-1.0)))
            offsets.append(np.where(np.arange(size * self.J) % size == 0, 1.0, 0.0))
            offsets[-1][-size] = 0.0
            sizes += [size] * self.J
            start += size * self.J
        return self._rows(start, *entries), np.concatenate(offsets), sizes

    def _rows(self, count: int, *entries: tuple[np.ndarray, np.ndarray, np.ndarray]) -> scipy.sparse.csr_array:
        """Return this number of rows; the rows, columns and values of each entry are broadcast."""
        blocks = [np.broadcast_arrays(*entry) for entry in entries]
        rows, columns, values = (np.concatenate([block[k].ravel() for block in blocks]) for k in range(3))
        return scipy.sparse.csr_array((values, (rows, columns)), shape=(count, self.root + 1))
