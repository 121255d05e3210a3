"""Newton's method on a network of the plane, with more digits than float64.

A neuron is a direction w_k, |w_k| = 1, and u_k = v_k. At an optimum, with Lambda = q (Y' - F') / kappa,

    Lambda^T phi_k = u_k / |u_k|,   phi_k = sigma(X' w_k),

and where w_k is no normal of a sample, the derivative of h along the circle is 0: <Lambda^T phi'_k, u_k> = 0, with
phi'_k = sigma'(X' w_k) X' w'_k, w'_k being w_k turned by a right angle. The steps are computed in float64, and what is
left to correct in whole numbers; so each step adds digits. Nothing here is a proof: it only makes a gap small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from covopt.answer.uniqueness.arcs import Circle, rounded
from covopt.answer.uniqueness.plane import BITS, Plane, Whole, unit


@dataclass
class Neurons:
    """The neurons of a network in the plane."""

    fixed: NDArray[np.bool_]  # True if w_k is the normal of a sample (K,)
    directions: Whole  # w_k in whole numbers of any length (K, 2)
    V: Whole  # v'_k times 2^BITS for directions of that length (K, m)

    @property
    def amounts(self) -> NDArray[np.float64]:
        """|w_k| v'_k (K, m)."""
        pairs = zip(self.V, [math.isqrt(int(w @ w) << 128) for w in self.directions], strict=True)
        rows = [[float(Fraction(int(v) * size, 1 << (BITS + 64))) for v in row] for row, size in pairs]
        return np.array(rows, dtype=float).reshape(self.V.shape)


def _length(w: Whole) -> Fraction:
    """Return |w|, nearly."""
    return Fraction(math.isqrt(int(w @ w) << 128), 1 << 64)


def gather(circle: Circle, W: NDArray[np.float64], V: NDArray[np.float64], units: Fraction) -> Neurons:
    """Merge the neurons of a network.

    W (n, 2) are the hidden weights, V (n, m) the output weights times `units`. Those next to the normal of a sample are
    put onto it.
    """
    sizes = np.linalg.norm(W, axis=1) * np.linalg.norm(V, axis=1)
    significant = sizes > 1e-11 * sizes.max(initial=0.0)  # fainter neurons are left out
    W, V = W[significant], V[significant]
    angles = np.arctan2(W[:, 1], W[:, 0])
    normals = [b for b in circle.breaks if b.sample]
    at = np.array([math.atan2(b.w[1], b.w[0]) for b in normals])
    groups: dict[int, list[int]] = {}
    loose: list[list[int]] = []
    for j in np.argsort(angles):
        away = np.abs((angles[j] - at + math.pi) % (2.0 * math.pi) - math.pi)
        if len(away) and away.min() < 1e-7:
            groups.setdefault(int(away.argmin()), []).append(int(j))
        elif loose and angles[j] - angles[loose[-1][-1]] < 1e-5:  # they count as one
            loose[-1].append(int(j))
        else:
            loose.append([int(j)])
    strengths = V * np.linalg.norm(W, axis=1)[:, None]
    sizes = np.linalg.norm(strengths, axis=1)
    means = [float(angles[g[0]] + np.average(angles[g] - angles[g[0]], weights=sizes[g])) for g in loose]
    directions = [*(normals[k].w for k in groups), *map(rounded, means)]
    totals = [strengths[g].sum(axis=0) for g in [*groups.values(), *loose]]
    fixed = np.array([True] * len(groups) + [False] * len(loose), dtype=bool)
    outputs = [[_on_grid(x, _length(w) / units) for x in total] for w, total in zip(directions, totals, strict=True)]
    exact_outputs = np.array(outputs, dtype=object).reshape(len(outputs), V.shape[1])
    return Neurons(fixed, np.array(directions, dtype=object).reshape(-1, 2), exact_outputs)


def _on_grid(value: float, length: Fraction) -> int:
    """Return value / length times 2^BITS."""
    return round(Fraction(float(value)) / length * (1 << BITS))


def polish(plane: Plane, neurons: Neurons) -> Neurons:
    """Improve the neurons by Newton's method; leave out those that fade away."""
    best, enough = math.inf, 1e-45
    for _ in range(40):
        if len(neurons.V) == 0:
            return neurons
        wrong, turning = _wrong(plane, neurons)
        size = float(np.abs(wrong).max(initial=0.0) + np.abs(turning).max(initial=0.0))
        if size < enough or (size < 1e-25 and size > 0.5 * best):
            return neurons
        best = min(best, size)
        neurons = _step(plane, neurons, wrong, turning)
    return neurons


