"""Published methods for A = B B^T, B >= 0 (n, r), in NumPy, for the benchmark `cp-factors`.

The iterations are those of the papers; the codes are ours, and so are parameters that are not named here. All end when
|A - B B^T|^2 <= 1e-15 |A|^2. The first two start from B_0 (n, r), a square root of A with more columns.

* `alternating`: Groetzner, Duer, *A factorization method for completely positive matrices*, Linear Algebra Appl. 591
  (2020), Algorithm 3, the heuristic that they compute with: P = max(B_0 Q, 0), B_0^+ P + (I - B_0^+ B_0) Q in place of
  the projection on { Q : B_0 Q >= 0 }, and the polar factor of it.
* `difference_of_convex`: Chen, Pong, Tan, Zeng, *A difference-of-convex approach for split feasibility with
  applications to matrix factorizations and outlier detection*, J. Global Optim. 78 (2020), SpFeasDC_ls: min
  dist^2(B_0 Q, cone) / 2 over orthogonal Q, gradient steps of Barzilai and Borwein's length, projected on the
  orthogonal matrices, with a non-monotone line search.
* `projected_gradient`: Bot, Nguyen, *Factorization of completely positive matrices using iterative projected gradient
  steps*, Numer. Linear Algebra Appl. 28 (2021): min |A - B B^T|^2 / 2 over B >= 0, |B|^2 <= tr A, projected gradient
  steps with inertia.
"""

import time
from collections.abc import Callable

import numpy as np

STOP = 1e-15
"""Squared relative residual."""

Method = Callable[[np.ndarray, int, np.random.Generator, float], np.ndarray | None]


def _wide_root(A: np.ndarray, r: int) -> np.ndarray:
    """B_0 (n, r) with B_0 B_0^T = A: the Cholesky factor beside zeros, its columns spread by an orthogonal matrix."""
    n = len(A)
    root = np.zeros((n, r))
    root[:, :n] = np.linalg.cholesky(A)
    # Column replication of Groetzner and Duer: one column is divided among all that are added.
    root[:, n - 1 :] = root[:, n - 1 : n] / np.sqrt(r - n + 1)
    return root


def _orthogonal(M: np.ndarray) -> np.ndarray:
    U, _, Vt = np.linalg.svd(M)
    return U @ Vt


def _start(r: int, rng: np.random.Generator) -> np.ndarray:
    return _orthogonal(rng.standard_normal((r, r)))


def _reached(A: np.ndarray, B: np.ndarray) -> bool:
    return bool(np.sum((A - B @ B.T) ** 2) <= STOP * np.sum(A**2))


def alternating(A: np.ndarray, r: int, rng: np.random.Generator, deadline: float) -> np.ndarray | None:
    """Groetzner and Duer (2020)."""
    root, Q = _wide_root(A, r), _start(r, rng)
    inverse = np.linalg.pinv(root)
    while time.perf_counter() < deadline:
        X = root @ Q
        B = np.maximum(X, 0.0)
        if _reached(A, B):
            return B
        Q = _orthogonal(Q + inverse @ (B - X))  # B_0^+ B + (I - B_0^+ B_0) Q
    return None


def difference_of_convex(A: np.ndarray, r: int, rng: np.random.Generator, deadline: float) -> np.ndarray | None:
    """Chen, Pong, Tan and Zeng (2020): SpFeasDC_ls."""
    root, Q = _wide_root(A, r), _start(r, rng)
    lipschitz = float(np.linalg.eigvalsh(A)[-1])
    memory, least, growth, decrease = 5, 1e-8 * lipschitz, 2.0, 1e-4
    values: list[float] = []
    step, last = lipschitz, None
    while time.perf_counter() < deadline:
        X = root @ Q
        B = np.maximum(X, 0.0)
        if _reached(A, B):
            return B
        values.append(0.5 * float(np.sum((X - B) ** 2)))
        gradient = root.T @ (X - B)
        if last is not None:  # Barzilai and Borwein's length
            moved, turned = Q - last[0], gradient - last[1]
            size = float(np.sum(moved**2))
            step = min(max(float(np.sum(moved * turned)) / size, least), lipschitz) if size else lipschitz
        last = (Q, gradient)
        while True:
            following = _orthogonal(Q - gradient / step)
            missing = np.minimum(root @ following, 0.0)
            bound = max(values[-memory:]) - 0.5 * decrease * float(np.sum((following - Q) ** 2))
            if 0.5 * float(np.sum(missing**2)) <= bound or step >= 4.0 * lipschitz:
                break
            step *= growth
        Q = following
    return None


def projected_gradient(A: np.ndarray, r: int, rng: np.random.Generator, deadline: float) -> np.ndarray | None:
    """Bot and Nguyen (2021): the variant with Nesterov's growing inertia."""
    size = float(np.linalg.norm(A, 2))
    radius = float(np.sqrt(np.trace(A)))  # |B|^2 = tr A at a solution
    B = np.abs(rng.standard_normal((len(A), r)))
    B = last = B * radius / np.linalg.norm(B)
    momentum = 1.0
    while time.perf_counter() < deadline:
        if _reached(A, B):
            return B
        following = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        Y = B + (momentum - 1.0) / following * (B - last)
        momentum = following
        # The gradient of |A - B B^T|^2 / 2 is 2 (B B^T - A) B; near Y its Lipschitz constant is 2 (3 |Y|_2^2 + |A|_2).
        length = 0.5 / (3.0 * float(np.linalg.norm(Y, 2)) ** 2 + size)
        moved = np.maximum(Y - length * 2.0 * (Y @ (Y.T @ Y) - A @ Y), 0.0)
        last, B = B, moved * min(1.0, radius / max(float(np.linalg.norm(moved)), 1e-300))
    return None


METHODS: dict[str, Method] = {
    "Groetzner, Duer 2020": alternating,
    "Chen, Pong, Tan, Zeng 2020": difference_of_convex,
    "Bot, Nguyen 2021": projected_gradient,
}
