"""`covopt-check` on bounds from the data, of every depth, and on shared multipliers: proved, or refused if forged."""

import itertools
import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import editing
import numpy as np
import pytest
import torch
from editing import Change, arrays, certified, forged
from forging import of_solve

import covopt
from covopt import check as checker
from covopt.answer.result import Result
from covopt.certify.deep.angle import Angle
from covopt.certify.deep.convexity import Convexity
from covopt.certify.deep.flows import Laplacian
from covopt.certify.deep.linear import Linear
from covopt.certify.deep.loop import Loop
from covopt.certify.deep.one_input import OneInput
from covopt.certify.deep.planes import Plane
from covopt.certify.deep.ranks import least_product, least_relative_loss
from covopt.certify.paths.paths import PathNorm
from covopt.certify.proof import Proof, Target
from covopt.certify.relaxation.grouping import Grouped
from covopt.certify.shares.cells import Cell, Split
from covopt.certify.shares.shares import Shares
from covopt.certify.spectral import Spectral
from covopt.model.activation import Activation
from covopt.oracles.exact import exact_oracle
from covopt.runtime.loop import Status

PROVED, REFUSED, UNREAD, UNCHECKED = range(4)
DEADLINE = 600.0
PLAIN = {name: lambda path: path.write_bytes(b"") for name in ("figure.png", "report.html")}
RNG = np.random.default_rng(3)
X, Y = RNG.standard_normal((12, 12)), RNG.standard_normal((12, 3))
CLASSES = np.eye(3)[np.arange(12) % 3]
ANGLES = np.arange(8)[:, None] * np.pi / 4
RING = np.concatenate([np.cos(ANGLES), np.sin(ANGLES)], axis=1)
LINES = ("flows", "spectral")
"""Kinds for which the checker makes lines below the loss of its own, and may prove a little more than is stated."""
SAMPLED = 7
"""Of the forgeries of a run, one in so many."""
ROUND: dict[str, object] = {"max_iterations": 1, "time_limit": 0.5}
WEIGHTS = np.arange(1.0, 5.0)
LINE = np.linspace(-1.0, 1.0, 10)[:, None]
WAVES = np.hstack([np.sin(3.0 * LINE), np.cos(2.0 * LINE)])
WEIGHTED = {"sample_weight": np.arange(1.0, 6.0)}
ASK: dict[str, tuple[type[Proof], np.ndarray, np.ndarray, dict[str, object]]] = {
    "edges": (Laplacian, X[:5, :4], Y[:5], {"bias": 0.0, "time_limit": 2.5}),
    "edges, bias": (Laplacian, X[:5, :4], Y[:5], {}),
    "edges, cones": (Laplacian, X[:5, :2], Y[:5, :2], {"bias": 0.0}),
    "edges, noise": (Laplacian, X[:5, :3] @ X[5:8, :5] + 1e-11 * X[:5, 5:10], Y[:5, :1], {"bias": 0.0}),
    "edges, leaky": (Laplacian, X[:5, :4], Y[:5], {"activation": "leaky:-0.3"}),
    "ridge": (Laplacian, X[:6, :4], Y[:6], {"lam": 3e-2}),
    "flows, one input": (Laplacian, X[:6, :1], Y[:6, :1], {"lam": 3e-2, "bias": 0.0}),
    "ridge, weights": (Laplacian, X[:5, :4], Y[:5], {"lam": 3e-2, "depth": 4, "sample_weight": np.arange(1.0, 6.0)}),
    "flows": (Laplacian, X[:6, :4], Y[:6], {"lam": 2e-2, "activation": "leaky:-0.3", "bias": 0.0}),
    "flows, entropy": (Laplacian, X[:6, :4], CLASSES[:6], {"lam": 2e-2, "loss": "cross_entropy"}),
    "flows, cones": (Laplacian, X[:6, :1], CLASSES[:6], {"lam": 2e-2, "loss": "cross_entropy", "bias": 0.0}),
    "spectral": (Spectral, X[:6, :4], Y[:6], {"lam": 2e-2, "depth": 4}),
    "spectral, fit": (Spectral, X[:6, :4], Y[:6], {"bias": 0.0}),
    "spectral, entropy": (Spectral, X[:, :5], CLASSES, {"lam": 5e-2, "loss": "cross_entropy", "depth": 2}),
    "linear": (Linear, X[:5], Y[:5], {"activation": "linear"}),
    "linear, rank": (Linear, X[:, [0, 1, 1]], X[:, :2] @ Y[:2], {"activation": "linear", "bias": 0.0}),
    "angle": (Angle, X[:5, :2], Y[:5, :1], {"bias": 0.0}),
    "loop": (Loop, RING, RING, {"depth": 8}),
    "convexity": (Convexity, X[:, :2], np.ones((12, 1)), {"lam": 1e-2}),
    "convexity, fit": (Convexity, X[:4, :2], np.abs(Y[:4, :1]), {"depth": 4}),
    "convexity, no bias": (Convexity, X[:4, :2], np.abs(Y[:4, :2]), {"bias": 0.0}),
    "shares": (Shares, X[:3, :2], Y[:3, :1], {"bias": 0.0, **ROUND}),
    "shares, bias": (Shares, X[:3, :1], Y[:3, :1], ROUND),
    "shares, loss": (Shares, X[:4, :2], Y[:4, :1], {"bias": 0.0, "lam": 1e-2, "sample_weight": WEIGHTS, **ROUND}),
    "shares, loss, bias": (Shares, X[:3, :1], Y[:3, :1], {"bias": 0.3, "lam": 1e-2, **ROUND}),
    "shares, space": (Shares, X[:3, :2], Y[:3, :1], {"lam": 1e-2, **ROUND}),
    "shares, space, fit": (Shares, X[:3, :3] @ X[3:6, :5], Y[:3, :1], {"bias": 0.0, **ROUND}),
    "one input": (OneInput, X[:, :1], Y, {"bias": 0.0, "lam": 1e-3, "sample_weight": np.arange(1.0, 13.0)}),
    "one input, fit": (OneInput, X[:2, :1], Y[:2, :2], {"bias": 0.0}),
    "paths": (PathNorm, LINE, WAVES[:, :1], {"lam": 5e-2, **ROUND}),
    "paths, fit": (PathNorm, LINE[::3], WAVES[::3, :1], ROUND),
    "paths, plane": (PathNorm, X[:5, :2], Y[:5, :1], {"bias": 0.0, "lam": 1e-2, **WEIGHTED, **ROUND}),
    "paths, outputs": (PathNorm, LINE[::2], WAVES[::2], {"bias": 0.5, "lam": 2e-2, **ROUND}),
    "paths, outputs, fit": (PathNorm, X[:4, :2], Y[:4, :2], {"bias": 0.0, **ROUND}),
    "paths, space": (PathNorm, X[:6, :2], Y[:6, :2], {"lam": 1e-2, **ROUND}),
    "groups": (Grouped, X, Y, {"lam": 3e-2, "depth": 2}),
    "groups, leaky": (Grouped, X, Y, {"lam": 3e-2, "depth": 2, "bias": 0.0, "activation": "leaky:0.1"}),
    "groups, entropy": (Grouped, X[:, :6], CLASSES, {"lam": 3e-2, "depth": 2, "loss": "cross_entropy"}),
}


