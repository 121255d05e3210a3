"""The data that the benchmarks solve, and what is known of their optima; NumPy only."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine

from tests.benchmarks.objective import Array

CASES = Path(__file__).resolve().parents[1] / "cases" / "shallow_exact.json"


@dataclass(frozen=True)
class Work:
    """A problem; `lam` None asks for the representation cost.

    Attributes:
        lower, upper: what the optimum lies between, where that is known from elsewhere.
    """

    name: str
    X: Array
    Y: Array
    lam: float | None
    beta: float
    depth: int = 2
    loss: str | None = None
    activation: str = "relu"
    lower: float | None = None
    upper: float | None = None

    @property
    def question(self) -> dict:
        """The options of `covopt.solve` that ask it."""
        asked = {"lam": self.lam, "bias": self.beta, "depth": self.depth, "activation": self.activation}
        return asked | ({} if self.loss is None else {"loss": self.loss})

    @property
    def slope(self) -> float:
        """sigma(z) = slope z for z < 0."""
        return {"relu": 0.0, "linear": 1.0}[self.activation]

    def off(self, cost: float) -> float:
        """Relative distance of a cost from what is known of the optimum; infinite where there is no cost."""
        if self.lower is None or self.upper is None:
            raise ValueError(f"Nothing is known of the optimum of {self.name}.")
        return math.inf if math.isnan(cost) else max(0.0, cost - self.upper, self.lower - cost) / self.upper


def shallow_exact() -> list[Work]:
    """The cases certified by an independent arrangement-and-cutting-plane solver."""
    return [
        Work(
            name=case["name"],
            X=np.array(case["X"]),
            Y=np.array(case["Y"]),
            lam=case["lam"],
            beta=case["beta"],
            lower=case["lower"],
            upper=case["upper"],
        )
        for case in json.loads(CASES.read_text())["cases"]
    ]


def one_input() -> Work:
    """x on [-2, 2], y = (sin 2x, cos 3x)."""
    x = np.linspace(-2.0, 2.0, 1000)
    return Work("one-input", x[:, None], np.column_stack([np.sin(2 * x), np.cos(3 * x)]), 1e-4, 1.0)


def digits(rows: int, lam: float) -> Work:
    """The first rows of the digits, X / 16, one-hot targets, no bias."""
    pixels, classes = load_digits(return_X_y=True)
    return Work(f"digits-{rows}", np.asarray(pixels)[:rows] / 16.0, np.eye(10)[classes[:rows]], lam, 0.0)


def teacher(seed: int, inputs: int = 5) -> Work:
    """100 standard normal points in 5 dimensions or so many, the sum of 5 random ReLU neurons as target."""
    rng = np.random.default_rng(seed)
    X, W, v = rng.standard_normal((100, inputs)), rng.standard_normal((5, inputs)), rng.standard_normal((5, 1))
    return Work(
        f"teacher-{seed}" + (f"-of-{inputs}" if inputs != 5 else ""), X, np.maximum(X @ W.T, 0.0) @ v, 1e-2, 0.0
    )


def mixture(rows: int) -> Work:
    """784 inputs: 10 classes of 4 clumps each on a 30-dimensional subspace, and noise in all directions; one-hot.

    Centres are standard normal in the subspace, clumps have standard deviation 0.5 there, the noise 0.1; X / sqrt(30).
    """
    inputs, rank, classes, clumps = 784, 30, 10, 4
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((inputs, rank)))[0]
    centres = rng.standard_normal((classes * clumps, rank))
    clump = rng.integers(classes * clumps, size=rows)
    inside = centres[clump] + 0.5 * rng.standard_normal((rows, rank))
    X = inside @ basis.T + 0.1 * rng.standard_normal((rows, inputs))
    return Work(f"mixture-{rows}", X / np.sqrt(rank), np.eye(classes)[clump % classes], 1e-4, 0.0)


TABLES = {"iris": load_iris, "wine": load_wine, "breast-cancer": load_breast_cancer, "diabetes": load_diabetes}


def table(name: str, rows: int | None, lam: float) -> Work:
    """The first rows of a table, its columns with mean 0 and deviation 1; classes one-hot, numbers as they are."""
    features, targets = (np.asarray(each, dtype=float) for each in TABLES[name](return_X_y=True))
    X = (features - np.mean(features, axis=0)) / np.std(features, axis=0)
    Y = targets[:, None] if name == "diabetes" else np.eye(int(targets.max()) + 1)[targets.astype(int)]
    return Work(name, X[:rows], Y[:rows], lam, 1.0)


def random_sets(b: float, count: int = 100) -> list[Work]:
    """25 standard normal points in the plane with 5 standard normal targets each, no bias; lam = b / 25."""
    sets = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        X, Y = rng.standard_normal((25, 2)), rng.standard_normal((25, 5))
        sets.append(Work(f"random-set-{seed}, b = {b}", X, Y, b / 25, 0.0))
    return sets


def exact_values() -> list[Work]:
    """Closed forms of two-layer optima without bias [JGHG22]: lower = upper = the value."""
    return list(_closed_forms())


def pairs() -> list[tuple[str, Work, Work, float]]:
    """Homogeneity: name, two works, and what the second costs divided by what the first costs."""
    plane = next(work for work in shallow_exact() if work.name == "interp-plane")
    scaled = {"lower": None, "upper": None}
    return [
        ("R(X, 3 Y) = 3 R(X, Y)", plane, replace(plane, name="interp-plane, 3 Y", Y=3.0 * plane.Y, **scaled), 3.0),
        ("R(3 X, Y) = R(X, Y) / 3", plane, replace(plane, name="interp-plane, 3 X", X=3.0 * plane.X, **scaled), 1 / 3),
    ]


def _closed_forms() -> Iterator[Work]:
    rng = np.random.default_rng(0)

    def cost(name: str, X: Array, Y: Array, value: float, activation: str = "relu") -> Work:
        return Work(name, X, Y, None, 0.0, activation=activation, lower=value, upper=value)

    B = np.abs(rng.standard_normal((6, 8)))
    rotation = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    yield cost("X = I, completely positive root: 2 |Y|_*", np.eye(6), B @ B.T @ rotation, 2.0 * float(np.sum(B**2)))

    for sizes in ((1, 1, 1), (4, 4, 4), (1, 2, 5)):
        Y = np.eye(len(sizes))[np.repeat(np.arange(len(sizes)), sizes)]
        yield cost(f"X = I, one-hot {sizes}: 2 sum sqrt(m)", np.eye(len(Y)), Y, 2.0 * float(np.sum(np.sqrt(sizes))))

    for N in (4, 6, 8):
        half = np.ones((N // 2, N // 2))
        bipartite = np.block([[N / 2 * np.eye(N // 2), half], [half, N / 2 * np.eye(N // 2)]])
        yield cost(f"X = I, complete bipartite, N = {N}: N^2", np.eye(N), bipartite, float(N**2))

    norms, y = np.array([0.5, 1.0, 2.0, 3.0, 1.5]), np.array([[1.0], [-2.0], [0.7], [-0.3], [0.0]])
    X = norms[:, None] * np.linalg.qr(rng.standard_normal((7, 5)))[0].T
    ratio = y[:, 0] / norms
    value = 2.0 * (np.linalg.norm(np.maximum(ratio, 0)) + np.linalg.norm(np.minimum(ratio, 0)))
    yield cost("orthogonal rows, scalar y", X, y, float(value))

    y = np.abs(rng.standard_normal((6, 1)))
    yield cost("X = I, scalar y >= 0: 2 |y|", np.eye(6), y, 2.0 * float(np.linalg.norm(y)))

    X, A = rng.standard_normal((10, 4)), rng.standard_normal((4, 3))
    yield cost("linear network: 2 |X^+ Y|_*", X, X @ A, 2.0 * float(np.linalg.norm(A, "nuc")), "linear")
    X, A = rng.standard_normal((3, 5)), rng.standard_normal((5, 4))
    nuclear = float(np.linalg.norm(np.linalg.pinv(X) @ (X @ A), "nuc"))
    yield cost("linear network, fewer rows than inputs", X, X @ A, 2.0 * nuclear, "linear")

    X, Y = np.array([[1.0], [-1.0]]), np.array([[1.0], [1.0]])
    yield cost("X = (1, -1), Y = (1, 1)", X, Y, 4.0)
    for lam in (0.1, 0.25, 0.5):  # the paper sums over the two rows, we take the mean: its lam is twice ours
        value = 4.0 * lam * (1.0 - lam)  # at lam = 0.5 that of the zero network
        yield Work(f"the same, lam = {lam}: 4 lam (1 - lam)", X, Y, lam, 0.0, lower=value, upper=value)
