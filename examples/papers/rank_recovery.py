"""Rank recovery: a deep network learns a function of few dimensions, and kernel ridge regression beside it.

The targets depend on four of the 15 numbers that the inputs in R^50 are made of. In a deep network with a penalty, few
dimensions pass the layers in the middle, and these are linear on the data; the Jacobian of what is learned has few
singular values. What kernel ridge regression learns has a Jacobian of full rank, whatever the targets.

The network is built outer layers first, with more neurons in its middle layers than the teacher has dimensions, and
descends; the figure shows the number of dimensions that remain.

Source: [J23a, Fig. 1 and App. D, F].
"""

from __future__ import annotations

import known_teachers as teachers
import numpy as np
from figure_design import (
    Arrays,
    Asked,
    Claim,
    Design,
    Made,
    Numbers,
    Setting,
    applied,
    ended,
    network,
    square,
    stored,
)
from jaxtyping import Float
from layer_spectra import largest, seen_in, spectrum_panel
from scipy import linalg
from scipy.spatial.distance import cdist, pdist

from covopt.answer import drawing
from covopt.model.problem import make_problem
from covopt.solvers.deep.starts import ends_first
from covopt.solvers.training.homotopy import REFINING, descend
from covopt.studies.audit.jacobians import jacobians

TEACHER = teachers.Teacher(latent=15, rank=4, inputs=50, outputs=50, neurons=100)
DEPTH = 13
LAM = 0.05 / DEPTH
SMALL, PAPER = (300, 40), (500, 100)
"""Samples, and the width of the layers at both ends."""
START = 9
"""Neurons of the layers in the middle at the start."""
FRESH = 100
"""Inputs that were not learned from, at which the Jacobians are taken."""
RIDGE = 1e-4
"""Of kernel ridge regression: min (1/N) |F - Y|^2 + RIDGE |f|_H^2."""
MIDDLE = range(3, DEPTH - 2)
"""Layers, counted from 1, that are not at the ends."""
LINEAR, LARGE = 0.05, 0.1
"""Most nonlinearity of a layer that is called linear; a singular value is large above this part of the largest."""
HEAD = 6
"""Singular values of the Jacobian in the table."""
COLUMNS = ("", "train error", "test error", "|W|^2 / L", "rank of Jf", *(f"s{i + 1}" for i in range(HEAD)))


def _make(asked: Asked) -> Made:
    samples, width = PAPER if asked.paper else SMALL
    (X, Y), (fresh, truth) = teachers.drawn(TEACHER, [samples, FRESH], asked.seed, TEACHER.outputs**0.5)
    problem = make_problem(X, Y, lam=LAM, loss="mse", depth=DEPTH, device=asked.device)
    stop = asked.budget.spent
    built = ends_first(problem, [START], width, asked.seed, stop, of_each=True)[0].weights
    weights = descend(problem, [built], REFINING, stop)[0]
    arrays = {"X": X, "Y": Y, "fresh": fresh, "truth": truth, **stored("network", weights)}
    return Made(_settings(samples, width), arrays, ended(asked.budget))


def _settings(samples: int, width: int) -> list[Setting]:
    t, paper = TEACHER, (samples, width) == PAPER
    return [
        Setting("data", f"x = g(z) in R^{t.inputs}, y = h(z_1, ..., z_{t.rank}) in R^{t.outputs}", True),
        Setting("z", f"{t.latent} Gaussian numbers", True),
        Setting("g, h", f"random ReLU networks of two layers, {t.neurons} neurons", True),
        Setting("depth", f"L = {DEPTH}", True),
        Setting("penalty", f"lam 0.05 / L = {LAM:.6f}", True),
        Setting("samples", str(samples), paper),
        Setting("widths", f"{width} at both ends, {START} between", False),
        Setting(
            "scales", f"slopes of deviation 1, biases {teachers.BIASES:g}; y centred, mean |y|^2 {t.outputs}", False
        ),
        Setting("training", "built outer layers first, then L-BFGS (the paper: Adam, all widths 100)", False),
        Setting("kernel", f"Gaussian, of the samples' mean square distance; ridge {RIDGE:g}", False),
        Setting("fresh inputs", f"{FRESH}, from the same teacher", False),
    ]


class KernelRidge:
    """f(x) = sum_i a_i k(x, x_i), k(x, x') = exp(-|x - x'|^2 / (2 s)), s the mean of |x_i - x_j|^2.

    Args:
        X, Y: samples (N, n_0) and targets (N, n_L).

    Raises:
        ValueError: the samples do not differ.
    """

    def __init__(self, X: Float[np.ndarray, "N n0"], Y: Float[np.ndarray, "N nL"]) -> None:
        if len(X) < 2 or not np.ptp(X, axis=0).any():
            raise ValueError("the samples do not differ")
        self._X, self._scale = X, float(pdist(X, "sqeuclidean").mean())
        K = self._kernel(X) + len(X) * RIDGE * np.eye(len(X))
        self._a = linalg.solve(K, Y, assume_a="pos")

    def _kernel(self, at: Float[np.ndarray, "M n0"]) -> Float[np.ndarray, "M N"]:
        return np.exp(cdist(at, self._X, "sqeuclidean") / (-2.0 * self._scale))

    def __call__(self, at: Float[np.ndarray, "M n0"]) -> Float[np.ndarray, "M nL"]:
        """f at inputs."""
        return self._kernel(at) @ self._a

    def jacobians(self, at: Float[np.ndarray, "M n0"]) -> Float[np.ndarray, "M nL n0"]:
        """Jf(x) = sum_i k(x, x_i) a_i (x_i - x)^T / s at inputs."""
        K = self._kernel(at)
        moved = (K[:, None, :] * self._a.T) @ self._X - (K @ self._a)[:, :, None] * at[:, None, :]
        return moved / self._scale