def solved(kind: type[Proof], inputs: np.ndarray, targets: np.ndarray, options: dict[str, object]) -> Result:
    """A rough network with the bound that `solve` would prove of this kind."""
    asked: dict[str, object] = {"depth": 3, "certify": "none", "time_limit": 0.3} | options
    result = covopt.solve(inputs, targets, **asked)  # type: ignore[arg-type]
    calls = itertools.count()
    stop = lambda: kind is PathNorm and next(calls) > 60  # noqa: E731
    network = result.weights or None
    proved = kind.prove(
        result.problem, Target(cost=result.cost, gap=1e-3, time_limit=60.0, steps=60, network=network, stop=stop)
    )
    assert proved is not None
    proof = proved.proof
    assert 0.0 < proof.lower < (result.cost if math.isfinite(result.cost) else math.inf)
    last = replace(result.history[-1], lower=proof.lower)
    status = Status.CONVERGED if math.isfinite(result.cost) else Status.UNSOLVED
    if result.target is not None and result.cost - proof.lower <= result.target * result.cost:
        status = Status.OPTIMAL
    return replace(result, lower=proof.lower, certificate=kind.kind, proof=proof, status=status, history=[last])


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("runs")
    for name, ask in ASK.items():
        solved(*ask).save(where / name, others=PLAIN)
    return where


