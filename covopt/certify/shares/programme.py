"""The best prices of one cell, by a cone programme over a few neurons of the dictionary (Clarabel).

Where the sign of L_i is known, e_k L_i <= 0 allows Z_ki in [e_k L_i, 0] whether k is active on sample i or not, and one
such price serves both kinds if they are in the same class. That loses nothing, because L . sigma is concave in that
entry, and leaves 2^n + 2^(N - n) kinds of 2 (2^N - 1), n the number of positive entries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy
from jaxtyping import Float, Int

from covopt.certify.shares.cells import Cell
from covopt.certify.shares.prices import Instance, Prices
from covopt.runtime.lazy import lazy

clarabel: Any = lazy("clarabel")

OFF, ON, EITHER = 0, 1, 2  # on one sample: not active, active, and a price for both
NO_WEIGHT = 1e-6  # paths below this part of the largest are 0, which a solver reaches only approximately
NEAR = 0.95  # rows that are this part of the largest, or more, may be tight
PULL = 0.1
"""Prices that all change by their size cost half of this part of the objective. Without it a cell takes 2 to 7
solutions instead of 1 to 2; with 0.3 the paths change so much that the cuts are worse on 5 samples."""


@dataclass(frozen=True)
class Merged:
    """Kinds with one price vector each."""

    signs: Float[np.ndarray, " R"]  # the signs of the output weights
    states: Int[np.ndarray, "R N"]  # OFF, ON or EITHER on each sample
    labels: Int[np.ndarray, " R"]  # their classes
    members: Int[np.ndarray, " P"]  # the merged kind of each kind

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
        rows, members = np.unique(np.column_stack([labels, kinds.signs, states]), axis=0, return_inverse=True)
        return Merged(rows[:, 1], rows[:, 2:].astype(int), rows[:, 0].astype(int), members.ravel())


@dataclass(frozen=True)
class Paths:
    """The network that the multipliers of a programme describe."""

    merged: Merged  # the kinds of its hidden neurons
    weights: Float[np.ndarray, "R _"]  # m, from all neurons of the dictionary and the bias to each kind (R, J + 1)

    def network(self, directions: Float[np.ndarray, "J d"]) -> list[Float[np.ndarray, "_ _"]]:
        """Return W_1, W_2 and W_3, without neurons of no weight, for these directions of the dictionary."""
        size = np.abs(self.weights)
        paths = np.where(size > NO_WEIGHT * size.max(initial=0.0), self.weights, 0.0)
        above, below = np.flatnonzero(paths.any(axis=1)), np.flatnonzero(paths[:, :-1].any(axis=0))
        W_2 = paths[above][:, [*below, -1]]
        outputs = np.sqrt(np.linalg.norm(W_2, axis=1))
        W_3 = np.append(self.merged.signs[above] * outputs, 0.0)
        return [directions[below], W_2 / outputs[:, None], W_3[None]]


class Rows:
    """The rows of a sparse matrix, put together from blocks of entries."""

    def __init__(self) -> None:
        self.count, self._blocks = 0, []

    def put(self, row: np.ndarray, column: np.ndarray, value: np.ndarray | float) -> None:
        """Add entries, which are broadcast; their rows are counted from `count`."""
        self._blocks.append([x.ravel() for x in np.broadcast_arrays(self.count + row, column, value)])

    def add(self, *entries: tuple[np.ndarray, np.ndarray | float]) -> None:
        """Add a row for each column, or each row of columns."""
        for columns, values in entries:
            self.put(np.arange(len(columns)).reshape(-1, *[1] * (columns.ndim - 1)), columns, values)
        self.count += len(entries[0][0])

    def matrix(self, columns: int) -> scipy.sparse.csc_array:
        """Return the matrix of `count` rows."""
        rows, places, values = (np.concatenate([block[k] for block in self._blocks]) for k in range(3))
        return scipy.sparse.csc_array((values, (rows, places)), shape=(self.count, columns))


class Held(NamedTuple):
    """The number of a cell's corners, and its tight rows: sides, unmerged kinds and neurons; corners and neurons."""

    corners: int
    steep: tuple[np.ndarray, ...]
    cones: tuple[np.ndarray, ...]


