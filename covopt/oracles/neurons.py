"""Fewer neurons for the same outputs at no higher cost: merge aligned ones, and apply Caratheodory's theorem.

Both work on one hidden layer in unit form, F = sum_k sigma(Xt w_k) v_k^T with |w_k| = 1, whose cost after balancing is
2 sum_k |v_k| (MATH.md section 4). The caller evaluates the cost again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import numpy as np
import scipy
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from covopt.model.activation import Activation
from covopt.oracles.search import AscentOptions, ConvexConcaveOracle
from covopt.runtime.loop import Stop

# Relative to the largest column: the outputs stay the same to rounding, so what moves them by 1e-10 is no null vector.
EXACT_RANK = 1e-13


@dataclass(frozen=True)
class Merged:
    """Neurons after merging: unit rows w (k, d) and outputs v (k, m).

    `group` is, for each original neuron, its row now, or -1 if it contributed nothing (n,).
    """

    directions: Float[Tensor, "k d"]
    outputs: Float[Tensor, "k m"]
    group: Int[Tensor, " n"]


@dataclass(frozen=True)
class Selected:
    """The atoms that remain after Caratheodory's theorem: their places, ascending (k,).

    Their outputs v (k, m) are positive multiples of the given ones.
    """

    places: Int[Tensor, " k"]
    outputs: Float[Tensor, "k m"]


def balance(
    weights: Float[Tensor, "n d"], outputs: Float[Tensor, "n m"]
) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n m"]]:
    """Return (c_k u_k, v_k / c_k) of equal norms; a neuron with u_k = 0 or v_k = 0 becomes 0."""
    lengths, sizes = weights.norm(dim=1, keepdim=True), outputs.norm(dim=1, keepdim=True)
    alive = (lengths > 0) & (sizes > 0)
    factor = torch.where(alive, (sizes / lengths).sqrt(), 0.0)
    return weights * factor, torch.where(alive, outputs / torch.where(alive, factor, 1.0), 0.0)


def merge(weights: Float[Tensor, "n d"], outputs: Float[Tensor, "n m"], tolerance: float = 1e-9) -> Merged:
    """Merge all neurons whose directions agree: v = sum_k |u_k| v_k on the unit direction.

    Exact for equal directions, sigma being positively homogeneous; |v| <= sum_k |u_k| |v_k|, so the cost never rises.
    Directions that differ are replaced by their mean, weighted by |u_k| |v_k|, which changes the outputs: neurons join
    the strongest one near them, at a cosine of at least 1 - tolerance. The hidden weights u (n, d), bias column
    included, may be of any length; the outputs v are (n, m).
    """
    lengths = weights.norm(dim=1, keepdim=True)
    scaled = lengths * outputs
    sizes = scaled.norm(dim=1)
    units = weights / torch.where(lengths > 0, lengths, 1.0)
    group = _groups(units, sizes, tolerance)
    count, member = int(group.max()) + 1, group >= 0
    place = group[member]
    directions = units.new_zeros(count, units.shape[1]).index_add(0, place, units[member] * sizes[member, None])
    merged = scaled.new_zeros(count, scaled.shape[1]).index_add(0, place, scaled[member])
    return Merged(torch.nn.functional.normalize(directions, dim=1), merged, group)


def _groups(units: Tensor, sizes: Tensor, tolerance: float) -> Int[Tensor, " n"]:
    """Return greedy groups around the strongest neurons, numbered by strength; -1 for neurons without effect."""
    alive = (sizes > 0).cpu()  # on a GPU, each step of the loop would wait for it
    close = (units @ units.T >= 1.0 - tolerance).cpu() & alive[None, :] & alive[:, None]
    group = torch.full_like(alive, -1, dtype=torch.int64)
    count = 0
    for k in sizes.argsort(descending=True, stable=True).tolist():
        if alive[k] and group[k] < 0:
            group[close[k] & (group < 0)] = count
            group[k] = count
            count += 1
    return group.to(sizes.device)


def caratheodory(Phi: Float[Tensor, "N n"], outputs: Float[Tensor, "n m"]) -> Selected:
    """Keep F = Phi V with at most N m of the atoms, rescaled, and sum_k |v_k| no larger.

    The columns of Phi are the features phi_k = sigma(Xt w_k) of unit directions, and the rows of V the outputs v_k.
    With c_k = |v_k| and a_k = vec(phi_k v_k^T / c_k), F = A c. While A restricted to the atoms with c_k > 0 has a null
    vector z, signed so that sum(z) <= 0, c moves along z until an atom vanishes. Null vectors along which the cost
    falls come first. At most rank(A) atoms remain (Caratheodory's theorem). One Householder reflection updates an
    orthonormal basis of the null space for each atom that vanishes; atoms are taken in blocks of at most rank(A), so
    that n atoms cost O(n (N m)^2).
    """
    features, values = Phi.detach().cpu().double().numpy(), outputs.detach().cpu().double().numpy()
    sizes = np.linalg.norm(values, axis=1)
    alive = np.flatnonzero((sizes > 0) & (features != 0).any(axis=0))
    units = values[alive] / sizes[alive, None]
    if len(alive) <= features.shape[0] * values.shape[1] and _independent(features[:, alive], units):
        c = sizes[alive]
    else:
        A = (features[:, None, alive] * units.T[None]).reshape(features.shape[0] * values.shape[1], len(alive))
        c = _fewest(A, sizes[alive])
    survivors, remaining_sizes = alive[c > 0], c[c > 0]
    new = values[survivors] * (remaining_sizes / sizes[survivors])[:, None]
    place = torch.as_tensor(survivors, dtype=torch.int64, device=outputs.device)
    return Selected(place, torch.as_tensor(new, dtype=outputs.dtype, device=outputs.device))


def _independent(features: NDArray[np.float64], units: NDArray[np.float64]) -> bool:
    """Return True if A^T A is clearly regular, so that `_null_basis` would find nothing."""
    with np.errstate(over="ignore", invalid="ignore"):
        gram = (features.T @ features) * (units @ units.T)
    n, largest = len(gram), float(gram.diagonal().max(initial=0.0))
    rounding = 4.0 * (features.size + n * n) * np.finfo(np.float64).eps  # of a Gram matrix of n columns
    least = max(EXACT_RANK**2, rounding) * largest
    if not (n and np.isfinite(gram).all() and least > 0.0):
        return False
    with suppress(np.linalg.LinAlgError):
        np.linalg.cholesky(gram - least * np.eye(n))
        return True
    return False


def _fewest(A: NDArray[np.float64], c: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return c' >= 0 on independent columns of A with A c' = A c and sum(c') <= sum(c)."""
    result, target = c.copy(), A @ c
    survivors = np.zeros(0, dtype=np.int64)
    block = max(1, min(A.shape))
    for start in range(0, len(c), block):
        pool = np.concatenate([survivors, np.arange(start, min(start + block, len(c)))])
        result[pool] = _peel(_null_basis(A[:, pool]), result[pool])
        survivors = pool[result[pool] > 0]
    # A least-squares step undoes the rounding of all moves, unless an entry becomes negative or the cost rises.
    if len(survivors):
        solution = scipy.linalg.lstsq(A[:, survivors], target - A @ result, lapack_driver="gelsy")
        corrected = result[survivors] + cast("tuple[NDArray, ...]", solution)[0]
        if (corrected >= 0).all() and corrected.sum() <= c.sum():
            result[survivors] = corrected
    return np.where(result > np.finfo(np.float64).eps * len(c) * result.sum(), result, 0.0)


def _null_basis(A: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return an orthonormal basis of {z : A z = 0} in columns, by QR with column pivoting."""
    columns = A.shape[1]
    R, pivots = cast("tuple[NDArray, NDArray]", scipy.linalg.qr(A, mode="r", pivoting=True, check_finite=False))
    diagonal = np.abs(np.diagonal(R))
    rank = int((diagonal > EXACT_RANK * diagonal[0]).sum())
    if rank == columns:
        return np.zeros((columns, 0))
    basis = np.zeros((columns, columns - rank))
    basis[pivots[:rank]] = -scipy.linalg.solve_triangular(R[:rank, :rank], R[:rank, rank:], check_finite=False)
    basis[pivots[rank:]] = np.eye(columns - rank)
    return np.linalg.qr(basis)[0]


def _peel(basis: NDArray[np.float64], c: NDArray[np.float64]) -> NDArray[np.float64]:
    """Move c > 0 along null vectors, the sum never rising, until the atoms are independent."""
    c, basis = c.copy(), np.asfortranarray(basis)
    rounding = np.finfo(np.float64).eps * len(c)
    while basis.shape[1]:
        fall = basis.sum(axis=0)
        steep = float(np.linalg.norm(fall))
        # The direction of steepest descent of the sum; where that is constant, the one that removes the smallest atom.
        smallest = basis[np.where(c > 0, c, np.inf).argmin()]
        z = -(basis @ (fall / steep if steep > rounding * len(c) else _unit(smallest)))
        z = -z if z.sum() > 0 else z
        falling = np.flatnonzero((z < -rounding) & (c > 0))
        if not len(falling):  # z is zero up to rounding
            basis = basis[:, 1:]
            continue
        first = falling[(c[falling] / -z[falling]).argmin()]
        moved = np.where(c > 0, c + (c[first] / -z[first]) * z, 0.0)
        gone = falling[(moved[falling] <= rounding * c.sum()) | (falling == first)]
        c = moved
        c[gone] = 0.0
        for atom in gone:
            if basis.shape[1] and np.abs(basis[atom]).max() > rounding:
                basis = _without(basis, _unit(basis[atom]))
    return c


def _unit(row: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the row over its length; the first unit vector for a row of zeros."""
    length = np.linalg.norm(row)
    return row / length if length > 0 else np.eye(1, len(row))[0]


def _without(basis: NDArray[np.float64], choice: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a basis of the null vectors orthogonal to basis @ choice, |choice| = 1, in place."""
    v = choice.copy()
    v[0] += 1.0 if v[0] >= 0 else -1.0
    rank_one = scipy.linalg.get_blas_funcs(("ger",), (basis,))[0]
    return rank_one(-2.0 / (v @ v), basis @ v, v, a=basis, overwrite_a=True)[:, 1:]


def rows_of(W: Float[Tensor, "n d"], b: Float[Tensor, " n"]) -> Float[Tensor, "n d+1"]:
    """Return [W, b]: neurons as rows of hidden weights, the bias column last."""
    return torch.cat([W, b[:, None]], dim=1)


def best_breakpoints(
    X: Float[Tensor, "N d"], activation: Activation, Lambda: Float[Tensor, "N m"], W: Float[Tensor, "B d"]
) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
    """Return for each w the b = -x_j^T w with the largest h, and h, by cumulative sums over sorted X w."""
    biases, values, a = [], [], activation.slope
    for z in W @ X.T:
        z, order = z.sort(descending=True)
        rows = Lambda[order]
        S0, S1 = rows.cumsum(dim=0), (z[:, None] * rows).cumsum(dim=0)
        above = S1 - z[:, None] * S0
        whole = S1[-1] - z[:, None] * S0[-1]
        h = ((1.0 - a) * above + a * whole).norm(dim=1)
        best = int(h.argmax())
        biases.append(-z[best])
        values.append(h[best])
    if not biases:
        return X.new_zeros(0), X.new_zeros(0)
    return torch.stack(biases), torch.stack(values)


def strongest(
    X: Float[Tensor, "N d"],
    activation: Activation,
    Lambda: Float[Tensor, "N m"],
    neurons: Float[Tensor, "k d+1"],
    count: int,
    seed: int,
    stop: Stop = lambda: False,
) -> tuple[Float[Tensor, " d"], float, float] | None:
    """Search for the neuron (w, b) with the largest h = |Lambda^T sigma(X w + b)|, |w| = 1.

    Return (w, b, h) of the best neuron found, or None. The search centres the inputs X; the columns of Lambda sum to 0.
    It starts from neurons in rows (w, b), and from `count` random ones of this seed.
    """
    mean = X.mean(dim=0)
    rho = float((X - mean).norm(dim=1).max()) if X.shape[1] else 0.0
    if rho == 0.0 or not Lambda.shape[1]:
        return None
    scaled = torch.cat([(X - mean) / rho, X.new_ones(len(X), 1)], dim=1)
    own = torch.cat([rho * neurons[:, :-1], neurons[:, -1:] + (neurons[:, :-1] @ mean)[:, None]], dim=1)
    generator = torch.Generator(device=X.device).manual_seed(seed)
    random = torch.randn(count, scaled.shape[1], generator=generator, dtype=X.dtype, device=X.device)
    first = torch.cat([own[own.norm(dim=1) > 0], random])
    W = ConvexConcaveOracle(scaled, activation, AscentOptions())(Lambda, first, stop=stop).directions[:, :-1]
    W = torch.nn.functional.normalize(W[W.norm(dim=1) > 0], dim=1)
    biases, values = best_breakpoints(X - mean, activation, Lambda, W)
    if not len(values):
        return None
    best = int(values.argmax())
    return W[best], float(biases[best] - W[best] @ mean), float(values[best])