@pytest.mark.parametrize("name", ASK)
def test_it_proves_what_verify_passes(stored: Path, name: str) -> None:
    assert covopt.verify(stored / name).passed
    code, told = checker.check(stored / name, DEADLINE)
    assert code == PROVED, told
    stated = json.loads((stored / name / "result.json").read_text())
    assert told["bound"] >= stated["lower"] - 2e-9 * (stated["cost"] or stated["lower"])


def test_a_bound_of_a_solve_is_proved(tmp_path: Path) -> None:
    """As `solve` itself ends, with the best of all kinds."""
    for number, options in enumerate(({"lam": 1e-2}, {"bias": 0.0}, {"lam": 1e-2, "activation": "linear"})):
        inputs = X[:4, : 1 + ("lam" not in options)]
        result = covopt.solve(inputs, Y[:4, :2], depth=3, time_limit=1.0, **options)  # type: ignore[arg-type]
        result.save(tmp_path / str(number), others=PLAIN)
        code, told = checker.check(tmp_path / str(number), DEADLINE)
        assert code == PROVED, told


def raised(part: float) -> Change:
    """A higher bound, to which the gap fits."""
    lower = lambda s: s["lower"] * (1.0 + part)  # noqa: E731
    gap = lambda s: None if s["cost"] is None else 1.0 - lower(s) / s["cost"]  # noqa: E731
    return forged(editing.states("result.json", lower=lower, gap=gap, target=None), certified)


def nested(feature: int) -> Change:
    """The tree below a thousand cuts of the first class, of its parts, or of |W_3|^2, without their other halves."""
    cuts = lambda c: np.concatenate([np.full((1000, 2), (0, feature)), c])  # noqa: E731
    return arrays("certificate.npz", cuts=cuts, places=lambda p: np.append(np.linspace(0.9, 0.1, 1000), p))