class Programme:
    """The cone programme of one cell, with those rows only that prices near the best ones come near to.

    Its variables are L, Z_r of the kinds that have rows, pi_Aj of the classes and neurons that have rows, and omega.
    The last neuron stands for the hidden bias. A cone |(tau_A^(1/2) pi_Aj)_A| <= 1 belongs to a corner and a neuron.

    Without most of its rows it has many best prices, most of which violate rows that it lacks. So a small square pulls
    each Z_r to where it began, in the prices of the cell that this one is a half of.

    Attributes:
        multipliers, prices: L, and Z of the merged kinds (R, N), of the last solution, moved to where they are valid.
        weights: m, the paths of the network that its multipliers describe (R, J + 1).
        steep, cones: which of the rows +-Z_r . s_j <= pi_Aj (2, R, J + 1) and of the cones (V, J + 1) it has.
        reached: the largest sum_A tau_A pi_Aj^2 of its rows; the same for the bias.
    """

    def __init__(self, instance: Instance, cell: Cell, prices: Prices, scale: float, tolerance: float) -> None:
        """Begin with these prices, whose signs L keeps where it is not near 0, and without rows.

        The prices are to be the best at s = `scale`, which does not matter where the problem is homogeneous.
        """
        self.instance, self.cell, self.scale, self.tolerance = instance, cell, scale, tolerance
        self.signs = np.sign(prices.multipliers)
        self.signs[np.abs(prices.multipliers) <= 1e-3 * np.abs(prices.multipliers).max()] = 0.0
        self.merged = Merged.of(instance, cell, self.signs)
        _, members = np.unique(self.merged.members, return_index=True)
        self.S = np.column_stack([instance.atoms.values, np.full(len(self.signs), instance.hidden_bias)])
        self.weights = np.zeros((len(members), self.S.shape[1]))
        self.steep = np.zeros((2, *self.weights.shape), dtype=bool)
        self.cones = np.zeros((len(cell.corners), self.S.shape[1]), dtype=bool)
        self.reached = (0.0, 0.0)
        self._take(prices.multipliers, prices.prices[members])
        self.centre, self.pull = self.prices, 0.0

    def _take(self, multipliers: Float[np.ndarray, " N"], prices: Float[np.ndarray, "R N"]) -> None:
        """Move prices to where they are valid, and evaluate Z_r . s_j, pi_Aj and sum_A tau_A pi_Aj^2 at each corner."""
        least, states = self.merged.signs[:, None] * multipliers, self.merged.states
        prices = np.where(states == OFF, prices, np.maximum(prices, least))
        self.multipliers, self.prices = multipliers, np.where(states == ON, prices, np.minimum(prices, 0.0))
        self.values = self.prices @ self.S
        self.pi = np.zeros((self.cell.classes, self.values.shape[1]))
        np.maximum.at(self.pi, self.merged.labels, np.abs(self.values))
        self.squares = self.cell.corners @ np.square(self.pi)

    # -- its rows -----------------------------------------------------------------------------------------------

    def hold(self, neurons: Int[np.ndarray, " n"]) -> None:
        """Add those rows of these neurons that are nearly as large as the largest one of the class or the neuron."""
        values, squares = self.values[:, neurons], self.squares[:, neurons]
        large = np.abs(values) >= NEAR * self.pi[self.merged.labels[:, None], neurons]
        for side, rows in zip((values >= 0.0, values < 0.0), self.steep, strict=True):
            rows[:, neurons] |= large & side
        self.cones[:, neurons] |= squares >= NEAR**2 * squares.max(axis=0)

    def inherit(self, held: Held, neurons: Int[np.ndarray, " n"]) -> None:
        """Add the rows that were tight in the cell that this one is a half of, and those that are now at its prices."""
        side, kind, j = held.steep
        self.steep[side, self.merged.members[kind], j] = True
        v, j = held.cones
        self.cones.reshape(-1, held.corners, len(self.S[0]))[:, v, j] = True
        asks, most = self.squares[:, neurons].max(axis=0), math.sqrt(self.squares[:, :-1].max()) or 1.0
        self.centre = self.prices / most
        self.pull = PULL * abs(float(self.multipliers @ self.instance.targets[:, 0])) / most
        self.hold(np.append(neurons[asks >= NEAR**2 * asks.max()], self.S.shape[1] - 1))

    def extend(self, tolerance: float) -> bool:
        """Add what the last prices violate by more than this part; return False if there is nothing new."""
        asks, most = self.squares.max(axis=0), (1.0 + tolerance) ** 2 * np.array(self.reached)
        large = np.where(asks[:-1] > most[0], asks[:-1], 0.0)
        new = self.instance.atoms.peaks(large, 8)
        new = new[large[new] > 0.0]
        before = self.steep.sum() + self.cones.sum()
        self.hold(np.append(new, len(asks) - 1) if asks[-1] > most[1] else new)
        return bool(self.steep.sum() + self.cones.sum() > before)

    def tight(self) -> Held:
        """Return the rows that hold the last prices."""
        size = np.abs(self.weights)
        near = np.abs(self.values) >= NEAR * self.pi[self.merged.labels]
        steep = self.steep & (near | (size > 1e-4 * size.max()))
        most = self.squares.max(axis=0)
        most[:-1] = most[:-1].max()
        cones = self.cones & (self.squares >= NEAR**2 * most)
        return Held(len(cones), np.nonzero(steep[:, self.merged.members]), np.nonzero(cones))

    # -- its solution -------------------------------------------------------------------------------------------

    def solve(self) -> Prices | None:
        """Return the best prices for the rows that it has, and take them; None if the solver fails."""
        N, J = self.S.shape
        side, r, j = np.nonzero(self.steep)
        kinds, own = np.unique(r, return_inverse=True)
        pairs, pi = np.unique(self.merged.labels[r] * J + j, return_inverse=True)
        first_pi = N + N * len(kinds)
        root, rows, sign = first_pi + len(pairs), self._prices(kinds), 1.0 - 2.0 * side
        rows.add((N + own[:, None] * N + np.arange(N), sign[:, None] * self.S.T[j]), (first_pi + pi, -1.0))
        linear_rows = rows.count
        columns = np.full(self.cell.classes * J, -1)
        columns[pairs] = np.arange(first_pi, root)
        offsets, sizes = self._cones(rows, columns.reshape(-1, J), root)
        quadratic, linear = self._objective(kinds, root)
        settings = clarabel.DefaultSettings()
        settings.verbose, settings.max_threads = False, 1
        settings.tol_gap_rel = settings.tol_gap_abs = settings.tol_feas = self.tolerance
        cones = [clarabel.NonnegativeConeT(linear_rows), *map(clarabel.SecondOrderConeT, sizes)]
        answer = clarabel.DefaultSolver(quadratic, linear, rows.matrix(root + 1), offsets, cones, settings).solve()
        x, z = np.array(answer.x), np.array(answer.z)
        if not np.isfinite(x).all() or not np.isfinite(z).all():
            return None
        self.prices[kinds] = x[N:first_pi].reshape(-1, N)
        self._take(x[:N], self.prices)
        self.reached = (1.0, x[root] ** 2)
        if "Solved" not in str(answer.status):  # as where the rows do not bound the prices
            self.reached = (0.5 * self.squares[:, :-1].max(), 0.5 * self.squares[:, -1].max())
        self.weights = np.zeros_like(self.weights)
        np.add.at(self.weights, (r, j), sign * z[linear_rows - len(r) : linear_rows])
        return Prices(self.multipliers, self.prices[self.merged.members])

    def _prices(self, kinds: Int[np.ndarray, " K"]) -> Rows:
        """Return the rows of L's signs, of Z_ri <= 0 where r may be off, and of e_r L_i <= Z_ri where it may be on."""
        rows, N = Rows(), len(self.signs)
        signed, states = np.flatnonzero(self.signs), self.merged.states[kinds]
        rows.add((signed, -self.signs[signed]))
        off, i = np.nonzero(states != ON)
        rows.add((N + off * N + i, 1.0))
        on, i = np.nonzero(states != OFF)
        rows.add((i, self.merged.signs[kinds[on]]), (N + on * N + i, -1.0))
        return rows

    def _cones(self, rows: Rows, columns: Int[np.ndarray, "K _"], root: int) -> tuple[np.ndarray, list[int]]:
        """Put the cones below the rows, with the columns of pi_Aj (-1: none) and omega; return offsets and sizes."""
        v, j = np.nonzero(self.cones)
        shares, places = self.cell.corners[v], columns[:, j].T
        has = (places >= 0) & (shares > 1e-12)
        some = has.any(axis=1)
        j, shares, places, has = j[some], shares[some], places[some], has[some]
        sizes = 1 + has.sum(axis=1)
        first = np.cumsum(sizes) - sizes
        cone, A = np.nonzero(has)
        rows.put(first[cone] + np.cumsum(has, axis=1)[cone, A], places[cone, A], -np.sqrt(shares[cone, A]))
        biased = j == columns.shape[1] - 1
        rows.put(first[biased], np.array(root), -1.0)
        offsets = np.zeros(rows.count + int(sizes.sum()))
        offsets[rows.count + first[~biased]] = 1.0
        rows.count = len(offsets)
        return offsets, sizes.tolist()

    def _objective(self, kinds: Int[np.ndarray, " K"], root: int) -> tuple[scipy.sparse.csc_array, np.ndarray]:
        """Return the upper half of the matrix, and the vector."""
        instance, N = self.instance, len(self.signs)
        factor = 1.0 if instance.is_homogeneous else 2.0 / math.sqrt(self.scale)
        curved, linear, square = Rows(), np.zeros(root + 1), np.zeros(root + 1)
        linear[:N] = -factor * instance.targets[:, 0]
        centre = self.centre[kinds].ravel()
        pull = self.pull * factor / max(float(centre @ centre), 1e-300)
        square[N : N + len(centre)], linear[N : N + len(centre)] = pull, -pull * centre
        if not instance.is_homogeneous:
            square[root] = 2.0
            i, k = np.triu_indices(N)
            products = 2.0 / self.scale * (instance.output_bias**2 + np.diag(instance.curvature))
            curved.put(i, k, products[i, k])
        curved.add((np.arange(root + 1), square))
        return curved.matrix(root + 1), linear
