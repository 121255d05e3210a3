"""Symmetry: a deep network learns how the loss of gradient descent falls, and forgets what that does not depend on.

Gradient descent on C(v) = |v v^T - (w w^T + E)|_F^2 from v(0) = x, E a small symmetric matrix,

    v(t + 1) = v(t) - 4 eta (v v^T - w w^T - E) v,                y = (C(v(1)), ..., C(v(T))),

is to be learned as a function of v(0). With E = 0 and |w| = 1 it depends on two numbers alone, a = (w . v)^2 and
b = |v|^2 - a, which follow

    a <- a (1 - 4 eta (a + b - 1))^2,    b <- b (1 - 4 eta (a + b))^2,    C = (a + b)^2 - 2 a + 1,

so that turning v about w, or mirroring it, changes nothing. A deep network with a penalty learns this: two dimensions
pass its middle layers, in which samples and their turned copies fall together.

Source: [J23b, section 4 and Fig. 2].
"""

from __future__ import annotations

import numpy as np
from figure_design import (
    Arrays,
    Asked,
    Claim,
    Design,
    Made,
    Numbers,
    Setting,
    ended,
    network,
    preactivations,
    square,
    stored,
    through,
)
from jaxtyping import Float
from layer_spectra import Layers, seen_in, spectrum_panel

from covopt.answer import drawing
from covopt.model.problem import make_problem
from covopt.solvers.deep.starts import ends_first
from covopt.solvers.training.homotopy import REFINING, descend

D, STEPS, ETA, NOISE = 8, 10, 0.025, 0.001
"""Entries of v; steps of gradient descent; their size; deviation of the entries of E."""
DEPTH, LAM = 25, 2e-4
SMALL, PAPER = (600, 30), (1000, 200)
"""Samples, and the width of the layers at both ends."""
START = 5
"""Neurons of the layers in the middle at the start."""
FRESH = 300
"""Inputs that were not learned from."""
RANK = 2
"""Numbers that the targets depend on."""
MIDDLE = range(4, DEPTH - 2)
"""Layers, counted from 1, that are not at the ends."""
COLLAPSED, LEARNED = 0.2, 0.1
"""What counts as collapsed, and the part of the targets' variance that may be left at fresh inputs."""
DRAWN = 12
"""Paths of gradient descent that are drawn."""
LAYER, EARLY = 6, 2
"""The layers whose representations the paper draws: along the paths, and on a plane."""
SIDE, BANDS = 61, 5
"""Points along each side of the plane, which reaches as far as |v| = 1; bands of distance in the picture."""
ROUND = 0.2
"""A distance is a function of |v| if along circles it deviates by no more than this part of its deviation in all."""
HEAD = 4
"""Singular values in the table."""
COLUMNS = ("layer", "dimension", "distance of orbits", "nonlinearity", *(f"s{i + 1}" for i in range(HEAD)))


def target(seed: int) -> Float[np.ndarray, "d d"]:
    """w w^T + E, w the first unit vector."""
    E = NOISE * np.random.default_rng([seed, 1]).standard_normal((D, D))
    M = (E + E.T) / 2.0**0.5
    M[0, 0] += 1.0
    return M


def descent(V: Float[np.ndarray, "N d"], M: Float[np.ndarray, "d d"], steps: int) -> Float[np.ndarray, "T N d"]:
    """v(0) ... v(steps) of gradient descent on C(v) = |v v^T - M|_F^2, T = steps + 1."""
    path = [V]
    for _ in range(steps):
        V = V - 4.0 * ETA * ((V**2).sum(axis=1, keepdims=True) * V - V @ M)
        path.append(V)
    return np.stack(path)


def losses(path: Float[np.ndarray, "T N d"], M: Float[np.ndarray, "d d"]) -> Float[np.ndarray, "N T"]:
    """C(v) = |v|^4 - 2 v^T M v + |M|_F^2 at each point, for every sample."""
    return ((path**2).sum(axis=2) ** 2 - 2.0 * ((path @ M) * path).sum(axis=2) + (M**2).sum()).T


def turned(V: Float[np.ndarray, "N d"], seed: int) -> Float[np.ndarray, "N d"]:
    """Each v turned about w at random, and mirrored or not: |w . v| and |v| stay."""
    rng = np.random.default_rng([seed, 2])
    around = rng.standard_normal((len(V), D - 1))
    around *= np.linalg.norm(V[:, 1:], axis=1, keepdims=True) / np.linalg.norm(around, axis=1, keepdims=True)
    return np.column_stack([V[:, 0] * rng.choice([-1.0, 1.0], len(V)), around])