def _numbers(arrays: Arrays) -> Numbers:
    layers, X, fresh = network(arrays, "network"), arrays["X"], arrays["fresh"]
    ridge, norm = KernelRidge(X, arrays["Y"]), square(layers)
    J = jacobians(layers, fresh, activation="relu")
    learned = _of_function(arrays, applied(layers, X), applied(layers, fresh), J)
    return {
        "network": {**learned, "cost": learned["train"] + LAM * norm, "norm": norm},
        "kernel": _of_function(arrays, ridge(X), ridge(fresh), ridge.jacobians(fresh)),
        "layers": seen_in(layers, X),
    }


def _of_function(
    arrays: Arrays, F: Float[np.ndarray, "N nL"], outputs: Float[np.ndarray, "M nL"], J: Float[np.ndarray, "M nL n0"]
) -> Numbers:
    """Errors, and the singular values of the Jacobians at the fresh inputs."""
    s = largest(J)
    ranks, part = (s > 0.0).sum(axis=1), s / np.where(s[:, :1] > 0.0, s[:, :1], 1.0)
    return {
        "train": float(((F - arrays["Y"]) ** 2).sum(axis=1).mean()),
        "test": float(((outputs - arrays["truth"]) ** 2).sum(axis=1).mean()),
        "singular_values": np.median(s, axis=0).tolist(),
        "ranks": [int(ranks.min()), int(ranks.max())],
        "next": float(part[:, TEACHER.rank].max()),
    }


def _claims(numbers: Numbers) -> list[Claim]:
    k, learned, kernel = TEACHER.rank, numbers["network"], numbers["kernel"]
    inner = [numbers["layers"][number - 1] for number in MIDDLE]
    middle, s = {layer["dimension"] for layer in inner}, learned["singular_values"]
    between = f"layers {MIDDLE[0]} to {MIDDLE[-1]}"
    full = min(TEACHER.inputs, TEACHER.outputs)
    return [
        Claim(
            f"{between} are linear on the data: |Z - relu(Z)| / |Z| is at most {LINEAR}",
            all(layer["nonlinearity"] is not None and layer["nonlinearity"] <= LINEAR for layer in inner),
        ),
        Claim(f"each of {between} has {k} singular values above 1/2, the rank of the teacher", middle == {k}),
        Claim(f"of {START} at the start, each keeps {k} or one more", middle <= {k, k + 1}),
        Claim(
            f"the network's Jacobian has {k} large singular values: at all fresh inputs the next is below {LARGE} s1",
            learned["next"] < LARGE and s[k - 1] > LARGE * s[0],
        ),
        Claim(f"that of kernel ridge regression has full rank, {full}, at all of them", kernel["ranks"] == [full] * 2),
    ]


def _rows(numbers: Numbers) -> list[list[object]]:
    rows: list[list[object]] = []
    for name, told in (("network", numbers["network"]), ("kernel ridge regression", numbers["kernel"])):
        low, high = told["ranks"]
        norm = told["norm"] / DEPTH if "norm" in told else ""
        ranks = str(low) if low == high else f"{low} to {high}"
        rows.append([name, told["train"], told["test"], norm, ranks, *told["singular_values"][:HEAD]])
    return rows


def _panels(_: Arrays, numbers: Numbers) -> list[drawing.Panel]:
    k, layers = TEACHER.rank, numbers["layers"]
    values = [np.array(numbers[name]["singular_values"]) for name in ("network", "kernel")]
    places = np.arange(1.0, len(values[0]) + 1.0)
    shown = [value > 0.0 for value in values]
    names = ("network", "kernel ridge regression")
    jacobian = [
        drawing.Line(name, places[there], value[there], "o-", color)
        for color, (name, value, there) in enumerate(zip(names, values, shown, strict=True))
    ]
    weights, representations = ([layer[name] for layer in layers] for name in ("weights", "representations"))
    ratio = np.array([layer["nonlinearity"] for layer in layers[:-1]], dtype=np.float64)  # None becomes NaN
    return [
        spectrum_panel("Weights", "singular values of W_l", weights, k),
        spectrum_panel("Representations", "singular values of Z_l / sqrt N", representations, k),
        drawing.Panel("Nonlinearity", "layer l", "|Z_l − relu(Z_l)| / |Z_l|", [_curve(ratio)]),
        drawing.Panel("Jacobian at fresh inputs, medians", "place", "singular value", jacobian, logarithmic="y"),
    ]


def _curve(values: Float[np.ndarray, " k"]) -> drawing.Line:
    return drawing.Line("", np.arange(1.0, len(values) + 1.0), values, "o-", 2)


DESIGN = Design(
    title="a deep network recovers the rank of its targets",
    source="[J23a, Fig. 1]",
    question="Does a deep network find how many dimensions its targets depend on?",
    differs=(
        "The paper's caption says rank 4, its Appendix F five numbers z_1, ..., z_5; four are taken here. The paper"
        " trains from random starts by Adam, all layers of width 100; here the network is built outer layers first with"
        f" {START} neurons between, and descends from there. Its norm, about 6 L, depends on scales that it does not"
        " print. The kernel is not the paper's, which prints none."
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