PATHS = [name for name in ASK if name.split(",")[0] == "paths"]
BIASED = [name for name in PATHS if ASK[name][3].get("bias") != 0.0]
TAMPERED: list[tuple[str, Callable[[Path], object]]] = [
    *((name, raised(1e-3)) for name in ASK if name.split(",")[0] not in LINES),
    *((name, raised(5e-2)) for name in ASK if name.split(",")[0] in LINES and name != "flows, cones"),  # it takes 10 s
    *((name, arrays("problem.npz", Y=lambda Y: 0.9 * Y)) for name in ASK if "entropy" not in name),
    *((name, arrays("problem.npz", X=lambda X: X * 1.1 + 0.3)) for name in ("edges", "ridge", "angle")),
    *((name, forged(editing.states("result.json", cost=lambda s: 0.99 * s["cost"]))) for name in ("ridge", "flows")),
    ("edges", arrays("certificate.npz", sizes=lambda s: -s)),
    ("edges", arrays("certificate.npz", sizes=lambda s: s[:-1])),
    ("edges", arrays("certificate.npz", sizes=lambda s: s[::-1])),
    ("edges", arrays("certificate.npz", sizes=lambda s: 0.0 * s)),
    ("edges", arrays("certificate.npz", pairs=lambda p: p[::-1])),
    ("edges", arrays("certificate.npz", pairs=lambda p: 0 * p)),
    ("edges", arrays("certificate.npz", pairs=lambda p: p + 100)),
    ("edges", arrays("certificate.npz", pairs=lambda p: p - 1)),
    ("edges, bias", arrays("certificate.npz", sizes=lambda s: s * np.array([1.0, 0.9]))),
    ("edges, cones", arrays("certificate.npz", sizes=lambda s: s[:, ::-1])),
    ("ridge, weights", arrays("problem.npz", weights=lambda w: w[::-1])),
    ("flows", arrays("certificate.npz", flows=lambda f: 0.5 * f)),
    ("flows", arrays("certificate.npz", flows=lambda f: f[:, :-1])),
    ("flows", arrays("certificate.npz", flows=None)),
    ("flows", arrays("certificate.npz", spread=lambda s: s - 1.0)),
    ("flows, entropy", arrays("certificate.npz", flows=lambda f: 3.0 * f)),
    ("flows, entropy", arrays("certificate.npz", flows=lambda f: f[:, ::-1])),
    ("flows, entropy", arrays("certificate.npz", flows=None, spread=None)),
    ("flows, cones", arrays("certificate.npz", spread=lambda s: np.append(s, s))),
    ("linear", arrays("problem.npz", activation=np.array("relu"))),
    ("angle", arrays("certificate.npz", pair=lambda p: p * 0)),
    ("angle", arrays("certificate.npz", pair=lambda p: p + 5)),
    ("angle", arrays("problem.npz", bias=np.array(0.5))),
    ("loop", arrays("certificate.npz", loop=lambda p: p[::-1])),
    ("loop", arrays("certificate.npz", loop=lambda p: np.append(p, p))),
    ("loop", arrays("certificate.npz", loop=lambda p: p[[0, 2, 4, 6, 1, 3, 5, 7]])),
    ("loop", arrays("certificate.npz", plane=lambda p: 0.0 * p)),
    ("convexity", arrays("certificate.npz", multipliers=lambda M: 0.0 * M + np.array([[1.0], [-1.0]] * 6))),
    ("convexity, fit", arrays("certificate.npz", multipliers=lambda M: -M)),
    ("convexity, fit", arrays("certificate.npz", multipliers=lambda M: M[:-1])),
    ("convexity, no bias", arrays("certificate.npz", multipliers=lambda M: M[::-1])),
    *(("shares", arrays("certificate.npz", cuts=lambda c, d=d: c + np.array(d))) for d in ((1, 0), (0, 1), (0, -1))),
    ("shares", arrays("certificate.npz", cuts=lambda c: c[::-1])),
    ("shares", arrays("certificate.npz", cuts=lambda c: c[:-1], places=lambda p: p[:-1])),
    *(
        ("shares", arrays("certificate.npz", multipliers=part, prices=part))
        for part in (lambda A: A[:-1], lambda A: A[:0])
    ),
    ("shares", arrays("certificate.npz", cuts=lambda c: c[-1:], places=lambda p: p[-1:])),
    *(("shares", arrays("certificate.npz", places=lambda p, f=f: f * p)) for f in (0.5, 9.0, math.nan)),
    *(("shares", nested(feature)) for feature in (0, -1, -2)),
    ("shares, loss, bias", nested(-2)),
    *((name, arrays("certificate.npz", multipliers=lambda L: -L)) for name in ASK if "shares" in name),
    *((name, arrays("certificate.npz", prices=lambda Z: Z - 1.0)) for name in ASK if "shares" in name),
    *((name, arrays("certificate.npz", prices=lambda Z: Z[:, ::-1])) for name in ASK if "shares" in name),
    ("shares", arrays("certificate.npz", multipliers=lambda L: L[::-1], prices=lambda Z: Z[::-1])),
    ("shares", arrays("certificate.npz", prices=lambda Z: np.where(Z[0, 0, 0] == Z, math.inf, Z))),
    ("shares", arrays("certificate.npz", prices=lambda Z: Z[:, :-1])),
    ("shares", arrays("certificate.npz", multipliers=lambda L: L[:0], prices=np.empty((0, 2**41 - 2, 40)))),
    ("shares", arrays("certificate.npz", step=np.array(2.0))),
    ("shares", arrays("certificate.npz", step=None)),
    *((name, arrays("certificate.npz", multipliers=lambda L: -L)) for name in PATHS),
    *((name, forged(arrays("certificate.npz", multipliers=lambda L: 1.01 * L), raised(1e-3))) for name in PATHS),
    *((name, arrays("certificate.npz", prices=lambda c: 0.0 * c)) for name in PATHS),
    *((name, arrays("certificate.npz", prices=lambda c: c[:, ::-1])) for name in PATHS if "fit" not in name),
    *((name, arrays("certificate.npz", prices=lambda c: c[:-1])) for name in PATHS),
    *((name, arrays("certificate.npz", prices=lambda c: np.vstack([c, c[-1:]]))) for name in PATHS),
    *((name, arrays("certificate.npz", cuts=lambda c: c[:-1], prices=lambda c: c[:-1])) for name in PATHS),
    *((name, arrays("certificate.npz", cuts=lambda c: np.append(c, c[-1]))) for name in PATHS),
    *((name, arrays("certificate.npz", cuts=lambda c: c[::-1])) for name in PATHS),
    *((name, arrays("certificate.npz", cuts=lambda c: c - 1)) for name in PATHS),
    *((name, arrays("certificate.npz", cuts=lambda c: np.where(c < 0, c, (c + 1) % 4))) for name in PATHS[:1]),
    *((name, arrays("certificate.npz", bias_prices=lambda r: 0.5 * r)) for name in BIASED),
    *((name, arrays("certificate.npz", bias_prices=lambda r: 2.0 * r)) for name in BIASED),
    *((name, arrays("certificate.npz", bias_prices=lambda r: -r)) for name in PATHS),
    *((name, arrays("certificate.npz", step=np.array(2.0))) for name in PATHS),
    ("paths", arrays("certificate.npz", bias_prices=lambda r: r[:0], multipliers=lambda L: L[:0])),
    ("paths", arrays("certificate.npz", cuts=np.arange(10), prices=lambda c: c[:1])),
    ("paths", arrays("problem.npz", depth=np.array(4))),
    *(
        ("paths, outputs", arrays("certificate.npz", directions=np.array(K)))
        for K in (2.0, 3.0, 11.5, 1e9, math.inf, math.nan)
    ),
    ("groups", arrays("certificate.npz", diagonal=lambda c: 0.9 * c)),
    ("groups", arrays("certificate.npz", diagonal=lambda c: -c)),
    ("groups", arrays("certificate.npz", shared=lambda M: 0.0 * M)),
    ("groups", arrays("certificate.npz", shared=lambda M: -M)),
    ("groups", arrays("certificate.npz", shared=lambda M: 2.0 * M)),
    ("groups", arrays("certificate.npz", labels=lambda g: 0 * g)),
    ("groups", arrays("certificate.npz", labels=lambda g: g + 1)),
    ("groups", arrays("certificate.npz", labels=lambda g: g[:-1])),
    ("groups", arrays("certificate.npz", Lambda=lambda L: L[::-1])),
    ("groups", forged(editing.states("result.json", certificate="exact"), certified)),
    ("edges", forged(editing.states("result.json", certificate="convexity"), certified)),
]


