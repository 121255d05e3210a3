"""Problems made to refute a lower bound, with networks whose cost is known: duplicates, near-ties, scales far apart.

Nothing here comes from covopt: data and networks are NumPy, and a network's cost is evaluated in NumPy, with the
exponents and the 64 bits of an extended double where there are such.
"""

import itertools
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

Array = NDArray[np.float64]

SLOPES = (0.0, 0.0, 0.0, 0.01, 0.5, -0.5, -0.99, 1.0)
BIASES = (0.0, 0.0, 1.0, 1.0, 1e-3, 1e3)
MISFITS = {2: 1e-10}
"""What a network of depth 2 may miss, relative to the largest target, and still fit exactly; 1e-7 at other depths."""
STEPS = 40  # of L-BFGS
TRAINED = 1e8  # numbers beyond this, or below 1 over it, are not trained on


@dataclass(frozen=True)
class Question:
    """min C(F) + lam |W|^2 as a user asks it.

    Attributes:
        X, Y: the data (N, n_0), (N, n_L).
        loss: mse, cross_entropy, huber:D, logistic (targets -1 and 1) or interpolate.
        depth: L; beta: the amount of bias; slope: of the activation.
        weight: of the rows (N,), some of them 0; None where all are equal.
        free: whether biases cost nothing (beta is 1); skip: whether a linear function costs nothing either.
    """

    X: Array
    Y: Array
    loss: str
    lam: float
    depth: int
    beta: float
    slope: float
    weight: Array | None = None
    free: bool = False
    skip: bool = False

    @property
    def options(self) -> dict[str, object]:
        """Of `make_problem` and `covopt.solve`."""
        activation = {0.0: "relu", 1.0: "linear"}.get(self.slope, f"leaky:{self.slope}")
        asked: dict[str, object] = {"loss": self.loss, "depth": self.depth, "activation": activation}
        asked["bias"] = "free" if self.free else self.beta
        asked |= {} if self.loss == "interpolate" else {"lam": self.lam}
        asked |= {} if self.weight is None else {"sample_weight": self.weight}
        return asked | ({"skip": True} if self.skip else {})

    @property
    def moderate(self) -> bool:
        """Whether float64 can be trained with."""
        sizes = [np.abs(self.X), np.abs(self.Y), np.array([self.lam])]
        return all(1.0 / TRAINED < float(each.max()) < TRAINED for each in sizes)

    def penalised(self, weights: list[Array]) -> list[Array]:
        """The part of each layer that the penalty is on."""
        if not self.free:
            return weights
        last = weights[-1][:, : weights[-1].shape[1] - 1 - self.skip * self.X.shape[1]]
        return [*(W[:, :-1] for W in weights[:-1]), last]

    def layers(self, weights: list[Array], X: Array | None = None) -> list[Array]:
        """[Zs_0, ..., Zs_{L-1}, F]: what each layer acts on, and the outputs."""
        X = self.X if X is None else X
        found = [_with_bias(X, self.beta)]
        for layer, W in enumerate(weights[:-1], start=1):
            Z = found[-1] @ W.T
            Z = np.where(Z >= 0.0, Z, self.slope * Z)
            skipped = self.skip and layer == len(weights) - 1
            found.append(_with_bias(np.hstack([Z, X]) if skipped else Z, self.beta))
        return [*found, found[-1] @ weights[-1].T]

    def outputs(self, weights: list[Array]) -> Array:
        """F of the network W_1 ... W_L, the bias column last."""
        return self.layers(weights)[-1]

    def losses(self, F: Array) -> Array:
        """c(F_i), one for each row."""
        Y, loss = self.Y, self.loss
        if loss == "mse":
            return ((F - Y) ** 2).sum(axis=1)
        if loss.startswith("huber"):
            delta = float(loss.partition(":")[2] or 1.0)
            rest = np.abs(F - Y)
            return np.where(rest <= delta, rest**2 / 2.0, delta * (rest - delta / 2.0)).sum(axis=1)
        if loss == "logistic":
            return np.logaddexp(np.zeros_like(F), -Y * F).sum(axis=1)
        top = F.max(axis=1, keepdims=True)
        return np.log(np.exp(F - top).sum(axis=1)) + top[:, 0] - (F * Y).sum(axis=1)

    def slopes(self, F: Array) -> Array:
        """grad c(F_i)."""
        Y, loss = self.Y, self.loss
        if loss == "mse":
            return 2.0 * (F - Y)
        if loss.startswith("huber"):
            delta = float(loss.partition(":")[2] or 1.0)
            return np.clip(F - Y, -delta, delta)
        if loss == "logistic":
            return -Y * expit(-Y * F)
        p = np.exp(F - F.max(axis=1, keepdims=True))
        return p / p.sum(axis=1, keepdims=True) - Y

    @property
    def shares(self) -> Array:
        """What of C the loss of each row is."""
        weight = np.ones(len(self.X)) if self.weight is None else self.weight
        return weight / weight.sum()

    def parts(self, weights: list[Array]) -> tuple[float, float]:
        """(C(F), |W|^2) in extended precision; C is infinite where the network is no exact fit but should be."""
        big: list[Any] = [np.asarray(W, dtype=np.longdouble) for W in weights]
        wide = replace(self, X=self.X.astype(np.longdouble), Y=self.Y.astype(np.longdouble))
        with np.errstate(all="ignore"):
            F = wide.outputs(big)
            norm = float(sum((W**2).sum() for W in self.penalised(big)))
            if self.loss == "interpolate":
                rows = self.shares > 0.0
                allowed = MISFITS.get(len(weights), 1e-7) * np.abs(self.Y[rows]).max()
                return (0.0 if np.abs(F - wide.Y)[rows].max() <= allowed else np.inf), norm
            return float((self.shares.astype(np.longdouble) * wide.losses(F)).sum()), norm

    def cost(self, weights: list[Array]) -> float:
        """The objective of a network; infinite where it is no exact fit but should be, or beyond float64."""
        fit, norm = self.parts(weights)
        total = norm + fit if self.loss == "interpolate" else fit + self.lam * norm
        return total if np.isfinite(total) else np.inf

    def gradient(self, weights: list[Array]) -> list[Array]:
        """Of the objective, by backpropagation."""
        layers = self.layers(weights)
        into = self.shares[:, None] * self.slopes(layers[-1])
        found: list[Array] = []
        for layer in range(len(weights) - 1, -1, -1):
            found.insert(0, into.T @ layers[layer])
            if layer:
                Z = layers[layer][:, : len(weights[layer - 1])]
                into = (into @ weights[layer])[:, : Z.shape[1]] * np.where(Z >= 0.0, 1.0, self.slope)
        for slope, W in zip(self.penalised(found), self.penalised(weights), strict=True):
            slope += 2.0 * self.lam * W  # views
        return found

    def trained(self, weights: list[Array], until: float = np.inf, **options: float) -> list[Array]:
        """These weights after some steps of L-BFGS, with SciPy's options; after `until` on the clock, TimeoutError."""
        ends = np.cumsum([W.size for W in weights])[:-1]

        def unpacked(values: Array) -> list[Array]:
            return [part.reshape(W.shape) for part, W in zip(np.split(values, ends), weights, strict=True)]

        def both(values: Array) -> tuple[float, Array]:
            if time.perf_counter() > until:
                raise TimeoutError
            each = unpacked(values)
            total = float(self.shares @ self.losses(self.outputs(each)))
            total += self.lam * float(sum((W**2).sum() for W in self.penalised(each)))
            return total, np.concatenate([slope.ravel() for slope in self.gradient(each)])

        start = np.concatenate([W.ravel() for W in weights])
        with np.errstate(all="ignore"):
            options = {"maxiter": STEPS} | options
            return unpacked(minimize(both, start, jac=True, method="L-BFGS-B", options=options).x)

    def balanced(self, weights: list[Array]) -> list[Array]:
        """The same function with each neuron's weights as large before it as behind it; no dearer."""
        weights = [W.copy() for W in weights]
        with np.errstate(all="ignore"):
            for _ in range(1 if len(weights) == 2 else 20):
                parts = self.penalised(weights)
                for layer in range(len(weights) - 1):
                    before = np.linalg.norm(parts[layer], axis=1)
                    scale = np.sqrt(np.linalg.norm(parts[layer + 1][:, : len(before)], axis=0) / before)
                    scale = np.where(np.isfinite(scale) & (scale > 0.0), scale, 1.0)
                    weights[layer] *= scale[:, None]
                    weights[layer + 1][:, : len(before)] /= scale
        return weights


