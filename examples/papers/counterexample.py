"""A function whose representations diverge with depth, so that no expansion in 1 / L holds.

f(x, y, z) = (x, y, z + (x - y)_+) on [0, 1]^3. With bounded representations a ReLU network of L layers costs 3 L + 3:
three dimensions everywhere, and three more for the ridge. It costs less to stretch x and y, to shrink z by a factor
e^e in each of (L - 2) / 2 layers, to add the ridge where it costs little, and to undo both; for even L

    |W|^2 - 3 L = (L - 2) (2 (cosh 2e - 1) + cosh 4e - 1) + 2 exp(-(L - 2) e) + exp(-2 (L - 2) e),

convex in e. At its minimum it falls like log(L)^2 / L, and the Lipschitz constant exp(e (L - 2) / 2) of the
representations at L / 2 grows for ever. From below, L sum_i s_i^(2/L) with the singular values of the Jacobian
[[1, 0, 0], [0, 1, 0], [1, -1, 1]] for x > y [J23a, Prop. 3].

Source: [J23b, D.1], with the ranges of its layers corrected and the factor (L - 2) / 2 that its second line lost.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from figure_design import Arrays, Asked, Claim, Design, Made, Numbers, Setting, square
from jaxtyping import Float

from covopt.answer import drawing
from covopt.runtime.loop import Status

DEPTHS = (4, 6, 10, 20, 50, 100, 200, 500, 1000, 10000)
POINTS = 200
RIDGE = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, -1.0, 1.0]])
"""The Jacobian where x > y."""
# Up to here the network computes f to EXACT; each layer more adds a rounding error.
SHALLOW, EXACT = 100, 1e-14
COLUMNS = ("L", "e", "|W|^2 - 3L", "at least", "Lipschitz", "error of f")


def ridge(X: Float[np.ndarray, "N 3"]) -> Float[np.ndarray, "N 3"]:
    """f(x, y, z) = (x, y, z + (x - y)_+)."""
    return np.column_stack([X[:, :2], X[:, 2] + np.maximum(X[:, 0] - X[:, 1], 0.0)])


def ridge_network(depth: int, e: float) -> list[Float[np.ndarray, "_ _"]]:
    """The network of even depth L that stretches x, y by e^e and shrinks z by e^(-2e) in each layer, without biases."""
    half, one = (depth - 2) // 2, np.eye(3)
    up, down = np.diag(np.exp([e, e, -2.0 * e])), np.diag(np.exp([-e, -e, 2.0 * e]))
    kink = np.vstack([one, math.exp(-e * half) * np.array([[1.0, -1.0, 0.0]])])
    added = np.column_stack([one, [0.0, 0.0, math.exp(-2.0 * e * half)]])
    return [*[up] * half, kink, added, *[down] * half]


def excess(depth: int, e: float) -> float:
    """|W|^2 - 3 L of `ridge_network`, in closed form."""
    m = depth - 2
    grown = 4.0 * math.sinh(e) ** 2 + 2.0 * math.sinh(2.0 * e) ** 2  # cosh 2t - 1 = 2 sinh^2 t, without cancellation
    return m * grown + 2.0 * math.exp(-m * e) + math.exp(-2.0 * m * e)


def best_stretch(depth: int) -> float:
    """The e of least norm, where 2 sinh 2e + 2 sinh 4e = exp(-(L-2) e) + exp(-2 (L-2) e): bisection."""
    low, high, m = 0.0, 1.0, depth - 2
    while low < (middle := (low + high) / 2.0) < high:
        rising = 2.0 * (math.sinh(2.0 * middle) + math.sinh(4.0 * middle))
        falling = math.exp(-m * middle) + math.exp(-2.0 * m * middle)
        low, high = (low, middle) if rising > falling else (middle, high)
    return high


def _of_depth(depth: int, X: Float[np.ndarray, "N 3"]) -> Numbers:
    """The line of the table of one depth."""
    e = best_stretch(depth)
    layers, F = ridge_network(depth, e), X
    for number, A in enumerate(layers):
        F = (np.maximum(F, 0.0) if number else F) @ A.T
    s = np.linalg.svd(RIDGE, compute_uv=False)
    return {
        "depth": depth,
        "e": e,
        "excess": excess(depth, e),
        "network": square(layers) - 3.0 * depth,
        "lower": depth * float(np.expm1(2.0 / depth * np.log(s)).sum()),
        "lipschitz": math.exp(e * (depth // 2 - 1)),
        "error": float(np.abs(F - ridge(X)).max()),
    }


def _make(asked: Asked) -> Made:
    X = np.random.default_rng(asked.seed).random((POINTS, 3))
    settings = [
        Setting("function", "f(x, y, z) = (x, y, z + max(x - y, 0)) on the unit cube", True),
        Setting("network", "width 3, and 4 at the ridge; no biases", True),
        Setting("depths", ", ".join(str(L) for L in DEPTHS), False),
        Setting("e", "the one of least norm at each depth", False),
        Setting("points", f"{POINTS} uniform points, at which f is compared", False),
    ]
    return Made(settings, {"depths": np.array(DEPTHS, dtype=np.float64), "X": X}, Status.CONVERGED)


def _numbers(arrays: Arrays) -> Numbers:
    depths = [int(L) for L in arrays["depths"]]
    if not all(L >= 4 and L % 2 == 0 for L in depths):
        raise ValueError("the depths are not even numbers from 4 on")
    return {"depths": [_of_depth(L, arrays["X"]) for L in depths]}


def _claims(numbers: Numbers) -> list[Claim]:
    lines = numbers["depths"]
    falls = all(b["excess"] < a["excess"] for a, b in pairwise(lines))
    grows = all(b["lipschitz"] > a["lipschitz"] for a, b in pairwise(lines))
    exact = all(line["error"] <= EXACT for line in lines if line["depth"] <= SHALLOW)
    close = all(line["error"] <= line["depth"] * 2.0**-52 for line in lines if line["depth"] > SHALLOW)
    slow = lines[-1]["excess"] * lines[-1]["depth"] > 10.0 * lines[0]["excess"] * lines[0]["depth"]
    agree = all(abs(line["network"] - line["excess"]) <= 1e-12 * line["depth"] for line in lines)
    return [
        Claim("the norm beyond 3 L falls with the depth, below the 3 of bounded representations", falls),
        Claim("it falls more slowly than 1 / L, so that no term R2 / L describes it", slow),
        Claim("the Lipschitz constant of the representations at L / 2 grows with the depth", grows),
        Claim("the network has the norm of the closed form", agree),
        Claim(f"the network computes f up to {EXACT:g} to depth {SHALLOW}, and up to rounding beyond", exact and close),
    ]


def _rows(numbers: Numbers) -> list[list[object]]:
    names = ("depth", "e", "excess", "lower", "lipschitz", "error")
    return [[line[name] for name in names] for line in numbers["depths"]]


def _panels(_: Arrays, numbers: Numbers) -> list[drawing.Panel]:
    lines = numbers["depths"]
    L, beyond, lower, lipschitz = (
        np.array([line[name] for line in lines], dtype=np.float64) for name in ("depth", "excess", "lower", "lipschitz")
    )
    costs = [
        drawing.Line("bounded representations", L, np.full(len(L), 3.0), "--", 4),
        drawing.Line("the network of D.1", L, beyond, "o-", 0),
        drawing.Line("at least, for this function", L, lower, "o-", 1),
    ]
    return [
        drawing.Panel("Norm beyond 3 L", "depth L", "|W|² − 3 L", costs, logarithmic="xy"),
        drawing.Panel(
            "Lipschitz constant at L / 2",
            "depth L",
            "Lipschitz constant",
            [drawing.Line("", L, lipschitz, "o-", 2)],
            logarithmic="xy",
        ),
    ]


DESIGN = Design(
    title="a function without an expansion in 1 / L",
    source="[J23b, D.1]",
    question="Does the norm of a function have an expansion L R0 + R1 + R2 / L, with representations that converge?",
    differs=(
        "The paper prints no picture. Its norm lacks a factor (L - 2) / 2, so that its order L^(-2 gamma) is"
        " L^(1 - 2 gamma); its conclusion R1 = 0 stands."
    ),
    make=_make,
    numbers=_numbers,
    claims=_claims,
    columns=COLUMNS,
    rows=_rows,
    panels=_panels,
)

if __name__ == "__main__":
    DESIGN.run()