def test_what_was_tampered_with_is_refused(stored: Path, tmp_path: Path) -> None:
    assert editing.accepted(lambda run: checker.check(run, DEADLINE), stored, TAMPERED, tmp_path / "run") == []


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("ridge", "flows"),
        ("edges", "edges, bias"),
        ("shares, space", "shares"),
        ("paths, space", "paths, fit"),
        ("groups", "groups, leaky"),
    ],
)
def test_a_forged_run_is_not_proved(stored: Path, tmp_path: Path, name: str, other: str) -> None:
    forgeries = [forgery for forgery in of_solve(stored / name, stored / other) if forgery.cost_or_bound]
    assert len(forgeries) > 50
    for number, forgery in enumerate(forgeries[::SAMPLED]):
        forgery.write(tmp_path / str(number))
        assert checker.check(tmp_path / str(number), 5.0)[0] != PROVED, forgery.name


def matrix(A: np.ndarray) -> list[list[Fraction]]:
    return [[Fraction(x) for x in row] for row in A.tolist()]


@pytest.mark.parametrize("seed", range(6))
def test_singular_values_are_bounded_from_below(seed: int) -> None:
    """Of matrices with singular values over 14 orders of magnitude, in whole numbers so that they are known."""
    rng = np.random.default_rng(seed)
    B = matrix(rng.standard_normal((4, 4)) * 10.0 ** -rng.uniform(0, 7, 4))
    bounds = checker.singular(checker.gram(B, B))
    exact = np.linalg.svd(np.array(B, dtype=np.float64), compute_uv=False)
    assert len(bounds) == 4
    for bound, value in zip(bounds, exact, strict=True):
        assert value * (1.0 - 1e-9) - 1e-15 * exact[0] <= float(bound) <= value + 1e-15 * exact[0]
    thin = checker.singular(checker.gram([row[:2] for row in B], [row[:2] for row in B]))
    assert len([x for x in thin if x > Fraction(1, 10**12)]) <= 2


