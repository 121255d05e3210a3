"""Conic particle gradient descent with births and deaths (Chizat 1907.10300; De Castro, Gadat, Marteau 2312.05993).

A network is a measure sum_i r_i delta at (theta_i, omega_i), two unit vectors each, f = sum_i r_i relu(xt theta_i)
omega_i, and the objective is the fit + 2 lam sum_i r_i: its first variation at a particle is eta_i = <relu(Xt theta_i),
G omega_i> + 2 lam with G = 2 (F - Y) / N. Masses move along r exp(-alpha eta), positions down the gradients of eta on
their spheres. Where eta < 0 at a random position (the best omega there is known), a particle is born in place of the
lightest. With all samples the steps adapt (halved when the cost rises), with batches they fall like 1/sqrt(k).
"""

from __future__ import annotations

import numpy as np

from tests.benchmarks.rival_methods.common import TINY, Question
from tests.benchmarks.rival_methods.log import Log

BIRTHS, EVERY = 20, 25
"""Positions tried, and steps from one trial to the next."""
FARTHEST = 0.7
"""Bound on the change of a logarithm of a mass in a step, and on a move over the sphere."""


class Particles:
    """The measure, and the data it is fitted to."""

    def __init__(self, question: Question, width: int, rng: object) -> None:
        Xt, Y = question.Xt, question.Y
        self.Xt, self.Y, self.lam, self.beta, self.rng = Xt, Y, question.lam, question.beta, rng
        self.theta = _unit(rng.standard_normal((width, Xt.shape[1])))  # type: ignore[attr-defined]
        self.omega = _unit(rng.standard_normal((width, Y.shape[1])))  # type: ignore[attr-defined]
        size = np.linalg.norm(Y) / np.linalg.norm(np.maximum(Xt @ self.theta.T, 0.0))
        self.mass = np.full(width, 0.1 * size / np.sqrt(width))

    def bias(self, F: np.ndarray, Y: np.ndarray) -> np.ndarray:
        """The best b of F + beta b, whose cost is lam |b|^2."""
        return -self.beta * np.mean(F - Y, axis=0) / (self.beta**2 + self.lam)

    def look(self, rows: object = slice(None)) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """The cost on these rows, Z, the residual and the bias."""
        Y, Z = self.Y[rows], self.Xt[rows] @ self.theta.T  # type: ignore[index]
        F = np.maximum(Z, 0.0) @ (self.mass[:, None] * self.omega)
        b = self.bias(F, Y)
        R = F + self.beta * b - Y
        cost = np.sum(R**2) / len(Y) + self.lam * (2.0 * np.sum(self.mass) + np.sum(b**2))
        return float(cost), Z, R, b

    def move(self, Z: np.ndarray, R: np.ndarray, rows: object, alpha: float, beta: float) -> None:
        """One conic step."""
        G, H = 2.0 * R / len(R), np.maximum(Z, 0.0)
        eta = np.sum((H.T @ G) * self.omega, axis=1) + 2.0 * self.lam
        up = ((Z > 0.0) * (G @ self.omega.T)).T @ self.Xt[rows]  # type: ignore[index]
        out = H.T @ G
        self.mass = self.mass * np.exp(np.clip(-alpha * eta, -FARTHEST, FARTHEST))
        self.theta = _moved(self.theta, up, beta)
        self.omega = _moved(self.omega, out, beta)

    def births(self, R: np.ndarray, rows: object) -> None:
        """Particles where the first variation is negative, instead of the lightest."""
        tried = _unit(self.rng.standard_normal((BIRTHS, self.theta.shape[1])))  # type: ignore[attr-defined]
        out = np.maximum(self.Xt[rows] @ tried.T, 0.0).T @ (2.0 * R / len(R))  # type: ignore[index]
        born = np.flatnonzero(np.linalg.norm(out, axis=1) > 2.0 * self.lam)
        lightest = np.argsort(self.mass)[: len(born)]
        free = lightest[self.mass[lightest] < 0.01 * np.mean(self.mass)]
        born = born[: len(free)]
        self.theta[free], self.omega[free] = tried[born], _unit(-out[born])
        self.mass[free] = 0.01 * np.mean(self.mass)

    def weights(self, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[W_1, W_2], balanced."""
        roots = np.sqrt(self.mass)[:, None]
        return roots * self.theta, np.hstack([(roots * self.omega).T, b[:, None]])


def run(
    question: Question,
    log: Log,
    seed: int,
    *,
    width: int = 300,
    batch: int = 512,
    alpha: float = 0.1,
    ratio: float = 0.5,
    method: str = "",
) -> None:
    """Until the time is up; all samples at once where there are at most 4 batches of them.

    Args:
        alpha: the step of the masses, over the mean mass and the mean square of an input.
        ratio: the step of the positions by that of the masses; 1/2 is gradient descent on balanced weights.
    """
    rng = np.random.default_rng(seed)
    particles = Particles(question, width, rng)
    whole, count, size = len(question.X) <= 4 * batch, 0, alpha
    rows: object = slice(None)
    before = None
    cost, Z, R, b = particles.look()
    while log.running():
        log.see(*particles.weights(b))
        if not whole:
            rows = rng.integers(len(question.X), size=batch)
            cost, Z, R, b = particles.look(rows)
            size = alpha / np.sqrt(1.0 + count / 300.0)
        count += 1
        if count % EVERY == 0:
            particles.births(R, rows)
            size = max(size, 0.01 * alpha)  # kinks have made it small
            cost, Z, R, b = particles.look(rows)
        before = particles.mass, particles.theta, particles.omega
        scale = np.mean(np.sum(particles.Xt[:512] ** 2, axis=1)) * max(float(np.mean(particles.mass)), TINY)
        particles.move(Z, R, rows, size / scale, ratio * size / scale)
        if whole:
            reached = particles.look()
            if reached[0] > cost:
                particles.mass, particles.theta, particles.omega = before
                size *= 0.5
            else:
                (cost, Z, R, b), size = reached, 1.05 * size


def _moved(points: np.ndarray, gradient: np.ndarray, step: float) -> np.ndarray:
    """A bounded step down the gradient on the spheres."""
    tangent = gradient - np.sum(gradient * points, axis=1, keepdims=True) * points
    moved = -step * tangent
    length = np.linalg.norm(moved, axis=1, keepdims=True)
    return _unit(points + moved * np.minimum(1.0, FARTHEST / np.maximum(length, TINY)))


def _unit(points: np.ndarray) -> np.ndarray:
    return points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), TINY)
