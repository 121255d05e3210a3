"""The data that the benchmarks solve; NumPy only."""

from dataclasses import dataclass, replace

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine

from tests.benchmarks.objective import Array


@dataclass(frozen=True)
class Work:
    """A problem; `lam` None asks for the representation cost."""

    name: str
    X: Array
    Y: Array
    lam: float | None
    beta: float
    depth: int = 2
    loss: str | None = None
    activation: str = "relu"

    @property
    def question(self) -> dict:
        """The options of `covopt.solve` that ask it."""
        asked = {"lam": self.lam, "bias": self.beta, "depth": self.depth, "activation": self.activation}
        return asked | ({} if self.loss is None else {"loss": self.loss})

    @property
    def slope(self) -> float:
        """sigma(z) = slope z for z < 0."""
        return {"relu": 0.0, "linear": 1.0}[self.activation]


def one_input() -> Work:
    """x on [-2, 2], y = (sin 2x, cos 3x)."""
    x = np.linspace(-2.0, 2.0, 1000)
    return Work("one-input", x[:, None], np.column_stack([np.sin(2 * x), np.cos(3 * x)]), 1e-4, 1.0)


def digits(rows: int, lam: float, depth: int = 2, loss: str | None = None) -> Work:
    """The first rows of the digits, X / 16, one-hot targets, no bias."""
    pixels, classes = load_digits(return_X_y=True)
    X, Y = np.asarray(pixels)[:rows] / 16.0, np.eye(10)[classes[:rows]]
    return Work(f"digits-{rows}", X, Y, lam, 0.0, depth, loss)


def teacher(seed: int, inputs: int = 5) -> Work:
    """100 standard normal points in 5 dimensions or so many, the sum of 5 random ReLU neurons as target."""
    rng = np.random.default_rng(seed)
    X, W, v = rng.standard_normal((100, inputs)), rng.standard_normal((5, inputs)), rng.standard_normal((5, 1))
    return Work(
        f"teacher-{seed}" + (f"-of-{inputs}" if inputs != 5 else ""), X, np.maximum(X @ W.T, 0.0) @ v, 1e-2, 0.0
    )


def wide(rows: int = 100, inputs: int = 2000) -> Work:
    """More standard normal inputs than rows; two sums of 5 random ReLU neurons, standardised, and noise of 0.1."""
    rng = np.random.default_rng(3)
    X, W = rng.standard_normal((rows, inputs)), rng.standard_normal((inputs, 5))
    Y = np.maximum(X @ W, 0.0) @ rng.standard_normal((5, 2))
    Y = (Y - np.mean(Y, axis=0)) / np.std(Y, axis=0) + 0.1 * rng.standard_normal((rows, 2))
    return Work(f"wide-{rows}-of-{inputs}", X, Y, 1e-3, 1.0)


def checkerboard(rows: int = 200) -> Work:
    """Uniform points in a square, and the colour of a board of 16 fields there."""
    X = np.random.default_rng(7).uniform(-2.0, 2.0, (rows, 2))
    return Work("checkerboard", X, np.where(np.floor(X).sum(axis=1) % 2 == 0, 1.0, -1.0)[:, None], 1e-4, 1.0)


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


def two_classes(lam: float) -> Work:
    """Breast cancer, all rows, columns standardised, classes -1 and 1, logistic loss."""
    work = table("breast-cancer", None, lam)
    return replace(work, Y=work.Y[:, 1:] - work.Y[:, :1], loss="logistic")


def standardised(work: Work, loss: str) -> Work:
    """The work with targets of mean 0 and deviation 1, and this loss."""
    return replace(work, Y=(work.Y - np.mean(work.Y, axis=0)) / np.std(work.Y, axis=0), loss=loss)


def random_sets(b: float, count: int = 100) -> list[Work]:
    """25 standard normal points in the plane with 5 standard normal targets each, no bias; lam = b / 25."""
    sets = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        X, Y = rng.standard_normal((25, 2)), rng.standard_normal((25, 5))
        sets.append(Work(f"random-set-{seed}, b = {b}", X, Y, b / 25, 0.0))
    return sets