@pytest.mark.parametrize("n", [1, 4, 60])
def test_the_largest_eigenvalue_is_bounded_from_above(n: int) -> None:
    """Of matrices with clusters of eigenvalues, a null space, or a single direction, in whole numbers."""
    rng = np.random.default_rng(n)
    path = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    thin = np.round(1e3 * rng.standard_normal((n, max(1, n // 3))))
    for A in (np.eye(n), path, thin @ thin.T, np.ones((n, n)), np.diag(np.arange(n) == 0).astype(float)):
        largest = float(np.linalg.eigvalsh(A)[-1])
        assert 1.0 <= float(checker.top(matrix(A))) / largest <= 1.0 + 1e-11
    assert checker.top(matrix(0.0 * path)) == 0


@pytest.mark.parametrize("f", [(3.0,), (1.0, 1.0), (5.0, 2.0, 1e-3), (1.0, 0.9, 0.8, 0.7, 0.1)])
def test_the_least_product_is_that_of_the_package(f: tuple[float, ...]) -> None:
    product, _ = least_product(torch.tensor(f, dtype=torch.float64))
    exact = checker.least_product([Fraction(x) for x in f])
    assert float(exact) == pytest.approx(product**2, rel=1e-12)
    for kappa, k in itertools.product(np.geomspace(1e-3, 1e3, 200), range(1, len(f) + 1)):  # points of the minimum
        x = np.minimum(1.0, kappa * np.array(f))
        x[:k] = 1.0
        assert x.sum() ** 2 * (np.square(f) / x).sum() >= float(exact) * (1.0 - 1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_the_least_product_in_a_plane_is_that_of_the_package(seed: int) -> None:
    """A little more, since its triangles are smaller; nothing of rank one."""
    F = np.random.default_rng(seed).standard_normal((6, 2 + seed % 2)) * [1.0, 0.3, 0.5][: 2 + seed % 2]
    rows, end = [[Fraction(x) for x in row] for row in F.tolist()], time.monotonic() + DEADLINE
    plane = Plane.of(torch.from_numpy(F), 1e-7)
    assert plane is not None
    assert 1.0 <= float(checker.Plane(rows, Fraction(1e-7)).least_product(end)) / plane.least_product() <= 1.0015
    assert checker.Plane([row[:1] * 2 for row in rows], Fraction(0)).least_product(end) == 0


@pytest.mark.parametrize("depth", [3, 4, 7])
def test_cells_prove_the_least_loss_and_nothing_above_it(stored: Path, depth: int) -> None:
    run = checker.Run(stored / "ridge")
    run.depth = depth
    f, a, b = [Fraction(3), Fraction(2), Fraction(1, 2)], Fraction(7), Fraction(2)
    squares, lam = np.array([9.0, 4.0, 0.25]), float(run.lam)
    total, e = squares.sum() / 4.0, 2.0 / (depth - 1)
    c = (depth - 1) * lam ** (depth / (depth - 1)) * 3.5**-e / total
    least, _ = least_relative_loss(torch.from_numpy(squares / squares.sum()), math.log(c), e)
    end = time.monotonic() + DEADLINE
    assert checker.ridge(run, f, a, b, Fraction(least * total), end)
    assert not checker.ridge(run, f, a, b, Fraction(least * total * 1.001), end)


def test_the_growth_is_that_of_the_recurrence() -> None:
    """Against the largest signal of a budget that is shared by random search."""
    rng, L, q = np.random.default_rng(0), 4, 0.3
    budgets = [checker.Decimal(4 * k) / 400 for k in range(401)]
    values = [((B + checker.Decimal(q)) ** 2 / 4 if q < B else B * checker.Decimal(q)) for B in budgets]
    for _ in range(L - 2):
        values = checker.grown(budgets, [t + checker.Decimal(q) for t in values])
    parts = rng.dirichlet(np.ones(L), 100_000) * 4.0
    signal = parts[:, 0]
    for layer in range(1, L):
        signal = parts[:, layer] * (signal + q)
    assert signal.max() <= float(values[-1]) <= signal.max() * 1.02


@pytest.mark.parametrize("scale", [(1e-60, 1e60), (1e60, 1e-60), (1e-30, 1e-20), (1e40, 1e10)])
def test_trees_over_shares_are_proved_at_every_scale(scale: tuple[float, float], tmp_path: Path) -> None:
    """Also for samples of very different sizes: multipliers then differ as much."""
    sizes = np.array([[1e12], [1.0], [1e-9]]) if scale[0] < 1.0 else 1.0
    lam = 1e-2 * scale[1] ** 2 * (scale[0] / scale[1]) ** (2 / 3)
    for name, inputs, bias in (("space", X[:3, :3] * sizes, 0.0), ("line", X[:3, :1], scale[0])):
        result = solved(Shares, inputs * scale[0], Y[:3, :1] * scale[1], {"bias": bias, "lam": lam, **ROUND})
        result.save(tmp_path / name, others=PLAIN)
        code, told = checker.check(tmp_path / name, DEADLINE)
        assert code == PROVED, told


@pytest.mark.parametrize("seed", range(12))
def test_maxima_over_the_first_layer_are_exact(stored: Path, seed: int) -> None:
    """Against the oracles of the package, which take both signs; parallel rows, zeros and thin data too."""
    rng, run = np.random.default_rng(seed), checker.Run(stored / "paths, plane")
    inputs = rng.integers(-3, 4, (run.N, 3)) if seed % 2 else rng.standard_normal((run.N, 3)) * [1.0, 1.0, 1e-4]
    inputs = inputs[:, : 1 + seed % 3] * 10.0 ** rng.integers(-50, 50)
    run.X, end = inputs.tolist(), time.monotonic() + DEADLINE
    sphere = checker.Sphere(run, [Fraction(1)] * run.N, end)
    oracle = exact_oracle(torch.from_numpy(inputs), Activation(0.0))
    assert oracle is not None
    for _ in range(5):
        c = rng.integers(-(10**9), 10**9, (run.N, 2))
        both = [sphere.largest((sign * c[:, 0]).tolist(), 0) for sign in (1, -1)]
        assert sphere.largest((-abs(c[:, 0])).tolist(), 7) == 7
        *_, together = sphere.tops(lambda S, c=c: sum(checker.dot(row, S) ** 2 for row in c.T.tolist()), end)
        for most, columns in ((max(both), c[:, :1]), (together, c)):
            largest = oracle(torch.from_numpy(columns.astype(float))).upper_bound
            assert float(sphere.unit * checker.root(Fraction(most))) == pytest.approx(largest, rel=1e-9)


def test_shares_of_a_box_are_at_a_corner() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        splits = [(int(rng.integers(k)), *sorted(rng.random(2))) for k in range(1, 6)]
        values = rng.integers(1, 1 << 60, 6).tolist()
        corners = Cell(tuple(Split(divided, 0, low, high) for divided, low, high in splits)).corners
        parts = [(divided, int(low * 2**60), int(high * 2**60)) for divided, low, high in splits]
        assert checker.largest_mean(values[:], parts) == pytest.approx(max(corners @ values), rel=1e-12)


def test_cells_of_the_last_layer_prove_the_minimum_and_nothing_above_it() -> None:
    rng, end = np.random.default_rng(0), time.monotonic() + DEADLINE
    k = np.linspace(0.0, 1.0, 2001)
    for low in (0.0, 0.1, 0.5):
        a, b, c = 10.0 ** rng.uniform(-1, 1, 3)
        z = np.linspace(low, 2.0, 2001)[low == 0.0 :, None]
        least = float((z**2 + 2.0 * k * a / z - k**2 * (b / z**2 + c)).max(axis=1).min())
        for part in (1.0 - 1e-4, 1.0 + 1e-4):  # all in units of `goal`
            goal = least * part
            x, y, *terms = map(Fraction, [low / goal**0.5, 2.0 / goal**0.5, a / goal**1.5, b / goal**2, c / goal])
            assert checker.costly(x, y, [(terms[0], terms[1], terms[2])], end) == (part < 1.0)


def test_cells_of_the_last_layer_take_the_best_of_several_points() -> None:
    """Each of the two proves 1 on a part of the interval only."""
    end, half = time.monotonic() + DEADLINE, Fraction(1, 2)
    points = [(half, Fraction(0), Fraction(2)), (Fraction(2), Fraction(8), Fraction(0))]
    k = np.linspace(0.0, 1.0, 2001)[:, None]
    z = np.linspace(0.0, 1.0, 2001)[1:]
    a, b, c = np.array(points, dtype=np.float64).T[:, :, None, None]
    proved = (z**2 + 2.0 * k * a / z - k**2 * (b / z**2 + c)).max(axis=1)
    level = float(proved.max(axis=0).min())
    assert (proved.min(axis=1) < 0.99 * level).all()
    for part in (1.0 - 1e-4, 1.0 + 1e-4):
        goal = level * part
        scaled = [(x / Fraction(goal**1.5), y / Fraction(goal**2), w / Fraction(goal)) for x, y, w in points]
        assert checker.costly(Fraction(0), Fraction(1 / goal**0.5), scaled, end) == (part < 1.0)


def test_prices_of_a_leaf_are_moved_to_where_they_hold() -> None:
    """Whatever is stored, for all h = h+ - h- of the signs that the leaf decided."""
    rng, e = np.random.default_rng(0), 20
    for _ in range(200):
        slopes, signs = rng.integers(-(2**e), 2**e, 6), rng.integers(-1, 2, 6)
        above, below = checker.moved(rng.standard_normal(6).tolist(), slopes.tolist(), tuple(signs.tolist()), e)
        parts = rng.integers(0, 9, (2, 100, 6))
        h = parts[0] - parts[1]
        parts = np.where(h * signs < 0, parts[::-1], parts)
        assert (np.maximum(parts[0] - parts[1], 0) @ slopes <= parts[0] @ above + parts[1] @ below).all()


@pytest.mark.parametrize("count", [3, 4, 12, 97])
def test_directions_of_two_outputs_see_each_vector(count: int) -> None:
    directions, secant = checker.directions(2, count)
    angles = np.linspace(0.0, 2.0 * np.pi, 10_001)
    seen = float(secant) * (np.array(directions, dtype=np.float64) @ [np.cos(angles), np.sin(angles)]).max(axis=0)
    assert 1.0 - 1e-12 <= seen.min() <= 1.0 + 1e-4
    assert seen.max() == pytest.approx(1.0 / math.cos(math.pi / count), rel=1e-12)


@pytest.mark.parametrize("name", ["paths", "paths, plane", "paths, outputs", "paths, space"])
def test_changed_paths_prove_what_verify_says_of_them(stored: Path, name: str) -> None:
    """The checker's maxima are exact, so it proves a little more, the square of a step over 12 at most."""
    rng, result, run = np.random.default_rng(0), covopt.load(stored / name), checker.Run(stored / name)
    proof, arrays = result.proof, run.certificate
    assert isinstance(proof, PathNorm)
    for spread in np.geomspace(1e-4, 1.0, 8):
        changes = {key: arrays[key] * np.exp(spread * rng.standard_normal()) for key in ("bias_prices", "prices")}
        noise = spread * rng.standard_normal(proof.multipliers.shape) * np.abs(proof.multipliers).max()
        changes |= {"multipliers": proof.multipliers + 0.2 * noise}
        bound, run.certificate = replace(proof, **changes).bound(result.problem), arrays | changes
        assert 0.0 < bound < result.cost
        checker.paths(run, Fraction(bound * (1.0 - 1e-7)), time.monotonic() + DEADLINE)
        with pytest.raises(checker.Stop, match="do not prove"):
            checker.paths(run, Fraction(bound * 1.001), time.monotonic() + DEADLINE)


def test_inputs_of_rank_4_are_refused(stored: Path) -> None:
    run = checker.Run(stored / "paths")
    run.X = [[x, x * x, x**3] for (x,) in run.X]
    with pytest.raises(checker.Stop, match="do not prove") as stop:
        checker.paths(run, Fraction(run.stated["lower"]), time.monotonic() + DEADLINE)
    assert stop.value.args[0] == REFUSED


def test_wide_inputs_are_proved_by_their_rows(tmp_path: Path) -> None:
    wide = np.random.default_rng(0).standard_normal((5, 601))
    asked = {"lam": 0.1, "certify": "fast", "max_iterations": 3}
    covopt.solve(wide, Y[:5], **asked).save(tmp_path / "wide", others=PLAIN)  # type: ignore[arg-type]
    code, told = checker.check(tmp_path / "wide", DEADLINE)
    assert code == PROVED, told


def test_a_large_matrix_is_said_to_be_unchecked() -> None:
    with pytest.raises(checker.Stop, match="more than 600 columns") as stop:
        checker.top(checker.unit(601, Fraction(1)))
    assert stop.value.args[0] == UNCHECKED