def _wrong(plane: Plane, neurons: Neurons) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return Lambda^T phi_k - u_k / |u_k| (K, m), and <Lambda^T phi'_k, u_k> / |u_k|."""
    _, residual = plane.residuals(neurons.directions, neurons.V)
    Lambda = plane.dual_point(residual)
    seen = plane.features(neurons.directions).T @ Lambda
    unit = 1 << (plane.feature_bits + BITS)
    wrong = np.zeros(neurons.V.shape)
    turning = np.zeros(len(neurons.V))
    for k, (w, v) in enumerate(zip(neurons.directions, neurons.V, strict=True)):
        ratio = math.isqrt((int(w @ w) << (4 * BITS)) // max(1, int(v @ v)))
        target = [(unit * int(x) * ratio) >> (2 * BITS) for x in v]
        length = math.isqrt(int(w @ w) << 256)
        wrong[k] = [float(Fraction((int(s) - t) << 128, unit * length)) for s, t in zip(seen[k], target, strict=True)]
        if not neurons.fixed[k]:
            across = plane.linear(Lambda, w) @ np.array([-w[1], w[0]], dtype=object)
            size = math.isqrt(int(v @ v) << 256)
            turning[k] = float(Fraction(int(across @ v) << 256, unit * length * size))
    return wrong, turning


def _step(plane: Plane, neurons: Neurons, wrong: NDArray, turning: NDArray) -> Neurons:
    """One step; neurons that would be turned round are left out."""
    U = neurons.amounts
    K, m = U.shape
    sizes = np.linalg.norm(U, axis=1)
    free = np.flatnonzero(~neurons.fixed)
    H = _hessian(plane, neurons, U, free)
    right = np.concatenate([wrong.ravel(), (turning * sizes)[free]])
    # Neurons of very different strength; the columns are brought to one size.
    scale = 1.0 / np.sqrt(np.abs(np.diag(H)).clip(1e-300))
    step = scale * np.linalg.lstsq(H * scale[:, None] * scale, right * scale, rcond=1e-13)[0]
    dU, turn = step[: K * m].reshape(K, m), np.zeros(K)
    turn[free] = step[K * m :].clip(-0.1, 0.1)
    faded = np.einsum("km,km->k", U + dU, U) <= 0.0
    if faded.any():
        staying = ~(faded & (sizes == sizes[faded].min()))
        return Neurons(neurons.fixed[staying], neurons.directions[staying], neurons.V[staying])
    directions = neurons.directions.copy()
    for k in free:
        x, y = directions[k]
        part = round(math.ldexp(turn[k], 160))
        directions[k] = [x - (part * y >> 160), y + (part * x >> 160)]
    V = neurons.V.copy()
    for k, (old, new) in enumerate(zip(neurons.directions, directions, strict=True)):
        longer = math.isqrt((int(old @ old) << (2 * BITS)) // int(new @ new)) if k in free else 1 << BITS
        V[k] = [(x * longer >> BITS) + _on_grid(change, _length(new)) for x, change in zip(V[k], dU[k], strict=True)]
    return Neurons(neurons.fixed, directions, V)


def _hessian(plane: Plane, neurons: Neurons, U: NDArray, free: NDArray) -> NDArray[np.float64]:
    """Return the Hessian of the objective over 2 kappa in all u_k and the free angles."""
    X, q = plane.float_inputs, plane.float_shares
    beta, lam, kappa = float(plane.beta), float(plane.lam), float(plane.kappa)
    w = np.array([unit(direction) for direction in neurons.directions])
    Z = X @ w.T
    slopes = np.where(Z >= 0, 1.0, plane.slope)
    phi, across = slopes * Z, slopes[:, free] * (X @ np.stack([-w[free, 1], w[free, 0]]))
    Q = (np.diag(q) - beta**2 / (beta**2 + lam) * np.outer(q, q)) / kappa
    K, m = U.shape
    sizes = np.linalg.norm(U, axis=1)
    D = U / sizes[:, None]
    H = np.kron(phi.T @ Q @ phi, np.eye(m))
    for k in range(K):
        H[k * m : (k + 1) * m, k * m : (k + 1) * m] += (np.eye(m) - np.outer(D[k], D[k])) / sizes[k]
    _, residual = plane.residuals(neurons.directions, neurons.V)
    Lambda = q[:, None] * np.array(residual, dtype=float) / kappa
    mixed = np.einsum("kf,fj->kfj", phi.T @ Q @ across, U[free]).transpose(0, 2, 1).reshape(K * m, len(free))
    for place, k in enumerate(free):
        mixed[k * m : (k + 1) * m, place] -= Lambda.T @ across[:, place]
    turning = (across.T @ Q @ across) * (U[free] @ U[free].T)
    turning += np.diag(np.einsum("fm,mf->f", U[free], Lambda.T @ phi[:, free]))
    return np.block([[H, mixed], [mixed.T, turning]])