@dataclass(frozen=True)
class Attack:
    """A question and the least cost of the networks that are known for it.

    Attributes:
        question: the question.
        upper: no true lower bound is above this.
        says: how the data were made.
        weights: the planted network; best: the one that costs `upper`.
    """

    question: Question
    upper: float
    says: str
    weights: list[Array]
    best: list[Array]

    @property
    def X(self) -> Array:
        """The inputs."""
        return self.question.X

    @property
    def Y(self) -> Array:
        """The targets."""
        return self.question.Y

    @property
    def options(self) -> dict[str, object]:
        """Of `make_problem` and `covopt.solve`."""
        return self.question.options


def _with_bias(Z: Array, beta: float) -> Array:
    return np.hstack([Z, np.full((len(Z), 1), beta, dtype=Z.dtype)])


def inputs(rng: np.random.Generator, samples: int, columns: int) -> tuple[Array, str]:
    """Inputs that are hard on numerics, and what makes them so."""
    kinds = (
        "gauss int repeat collinear zero near-rows near-rank row-scales column-scales scale features ties one-hot far"
    )
    kind = str(rng.choice(kinds.split()))
    X = rng.standard_normal((samples, columns))
    i, j = rng.integers(samples), rng.integers(samples)
    match kind:
        case "int":
            X = rng.integers(-2, 3, X.shape).astype(float)
        case "repeat":
            X[i] = X[j]
        case "collinear":
            X = np.outer(X[:, 0], rng.standard_normal(columns))
        case "zero":
            X[i] = 0.0
        case "near-rows":
            X[i] = X[j] * rng.choice([1.0, -1.0, 1.0 + 2.0**-52]) + 10.0 ** rng.uniform(-17, -4) * X[i]
        case "near-rank":
            X = np.outer(X[:, 0], rng.standard_normal(columns)) + 10.0 ** rng.uniform(-14, -5) * X
        case "row-scales":
            X *= 10.0 ** rng.uniform(-8, 8, (samples, 1))
        case "column-scales":
            X *= 10.0 ** rng.uniform(-8, 8, (1, columns))
        case "scale":
            X *= 10.0 ** rng.uniform(-150, 70)
        case "features":
            X[:, 0] = X[:, -1] * rng.choice([1.0, -1.0, 2.0])
        case "ties":
            X = np.round(X, 1) + 1e-13 * X
        case "one-hot":
            X = np.eye(max(X.shape))[:samples, :columns]
        case "far":  # from the origin
            X += 10.0 ** rng.uniform(1, 9) * rng.standard_normal((1, columns))
    return X, kind