def _make(asked: Asked) -> Made:
    samples, width = PAPER if asked.paper else SMALL
    M, rng = target(asked.seed), np.random.default_rng([asked.seed, 0])
    X, fresh = (rng.standard_normal((count, D)) / D**0.5 for count in (samples, FRESH))
    Y = losses(descent(X, M, STEPS)[1:], M)
    problem = make_problem(X, Y, lam=LAM, loss="mse", depth=DEPTH, device=asked.device)
    stop = asked.budget.spent
    built = ends_first(problem, [START], width, asked.seed, stop, of_each=True)[0].weights
    weights = descend(problem, [built], REFINING, stop)[0]
    arrays = {"X": X, "Y": Y, "M": M, "fresh": fresh, "turned": turned(fresh, asked.seed), **stored("network", weights)}
    return Made(_settings(samples, width), arrays, ended(asked.budget))


def _settings(samples: int, width: int) -> list[Setting]:
    return [
        Setting("task", "v(0) -> (C(v(1)), ..., C(v(T))), C(v) = |v v^T - (w w^T + E)|^2, by gradient descent", True),
        Setting("depth", f"L = {DEPTH}", True),
        Setting("penalty", f"lam {LAM:g}", True),
        Setting("v, w", f"{D} entries, v(0) Gaussian with mean |v|^2 = 1, |w| = 1", False),
        Setting("gradient descent", f"T = {STEPS} steps of {ETA}", False),
        Setting("E", f"symmetric, Gaussian, deviation {NOISE}", False),
        Setting("samples", str(samples), False),
        Setting("widths", f"{width} at both ends, {START} between (the paper: 200)", False),
        Setting("training", "built outer layers first, then L-BFGS", False),
        Setting("fresh inputs", f"{FRESH}; orbits: turned about w at random, half of them mirrored", False),
    ]


def _numbers(arrays: Arrays) -> Numbers:
    layers, X, fresh, M = network(arrays, "network"), arrays["X"], arrays["fresh"], arrays["M"]
    if M.shape != (D, D) or len(layers) <= LAYER:
        raise ValueError("M or the network is of another size")
    truth = losses(descent(fresh, M, STEPS)[1:], M)
    fit = float(((preactivations(layers, X)[-1] - arrays["Y"]) ** 2).sum(axis=1).mean())
    left = float(((preactivations(layers, fresh)[-1] - truth) ** 2).sum(axis=1).mean())
    _, distances, radii = _on_plane(layers)
    return {
        "cost": fit + LAM * square(layers),
        "fit": fit,
        "norm": square(layers),
        "test": left,
        "variance": float(((truth - truth.mean(axis=0)) ** 2).sum(axis=1).mean()),
        "layers": seen_in(layers, fresh, arrays["turned"]),
        "crossings": crossings(_paths(arrays, layers)),
        "around": _around(distances, radii),
    }


def _paths(arrays: Arrays, layers: Layers) -> Float[np.ndarray, "k T 2"]:
    """Z of LAYER along some paths of gradient descent, in its first two principal components at the samples."""
    Z = preactivations(layers, arrays["X"])[LAYER - 1]
    middle = Z.mean(axis=0)
    V = np.linalg.svd(Z - middle, full_matrices=False)[2][:2]
    path = descent(arrays["fresh"][:DRAWN], arrays["M"], STEPS)
    along = np.stack([preactivations(layers, v)[LAYER - 1] for v in path], axis=1)
    found = np.zeros((*along.shape[:2], 2))
    found[..., : len(V)] = (along - middle) @ V.T  # one component where a single neuron is left
    return found


def crossings(paths: Float[np.ndarray, "k T 2"]) -> int:
    """Count the pairs of segments of different paths that cross each other."""
    count = 0
    for number, path in enumerate(paths):
        for other in paths[number + 1 :]:
            a, b = path[:-1, None], path[1:, None]
            c, d = other[None, :-1], other[None, 1:]
            apart = (_side(a, b, c) * _side(a, b, d) < 0.0) & (_side(c, d, a) * _side(c, d, b) < 0.0)
            count += int(apart.sum())
    return count


def _side(
    a: Float[np.ndarray, "*#k 2"], b: Float[np.ndarray, "*#k 2"], p: Float[np.ndarray, "*#k 2"]
) -> Float[np.ndarray, "..."]:
    """On which side of the line from a to b the point p lies: the sign of the result."""
    along, to = b - a, p - a
    return along[..., 0] * to[..., 1] - along[..., 1] * to[..., 0]


