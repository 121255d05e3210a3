"""The best multipliers for the neurons that a search has met, by a cone programme (Clarabel)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from covopt.certify.paths.branching import Neurons
from covopt.certify.shares.prices import Instance
from covopt.runtime.lazy import lazy

clarabel: Any = lazy("clarabel")

LEAST_PRICE = 1e-3  # the smallest price of a hidden bias, as a part of that of a path
CURVED = 1e-10  # a curvature that keeps multipliers finite which no neuron bounds yet


class Best(NamedTuple):
    """The solution of a programme."""

    value: float  # the programme's value: no multipliers prove more at this scale, if the solver is exact
    multipliers: Float[np.ndarray, "N m"]  # L
    price: float  # the price of a hidden bias, relative to that of a path
    used: Float[np.ndarray, " C"]  # how much each neuron binds


def best_multipliers(instance: Instance, neurons: Neurons, scale: float) -> Best | None:
    """Return the best multipliers for these neurons at this scale s; None if the solver fails.

    They maximise s + 2 <L, Y> - |L|_Q^2 - s w^2 over L and w >= 0 with |L^T sigma(h)| <= s^(-1/2) |m|_1 + w |b|, Q the
    curvature of the loss and of the output's bias; where the problem is homogeneous, 3 (<L, Y>)^(2/3) with
    |L^T sigma(h)| <= |m|_1.
    """
    (N, m), count = instance.targets.shape, len(neurons.weights)
    path = 1.0 if instance.is_homogeneous else 1.0 / math.sqrt(scale)
    # Variables: L, output by output, then w. A cone for each neuron: |L^T sigma(h)| <= its price.
    first = (m + 1) * np.arange(count)[:, None]
    samples = np.arange(N)
    blocks = [(first + 1 + k, k * N + samples, -neurons.values) for k in range(m)]
    blocks.append((first, np.array([m * N]), -neurons.biases[:, None]))
    entries = [[array.ravel() for array in np.broadcast_arrays(*block)] for block in blocks]
    rows, columns, values = map(np.concatenate, zip(*entries, strict=True))
    size = (m + 1) * count
    cone_rows = scipy.sparse.csc_array((values, (rows, columns)), shape=(size, m * N + 1))
    last = scipy.sparse.csc_array(([-1.0], ([0], [m * N])), shape=(1, m * N + 1))
    offsets = np.zeros(size + 1)
    offsets[: size : m + 1] = path * neurons.weights
    curved = instance.output_bias**2 + np.diag(instance.curvature + CURVED)
    quadratic = scipy.sparse.block_diag([*[np.triu(2.0 * curved)] * m, np.array([[2.0 * scale]])], format="csc")
    if instance.is_homogeneous:
        quadratic = 0.0 * quadratic
    linear = np.append(-2.0 * instance.targets.T.ravel(), 0.0)
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    cones = [*[clarabel.SecondOrderConeT(m + 1)] * count, clarabel.NonnegativeConeT(1)]
    matrix = scipy.sparse.vstack([cone_rows, last]).tocsc()
    solution = clarabel.DefaultSolver(quadratic, linear, matrix, offsets, cones, settings).solve()
    x, z = np.array(solution.x), np.array(solution.z)
    if not np.isfinite(x).all():
        return None
    homogeneous = 3.0 * max(-0.5 * solution.obj_val, 0.0) ** (2.0 / 3.0)
    value = homogeneous if instance.is_homogeneous else scale - solution.obj_val
    used = np.linalg.norm(z[:size].reshape(count, m + 1), axis=1)
    return Best(value, x[: m * N].reshape(m, N).T, max(float(x[-1]) / path, LEAST_PRICE), used)