def drawn(rng: np.random.Generator, widths: list[int]) -> list[Array]:
    """Standard normal weights, from the inputs to the outputs."""
    return [rng.standard_normal((n, m + 1)) for m, n in itertools.pairwise(widths)]


def network(rng: np.random.Generator, X: Array, widths: list[int]) -> list[Array]:
    """A random network: general, without bias, nearly of rank one, or along the inputs' first direction."""
    weights = drawn(rng, widths)
    kind = rng.choice(["general", "biasless", "nearly", "along"])
    if kind != "general":
        for W in weights:
            W[:, -1] *= 0.01 if kind == "nearly" else 0.0
    if kind == "along":
        direction = np.linalg.svd(X / (np.abs(X).max() or 1.0))[2][0]
        for layer, W in enumerate(weights[:-1]):
            W[:, :-1] = 0.0
            if layer == 0:
                W[:, :-1] = np.outer(np.resize([1.0, -1.0], len(W)), direction)
            else:
                np.fill_diagonal(W[:, :-1], 1.0)
    norms = [np.linalg.norm(W) for W in weights]
    mean = np.exp(np.mean(np.log(norms))) * 10.0 ** rng.uniform(-3, 3)
    return [W * (mean / norm) for W, norm in zip(weights, norms, strict=True)]


LOSSES = ("interpolate", "interpolate", "mse", "mse", "cross_entropy", "huber", "logistic")