def _on_plane(
    layers: Layers,
) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, "r r"], Float[np.ndarray, "r r"]]:
    """Along one side of a plane orthogonal to w, |S(v) - S(0)| of the layer EARLY at its points, and their |v|."""
    side = np.linspace(-1.0, 1.0, SIDE)
    x, y = np.meshgrid(side, side)
    V = np.zeros((x.size, D))
    V[:, 1], V[:, 2] = x.ravel(), y.ravel()
    S, S0 = (np.maximum(preactivations(layers, v)[EARLY - 1], 0.0) for v in (V, np.zeros((1, D))))
    return side, np.linalg.norm(S - S0, axis=1).reshape(x.shape), np.hypot(x, y)


def _around(distances: Float[np.ndarray, "r r"], radii: Float[np.ndarray, "r r"]) -> float:
    """Return the variation of the distance at equal |v| over that in |v| <= 1: 0 on circles."""
    inside = radii <= 1.0
    rings = np.round(radii[inside] * (SIDE // 2)).astype(int)
    values = distances[inside]
    means = np.bincount(rings, values) / np.bincount(rings)
    return float((values - means[rings]).std() / (values.std() or 1.0))


def _claims(numbers: Numbers) -> list[Claim]:
    inner = [numbers["layers"][number - 1] for number in MIDDLE]
    between = f"layers {MIDDLE[0]} to {MIDDLE[-1]}"
    return [
        Claim(
            f"at fresh inputs less than {LEARNED} of the targets' variance is left",
            numbers["test"] < LEARNED * numbers["variance"],
        ),
        Claim(
            f"{between} have {RANK} singular values above 1/2, as the targets depend on (w . v)^2 and |v|^2",
            all(layer["dimension"] == RANK for layer in inner),
        ),
        Claim(
            f"there samples and their turned or mirrored copies are nearer than {COLLAPSED} of what strangers are",
            all(layer["collapse"] is not None and layer["collapse"] < COLLAPSED for layer in inner),
        ),
        Claim(f"paths of gradient descent do not cross in two components of Z_{LAYER}", numbers["crossings"] == 0),
        Claim(
            f"on a plane orthogonal to w, |S_{EARLY}(v) - S_{EARLY}(0)| depends on |v| up to {ROUND} of its deviation",
            numbers["around"] <= ROUND,
        ),
    ]


def _rows(numbers: Numbers) -> list[list[object]]:
    rows = []
    for number, layer in enumerate(numbers["layers"], start=1):
        told = [layer[name] for name in ("dimension", "collapse", "nonlinearity")]
        values = [*layer["weights"], *[0.0] * HEAD][:HEAD]
        rows.append([number, *("" if value is None else value for value in told), *values])
    return rows


def _panels(arrays: Arrays, numbers: Numbers) -> list[drawing.Panel]:
    layers = network(arrays, "network")
    collapse = np.array([layer["collapse"] for layer in numbers["layers"]], dtype=np.float64)  # None becomes NaN
    side, distances, _ = _on_plane(layers)
    bands = np.minimum(np.floor(BANDS * distances / (distances.max() or 1.0)), BANDS - 1)
    ends = (float(side[0]), float(side[-1]))
    paths = [through("", path, "o-", k) for k, path in enumerate(_paths(arrays, layers))]
    orbits = drawing.Line("", np.arange(1.0, len(collapse) + 1.0), collapse, "o-", 2)
    return [
        spectrum_panel("Weights", "singular values of W_l", [layer["weights"] for layer in numbers["layers"]], RANK),
        drawing.Panel("Samples and their turned copies", "layer l", "distance over that of strangers", [orbits]),
        drawing.Panel(f"Gradient descent in Z_{LAYER}", "first component", "second component", paths),
        drawing.Panel(f"|S_{EARLY}(v) − S_{EARLY}(0)|, w ⊥ v", "v_2", "v_3", [], bands, (*ends, *ends)),
    ]


DESIGN = Design(
    title="a deep network learns the symmetries of its targets",
    source="[J23b, Fig. 2]",
    question="Does a deep network forget what its targets do not depend on?",
    differs=(
        "The paper prints neither the size of v, nor the steps of gradient descent, nor E. It trains layers of 200"
        f" neurons; here the network is built outer layers first, with {START} neurons between, and descends from"
        " there."
    ),
    make=_make,
    numbers=_numbers,
    claims=_claims,
    columns=COLUMNS,
    rows=_rows,
    panels=_panels,
    across=2,
)

if __name__ == "__main__":
    DESIGN.run()