def attack(
    seed: int, depth: int | None = None, loss: str | None = None, plain: bool = False, samples: int | None = None
) -> Attack | None:
    """One problem with what its networks cost; None where the draw gives none (zero targets, numbers beyond 1e75).

    Args:
        seed: of everything; depth, loss, samples: given ones, else drawn.
        plain: biases cost something, and all samples count alike.
    """
    rng = np.random.default_rng(seed)
    few = int(rng.integers(1, 9))
    samples, columns, classes = samples or few, int(rng.integers(1, 6)), int(rng.choice([1, 1, 2, 3]))
    depths = int(rng.choice([2, 2, 2, 3, 4, 6, 13]))
    depth = depths if depth is None else depth
    slope, beta = float(rng.choice(SLOPES)), float(rng.choice(BIASES))
    X, kind = inputs(rng, samples, columns)
    drawn_loss = str(rng.choice(LOSSES))
    loss = drawn_loss if loss is None else loss
    classes = 1 if loss == "logistic" else classes
    loss = "mse" if loss == "cross_entropy" and classes == 1 else loss
    lam = 1.0 if loss == "interpolate" else 10.0 ** rng.uniform(-12, 3)
    free = not plain and rng.random() < 0.25
    skip = bool(free and loss in ("mse", "interpolate") and rng.random() < 0.5)
    weight = None
    if not plain and rng.random() < 0.25:
        weight = 10.0 ** rng.uniform(-5, 5, samples) * (rng.random(samples) < 0.8)
        weight[rng.integers(samples)] = 1.0
    weights = network(rng, X, [columns, *[int(rng.choice([1, 2, 4]))] * (depth - 1), classes])
    if skip:
        S = rng.standard_normal((classes, columns)) * np.abs(weights[-1]).max()
        weights[-1] = np.hstack([weights[-1][:, :-1], S, weights[-1][:, -1:]])
    if rng.random() < 0.1:  # targets of another size than the inputs'
        weights[-1] = weights[-1] * 10.0 ** rng.uniform(-60, 60)
    asked = Question(
        X, np.zeros((samples, classes)), loss, lam, depth, 1.0 if free else beta, slope, weight, free, skip
    )
    with np.errstate(all="ignore"):
        F = asked.outputs(weights)
    largest = float(np.abs(F).max())
    if not np.isfinite(F).all() or not 1e-250 < largest < 1e70:
        return None
    if loss == "huber":
        asked = replace(asked, loss=f"huber:{largest * 10.0 ** rng.uniform(-3, 3):.6g}")
    asked = replace(asked, Y=_targets(rng, F, loss, largest, MISFITS.get(depth, 1e-7)))
    upper, best = least(asked, weights)
    if not np.isfinite(upper):
        return None
    return Attack(asked, upper, f"seed {seed}, {kind}, {loss}, depth {depth}", weights, best)


def _targets(rng: np.random.Generator, F: Array, loss: str, largest: float, misfit: float) -> Array:
    if loss == "logistic":
        labels = np.where(np.median(F) <= F, 1.0, -1.0)
        return labels if rng.random() < 0.5 else rng.choice([-1.0, 1.0], F.shape)
    if loss == "cross_entropy":
        labels = F.argmax(axis=1) if rng.random() < 0.5 else rng.integers(0, F.shape[1], len(F))
        soft = rng.dirichlet(np.full(F.shape[1], rng.choice([0.1, 1.0, 10.0])), len(F))
        return np.eye(F.shape[1])[labels] if rng.random() < 0.6 else soft
    if loss == "interpolate":  # half of the networks miss by nearly as much as is allowed
        return F + 0.9 * misfit * largest * rng.uniform(-1, 1, F.shape) * (rng.random() < 0.5)
    return F + rng.choice([0.0, 1e-3, 1.0]) * largest * rng.standard_normal(F.shape)


def least(asked: Question, weights: list[Array]) -> tuple[float, list[Array]]:
    """The least cost of the network, its rescalings, trainings of them, the zero network, the constant ones; and it."""
    zero = [W * 0.0 for W in weights]
    constants = [W.copy() for W in zero]
    if asked.beta > 0.0:
        shrunk = 1.0 + asked.lam / asked.beta**2 if asked.loss == "mse" and not asked.free else 1.0
        constants[-1][:, -1] = (asked.shares @ asked.Y) / asked.beta / shrunk
    known = [weights, zero, constants, asked.balanced(weights)]
    if asked.loss != "interpolate":
        known += [[W * scale for W in known[-1]] for scale in 10.0 ** np.linspace(-3, 1, 17)]
    elif asked.beta == 0.0:  # layers may be rescaled against each other: equal ones are cheapest
        norms = [np.linalg.norm(W) for W in weights]
        if min(norms) > 0.0:
            mean = np.exp(np.mean(np.log(norms)))
            known.append([W * (mean / norm) for W, norm in zip(weights, norms, strict=True)])
    costs = [asked.cost(each) for each in known]
    place = int(np.argmin(costs))
    upper, best = costs[place], known[place]
    if asked.loss != "interpolate" and asked.moderate and np.isfinite(upper):
        for start in (best, known[3]):
            found = asked.trained(start)
            better = asked.cost(found)
            if better < upper:
                upper, best = better, found
    return float(upper), best
